//! Time since the start of a run.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// An instant in nanoseconds since the start of the run. It does not wrap: 2^64 ns are 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The start of the run.
    pub const ZERO: Time = Time(0);
    /// Later than every event of a run.
    pub const MAX: Time = Time(u64::MAX);

    /// Nanoseconds since the start of the run.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the start of the run, for reports. Not for arithmetic.
    pub fn seconds(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// The instant `seconds` after the start. Negative values and NaN give the start.
    pub fn from_seconds(seconds: f64) -> Time {
        Time((seconds * 1e9).round() as u64)
    }

    /// Time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, d: Duration) -> Time {
        Time(self.0.saturating_add(d.as_nanos() as u64))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.9} s", self.seconds())
    }
}

/// Time that `bits` take on a line of `rate_bps` bit/s, rounded up to whole nanoseconds.
///
/// # Panics
/// If `rate_bps` is zero. Links reject that when they are built.
pub fn service_time(bits: u64, rate_bps: u64) -> Duration {
    Duration::from_nanos(service_time_ns(bits, rate_bps))
}

/// [`service_time`] in nanoseconds.
#[inline(always)]
pub fn service_time_ns(bits: u64, rate_bps: u64) -> u64 {
    match bits.checked_mul(1_000_000_000) {
        Some(product) => product.div_ceil(rate_bps),
        None => (u128::from(bits) * 1_000_000_000).div_ceil(u128::from(rate_bps)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kilobyte_at_28800_takes_277_78_ms() {
        // asym 4.2.2: "about 280 ms"; 8000 bits / 28 800 bit/s.
        assert_eq!(service_time(8000, 28_800), Duration::from_nanos(277_777_778));
    }

    #[test]
    fn a_product_beyond_64_bits_is_divided_as_well() {
        assert_eq!(service_time(1 << 40, 1 << 30), Duration::from_secs(1024));
    }

    #[test]
    fn difference_never_underflows() {
        assert_eq!(Time(3) - Time(5), Duration::ZERO);
    }
}
