//! The event queue: events in order of time, and in order of scheduling within one instant.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use backchannel_core::ids::{ConnectionId, FlowId, LinkId, NodeId};
use backchannel_core::time::Time;

/// What becomes due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A link must be polled.
    Link(LinkId),
    /// A connection's timer.
    ConnectionTimer(ConnectionId),
    /// The application of a flow acts.
    Application(FlowId),
    /// A flow is stopped.
    StopFlow(FlowId),
    /// A host has processed a segment that it sends.
    Sent(NodeId),
    /// A host has processed a segment that it received.
    Received(NodeId),
}

/// The most events in the sorted list. Half of them move to or from the heap at a time.
const SOON: usize = 32;

/// Events to come. Most events that are scheduled are among the next few ones: a short sorted list takes them with
/// fewer steps than a heap.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// The next events, the earliest last.
    soon: Vec<Entry>,
    /// The other events. None is before one of `soon`, and those of one instant come behind all of `soon`.
    later: BinaryHeap<Reverse<Later>>,
    /// When the first of them is due; [`Time::MAX`]: there is none.
    later_from: Time,
    /// The greatest and the least order of an event that entered `later`.
    last_order: i64,
    first_order: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: Time,
    event: Event,
}

/// An entry of the heap. No two are equal, because no two have the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Later {
    at: Time,
    /// Place among those of one instant.
    order: i64,
    event: Event,
}

impl Default for EventQueue {
    fn default() -> EventQueue {
        let later = BinaryHeap::new();
        EventQueue { soon: Vec::new(), later, later_from: Time::MAX, last_order: 0, first_order: 0 }
    }
}

impl EventQueue {
    #[inline]
    pub(crate) fn schedule(&mut self, at: Time, event: Event) {
        if self.soon.len() == SOON {
            self.spill();
        }
        // Among entries of one instant it is the last.
        if self.later_from <= at {
            return self.postpone(at, event);
        }
        // The entry is put together where it stays: a copy of fields that were just written one by one is slow.
        self.soon.push(Entry { at, event });
        // Earlier entries move back by one place.
        let mut rest = self.soon.as_mut_slice();
        while let [.., before, last] = rest {
            if before.at > at {
                break;
            }
            *last = *before;
            let length = rest.len() - 1;
            rest = &mut rest[..length];
        }
        if let Some(place) = rest.last_mut() {
            *place = Entry { at, event };
        }
    }

    /// Removes the next event that is not later than `end`.
    #[inline]
    pub(crate) fn pop(&mut self, end: Time) -> Option<(Time, Event)> {
        let next = match self.soon.last() {
            Some(next) => *next,
            None => self.refill()?,
        };
        if next.at > end {
            return None;
        }
        self.soon.pop();
        Some((next.at, next.event))
    }

    /// Adds an entry to the heap.
    #[inline(never)]
    fn postpone(&mut self, at: Time, event: Event) {
        self.last_order += 1;
        self.later.push(Reverse(Later { at, order: self.last_order, event }));
        self.later_from = self.later_from.min(at);
    }

    /// Moves the last entries of the full list to the heap, where they come before all others of their instants.
    #[cold]
    fn spill(&mut self) {
        for Entry { at, event } in self.soon.drain(..SOON / 2) {
            self.first_order -= 1;
            self.later.push(Reverse(Later { at, order: self.first_order, event }));
            self.later_from = self.later_from.min(at);
        }
    }

    /// Moves the first entries of the heap to the empty list. Returns the next one.
    #[cold]
    fn refill(&mut self) -> Option<Entry> {
        let later = &mut self.later;
        let entries = std::iter::from_fn(|| later.pop()).map(|Reverse(Later { at, event, .. })| Entry { at, event });
        self.soon.extend(entries.take(SOON / 2));
        self.soon.reverse();
        self.later_from = self.later.peek().map_or(Time::MAX, |first| first.0.at);
        self.soon.last().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::ids::Id;
    use proptest::prelude::*;

    #[test]
    fn equal_times_keep_their_order_and_later_events_wait() {
        let mut queue = EventQueue::default();
        queue.schedule(Time(5), Event::Application(FlowId::new(1)));
        queue.schedule(Time(5), Event::Link(LinkId::new(0)));
        queue.schedule(Time(3), Event::StopFlow(FlowId::new(2)));
        queue.schedule(Time(9), Event::StopFlow(FlowId::new(3)));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(Time(8))).collect();
        let expected = [
            (Time(3), Event::StopFlow(FlowId::new(2))),
            (Time(5), Event::Application(FlowId::new(1))),
            (Time(5), Event::Link(LinkId::new(0))),
        ];
        assert_eq!(order, expected);
    }

    proptest! {
        /// Any mix of scheduling and popping gives the events in order of time and, within one instant, of scheduling.
        #[test]
        fn any_mix_gives_events_in_order(steps in proptest::collection::vec(proptest::option::weighted(0.6, 0u64..50), 1..300)) {
            let (mut queue, mut model) = (EventQueue::default(), std::collections::BTreeMap::new());
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Some(at) => {
                        queue.schedule(Time(at), Event::Link(LinkId::new(number)));
                        model.insert((Time(at), number), Event::Link(LinkId::new(number)));
                    }
                    None => {
                        let first = model.first_key_value().map(|(key, _)| *key).filter(|(at, _)| *at <= Time(30));
                        let expected = first.and_then(|key| Some((key.0, model.remove(&key)?)));
                        prop_assert_eq!(queue.pop(Time(30)), expected);
                    }
                }
            }
            while let Some(((at, _), event)) = model.pop_first() {
                prop_assert_eq!(queue.pop(Time::MAX), Some((at, event)));
            }
            prop_assert_eq!(queue.pop(Time::MAX), None);
        }
    }
}
