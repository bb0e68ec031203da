//! How promptly a TCP outside the kernel handles segments and timers.
//!
//! A kernel answers a segment within its interrupt. A program is scheduled like any other, and where many run at once
//! it answers late: acks arrive in bunches, and the senders' bursts overflow queues that they would not have filled. So
//! it asks for the real-time class, below the links', and reports how late it was.

use backchannel_core::report::Lateness;

/// Buckets per doubling.
const FINENESS: u32 = 8;

/// How late a timer is handled; `None` before it is due. `told_ns` is when its connection last heard of anything. A
/// connection may ask for an instant that is over: a probe timeout counts from the last packet sent, and an ack that
/// shortens the round trip moves it into the past (RFC 9002 6.2.1). Nobody was late before the connection asked.
pub(crate) fn timer_late_ns(due_ns: u64, told_ns: u64, now_ns: u64) -> Option<u64> {
    (due_ns <= now_ns).then(|| now_ns.saturating_sub(due_ns.max(told_ns)))
}

/// A histogram of delays with buckets of an eighth of a doubling.
#[derive(Debug)]
pub struct LatenessHistogram {
    buckets: Vec<u64>,
    count: u64,
    longest_ns: u64,
}

impl LatenessHistogram {
    pub(crate) fn new() -> LatenessHistogram {
        LatenessHistogram { buckets: vec![0; bucket(u64::MAX) + 1], count: 0, longest_ns: 0 }
    }

    pub(crate) fn add(&mut self, late_ns: u64) {
        self.buckets[bucket(late_ns)] += 1;
        self.count += 1;
        self.longest_ns = self.longest_ns.max(late_ns);
    }

    /// The delay that a share of all did not exceed, at most an eighth too long; `None` without a delay. One delay may
    /// always exceed it, because a single late segment of twenty is not a quantile.
    fn quantile_s(&self, share: f64) -> Option<f64> {
        let rank = (self.count as f64 * share).ceil() as u64;
        let mut left = rank.min(self.count.saturating_sub(1)).max(1);
        let bucket_number = self.buckets.iter().position(|count| {
            let reached = *count >= left;
            left = left.saturating_sub(*count);
            reached
        })?;
        Some(upper_ns(bucket_number).min(self.longest_ns) as f64 * 1e-9)
    }

    /// The quantiles that links report too.
    pub(crate) fn report(&self) -> Lateness {
        let longest = (self.count > 0).then_some(self.longest_ns as f64 * 1e-9);
        Lateness { p50: self.quantile_s(0.5), p99: self.quantile_s(0.99), max: longest }
    }
}

fn bucket(ns: u64) -> usize {
    let ns = ns.max(u64::from(FINENESS));
    let octave = ns.ilog2() - FINENESS.ilog2();
    (octave * FINENESS) as usize + ((ns >> octave) - u64::from(FINENESS)) as usize
}

/// The longest delay in a bucket.
fn upper_ns(bucket: usize) -> u64 {
    let (octave, step) = (bucket as u32 / FINENESS, bucket as u64 % u64::from(FINENESS));
    let next = u128::from(u64::from(FINENESS) + step + 1) << octave;
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

/// A program in the real-time class that never waits blocks its CPU for all others. After this time without a rest it
/// leaves the class. It returns when it rests again, at the earliest after as long.
const RESTLESS_NS: u64 = 50_000_000;
/// A shorter wait is not a rest.
const REST_NS: u64 = 20_000;

/// Decides from its waits in which scheduling class a program should be.
#[derive(Debug)]
pub(crate) struct ClassControl {
    realtime: bool,
    since_ns: u64,
}

impl ClassControl {
    /// For a program that entered the real-time class just now.
    pub(crate) fn realtime(now_ns: u64) -> ClassControl {
        ClassControl { realtime: true, since_ns: now_ns }
    }

    /// The program has waited from one instant to another. Returns whether it should enter (true) or leave (false) the
    /// real-time class; `None`: no change.
    pub(crate) fn on_wait(&mut self, from_ns: u64, to_ns: u64) -> Option<bool> {
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
    fn a_timer_is_late_since_it_was_due_and_asked_for() {
        assert_eq!(timer_late_ns(100, 50, 130), Some(30));
        // Asked for at 120, when it was due already.
        assert_eq!(timer_late_ns(100, 120, 130), Some(10));
        assert_eq!(timer_late_ns(131, 50, 130), None);
    }

    #[test]
    fn quantiles_are_those_of_the_delays() {
        let mut late = LatenessHistogram::new();
        assert_eq!(late.report(), Lateness::default());
        for _ in 0..98 {
            late.add(30_000);
        }
        late.add(5 * MS);
        late.add(20 * MS);
        let report = late.report();
        let assert_close = |value: Option<f64>, to: f64| {
            assert!(value.is_some_and(|value| value >= to && value <= to * 1.125), "{value:?} for {to}");
        };
        assert_close(report.p50, 30e-6);
        assert_close(report.p99, 5e-3);
        assert_eq!(report.max, Some(0.02));
        let mut few = LatenessHistogram::new();
        for ms in [5, 1, 1] {
            few.add(ms * MS);
        }
        assert!(few.report().p99.unwrap() < 1.2e-3);
    }

    #[test]
    fn a_program_that_rests_stays_in_its_class() {
        let mut class = ClassControl::realtime(0);
        for at in 1..1000 {
            assert_eq!(class.on_wait(at * MS - 900_000, at * MS), None);
        }
    }

    #[test]
    fn a_program_that_never_rests_leaves_the_class_and_returns() {
        let mut class = ClassControl::realtime(0);
        let changes: Vec<_> = (1..=49).filter_map(|at| class.on_wait(at * MS, at * MS + 5_000)).collect();
        assert!(changes.is_empty());
        assert_eq!(class.on_wait(50 * MS, 50 * MS + 1), Some(false));
        // A rest soon after does not count, nor does one that is too short.
        assert_eq!(class.on_wait(60 * MS, 70 * MS), None);
        assert_eq!(class.on_wait(101 * MS, 101 * MS + 10_000), None);
        assert_eq!(class.on_wait(101 * MS, 102 * MS), Some(true));
        assert_eq!(class.on_wait(102 * MS, 103 * MS), None);
    }

    #[test]
    fn a_delay_is_in_its_bucket() {
        let edges = (0..64).flat_map(|bit| [0u64, 1, 2, 3].map(|more| (1u64 << bit).wrapping_add(more << bit >> 3)));
        for ns in edges.flat_map(|edge| [edge.wrapping_sub(1), edge, edge.saturating_add(1)]) {
            let bucket_number = bucket(ns);
            assert!(ns <= upper_ns(bucket_number), "{ns}");
            assert!(bucket_number == 0 || ns > upper_ns(bucket_number - 1), "{ns}");
            assert!(upper_ns(bucket_number) as f64 <= ns.max(8) as f64 * 1.126, "{ns}");
        }
    }
}
