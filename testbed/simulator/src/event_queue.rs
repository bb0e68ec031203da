//! The event queue: events in order of time, and in order of scheduling within one instant.

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

/// Children of a node of the heap. With four, the heap is half as deep as a binary one, and siblings share a cache line.
const ARITY: usize = 4;

/// Events to come: a heap whose entries differ, so that it gives them in one order whatever its shape.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: Vec<Entry>,
    /// The first entry was popped. The next one that is scheduled takes its place, which saves moving the last one there.
    popped: bool,
    scheduled: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Time,
    /// Number of events scheduled before.
    order: u64,
    event: Event,
}

impl Entry {
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.at.nanos()) << 64 | u128::from(self.order)
    }
}

/// Position and key of the earliest of some entries.
#[inline]
fn earliest(entries: &[Entry]) -> Option<(usize, u128)> {
    let (first, others) = entries.split_first()?;
    let mut least = (0, first.key());
    for (place, entry) in others.iter().enumerate() {
        if entry.key() < least.1 {
            least = (place + 1, entry.key());
        }
    }
    Some(least)
}

impl EventQueue {
    #[inline]
    pub(crate) fn schedule(&mut self, at: Time, event: Event) {
        self.scheduled += 1;
        let entry = Entry { at, order: self.scheduled, event };
        if std::mem::take(&mut self.popped) {
            self.sift_down(entry);
        } else {
            self.heap.push(entry);
            self.sift_up(entry);
        }
    }

    /// Removes the next event that is not later than `end`.
    #[inline]
    pub(crate) fn pop(&mut self, end: Time) -> Option<(Time, Event)> {
        if std::mem::take(&mut self.popped) {
            let last = self.heap.pop()?;
            if !self.heap.is_empty() {
                self.sift_down(last);
            }
        }
        let Entry { at, event, .. } = *self.heap.first().filter(|first| first.at <= end)?;
        self.popped = true;
        Some((at, event))
    }

    /// Moves an entry from the top to its place.
    fn sift_down(&mut self, entry: Entry) {
        let heap = &mut self.heap[..];
        let mut place = 0;
        loop {
            let first = place * ARITY + 1;
            // Most groups are complete: their number is known to the compiler.
            let children = heap.get(first..).unwrap_or_default();
            let next = children.first_chunk::<ARITY>().map_or_else(|| earliest(children), |group| earliest(group));
            let Some((child, _)) = next.filter(|(_, key)| *key < entry.key()) else { break };
            heap[place] = heap[first + child];
            place = first + child;
        }
        heap[place] = entry;
    }

    /// Moves an entry from the end to its place.
    fn sift_up(&mut self, entry: Entry) {
        let mut place = self.heap.len() - 1;
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap[parent].key() < entry.key() {
                break;
            }
            self.heap[place] = self.heap[parent];
            place = parent;
        }
        self.heap[place] = entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    proptest! {
        /// Any mix of scheduling and popping gives the events in order of time and, within one instant, of scheduling.
        #[test]
        fn any_mix_gives_events_in_order(steps in proptest::collection::vec(proptest::option::weighted(0.6, 0u64..50), 1..300)) {
            let (mut queue, mut model) = (EventQueue::default(), std::collections::BTreeMap::new());
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Some(at) => {
                        queue.schedule(Time(at), Event::Link(number as u32));
                        model.insert((Time(at), number), Event::Link(number as u32));
                    }
                    None => {
                        let first = model.first_key_value().map(|(key, _)| *key).filter(|(at, _)| *at <= Time(30));
                        let expected = first.and_then(|key| Some((key.0, model.remove(&key)?)));
                        prop_assert_eq!(queue.pop(Time(30)), expected);
                    }
                }
            }
        }
    }
}
