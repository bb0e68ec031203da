//! One TCP connection of a capture: takes its segments one by one and reports what each was.

use crate::budget::Budget;
use crate::class;
use crate::counts::Counts;
use crate::packet::{ecn, flag, Address, Checksum, TcpPacket};
use crate::stream::Stream;

/// A segment with its place in the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Number of its connection within the capture.
    pub connection: u32,
    /// 0 from the client (who sent the SYN, or the first segment captured), 1 from the server.
    pub direction: u8,
    /// Relative sequence number, unwrapped: the SYN has 0, the first byte 1.
    pub seq: i64,
    /// Relative acknowledgment number, unwrapped; -1 without ACK.
    pub ack: i64,
    /// Window in bytes, scaled if both SYNs were captured.
    pub window: i64,
    /// Bits of [`crate::class`].
    pub class: u32,
    /// Time since the segment that this ack acknowledges, if it gives a round-trip sample (Karn's rule).
    pub rtt_ns: Option<i64>,
    /// Bytes of this direction's data before the first hole, this segment included.
    pub in_order: i64,
}

/// A segment and its unwrapped sequence range `seq..end`, which includes SYN and FIN.
#[derive(Clone, Copy)]
pub(crate) struct Arrival<'a> {
    pub(crate) time_ns: i64,
    pub(crate) packet: &'a TcpPacket,
    pub(crate) seq: i64,
    pub(crate) end: i64,
    /// Row in the table of segments.
    pub(crate) row: u64,
}

/// One connection of a capture.
#[derive(Debug)]
pub struct Connection {
    /// Number within the capture.
    pub number: u32,
    /// Address and port of who sent the SYN, or the first segment captured.
    pub client: (Address, u16),
    /// Address and port of the other end.
    pub server: (Address, u16),
    /// Time of the first segment.
    pub first_ns: i64,
    /// Time of the last segment.
    pub last_ns: i64,
    /// The SYN was captured.
    pub handshake: bool,
    /// Counts of the client's and the server's segments.
    pub counts: [Counts; 2],
    pub(crate) streams: [Stream; 2],
    /// Window shift of each side; `None` unless both SYNs were captured.
    pub(crate) shifts: [Option<u8>; 2],
    /// A FIN or RST was captured.
    pub(crate) closing: bool,
}

impl Connection {
    pub(crate) fn new(number: u32, time_ns: i64, packet: &TcpPacket) -> Connection {
        // A SYN-ACK as the first segment comes from the server.
        let from_server = packet.flags & (flag::SYN | flag::ACK) == flag::SYN | flag::ACK;
        let (client, server) = if from_server { (packet.dst, packet.src) } else { (packet.src, packet.dst) };
        Connection {
            number,
            client,
            server,
            first_ns: time_ns,
            last_ns: time_ns,
            handshake: packet.flags & flag::SYN != 0,
            counts: Default::default(),
            streams: Default::default(),
            shifts: [None; 2],
            closing: false,
        }
    }

    /// Completes the counts and releases the state that only following segments needed.
    pub(crate) fn closed(mut self) -> Connection {
        for side in 0..2 {
            let acked = self.streams[1 - side].last_ack;
            let (stream, counts) = (&self.streams[side], &mut self.counts[side]);
            counts.unique_bytes = stream.unique_bytes();
            counts.base = stream.base;
            counts.lost_in_capture_bytes = stream.lost_in_capture.total();
            let fin = |ack: i64| i64::from(stream.fin_seq.is_some_and(|fin| fin < ack));
            counts.acked_bytes = acked.map_or(0, |ack| (ack - 1 - fin(ack)).max(0));
        }
        self.streams = Default::default();
        self
    }

    /// Whether this SYN opens another connection between the same ports. Both sides may send one (RFC 9293 3.5).
    pub(crate) fn is_other(&self, direction: u8, syn: &TcpPacket) -> bool {
        self.closing || self.streams[usize::from(direction)].base.is_some_and(|base| base != syn.seq)
    }

    /// Takes the next segment, which has row `row` in the table. Appends to `proved` the rows of retransmissions that
    /// it proves spurious.
    #[inline(always)]
    pub(crate) fn process(
        &mut self,
        time_ns: i64,
        packet: &TcpPacket,
        direction: usize,
        row: u64,
        budget: &mut Budget,
        proved: &mut Vec<u64>,
    ) -> Segment {
        self.last_ns = self.last_ns.max(time_ns);
        let mut class = self.classify_headers(direction, packet);
        match packet.checksum {
            Checksum::Good => self.streams[direction].good_checksum_seen = true,
            Checksum::Bad if self.streams[direction].good_checksum_seen && class & class::SUPER == 0 => {
                return self.discard(direction, packet, class | class::BAD_CHECKSUM);
            }
            _ => {}
        }
        if packet.flags & (flag::SYN | flag::FIN | flag::RST) != 0 {
            self.on_control_flags(direction, packet);
        }
        let (seq, end) = self.sequence_range(direction, packet);
        let arrival = Arrival { time_ns, packet, seq, end, row };
        let next_before = self.streams[direction].next_seq;
        class |= self.classify_sequence(direction, arrival, budget);
        let (mut ack, mut rtt_ns) = (-1, None);
        if packet.flags & flag::ACK != 0 {
            let sender = 1 - direction;
            ack = self.streams[sender].unwrap(packet.ack, packet.ack.wrapping_sub(1));
            let at_next = next_before.is_none_or(|next| next == seq);
            class |= self.classify_ack(direction, arrival, ack, class & class::PURE_ACK != 0 && at_next);
            if packet.sack_blocks > 0 {
                class |= class::SACK | self.classify_sack(sender, packet, ack, proved);
            }
            if self.streams[sender].unacked_retransmissions > 0 {
                class |= self.classify_echo(sender, packet, ack, proved);
            }
            rtt_ns = self.streams[sender].rtt.on_ack(time_ns, ack);
            if let Some(sample_ns) = rtt_ns {
                self.counts[sender].round_trips.add(sample_ns);
            }
        }
        let stream = &mut self.streams[direction];
        stream.window = Some(packet.window);
        stream.last_class = class;
        let in_order = stream.in_order();
        self.count(direction, packet, class);
        let window = self.window(direction, packet);
        Segment { connection: self.number, direction: direction as u8, seq, ack, window, class, rtt_ns, in_order }
    }

    /// The classes that need no state.
    #[inline(always)]
    fn classify_headers(&self, direction: usize, packet: &TcpPacket) -> u32 {
        let mut class = 0;
        if packet.payload > 0 {
            class |= class::DATA;
            if self.counts[1 - direction].mss.is_some_and(|mss| packet.payload > u32::from(mss)) {
                class |= class::SUPER;
            }
        } else if packet.flags & (flag::SYN | flag::FIN | flag::RST | flag::ACK) == flag::ACK {
            class |= class::PURE_ACK;
        }
        if packet.ecn != ecn::NOT_ECT {
            class |= class::ECT | if packet.ecn == ecn::CE { class::CE } else { 0 };
        }
        class
    }

    /// A packet with a wrong checksum, which the receiver discards.
    #[cold]
    fn discard(&mut self, direction: usize, packet: &TcpPacket, class: u32) -> Segment {
        let counts = &mut self.counts[direction];
        counts.packets += 1;
        counts.ip_bytes += u64::from(packet.ip_len);
        counts.bad_checksums += 1;
        Segment {
            connection: self.number,
            direction: direction as u8,
            seq: self.streams[direction].peek(packet.seq),
            ack: if packet.flags & flag::ACK != 0 { self.streams[1 - direction].peek(packet.ack) } else { -1 },
            window: self.window(direction, packet),
            class: class & !class::PURE_ACK,
            rtt_ns: None,
            in_order: self.streams[direction].in_order(),
        }
    }

    #[cold]
    fn on_control_flags(&mut self, direction: usize, packet: &TcpPacket) {
        self.closing |= packet.flags & (flag::FIN | flag::RST) != 0;
        if packet.flags & flag::SYN == 0 {
            return;
        }
        self.streams[direction].window_scale = packet.window_scale;
        self.streams[direction].syn_captured = true;
        let [client, server] = &self.streams;
        self.shifts = match (client.window_scale, server.window_scale) {
            (Some(_), Some(_)) => [client.window_scale, server.window_scale],
            _ => [(client.syn_captured && server.syn_captured).then_some(0); 2],
        };
        let counts = &mut self.counts[direction];
        counts.isn = Some(packet.seq);
        counts.mss = packet.mss;
        counts.window_scale = packet.window_scale;
        counts.sack_permitted = packet.sack_permitted;
    }

    /// Unwrapped sequence number of a segment, and of what follows it.
    #[inline(always)]
    fn sequence_range(&mut self, direction: usize, packet: &TcpPacket) -> (i64, i64) {
        let syn = i64::from(packet.flags & flag::SYN != 0);
        let fin = i64::from(packet.flags & flag::FIN != 0);
        let stream = &mut self.streams[direction];
        // Without its SYN, a stream's first byte captured counts as byte 1.
        let base = if syn == 1 { packet.seq } else { packet.seq.wrapping_sub(1) };
        let seq = stream.unwrap(packet.seq, base);
        let end = seq + syn + i64::from(packet.payload) + fin;
        if stream.next_seq.is_none() {
            stream.first_seq = seq;
        }
        if fin == 1 {
            stream.fin_seq = Some(end - 1);
        }
        (seq, end)
    }

    /// The window in bytes. A SYN's window is not scaled (RFC 7323 2.2).
    #[inline]
    fn window(&self, direction: usize, packet: &TcpPacket) -> i64 {
        let shift = if packet.flags & flag::SYN == 0 { self.shifts[direction].unwrap_or(0) } else { 0 };
        i64::from(packet.window) << shift
    }

    #[inline(always)]
    fn count(&mut self, direction: usize, packet: &TcpPacket, class: u32) {
        let counts = &mut self.counts[direction];
        counts.packets += 1;
        counts.ip_bytes += u64::from(packet.ip_len);
        counts.payload_bytes += u64::from(packet.payload);
        counts.data_packets += u64::from(class & class::DATA != 0);
        counts.pure_acks += u64::from(class & class::PURE_ACK != 0);
        counts.timestamps |= packet.timestamps.is_some();
        let common = class::NEW | class::DATA | class::PURE_ACK | class::ECT;
        if class & !common != 0 || packet.flags & !(flag::ACK | flag::PSH) != 0 {
            self.count_uncommon(direction, packet, class);
        }
    }

    #[inline(never)]
    fn count_uncommon(&mut self, direction: usize, packet: &TcpPacket, class: u32) {
        let counts = &mut self.counts[direction];
        let is = |bits: u32| u64::from(class & bits != 0);
        counts.fin |= packet.flags & flag::FIN != 0;
        counts.rst |= packet.flags & flag::RST != 0;
        counts.ece += u64::from(packet.flags & (flag::ECE | flag::SYN) == flag::ECE);
        counts.retransmissions += is(class::RETRANSMISSION);
        counts.retransmitted_bytes += is(class::RETRANSMISSION) * u64::from(packet.payload);
        counts.fast_retransmissions += is(class::FAST_RETRANSMISSION);
        counts.timeout_retransmissions += is(class::TIMEOUT);
        counts.spurious_by_ack += is(class::SPURIOUS);
        counts.out_of_order += is(class::OUT_OF_ORDER);
        counts.duplicate_acks += is(class::DUPLICATE_ACK);
        counts.window_updates += is(class::WINDOW_UPDATE);
        counts.zero_windows += is(class::ZERO_WINDOW);
        counts.keep_alives += is(class::KEEP_ALIVE);
        counts.probes += is(class::PROBE);
        counts.sacks += is(class::SACK);
        counts.dsacks += is(class::DSACK);
        counts.ce_marks += is(class::CE);
        counts.super_packets += is(class::SUPER);
    }
}
