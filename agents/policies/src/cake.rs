//! CAKE (Høiland-Jørgensen, Täht, Morton: "Piece of CAKE: A Comprehensive Queue Management Solution for Home Gateways",
//! 2018; section numbers are its own).
//!
//! ```text
//! hash, 8 ways -> a queue a flow, each with COBALT -> DRR++ by flows and hosts -> shaper -> line
//! ```
//!
//! - Shaper (III.A): each packet takes its length, with `overhead` and framing, at the shaper's rate. The next one leaves
//!   then, on an ideal timeline that a late line does not delay, so there are no bursts after an idle time.
//! - Hashing (III.B.1): 1024 queues in sets of eight. A flow whose place is taken has another queue of its set, so flows
//!   share a queue only if nine of a set are active.
//! - DRR++ (III.B): sparse flows go first, as in `fq-codel`. A queue that is found empty stays listed as decaying until
//!   COBALT has come to rest. A queue that holds packets and has used its quantum is bulk.
//! - Host isolation (III.B.2): the quantum of a flow is divided by the number of bulk flows of its host: of its source
//!   (`dual-src`), its destination (`dual-dst`), or the host that has more of them (`triple`).
//! - COBALT (III.C): see its file. The last packet of a queue may be marked and is never dropped.
//! - A full buffer drops the head of the longest queue, in bytes.
//!
//! Differs from Linux: hosts are told apart by their addresses, not by hashes; the capacity is in packets and bytes, not in
//! memory; a rate of the shaper is not adapted. There is one tin (`besteffort`): senders here set no DSCP. The ack filter
//! (III.D) is `ack-filtering` with this policy as its child.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::{Ecn, Packet};
use backchannel_core::registry::{Entry, Queueing, When};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Policy};
use backchannel_core::Error;
use backchannel_core::{choice, options};
use rustc_hash::{FxHashMap, FxHasher};

use crate::cobalt::{self, Cobalt, Signal};
use crate::limit::Limit;
use crate::stamped::Stamped;
use crate::Context;

/// Queues, and those of a set.
const QUEUES: usize = 1024;
const WAYS: usize = 8;
/// Least and greatest quantum in bytes; between them it is what the shaper sends in 1/4096 s.
const QUANTUM: (f64, f64) = (300.0, 1514.0);

choice! {
    /// Who shares the line equally.
    enum Isolation {
        /// Flows alone.
        Flows = "flows",
        /// Sources, and the flows of each.
        DualSrc = "dual-src",
        /// Destinations, and the flows of each.
        DualDst = "dual-dst",
        /// Sources and destinations, whichever has more flows.
        Triple = "triple",
    }
}

choice! {
    /// Cells of the line.
    enum Framing {
        /// None.
        None = "none",
        /// ATM: cells of 53 bytes with 48 of payload.
        Atm = "atm",
        /// VDSL2's PTM: 65 bytes for 64.
        Ptm = "ptm",
    }
}

options! {
    /// Options of the policy.
    #[derive(Copy)]
    struct Parameters {
        limit_packets: usize = 10_240, [Packets 1] "capacity of all queues together";
        buffer_bytes: Option<u64> = ABSENT, [Bytes 1]
            "capacity in bytes of the network layer, in addition to limit_packets; absent: unlimited";
        rate_bps: Option<f64> = ABSENT, [Rate 1]
            "rate of the shaper, which sets the quantum and the least target too; absent: the link alone limits";
        overhead_bytes: u64 = 0, [Bytes 0 to 256] "bytes that the shaper adds to each packet of the network layer";
        mpu_bytes: u64 = 0, [Bytes 0 to 256] "least size of a packet with its overhead";
        framing: Framing = "none", [Choice] "cells that carry packets with their overhead: atm (53 bytes for 48), ptm (65 for 64)";
        isolation: Isolation = "triple", [Choice]
            "who shares the link equally: flows; the hosts that send (dual-src) or receive (dual-dst) and then their \
             flows; or both, by the host with more flows (triple)";
        target_s: Duration = 0.005, [Time 1e-6 to 100]
            "COBALT's acceptable waiting time; at least one and a half transmission times of 1514 bytes at the shaper's rate";
        rtt_s: Duration = 0.1, [Time 1e-6 to 1000] "COBALT's interval, about the longest usual round-trip time";
        ecn: bool = true, [Flag] "mark ECN-capable packets instead of dropping them";
    }
}

pub(crate) static ENTRY: Entry = Entry::policy(
    "cake",
    "shaper, fair queueing by flows and hosts, and COBALT in each flow's queue; flows that send little go first",
    Queueing { holds_back: When::With("rate_bps"), ..Queueing::CLASSES },
)
.source("Piece of CAKE, 2018")
.random(When::Always)
.options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: &Context) -> Result<Box<dyn Policy>, Error> {
    let stream = rng::stream(context.seed, &format!("{}/cake", context.label));
    Ok(Box::new(Cake::new(Parameters::read(checked), stream)))
}

/// Where a queue is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nowhere.
    #[default]
    Idle,
    /// Among the new ones, within its first quantum.
    Sparse,
    /// Among the old ones, because its quantum is used, but empty: not bulk yet.
    SparseWait,
    /// Among the old ones, with more to send than its quantum.
    Bulk,
    /// Empty, until COBALT is at rest.
    Decaying,
}

/// Source and destination of a flow.
type Hosts = [Option<IpAddr>; 2];

/// A flow's queue.
#[derive(Default)]
struct Queue {
    packets: Stamped,
    cobalt: Cobalt,
    state: State,
    /// Bytes that it may send in this turn.
    deficit: i64,
    /// Hash of the flow that has it.
    tag: u64,
    hosts: Hosts,
}

/// The queues, their lists and the shaper.
struct Cake {
    parameters: Parameters,
    cobalt: cobalt::Parameters,
    limit: Limit,
    quantum: f64,
    /// Differs from run to run, so that collisions do.
    perturbation: u64,
    stream: RunRng,
    queues: Vec<Queue>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    decaying: VecDeque<usize>,
    /// Bulk flows of each source and destination.
    bulk: [FxHashMap<IpAddr, u32>; 2],
    backlog: Backlog,
    /// When the shaper lets the next packet pass.
    time_next_packet: Time,
}

impl Cake {
    fn new(parameters: Parameters, mut stream: RunRng) -> Cake {
        let mtu_time = parameters.rate_bps.map_or(Duration::ZERO, |bps| Duration::from_secs_f64(8.0 * QUANTUM.1 / bps));
        let target = parameters.target_s.max(mtu_time.mul_f64(1.5));
        let interval = (parameters.rtt_s + target - parameters.target_s).max(2 * target);
        Cake {
            parameters,
            cobalt: cobalt::Parameters { target, interval, mtu_time },
            limit: Limit { limit_packets: parameters.limit_packets, buffer_bytes: parameters.buffer_bytes },
            quantum: parameters.rate_bps.map_or(QUANTUM.1, |bps| (bps / 8.0 / 4096.0).clamp(QUANTUM.0, QUANTUM.1)),
            perturbation: (rng::uniform(&mut stream) * u32::MAX as f64) as u64,
            stream,
            queues: std::iter::repeat_with(Queue::default).take(QUEUES).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            decaying: VecDeque::new(),
            bulk: Default::default(),
            backlog: Backlog::default(),
            time_next_packet: Time::ZERO,
        }
    }

    /// Bytes of a packet on the line, as the shaper counts them.
    fn line_bytes(&self, packet: &Packet) -> u64 {
        let bytes = (u64::from(packet.len()) + self.parameters.overhead_bytes).max(self.parameters.mpu_bytes);
        match self.parameters.framing {
            Framing::None => bytes,
            Framing::Atm => bytes.div_ceil(48) * 53,
            Framing::Ptm => bytes + bytes.div_ceil(64),
        }
    }

    /// The queue of a packet's flow.
    fn classify(&mut self, packet: &Packet) -> usize {
        let flow = packet.flow();
        let mut hasher = FxHasher::default();
        (self.perturbation, flow).hash(&mut hasher);
        let tag = hasher.finish();
        // The best bits of this hash are the highest ones.
        let first = (tag >> 54) as usize % QUEUES;
        let set = first - first % WAYS;
        let ways = (0..WAYS).map(|step| set + (first + step) % WAYS);
        let is_its_own = |number: &usize| self.queues[*number].tag == tag;
        let is_free = |number: &usize| self.queues[*number].state == State::Idle;
        let number = ways.clone().find(is_its_own).or_else(|| ways.clone().find(is_free)).unwrap_or(first);
        let hosts = [flow.map(|flow| flow.src), flow.map(|flow| flow.dst)];
        if self.queues[number].tag != tag || self.queues[number].hosts != hosts {
            // A queue that two flows share counts for the hosts of the one that came last.
            let is_bulk = self.queues[number].state == State::Bulk;
            self.count_bulk(number, is_bulk, false);
            (self.queues[number].tag, self.queues[number].hosts) = (tag, hosts);
            self.count_bulk(number, is_bulk, true);
        }
        number
    }

    /// Adds a queue that is bulk to the counts of its hosts, or takes it off.
    fn count_bulk(&mut self, number: usize, is_bulk: bool, adds: bool) {
        for (counts, host) in self.bulk.iter_mut().zip(self.queues[number].hosts) {
            let Some(host) = host.filter(|_| is_bulk) else { continue };
            let count = counts.entry(host).or_default();
            *count = if adds { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    fn set_state(&mut self, number: usize, state: State) {
        let before = std::mem::replace(&mut self.queues[number].state, state);
        self.count_bulk(number, before == State::Bulk, false);
        self.count_bulk(number, state == State::Bulk, true);
    }

    /// Bytes of a turn: the quantum over the number of bulk flows of the flow's host, rounded at random.
    fn flow_quantum(&mut self, number: usize) -> i64 {
        let counted = match self.parameters.isolation {
            Isolation::Flows => [false, false],
            Isolation::DualSrc => [true, false],
            Isolation::DualDst => [false, true],
            Isolation::Triple => [true, true],
        };
        let flows = |(counts, host): (&FxHashMap<IpAddr, u32>, Option<IpAddr>)| {
            host.and_then(|host| counts.get(&host)).copied().unwrap_or(0)
        };
        let of_hosts = self.bulk.iter().zip(self.queues[number].hosts).zip(counted);
        let load = of_hosts.filter(|(_, is_counted)| *is_counted).map(|(of_host, _)| flows(of_host)).max();
        match load.unwrap_or(0) {
            0 | 1 => self.quantum as i64,
            load => (self.quantum / f64::from(load) + rng::uniform(&mut self.stream)) as i64,
        }
    }

    /// Removes the head of a queue.
    fn pop(&mut self, number: usize, now: Time) -> Option<(Packet, Duration)> {
        let (packet, wait) = self.queues[number].packets.pop(now)?;
        self.backlog.packets -= 1;
        self.backlog.bytes -= u64::from(packet.len());
        Some((packet, wait))
    }

    /// The queues with packets, and those that are listed without any.
    fn listed(&self) -> impl Iterator<Item = &usize> {
        self.decaying.iter().chain(&self.new).chain(&self.old)
    }

    fn drop_from_longest(&mut self, now: Time, events: &mut Events) {
        let longest = *self.listed().max_by_key(|number| self.queues[**number].packets.bytes()).expect("packets wait");
        let (victim, _) = self.pop(longest, now).expect("the longest queue has packets");
        self.queues[longest].cobalt.on_overflow(now, &self.cobalt);
        events.record(now, EventKind::DroppedFull, &victim);
    }

    /// The next packet of a queue that COBALT lets pass; `None`: the queue is empty.
    fn next_of(&mut self, number: usize, now: Time, events: &mut Events) -> Option<Packet> {
        loop {
            let (mut packet, wait) = self.pop(number, now)?;
            let can_mark = self.parameters.ecn && packet.ecn() != Ecn::NotCapable;
            let queue = &mut self.queues[number];
            let is_last = queue.packets.len() == 0;
            match queue.cobalt.on_head(now, wait, can_mark, &self.cobalt, &mut self.stream) {
                Signal::Congestion if can_mark => {
                    packet.set_congestion_experienced();
                    events.record(now, EventKind::Marked, &packet);
                    return Some(packet);
                }
                Signal::Congestion | Signal::Overload if !is_last => {
                    events.record(now, EventKind::DroppedEarly, &packet);
                }
                _ => return Some(packet),
            }
        }
    }

    /// An empty queue leaves its list, or decays.
    fn retire(&mut self, number: usize, now: Time) {
        let queue = &mut self.queues[number];
        queue.cobalt.on_empty(now, &self.cobalt);
        let is_at_rest = queue.cobalt.is_at_rest(now);
        self.set_state(number, if is_at_rest { State::Idle } else { State::Decaying });
        if !is_at_rest {
            self.decaying.push_back(number);
        }
    }

    /// The queue and the place in it of a place of all.
    fn place(&self, mut place: usize) -> Option<(usize, usize)> {
        for number in self.listed() {
            let waiting = self.queues[*number].packets.len();
            if place < waiting {
                return Some((*number, place));
            }
            place -= waiting;
        }
        None
    }
}

impl Policy for Cake {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        if self.backlog.packets == 0 {
            self.time_next_packet = self.time_next_packet.max(now);
        }
        let number = self.classify(&packet);
        self.backlog.packets += 1;
        self.backlog.bytes += u64::from(packet.len());
        self.queues[number].packets.push(now, packet);
        match self.queues[number].state {
            state @ (State::Idle | State::Decaying) => {
                if state == State::Decaying {
                    self.decaying.retain(|other| *other != number);
                }
                self.set_state(number, State::Sparse);
                self.new.push_back(number);
                self.queues[number].deficit = self.flow_quantum(number);
            }
            State::SparseWait => self.set_state(number, State::Bulk),
            State::Sparse | State::Bulk => {}
        }
        while self.backlog.packets > self.limit.limit_packets
            || self.limit.buffer_bytes.is_some_and(|most| self.backlog.bytes > most)
        {
            self.drop_from_longest(now, events);
        }
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        if self.parameters.rate_bps.is_some() && now < self.time_next_packet {
            return None;
        }
        // A decaying queue a packet: their state goes on while others are served.
        if self.backlog.packets > 0 {
            if let Some(number) = self.decaying.pop_front() {
                self.retire(number, now);
            }
        }
        while self.backlog.packets > 0 {
            let list = if self.new.is_empty() { &mut self.old } else { &mut self.new };
            let number = list.pop_front().expect("packets wait in a new or an old queue");
            if self.queues[number].deficit <= 0 {
                if self.queues[number].state == State::Sparse {
                    let is_empty = self.queues[number].packets.len() == 0;
                    self.set_state(number, if is_empty { State::SparseWait } else { State::Bulk });
                }
                self.queues[number].deficit += self.flow_quantum(number);
                self.old.push_back(number);
                continue;
            }
            let Some(packet) = self.next_of(number, now, events) else {
                self.retire(number, now);
                continue;
            };
            // It stays the first of its list.
            let is_new = self.queues[number].state == State::Sparse;
            if is_new { &mut self.new } else { &mut self.old }.push_front(number);
            let bytes = self.line_bytes(&packet);
            self.queues[number].deficit -= bytes as i64;
            if let Some(rate_bps) = self.parameters.rate_bps {
                self.time_next_packet += Duration::from_secs_f64(8.0 * bytes as f64 / rate_bps);
            }
            return Some(packet);
        }
        None
    }

    fn next_time(&self) -> Option<Time> {
        let earliest = if self.parameters.rate_bps.is_some() { self.time_next_packet } else { Time::ZERO };
        (self.backlog.packets > 0).then_some(earliest)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn peek(&self, place: usize) -> Option<&Packet> {
        let (number, place) = self.place(place)?;
        self.queues[number].packets.peek(place)
    }

    fn take(&mut self, place: usize, instead: Option<Packet>) -> Option<Packet> {
        let (number, place) = self.place(place)?;
        let added = instead.as_ref().map_or(0, |packet| u64::from(packet.len()));
        let is_replaced = instead.is_some();
        let packet = self.queues[number].packets.take(place, instead)?;
        self.backlog.packets -= usize::from(!is_replaced);
        self.backlog.bytes = self.backlog.bytes + added - u64::from(packet.len());
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, context, drain, kinds};
    use backchannel_core::packet::build::Segment;
    use backchannel_core::scenario::Named;
    use serde_json::json;

    fn cake(options: serde_json::Value) -> Box<dyn Policy> {
        let options = serde_json::from_value(options).expect("an object");
        context().build(&Named { name: "cake".into(), options }).expect("valid options")
    }

    /// A packet of 1000 bytes.
    fn packet(id: u64, flow: u16) -> Packet {
        Segment { id, flow, payload: 960, ..Segment::default() }.packet()
    }

    /// The same between other hosts.
    fn between(id: u64, flow: u16, source: u8, destination: u8) -> Packet {
        let mut bytes = packet(id, flow).bytes().to_vec();
        bytes[12..20].copy_from_slice(&[10, 0, 0, source, 10, 0, 1, destination]);
        Packet::from_bytes(id, bytes)
    }

    #[test]
    fn the_shaper_spaces_packets_by_their_bytes_on_the_line() {
        // 1000 bytes with 24 of overhead are 22 cells of ATM.
        for (framing, bytes) in [("none", 1024.0), ("atm", 22.0 * 53.0), ("ptm", 1040.0)] {
            let options = json!({"rate_bps": 1_000_000, "overhead_bytes": 24, "framing": framing});
            let (mut queue, mut events) = (cake(options), Events::default());
            (1..=3).for_each(|id| queue.enqueue(at(5.0), packet(id, 0), &mut events));
            let mut times = Vec::new();
            while let Some(next) = queue.next_time() {
                assert!(next == Time::ZERO || queue.dequeue(Time(next.nanos() - 1), &mut events).is_none());
                assert!(queue.dequeue(next, &mut events).is_some());
                times.push(next.since(at(5.0)).as_secs_f64());
            }
            let gap = 8.0 * bytes / 1e6;
            assert!(times.iter().zip([0.0, gap, 2.0 * gap]).all(|(at, ideal)| (at - ideal).abs() < 1e-8), "{times:?}");
        }
        // A least size counts instead of the packet's own.
        let (mut queue, mut events) = (cake(json!({"rate_bps": 1_000_000, "mpu_bytes": 84})), Events::default());
        let small = |id| Segment { id, ..Segment::default() }.packet();
        (1..=2).for_each(|id| queue.enqueue(Time::ZERO, small(id), &mut events));
        queue.dequeue(Time::ZERO, &mut events);
        assert_eq!(queue.next_time(), Some(Time(672_000)));
    }

    #[test]
    fn sparse_flows_go_first_and_bulk_flows_take_turns() {
        let (mut queue, mut events) = (cake(json!({})), Events::default());
        (1..=6).for_each(|id| queue.enqueue(Time::ZERO, packet(id, 0), &mut events));
        let mut sent: Vec<_> = (0..3).filter_map(|_| queue.dequeue(Time::ZERO, &mut events)).collect();
        (11..=14).for_each(|id| queue.enqueue(Time::ZERO, packet(id, 1), &mut events));
        sent.extend(std::iter::from_fn(|| queue.dequeue(Time::ZERO, &mut events)));
        let ids: Vec<_> = sent.iter().map(|packet| packet.id).collect();
        // Two packets use up a quantum of 1514 bytes and leave a debt of 486. Of the next quantum packet 4 is the second
        // one, and leaves more.
        assert_eq!(ids, [1, 2, 3, 11, 12, 4, 13, 14, 5, 6]);
    }

    #[test]
    fn hosts_share_equally_however_many_flows_each_has() {
        // Host 1 has four flows to host 9, host 2 has one.
        let share = |isolation: &str| {
            let (mut queue, mut events) = (cake(json!({"isolation": isolation})), Events::default());
            for _ in 0..400 {
                (0..4).for_each(|flow| queue.enqueue(Time::ZERO, between(1, flow, 1, 9), &mut events));
                queue.enqueue(Time::ZERO, between(2, 4, 2, 9), &mut events);
            }
            let sent: Vec<_> = (0..400).filter_map(|_| queue.dequeue(Time::ZERO, &mut events)).collect();
            sent.iter().filter(|packet| packet.id == 2).count()
        };
        let [flows, sources, destinations, both] = ["flows", "dual-src", "dual-dst", "triple"].map(share);
        assert!((75..=85).contains(&flows), "a fifth: {flows}");
        assert!((190..=210).contains(&sources), "a half: {sources}");
        // All flows have one destination, and so equal quanta.
        assert!((75..=85).contains(&destinations) && (75..=85).contains(&both), "{destinations} {both}");
    }

    #[test]
    fn nine_flows_of_a_set_share_its_eight_queues_and_eight_do_not() {
        let options = backchannel_core::scenario::Options::new();
        let parameters = Parameters::read(&CheckedOptions::check(&ENTRY, &options).expect("valid"));
        let mut queue = Cake::new(parameters, rng::stream(1, "test"));
        let set = |queue: &mut Cake, flow: u16| queue.classify(&packet(0, flow)) / WAYS;
        let wanted = set(&mut queue, 0);
        let same: Vec<_> = (0..u16::MAX).filter(|flow| set(&mut queue, *flow) == wanted).take(9).collect();
        let mut events = Events::default();
        same.iter().for_each(|flow| queue.enqueue(Time::ZERO, packet(u64::from(*flow), *flow), &mut events));
        let waiting = |queue: &Cake| {
            let mut lengths: Vec<_> = (0..WAYS).map(|way| queue.queues[wanted * WAYS + way].packets.len()).collect();
            lengths.sort_unstable();
            lengths
        };
        assert_eq!(waiting(&queue), [1, 1, 1, 1, 1, 1, 1, 2]);
    }

    #[test]
    fn a_full_buffer_drops_the_head_of_the_longest_queue_and_the_last_packet_of_a_queue_is_spared() {
        let (mut queue, mut events) = (cake(json!({"limit_packets": 4})), Events::default());
        for (id, flow) in [(1, 0), (2, 0), (3, 0), (11, 1), (12, 1)] {
            queue.enqueue(Time::ZERO, packet(id, flow), &mut events);
        }
        assert_eq!(kinds(&events), [(1, EventKind::DroppedFull)]);
        // However long they have waited.
        let mut events = Events::default();
        let (mut queue, mut late) = (cake(json!({"target_s": 1e-6, "rtt_s": 1e-6})), Vec::new());
        for ms in 0..100 {
            queue.enqueue(at(f64::from(ms) / 1e3), packet(ms as u64, 0), &mut events);
            late.extend(queue.dequeue(at(f64::from(ms) / 1e3 + 0.0009), &mut events).map(|packet| packet.id));
        }
        assert_eq!(late.len(), 100);
        assert!(drain(queue.as_mut(), &mut events).is_empty());
    }
}
