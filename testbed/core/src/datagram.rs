//! Packets of UDP and ICMP echoes, with real headers and checksums (RFC 768, RFC 792, RFC 8200 8.1).

use std::net::IpAddr;

use crate::icmp::{self, Echo};
use crate::ip::IpVersion;
use crate::packet::{ecn_bits, fold, ones_sum, Ecn, FlowKey, Packet};

/// Length of the header of UDP, and of an ICMP echo.
const HEADER: u32 = 8;
const UDP: u8 = 17;
const HOP_LIMIT: u8 = 64;

/// Bytes of the headers of a flow's packets.
pub fn headers_of(flow: FlowKey) -> u32 {
    IpVersion::of(flow.src).header_bytes() + HEADER
}

/// A UDP packet of `length` bytes, headers included. Its data are zeros.
pub fn datagram(id: u64, flow: FlowKey, length: u32) -> Packet {
    udp(id, flow, Ecn::NotCapable, &[], length - headers_of(flow))
}

/// A UDP packet with a payload, which `zeros` bytes of value 0 follow.
pub fn udp(id: u64, flow: FlowKey, ecn: Ecn, payload: &[u8], zeros: u32) -> Packet {
    let length = headers_of(flow) + payload.len() as u32 + zeros;
    let (mut bytes, pseudo_header) = ip_header(flow, length, UDP, ecn);
    let at = bytes.len();
    for word in [flow.src_port, flow.dst_port, (length - at as u32) as u16, 0] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(payload);
    // Zeros add nothing to the sum (RFC 768, RFC 8200 8.1).
    let checksum = match !fold(ones_sum(&bytes[at..]) + pseudo_header) {
        0 => 0xffff,
        sum => sum,
    };
    bytes[at + 6..at + 8].copy_from_slice(&checksum.to_be_bytes());
    Packet::with_zeros(id, bytes, zeros)
}

/// An ICMP echo request or reply of `length` bytes, headers included. Its data are zeros; ports are of no concern.
pub fn echo(id: u64, flow: FlowKey, echo: Echo, length: u32) -> Packet {
    let ip = IpVersion::of(flow.src);
    let (mut bytes, pseudo_header) = ip_header(flow, length, icmp::protocol(ip), Ecn::NotCapable);
    // ICMP over IPv4 has no pseudo-header.
    bytes.extend(echo.header(ip, if ip.is_v4() { 0 } else { pseudo_header }));
    Packet::with_zeros(id, bytes, length - headers_of(flow))
}

/// The IP header, and the sum of the pseudo-header: addresses, protocol, and length of what follows.
fn ip_header(flow: FlowKey, length: u32, protocol: u8, ecn: Ecn) -> (Vec<u8>, u64) {
    let mut bytes = Vec::with_capacity(length as usize);
    let ecn = ecn_bits(ecn) as u8;
    let rest = (length - headers_of(flow) + HEADER) as u16;
    match (flow.src, flow.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            bytes.extend([0x45, ecn]);
            bytes.extend((length as u16).to_be_bytes());
            bytes.extend([0, 0, 0x40, 0, HOP_LIMIT, protocol, 0, 0]);
            bytes.extend(src.octets());
            bytes.extend(dst.octets());
            let checksum = !fold(ones_sum(&bytes));
            bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            bytes.extend([0x60, ecn << 4, 0, 0]);
            bytes.extend(rest.to_be_bytes());
            bytes.extend([protocol, HOP_LIMIT]);
            bytes.extend(src.octets());
            bytes.extend(dst.octets());
        }
        _ => unreachable!("a flow has one version of IP"),
    }
    let addresses = if flow.src.is_ipv4() { 12 } else { 8 };
    let sum = ones_sum(&bytes[addresses..]) + u64::from(protocol) + u64::from(rest);
    (bytes, sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::TransportHeader;

    #[test]
    fn a_datagram_is_one_of_its_length_with_right_checksums() {
        for (ip, payload) in [(IpVersion::V4, 183), (IpVersion::V6, 163)] {
            let address = |last| ip.address([10, 0, 0, last].into());
            let flow = FlowKey { src: address(1), dst: address(2), src_port: 5, dst_port: 6 };
            let packet = datagram(1, flow, 211);
            assert_eq!((packet.len(), packet.flow()), (211, Some(flow)));
            assert_eq!(*packet.transport(), TransportHeader::Udp { payload });
            assert_eq!(packet.to_vec().len(), 211);
            let (at, addresses) = if ip == IpVersion::V4 { (20, 12..20) } else { (40, 8..40) };
            let pseudo = ones_sum(&packet.bytes()[addresses]) + 17 + u64::from(payload + 8);
            assert_eq!(fold(ones_sum(&packet.bytes()[at..]) + pseudo), 0xffff);
            match ip {
                IpVersion::V4 => assert_eq!(fold(ones_sum(&packet.bytes()[..20])), 0xffff),
                IpVersion::V6 => assert_eq!(packet.bytes()[4..8], [0, 171, 17, 64]),
            }
        }
    }

    #[test]
    fn a_payload_is_carried_with_a_mark_and_a_right_checksum() {
        for ip in [IpVersion::V4, IpVersion::V6] {
            let address = |last| ip.address([10, 0, 0, last].into());
            let flow = FlowKey { src: address(1), dst: address(2), src_port: 5, dst_port: 6 };
            for ecn in [Ecn::NotCapable, Ecn::Capable, Ecn::Experienced] {
                let packet = udp(1, flow, ecn, &[1, 2, 3], 4);
                assert_eq!((packet.payload(), packet.zeros(), packet.ecn()), (&[1, 2, 3][..], 4, ecn));
                assert_eq!(packet.len(), headers_of(flow) + 7);
                assert!(packet.checksum_ok());
                let mut damaged = packet.to_vec();
                *damaged.last_mut().unwrap() = 1;
                assert!(!Packet::from_bytes(1, damaged).checksum_ok());
            }
        }
    }

    #[test]
    fn an_echo_is_one_of_its_length_with_right_checksums() {
        for (ip, headers) in [(IpVersion::V4, 28), (IpVersion::V6, 48)] {
            let address = |last| ip.address([10, 0, 0, last].into());
            let flow = FlowKey { src: address(1), dst: address(2), src_port: 5, dst_port: 6 };
            let header = Echo { is_reply: ip.is_v4(), identifier: 6, sequence: 700 };
            let packet = echo(1, flow, header, 211);
            assert_eq!((packet.len(), packet.flow(), packet.zeros()), (211, None, 211 - headers));
            assert_eq!((packet.echo(), packet.destination()), (Some(header), Some(address(2))));
            let at = ip.header_bytes() as usize;
            let pseudo = if ip.is_v4() { 0 } else { ones_sum(&packet.bytes()[8..40]) + 58 + 171 };
            assert_eq!(fold(ones_sum(&packet.bytes()[at..]) + pseudo), 0xffff);
            assert_eq!(datagram(1, flow, 211).echo(), None);
        }
    }
}
