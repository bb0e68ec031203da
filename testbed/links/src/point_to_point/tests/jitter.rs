//! Jitter on whole links: bounds, order, the same draws however late a driver polls, and changes while it runs.

use super::*;
use backchannel_core::event::JitterSample;

/// Packets of 1000 bytes, one a millisecond, over a line with a delay of 5 ms. Deliveries as (ns, id), and what the
/// line reported.
fn carried(extra: serde_json::Value, packets: u64, on_time: bool) -> (Vec<(u64, u64)>, Vec<JitterSample>) {
    let mut link = crate::testing::build(&ten_megabit(extra), 11).unwrap();
    let (mut events, mut out) = (Events::default(), Vec::new());
    for id in 0..packets {
        let now = Time(id * 1_000_000);
        while let Some(at) = link.next_event().filter(|at| on_time && *at <= now) {
            link.poll(at, &mut out, &mut events);
        }
        link.submit(now, 0, data(id, 960), &mut events);
    }
    if !on_time {
        link.poll(Time::from_seconds(1000.0), &mut out, &mut events);
    }
    while let Some(at) = link.next_event() {
        link.poll(at, &mut out, &mut events);
    }
    (out.into_iter().map(|delivery| (delivery.at.nanos(), delivery.packet.id)).collect(), events.jitter)
}

/// Deviation of each packet from its arrival without jitter, in nanoseconds, by id. Its last bit leaves 0.8 ms after it
/// came.
fn deviations(deliveries: &[(u64, u64)]) -> BTreeMap<u64, i64> {
    deliveries.iter().map(|&(at, id)| (id, at as i64 - (id * 1_000_000 + 5_800_000) as i64)).collect()
}

#[test]
fn packets_overtake_each_other_unless_the_line_keeps_their_order() {
    let (free, reports) = carried(json!({"jitter_s": 0.004}), 2000, true);
    assert!(free.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    let overtaken = free.windows(2).filter(|pair| pair[0].1 > pair[1].1).count();
    // Of neighbours 1 ms apart with delays uniform over 8 ms, the later one comes first with (7/8)^2 / 2.
    assert!((500..900).contains(&overtaken), "{overtaken}");
    let jitter_ns = deviations(&free);
    assert!(jitter_ns.values().all(|ns| ns.abs() <= 4_000_000));
    let mean_ns = jitter_ns.values().sum::<i64>() / 2000;
    // Five standard deviations of the mean: 8 ms / sqrt(12 * 2000).
    assert!(mean_ns.abs() < 260_000, "{mean_ns}");
    let reported: Vec<_> = free.iter().map(|(at, id)| (*at, jitter_ns[id])).collect();
    assert_eq!(reports.iter().map(|report| (report.at.nanos(), report.jitter_ns)).collect::<Vec<_>>(), reported);

    let (kept, reports) = carried(json!({"jitter_s": 0.004, "keep_order": true}), 2000, true);
    assert!(kept.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 < pair[1].1));
    let held_ns = deviations(&kept);
    assert!(held_ns.iter().all(|(id, ns)| *ns >= jitter_ns[id] && ns.abs() <= 4_000_000));
    assert!(held_ns.values().sum::<i64>() / 2000 > 1_000_000, "those that are held back shift the mean");
    assert!(reports
        .iter()
        .zip(&kept)
        .all(|(report, (at, id))| (report.at.nanos(), report.jitter_ns) == (*at, held_ns[id])));
}

#[test]
fn a_line_without_jitter_reports_none_and_each_direction_draws_its_own() {
    assert_eq!(carried(json!({}), 10, true).1, []);
    let mut link = crate::testing::build(&ten_megabit(json!({"jitter_s": 0.004})), 11).unwrap();
    let mut other = crate::testing::build(&ten_megabit(json!({"jitter_s": 0.004})), 12).unwrap();
    let mut events = Events::default();
    let mut arrival = |link: &mut dyn Link| {
        link.submit(Time::ZERO, 0, data(1, 960), &mut events);
        drain(link, &mut events)[0].1
    };
    assert_ne!(arrival(&mut *link), arrival(&mut *other), "the run's seed decides");
}

#[test]
fn a_change_of_jitter_acts_from_the_next_packet_on_however_late_it_is_polled() {
    let schedule = json!([{"at_s": 0.1004, "jitter_s": 0.005}, {"at_s": 0.2, "jitter_s": 0.0}]);
    let [on_time, late] = [true, false].map(|on_time| carried(json!({"schedule": schedule}), 300, on_time));
    assert_eq!(on_time, late);
    let jitter_ns = deviations(&on_time.0);
    // The packet that is being sent at 100.4 ms has the new jitter.
    let (before, after) = (jitter_ns.range(..100), jitter_ns.range(200..));
    assert!(before.chain(after).all(|(id, ns)| *ns == 0 || (200..206).contains(id)), "{jitter_ns:?}");
    assert!(jitter_ns.range(100..200).filter(|(_, ns)| **ns != 0).count() > 90);
    // Without jitter the line keeps order again: what was sent before its end is not overtaken.
    assert!(jitter_ns.range(200..).all(|(_, ns)| *ns >= 0));
}

#[test]
fn a_change_of_the_delay_concerns_the_packet_that_is_being_sent_and_none_before_it() {
    for sending in 50..60u64 {
        let at_s = (sending as f64 + 0.4) * 1e-3;
        let schedule = json!([{"at_s": at_s, "delay_s": 0.05, "jitter_s": 0.0}]);
        let jitter_ns = deviations(&carried(json!({"jitter_s": 0.004, "schedule": schedule}), 100, true).0);
        assert!(jitter_ns.range(..sending).all(|(_, ns)| ns.abs() <= 4_000_000), "{sending} {jitter_ns:?}");
        assert!(jitter_ns.range(sending..).all(|(_, ns)| *ns == 45_000_000), "{sending} {jitter_ns:?}");
    }
}

#[test]
fn a_live_change_that_would_exceed_the_delay_is_refused_and_changes_nothing() {
    let mut link = crate::testing::build(&ten_megabit(json!({"jitter_s": 0.004})), 1).unwrap();
    let change = |json: serde_json::Value| serde_json::from_value::<Change>(json).unwrap();
    let why = link.change(Time::from_seconds(2.0), 0, &change(json!({"at_s": 0.0, "delay_s": 0.003}))).unwrap_err();
    assert!(why.to_string().contains("a jitter of 0.004 s exceeds the delay of 0.003 s"), "{why}");
    let both = change(json!({"at_s": 0.0, "delay_s": 0.003, "jitter_s": 0.003}));
    assert_eq!(link.change(Time::from_seconds(2.0), 0, &both), Ok(()));
}

#[test]
fn every_kind_with_a_far_end_has_it_and_radios_refuse_it() {
    let direction = |rate: u64, options: serde_json::Value| {
        let mut way = json!({"delay_s": 0.01, "jitter_s": 0.01, "queue": {"name": "droptail"}, "options": options});
        if rate > 0 {
            way["rate_bps"] = rate.into();
        }
        way
    };
    let made = |kind: &str, way: serde_json::Value| {
        let spec = json!({"name": "line", "kind": kind, "ends": ["a", "b"], "forward": way, "reverse": way});
        crate::testing::build(&serde_json::from_value(spec).unwrap(), 5)
    };
    for (kind, way) in [
        ("wavelan", direction(2_000_000, json!({}))),
        ("mahimahi", direction(0, json!({"trace": "1\n2\n"}))),
        ("point-to-point", direction(0, json!({}))),
    ] {
        let mut link = made(kind, way).unwrap();
        let mut events = Events::default();
        (0..40).for_each(|id| link.submit(Time::ZERO, 0, data(id, 960), &mut events));
        let ids: Vec<_> = drain(&mut *link, &mut events).into_iter().map(|(_, _, id)| id).collect();
        assert!(ids.len() > 10 && !ids.is_sorted(), "{kind} {ids:?}");
        assert_eq!(events.jitter.len(), ids.len());
    }
    let why = made("ricochet", direction(100_000, json!({}))).err().unwrap();
    assert!(why.to_string().contains("forward: a ricochet link has no jitter"), "{why}");
}

proptest! {
    /// The same arrivals whenever the driver polls: as a simulator does, on time, or as a late emulator.
    #[test]
    fn draws_do_not_depend_on_when_the_driver_polls(
        offered in proptest::collection::vec((0u64..3_000_000, 0u64..4_000_000), 1..80), jitter_us in 0u32..5000,
        keep_order: bool, loss in 0.0f64..0.3,
    ) {
        let extra = json!({
            "jitter_s": f64::from(jitter_us) * 1e-6, "keep_order": keep_order,
            "errors": [{"name": "uniform", "options": {"probability": loss}}],
        });
        let run = |late: bool| {
            let mut link = crate::testing::build(&ten_megabit(extra.clone()), 9).unwrap();
            let (mut events, mut out, mut now) = (Events::default(), Vec::new(), 0);
            for (id, (gap, polled_after)) in offered.iter().enumerate() {
                now += gap;
                link.submit(Time(now), 0, data(id as u64, 960), &mut events);
                if late && *polled_after < 2_000_000 {
                    link.poll(Time(now), &mut out, &mut events);
                }
                while let Some(at) = link.next_event().filter(|at| !late && at.nanos() <= now) {
                    link.poll(at, &mut out, &mut events);
                }
            }
            while let Some(at) = link.next_event() {
                link.poll(at, &mut out, &mut events);
            }
            let delivered = out.iter().map(|delivery| (delivery.at, delivery.packet.id));
            (delivered.collect::<Vec<_>>(), events.jitter)
        };
        prop_assert_eq!(run(false), run(true));
    }
}
