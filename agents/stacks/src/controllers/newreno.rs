//! NewReno (RFC 6582): a partial ack shows the next hole, which is retransmitted at once. Fast recovery ends when
//! everything is acknowledged that was outstanding when it began.

use super::{reno, CongestionController, LossResponse, RecoveryAck, RecoveryStep, Window};
use crate::config::Config;
use backchannel_core::choice;

choice! {
    /// The window after a full ack (RFC 6582 3.2 step 3).
    pub enum FullAck {
        /// Option 1: what is outstanding and one segment, at most the threshold. Avoids a burst.
        Outstanding = "outstanding",
        /// Option 2: the threshold.
        Threshold = "threshold",
    }
}

#[derive(Clone, Debug)]
pub(super) struct NewReno {
    full_ack: FullAck,
}

impl NewReno {
    pub(super) fn new(config: &Config) -> NewReno {
        NewReno { full_ack: config.full_ack }
    }

    /// The window after a full ack (step 3).
    fn after_full_ack(&self, window: &Window, outstanding: u64) -> f64 {
        match self.full_ack {
            FullAck::Outstanding => window.ssthresh.min((outstanding as f64).max(window.mss) + window.mss),
            FullAck::Threshold => window.ssthresh,
        }
    }

    /// The window after a partial ack (step 3): deflated by what was acknowledged, plus one segment.
    fn after_partial_ack(window: &Window, acked: u64) -> f64 {
        let deflated = window.cwnd - acked as f64;
        let whole_segment = acked as f64 >= window.mss;
        (if whole_segment { deflated + window.mss } else { deflated }).max(window.mss)
    }
}

impl CongestionController for NewReno {
    fn on_fast_retransmit(&mut self, window: &mut Window) -> LossResponse {
        window.cwnd = reno::inflated(window);
        LossResponse::Recover
    }

    fn on_recovery_ack(&mut self, window: &mut Window, ack: &RecoveryAck) -> RecoveryStep {
        if ack.full {
            window.cwnd = self.after_full_ack(window, ack.outstanding);
            return RecoveryStep::Leave;
        }
        window.cwnd = NewReno::after_partial_ack(window, ack.acked);
        RecoveryStep::RetransmitAndStay
    }

    fn ignores_old_duplicates(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::control;
    use super::{RecoveryAck, RecoveryStep};
    use serde_json::json;

    #[test]
    fn a_partial_ack_stays_and_a_full_one_leaves_without_a_burst() {
        let mut control = control(20, &[("congestion", json!("newreno"))]);
        control.on_fast_retransmit(20_000);
        let partial = RecoveryAck { acked: 3000, full: false, outstanding: 17_000 };
        assert_eq!(control.on_recovery_ack(&partial), RecoveryStep::RetransmitAndStay);
        assert_eq!(control.window.cwnd, 11_000.0);
        let full = RecoveryAck { acked: 17_000, full: true, outstanding: 0 };
        assert_eq!(control.on_recovery_ack(&full), RecoveryStep::Leave);
        assert_eq!(control.window.cwnd, 2000.0);
    }

    #[test]
    fn with_the_threshold_as_exit_a_full_ack_leaves_half_the_window() {
        let mut control = control(20, &[("congestion", json!("newreno")), ("full_ack", json!("threshold"))]);
        control.on_fast_retransmit(20_000);
        let full = RecoveryAck { acked: 20_000, full: true, outstanding: 0 };
        assert_eq!(control.on_recovery_ack(&full), RecoveryStep::Leave);
        assert_eq!(control.window.cwnd, 10_000.0);
    }
}
