//! The classic window: slow start, congestion avoidance by a [`Growth`], a decrease at each signal of congestion (RFC
//! 5681 3.1, RFC 3465; asym 6.3, 8.3).

use super::hystart::SlowStartExit;
use super::{AckSample, CongestionController, Exit, Loss, Sent, Signal};
use crate::config::{Config, Counting, SlowStart};

/// L of RFC 3465 2.2: segments by which one ack opens the window in slow start at most.
const L: f64 = 2.0;
/// L of RFC 9406 4.3, where segments are not paced. Where they are, there is no limit.
const HYSTART_L: f64 = 8.0;

/// Windows a round trip at which Linux paces in the first half of slow start, and later.
const PACING_GAINS: (f64, f64) = (2.0, 1.2);
/// What a mark leaves of Reno's window (RFC 8511 3.1).
const ABE_BETA: f64 = 0.8;

/// Greatest windows from this size on, in bytes, stand for none.
const UNBOUNDED: f64 = 1e8;

/// How a classic controller grows in congestion avoidance, and what a decrease leaves of its window. CUBIC replaces
/// Reno's; a controller of another crate may bring its own to [`Classic::new`].
///
/// Scalable TCP (Kelly 2003) grows by 1 % of what is acknowledged and keeps seven eighths at a loss:
///
/// ```
/// use backchannel_core::Time;
/// use backchannel_stacks::config::stack_config;
/// use backchannel_stacks::controllers::{AckSample, Classic, CongestionController, Growth, Loss, Signal, Window};
///
/// #[derive(Debug)]
/// struct Scalable;
///
/// impl Growth for Scalable {
///     fn grown(&mut self, window: &Window, ack: &AckSample) -> f64 {
///         window.cwnd() + 0.01 * ack.acked as f64
///     }
///
///     fn decreased(&mut self, _window: &Window, bytes: f64) -> f64 {
///         0.875 * bytes
///     }
/// }
///
/// let config = stack_config("newreno", &Default::default())?;
/// let mut control = Classic::new(&config, 1000, Scalable);
/// control.on_loss(&Loss { now: Time::ZERO, signal: Signal::Duplicates, flight: 80_000, in_flight: 79_000 });
/// assert_eq!((control.window(), control.ssthresh()), (70_000.0, Some(70_000.0)));
/// control.on_ack(&AckSample {
///     now: Time::from_seconds(0.1),
///     acked: 2000,
///     srtt_s: 0.1,
///     ..AckSample::default()
/// });
/// assert_eq!(control.window(), 70_020.0);
/// # Ok::<(), backchannel_core::Error>(())
/// ```
pub trait Growth: std::fmt::Debug + Send {
    /// Fires first on each ack of new data outside fast recovery. On `false` the window stays as it is.
    fn may_grow(&mut self, ack: &AckSample) -> bool {
        let _ = ack;
        true
    }

    /// Fires once per increase (see [`Counting`]) in congestion avoidance. Returns the new window.
    fn grown(&mut self, window: &Window, ack: &AckSample) -> f64 {
        window.cwnd + window.reno_increase(ack.acked)
    }

    /// Fires on a congestion event: the third duplicate ack, the first timeout of a segment, an echoed congestion mark.
    /// `window` is still that before the event. Returns the new slow-start threshold, which the caller bounds by two
    /// segments. `bytes` is the flight size, or the window for a mark (RFC 3168 6.1.2).
    fn decreased(&mut self, window: &Window, bytes: f64) -> f64 {
        window.half_of(bytes)
    }

    /// The same for a mark, where it means less than a loss.
    fn marked(&mut self, window: &Window) -> f64 {
        self.decreased(window, window.cwnd)
    }

    /// Fires on each retransmission timeout, after [`Growth::decreased`].
    fn on_timeout(&mut self) {}

    /// Fires when the last decrease turns out to have been for no loss: the window is what it was.
    fn on_spurious_loss(&mut self) {}

    /// Fires when data are sent while nothing is outstanding: an idle period, however short, ends.
    fn on_idle_end(&mut self) {}

    /// Fires when an idle period has shrunk the window to the initial one (RFC 5681 4.1): slow start follows.
    fn on_idle_restart(&mut self) {}
}

/// Reno's (RFC 5681 3.1).
#[derive(Debug)]
pub struct Reno;

impl Growth for Reno {
    fn marked(&mut self, window: &Window) -> f64 {
        if window.abe {
            ABE_BETA * window.cwnd
        } else {
            self.decreased(window, window.cwnd)
        }
    }
}

/// The window of one connection, in bytes.
#[derive(Clone, Debug)]
pub struct Window {
    /// Bytes of data in a full segment.
    mss: f64,
    /// Congestion window. At least one segment, and after the first increase never above `limit`.
    pub(super) cwnd: f64,
    /// Slow-start threshold.
    pub(super) ssthresh: f64,
    /// The window at the start, and after an idle period.
    initial: f64,
    /// Greatest congestion window: it stands for a socket buffer.
    limit: f64,
    counting: Counting,
    /// Whether the ack that ends recovery opens the window as any other ack does.
    opens_after_recovery: bool,
    /// Whether half a window is rounded down to whole segments.
    whole_halves: bool,
    /// Segments by which one ack opens the window in slow start at most, if bytes are counted.
    most_an_ack: f64,
    /// Whether a mark leaves more than a loss (RFC 8511).
    pub(super) abe: bool,
}

impl Window {
    /// The initial window. A configuration without a threshold has that of the greatest window.
    pub fn new(config: &Config, mss: u32) -> Window {
        let mss = f64::from(mss);
        let limit = f64::from(config.max_window_segments) * mss;
        let initial = mss * f64::from(config.initial_window_segments);
        Window {
            mss,
            cwnd: initial,
            ssthresh: config.initial_ssthresh_segments.map_or(limit, |segments| f64::from(segments) * mss),
            initial,
            limit,
            counting: config.counting,
            opens_after_recovery: config.counting == Counting::Bsd || config.reno_of_1997,
            whole_halves: config.whole_threshold || config.counting == Counting::Bsd,
            most_an_ack: match config.slow_start {
                SlowStart::Standard => L,
                SlowStart::HyStartPlusPlus if !config.pacing => HYSTART_L,
                SlowStart::HyStart | SlowStart::HyStartPlusPlus => f64::INFINITY,
            },
            abe: config.abe,
        }
    }

    /// Bytes of data in a full segment.
    pub fn mss(&self) -> f64 {
        self.mss
    }

    /// The congestion window in bytes.
    pub fn cwnd(&self) -> f64 {
        self.cwnd
    }

    /// The window in segments.
    pub fn segments(&self) -> f64 {
        self.cwnd / self.mss
    }

    /// RFC 5681 3.1 leaves open what a window that equals its threshold does: avoidance here, slow start in 4.4BSD.
    fn in_slow_start(&self, cwnd: f64) -> bool {
        cwnd < self.ssthresh || (self.counting == Counting::Bsd && cwnd <= self.ssthresh)
    }

    /// How many increases an ack of `acked` bytes is. One by one: each sees the window that the one before left, so
    /// slow start ends where it would with one ack a segment.
    fn increases(&self, acked: u64) -> u64 {
        match self.counting {
            Counting::Segments => ((acked as f64 / self.mss).round() as u64).max(1),
            _ => 1,
        }
    }

    /// One increase of slow start in bytes (RFC 5681 equation 2, RFC 3465 2.2).
    fn slow_start_increase(&self, acked: u64) -> f64 {
        match self.counting {
            Counting::Acks | Counting::Bsd | Counting::Segments => self.mss,
            Counting::Bytes => (acked as f64).min(self.most_an_ack * self.mss),
            Counting::HalfSegments => acked as f64 / 2.0,
        }
    }

    /// One increase of Reno's congestion avoidance in bytes (RFC 5681 equation 3, RFC 3465 2.1).
    pub fn reno_increase(&self, acked: u64) -> f64 {
        match self.counting {
            Counting::Acks | Counting::Segments => self.mss * self.mss / self.cwnd,
            Counting::Bsd => self.mss * self.mss / self.cwnd + self.mss / 8.0,
            Counting::Bytes => acked as f64 * self.mss / self.cwnd,
            Counting::HalfSegments => acked as f64 / (2.0 * self.mss) * self.mss * self.mss / self.cwnd,
        }
    }

    /// Half of `bytes` (RFC 5681 equation 4), in whole segments where the stack has whole thresholds.
    pub fn half_of(&self, bytes: f64) -> f64 {
        let half = bytes / 2.0;
        if self.whole_halves {
            (half / self.mss).floor() * self.mss
        } else {
            half
        }
    }
}

/// A window with its growth.
#[derive(Debug)]
pub struct Classic<G> {
    pub(super) window: Window,
    growth: G,
    /// What ends the first slow start before a loss.
    exit: Option<SlowStartExit>,
    /// Smoothed round trip, if segments are paced.
    paced_srtt_s: Option<f64>,
    /// Window and threshold before the last loss, until that is undone.
    before_loss: Option<(f64, f64)>,
}

impl<G: Growth> Classic<G> {
    /// Before the first segment; `mss` is the size of a full one in bytes.
    pub fn new(config: &Config, mss: u32, growth: G) -> Classic<G> {
        Classic {
            window: Window::new(config, mss),
            growth,
            exit: SlowStartExit::new(config),
            paced_srtt_s: config.pacing.then_some(0.0),
            before_loss: None,
        }
    }

    fn decrease(&mut self, bytes: f64) {
        self.before_loss = Some((self.window.cwnd, self.window.ssthresh));
        let reduced = self.growth.decreased(&self.window, bytes);
        self.window.ssthresh = reduced.max(2.0 * self.window.mss);
    }

    /// Whether slow start ends before a loss, and if not, which share of its increase the ack brings.
    fn slow_start_share(&mut self, ack: &AckSample) -> f64 {
        let window = &mut self.window;
        let Some(exit) = self.exit.as_mut().filter(|_| window.in_slow_start(window.cwnd)) else { return 1.0 };
        exit.on_ack(ack, window.segments()).unwrap_or_else(|| {
            (window.ssthresh, self.exit) = (window.cwnd, None);
            1.0
        })
    }

    /// Slow start or congestion avoidance (RFC 5681 3.1). An ack in slow start brings `slow_start_share` of its increase.
    fn grow(&mut self, ack: &AckSample, slow_start_share: f64) {
        if !self.growth.may_grow(ack) {
            return;
        }
        let window = &mut self.window;
        for _ in 0..window.increases(ack.acked) {
            window.cwnd = if window.in_slow_start(window.cwnd) {
                window.cwnd + slow_start_share * window.slow_start_increase(ack.acked)
            } else {
                self.growth.grown(window, ack)
            };
        }
        window.cwnd = window.cwnd.min(window.limit);
    }
}

impl<G: Growth> CongestionController for Classic<G> {
    #[inline]
    fn on_sent(&mut self, sent: &Sent) {
        if sent.outstanding == 0 {
            self.growth.on_idle_end();
        }
    }

    fn on_ack(&mut self, ack: &AckSample) {
        if let Some(srtt_s) = &mut self.paced_srtt_s {
            *srtt_s = ack.srtt_s;
        }
        if ack.in_recovery {
            return;
        }
        let share = self.slow_start_share(ack);
        if ack.acked == 0 {
            return;
        }
        match ack.increase.filter(|_| !self.window.in_slow_start(self.window.cwnd)) {
            Some(increase) => self.window.cwnd = (self.window.cwnd + increase).min(self.window.limit),
            None => self.grow(ack, share),
        }
    }

    /// After a mark the window counts, not what is outstanding: the ack that carries the echo has just reduced that.
    /// The least window is one segment, the least threshold two.
    fn on_loss(&mut self, loss: &Loss) {
        self.exit = None;
        match loss.signal {
            Signal::Duplicates => {
                self.decrease(loss.flight as f64);
                self.window.cwnd = self.window.ssthresh;
            }
            // RFC 5681 3.1, equation 4.
            Signal::Timeout { again } => {
                if !again {
                    self.decrease(loss.flight as f64);
                }
                self.window.cwnd = self.window.mss;
                self.growth.on_timeout();
            }
            Signal::Mark => {
                let reduced = self.growth.marked(&self.window);
                self.window.ssthresh = reduced.max(2.0 * self.window.mss);
                self.window.cwnd = reduced.max(self.window.mss);
            }
            Signal::Quench => self.window.cwnd = self.window.mss,
        }
    }

    /// A sender that counts segments grows the window as if one ack had arrived for each of them (asym 6.3, and figure
    /// 19, where the increase does not depend on what came before): the first ends recovery, the others open the
    /// window. A sender that counts acks has had its one; 4.4BSD's and that of ns in 1997 open the window all the same.
    fn on_recovery_end(&mut self, ack: &AckSample, exit: Exit) {
        let window = &mut self.window;
        window.cwnd = match exit {
            Exit::Threshold => window.ssthresh,
            Exit::Outstanding(bytes) => window.ssthresh.min((bytes as f64).max(window.mss) + window.mss),
            Exit::Unchanged => window.cwnd,
        };
        if window.opens_after_recovery {
            self.grow(ack, 1.0);
            return;
        }
        let rest = (ack.acked as f64 - window.mss).max(0.0) as u64;
        let by_segments = matches!(window.counting, Counting::Segments | Counting::HalfSegments);
        if by_segments && rest as f64 >= window.mss {
            self.grow(&AckSample { acked: rest, ..*ack }, 1.0);
        }
    }

    fn on_spurious_loss(&mut self) {
        if let Some((cwnd, ssthresh)) = self.before_loss.take() {
            self.window.cwnd = self.window.cwnd.max(cwnd);
            self.window.ssthresh = ssthresh;
            self.growth.on_spurious_loss();
        }
    }

    /// RFC 5681 4.1: the window falls to the initial one.
    fn on_idle(&mut self) {
        if self.window.cwnd > self.window.initial {
            self.window.cwnd = self.window.initial;
            self.growth.on_idle_restart();
        }
    }

    #[inline]
    fn window(&self) -> f64 {
        self.window.cwnd
    }

    #[inline]
    fn pacing_rate(&self) -> Option<f64> {
        let srtt_s = self.paced_srtt_s.filter(|srtt_s| *srtt_s > 0.0)?;
        let (first, later) = PACING_GAINS;
        let gain = if self.window.cwnd < self.window.ssthresh / 2.0 { first } else { later };
        Some(gain * self.window.cwnd / srtt_s)
    }

    /// The initial threshold of a window that nothing bounds stands for none.
    fn ssthresh(&self) -> Option<f64> {
        let Window { ssthresh, limit, .. } = self.window;
        (ssthresh < limit || limit < UNBOUNDED).then_some(ssthresh)
    }

    fn in_slow_start(&self, cwnd: f64) -> bool {
        self.window.in_slow_start(cwnd)
    }
}
