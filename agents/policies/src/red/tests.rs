use super::*;
use crate::testing::{at, context, drain, kinds};
use backchannel_core::packet::build::Segment;
use backchannel_core::packet::Ecn;
use serde_json::{json, Value};

/// 1000 bytes take 0.1 s.
const RATE_BPS: u64 = 80_000;

/// Thresholds of the queue of 10 packets in asym, case B. The average follows the queue at once.
const CASE_B: Parameters = Parameters {
    limit: Limit { limit_packets: 10, buffer_bytes: None },
    min_fraction: 0.15,
    max_fraction: 0.6,
    weight: 1.0,
    max_p: 0.1,
    gentle: false,
    action: Action::Mark,
    not_capable: NotCapable::Drop,
    above_max: Action::Mark,
    victim: Victim::Tail,
    candidates: Candidates::All,
    acks_first: false,
    typical_packet_bytes: 1000,
};

fn red(parameters: Parameters) -> (Red, Events) {
    let child: Box<dyn Policy> = if parameters.acks_first {
        Box::new(AcksFirst::new(Limit::NONE))
    } else {
        Box::new(DropTail::new(Limit::NONE))
    };
    (Red::new(child, parameters, Some(RATE_BPS), rng::stream(1, "test")), Events::default())
}

fn capable(id: u64, payload: u32) -> Packet {
    Segment { id, payload, ecn: true, ..Segment::default() }.packet()
}

#[test]
fn the_average_follows_the_equation_and_decays_when_idle() {
    let (mut queue, mut events) = red(Parameters { weight: 0.5, ..CASE_B });
    for id in 1..=3 {
        queue.enqueue(Time::ZERO, capable(id, 960), &mut events);
    }
    // Samples 0, 1, 2: 0, then 0.5·0 + 0.5·1, then 0.5·0.5 + 0.5·2.
    assert!((queue.average() - 1.25).abs() < 1e-12);
    while queue.dequeue(at(1.0), &mut events).is_some() {}
    queue.enqueue(at(1.2), capable(4, 960), &mut events);
    assert!((queue.average() - 1.25 / 4.0).abs() < 1e-12, "two typical packets passed: {}", queue.average());
}

/// The queue is empty before and after each. The second counts the time since the first, not since the queue was left.
#[test]
fn idle_time_counts_once_for_packets_that_an_empty_queue_drops() {
    let (mut queue, mut events) = red(Parameters { weight: 0.5, action: Action::Drop, ..CASE_B });
    queue.variables.average = 24.0;
    for (id, expected) in [(1, 12.0), (2, 6.0)] {
        queue.enqueue(at(0.1 * id as f64), capable(id, 960), &mut events);
        assert!((queue.average() - expected).abs() < 1e-9, "{}", queue.average());
    }
    assert_eq!(kinds(&events), [1, 2].map(|id| (id, EventKind::DroppedEarly)));
}

#[test]
fn the_least_threshold_is_below_the_greatest() {
    let built = |options: Value| {
        let options = serde_json::from_value(options).expect("an object");
        build(&CheckedOptions::check(&ENTRY, &options)?, &context())
    };
    assert!(built(json!({"min_fraction": 0.2, "max_fraction": 0.3})).is_ok());
    for max in [0.1, 0.2] {
        let why = built(json!({"min_fraction": 0.2, "max_fraction": max})).err().expect("min is not below max");
        assert_eq!(why.to_string(), "policy red: min_fraction must be below max_fraction");
    }
}

#[test]
fn queues_draw_from_the_stream_of_their_run_and_label() {
    let survivors = |seed, label: &str| {
        let options = serde_json::from_value(json!({"limit_packets": 3, "min_fraction": 0.98, "max_fraction": 0.99}));
        let options = options.expect("an object");
        let context = Context { seed, label: label.into(), ..context() };
        let mut queue = build(&CheckedOptions::check(&ENTRY, &options).expect("allowed"), &context).expect("red");
        let mut events = Events::default();
        for id in 1..=100 {
            queue.enqueue(Time::ZERO, capable(id, 0), &mut events);
        }
        drain(&mut *queue, &mut events)
    };
    assert_eq!(survivors(1, "a"), survivors(1, "a"));
    assert_ne!(survivors(1, "a"), survivors(2, "a"));
    assert_ne!(survivors(1, "a"), survivors(1, "b"));
}

/// The unit of idle time is a typical packet's transmission time at the present rate.
#[test]
fn after_a_change_of_the_rate_an_idle_average_decays_at_the_new_one() {
    let after = |rates: Option<(Option<u64>, Option<u64>)>| {
        let (mut queue, mut events) = red(Parameters { weight: 0.5, ..CASE_B });
        queue.variables.average = 4.0;
        if let Some((own, opposite)) = rates {
            queue.on_rates(Time::ZERO, own, opposite);
        }
        queue.enqueue(at(0.2), capable(1, 960), &mut events);
        queue.average()
    };
    let close = |average: f64, expected: f64| assert!((average - expected).abs() < 1e-9, "{average} {expected}");
    // 0.2 s are two packets of 1000 bytes at 80 kbit/s, one at 40 kbit/s, four at 160 kbit/s.
    close(after(None), 1.0);
    close(after(Some((Some(RATE_BPS / 2), Some(RATE_BPS)))), 2.0);
    close(after(Some((Some(2 * RATE_BPS), None))), 0.25);
    // Without a rate there is no unit: the sample is the empty queue.
    close(after(Some((None, Some(RATE_BPS)))), 2.0);
}

#[test]
fn every_packet_is_marked_from_max_on_and_none_below_min() {
    let (mut queue, mut events) = red(Parameters { max_p: 0.0, ..CASE_B });
    for id in 1..=9 {
        queue.enqueue(Time::ZERO, capable(id, if id % 2 == 0 { 0 } else { 960 }), &mut events);
    }
    // The queue holds 6 when the seventh arrives; acks are marked like data.
    assert_eq!(kinds(&events), [7, 8, 9].map(|id| (id, EventKind::Marked)));
    let experienced: Vec<_> = std::iter::from_fn(|| queue.dequeue(Time::ZERO, &mut events))
        .filter(|packet| packet.ecn() == Ecn::Experienced)
        .map(|packet| packet.id)
        .collect();
    assert_eq!(experienced, [7, 8, 9]);
}

#[test]
fn with_above_max_drop_the_queue_counts_as_full_from_max_on() {
    for (victim, waiting) in [(Victim::Tail, vec![1, 2, 3, 4, 5, 6]), (Victim::Random, vec![])] {
        let (mut queue, mut events) = red(Parameters { max_p: 0.0, above_max: Action::Drop, victim, ..CASE_B });
        for id in 1..=9 {
            queue.enqueue(Time::ZERO, capable(id, 960), &mut events);
        }
        // Six wait when the seventh arrives. From then on each arrival costs one packet.
        assert!(events.list.iter().all(|event| event.kind == EventKind::DroppedFull));
        assert_eq!((events.count(EventKind::DroppedFull), queue.len_packets()), (3, 6));
        if victim == Victim::Random {
            assert!(drain(&mut queue, &mut events).contains(&9), "the newest comes in, another goes");
        } else {
            assert_eq!(drain(&mut queue, &mut events), waiting);
        }
        // The queue is empty but its average is still above max.
        queue.variables.average = 8.0;
        queue.variables.idle_since = None;
        queue.parameters.weight = 0.0;
        queue.enqueue(Time::ZERO, capable(10, 960), &mut events);
        assert_eq!(drain(&mut queue, &mut events), [10]);
    }
}

#[test]
fn with_gentle_the_queue_counts_as_full_from_twice_max_on() {
    for (average, full) in [(6.0, false), (11.9, false), (12.0, true)] {
        let (mut queue, mut events) = red(Parameters { gentle: true, above_max: Action::Drop, ..CASE_B });
        queue.enqueue(Time::ZERO, capable(1, 960), &mut events);
        queue.variables.average = average;
        assert_eq!(queue.full_by_average(), full, "{average}");
    }
}

#[test]
fn between_the_thresholds_marks_are_spread_uniformly() {
    // avg stays at 3.75, halfway: p_b = 0.05. Figure 2 counts a packet before it weighs it, so that the first after a
    // mark has p_b/(1 - p_b): distances are uniform on 1..=19, one less than the 1/p_b of the paper's section 7.
    let (mut queue, _) = red(CASE_B);
    queue.variables.average = 3.75;
    let (mut gaps, mut gap) = (Vec::new(), 0u32);
    queue.variables.count = Some(0);
    while gaps.len() < 4000 {
        gap += 1;
        if queue.choose() {
            gaps.push(gap);
            gap = 0;
        }
    }
    let mean = f64::from(gaps.iter().sum::<u32>()) / gaps.len() as f64;
    assert!((mean - 10.0).abs() < 0.4, "{mean}");
    assert!(gaps.iter().all(|gap| (1..=19).contains(gap)));
    for reached in 1..=19 {
        let share = gaps.iter().filter(|gap| **gap == reached).count() as f64 / gaps.len() as f64;
        assert!((share - 1.0 / 19.0).abs() < 0.02, "{reached}: {share}");
    }
}

#[test]
fn gentle_rises_from_max_p_to_one() {
    let share = |average: f64| {
        let (mut queue, _) = red(Parameters { gentle: true, ..CASE_B });
        let mut marks = 0;
        for _ in 0..2000 {
            queue.variables.average = average;
            queue.variables.count = None;
            marks += u32::from(queue.choose());
        }
        f64::from(marks) / 2000.0
    };
    assert!((share(6.0) - 0.1).abs() < 0.03);
    assert!((share(9.0) - 0.55).abs() < 0.05);
    assert_eq!(share(12.0), 1.0);
}

#[test]
fn packets_that_are_not_ecn_capable_pass_or_are_dropped() {
    let plain = || Segment { id: 9, payload: 960, ..Segment::default() }.packet();
    for (not_capable, expected) in [(NotCapable::Drop, vec![(9, EventKind::DroppedEarly)]), (NotCapable::Pass, vec![])]
    {
        let (mut queue, mut events) = red(Parameters { not_capable, max_p: 0.0, ..CASE_B });
        for id in 1..=6 {
            queue.enqueue(Time::ZERO, capable(id, 960), &mut events);
        }
        queue.enqueue(Time::ZERO, plain(), &mut events);
        assert_eq!(kinds(&events), expected);
    }
}

#[test]
fn with_candidates_data_acks_are_never_marked_or_dropped_early() {
    let (mut queue, mut events) =
        red(Parameters { candidates: Candidates::Data, action: Action::Drop, max_p: 0.0, ..CASE_B });
    for id in 1..=8 {
        queue.enqueue(Time::ZERO, capable(id, 0), &mut events);
    }
    queue.enqueue(Time::ZERO, capable(9, 960), &mut events);
    assert_eq!(kinds(&events), [(9, EventKind::DroppedEarly)]);
}

#[test]
fn a_full_queue_drops_the_tail_or_a_random_packet() {
    let never = Parameters { min_fraction: 40.0, max_fraction: 80.0, limit: 3.into(), ..CASE_B };
    let (mut queue, mut events) = red(never);
    for id in 1..=4 {
        queue.enqueue(Time::ZERO, capable(id, 0), &mut events);
    }
    assert_eq!(kinds(&events), [(4, EventKind::DroppedFull)]);

    let (mut queue, mut events) = red(Parameters { victim: Victim::Random, ..never });
    for id in 1..=303 {
        queue.enqueue(Time::ZERO, capable(id, 0), &mut events);
    }
    assert_eq!(events.count(EventKind::DroppedFull), 300);
    assert_eq!(queue.len_packets(), 3);
    let longest_stay = events.list.windows(2).filter(|pair| pair[0].packet_id > pair[1].packet_id).count();
    assert!(longest_stay > 50, "victims are not drawn from the whole queue: {longest_stay}");
}

#[test]
fn with_acks_first_a_marked_ack_still_overtakes() {
    let (mut queue, mut events) = red(Parameters { acks_first: true, ..CASE_B });
    for (id, payload) in [(1, 960), (2, 960), (3, 0)] {
        queue.enqueue(Time::ZERO, capable(id, payload), &mut events);
    }
    assert_eq!(drain(&mut queue, &mut events), [3, 1, 2]);
}
