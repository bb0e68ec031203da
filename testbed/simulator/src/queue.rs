//! The event queue: by time, and in the order of entry within one instant.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use backchannel_core::time::Time;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// A link has something to do.
    Link(usize),
    /// A connection's timer.
    Connection(usize),
    /// A flow begins.
    Start(usize),
    /// A flow is stopped.
    Stop(usize),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<(Time, u64, What)>>,
    entered: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at: Time, what: What) {
        self.entered += 1;
        self.heap.push(Reverse((at, self.entered, what)));
    }

    /// The next event that is not later than `end`.
    pub(crate) fn pop(&mut self, end: Time) -> Option<(Time, What)> {
        if self.heap.peek()?.0 .0 > end {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, what))| (at, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_keep_their_order_and_later_ones_wait() {
        let mut queue = Queue::default();
        queue.push(Time(5), What::Start(1));
        queue.push(Time(5), What::Link(0));
        queue.push(Time(3), What::Stop(2));
        queue.push(Time(9), What::Stop(3));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(Time(8))).collect();
        assert_eq!(order, [(Time(3), What::Stop(2)), (Time(5), What::Start(1)), (Time(5), What::Link(0))]);
    }
}
