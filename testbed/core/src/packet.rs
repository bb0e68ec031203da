//! A network-layer packet: its real bytes, and what policies and middleboxes look at, parsed once.
//!
//! Simulated bulk data carries zeros: [`Packet::zeros`] says how many zero bytes follow the materialised ones, so
//! that a million 1000-byte segments cost their headers only, while checksums and captures stay those of the whole
//! packet (zeros add nothing to a one's complement sum).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{Ipv4HeaderSlice, Ipv6HeaderSlice, TcpHeaderSlice, UdpHeaderSlice};

/// A connection in one direction; its reverse is [`FlowKey::reversed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// Sender's address.
    pub src: IpAddr,
    /// Receiver's address.
    pub dst: IpAddr,
    /// Sender's port.
    pub src_port: u16,
    /// Receiver's port.
    pub dst_port: u16,
}

impl FlowKey {
    /// The opposite direction of the same connection.
    pub const fn reversed(self) -> FlowKey {
        FlowKey { src: self.dst, dst: self.src, src_port: self.dst_port, dst_port: self.src_port }
    }
}

/// TCP flags, as in byte 13 of the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// FIN.
    pub const FIN: u8 = 0x01;
    /// SYN.
    pub const SYN: u8 = 0x02;
    /// RST.
    pub const RST: u8 = 0x04;
    /// PSH.
    pub const PSH: u8 = 0x08;
    /// ACK.
    pub const ACK: u8 = 0x10;
    /// URG.
    pub const URG: u8 = 0x20;
    /// ECE.
    pub const ECE: u8 = 0x40;
    /// CWR.
    pub const CWR: u8 = 0x80;

    /// Whether all bits of `mask` are set.
    pub const fn has(self, mask: u8) -> bool {
        self.0 & mask == mask
    }

    /// Whether any bit of `mask` is set.
    pub const fn any(self, mask: u8) -> bool {
        self.0 & mask != 0
    }
}

/// Bits of byte 12 that RFC 9293 reserves and the papers' marks use, since the papers give no encoding.
pub mod mark {
    /// Explicit loss notification (ton III-A): the missing segment was corrupted on the wireless hop.
    pub const ELN: u8 = 0x08;
    /// "Retransmit at once": a dupack that stands for a threshold of them (asym 6.1, 6.3).
    pub const FAST_RETRANSMIT: u8 = 0x04;
    /// On a data segment: an ack of its receiver was marked by a congested router (asym 6.1).
    pub const ACK_CONGESTION: u8 = 0x02;
}

/// The fields of a TCP header that something in a network looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number; meaningless without ACK.
    pub ack: u32,
    /// Flags.
    pub flags: TcpFlags,
    /// Window field, unscaled.
    pub window: u16,
    /// Bytes of data.
    pub payload: u32,
    /// Bytes of header, options included.
    pub header: u8,
    /// Number of SACK blocks it carries.
    pub sack_blocks: u8,
    /// The two mark bits, see [`mark`].
    pub marks: u8,
}

/// What the network layer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP with a readable header.
    Tcp(Tcp),
    /// UDP with this many bytes of data.
    Udp {
        /// Bytes of data.
        payload: u32,
    },
    /// Anything else: ICMP, ARP, fragments, truncated headers.
    Other,
}

/// The ECN field of the IP header (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// 00: the transport does not understand ECN.
    #[default]
    NotCapable,
    /// 01 or 10.
    Capable,
    /// 11: congestion experienced.
    Experienced,
}

/// One packet on its way. It moves through queues as a pointer: what it is stands in one place from birth to end.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Number within the run, given by whoever puts it into the network; a retransmission by TCP is a new packet, one
    /// by a link layer is not.
    pub id: u64,
    body: Box<Body>,
}

#[derive(Clone, Debug)]
struct Body {
    link_header: Option<[u8; 14]>,
    /// Ends of a shared medium.
    ports: [u16; 2],
    bytes: Vec<u8>,
    zeros: u32,
    flow: Option<FlowKey>,
    transport: Transport,
    /// Offset of what follows the IP header in `bytes`; 0: no readable IP header.
    transport_at: u16,
}

impl Packet {
    /// Takes a network-layer packet (IPv4 or IPv6; anything else is opaque) as it stands on the wire.
    pub fn from_bytes(id: u64, bytes: Vec<u8>) -> Packet {
        Packet::with_zeros(id, bytes, 0)
    }

    /// The same when `zeros` further bytes of value 0 follow `bytes` on the wire. `bytes` must hold all headers.
    pub fn with_zeros(id: u64, bytes: Vec<u8>, zeros: u32) -> Packet {
        let mut packet = Packet::opaque(id, bytes);
        packet.body.zeros = zeros;
        packet.parse();
        packet
    }

    /// A packet that is no IP: ARP and the like.
    pub fn opaque(id: u64, bytes: Vec<u8>) -> Packet {
        let transport = Transport::Other;
        Packet {
            id,
            body: Box::new(Body {
                link_header: None,
                ports: [0; 2],
                bytes,
                zeros: 0,
                flow: None,
                transport,
                transport_at: 0,
            }),
        }
    }

    /// What the driver keeps with it (the Ethernet header of the frame it came in); opaque to everybody else.
    pub fn link_header(&self) -> Option<[u8; 14]> {
        self.body.link_header
    }

    /// Keeps it.
    pub fn set_link_header(&mut self, header: [u8; 14]) {
        self.body.link_header = Some(header);
    }

    /// The end of a link with more than two at which it entered.
    pub fn from_port(&self) -> u16 {
        self.body.ports[0]
    }

    /// The end of a link with more than two to which it goes: what a frame's destination address says.
    pub fn to_port(&self) -> u16 {
        self.body.ports[1]
    }

    /// Says both, before it enters such a link.
    pub fn set_ports(&mut self, from: u16, to: u16) {
        self.body.ports = [from, to];
    }

    /// Network-layer length on the wire, in bytes.
    pub fn len(&self) -> u32 {
        self.body.bytes.len() as u32 + self.body.zeros
    }

    /// Never: a packet has a header.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The materialised bytes, from the IP header on; [`Packet::zeros`] more of value 0 follow them.
    pub fn bytes(&self) -> &[u8] {
        &self.body.bytes
    }

    /// Zero bytes that follow [`Packet::bytes`] on the wire.
    pub fn zeros(&self) -> u32 {
        self.body.zeros
    }

    /// The connection it belongs to: the 4-tuple, for TCP and UDP.
    pub fn flow(&self) -> Option<FlowKey> {
        self.body.flow
    }

    /// What it carries.
    pub fn transport(&self) -> &Transport {
        &self.body.transport
    }

    /// Its TCP fields, if it is TCP.
    pub fn tcp(&self) -> Option<&Tcp> {
        match &self.body.transport {
            Transport::Tcp(tcp) => Some(tcp),
            _ => None,
        }
    }

    /// The TCP options, as bytes.
    pub fn tcp_options(&self) -> &[u8] {
        match self.tcp() {
            Some(tcp) => {
                &self.body.bytes
                    [self.body.transport_at as usize + 20..self.body.transport_at as usize + tcp.header as usize]
            }
            None => &[],
        }
    }

    /// The materialised bytes of transport payload (zeros not included).
    pub fn payload(&self) -> &[u8] {
        let at = self.body.transport_at as usize;
        match self.body.transport {
            Transport::Tcp(tcp) => &self.body.bytes[at + tcp.header as usize..],
            Transport::Udp { .. } => &self.body.bytes[at + 8..],
            Transport::Other => &[],
        }
    }

    /// A pure ack: TCP with ACK, no data, and none of SYN, FIN, RST.
    pub fn is_pure_ack(&self) -> bool {
        self.tcp().is_some_and(|tcp| {
            tcp.payload == 0
                && tcp.flags.has(TcpFlags::ACK)
                && !tcp.flags.any(TcpFlags::SYN | TcpFlags::FIN | TcpFlags::RST)
        })
    }

    /// ECN field of the IP header.
    pub fn ecn(&self) -> Ecn {
        match self.traffic_class().map(|tos| tos & 3) {
            Some(3) => Ecn::Experienced,
            Some(1 | 2) => Ecn::Capable,
            _ => Ecn::NotCapable,
        }
    }

    /// Sets Congestion Experienced; returns whether it was ECN-capable (otherwise nothing changes).
    pub fn set_congestion_experienced(&mut self) -> bool {
        if self.ecn() == Ecn::NotCapable {
            return false;
        }
        if self.body.bytes[0] >> 4 == 4 {
            let old = u16::from_be_bytes([self.body.bytes[0], self.body.bytes[1]]);
            self.body.bytes[1] |= 3;
            let new = u16::from_be_bytes([self.body.bytes[0], self.body.bytes[1]]);
            self.patch_checksum(10, old, new);
        } else {
            self.body.bytes[1] |= 0x30;
        }
        true
    }

    /// Sets bits of byte 12 of the TCP header (see [`mark`]) and mends the checksum. Returns whether it is TCP.
    pub fn set_mark(&mut self, bits: u8) -> bool {
        let at = self.body.transport_at as usize + 12;
        let Transport::Tcp(tcp) = &mut self.body.transport else { return false };
        tcp.marks |= bits;
        let old = u16::from_be_bytes([self.body.bytes[at], self.body.bytes[at + 1]]);
        self.body.bytes[at] |= bits;
        let new = u16::from_be_bytes([self.body.bytes[at], self.body.bytes[at + 1]]);
        self.patch_checksum(self.body.transport_at as usize + 16, old, new);
        true
    }

    /// Replaces the acknowledgment number and mends the checksum. Returns whether it is TCP.
    pub fn set_ack_number(&mut self, ack: u32) -> bool {
        let at = self.body.transport_at as usize + 8;
        let Transport::Tcp(tcp) = &mut self.body.transport else { return false };
        tcp.ack = ack;
        for (offset, new) in [(at, (ack >> 16) as u16), (at + 2, ack as u16)] {
            let old = u16::from_be_bytes([self.body.bytes[offset], self.body.bytes[offset + 1]]);
            self.body.bytes[offset..offset + 2].copy_from_slice(&new.to_be_bytes());
            self.patch_checksum(self.body.transport_at as usize + 16, old, new);
        }
        true
    }

    /// Damages the TCP or UDP checksum in place, as the error model of ton IV-A does: the packet crosses the link,
    /// uses airtime, and the receiver's transport drops it. Returns false where there is no such checksum.
    pub fn damage_checksum(&mut self) -> bool {
        let at = self.body.transport_at as usize
            + match self.body.transport {
                Transport::Tcp(_) => 16,
                Transport::Udp { .. } => 6,
                Transport::Other => return false,
            };
        // Any change makes the checksum wrong, except 0 <-> 0xffff, which are the same number in one's complement.
        self.body.bytes[at + 1] ^= 0x55;
        true
    }

    /// Whether the transport checksum is right; true where there is none to check.
    pub fn checksum_ok(&self) -> bool {
        let at = self.body.transport_at as usize;
        let (Some(flow), protocol) = (
            self.body.flow,
            match self.body.transport {
                Transport::Tcp(_) => 6u16,
                Transport::Udp { .. } if self.body.bytes[at + 6..at + 8] == [0, 0] => return true,
                Transport::Udp { .. } => 17,
                Transport::Other => return true,
            },
        ) else {
            return true;
        };
        let length = self.len() - u32::from(self.body.transport_at);
        let mut sum = u64::from(protocol) + u64::from(length >> 16) + u64::from(length & 0xffff);
        sum += match (flow.src, flow.dst) {
            (IpAddr::V4(a), IpAddr::V4(b)) => ones_sum(&a.octets()) + ones_sum(&b.octets()),
            (IpAddr::V6(a), IpAddr::V6(b)) => ones_sum(&a.octets()) + ones_sum(&b.octets()),
            _ => unreachable!("both addresses come from one header"),
        };
        sum += ones_sum(&self.body.bytes[at..]);
        fold(sum) == 0xffff
    }

    /// What a router does to a packet that it forwards: takes one off its time to live (IPv4) or hop limit (IPv6). False
    /// when nothing was left of it, and the packet must go no further (RFC 1812 5.3.1).
    pub fn lower_hop_limit(&mut self) -> bool {
        let at = match self.body.bytes.first().map(|first| first >> 4) {
            Some(4) if self.body.transport_at > 0 => 8,
            Some(6) if self.body.transport_at > 0 => 7,
            _ => return true,
        };
        let left = self.body.bytes[at];
        if left <= 1 {
            return false;
        }
        self.body.bytes[at] = left - 1;
        if at == 8 {
            let protocol = self.body.bytes[9];
            self.patch_checksum(10, u16::from_be_bytes([left, protocol]), u16::from_be_bytes([left - 1, protocol]));
        }
        true
    }

    /// The whole packet as bytes, zeros included.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len() as usize);
        all.extend_from_slice(&self.body.bytes);
        all.resize(self.len() as usize, 0);
        all
    }

    fn traffic_class(&self) -> Option<u8> {
        if self.body.transport_at == 0 {
            return None;
        }
        match self.body.bytes.first()? >> 4 {
            4 => self.body.bytes.get(1).copied(),
            6 => Some(self.body.bytes.get(1)? >> 4),
            _ => None,
        }
    }

    /// RFC 1624: a checksum stays right when a 16-bit word it covers changes.
    fn patch_checksum(&mut self, at: usize, old: u16, new: u16) {
        let checksum = u16::from_be_bytes([self.body.bytes[at], self.body.bytes[at + 1]]);
        let sum = fold(u64::from(!checksum) + u64::from(!old) + u64::from(new));
        self.body.bytes[at..at + 2].copy_from_slice(&(!sum).to_be_bytes());
    }

    fn parse(&mut self) {
        let Some(version) = self.body.bytes.first().map(|b| b >> 4) else { return };
        let (src, dst, protocol, at) = match version {
            4 => {
                let Ok(ip) = Ipv4HeaderSlice::from_slice(&self.body.bytes) else { return };
                self.body.transport_at = ip.slice().len() as u16;
                if ip.is_fragmenting_payload() {
                    return;
                }
                let addresses = (Ipv4Addr::from(ip.source()), Ipv4Addr::from(ip.destination()));
                (IpAddr::V4(addresses.0), IpAddr::V4(addresses.1), ip.protocol().0, ip.slice().len())
            }
            6 => {
                let Ok(ip) = Ipv6HeaderSlice::from_slice(&self.body.bytes) else { return };
                let addresses = (Ipv6Addr::from(ip.source()), Ipv6Addr::from(ip.destination()));
                (IpAddr::V6(addresses.0), IpAddr::V6(addresses.1), ip.next_header().0, 40)
            }
            _ => return,
        };
        self.body.transport_at = at as u16;
        let rest = &self.body.bytes[at..];
        match protocol {
            6 => {
                let Ok(tcp) = TcpHeaderSlice::from_slice(rest) else { return };
                let header = tcp.slice().len();
                self.body.flow =
                    Some(FlowKey { src, dst, src_port: tcp.source_port(), dst_port: tcp.destination_port() });
                self.body.transport = Transport::Tcp(Tcp {
                    seq: tcp.sequence_number(),
                    ack: tcp.acknowledgment_number(),
                    flags: TcpFlags(rest[13]),
                    window: tcp.window_size(),
                    payload: (rest.len() - header) as u32 + self.body.zeros,
                    header: header as u8,
                    sack_blocks: count_sack_blocks(tcp.options()),
                    marks: rest[12] & 0x0e,
                });
            }
            17 => {
                let Ok(udp) = UdpHeaderSlice::from_slice(rest) else { return };
                self.body.flow =
                    Some(FlowKey { src, dst, src_port: udp.source_port(), dst_port: udp.destination_port() });
                self.body.transport = Transport::Udp { payload: rest.len() as u32 - 8 + self.body.zeros };
            }
            _ => (),
        }
    }
}

fn count_sack_blocks(mut options: &[u8]) -> u8 {
    loop {
        match options {
            [] | [0, ..] => return 0,
            [1, rest @ ..] => options = rest,
            [kind, length, ..] if *length >= 2 && usize::from(*length) <= options.len() => {
                if *kind == 5 {
                    return (length - 2) / 8;
                }
                options = &options[usize::from(*length)..];
            }
            _ => return 0,
        }
    }
}

/// Sum of big-endian 16-bit words, odd byte padded with zero; not folded.
pub fn ones_sum(bytes: &[u8]) -> u64 {
    let mut chunks = bytes.chunks_exact(2);
    let mut sum: u64 = chunks.by_ref().map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    if let [last] = chunks.remainder() {
        sum += u64::from(*last) << 8;
    }
    sum
}

/// Folds a sum of 16-bit words into one (RFC 1071).
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Builders for tests of policies, links and middleboxes: short packets with right headers and checksums.
pub mod build {
    use super::*;
    use etherparse::PacketBuilder;

    /// What a test says of a TCP segment; the rest is fixed.
    #[derive(Clone, Copy, Debug)]
    pub struct Segment {
        /// Packet number.
        pub id: u64,
        /// Which connection: gives the source port 10000 + flow.
        pub flow: u16,
        /// Sequence number.
        pub seq: u32,
        /// Acknowledgment number.
        pub ack: u32,
        /// Window field.
        pub window: u16,
        /// Bytes of (zero) payload.
        pub payload: u32,
        /// Extra flags beside ACK.
        pub flags: u8,
        /// Sent as ECN-capable.
        pub ecn: bool,
    }

    impl Default for Segment {
        fn default() -> Segment {
            Segment { id: 0, flow: 0, seq: 1, ack: 1, window: 1000, payload: 0, flags: 0, ecn: false }
        }
    }

    impl Segment {
        /// The packet.
        pub fn packet(self) -> Packet {
            let mut builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
                .tcp(10_000 + self.flow, 5001, self.seq, self.window)
                .ack(self.ack);
            if self.flags & TcpFlags::SYN != 0 {
                builder = builder.syn();
            }
            if self.flags & TcpFlags::FIN != 0 {
                builder = builder.fin();
            }
            if self.flags & TcpFlags::RST != 0 {
                builder = builder.rst();
            }
            let mut bytes = Vec::with_capacity(40 + self.payload as usize);
            let zeros = vec![0; self.payload as usize];
            builder.write(&mut bytes, &zeros).expect("a Vec takes every write");
            let mut packet = Packet::from_bytes(self.id, bytes);
            if self.ecn {
                packet.body.bytes[1] |= 2;
                packet.patch_checksum(10, 0x4500, 0x4502);
            }
            packet
        }
    }

    /// A pure ack of connection 0 with this acknowledgment number, which is also its id.
    pub fn ack(number: u32) -> Packet {
        Segment { id: u64::from(number), ack: number, ..Segment::default() }.packet()
    }

    /// A data segment of connection 0.
    pub fn data(id: u64, payload: u32) -> Packet {
        Segment { id, payload, ..Segment::default() }.packet()
    }

    /// A UDP datagram of this payload.
    pub fn udp(id: u64, payload: u32) -> Packet {
        let mut bytes = Vec::new();
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .udp(9000, 9001)
            .write(&mut bytes, &vec![0; payload as usize])
            .expect("a Vec takes every write");
        Packet::from_bytes(id, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::build::{ack, data, udp, Segment};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_router_takes_one_off_the_time_to_live_and_mends_the_checksum() {
        let mut packet = build::ack(1);
        let before = packet.bytes()[8];
        assert!(packet.lower_hop_limit());
        assert_eq!(packet.bytes()[8], before - 1);
        assert_eq!(fold(ones_sum(&packet.bytes()[..20])), 0xffff);
        while packet.bytes()[8] > 1 {
            assert!(packet.lower_hop_limit());
        }
        assert!(!packet.lower_hop_limit());
    }

    #[test]
    fn a_pure_ack_is_told_from_data_syn_and_fin() {
        assert!(ack(5).is_pure_ack());
        assert!(!data(1, 100).is_pure_ack());
        for flags in [TcpFlags::SYN, TcpFlags::FIN, TcpFlags::RST] {
            assert!(!Segment { flags, ..Segment::default() }.packet().is_pure_ack());
        }
        assert!(!udp(1, 0).is_pure_ack());
    }

    #[test]
    fn edits_keep_the_checksum_right_and_damage_breaks_it() {
        let mut packet = Segment { payload: 33, ecn: true, ..Segment::default() }.packet();
        assert!(packet.checksum_ok());
        assert!(packet.set_congestion_experienced());
        assert_eq!(packet.ecn(), Ecn::Experienced);
        assert_eq!(fold(ones_sum(&packet.bytes()[..20])), 0xffff, "IP header checksum");
        packet.set_mark(mark::FAST_RETRANSMIT);
        packet.set_ack_number(0xdead_beef);
        assert!(packet.checksum_ok());
        let again = Packet::from_bytes(1, packet.to_vec());
        assert_eq!(again.tcp(), packet.tcp());
        assert!(packet.damage_checksum());
        assert!(!packet.checksum_ok());
    }

    #[test]
    fn zeros_weigh_nothing_in_the_checksum() {
        let whole = data(1, 1000);
        let short = Packet::with_zeros(1, whole.bytes()[..40].to_vec(), 1000);
        assert_eq!(short.len(), 1040);
        assert_eq!(short.tcp().unwrap().payload, 1000);
        assert!(short.checksum_ok());
        assert_eq!(short.to_vec(), whole.bytes());
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let mut packet = Packet::from_bytes(0, bytes);
            packet.checksum_ok();
            packet.tcp_options();
            packet.payload();
            packet.set_congestion_experienced();
            packet.damage_checksum();
        }

        #[test]
        fn damaged_headers_are_taken(at in 0usize..60, value: u8, cut in 0usize..60) {
            let mut bytes = data(1, 20).to_vec();
            bytes[at] = value;
            bytes.truncate(60 - cut);
            let packet = Packet::from_bytes(0, bytes);
            packet.checksum_ok();
            packet.tcp_options();
            packet.payload();
        }
    }
}
