//! FQ-CoDel, fair queueing with controlled delay (RFC 8290; section numbers are its own).
//!
//! - Flows are hashed to a fixed number of queues, each with CoDel (4.1.1, 4.2).
//! - Queues that have packets are in one of two lists, new or old (3.1). A queue that gets a packet while it is in
//!   neither joins the new ones with a quantum of credit. New queues are served before old ones, so that a flow that
//!   sends little never waits behind others.
//! - The first queue of a list is served while it has credit, in bytes. Without credit it gets a quantum and moves to the
//!   end of the old queues (4.2).
//! - A queue that is found empty leaves the list if it was old. If it was new it moves to the old ones first: otherwise a
//!   flow could stay new by sending its next packet as soon as its queue is empty (4.2).
//! - A full buffer drops from the head of the queue with the most bytes (4.1).
//!
//! CoDel spares a queue with no more bytes than `max_packet`, that of the flow (RFC 8289). Linux counts the bytes of all
//! flows there, so that it drops from short queues too while others are long.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Queueing, When};
use backchannel_core::rng;
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Policy};
use backchannel_core::Error;
use rustc_hash::{FxHashMap, FxHasher};

use crate::codel;
use crate::limit::Limit;
use crate::{CoDel, Context};

options! {
    /// Options of the policy.
    #[derive(Copy)]
    struct Parameters {
        limit_packets: usize = 10_240, [Packets 1] "capacity of all queues together (5.2.3)";
        buffer_bytes: Option<u64> = ABSENT, [Bytes 1]
            "capacity in bytes of the network layer, in addition to limit_packets; absent: unlimited";
        flows: u64 = 1024, [Count 1 to 65_536] "number of queues; flows are hashed to them (5.2.5)";
        quantum_bytes: u64 = 1514, [Bytes 1 to 65_535]
            "bytes of credit at each turn (5.2.4); 300 lets small packets pass on slow links";
        target_s: Duration = 0.005, [Time 1e-6 to 100]
            "CoDel's acceptable waiting time; must exceed a packet's transmission time (5.2.2)";
        interval_s: Duration = 0.1, [Time 1e-6 to 1000] "CoDel's interval, about the longest usual round-trip time (5.2.1)";
        max_packet_bytes: u64 = 1514, [Bytes 1] "with no more bytes than this in its queue, a flow loses nothing to CoDel";
        ecn: bool = true, [Flag] "mark ECN-capable packets instead of dropping them (5.2.7)";
    }
}

pub(crate) static ENTRY: Entry = Entry::policy(
    "fq-codel",
    "fair queueing with CoDel in each flow's queue; flows that send little go first",
    Queueing::CLASSES,
)
.source("RFC 8290")
.random(When::Always)
.options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: &Context) -> Result<Box<dyn Policy>, Error> {
    let parameters = Parameters::read(checked);
    let mut stream = rng::stream(context.seed, &format!("{}/fq-codel", context.label));
    let perturbation = (rng::uniform(&mut stream) * u32::MAX as f64) as u64;
    Ok(Box::new(FqCoDel::new(parameters, perturbation)))
}

/// A flow's queue.
struct Queue {
    codel: CoDel,
    /// Bytes that it may send in this turn; at most 0: its turn is over.
    credits: i64,
    is_listed: bool,
}

/// Queues of flows in two lists.
struct FqCoDel {
    parameters: Parameters,
    limit: Limit,
    /// Differs from run to run, so that collisions do.
    perturbation: u64,
    /// Those that have had packets, by their number.
    queues: FxHashMap<u64, Queue>,
    new: VecDeque<u64>,
    old: VecDeque<u64>,
    backlog: Backlog,
}

impl FqCoDel {
    fn new(parameters: Parameters, perturbation: u64) -> FqCoDel {
        FqCoDel {
            limit: Limit { limit_packets: parameters.limit_packets, buffer_bytes: parameters.buffer_bytes },
            parameters,
            perturbation,
            queues: FxHashMap::default(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            backlog: Backlog::default(),
        }
    }

    /// The number of a packet's queue: its flow's hash (4.1.1).
    fn classify(&self, packet: &Packet) -> u64 {
        let mut hasher = FxHasher::default();
        (self.perturbation, packet.flow()).hash(&mut hasher);
        // The best bits of this hash are the highest ones.
        ((u128::from(hasher.finish()) * u128::from(self.parameters.flows)) >> 64) as u64
    }

    fn queue(&mut self, number: u64) -> &mut Queue {
        self.queues.get_mut(&number).expect("a listed queue exists")
    }

    /// Calls a queue and counts what waits.
    fn call<T>(&mut self, number: u64, call: impl FnOnce(&mut Queue) -> T) -> T {
        let queue = self.queue(number);
        let before = queue.codel.backlog();
        let result = call(queue);
        let after = queue.codel.backlog();
        self.backlog.packets = self.backlog.packets + after.packets - before.packets;
        self.backlog.bytes = self.backlog.bytes + after.bytes - before.bytes;
        result
    }

    /// The queues with packets, in the order in which they are served.
    fn listed(&self) -> impl Iterator<Item = &u64> {
        self.new.iter().chain(&self.old)
    }

    /// 4.1: drops from the head of the queue with the most bytes.
    fn drop_from_longest(&mut self, now: Time, events: &mut Events) {
        let bytes = |number: &u64| self.queues[number].codel.len_bytes();
        let longest = *self.listed().max_by_key(|number| bytes(number)).expect("packets wait");
        let victim = self.call(longest, |queue| queue.codel.take(0, None)).expect("the longest queue has packets");
        events.record(now, EventKind::DroppedFull, &victim);
    }

    /// The queue and the place in it of a place of all.
    fn place(&self, mut place: usize) -> Option<(u64, usize)> {
        for number in self.listed() {
            let waiting = self.queues[number].codel.len_packets();
            if place < waiting {
                return Some((*number, place));
            }
            place -= waiting;
        }
        None
    }
}

impl Policy for FqCoDel {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        let (number, parameters) = (self.classify(&packet), self.parameters);
        self.queues.entry(number).or_insert_with(|| {
            let codel = CoDel::new(codel::Parameters {
                limit_packets: usize::MAX,
                buffer_bytes: None,
                target_s: parameters.target_s,
                interval_s: parameters.interval_s,
                max_packet_bytes: parameters.max_packet_bytes,
                ecn: parameters.ecn,
            });
            Queue { codel, credits: 0, is_listed: false }
        });
        self.call(number, |queue| queue.codel.enqueue(now, packet, events));
        let queue = self.queue(number);
        if !queue.is_listed {
            (queue.is_listed, queue.credits) = (true, parameters.quantum_bytes as i64);
            self.new.push_back(number);
        }
        while self.backlog.packets > self.limit.limit_packets
            || self.limit.buffer_bytes.is_some_and(|most| self.backlog.bytes > most)
        {
            self.drop_from_longest(now, events);
        }
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        // 4.2.
        loop {
            let is_new = !self.new.is_empty();
            let number = *if is_new { self.new.front() } else { self.old.front() }?;
            let quantum = self.parameters.quantum_bytes as i64;
            let queue = self.queue(number);
            if queue.credits <= 0 {
                queue.credits += quantum;
                self.leave(is_new);
                self.old.push_back(number);
                continue;
            }
            if let Some(packet) = self.call(number, |queue| queue.codel.dequeue(now, events)) {
                self.queue(number).credits -= i64::from(packet.len());
                return Some(packet);
            }
            self.leave(is_new);
            if is_new {
                self.old.push_back(number);
            } else {
                self.queue(number).is_listed = false;
            }
        }
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn peek(&self, place: usize) -> Option<&Packet> {
        let (number, place) = self.place(place)?;
        self.queues[&number].codel.peek(place)
    }

    fn take(&mut self, place: usize, instead: Option<Packet>) -> Option<Packet> {
        let (number, place) = self.place(place)?;
        self.call(number, |queue| queue.codel.take(place, instead))
    }
}

impl FqCoDel {
    /// The first queue leaves its list.
    fn leave(&mut self, is_new: bool) {
        if is_new {
            self.new.pop_front();
        } else {
            self.old.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, context, drain, kinds};
    use backchannel_core::packet::build::Segment;
    use backchannel_core::scenario::Named;
    use serde_json::json;

    fn fq_codel(options: serde_json::Value) -> Box<dyn Policy> {
        let options = serde_json::from_value(options).expect("an object");
        context().build(&Named { name: "fq-codel".into(), options }).expect("valid options")
    }

    /// A packet of 1000 bytes.
    fn packet(id: u64, flow: u16) -> Packet {
        Segment { id, flow, payload: 960, ..Segment::default() }.packet()
    }

    fn enqueue(queue: &mut dyn Policy, events: &mut Events, packets: &[(u64, u16)]) {
        packets.iter().for_each(|(id, flow)| queue.enqueue(Time::ZERO, packet(*id, *flow), events));
    }

    #[test]
    fn flows_take_turns_by_their_quantum() {
        let mut events = Events::default();
        // A quantum of 1000 bytes is a packet a turn.
        let mut queue = fq_codel(json!({"quantum_bytes": 1000}));
        enqueue(queue.as_mut(), &mut events, &[(1, 0), (2, 0), (3, 0), (11, 1), (12, 1), (13, 1)]);
        assert_eq!(drain(queue.as_mut(), &mut events), [1, 11, 2, 12, 3, 13]);
        // Credit may be overdrawn by less than a packet: with 1500 bytes, two packets go and one in the next turn.
        let mut queue = fq_codel(json!({"quantum_bytes": 1500}));
        enqueue(queue.as_mut(), &mut events, &[(1, 0), (2, 0), (3, 0), (4, 0), (11, 1), (12, 1), (13, 1), (14, 1)]);
        assert_eq!(drain(queue.as_mut(), &mut events), [1, 2, 11, 12, 3, 13, 4, 14]);
    }

    #[test]
    fn a_new_flow_goes_before_old_ones_and_cannot_stay_new() {
        let (mut queue, mut events) = (fq_codel(json!({"quantum_bytes": 3500})), Events::default());
        let next =
            |queue: &mut dyn Policy, events: &mut Events| queue.dequeue(Time::ZERO, events).map(|packet| packet.id);
        (1..=9).for_each(|id| queue.enqueue(Time::ZERO, packet(id, 0), &mut events));
        // Four packets use up the quantum; from the fifth on the flow is among the old ones, with credit for two more.
        (1..=5).for_each(|id| assert_eq!(next(queue.as_mut(), &mut events), Some(id)));
        enqueue(queue.as_mut(), &mut events, &[(11, 1)]);
        assert_eq!(next(queue.as_mut(), &mut events), Some(11));
        // The other flow's queue is found empty, and moves behind the old ones.
        assert_eq!(next(queue.as_mut(), &mut events), Some(6));
        enqueue(queue.as_mut(), &mut events, &[(12, 1)]);
        assert_eq!(drain(queue.as_mut(), &mut events), [7, 12, 8, 9], "it waits for its turn");
        // Both have left the lists, so the other flow is new again.
        (21..=29).for_each(|id| queue.enqueue(Time::ZERO, packet(id, 0), &mut events));
        (21..=25).for_each(|id| assert_eq!(next(queue.as_mut(), &mut events), Some(id)));
        enqueue(queue.as_mut(), &mut events, &[(31, 1)]);
        assert_eq!(next(queue.as_mut(), &mut events), Some(31));
    }

    #[test]
    fn a_full_buffer_drops_the_head_of_the_longest_queue() {
        let (mut queue, mut events) = (fq_codel(json!({"limit_packets": 4})), Events::default());
        enqueue(queue.as_mut(), &mut events, &[(1, 0), (2, 0), (3, 0), (11, 1), (12, 1)]);
        assert_eq!(kinds(&events), [(1, EventKind::DroppedFull)]);
        let small = |id| Segment { id, flow: 1, payload: 60, ..Segment::default() }.packet();
        let (mut queue, mut events) = (fq_codel(json!({"limit_packets": 4})), Events::default());
        enqueue(queue.as_mut(), &mut events, &[(1, 0)]);
        (11..=14).for_each(|id| queue.enqueue(Time::ZERO, small(id), &mut events));
        // Four packets of 100 bytes are shorter than one of 1000.
        assert_eq!(kinds(&events), [(1, EventKind::DroppedFull)]);
    }

    #[test]
    fn each_flow_has_its_own_codel() {
        let (mut queue, mut events) = (fq_codel(json!({"quantum_bytes": 1000})), Events::default());
        (0..400).for_each(|id| queue.enqueue(Time::ZERO, packet(id, 0), &mut events));
        for ms in 0..300 {
            // A packet of the other flow comes every 2 ms and leaves before the next: it waits below target.
            if ms % 2 == 0 {
                queue.enqueue(at(0.001 * f64::from(ms)), packet(1000 + ms as u64, 1), &mut events);
            }
            queue.dequeue(at(0.001 * f64::from(ms)), &mut events);
        }
        let dropped: Vec<_> = kinds(&events).into_iter().map(|(id, _)| id).collect();
        // After 105 ms, then after 100/sqrt(1) ms, as of CoDel alone, give or take the turn of the other flow.
        let times: Vec<_> = events.list.iter().map(|event| event.at.nanos() / 1_000_000).collect();
        assert!(dropped.iter().all(|id| *id < 1000) && dropped.len() == 3, "{dropped:?}");
        assert!(times.iter().zip([105, 205, 276]).all(|(at, wanted)| at.abs_diff(wanted) <= 2), "{times:?}");
    }

    #[test]
    fn flows_are_spread_over_the_queues_and_runs_differ_in_who_shares_one() {
        let of = |seed, flows: u64| -> Vec<u64> {
            let mut stream = rng::stream(seed, "test");
            let options = json!({"flows": flows});
            let options = serde_json::from_value(options).expect("an object");
            let parameters = Parameters::read(&CheckedOptions::check(&ENTRY, &options).expect("valid"));
            let queue = FqCoDel::new(parameters, (rng::uniform(&mut stream) * u32::MAX as f64) as u64);
            (0..512).map(|flow| queue.classify(&packet(1, flow))).collect()
        };
        let counts = of(1, 8).iter().fold([0u32; 8], |mut counts, queue| {
            counts[*queue as usize] += 1;
            counts
        });
        assert!(counts.iter().all(|count| (30..100).contains(count)), "64 each on average: {counts:?}");
        assert_ne!(of(1, 1024), of(2, 1024));
        assert!(of(1, 1).iter().all(|queue| *queue == 0));
    }
}
