//! TCP segments as values, and as packets with real headers and checksums (RFC 9293 3.1, options of RFC 2018 and 7323).

use std::net::{IpAddr, Ipv4Addr};

use backchannel_core::packet::{Ecn, FlowKey, Packet, Tcp, TcpFlags};
use etherparse::{IpEcn, IpNumber, Ipv4Header, TcpHeader, TcpOptionElement};

use crate::seq::SeqNumber;

/// Bytes of an IPv4 header without options.
pub const IP_HEADER: u32 = 20;
/// Place of the TCP checksum in a packet without IP options.
const CHECKSUM_AT: usize = 36;
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

/// The fields of Pulsed ACK (pulsed 3.2). The paper gives neither their place nor their width; here they are an option.
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    pub sack: Vec<(SeqNumber, SeqNumber)>,
    /// Bytes of data.
    pub payload: u32,
    /// The peerwin option: the sender's window in segments (asym 8.2).
    pub peer_window: Option<u16>,
    /// The Pulsed ACK option.
    pub pulse: Option<Pulse>,
    /// The ack-rate request: an ack every so many segments, at most 127.
    pub request: Option<u8>,
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
    pub fn option_bytes(&self) -> u32 {
        let bytes = |present: bool, bytes: u32| if present { bytes } else { 0 };
        bytes(self.timestamps.is_some(), TIMESTAMP_OPTION)
            + bytes(self.peer_window.is_some(), PEERWIN_OPTION)
            + bytes(self.pulse.is_some(), PULSE_OPTION)
            + bytes(self.request.is_some(), REQUEST_OPTION)
    }

    /// Bytes that the SACK blocks take, padding included.
    pub fn sack_bytes(&self) -> u32 {
        if self.sack.is_empty() {
            0
        } else {
            4 + 8 * self.sack.len() as u32
        }
    }

    /// Parses a packet; `None` when it is not TCP or its checksum is wrong.
    pub fn read(packet: &Packet) -> Option<Segment> {
        packet.checksum_ok().then(|| Segment::read_damaged(packet))?
    }

    /// The same whatever the checksum, for loss notification.
    pub fn read_damaged(packet: &Packet) -> Option<Segment> {
        let tcp: &Tcp = packet.tcp()?;
        let mut segment = Segment {
            seq: SeqNumber(tcp.seq),
            ack: SeqNumber(tcp.ack),
            flags: tcp.flags.0,
            window: tcp.window,
            payload: tcp.payload,
            marks: tcp.marks,
            ecn: packet.ecn(),
            ..Segment::default()
        };
        segment.read_options(packet.tcp_options());
        Some(segment)
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
                _ => {}
            }
            rest = &rest[length..];
        }
    }

    /// The packet that carries it. Zeros follow `payload`, up to the segment's payload length.
    ///
    /// # Panics
    /// When addresses are not IPv4, or `payload` is longer than the segment: defects of the caller.
    pub fn packet(&self, id: u64, flow: FlowKey, payload: &[u8]) -> Packet {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (flow.src, flow.dst) else { panic!("the research stack speaks IPv4") };
        let mut header = TcpHeader::new(flow.src_port, flow.dst_port, self.seq.0, self.window);
        header.acknowledgment_number = self.ack.0;
        let has = |mask| self.has(mask);
        (header.fin, header.syn, header.rst) = (has(TcpFlags::FIN), has(TcpFlags::SYN), has(TcpFlags::RST));
        (header.psh, header.ack) = (has(TcpFlags::PSH), has(TcpFlags::ACK));
        (header.ece, header.cwr) = (has(TcpFlags::ECE), has(TcpFlags::CWR));
        let options = self.options();
        if !options.is_empty() {
            header.set_options(&options).expect("our options fit in 40 bytes");
        }
        let experimental = self.experimental_options();
        if !experimental.is_empty() {
            // In front: what set_options pads with ends the list.
            let all = [&experimental, header.options.as_slice()].concat();
            header.set_options_raw(&all).expect("the caller leaves room for them");
        }
        let zeros = self.payload.checked_sub(payload.len() as u32).expect("the payload fits its segment");
        let mut bytes = Vec::with_capacity(20 + header.header_len() + payload.len());
        let length = header.header_len() as u32 + self.payload;
        let mut ip = Ipv4Header::new(length as u16, 64, IpNumber::TCP, src.octets(), dst.octets())
            .expect("a segment is shorter than 64 KiB");
        ip.ecn = match self.ecn {
            Ecn::NotCapable => IpEcn::ZERO,
            Ecn::Capable => IpEcn::TWO,
            Ecn::Experienced => IpEcn::THREE,
        };
        // One more for each packet of the connection, as in Linux: header compression relies on it.
        ip.identification = id as u16;
        ip.header_checksum = ip.calc_header_checksum();
        ip.write(&mut bytes).expect("a Vec takes every write");
        header.write(&mut bytes).expect("a Vec takes every write");
        bytes.extend_from_slice(payload);
        let checksum = checksum(&bytes[IP_HEADER as usize..], src, dst, length);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
        let mut packet = Packet::with_zeros(id, bytes, zeros);
        if self.marks != 0 {
            packet.set_mark(self.marks);
        }
        packet
    }

    fn experimental_options(&self) -> Vec<u8> {
        let mut all = Vec::new();
        if let Some(window) = self.peer_window {
            all.extend([PEERWIN_KIND, 4]);
            all.extend(window.to_be_bytes());
        }
        if let Some(pulse) = self.pulse {
            all.extend([PULSE_KIND, 8]);
            all.extend(PULSE_EXPERIMENT.to_be_bytes());
            all.push(u8::from(pulse.on));
            all.extend(pulse.w.to_be_bytes());
            all.push(pulse.a);
        }
        if let Some(segments) = self.request {
            all.extend([PULSE_KIND, 5]);
            all.extend(REQUEST_EXPERIMENT.to_be_bytes());
            all.extend([segments << 1, 1, 1, 1]);
        }
        all
    }

    fn options(&self) -> Vec<TcpOptionElement> {
        use TcpOptionElement as Option_;
        let mut all = Vec::new();
        all.extend(self.mss.map(Option_::MaximumSegmentSize));
        if self.sack_permitted {
            all.push(Option_::SelectiveAcknowledgementPermitted);
        }
        if let Some((value, echo)) = self.timestamps {
            if !self.sack_permitted {
                all.extend([Option_::Noop, Option_::Noop]);
            }
            all.push(Option_::Timestamp(value, echo));
        }
        if let Some(shift) = self.window_scale {
            all.extend([Option_::Noop, Option_::WindowScale(shift)]);
        }
        if let [first, rest @ ..] = &self.sack[..] {
            let mut more = [None; 3];
            for (slot, block) in more.iter_mut().zip(rest) {
                *slot = Some((block.0 .0, block.1 .0));
            }
            all.extend([
                Option_::Noop,
                Option_::Noop,
                Option_::SelectiveAcknowledgement((first.0 .0, first.1 .0), more),
            ]);
        }
        all
    }
}

/// Checksum of a segment of `length` bytes: `bytes`, with 0 in the checksum field, and zeros behind them. Those add nothing to
/// a one's complement sum, but the length in the pseudo header counts them.
fn checksum(bytes: &[u8], src: Ipv4Addr, dst: Ipv4Addr, length: u32) -> u16 {
    use backchannel_core::packet::{fold, ones_sum};
    !fold(ones_sum(&src.octets()) + ones_sum(&dst.octets()) + 6 + u64::from(length) + ones_sum(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flow() -> FlowKey {
        FlowKey { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), src_port: 4000, dst_port: 5001 }
    }

    fn any_segment() -> impl Strategy<Value = Segment> {
        let syn = (any::<u16>(), proptest::option::of(0u8..15), any::<bool>());
        let blocks = proptest::collection::vec((any::<u32>(), any::<u32>()), 0..2);
        let blocks =
            blocks.prop_map(|all| all.into_iter().map(|(a, b)| (SeqNumber(a), SeqNumber(b))).collect::<Vec<_>>());
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
            sack: if is_syn { Vec::new() } else { sack },
            payload,
            peer_window: (!is_syn && fixed.2 & 1 == 1).then_some(fixed.2),
            pulse: (!is_syn && fixed.2 & 2 == 2).then_some(Pulse {
                on: fixed.2 & 4 == 4,
                w: fixed.2,
                a: fixed.0 as u8,
            }),
            request: (!is_syn && fixed.2 & 10 == 8).then_some(fixed.1 as u8 & 127),
            marks: (fixed.1 as u8) & 0x0e,
            ecn: [Ecn::NotCapable, Ecn::Capable, Ecn::Experienced][fixed.0 as usize % 3],
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(segment in any_segment(), given in 0usize..3000) {
            let bytes: Vec<u8> = (0..given.min(segment.payload as usize)).map(|i| i as u8).collect();
            let packet = segment.packet(1, flow(), &bytes);
            prop_assert!(packet.checksum_ok());
            prop_assert_eq!(packet.flow(), Some(flow()));
            prop_assert_eq!(Segment::read(&packet), Some(segment.clone()));
            // Zeros stand for real bytes: the packet with them spelled out has the same checksum.
            let whole = Packet::from_bytes(1, packet.to_vec());
            prop_assert!(whole.checksum_ok());
        }

        #[test]
        fn no_options_make_it_panic(options in proptest::collection::vec(any::<u8>(), 0..60)) {
            Segment::default().read_options(&options);
        }
    }

    #[test]
    fn a_wrong_checksum_is_no_segment() {
        let mut packet = Segment { payload: 100, flags: TcpFlags::ACK, ..Segment::default() }.packet(1, flow(), &[]);
        packet.damage_checksum();
        assert_eq!(Segment::read(&packet), None);
    }
}
