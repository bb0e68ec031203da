//! A controller whose window stays at 20 segments.

use backchannel_node::stacks::config::Config;
use backchannel_node::stacks::controllers::{AckEvent, CongestionController, LossResponse, Window};

pub(crate) fn build(_: &Config) -> Box<dyn CongestionController> {
    Box::new(FixedWindow)
}

#[derive(Debug)]
struct FixedWindow;

impl CongestionController for FixedWindow {
    fn may_grow(&mut self, _: &AckEvent) -> bool {
        true
    }

    fn on_avoidance_ack(&mut self, window: &mut Window, _: &AckEvent) {
        window.cwnd = 20.0 * window.mss;
    }

    fn decrease(&mut self, window: &Window, _: f64) -> f64 {
        20.0 * window.mss
    }

    fn on_fast_retransmit(&mut self, window: &mut Window) -> LossResponse {
        window.cwnd = 20.0 * window.mss;
        LossResponse::Recover
    }
}
