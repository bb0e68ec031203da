//! Drop tail: first in, first out; a packet that finds the queue full is dropped.
//!
//! The papers count every limit in packets.

use backchannel_core::event::{EventKind, Events};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Given, Param, Preset, Unit};
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;

use crate::fifo::Fifo;
use crate::Context;

/// Shared by every policy with one buffer.
pub(crate) const LIMIT: Param = Param::new(
    "limit_packets",
    Unit::Packets,
    Preset::Number(20.0),
    "packets that may wait; the one in transmission is not among them",
)
.at_least(1.0);

pub(crate) static ENTRY: Entry = Entry {
    kind: "policy",
    name: "droptail",
    summary: "first in, first out; what finds the queue full is dropped",
    source: "asym 4.1",
    params: &[LIMIT],
};

pub(crate) fn build(given: &Given<'_>, _: &Context) -> Result<Box<dyn Policy>, String> {
    Ok(Box::new(DropTail::new(limit(given))))
}

/// The `limit_packets` of an entry that has one.
pub(crate) fn limit(given: &Given<'_>) -> usize {
    given.count("limit_packets").expect("it has a default") as usize
}

/// See the module.
#[derive(Debug)]
pub struct DropTail {
    limit: usize,
    queue: Fifo,
}

impl DropTail {
    /// A queue of at most `limit` packets.
    pub fn new(limit: usize) -> DropTail {
        DropTail { limit, queue: Fifo::default() }
    }
}

impl Policy for DropTail {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        if self.queue.len() < self.limit {
            self.queue.push(packet);
        } else {
            events.note(now, EventKind::DroppedFull, &packet);
        }
    }

    fn dequeue(&mut self, _: Time, _: &mut Events) -> Option<Packet> {
        self.queue.pop()
    }

    fn peek(&self) -> Option<&Packet> {
        self.queue.front()
    }

    fn len_packets(&self) -> usize {
        self.queue.len()
    }

    fn len_bytes(&self) -> u64 {
        self.queue.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::data;

    #[test]
    fn the_third_packet_of_a_queue_of_two_is_dropped() {
        let (mut queue, mut events) = (DropTail::new(2), Events::default());
        for id in 1..=3 {
            queue.enqueue(Time::ZERO, data(id, 960), &mut events);
        }
        assert_eq!(
            events.list.iter().map(|event| (event.packet_id, event.kind)).collect::<Vec<_>>(),
            [(3, EventKind::DroppedFull)]
        );
        assert_eq!(queue.len_bytes(), 2000);
        let order: Vec<_> =
            std::iter::from_fn(|| queue.dequeue(Time::ZERO, &mut events)).map(|packet| packet.id).collect();
        assert_eq!(order, [1, 2]);
    }
}
