//! What a connection reports of itself: counts, and the sender's state after each event.

use std::ops::AddAssign;
use std::time::Duration;

use backchannel_core::event::SenderSample;
use backchannel_core::time::Time;

pub use backchannel_core::event::SenderEvent;

/// State of the sender after an event.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// The event.
    pub event: SenderEvent,
    /// Congestion window in bytes.
    pub cwnd: f64,
    /// Slow-start threshold in bytes; `None` until it is set.
    pub ssthresh: Option<f64>,
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

impl Sample {
    /// The sample in the quantities of telemetry; `mss` in bytes.
    pub fn in_segments(&self, mss: f64) -> SenderSample {
        SenderSample {
            event: self.event,
            cwnd_segments: self.cwnd / mss,
            ssthresh_segments: self.ssthresh.map(|ssthresh| ssthresh / mss),
            outstanding_bytes: self.outstanding,
            rtt_s: self.srtt.map(|srtt| srtt.as_secs_f64()),
            rto_s: self.rto.as_secs_f64(),
            duplicate_acks: self.duplicates,
            burst_segments: self.burst,
        }
    }
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
    /// Recoveries that were undone, because nothing had been lost.
    pub spurious_recoveries: u64,
    /// Segments that were malformed, damaged, outside the window, or challenged.
    pub refused: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.sent += other.sent;
        self.received += other.received;
        self.retransmitted += other.retransmitted;
        self.timeouts += other.timeouts;
        self.fast_retransmits += other.fast_retransmits;
        self.duplicate_acks += other.duplicate_acks;
        self.spurious_recoveries += other.spurious_recoveries;
        self.refused += other.refused;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_two_connections_are_added_field_by_field() {
        let counts = |one: u64| Counts {
            sent: one,
            received: 2 * one,
            retransmitted: 3 * one,
            timeouts: 4 * one,
            fast_retransmits: 5 * one,
            duplicate_acks: 6 * one,
            spurious_recoveries: 7 * one,
            refused: 8 * one,
        };
        let mut sum = counts(100);
        sum += counts(1);
        assert_eq!(sum, counts(101));
    }

    #[test]
    fn sizes_are_reported_in_segments() {
        let sample = Sample {
            at: Time::ZERO,
            event: SenderEvent::FastRetransmit,
            cwnd: 3000.0,
            ssthresh: Some(2000.0),
            outstanding: 5000,
            rtt: None,
            srtt: Some(Duration::from_millis(20)),
            rto: Duration::from_secs(1),
            duplicates: 3,
            burst: 2,
        };
        let told = sample.in_segments(1000.0);
        assert_eq!((told.cwnd_segments, told.ssthresh_segments, told.rtt_s), (3.0, Some(2.0), Some(0.02)));
    }
}
