//! Reno's fast recovery as in 4.4BSD (RFC 5681 3.2): the window is inflated by what duplicate acks say has left the
//! network, and the first new ack ends it, whatever else was lost.

use super::{OnLoss, OnNewAck, Window};

pub(super) fn on_loss(window: &mut Window) -> OnLoss {
    window.cwnd = window.ssthresh + 3.0 * window.mss;
    OnLoss::Recover
}

pub(super) fn on_duplicate(window: &mut Window) {
    window.cwnd += window.mss;
}

pub(super) fn on_recovery_ack(window: &mut Window) -> OnNewAck {
    window.cwnd = window.ssthresh;
    OnNewAck::Leave
}

#[cfg(test)]
mod tests {
    use super::super::{Counting, OnLoss, OnNewAck, Variant, Window};
    use backchannel_core::time::Time;

    #[test]
    fn half_plus_three_then_one_a_duplicate_then_half() {
        let mut window = Window::new(Variant::Reno, Counting::Acks, 1000, 20, 1e9, 1e9);
        assert_eq!(window.on_loss(20_000, Time::ZERO), OnLoss::Recover);
        assert_eq!(window.cwnd, 13_000.0);
        window.on_duplicate();
        assert_eq!(window.cwnd, 14_000.0);
        assert_eq!(window.on_recovery_ack(3000, false, 8000), OnNewAck::Leave);
        assert_eq!(window.cwnd, 10_000.0);
    }
}
