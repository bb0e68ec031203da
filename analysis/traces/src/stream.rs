//! One direction of a connection: the sequence numbers that were captured, the acks that it sent, and its
//! retransmissions.

use std::collections::VecDeque;

use crate::budget::{Budget, MINIMUM};
use crate::class;
use crate::ranges::Ranges;
use crate::rtt::RttEstimator;

/// State of one direction. Wireshark's names stand in parentheses where it has the same variable.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Sequence number that relative numbers count from (base_seq), once known.
    pub(crate) base: Option<u32>,
    /// Highest unwrapped number so far. The next one is unwrapped to within 2^31 of it.
    highest: i64,
    /// One beyond the highest sequence number sent (nextseq), and when it was sent (nextseqtime).
    pub(crate) next_seq: Option<i64>,
    pub(crate) next_seq_time_ns: i64,
    /// Sequence numbers that were captured or counted as delivered.
    pub(crate) captured: Ranges,
    /// Of these, the ones that were acknowledged but not captured.
    pub(crate) lost_in_capture: Ranges,
    /// First sequence number captured; 0 is the SYN.
    pub(crate) first_seq: i64,
    pub(crate) syn_captured: bool,
    pub(crate) fin_seq: Option<i64>,

    /// Highest ack that this direction sent (lastack), and when the last ack was sent (lastacktime).
    pub(crate) last_ack: Option<i64>,
    pub(crate) last_ack_time_ns: i64,
    /// Duplicates of it (dupacknum).
    pub(crate) duplicate_acks: u32,
    /// Window field of the last segment, unscaled (window).
    pub(crate) window: Option<u16>,
    /// Window scale option of the SYN (win_scale).
    pub(crate) window_scale: Option<u8>,
    /// Class of the last segment.
    pub(crate) last_class: u32,
    /// A checksum was right. A wrong one is then damage, not an offloaded checksum.
    pub(crate) good_checksum_seen: bool,
    /// End of a window probe's byte, which the receiver may accept.
    pub(crate) probe_end: Option<i64>,

    pub(crate) rtt: RttEstimator,
    /// When data was sent last, and when an ack last covered new data.
    pub(crate) last_sent_ns: i64,
    pub(crate) last_acked_ns: i64,
    pub(crate) recovery: Option<Recovery>,
    pub(crate) retransmissions: VecDeque<Retransmission>,
    /// Entries of `retransmissions` that are not acknowledged.
    pub(crate) unacked_retransmissions: usize,
    /// Holes that the budget was charged for.
    holes_charged: usize,
}

/// A loss recovery: retransmissions below `until` belong to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recovery {
    pub(crate) until: i64,
    pub(crate) timeout: bool,
}

/// A retransmission that may still turn out to be spurious.
#[derive(Debug)]
pub(crate) struct Retransmission {
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Its timestamp, if it repeated the oldest outstanding data.
    pub(crate) timestamp: Option<u32>,
    /// Its row in the table of segments.
    pub(crate) row: u64,
    pub(crate) acked: bool,
    pub(crate) proved_spurious: bool,
}

impl Stream {
    /// Unwraps a sequence number to 64 bits, relative to the base. The first call defines the base.
    #[inline]
    pub(crate) fn unwrap(&mut self, number: u32, base: u32) -> i64 {
        let base = *self.base.get_or_insert(base);
        let value = self.near_highest(number, base);
        self.highest = self.highest.max(value);
        value
    }

    /// As [`Stream::unwrap`], without a change of state. 0 if the base is unknown.
    pub(crate) fn peek(&self, number: u32) -> i64 {
        self.base.map_or(0, |base| self.near_highest(number, base))
    }

    #[inline]
    fn near_highest(&self, number: u32, base: u32) -> i64 {
        self.highest + i64::from(number.wrapping_sub(base).wrapping_sub(self.highest as u32) as i32)
    }

    /// Bytes of data before the first hole.
    #[inline]
    pub(crate) fn in_order(&self) -> i64 {
        let end = self.captured.contiguous();
        let syn = i64::from(self.first_seq == 0);
        let fin = i64::from(self.fin_seq.is_some_and(|fin| fin < end));
        (end - self.first_seq - syn - fin).max(0)
    }

    /// Distinct bytes of data that were captured.
    pub(crate) fn unique_bytes(&self) -> i64 {
        let total = self.captured.total() - self.lost_in_capture.total();
        (total - i64::from(self.first_seq == 0 && total > 0) - i64::from(self.fin_seq.is_some())).max(0)
    }

    /// Data (or SYN, FIN) beyond the highest sequence number was sent.
    #[inline]
    pub(crate) fn on_new_data(&mut self, seq: i64, end: i64, time_ns: i64, budget: &mut Budget) {
        self.next_seq = Some(end);
        self.next_seq_time_ns = time_ns;
        self.captured.add(seq, end);
        if !self.lost_in_capture.is_empty() && self.lost_in_capture.holds(seq, end) > 0 {
            self.remove_lost_in_capture(seq, end);
        }
        if self.rtt.is_idle() {
            // The retransmission timer starts with the first outstanding data (RFC 6298 5.1).
            self.last_acked_ns = time_ns;
        }
        self.last_sent_ns = time_ns;
        self.rtt.on_sent(seq, end, time_ns, budget);
        if self.captured.islands() > MINIMUM {
            self.bound_holes(budget);
        }
    }

    /// Closes the first hole if the budget does not allow for as many.
    #[cold]
    pub(crate) fn bound_holes(&mut self, budget: &mut Budget) {
        let wanted = self.captured.islands().next_multiple_of(64);
        if self.captured.islands() <= self.holes_charged.max(MINIMUM) {
            return;
        }
        if budget.charge(wanted - self.holes_charged) {
            self.holes_charged = wanted;
        } else if let Some((from, to)) = self.captured.first_hole() {
            self.captured.add(from, to);
        }
    }

    /// An ack beyond the captured data, or over holes. The receiver has what it covers, so the capture lost it.
    #[cold]
    pub(crate) fn on_ack_of_uncaptured(&mut self, ack: i64, window: i64) -> u32 {
        let Some(next_seq) = self.next_seq else { return 0 };
        if ack > next_seq + window {
            // No sender may have sent that.
            return 0;
        }
        if self.probe_end.is_some_and(|end| end == ack && end == next_seq + 1) {
            // The receiver accepted the window probe's byte.
            self.captured.add(next_seq, ack);
            self.next_seq = Some(ack);
            return 0;
        }
        let mut class = 0;
        while self.captured.contiguous() < ack {
            let from = self.captured.contiguous().max(self.first_seq);
            let to = self.captured.first_hole().map_or(ack, |(_, to)| to.min(ack));
            if self.captured.add(from, to) == 0 {
                break;
            }
            self.lost_in_capture.add(from, to);
            class = class::LOST_IN_CAPTURE;
        }
        while self.lost_in_capture.islands() > 2 * MINIMUM {
            let Some((from, to)) = self.lost_in_capture.first_hole() else { break };
            self.lost_in_capture.add(from, to);
        }
        class
    }

    /// `from..to` was captured after its ack.
    pub(crate) fn remove_lost_in_capture(&mut self, from: i64, to: i64) {
        let mut rest = Ranges::default();
        for (start, end) in self.lost_in_capture.iter() {
            rest.add(start, end.min(from).max(start));
            rest.add(start.max(to).min(end), end);
        }
        self.lost_in_capture = rest;
    }

    /// Entries that the budget gets back when the stream ends.
    pub(crate) fn charged(&self) -> usize {
        self.rtt.capacity() + self.retransmissions.capacity() + self.holes_charged
    }
}
