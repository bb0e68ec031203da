//! Ack reconstruction (asym 6.4): behind a slow reverse line whose ack filter removes acks, made acks fill the gaps, so
//! that a sender that counts acks opens its window and sends smoothly.
//!
//! ```text
//! Delta_a   segments between ack a1 and the next ack a2
//! delta_a   threshold, 2 segments
//! Delta_t   moving average of the time between acks
//!
//! if Delta_a > delta_a: send acks for a1 + delta_a, a1 + 2 delta_a, ..., a2, spaced by delta_t = (delta_a/Delta_a) Delta_t
//! ```
//!
//! So `a2` leaves about Delta_t after its arrival. Only pure acks for new data are treated, and no ack is made for data
//! that the receiver has not acknowledged. An ack that arrives while others wait replaces them, and the gap behind the
//! last ack sent is filled.
//!
//! Differs from the source in:
//! - The paper makes ceil(Delta_a/delta_a) - 2 acks, one short of even spacing. Even spacing, as in ns-2's agent, is
//!   the default (`count: even`; `count: paper`). Gain 1/4 and the initial 10 ms are also from there.
//! - `spacing: interval` is what the paper's figures show: acks leave delta_a segments and a whole Delta_t apart, so no
//!   faster than the slow line delivers acks. An ack that arrives while others wait only moves the end of the gap. A
//!   full window then waits in front of the sender instead of overflowing the fast line: table 1 has a round-trip time
//!   of 97 ms with reconstruction and 65 ms without, where Delta_t of the text is 2 ms. The receiver's window bounds
//!   the wait.
//! - `spacing: agent` is the schedule of ns-2.35's agent (`ack-recons.cc`): acks leave a whole Delta_t apart, the first
//!   of a gap at once. Each ack that arrives fills the gap behind the last ack sent anew. Earlier schedules stay, and
//!   an ack that a later one has overtaken is not sent. An ack that was made or held gives no round-trip sample: its
//!   timestamp echo is 0, which RFC 7323 3.2 leaves without meaning and senders ignore. Without timestamps the sender
//!   cannot know, and takes its sample. Not the rule of table 1: with it, the round-trip time is 65 ms.
//!
//! All state is soft. Losing it costs a burst, but no ack.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options::CheckedOptions;
use backchannel_core::packet::{FlowKey, Packet, TcpFlags};
use backchannel_core::registry::Entry;
use backchannel_core::time::Time;
use backchannel_core::traits::{Middlebox, Side};
use backchannel_core::Error;
use backchannel_core::{choice, options};

use crate::Context;

choice! {
    /// How many acks are made for a gap.
    enum Count {
        /// As many as even spacing needs.
        Even = "even",
        /// One fewer, by the paper's formula.
        Paper = "paper",
    }
}

choice! {
    /// When made acks leave.
    enum Spacing {
        /// A share of the time between acks apart.
        Share = "share",
        /// At least the whole time between acks apart.
        Interval = "interval",
        /// The whole time apart, but the first of each gap at once.
        Agent = "agent",
    }
}

options! {
    /// Options of the middlebox.
    struct Parameters {
        threshold_segments: u32 = 2, [Segments 1 to 1000]
            "delta_a, the number of segments between two reconstructed acks";
        gain: f64 = 0.25, [Fraction 0.01 to 1]
            "weight of the newest sample in the moving average of the time between acks";
        initial_s: f64 = 0.01, [Time 1e-4 to 10] "assumed time between acks before the first sample";
        count: Count = "even", [Choice]
            "number of acks generated per gap: even, as many as even spacing needs (ns-2); paper, one fewer, by the paper's \
             formula";
        spacing: Spacing = "share", [Choice]
            "time between generated acks: share, a share of the time between acks (asym 6.4); interval, at least the whole \
             time between acks (asym table 1); agent, the whole time, but the first of each gap at once, and without \
             round-trip samples (ns-2.35)";
    }
}

pub(crate) static ENTRY: Entry =
    Entry::middlebox("ack-reconstruction", "ack reconstruction: fills gaps between acks behind a slow reverse link")
        .source("asym 6.4")
        .options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, _: &Context<'_>) -> Result<Box<dyn Middlebox>, Error> {
    Ok(Box::new(AckReconstruction { parameters: Parameters::read(checked), flows: HashMap::new() }))
}

/// With a gap of more segments the state is stale, and the ack passes like a first one.
const WIDEST_GAP: u32 = 1000;

struct AckReconstruction {
    parameters: Parameters,
    /// By the direction of the acks.
    flows: HashMap<FlowKey, AckStream>,
}

#[derive(Default)]
struct AckStream {
    /// Largest data segment seen, the unit of the gap.
    segment: u32,
    /// The last ack sent.
    released: Option<u32>,
    released_at: Time,
    arrived: Option<Time>,
    spacing_s: f64,
    waiting: VecDeque<(Time, Packet)>,
}

impl AckStream {
    /// Sends the acks that are due.
    fn release(&mut self, now: Time, out: &mut Vec<(Side, Packet)>) {
        while self.waiting.front().is_some_and(|(at, _)| *at <= now) {
            let (at, packet) = self.waiting.pop_front().expect("it has a front");
            self.released_at = at;
            self.released = packet.tcp().map(|tcp| tcp.ack);
            out.push((Side::A, packet));
        }
    }

    /// Sorts the waiting acks by time and removes those that another has overtaken by then.
    fn remove_overtaken(&mut self) {
        let number = |packet: &Packet| packet.tcp().expect("it is an ack").ack;
        self.waiting.make_contiguous().sort_by_key(|(at, _)| *at);
        let mut last = self.released;
        self.waiting.retain(|(_, packet)| {
            let is_newer = last.is_none_or(|last| (number(packet).wrapping_sub(last) as i32) > 0);
            if is_newer {
                last = Some(number(packet));
            }
            is_newer
        });
    }
}

/// The ack, without a round-trip sample for its sender.
fn untimed(mut packet: Packet) -> Packet {
    packet.clear_timestamp_echo();
    packet
}

/// The acks that fill a gap of more than one step below `packet`, an ack, in order. Recorded as made.
fn made_acks(now: Time, packet: &Packet, gap: u32, step: u32, even: bool, events: &mut Events) -> Vec<Packet> {
    let ack = packet.tcp().expect("it is an ack").ack;
    let steps = gap.div_ceil(step);
    let count = if even { steps - 1 } else { steps.saturating_sub(2) };
    let make = |number| {
        let mut made = packet.clone();
        made.set_ack_number(ack.wrapping_sub(gap).wrapping_add(number * step));
        events.record(now, EventKind::Made, &made);
        made
    };
    (1..=count).map(make).collect()
}

impl AckStream {
    /// Whether nothing can fill a gap: the size of a segment is not known yet, or the gap is that of another
    /// connection.
    fn is_unfillable(&self, gap: u32) -> bool {
        self.segment == 0 || gap / self.segment > WIDEST_GAP
    }

    /// `spacing: interval`: the new ack replaces the newest waiting one, and the gap is filled behind the others.
    fn extend(
        &mut self,
        now: Time,
        threshold: u32,
        even: bool,
        packet: Packet,
        out: &mut Vec<(Side, Packet)>,
        events: &mut Events,
    ) {
        self.waiting.pop_back();
        let (mut at, from) = match self.waiting.back() {
            Some((at, last)) => (*at, last.tcp().map(|tcp| tcp.ack)),
            None => (self.released_at, self.released),
        };
        let ack = packet.tcp().expect("it is an ack").ack;
        let gap = from.map_or(0, |from| ack.wrapping_sub(from));
        let step = threshold * self.segment;
        let apart = Duration::from_secs_f64(self.spacing_s);
        if from.is_none() || self.is_unfillable(gap) {
            self.waiting.clear();
            (self.released, self.released_at) = (Some(ack), now);
            out.push((Side::A, packet));
            return;
        }
        for made in made_acks(now, &packet, gap, step, even, events) {
            at = (at + apart).max(now);
            self.waiting.push_back((at, made));
        }
        self.waiting.push_back(((at + apart).max(now), packet));
        self.release(now, out);
    }

    /// `spacing: agent`: fills the gap behind the last ack sent, from now on.
    fn refill(
        &mut self,
        now: Time,
        threshold: u32,
        even: bool,
        packet: Packet,
        out: &mut Vec<(Side, Packet)>,
        events: &mut Events,
    ) {
        let ack = packet.tcp().expect("it is an ack").ack;
        let gap = self.released.map_or(0, |released| ack.wrapping_sub(released));
        let step = threshold * self.segment;
        let stale = self.released.is_none() || self.is_unfillable(gap);
        if stale || (gap <= step && self.waiting.is_empty()) {
            self.waiting.clear();
            self.released = Some(ack);
            out.push((Side::A, packet));
            return;
        }
        let apart = Duration::from_secs_f64(self.spacing_s);
        let packet = untimed(packet);
        let mut batch = made_acks(now, &packet, gap, step, even, events);
        batch.push(packet);
        self.waiting.extend((0..).zip(batch).map(|(number, packet)| (now + apart * number, packet)));
        self.remove_overtaken();
        self.release(now, out);
    }
}

impl AckReconstruction {
    /// A new pure ack from the receiver.
    fn fill(&mut self, now: Time, key: FlowKey, packet: Packet, out: &mut Vec<(Side, Packet)>, events: &mut Events) {
        let Parameters { threshold_segments: threshold, gain, initial_s, count, spacing } = self.parameters;
        let even = count == Count::Even;
        let flow = self.flows.entry(key).or_default();
        flow.release(now, out);
        let ack = packet.tcp().expect("it is an ack").ack;
        if let Some(before) = flow.arrived.replace(now) {
            flow.spacing_s += gain * ((now - before).as_secs_f64() - flow.spacing_s);
        } else {
            flow.spacing_s = initial_s;
        }
        match spacing {
            Spacing::Interval => return flow.extend(now, threshold, even, packet, out, events),
            Spacing::Agent => return flow.refill(now, threshold, even, packet, out, events),
            Spacing::Share => {}
        }
        // The waiting acks are obsolete; their gap is part of this one.
        flow.waiting.clear();
        let gap = flow.released.map_or(0, |released| ack.wrapping_sub(released));
        let step = threshold * flow.segment;
        if gap <= step || flow.is_unfillable(gap) {
            flow.released = Some(ack);
            out.push((Side::A, packet));
            return;
        }
        let apart = flow.spacing_s * f64::from(step) / f64::from(gap);
        let at = |number: u32| now + Duration::from_secs_f64(apart * f64::from(number));
        let mut batch = made_acks(now, &packet, gap, step, even, events);
        batch.push(packet);
        flow.waiting.extend((1..).zip(batch).map(|(number, packet)| (at(number), packet)));
    }
}

impl Middlebox for AckReconstruction {
    fn process(&mut self, now: Time, from: Side, packet: Packet, out: &mut Vec<(Side, Packet)>, events: &mut Events) {
        let (Some(&tcp), Some(key)) = (packet.tcp(), packet.flow()) else {
            out.push((from.other(), packet));
            return;
        };
        if from == Side::A {
            if tcp.flags.any(TcpFlags::SYN | TcpFlags::RST) {
                self.flows.remove(&key.reversed());
            }
            let flow = self.flows.entry(key.reversed()).or_default();
            flow.segment = flow.segment.max(tcp.payload);
            out.push((Side::B, packet));
            return;
        }
        if tcp.flags.any(TcpFlags::SYN | TcpFlags::RST) {
            // A new connection between the same ports, or the end of this one.
            self.flows.remove(&key);
            out.push((Side::A, packet));
            return;
        }
        let flow = self.flows.entry(key).or_default();
        let last = flow.waiting.back().and_then(|(_, packet)| packet.tcp()).map(|tcp| tcp.ack).or(flow.released);
        let new = last.is_none_or(|last| (tcp.ack.wrapping_sub(last) as i32) > 0);
        if packet.is_pure_ack() && packet.checksum_ok() && new {
            self.fill(now, key, packet, out, events);
            return;
        }
        // Duplicate acks and packets that carry more pass at once, after all waiting acks.
        flow.release(Time::MAX, out);
        flow.released_at = now;
        if new && tcp.flags.has(TcpFlags::ACK) && packet.checksum_ok() {
            flow.released = Some(tcp.ack);
        }
        out.push((Side::A, packet));
    }

    fn next_event(&self) -> Option<Time> {
        self.flows.values().filter_map(|flow| flow.waiting.front()).map(|(at, _)| *at).min()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<(Side, Packet)>, _: &mut Events) {
        let mut due: Vec<_> =
            self.flows.iter_mut().filter(|(_, flow)| flow.waiting.front().is_some_and(|(at, _)| *at <= now)).collect();
        // The order of the map differs from run to run.
        due.sort_by_key(|(key, _)| **key);
        for (_, flow) in due {
            flow.release(now, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::back;
    use backchannel_core::packet::build::Segment;
    use proptest::prelude::*;

    struct Bench(Box<dyn Middlebox>, Events);

    impl Bench {
        fn new(options: serde_json::Value) -> Bench {
            let options = serde_json::from_value(options).unwrap();
            let mut bench = Bench(crate::testing::build(ENTRY.name, &options), Events::default());
            // A segment of 1000 bytes went the other way.
            let data = Segment { payload: 1000, ..Segment::default() }.packet();
            bench.0.process(Time::ZERO, Side::A, data, &mut Vec::new(), &mut bench.1);
            bench
        }

        /// An ack for everything before this segment; the acks that go on at once.
        fn ack(&mut self, at_ms: u64, segment: u32) -> Vec<u32> {
            let packet = back(&Segment { ack: 1000 * segment, ..Segment::default() }.packet());
            let mut out = Vec::new();
            self.0.process(Time(at_ms * 1_000_000), Side::B, packet, &mut out, &mut self.1);
            out.iter().map(|(_, packet)| packet.tcp().unwrap().ack / 1000).collect()
        }

        /// (milliseconds, ack) of everything that waits.
        fn drain(&mut self) -> Vec<(f64, u32)> {
            let mut all = Vec::new();
            while let Some(at) = self.0.next_event() {
                let mut out = Vec::new();
                self.0.poll(at, &mut out, &mut self.1);
                for (side, packet) in out {
                    assert_eq!(side, Side::A);
                    assert!(packet.checksum_ok());
                    all.push((at.nanos() as f64 / 1e6, packet.tcp().unwrap().ack / 1000));
                }
            }
            all
        }
    }

    #[test]
    fn a_gap_of_ten_is_filled_by_twos_over_the_usual_time_between_acks() {
        let mut bench = Bench::new(serde_json::json!({}));
        assert_eq!(bench.ack(0, 2), [2]);
        // The average stays at its initial 10 ms.
        assert!(bench.ack(10, 12).is_empty());
        assert_eq!(bench.drain(), [(12.0, 4), (14.0, 6), (16.0, 8), (18.0, 10), (20.0, 12)]);
        assert_eq!(bench.1.count(EventKind::Made), 4);
    }

    #[test]
    fn the_papers_count_is_one_short() {
        let mut bench = Bench::new(serde_json::json!({"count": "paper"}));
        bench.ack(0, 2);
        bench.ack(10, 12);
        assert_eq!(bench.drain().iter().map(|(_, ack)| *ack).collect::<Vec<_>>(), [4, 6, 8, 12]);
    }

    #[test]
    fn small_steps_and_duplicates_pass_at_once() {
        let mut bench = Bench::new(serde_json::json!({}));
        assert_eq!(bench.ack(0, 2), [2]);
        assert_eq!(bench.ack(5, 4), [4]);
        assert_eq!(bench.ack(6, 4), [4]);
        assert_eq!(bench.0.next_event(), None);
    }

    /// A gap of 1000 segments is filled, a wider one is stale.
    #[test]
    fn the_ack_after_too_wide_a_gap_passes_at_once() {
        for spacing in ["share", "interval", "agent"] {
            for (segment, passes) in [(1002, false), (1003, true)] {
                let mut bench = Bench::new(serde_json::json!({"spacing": spacing}));
                bench.ack(0, 2);
                assert_eq!(bench.ack(10, segment) == [segment], passes, "{spacing} {segment}");
            }
        }
    }

    #[test]
    fn a_duplicate_does_not_overtake_what_waits() {
        let mut bench = Bench::new(serde_json::json!({}));
        bench.ack(0, 2);
        assert!(bench.ack(10, 8).is_empty());
        assert_eq!(bench.ack(11, 8), [4, 6, 8, 8]);
    }

    #[test]
    fn a_newer_ack_takes_the_place_of_those_that_wait() {
        let mut bench = Bench::new(serde_json::json!({}));
        bench.ack(0, 2);
        bench.ack(10, 8);
        bench.ack(11, 14);
        let acks: Vec<_> = bench.drain().iter().map(|(_, ack)| *ack).collect();
        assert_eq!(acks, [4, 6, 8, 10, 12, 14]);
    }

    #[test]
    fn by_the_interval_acks_leave_two_segments_apart_however_fast_they_stand_for_more() {
        let mut bench = Bench::new(serde_json::json!({"spacing": "interval"}));
        assert_eq!(bench.ack(0, 2), [2]);
        // Every 10 ms an ack for five segments: two and a half steps.
        assert_eq!(bench.ack(10, 7), [4]);
        assert_eq!(bench.drain(), [(20.0, 6), (30.0, 7)]);
        let mut bench = Bench::new(serde_json::json!({"spacing": "interval"}));
        bench.ack(0, 2);
        let mut sent = bench.ack(10, 7);
        sent.extend(bench.ack(20, 12));
        let rest = bench.drain();
        assert_eq!(sent, [4, 6]);
        assert_eq!(rest, [(30.0, 8), (40.0, 10), (50.0, 12)]);
    }

    /// `ack-recons.cc` of ns-2.35: recv() and handle().
    #[test]
    fn the_agent_sends_the_first_of_a_gap_at_once_and_schedules_anew_from_each_arrival() {
        let mut bench = Bench::new(serde_json::json!({"spacing": "agent"}));
        assert_eq!(bench.ack(0, 2), [2]);
        let mut sent = bench.ack(10, 7);
        assert_eq!(sent, [4]);
        // 6 is due at 20 ms; the new gap begins behind it at once, and 7 at 30 ms is overtaken.
        sent.extend(bench.ack(20, 12));
        assert_eq!(sent, [4, 6, 8]);
        assert_eq!(bench.drain(), [(30.0, 10), (40.0, 12)]);
    }

    /// 6 is due at 20 ms and, from the second arrival on, at once.
    #[test]
    fn of_two_equal_acks_of_the_agent_the_earlier_one_is_sent() {
        let mut bench = Bench::new(serde_json::json!({"spacing": "agent"}));
        bench.ack(0, 2);
        assert_eq!(bench.ack(10, 7), [4]);
        assert_eq!(bench.ack(12, 8), [6]);
        // The average of the time between acks is 8 ms now.
        assert_eq!(bench.drain(), [(20.0, 8)]);
    }

    /// `ack-recons.cc` of ns-2 sets `no_ts_` on what it schedules.
    #[test]
    fn the_agents_acks_echo_no_timestamp() {
        for (spacing, echo) in [("share", 7), ("interval", 7), ("agent", 0)] {
            let mut bench = Bench::new(serde_json::json!({"spacing": spacing}));
            let timed = |ack| {
                back(&Segment { ack, options: &[1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7], ..Segment::default() }.packet())
            };
            let mut out = Vec::new();
            bench.0.process(Time::ZERO, Side::B, timed(2000), &mut out, &mut bench.1);
            bench.0.process(Time(10_000_000), Side::B, timed(8000), &mut out, &mut bench.1);
            while let Some(at) = bench.0.next_event() {
                bench.0.poll(at, &mut out, &mut bench.1);
            }
            let echoes: Vec<_> = out.iter().map(|(_, packet)| packet.tcp_options()[11]).collect();
            assert_eq!(echoes, [7, echo, echo, echo], "{spacing}");
            assert!(out.iter().all(|(_, packet)| packet.checksum_ok()));
        }
    }

    #[test]
    fn by_the_interval_what_comes_slowly_passes_at_once() {
        let mut bench = Bench::new(serde_json::json!({"spacing": "interval"}));
        for (at, segment) in [(0, 2), (10, 4), (20, 6)] {
            assert_eq!(bench.ack(at, segment), [segment]);
        }
        assert_eq!(bench.0.next_event(), None);
    }

    #[test]
    fn a_new_connection_between_the_same_ports_owes_nothing_to_the_old_one() {
        let mut bench = Bench::new(serde_json::json!({}));
        bench.ack(0, 2);
        let syn = back(&Segment { ack: 900_000_000, flags: TcpFlags::SYN, ..Segment::default() }.packet());
        let mut out = Vec::new();
        bench.0.process(Time(1_000_000), Side::B, syn, &mut out, &mut bench.1);
        assert_eq!(out.len(), 1);
        assert_eq!(bench.ack(2, 900_010), [900_010], "the first ack passes");
        // Even without its SYN, a gap that no ack filter makes is not filled.
        assert_eq!(bench.ack(3, 1_900_000), [1_900_000]);
        assert_eq!(bench.1.count(EventKind::Made), 0);
    }

    #[test]
    fn a_syn_of_the_sender_begins_a_new_connection() {
        for (flags, passes) in [(0, false), (TcpFlags::SYN, true), (TcpFlags::RST, true)] {
            let mut bench = Bench::new(serde_json::json!({}));
            bench.ack(0, 2);
            let segment = Segment { flags, ..Segment::default() }.packet();
            bench.0.process(Time(1_000_000), Side::A, segment, &mut Vec::new(), &mut bench.1);
            assert_eq!(bench.ack(10, 12) == [12], passes, "{flags}");
        }
    }

    #[test]
    fn an_ack_that_rides_on_data_counts() {
        let mut bench = Bench::new(serde_json::json!({}));
        bench.ack(0, 2);
        let data = back(&Segment { ack: 12_000, payload: 500, ..Segment::default() }.packet());
        bench.0.process(Time(1_000_000), Side::B, data, &mut Vec::new(), &mut bench.1);
        assert_eq!(bench.ack(5, 14), [14], "only two segments on");
        let overtaken = back(&Segment { ack: 12_000, payload: 500, ..Segment::default() }.packet());
        bench.0.process(Time(6_000_000), Side::B, overtaken, &mut Vec::new(), &mut bench.1);
        assert_eq!(bench.ack(7, 16), [16], "an older ack on data takes nothing back");
    }

    proptest! {
        /// No ack for what was not acknowledged, none out of order, and the last one comes through.
        #[test]
        fn nothing_is_invented(
            steps in proptest::collection::vec((1u64..50, 0u32..15), 1..60),
            spacing in prop::sample::select(vec!["share", "interval", "agent"]),
        ) {
            let mut bench = Bench::new(serde_json::json!({"spacing": spacing}));
            let (mut at, mut highest, mut last) = (0, 1, 0);
            for (after, step) in steps {
                at += after;
                let mut out = Vec::new();
                bench.0.poll(Time(at * 1_000_000), &mut out, &mut bench.1);
                let mut seen: Vec<u32> = out.iter().map(|(_, packet)| packet.tcp().unwrap().ack / 1000).collect();
                highest += step;
                seen.extend(bench.ack(at, highest));
                for ack in seen {
                    prop_assert!(ack >= last && ack <= highest);
                    last = ack;
                }
            }
            let rest = bench.drain();
            prop_assert_eq!(rest.last().map_or(last, |(_, ack)| *ack), highest);
        }
    }
}
