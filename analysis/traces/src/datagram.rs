//! Packets of UDP, and echoes of ICMP and ICMPv6, from captured frames.
//!
//! Of a packet in fragments, the first one counts, with the length of the whole packet where its header has it.

use backchannel_core::icmp;
use backchannel_core::ip::IpVersion;

use crate::capture::Frame;
use crate::decode::Address;
use crate::link_layer::ip_packet;

/// UDP's protocol number.
const UDP: u8 = 17;

/// A packet of UDP, or an echo request or reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// Sender and receiver.
    pub src: Address,
    /// See `src`.
    pub dst: Address,
    /// 17 for UDP, 1 for ICMP, 58 for ICMPv6.
    pub protocol: u8,
    /// UDP: the ports of sender and receiver. Echoes: identifier and sequence number.
    pub numbers: [u16; 2],
    /// An echo reply.
    pub reply: bool,
    /// Length of the IP packet in bytes.
    pub ip_len: u32,
    /// Identification of the IP packet; 0 for IPv6.
    pub ip_id: u16,
    /// Checksum of UDP or ICMP, as it was captured.
    pub checksum: u16,
}

impl Datagram {
    /// The datagram that a frame carries. `None` for every other protocol, and if its headers are cut.
    pub fn of(frame: &Frame) -> Option<Datagram> {
        let ip = ip_packet(frame.link_type, frame.data).ok()?;
        match ip.first()? >> 4 {
            4 => of_ipv4(ip),
            6 => of_ipv6(ip),
            _ => None,
        }
    }
}

fn of_ipv4(ip: &[u8]) -> Option<Datagram> {
    let fixed: &[u8; 20] = ip.first_chunk()?;
    let header_len = usize::from(fixed[0] & 15) * 4;
    let be16 = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let address =
        |at: usize| Address::four(u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]));
    // A later fragment has no header of its own.
    if header_len < 20 || be16(6) & 0x1fff != 0 {
        return None;
    }
    let around = Around {
        addresses: [address(12), address(16)],
        headers_len: header_len as u32,
        ip_len: be16(2).into(),
        ip_id: be16(4),
        is_first_fragment: be16(6) & 0x2000 != 0,
    };
    around.datagram(IpVersion::V4, fixed[9], ip.get(header_len..)?)
}

fn of_ipv6(ip: &[u8]) -> Option<Datagram> {
    let fixed: &[u8; 40] = ip.first_chunk()?;
    let address = |at: usize| fixed[at..].first_chunk().map(|bytes| Address(u128::from_be_bytes(*bytes)));
    let mut around = Around {
        addresses: [address(8)?, address(24)?],
        headers_len: 40,
        ip_len: 40 + u32::from(u16::from_be_bytes([fixed[4], fixed[5]])),
        ip_id: 0,
        is_first_fragment: false,
    };
    let mut next_header = fixed[6];
    loop {
        let rest = ip.get(around.headers_len as usize..)?;
        let length = match next_header {
            // Hop-by-hop and destination options, routing.
            0 | 43 | 60 => (u32::from(*rest.get(1)?) + 1) * 8,
            44 => {
                let place = u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]);
                if place & 0xfff8 != 0 {
                    return None;
                }
                around.is_first_fragment = place & 1 != 0;
                8
            }
            protocol => return around.datagram(IpVersion::V6, protocol, rest),
        };
        next_header = *rest.first()?;
        around.headers_len += length;
    }
}

/// The IP layer around a datagram.
struct Around {
    addresses: [Address; 2],
    headers_len: u32,
    ip_len: u32,
    ip_id: u16,
    is_first_fragment: bool,
}

impl Around {
    fn datagram(&self, ip: IpVersion, protocol: u8, transport: &[u8]) -> Option<Datagram> {
        let header: &[u8; 8] = transport.first_chunk()?;
        let be16 = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (numbers, reply, checksum, whole) = if protocol == UDP {
            ([be16(0), be16(2)], false, be16(6), Some(u32::from(be16(4))))
        } else if protocol == icmp::protocol(ip) {
            let echo = icmp::Echo::parse(ip, transport)?;
            ([echo.identifier, echo.sequence], echo.is_reply, be16(2), None)
        } else {
            return None;
        };
        let ip_len = whole.filter(|_| self.is_first_fragment).map_or(self.ip_len, |whole| self.headers_len + whole);
        let [src, dst] = self.addresses;
        Some(Datagram { src, dst, protocol, numbers, reply, ip_len, ip_id: self.ip_id, checksum })
    }
}
