//! From a captured frame to its TCP header: Ethernet (with VLAN tags), Linux cooked v1 and v2, raw IP, BSD loopback; IPv4
//! and IPv6. Lengths come from the IP header, so a snap length that cuts the payload off does not matter.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::capture::Record;

/// What a TCP header says, and how long its packet was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpPacket {
    /// Sender.
    pub src: (IpAddr, u16),
    /// Receiver.
    pub dst: (IpAddr, u16),
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number; meaningless without ACK.
    pub ack: u32,
    /// Flags, FIN lowest.
    pub flags: u8,
    /// Window field, unscaled.
    pub window: u16,
    /// Length of the IP packet in bytes.
    pub ip_len: u32,
    /// Bytes of data.
    pub payload: u32,
    /// Window scale option.
    pub window_scale: Option<u8>,
    /// Maximum segment size option.
    pub mss: Option<u16>,
    /// Whether SACK was offered.
    pub sack_permitted: bool,
    /// SACK blocks carried.
    pub sack_blocks: u8,
    /// Timestamp option: value, echo.
    pub timestamps: Option<(u32, u32)>,
}

/// A frame's bytes from its IP header on, with whatever pads it; `None` where its kind is not known.
pub fn network_layer(record: &Record) -> Option<&[u8]> {
    let data = &record.data[..];
    match record.link_type {
        // LINKTYPE_ETHERNET
        1 => ethernet(data),
        // LINKTYPE_RAW, and two of its older numbers
        101 | 12 | 14 => Some(data),
        // LINKTYPE_LINUX_SLL
        113 => after_ethertype(be16(data, 14)?, data.get(16..)?),
        // LINKTYPE_LINUX_SLL2
        276 => after_ethertype(be16(data, 0)?, data.get(20..)?),
        // LINKTYPE_NULL, LINKTYPE_LOOP
        0 | 108 => data.get(4..),
        _ => None,
    }
}

/// The TCP header of a frame; `None` for anything else, fragments after the first, and frames too short to tell.
pub fn decode(record: &Record) -> Option<TcpPacket> {
    let ip = network_layer(record)?;
    match ip.first()? >> 4 {
        4 => ipv4(ip),
        6 => ipv6(ip),
        _ => None,
    }
}

fn ethernet(data: &[u8]) -> Option<&[u8]> {
    after_ethertype(be16(data, 12)?, data.get(14..)?)
}

fn after_ethertype(mut kind: u16, mut rest: &[u8]) -> Option<&[u8]> {
    // 802.1Q and 802.1ad tags.
    while kind == 0x8100 || kind == 0x88a8 {
        kind = be16(rest, 2)?;
        rest = rest.get(4..)?;
    }
    (kind == 0x0800 || kind == 0x86dd).then_some(rest)
}

fn ipv4(ip: &[u8]) -> Option<TcpPacket> {
    let header = usize::from(ip[0] & 15) * 4;
    let total = u32::from(be16(ip, 2)?);
    let fragment_offset = be16(ip, 6)? & 0x1fff;
    if header < 20 || *ip.get(9)? != 6 || fragment_offset != 0 {
        return None;
    }
    let src = Ipv4Addr::from(<[u8; 4]>::try_from(ip.get(12..16)?).ok()?);
    let dst = Ipv4Addr::from(<[u8; 4]>::try_from(ip.get(16..20)?).ok()?);
    tcp(ip.get(header..)?, src.into(), dst.into(), total, total.checked_sub(header as u32)?)
}

fn ipv6(ip: &[u8]) -> Option<TcpPacket> {
    let mut left = u32::from(be16(ip, 4)?);
    let total = left + 40;
    let src = Ipv6Addr::from(<[u8; 16]>::try_from(ip.get(8..24)?).ok()?);
    let dst = Ipv6Addr::from(<[u8; 16]>::try_from(ip.get(24..40)?).ok()?);
    let (mut next, mut rest) = (*ip.get(6)?, ip.get(40..)?);
    // Hop-by-hop, routing and destination options.
    while matches!(next, 0 | 43 | 60) {
        let length = (usize::from(*rest.get(1)?) + 1) * 8;
        next = *rest.first()?;
        rest = rest.get(length..)?;
        left = left.checked_sub(length as u32)?;
    }
    if next != 6 {
        return None;
    }
    tcp(rest, src.into(), dst.into(), total, left)
}

fn tcp(tcp: &[u8], src: IpAddr, dst: IpAddr, ip_len: u32, tcp_len: u32) -> Option<TcpPacket> {
    let fixed = tcp.get(..20)?;
    let header = u32::from(fixed[12] >> 4) * 4;
    if header < 20 {
        return None;
    }
    let mut packet = TcpPacket {
        src: (src, be16(fixed, 0)?),
        dst: (dst, be16(fixed, 2)?),
        seq: be32(fixed, 4)?,
        ack: be32(fixed, 8)?,
        flags: fixed[13],
        window: be16(fixed, 14)?,
        ip_len,
        payload: tcp_len.checked_sub(header)?,
        window_scale: None,
        mss: None,
        sack_permitted: false,
        sack_blocks: 0,
        timestamps: None,
    };
    options(&tcp[20..(header as usize).min(tcp.len())], &mut packet);
    Some(packet)
}

fn options(mut options: &[u8], packet: &mut TcpPacket) {
    while let [kind, rest @ ..] = options {
        match kind {
            0 => return,
            1 => {
                options = rest;
                continue;
            }
            _ => {}
        }
        let Some(length) = rest.first().map(|&length| usize::from(length)).filter(|&length| length >= 2) else {
            return;
        };
        let Some(value) = options.get(2..length) else { return };
        match (kind, value) {
            (2, [high, low]) => packet.mss = Some(u16::from_be_bytes([*high, *low])),
            // RFC 7323: a shift above 14 counts as 14.
            (3, [shift]) => packet.window_scale = Some((*shift).min(14)),
            (4, []) => packet.sack_permitted = true,
            (5, blocks) => packet.sack_blocks = (blocks.len() / 8) as u8,
            (8, value) if value.len() == 8 => packet.timestamps = be32(value, 0).zip(be32(value, 4)),
            _ => {}
        }
        options = &options[length..];
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, TcpOptionElement};
    use proptest::prelude::*;

    fn record(link_type: u16, data: Vec<u8>) -> Record {
        Record { time_ns: 0, link_type, wire_len: data.len() as u32, data }
    }

    fn frame() -> Vec<u8> {
        let options = [
            TcpOptionElement::MaximumSegmentSize(1460),
            TcpOptionElement::SelectiveAcknowledgementPermitted,
            TcpOptionElement::Timestamp(7, 9),
            TcpOptionElement::WindowScale(5),
        ];
        let mut bytes = Vec::new();
        PacketBuilder::ethernet2([1; 6], [2; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(1000, 5001, 77, 4000)
            .syn()
            .options(&options)
            .expect("they fit")
            .write(&mut bytes, &[0; 100])
            .expect("a Vec takes every write");
        bytes
    }

    #[test]
    fn every_field_is_read_whatever_the_link() {
        let frame = frame();
        let packet = decode(&record(1, frame.clone())).expect("it is TCP");
        assert_eq!((packet.src.1, packet.dst.1, packet.seq, packet.window, packet.flags), (1000, 5001, 77, 4000, 2));
        assert_eq!((packet.mss, packet.window_scale, packet.timestamps), (Some(1460), Some(5), Some((7, 9))));
        assert!(packet.sack_permitted);
        assert_eq!((packet.payload, packet.ip_len), (100, 160));
        let ip = &frame[14..];
        assert_eq!(decode(&record(101, ip.to_vec())).as_ref(), Some(&packet));
        let cooked = [&[0; 14][..], &[8, 0], ip].concat();
        assert_eq!(decode(&record(113, cooked)).as_ref(), Some(&packet));
        let cooked2 = [&[8, 0][..], &[0; 18], ip].concat();
        assert_eq!(decode(&record(276, cooked2)).as_ref(), Some(&packet));
        let tagged = [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
        assert_eq!(decode(&record(1, tagged)).as_ref(), Some(&packet));
        assert_eq!(decode(&record(0, [&[2, 0, 0, 0], ip].concat())).as_ref(), Some(&packet));
    }

    #[test]
    fn a_snap_length_that_cuts_the_payload_does_not_matter() {
        let mut cut = frame();
        cut.truncate(14 + 60);
        assert_eq!(decode(&record(1, cut)).expect("its headers are whole").payload, 100);
    }

    proptest! {
        #[test]
        fn no_frame_makes_it_panic(data in proptest::collection::vec(any::<u8>(), 0..120), link in 0usize..8) {
            decode(&record([1, 101, 113, 276, 0, 108, 12, 99][link], data));
        }

        #[test]
        fn no_damage_to_a_frame_makes_it_panic(at in 0usize..174, value: u8, cut in 0usize..175) {
            let mut damaged = frame();
            damaged[at] = value;
            damaged.truncate(cut);
            decode(&record(1, damaged));
        }
    }
}
