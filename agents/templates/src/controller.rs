//! A congestion controller: additive increase, multiplicative decrease, with both numbers as options.
//!
//! In congestion avoidance the window grows by `increase_segments` a round trip, and a loss leaves `decrease` of it
//! (Chiu and Jain 1989). Slow start, timeouts and recovery are those of TCP (RFC 5681).

use backchannel_node::core::options;
use backchannel_node::stacks::config::Config;
use backchannel_node::stacks::controllers::{AckSample, Classic, CongestionController, Growth, Window};
use backchannel_node::Registry;

/// Adds what this crate has to a node. The launcher calls it.
pub fn register(registry: Registry) -> Registry {
    registry.controller_with("my-crate", Parameters::PARAMS, build)
}

// The options that every stack has beside its own: name, type, default, unit with the least and the greatest value, help.
options! {
    /// Options of the controller.
    #[derive(Copy)]
    struct Parameters {
        increase_segments: f64 = 1, [Number 0 to 1000] "my-crate: segments by which the window grows a round trip";
        decrease: f64 = 0.5, [Fraction] "my-crate: share of the window that a loss leaves";
    }
}

fn build(config: &Config, mss: u32) -> Box<dyn CongestionController> {
    Box::new(Classic::new(config, mss, MyCrate(Parameters::read(&config.added(Parameters::PARAMS)))))
}

// `Growth` is the short way to a controller with TCP's slow start. For one without, such as one that paces at a rate that
// it measures, implement `CongestionController` itself.
#[derive(Debug)]
struct MyCrate(Parameters);

impl Growth for MyCrate {
    /// w + a mss² / w for each mss that is acknowledged.
    fn grown(&mut self, window: &Window, ack: &AckSample) -> f64 {
        window.cwnd() + self.0.increase_segments * window.mss() * ack.acked as f64 / window.cwnd()
    }

    /// b w.
    fn decreased(&mut self, _: &Window, bytes: f64) -> f64 {
        self.0.decrease * bytes
    }
}

#[cfg(test)]
mod tests {
    use backchannel_node::core::Time;
    use backchannel_node::stacks::controllers::{Loss, Signal};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_loss_leaves_its_share_and_a_round_trip_adds_its_segments() {
        let stacks = register(Registry::builtin()).stacks;
        let options = [("congestion", json!("my-crate")), ("increase_segments", json!(2)), ("decrease", json!(0.8))];
        let options = options.map(|(name, value)| (name.to_owned(), value)).into();
        let config = stacks.tcp().config("modern", &options).expect("good options");
        let mut control = build(&config, 1000);
        let loss = Loss { now: Time::ZERO, signal: Signal::Duplicates, flight: 100_000, in_flight: 99_000 };
        control.on_loss(&loss);
        assert_eq!(control.window(), 80_000.0);
        let ack = AckSample { now: Time::from_seconds(0.1), acked: 2000, srtt_s: 0.1, ..AckSample::default() };
        for _ in 0..40 {
            control.on_ack(&ack);
        }
        assert!((control.window() - 82_000.0).abs() < 30.0, "{}", control.window());
    }
}
