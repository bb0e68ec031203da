//! Tahoe: fast retransmit without fast recovery. The window falls to one segment and everything from the loss on is sent
//! again by slow start.

use super::{OnLoss, Window};

pub(super) fn on_loss(window: &mut Window) -> OnLoss {
    window.cwnd = window.mss;
    OnLoss::GoBack
}

#[cfg(test)]
mod tests {
    use super::super::{Counting, OnLoss, Variant, Window};
    use backchannel_core::time::Time;

    #[test]
    fn three_duplicates_bring_slow_start() {
        let mut window = Window::new(Variant::Tahoe, Counting::Acks, 1000, 20, 1e9, 1e9);
        assert_eq!(window.on_loss(20_000, Time::ZERO), OnLoss::GoBack);
        assert_eq!((window.cwnd, window.ssthresh), (1000.0, 10_000.0));
    }
}
