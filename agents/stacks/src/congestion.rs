//! The interface of congestion control.
//!
//! A controller alone decides on the congestion window and on the pacing rate. What a sender does with them is not its
//! concern: `recovery/` chooses what is retransmitted and inflates the window meanwhile, `pacer.rs` spaces segments.

use std::fmt::Debug;
use std::time::Duration;

use backchannel_core::time::Time;

use crate::ledger::{RateSample, SentRecord};

/// An ack of data that were not acknowledged before.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckSample {
    /// When it arrived.
    pub now: Time,
    /// Bytes by which it moves the cumulative ack; 0 where it reports only bytes beyond that (selective acks).
    pub acked: u64,
    /// Smoothed round-trip time in seconds; 0 before the first sample.
    pub srtt_s: f64,
    /// Whether the congestion window, not the application or the peer's window, limited the sender when the ack
    /// arrived.
    pub window_limited: bool,
    /// Whether the sender is in fast recovery, where the classic window does not grow.
    pub in_recovery: bool,
    /// Bytes by which the ack opens the window in congestion avoidance, where an extension decides that.
    pub increase: Option<f64>,
    /// The delivery rate, for controllers that use it.
    pub rate: Option<RateSample>,
    /// The exact round trip that the ack measured; `None`: it measured none.
    pub rtt: Option<Duration>,
    /// Whether it acknowledges data that were sent after the last ack with this mark, which makes a round trip.
    pub round_start: bool,
    /// Bytes in the network after it: without a record of each segment, those outstanding.
    pub in_flight: u64,
    /// RS.newly_acked: bytes that it delivers, cumulatively or selectively.
    pub delivered: u64,
    /// RS.newly_lost: bytes that it shows to be lost.
    pub lost: u64,
    /// Of the bytes delivered, those that the peer reports as marked with Congestion Experienced.
    pub marked: u64,
}

/// A signal of congestion.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// When the sender noticed it.
    pub now: Time,
    /// What showed it.
    pub signal: Signal,
    /// FlightSize: bytes outstanding, of those that the window let go.
    pub flight: u64,
    /// Bytes that are still in the network.
    pub in_flight: u64,
}

/// What shows congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Duplicate or selective acks: fast recovery begins.
    Duplicates,
    /// A retransmission timeout, or Tahoe's third duplicate ack: everything is sent again, from one segment on.
    Timeout {
        /// The segment has timed out before, which leaves the threshold where it is (RFC 5681 3.1).
        again: bool,
    },
    /// An echoed congestion mark (RFC 3168 6.1.2). Nothing is retransmitted.
    Mark,
    /// The full queue of the host's own interface dropped a packet (4.4BSD: ENOBUFS, then tcp_quench).
    Quench,
}

/// A segment that was lost.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// Bytes.
    pub bytes: u64,
    /// Bytes in the network after it was sent, its own included.
    pub tx_in_flight: u64,
    /// RS.lost: bytes found to be lost since then, its own included.
    pub lost: u64,
    /// Whether the application limited the sender then.
    pub is_app_limited: bool,
}

impl Lost {
    /// Of a record, with `lost` bytes of the connection so far.
    pub(crate) fn new(record: &SentRecord, lost: u64) -> Lost {
        let &SentRecord { tx_in_flight, is_app_limited, .. } = record;
        Lost { bytes: record.len(), tx_in_flight, lost: lost - record.lost, is_app_limited }
    }
}

/// The window after fast recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The slow-start threshold.
    Threshold,
    /// What is outstanding and one segment, at most the threshold: avoids a burst (RFC 6582 3.2 step 3, option 1).
    Outstanding(u64),
    /// As before recovery, which repaired damage and not congestion.
    Unchanged,
}

/// Data that are sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// When.
    pub now: Time,
    /// Bytes.
    pub bytes: u64,
    /// Bytes outstanding before it: 0 ends an idle period, however short.
    pub outstanding: u64,
    /// Whether the application had nothing to send before.
    pub is_app_limited: bool,
    /// Smoothed round-trip time in seconds; 0 before the first sample.
    pub srtt_s: f64,
}

/// A congestion-control algorithm. All sizes are in bytes, rates in bytes a second.
///
/// A controller that grows by one segment a round trip, halves at each loss, and spreads its window over the round trip.
/// [`Growth`](crate::controllers::Growth) is the shorter way to one that has slow start and Reno's reactions.
///
/// ```
/// use backchannel_core::Time;
/// use backchannel_stacks::controllers::{AckSample, CongestionController, Loss, Signal};
///
/// const MSS: f64 = 1000.0;
///
/// #[derive(Debug)]
/// struct Aimd {
///     window: f64,
///     srtt_s: f64,
/// }
///
/// impl CongestionController for Aimd {
///     fn on_ack(&mut self, ack: &AckSample) {
///         self.window += MSS * ack.acked as f64 / self.window;
///         self.srtt_s = ack.srtt_s;
///     }
///
///     fn on_loss(&mut self, _loss: &Loss) {
///         self.window = (self.window / 2.0).max(MSS);
///     }
///
///     fn window(&self) -> f64 {
///         self.window
///     }
///
///     fn pacing_rate(&self) -> Option<f64> {
///         (self.srtt_s > 0.0).then(|| self.window / self.srtt_s)
///     }
/// }
///
/// let mut control = Aimd { window: 10.0 * MSS, srtt_s: 0.0 };
/// control.on_ack(&AckSample {
///     now: Time::from_seconds(0.1),
///     acked: 10_000,
///     srtt_s: 0.1,
///     ..AckSample::default()
/// });
/// assert_eq!((control.window(), control.pacing_rate()), (11.0 * MSS, Some(110_000.0)));
/// control.on_loss(&Loss { now: Time::from_seconds(0.2), signal: Signal::Duplicates, flight: 11_000, in_flight: 10_000 });
/// assert_eq!(control.window(), 5.5 * MSS);
/// ```
pub trait CongestionController: Debug + Send {
    /// Fires on each segment with data.
    fn on_sent(&mut self, sent: &Sent) {
        let _ = sent;
    }

    /// Fires on each ack of new data, in fast recovery too.
    fn on_ack(&mut self, ack: &AckSample);

    /// Fires on each signal of congestion.
    fn on_loss(&mut self, loss: &Loss);

    /// Fires on the ack that ends fast recovery, after [`CongestionController::on_ack`].
    fn on_recovery_end(&mut self, ack: &AckSample, exit: Exit) {
        let _ = (ack, exit);
    }

    /// Fires on each segment that the sender takes to be lost, before the ack that showed it. Needs
    /// [`CongestionController::uses_rate_samples`].
    fn on_lost(&mut self, now: Time, lost: &Lost) {
        let _ = (now, lost);
    }

    /// The losses since the last [`CongestionController::on_loss`] were none: the window is restored.
    fn on_spurious_loss(&mut self) {}

    /// Fires before the first segment after a retransmission timeout's length without one (RFC 5681 4.1).
    fn on_idle(&mut self) {}

    /// The congestion window, at most `max_window_segments`, which stand for a socket buffer. The sender
    /// inflates it in fast recovery without selective acks.
    fn window(&self) -> f64;

    /// The slow-start threshold; `None`: there is none.
    fn ssthresh(&self) -> Option<f64> {
        None
    }

    /// Whether a window of `cwnd`, which fast recovery may have inflated or deflated, is one of slow start.
    fn in_slow_start(&self, cwnd: f64) -> bool {
        self.ssthresh().is_some_and(|ssthresh| cwnd < ssthresh)
    }

    /// The rate at which segments leave; `None`: as acks arrive.
    fn pacing_rate(&self) -> Option<f64> {
        None
    }

    /// Bytes that leave at once where there is a pacing rate. What leaves late then shortens the gap behind it, as in
    /// Linux. 0: a segment, with its whole gap.
    fn send_quantum(&self) -> u64 {
        0
    }

    /// Whether the ack that ends fast recovery begins the next one if segments are still lost, as in Linux; otherwise
    /// news of a loss does.
    fn recovers_at_once(&self) -> bool {
        false
    }

    /// Whether acks bring a [`RateSample`], which costs a record for each segment.
    fn uses_rate_samples(&self) -> bool {
        false
    }

    /// Whether what is sent now says nothing of the path's rate, as if the application had nothing more to send.
    fn limits_samples(&self) -> bool {
        false
    }
}
