//! Segments that arrive (RFC 9293 3.10.7): acceptable or not, acks, data, FIN.

use std::time::Duration;

use backchannel_core::packet::{Packet, TcpFlags};
use backchannel_core::time::Time;
use backchannel_core::transport::{Chunk, End};

use crate::acks::IncomingAck;
use crate::connection::{Connection, State};
use crate::extensions::Extension;
use crate::reset::reset_for;
use crate::sender::Context;
use crate::seq::Offset;
use crate::wire::Segment;

impl Connection {
    /// Takes a packet; one that is malformed or damaged is counted, and reported to extensions.
    #[inline(never)]
    pub(crate) fn take_packet(&mut self, now: Time, packet: &Packet) {
        let Some(tcp) = packet.tcp().filter(|_| packet.checksum_ok()) else {
            self.counts.refused += 1;
            self.on_damaged(packet);
            return;
        };
        let mut segment = Segment::default();
        segment.fill(tcp, packet);
        self.counts.received += 1;
        self.sender.received_at = now;
        if self.ecn.ends_run(&segment) && self.receiver.has_unacknowledged() {
            self.early_ack = Some(self.receiver.ack_offset());
        }
        self.receiver.ack_now |= self.ecn.on_segment(&segment);
        match self.state {
            State::Closed => {}
            State::SynSent => self.segment_in_syn_sent(now, &segment, packet),
            _ => self.segment_in_connection(now, &mut segment, packet),
        }
    }

    #[cold]
    fn on_damaged(&mut self, packet: &Packet) {
        if matches!(self.state, State::SynSent | State::Closed) {
            return;
        }
        if let Some(segment) = Segment::read_damaged(packet) {
            let start = segment.seq.expand(self.receiver.initial, self.receiver.next);
            if start >= Offset::FIRST_BYTE {
                self.extensions.on_damaged(start, start + u64::from(segment.payload), self.receiver.next);
            }
        }
    }

    /// A segment in any state but CLOSED and SYN-SENT (RFC 9293 3.10.7.4).
    #[inline(always)]
    fn segment_in_connection(&mut self, now: Time, segment: &mut Segment, packet: &Packet) {
        let mut seq = segment.seq.expand(self.receiver.initial, self.receiver.next);
        if self.state == State::SynReceived && segment.has(TcpFlags::SYN) && seq == Offset::SYN {
            if !segment.has(TcpFlags::ACK) {
                // The peer has not received our SYN+ACK.
                self.handshake.request_syn();
                return;
            }
            // Simultaneous open (3.5, figure 7): its SYN is known, the rest of the segment counts.
            segment.flags &= !TcpFlags::SYN;
            seq = Offset::FIRST_BYTE;
        }
        if !self.passes_checks(now, segment, seq) {
            return;
        }
        let ack = segment.ack.expand(self.sender.initial, self.sender.una);
        let opening = self.state == State::SynReceived;
        // RFC 5961 5.2: an ack of what was not sent, or older than anything that the peer may still have to say.
        let is_old = ack + self.sender.window.largest < self.sender.una;
        if ack > self.sender.max.max(self.sender.probe.end) || (opening && ack < Offset::FIRST_BYTE) || is_old {
            if opening {
                self.answer_with_reset(packet);
            } else {
                self.challenge(now);
            }
            return;
        }
        if seq <= self.receiver.last_acked {
            self.timestamps.on_segment(segment);
        }
        if opening {
            self.ecn.on_accepted();
            self.establish();
        }
        let echo_sent = self.echo_sent(now, segment);
        let Connection { sender, timers, ecn, extensions, .. } = self;
        let incoming = IncomingAck { segment, seq: seq.max(Offset::SYN), ack, echo_sent };
        if sender.on_ack(&incoming, &mut Context { now, timers, ecn, extensions }) {
            self.on_fin_acknowledged(now);
        }
        if self.state != State::Closed {
            self.take_data(now, segment, packet, seq);
            self.take_fin(now, segment, seq);
        }
    }

    /// The checks of 3.10.7.4 in order: old duplicate, window, RST, SYN, ACK. A segment that fails is dropped; where
    /// the RFCs ask for it, an ack answers.
    #[inline(always)]
    fn passes_checks(&mut self, now: Time, segment: &Segment, seq: Offset) -> bool {
        let reset = segment.has(TcpFlags::RST);
        if (self.timestamps.is_old(segment) && !reset) || !self.is_acceptable(seq, segment) {
            self.counts.refused += 1;
            self.receiver.ack_now |= !reset;
            self.receiver.on_refused(seq, u64::from(segment.payload));
            return false;
        }
        if reset {
            // RFC 5961 3.2: only a reset at the very next number, behind the FIN if there was one, closes.
            if seq == self.receiver.ack_offset() {
                self.close(End::Reset);
            } else {
                self.challenge(now);
            }
            return false;
        }
        if segment.has(TcpFlags::SYN) {
            // RFC 5961 4.2.
            self.challenge(now);
            return false;
        }
        segment.has(TcpFlags::ACK)
    }

    /// RFC 9293 3.10.7.4, table 6.
    fn is_acceptable(&self, seq: Offset, segment: &Segment) -> bool {
        let (next, window) = (self.receiver.ack_offset(), self.receiver.window_size());
        let length = u64::from(segment.space());
        match (length, window) {
            (0, 0) => seq == next,
            (0, _) => (next..next + window).contains(&seq),
            // Nothing fits, but its ack is still of use (3.8.6.1: a sender probes a closed window).
            (_, 0) => seq == next,
            _ => seq < next + window && seq + length > next,
        }
    }

    /// Drops a segment with a challenge ack (RFC 5961 3.2, 4.2, 5.2), or without one beyond the limit of section 7.
    fn challenge(&mut self, now: Time) {
        self.counts.refused += 1;
        self.receiver.ack_now |= self.challenges.may_send(now);
    }

    /// An ack of what was never sent, while a connection is being opened (RFC 9293 3.10.7.3, 3.10.7.4).
    pub(crate) fn answer_with_reset(&mut self, packet: &Packet) {
        self.counts.refused += 1;
        self.last_packet += 1;
        self.stray_reset = reset_for(self.last_packet, packet);
    }

    /// When the segment was sent whose timestamp `segment` echoes.
    pub(crate) fn echo_sent(&self, now: Time, segment: &Segment) -> Option<Time> {
        let since = self.timestamps.since_echo(now, segment)?;
        Some(Time(now.nanos().saturating_sub(nanos(since))))
    }

    fn on_fin_acknowledged(&mut self, now: Time) {
        match self.state {
            State::FinWait1 => self.state = State::FinWait2,
            State::Closing => self.enter_time_wait(now),
            State::LastAck => self.close(End::Finished),
            _ => {}
        }
    }

    #[inline(always)]
    fn take_data(&mut self, now: Time, segment: &Segment, packet: &Packet, seq: Offset) {
        if segment.payload == 0 || self.receiver.finished {
            return;
        }
        self.extensions.on_data(now, segment, self.timestamps.since_echo(now, segment));
        // A SYN's number comes before its data; data before the first byte cannot be.
        let start = seq + u64::from(segment.has(TcpFlags::SYN));
        if start >= Offset::FIRST_BYTE {
            let stored = packet.payload();
            let zeros = u64::from(segment.payload) - stored.len() as u64;
            // Most data are zeros, and a copy of nothing is a call of memcpy.
            let bytes = if stored.is_empty() { Vec::new() } else { stored.to_vec() };
            let segments_per_ack = (!self.sender.era.acks_by_space).then(|| self.segments_per_ack());
            let rtt = self.sender.rtt.srtt();
            self.receiver.on_data(now, start, Chunk { bytes, zeros }, segments_per_ack, rtt, &mut self.timers);
        } else {
            self.receiver.ack_now = true;
        }
        self.deliver();
    }

    /// A FIN counts when everything before it has arrived.
    #[inline(always)]
    fn take_fin(&mut self, now: Time, segment: &Segment, seq: Offset) {
        if segment.has(TcpFlags::FIN) {
            self.receiver.ack_now = true;
            let at = seq + u64::from(segment.payload);
            if at >= Offset::FIRST_BYTE {
                self.receiver.fin.get_or_insert(at);
            }
            if self.state == State::TimeWait {
                // The peer has not received our last ack.
                self.enter_time_wait(now);
            }
        }
        if self.receiver.finished || self.receiver.fin != Some(self.receiver.next) {
            return;
        }
        self.receiver.finished = true;
        self.receiver.ack_now = true;
        match self.state {
            State::Established | State::SynReceived => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}
