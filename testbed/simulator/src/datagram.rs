//! UDP packets of simulated flows.

use std::net::IpAddr;

use backchannel_core::ip::IpVersion;
use backchannel_core::packet::{fold, ones_sum, FlowKey, Packet};

const UDP_HEADER: u32 = 8;
const PROTOCOL: u8 = 17;
const HOP_LIMIT: u8 = 64;

/// Bytes of the headers of a flow's UDP packets.
pub(crate) fn headers_of(flow: FlowKey) -> u32 {
    IpVersion::of(flow.src).header_bytes() + UDP_HEADER
}

/// A UDP packet of `length` bytes, headers included. Its data are zeros.
pub(crate) fn datagram(id: u64, flow: FlowKey, length: u32) -> Packet {
    let headers = headers_of(flow);
    let mut bytes = Vec::with_capacity(headers as usize);
    let udp_length = (length - headers + UDP_HEADER) as u16;
    match (flow.src, flow.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            bytes.extend([0x45, 0]);
            bytes.extend((length as u16).to_be_bytes());
            bytes.extend([0, 0, 0x40, 0, HOP_LIMIT, PROTOCOL, 0, 0]);
            bytes.extend(src.octets());
            bytes.extend(dst.octets());
            let checksum = !fold(ones_sum(&bytes));
            bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            bytes.extend([0x60, 0, 0, 0]);
            bytes.extend(udp_length.to_be_bytes());
            bytes.extend([PROTOCOL, HOP_LIMIT]);
            bytes.extend(src.octets());
            bytes.extend(dst.octets());
        }
        _ => unreachable!("a flow has one version of IP"),
    }
    for word in [flow.src_port, flow.dst_port, udp_length, 0] {
        bytes.extend(word.to_be_bytes());
    }
    // Zeros add nothing to the sum. The pseudo-header has addresses, which end the IP header, protocol and length (RFC 768,
    // RFC 8200 8.1).
    let addresses = if flow.src.is_ipv4() { 12 } else { 8 };
    let sum = ones_sum(&bytes[addresses..]) + u64::from(PROTOCOL) + u64::from(udp_length);
    let checksum = match !fold(sum) {
        0 => 0xffff,
        sum => sum,
    };
    let at = headers as usize - 2;
    bytes[at..].copy_from_slice(&checksum.to_be_bytes());
    Packet::with_zeros(id, bytes, length - headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::Transport;

    #[test]
    fn a_datagram_is_one_of_its_length_with_right_checksums() {
        for (ip, payload) in [(IpVersion::V4, 183), (IpVersion::V6, 163)] {
            let address = |last| ip.address([10, 0, 0, last].into());
            let flow = FlowKey { src: address(1), dst: address(2), src_port: 5, dst_port: 6 };
            let packet = datagram(1, flow, 211);
            assert_eq!((packet.len(), packet.flow()), (211, Some(flow)));
            assert_eq!(*packet.transport(), Transport::Udp { payload });
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
}
