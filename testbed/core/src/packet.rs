//! A network-layer packet: its bytes, and its headers parsed once.
//!
//! Simulated bulk data are zeros. [`Packet::zeros`] is the number of zero bytes that follow the stored ones, so a
//! million segments of 1000 bytes cost only their headers. Checksums and captures are those of the whole packet,
//! because zeros add nothing to a one's complement sum.

use std::net::{IpAddr, Ipv4Addr};

use crate::icmp::{self, Echo};
use crate::ids::Port;
use crate::ip::IpVersion;

pub mod build;
mod bytes;
mod edit;
mod parse;
mod sack;
mod segment;
mod segment_v6;
#[cfg(test)]
mod tests;

pub use crate::checksum::{fold, ones_sum};
use bytes::Bytes;
pub(crate) use segment::ecn_bits;
pub use segment::TcpOverIpv4;
pub use segment_v6::TcpOverIpv6;

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// Address of the sender.
    pub src: IpAddr,
    /// Address of the receiver.
    pub dst: IpAddr,
    /// Port of the sender.
    pub src_port: u16,
    /// Port of the receiver.
    pub dst_port: u16,
}

impl FlowKey {
    /// The opposite direction of the connection.
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

/// Marks in reserved bits of byte 12 of the TCP header (RFC 9293 3.1). The papers give no encoding.
pub mod mark {
    /// AE of Accurate ECN (RFC 9768 2.2): with CWR and ECE a counter of packets that were marked.
    pub const ACCURATE_ECN: u8 = 0x01;
    /// Explicit loss notification (ton III-A): the missing segment was corrupted on the wireless hop.
    pub const ELN: u8 = 0x08;
    /// Retransmit at once: a duplicate ack that replaces a threshold of them (asym 6.1, 6.3).
    pub const FAST_RETRANSMIT: u8 = 0x04;
    /// On a data segment: a congested router marked an ack of its receiver (asym 6.1).
    pub const ACK_CONGESTION: u8 = 0x02;
}

/// Fields of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number, if ACK is set.
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
    /// Mark bits, see [`mark`].
    pub marks: u8,
    /// Urgent pointer field, whether URG is set or not.
    pub urgent: u16,
}

/// Payload of the network layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportHeader {
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
    /// 00: not ECN-capable.
    #[default]
    NotCapable,
    /// 10, ECT(0).
    Capable,
    /// 01, ECT(1): of a sender that wants low latency, low loss and scalable throughput (RFC 9331).
    LowLatency,
    /// 11: congestion experienced.
    Experienced,
}

/// A packet. Queues move only a pointer; the contents stay in one place.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Number within the run. A retransmission by TCP is a new packet; one by a link layer is not.
    pub id: u64,
    body: Box<Body>,
}

#[derive(Clone, Debug)]
struct Body {
    link_header: Option<[u8; 14]>,
    /// Ends of a shared medium: from, to.
    ports: [Port; 2],
    bytes: Bytes,
    zeros: u32,
    /// Of bytes and zeros.
    length: u32,
    flow: Option<FlowKey>,
    transport: TransportHeader,
    /// Offset of the transport header in `bytes`; 0 without a readable IP header.
    transport_at: u16,
    /// The transport checksum need not be computed: it was written here, and nothing has damaged it.
    checksum_is_right: bool,
}

impl Packet {
    /// A packet from its bytes on the wire: IPv4 or IPv6. Anything else is opaque.
    pub fn from_bytes(id: u64, bytes: Vec<u8>) -> Packet {
        Packet::with_zeros(id, bytes, 0)
    }

    /// A packet of `bytes`, which contain all headers, followed by `zeros` bytes of value 0.
    pub fn with_zeros(id: u64, bytes: Vec<u8>, zeros: u32) -> Packet {
        let mut packet = Packet::opaque(id, bytes);
        packet.body.zeros = zeros;
        packet.body.length += zeros;
        packet.parse();
        packet
    }

    /// A packet that is not parsed.
    pub fn opaque(id: u64, bytes: Vec<u8>) -> Packet {
        let body = Body {
            link_header: None,
            ports: [0; 2],
            length: bytes.len() as u32,
            bytes: Bytes::Allocated(bytes),
            zeros: 0,
            flow: None,
            transport: TransportHeader::Other,
            transport_at: 0,
            checksum_is_right: false,
        };
        Packet { id, body: Box::new(body) }
    }

    /// Ethernet header of the frame that it arrived in, for the driver.
    pub fn link_header(&self) -> Option<[u8; 14]> {
        self.body.link_header
    }

    /// Stores the Ethernet header.
    pub fn set_link_header(&mut self, header: [u8; 14]) {
        self.body.link_header = Some(header);
    }

    /// End of a shared medium at which it entered.
    pub fn from_port(&self) -> Port {
        self.body.ports[0]
    }

    /// End of a shared medium to which it is addressed.
    pub fn to_port(&self) -> Port {
        self.body.ports[1]
    }

    /// Sets both, before the packet enters such a link.
    pub fn set_ports(&mut self, from: Port, to: Port) {
        self.body.ports = [from, to];
    }

    /// Length on the wire in bytes, IP header included.
    #[inline]
    pub fn len(&self) -> u32 {
        self.body.length
    }

    /// Whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The stored bytes, from the IP header on.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.body.bytes
    }

    /// Number of zero bytes that follow [`Packet::bytes`] on the wire.
    pub fn zeros(&self) -> u32 {
        self.body.zeros
    }

    /// Addresses and ports, for TCP and UDP.
    #[inline]
    pub fn flow(&self) -> Option<FlowKey> {
        self.body.flow
    }

    /// Address of the receiver, for TCP and UDP over IPv4.
    #[inline]
    pub fn destination_v4(&self) -> Option<Ipv4Addr> {
        match &self.body.flow {
            Some(FlowKey { dst: IpAddr::V4(address), .. }) => Some(*address),
            _ => None,
        }
    }

    /// Address of the receiver, for TCP, UDP and ICMP echoes.
    #[inline]
    pub fn destination(&self) -> Option<IpAddr> {
        match &self.body.flow {
            Some(flow) => Some(flow.dst),
            None => self.destination_of_echo(),
        }
    }

    #[cold]
    fn destination_of_echo(&self) -> Option<IpAddr> {
        self.echo()?;
        let bytes = self.bytes();
        match bytes[0] >> 4 {
            4 => bytes.get(16..20)?.first_chunk::<4>().map(|address| IpAddr::from(*address)),
            _ => bytes.get(24..40)?.first_chunk::<16>().map(|address| IpAddr::from(*address)),
        }
    }

    /// The header of an ICMP echo request or reply.
    #[cold]
    pub fn echo(&self) -> Option<Echo> {
        let bytes = self.bytes();
        let (ip, protocol) = match bytes.first()? >> 4 {
            4 => (IpVersion::V4, bytes.get(9)),
            6 => (IpVersion::V6, bytes.get(6)),
            _ => return None,
        };
        let is_icmp = self.body.transport == TransportHeader::Other && protocol == Some(&icmp::protocol(ip));
        match usize::from(self.body.transport_at) {
            at if is_icmp && at > 0 => Echo::parse(ip, bytes.get(at..)?),
            _ => None,
        }
    }

    /// Checksum in the header of TCP, UDP or ICMP, right or wrong; 0 without one.
    pub fn transport_checksum(&self) -> u16 {
        let at = match (self.body.transport, self.body.transport_at) {
            (_, 0) => return 0,
            (TransportHeader::Tcp(_), at) => at + 16,
            (TransportHeader::Udp { .. }, at) => at + 6,
            (TransportHeader::Other, at) => at + 2,
        };
        let bytes = self.bytes().get(usize::from(at)..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |checksum| u16::from_be_bytes(*checksum))
    }

    /// The transport header.
    pub fn transport(&self) -> &TransportHeader {
        &self.body.transport
    }

    /// The TCP header, if it is TCP.
    #[inline]
    pub fn tcp(&self) -> Option<&Tcp> {
        match &self.body.transport {
            TransportHeader::Tcp(tcp) => Some(tcp),
            _ => None,
        }
    }

    /// The TCP options, as bytes.
    #[inline]
    pub fn tcp_options(&self) -> &[u8] {
        match self.tcp() {
            Some(tcp) => {
                &self.body.bytes
                    [self.body.transport_at as usize + 20..self.body.transport_at as usize + tcp.header as usize]
            }
            None => &[],
        }
    }

    /// The stored bytes of transport payload, without the zeros.
    #[inline(always)]
    pub fn payload(&self) -> &[u8] {
        let at = self.body.transport_at as usize;
        match self.body.transport {
            TransportHeader::Tcp(tcp) => &self.body.bytes[at + tcp.header as usize..],
            TransportHeader::Udp { .. } => &self.body.bytes[at + 8..],
            TransportHeader::Other => &[],
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
    #[inline]
    pub fn ecn(&self) -> Ecn {
        match self.traffic_class().map(|tos| tos & 3) {
            Some(3) => Ecn::Experienced,
            Some(2) => Ecn::Capable,
            Some(1) => Ecn::LowLatency,
            _ => Ecn::NotCapable,
        }
    }

    /// Whether the ECN field is ECT(1) or CE, which is the identifier of L4S (RFC 9331, 2).
    pub fn is_l4s(&self) -> bool {
        self.traffic_class().is_some_and(|tos| tos & 1 == 1)
    }

    /// The whole packet, zeros included.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len() as usize);
        all.extend_from_slice(&self.body.bytes);
        all.resize(self.len() as usize, 0);
        all
    }

    #[inline]
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
}
