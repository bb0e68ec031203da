//! How promptly a program acts that stands for a host's TCP.
//!
//! A kernel answers a segment within its interrupt. A program that does so is scheduled like any other, and where many
//! run at once it answers late: acks gather and come in bunches, and senders' bursts overflow queues that they would not
//! have filled. So it asks for the real-time class, below the links', and reports how late it was all the same.

use serde_json::{json, Value};

/// Buckets of a doubling.
const FINENESS: u32 = 8;

/// Counts of delays in buckets of an eighth of a doubling.
#[derive(Debug)]
pub(crate) struct Lateness {
    buckets: Vec<u64>,
    count: u64,
    longest_ns: u64,
}

impl Lateness {
    pub(crate) fn new() -> Lateness {
        Lateness { buckets: vec![0; bucket(u64::MAX) + 1], count: 0, longest_ns: 0 }
    }

    pub(crate) fn add(&mut self, late_ns: u64) {
        self.buckets[bucket(late_ns)] += 1;
        self.count += 1;
        self.longest_ns = self.longest_ns.max(late_ns);
    }

    /// The delay that a share of all did not exceed, at most an eighth too long; `None` without any. Of few, one may
    /// exceed it whatever the share: a single late segment of twenty is no quantile.
    fn quantile_s(&self, share: f64) -> Option<f64> {
        let rank = (self.count as f64 * share).ceil() as u64;
        let mut left = rank.min(self.count.saturating_sub(1)).max(1);
        let found = self.buckets.iter().position(|count| {
            let reached = *count >= left;
            left = left.saturating_sub(*count);
            reached
        })?;
        Some(upper_ns(found).min(self.longest_ns) as f64 * 1e-9)
    }

    /// As links report theirs.
    pub(crate) fn json(&self) -> Value {
        let longest = (self.count > 0).then_some(self.longest_ns as f64 * 1e-9);
        json!({"p50": self.quantile_s(0.5), "p99": self.quantile_s(0.99), "max": longest})
    }
}

fn bucket(ns: u64) -> usize {
    let ns = ns.max(u64::from(FINENESS));
    let octave = ns.ilog2() - FINENESS.ilog2();
    (octave * FINENESS) as usize + ((ns >> octave) - u64::from(FINENESS)) as usize
}

/// The longest delay that falls into a bucket.
fn upper_ns(bucket: usize) -> u64 {
    let (octave, step) = (bucket as u32 / FINENESS, bucket as u64 % u64::from(FINENESS));
    let next = u128::from(u64::from(FINENESS) + step + 1) << octave;
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

/// A program in the real-time class that never waits keeps all others from their CPU. It goes among them once it has not
/// rested for so long, and comes back when it rests, after as long.
const RESTLESS_NS: u64 = 50_000_000;
/// A shorter wait is no rest.
const REST_NS: u64 = 20_000;

/// In which class a program should be, by how it waits.
#[derive(Debug)]
pub(crate) struct Class {
    realtime: bool,
    since_ns: u64,
}

impl Class {
    /// In the real-time class since now.
    pub(crate) fn realtime(now_ns: u64) -> Class {
        Class { realtime: true, since_ns: now_ns }
    }

    /// It has waited from one instant to another. Whether it should change to the real-time class (or from it).
    pub(crate) fn waited(&mut self, from_ns: u64, to_ns: u64) -> Option<bool> {
        let rested = to_ns.saturating_sub(from_ns) >= REST_NS;
        if self.realtime && rested {
            self.since_ns = to_ns;
        }
        if rested == self.realtime || to_ns < self.since_ns + RESTLESS_NS {
            return None;
        }
        self.realtime = !self.realtime;
        self.since_ns = to_ns;
        Some(self.realtime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn quantiles_of_what_was_added() {
        let mut late = Lateness::new();
        assert_eq!(late.json(), json!({"p50": null, "p99": null, "max": null}));
        for _ in 0..98 {
            late.add(30_000);
        }
        late.add(5 * MS);
        late.add(20 * MS);
        let told = late.json();
        let close = |name: &str, to: f64| {
            let value = told[name].as_f64().unwrap();
            assert!(value >= to && value <= to * 1.125, "{name}: {value} for {to}");
        };
        close("p50", 30e-6);
        close("p99", 5e-3);
        assert_eq!(told["max"], 0.02);
        let mut few = Lateness::new();
        for ms in [5, 1, 1] {
            few.add(ms * MS);
        }
        assert!(few.json()["p99"].as_f64().unwrap() < 1.2e-3);
    }

    #[test]
    fn one_that_rests_stays_in_its_class() {
        let mut class = Class::realtime(0);
        for at in 1..1000 {
            assert_eq!(class.waited(at * MS - 900_000, at * MS), None);
        }
    }

    #[test]
    fn one_that_never_rests_goes_among_the_others_and_comes_back() {
        let mut class = Class::realtime(0);
        let changes: Vec<_> = (1..=49).filter_map(|at| class.waited(at * MS, at * MS + 5_000)).collect();
        assert!(changes.is_empty());
        assert_eq!(class.waited(50 * MS, 50 * MS + 1), Some(false));
        // A rest soon after does not count, nor does one that is none.
        assert_eq!(class.waited(60 * MS, 70 * MS), None);
        assert_eq!(class.waited(101 * MS, 101 * MS + 10_000), None);
        assert_eq!(class.waited(101 * MS, 102 * MS), Some(true));
        assert_eq!(class.waited(102 * MS, 103 * MS), None);
    }

    #[test]
    fn a_delay_lies_in_its_bucket() {
        let edges = (0..64).flat_map(|bit| [0u64, 1, 2, 3].map(|more| (1u64 << bit).wrapping_add(more << bit >> 3)));
        for ns in edges.flat_map(|edge| [edge.wrapping_sub(1), edge, edge.saturating_add(1)]) {
            let found = bucket(ns);
            assert!(ns <= upper_ns(found), "{ns}");
            assert!(found == 0 || ns > upper_ns(found - 1), "{ns}");
            assert!(upper_ns(found) as f64 <= ns.max(8) as f64 * 1.126, "{ns}");
        }
    }
}
