//! A bound on the memory of all connections of a capture together, counted in queue entries.

use std::collections::VecDeque;

/// Entries of all connections together.
const TOTAL: i64 = 1 << 20;
/// Entries that every queue may have when the budget is used up.
pub(crate) const MINIMUM: usize = 4;

/// Entries that may still be allocated.
#[derive(Debug)]
pub(crate) struct Budget(i64);

impl Default for Budget {
    fn default() -> Budget {
        Budget(TOTAL)
    }
}

impl Budget {
    /// Appends `value`. Returns the oldest entry if it had to be dropped to make room.
    #[inline]
    pub(crate) fn push<T>(&mut self, queue: &mut VecDeque<T>, value: T) -> Option<T> {
        let dropped = if queue.len() == queue.capacity() { self.grow(queue) } else { None };
        queue.push_back(value);
        dropped
    }

    /// Doubles the queue's capacity, or drops its oldest entry if the budget does not allow that.
    #[cold]
    fn grow<T>(&mut self, queue: &mut VecDeque<T>) -> Option<T> {
        let more = queue.len().max(MINIMUM);
        if queue.len() >= MINIMUM && self.0 < more as i64 {
            return queue.pop_front();
        }
        let before = queue.capacity();
        queue.reserve_exact(more);
        self.0 -= (queue.capacity() - before) as i64;
        None
    }

    /// Takes `entries` from the budget. Returns false, and takes nothing, if fewer are left.
    pub(crate) fn charge(&mut self, entries: usize) -> bool {
        let enough = entries as i64 <= self.0;
        if enough {
            self.0 -= entries as i64;
        }
        enough
    }

    /// Gives `entries` back.
    pub(crate) fn release(&mut self, entries: usize) {
        self.0 += entries as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charged_entries_are_lacking_until_they_are_released() {
        let mut budget = Budget(10);
        assert!(budget.charge(6));
        assert!(!budget.charge(5), "only 4 are left");
        assert!(budget.charge(4), "a refused charge takes nothing");
        assert!(!budget.charge(1));
        budget.release(10);
        assert!(budget.charge(10));
    }
}
