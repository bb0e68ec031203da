//! The clock of a link that a host emulates in software (asym 8.1): timers expire at its interrupts only, every 10 ms
//! under BSDI.
//!
//! A timer is set to the whole number of ticks that is nearest to its time, at least one, and the interrupts that
//! follow are counted. So a packet may leave too early or too late, and the next one the other way round, as the text
//! says. A timer that is set at an interrupt, for the packet that has waited behind another, is off by the rounding
//! alone; one that is set between two interrupts is up to a tick shorter too.

use backchannel_core::time::Time;

/// A clock with an interrupt every tick, the first one at the start of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    tick_ns: u64,
}

impl Clock {
    /// `tick_s` is in seconds; `None` for 0, a clock of any resolution.
    pub(crate) fn new(tick_s: f64) -> Option<Clock> {
        let tick_ns = (tick_s * 1e9).round() as u64;
        (tick_ns > 0).then_some(Clock { tick_ns })
    }

    /// When a timer that is set at `now` for `after_ns` expires.
    pub(crate) fn expiry(self, now: Time, after_ns: u64) -> Time {
        Time((now.nanos() / self.tick_ns).saturating_add(self.ticks(after_ns)).saturating_mul(self.tick_ns))
    }

    /// The time that a timer for `after_ns` takes if it is set at an interrupt. No timer is set for 0.
    pub(crate) fn rounded_ns(self, after_ns: u64) -> u64 {
        if after_ns == 0 {
            return 0;
        }
        self.ticks(after_ns).saturating_mul(self.tick_ns)
    }

    fn ticks(self, after_ns: u64) -> u64 {
        (after_ns.saturating_add(self.tick_ns / 2) / self.tick_ns).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn timers_expire_at_the_nearest_number_of_interrupts() {
        let clock = Clock::new(0.01).unwrap();
        let expiry_ms = |now_ms: f64, after_ms: f64| {
            clock.expiry(Time((now_ms * 1e6) as u64), (after_ms * 1e6) as u64).nanos() as f64 / 1e6
        };
        // Set at an interrupt: too early, too late, and never at once.
        assert_eq!([14.9, 15.0, 25.1, 0.1].map(|after| expiry_ms(20.0, after)), [30.0, 40.0, 50.0, 30.0]);
        // Set between two: the first interrupt comes after 3 ms.
        assert_eq!(expiry_ms(27.0, 14.9), 30.0);
        assert_eq!([0, 4_000_000, 26_000_000].map(|ns| clock.rounded_ns(ns)), [0, 10_000_000, 30_000_000]);
        assert!(Clock::new(0.0).is_none());
    }

    proptest! {
        /// An expiry is an interrupt after now, and at most a tick and a half from the time that was asked for.
        #[test]
        fn expiries_are_interrupts_near_the_time(tick_us in 1u64..100_000, now in 0u64..1 << 50, after in 1u64..1 << 40) {
            let tick_ns = tick_us * 1000;
            let clock = Clock::new(tick_us as f64 * 1e-6).unwrap();
            let at = clock.expiry(Time(now), after).nanos();
            prop_assert_eq!(at % tick_ns, 0);
            prop_assert!(at > now);
            prop_assert!(at <= now + after.max(tick_ns) + tick_ns / 2 && at + tick_ns + tick_ns / 2 >= now + after);
        }
    }
}
