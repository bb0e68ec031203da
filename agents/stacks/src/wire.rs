//! TCP segments as values, and as packets with real headers and checksums (RFC 9293 3.1, options of RFC 2018, 7323
//! and 9768).

use std::net::IpAddr;

use backchannel_core::packet::{Ecn, FlowKey, Packet, Tcp, TcpFlags, TcpOverIpv4, TcpOverIpv6};

pub use crate::accurate_option::AccurateOption;
pub use crate::sack_blocks::SackBlocks;
use crate::seq::SeqNumber;

/// Bytes of a TCP header without options.
pub const TCP_HEADER: u32 = 20;
/// Bytes that the timestamp option takes, padding included.
pub const TIMESTAMP_OPTION: u32 = 12;
/// Bytes that the peerwin option takes (asym 8.2).
pub const PEERWIN_OPTION: u32 = 4;
/// Bytes that the Pulsed ACK option takes.
pub const PULSE_OPTION: u32 = 8;
/// Bytes that an ack-rate request takes, padding included.
pub const REQUEST_OPTION: u32 = 8;
/// Bytes of options that a TCP header can hold.
pub const MOST_OPTIONS: u32 = 40;

/// Option kinds for experiments (RFC 4727), because the papers give no numbers.
const PEERWIN_KIND: u8 = 253;
const PULSE_KIND: u8 = 254;
/// Distinguishes this use of kind 254 from others (RFC 6994).
const PULSE_EXPERIMENT: u16 = 0x5041;
/// The same for the ack-rate request. R is the draft's, the layout is ours.
const REQUEST_EXPERIMENT: u16 = 0x4152;

/// The flag of Pulsed ACK where its fields are in the header: the first bit of the urgent pointer, whose other bits are
/// w on data and a on acks alone. Hosts without Pulsed ACK ignore the pointer, because URG is not set.
const PULSED: u16 = 0x8000;

/// The fields of Pulsed ACK (pulsed 3.2): "1 bit and 2 fields in the TCP packet header", whose place and width the
/// paper does not give. They are an option, or with `pulse_in_header` in the urgent pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// The pulsed flag: the sender is in congestion avoidance.
    pub on: bool,
    /// The sender's window in packets, on data.
    pub w: u16,
    /// Acks a round trip, on acks.
    pub a: u8,
}

/// One segment, with the numbers of the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number.
    pub seq: SeqNumber,
    /// Acknowledgment number; meaningless without ACK.
    pub ack: SeqNumber,
    /// Flags.
    pub flags: u8,
    /// Window field.
    pub window: u16,
    /// MSS option.
    pub mss: Option<u16>,
    /// Window scale option.
    pub window_scale: Option<u8>,
    /// SACK-permitted option.
    pub sack_permitted: bool,
    /// Timestamp option: value, echo.
    pub timestamps: Option<(u32, u32)>,
    /// SACK blocks, the most recent first.
    pub sack: SackBlocks,
    /// Bytes of data.
    pub payload: u32,
    /// The peerwin option: the sender's window in segments (asym 8.2).
    pub peer_window: Option<u16>,
    /// The fields of Pulsed ACK.
    pub pulse: Option<Pulse>,
    /// Whether they are in the urgent pointer instead of an option: w then is at most 32,767, and data carry no a, acks
    /// no w.
    pub pulse_in_header: bool,
    /// The ack-rate request: an ack every so many segments, at most 127.
    pub request: Option<u8>,
    /// The option of Accurate ECN.
    pub accurate: Option<AccurateOption>,
    /// Marks in reserved bits, see [`backchannel_core::packet::mark`].
    pub marks: u8,
    /// ECN field of the IP header.
    pub ecn: Ecn,
}

impl Segment {
    /// Whether all bits of `mask` are set.
    pub fn has(&self, mask: u8) -> bool {
        TcpFlags(self.flags).has(mask)
    }

    /// SEG.LEN: bytes of sequence space that it occupies.
    pub fn space(&self) -> u32 {
        self.payload + u32::from(self.has(TcpFlags::SYN)) + u32::from(self.has(TcpFlags::FIN))
    }

    /// Bytes that the options take which segments carry after the SYN, without SACK blocks, padding included.
    #[inline]
    pub fn option_bytes(&self) -> u32 {
        let bytes = |present: bool, bytes: u32| if present { bytes } else { 0 };
        bytes(self.timestamps.is_some(), TIMESTAMP_OPTION)
            + bytes(self.peer_window.is_some(), PEERWIN_OPTION)
            + bytes(self.pulse.is_some() && !self.pulse_in_header, PULSE_OPTION)
            + bytes(self.request.is_some(), REQUEST_OPTION)
            + self.accurate.map_or(0, |option| option.bytes())
    }

    /// Bytes that the SACK blocks take, padding included.
    #[inline]
    pub fn sack_bytes(&self) -> u32 {
        if self.sack.is_empty() {
            0
        } else {
            4 + 8 * self.sack.len() as u32
        }
    }

    /// Parses a packet; `None` when it is not TCP or its checksum is wrong.
    #[inline]
    pub fn read(packet: &Packet) -> Option<Segment> {
        packet.checksum_ok().then(|| Segment::read_damaged(packet))?
    }

    /// The same whatever the checksum, for loss notification.
    #[inline]
    pub fn read_damaged(packet: &Packet) -> Option<Segment> {
        let mut segment = Segment::default();
        segment.fill(packet.tcp()?, packet);
        Some(segment)
    }

    /// Fills an empty segment from a packet with this TCP header, whatever the checksum. The segment stays where it is,
    /// because a copy of fields that were just written is slow.
    #[inline(always)]
    pub(crate) fn fill(&mut self, tcp: &Tcp, packet: &Packet) {
        self.seq = SeqNumber(tcp.seq);
        self.ack = SeqNumber(tcp.ack);
        self.flags = tcp.flags.0;
        self.window = tcp.window;
        self.payload = tcp.payload;
        self.marks = tcp.marks;
        self.ecn = packet.ecn();
        if tcp.urgent != 0 && !tcp.flags.has(TcpFlags::URG) {
            self.read_header_pulse(tcp.urgent);
        }
        if u32::from(tcp.header) > TCP_HEADER {
            self.read_options(packet.tcp_options());
        }
    }

    #[cold]
    fn read_header_pulse(&mut self, urgent: u16) {
        let (on, field) = (urgent & PULSED != 0, urgent & !PULSED);
        let (w, a) = if self.payload > 0 { (field, 0) } else { (0, field.min(255) as u8) };
        self.pulse = Some(Pulse { on, w, a });
        self.pulse_in_header = true;
    }

    /// The urgent pointer.
    fn urgent(&self) -> u16 {
        let Some(pulse) = self.pulse.filter(|_| self.pulse_in_header) else { return 0 };
        let field = if self.payload > 0 { pulse.w.min(!PULSED) } else { u16::from(pulse.a) };
        field | if pulse.on { PULSED } else { 0 }
    }

    /// An option that is cut off or malformed ends the list; those before it count.
    fn read_options(&mut self, mut rest: &[u8]) {
        while let [kind, more @ ..] = rest {
            match kind {
                0 => return,
                1 => {
                    rest = more;
                    continue;
                }
                _ => {}
            }
            let Some(length) = more.first().map(|&length| usize::from(length)) else { return };
            let Some(value) = rest.get(2..length) else { return };
            let word = |at: usize| u32::from_be_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]]);
            match (*kind, value.len()) {
                (2, 2) => self.mss = Some(u16::from_be_bytes([value[0], value[1]])),
                (3, 1) => self.window_scale = Some(value[0].min(14)),
                (4, 0) => self.sack_permitted = true,
                (5, n) if n % 8 == 0 => {
                    self.sack = (0..n / 8).map(|i| (SeqNumber(word(8 * i)), SeqNumber(word(8 * i + 4)))).collect()
                }
                (PEERWIN_KIND, 2) => self.peer_window = Some(u16::from_be_bytes([value[0], value[1]])),
                (PULSE_KIND, 6) if value[..2] == PULSE_EXPERIMENT.to_be_bytes() => {
                    let w = u16::from_be_bytes([value[3], value[4]]);
                    self.pulse = Some(Pulse { on: value[2] & 1 == 1, w, a: value[5] });
                }
                (PULSE_KIND, 3) if value[..2] == REQUEST_EXPERIMENT.to_be_bytes() => self.request = Some(value[2] >> 1),
                (8, 8) => self.timestamps = Some((word(0), word(4))),
                (kind, _) => self.accurate = AccurateOption::read(kind, value).or(self.accurate),
            }
            rest = &rest[length..];
        }
    }

    /// The packet that carries it. Zeros follow `payload`, up to the segment's payload length.
    ///
    /// # Panics
    /// When the addresses are of two families, or `payload` is longer than the segment: defects of the caller.
    pub fn packet(&self, id: u64, flow: FlowKey, payload: &[u8]) -> Packet {
        let options = self.options();
        let tcp = Tcp {
            seq: self.seq.0,
            ack: self.ack.0,
            flags: TcpFlags(self.flags),
            window: self.window,
            payload: self.payload,
            header: (TCP_HEADER as usize + options.padded().len()) as u8,
            sack_blocks: self.sack.len() as u8,
            marks: self.marks,
            urgent: self.urgent(),
        };
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (flow.src, flow.dst) else {
            return self.packet_v6(id, flow, tcp, &options, payload);
        };
        let segment = TcpOverIpv4 {
            src: (src, flow.src_port),
            dst: (dst, flow.dst_port),
            tcp,
            ecn: self.ecn,
            // One more for each packet of the connection, as in Linux: header compression relies on it.
            identification: id as u16,
            options: options.padded(),
            data: payload,
        };
        segment.packet(id)
    }

    #[cold]
    fn packet_v6(&self, id: u64, flow: FlowKey, tcp: Tcp, options: &Options, data: &[u8]) -> Packet {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (flow.src, flow.dst) else {
            panic!("the addresses of {flow:?} are of two families")
        };
        let (src, dst) = ((src, flow.src_port), (dst, flow.dst_port));
        TcpOverIpv6 { src, dst, tcp, ecn: self.ecn, options: options.padded(), data }.packet(id)
    }

    fn options(&self) -> Options {
        let mut options = Options { bytes: [0; MOST_OPTIONS as usize], length: 0 };
        if let Some(window) = self.peer_window {
            options.push(&[PEERWIN_KIND, 4]);
            options.push(&window.to_be_bytes());
        }
        if let Some(pulse) = self.pulse.filter(|_| !self.pulse_in_header) {
            options.push(&[PULSE_KIND, 8]);
            options.push(&PULSE_EXPERIMENT.to_be_bytes());
            options.push(&[u8::from(pulse.on)]);
            options.push(&pulse.w.to_be_bytes());
            options.push(&[pulse.a]);
        }
        if let Some(segments) = self.request {
            options.push(&[PULSE_KIND, 5]);
            options.push(&REQUEST_EXPERIMENT.to_be_bytes());
            options.push(&[segments << 1, NOOP, NOOP, NOOP]);
        }
        if let Some(mss) = self.mss {
            options.push(&[2, 4]);
            options.push(&mss.to_be_bytes());
        }
        if self.sack_permitted {
            options.push(&[4, 2]);
        }
        if let Some((value, echo)) = self.timestamps {
            if !self.sack_permitted {
                options.push(&[NOOP, NOOP]);
            }
            options.push(&[8, 10]);
            options.push(&value.to_be_bytes());
            options.push(&echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            options.push(&[NOOP, 3, 3, shift]);
        }
        if !self.sack.is_empty() {
            options.push(&[NOOP, NOOP, 5, 2 + 8 * self.sack.len() as u8]);
            for (start, end) in self.sack.iter() {
                options.push(&start.0.to_be_bytes());
                options.push(&end.0.to_be_bytes());
            }
        }
        if let Some(option) = self.accurate {
            option.write(|bytes| options.push(bytes));
        }
        options
    }
}

const NOOP: u8 = 1;

/// TCP options as bytes.
struct Options {
    bytes: [u8; MOST_OPTIONS as usize],
    length: usize,
}

impl Options {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Zeros, which end the list, fill the last word.
    fn padded(&self) -> &[u8] {
        &self.bytes[..self.length.next_multiple_of(4)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::{fold, ones_sum};
    use backchannel_core::IpVersion;
    use proptest::prelude::*;

    fn flow(ip: IpVersion) -> FlowKey {
        let address = |last| ip.address([10, 0, 0, last].into());
        FlowKey { src: address(1), dst: address(2), src_port: 4000, dst_port: 5001 }
    }

    fn any_segment() -> impl Strategy<Value = Segment> {
        let syn = (any::<u16>(), proptest::option::of(0u8..15), any::<bool>());
        let blocks = proptest::collection::vec((any::<u32>(), any::<u32>()), 0..2);
        let blocks =
            blocks.prop_map(|all| all.into_iter().map(|(a, b)| (SeqNumber(a), SeqNumber(b))).collect::<SackBlocks>());
        let fixed = (any::<u32>(), any::<u32>(), any::<u16>(), proptest::option::of((any::<u32>(), any::<u32>())));
        (fixed, syn, blocks, 0u32..3000, any::<bool>()).prop_map(|(fixed, syn, sack, payload, is_syn)| Segment {
            seq: SeqNumber(fixed.0),
            ack: SeqNumber(fixed.1),
            flags: TcpFlags::ACK | if is_syn { TcpFlags::SYN } else { 0 },
            window: fixed.2,
            timestamps: fixed.3,
            mss: is_syn.then_some(syn.0),
            window_scale: syn.1.filter(|_| is_syn),
            sack_permitted: is_syn && syn.2,
            sack: if is_syn { SackBlocks::default() } else { sack },
            payload,
            peer_window: (!is_syn && fixed.2 & 1 == 1).then_some(fixed.2),
            pulse: (!is_syn && fixed.2 & 2 == 2).then_some(Pulse {
                on: fixed.2 & 4 == 4,
                w: fixed.2,
                a: fixed.0 as u8,
            }),
            pulse_in_header: false,
            request: (!is_syn && fixed.2 & 10 == 8).then_some(fixed.1 as u8 & 127),
            accurate: (!is_syn && fixed.2 & 11 == 0).then_some(AccurateOption {
                is_order_1: fixed.0 & 8 == 8,
                fields: [fixed.0 >> 8, fixed.1 >> 8, 0],
                count: 2,
            }),
            marks: (fixed.1 as u8) & 0x0e,
            ecn: [Ecn::NotCapable, Ecn::Capable, Ecn::Experienced][fixed.0 as usize % 3],
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(segment in any_segment(), given in 0usize..3000, is_v6: bool) {
            let flow = flow(if is_v6 { IpVersion::V6 } else { IpVersion::V4 });
            let bytes: Vec<u8> = (0..given.min(segment.payload as usize)).map(|i| i as u8).collect();
            let packet = segment.packet(1, flow, &bytes);
            prop_assert!(packet.checksum_ok());
            prop_assert_eq!(packet.flow(), Some(flow));
            let headers = if is_v6 { 60 } else { 40 };
            prop_assert_eq!(packet.len(), headers + packet.tcp_options().len() as u32 + segment.payload);
            prop_assert_eq!(Segment::read(&packet), Some(segment));
            // Zeros stand for real bytes: the packet with them spelled out has the same checksum.
            let whole = Packet::from_bytes(1, packet.to_vec());
            prop_assert!(whole.checksum_ok());
            // The headers that were not parsed are those that parsing finds.
            prop_assert_eq!((whole.flow(), whole.transport()), (packet.flow(), packet.transport()));
            prop_assert_eq!(whole.ecn(), segment.ecn);
            prop_assert!(is_v6 || fold(ones_sum(&whole.bytes()[..20])) == 0xffff);
        }

        #[test]
        fn no_options_make_it_panic(options in proptest::collection::vec(any::<u8>(), 0..60)) {
            Segment::default().read_options(&options);
        }
    }

    /// (bytes of the packet, what is read from it) of Pulsed ACK's fields in the header, with or without data.
    fn in_header(pulse: Pulse, payload: u32, flags: u8) -> (u32, Option<Pulse>) {
        let segment = Segment { pulse: Some(pulse), pulse_in_header: true, payload, flags, ..Segment::default() };
        let packet = segment.packet(1, flow(IpVersion::V4), &[]);
        assert!(packet.checksum_ok());
        (packet.len(), Segment::read(&Packet::from_bytes(1, packet.to_vec())).unwrap().pulse)
    }

    #[test]
    fn pulsed_acks_fields_in_the_header_take_no_bytes() {
        // pulsed 4.1, table 4: data of 1500 bytes, acks of 40.
        let pulse = Pulse { on: true, w: 20_000, a: 5 };
        assert_eq!(in_header(pulse, 1460, TcpFlags::ACK), (1500, Some(Pulse { on: true, w: 20_000, a: 0 })));
        assert_eq!(in_header(pulse, 0, TcpFlags::ACK), (40, Some(Pulse { on: true, w: 0, a: 5 })));
        let off = Pulse { on: false, w: 65_535, a: 0 };
        assert_eq!(in_header(off, 1460, TcpFlags::ACK), (1500, Some(Pulse { w: 32_767, ..off })));
        assert_eq!(in_header(pulse, 0, TcpFlags::ACK | TcpFlags::URG).1, None, "that is a pointer");
    }

    #[test]
    fn a_wrong_checksum_is_no_segment() {
        let segment = Segment { payload: 100, flags: TcpFlags::ACK, ..Segment::default() };
        for ip in [IpVersion::V4, IpVersion::V6] {
            let mut packet = segment.packet(1, flow(ip), &[]);
            packet.damage_checksum();
            assert_eq!(Segment::read(&packet), None);
        }
    }
}
