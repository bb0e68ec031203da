//! The bytes of a stream that were captured, as half-open ranges of unwrapped sequence numbers.

use std::collections::BTreeMap;

/// Disjoint ranges that do not touch. A stream in order has only `main`, the range that was added first.
#[derive(Debug, Default, Clone)]
pub(crate) struct Ranges {
    main: Option<(i64, i64)>,
    islands: BTreeMap<i64, i64>,
}

impl Ranges {
    /// Adds `from..to`. Returns the number of bytes that are new.
    #[inline]
    pub(crate) fn add(&mut self, from: i64, to: i64) -> i64 {
        match &mut self.main {
            // The common case: the stream continues where it ended.
            Some((_, end)) if *end == from && to > from && self.islands.is_empty() => {
                *end = to;
                to - from
            }
            _ => self.add_anywhere(from, to),
        }
    }

    fn add_anywhere(&mut self, from: i64, to: i64) -> i64 {
        if from >= to {
            return 0;
        }
        let Some(main) = self.main else {
            self.main = Some((from, to));
            return to - from;
        };
        // The last island grows at its end.
        if let Some(mut last) = self.islands.last_entry() {
            if *last.get() == from && from > main.1 {
                *last.get_mut() = to;
                return to - from;
            }
        }
        let overlap = |start: i64, end: i64| (end.min(to) - start.max(from)).max(0);
        let touches_main = from <= main.1 && to >= main.0;
        let (mut low, mut high, mut known) = (from, to, 0);
        if touches_main {
            (low, high, known) = (low.min(main.0), high.max(main.1), overlap(main.0, main.1));
        }
        // Islands do not touch, so searching backwards from the highest one that begins within reach finds all that do.
        while let Some((&start, &end)) = self.islands.range(..=high).next_back() {
            if end < low {
                break;
            }
            known += overlap(start, end);
            (low, high) = (low.min(start), high.max(end));
            self.islands.remove(&start);
        }
        if touches_main {
            self.main = Some((low, high));
        } else {
            self.islands.insert(low, high);
        }
        to - from - known
    }

    /// Bytes in all ranges.
    pub(crate) fn total(&self) -> i64 {
        self.main.map_or(0, |(start, end)| end - start)
            + self.islands.iter().map(|(start, end)| end - start).sum::<i64>()
    }

    /// All ranges, `main` first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.main.into_iter().chain(self.islands.iter().map(|(&start, &end)| (start, end)))
    }

    /// End of `main`, or 0 if there are no ranges.
    #[inline]
    pub(crate) fn contiguous(&self) -> i64 {
        self.main.map_or(0, |(_, end)| end)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.main.is_none()
    }

    /// Number of ranges besides `main`.
    pub(crate) fn islands(&self) -> usize {
        self.islands.len()
    }

    /// Start and end of the first hole after `main`.
    pub(crate) fn first_hole(&self) -> Option<(i64, i64)> {
        let end = self.contiguous();
        self.islands.range(end..).next().map(|(&start, _)| (end, start))
    }

    /// Number of bytes of `from..to` in the ranges.
    pub(crate) fn holds(&self, from: i64, to: i64) -> i64 {
        let overlap = |start: i64, end: i64| (end.min(to) - start.max(from)).max(0);
        let main = self.main.map_or(0, |(start, end)| overlap(start, end));
        let islands = self.islands.range(..to).rev().take_while(|(_, &end)| end > from);
        main + islands.map(|(&start, &end)| overlap(start, end)).sum::<i64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_agrees_with_a_set_of_bytes(steps in proptest::collection::vec((0i64..60, 0i64..20), 1..60)) {
            let (mut ranges, mut bytes) = (Ranges::default(), BTreeSet::new());
            let mut first = None;
            for (from, length) in steps {
                let held = (from..from + length).filter(|byte| bytes.contains(byte)).count() as i64;
                prop_assert_eq!(ranges.holds(from, from + length), held);
                let new = (from..from + length).filter(|&byte| bytes.insert(byte)).count() as i64;
                prop_assert_eq!(ranges.add(from, from + length), new);
                prop_assert_eq!(ranges.total(), bytes.len() as i64);
                if length > 0 {
                    let first = *first.get_or_insert(from);
                    let contiguous = (first..).find(|byte| !bytes.contains(byte)).unwrap();
                    prop_assert_eq!(ranges.contiguous(), contiguous);
                    let after = bytes.range(contiguous..).next();
                    prop_assert_eq!(ranges.first_hole(), after.map(|&after| (contiguous, after)));
                }
            }
        }
    }
}
