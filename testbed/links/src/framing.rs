//! Framing on a serial line, to the byte: SLIP (RFC 1055; with the packet types of RFC 1144, that is CSLIP) and PPP in
//! HDLC-like framing (RFC 1661, 1662, 1332).
//!
//! Both end a frame with a delimiter. They also start one with it if the line was idle, so that noise ends as a frame
//! of its own (RFC 1055 page 3, RFC 1662 section 4.4.1). On a busy line the delimiter of the frame before suffices.

use crate::rfc1144::{Compressed, Kind};

/// Framing of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Packets without framing.
    None,
    /// SLIP.
    Slip,
    /// PPP.
    Ppp {
        /// Async-Control-Character-Map: bit n escapes byte n (RFC 1662 section 7.1).
        accm: u32,
    },
}

/// Why bytes are not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFrame {
    /// The frame check sequence is wrong.
    CheckSequence,
    /// Too short, ends within an escape, or not this kind of PPP frame.
    Malformed,
}

impl Framing {
    /// The bytes on the line, with a leading delimiter if the line was `idle`.
    pub fn encode(self, packet: &Compressed, idle: bool) -> Vec<u8> {
        match self {
            Framing::None => packet.bytes.clone(),
            Framing::Slip => slip::encode(&slip::typed(packet), idle),
            Framing::Ppp { accm } => ppp::encode(ppp::protocol(packet), &packet.bytes, accm, idle),
        }
    }

    /// Length of [`Framing::encode`] for a packet that is followed by `zeros` bytes of value 0.
    pub fn encoded_len(self, packet: &Compressed, zeros: u32, idle: bool) -> u64 {
        let zeros = u64::from(zeros);
        match self {
            Framing::None => packet.bytes.len() as u64 + zeros,
            Framing::Slip => slip::encoded_len(packet, idle) + zeros,
            Framing::Ppp { accm } => ppp::encoded_len(ppp::protocol(packet), &packet.bytes, zeros, accm, idle),
        }
    }

    /// The far end detects damaged frames: PPP has a check sequence, SLIP has not.
    pub fn detects_corruption(self) -> bool {
        matches!(self, Framing::Ppp { .. })
    }
}

/// RFC 1055.
pub mod slip {
    use super::{BadFrame, Compressed, Kind};

    /// Ends a frame.
    pub const END: u8 = 0o300;
    /// Announces an escaped byte.
    pub const ESC: u8 = 0o333;
    /// END, escaped.
    pub const ESC_END: u8 = 0o334;
    /// ESC, escaped.
    pub const ESC_ESC: u8 = 0o335;

    /// A packet with its type in the first byte (RFC 1144 3.2.1 and B.1): 4 or 6 for IP, the top bit for a compressed
    /// packet, 7 for an uncompressed one.
    pub fn typed(packet: &Compressed) -> Vec<u8> {
        let mut bytes = packet.bytes.clone();
        if let Some(first) = bytes.first_mut() {
            *first |= type_bits(packet.kind);
        }
        bytes
    }

    const fn type_bits(kind: Kind) -> u8 {
        match kind {
            Kind::Ip => 0,
            Kind::UncompressedTcp => 0x70,
            Kind::CompressedTcp => 0x80,
        }
    }

    /// The inverse of [`typed`].
    pub fn untyped(mut bytes: Vec<u8>) -> Compressed {
        let kind = match bytes.first_mut() {
            Some(first) if *first & 0x80 != 0 => {
                *first &= 0x7f;
                Kind::CompressedTcp
            }
            Some(first) if *first >= 0x70 => {
                *first &= 0x4f;
                Kind::UncompressedTcp
            }
            _ => Kind::Ip,
        };
        Compressed { kind, bytes }
    }

    /// The bytes on the line.
    pub fn encode(packet: &[u8], idle: bool) -> Vec<u8> {
        let mut line = Vec::with_capacity(packet.len() + 8);
        if idle {
            line.push(END);
        }
        for &byte in packet {
            match byte {
                END => line.extend([ESC, ESC_END]),
                ESC => line.extend([ESC, ESC_ESC]),
                plain => line.push(plain),
            }
        }
        line.push(END);
        line
    }

    pub(super) fn encoded_len(packet: &Compressed, idle: bool) -> u64 {
        let escaped = |byte: &u8| *byte == END || *byte == ESC;
        let mut bytes = packet.bytes.iter();
        let first = bytes.next().is_some_and(|first| escaped(&(first | type_bits(packet.kind))));
        let escapes = u64::from(first) + bytes.filter(|byte| escaped(byte)).count() as u64;
        packet.bytes.len() as u64 + escapes + 1 + u64::from(idle)
    }

    /// The packet between two ENDs.
    ///
    /// # Errors
    /// An ESC is not followed by an escaped byte.
    pub fn unescape(between: &[u8]) -> Result<Vec<u8>, BadFrame> {
        let mut packet = Vec::with_capacity(between.len());
        let mut bytes = between.iter();
        while let Some(&byte) = bytes.next() {
            packet.push(match byte {
                ESC => match bytes.next() {
                    Some(&ESC_END) => END,
                    Some(&ESC_ESC) => ESC,
                    _ => return Err(BadFrame::Malformed),
                },
                plain => plain,
            });
        }
        Ok(packet)
    }
}

/// RFC 1661 and 1662 without negotiated header compression: address, control and both bytes of the protocol are
/// present.
pub mod ppp {
    use super::{BadFrame, Compressed, Kind};

    /// Delimits a frame.
    pub const FLAG: u8 = 0x7e;
    /// Announces an escaped byte.
    pub const ESCAPE: u8 = 0x7d;
    /// XORed with an escaped byte.
    const FLIP: u8 = 0x20;
    /// All stations, unnumbered information.
    const ADDRESS_AND_CONTROL: [u8; 2] = [0xff, 0x03];
    /// IPv4 (RFC 1332).
    pub const IP: u16 = 0x0021;
    /// A compressed TCP/IP header (RFC 1332 section 4).
    pub const COMPRESSED_TCP: u16 = 0x002d;
    /// A TCP packet that sets a slot.
    pub const UNCOMPRESSED_TCP: u16 = 0x002f;
    /// IPv6 (RFC 5072).
    pub const IPV6: u16 = 0x0057;
    /// Every control character is escaped until the ends negotiate another map.
    pub const DEFAULT_ACCM: u32 = 0xffff_ffff;

    /// The protocol number of a packet.
    pub fn protocol(packet: &Compressed) -> u16 {
        match (packet.kind, packet.bytes.first().map(|first| first >> 4)) {
            (Kind::CompressedTcp, _) => COMPRESSED_TCP,
            (Kind::UncompressedTcp, _) => UNCOMPRESSED_TCP,
            (Kind::Ip, Some(6)) => IPV6,
            (Kind::Ip, _) => IP,
        }
    }

    /// The bytes on the line.
    pub fn encode(protocol: u16, information: &[u8], accm: u32, idle: bool) -> Vec<u8> {
        let mut line = Vec::with_capacity(information.len() + information.len() / 4 + 16);
        if idle {
            line.push(FLAG);
        }
        let mut put = |byte: u8| match escaped(byte, accm) {
            true => line.extend([ESCAPE, byte ^ FLIP]),
            false => line.push(byte),
        };
        let check = !each_byte(protocol, information).fold(INITIAL, |fcs, byte| {
            put(byte);
            fcs_step(fcs, byte)
        });
        check.to_le_bytes().into_iter().for_each(put);
        line.push(FLAG);
        line
    }

    pub(super) fn encoded_len(protocol: u16, information: &[u8], zeros: u64, accm: u32, idle: bool) -> u64 {
        let (mut fcs, mut bytes) = (INITIAL, 0);
        for byte in each_byte(protocol, information) {
            bytes += 1 + u64::from(escaped(byte, accm));
            fcs = fcs_step(fcs, byte);
        }
        for _ in 0..zeros {
            fcs = fcs_step(fcs, 0);
        }
        bytes += zeros * (1 + u64::from(escaped(0, accm)));
        let check = (!fcs).to_le_bytes().map(|byte| 1 + u64::from(escaped(byte, accm)));
        bytes + check[0] + check[1] + 1 + u64::from(idle)
    }

    fn each_byte(protocol: u16, information: &[u8]) -> impl Iterator<Item = u8> + '_ {
        ADDRESS_AND_CONTROL.into_iter().chain(protocol.to_be_bytes()).chain(information.iter().copied())
    }

    fn escaped(byte: u8, accm: u32) -> bool {
        byte == FLAG || byte == ESCAPE || (byte < 0x20 && accm >> byte & 1 == 1)
    }

    /// The protocol and the information between two flags. Unescaped control characters of the map are dropped, because
    /// the line inserted them (RFC 1662 section 4.2).
    ///
    /// # Errors
    /// The check sequence is wrong, or the frame is malformed.
    pub fn decode(between: &[u8], accm: u32) -> Result<(u16, Vec<u8>), BadFrame> {
        let mut frame = Vec::with_capacity(between.len());
        let mut bytes = between.iter().filter(|&&byte| byte >= 0x20 || !escaped(byte, accm));
        while let Some(&byte) = bytes.next() {
            match byte {
                ESCAPE => frame.push(*bytes.next().ok_or(BadFrame::Malformed)? ^ FLIP),
                plain => frame.push(plain),
            }
        }
        if frame.len() < 6 {
            return Err(BadFrame::Malformed);
        }
        if frame.iter().fold(INITIAL, |fcs, &byte| fcs_step(fcs, byte)) != GOOD {
            return Err(BadFrame::CheckSequence);
        }
        if frame[..2] != ADDRESS_AND_CONTROL {
            return Err(BadFrame::Malformed);
        }
        let protocol = u16::from_be_bytes([frame[2], frame[3]]);
        Ok((protocol, frame[4..frame.len() - 2].to_vec()))
    }

    /// The packet of a protocol number; `None` for protocols other than IP.
    pub fn packet(protocol: u16, bytes: Vec<u8>) -> Option<Compressed> {
        let kind = match protocol {
            IP | IPV6 => Kind::Ip,
            COMPRESSED_TCP => Kind::CompressedTcp,
            UNCOMPRESSED_TCP => Kind::UncompressedTcp,
            _ => return None,
        };
        Some(Compressed { kind, bytes })
    }

    const INITIAL: u16 = 0xffff;
    /// Check sequence over a good frame, its own two bytes included (RFC 1662 appendix C).
    const GOOD: u16 = 0xf0b8;

    /// One byte of the 16-bit frame check sequence: x^16 + x^12 + x^5 + 1, lowest bit first.
    const fn fcs_step(fcs: u16, byte: u8) -> u16 {
        fcs >> 8 ^ FCS[((fcs ^ byte as u16) & 0xff) as usize]
    }

    static FCS: [u16; 256] = table();

    const fn table() -> [u16; 256] {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let (mut value, mut bit) = (byte as u16, 0);
            while bit < 8 {
                value = value >> 1 ^ if value & 1 == 1 { 0x8408 } else { 0 };
                bit += 1;
            }
            table[byte] = value;
            byte += 1;
        }
        table
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_check_sequence_is_crc_16_x_25() {
            // The check value of CRC-16/X-25.
            assert_eq!(!b"123456789".iter().fold(INITIAL, |fcs, &byte| fcs_step(fcs, byte)), 0x906e);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(kind: Kind, bytes: &[u8]) -> Compressed {
        Compressed { kind, bytes: bytes.to_vec() }
    }

    #[test]
    fn slip_escapes_its_two_bytes_and_tells_types_by_the_first() {
        let ip = packet(Kind::Ip, &[0x45, 0xc0, 1, 0xdb]);
        let line = [0xc0, 0x45, 0xdb, 0xdc, 1, 0xdb, 0xdd, 0xc0];
        assert_eq!(Framing::Slip.encode(&ip, true), line);
        assert_eq!(Framing::Slip.encode(&ip, false), line[1..]);
        assert_eq!(Framing::Slip.encode(&packet(Kind::UncompressedTcp, &[0x45]), false), [0x75, 0xc0]);
        assert_eq!(Framing::Slip.encode(&packet(Kind::CompressedTcp, &[0x1b]), false), [0x9b, 0xc0]);
        // The type bit makes an ordinary mask an END: the escape sees the byte as it goes out.
        let end = packet(Kind::CompressedTcp, &[0x40, 9]);
        assert_eq!(Framing::Slip.encode(&end, false), [0xdb, 0xdc, 9, 0xc0]);
        assert_eq!(Framing::Slip.encoded_len(&end, 100, false), 104);
        assert_eq!(slip::unescape(&[1, 0xdb, 7]), Err(BadFrame::Malformed));
        assert_eq!(slip::unescape(&[1, 0xdb]), Err(BadFrame::Malformed));
    }

    /// The escapes that every dump of an asynchronous PPP line begins with.
    #[test]
    fn ppp_escapes_flag_escape_and_the_mapped_characters() {
        let frame = ppp::encode(ppp::IP, &[0x45, 0x7e, 0x7d, 0x11], ppp::DEFAULT_ACCM, true);
        let head = [0x7e, 0xff, 0x7d, 0x23, 0x7d, 0x20, 0x21, 0x45, 0x7d, 0x5e, 0x7d, 0x5d, 0x7d, 0x31];
        assert_eq!(frame[..head.len()], head);
        assert_eq!(frame.last(), Some(&0x7e));
        let bare = ppp::encode(ppp::IP, &[0x45, 0x11], 0, false);
        assert_eq!(bare[..6], [0xff, 0x03, 0x00, 0x21, 0x45, 0x11]);
    }

    #[test]
    fn a_damaged_ppp_frame_is_noticed() {
        let frame = ppp::encode(ppp::COMPRESSED_TCP, &[1, 2, 3, 4, 5], 0, false);
        let mut between = frame[..frame.len() - 1].to_vec();
        assert_eq!(ppp::decode(&between, 0), Ok((ppp::COMPRESSED_TCP, vec![1, 2, 3, 4, 5])));
        between[6] ^= 0x10;
        assert_eq!(ppp::decode(&between, 0), Err(BadFrame::CheckSequence));
        assert_eq!(ppp::decode(&between[..5], 0), Err(BadFrame::Malformed));
        assert_eq!(ppp::decode(&[0xff, 0x7d], 0), Err(BadFrame::Malformed));
    }

    fn any_packet() -> impl Strategy<Value = Compressed> {
        let complete = prop_oneof![
            (Just(Kind::Ip), Just(0x45u8)),
            (Just(Kind::Ip), Just(0x60)),
            (Just(Kind::UncompressedTcp), 0x45u8..0x50),
            (Just(Kind::CompressedTcp), 0u8..0x80),
        ];
        // Half of the bytes are some that framing cares for.
        let byte = prop_oneof![any::<u8>(), proptest::sample::select(&[0xc0u8, 0xdb, 0x7e, 0x7d, 0, 0x11][..])];
        (complete, proptest::collection::vec(byte, 0..80)).prop_map(|((kind, first), mut bytes)| {
            bytes.insert(0, first);
            Compressed { kind, bytes }
        })
    }

    proptest! {
        /// Whatever is in it comes back, and its length is foretold.
        #[test]
        fn frames_round_trip(packet in any_packet(), zeros in 0u32..40, idle: bool, accm in prop_oneof![Just(0), Just(0xa0000u32), Just(u32::MAX), any::<u32>()]) {
            let mut complete = packet.clone();
            complete.bytes.extend(vec![0; zeros as usize]);
            for framing in [Framing::None, Framing::Slip, Framing::Ppp { accm }] {
                let line = framing.encode(&complete, idle);
                prop_assert_eq!(framing.encoded_len(&packet, zeros, idle), line.len() as u64);
            }
            let line = Framing::Slip.encode(&complete, idle);
            let between = &line[usize::from(idle)..line.len() - 1];
            prop_assert!(!between.contains(&slip::END));
            prop_assert_eq!(slip::untyped(slip::unescape(between).unwrap()), complete.clone());
            let line = Framing::Ppp { accm }.encode(&complete, idle);
            let between = &line[usize::from(idle)..line.len() - 1];
            prop_assert!(!between.contains(&ppp::FLAG));
            let (protocol, bytes) = ppp::decode(between, accm).unwrap();
            prop_assert_eq!(ppp::packet(protocol, bytes), Some(complete));
        }

        /// A wrong byte never passes PPP's check; one that makes or hides an escape may, one time in 65,536.
        #[test]
        fn no_single_damage_passes_ppp(bytes in proptest::collection::vec(0u8..0x7d, 0..80), at: prop::sample::Index, flip in 1u8..) {
            let line = ppp::encode(ppp::IP, &bytes, 0, false);
            let mut between = line[..line.len() - 1].to_vec();
            let at = at.index(between.len());
            let before = between[at];
            between[at] ^= flip;
            prop_assume!(before != ppp::ESCAPE && between[at] != ppp::ESCAPE && between[at] != ppp::FLAG);
            prop_assert_eq!(ppp::decode(&between, 0), Err(BadFrame::CheckSequence));
        }

        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..40), accm: u32) {
            let _ = ppp::decode(&bytes, accm);
            let _ = slip::unescape(&bytes).map(slip::untyped);
        }
    }
}
