//! Which bytes of a stream have been seen: half-open ranges of unwrapped sequence numbers.

use std::collections::BTreeMap;

/// Disjoint, non-touching ranges.
#[derive(Debug, Default, Clone)]
pub(crate) struct Ranges(BTreeMap<i64, i64>);

impl Ranges {
    /// Adds `from..to`; how many of its bytes are new.
    pub(crate) fn add(&mut self, from: i64, to: i64) -> i64 {
        if from >= to {
            return 0;
        }
        // The common case: the stream goes on where it ended.
        if let Some((_, end)) = self.0.iter_mut().next_back() {
            if *end == from {
                *end = to;
                return to - from;
            }
        }
        let (mut low, mut high, mut known) = (from, to, 0);
        let touching: Vec<_> =
            self.0.range(..=to).rev().take_while(|(_, &end)| end >= from).map(|(&start, &end)| (start, end)).collect();
        for (start, end) in touching {
            known += (end.min(to) - start.max(from)).max(0);
            low = low.min(start);
            high = high.max(end);
            self.0.remove(&start);
        }
        self.0.insert(low, high);
        to - from - known
    }

    /// Bytes in all ranges.
    pub(crate) fn total(&self) -> i64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// End of the range that holds `from`, or `from`.
    pub(crate) fn contiguous_from(&self, from: i64) -> i64 {
        self.0.range(..=from).next_back().map_or(from, |(_, &end)| end.max(from))
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
            for (from, length) in steps {
                let new = (from..from + length).filter(|&byte| bytes.insert(byte)).count() as i64;
                prop_assert_eq!(ranges.add(from, from + length), new);
                let contiguous = (0..).find(|byte| !bytes.contains(byte)).unwrap();
                prop_assert_eq!(ranges.contiguous_from(0), contiguous);
            }
        }
    }
}
