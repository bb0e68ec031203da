use super::*;
use crate::testing::back;
use backchannel_core::packet::build::Segment;
use backchannel_core::scenario::Options;

const START: u32 = 4_294_966_000; // numbers wrap within the tests

struct Bench {
    box_: Box<dyn Middlebox>,
    events: Events,
}

impl Bench {
    fn new(entry: &Entry) -> Bench {
        Bench::with(entry, &Options::new())
    }

    fn with(entry: &Entry, options: &Options) -> Bench {
        Bench { box_: crate::testing::build(entry.name, options), events: Events::default() }
    }

    /// As [`Bench::new`], after `segments` segments at 0 ms and `acks` acks of segment 0 at 20, 21, ... ms.
    fn after(entry: &Entry, segments: u32, acks: u64) -> Bench {
        let mut bench = Bench::new(entry);
        for number in 0..segments {
            bench.data(0, number);
        }
        for at_ms in 20..20 + acks {
            bench.ack(at_ms, 1);
        }
        bench
    }

    /// What comes out when the timer fires.
    fn on_timer(&mut self) -> Vec<(Side, u64)> {
        let due = self.box_.next_event().expect("a timer is set");
        let mut out = Vec::new();
        self.box_.poll(due, &mut out, &mut self.events);
        out.into_iter().map(|(side, packet)| (side, packet.id)).collect()
    }

    fn go(&mut self, at_ms: u64, from: Side, packet: Packet) -> Vec<(Side, u64)> {
        let mut out = Vec::new();
        self.box_.process(Time(at_ms * 1_000_000), from, packet, &mut out, &mut self.events);
        out.into_iter().map(|(side, packet)| (side, packet.id)).collect()
    }

    /// Segment `number` of 1000 bytes; its id is its number.
    fn data(&mut self, at_ms: u64, number: u32) -> Vec<(Side, u64)> {
        let seq = START.wrapping_add(1000 * number);
        self.go(at_ms, Side::A, Segment { id: number.into(), seq, payload: 1000, ..Segment::default() }.packet())
    }

    /// The mobile's ack for everything before segment `number`; id 1000 + number.
    fn ack(&mut self, at_ms: u64, number: u32) -> Vec<(Side, u64)> {
        let ack = START.wrapping_add(1000 * number);
        let forward = Segment { id: u64::from(number) + 1000, ack, ..Segment::default() }.packet();
        self.go(at_ms, Side::B, back(&forward))
    }
}

#[test]
fn snoop_sends_again_on_the_second_duplicate_and_keeps_the_later_ones() {
    let mut bench = Bench::new(&LL_TCP_AWARE);
    for number in 0..6 {
        assert_eq!(bench.data(u64::from(number), number), [(Side::B, number.into())]);
    }
    assert_eq!(bench.ack(20, 1), [(Side::A, 1001)]);
    // Segment 1 is lost; 2 to 5 cause four duplicates.
    assert_eq!(bench.ack(21, 1), [(Side::A, 1001)], "the first passes");
    assert_eq!(bench.ack(22, 1), [(Side::B, 1)], "the second stays, and the segment goes out again");
    assert_eq!(bench.ack(23, 1), []);
    assert_eq!(bench.ack(24, 1), []);
    assert_eq!(bench.ack(30, 6), [(Side::A, 1006)]);
    assert_eq!(bench.box_.next_event(), None, "nothing is cached any more");
}

#[test]
fn plain_ll_sends_again_but_lets_every_duplicate_pass() {
    let mut bench = Bench::after(&LL, 6, 1);
    assert_eq!(bench.ack(21, 1), [(Side::A, 1001)]);
    assert_eq!(bench.ack(22, 1), [(Side::B, 1), (Side::A, 1001)]);
    assert_eq!(bench.ack(23, 1), [(Side::A, 1001)]);
}

#[test]
fn a_new_ack_that_stops_short_sends_the_next_of_the_burst_at_once() {
    let mut bench = Bench::after(&LL_TCP_AWARE, 8, 3);
    // 1 was sent again and arrived; 2 is lost as well.
    assert_eq!(bench.ack(40, 2), [(Side::B, 2), (Side::A, 1002)]);
    assert_eq!(bench.ack(50, 8), [(Side::A, 1008)]);
}

/// The rule is of the TCP-aware variants: plain LL waits for two duplicates of each loss (ton III-B).
#[test]
fn plain_ll_waits_for_two_duplicates_of_the_next_loss() {
    let mut bench = Bench::after(&LL, 8, 3);
    assert_eq!(bench.ack(40, 2), [(Side::A, 1002)], "2 is lost as well");
    assert_eq!(bench.ack(41, 2), [(Side::A, 1002)]);
    assert_eq!(bench.ack(42, 2), [(Side::B, 2), (Side::A, 1002)]);
}

/// ton IV-B counts the losses that base station and source both repaired.
#[test]
fn what_base_station_and_source_both_sent_again_is_counted_once() {
    let mut bench = Bench::after(&LL, 6, 3);
    assert_eq!(bench.events.count(EventKind::SourceRetransmit), 0);
    bench.ack(30, 6);
    bench.data(31, 1);
    bench.data(32, 1);
    bench.data(33, 2);
    assert_eq!(bench.events.count(EventKind::SourceRetransmit), 1);
}

/// Until then a new ack that stops short shows the next of the burst. Afterwards the segment was sent later.
#[test]
fn recovery_ends_with_what_was_sent_before_it() {
    let mut bench = Bench::after(&LL_TCP_AWARE, 4, 3);
    assert_eq!(bench.data(30, 4), [(Side::B, 4)]);
    assert_eq!(bench.ack(40, 4), [(Side::A, 1004)]);
}

#[test]
fn the_timeout_is_three_times_the_first_round_trip() {
    let mut bench = Bench::new(&LL_TCP_AWARE);
    bench.data(0, 0);
    bench.ack(100, 1);
    bench.data(200, 1);
    assert_eq!(bench.box_.next_event(), Some(Time(500_000_000)));
}

#[test]
fn a_lost_retransmission_is_seen_when_the_expected_duplicates_have_come() {
    let mut bench = Bench::after(&LL_TCP_AWARE, 6, 2);
    assert_eq!(bench.ack(22, 1), [(Side::B, 1)]);
    // Cached: 1 to 5. Two duplicates have come; of 2 to 5 two are to come, and the third is of the retransmission's
    // time.
    assert_eq!(bench.ack(23, 1), []);
    assert_eq!(bench.ack(24, 1), []);
    assert_eq!(bench.ack(25, 1), [(Side::B, 1)]);
}

/// Segments `from` to before `to`, as the option of an ack.
fn sack_option(from: u32, to: u32) -> &'static [u8] {
    let [start, end] = [from, to].map(|number| START.wrapping_add(1000 * number).to_be_bytes());
    Vec::leak([&[1, 1, 5, 10][..], &start, &end].concat())
}

impl Bench {
    /// As [`Bench::ack`], with the block of one segment.
    fn sack(&mut self, at_ms: u64, number: u32, block: u32) -> Vec<(Side, u64)> {
        let ack = START.wrapping_add(1000 * number);
        let options = sack_option(block, block + 1);
        let forward = Segment { id: u64::from(number) + 1000, ack, options, ..Segment::default() }.packet();
        self.go(at_ms, Side::B, back(&forward))
    }
}

/// The first SACK block names the segment that caused the ack: those before it are lost, unless they were sent again
/// within the last round trip, here 20 ms and four times the deviation of 10.
#[test]
fn with_smart_every_hole_before_the_block_is_sent_again_once_a_round_trip() {
    let mut bench = Bench::after(&LL_SMART, 8, 1);
    assert_eq!(bench.sack(21, 1, 3), [(Side::B, 1), (Side::B, 2), (Side::A, 1001)]);
    assert_eq!(bench.sack(22, 1, 4), [(Side::A, 1001)], "both are on their way, and 3 has arrived");
    assert_eq!(bench.sack(40, 1, 6), [(Side::B, 5), (Side::A, 1001)], "5 is a hole of its own");
    assert_eq!(bench.sack(80, 1, 7), [(Side::A, 1001)], "they may wait in a queue");
    assert_eq!(bench.sack(81, 1, 8), [(Side::B, 1), (Side::B, 2), (Side::A, 1001)], "a round trip later");
}

#[test]
fn with_smart_and_awareness_the_acks_of_holes_stay_here() {
    let mut bench = Bench::after(&LL_SMART_TCP_AWARE, 4, 1);
    assert_eq!(bench.sack(21, 1, 3), [(Side::B, 1), (Side::B, 2)]);
}

#[test]
fn with_smart_a_segment_that_was_just_sent_for_the_first_time_can_be_lost_too() {
    let mut bench = Bench::after(&LL_SMART, 6, 1);
    bench.ack(25, 6);
    (6..8).for_each(|number| _ = bench.data(30, number));
    bench.ack(31, 6);
    assert_eq!(bench.sack(32, 6, 7), [(Side::B, 6), (Side::A, 1006)]);
}

#[test]
fn with_smart_a_hole_that_the_source_fills_is_left_to_it() {
    let mut bench = Bench::after(&LL_SMART, 6, 1);
    bench.data(23, 2);
    assert_eq!(bench.sack(60, 1, 5), [(Side::B, 1), (Side::B, 3), (Side::B, 4), (Side::A, 1001)]);
}

#[test]
fn a_reset_of_the_mobile_host_ends_what_is_known_of_the_connection() {
    for flags in [TcpFlags::RST, TcpFlags::SYN] {
        let mut bench = Bench::after(&LL, 3, 0);
        let forward = Segment { id: 7, ack: START, flags, ..Segment::default() }.packet();
        assert_eq!(bench.go(5, Side::B, back(&forward)), [(Side::A, 7)]);
        assert_eq!(bench.box_.next_event(), None, "nothing is waited for");
    }
}

/// Gains 1/8 and 1/4: after 100 and 180 ms the estimate is 110 ms and 57.5 ms of deviation.
#[test]
fn the_timeout_follows_the_round_trips() {
    let mut bench = Bench::new(&LL);
    for (at_ms, rtt_ms, number) in [(0, 100, 0), (200, 180, 1)] {
        bench.data(at_ms, number);
        bench.ack(at_ms + rtt_ms, number + 1);
    }
    bench.data(400, 2);
    assert_eq!(bench.box_.next_event(), Some(Time((400 + 110 + 4 * 57) * 1_000_000 + 2_000_000)));
}

#[test]
fn what_waited_behind_a_retransmission_is_no_round_trip() {
    // The ack at 500 ms covers segment 1, sent again at 22 ms, and 2 to 5, which had arrived long before.
    let mut bench = Bench::after(&LL_TCP_AWARE, 6, 3);
    bench.ack(500, 6);
    bench.data(600, 6);
    assert_eq!(bench.box_.next_event(), Some(Time(800_000_000)), "200 ms: the round trip is still the first, 20 ms");
}

#[test]
fn silence_for_a_timeout_sends_the_oldest_again_not_before_200_ms() {
    let mut bench = Bench::new(&LL_TCP_AWARE);
    bench.data(0, 0);
    assert_eq!(bench.box_.next_event(), Some(Time(250_000_000)), "before the first sample");
    bench.ack(10, 1);
    bench.data(20, 1);
    assert_eq!(bench.box_.next_event(), Some(Time(220_000_000)));
    assert_eq!(bench.on_timer(), [(Side::B, 1)]);
    assert_eq!(bench.box_.next_event(), Some(Time(420_000_000)), "and again after as long");
}

/// A mobile host that is gone: the base station sends as often as it may, and then leaves the packet to the source.
#[test]
fn a_packet_is_sent_again_as_often_as_retries_allow() {
    for (options, retries) in [(Options::new(), 10), (Options::from([("retries".into(), 3.into())]), 3)] {
        let mut bench = Bench::with(&LL_TCP_AWARE, &options);
        bench.data(0, 0);
        let mut out = Vec::new();
        for _ in 0..100 {
            let Some(due) = bench.box_.next_event() else { break };
            bench.box_.poll(due, &mut out, &mut bench.events);
        }
        let sent: Vec<_> = out.iter().map(|(side, packet)| (*side, packet.id)).collect();
        assert_eq!(sent, vec![(Side::B, 0); retries]);
        assert_eq!(bench.events.count(EventKind::LinkRetransmit), retries);
        assert_eq!(bench.box_.next_event(), None);
        // The source recovers it: all duplicates pass.
        for _ in 0..4 {
            assert_eq!(bench.ack(90_000, 0), [(Side::A, 1000)]);
        }
    }
}

#[test]
fn what_the_source_sent_again_is_the_sources_affair() {
    let mut bench = Bench::after(&LL_TCP_AWARE, 4, 3);
    assert_eq!(bench.data(30, 1), [(Side::B, 1)]);
    assert_eq!(bench.ack(40, 1), [(Side::A, 1001)], "its duplicates pass again");
}

#[test]
fn the_timer_goes_on_for_what_the_source_sent_again_and_the_rest_of_the_burst_follows() {
    let mut bench = Bench::after(&LL_TCP_AWARE, 6, 3);
    bench.data(30, 1);
    assert_eq!(bench.on_timer(), [(Side::B, 1)]);
    assert_eq!(bench.ack(400, 2), [(Side::B, 2), (Side::A, 1002)], "the next of the burst");
}

#[test]
fn what_has_no_data_is_not_waited_for() {
    let mut bench = Bench::new(&LL_TCP_AWARE);
    assert_eq!(
        bench.go(0, Side::A, Segment { id: 1, seq: START, payload: 0, ..Segment::default() }.packet()),
        [(Side::B, 1)]
    );
    assert_eq!(bench.box_.next_event(), None);
}

#[test]
fn a_damaged_ack_is_passed_on_and_not_believed() {
    let mut bench = Bench::new(&LL_TCP_AWARE);
    bench.data(0, 0);
    let mut ack = back(&Segment { id: 7, ack: START.wrapping_add(1000), ..Segment::default() }.packet());
    ack.damage_checksum();
    assert_eq!(bench.go(5, Side::B, ack), [(Side::A, 7)]);
    assert!(bench.box_.next_event().is_some(), "the segment is still waited for");
}
