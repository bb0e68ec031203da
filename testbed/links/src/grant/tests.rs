//! The closed form of an idle uplink, a busy one, and the rules of requests.

use super::*;
use crate::testing::drain;
use backchannel_core::event::EventKind;
use backchannel_core::packet::build::{ack, data};
use serde_json::{json, Value};

const UP_BPS: u64 = 10_000_000;

/// A link of 100/10 Mbit/s without propagation delay.
fn link(options: &Value) -> Box<dyn Link> {
    build_link(options).expect("a good link")
}

fn build_link(options: &Value) -> Result<Box<dyn Link>, Error> {
    let way =
        |rate: u64| json!({"rate_bps": rate, "queue": {"name": "droptail", "options": {"limit_packets": 100_000}}});
    let spec = json!({
        "name": "access", "kind": "grant", "ends": ["head", "station"], "options": options,
        "forward": way(100_000_000), "reverse": way(UP_BPS),
    });
    crate::testing::build(&serde_json::from_value(spec).expect("a link"), 7)
}

/// Delays in seconds of single packets of `bytes` at the station, which arrive at `count` places spread evenly over
/// `period_s`, each long after the one before it.
fn idle_delays(options: &Value, bytes: u32, period_s: f64, count: u32) -> Vec<f64> {
    let mut link = link(options);
    let mut events = Events::default();
    (0..count)
        .map(|place| {
            // Whole multiples of every cycle of the tests.
            let base_s = 3.6 * f64::from(place + 1);
            let at = Time::from_seconds(base_s + period_s * (f64::from(place) + 0.5) / f64::from(count));
            link.submit(at, 1, data(u64::from(place), bytes - 40), &mut events);
            let [(port, arrives, _)] = drain(&mut *link, &mut events)[..] else { panic!("one packet") };
            assert_eq!(port, 0);
            (arrives - at.nanos()) as f64 * 1e-9
        })
        .collect()
}

/// Mean, least and greatest delay of an idle uplink, in s. In seconds: `cycle` T, `interval` P, `grant` G; `sending` is
/// the packet's own time.
///
/// A packet waits from 0 to P for its opportunity, and then G. Then it waits for the next cycle. If P is a multiple of T,
/// all opportunities lie at one place of a cycle, and that wait is what G lacks of whole cycles. If T is n times P, the
/// n opportunities of a cycle lie P apart, and so do their waits: the least is what G lacks of whole P, the greatest is
/// n - 1 times P longer.
fn closed_form(cycle: f64, interval: f64, grant: f64, sending: f64) -> [f64; 3] {
    let lacks = |of: f64| (grant / of - 1e-9).ceil() * of - grant;
    let n = (cycle / interval).round().max(1.0);
    let least_wait = lacks(interval.min(cycle));
    let spread = (n - 1.0) * interval.min(cycle);
    let least = grant + least_wait + sending;
    [least + interval / 2.0 + spread / 2.0, least, least + interval + spread]
}

#[test]
fn an_idle_uplinks_delay_is_the_closed_form() {
    // (cycle, interval, grant delay, channel rate): MAPs of 2 ms and one or eight contention regions in each, reports
    // every eighth frame, scheduling requests every 4th period, and grant delays that are not whole cycles.
    for (cycle, interval, grant, channel_bps) in [
        (0.002, 0.002, 0.002, 100e6),
        (0.002, 0.002, 0.0033, 100e6),
        (0.002, 0.00025, 0.0031, 50e6),
        (0.000_125, 0.001, 0.0004, 1.25e9),
        (0.0025, 0.01, 0.002, 100e6),
        (0.001, 0.0005, 0.0, 10e6),
    ] {
        let options = json!({
            "cycle_s": cycle, "request_interval_s": interval, "grant_delay_s": grant, "channel_rate_bps": channel_bps,
        });
        // A packet that one cycle carries whole.
        let bytes = 100;
        let sending = f64::from(bytes) * 8.0 / channel_bps;
        let delays = idle_delays(&options, bytes, f64::max(cycle, interval), 800);
        let [mean, least, most] = closed_form(cycle, interval, grant, sending);
        let measured = delays.iter().sum::<f64>() / 800.0;
        let (low, high) = delays.iter().fold((f64::MAX, 0.0f64), |(low, high), d| (low.min(*d), high.max(*d)));
        // Arrivals lie at the middles of 800 equal parts: the mean is exact, and extremes half a part inside.
        let part = f64::max(cycle, interval) / 800.0;
        assert!((measured - mean).abs() < 1e-6, "{options}: {measured} is not {mean}");
        assert!((low - least - part / 2.0).abs() < 1e-6, "{options}: {low} is not {least}");
        assert!((most - part / 2.0 - high).abs() < 1e-6, "{options}: {high} is not {most}");
    }
}

/// The opportunity and the burst lie in the uplink's part, the last fifth of the cycle.
#[test]
fn with_a_tdd_pattern_the_closed_form_is_that_of_the_uplinks_part() {
    let options = json!({"cycle_s": 0.0025, "uplink_s": 0.0005, "guard_s": 0.0001, "grant_delay_s": 0.002});
    let delays = idle_delays(&options, 100, 0.0025, 500);
    // 10 Mbit/s in a fifth of the time.
    let [mean, least, most] = closed_form(0.0025, 0.0025, 0.002, 800.0 / 50e6);
    assert!((delays.iter().sum::<f64>() / 500.0 - mean).abs() < 1e-6);
    assert!(delays.iter().all(|delay| (least..=most).contains(delay)));
}

/// The downlink of the same pattern: 1000 bytes at 100 Mbit/s take 80 us, or 60.8 of its part of 1.9 ms. What comes
/// too late for that part, or does not fit in the rest of it, goes on in the next one.
#[test]
fn the_downlink_sends_without_grants_in_its_part_of_the_cycle() {
    let options = json!({"cycle_s": 0.0025, "uplink_s": 0.0005, "guard_s": 0.0001, "grant_delay_s": 0.002});
    let (mut link, mut events) = (link(&options), Events::default());
    for (sent_us, arrives_us) in [(2_500_000, 60.8), (2_501_000, 60.8), (2_501_880, 660.8), (2_504_500, 560.8)] {
        link.submit(Time(sent_us * 1000), 0, data(1, 960), &mut events);
        let arrives = drain(&mut *link, &mut events)[0].1;
        assert_eq!(arrives - sent_us * 1000, (arrives_us * 1000.0) as u64, "{sent_us}");
    }
}

#[test]
fn the_downlinks_packets_have_their_framing() {
    let (mut link, mut events) = (link(&json!({"framing_bytes": 25})), Events::default());
    link.submit(Time::ZERO, 0, data(1, 960), &mut events);
    assert_eq!(drain(&mut *link, &mut events)[0].1, 82_000, "1025 bytes at 100 Mbit/s");
}

/// A request that does not say how much waits gets a small grant; the rest is requested in it and waits for a second
/// grant, whole cycles later.
#[test]
fn a_scheduling_request_takes_a_second_round_for_what_its_first_grant_lacks() {
    let options =
        |first: u64| json!({"cycle_s": 0.0025, "grant_delay_s": 0.004, "first_grant_bytes": first, "requests": 1});
    let mean = |first, bytes| idle_delays(&options(first), bytes, 0.0025, 100).iter().sum::<f64>() / 100.0;
    let [whole, ..] = closed_form(0.0025, 0.0025, 0.004, 800.0 / 10e6);
    assert!((mean(100, 100) - whole).abs() < 1e-6);
    // 60 of 100 bytes are left for the burst two cycles later.
    let [rest, ..] = closed_form(0.0025, 0.0025, 0.004, 480.0 / 10e6);
    assert!((mean(40, 100) - rest - 0.005).abs() < 1e-6);
}

/// With unsolicited grants of every cycle a packet waits half a cycle.
#[test]
fn an_unsolicited_grant_needs_no_request() {
    let options = json!({"cycle_s": 0.002, "grant_delay_s": 0.006, "unsolicited_bytes": 200});
    let delays = idle_delays(&options, 100, 0.002, 400);
    let mean = delays.iter().sum::<f64>() / 400.0;
    assert!((mean - 0.001 - 800.0 / 10e6).abs() < 1e-6, "{mean}");
    // The request for it is sent beside, and its grant stays empty.
    assert!(delays.iter().all(|delay| *delay <= 0.002 + 800.0 / 10e6));
}

/// With a collision of probability q, a backoff of up to 2^a opportunities and T = P: the i-th collision costs G, whole
/// cycles, and the mean of the next backoff.
#[test]
fn collisions_cost_what_truncated_exponential_backoff_says() {
    let (cycle, grant, q, start, end) = (0.002, 0.004, 0.3, 1, 3);
    let options = json!({
        "cycle_s": cycle, "grant_delay_s": grant, "collision": q, "backoff_start": start, "backoff_end": end,
    });
    let backoff = |collisions: u32| f64::from((1u32 << (start + collisions).min(end)) - 1) / 2.0 * cycle;
    let [alone, ..] = closed_form(cycle, cycle, grant, 800.0 / 10e6);
    let collided: f64 = (1..60).map(|i| f64::powi(q, i) * (grant + backoff(i as u32))).sum();
    let n = 8_000;
    let delays = idle_delays(&options, 100, cycle, n);
    let mean = delays.iter().sum::<f64>() / f64::from(n);
    let variance = delays.iter().map(|delay| (delay - mean).powi(2)).sum::<f64>() / f64::from(n);
    let expected = alone + backoff(0) + collided;
    assert!((mean - expected).abs() < 5.0 * (variance / f64::from(n)).sqrt(), "{mean} is not {expected}");
}

/// Fills a direction again at each event; returns the bit/s that arrive in the second of `seconds` halves.
fn backlogged_bps(options: &Value, port: Port, seconds: f64) -> f64 {
    let (mut link, mut events, mut out) = (link(options), Events::default(), Vec::new());
    let (mut id, mut bytes, mut now) = (0, 0u64, Time::ZERO);
    let (half, end) = (Time::from_seconds(seconds / 2.0), Time::from_seconds(seconds));
    while now < end {
        while link.backlog(port).unwrap().bytes < 400_000 {
            id += 1;
            link.submit(now, port, data(id, 960), &mut events);
        }
        now = link.next_event().unwrap();
        link.poll(now, &mut out, &mut events);
        let measured = out.drain(..).filter(|delivery| delivery.at >= half && delivery.at < end);
        bytes += measured.map(|delivery| u64::from(delivery.packet.len())).sum::<u64>();
    }
    bytes as f64 * 8.0 / (seconds / 2.0)
}

#[test]
fn a_backlogged_uplink_and_a_backlogged_downlink_carry_their_rates() {
    for options in [
        json!({}),
        json!({"channel_rate_bps": 100_000_000, "grant_delay_s": 0.0035}),
        json!({"cycle_s": 0.000_125, "request_interval_s": 0.001, "channel_rate_bps": 1_244_160_000}),
        json!({"cycle_s": 0.0025, "uplink_s": 0.0005, "request_interval_s": 0.01, "first_grant_bytes": 100, "requests": 1}),
        json!({"cycle_s": 0.0025, "uplink_s": 0.0005, "guard_s": 0.000_07, "unsolicited_bytes": 300}),
        json!({"collision": 0.2}),
        json!({"piggyback": false}),
    ] {
        for (port, rate) in [(0, 100e6), (1, 10e6)] {
            let carried = backlogged_bps(&options, port, 2.0);
            assert!((carried / rate - 1.0).abs() < 2e-3, "{options}: port {port} carries {carried}");
        }
    }
}

/// The two packets that a request of 2 000 bytes asks for leave in one burst, and a third that arrives meanwhile is
/// requested by that burst: it leaves a grant delay and not another opportunity later.
#[test]
fn a_burst_carries_the_request_for_what_came_meanwhile() {
    let options = |piggyback: bool| {
        json!({
            "cycle_s": 0.002, "request_interval_s": 0.02, "grant_delay_s": 0.002, "channel_rate_bps": 100_000_000,
            "piggyback": piggyback,
        })
    };
    let third_at = |piggyback: bool| {
        let (mut link, mut events) = (link(&options(piggyback)), Events::default());
        // Both wait for the opportunity at 20 ms. The third comes after it.
        link.submit(Time(1), 1, data(1, 960), &mut events);
        link.submit(Time(1), 1, data(2, 960), &mut events);
        link.poll(Time(21_000_000), &mut Vec::new(), &mut events);
        link.submit(Time(21_000_000), 1, data(3, 960), &mut events);
        let arrivals = drain(&mut *link, &mut events);
        // 80 us a packet.
        assert_eq!(arrivals[..2], [(0, 22_080_000, 1), (0, 22_160_000, 2)]);
        arrivals[2].1
    };
    assert_eq!(third_at(true), 24_080_000);
    assert_eq!(third_at(false), 42_080_000);
}

/// The second packet arrives while the request for the first waits for its grant.
#[test]
fn a_limit_of_requests_in_flight_makes_the_next_one_wait_for_the_grant() {
    let second_at = |requests: Value| {
        let options = json!({
            "cycle_s": 0.001, "grant_delay_s": 0.004, "channel_rate_bps": 100_000_000, "piggyback": false, "requests": requests,
        });
        let (mut link, mut events) = (link(&options), Events::default());
        link.submit(Time::ZERO, 1, data(1, 60), &mut events);
        link.submit(Time(500_000), 1, data(2, 60), &mut events);
        drain(&mut *link, &mut events)[1].1
    };
    // At 1 ms, granted at 5 ms, beside the first.
    assert_eq!(second_at(Value::Null), 5_008_000);
    // The first grant starts at 4 ms. The opportunity at that time is the next one that is free.
    assert_eq!(second_at(json!(1)), 8_008_000);
}

/// A packet that is split over bursts arrives with its last byte, and the rest of each burst goes to the next one.
#[test]
fn packets_are_split_over_bursts() {
    let (mut link, mut events) =
        (link(&json!({"cycle_s": 0.001, "channel_rate_bps": 100_000_000, "grant_delay_s": 0.001})), Events::default());
    // A cycle carries 1250 bytes, which take 100 us.
    link.submit(Time::ZERO, 1, data(1, 1460), &mut events);
    link.submit(Time::ZERO, 1, data(2, 960), &mut events);
    assert_eq!(drain(&mut *link, &mut events), [(0, 2_020_000, 1), (0, 2_100_000, 2)]);
    let usage = link.usage(1);
    assert_eq!((usage.packets, usage.bytes, usage.line_bits), (2, 2500, 20_000));
    assert_eq!(usage.busy, Duration::from_micros(200));
}

/// Gaps in ns between the arrivals of acks that are sent every millisecond, after the first 200.
fn gaps_of_acks(options: &Value, upload: bool) -> Vec<u64> {
    let (mut link, mut events, mut out) = (link(options), Events::default(), Vec::new());
    let mut arrivals = Vec::new();
    for ms in 1..1200u64 {
        let now = Time(ms * 1_000_000);
        while let Some(due) = link.next_event().filter(|due| *due <= now) {
            link.poll(due, &mut out, &mut events);
        }
        if upload && link.backlog(1).unwrap().bytes < 50_000 {
            (0..3).for_each(|part| link.submit(now, 1, data(10_000 + 3 * ms + part, 960), &mut events));
        }
        link.submit(now, 1, ack(ms as u32), &mut events);
        let acks = out.drain(..).filter(|delivery| delivery.packet.id < 10_000);
        arrivals.extend(acks.map(|delivery| delivery.at.nanos()));
    }
    arrivals.windows(2).map(|pair| pair[1] - pair[0]).skip(200).collect()
}

/// Acks leave in the burst of a cycle, however evenly they come: beside an upload and alone.
#[test]
fn acks_gather_in_bursts_over_an_idle_and_a_loaded_uplink() {
    let options = json!({"cycle_s": 0.005, "channel_rate_bps": 100_000_000});
    for upload in [false, true] {
        let gaps = gaps_of_acks(&options, upload);
        // Five acks a cycle. Beside an upload, data of up to 0.24 ms is between two of them.
        let close = gaps.iter().filter(|gap| **gap < 400_000).count() as f64 / gaps.len() as f64;
        assert!((0.75..=0.85).contains(&close), "{upload}: {close}");
    }
    let even = gaps_of_acks(&json!({"cycle_s": 0.0005, "channel_rate_bps": 100_000_000}), false);
    assert!(even.iter().all(|gap| gap.abs_diff(1_000_000) < 500_000), "short cycles keep the spacing");
}

/// A filter removes an ack after its request, so its grant stays empty.
#[test]
fn a_grant_for_what_a_policy_removed_stays_empty() {
    let way = |queue: &str| json!({"rate_bps": UP_BPS, "queue": {"name": queue, "options": {"limit_packets": 50}}});
    let spec = json!({
        "name": "access", "kind": "grant", "ends": ["head", "station"],
        "forward": way("droptail"), "reverse": way("ack-filtering"),
    });
    let mut link = crate::testing::build(&serde_json::from_value(spec).unwrap(), 1).unwrap();
    let mut events = Events::default();
    link.submit(Time::ZERO, 1, ack(1000), &mut events);
    link.poll(Time::ZERO, &mut Vec::new(), &mut events);
    link.submit(Time(1_000_000), 1, ack(2000), &mut events);
    let arrivals = drain(&mut *link, &mut events);
    assert_eq!(events.count(EventKind::Purged), 1);
    // Both are 40 bytes, so the second leaves with the first one's grant, at 2 ms.
    assert_eq!(arrivals.iter().map(|(_, at, id)| (*at, *id)).collect::<Vec<_>>(), [(2_032_000, 2000)]);
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    for (options, words) in [
        (json!({"request_interval_s": 0.003}), "request_interval_s must be a multiple of cycle_s"),
        (json!({"channel_rate_bps": 9_000_000}), "channel_rate_bps must be at least 10000000"),
        (json!({"uplink_s": 0.001, "channel_rate_bps": 19_000_000}), "channel_rate_bps must be at least 20000000"),
        (json!({"uplink_s": 0.0015, "guard_s": 0.0005}), "must leave a part of cycle_s to the downlink"),
        (json!({"uplink_s": 0.0015, "request_interval_s": 0.001}), "request_interval_s must be at least cycle_s"),
        (json!({"guard_s": 0.0005}), "guard_s needs uplink_s"),
        (json!({"unsolicited_bytes": 2501}), "unsolicited_bytes must be at most 2500"),
        (json!({"backoff_start": 5, "backoff_end": 4}), "backoff_end must be at least backoff_start"),
        (json!({"cycle_s": 1e-6, "collision": 0.96}), "is not between 0 and 0.95"),
    ] {
        let why = build_link(&options).err().expect("it is refused").to_string();
        assert!(why.contains(words), "{options}: {why}");
    }
    let spec = json!({
        "name": "access", "kind": "grant", "ends": ["a", "b"],
        "forward": {"queue": {"name": "droptail"}}, "reverse": {"rate_bps": 1000, "queue": {"name": "droptail"}},
    });
    let why = crate::testing::build(&serde_json::from_value(spec).unwrap(), 1).err().unwrap().to_string();
    assert!(why.contains("forward: a grant link needs a rate in both directions"), "{why}");
}
