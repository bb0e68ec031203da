//! Congestion control. A controller is one file below `controllers/` and one line of [`CongestionControl`], or a type of
//! another crate that [`crate::config::Stacks`] has.
//!
//! This crate's controllers are dispatched statically, because they run once an ack.

mod bbr;
mod classic;
mod cubic;
mod dctcp;
mod delay_based;
mod hystart;
mod ledbat;
mod prague;
mod vegas;

pub use crate::congestion::{AckSample, CongestionController, Exit, Loss, Lost, Sent, Signal};
pub use crate::ledger::RateSample;
pub use classic::{Classic, Growth, Reno, Window};

use backchannel_core::time::Time;

use delay_based::DelayBased;

use crate::config::{Algorithm, Config};
use crate::seq::SeqNumber;

/// The controller of one connection.
#[derive(Debug)]
pub enum CongestionControl {
    /// Reno's growth; Tahoe and NewReno differ from it in recovery alone.
    Reno(Classic<Reno>),
    /// CUBIC's.
    Cubic(Classic<cubic::Cubic>),
    /// DCTCP's.
    Dctcp(Classic<dctcp::Dctcp>),
    /// TCP Prague's.
    Prague(Classic<prague::Prague>),
    /// Vegas.
    Vegas(DelayBased<vegas::Vegas>),
    /// LEDBAT++.
    Ledbat(DelayBased<ledbat::Ledbat>),
    /// BBRv3.
    Bbr(Box<bbr::Bbr>),
    /// Another crate's.
    Added(Box<dyn CongestionController>),
}

/// Calls a method of whichever controller it is.
macro_rules! each {
    ($control:expr, $inner:ident => $call:expr) => {
        match $control {
            CongestionControl::Reno($inner) => $call,
            CongestionControl::Cubic($inner) => $call,
            CongestionControl::Dctcp($inner) => $call,
            CongestionControl::Prague($inner) => $call,
            CongestionControl::Vegas($inner) => $call,
            CongestionControl::Ledbat($inner) => $call,
            CongestionControl::Bbr($inner) => $call,
            CongestionControl::Added($inner) => $call,
        }
    };
}

impl CongestionControl {
    /// Before the first segment; `mss` is the size of a full one in bytes. What a controller draws follows from the
    /// connection's initial sequence number.
    pub fn new(config: &Config, mss: u32, initial: SeqNumber) -> CongestionControl {
        match config.congestion {
            Algorithm::Tahoe | Algorithm::Reno | Algorithm::NewReno => {
                CongestionControl::Reno(Classic::new(config, mss, Reno))
            }
            Algorithm::Cubic => {
                CongestionControl::Cubic(Classic::new(config, mss, cubic::Cubic::new(config.cubic_growth)))
            }
            Algorithm::Dctcp => CongestionControl::Dctcp(Classic::new(config, mss, dctcp::Dctcp::default())),
            Algorithm::Prague => CongestionControl::Prague(Classic::new(config, mss, prague::Prague::default())),
            Algorithm::Vegas => CongestionControl::Vegas(DelayBased::new(config, mss)),
            Algorithm::LedbatPlusPlus => CongestionControl::Ledbat(DelayBased::new(config, mss)),
            Algorithm::Bbr => CongestionControl::Bbr(Box::new(bbr::Bbr::new(config, mss, initial.0))),
            Algorithm::Added => {
                let build = config.added_controller.expect("Stacks::config has found it");
                CongestionControl::Added(build(config, mss))
            }
        }
    }
}

impl CongestionController for CongestionControl {
    #[inline]
    fn on_sent(&mut self, sent: &Sent) {
        each!(self, inner => inner.on_sent(sent));
    }

    #[inline]
    fn on_ack(&mut self, ack: &AckSample) {
        each!(self, inner => inner.on_ack(ack));
    }

    fn on_loss(&mut self, loss: &Loss) {
        each!(self, inner => inner.on_loss(loss));
    }

    fn on_recovery_end(&mut self, ack: &AckSample, exit: Exit) {
        each!(self, inner => inner.on_recovery_end(ack, exit));
    }

    fn on_lost(&mut self, now: Time, lost: &Lost) {
        each!(self, inner => inner.on_lost(now, lost));
    }

    fn on_spurious_loss(&mut self) {
        each!(self, inner => inner.on_spurious_loss());
    }

    fn on_idle(&mut self) {
        each!(self, inner => inner.on_idle());
    }

    #[inline]
    fn window(&self) -> f64 {
        each!(self, inner => inner.window())
    }

    fn ssthresh(&self) -> Option<f64> {
        each!(self, inner => inner.ssthresh())
    }

    fn in_slow_start(&self, cwnd: f64) -> bool {
        each!(self, inner => inner.in_slow_start(cwnd))
    }

    #[inline]
    fn pacing_rate(&self) -> Option<f64> {
        each!(self, inner => inner.pacing_rate())
    }

    fn uses_rate_samples(&self) -> bool {
        each!(self, inner => inner.uses_rate_samples())
    }

    fn limits_samples(&self) -> bool {
        each!(self, inner => inner.limits_samples())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::stack_config;
    use backchannel_core::time::Time;
    use serde_json::{json, Value};

    /// A window of `segments` of 1000 bytes; by default in slow start without bound.
    pub(crate) fn starting<G: Growth>(segments: u32, options: &[(&str, Value)], growth: G) -> Classic<G> {
        let given = [("initial_window_segments", json!(segments)), ("timestamps", json!(false))];
        let options = given.iter().chain(options).map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Classic::new(&stack_config("reno-bsd", &options).unwrap(), 1000, growth)
    }

    /// The same in congestion avoidance.
    pub(crate) fn avoiding<G: Growth>(segments: u32, options: &[(&str, Value)], growth: G) -> Classic<G> {
        let mut control = starting(segments, options, growth);
        control.window.ssthresh = 1.0;
        control
    }

    pub(crate) fn sample(acked: u64) -> AckSample {
        AckSample { acked, srtt_s: 0.1, window_limited: true, ..AckSample::default() }
    }

    /// Three duplicate acks with `flight` bytes outstanding.
    pub(crate) fn lose(control: &mut impl CongestionController, flight: u64) {
        control.on_loss(&Loss { now: Time::ZERO, signal: Signal::Duplicates, flight, in_flight: flight });
    }

    /// A timeout, the first of its segment or `again`.
    pub(crate) fn time_out(control: &mut impl CongestionController, flight: u64, again: bool) {
        control.on_loss(&Loss { now: Time::ZERO, signal: Signal::Timeout { again }, flight, in_flight: 0 });
    }

    fn counting(name: &str) -> [(&'static str, Value); 1] {
        [("counting", json!(name))]
    }

    #[test]
    fn an_ack_for_four_segments_grows_by_one_four_two_or_two_increases() {
        let growth = |name: &str| {
            let mut control = starting(1, &counting(name), Reno);
            control.on_ack(&sample(4000));
            control.window() - 1000.0
        };
        assert_eq!(growth("acks"), 1000.0);
        assert_eq!(growth("bsd"), 1000.0);
        assert_eq!(growth("segments"), 4000.0);
        assert_eq!(growth("bytes"), 2000.0);
        assert_eq!(growth("half-segments"), 2000.0);
    }

    #[test]
    fn a_window_acknowledged_in_any_portions_grows_by_one_segment_a_round_trip() {
        for (name, acks, expected) in
            [("acks", 100, 1.0), ("bsd", 8, 1.08), ("segments", 10, 1.0), ("half-segments", 100, 0.5)]
        {
            let mut control = avoiding(100, &counting(name), Reno);
            for _ in 0..acks {
                control.on_ack(&sample(100_000 / acks));
            }
            let grown = control.window() / 1000.0 - 100.0;
            assert!((grown - expected).abs() < 0.01, "{name} {grown}");
        }
    }

    #[test]
    fn of_an_ack_for_many_segments_those_beyond_the_threshold_no_longer_double_the_window() {
        let mut control = starting(8, &counting("segments"), Reno);
        control.window.ssthresh = 10_000.0;
        control.on_ack(&sample(6000));
        // Two increases of slow start, from 8 to 10, and four of avoidance.
        assert!((10_390.0..10_400.0).contains(&control.window()), "{}", control.window());
    }

    #[test]
    fn in_recovery_the_window_does_not_grow_and_an_extension_may_decide_the_increase() {
        let mut control = avoiding(10, &[], Reno);
        control.on_ack(&AckSample { in_recovery: true, ..sample(4000) });
        assert_eq!(control.window(), 10_000.0);
        control.on_ack(&AckSample { increase: Some(200.0), ..sample(4000) });
        assert_eq!(control.window(), 10_200.0);
    }

    /// The first of the four ended recovery.
    #[test]
    fn the_ack_that_ends_recovery_grows_the_window_by_its_further_segments() {
        for (name, expected) in [("segments", 0.297), ("half-segments", 0.15), ("acks", 0.0), ("bytes", 0.0)] {
            let mut control = avoiding(10, &counting(name), Reno);
            control.on_recovery_end(&sample(4000), Exit::Unchanged);
            let grown = control.window() / 1000.0 - 10.0;
            assert!((grown - expected).abs() < 0.001, "{name} {grown}");
        }
    }

    #[test]
    fn a_loss_halves_the_window_and_recovery_leaves_it_there_or_at_what_is_outstanding() {
        let mut control = avoiding(20, &[], Reno);
        lose(&mut control, 20_000);
        assert_eq!((control.window(), control.ssthresh()), (10_000.0, Some(10_000.0)));
        control.on_recovery_end(&sample(17_000), Exit::Outstanding(3000));
        assert_eq!(control.window(), 4000.0);
        control.on_recovery_end(&sample(17_000), Exit::Outstanding(0));
        assert_eq!(control.window(), 2000.0);
        control.on_recovery_end(&sample(17_000), Exit::Threshold);
        assert_eq!(control.window(), 10_000.0);
    }

    #[test]
    fn a_timeout_and_a_quench_leave_one_segment_and_an_idle_period_the_initial_window() {
        let mut control = avoiding(20, &[], Reno);
        let quench = Loss { now: Time::ZERO, signal: Signal::Quench, flight: 0, in_flight: 0 };
        control.on_loss(&quench);
        assert_eq!((control.window(), control.ssthresh()), (1000.0, Some(1.0)));
        for (again, threshold) in [(false, 8000.0), (true, 8000.0)] {
            time_out(&mut control, 16_000, again);
            assert_eq!((control.window(), control.ssthresh()), (1000.0, Some(threshold)));
        }
        control.on_recovery_end(&sample(0), Exit::Threshold);
        control.on_idle();
        assert_eq!(control.window(), 8000.0, "which is below the initial one");
        control.on_ack(&sample(20_000));
        control.window.cwnd = 50_000.0;
        control.on_idle();
        assert_eq!(control.window(), 20_000.0);
    }

    #[test]
    fn a_mark_halves_the_window_down_to_one_segment_and_the_threshold_to_two() {
        let mark = Loss { now: Time::ZERO, signal: Signal::Mark, flight: 50_000, in_flight: 50_000 };
        let mut control = avoiding(6, &[], Reno);
        for (cwnd, ssthresh) in [(3000.0, 3000.0), (1500.0, 2000.0), (1000.0, 2000.0)] {
            control.on_loss(&mark);
            assert_eq!((control.window(), control.window.ssthresh), (cwnd, ssthresh));
        }
        let mut cubic = avoiding(20, &[], cubic::Cubic::default());
        cubic.on_loss(&mark);
        assert_eq!(cubic.window(), 14_000.0, "CUBIC keeps seven tenths");
    }

    /// 10 Gbit/s over 80 ms have thresholds above 100 MB.
    #[test]
    fn only_the_initial_threshold_of_an_unbounded_window_stands_for_none() {
        let mut unbounded = starting(10, &[], Reno);
        assert_eq!(unbounded.ssthresh(), None);
        lose(&mut unbounded, 300_000_000);
        assert_eq!(unbounded.ssthresh(), Some(150e6));
        assert_eq!(starting(1, &[("max_window_segments", json!(20))], Reno).ssthresh(), Some(20_000.0));
        assert_eq!(starting(1, &[("initial_ssthresh_segments", json!(200_000))], Reno).ssthresh(), Some(200e6));
    }

    #[test]
    fn a_whole_threshold_is_half_the_window_rounded_down_to_segments() {
        for (whole, threshold) in [(false, 3500.0), (true, 3000.0)] {
            let mut control = starting(7, &[("whole_threshold", json!(whole))], Reno);
            lose(&mut control, 7000);
            assert_eq!(control.ssthresh(), Some(threshold));
        }
    }

    #[test]
    fn a_bsd_window_leaves_recovery_with_a_segment_more_than_a_threshold_of_whole_ones() {
        let mut control = avoiding(7, &counting("bsd"), Reno);
        lose(&mut control, 7000);
        assert_eq!(control.ssthresh(), Some(3000.0));
        control.on_recovery_end(&sample(4000), Exit::Threshold);
        assert_eq!(control.window(), 4000.0);
        assert!(!control.in_slow_start(control.window()));
    }
}
