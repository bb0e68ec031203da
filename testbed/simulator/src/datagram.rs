//! UDP packets of simulated flows.

use std::net::Ipv4Addr;

use backchannel_core::packet::{fold, ones_sum, Packet};

/// A UDP packet of `length` bytes, headers included. Its data are zeros.
pub(crate) fn datagram(id: u64, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), length: u32) -> Packet {
    let zeros = length - 28;
    let mut bytes = Vec::with_capacity(28);
    bytes.extend([0x45, 0]);
    bytes.extend((length as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend(from.0.octets());
    bytes.extend(to.0.octets());
    let checksum = !fold(ones_sum(&bytes));
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    let udp_length = (length - 20) as u16;
    for word in [from.1, to.1, udp_length, 0] {
        bytes.extend(word.to_be_bytes());
    }
    // Zeros add nothing to the sum. The pseudo-header has addresses, protocol and length (RFC 768).
    let sum = ones_sum(&bytes[12..]) + 17 + u64::from(udp_length);
    let checksum = match !fold(sum) {
        0 => 0xffff,
        sum => sum,
    };
    bytes[26..28].copy_from_slice(&checksum.to_be_bytes());
    Packet::with_zeros(id, bytes, zeros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::Transport;

    #[test]
    fn a_datagram_is_one_of_its_length_with_right_checksums() {
        let packet = datagram(1, (Ipv4Addr::new(10, 0, 0, 1), 5), (Ipv4Addr::new(10, 0, 0, 2), 6), 211);
        assert_eq!(packet.len(), 211);
        assert_eq!(*packet.transport(), Transport::Udp { payload: 183 });
        assert_eq!(fold(ones_sum(&packet.bytes()[..20])), 0xffff);
        let pseudo = ones_sum(&packet.bytes()[12..20]) + 17 + 191;
        assert_eq!(fold(ones_sum(&packet.bytes()[20..]) + pseudo), 0xffff);
    }
}
