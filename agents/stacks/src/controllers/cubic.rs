//! CUBIC (RFC 9438): after a decrease the window follows a cubic function of time back to where it was, and probes
//! beyond.
//!
//! ```text
//! Figure 1   W_cubic(t) = C (t - K)^3 + W_max
//! Figure 2   K = cbrt((W_max - cwnd_epoch) / C)
//! 4.2        target = W_cubic(t + RTT), between cwnd and 1.5 cwnd
//! Figure 4   W_est += alpha_cubic segments_acked / cwnd
//! ```
//!
//! Windows are in segments and times in seconds, as in the RFC.
//!
//! Differs from the source: an increase by (target - cwnd) / cwnd (4.4, 4.5) counts once a segment acknowledged, not
//! once an ack, as in Linux, so that delayed acks do not slow the window down. The new threshold is beta of the window,
//! not of the flight size: 4.6 allows it where the window does not grow while the application limits the sender. A
//! window that equals its threshold is in avoidance
//! (4.10 has slow start there; RFC 5681 3.1 allows both), or each recovery would end with a step of slow start.
//! HyStart++ (4.10) is `hystart.rs`; that a congestion event was spurious (4.9) is found in `loss_detection.rs`.
//!
//! [`CubicGrowth::Linux`] grows as Linux's tcp_cubic.c: alpha_cubic is 9/17 for good, a round trip goes by in which the
//! window follows W_est, the curve is read a least round trip ahead, and the window grows by a twentieth a round trip
//! at least until a first decrease tells where the line is full, and again after a timeout.

use backchannel_core::time::Time;

use super::{AckSample, Growth, Window};
use crate::config::CubicGrowth;

/// C of 5.1.
const C: f64 = 0.4;
/// beta_cubic of 4.6.
const BETA: f64 = 0.7;
/// The same for a mark (RFC 8511 3.1).
const ABE_BETA: f64 = 0.85;
/// Segments acknowledged per segment of growth while no decrease has told where the line is full, in Linux.
const LINUX_FIRST_COUNT: f64 = 20.0;

#[derive(Clone, Debug, Default)]
pub struct Cubic {
    growth: CubicGrowth,
    /// The least round trip so far.
    delay_min_s: Option<f64>,
    /// Whether a decrease since the last timeout told where the line is full.
    line_is_known: bool,
    /// The window before the last decrease, lowered by fast convergence; 0 before the first decrease.
    w_max: f64,
    /// The window before the last decrease.
    cwnd_prior: f64,
    /// Whether the last decrease was a timeout's.
    after_timeout: bool,
    /// The current congestion avoidance stage; `None` outside one.
    stage: Option<Stage>,
    /// When the last ack arrived outside recovery.
    acked_at: Time,
    /// Since when the window has not been updated because the sender did not use it.
    limited_since: Option<Time>,
    /// W_max, cwnd_prior and the stage before the last decrease, to return to (4.9).
    before_decrease: Option<(f64, f64, Option<Stage>)>,
}

/// A congestion avoidance stage (4.2).
#[derive(Clone, Copy, Debug)]
struct Stage {
    /// t_epoch, moved on by the time in which the application limited the sender.
    start: Time,
    /// K.
    k: f64,
    /// W_est: the window that Reno would have.
    w_est: f64,
}

impl Cubic {
    pub fn new(growth: CubicGrowth) -> Cubic {
        Cubic { growth, ..Cubic::default() }
    }

    /// Begins a stage with a window of `cwnd`. After a timeout (4.8), and where slow start ended without a loss (4.10),
    /// the curve begins at its plateau.
    fn begin_stage(&mut self, now: Time, cwnd: f64) -> Stage {
        if self.w_max == 0.0 {
            self.cwnd_prior = cwnd;
        }
        if self.after_timeout || self.w_max < cwnd {
            self.w_max = cwnd;
        }
        Stage { start: now, k: k(self.w_max, cwnd), w_est: cwnd }
    }

    /// Remembers the window; `beta` of it is left.
    fn decrease(&mut self, window: &Window, beta: f64) -> f64 {
        self.before_decrease = Some((self.w_max, self.cwnd_prior, self.stage));
        let cwnd = window.segments();
        self.w_max = w_max_after(cwnd, self.w_max);
        self.cwnd_prior = cwnd;
        self.after_timeout = false;
        self.line_is_known = true;
        self.stage = None;
        window.cwnd * beta
    }

    /// The window in segments after so many more are acknowledged (bictcp_update).
    fn grown_as_linux(&self, stage: &Stage, t: f64, cwnd: f64, segments: f64) -> f64 {
        let ahead = w_cubic(t + self.delay_min_s.unwrap_or(0.0), stage.k, self.w_max);
        let mut gain = (ahead.max(stage.w_est) - cwnd) / cwnd;
        if !self.line_is_known {
            gain = gain.max(1.0 / LINUX_FIRST_COUNT);
        }
        cwnd + gain.clamp(0.0, 0.5) * segments
    }

    /// alpha_cubic (4.3): Reno's gain once the estimate has reached the window before the decrease.
    fn alpha(&self, w_est: f64) -> f64 {
        if self.growth == CubicGrowth::Rfc9438 && w_est >= self.cwnd_prior {
            1.0
        } else {
            3.0 * (1.0 - BETA) / (1.0 + BETA)
        }
    }
}

/// Figure 1.
fn w_cubic(t: f64, k: f64, w_max: f64) -> f64 {
    C * (t - k).powi(3) + w_max
}

/// Figure 2.
fn k(w_max: f64, cwnd_epoch: f64) -> f64 {
    ((w_max - cwnd_epoch) / C).cbrt()
}

/// The target of 4.2, from the curve a round trip ahead.
fn target(w_cubic_ahead: f64, cwnd: f64) -> f64 {
    w_cubic_ahead.clamp(cwnd, 1.5 * cwnd)
}

/// Figure 4, for one ack.
fn w_est_increase(alpha: f64, segments_acked: f64, cwnd: f64) -> f64 {
    alpha * segments_acked / cwnd
}

/// W_max after a decrease at `cwnd`, with fast convergence (4.7): a flow that did not get back to where it was makes
/// room.
fn w_max_after(cwnd: f64, w_max: f64) -> f64 {
    if cwnd < w_max {
        cwnd * (1.0 + BETA) / 2.0
    } else {
        cwnd
    }
}

impl Growth for Cubic {
    /// An application-limited sender does not grow (5.8), and t does not run meanwhile (4.2).
    fn may_grow(&mut self, ack: &AckSample) -> bool {
        if ack.window_limited {
            if let (Some(since), Some(stage)) = (self.limited_since.take(), &mut self.stage) {
                stage.start = stage.start + (ack.now - since.max(stage.start));
            }
        } else {
            self.limited_since.get_or_insert(ack.now);
        }
        self.acked_at = ack.now;
        if let Some(rtt) = ack.rtt {
            let rtt_s = rtt.as_secs_f64();
            self.delay_min_s = Some(self.delay_min_s.map_or(rtt_s, |least| least.min(rtt_s)));
        }
        ack.window_limited
    }

    fn grown(&mut self, window: &Window, ack: &AckSample) -> f64 {
        let cwnd = window.segments();
        let mut stage = self.stage.unwrap_or_else(|| self.begin_stage(ack.now, cwnd));
        let t = (ack.now - stage.start).as_secs_f64();
        let segments = ack.acked as f64 / window.mss();
        stage.w_est += w_est_increase(self.alpha(stage.w_est), segments, cwnd);
        self.stage = Some(stage);
        if self.growth == CubicGrowth::Linux {
            return self.grown_as_linux(&stage, t, cwnd, segments) * window.mss();
        }
        let reno_friendly = w_cubic(t, stage.k, self.w_max) < stage.w_est;
        let next = if reno_friendly {
            stage.w_est
        } else {
            cwnd + (target(w_cubic(t + ack.srtt_s, stage.k, self.w_max), cwnd) - cwnd) / cwnd * segments
        };
        next.max(1.0) * window.mss()
    }

    /// 4.6: remembers the window, and leaves beta of it.
    fn decreased(&mut self, window: &Window, _: f64) -> f64 {
        self.decrease(window, BETA)
    }

    fn marked(&mut self, window: &Window) -> f64 {
        self.decrease(window, if window.abe { ABE_BETA } else { BETA })
    }

    /// 4.9.
    fn on_spurious_loss(&mut self) {
        if let Some((w_max, cwnd_prior, stage)) = self.before_decrease.take() {
            (self.w_max, self.cwnd_prior, self.stage, self.after_timeout) = (w_max, cwnd_prior, stage, false);
        }
    }

    /// 4.8: K is 0 in the stage that follows.
    fn on_timeout(&mut self) {
        self.after_timeout = true;
        self.line_is_known = false;
        self.stage = None;
    }

    /// Idle time does not count in t (4.2): the window was last updated when the last ack arrived.
    fn on_idle_end(&mut self) {
        self.limited_since.get_or_insert(self.acked_at);
    }

    /// Slow start follows, and then a new stage.
    fn on_idle_restart(&mut self) {
        self.stage = None;
    }
}

#[cfg(test)]
mod tests {
    use backchannel_core::time::Time;
    use serde_json::json;

    use super::super::tests::{avoiding, lose, sample, starting, time_out};
    use super::super::{AckSample, Classic, CongestionController, Sent};
    use super::{Cubic, CubicGrowth};

    /// A window of 100 segments of 1000 bytes that a loss has reduced to 70.
    fn after_a_loss() -> Classic<Cubic> {
        let mut control = avoiding(100, &[("counting", json!("bytes"))], Cubic::default());
        lose(&mut control, 100_000);
        control
    }

    fn ack(acked: f64, ms: u64) -> AckSample {
        AckSample { now: Time(ms * 1_000_000), srtt_s: 0.2, ..sample(acked as u64) }
    }

    /// Acks of a whole window every 200 ms from `from` on, before `to`.
    fn run(control: &mut Classic<Cubic>, from: u64, to: u64) {
        for at in (from..to).step_by(200) {
            control.on_ack(&ack(control.window.cwnd, at));
        }
    }

    /// Acks of a whole window, 10 ms apart; each call returns by how many segments the window grew.
    fn short_round_trips() -> impl FnMut(&mut Classic<Cubic>) -> f64 {
        let mut at = 0;
        move |control| {
            let before = segments(control);
            at += 10;
            control.on_ack(&AckSample { srtt_s: 0.01, ..ack(control.window.cwnd, at) });
            segments(control) - before
        }
    }

    fn segments(control: &Classic<Cubic>) -> f64 {
        control.window.segments()
    }

    #[test]
    fn after_a_loss_the_window_is_back_at_its_maximum_after_k_seconds() {
        let mut control = after_a_loss();
        assert_eq!(control.window.ssthresh, 70_000.0);
        // K = cbrt(100 * 0.3 / 0.4) = 4.217 s; Reno's estimate stays below.
        run(&mut control, 0, 4_217);
        assert!((segments(&control) - 100.0).abs() < 2.0, "{}", segments(&control));
    }

    /// 4.3: with fast convergence W_max is below cwnd_prior, and alpha stays 9/17 up to cwnd_prior.
    #[test]
    fn the_reno_estimate_gains_a_segment_a_round_trip_from_the_prior_window_on() {
        let mut control = after_a_loss();
        // A second loss at 70, below W_max = 100: W_max becomes 59.5, cwnd_prior 70, the window 49. With round trips of
        // 10 ms the window is Reno's estimate.
        lose(&mut control, 70_000);
        let mut round_trip = short_round_trips();
        let alpha = 3.0 * 0.3 / 1.7;
        while segments(&control) < 69.0 {
            let gain = round_trip(&mut control);
            assert!((gain - alpha).abs() < 0.01, "{gain} at {}", segments(&control));
        }
        while segments(&control) < 71.0 {
            round_trip(&mut control);
        }
        let gain = round_trip(&mut control);
        assert!((gain - 1.0).abs() < 0.01, "{gain}");
    }

    /// A twentieth a round trip before the first decrease, and after a timeout; the curve alone, from its plateau, would
    /// gain 0.4 segments in the first second.
    #[test]
    fn without_a_decrease_linux_grows_by_a_twentieth() {
        let linux = || Cubic::new(CubicGrowth::Linux);
        let mut control = avoiding(100, &[("counting", json!("bytes"))], linux());
        run(&mut control, 0, 1_000);
        assert!((segments(&control) - 100.0 * 1.05f64.powi(5)).abs() < 0.01, "{}", segments(&control));
        let mut control = starting(100, &[("counting", json!("bytes"))], linux());
        lose(&mut control, 100_000);
        let before = segments(&control);
        run(&mut control, 0, 200);
        assert!(segments(&control) < 1.04 * before, "a decrease has told: {} of {before}", segments(&control));
        time_out(&mut control, 70_000, true);
        control.window.cwnd = 70_000.0;
        control.window.ssthresh = 1.0;
        run(&mut control, 0, 1_000);
        assert!((segments(&control) - 70.0 * 1.05f64.powi(5)).abs() < 0.01, "{}", segments(&control));
    }

    /// RFC 9438 4.3 has a segment from there on.
    #[test]
    fn beyond_the_prior_window_linux_keeps_nine_seventeenths() {
        let mut control = avoiding(50, &[("counting", json!("bytes"))], Cubic::new(CubicGrowth::Linux));
        lose(&mut control, 50_000);
        let mut round_trip = short_round_trips();
        while segments(&control) < 55.0 {
            round_trip(&mut control);
        }
        let gain = round_trip(&mut control);
        assert!((gain - 9.0 / 17.0).abs() < 0.02, "{gain}");
    }

    /// 4.8: the stage after a timeout begins on the plateau, so that the window hardly grows at first.
    #[test]
    fn after_a_timeout_k_is_zero() {
        let mut control = starting(100, &[("counting", json!("bytes"))], Cubic::default());
        control.window.ssthresh = 1.0;
        time_out(&mut control, 100_000, false);
        assert_eq!((control.window.cwnd, control.window.ssthresh), (1000.0, 70_000.0));
        control.window.cwnd = 70_000.0;
        // Figure 1 with K = 0 and W_max = 70: 0.4 segments beyond it after 1 s; with K = 4.2 s it would be 87.
        run(&mut control, 0, 1_000);
        assert!((70.0..73.0).contains(&segments(&control)), "{}", segments(&control));
    }

    /// 4.2: of ten seconds of idle time none counts in t.
    #[test]
    fn idle_time_does_not_move_the_curve() {
        let (mut busy, mut idle) = (after_a_loss(), after_a_loss());
        run(&mut busy, 0, 2_000);
        run(&mut idle, 0, 1_000);
        // Idle from the ack at 800 ms on, until 10.8 s.
        idle.on_sent(&Sent {
            now: Time(10_800_000_000),
            bytes: 1000,
            outstanding: 0,
            is_app_limited: false,
            srtt_s: 0.0,
        });
        run(&mut idle, 10_800, 11_800);
        assert!((segments(&busy) - segments(&idle)).abs() < 2.0, "{} {}", segments(&busy), segments(&idle));
    }

    /// 5.8: neither in slow start nor in avoidance; 4.2: nor does t run.
    #[test]
    fn an_application_limited_window_does_not_grow() {
        let limited = |at| AckSample { window_limited: false, ..ack(5000.0, at) };
        let mut starting = starting(10, &[], Cubic::default());
        starting.on_ack(&limited(0));
        assert_eq!(starting.window.cwnd, 10_000.0);
        let (mut busy, mut waiting) = (after_a_loss(), after_a_loss());
        run(&mut busy, 0, 2_000);
        run(&mut waiting, 0, 1_000);
        let before = waiting.window.cwnd;
        for at in (1_000..11_000).step_by(200) {
            waiting.on_ack(&limited(at));
        }
        assert_eq!(waiting.window.cwnd, before);
        run(&mut waiting, 11_000, 12_000);
        assert!((segments(&busy) - segments(&waiting)).abs() < 2.0, "{} {}", segments(&busy), segments(&waiting));
    }

    /// 4.7: a flow that loses below its former maximum aims at less.
    #[test]
    fn fast_convergence_aims_below_the_window_at_the_loss() {
        let mut control = after_a_loss();
        lose(&mut control, 70_000);
        // W_max = 70 * 0.85 = 59.5 is reached K = cbrt(10.5 / 0.4) = 2.97 s later.
        // After half of it 7/8 of the way there are gone. A curve from a plateau at 49 would have done 1/8, and meets
        // at K.
        run(&mut control, 0, 1_486);
        assert!((segments(&control) - 58.2).abs() < 2.0, "{}", segments(&control));
        run(&mut control, 1_486, 2_972);
        assert!((segments(&control) - 59.5).abs() < 2.0, "{}", segments(&control));
    }

    /// Loses at the window and recovers to `beta` of it; returns that window.
    fn lose_at_the_window(control: &mut Classic<Cubic>) -> f64 {
        let lost_at = segments(control);
        lose(control, control.window.cwnd as u64);
        lost_at
    }

    #[test]
    fn a_second_loss_begins_a_new_stage() {
        let mut control = after_a_loss();
        run(&mut control, 0, 2_000);
        let lost_at = lose_at_the_window(&mut control);
        // Below W_max = 100: 0.85 of the window is reached K seconds after this loss, not after the first.
        let k_s = (0.15 * lost_at / 0.4).cbrt();
        run(&mut control, 2_000, 2_000 + (k_s * 1e3) as u64);
        assert!((segments(&control) - 0.85 * lost_at).abs() < 2.0, "{} after {lost_at}", segments(&control));
    }

    /// 4.8 for a timeout within a stage, and 4.6 for the loss that follows it.
    #[test]
    fn a_timeout_begins_a_new_stage_and_does_not_outlast_the_next_loss() {
        let mut control = after_a_loss();
        run(&mut control, 0, 2_000);
        time_out(&mut control, 70_000, true);
        control.window.cwnd = 70_000.0;
        let plateau = segments(&control);
        run(&mut control, 10_000, 11_000);
        assert!((plateau..plateau + 3.0).contains(&segments(&control)), "{} from {plateau}", segments(&control));
        let lost_at = lose_at_the_window(&mut control);
        // After half of K, 7/8 of what the loss took is back; on a curve from its plateau it would be 1/8.
        let half_k_s = (0.3 * lost_at / 0.4).cbrt() / 2.0;
        run(&mut control, 11_000, 11_000 + (half_k_s * 1e3) as u64);
        assert!((segments(&control) - 0.9625 * lost_at).abs() < 2.0, "{} after {lost_at}", segments(&control));
    }
}
