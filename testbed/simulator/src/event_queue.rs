//! The event queue: events in order of time, and in order of scheduling within one instant.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use backchannel_core::time::Time;

/// What becomes due. Numbers are positions in the simulation's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A link must be polled.
    Link(u32),
    /// A connection's timer.
    ConnectionTimer(u32),
    /// The application of a flow acts.
    Application(u32),
    /// A flow is stopped.
    StopFlow(u32),
    /// A host has processed a segment that it sends.
    Sent(u32),
    /// A host has processed a segment that it received.
    Received(u32),
}

/// Events to come.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Reverse<Entry>>,
    scheduled: u64,
}

#[derive(Debug)]
struct Entry {
    /// Time in the upper half, order of scheduling in the lower: one comparison for both.
    key: u128,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.key == other.key
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        self.key.cmp(&other.key)
    }
}

impl EventQueue {
    pub(crate) fn schedule(&mut self, at: Time, event: Event) {
        self.scheduled += 1;
        let key = u128::from(at.nanos()) << 64 | u128::from(self.scheduled);
        self.heap.push(Reverse(Entry { key, event }));
    }

    /// Removes the next event that is not later than `end`.
    pub(crate) fn pop(&mut self, end: Time) -> Option<(Time, Event)> {
        let time = |entry: &Entry| Time((entry.key >> 64) as u64);
        if time(&self.heap.peek()?.0) > end {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (time(&entry), entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_keep_their_order_and_later_events_wait() {
        let mut queue = EventQueue::default();
        queue.schedule(Time(5), Event::Application(1));
        queue.schedule(Time(5), Event::Link(0));
        queue.schedule(Time(3), Event::StopFlow(2));
        queue.schedule(Time(9), Event::StopFlow(3));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(Time(8))).collect();
        let expected = [(Time(3), Event::StopFlow(2)), (Time(5), Event::Application(1)), (Time(5), Event::Link(0))];
        assert_eq!(order, expected);
    }
}
