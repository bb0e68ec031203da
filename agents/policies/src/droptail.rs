//! Drop tail (asym 4.1): first in, first out. A packet that arrives at a full queue is dropped.

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options::CheckedOptions;
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Queueing};
use backchannel_core::scenario::{Named, Options};
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;
use backchannel_core::Error;

use crate::fifo::Fifo;
use crate::limit::Limit;
use crate::Context;

pub(crate) static ENTRY: Entry =
    Entry::policy("droptail", "first in, first out; a full queue drops the arriving packet", Queueing::FIFO)
        .source("asym 4.1")
        .options(Limit::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, _: &Context) -> Result<Box<dyn Policy>, Error> {
    Ok(Box::new(DropTail::new(Limit::read(checked))))
}

/// The child of a policy ([`Context::child`]), or else a first-in, first-out queue of this limit.
pub(crate) fn child_or_fifo(
    context: &Context,
    role: &str,
    child: &Option<Named>,
    limit: Limit,
) -> Result<Box<dyn Policy>, Error> {
    Ok(context.child(role, child)?.unwrap_or_else(|| Box::new(DropTail::new(limit))))
}

/// A first-in, first-out queue.
#[derive(Debug)]
pub struct DropTail {
    limit: Limit,
    queue: Fifo,
}

impl DropTail {
    /// A queue with these options.
    ///
    /// # Errors
    /// An option is unknown or invalid.
    pub fn from_options(options: &Options) -> Result<DropTail, Error> {
        Ok(DropTail::new(Limit::read(&CheckedOptions::check(&ENTRY, options)?)))
    }

    /// A queue of at most `limit`.
    pub fn new(limit: impl Into<Limit>) -> DropTail {
        DropTail { limit: limit.into(), queue: Fifo::default() }
    }
}

impl Policy for DropTail {
    #[inline(always)]
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        if self.limit.admits(self.queue.len(), self.queue.bytes(), &packet) {
            self.queue.push(packet);
        } else {
            events.record(now, EventKind::DroppedFull, &packet);
        }
    }

    #[inline(always)]
    fn pass(&mut self, now: Time, packet: Packet, events: &mut Events) -> Option<Packet> {
        if self.queue.len() == 0 && self.limit.admits(0, 0, &packet) {
            return Some(packet);
        }
        self.enqueue(now, packet, events);
        self.dequeue(now, events)
    }

    #[inline(always)]
    fn dequeue(&mut self, _: Time, _: &mut Events) -> Option<Packet> {
        self.queue.pop()
    }

    crate::fifo::kept_in!(queue);
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::data;
    use backchannel_core::traits::Backlog;

    #[test]
    fn a_packet_passes_an_empty_queue_if_it_fits_and_waits_behind_others() {
        let limit = Limit { limit_packets: 2, buffer_bytes: Some(1500) };
        let (mut queue, mut events) = (DropTail::new(limit), Events::default());
        let mut pass = |queue: &mut DropTail, packet| queue.pass(Time::ZERO, packet, &mut events).map(|out| out.id);
        assert_eq!(pass(&mut queue, data(1, 960)), Some(1));
        assert_eq!(pass(&mut queue, data(2, 1600)), None);
        queue.queue.push(data(3, 400));
        assert_eq!(pass(&mut queue, data(4, 400)), Some(3));
        assert_eq!(queue.backlog(), Backlog { packets: 1, bytes: 440 });
        let dropped: Vec<_> = events.list.iter().map(|event| (event.packet_id, event.kind)).collect();
        assert_eq!(dropped, [(2, EventKind::DroppedFull)]);
    }

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
