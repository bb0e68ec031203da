//! NewReno's fast recovery (RFC 6582 3.2): a partial ack shows the next hole, which is sent again at once; recovery ends
//! when everything is acknowledged that was outstanding when it began.

use super::{FullAck, OnNewAck, Window};

pub(super) fn on_recovery_ack(window: &mut Window, acked: u64, whole: bool, flight: u64) -> OnNewAck {
    if whole {
        // Step 3, full acknowledgment. Option 1: no burst when little is outstanding.
        window.cwnd = match window.full_ack {
            FullAck::Outstanding => window.ssthresh.min((flight as f64).max(window.mss) + window.mss),
            FullAck::Threshold => window.ssthresh,
        };
        return OnNewAck::Leave;
    }
    // Step 3, partial acknowledgment: deflate by what was acknowledged, and add back one segment.
    window.cwnd -= acked as f64;
    if acked as f64 >= window.mss {
        window.cwnd += window.mss;
    }
    window.cwnd = window.cwnd.max(window.mss);
    OnNewAck::ResendAndStay
}

#[cfg(test)]
mod tests {
    use super::super::{Counting, FullAck, OnNewAck, Variant, Window};
    use backchannel_core::time::Time;

    #[test]
    fn a_partial_ack_stays_and_a_full_one_leaves_without_a_burst() {
        let mut window = Window::new(Variant::NewReno, Counting::Acks, 1000, 20, 1e9, 1e9);
        window.on_loss(20_000, Time::ZERO);
        assert_eq!(window.on_recovery_ack(3000, false, 17_000), OnNewAck::ResendAndStay);
        assert_eq!(window.cwnd, 11_000.0);
        assert_eq!(window.on_recovery_ack(17_000, true, 0), OnNewAck::Leave);
        assert_eq!(window.cwnd, 2000.0);
    }

    #[test]
    fn with_the_threshold_as_exit_a_full_ack_leaves_half_the_window() {
        let window = Window::new(Variant::NewReno, Counting::Acks, 1000, 20, 1e9, 1e9);
        let mut window = window.leaving(FullAck::Threshold);
        window.on_loss(20_000, Time::ZERO);
        assert_eq!(window.on_recovery_ack(20_000, true, 0), OnNewAck::Leave);
        assert_eq!(window.cwnd, 10_000.0);
    }
}
