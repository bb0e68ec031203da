//! The rules that classify a segment. docs/traces.md lists each class and the differences from Wireshark's
//! `tcp.analysis` (packet-tcp.c, `tcp_analyze_sequence_number`), whose names `fwd` and `rev` stand for the two
//! directions: the segment's own and the opposite one.
//!
//! A classification holds at the place of the capture. Next to the sender, a hole that is filled later is a
//! retransmission. Next to the receiver it may be reordering, which its short delay tells apart.

use crate::budget::Budget;
use crate::class;
use crate::connection::{Arrival, Connection};
use crate::counts::Counts;
use crate::packet::{flag, TcpPacket};
use crate::stream::{Recovery, Retransmission, Stream};

/// A retransmission this soon after the duplicate ack that asks for it is a fast one (Wireshark).
const FAST_RETRANSMISSION_NS: i64 = 20_000_000;
/// Largest delay of a reordered segment if the handshake was not captured (Wireshark).
const REORDERING_NS: i64 = 3_000_000;
/// Retransmission timeout while there is no round-trip sample: Linux's minimum (TCP_RTO_MIN).
const TIMEOUT_NS: i64 = 200_000_000;
/// Retransmissions of one direction that wait for a proof that they were spurious.
const MAX_RETRANSMISSIONS: usize = 512;

impl Connection {
    /// What the segment's sequence numbers say.
    #[inline(always)]
    pub(crate) fn classify_sequence(&mut self, direction: usize, arrival: Arrival<'_>, budget: &mut Budget) -> u32 {
        let Arrival { time_ns, packet, seq, end, .. } = arrival;
        let rev_shift = self.shifts[1 - direction];
        let [fwd, rev] = both(&mut self.streams, direction);
        let Some(next_seq) = fwd.next_seq else {
            // The first segment of this direction.
            fwd.next_seq = Some(end);
            fwd.next_seq_time_ns = time_ns;
            if end == seq {
                return 0;
            }
            fwd.on_new_data(seq, end, time_ns, budget);
            return class::NEW;
        };
        let control = packet.flags & (flag::SYN | flag::FIN | flag::RST) != 0;
        if seq == next_seq - 1 && packet.payload <= 1 && !control && packet.flags & flag::ACK != 0 {
            return class::KEEP_ALIVE;
        }
        if end == seq {
            return if seq > next_seq { class::GAP_BEFORE } else { 0 };
        }
        if seq < next_seq {
            return self.classify_old_sequence(direction, arrival, next_seq, budget);
        }
        if packet.payload == 1 && seq == next_seq && rev.window == Some(0) && !control {
            fwd.probe_end = Some(end);
            return class::PROBE;
        }
        fwd.on_new_data(seq, end, time_ns, budget);
        let mut class = class::NEW;
        if seq > next_seq {
            class |= class::GAP_BEFORE;
        }
        if let (Some(shift), Some(ack), Some(window)) = (rev_shift, rev.last_ack, rev.window) {
            if packet.payload > 0 && !control && end == ack + (i64::from(window) << shift) {
                class |= class::WINDOW_FULL;
            }
        }
        class
    }

    /// A segment that begins below the highest sequence number: reordered or retransmitted.
    #[cold]
    fn classify_old_sequence(
        &mut self,
        direction: usize,
        arrival: Arrival<'_>,
        next_seq: i64,
        budget: &mut Budget,
    ) -> u32 {
        let Arrival { time_ns, packet, seq, end, row } = arrival;
        let [fwd, rev] = both(&mut self.streams, direction);
        let lost_in_capture = fwd.lost_in_capture.holds(seq, end);
        let new_bytes = fwd.captured.add(seq, end) + lost_in_capture;
        if lost_in_capture > 0 {
            fwd.remove_lost_in_capture(seq, end);
        }
        fwd.bound_holes(budget);
        fwd.next_seq = Some(next_seq.max(end));
        fwd.rtt.exclude(seq, end, rev.last_ack, next_seq);

        let requested = rev.duplicate_acks >= 2
            && rev.last_ack == Some(seq)
            && time_ns - rev.last_ack_time_ns < FAST_RETRANSMISSION_NS;
        if new_bytes > 0 && !requested && time_ns - fwd.next_seq_time_ns < reordering_ns(fwd, rev) {
            return class::OUT_OF_ORDER;
        }
        let oldest_outstanding = rev.last_ack.is_none_or(|ack| seq <= ack);
        let mut class = class::RETRANSMISSION;
        if lost_in_capture == 0 && rev.last_ack.is_some_and(|ack| end <= ack) {
            class |= class::SPURIOUS;
        }
        class |= classify_recovery(fwd, rev, arrival, next_seq, requested, &mut self.counts[direction]);
        fwd.last_sent_ns = time_ns;

        if fwd.retransmissions.len() >= MAX_RETRANSMISSIONS {
            if let Some(first) = fwd.retransmissions.pop_front() {
                fwd.unacked_retransmissions -= usize::from(!first.acked);
            }
        }
        let proved = class & class::SPURIOUS != 0;
        let timestamp = packet.timestamps.filter(|_| oldest_outstanding && !proved).map(|(value, _)| value);
        let entry = Retransmission { start: seq, end, timestamp, row, acked: proved, proved_spurious: proved };
        let dropped = budget.push(&mut fwd.retransmissions, entry);
        fwd.unacked_retransmissions += usize::from(!proved);
        fwd.unacked_retransmissions -= usize::from(dropped.is_some_and(|dropped| !dropped.acked));
        class
    }

    /// What the segment's ack and window say. `bare` is an ack without data whose sequence number is the next one.
    #[inline(always)]
    pub(crate) fn classify_ack(&mut self, direction: usize, arrival: Arrival<'_>, ack: i64, bare: bool) -> u32 {
        let Arrival { time_ns, packet, .. } = arrival;
        let [fwd, rev] = both(&mut self.streams, direction);
        let mut class = 0;
        if packet.window == 0 && packet.flags & (flag::SYN | flag::FIN | flag::RST) == 0 {
            class |= class::ZERO_WINDOW;
        }
        if fwd.last_ack == Some(ack) {
            let probed = rev.last_class & (class::KEEP_ALIVE | class::PROBE) != 0;
            if bare && (packet.window != 0 || probed) {
                if fwd.window != Some(packet.window) {
                    class |= if packet.window != 0 { class::WINDOW_UPDATE } else { 0 };
                } else if probed {
                    class |= class::PROBE_ACK;
                } else {
                    class |= class::DUPLICATE_ACK;
                    fwd.duplicate_acks += 1;
                }
            }
        } else if fwd.last_ack.is_none_or(|last| ack > last) {
            fwd.duplicate_acks = 0;
            fwd.last_ack = Some(ack);
            rev.last_acked_ns = time_ns;
            if rev.next_seq.is_some_and(|next| ack > next) || rev.captured.islands() > 0 {
                let window = fwd.window.unwrap_or(packet.window).max(packet.window);
                class |= rev.on_ack_of_uncaptured(ack, i64::from(window) << fwd.window_scale.unwrap_or(14));
            }
        }
        fwd.last_ack_time_ns = time_ns;
        class
    }

    /// What the SACK blocks say to data sender `sender`: a first block below the ack, or within the second block, is a
    /// D-SACK (RFC 2883 4) and may prove a retransmission spurious.
    #[cold]
    pub(crate) fn classify_sack(&mut self, sender: usize, packet: &TcpPacket, ack: i64, proved: &mut Vec<u64>) -> u32 {
        let stream = &mut self.streams[sender];
        let blocks = packet.sacks.map(|(left, right)| (stream.peek(left), stream.peek(right)));
        let (left, right) = blocks[0];
        let within_second = packet.sack_blocks > 1 && blocks[1].0 <= left && right <= blocks[1].1;
        if left >= right || !(right <= ack || within_second) {
            return 0;
        }
        let mut latest_first = stream.retransmissions.iter_mut().rev();
        let transmission = latest_first.find(|sent| !sent.proved_spurious && sent.start < right && sent.end > left);
        let Some(retransmission) = transmission else { return class::DSACK };
        retransmission.proved_spurious = true;
        proved.push(retransmission.row);
        self.counts[sender].spurious_by_dsack += 1;
        class::DSACK | class::PROVES_SPURIOUS
    }

    /// The Eifel detection algorithm (RFC 3522 3.2, step 5): if the first ack of a retransmission echoes a timestamp
    /// older than the retransmission's, it acknowledges the original segment.
    #[cold]
    pub(crate) fn classify_echo(&mut self, sender: usize, packet: &TcpPacket, ack: i64, proved: &mut Vec<u64>) -> u32 {
        let stream = &mut self.streams[sender];
        let mut class = 0;
        let mut unacked = 0;
        let latest_first = stream.retransmissions.iter_mut().rev();
        for sent in latest_first.filter(|sent| !sent.acked).take(stream.unacked_retransmissions) {
            sent.acked = sent.end <= ack;
            unacked += usize::from(!sent.acked);
            let (Some(value), Some((_, echo))) = (sent.timestamp, packet.timestamps) else { continue };
            if sent.acked && !sent.proved_spurious && (echo.wrapping_sub(value) as i32) < 0 {
                sent.proved_spurious = true;
                proved.push(sent.row);
                self.counts[sender].spurious_by_timestamp += 1;
                class |= class::PROVES_SPURIOUS;
            }
        }
        stream.unacked_retransmissions = unacked;
        class
    }
}

/// TIMEOUT or FAST_RETRANSMISSION for a retransmission, or neither. `requested`: duplicate acks just asked for it.
fn classify_recovery(
    fwd: &mut Stream,
    rev: &Stream,
    arrival: Arrival<'_>,
    next_seq: i64,
    requested: bool,
    counts: &mut Counts,
) -> u32 {
    let Arrival { time_ns, seq, .. } = arrival;
    let requested_before = rev.duplicate_acks >= 3 && rev.last_ack == Some(seq);
    // A timeout: the oldest outstanding data after an RTO without a new ack, and the sender silent for half of it
    // (duplicate acks let it send a little), or for all of it if three duplicate acks asked for this segment.
    let oldest_outstanding = rev.last_ack.is_none_or(|ack| seq <= ack);
    let rto_ns = timeout_ns(fwd, rev);
    let least_silence_ns = if requested_before { rto_ns } else { rto_ns / 2 };
    let timeout = !requested
        && oldest_outstanding
        && time_ns - fwd.last_sent_ns >= least_silence_ns
        && time_ns - fwd.last_acked_ns >= rto_ns;
    let recovery = fwd.recovery.filter(|recovery| seq < recovery.until);
    if timeout {
        counts.timeouts += 1;
        fwd.recovery = Some(Recovery { until: next_seq, timeout: true });
        return class::TIMEOUT;
    }
    if recovery.is_some_and(|recovery| recovery.timeout) && !requested {
        return class::TIMEOUT;
    }
    if recovery.is_some() || requested || requested_before {
        if recovery.is_none() {
            fwd.recovery = Some(Recovery { until: next_seq, timeout: false });
        }
        return class::FAST_RETRANSMISSION;
    }
    0
}

/// No sender detects a loss sooner than a round trip: that of the handshake, from the capture to both ends.
fn reordering_ns(fwd: &Stream, rev: &Stream) -> i64 {
    fwd.rtt
        .syn_rtt_ns
        .zip(rev.rtt.syn_rtt_ns)
        .map_or(REORDERING_NS, |(one_side, other_side)| one_side.saturating_add(other_side))
}

/// RTO of the sender (RFC 6298 2). The round trip is the sum of those from the capture to both ends. Half of Linux's
/// minimum is the lower bound.
fn timeout_ns(fwd: &Stream, rev: &Stream) -> i64 {
    let to_sender_ns = rev.rtt.smoothed.map_or(0, |(srtt, _)| srtt);
    fwd.rtt.smoothed.map_or(TIMEOUT_NS, |(srtt, rttvar)| {
        // A capture's clock may jump by centuries.
        let path_ns = srtt.saturating_add(rttvar.saturating_mul(4));
        to_sender_ns.saturating_add(path_ns).max(TIMEOUT_NS / 2)
    })
}

/// The stream of `direction` and the opposite one.
#[inline]
fn both(streams: &mut [Stream; 2], direction: usize) -> [&mut Stream; 2] {
    let [client, server] = streams;
    if direction == 0 {
        [client, server]
    } else {
        [server, client]
    }
}
