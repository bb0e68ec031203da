use super::build::{ack, data, udp, Segment};
use super::edit::{fold, ones_sum};
use super::*;
use proptest::prelude::*;

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
    assert!(packet.checksum_ok());
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
        marks in 0u8..8,
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
    fn damaged_headers_are_accepted(at in 0usize..60, value: u8, cut in 0usize..60) {
        let mut bytes = data(1, 20).to_vec();
        bytes[at] = value;
        bytes.truncate(60 - cut);
        let packet = Packet::from_bytes(0, bytes);
        packet.checksum_ok();
        packet.tcp_options();
        packet.payload();
    }
}
