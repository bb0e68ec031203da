use super::*;
use crate::testing::context;
use crate::testing::drain_us;
use backchannel_core::packet::build::{ack, data};
use proptest::prelude::*;
use serde_json::{json, Value};

pub(super) fn radios(mobiles: usize, options: Value, seed: u64) -> Ricochet {
    let direction = json!({
        "rate_bps": 100_000, "delay_s": 0.01, "queue": {"name": "droptail", "options": {"limit_packets": 10}},
    });
    let ends: Vec<_> = (0..=mobiles).map(|end| format!("n{end}")).collect();
    let spec = json!({
        "name": "air", "kind": "ricochet", "ends": ends, "options": options,
        "forward": direction, "reverse": direction,
    });
    let spec: LinkSpec = serde_json::from_value(spec).expect("a link");
    Ricochet::new(&CheckedOptions::check(&ENTRY, &spec.options).expect("good options"), &spec, &context(seed))
        .expect("a good link")
}

fn submit(link: &mut Ricochet, at_us: u64, from: Port, to: Port, mut packet: Packet) -> Events {
    let mut events = Events::default();
    packet.set_ports(from, to);
    link.submit(Time(at_us * 1000), from, packet, &mut events);
    events
}

/// Submits packets 0 to `count` of 1000 bytes to radio 1, all at the start.
fn submit_data(link: &mut Ricochet, count: u64) {
    for id in 0..count {
        submit(link, 0, 0, 1, data(id, 960));
    }
}

fn drain_until(link: &mut Ricochet, at_us: u64) {
    while let Some(at) = link.next_event().filter(|at| at.nanos() <= at_us * 1000) {
        link.poll(at, &mut Vec::new(), &mut Events::default());
    }
}

/// (port, microseconds, id) of everything that comes out, and what happened.
fn drain(link: &mut Ricochet) -> (Vec<(Port, u64, u64)>, Events) {
    let mut events = Events::default();
    (drain_us(link, &mut events), events)
}

/// (begin, end) in microseconds of what a radio sent.
fn sent_by(link: &Ricochet, radio: usize) -> Vec<(u64, u64)> {
    let sent = link.on_air.iter().filter(|one| one.0 == radio && one.1);
    sent.map(|one| (one.2.nanos() / 1000, one.3.nanos() / 1000)).collect()
}

/// The rules by hand: RTS 3.2 ms, turnaround 13.25, CTS 3.2, frame of 1016 bytes 81.28; then the next RTS at once, and
/// the packet comes out after 10 ms. An ack of 40 bytes takes 4.48 in place of 81.28. The last frame's link ack is
/// asked for after a second.
#[test]
fn golden_exchange_of_data_frames_and_of_acks() {
    let mut link = radios(1, json!({}), 1);
    submit(&mut link, 0, 0, 1, data(1, 960));
    submit(&mut link, 0, 0, 1, data(2, 960));
    let (out, events) = drain(&mut link);
    assert_eq!(out, [(1, 110_930, 1), (1, 110_930 + 100_930, 2)]);
    let ms = |t: f64| Time((t * 1e6).round() as u64);
    assert_eq!(
        link.on_air[..5],
        [
            (0, true, ms(0.0), ms(3.2)),
            (1, false, ms(0.0), ms(3.2)),
            (1, true, ms(16.45), ms(19.65)),
            (0, false, ms(16.45), ms(19.65)),
            (0, true, ms(19.65), ms(100.93)),
        ]
    );
    let asked = 1_201_860;
    assert_eq!(sent_by(&link, 0).last(), Some(&(asked, asked + 3_200)));
    assert_eq!(sent_by(&link, 1).last(), Some(&(asked + 16_450, asked + 16_450 + 1_280)));
    assert!(events.list.is_empty(), "asking is not a retransmission");
    let mut link = radios(1, json!({}), 1);
    submit(&mut link, 0, 1, 0, ack(1));
    submit(&mut link, 0, 1, 0, ack(2));
    assert_eq!(drain(&mut link).0, [(0, 34_130, 1), (0, 34_130 + 24_130, 2)]);
}

/// A policy that holds its packets back is asked again when it releases the next one: here half of the rate, 160 ms a
/// packet.
#[test]
fn a_packet_that_a_policy_holds_back_is_sent_when_it_is_released() {
    let queue = json!({"name": "cbq-5050", "options": {"bounded": true}});
    let direction = json!({"rate_bps": 100_000, "delay_s": 0.01, "queue": queue});
    let spec =
        json!({"name": "air", "kind": "ricochet", "ends": ["a", "b"], "forward": direction, "reverse": direction});
    let spec: LinkSpec = serde_json::from_value(spec).expect("a link");
    let checked = CheckedOptions::check(&ENTRY, &spec.options).expect("good options");
    let mut link = Ricochet::new(&checked, &spec, &context(1)).expect("a good link");
    submit_data(&mut link, 3);
    assert_eq!(drain(&mut link).0, [(1, 110_930, 0), (1, 160_000 + 110_930, 1), (1, 320_000 + 110_930, 2)]);
}

#[test]
fn without_losses_and_backoff_nothing_is_drawn() {
    let mut link = radios(1, json!({}), 1);
    let next = rng::uniform(&mut link.rng.clone());
    submit_data(&mut link, 3);
    assert_eq!(drain(&mut link).0.len(), 3);
    assert_eq!(rng::uniform(&mut link.rng), next);
}

#[test]
fn a_frame_is_given_up_after_the_retries_that_were_set() {
    let mut link = radios(1, json!({"frame_loss": 0.6, "retries": 2}), 5);
    submit_data(&mut link, 10);
    let (out, events) = drain(&mut link);
    let of =
        |kind: EventKind, id: u64| events.list.iter().filter(|one| (one.kind, one.packet_id) == (kind, id)).count();
    let given_up: Vec<u64> = (0..10).filter(|id| of(EventKind::Lost, *id) > 0).collect();
    assert!(!given_up.is_empty() && !out.is_empty(), "{given_up:?} {out:?}");
    assert!(given_up.iter().all(|id| of(EventKind::LinkRetransmit, *id) == 2));
}

/// The draws decide on RTS, CTS, frame and link ack in turn.
#[test]
fn after_a_lost_link_ack_the_sender_polls_again() {
    let options = json!({"frame_loss": 0.5, "piggyback": false});
    let loses_the_fourth = |link: &Ricochet| {
        let mut rng = link.rng.clone();
        [0; 4].map(|_| rng::uniform(&mut rng) < 0.5) == [false, false, false, true]
    };
    let mut link = (0..).map(|seed| radios(1, options.clone(), seed)).find(loses_the_fourth).expect("one in 16 does");
    submit_data(&mut link, 1);
    // The frame's exchange and its link ack take 115.46 ms.
    drain_until(&mut link, 400_000);
    assert!(sent_by(&link, 0).len() > 2, "{:?}", sent_by(&link, 0));
}

#[test]
fn golden_exchange_with_turnarounds_at_every_frame() {
    let times = |piggyback: bool| {
        let mut link = radios(1, json!({"turnarounds": "every-frame", "piggyback": piggyback}), 1);
        submit(&mut link, 0, 0, 1, data(1, 960));
        submit(&mut link, 0, 0, 1, data(2, 960));
        drain(&mut link).0
    };
    // 13.25 ms more before the frame; none before the next RTS, for the radio transmits already.
    let cycle = 3_200 + 13_250 + 3_200 + 13_250 + 81_280;
    assert_eq!(times(true), [(1, cycle + 10_000, 1), (1, 2 * cycle + 10_000, 2)]);
    // A link ack of its own takes two changes more.
    let explicit = cycle + 13_250 + 1_280 + 13_250;
    assert_eq!(times(false), [(1, cycle + 10_000, 1), (1, explicit + cycle + 10_000, 2)]);
}

#[test]
fn link_acks_are_piggybacked_or_follow_each_frame() {
    let run = |piggyback: bool| {
        let mut link = radios(1, json!({"piggyback": piggyback}), 3);
        submit_data(&mut link, 5);
        let (out, events) = drain(&mut link);
        assert!(events.list.is_empty());
        let acks = sent_by(&link, 1).iter().filter(|(begin, end)| end - begin == 1_280).count();
        (out.last().unwrap().1, acks)
    };
    // The one that is asked for, and five.
    assert_eq!(run(true), (10_000 + 5 * 100_930, 1));
    assert_eq!(run(false), (10_000 + 5 * 100_930 + 4 * 1_280, 5));
}

/// Between frames the sender polls at once, and a radio that finds itself engaged waits for a random time: acks gather
/// while data last. This is what an ack filter lives on (7.2.2).
#[test]
fn a_radio_that_has_the_air_keeps_it_and_acks_accumulate() {
    let mut link = radios(1, json!({}), 3);
    submit_data(&mut link, 5);
    let (mut out, mut events) = (Vec::new(), Events::default());
    for id in 10u32..14 {
        let at = 110_930 + 100_930 * u64::from(id - 10);
        link.poll(Time(at * 1000), &mut out, &mut events);
        submit(&mut link, at, 1, 0, ack(id));
    }
    assert_eq!(link.backlog(1).unwrap().packets, 3, "one is about to be polled for");
    let ids: Vec<_> = out.iter().map(|one| one.packet.id).chain(drain(&mut link).0.iter().map(|one| one.2)).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 10, 11, 12, 13]);
    let first = sent_by(&link, 1).into_iter().find(|(_, end)| *end > 5 * 100_930).unwrap().0;
    // Attempts from 110.93 ms on: patience 26.05, then 40 to 80 and 40; each failure doubles the 40 to 80.
    assert!(first >= 110_930 + 2 * 26_050 + 80_000 + 120_000, "{first}");
}

/// The mobile's RTS tells the gateway that its frame is there: nobody asks.
#[test]
fn a_link_ack_is_piggybacked_on_an_rts() {
    let mut link = radios(1, json!({}), 3);
    submit(&mut link, 0, 0, 1, data(1, 960));
    drain_until(&mut link, 200_000);
    submit(&mut link, 200_000, 1, 0, ack(2));
    drain(&mut link);
    // RTS and frame of the data; the CTS for the ack; the answer when the mobile asks in turn.
    let lengths: Vec<_> = sent_by(&link, 0).iter().map(|(begin, end)| end - begin).collect();
    assert_eq!(lengths, [3_200, 81_280, 3_200, 1_280]);
}

#[test]
fn a_busy_poletop_does_not_answer_and_the_poller_backs_off() {
    let mut link = radios(2, json!({}), 5);
    submit(&mut link, 0, 1, 0, data(1, 960));
    submit(&mut link, 30_000, 2, 0, data(2, 960));
    let (out, _) = drain(&mut link);
    let polls: Vec<_> = link.on_air.iter().filter(|one| one.0 == 2 && one.1).map(|one| one.2.nanos() / 1000).collect();
    assert_eq!(polls[0], 30_000);
    // Patience 26.05 ms; then 40 to 80 ms, and 40.
    assert!((136_050..=176_050).contains(&polls[1]), "{polls:?}");
    assert_eq!(out.iter().map(|one| one.2).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn hops_share_their_radios() {
    let time = |hops: u64| {
        let mut link = radios(1, json!({"hops": hops}), 7);
        submit_data(&mut link, 10);
        let (out, _) = drain(&mut link);
        assert_eq!(out.iter().map(|one| one.2).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        out.last().unwrap().1
    };
    let [one, two, three] = [1, 2, 3].map(time);
    // A frame holds both radios of a hop, so that two hops halve the rate at best and contention costs more.
    assert!(two > 2 * one && three > two, "{one} {two} {three}");
}

#[test]
fn a_mobile_reaches_another_through_the_radio_between_them() {
    let mut link = radios(2, json!({"hops": 2}), 1);
    submit(&mut link, 0, 1, 2, data(1, 960));
    let (out, _) = drain(&mut link);
    assert_eq!((out[0].0, out[0].2, out.len()), (2, 1, 1));
}

#[test]
fn lost_frames_are_retransmitted_and_dropped_at_the_limit() {
    let mut link = radios(1, json!({"frame_loss": 0.3}), 2);
    submit_data(&mut link, 10);
    let (out, events) = drain(&mut link);
    assert_eq!(out.iter().map(|one| one.2).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    assert!(events.count(EventKind::LinkRetransmit) > 0);

    let mut link = radios(1, json!({"frame_loss": 0.6, "retries": 0}), 2);
    submit_data(&mut link, 10);
    let (out, events) = drain(&mut link);
    // Given up is what the neighbour says that it has not heard.
    assert!(events.count(EventKind::Lost) > 0);
    assert_eq!(out.len() + events.count(EventKind::Lost), 10);
    assert_eq!(events.count(EventKind::LinkRetransmit), 0);
    assert!(out.windows(2).all(|pair| pair[0].2 < pair[1].2));
}

#[test]
fn impossible_options_are_rejected_with_the_reason() {
    let refuse = |change: fn(&mut Value)| {
        let direction = json!({"rate_bps": 100_000, "delay_s": 0.01, "queue": {"name": "droptail"}});
        let mut spec =
            json!({"name": "air", "kind": "ricochet", "ends": ["a", "b"], "forward": direction, "reverse": direction});
        change(&mut spec);
        crate::testing::build(&serde_json::from_value(spec).unwrap(), 1).err().unwrap()
    };
    assert!(refuse(|spec| spec["reverse"]["rate_bps"] = json!(5)).to_string().contains("one rate"));
    assert!(refuse(|spec| spec["reverse"]["delay_s"] = json!(5.0)).to_string().contains("the same delay"));
    assert!(refuse(|spec| spec["ends"] = json!(["a"])).to_string().contains("at least one mobile"));
    assert!(refuse(|spec| spec["options"] = json!({"hops": 0})).to_string().contains("hops"));
    assert!(refuse(|spec| spec["options"] = json!({"backoff_s": 0.0})).to_string().contains("never back off"));
    assert!(refuse(|spec| spec["options"] = json!({"ack_timeout_s": 0.0})).to_string().contains("to be piggybacked"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// A radio never does two things at once, sending or receiving, nor before it has changed over where that is asked
    /// for; no packet is lost or doubled while retries are unlimited; order holds between each pair of ends; in the end
    /// every radio is idle and knows that its frames have arrived.
    #[test]
    fn half_duplex_and_complete(
        arrivals in proptest::collection::vec((0u64..3_000_000, 0u16..4, 0u16..4, 20u32..1400), 1..40),
        hops in 1u64..4, piggyback: bool, every: bool, lossy: bool, ack_timeout_ms in 1u64..2000, seed in 0u64..1000,
    ) {
        let options = json!({
            "hops": hops, "piggyback": piggyback, "frame_loss": if lossy { 0.2 } else { 0.0 },
            "turnarounds": if every { "every-frame" } else { "handshake" }, "ack_timeout_s": ack_timeout_ms as f64 / 1e3,
        });
        let mut link = radios(3, options, seed);
        let mut sorted: Vec<_> = arrivals.into_iter().filter(|(_, from, to, _)| from != to).collect();
        sorted.sort_unstable();
        let mut dropped = 0;
        let mut out = Vec::new();
        let mut events = Events::default();
        for (id, (at, from, to, size)) in sorted.iter().enumerate() {
            while let Some(due) = link.next_event().filter(|due| due.nanos() <= at * 1000) {
                link.poll(due, &mut out, &mut events);
            }
            dropped += submit(&mut link, *at, *from, *to, data(id as u64, *size)).count(EventKind::DroppedFull);
        }
        while let Some(due) = link.next_event() {
            link.poll(due, &mut out, &mut events);
        }
        prop_assert_eq!(out.len() + dropped + events.count(EventKind::DroppedFull), sorted.len());
        for from in 0..4 {
            for to in 0..4 {
                let ids: Vec<_> = out
                    .iter()
                    .filter(|one| one.port == to && one.packet.from_port() == from)
                    .map(|one| one.packet.id)
                    .collect();
                prop_assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
            }
        }
        for radio in &link.radios {
            prop_assert_eq!(radio.mode, Mode::Idle);
            prop_assert!(radio.queues.iter().flatten().all(|one| one.frames.is_empty() && one.polled.is_none()));
        }
        for radio in 0..link.radios.len() {
            let mut air: Vec<_> =
                link.on_air.iter().filter(|one| one.0 == radio).map(|one| (one.2, one.3, one.1)).collect();
            air.sort_unstable();
            for pair in air.windows(2) {
                let ((_, end, sent), (begin, _, sends)) = (pair[0], pair[1]);
                prop_assert!(begin >= end, "radio {} {:?}", radio, pair);
                let needs = match (sent, sends) {
                    (true, false) if every => link.parameters.options.transmit_receive_s,
                    (false, true) if every => link.parameters.options.receive_transmit_s,
                    _ => Duration::ZERO,
                };
                prop_assert!(begin.since(end) >= needs, "radio {} {:?}", radio, pair);
            }
        }
    }
}
