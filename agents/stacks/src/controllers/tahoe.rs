//! Tahoe (Jacobson 1988): fast retransmit without fast recovery. The window falls to one segment, and slow start sends
//! everything from the loss on again.

use super::{CongestionController, LossResponse, Window};
use crate::config::Config;

#[derive(Clone, Debug)]
pub(super) struct Tahoe;

impl Tahoe {
    pub(super) fn new(_: &Config) -> Tahoe {
        Tahoe
    }
}

impl CongestionController for Tahoe {
    fn on_fast_retransmit(&mut self, window: &mut Window) -> LossResponse {
        window.cwnd = window.mss;
        LossResponse::GoBack
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::control;
    use super::LossResponse;
    use serde_json::json;

    #[test]
    fn three_duplicates_bring_slow_start() {
        let mut control = control(20, &[("congestion", json!("tahoe"))]);
        assert_eq!(control.on_fast_retransmit(20_000), LossResponse::GoBack);
        assert_eq!((control.window.cwnd, control.window.ssthresh), (1000.0, 10_000.0));
    }
}
