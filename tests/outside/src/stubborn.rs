//! A controller that never sends less: its window grows by a segment for each ack, whatever is lost. It is what the
//! criteria of RFC 9743 are to find.

use backchannel_node::stacks::config::Config;
use backchannel_node::stacks::controllers::{AckSample, CongestionController, Loss};

pub(crate) fn build(config: &Config, mss: u32) -> Box<dyn CongestionController> {
    let mss = f64::from(mss);
    Box::new(Stubborn { mss, window: f64::from(config.initial_window_segments) * mss })
}

#[derive(Debug)]
struct Stubborn {
    mss: f64,
    window: f64,
}

impl CongestionController for Stubborn {
    fn on_ack(&mut self, _: &AckSample) {
        self.window += self.mss;
    }

    fn on_loss(&mut self, _: &Loss) {}

    fn window(&self) -> f64 {
        self.window
    }
}
