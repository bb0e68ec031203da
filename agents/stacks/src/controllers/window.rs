//! The congestion window and the increases that all controllers share (RFC 5681 3.1, RFC 3465; asym 6.3, 8.3).

use crate::config::Config;
use backchannel_core::choice;

choice! {
    /// How the window grows with acks.
    pub enum Counting {
        /// One increase an ack, however much it acknowledges (the papers' senders).
        Acks = "acks",
        /// As 4.4BSD's tcp_input: in avoidance an eighth of a segment more with each ack (RFC 2525 2.6), a window that
        /// equals its threshold still doubles, the ack that ends a recovery opens the window as any other, and
        /// thresholds are whole segments.
        Bsd = "bsd",
        /// By bytes acknowledged, in slow start at most two segments an ack (RFC 3465).
        Bytes = "bytes",
        /// An ack for s segments is s increases (asym 6.3, simulated).
        Segments = "segments",
        /// Half an increase a segment acknowledged: what a receiver that acks every second one would give (asym 8.3,
        /// figure 19): n = acked / (2 mss), in reals, since the printed integer division would freeze a window that is
        /// acknowledged segment by segment.
        HalfSegments = "half-segments",
    }
}

/// L of RFC 3465 2.2: segments by which one ack opens the window in slow start at most.
const L: f64 = 2.0;

/// Greatest windows from this size on, in bytes, stand for none.
const UNBOUNDED: f64 = 1e8;

/// The window of one connection, in bytes.
#[derive(Clone, Debug)]
pub struct Window {
    /// Bytes of data in a full segment.
    pub mss: f64,
    /// Congestion window. At least one segment, but for what NewReno deflates, and never above `limit`.
    pub cwnd: f64,
    /// Slow-start threshold.
    pub ssthresh: f64,
    /// Greatest congestion window: it stands for a socket buffer.
    limit: f64,
    /// How it grows.
    pub counting: Counting,
    /// Whether the ack that ends recovery opens the window as any other ack does.
    pub(super) opens_after_recovery: bool,
    /// Whether half a window is rounded down to whole segments.
    whole_halves: bool,
}

impl Window {
    /// The initial window. A configuration without a threshold has that of the greatest window.
    pub fn new(config: &Config, mss: u32) -> Window {
        let mss = f64::from(mss);
        let limit = f64::from(config.max_window_segments) * mss;
        Window {
            mss,
            cwnd: mss * f64::from(config.initial_window_segments),
            ssthresh: config.initial_ssthresh_segments.map_or(limit, |segments| f64::from(segments) * mss),
            limit,
            counting: config.counting,
            opens_after_recovery: config.counting == Counting::Bsd || config.reno_of_1997,
            whole_halves: config.whole_threshold || config.counting == Counting::Bsd,
        }
    }

    /// The slow-start threshold, unless it is the initial one, which stands for none, of a window that nothing bounds.
    pub fn threshold(&self) -> Option<f64> {
        (self.ssthresh < self.limit || self.limit < UNBOUNDED).then_some(self.ssthresh)
    }

    /// The window in segments.
    pub fn segments(&self) -> f64 {
        self.cwnd / self.mss
    }

    /// Whether the window doubles each round trip. RFC 5681 3.1 leaves open what a window that equals its threshold
    /// does: avoidance here, slow start in 4.4BSD.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh || (self.counting == Counting::Bsd && self.cwnd <= self.ssthresh)
    }

    /// The window in bytes with `segments` more, within its greatest size.
    pub fn inflated(&self, segments: u32) -> u64 {
        (self.cwnd + f64::from(segments) * self.mss).min(self.limit.max(self.cwnd)) as u64
    }

    /// Bounds the window by its greatest size.
    pub fn bound(&mut self) {
        self.cwnd = self.cwnd.min(self.limit);
    }

    /// How many increases an ack of `acked` bytes is. One by one: each sees the window that the one before left, so
    /// slow start ends where it would with one ack a segment.
    pub fn increases(&self, acked: u64) -> u64 {
        match self.counting {
            Counting::Segments => ((acked as f64 / self.mss).round() as u64).max(1),
            _ => 1,
        }
    }

    /// One increase of slow start in bytes (RFC 5681 equation 2, RFC 3465 2.2).
    pub fn slow_start_increase(&self, acked: u64) -> f64 {
        match self.counting {
            Counting::Acks | Counting::Bsd | Counting::Segments => self.mss,
            Counting::Bytes => (acked as f64).min(L * self.mss),
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
