//! Builds short packets with correct headers and checksums, for tests of policies, links and middleboxes.

use std::net::IpAddr;

use etherparse::{IpHeaders, PacketBuilder, PacketBuilderStep};

use super::{Packet, TcpFlags};
use crate::ip::IpVersion;

/// A TCP segment from 10.0.0.1 to 10.0.0.2, or the IPv6 addresses of the same interfaces, port 5001.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// [`Packet::id`].
    pub id: u64,
    /// Number of the connection. Its source port is 10000 + flow.
    pub flow: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Window field.
    pub window: u16,
    /// Bytes of (zero) payload.
    pub payload: u32,
    /// Flags beside ACK.
    pub flags: u8,
    /// Whether it is ECN-capable.
    pub ecn: bool,
    /// Options as on the wire, padded with zeros to whole words.
    pub options: &'static [u8],
    /// Version of IP.
    pub ip: IpVersion,
}

impl Default for Segment {
    fn default() -> Segment {
        Segment {
            id: 0,
            flow: 0,
            seq: 1,
            ack: 1,
            window: 1000,
            payload: 0,
            flags: 0,
            ecn: false,
            options: &[],
            ip: IpVersion::V4,
        }
    }
}

fn headers(ip: IpVersion) -> PacketBuilderStep<IpHeaders> {
    let addresses = (ip.address([10, 0, 0, 1].into()), ip.address([10, 0, 0, 2].into()));
    match addresses {
        (IpAddr::V4(src), IpAddr::V4(dst)) => PacketBuilder::ipv4(src.octets(), dst.octets(), 64),
        (IpAddr::V6(src), IpAddr::V6(dst)) => PacketBuilder::ipv6(src.octets(), dst.octets(), 64),
        _ => unreachable!("both addresses are of one version"),
    }
}

impl Segment {
    /// The packet.
    pub fn packet(self) -> Packet {
        let mut builder = headers(self.ip)
            .tcp(10_000 + self.flow, 5001, self.seq, self.window)
            .ack(self.ack)
            .options_raw(self.options)
            .expect("options have at most 40 bytes");
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
            match self.ip {
                IpVersion::V4 => {
                    packet.body.bytes[1] |= 2;
                    packet.patch_checksum(10, 0x4500, 0x4502);
                }
                IpVersion::V6 => packet.body.bytes[1] |= 0x20,
            }
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

/// A UDP datagram with this many bytes of payload.
pub fn udp(id: u64, payload: u32) -> Packet {
    udp_over(IpVersion::V4, id, payload)
}

/// The same over either version of IP.
pub fn udp_over(ip: IpVersion, id: u64, payload: u32) -> Packet {
    let mut bytes = Vec::new();
    headers(ip).udp(9000, 9001).write(&mut bytes, &vec![0; payload as usize]).expect("a Vec takes every write");
    Packet::from_bytes(id, bytes)
}
