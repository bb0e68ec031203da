//! Controllers that react to delay: an own rule opens the window, and all else is Reno's.

use super::{AckSample, Classic, CongestionController, Exit, Loss, Reno, Sent};
use crate::config::Config;

/// A rule by which acks change the window.
pub trait DelayRule: std::fmt::Debug + Send {
    /// Fires on each ack of new data, in fast recovery too.
    fn on_ack(&mut self, reno: &mut Classic<Reno>, ack: &AckSample);
}

/// Reno with such a rule.
#[derive(Debug)]
pub struct DelayBased<R> {
    pub(super) reno: Classic<Reno>,
    pub(super) rule: R,
}

impl<R: DelayRule + Default> DelayBased<R> {
    /// Before the first segment; `mss` is the size of a full one in bytes.
    pub fn new(config: &Config, mss: u32) -> DelayBased<R> {
        DelayBased { reno: Classic::new(config, mss, Reno), rule: R::default() }
    }
}

impl<R: DelayRule> CongestionController for DelayBased<R> {
    fn on_sent(&mut self, sent: &Sent) {
        self.reno.on_sent(sent);
    }

    fn on_ack(&mut self, ack: &AckSample) {
        self.rule.on_ack(&mut self.reno, ack);
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.reno.on_loss(loss);
    }

    fn on_recovery_end(&mut self, ack: &AckSample, exit: Exit) {
        self.reno.on_recovery_end(ack, exit);
    }

    fn on_spurious_loss(&mut self) {
        self.reno.on_spurious_loss();
    }

    fn on_idle(&mut self) {
        self.reno.on_idle();
    }

    fn window(&self) -> f64 {
        self.reno.window()
    }

    fn ssthresh(&self) -> Option<f64> {
        self.reno.ssthresh()
    }

    fn pacing_rate(&self) -> Option<f64> {
        self.reno.pacing_rate()
    }
}
