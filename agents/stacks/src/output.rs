//! Segments that are sent: which is next, its header, its packet.

use backchannel_core::packet::{Packet, TcpFlags};
use backchannel_core::time::Time;

use crate::config::SackSender;
use crate::connection::{Connection, State};
use crate::extensions::Extension;
use crate::seq::Offset;
use crate::wire::{Segment, MOST_OPTIONS};

/// SACK blocks on an ack at most: three, as in ton III-A.
const MOST_SACK_BLOCKS: u32 = 3;

impl Connection {
    /// The next packet to send: a reset, the SYN, data, a window probe, or an ack alone.
    #[inline(always)]
    pub(crate) fn next_packet(&mut self, now: Time) -> Option<Packet> {
        if self.reset_due {
            self.reset_due = false;
            return Some(self.reset_packet(now));
        }
        if let Some(reset) = self.stray_reset.take() {
            return Some(reset);
        }
        if self.state == State::Closed {
            return None;
        }
        if self.handshake.syn_due() {
            return Some(self.syn_packet(now));
        }
        if self.state.is_opening() {
            return None;
        }
        if let Some(before) = self.early_ack.take() {
            return Some(self.early_ack_packet(now, before));
        }
        let may_have_data = self.can_send_data() && !self.sender.is_unused() && !self.data_held;
        if may_have_data {
            if let Some((at, length)) = self.sender.next_data(now, &mut self.timers) {
                return Some(self.data_packet(now, at, length));
            }
        }
        if self.sender.probe.due {
            return Some(self.probe_packet(now));
        }
        if may_have_data {
            self.sender.watch_closed_window(now, &mut self.timers);
        }
        if self.receiver.ack_now {
            return Some(self.ack_packet(now));
        }
        None
    }

    #[cold]
    fn reset_packet(&mut self, now: Time) -> Packet {
        let mut segment = Segment::default();
        self.fill_header(&mut segment, now, false);
        segment.flags |= TcpFlags::RST;
        self.receiver.on_ack_sent(0, &mut self.timers);
        self.packet(&segment, &[])
    }

    #[inline(always)]
    fn ack_packet(&mut self, now: Time) -> Packet {
        let mut segment = Segment::default();
        self.fill_header(&mut segment, now, false);
        self.ecn.on_transmit(&mut segment, false);
        self.packet(&segment, &[])
    }

    /// An ack of what came before the data that arrived last, whose marks differ (RFC 8257 3.2).
    #[inline(never)]
    fn early_ack_packet(&mut self, now: Time, before: Offset) -> Packet {
        let mut segment = Segment::default();
        self.fill_header(&mut segment, now, false);
        // Those data themselves are acknowledged right behind it.
        self.receiver.ack_now = true;
        segment.ack = self.receiver.initial.at(before);
        self.ecn.on_transmit_early(&mut segment);
        self.packet(&segment, &[])
    }

    /// Data of `length` bytes from `at` on, with the FIN if they are the last.
    #[inline(always)]
    fn data_packet(&mut self, now: Time, at: Offset, length: u64) -> Packet {
        let mut segment = Segment::default();
        self.fill_header(&mut segment, now, true);
        // SACK blocks and the option of Accurate ECN take room from the data of a full segment.
        let accurate = segment.accurate.map_or(0, |option| option.bytes());
        let options = self.data_option_bytes() + segment.sack_bytes() + accurate;
        let length = length.min(u64::from(self.largest_payload - options));
        let data_end = at + length;
        segment.seq = self.sender.initial.at(at);
        segment.payload = length as u32;
        let mut end = data_end;
        if data_end == self.sender.data_end() {
            segment.flags |= TcpFlags::PSH;
            if self.sender.source.finished() && (self.sender.window.edge > data_end || length == 0) {
                segment.flags |= TcpFlags::FIN;
                end += 1;
                self.state = match self.state {
                    State::Established => State::FinWait1,
                    State::CloseWait => State::LastAck,
                    other => other,
                };
            }
        }
        self.ecn.on_transmit(&mut segment, at >= self.sender.max && length > 0);
        self.sender.on_transmit(now, at, length, end, &mut self.timers);
        let data = self.sender.source.bytes(at.data_bytes(), length);
        self.packet(&segment, &data)
    }

    /// A probe of the peer's window (RFC 9293 3.8.6.1): what fits, or one byte beyond.
    #[cold]
    fn probe_packet(&mut self, now: Time) -> Packet {
        let nxt = self.sender.nxt;
        self.sender.probe.due = false;
        self.sender.probe.sent += 1;
        let room = self.sender.window.edge.min(self.sender.data_end()).since(nxt).min(u64::from(self.sender.mss));
        if room > 0 {
            return self.data_packet(now, nxt, room);
        }
        let mut segment = Segment::default();
        self.fill_header(&mut segment, now, true);
        segment.seq = self.sender.initial.at(nxt);
        segment.payload = 1;
        self.sender.probe.end = nxt + 1;
        let data = self.sender.source.bytes(nxt.data_bytes(), 1);
        self.packet(&segment, &data)
    }

    /// Fills an empty segment with the current ack, window and options; `data`: of a segment with data. What it
    /// acknowledges counts as acknowledged. The segment stays where it is, because a copy of fields that were just
    /// written is slow.
    #[inline(always)]
    fn fill_header(&mut self, segment: &mut Segment, now: Time, data: bool) {
        let window = self.window_to_offer();
        let initial = self.receiver.initial;
        // Behind everything sent: after a timeout, nxt is back at data that the peer may well have, and it would refuse
        // an ack that began there as old.
        segment.seq = self.sender.initial.at(self.sender.max.max(self.sender.nxt));
        segment.ack = initial.at(self.receiver.ack_offset());
        segment.flags = TcpFlags::ACK;
        segment.window = (window >> self.handshake.window_shift) as u16;
        segment.timestamps = self.timestamps.agreed.then(|| self.timestamps.option(now));
        if self.extensions.is_enabled() {
            self.extensions.on_transmit(segment, &self.sender.outgoing(data, &self.receiver));
        }
        if self.handshake.sack {
            // As many blocks as fit (RFC 2018 3).
            let taken = segment.option_bytes() + self.ecn.reserved_option_bytes() + 4;
            let room = (MOST_OPTIONS.saturating_sub(taken) / 8).min(MOST_SACK_BLOCKS) as usize;
            let blocks = if self.config.sack_sender == SackSender::Smart {
                self.receiver.smart_block().into_iter().take(room).collect()
            } else {
                self.receiver.sack_blocks(room)
            };
            segment.sack = blocks.into_iter().map(|(start, end)| (initial.at(start), initial.at(end))).collect();
        }
        self.ecn.add_option(segment, data);
        self.receiver.on_ack_sent(window, &mut self.timers);
        self.acknowledge_room();
    }

    /// Numbers a packet and counts it.
    #[inline]
    pub(crate) fn packet(&mut self, segment: &Segment, data: &[u8]) -> Packet {
        self.counts.sent += 1;
        self.last_packet += 1;
        segment.packet(self.last_packet, self.flow, data)
    }
}
