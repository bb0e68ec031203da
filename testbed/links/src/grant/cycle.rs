//! The part of each cycle in which a direction sends.

use backchannel_core::time::Time;

/// A part of every cycle. Cycles start at the start of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) cycle_ns: u64,
    /// Start within the cycle.
    pub(super) from_ns: u64,
    pub(super) length_ns: u64,
}

impl Part {
    /// All of it.
    pub(super) fn whole(cycle_ns: u64) -> Part {
        Part { cycle_ns, from_ns: 0, length_ns: cycle_ns }
    }

    /// Start of the part of this cycle.
    pub(super) fn start(&self, cycle: u64) -> Time {
        Time(cycle.saturating_mul(self.cycle_ns).saturating_add(self.from_ns))
    }

    /// The first cycle whose part starts at `at` or later.
    pub(super) fn cycle_from(&self, at: Time) -> u64 {
        at.nanos().saturating_sub(self.from_ns).div_ceil(self.cycle_ns)
    }

    /// Bytes that a rate carries in this cycle. Cycles differ by a byte, so that their sum is exact.
    pub(super) fn bytes(&self, cycle: u64, rate_bps: u64) -> u64 {
        let until = |cycle: u64| u128::from(cycle) * u128::from(self.cycle_ns) * u128::from(rate_bps) / 8_000_000_000;
        (until(cycle + 1) - until(cycle)) as u64
    }

    /// The lowest rate in the part that carries a mean rate.
    pub(super) fn rate_within(&self, mean_bps: u64) -> u64 {
        (u128::from(mean_bps) * u128::from(self.cycle_ns)).div_ceil(u128::from(self.length_ns)) as u64
    }

    /// Start of what begins at `at` or later within the part, which starts with the cycle.
    pub(super) fn open_at(&self, at: Time) -> Time {
        let within = at.nanos() % self.cycle_ns;
        if within < self.length_ns {
            at
        } else {
            Time(at.nanos() - within + self.cycle_ns)
        }
    }

    /// End of what begins at `start`, within the part, and takes `time_ns` at the mean rate.
    pub(super) fn end(&self, start: Time, time_ns: u64) -> Time {
        let open_ns = (u128::from(time_ns) * u128::from(self.length_ns)).div_ceil(u128::from(self.cycle_ns)) as u64;
        let within = start.nanos() % self.cycle_ns;
        let left = self.length_ns - within;
        if open_ns <= left {
            return Time(start.nanos() + open_ns);
        }
        let beyond = open_ns - left;
        let whole = (beyond - 1) / self.length_ns;
        Time(start.nanos() - within + (1 + whole) * self.cycle_ns + beyond - whole * self.length_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Nanosecond by nanosecond: open time between start and end is the time at the part's rate.
        #[test]
        fn work_is_done_in_the_open_part_only(cycle_ns in 2u64..60, share in 0.01f64..1.0, at in 0u64..500, time in 1u64..300) {
            let length_ns = ((cycle_ns as f64 * share) as u64).max(1);
            let part = Part { cycle_ns, from_ns: 0, length_ns };
            let is_open = |ns: u64| ns % cycle_ns < length_ns;
            let start = part.open_at(Time(at));
            prop_assert!(is_open(start.nanos()) && (at..start.nanos()).all(|ns| !is_open(ns)));
            let end = part.end(start, time).nanos();
            let open = (start.nanos()..end).filter(|ns| is_open(*ns)).count() as u64;
            prop_assert_eq!(open, (time * length_ns).div_ceil(cycle_ns));
            prop_assert!(is_open(end - 1));
        }

        /// Cycles carry the rate exactly, and the first cycle from a time on is the first.
        #[test]
        fn cycles_add_up(cycle_ns in 1000u64..3_000_000, rate in 1000u64..2_000_000_000, cycles in 1u64..50, at in 0u64..9_000_000) {
            let part = Part { cycle_ns, from_ns: cycle_ns / 3, length_ns: cycle_ns - cycle_ns / 3 };
            let sum: u64 = (0..cycles).map(|cycle| part.bytes(cycle, rate)).sum();
            prop_assert_eq!(u128::from(sum), u128::from(cycles * cycle_ns) * u128::from(rate) / 8_000_000_000);
            let first = part.cycle_from(Time(at));
            prop_assert!(part.start(first) >= Time(at));
            prop_assert!(first == 0 || part.start(first - 1) < Time(at));
        }
    }
}
