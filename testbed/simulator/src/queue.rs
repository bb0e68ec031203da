//! The event queue: by time, and in the order of entry within one instant.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use backchannel_core::time::Time;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A link has something to do.
    Link(u32),
    /// A connection's timer.
    Connection(u32),
    /// A flow's application has something to do; its first turn is its beginning.
    Turn(u32),
    /// A flow is stopped.
    Stop(u32),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// The least key on top.
    heap: BinaryHeap<Reverse<Entry>>,
    entered: u64,
}

#[derive(Debug)]
struct Entry {
    /// Time above, number of entry below: one comparison for both.
    key: u128,
    what: What,
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

impl Queue {
    pub(crate) fn push(&mut self, at: Time, what: What) {
        self.entered += 1;
        self.heap.push(Reverse(Entry { key: u128::from(at.nanos()) << 64 | u128::from(self.entered), what }));
    }

    /// The next event that is not later than `end`.
    pub(crate) fn pop(&mut self, end: Time) -> Option<(Time, What)> {
        let time = |entry: &Entry| Time((entry.key >> 64) as u64);
        if time(&self.heap.peek()?.0) > end {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (time(&entry), entry.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_keep_their_order_and_later_ones_wait() {
        let mut queue = Queue::default();
        queue.push(Time(5), What::Turn(1));
        queue.push(Time(5), What::Link(0));
        queue.push(Time(3), What::Stop(2));
        queue.push(Time(9), What::Stop(3));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(Time(8))).collect();
        assert_eq!(order, [(Time(3), What::Stop(2)), (Time(5), What::Turn(1)), (Time(5), What::Link(0))]);
    }
}
