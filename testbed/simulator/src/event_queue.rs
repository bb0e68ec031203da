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

/// Children of a node of the heap. With four, the heap is half as deep as a binary one.
const ARITY: usize = 4;

/// Events to come: a heap. No two entries are equal, so it gives them in one order whatever its shape.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// The first entry.
    top: Entry,
    /// Groups of children: those of the top, then those of each entry in turn. [`NONE`] fills the last ones.
    groups: Vec<[Entry; ARITY]>,
    /// Entries in the groups.
    below_top: usize,
    scheduled: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Time,
    /// Number of events scheduled before.
    order: u64,
    event: Event,
}

/// Later than every event. At the top: the entry there was popped, or there is none. The next event that is scheduled takes its
/// place, which saves moving the last entry there.
const NONE: Entry = Entry { at: Time::MAX, order: u64::MAX, event: Event::Link(0) };

impl Entry {
    #[inline(always)]
    fn key(&self) -> u128 {
        u128::from(self.at.nanos()) << 64 | u128::from(self.order)
    }
}

impl Default for EventQueue {
    fn default() -> EventQueue {
        EventQueue { top: NONE, groups: Vec::new(), below_top: 0, scheduled: 0 }
    }
}

impl EventQueue {
    #[inline]
    pub(crate) fn schedule(&mut self, at: Time, event: Event) {
        self.scheduled += 1;
        let entry = Entry { at, order: self.scheduled, event };
        if self.top.order == NONE.order {
            self.sift_down(entry);
        } else {
            self.push(entry);
        }
    }

    /// Removes the next event that is not later than `end`.
    #[inline]
    pub(crate) fn pop(&mut self, end: Time) -> Option<(Time, Event)> {
        if self.top.order == NONE.order {
            let last = self.below_top.checked_sub(1)?;
            self.below_top = last;
            let entry = std::mem::replace(&mut self.groups[last / ARITY][last % ARITY], NONE);
            self.sift_down(entry);
        }
        if self.top.at > end {
            return None;
        }
        let Entry { at, event, .. } = std::mem::replace(&mut self.top, NONE);
        Some((at, event))
    }

    /// Moves an entry from the top to its place.
    fn sift_down(&mut self, entry: Entry) {
        let (mut child, mut key) = match self.groups.first() {
            Some(group) => earliest(group),
            None => (0, NONE.key()),
        };
        if entry.key() <= key {
            self.top = entry;
            return;
        }
        self.top = self.groups[0][child];
        let (mut group, mut place) = (0, child);
        loop {
            let below = group * ARITY + place + 1;
            let Some(children) = self.groups.get(below) else { break };
            (child, key) = earliest(children);
            if entry.key() <= key {
                break;
            }
            self.groups[group][place] = self.groups[below][child];
            (group, place) = (below, child);
        }
        self.groups[group][place] = entry;
    }

    /// Adds an entry at the end and moves it to its place.
    fn push(&mut self, entry: Entry) {
        let (mut group, mut place) = (self.below_top / ARITY, self.below_top % ARITY);
        self.below_top += 1;
        if group == self.groups.len() {
            self.groups.push([NONE; ARITY]);
        }
        while let Some(parent) = group.checked_sub(1) {
            let above = self.groups[parent / ARITY][parent % ARITY];
            if above.key() < entry.key() {
                break;
            }
            self.groups[group][place] = above;
            (group, place) = (parent / ARITY, parent % ARITY);
        }
        if group == 0 && entry.key() < self.top.key() {
            self.groups[0][place] = std::mem::replace(&mut self.top, entry);
        } else {
            self.groups[group][place] = entry;
        }
    }
}

/// Position and key of the earliest entry of a group.
#[inline(always)]
fn earliest(group: &[Entry; ARITY]) -> (usize, u128) {
    let mut least = (0, group[0].key());
    for (place, entry) in group.iter().enumerate().skip(1) {
        if entry.key() < least.1 {
            least = (place, entry.key());
        }
    }
    least
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
