use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::testing::context;
use crate::testing::{drain, drain_us};
use backchannel_core::packet::build::{ack, data, Segment};
use backchannel_core::packet::TcpFlags;
use backchannel_core::scenario::Named;
use backchannel_core::time::service_time;
use backchannel_core::traits::Headers;
use backchannel_policies::Context as QueueContext;
use proptest::prelude::*;
use serde_json::json;

mod jitter;
mod serial;

fn spec(forward: serde_json::Value) -> LinkSpec {
    let reverse =
        json!({"rate_bps": 28_800, "delay_s": 0.05, "queue": {"name": "droptail", "options": {"limit_packets": 10}}});
    serde_json::from_value(json!({
        "name": "line", "kind": "point-to-point", "ends": ["a", "b"], "forward": forward, "reverse": reverse,
    }))
    .expect("a link")
}

fn ten_megabit(extra: serde_json::Value) -> LinkSpec {
    let mut forward = json!({"rate_bps": 10_000_000, "delay_s": 0.005, "queue": {"name": "droptail"}});
    forward.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    spec(forward)
}

#[test]
fn a_packet_that_is_held_back_is_overtaken_and_a_duplicate_follows_at_once() {
    let errors = |name, options| json!({"errors": [{"name": name, "options": options}]});
    let orders = |extra: serde_json::Value| {
        let mut link = crate::testing::build(&ten_megabit(extra), 3).unwrap();
        let mut events = Events::default();
        for id in 0..200 {
            link.submit(Time(id * 1_000_000), 0, data(id, 960), &mut events);
        }
        (drain(&mut *link, &mut events), events)
    };
    let (plain, _) = orders(json!({}));
    let (reordered, events) = orders(errors("reorder", json!({"probability": 0.2, "delay_s": 0.01})));
    let held = events.count(EventKind::Reordered);
    assert!((20..60).contains(&held), "{held}");
    assert!(reordered.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    assert!(reordered.windows(2).any(|pair| pair[0].2 > pair[1].2));
    let on_time = reordered.iter().filter(|one| plain.contains(one)).count();
    assert_eq!(on_time, 200 - held);
    let (doubled, events) = orders(errors("duplicate", json!({"probability": 0.2})));
    assert_eq!(doubled.len(), 200 + events.count(EventKind::Duplicated));
    assert!(doubled.len() > 220);
}

#[test]
fn packets_come_out_after_their_bits_and_the_delay() {
    let mut link = crate::testing::build(&ten_megabit(json!({})), 1).unwrap();
    let mut events = Events::default();
    link.submit(Time::ZERO, 0, data(1, 960), &mut events);
    link.submit(Time::ZERO, 0, data(2, 960), &mut events);
    link.submit(Time::ZERO, 1, ack(9), &mut events);
    // 8000 bits at 10 Mbit/s are 0.8 ms; 320 bits at 28.8 kbit/s are 11.111 ms.
    assert_eq!(drain(&mut *link, &mut events), [(1, 5_800_000, 1), (1, 6_600_000, 2), (0, 61_111_112, 9)]);
    assert_eq!(
        link.usage(0),
        Usage { packets: 2, bytes: 2000, line_bits: 16_000, busy: Duration::from_micros(1600), headers: None }
    );
}

#[test]
fn golden_trace_of_bounded_classes() {
    let bounded = json!({"queue": {"name": "cbq-5050", "options": {"bounded": true}}});
    let run = |late: bool| {
        let mut link = crate::testing::build(&ten_megabit(bounded.clone()), 1).unwrap();
        let (mut events, mut out) = (Events::default(), Vec::new());
        for id in 1..=3 {
            link.submit(Time::ZERO, 0, data(id, 960), &mut events);
        }
        for number in 11..=13 {
            link.submit(Time(100_000), 0, ack(number), &mut events);
        }
        if late {
            link.poll(Time(3_000_000), &mut out, &mut events);
        }
        let first = out.into_iter().map(|one| (one.port, one.at.nanos(), one.packet.id));
        first.chain(drain(&mut *link, &mut events)).collect::<Vec<_>>()
    };
    // 8000 bits take 0.8 ms of the line and 1.6 ms of its half; 320 bits take 32 us, and 64 us from their arrival at
    // 0.1 ms on, which is long past when the line is free. Between 0.896 and 1.6 ms nothing is sent.
    let golden = [
        (1, 5_800_000, 1),
        (1, 5_832_000, 11),
        (1, 5_864_000, 12),
        (1, 5_896_000, 13),
        (1, 7_400_000, 2),
        (1, 9_000_000, 3),
    ];
    assert_eq!(run(false), golden);
    // However late anybody looks.
    assert_eq!(run(true), golden);
}

#[test]
fn a_late_look_does_not_shift_what_follows() {
    let mut link = crate::testing::build(&ten_megabit(json!({})), 1).unwrap();
    let (mut events, mut out) = (Events::default(), Vec::new());
    for id in 0..10 {
        link.submit(Time::ZERO, 0, data(id, 960), &mut events);
    }
    link.poll(Time(9_000_000), &mut out, &mut events);
    assert_eq!(out.len(), 5);
    let rest = drain(&mut *link, &mut events);
    assert_eq!(rest.last(), Some(&(1, 13_000_000, 9)));
}

#[test]
fn framing_takes_time_and_a_line_without_rate_only_delays() {
    let mut framed = ten_megabit(json!({}));
    framed.options.insert("framing_bytes".into(), json!(250));
    let mut link = crate::testing::build(&framed, 1).unwrap();
    let mut events = Events::default();
    link.submit(Time::ZERO, 0, data(1, 960), &mut events);
    assert_eq!(drain(&mut *link, &mut events), [(1, 6_000_000, 1)]);

    let mut link = crate::testing::build(&spec(json!({"delay_s": 0.02, "queue": {"name": "droptail"}})), 1).unwrap();
    link.submit(Time::ZERO, 0, data(1, 960), &mut events);
    link.submit(Time(5), 0, data(2, 960), &mut events);
    assert_eq!(drain(&mut *link, &mut events), [(1, 20_000_000, 1), (1, 20_000_005, 2)]);
    assert_eq!(
        link.usage(0),
        Usage { packets: 2, bytes: 2000, line_bits: 16_000, busy: Duration::ZERO, headers: None }
    );
}

#[test]
fn a_one_way_line_takes_nothing_at_its_far_end() {
    let mut one_way = ten_megabit(json!({}));
    one_way.options.insert("one_way".into(), json!(true));
    let mut link = crate::testing::build(&one_way, 1).unwrap();
    let mut events = Events::default();
    link.submit(Time::ZERO, 1, ack(1), &mut events);
    assert_eq!(events.count(EventKind::Lost), 1);
    link.submit(Time::ZERO, 0, data(2, 960), &mut events);
    assert_eq!(drain(&mut *link, &mut events).len(), 1);
}

#[test]
fn a_change_acts_from_the_next_packet_on_and_keeps_order() {
    let schedule = json!({"schedule": [{"at_s": 0.0004, "rate_bps": 1_000_000, "delay_s": 0.001}]});
    let mut link = crate::testing::build(&ten_megabit(schedule), 1).unwrap();
    let mut events = Events::default();
    link.submit(Time::ZERO, 0, data(1, 960), &mut events);
    link.submit(Time::ZERO, 0, data(2, 85), &mut events);
    // The first keeps 0.8 ms; the second takes 1 ms at the new rate.
    assert_eq!(drain(&mut *link, &mut events), [(1, 1_800_000, 1), (1, 2_800_000, 2)]);
}

/// Ids of the packets that arrive of 20, the last bit of packet n at 100 n ms; polled on time, or once at the end.
fn arrived(schedule: &serde_json::Value, on_time: bool) -> (Vec<u64>, Events) {
    let extra = json!({"delay_s": 0.0992, "schedule": schedule});
    let mut link = crate::testing::build(&ten_megabit(extra), 1).unwrap();
    let (mut events, mut out) = (Events::default(), Vec::new());
    for id in 0..20 {
        let now = Time(id * 100_000_000);
        while let Some(at) = link.next_event().filter(|at| on_time && *at < now) {
            link.poll(at, &mut out, &mut events);
        }
        link.submit(now, 0, data(id + 1, 960), &mut events);
    }
    if !on_time {
        link.poll(Time::from_seconds(10.0), &mut out, &mut events);
    }
    let polled: Vec<_> = out.into_iter().map(|delivery| delivery.packet.id).collect();
    (polled.into_iter().chain(drain(&mut *link, &mut events).into_iter().map(|(_, _, id)| id)).collect(), events)
}

#[test]
fn a_change_of_errors_judges_what_arrives_from_then_on_however_late_it_is_polled() {
    let every = json!([{"name": "uniform", "options": {"probability": 1.0}}]);
    // The tenth packet arrives at 1 s, the fifteenth at 1.5 s.
    let schedule = json!([{"at_s": 1.0, "errors": every}, {"at_s": 1.5, "errors": []}]);
    for on_time in [true, false] {
        let (arrived, events) = arrived(&schedule, on_time);
        assert_eq!(arrived, (1..10).chain(15..=20).collect::<Vec<_>>(), "{on_time}");
        let lost: Vec<_> = events.list.iter().map(|event| (event.packet_id, event.kind)).collect();
        assert_eq!(lost, (10..15).map(|id| (id, EventKind::Lost)).collect::<Vec<_>>());
    }
}

#[test]
fn each_change_of_errors_draws_from_a_stream_of_its_own() {
    let half = json!([{"name": "uniform", "options": {"probability": 0.5}}]);
    let fates = |first: f64, second: f64| {
        let (arrived, _) = arrived(&json!([{"at_s": first, "errors": half}, {"at_s": second, "errors": half}]), true);
        (1..=20).map(|id| arrived.contains(&id)).collect::<Vec<_>>()
    };
    // The same ten numbers would decide on packets 1 to 10 and 11 to 20.
    let both = fates(0.0, 1.1);
    assert_ne!(both[..10], both[10..]);
    assert_eq!(both[..10], fates(0.0, 99.0)[..10], "a later change draws nothing from the first stream");
}

/// Holds its packet back until one passes in the opposite direction.
#[derive(Default)]
struct Gate {
    held: Option<Packet>,
    opened: Option<Time>,
}

impl Policy for Gate {
    fn enqueue(&mut self, _: Time, packet: Packet, _: &mut Events) {
        self.held = Some(packet);
    }
    fn dequeue(&mut self, _: Time, _: &mut Events) -> Option<Packet> {
        self.opened.and_then(|_| self.held.take())
    }
    fn next_time(&self) -> Option<Time> {
        self.held.as_ref().and(self.opened)
    }
    fn on_opposite(&mut self, now: Time, _: &Packet) {
        self.opened = Some(now);
    }
    fn backlog(&self) -> Backlog {
        Backlog { packets: self.held.iter().count(), bytes: self.held.as_ref().map_or(0, |held| held.len().into()) }
    }
    fn peek(&self, _: usize) -> Option<&Packet> {
        None
    }
    fn take(&mut self, _: usize, _: Option<Packet>) -> Option<Packet> {
        None
    }
}

#[test]
fn a_packet_of_the_opposite_direction_releases_what_a_policy_holds_back_for_it() {
    let spec = ten_megabit(json!({}));
    let gate = |_: &Named, _: &QueueContext| Ok(Gate::default());
    let mut link =
        PointToPoint::new(&CheckedOptions::check(&ENTRY, &spec.options).unwrap(), &spec, &context(1), gate).unwrap();
    let mut events = Events::default();
    link.submit(Time::ZERO, 0, data(1, 960), &mut events);
    assert_eq!(link.next_event(), None, "nothing is due before a packet passes at the other end");
    link.submit(Time(1_000_000), 1, ack(9), &mut events);
    assert!(drain(&mut link, &mut events).contains(&(1, 6_800_000, 1)));
}

/// Notes the rates of which it is informed.
struct RateSpy(Arc<Mutex<Vec<[Option<u64>; 2]>>>);

impl Policy for RateSpy {
    fn enqueue(&mut self, _: Time, _: Packet, _: &mut Events) {}
    fn dequeue(&mut self, _: Time, _: &mut Events) -> Option<Packet> {
        None
    }
    fn on_rates(&mut self, _: Time, own_bps: Option<u64>, opposite_bps: Option<u64>) {
        self.0.lock().expect("one thread").push([own_bps, opposite_bps]);
    }
    fn backlog(&self) -> Backlog {
        Backlog { packets: 0, bytes: 0 }
    }
    fn peek(&self, _: usize) -> Option<&Packet> {
        None
    }
    fn take(&mut self, _: usize, _: Option<Packet>) -> Option<Packet> {
        None
    }
}

#[test]
fn a_change_of_a_rate_informs_both_policies_of_their_own_and_the_opposite_rate() {
    let schedule = json!({"schedule": [{"at_s": 1.0, "rate_bps": 1_000_000}, {"at_s": 2.0, "delay_s": 0.1}]});
    let spec = ten_megabit(schedule);
    type Rates = Arc<Mutex<Vec<[Option<u64>; 2]>>>;
    // A policy is built by a plain function, which captures nothing.
    thread_local! {
        static INFORMED: [Rates; 2] = [(); 2].map(|()| Arc::default());
    }
    let informed = INFORMED.with(Clone::clone);
    let spy = |_: &Named, context: &QueueContext| {
        Ok(RateSpy(INFORMED.with(|lists| Arc::clone(&lists[usize::from(context.label == "line/reverse")]))))
    };
    let mut link =
        PointToPoint::new(&CheckedOptions::check(&ENTRY, &spec.options).unwrap(), &spec, &context(1), spy).unwrap();
    let (mut events, mut out) = (Events::default(), Vec::new());
    let rates = |port: usize| informed[port].lock().expect("one thread").clone();
    link.poll(Time::from_seconds(0.5), &mut out, &mut events);
    assert!(rates(0).is_empty() && rates(1).is_empty());
    // A packet at the other end, or a poll: whichever finds that the rate has changed.
    link.submit(Time::from_seconds(1.0), 1, ack(1), &mut events);
    link.poll(Time::from_seconds(3.0), &mut out, &mut events);
    assert_eq!(rates(0), [[Some(1_000_000), Some(28_800)]]);
    assert_eq!(rates(1), [[Some(28_800), Some(1_000_000)]]);
}

#[test]
fn what_cannot_be_is_refused_with_its_place() {
    let refused = |spec: &LinkSpec| crate::testing::build(spec, 1).err().expect("refused");
    assert_eq!(
        refused(&ten_megabit(json!({"rate_bps": 0}))).to_string(),
        "link 'line': forward: a rate of 0 bit/s carries nothing; leave it out for a link without a rate"
    );
    assert!(refused(&ten_megabit(json!({"delay_s": -1.0}))).to_string().contains("a delay of -1 s is not possible"));
    assert!(refused(&ten_megabit(json!({"errors": [{"name": "gremlins"}]}))).to_string().contains("'gremlins'"));
    let later = json!({"schedule": [{"at_s": 1.0, "errors": [{"name": "uniform"}]}]});
    assert!(refused(&ten_megabit(later)).to_string().contains("'probability' must be given"));
}

proptest! {
    /// Whatever is submitted when: nothing vanishes unsaid, order holds, no packet beats the line's rate.
    #[test]
    fn a_line_conserves_orders_and_paces(gaps in proptest::collection::vec((0u64..2_000_000, 1u32..1460), 1..120), loss in 0.0f64..0.5) {
        let extra = json!({"errors": [{"name": "uniform", "options": {"probability": loss}}]});
        let mut link = crate::testing::build(&ten_megabit(extra), 7).unwrap();
        let (mut events, mut out, mut now) = (Events::default(), Vec::new(), 0);
        for (id, (gap, payload)) in gaps.iter().enumerate() {
            now += gap;
            link.submit(Time(now), 0, data(id as u64, *payload), &mut events);
            link.poll(Time(now), &mut out, &mut events);
        }
        while let Some(at) = link.next_event() {
            link.poll(at, &mut out, &mut events);
        }
        prop_assert_eq!(gaps.len(), out.len() + events.list.len());
        for pair in out.windows(2) {
            prop_assert!(pair[0].packet.id < pair[1].packet.id);
            let least = service_time(u64::from(pair[1].packet.len()) * 8, 10_000_000);
            prop_assert!(pair[1].at - pair[0].at >= least);
        }
    }
}

#[test]
fn a_new_policy_takes_over_what_waits_and_drops_what_has_no_room() {
    let queue = json!({"name": "drop-from-front", "options": {"limit_packets": 4}});
    let mut scheduled =
        crate::testing::build(&ten_megabit(json!({"schedule": [{"at_s": 0.0001, "queue": queue}]})), 1).unwrap();
    let mut live = crate::testing::build(&ten_megabit(json!({})), 1).unwrap();
    let mut results = Vec::new();
    for (link, is_live) in [(&mut scheduled, false), (&mut live, true)] {
        let mut events = Events::default();
        for id in 0..10 {
            link.submit(Time::ZERO, 0, data(id, 960), &mut events);
        }
        if is_live {
            // Its own time does not count.
            let change = serde_json::from_value(json!({"at_s": 5.0, "queue": queue})).unwrap();
            link.change(Time(100_000), 0, &change).unwrap();
        }
        results.push((drain_us(&mut **link, &mut events), events.count(EventKind::DroppedFull)));
    }
    // The first packet is on the line, and the new queue holds the last four of the nine that waited.
    assert_eq!(results[0], (vec![(1, 5800, 0), (1, 6600, 6), (1, 7400, 7), (1, 8200, 8), (1, 9000, 9)], 5));
    assert_eq!(results[0], results[1]);
}

/// AQ's equation 11 holds at 10 Mbit/s over 28.8 kbit/s, and not at 500 bit/s.
#[test]
fn a_queue_that_does_not_fit_the_rate_of_its_time_is_refused_before_the_run() {
    let (aq, why) = (json!({"name": "aq"}), "at 2 s: policy aq: equation 11 does not hold");
    let schedule = |rate_bps: u64| json!([{"at_s": 1.0, "rate_bps": rate_bps}, {"at_s": 2.0, "queue": aq}]);
    let scheduled = |first: u64, then: u64| {
        let spec = ten_megabit(json!({"rate_bps": first, "schedule": schedule(then)}));
        crate::testing::build(&spec, 1).err().map(|why| why.to_string())
    };
    assert!(scheduled(10_000_000, 500).is_some_and(|refused| refused.contains(why)));
    assert_eq!(scheduled(500, 10_000_000), None);
    let mut live = crate::testing::build(&ten_megabit(json!({"schedule": schedule(10_000_000)})), 1).unwrap();
    let slower = serde_json::from_value(json!({"at_s": 0.0, "rate_bps": 500})).unwrap();
    assert!(live.change(Time::ZERO, 0, &slower).is_ok(), "10 Mbit/s follow before the queue");
    let refused = live.change(Time(1_500_000_000), 0, &slower).expect_err("the queue follows");
    assert!(refused.to_string().contains(why), "{refused}");
}

/// Bounded classes, of which that of acks has no share.
#[test]
fn a_new_policy_takes_over_what_the_old_one_would_never_send() {
    let queue = json!({"name": "cbq-5050", "options": {"bounded": true, "ack_share": 0}});
    let schedule = json!([{"at_s": 1.0, "queue": {"name": "droptail"}}]);
    let spec = ten_megabit(json!({"queue": queue, "schedule": schedule}));
    let (mut link, mut events) = (crate::testing::build(&spec, 1).unwrap(), Events::default());
    link.submit(Time::ZERO, 0, ack(7), &mut events);
    link.submit(Time::ZERO, 0, data(1, 960), &mut events);
    let ids: Vec<_> = drain(&mut *link, &mut events).into_iter().map(|(_, _, id)| id).collect();
    assert_eq!((ids, events.list.len()), (vec![1, 7], 0));
}

#[test]
fn a_new_policy_has_the_rate_of_the_line_and_random_numbers_of_its_own() {
    let red = json!({"name": "red"});
    let schedule =
        json!([{"at_s": 1.0, "rate_bps": 1_000_000}, {"at_s": 2.0, "queue": red}, {"at_s": 3.0, "queue": red}]);
    let spec = ten_megabit(json!({"schedule": schedule}));
    type Contexts = Arc<Mutex<Vec<(String, Option<u64>)>>>;
    // A policy is built by a plain function, which captures nothing.
    thread_local! {
        static BUILT: Contexts = Arc::default();
    }
    let built = BUILT.with(Arc::clone);
    let note = |_: &Named, context: &QueueContext| {
        BUILT.with(|list| list.lock().expect("one thread").push((context.label.clone(), context.rate_bps)));
        Ok(Gate::default())
    };
    let mut link =
        PointToPoint::new(&CheckedOptions::check(&ENTRY, &spec.options).unwrap(), &spec, &context(1), note).unwrap();
    built.lock().expect("one thread").clear();
    link.poll(Time::from_seconds(4.0), &mut Vec::new(), &mut Events::default());
    let expected = ["line/forward/queue-1", "line/forward/queue-2"].map(|label| (label.to_owned(), Some(1_000_000)));
    assert_eq!(*built.lock().expect("one thread"), expected);
}

#[test]
fn a_look_at_the_end_of_time_finds_everything_and_ends() {
    let mut link = crate::testing::build(&ten_megabit(json!({})), 1).unwrap();
    let (mut events, mut out) = (Events::default(), Vec::new());
    for id in 0..3 {
        link.submit(Time::ZERO, 0, data(id, 960), &mut events);
    }
    link.poll(Time::MAX, &mut out, &mut events);
    assert_eq!(out.len(), 3);
}

#[test]
fn an_invalid_change_of_a_running_line_changes_nothing() {
    let mut link = crate::testing::build(&ten_megabit(json!({})), 1).unwrap();
    let change = |fields: serde_json::Value| serde_json::from_value(fields).unwrap();
    for (fields, reason) in [
        (json!({"at_s": 0.0, "rate_bps": 0}), "a rate of 0 bit/s"),
        (json!({"at_s": 0.0, "rate_bps": 5, "queue": {"name": "codle"}}), "unknown queue policy 'codle'"),
        (json!({"at_s": 0.0, "delay_s": -1.0}), "a delay of -1 s"),
    ] {
        let why = link.change(Time(1), 0, &change(fields)).unwrap_err();
        assert!(why.to_string().contains(reason), "{why}");
    }
    assert_eq!(link.next_event(), None);
}
