use super::build::{ack, data, udp, Segment};
use super::*;
use super::{fold, ones_sum};
use crate::ip::IpVersion;
use proptest::prelude::*;

const BOTH: [IpVersion; 2] = [IpVersion::V4, IpVersion::V6];

#[test]
fn ipv6_packets_are_read_and_edited_as_those_of_ipv4() {
    let base = Segment { ip: IpVersion::V6, ..Segment::default() };
    let mut packet = Segment { payload: 33, ecn: true, ..base }.packet();
    assert_eq!((packet.len(), packet.tcp().unwrap().payload), (40 + 20 + 33, 33));
    assert_eq!(packet.destination().unwrap().to_string(), "2001:db8:a00::2");
    assert!(packet.checksum_ok());
    assert_eq!(packet.ecn(), Ecn::Capable);
    assert!(packet.set_congestion_experienced());
    assert_eq!((packet.ecn(), packet.bytes()[..2].to_vec()), (Ecn::Experienced, vec![0x60, 0x30]));
    assert!(packet.set_mark(mark::FAST_RETRANSMIT) && packet.set_ack_number(0xdead_beef));
    assert!(packet.checksum_ok());
    assert_eq!(Packet::from_bytes(1, packet.to_vec()).tcp(), packet.tcp());
    assert!(packet.damage_checksum() && !packet.checksum_ok());
    assert!(base.packet().is_pure_ack() && !base.packet().set_congestion_experienced());
}

#[test]
fn an_ipv6_packet_expires_with_its_hop_limit() {
    let mut packet = Segment { ip: IpVersion::V6, ..Segment::default() }.packet();
    while packet.bytes()[7] > 1 {
        let before = packet.bytes()[7];
        assert!(packet.lower_hop_limit());
        assert_eq!(packet.bytes()[7], before - 1);
    }
    assert!(!packet.lower_hop_limit() && packet.checksum_ok());
}

#[test]
fn forwarding_decrements_the_time_to_live_and_updates_the_checksum() {
    let mut packet = ack(1);
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
fn a_pure_ack_is_not_data_syn_fin_or_rst() {
    assert!(ack(5).is_pure_ack());
    assert!(!data(1, 100).is_pure_ack());
    for flags in [TcpFlags::SYN, TcpFlags::FIN, TcpFlags::RST] {
        assert!(!Segment { flags, ..Segment::default() }.packet().is_pure_ack());
    }
    assert!(!udp(1, 0).is_pure_ack());
}

#[test]
fn edits_update_the_checksum_and_damage_breaks_it() {
    let mut packet = Segment { payload: 33, ecn: true, ..Segment::default() }.packet();
    assert!(packet.checksum_ok());
    assert!(packet.set_congestion_experienced());
    assert_eq!(packet.ecn(), Ecn::Experienced);
    assert_eq!(fold(ones_sum(&packet.bytes()[..20])), 0xffff, "IP header checksum");
    packet.set_mark(mark::FAST_RETRANSMIT);
    packet.set_ack_number(0xdead_beef);
    assert!(packet.set_window(0x1234));
    assert!(packet.checksum_ok());
    assert_eq!(packet.tcp().map(|tcp| tcp.window), Some(0x1234));
    let again = Packet::from_bytes(1, packet.to_vec());
    assert_eq!(again.tcp(), packet.tcp());
    assert!(packet.damage_checksum());
    assert!(!packet.checksum_ok());
}

#[test]
fn zeros_add_nothing_to_the_checksum() {
    let whole = data(1, 1000);
    let short = Packet::with_zeros(1, whole.bytes()[..40].to_vec(), 1000);
    assert_eq!(short.len(), 1040);
    assert_eq!(short.tcp().unwrap().payload, 1000);
    assert!(short.checksum_ok());
    assert_eq!(short.to_vec(), whole.bytes());
}

proptest! {
    /// Headers written of fields are parsed to the same fields, and both checksums are right.
    #[test]
    fn a_segment_of_fields_is_what_a_parser_reads(
        addresses: (u32, u32),
        ports: (u16, u16),
        numbers: (u32, u32),
        flags: u8,
        window: u16,
        (marks, urgent) in (0u8..8, any::<u16>()),
        identification: u16,
        experienced: bool,
        option_words in 0usize..=10,
        data in proptest::collection::vec(any::<u8>(), 0..50),
        zeros in 0u32..1400,
    ) {
        let options = vec![1; 4 * option_words];
        let segment = TcpOverIpv4 {
            src: (addresses.0.into(), ports.0),
            dst: (addresses.1.into(), ports.1),
            tcp: Tcp {
                seq: numbers.0,
                ack: numbers.1,
                flags: TcpFlags(flags),
                window,
                payload: data.len() as u32 + zeros,
                header: 20 + options.len() as u8,
                sack_blocks: 0,
                marks: marks << 1,
                urgent,
            },
            ecn: if experienced { Ecn::Experienced } else { Ecn::Capable },
            identification,
            options: &options,
            data: &data,
        };
        let packet = segment.packet(1);
        let parsed = Packet::with_zeros(1, packet.bytes().to_vec(), packet.zeros());
        prop_assert_eq!((parsed.tcp(), parsed.flow(), parsed.ecn()), (Some(&segment.tcp), packet.flow(), segment.ecn));
        prop_assert_eq!(parsed.payload(), &data[..]);
        prop_assert!(parsed.checksum_ok());
        prop_assert_eq!(fold(ones_sum(&packet.bytes()[..20])), 0xffff, "IP header checksum");
        prop_assert_eq!(&packet.bytes()[4..6], identification.to_be_bytes());
    }

    /// The same over IPv6.
    #[test]
    fn a_segment_of_fields_over_ipv6_is_what_a_parser_reads(
        addresses: (u128, u128),
        ports: (u16, u16),
        numbers: (u32, u32),
        flags: u8,
        ecn in prop::sample::select(vec![Ecn::NotCapable, Ecn::Capable, Ecn::Experienced]),
        option_words in 0usize..=10,
        data in proptest::collection::vec(any::<u8>(), 0..50),
        zeros in 0u32..1400,
    ) {
        let options = vec![1; 4 * option_words];
        let segment = TcpOverIpv6 {
            src: (addresses.0.into(), ports.0),
            dst: (addresses.1.into(), ports.1),
            tcp: Tcp {
                seq: numbers.0,
                ack: numbers.1,
                flags: TcpFlags(flags),
                window: 5,
                payload: data.len() as u32 + zeros,
                header: 20 + options.len() as u8,
                sack_blocks: 0,
                marks: 0,
                urgent: 0,
            },
            ecn,
            options: &options,
            data: &data,
        };
        let packet = segment.packet(1);
        let parsed = Packet::with_zeros(1, packet.bytes().to_vec(), packet.zeros());
        prop_assert_eq!((parsed.tcp(), parsed.flow(), parsed.ecn()), (Some(&segment.tcp), packet.flow(), ecn));
        prop_assert_eq!((parsed.payload(), parsed.tcp_options()), (&data[..], &options[..]));
        prop_assert!(parsed.checksum_ok());
        // Payload length and next header, read by another parser.
        let (header, rest) = etherparse::Ipv6Header::from_slice(packet.bytes()).unwrap();
        prop_assert_eq!(usize::from(header.payload_length), rest.len() + zeros as usize);
        prop_assert_eq!((header.next_header.0, header.hop_limit), (6, 64));
        prop_assert_eq!(packet.len() as usize, packet.to_vec().len());
    }

    #[test]
    fn any_bytes_are_accepted(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        let mut packet = Packet::from_bytes(0, bytes);
        packet.checksum_ok();
        packet.tcp_options();
        packet.payload();
        packet.set_congestion_experienced();
        packet.damage_checksum();
    }

    #[test]
    fn damaged_headers_are_accepted(at in 0usize..60, value: u8, cut in 0usize..60, ip in prop::sample::select(&BOTH)) {
        let mut bytes = Segment { ip, payload: 20, ..Segment::default() }.packet().to_vec();
        bytes[at] = value;
        bytes.truncate(bytes.len() - cut);
        let packet = Packet::from_bytes(0, bytes);
        packet.checksum_ok();
        packet.tcp_options();
        packet.payload();
    }
}
