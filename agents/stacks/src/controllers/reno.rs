//! Reno as in 4.4BSD (RFC 5681 3.2): duplicate acks inflate the window by what has left the network, and the first new
//! ack ends fast recovery, whatever else was lost.

use super::{CongestionController, LossResponse, Window};
use crate::config::Config;

#[derive(Clone, Debug)]
pub(super) struct Reno;

impl Reno {
    pub(super) fn new(_: &Config) -> Reno {
        Reno
    }
}

/// The window of fast recovery: the threshold and the three segments that have left (RFC 5681 3.2 step 3).
pub(super) fn inflated(window: &Window) -> f64 {
    window.ssthresh + 3.0 * window.mss
}

impl CongestionController for Reno {
    fn on_fast_retransmit(&mut self, window: &mut Window) -> LossResponse {
        window.cwnd = inflated(window);
        LossResponse::Recover
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::control;
    use super::super::{LossResponse, RecoveryAck, RecoveryStep};

    #[test]
    fn half_plus_three_then_one_a_duplicate_then_half() {
        let mut control = control(20, &[]);
        assert_eq!(control.on_fast_retransmit(20_000), LossResponse::Recover);
        assert_eq!(control.window.cwnd, 13_000.0);
        control.on_duplicate_ack();
        assert_eq!(control.window.cwnd, 14_000.0);
        let ack = RecoveryAck { acked: 3000, full: false, outstanding: 8000 };
        assert_eq!(control.on_recovery_ack(&ack), RecoveryStep::Leave);
        assert_eq!(control.window.cwnd, 10_000.0);
    }
}
