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
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::{FlowKey, Packet};
use backchannel_core::registry::{Entry, Queueing};
use backchannel_core::scenario::Named;
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Policy};
use backchannel_core::Error;
use rustc_hash::FxHashMap;

use crate::fifo::place_in;
use crate::limit::Limit;
use crate::{Context, DropTail};

options! {
    /// Options of the policy.
    struct Parameters {
        .. limit: Limit;
        quantum_bytes: u64 = 1500, [Bytes 40 to 65_535]
            "bytes added to a flow's deficit at each turn; the size of the largest packet is usual";
        child: Option<Named> = ABSENT, [Policy]
            "policy of each flow's queue, with a limit of its own; the shared buffer then has a limit only if one is \
             set; absent: first in, first out";
    }
}

pub(crate) static ENTRY: Entry = Entry::policy(
    "fq-drr",
    "fair queueing by deficit round robin; a full buffer drops from the longest flow",
    Queueing::CLASSES,
)
.source("Shreedhar and Varghese 1995; aq 6; RFC 3449, 5.4")
.options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: &Context) -> Result<Box<dyn Policy>, Error> {
    let Parameters { limit, quantum_bytes, child } = Parameters::read(checked);
    let mut fair = FairQueueing::new(limit.of_parent(checked, child.is_some()), quantum_bytes);
    if child.is_some() {
        // Built once here, so that an invalid child is rejected at the start.
        context.child("child", &child)?;
        fair.child = Some((context.clone(), child));
    }
    Ok(Box::new(fair))
}

type Key = Option<FlowKey>;

struct FlowQueue {
    queue: Box<dyn Policy>,
    deficit: u64,
}

/// Queues of flows that take turns.
pub struct FairQueueing {
    limit: Limit,
    quantum: u64,
    /// How a flow's queue is built; `None`: it is first in, first out.
    child: Option<(Context, Option<Named>)>,
    /// Rates of the line, its own and the opposite one, once they have changed: those of queues that are built later.
    rates_bps: Option<[Option<u64>; 2]>,
    /// Flows that have packets. With a child all that there were, because their queues remember.
    flows: FxHashMap<Key, FlowQueue>,
    /// Order of those that have packets; the first one has its turn.
    turns: VecDeque<Key>,
    /// The first flow has received its quantum for this turn.
    granted: bool,
    backlog: Backlog,
}

impl FairQueueing {
    /// An empty queue with one buffer of `limit` and `quantum` bytes per turn (at least 1).
    pub fn new(limit: impl Into<Limit>, quantum: u64) -> FairQueueing {
        FairQueueing {
            limit: limit.into(),
            quantum: quantum.max(1),
            child: None,
            rates_bps: None,
            flows: FxHashMap::default(),
            turns: VecDeque::new(),
            granted: false,
            backlog: Backlog::default(),
        }
    }

    /// Calls a flow's queue, counts what waits and ends the flow's turn, which is at `turn` of the order, if the queue
    /// is empty then.
    fn call<T>(&mut self, turn: usize, call: impl FnOnce(&mut FlowQueue) -> T) -> T {
        let key = self.turns[turn];
        let flow = self.flows.get_mut(&key).expect("a flow in the order has packets");
        let before = flow.queue.backlog();
        let result = call(flow);
        let after = flow.queue.backlog();
        self.backlog.packets = self.backlog.packets + after.packets - before.packets;
        self.backlog.bytes = self.backlog.bytes + after.bytes - before.bytes;
        if after.packets == 0 {
            flow.deficit = 0;
            self.turns.remove(turn);
            self.granted &= turn > 0;
            if self.child.is_none() {
                self.flows.remove(&key);
            }
        }
        result
    }

    /// The turn of the flow in whose queue a packet waits, and its place there.
    fn place(&self, place: usize) -> Option<(usize, usize)> {
        place_in(self.turns.iter().map(|key| &self.flows[key].queue), place)
    }

    /// Drops the newest packet of the longest flow, by bytes or by packets. Ties are broken by the other measure, then
    /// by order.
    fn drop_from_longest(&mut self, too_many_bytes: bool, now: Time, events: &mut Events) {
        let held = |key: &Key| {
            let Backlog { packets, bytes } = self.flows[key].queue.backlog();
            let packets = packets as u64;
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
        let (turn, _) = self.turns.iter().enumerate().fold((0, (0, 0)), longest);
        let victim = self.call(turn, |flow| flow.queue.take(flow.queue.len_packets() - 1, None));
        events.record(now, EventKind::DroppedFull, &victim.expect("a flow in the order has packets"));
    }
}

impl Policy for FairQueueing {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        if !self.limit.admits(0, 0, &packet) {
            events.record(now, EventKind::DroppedFull, &packet);
            return;
        }
        let (key, number) = (packet.flow(), self.flows.len());
        let flow = self.flows.entry(key).or_insert_with(|| {
            let mut child = self.child.as_ref().and_then(|(context, child)| {
                context.child(&format!("flow-{number}"), child).expect("it was built once, at the start")
            });
            if let (Some(child), Some([own, opposite])) = (&mut child, self.rates_bps) {
                child.on_rates(now, own, opposite);
            }
            FlowQueue { queue: child.unwrap_or_else(|| Box::new(DropTail::new(Limit::NONE))), deficit: 0 }
        });
        let turn = match flow.queue.len_packets() {
            0 => {
                self.turns.push_back(key);
                self.turns.len() - 1
            }
            _ => self.turns.iter().position(|other| *other == key).expect("a flow with packets is in the order"),
        };
        self.call(turn, |flow| flow.queue.enqueue(now, packet, events));
        loop {
            let too_many_bytes = self.limit.buffer_bytes.is_some_and(|most| self.backlog.bytes > most);
            if !too_many_bytes && self.backlog.packets <= self.limit.limit_packets {
                return;
            }
            self.drop_from_longest(too_many_bytes, now, events);
        }
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        // Flows in a row whose queues held their packets back.
        let mut held_back = 0;
        while held_back < self.turns.len() {
            let flow = self.flows.get_mut(&self.turns[0]).expect("a flow in the order has packets");
            if !self.granted {
                flow.deficit += self.quantum;
                self.granted = true;
            }
            let length = flow.queue.peek(0).map_or(0, |packet| u64::from(packet.len()));
            if length > flow.deficit {
                self.turns.rotate_left(1);
                (self.granted, held_back) = (false, 0);
                continue;
            }
            let flows = self.turns.len();
            let packet = self.call(0, |flow| {
                let packet = flow.queue.dequeue(now, events);
                let length = packet.as_ref().map_or(flow.deficit, |packet| u64::from(packet.len()));
                flow.deficit = flow.deficit.saturating_sub(length);
                packet
            });
            if packet.is_some() {
                return packet;
            }
            if self.turns.len() == flows {
                self.turns.rotate_left(1);
                (self.granted, held_back) = (false, held_back + 1);
            }
        }
        None
    }

    fn next_time(&self) -> Option<Time> {
        match self.child {
            None => (self.backlog.packets > 0).then_some(Time::ZERO),
            Some(_) => self.flows.values().filter_map(|flow| flow.queue.next_time()).min(),
        }
    }

    fn on_opposite(&mut self, now: Time, packet: &Packet) {
        self.flows.values_mut().for_each(|flow| flow.queue.on_opposite(now, packet));
    }

    fn on_rates(&mut self, now: Time, own_bps: Option<u64>, opposite_bps: Option<u64>) {
        self.rates_bps = Some([own_bps, opposite_bps]);
        self.flows.values_mut().for_each(|flow| flow.queue.on_rates(now, own_bps, opposite_bps));
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn peek(&self, place: usize) -> Option<&Packet> {
        let (turn, place) = self.place(place)?;
        self.flows[&self.turns[turn]].queue.peek(place)
    }

    fn take(&mut self, place: usize, instead: Option<Packet>) -> Option<Packet> {
        let (turn, place) = self.place(place)?;
        self.call(turn, |flow| flow.queue.take(place, instead))
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

    /// Data have half of a bounded line: at 2 Mbit/s the second packet of 1000 bytes is due 8 ms after the first.
    #[test]
    fn the_queue_of_a_flow_that_comes_after_a_change_has_the_new_rate() {
        let options = serde_json::json!({"child": {"name": "cbq-5050", "options": {"bounded": true}}});
        let options = serde_json::from_value(options).expect("an object");
        let context = Context { rate_bps: Some(1_000_000), ..crate::testing::context() };
        let mut queue = context.build(&Named { name: "fq-drr".into(), options }).expect("allowed");
        let mut events = Events::default();
        queue.on_rates(Time::ZERO, Some(2_000_000), None);
        (1..=2).for_each(|id| queue.enqueue(Time::ZERO, of(0, id, 960), &mut events));
        assert_eq!(queue.dequeue(Time::ZERO, &mut events).map(|packet| packet.id), Some(1));
        assert_eq!(queue.next_time(), Some(Time(8_000_000)));
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
