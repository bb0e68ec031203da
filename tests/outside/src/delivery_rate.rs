//! A controller that paces at the delivery rate, as BBR does (draft-ietf-ccwg-bbr), with two states: it doubles the rate
//! each round trip until that delivers no more, and then sends as fast as the path delivers.

use std::time::Duration;

use backchannel_node::stacks::config::Config;
use backchannel_node::stacks::controllers::{AckSample, CongestionController, Loss, RateSample, Signal};

/// 2/ln(2): the gain with which rates double each round trip.
const STARTUP_GAIN: f64 = 2.89;
/// Round trips over which the greatest rate is the bandwidth.
const FILTER_ROUNDS: u64 = 10;

pub(crate) fn build(config: &Config, mss: u32) -> Box<dyn CongestionController> {
    let mss = f64::from(mss);
    Box::new(DeliveryRate {
        mss,
        initial: f64::from(config.initial_window_segments) * mss,
        rates: Vec::new(),
        min_rtt: Duration::MAX,
        round: 0,
        round_ends: 0,
        plateau: (0.0, 0),
        timed_out: false,
    })
}

#[derive(Debug)]
struct DeliveryRate {
    mss: f64,
    initial: f64,
    /// The greatest rate of each of the last round trips, with its number.
    rates: Vec<(u64, f64)>,
    min_rtt: Duration,
    round: u64,
    /// Bytes delivered when the current round trip ends.
    round_ends: u64,
    /// The bandwidth that was a quarter above the one before, and the round trips since.
    plateau: (f64, u32),
    timed_out: bool,
}

impl DeliveryRate {
    fn bandwidth(&self) -> Option<f64> {
        self.rates.iter().map(|(_, rate)| *rate).reduce(f64::max)
    }

    fn gain(&self) -> f64 {
        if self.plateau.1 < 3 {
            STARTUP_GAIN
        } else {
            1.0
        }
    }

    fn on_rate(&mut self, rate: &RateSample) {
        self.min_rtt = rate.rtt.map_or(self.min_rtt, |rtt| self.min_rtt.min(rtt));
        let ends_round = rate.prior_delivered >= self.round_ends;
        if ends_round {
            (self.round, self.round_ends) = (self.round + 1, rate.total_delivered);
            let oldest = self.round.saturating_sub(FILTER_ROUNDS);
            self.rates.retain(|(round, _)| *round > oldest);
            self.rates.push((self.round, 0.0));
        }
        let bandwidth = self.bandwidth().unwrap_or_default();
        if !rate.is_app_limited || rate.delivery_rate > bandwidth {
            let greatest = self.rates.last_mut().expect("the first sample begins a round");
            greatest.1 = greatest.1.max(rate.delivery_rate);
        }
        if ends_round && self.gain() > 1.0 {
            let grows = bandwidth > 1.25 * self.plateau.0;
            self.plateau = if grows { (bandwidth, 0) } else { (self.plateau.0, self.plateau.1 + 1) };
        }
    }
}

impl CongestionController for DeliveryRate {
    fn on_ack(&mut self, ack: &AckSample) {
        self.timed_out = false;
        ack.rate.iter().for_each(|rate| self.on_rate(rate));
    }

    /// A loss says nothing of the rate. After a timeout it is searched anew.
    fn on_loss(&mut self, loss: &Loss) {
        if matches!(loss.signal, Signal::Timeout { .. }) {
            (self.timed_out, self.plateau) = (true, (0.0, 0));
        }
    }

    /// Twice the bandwidth-delay product.
    fn window(&self) -> f64 {
        match self.bandwidth() {
            _ if self.timed_out => self.mss,
            Some(bandwidth) if self.min_rtt < Duration::MAX => {
                (2.0 * bandwidth * self.min_rtt.as_secs_f64()).max(4.0 * self.mss)
            }
            _ => self.initial,
        }
    }

    fn pacing_rate(&self) -> Option<f64> {
        self.bandwidth().filter(|bandwidth| *bandwidth > 0.0).map(|bandwidth| self.gain() * bandwidth)
    }

    fn uses_rate_samples(&self) -> bool {
        true
    }
}
