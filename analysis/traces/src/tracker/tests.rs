use super::*;
use crate::class;
use crate::packet::flag::{ACK, ECE, FIN, RST, SYN};
use crate::packet::Checksum;
use proptest::prelude::*;

const A: (Address, u16) = (Address::four(0x0a00_0001), 1000);
const B: (Address, u16) = (Address::four(0x0a00_0002), 5001);
const MS: i64 = 1_000_000;

fn packet(from_client: bool, seq: u32, ack: u32, flags: u8, payload: u32) -> TcpPacket {
    let (src, dst) = if from_client { (A, B) } else { (B, A) };
    let scale = (flags & SYN != 0).then_some(2);
    TcpPacket {
        src,
        dst,
        seq,
        ack,
        flags,
        window: 1000,
        ip_len: 40 + payload,
        payload,
        window_scale: scale,
        mss: None,
        sack_permitted: false,
        sack_blocks: 0,
        sacks: [(0, 0); 4],
        ecn: 0,
        checksum: Checksum::Good,
        timestamps: None,
    }
}

/// A tracker that has seen a handshake: client's ISN 100, server's 300.
fn established() -> Tracker {
    let mut tracker = Tracker::default();
    tracker.process(0, &packet(true, 100, 0, SYN, 0), 0);
    tracker.process(10 * MS, &packet(false, 300, 101, SYN | ACK, 0), 0);
    tracker.process(20 * MS, &packet(true, 101, 301, ACK, 0), 0);
    tracker
}

fn closed(mut tracker: Tracker) -> Vec<Connection> {
    for index in tracker.remaining() {
        tracker.remove(index);
    }
    tracker.finished
}

fn data(tracker: &mut Tracker, ms: i64, byte: u32) -> Segment {
    tracker.process(ms * MS, &packet(true, 100 + byte, 301, ACK, 100), byte.into())
}

fn ack(tracker: &mut Tracker, ms: i64, byte: u32) -> Segment {
    tracker.process(ms * MS, &packet(false, 301, 100 + byte, ACK, 0), 0)
}

#[test]
fn a_clean_transfer_is_new_data_with_round_trips() {
    let mut tracker = established();
    let first = data(&mut tracker, 30, 1);
    assert_eq!((first.seq, first.ack, first.in_order, first.window), (1, 1, 100, 4000));
    assert_eq!(first.class, class::NEW | class::DATA);
    data(&mut tracker, 31, 101);
    let ack = ack(&mut tracker, 50, 201);
    assert_eq!(ack.rtt_ns, Some(19 * MS));
    assert_eq!(ack.class, class::PURE_ACK);
    assert_eq!(closed(tracker)[0].counts[0].unique_bytes, 200);
}

#[test]
fn three_duplicate_acks_make_a_fast_retransmission() {
    let mut tracker = established();
    for i in 0..5 {
        data(&mut tracker, 30 + i, 1 + 100 * i as u32);
    }
    ack(&mut tracker, 50, 101);
    for i in 0..3 {
        let duplicate = ack(&mut tracker, 51 + i, 101);
        assert!(duplicate.class & class::DUPLICATE_ACK != 0);
    }
    let again = data(&mut tracker, 54, 101);
    assert_eq!(again.class, class::RETRANSMISSION | class::FAST_RETRANSMISSION | class::DATA);
    // Karn: the ack of a retransmitted segment is not a sample.
    assert_eq!(ack(&mut tracker, 80, 201).rtt_ns, None);
}

#[test]
fn only_a_segment_with_the_ack_flag_alone_and_without_data_is_a_pure_ack() {
    for (flags, pure) in [(ACK, true), (SYN | ACK, false), (FIN | ACK, false), (RST | ACK, false), (0, false)] {
        let mut tracker = established();
        let segment = tracker.process(30 * MS, &packet(true, 101, 301, flags, 0), 0);
        assert_eq!(segment.class & class::PURE_ACK != 0, pure, "{flags:#x}");
    }
}

/// Two duplicate acks ask for a segment, if it is sent again within 20 ms.
#[test]
fn after_two_duplicate_acks_a_retransmission_is_a_fast_one_if_it_follows_soon() {
    for (after_ns, class) in [(20 * MS - 1, class::FAST_RETRANSMISSION), (20 * MS, 0)] {
        let mut tracker = established();
        for i in 0..5 {
            data(&mut tracker, 30 + i, 1 + 100 * i as u32);
        }
        (50..53).for_each(|ms| _ = ack(&mut tracker, ms, 101));
        let again = tracker.process(52 * MS + after_ns, &packet(true, 201, 301, ACK, 100), 0);
        assert_eq!(again.class & !class::DATA, class::RETRANSMISSION | class, "{after_ns}");
    }
}

#[test]
fn late_without_duplicate_acks_is_a_timeout_and_acknowledged_data_again_is_spurious() {
    let mut tracker = established();
    data(&mut tracker, 30, 1);
    let again = data(&mut tracker, 1030, 1);
    assert_eq!(again.class, class::RETRANSMISSION | class::TIMEOUT | class::DATA);
    ack(&mut tracker, 1050, 101);
    assert!(data(&mut tracker, 1100, 1).class & class::SPURIOUS != 0);
    let counts = &closed(tracker)[0].counts[0];
    assert_eq!((counts.timeouts, counts.retransmissions, counts.spurious()), (1, 2, 1));
}

#[test]
fn at_the_receiver_a_hole_filled_soon_is_reordering_and_filled_late_a_retransmission() {
    let mut tracker = established();
    data(&mut tracker, 30, 1);
    let after_hole = data(&mut tracker, 31, 201);
    assert!(after_hole.class & class::GAP_BEFORE != 0);
    assert_eq!(after_hole.in_order, 100);
    let late = data(&mut tracker, 32, 101);
    assert_eq!((late.class & !class::DATA, late.in_order), (class::OUT_OF_ORDER, 300));
    data(&mut tracker, 33, 401);
    assert_eq!(data(&mut tracker, 300, 301).class & !class::DATA, class::RETRANSMISSION);
}

/// docs/traces.md: within the round trip of the handshake, here 20 ms, or within 3 ms where it was not captured.
#[test]
fn a_hole_filled_within_a_round_trip_is_reordering_and_from_then_on_a_retransmission() {
    for (after_ns, expected) in [(20 * MS - 1, class::OUT_OF_ORDER), (20 * MS, class::RETRANSMISSION)] {
        let mut tracker = established();
        data(&mut tracker, 30, 1);
        data(&mut tracker, 31, 201);
        let late = tracker.process(31 * MS + after_ns, &packet(true, 201, 301, ACK, 100), 0);
        assert_eq!(late.class & !class::DATA, expected, "{after_ns}");
    }
    for (after_ns, expected) in [(3 * MS - 1, class::OUT_OF_ORDER), (3 * MS, class::RETRANSMISSION)] {
        let mut tracker = Tracker::default();
        for (ms, seq) in [(0, 5000), (1, 5200)] {
            tracker.process(ms * MS, &packet(true, seq, 9000, ACK, 100), 0);
        }
        let late = tracker.process(MS + after_ns, &packet(true, 5100, 9000, ACK, 100), 0);
        assert_eq!(late.class & !class::DATA, expected, "{after_ns}");
    }
}

/// A repetition is spurious only if an ack covers all of it.
#[test]
fn a_repetition_of_what_is_not_all_acknowledged_is_not_spurious() {
    for (acked, spurious) in [(100, 0), (200, 0), (201, class::SPURIOUS), (301, class::SPURIOUS)] {
        let mut tracker = established();
        for (ms, byte) in [(30, 1), (31, 101), (32, 201)] {
            data(&mut tracker, ms, byte);
        }
        ack(&mut tracker, 50, acked);
        assert_eq!(data(&mut tracker, 1030, 101).class & class::SPURIOUS, spurious, "{acked}");
    }
}

#[test]
fn window_update_zero_window_and_keep_alive() {
    let mut tracker = established();
    data(&mut tracker, 30, 1);
    ack(&mut tracker, 40, 51);
    let mut update = packet(false, 301, 201, ACK, 0);
    update.window = 500;
    assert!(tracker.process(50 * MS, &update, 0).class & class::WINDOW_UPDATE == 0, "it acknowledges new data");
    update.window = 700;
    assert!(tracker.process(51 * MS, &update, 0).class & class::WINDOW_UPDATE != 0);
    update.window = 0;
    assert!(tracker.process(52 * MS, &update, 0).class & class::ZERO_WINDOW != 0);
    let keep_alive = tracker.process(9000 * MS, &packet(true, 200, 301, ACK, 0), 0);
    assert!(keep_alive.class & class::KEEP_ALIVE != 0);
}

/// SYN and FIN take a number each, and are not bytes of data.
#[test]
fn a_fin_in_order_is_no_byte_of_data() {
    let mut tracker = established();
    data(&mut tracker, 30, 1);
    let fin = tracker.process(31 * MS, &packet(true, 201, 301, FIN | ACK, 0), 0);
    assert_eq!(fin.in_order, 100);
    let mut tracker = established();
    data(&mut tracker, 30, 1);
    let early = tracker.process(31 * MS, &packet(true, 301, 301, FIN | ACK, 0), 0);
    assert_eq!(
        (early.in_order, data(&mut tracker, 32, 101).in_order),
        (100, 200),
        "before the hole was filled, and after"
    );
}

#[test]
fn reused_ports_are_another_connection() {
    let mut tracker = established();
    tracker.process(30 * MS, &packet(true, 101, 301, FIN | ACK, 0), 0);
    let again = tracker.process(90 * MS, &packet(true, 7000, 0, SYN, 0), 0);
    assert_eq!((again.connection, again.seq), (1, 0));
    assert_eq!(closed(tracker).len(), 2);
}

#[test]
fn a_capture_that_starts_in_the_middle_is_classified() {
    let mut tracker = Tracker::default();
    let first = tracker.process(0, &packet(true, 5000, 9000, ACK, 100), 0);
    assert_eq!((first.seq, first.ack, first.in_order), (1, 1, 100));
    assert_eq!(tracker.process(MS, &packet(true, 5100, 9000, ACK, 100), 0).in_order, 200);
}

/// With timestamps: value and echo.
fn stamped(from_client: bool, seq: u32, ack: u32, payload: u32, value: u32, echo: u32) -> TcpPacket {
    TcpPacket { timestamps: Some((value, echo)), ..packet(from_client, seq, ack, ACK, payload) }
}

#[test]
fn an_echo_older_than_the_retransmission_proves_it_spurious() {
    for (echo, spurious) in [(1000, 1), (2000, 0)] {
        let mut tracker = established();
        tracker.process(30 * MS, &stamped(true, 101, 301, 100, 1000, 0), 7);
        let again = tracker.process(1030 * MS, &stamped(true, 101, 301, 100, 2000, 0), 8);
        assert_eq!(again.class & (class::TIMEOUT | class::SPURIOUS), class::TIMEOUT);
        let ack = tracker.process(1040 * MS, &stamped(false, 301, 201, 0, 5, echo), 9);
        assert_eq!(ack.class & class::PROVES_SPURIOUS != 0, spurious == 1);
        assert_eq!(tracker.proved, vec![8u64; spurious]);
        assert_eq!(closed(tracker)[0].counts[0].spurious_by_timestamp, spurious as u64);
    }
}

#[test]
fn a_d_sack_proves_the_retransmission_that_it_reports() {
    let mut tracker = established();
    data(&mut tracker, 30, 1);
    data(&mut tracker, 31, 101);
    ack(&mut tracker, 32, 101);
    assert!(data(&mut tracker, 1040, 101).class & class::TIMEOUT != 0);
    ack(&mut tracker, 1041, 201);
    let mut report = packet(false, 301, 301, ACK, 0);
    (report.sack_blocks, report.sacks[0]) = (1, (201, 301));
    let segment = tracker.process(1050 * MS, &report, 0);
    let wanted = class::SACK | class::DSACK | class::PROVES_SPURIOUS;
    assert_eq!(segment.class & wanted, wanted);
    assert_eq!(tracker.proved, [101]);
    // A second report is not a further proof.
    assert_eq!(tracker.process(1051 * MS, &report, 0).class & class::PROVES_SPURIOUS, 0);
    let counts = closed(tracker);
    assert_eq!((counts[0].counts[0].spurious_by_dsack, counts[0].counts[1].dsacks), (1, 2));
}

/// RFC 2883 4: above the ack, a first block within the second one. What a packet without a second block has in that
/// place does not count.
#[test]
fn a_first_block_within_the_second_one_is_a_d_sack() {
    for (blocks, class) in [(2, class::DSACK), (1, 0)] {
        let mut tracker = established();
        (0..5).for_each(|i| _ = data(&mut tracker, 30 + i, 1 + 100 * i as u32));
        let mut report = packet(false, 301, 201, ACK, 0);
        (report.sack_blocks, report.sacks[0], report.sacks[1]) = (blocks, (301, 401), (301, 501));
        let segment = tracker.process(50 * MS, &report, 0);
        assert_eq!(segment.class & (class::SACK | class::DSACK), class::SACK | class, "{blocks}");
    }
}

#[test]
fn later_retransmissions_of_a_timeout_belong_to_it() {
    let mut tracker = established();
    for i in 0..4 {
        data(&mut tracker, 30 + i, 1 + 100 * i as u32);
    }
    assert!(data(&mut tracker, 1030, 1).class & class::TIMEOUT != 0);
    ack(&mut tracker, 1050, 101);
    assert!(data(&mut tracker, 1051, 101).class & class::TIMEOUT != 0);
    let counts = &closed(tracker)[0].counts[0];
    assert_eq!((counts.timeouts, counts.timeout_retransmissions, counts.fast_retransmissions), (1, 2, 0));
}

/// A recovery covers what was sent before it.
#[test]
fn what_was_sent_after_a_timeout_does_not_belong_to_it() {
    let mut tracker = established();
    (0..4).for_each(|i| _ = data(&mut tracker, 30 + i, 1 + 100 * i as u32));
    assert!(data(&mut tracker, 1030, 1).class & class::TIMEOUT != 0);
    ack(&mut tracker, 1050, 401);
    data(&mut tracker, 1051, 401);
    assert_eq!(data(&mut tracker, 1060, 401).class & !class::DATA, class::RETRANSMISSION);
}

#[test]
fn later_retransmissions_of_a_fast_recovery_belong_to_it() {
    let mut tracker = established();
    for i in 0..6 {
        data(&mut tracker, 30 + i, 1 + 100 * i as u32);
    }
    for i in 0..4 {
        ack(&mut tracker, 50 + i, 101);
    }
    assert!(data(&mut tracker, 54, 101).class & class::FAST_RETRANSMISSION != 0);
    ack(&mut tracker, 74, 301);
    let partial = data(&mut tracker, 75, 301);
    assert_eq!(partial.class & (class::FAST_RETRANSMISSION | class::TIMEOUT), class::FAST_RETRANSMISSION);
}

#[test]
fn of_many_retransmissions_the_latest_512_wait_for_a_proof() {
    let waiting = |acked: bool| {
        let mut tracker = established();
        data(&mut tracker, 30, 1);
        if acked {
            ack(&mut tracker, 50, 101);
        }
        for i in 0..600 {
            assert!(data(&mut tracker, 100 + i, 1).class & class::RETRANSMISSION != 0);
        }
        let stream = &tracker.live[0].as_ref().expect("it lives").streams[0];
        (stream.retransmissions.len(), stream.unacked_retransmissions)
    };
    assert_eq!(waiting(false), (512, 512));
    // The ack has already proved each of these spurious.
    assert_eq!(waiting(true), (512, 0));
}

#[test]
fn a_bad_checksum_changes_nothing_once_a_good_one_was_captured() {
    let mut tracker = established();
    let bad = TcpPacket { checksum: Checksum::Bad, ..packet(true, 9_000_000, 77, ACK, 100) };
    let segment = tracker.process(25 * MS, &bad, 0);
    assert_eq!(segment.class, class::BAD_CHECKSUM | class::DATA);
    assert_eq!((segment.seq, segment.ack, segment.in_order), (8_999_900, -223, 0));
    let without_ack = TcpPacket { flags: 0, ..bad };
    assert_eq!(tracker.process(26 * MS, &without_ack, 0).ack, -1);
    assert_eq!(data(&mut tracker, 30, 1).class, class::NEW | class::DATA);
    assert_eq!(closed(tracker)[0].counts[0].bad_checksums, 2);

    let mut tracker = Tracker::default();
    for (seq, flags, payload) in [(100, SYN, 0), (101, ACK, 100)] {
        let bad = TcpPacket { checksum: Checksum::Bad, ..packet(true, seq, 301, flags, payload) };
        assert_eq!(tracker.process(0, &bad, 0).class & class::BAD_CHECKSUM, 0);
    }
}

#[test]
fn acknowledged_but_not_captured_is_lost_in_the_capture() {
    let mut tracker = established();
    data(&mut tracker, 30, 1);
    data(&mut tracker, 31, 301);
    let segment = ack(&mut tracker, 50, 401);
    assert!(segment.class & class::LOST_IN_CAPTURE != 0);
    assert_eq!(data(&mut tracker, 60, 401).in_order, 500);
    // Data captured after its ack was not lost.
    assert!(ack(&mut tracker, 61, 601).class & class::LOST_IN_CAPTURE != 0);
    assert_eq!(data(&mut tracker, 62, 501).class & class::NEW, class::NEW);
    let counts = &closed(tracker)[0].counts[0];
    assert_eq!((counts.lost_in_capture_bytes, counts.unique_bytes), (200, 400));
    assert_eq!(counts.acked_bytes, 600);
}

#[test]
fn the_answer_to_a_window_probe_is_no_duplicate_ack() {
    let mut tracker = established();
    data(&mut tracker, 30, 1);
    let closed_window = TcpPacket { window: 0, ..packet(false, 301, 201, ACK, 0) };
    assert!(tracker.process(40 * MS, &closed_window, 0).class & class::ZERO_WINDOW != 0);
    assert_eq!(tracker.process(300 * MS, &packet(true, 201, 301, ACK, 1), 0).class, class::PROBE | class::DATA);
    let answer = tracker.process(310 * MS, &closed_window, 0);
    assert_eq!(answer.class & (class::PROBE_ACK | class::DUPLICATE_ACK), class::PROBE_ACK);
    // The byte is new when it is sent with others.
    tracker.process(320 * MS, &packet(false, 301, 201, ACK, 0), 0);
    assert!(data(&mut tracker, 330, 101).class & class::NEW != 0);
}

#[test]
fn ecn_marks_and_super_packets_are_counted() {
    let mut tracker = Tracker::default();
    tracker.process(0, &packet(true, 100, 0, SYN, 0), 0);
    tracker.process(MS, &TcpPacket { mss: Some(1460), ..packet(false, 300, 101, SYN | ACK, 0) }, 0);
    let marked = TcpPacket { ecn: 3, ..packet(true, 101, 301, ACK, 65_000) };
    let segment = tracker.process(2 * MS, &marked, 0);
    assert_eq!(segment.class, class::NEW | class::DATA | class::ECT | class::CE | class::SUPER);
    let echo = packet(false, 301, 65_101, ACK | ECE, 0);
    tracker.process(3 * MS, &echo, 0);
    let counts = &closed(tracker)[0].counts;
    assert_eq!((counts[0].ce_marks, counts[0].super_packets, counts[1].ece), (1, 1, 1));
}

/// A session with segments of every class that has a count: the counts are the numbers of segments that had the class.
#[test]
fn the_segments_of_each_class_are_counted() {
    let mut tracker = Tracker::default();
    let mut classes: [Vec<u32>; 2] = Default::default();
    let (mut ms, mut repeated) = (0, 0);
    let mut take = |after_ms: i64, packet: TcpPacket| {
        ms += after_ms;
        let segment = tracker.process(ms * MS, &packet, 0);
        classes[usize::from(segment.direction)].push(segment.class);
        if segment.class & class::RETRANSMISSION != 0 {
            repeated += u64::from(packet.payload);
        }
    };
    let data = |byte: u32| packet(true, 100 + byte, 301, ACK, 100);
    let ack = |byte: u32| packet(false, 301, 100 + byte, ACK, 0);
    let sack = |byte: u32, block: (u32, u32)| {
        let mut sack = ack(byte);
        (sack.sack_blocks, sack.sacks[0]) = (1, (100 + block.0, 100 + block.1));
        sack
    };
    take(0, packet(true, 100, 0, SYN, 0));
    take(10, TcpPacket { mss: Some(100), ..packet(false, 300, 101, SYN | ACK, 0) });
    take(10, packet(true, 101, 301, ACK, 0));
    (0..5).for_each(|number| take(1, data(1 + 100 * number)));
    // Three duplicate acks and a fast retransmission.
    take(20, ack(101));
    (0..3).for_each(|_| take(1, ack(101)));
    take(1, data(101));
    take(20, ack(501));
    // Acknowledged data again.
    take(500, data(401));
    // A timeout.
    take(1, data(501));
    take(2000, data(501));
    take(20, ack(601));
    // A hole that is filled soon.
    take(1, data(601));
    take(1, data(801));
    take(1, data(701));
    take(20, sack(701, (801, 901)));
    take(1, sack(901, (601, 701)));
    // Marks, and a segment above the maximum.
    take(1, TcpPacket { ecn: 3, ..packet(true, 1001, 301, ACK, 200) });
    take(20, packet(false, 301, 1201, ACK | ECE, 0));
    take(1, TcpPacket { window: 2000, ..ack(1101) });
    take(1, TcpPacket { window: 0, ..ack(1101) });
    take(500, packet(true, 1201, 301, ACK, 1));
    take(9000, packet(true, 1200, 301, ACK, 0));
    take(1, TcpPacket { checksum: Checksum::Bad, ..data(1101) });
    let found = closed(tracker);
    let mut seen = 0;
    for (counts, classes) in found[0].counts.iter().zip(&classes) {
        for (bit, count) in [
            (class::RETRANSMISSION, counts.retransmissions),
            (class::FAST_RETRANSMISSION, counts.fast_retransmissions),
            (class::TIMEOUT, counts.timeout_retransmissions),
            (class::SPURIOUS, counts.spurious_by_ack),
            (class::OUT_OF_ORDER, counts.out_of_order),
            (class::DUPLICATE_ACK, counts.duplicate_acks),
            (class::PURE_ACK, counts.pure_acks),
            (class::WINDOW_UPDATE, counts.window_updates),
            (class::ZERO_WINDOW, counts.zero_windows),
            (class::KEEP_ALIVE, counts.keep_alives),
            (class::PROBE, counts.probes),
            (class::SACK, counts.sacks),
            (class::DSACK, counts.dsacks),
            (class::CE, counts.ce_marks),
            (class::SUPER, counts.super_packets),
            (class::BAD_CHECKSUM, counts.bad_checksums),
        ] {
            let expected = classes.iter().filter(|class| *class & bit != 0).count();
            assert_eq!(count, expected as u64, "class {bit:#x}");
            seen |= if expected > 0 { bit } else { 0 };
        }
    }
    assert_eq!(seen.count_ones(), 16, "{seen:#x}");
    assert_eq!((found[0].counts[0].retransmitted_bytes, found[0].counts[1].ece), (repeated, 1));
    assert_eq!(repeated, 300);
}

/// The retransmission timer starts again with an ack of new data, or with the first data in flight (RFC 6298 5.1 and
/// 5.3).
#[test]
fn data_sent_while_others_are_in_flight_does_not_start_the_retransmission_timer_again() {
    let mut tracker = established();
    data(&mut tracker, 30, 1);
    ack(&mut tracker, 50, 101);
    data(&mut tracker, 80, 101);
    data(&mut tracker, 150, 201);
    // The timer is at least 100 ms and runs from 80 ms on.
    assert_eq!(data(&mut tracker, 240, 101).class & class::TIMEOUT, class::TIMEOUT);
}

#[test]
fn a_connection_that_ends_gives_its_share_of_the_budget_back() {
    let all = 1 << 20;
    let mut tracker = established();
    for number in 0..50 {
        data(&mut tracker, 30, 1 + 100 * number);
    }
    assert!(!tracker.budget.charge(all));
    tracker.remove(0);
    assert!(tracker.budget.charge(all));
}

#[test]
fn simultaneous_open_is_one_connection() {
    let mut tracker = Tracker::default();
    tracker.process(0, &packet(true, 100, 0, SYN, 0), 0);
    tracker.process(MS, &packet(false, 300, 0, SYN, 0), 0);
    tracker.process(2 * MS, &packet(true, 100, 301, SYN | ACK, 0), 0);
    tracker.process(3 * MS, &packet(false, 300, 101, SYN | ACK, 0), 0);
    let first = data(&mut tracker, 4, 1);
    assert_eq!((first.connection, first.seq, first.ack, first.window), (0, 1, 1, 4000));
    assert_eq!(closed(tracker).len(), 1);
}

#[test]
fn one_direction_alone_is_classified() {
    let mut acks = Tracker::default();
    for i in 0..50 {
        acks.process(i * MS, &packet(false, 301, 1001 + 100 * i as u32, ACK, 0), 0);
    }
    let found = closed(acks);
    assert_eq!((found[0].counts[1].acked_bytes, found[0].counts[0].packets), (4900, 50));
    let mut sent = Tracker::default();
    for i in 0..50 {
        assert!(data(&mut sent, i, 1 + 100 * i as u32).class & class::NEW != 0);
    }
    assert_eq!(closed(sent)[0].counts[0].unique_bytes, 5000);
}

#[test]
fn a_flood_of_connections_and_of_holes_stays_within_bounds() {
    let mut tracker = Tracker::default();
    for i in 0..200_000u32 {
        let mut syn = packet(true, i, 0, SYN, 0);
        syn.src.0 = Address::four(i);
        tracker.process(i64::from(i) * 1000, &syn, 0);
        tracker.finished.clear();
    }
    assert!(tracker.live.len() <= MAX_LIVE && tracker.indices.len() <= MAX_LIVE);
    assert_eq!(tracker.given_up, 200_000 - MAX_LIVE as u64);
    let mut tracker = established();
    for i in 0..3_000_000u32 {
        tracker.process(i64::from(i), &packet(true, 100 + 3 * i, 301, ACK, 1), 0);
    }
    let stream = &tracker.live[0].as_ref().expect("it lives").streams[0];
    assert!(stream.captured.islands() + stream.rtt.len() <= (2 << 20) + 64);
}

/// The idlest of the next 64 goes, then that of the 64 after those.
#[test]
fn where_there_is_no_room_an_idle_connection_of_the_next_few_is_released() {
    let mut tracker = Tracker::default();
    let mut take = |number: u32, ms: i64| {
        let mut syn = packet(true, number, 0, SYN, 0);
        syn.src.0 = Address::four(number);
        tracker.process(ms * MS, &syn, 0);
        tracker.finished.drain(..).map(|one| one.number).collect::<Vec<_>>()
    };
    for number in 0..MAX_LIVE as u32 {
        // Of the first 64 the one at 50 is the idlest, of the next 64 the one at 100.
        assert!(take(number, if number == 50 || number == 100 { 1 } else { 1000 }).is_empty());
    }
    assert_eq!([take(900_000, 2000), take(900_001, 2000)], [[50], [100]]);
}

#[test]
fn a_closed_connection_is_released_after_a_while() {
    let mut tracker = established();
    tracker.process(30 * MS, &packet(true, 101, 301, RST, 0), 0);
    let mut other = packet(true, 9, 0, SYN, 0);
    other.src.1 = 77;
    tracker.process(31 * MS, &other, 0);
    assert!(tracker.finished.is_empty());
    other.src.1 = 78;
    tracker.process(400_000 * MS, &other, 0);
    assert_eq!(tracker.finished.len(), 1);
    assert_eq!((tracker.finished[0].number, tracker.finished[0].counts[0].rst), (0, true));
}

proptest! {
    /// With any loss, repetition and reordering, and wherever the numbers wrap: `in_order` is what was captured, and
    /// every data segment is exactly one of NEW, RETRANSMISSION and OUT_OF_ORDER.
    #[test]
    fn every_byte_is_accounted_for(isn: u32, order in proptest::collection::vec(0u32..40, 1..150)) {
        let mut tracker = Tracker::default();
        tracker.process(0, &packet(true, isn, 0, SYN, 0), 0);
        let mut came = [false; 40];
        for (step, &block) in order.iter().enumerate() {
            let seq = isn.wrapping_add(1 + block * 100);
            let segment = tracker.process((step as i64 + 1) * MS, &packet(true, seq, 1, ACK, 100), 0);
            let kinds = segment.class & (class::NEW | class::RETRANSMISSION | class::OUT_OF_ORDER);
            prop_assert_eq!(kinds.count_ones(), 1);
            prop_assert_eq!(segment.seq, i64::from(1 + block * 100));
            if came[block as usize] {
                prop_assert!(segment.class & class::RETRANSMISSION != 0);
            }
            came[block as usize] = true;
            let whole = came.iter().take_while(|&&here| here).count() as i64 * 100;
            prop_assert_eq!(segment.in_order, whole);
        }
        let unique = came.iter().filter(|&&here| here).count() as i64 * 100;
        prop_assert_eq!(closed(tracker)[0].counts[0].unique_bytes, unique);
    }
}
