//! Loss detection by time over a path of 10 Mbit/s and 40 ms.

use serde_json::json;

use crate::telemetry::SenderEvent;
use crate::tests::pair::{difference, Pair, Path, CLEAN};

/// A transfer of so many bytes that loses the client's packets of these numbers, after a minute.
fn transfer(options: &[(&str, serde_json::Value)], bytes: u64, drop: &[usize]) -> Pair {
    let mut pair = Pair::bulk("modern", options, bytes, CLEAN, 5);
    pair.drop = drop.to_vec();
    pair.run(60);
    assert_eq!(difference(&pair.received[1], 5, bytes), None);
    pair
}

/// (retransmissions, timeouts, fast retransmits, spurious recoveries) of the client.
fn counts(pair: &Pair) -> (u64, u64, u64, u64) {
    let counts = pair.client().counts();
    (counts.retransmitted, counts.timeouts, counts.fast_retransmits, counts.spurious_recoveries)
}

/// Packet 1 is the SYN, so the last of eight segments is packet 9.
#[test]
fn the_last_segment_is_repaired_by_a_probe_and_without_probes_by_the_timer() {
    let probed = transfer(&[], 8 * 1448, &[9]);
    let timed = transfer(&[("tail_loss_probe", json!(false))], 8 * 1448, &[9]);
    assert_eq!((counts(&probed), counts(&timed)), ((1, 0, 0, 0), (1, 1, 0, 0)));
    // One segment is outstanding: two round trips and the longest delay of an ack.
    assert!(probed.last_data_s() < 0.45, "{}", probed.last_data_s());
}

/// Of several segments at the tail the probe repairs the last, and its ack shows that the others are lost.
#[test]
fn a_lost_tail_is_repaired_without_a_timeout() {
    let pair = transfer(&[], 10 * 1448, &[9, 10, 11]);
    assert_eq!(counts(&pair).1, 0);
    assert!(counts(&pair).0 <= 5, "{:?}", counts(&pair));
}

#[test]
fn a_retransmission_that_is_lost_is_sent_again_without_a_timeout() {
    // The number of the retransmission follows from a run that loses the original alone.
    let once = transfer(&[], 300_000, &[40]);
    let data: Vec<_> = once.log.iter().filter(|(_, from, _)| *from == 0).map(|(.., segment)| segment).collect();
    let again = (40..data.len()).find(|at| data[*at].seq == data[39].seq && data[*at].payload > 0).unwrap();
    let twice = transfer(&[], 300_000, &[40, again + 1]);
    assert_eq!((counts(&once), counts(&twice)), ((1, 0, 1, 0), (2, 0, 1, 0)));
}

/// The timer counts from the retransmission: a queue of 150 ms delays that to 320 ms after the original.
#[test]
fn a_retransmission_behind_a_queue_is_waited_for() {
    let path = Path { rate_bps: 2_000_000, ..CLEAN };
    let options = [("initial_window_segments", json!(30)), ("congestion", json!("newreno"))];
    let mut pair = Pair::bulk("modern", &options, 400_000, path, 5);
    pair.drop = vec![4];
    pair.run(60);
    assert_eq!((counts(&pair).1, counts(&pair).2), (0, 1));
}

/// While the first segment is missing, those behind it tell the round trip.
#[test]
fn round_trips_are_measured_behind_a_gap() {
    let pair = transfer(&[], 300_000, &[40]);
    let began = pair.client_event(SenderEvent::FastRetransmit);
    let within = |at: u64| at > began && at < began + 30_000_000;
    let measured = pair.client().samples().iter().filter(|sample| within(sample.at.nanos()));
    let srtts: std::collections::BTreeSet<_> = measured.filter_map(|sample| sample.srtt).collect();
    assert!(srtts.len() > 5, "{srtts:?}");
}

#[test]
fn a_window_that_loses_half_of_its_segments_is_repaired_once() {
    let drop: Vec<_> = (40..60).step_by(2).collect();
    let pair = transfer(&[], 400_000, &drop);
    assert_eq!(counts(&pair), (10, 0, 1, 0));
}

/// With PRR a segment leaves for two that are delivered; without, half of a window passes in silence.
#[test]
fn prr_spreads_what_recovery_sends() {
    let silence_ms = |prr: bool| {
        let pair = transfer(&[("prr", json!(prr)), ("congestion", json!("newreno"))], 1_000_000, &[100]);
        let began = pair.client_event(SenderEvent::FastRetransmit);
        let next = pair.log.iter().find(|(at, from, _)| *from == 0 && *at > began).expect("more is sent").0;
        (next - began) / 1_000_000
    };
    assert!(silence_ms(true) < 5 && silence_ms(false) > 20, "{} {}", silence_ms(true), silence_ms(false));
}

/// All acks are late by a second, and the timer expires for nothing.
#[test]
fn a_timeout_for_nothing_is_undone() {
    let run = |f_rto: bool| {
        let options = [("f_rto", json!(f_rto)), ("dsack", json!(false))];
        let mut pair = Pair::bulk("modern", &options, 4_000_000, CLEAN, 5);
        pair.run(1);
        pair.path.delay_ms = 600;
        while pair.client().counts().timeouts == 0 {
            assert!(pair.step());
        }
        let before = pair.client().counts().retransmitted;
        pair.run(60);
        assert_eq!(difference(&pair.received[1], 5, 4_000_000), None);
        let counts = pair.client().counts();
        (counts.retransmitted - before, counts.spurious_recoveries)
    };
    let (with, without) = (run(true), run(false));
    assert!(with.1 == 1 && without.1 == 0, "{with:?} {without:?}");
    assert!(with.0 < without.0, "{with:?} {without:?}");
}

/// Packets overtake each other by more than a quarter of a round trip: what was sent again had arrived.
#[test]
fn a_recovery_whose_retransmissions_are_reported_as_duplicates_is_undone() {
    let run = |dsack: bool| {
        let path = Path { jitter_ms: 30, ..CLEAN };
        let mut pair = Pair::bulk("modern", &[("dsack", json!(dsack))], 2_000_000, path, 5);
        pair.run(60);
        assert_eq!(difference(&pair.received[1], 5, 2_000_000), None);
        (pair.client().counts(), pair.last_data_s())
    };
    let ((with, with_s), (without, without_s)) = (run(true), run(false));
    assert!(with.spurious_recoveries > 0 && without.spurious_recoveries == 0, "{with:?} {without:?}");
    assert!(with.retransmitted < without.retransmitted && with_s < without_s, "{with_s} {without_s}");
}

/// Whether fast recovery ever ends, and whether while segments are lost.
fn ends_of_recovery(congestion: &str) -> (bool, bool) {
    let path = Path { loss: 0.1, ..CLEAN };
    let mut pair = Pair::bulk("modern", &[("congestion", json!(congestion))], 3_000_000, path, 5);
    let (mut ends, mut found) = (false, false);
    while pair.ends[0].as_ref().is_some_and(|end| end.sender.acknowledged() < 3_000_000) {
        let state = |pair: &Pair| (pair.client().sender.recovery.is_active(), counts(pair).1, counts(pair).3);
        let (was_active, timeouts, undone) = state(&pair);
        assert!(pair.step(), "nothing will happen");
        let has_ended = was_active && state(&pair) == (false, timeouts, undone);
        ends |= has_ended;
        found |= has_ended && pair.client().sender.ledger.as_ref().is_some_and(|ledger| ledger.is_repairing());
    }
    (ends, found)
}

/// As in Linux, for BBR's first version. Others begin another recovery with news of a loss.
#[test]
fn with_losses_left_recovery_goes_on_for_a_controller_that_asks_for_it() {
    assert_eq!(ends_of_recovery("bbr1"), (true, false));
    assert_eq!(ends_of_recovery("bbr"), (true, true));
}
