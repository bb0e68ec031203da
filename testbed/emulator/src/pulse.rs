//! Whether the driver itself kept time: how long it was not scheduled while a run went on.
//!
//! A frame enters its link when it is read, and TAP interfaces do not say when it was sent. So a driver that sleeps through
//! an arrival would not see its own lateness. Its loop therefore wakes at least every [`PERIOD_NS`], and a wake-up that
//! comes late is a stall: no frame that came in it was handled in time.

use serde_json::{json, Value};

/// The loop runs at least this often during a run.
const PERIOD_NS: u64 = 2_000_000;
/// A wake-up that is less late than this is ordinary timer lateness.
const ORDINARY_NS: u64 = 1_000_000;

/// Stalls since a run's zero.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// When the loop should next have run; `None` between runs.
    due_ns: Option<u64>,
    count: u64,
    total_ns: u64,
    longest_ns: u64,
}

impl Pulse {
    /// Begins at a run's zero.
    pub(crate) fn from(zero_ns: u64) -> Pulse {
        Pulse { due_ns: Some(zero_ns + PERIOD_NS), ..Pulse::default() }
    }

    /// When the loop must run next, for its timer.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// The loop runs, now.
    pub(crate) fn beat(&mut self, now_ns: u64) {
        let Some(due_ns) = self.due_ns else { return };
        let late_ns = now_ns.saturating_sub(due_ns);
        if late_ns > ORDINARY_NS {
            self.count += 1;
            self.total_ns += late_ns;
            self.longest_ns = self.longest_ns.max(late_ns);
        }
        self.due_ns = Some(due_ns.max(now_ns + PERIOD_NS));
    }

    /// Number, sum and longest, for the report.
    pub(crate) fn json(&self) -> Value {
        let seconds = |ns: u64| ns as f64 * 1e-9;
        json!({"count": self.count, "total_s": seconds(self.total_ns), "longest_s": seconds(self.longest_ns)})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_loop_that_runs_often_enough_has_no_stall() {
        let mut pulse = Pulse::from(100 * MS);
        for at in [50, 99, 101, 102, 104, 106] {
            pulse.beat(at * MS);
        }
        assert_eq!(pulse.json()["count"], 0);
        assert_eq!(pulse.next_ns(), Some(108 * MS));
    }

    #[test]
    fn time_in_which_it_did_not_run_is_a_stall() {
        let mut pulse = Pulse::from(100 * MS);
        pulse.beat(101 * MS);
        pulse.beat(603 * MS);
        pulse.beat(612 * MS);
        assert_eq!(pulse.json(), json!({"count": 2, "total_s": 0.507, "longest_s": 0.5}));
    }

    #[test]
    fn what_happens_before_a_run_is_not_its_stall() {
        let mut pulse = Pulse::default();
        pulse.beat(900 * MS);
        assert_eq!(pulse.next_ns(), None);
        assert_eq!(pulse.json()["count"], 0);
    }
}
