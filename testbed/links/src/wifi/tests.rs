//! Saturation against Bianchi's analysis, aggregation, losses and the rules of EDCA.

use super::*;
use crate::testing::drain;
use backchannel_core::event::EventKind;
use backchannel_core::packet::build::data;
use serde_json::{json, Value};

const RATE_BPS: u64 = 54_000_000;

fn build_link(options: &Value, seed: u64) -> Result<Wifi, Error> {
    let way = json!({"rate_bps": RATE_BPS, "queue": {"name": "droptail", "options": {"limit_packets": 1000}}});
    let spec = json!({"name": "air", "kind": "wifi", "ends": ["ap", "station"], "options": options, "forward": way, "reverse": way});
    let spec: LinkSpec = serde_json::from_value(spec).expect("a link");
    let checked = CheckedOptions::check(&ENTRY, &spec.options)?;
    Wifi::new(&checked, &spec, &crate::testing::context(seed))
}

fn link(options: &Value) -> Wifi {
    build_link(options, 5).expect("a good link")
}

/// Keeps both queues full of packets of `bytes` for `seconds`: bit/s of each direction, and successes of all stations a
/// second.
fn saturated(options: &Value, bytes: u32, seconds: f64) -> ([f64; 2], f64) {
    let (mut link, mut events, mut out) = (link(options), Events::default(), Vec::new());
    let (mut id, mut carried, mut now) = (0, [0u64; 2], Time::ZERO);
    while now < Time::from_seconds(seconds) {
        for port in 0..2 {
            while link.backlog(port).unwrap().packets < 100 {
                id += 1;
                link.submit(now, port, data(id, bytes - 40), &mut events);
            }
        }
        now = link.next_event().unwrap();
        link.poll(now, &mut out, &mut events);
        out.drain(..).for_each(|delivery| carried[usize::from(1 - delivery.port)] += u64::from(delivery.packet.len()));
    }
    (carried.map(|bytes| bytes as f64 * 8.0 / seconds), link.contention.successes as f64 / seconds)
}

/// Times of the analysis: a slot, a success, a collision, in s.
struct Times {
    slot: f64,
    success: f64,
    collision: f64,
}

/// Saturation throughput in bit/s of n stations that send `bits` in each packet, by Bianchi 2000: equations 7 and 9 for
/// the probability that a station sends in a slot, whose solution is unique, and 13 for the throughput. The window is W
/// at first and at most W times two to the power of m.
fn bianchi_bps(n: i32, window: f64, m: i32, bits: f64, times: &Times) -> f64 {
    let sends =
        |p: f64| 2.0 * (1.0 - 2.0 * p) / ((1.0 - 2.0 * p) * (window + 1.0) + p * window * (1.0 - (2.0 * p).powi(m)));
    // p - (1 - (1 - tau(p))^(n - 1)) rises with p.
    let (mut low, mut high) = (0.0, 0.499_999);
    for _ in 0..200 {
        let p = f64::midpoint(low, high);
        if p < 1.0 - (1.0 - sends(p)).powi(n - 1) {
            low = p;
        } else {
            high = p;
        }
    }
    let tau = sends(low);
    let busy = 1.0 - (1.0 - tau).powi(n);
    let success = f64::from(n) * tau * (1.0 - tau).powi(n - 1);
    success * bits / ((1.0 - busy) * times.slot + success * times.success + (busy - success) * times.collision)
}

/// Basic access, one packet of 1000 bytes a transmission and no limit of retries, as the analysis has it; AIFSN 2 is DIFS.
#[test]
fn saturation_is_bianchis_for_two_five_and_ten_stations() {
    let (bytes, header_bytes) = (1000, 38);
    for (n, cw_min, cw_max, m) in
        [(2, 15, 1023, 6), (5, 15, 1023, 6), (10, 15, 1023, 6), (10, 31, 255, 3), (5, 7, 15, 1)]
    {
        let options = json!({
            "aggregate_packets": 1, "retries": 1000, "aifsn": 2, "cw_min": cw_min, "cw_max": cw_max, "txop_s": 0,
            "eifs": false, "preamble_s": 20e-6, "contenders": n - 2, "contender_bytes": bytes,
        });
        let symbols = (f64::from(8 * (bytes + header_bytes) + 22) / 216.0).ceil();
        let (slot, sifs, frame) = (9e-6, 16e-6, 20e-6 + 4e-6 * symbols);
        let difs = sifs + 2.0 * slot;
        let times = Times { slot, success: frame + sifs + 28e-6 + difs, collision: frame + difs };
        let expected = bianchi_bps(n, f64::from(cw_min + 1), m, f64::from(8 * bytes), &times);
        let (ends, successes) = saturated(&options, bytes as u32, 20.0);
        let measured = successes * f64::from(8 * bytes);
        assert!((measured / expected - 1.0).abs() < 0.01, "{n} stations, {cw_min}: {measured} is not {expected}");
        // Each of the ends has a station's share. The backoff is unfair for seconds, so this is rougher.
        for end in ends {
            assert!((end * f64::from(n) / measured - 1.0).abs() < 0.2, "{n} stations: {end} of {measured}");
        }
    }
}

/// One direction alone: a transmission, its block ack, AIFS and a mean backoff of 7.5 slots.
#[test]
fn a_larger_aggregate_spreads_the_overhead_over_more_packets() {
    let alone_bps = |packets: u32| {
        let options = json!({"aggregate_packets": packets, "txop_s": 0});
        let (mut link, mut events, mut out) = (link(&options), Events::default(), Vec::new());
        let (mut now, mut bytes, mut id) = (Time::ZERO, 0, 0);
        while now < Time::from_seconds(5.0) {
            while link.backlog(0).unwrap().packets < 200 {
                id += 1;
                link.submit(now, 0, data(id, 1460), &mut events);
            }
            now = link.next_event().unwrap();
            link.poll(now, &mut out, &mut events);
            bytes += out.drain(..).map(|delivery| u64::from(delivery.packet.len())).sum::<u64>();
        }
        bytes as f64 * 8.0 / 5.0
    };
    for packets in [1, 4, 16] {
        let (on_air, answer) = if packets == 1 { (1538, 28e-6) } else { (1544, 32e-6) };
        let symbols = (f64::from(8 * on_air * packets + 22) / 216.0).ceil();
        let cycle = 44e-6 + 4e-6 * symbols + 16e-6 + answer + 16e-6 + 3.0 * 9e-6 + 7.5 * 9e-6;
        let expected = f64::from(12_000 * packets) / cycle;
        let measured = alone_bps(packets as u32);
        assert!((measured / expected - 1.0).abs() < 0.01, "{packets}: {measured} is not {expected}");
    }
}

/// Of 30 packets of 1544 bytes on the air at 54 Mbit/s, 228.7 us each, 23 fit in 5.484 ms; 42 fit in 65 535 bytes.
#[test]
fn an_aggregate_ends_at_its_limits_of_time_and_bytes() {
    let first = |options: Value| {
        let (mut link, mut events) = (link(&options), Events::default());
        // The first one goes alone.
        (0..=60).for_each(|id| link.submit(Time::ZERO, 0, data(id, 1460), &mut events));
        let arrivals = drain(&mut link, &mut events);
        assert_eq!(arrivals.len(), 61);
        let second = arrivals[1].1;
        arrivals.iter().filter(|(_, at, _)| *at == second).count()
    };
    assert_eq!(first(json!({"txop_s": 0})), 23);
    assert_eq!(first(json!({"txop_s": 0, "ppdu_s": 0.01, "ampdu_bytes": 65_535})), 42);
    assert_eq!(first(json!({"txop_s": 0, "aggregate_packets": 8})), 8);
    // With its block ack it must fit in the TXOP: (2528 - 48 - 44) us are 609 symbols of 216 bits, 10.6 packets.
    assert_eq!(first(json!({})), 10);
}

/// Within a TXOP further transmissions follow a SIFS after the answer; the first packet that does not fit waits.
#[test]
fn a_txop_is_used_without_contention_until_the_next_transmission_does_not_fit() {
    let options = json!({"aggregate_packets": 1, "txop_s": 0.001, "preamble_s": 20e-6});
    let (mut link, mut events) = (link(&options), Events::default());
    (0..7).for_each(|id| link.submit(Time::ZERO, 0, data(id, 960), &mut events));
    let arrivals: Vec<u64> = drain(&mut link, &mut events).iter().map(|(_, at, _)| *at).collect();
    // 20 us and 39 symbols, 176 us, and with answer and SIFS 236 us: four in 1 ms.
    let gaps: Vec<u64> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps[..3], [236_000; 3]);
    assert!(gaps[3] >= 236_000 + 27_000, "{gaps:?}");
    assert_eq!(gaps[4..], [236_000; 2]);
}

/// Each packet is lost on its own and sent again; all arrive, in order.
#[test]
fn lost_packets_are_sent_again_and_everything_arrives_in_order() {
    let options = json!({"loss": 0.3, "retries": 1000});
    let (mut link, mut events) = (link(&options), Events::default());
    (0..1000).for_each(|id| link.submit(Time::ZERO, 0, data(id, 960), &mut events));
    let arrivals = drain(&mut link, &mut events);
    assert!(arrivals.iter().map(|(.., id)| *id).eq(0..1000));
    assert_eq!(events.count(EventKind::Lost), 0);
    // On average each is sent 1 / (1 - 0.3) times; 1044 bytes on the air. Five standard deviations of 1000 such.
    let sent = link.usage(0).line_bits as f64 / (8.0 * 1044.0);
    let deviation = (1000.0f64 * 0.3).sqrt() / 0.7;
    assert!((sent - 1000.0 / 0.7).abs() < 5.0 * deviation, "{sent}");
}

/// With a window of four packets, three at most wait for the one before them, however often that one is lost.
#[test]
fn the_window_of_the_block_ack_ends_what_is_sent_beside_a_missing_packet() {
    let options = json!({"loss": 0.5, "retries": 1000, "aggregate_packets": 4});
    let (mut link, mut events, mut out) = (link(&options), Events::default(), Vec::new());
    (0..1000).for_each(|id| link.submit(Time::ZERO, 0, data(id, 960), &mut events));
    let mut most = 0;
    while let Some(due) = link.next_event() {
        link.poll(due, &mut out, &mut events);
        most = most.max(link.stations[0].held_packets());
    }
    assert_eq!((out.len(), most), (1000, 3));
}

/// With a probability of 0.5 and two retries an eighth of the packets is dropped, and what follows them is not.
#[test]
fn a_packet_is_dropped_after_its_retries_and_does_not_hold_up_the_others() {
    let options = json!({"loss": 0.5, "retries": 2});
    let (mut link, mut events) = (link(&options), Events::default());
    (0..1000).for_each(|id| link.submit(Time::ZERO, 1, data(id, 960), &mut events));
    let arrivals = drain(&mut link, &mut events);
    let dropped = events.count(EventKind::Lost);
    assert_eq!(arrivals.len() + dropped, 1000);
    assert!(arrivals.windows(2).all(|pair| pair[0].2 < pair[1].2));
    // Five standard deviations of Binomial(1000, 1/8).
    assert!(dropped.abs_diff(125) < 53, "{dropped}");
}

/// On an idle medium a packet waits for a boundary and nothing else; 1000 bytes of payload take 44 us and 39 symbols.
#[test]
fn an_idle_medium_is_used_at_the_next_slot_boundary() {
    let (mut link, mut events) = (link(&json!({"aggregate_packets": 1})), Events::default());
    link.submit(Time(1_000_000), 0, data(1, 960), &mut events);
    let (_, at, _) = drain(&mut link, &mut events)[0];
    let transmission = 44_000 + 39 * 4_000;
    assert!((at - 1_000_000 - transmission) < 9_000, "{at}");
}

/// 25 bytes with 22 bits of service field and tail are 222 bits; a symbol carries 216.
#[test]
fn a_transmission_is_its_preamble_and_whole_symbols() {
    let air = link(&json!({"preamble_s": 20e-6, "symbol_s": 4e-6})).air;
    assert_eq!(air.transmission(25), Duration::from_micros(20 + 2 * 4));
    assert_eq!(air.transmission(24), Duration::from_micros(20 + 4));
}

#[test]
fn the_window_doubles_with_each_failure_and_is_the_least_again_after_the_last_retry() {
    let access = Access { aifsn: 2, cw_min: 3, cw_max: 15, retries: 2 };
    let mut rng = backchannel_core::rng::stream(1, "test");
    let mut contention = Contention::new(&[access], &[], Duration::from_micros(9), Duration::from_micros(16), &mut rng);
    let mut windows = |succeeded: bool| {
        contention.begin(Time::ZERO, vec![0]);
        contention.end(Time::ZERO, succeeded, &mut rng);
        contention.window(0)
    };
    assert_eq!([false, false, false, false, true].map(&mut windows), [7, 15, 3, 7, 3]);
}

/// A station whose access category waits less and draws from a smaller window has more of the medium.
#[test]
fn categories_differ_in_their_share_against_the_same_contenders() {
    let share = |category: &str| {
        let options = json!({
            "category": category, "contender_category": "best-effort", "contenders": 5, "contender_bytes": 1000, "aggregate_packets": 1, "txop_s": 0,
        });
        saturated(&options, 1000, 5.0).0.iter().sum::<f64>()
    };
    let shares = ["background", "best-effort", "video", "voice"].map(share);
    assert!(shares.windows(2).all(|pair| pair[0] < 0.9 * pair[1]), "{shares:?}");
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let why = build_link(&json!({"cw_min": 31, "cw_max": 15}), 1).err().unwrap().to_string();
    assert!(why.contains("cw_max must be at least cw_min"), "{why}");
    let way = |rate: u64| json!({"rate_bps": rate, "queue": {"name": "droptail"}});
    let spec = json!({"name": "air", "kind": "wifi", "ends": ["a", "b"], "forward": way(1), "reverse": way(2)});
    let why = crate::testing::build(&serde_json::from_value(spec).unwrap(), 1).err().unwrap().to_string();
    assert!(why.contains("the same rate"), "{why}");
}

/// 100 kbit/s are 0.4 bits in 4 us, which would be one.
#[test]
fn a_rate_that_symbols_cannot_carry_is_refused_unless_they_are_not_rounded_to() {
    let build = |rate: u64, options: Value| {
        let way = json!({"rate_bps": rate, "queue": {"name": "droptail"}});
        let spec = json!({"name": "air", "kind": "wifi", "ends": ["a", "b"], "options": options, "forward": way, "reverse": way});
        crate::testing::build(&serde_json::from_value(spec).unwrap(), 1).err().map(|why| why.to_string())
    };
    let why = build(100_000, json!({})).expect("it is refused");
    let words =
        "a symbol of 0.000004 s carries whole bits, here 1, so that the rate would be 250000 bit/s and not 100000";
    assert!(why.contains(words), "{why}");
    assert_eq!(build(100_000, json!({"symbol_s": 0})), None);
    assert!(build(350_000, json!({})).is_some());
    assert_eq!([1_000_000, 86_600_000].map(|rate| build(rate, json!({}))), [None, None]);
}
