//! Intervals of equal length, for policies that measure rates and update their weights at the end of each.

use std::time::Duration;

use backchannel_core::time::Time;

/// A grid of intervals that starts with the run.
#[derive(Clone, Debug)]
pub(crate) struct Intervals {
    length: Duration,
    end: Time,
}

impl Intervals {
    /// Intervals of this length, in seconds.
    pub(crate) fn of(length_s: f64) -> Intervals {
        let length = Duration::from_secs_f64(length_s);
        Intervals { length, end: Time::ZERO + length }
    }

    /// Number of intervals that ended between the last call and `now`.
    pub(crate) fn ended(&mut self, now: Time) -> u64 {
        if now < self.end {
            return 0;
        }
        let length = self.length.as_nanos() as u64;
        let count = (now.nanos() - self.end.nanos()) / length + 1;
        self.end = Time(self.end.nanos() + count * length);
        count
    }

    /// The rate in bit/s of `bytes` within one interval.
    pub(crate) fn rate_bps(&self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / self.length.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_end_on_a_fixed_grid() {
        let mut intervals = Intervals::of(0.2);
        let ended = |intervals: &mut Intervals, s| intervals.ended(Time::from_seconds(s));
        assert_eq!([0.0, 0.199, 0.2, 0.35, 0.4, 1.1].map(|s| ended(&mut intervals, s)), [0, 0, 1, 0, 1, 3]);
        assert_eq!(ended(&mut intervals, 1.2), 1);
        assert_eq!(intervals.rate_bps(2500), 100_000.0);
    }
}
