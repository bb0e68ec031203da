//! Clocks.

use rustix::io::Errno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{clock_gettime, ClockId};

use super::timespec;

fn now_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> u64 {
    now_ns(ClockId::Monotonic)
}

/// CLOCK_REALTIME in nanoseconds since the epoch.
pub fn realtime_ns() -> u64 {
    now_ns(ClockId::Realtime)
}

/// Lead of CLOCK_REALTIME over CLOCK_MONOTONIC, which changes only when somebody sets the clock.
///
/// A thread may lose its CPU between the readings of two clocks, so a single pair of readings is wrong by any amount.
/// Each reading of one between two of the other gives bounds, and those of all readings hold together.
#[derive(Debug, Default)]
pub struct RealtimeLead {
    /// Least and greatest lead that no reading contradicts, in nanoseconds.
    bounds: Option<(u64, u64)>,
}

impl RealtimeLead {
    /// Instant of CLOCK_MONOTONIC at an instant of CLOCK_REALTIME since the clock was last set, in nanoseconds.
    pub fn to_monotonic(&mut self, realtime: u64) -> u64 {
        let before = monotonic_ns();
        let lead = self.narrowed_by(before, realtime_ns(), monotonic_ns());
        realtime.saturating_sub(lead)
    }

    /// The lead, given CLOCK_REALTIME at some instant between two of CLOCK_MONOTONIC.
    fn narrowed_by(&mut self, before: u64, realtime: u64, after: u64) -> u64 {
        let (least, greatest) = (realtime.saturating_sub(after), realtime.saturating_sub(before));
        let (least, greatest) = match self.bounds {
            Some((low, high)) if least.max(low) <= greatest.min(high) => (least.max(low), greatest.min(high)),
            // The first reading, or the clock was set.
            _ => (least, greatest),
        };
        self.bounds = Some((least, greatest));
        u64::midpoint(least, greatest)
    }
}

/// Processor time of this process so far, in seconds.
pub fn cpu_s() -> f64 {
    now_ns(ClockId::ProcessCPUTime) as f64 * 1e-9
}

/// Sleeps until this instant of CLOCK_MONOTONIC, or until a signal arrives.
pub fn sleep_until_or_signal(at_ns: u64) {
    match clock_nanosleep_absolute(ClockId::Monotonic, &timespec(at_ns)) {
        Ok(()) | Err(Errno::INTR) => {}
        Err(error) => unreachable!("CLOCK_MONOTONIC and a valid time: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a packet could seem to arrive before one that was received earlier.
    #[test]
    fn a_pause_between_readings_does_not_move_the_lead() {
        let mut lead = RealtimeLead::default();
        for (before, realtime, after) in [
            (1_000, 501_010, 1_020),
            (2_000, 502_005, 92_000),
            (100_000, 690_000, 190_005),
            (200_000, 700_001, 200_002),
        ] {
            let found = lead.narrowed_by(before, realtime, after);
            assert!(found.abs_diff(500_000) <= 10, "{found}");
        }
        assert_eq!(lead.bounds, Some((499_999, 500_001)));
    }

    #[test]
    fn a_clock_that_is_set_has_its_new_lead_at_the_next_reading() {
        let mut lead = RealtimeLead::default();
        lead.narrowed_by(1_000, 501_010, 1_020);
        assert_eq!(lead.narrowed_by(2_000, 2_050, 2_020), 40);
        assert_eq!(lead.narrowed_by(3_000, 903_010, 3_020), 900_000);
    }

    #[test]
    fn an_instant_of_one_clock_is_found_on_the_other() {
        let mut lead = RealtimeLead::default();
        let (before, realtime, after) = (monotonic_ns(), realtime_ns(), monotonic_ns());
        // Of many readings one is close, however busy the machine is.
        let found = (0..1000).map(|_| lead.to_monotonic(realtime)).last().unwrap();
        let slack = 1_000_000;
        assert!((before - slack..=after + slack).contains(&found), "{found} is not from {before} to {after}");
    }
}
