//! What a connection reports of itself: counts, and the sender's state after each event.

use std::time::Duration;

use backchannel_core::time::Time;

/// An event that changes the sender's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// An ack of new data.
    Ack,
    /// A fast retransmit.
    FastRetransmit,
    /// A retransmission of a segment known to be corrupted, which leaves the window as it was.
    CorruptionRetransmit,
    /// An echoed congestion mark that shrank the window.
    Mark,
    /// A retransmission timeout.
    Timeout,
}

impl SenderEvent {
    /// The name in telemetry files.
    pub const fn name(self) -> &'static str {
        match self {
            SenderEvent::Ack => "ack",
            SenderEvent::FastRetransmit => "fast_retransmit",
            SenderEvent::CorruptionRetransmit => "corruption_retransmit",
            SenderEvent::Mark => "mark",
            SenderEvent::Timeout => "coarse_timeout",
        }
    }
}

/// State of the sender after an event.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// The event.
    pub event: SenderEvent,
    /// Congestion window in bytes.
    pub cwnd: f64,
    /// Slow-start threshold in bytes.
    pub ssthresh: f64,
    /// Bytes outstanding.
    pub outstanding: u64,
    /// The last round-trip time measured, exactly, not in the timer's ticks.
    pub rtt: Option<Duration>,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Duplicate acks in a row.
    pub duplicates: u32,
    /// Segments of the last burst: those sent at one instant.
    pub burst: u32,
}

/// Counts of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments sent, with data or not.
    pub sent: u64,
    /// Segments with a right checksum.
    pub received: u64,
    /// Data segments retransmitted.
    pub retransmitted: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Fast retransmits.
    pub fast_retransmits: u64,
    /// Duplicate acks.
    pub duplicate_acks: u64,
    /// Segments that were malformed, damaged, outside the window, or challenged.
    pub refused: u64,
}
