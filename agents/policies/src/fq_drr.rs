//! Fair queueing by deficit round robin (Shreedhar and Varghese 1995; RFC 3449 section 5.4.2 for the uplink, cited in
//! aq 6).
//!
//! Flows (5-tuples; packets without one share a queue) are served in turn. At its turn, a flow's deficit grows by one
//! quantum, and its packets leave while they fit the deficit. The rest of the deficit is kept while the flow waits and
//! lost when it becomes empty.
//!
//! All flows share one buffer. A packet that arrives at a full buffer replaces the newest packet of the longest flow
//! (the paper's buffer stealing), possibly its own. Length is measured in what is exhausted, packets or bytes: in
//! packets, nine acks are longer than one packet of 1500 bytes.

use std::collections::VecDeque;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options;
use backchannel_core::options::CheckedOptions;
use backchannel_core::packet::{FlowKey, Packet};
use backchannel_core::registry::{Entry, Queueing};
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Policy};
use rustc_hash::FxHashMap;

use crate::fifo::Fifo;
use crate::limit::Limit;
use crate::Context;

options! {
    /// Options of the policy.
    struct Parameters {
        .. limit: Limit;
        quantum_bytes: u64 = 1500, [Bytes 40 to 65_535]
            "bytes added to a flow's deficit at each turn; the size of the largest packet is usual";
    }
}

pub(crate) static ENTRY: Entry = Entry::policy(
    "fq-drr",
    "fair queueing by deficit round robin; a full buffer drops from the longest flow",
    Queueing::CLASSES,
)
.source("Shreedhar and Varghese 1995; aq 6; RFC 3449, 5.4")
.options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, _: &Context) -> Result<Box<dyn Policy>, String> {
    let Parameters { limit, quantum_bytes } = Parameters::read(checked);
    Ok(Box::new(FairQueueing::new(limit, quantum_bytes)))
}

type Key = Option<FlowKey>;

#[derive(Debug, Default)]
struct Flow {
    queue: Fifo,
    deficit: u64,
}

/// Queues of flows that take turns.
#[derive(Debug)]
pub struct FairQueueing {
    limit: Limit,
    quantum: u64,
    /// Flows that have packets.
    flows: FxHashMap<Key, Flow>,
    /// Their order; the first one has its turn.
    turns: VecDeque<Key>,
    /// The first flow has received its quantum for this turn.
    granted: bool,
    packets: usize,
    bytes: u64,
}

impl FairQueueing {
    /// An empty queue with one buffer of `limit` and `quantum` bytes per turn (at least 1).
    pub fn new(limit: impl Into<Limit>, quantum: u64) -> FairQueueing {
        FairQueueing {
            limit: limit.into(),
            quantum: quantum.max(1),
            flows: FxHashMap::default(),
            turns: VecDeque::new(),
            granted: false,
            packets: 0,
            bytes: 0,
        }
    }

    /// Drops the newest packet of the longest flow, by bytes or by packets. Ties are broken by the other measure, then
    /// by order.
    fn drop_from_longest(&mut self, too_many_bytes: bool, now: Time, events: &mut Events) {
        let held = |key: &Key| {
            let queue = &self.flows[key].queue;
            let (packets, bytes) = (queue.len() as u64, queue.bytes());
            if too_many_bytes {
                (bytes, packets)
            } else {
                (packets, bytes)
            }
        };
        let longest = |best: (usize, (u64, u64)), (place, key): (usize, &Key)| {
            let held = held(key);
            if held > best.1 {
                (place, held)
            } else {
                best
            }
        };
        let (place, _) = self.turns.iter().enumerate().fold((0, (0, 0)), longest);
        let key = self.turns[place];
        let flow = self.flows.get_mut(&key).expect("a flow in the order has packets");
        let victim = flow.queue.pop_newest().expect("a flow in the order has packets");
        events.record(now, EventKind::DroppedFull, &victim);
        self.packets -= 1;
        self.bytes -= u64::from(victim.len());
        if flow.queue.len() == 0 {
            self.flows.remove(&key);
            self.turns.remove(place);
            self.granted &= place > 0;
        }
    }
}

impl Policy for FairQueueing {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        if !self.limit.admits(0, 0, &packet) {
            events.record(now, EventKind::DroppedFull, &packet);
            return;
        }
        self.packets += 1;
        self.bytes += u64::from(packet.len());
        let key = packet.flow();
        let flow = self.flows.entry(key).or_default();
        if flow.queue.len() == 0 {
            self.turns.push_back(key);
        }
        flow.queue.push(packet);
        loop {
            let too_many_bytes = self.limit.buffer_bytes.is_some_and(|most| self.bytes > most);
            if !too_many_bytes && self.packets <= self.limit.limit_packets {
                return;
            }
            self.drop_from_longest(too_many_bytes, now, events);
        }
    }

    fn dequeue(&mut self, _: Time, _: &mut Events) -> Option<Packet> {
        loop {
            let key = *self.turns.front()?;
            let flow = self.flows.get_mut(&key).expect("a flow in the order has packets");
            if !self.granted {
                flow.deficit += self.quantum;
                self.granted = true;
            }
            let length = flow.queue.front().map_or(0, |packet| u64::from(packet.len()));
            if length > flow.deficit {
                self.turns.rotate_left(1);
                self.granted = false;
                continue;
            }
            flow.deficit -= length;
            let packet = flow.queue.pop().expect("a flow in the order has packets");
            if flow.queue.len() == 0 {
                self.flows.remove(&key);
                self.turns.pop_front();
                self.granted = false;
            }
            self.packets -= 1;
            self.bytes -= length;
            return Some(packet);
        }
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.packets, bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{drain, kinds};
    use backchannel_core::packet::build::Segment;

    fn of(flow: u16, id: u64, payload: u32) -> Packet {
        Segment { id, flow, payload, ..Segment::default() }.packet()
    }

    fn filled(limit: usize, quantum: u64, packets: &[(u16, u64, u32)]) -> (FairQueueing, Events) {
        let (mut queue, mut events) = (FairQueueing::new(limit, quantum), Events::default());
        for &(flow, id, payload) in packets {
            queue.enqueue(Time::ZERO, of(flow, id, payload), &mut events);
        }
        (queue, events)
    }

    #[test]
    fn a_flow_of_large_packets_saves_its_deficit_up() {
        // Quantum 500: three packets of 300 and one of 1000. Flow 0 sends one each turn and keeps 200, then 400, so
        // that the third turn is worth 900; flow 1 needs two turns.
        let (mut queue, mut events) = filled(9, 500, &[(0, 1, 260), (0, 2, 260), (0, 3, 260), (1, 11, 960)]);
        assert_eq!(drain(&mut queue, &mut events), [1, 2, 3, 11]);
        let (mut queue, mut events) =
            filled(99, 500, &[(0, 1, 260), (0, 2, 260), (0, 3, 260), (0, 4, 260), (0, 5, 260), (1, 11, 960)]);
        // Turn 1: 500, one goes, 200 left. Turn 2: 700, two go, 100 left. Flow 1 has 1000 by then.
        assert_eq!(drain(&mut queue, &mut events), [1, 2, 3, 11, 4, 5]);
    }

    #[test]
    fn acks_of_one_flow_do_not_wait_for_the_data_of_another() {
        let (mut queue, mut events) =
            filled(20, 1500, &[(0, 1, 960), (0, 2, 960), (0, 3, 960), (1, 11, 0), (1, 12, 0)]);
        assert_eq!(drain(&mut queue, &mut events), [1, 11, 12, 2, 3]);
    }

    #[test]
    fn bytes_are_shared_equally_whatever_the_packets_sizes() {
        let (mut queue, mut events) = (FairQueueing::new(100_000, 1500), Events::default());
        for id in 0..4000 {
            queue.enqueue(Time::ZERO, of(0, id, 1460), &mut events);
            for _ in 0..5 {
                queue.enqueue(Time::ZERO, of(1, id, 260), &mut events);
            }
        }
        let mut bytes = FxHashMap::<_, u64>::default();
        for _ in 0..6000 {
            let packet = queue.dequeue(Time::ZERO, &mut events).expect("both wait");
            *bytes.entry(packet.flow()).or_default() += u64::from(packet.len());
        }
        let (least, most) = (bytes.values().min().unwrap(), bytes.values().max().unwrap());
        assert!(most - least <= 3000, "{least} {most}");
    }

    #[test]
    fn of_flows_with_as_many_packets_the_one_with_more_bytes_loses() {
        let (mut queue, mut events) = filled(3, 1500, &[(0, 1, 960), (0, 2, 960), (1, 11, 0), (1, 12, 0), (0, 3, 10)]);
        assert_eq!(kinds(&events), [(2, EventKind::DroppedFull), (3, EventKind::DroppedFull)]);
        assert_eq!(drain(&mut queue, &mut events), [1, 11, 12]);
    }

    #[test]
    fn of_flows_equal_in_both_measures_the_one_whose_turn_comes_first_loses() {
        let two_each = [(0, 1, 960), (1, 11, 960), (0, 2, 960), (1, 12, 960)];
        let (_, events) = filled(4, 1500, &[&two_each[..], &[(2, 21, 0)]].concat());
        assert_eq!(kinds(&events), [(2, EventKind::DroppedFull)]);
        // With the second packet the turn has passed to flow 1.
        let (mut queue, mut events) = filled(6, 1000, &[&two_each[..], &[(0, 3, 960), (1, 13, 960)]].concat());
        let sent: Vec<_> =
            (0..2).filter_map(|_| queue.dequeue(Time::ZERO, &mut events)).map(|packet| packet.id).collect();
        assert_eq!(sent, [1, 11]);
        for (flow, id) in [(2, 21), (2, 22), (3, 31)] {
            queue.enqueue(Time::ZERO, of(flow, id, 0), &mut events);
        }
        assert_eq!(kinds(&events), [(13, EventKind::DroppedFull)]);
    }

    /// Buffer stealing may empty the flow that has its turn. The next flow's turn begins with a quantum.
    #[test]
    fn a_flow_that_loses_its_only_packet_loses_its_turn() {
        let mut queue = FairQueueing::new(Limit { limit_packets: 99, buffer_bytes: Some(2200) }, 1000);
        let mut events = Events::default();
        for (flow, id, payload) in [(0, 1, 60), (0, 2, 1460), (1, 11, 460)] {
            queue.enqueue(Time::ZERO, of(flow, id, payload), &mut events);
        }
        assert_eq!(queue.dequeue(Time::ZERO, &mut events).map(|packet| packet.id), Some(1));
        queue.enqueue(Time::ZERO, of(2, 21, 460), &mut events);
        assert_eq!(kinds(&events), [(2, EventKind::DroppedFull)]);
        assert_eq!((queue.len_packets(), queue.len_bytes()), (2, 1000));
        assert_eq!(drain(&mut queue, &mut events), [11, 21]);
    }

    #[test]
    fn where_places_are_counted_acks_do_not_take_the_last_one_from_data() {
        let acks = [(1, 11, 0), (1, 12, 0), (1, 13, 0), (1, 14, 0)];
        let (mut queue, mut events) = filled(4, 1500, &[&acks[..], &[(0, 1, 1460)]].concat());
        assert_eq!(kinds(&events), [(14, EventKind::DroppedFull)]);
        assert_eq!(queue.len_packets(), 4);
        assert!(drain(&mut queue, &mut events).contains(&1));
    }

    #[test]
    fn where_bytes_are_counted_the_flow_with_most_of_them_loses() {
        let mut queue = FairQueueing::new(Limit { limit_packets: 99, buffer_bytes: Some(1600) }, 1500);
        let mut events = Events::default();
        for (flow, id, payload) in [(1, 11, 0), (1, 12, 0), (1, 13, 0), (0, 1, 1460)] {
            queue.enqueue(Time::ZERO, of(flow, id, payload), &mut events);
        }
        assert_eq!(kinds(&events), [(1, EventKind::DroppedFull)]);
    }
}
