use super::*;
use crate::packet::flag;
use etherparse::{IpHeaders, PacketBuilder, PacketBuilderStep, TcpOptionElement};
use proptest::prelude::*;
use std::net::IpAddr;

fn decode(link_type: u16, data: &[u8]) -> Result<TcpPacket, NoTcp> {
    let mut packet = TcpPacket::default();
    Decoder::default().decode(&Frame { time_ns: 0, link_type, wire_len: data.len() as u32, data }, &mut packet)?;
    Ok(packet)
}

fn elements() -> [TcpOptionElement; 4] {
    [
        TcpOptionElement::MaximumSegmentSize(1460),
        TcpOptionElement::SelectiveAcknowledgementPermitted,
        TcpOptionElement::Timestamp(7, 9),
        TcpOptionElement::WindowScale(5),
    ]
}

fn tcp_frame(ip: PacketBuilderStep<IpHeaders>, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let tcp = ip.tcp(1000, 5001, 77, 4000).syn().options(&elements()).expect("they fit");
    tcp.write(&mut bytes, data).expect("a Vec takes every write");
    bytes
}

fn frame() -> Vec<u8> {
    let ip = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    tcp_frame(ip, &[3; 100])
}

fn frame6() -> Vec<u8> {
    let ip = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv6([0xfe; 16], [0xfd; 16], 64);
    tcp_frame(ip, &[3; 101])
}

#[test]
fn every_link_type_gives_the_same_fields() {
    let frame = frame();
    let packet = decode(1, &frame).expect("it is TCP");
    assert_eq!((packet.src.1, packet.dst.1, packet.seq, packet.window, packet.flags), (1000, 5001, 77, 4000, 2));
    assert_eq!((packet.mss, packet.window_scale, packet.timestamps), (Some(1460), Some(5), Some((7, 9))));
    assert!(packet.sack_permitted);
    assert_eq!((packet.payload, packet.ip_len, packet.checksum), (100, 160, Checksum::Good));
    assert_eq!(IpAddr::from(packet.src.0).to_string(), "10.0.0.1");
    let (addresses, ip) = (&frame[..12], &frame[14..]);
    let around: [(u16, &[&[u8]]); 21] = [
        (101, &[ip]),
        (228, &[ip]),
        (113, &[&[0; 14], &[8, 0], ip]),
        (276, &[&[8, 0], &[0; 18], ip]),
        (1, &[addresses, &[0x81, 0, 0, 5, 8, 0], ip]),
        (1, &[addresses, &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0], ip]),
        (1, &[addresses, &[0x91, 0, 0, 5, 0x81, 0, 0, 6, 8, 0], ip]),
        (1, &[addresses, &[0x88, 0x47, 0, 0, 0x10, 64, 0, 0, 0x21, 64], ip]),
        (1, &[addresses, &[0x88, 0x64, 0x11, 0, 0, 1, 0, 162, 0, 0x21], ip]),
        (1, &[addresses, &[0, 168, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0], ip]),
        (0, &[&[2, 0, 0, 0], ip]),
        (108, &[&[0, 0, 0, 2], ip]),
        (9, &[&[0xff, 3, 0, 0x21], ip]),
        (9, &[&[0x21], ip]),
        (50, &[&[0, 0x21], ip]),
        (166, &[&[1, 3, 0, 0x21], ip]),
        (51, &[&[0x11, 0, 0, 1, 0, 162, 0, 0x21], ip]),
        (104, &[&[0x0f, 0, 8, 0], ip]),
        (8, &[&[0; 16], ip]),
        (109, &[&[0; 12], ip]),
        (197, &[&[0; 8], &[2 | 0x80], &[0; 7], &[0; 8], &[0; 2], addresses, &[8, 0], ip]),
    ];
    for (link_type, parts) in around {
        assert_eq!(decode(link_type, &parts.concat()).as_ref(), Ok(&packet), "link type {link_type}");
    }
    assert_eq!(decode(147, ip), Err(NoTcp::UnknownLinkType));
    assert_eq!(decode(0, &[&[7, 0, 0, 0], ip].concat()), Err(NoTcp::OtherProtocol));
    assert_eq!(decode(9, &[&[0xff, 3, 0xc0, 0x21], ip].concat()), Err(NoTcp::OtherProtocol));
}

#[test]
fn ipv6_extension_headers_are_skipped() {
    let frame = frame6();
    let plain = decode(1, &frame).expect("it is TCP");
    assert_eq!((plain.payload, plain.checksum), (101, Checksum::Good));
    assert_eq!(IpAddr::from(plain.src.0), IpAddr::from([0xfe; 16]));
    let (head, segment) = (&frame[14..54], &frame[54..]);
    // Hop-by-hop and routing (both long), destination options, authentication, an atomic fragment.
    let mut extensions = [&[43u8, 1][..], &[0; 14], &[60, 1, 0, 0, 0, 0, 0, 0], &[0xff; 8]].concat();
    extensions.extend([51, 0, 0, 0, 0, 0, 0, 0]);
    extensions.extend([44, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    extensions.extend([6, 0, 0, 0, 0, 0, 0, 9]);
    let mut ip = [head, &extensions, segment].concat();
    ip[6] = 0;
    let length = (extensions.len() + segment.len()) as u16;
    ip[4..6].copy_from_slice(&length.to_be_bytes());
    let packet = decode(229, &ip).expect("it is TCP");
    assert_eq!(packet, TcpPacket { ip_len: plain.ip_len + extensions.len() as u32, ..plain });
}

#[test]
fn the_ecn_field_is_the_lower_two_bits_of_the_traffic_class() {
    let mut four = frame();
    let mut six = frame6();
    for ecn in 0..4 {
        (four[15], six[15]) = (0xb8 | ecn, 0x80 | ecn << 4);
        assert_eq!([decode(1, &four).map(|packet| packet.ecn), decode(1, &six).map(|packet| packet.ecn)], [Ok(ecn); 2]);
    }
}

#[test]
fn a_snap_length_that_cuts_the_payload_does_not_matter() {
    let mut cut = frame();
    cut.truncate(14 + 60);
    let packet = decode(1, &cut).expect("its headers are whole");
    assert_eq!((packet.payload, packet.checksum), (100, Checksum::Unknown));
}

#[test]
fn a_length_of_zero_means_the_length_of_the_frame() {
    let mut four = frame();
    four[16..18].copy_from_slice(&[0, 0]);
    four[24..26].copy_from_slice(&[0, 0]);
    assert_eq!(decode(1, &four).expect("it is TCP").payload, 100);
    let mut six = frame6();
    six[18..20].copy_from_slice(&[0, 0]);
    assert_eq!(decode(1, &six).expect("it is TCP").payload, 101);
}

#[test]
fn damaged_and_offloaded_checksums_differ() {
    for at in [30, 40, 54, 80, 173] {
        let mut damaged = frame();
        damaged[at] ^= 0x10;
        assert_eq!(decode(1, &damaged).map(|packet| packet.checksum), Ok(Checksum::Bad), "byte {at}");
    }
    let mut left = frame();
    let pseudo: u32 = [0x0a00u32, 1, 0x0a00, 2, 6, 140].iter().sum();
    left[50..52].copy_from_slice(&(pseudo as u16).to_be_bytes());
    assert_eq!(decode(1, &left).map(|packet| packet.checksum), Ok(Checksum::Unknown));
}

#[test]
fn sack_blocks_are_read() {
    let mut bytes = Vec::new();
    let option = TcpOptionElement::SelectiveAcknowledgement((1, 2), [Some((3, 4)), None, None]);
    PacketBuilder::ipv4([1; 4], [2; 4], 64)
        .tcp(1, 2, 3, 4)
        .ack(9)
        .options(&[option])
        .expect("it fits")
        .write(&mut bytes, &[])
        .expect("a Vec takes every write");
    let packet = decode(101, &bytes).expect("it is TCP");
    assert_eq!((packet.sack_blocks, packet.sacks), (2, [(1, 2), (3, 4), (0, 0), (0, 0)]));
}

/// Cuts an IPv4 packet into fragments of 8 * `units` bytes.
fn fragments4(ip: &[u8], units: usize) -> Vec<Vec<u8>> {
    let parts = ip[20..].chunks(units * 8);
    let count = parts.len();
    parts
        .enumerate()
        .map(|(i, part)| {
            let mut piece = [&ip[..20], part].concat();
            let place = (i * units) as u16 | if i + 1 < count { 0x2000 } else { 0 };
            let length = piece.len() as u16;
            piece[2..4].copy_from_slice(&length.to_be_bytes());
            piece[6..8].copy_from_slice(&place.to_be_bytes());
            piece[10..12].copy_from_slice(&[0, 0]);
            let check = !fold(sum(&piece[..20]));
            piece[10..12].copy_from_slice(&check.to_ne_bytes());
            piece
        })
        .collect()
}

fn fragments6(ip: &[u8], units: usize) -> Vec<Vec<u8>> {
    let parts = ip[40..].chunks(units * 8);
    let count = parts.len();
    parts
        .enumerate()
        .map(|(i, part)| {
            let place = (i * units * 8) as u16 | u16::from(i + 1 < count);
            let head = [&[6, 0][..], &place.to_be_bytes(), &[0, 0, 0, 5]].concat();
            let mut piece = [&ip[..40], &head, part].concat();
            piece[6] = 44;
            let length = (piece.len() - 40) as u16;
            piece[4..6].copy_from_slice(&length.to_be_bytes());
            piece
        })
        .collect()
}

#[test]
fn a_fragmented_packet_has_the_bytes_of_its_fragments_and_no_verified_checksum() {
    let ip = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    let frame = tcp_frame(ip, &[3; 8]);
    let pieces = fragments4(&frame[14..], 3);
    let mut decoder = Decoder::default();
    let mut packet = TcpPacket::default();
    let fates = pieces.iter().map(|piece| {
        let frame = Frame { time_ns: 0, link_type: 101, wire_len: piece.len() as u32, data: piece };
        decoder.decode(&frame, &mut packet)
    });
    assert_eq!(fates.collect::<Vec<_>>(), [Err(NoTcp::Incomplete), Ok(())]);
    assert_eq!((packet.ip_len, packet.payload, packet.checksum), (20 + 24 + 20 + 24, 8, Checksum::Unknown));
}

/// Pieces with holes between them, which need memory.
#[test]
fn a_packet_in_more_than_128_pieces_is_given_up() {
    let mut decoder = Decoder::default();
    let mut packet = TcpPacket::default();
    let ip = &frame()[14..];
    let mut take = |number: u16| {
        let mut piece = [&ip[..20], &[0; 8]].concat();
        piece[2..4].copy_from_slice(&28u16.to_be_bytes());
        piece[6..8].copy_from_slice(&(0x2000 | (number * 2)).to_be_bytes());
        let frame = Frame { time_ns: 0, link_type: 101, wire_len: 28, data: &piece };
        decoder.decode(&frame, &mut packet)
    };
    let fates: Vec<_> = (0..129).map(&mut take).collect();
    assert!(fates[..128].iter().all(|fate| *fate == Err(NoTcp::Incomplete)));
    assert_eq!(fates[128], Err(NoTcp::Truncated));
    // A piece of it afterwards is one of another packet.
    assert_eq!(take(0), Err(NoTcp::Incomplete));
    assert_eq!(decoder.unfinished(), 2);
}

proptest! {
    #[test]
    fn fragments_in_any_order_give_one_packet(
        units in 1usize..9, order in Just((0..40usize).collect::<Vec<_>>()).prop_shuffle(), six: bool, twice in 0usize..3,
    ) {
        let frame = if six { frame6() } else { frame() };
        let whole = decode(1, &frame).unwrap();
        let pieces = if six { fragments6(&frame[14..], units) } else { fragments4(&frame[14..], units) };
        let mut decoder = Decoder::default();
        let mut order: Vec<_> = order.into_iter().filter(|&i| i < pieces.len()).collect();
        order.insert(order.len() / 2, order[twice % order.len()]);
        let mut found = Vec::new();
        for &i in &order {
            let frame = Frame { time_ns: 0, link_type: 101, wire_len: pieces[i].len() as u32, data: &pieces[i] };
            let mut packet = TcpPacket::default();
            match decoder.decode(&frame, &mut packet) {
                Ok(()) => found.push(packet),
                Err(why) => prop_assert!(pieces.len() == 1 || why == NoTcp::Incomplete),
            }
        }
        prop_assert!(!found.is_empty());
        let packet = &found[0];
        prop_assert_eq!((packet.src, packet.seq, packet.payload, packet.mss), (whole.src, whole.seq, whole.payload, whole.mss));
    }

    /// etherparse, an independent decoder, is the reference.
    #[test]
    fn fields_agree_with_etherparse(
        layout in 0usize..4, payload in proptest::collection::vec(any::<u8>(), 0..400), seq: u32, ack: u32, window: u16,
        damage in proptest::option::of((20usize..500, 1u8..)),
    ) {
        use TcpOptionElement::{MaximumSegmentSize, Noop, SelectiveAcknowledgement, Timestamp, WindowScale};
        let options = [
            vec![],
            vec![Noop, Noop, Timestamp(7, 1 << 31)],
            vec![Noop, Noop, SelectiveAcknowledgement((seq, ack), [Some((3, 4)), None, None])],
            vec![MaximumSegmentSize(1460), WindowScale(5)],
        ];
        let mut ip = Vec::new();
        PacketBuilder::ipv4([10, 0, 0, 1], [192, 168, 255, 254], 64)
            .tcp(1000, 5001, seq, window)
            .ack(ack)
            .options(&options[layout])
            .expect("they fit")
            .write(&mut ip, &payload)
            .expect("a Vec takes every write");
        // Anything but the length of the header and its options.
        if let Some((at, bits)) = damage.filter(|(at, _)| *at < ip.len() && !matches!(at, 32 | 40..=59)) {
            ip[at] ^= bits;
        }
        let packet = decode(101, &ip).expect("it is TCP");
        let reference = etherparse::SlicedPacket::from_ip(&ip).expect("it is IP");
        let Some(etherparse::TransportSlice::Tcp(tcp)) = &reference.transport else {
            return Err(TestCaseError::fail("it is TCP"));
        };
        prop_assert_eq!((packet.src.1, packet.dst.1), (tcp.source_port(), tcp.destination_port()));
        prop_assert_eq!((packet.seq, packet.ack), (tcp.sequence_number(), tcp.acknowledgment_number()));
        prop_assert_eq!((packet.window, packet.payload as usize), (tcp.window_size(), tcp.payload().len()));
        let flags = [(flag::FIN, tcp.fin()), (flag::SYN, tcp.syn()), (flag::RST, tcp.rst()), (flag::ACK, tcp.ack())];
        prop_assert!(flags.iter().all(|(bit, set)| (packet.flags & bit != 0) == *set));
        let header = tcp.to_header();
        let expected = header.calc_checksum_ipv4_raw([10, 0, 0, 1], [192, 168, 255, 254], tcp.payload());
        let good = expected.expect("the packet is short") == tcp.checksum();
        prop_assert!(packet.checksum == Checksum::Unknown || (packet.checksum == Checksum::Good) == good);
        let mut read = TcpPacket::default();
        for element in tcp.options_iterator() {
            match element.expect("the options are whole") {
                MaximumSegmentSize(mss) => read.mss = Some(mss),
                WindowScale(shift) => read.window_scale = Some(shift),
                Timestamp(value, echo) => read.timestamps = Some((value, echo)),
                SelectiveAcknowledgement(first, rest) => {
                    let blocks: Vec<_> = std::iter::once(Some(first)).chain(rest).flatten().collect();
                    read.sack_blocks = blocks.len() as u8;
                    read.sacks[..blocks.len()].copy_from_slice(&blocks);
                }
                _ => {}
            }
        }
        prop_assert_eq!((packet.mss, packet.window_scale), (read.mss, read.window_scale));
        prop_assert_eq!((packet.timestamps, packet.sack_blocks, packet.sacks), (read.timestamps, read.sack_blocks, read.sacks));
    }

    #[test]
    fn no_frame_panics(data in proptest::collection::vec(any::<u8>(), 0..120), link in 0usize..16, more in 0u32..9) {
        let link_type = [1, 101, 113, 276, 0, 108, 12, 99, 9, 50, 51, 166, 104, 8, 15, 229][link];
        let frame = Frame { time_ns: 0, link_type, wire_len: data.len() as u32 + more, data: &data };
        let _ = Decoder::default().decode(&frame, &mut TcpPacket::default());
    }

    #[test]
    fn no_damaged_frame_panics(at in 0usize..174, value: u8, cut in 0usize..195, six: bool) {
        let mut damaged = if six { frame6() } else { frame() };
        damaged[at] = value;
        damaged.truncate(cut);
        let _ = decode(1, &damaged);
    }
}
