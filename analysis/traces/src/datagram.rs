//! Packets of UDP, and echoes of ICMP and ICMPv6, from captured frames.
//!
//! Of a packet in fragments, the first one counts, with the length of the whole packet where its header has it.

use backchannel_core::icmp;
use backchannel_core::ip::IpVersion;

use crate::capture::Frame;
use crate::link_layer::ip_packet;
use crate::packet::Address;

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
    let context = IpContext {
        addresses: [address(12), address(16)],
        headers_len: header_len as u32,
        ip_len: be16(2).into(),
        ip_id: be16(4),
        is_first_fragment: be16(6) & 0x2000 != 0,
    };
    context.datagram(IpVersion::V4, fixed[9], ip.get(header_len..)?)
}

fn of_ipv6(ip: &[u8]) -> Option<Datagram> {
    let fixed: &[u8; 40] = ip.first_chunk()?;
    let address = |at: usize| fixed[at..].first_chunk().map(|bytes| Address(u128::from_be_bytes(*bytes)));
    let mut context = IpContext {
        addresses: [address(8)?, address(24)?],
        headers_len: 40,
        ip_len: 40 + u32::from(u16::from_be_bytes([fixed[4], fixed[5]])),
        ip_id: 0,
        is_first_fragment: false,
    };
    let mut next_header = fixed[6];
    loop {
        let rest = ip.get(context.headers_len as usize..)?;
        let length = match next_header {
            // Hop-by-hop and destination options, routing.
            0 | 43 | 60 => (u32::from(*rest.get(1)?) + 1) * 8,
            44 => {
                let place = u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]);
                if place & 0xfff8 != 0 {
                    return None;
                }
                context.is_first_fragment = place & 1 != 0;
                8
            }
            protocol => return context.datagram(IpVersion::V6, protocol, rest),
        };
        next_header = *rest.first()?;
        context.headers_len += length;
    }
}

/// The IP layer around a datagram.
struct IpContext {
    addresses: [Address; 2],
    headers_len: u32,
    ip_len: u32,
    ip_id: u16,
    is_first_fragment: bool,
}

impl IpContext {
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

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    /// The datagram of a packet without link layer.
    fn of(ip: &[u8]) -> Option<Datagram> {
        Datagram::of(&Frame { time_ns: 0, link_type: 101, wire_len: ip.len() as u32, data: ip })
    }

    fn four(last: u8) -> Address {
        Address::four(0x0a01_0200 + u32::from(last))
    }

    fn written(builder: etherparse::PacketBuilderStep<etherparse::UdpHeader>) -> Vec<u8> {
        let mut bytes = Vec::new();
        builder.write(&mut bytes, &[7; 33]).expect("a Vec takes every write");
        bytes
    }

    #[test]
    fn a_udp_packet_over_ipv4_has_its_fields_with_options_or_without() {
        let options = [&[][..], &[1, 1, 1, 0], &[1; 40]];
        for options in options {
            let mut bytes = written(PacketBuilder::ipv4([10, 1, 2, 3], [10, 1, 2, 4], 64).udp(4000, 53));
            bytes[4..6].copy_from_slice(&[0x12, 0x34]);
            let header_len = 20 + options.len();
            bytes[0] = 0x40 | (header_len / 4) as u8;
            bytes[2..4].copy_from_slice(&((header_len + 8 + 33) as u16).to_be_bytes());
            let checksum = u16::from_be_bytes([bytes[26], bytes[27]]);
            bytes.splice(20..20, options.iter().copied());
            let expected = Datagram {
                src: four(3),
                dst: four(4),
                protocol: UDP,
                numbers: [4000, 53],
                reply: false,
                ip_len: (header_len + 41) as u32,
                ip_id: 0x1234,
                checksum,
            };
            assert_eq!(of(&bytes), Some(expected));
        }
    }

    #[test]
    fn of_a_packet_in_fragments_the_first_one_counts_with_the_whole_length() {
        let whole = written(PacketBuilder::ipv4([10, 1, 2, 3], [10, 1, 2, 4], 64).udp(4000, 53));
        let fragment = |place: u16, length: usize| {
            let mut bytes = whole[..length].to_vec();
            bytes[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            bytes[6..8].copy_from_slice(&place.to_be_bytes());
            of(&bytes).map(|datagram| datagram.ip_len)
        };
        // More follow; the last one; one in the middle; of one piece, which may not be cut.
        assert_eq!([fragment(0x2000, 44), fragment(0x0003, 44), fragment(0x2003, 44)], [Some(61), None, None]);
        assert_eq!(fragment(0x4000, 44), Some(44));
    }

    #[test]
    fn a_udp_packet_over_ipv6_has_its_fields_behind_any_extension_headers() {
        let plain = written(PacketBuilder::ipv6([0xfe; 16], [0xfd; 16], 64).udp(4000, 53));
        // Type, then the header without its first byte, which names the next one.
        let extensions: [(u8, &[u8]); 4] = [
            (0, &[0, 1, 4, 0, 0, 0, 0]),
            (43, &[1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            (60, &[0, 1, 4, 0, 0, 0, 0]),
            (44, &[0, 0, 1, 0, 0, 0, 9]),
        ];
        for count in 0..=extensions.len() {
            let mut bytes = plain.clone();
            for (kind, rest) in extensions[..count].iter().rev() {
                let next_header = bytes[6];
                bytes[6] = *kind;
                bytes.splice(40..40, [&[next_header], *rest].concat());
            }
            let length = bytes.len() as u32;
            bytes[4..6].copy_from_slice(&((length - 40) as u16).to_be_bytes());
            let datagram = of(&bytes).expect("it is UDP");
            assert_eq!(
                (datagram.src, datagram.dst),
                (Address(u128::from_be_bytes([0xfe; 16])), Address(u128::from_be_bytes([0xfd; 16])))
            );
            assert_eq!((datagram.numbers, datagram.ip_len, datagram.ip_id), ([4000, 53], length, 0), "{count}");
        }
        // A later fragment.
        let mut later = plain.clone();
        later[6] = 44;
        later.splice(40..40, [UDP, 0, 0, 8, 0, 0, 0, 9]);
        assert_eq!(of(&later), None);
    }

    #[test]
    fn an_echo_has_identifier_and_number_and_other_messages_are_none() {
        for (kind, reply) in [(8, Some(false)), (0, Some(true)), (3, None)] {
            let mut bytes = written(PacketBuilder::ipv4([10, 1, 2, 3], [10, 1, 2, 4], 64).udp(0, 0));
            bytes[9] = 1;
            bytes[20..28].copy_from_slice(&[kind, 0, 0xab, 0xcd, 0, 5, 1, 2]);
            let echo = of(&bytes).map(|one| (one.protocol, one.numbers, one.reply, one.checksum, one.ip_len));
            assert_eq!(echo, reply.map(|reply| (1, [5, 258], reply, 0xabcd, 61)), "{kind}");
        }
        let mut tcp = written(PacketBuilder::ipv4([10, 1, 2, 3], [10, 1, 2, 4], 64).udp(0, 0));
        tcp[9] = 6;
        assert_eq!(of(&tcp), None);
    }

    #[test]
    fn what_is_cut_is_none() {
        let whole = written(PacketBuilder::ipv4([10, 1, 2, 3], [10, 1, 2, 4], 64).udp(4000, 53));
        assert_eq!((of(&whole[..27]), of(&whole[..28]).is_some()), (None, true));
        let mut short = whole;
        short[0] = 0x44;
        assert_eq!(of(&short), None, "a header of 16 bytes");
    }
}
