//! Drop from front (Lakshman, Madhow and Suter 1997, cited in asym 2): a full queue drops packets from its head to make
//! room for the arriving one. The oldest of several cumulative acks carries the least information, and the sender
//! notices a loss of data one queueing delay earlier.

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options::CheckedOptions;
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Queueing};
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;
use backchannel_core::Error;

use crate::fifo::Fifo;
use crate::limit::Limit;
use crate::Context;

pub(crate) static ENTRY: Entry = Entry::policy(
    "drop-from-front",
    "first in, first out; a full queue drops its oldest packets to make room for the arriving one",
    Queueing::FIFO,
)
.source("asym 2; Lakshman, Madhow, Suter 1997")
.options(Limit::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, _: &Context) -> Result<Box<dyn Policy>, Error> {
    Ok(Box::new(DropFront::new(Limit::read(checked))))
}

/// A first-in, first-out queue that drops at its head.
#[derive(Debug)]
pub struct DropFront {
    limit: Limit,
    queue: Fifo,
}

impl DropFront {
    /// A queue of at most `limit`.
    pub fn new(limit: impl Into<Limit>) -> DropFront {
        DropFront { limit: limit.into(), queue: Fifo::default() }
    }
}

impl Policy for DropFront {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        if !self.limit.admits(0, 0, &packet) {
            // The packet exceeds the whole buffer; dropping others would not help.
            events.record(now, EventKind::DroppedFull, &packet);
            return;
        }
        while !self.limit.admits(self.queue.len(), self.queue.bytes(), &packet) {
            let oldest = self.queue.pop().expect("an empty queue admits the packet");
            events.record(now, EventKind::DroppedFull, &oldest);
        }
        self.queue.push(packet);
    }

    fn dequeue(&mut self, _: Time, _: &mut Events) -> Option<Packet> {
        self.queue.pop()
    }

    crate::fifo::kept_in!(queue);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{drain, kinds};
    use backchannel_core::packet::build::{ack, data};

    #[test]
    fn the_oldest_ack_makes_room_for_the_newest() {
        let (mut queue, mut events) = (DropFront::new(2), Events::default());
        for number in [10, 20, 30] {
            queue.enqueue(Time::ZERO, ack(number), &mut events);
        }
        assert_eq!(kinds(&events), [(10, EventKind::DroppedFull)]);
        assert_eq!(drain(&mut queue, &mut events), [20, 30]);
    }

    #[test]
    fn with_a_limit_in_bytes_as_many_are_dropped_as_needed() {
        let (mut queue, mut events) =
            (DropFront::new(Limit { limit_packets: 9, buffer_bytes: Some(1040) }), Events::default());
        for number in [10, 20] {
            queue.enqueue(Time::ZERO, ack(number), &mut events);
        }
        queue.enqueue(Time::ZERO, data(30, 960), &mut events);
        queue.enqueue(Time::ZERO, data(40, 2000), &mut events);
        assert_eq!(kinds(&events), [(10, EventKind::DroppedFull), (40, EventKind::DroppedFull)]);
        assert_eq!(drain(&mut queue, &mut events), [20, 30]);
    }
}
