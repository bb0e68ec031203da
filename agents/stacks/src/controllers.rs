//! Congestion control. A controller is one file below `controllers/` and one line of the registry in this file, or one
//! that another crate adds to [`crate::config::Stacks`].
//!
//! [`CongestionControl`] holds the [`Window`], does what all controllers share (slow start, bounds) and calls the
//! [`CongestionController`] for the rest. This crate's controllers are dispatched statically: they run once an ack.

mod cubic;
mod newreno;
mod reno;
mod tahoe;
mod window;

use backchannel_core::choice;
use std::fmt::Debug;

use backchannel_core::time::Time;

use crate::config::Config;
pub use newreno::FullAck;
pub use window::{Counting, Window};

/// An ack of new data outside fast recovery.
#[derive(Clone, Copy, Debug)]
pub struct AckEvent {
    /// Bytes that it acknowledges.
    pub acked: u64,
    /// When it arrived.
    pub now: Time,
    /// Smoothed round-trip time in seconds; 0 before the first sample.
    pub srtt_s: f64,
    /// Whether the congestion window, not the application or the peer's window, limited the sender when the ack
    /// arrived.
    pub window_limited: bool,
}

/// What a sender does after the third duplicate ack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossResponse {
    /// Retransmit one segment and enter fast recovery.
    Recover,
    /// Retransmit everything from the loss on.
    GoBack,
}

/// What a sender does after a new ack in fast recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryStep {
    /// Leave fast recovery.
    Leave,
    /// The ack is partial: retransmit the next hole and stay.
    RetransmitAndStay,
}

/// A new ack in fast recovery, without selective acks.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryAck {
    /// Bytes that it acknowledges.
    pub acked: u64,
    /// Whether it acknowledges everything that was sent before the loss was detected.
    pub full: bool,
    /// Bytes outstanding after it.
    pub outstanding: u64,
}

/// A congestion-control algorithm. Callbacks may change `window.cwnd`; only [`CongestionController::decrease`] decides
/// on `window.ssthresh`. All sizes are in bytes. After each callback the caller bounds the window by its greatest size.
pub trait CongestionController: Debug + Send {
    /// Fires first on each ack of new data outside fast recovery. On `false` the window stays as it is.
    fn may_grow(&mut self, ack: &AckEvent) -> bool {
        let _ = ack;
        true
    }

    /// Fires once per increase (see [`Counting`]) in congestion avoidance. Raises the window.
    fn on_avoidance_ack(&mut self, window: &mut Window, ack: &AckEvent) {
        window.cwnd += window.reno_increase(ack.acked);
    }

    /// Fires on a congestion event: the third duplicate ack, the first timeout of a segment, an echoed congestion mark.
    /// `window` is still that before the event. Returns the new slow-start threshold, which the caller bounds by two
    /// segments. `bytes` is the flight size, or the window for a mark (RFC 3168 6.1.2).
    fn decrease(&mut self, window: &Window, bytes: f64) -> f64 {
        window.half_of(bytes)
    }

    /// Fires on the third duplicate ack, when the threshold is set. Sets the window of fast recovery.
    fn on_fast_retransmit(&mut self, window: &mut Window) -> LossResponse;

    /// Fires on each further duplicate ack in fast recovery, without selective acks.
    fn on_duplicate_ack(&mut self, window: &mut Window) {
        window.cwnd += window.mss;
    }

    /// Fires on each new ack in fast recovery, without selective acks. The first one ends it (RFC 5681 3.2 step 6).
    fn on_recovery_ack(&mut self, window: &mut Window, ack: &RecoveryAck) -> RecoveryStep {
        let _ = ack;
        window.cwnd = window.ssthresh;
        RecoveryStep::Leave
    }

    /// Fires on each retransmission timeout, after [`CongestionController::decrease`]. The window is one segment then.
    fn on_timeout(&mut self) {}

    /// Fires when data are sent while nothing is outstanding: an idle period, however short, ends.
    fn on_idle_end(&mut self) {}

    /// Fires when an idle period has shrunk the window to the initial one (RFC 5681 4.1): slow start follows.
    fn on_idle_restart(&mut self) {}

    /// Whether duplicate acks must cover more than what was sent before the last loss to count as another one
    /// (RFC 6582 3.2 step 2).
    fn ignores_old_duplicates(&self) -> bool {
        false
    }
}

/// Constructor of a controller of another crate.
pub type BuildController = fn(&Config) -> Box<dyn CongestionController>;

/// The registry: option value, file, type, one line a controller.
macro_rules! controllers {
    ($($(#[$doc:meta])* $text:literal => $file:ident::$name:ident,)*) => {
        choice! {
            /// Congestion control and recovery.
            pub enum Algorithm {
                $($(#[$doc])* $name = $text,)*
                .. Added
            }
        }

        /// The controller of one connection.
        #[derive(Debug)]
        enum Controller {
            $($name($file::$name),)*
            Added(Box<dyn CongestionController>),
        }

        impl Controller {
            fn new(config: &Config) -> Controller {
                match config.congestion {
                    $(Algorithm::$name => Controller::$name($file::$name::new(config)),)*
                    Algorithm::Added => {
                        let build = config.added_controller.expect("Stacks::config has found it");
                        Controller::Added(build(config))
                    }
                }
            }
        }

        /// Calls a method of whichever controller it is.
        macro_rules! each {
            ($controller:expr, $inner:ident => $call:expr) => {
                match $controller { $(Controller::$name($inner) => $call,)* Controller::Added($inner) => $call }
            };
        }
    };
}

controllers! {
    /// Fast retransmit, then slow start.
    "tahoe" => tahoe::Tahoe,
    /// Fast recovery that the first new ack ends (4.4BSD).
    "reno" => reno::Reno,
    /// Fast recovery that continues after partial acks (RFC 6582).
    "newreno" => newreno::NewReno,
    /// NewReno's recovery with a cubic window (RFC 9438).
    "cubic" => cubic::Cubic,
}

/// The congestion window of one connection and the algorithm that controls it.
#[derive(Debug)]
pub struct CongestionControl {
    /// The window.
    pub window: Window,
    controller: Controller,
}

impl CongestionControl {
    /// Before the first segment; `mss` is the size of a full one in bytes.
    pub fn new(config: &Config, mss: u32) -> CongestionControl {
        CongestionControl { window: Window::new(config, mss), controller: Controller::new(config) }
    }

    /// A new ack outside recovery: slow start or congestion avoidance (RFC 5681 3.1).
    pub fn on_ack(&mut self, ack: &AckEvent) {
        if !each!(&mut self.controller, controller => controller.may_grow(ack)) {
            return;
        }
        for _ in 0..self.window.increases(ack.acked) {
            if self.window.in_slow_start() {
                self.window.cwnd += self.window.slow_start_increase(ack.acked);
            } else {
                each!(&mut self.controller, controller => controller.on_avoidance_ack(&mut self.window, ack));
            }
        }
        self.window.bound();
    }

    /// The ack that ended recovery. A sender that counts segments grows the window as if one ack had arrived for each
    /// of them (asym 6.3, and figure 19, where the increase does not depend on what came before): the first ends
    /// recovery, the others open the window. A sender that counts acks has had its one; 4.4BSD's and that of ns in 1997
    /// open the window all the same.
    pub fn on_recovery_end(&mut self, ack: &AckEvent) {
        if self.window.opens_after_recovery {
            self.on_ack(ack);
            return;
        }
        let rest = (ack.acked as f64 - self.window.mss).max(0.0) as u64;
        let by_segments = matches!(self.window.counting, Counting::Segments | Counting::HalfSegments);
        if by_segments && rest as f64 >= self.window.mss {
            self.on_ack(&AckEvent { acked: rest, ..*ack });
        }
    }

    /// An echoed congestion mark (RFC 3168 6.1.2) shrinks the window; nothing is retransmitted. The window counts, not
    /// what is outstanding: the ack that carries the echo has just reduced that. The least window is one segment, the
    /// least threshold two.
    pub fn on_mark(&mut self) {
        let reduced = each!(&mut self.controller, controller => controller.decrease(&self.window, self.window.cwnd));
        self.window.ssthresh = reduced.max(2.0 * self.window.mss);
        self.window.cwnd = reduced.max(self.window.mss);
    }

    /// Nothing was sent for a retransmission timeout (RFC 5681 4.1): the window falls to the initial one.
    pub fn on_idle(&mut self, initial_bytes: f64) {
        if self.window.cwnd > initial_bytes {
            self.window.cwnd = initial_bytes;
            each!(&mut self.controller, controller => controller.on_idle_restart());
        }
    }

    /// See [`CongestionController::on_idle_end`].
    pub fn on_idle_end(&mut self) {
        each!(&mut self.controller, controller => controller.on_idle_end());
    }

    /// The third duplicate ack, with `flight` bytes outstanding.
    pub fn on_fast_retransmit(&mut self, flight: u64) -> LossResponse {
        self.set_threshold(flight);
        each!(&mut self.controller, controller => controller.on_fast_retransmit(&mut self.window))
    }

    /// One more duplicate ack in fast recovery: a segment has left the network. The bound holds here too, because it
    /// stands for a socket buffer.
    pub fn on_duplicate_ack(&mut self) {
        each!(&mut self.controller, controller => controller.on_duplicate_ack(&mut self.window));
        self.window.bound();
    }

    /// A new ack in fast recovery.
    pub fn on_recovery_ack(&mut self, ack: &RecoveryAck) -> RecoveryStep {
        each!(&mut self.controller, controller => controller.on_recovery_ack(&mut self.window, ack))
    }

    /// A retransmission timeout with `flight` bytes outstanding (RFC 5681 3.1, equation 4); `decrease`: whether this
    /// timeout lowers the threshold.
    pub fn on_timeout(&mut self, flight: u64, decrease: bool) {
        if decrease {
            self.set_threshold(flight);
        }
        self.window.cwnd = self.window.mss;
        each!(&mut self.controller, controller => controller.on_timeout());
    }

    /// See [`CongestionController::ignores_old_duplicates`].
    pub fn ignores_old_duplicates(&self) -> bool {
        each!(&self.controller, controller => controller.ignores_old_duplicates())
    }

    fn set_threshold(&mut self, flight: u64) {
        let reduced = each!(&mut self.controller, controller => controller.decrease(&self.window, flight as f64));
        self.window.ssthresh = reduced.max(2.0 * self.window.mss);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::stack_config;
    use serde_json::{json, Value};

    /// A window of `segments` of 1000 bytes; by default in slow start without bound.
    pub(crate) fn control(segments: u32, options: &[(&str, Value)]) -> CongestionControl {
        let given = [("initial_window_segments", json!(segments)), ("timestamps", json!(false))];
        let options = given.iter().chain(options).map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        CongestionControl::new(&stack_config("reno-bsd", &options).unwrap(), 1000)
    }

    /// The same in congestion avoidance.
    pub(crate) fn avoiding(segments: u32, options: &[(&str, Value)]) -> CongestionControl {
        let mut control = control(segments, options);
        control.window.ssthresh = 1.0;
        control
    }

    pub(crate) fn ack(acked: u64) -> AckEvent {
        AckEvent { acked, now: Time::ZERO, srtt_s: 0.1, window_limited: true }
    }

    fn counting(name: &str) -> [(&'static str, Value); 1] {
        [("counting", json!(name))]
    }

    #[test]
    fn an_ack_for_four_segments_grows_by_one_four_two_or_two_increases() {
        let growth = |name: &str| {
            let mut control = control(1, &counting(name));
            control.on_ack(&ack(4000));
            control.window.cwnd - 1000.0
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
            let mut control = avoiding(100, &counting(name));
            for _ in 0..acks {
                control.on_ack(&ack(100_000 / acks));
            }
            let grown = control.window.cwnd / 1000.0 - 100.0;
            assert!((grown - expected).abs() < 0.01, "{name} {grown}");
        }
    }

    #[test]
    fn of_an_ack_for_many_segments_those_beyond_the_threshold_no_longer_double_the_window() {
        let mut control = control(8, &counting("segments"));
        control.window.ssthresh = 10_000.0;
        control.on_ack(&ack(6000));
        // Two increases of slow start, from 8 to 10, and four of avoidance.
        assert!((10_390.0..10_400.0).contains(&control.window.cwnd), "{}", control.window.cwnd);
    }

    /// The first of the four ended recovery.
    #[test]
    fn the_ack_that_ends_recovery_grows_the_window_by_its_further_segments() {
        for (name, expected) in [("segments", 0.297), ("half-segments", 0.15), ("acks", 0.0), ("bytes", 0.0)] {
            let mut control = avoiding(10, &counting(name));
            control.on_recovery_end(&ack(4000));
            let grown = control.window.cwnd / 1000.0 - 10.0;
            assert!((grown - expected).abs() < 0.001, "{name} {grown}");
        }
    }

    #[test]
    fn a_mark_halves_the_window_down_to_one_segment_and_the_threshold_to_two() {
        let mut control = avoiding(6, &[]);
        for (cwnd, ssthresh) in [(3000.0, 3000.0), (1500.0, 2000.0), (1000.0, 2000.0)] {
            control.on_mark();
            assert_eq!((control.window.cwnd, control.window.ssthresh), (cwnd, ssthresh));
        }
        let mut cubic = avoiding(20, &[("congestion", json!("cubic"))]);
        cubic.on_mark();
        assert_eq!(cubic.window.cwnd, 14_000.0, "CUBIC keeps seven tenths");
    }

    #[test]
    fn duplicates_do_not_inflate_the_window_beyond_the_greatest() {
        let mut control = control(20, &[("max_window_segments", json!(20))]);
        control.on_fast_retransmit(20_000);
        for _ in 0..19 {
            control.on_duplicate_ack();
        }
        assert_eq!(control.window.cwnd, 20_000.0);
    }

    /// 10 Gbit/s over 80 ms have thresholds above 100 MB.
    #[test]
    fn only_the_initial_threshold_of_an_unbounded_window_stands_for_none() {
        let mut unbounded = control(10, &[]);
        assert_eq!(unbounded.window.threshold(), None);
        unbounded.on_fast_retransmit(300_000_000);
        assert_eq!(unbounded.window.threshold(), Some(150e6));
        assert_eq!(control(1, &[("max_window_segments", json!(20))]).window.threshold(), Some(20_000.0));
        assert_eq!(control(1, &[("initial_ssthresh_segments", json!(200_000))]).window.threshold(), Some(200e6));
    }

    #[test]
    fn a_whole_threshold_is_half_the_window_rounded_down_to_segments() {
        for (whole, threshold) in [(false, 3500.0), (true, 3000.0)] {
            let mut control = control(7, &[("whole_threshold", json!(whole))]);
            control.on_fast_retransmit(7000);
            assert_eq!(control.window.ssthresh, threshold);
        }
    }

    #[test]
    fn a_bsd_window_leaves_recovery_with_a_segment_more_than_a_threshold_of_whole_ones() {
        let mut control = avoiding(7, &counting("bsd"));
        control.on_fast_retransmit(7000);
        assert_eq!(control.window.ssthresh, 3000.0);
        let full = RecoveryAck { acked: 4000, full: true, outstanding: 3000 };
        assert_eq!(control.on_recovery_ack(&full), RecoveryStep::Leave);
        control.on_recovery_end(&ack(4000));
        assert_eq!(control.window.cwnd, 4000.0);
        assert!(!control.window.in_slow_start());
    }
}
