//! Opening a connection (RFC 9293 3.5), and the options that both sides agree on.

use std::sync::Arc;

use backchannel_core::packet::{FlowKey, Packet, TcpFlags};
use backchannel_core::time::Time;
use backchannel_core::transport::End;

use crate::acks::IncomingAck;
use crate::config::Config;
use crate::connection::{Connection, State};
use crate::extensions::Extension;
use crate::seq::{Offset, SeqNumber};
use crate::source::Source;
use crate::timers::Timer;
use crate::wire::{Segment, TIMESTAMP_OPTION};

/// The peer's segment size where it does not report one (RFC 9293 3.7.1).
const DEFAULT_MSS: u16 = 536;
/// The least segment size that is accepted from a peer.
const LEAST_MSS: u32 = 64;

impl Connection {
    /// Opens a connection to `flow.dst`; the SYN is the first packet to transmit.
    pub fn connect(
        config: impl Into<Arc<Config>>,
        flow: FlowKey,
        initial: impl Into<SeqNumber>,
        source: Source,
    ) -> Connection {
        let mut connection = Connection::new(config.into(), flow, initial.into(), source);
        connection.handshake.request_syn();
        connection
    }

    /// Answers a SYN that arrived at `flow.src`; `None` when the packet is not a SYN that can be answered.
    pub fn accept(
        config: impl Into<Arc<Config>>,
        flow: FlowKey,
        initial: impl Into<SeqNumber>,
        source: Source,
        syn: &Packet,
    ) -> Option<Connection> {
        let segment = Segment::read(syn)?;
        if !segment.has(TcpFlags::SYN) || TcpFlags(segment.flags).any(TcpFlags::ACK | TcpFlags::RST | TcpFlags::FIN) {
            return None;
        }
        let mut connection = Connection::new(config.into(), flow, initial.into(), source);
        connection.state = State::SynReceived;
        connection.on_syn(&segment);
        connection.counts.received = 1;
        connection.handshake.request_syn();
        Some(connection)
    }

    /// The peer's SYN: its number, its window, and the options that both sides offer.
    fn on_syn(&mut self, syn: &Segment) {
        self.receiver.on_syn(syn.seq);
        match syn.window_scale.filter(|_| self.config.window_scaling) {
            Some(shift) => self.sender.window.shift = shift,
            None => self.handshake.window_shift = 0,
        }
        self.timestamps.on_syn(syn, self.config.timestamps);
        self.handshake.sack = self.config.sack && syn.sack_permitted;
        self.receiver.on_agreement(self.handshake.sack);
        self.ecn.on_syn(syn);
        // Options are taken off what fits (RFC 6691).
        let peer_mss = u32::from(syn.mss.unwrap_or(DEFAULT_MSS)).max(LEAST_MSS);
        let mss = peer_mss.min(self.largest_payload) - self.data_option_bytes();
        self.sender.on_agreement(mss, self.handshake.sack);
        self.sender.window.on_syn(self.sender.una, syn.window);
    }

    /// Bytes of the options that every data segment carries.
    pub(crate) fn data_option_bytes(&self) -> u32 {
        let timestamps = if self.timestamps.agreed { TIMESTAMP_OPTION } else { 0 };
        timestamps + self.extensions.data_option_bytes()
    }

    /// Our SYN or SYN+ACK.
    pub(crate) fn syn_packet(&mut self, now: Time) -> Packet {
        self.handshake.on_syn_sent();
        self.sender.nxt = Offset::FIRST_BYTE;
        self.sender.max = self.sender.max.max(Offset::FIRST_BYTE);
        self.timers.set(Timer::Retransmission, self.sender.rtt.deadline(now));
        let answering = self.state == State::SynReceived;
        let offers = |ours: bool, agreed: bool| ours && (!answering || agreed);
        let scaling = self.handshake.window_shift > 0 || self.sender.window.shift > 0;
        let mut segment = Segment {
            seq: self.sender.initial,
            flags: TcpFlags::SYN,
            window: self.receiver.window_size().min(65_535) as u16,
            mss: Some(self.largest_payload.min(65_495) as u16),
            window_scale: offers(self.config.window_scaling, scaling).then_some(self.handshake.window_shift),
            sack_permitted: offers(self.config.sack, self.handshake.sack),
            timestamps: offers(self.config.timestamps, self.timestamps.agreed).then(|| self.timestamps.option(now)),
            ..Segment::default()
        };
        self.ecn.on_transmit_syn(&mut segment, answering);
        if answering {
            segment.flags |= TcpFlags::ACK;
            segment.ack = self.receiver.initial + 1;
        }
        self.receiver.on_ack_sent(u64::from(segment.window), &mut self.timers);
        self.packet(&segment, &[])
    }

    /// A segment in SYN-SENT (RFC 9293 3.10.7.3).
    pub(crate) fn segment_in_syn_sent(&mut self, now: Time, segment: &Segment, packet: &Packet) {
        let acks = segment.has(TcpFlags::ACK);
        if acks && segment.ack != self.sender.initial + 1 {
            self.answer_with_reset(packet);
            return;
        }
        if segment.has(TcpFlags::RST) {
            if acks {
                self.close(End::Reset);
            }
            return;
        }
        if !segment.has(TcpFlags::SYN) {
            return;
        }
        self.on_syn(segment);
        if !acks {
            // Simultaneous open.
            self.state = State::SynReceived;
            self.handshake.request_syn();
            return;
        }
        self.sender.una = Offset::FIRST_BYTE;
        self.establish();
        if self.config.handshake_sample {
            let echo_sent = self.echo_sent(now, segment);
            let (seq, ack) = (Offset::SYN, Offset::FIRST_BYTE);
            self.sender.sample_rtt(now, &IncomingAck { segment, seq, ack, echo_sent });
        }
        self.receiver.ack_now = true;
    }

    /// Our SYN is acknowledged.
    pub(crate) fn establish(&mut self) {
        self.state = State::Established;
        self.timers.stop(Timer::Retransmission);
        self.sender.rtt.backoff = 0;
    }
}
