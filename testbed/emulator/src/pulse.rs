//! Stalls: times during a run at which the emulator itself was not scheduled.
//!
//! A frame enters its link when it is read, because TAP interfaces do not record when it was sent. So an emulator that
//! sleeps through an arrival cannot measure that packet's lateness. Its loop therefore wakes at least every [`PERIOD_NS`],
//! and a late wake-up is a stall: no frame that arrived in it was handled in time. The kernel counts how long a thread was
//! ready to run while other programs had its CPU. That part of a stall would vanish on a less busy machine; the rest is
//! caused by the host of a virtual machine.

use schemars::JsonSchema;
use serde::Serialize;

/// The loop runs at least this often during a run.
const PERIOD_NS: u64 = 2_000_000;
/// Timer lateness up to this is ordinary.
const ORDINARY_NS: u64 = 1_000_000;
/// The kernel's count is read at most this often, because reading it is slow.
const READ_EVERY_NS: u64 = 1_000_000;

/// Times during a run at which the emulator was not scheduled: wake-ups more than 1 ms late.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Stalls {
    /// Number of stalls.
    pub count: u64,
    /// Sum of their lengths.
    #[schemars(extend("unit" = "s"))]
    pub total_s: f64,
    /// Length of the longest.
    #[schemars(extend("unit" = "s"))]
    pub longest_s: f64,
    /// Part of the total during which other programs had the CPU. Null where the kernel does not count that.
    #[schemars(extend("unit" = "s"))]
    pub queued_s: Option<f64>,
}

/// Detects stalls.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// When the loop must run next; `None` between runs.
    due_ns: Option<u64>,
    count: u64,
    total_ns: u64,
    longest_ns: u64,
    /// Part of the total while other programs had the CPU; `None` where the kernel does not count.
    queued_ns: Option<u64>,
    /// The kernel's count when it was last read, and the time of that.
    waited_ns: Option<u64>,
    read_ns: u64,
}

impl Pulse {
    /// For a run with this time zero.
    pub(crate) fn starting_at(zero_ns: u64) -> Pulse {
        Pulse { due_ns: Some(zero_ns + PERIOD_NS), queued_ns: Some(0), ..Pulse::default() }
    }

    /// When the loop must run next.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// The loop runs. `waited_ns` returns how long its thread has waited in total for a CPU that other programs had.
    pub(crate) fn on_wake(&mut self, now_ns: u64, waited_ns: impl FnOnce() -> Option<u64>) {
        let Some(due_ns) = self.due_ns else { return };
        let late_ns = now_ns.saturating_sub(due_ns);
        let is_stall = late_ns > ORDINARY_NS;
        if is_stall || now_ns >= self.read_ns + READ_EVERY_NS {
            let before_ns = std::mem::replace(&mut self.waited_ns, waited_ns());
            self.read_ns = now_ns;
            if is_stall {
                self.count += 1;
                self.total_ns += late_ns;
                self.longest_ns = self.longest_ns.max(late_ns);
                let queued_ns =
                    self.waited_ns.zip(before_ns).map(|(now, before)| now.saturating_sub(before).min(late_ns));
                self.queued_ns = self.queued_ns.zip(queued_ns).map(|(sum, more)| sum + more);
            }
        }
        self.due_ns = Some(due_ns.max(now_ns + PERIOD_NS));
    }

    /// The stalls so far.
    pub(crate) fn report(&self) -> Stalls {
        let seconds = |ns: u64| ns as f64 * 1e-9;
        Stalls {
            count: self.count,
            total_s: seconds(self.total_ns),
            longest_s: seconds(self.longest_ns),
            queued_s: self.queued_ns.map(seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn no_wait() -> Option<u64> {
        Some(0)
    }

    #[test]
    fn a_loop_that_runs_often_enough_has_no_stall() {
        let mut pulse = Pulse::starting_at(100 * MS);
        for at in [50, 99, 101, 102, 104, 106] {
            pulse.on_wake(at * MS, no_wait);
        }
        assert_eq!(pulse.report().count, 0);
        assert_eq!(pulse.next_ns(), Some(108 * MS));
    }

    #[test]
    fn time_in_which_it_did_not_run_is_a_stall() {
        let mut pulse = Pulse::starting_at(100 * MS);
        pulse.on_wake(101 * MS, no_wait);
        pulse.on_wake(603 * MS, no_wait);
        pulse.on_wake(612 * MS, no_wait);
        assert_eq!(pulse.report(), Stalls { count: 2, total_s: 0.507, longest_s: 0.5, queued_s: Some(0.0) });
    }

    #[test]
    fn time_that_other_programs_ran_is_counted_separately() {
        let mut pulse = Pulse::starting_at(100 * MS);
        pulse.on_wake(101 * MS, || Some(70 * MS));
        pulse.on_wake(111 * MS, || Some(76 * MS));
        pulse.on_wake(112 * MS, || Some(77 * MS));
        pulse.on_wake(133 * MS, || Some(177 * MS));
        // 6 ms of the first stall of 8, all of the second of 19: it did not stall for the 100 ms that the kernel counts.
        assert_eq!((pulse.count, pulse.total_ns, pulse.queued_ns), (2, 27 * MS, Some(25 * MS)));
    }

    #[test]
    fn a_kernel_that_does_not_count_gives_null() {
        let mut pulse = Pulse::starting_at(100 * MS);
        pulse.on_wake(101 * MS, || None);
        pulse.on_wake(151 * MS, || None);
        assert_eq!(pulse.report().count, 1);
        assert_eq!(pulse.report().queued_s, None);
    }

    #[test]
    fn time_before_a_run_is_not_a_stall() {
        let mut pulse = Pulse::default();
        pulse.on_wake(900 * MS, no_wait);
        assert_eq!(pulse.next_ns(), None);
        assert_eq!(pulse.report().count, 0);
    }
}
