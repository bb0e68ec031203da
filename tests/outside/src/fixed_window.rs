//! A controller whose window stays at 20 segments: a growth of its own over the classic window.

use backchannel_node::stacks::config::Config;
use backchannel_node::stacks::controllers::{AckSample, Classic, CongestionController, Growth, Window};

pub(crate) fn build(config: &Config, mss: u32) -> Box<dyn CongestionController> {
    Box::new(Classic::new(config, mss, FixedWindow))
}

#[derive(Debug)]
struct FixedWindow;

impl Growth for FixedWindow {
    fn grown(&mut self, window: &Window, _: &AckSample) -> f64 {
        20.0 * window.mss()
    }

    fn decreased(&mut self, window: &Window, _: f64) -> f64 {
        20.0 * window.mss()
    }
}
