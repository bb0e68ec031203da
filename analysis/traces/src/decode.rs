//! From a captured frame to its TCP header. Lengths come from the IP header, so a snap length that cuts the payload off
//! does not matter.
//!
//! Link types: Ethernet (VLAN, QinQ, MPLS and PPPoE inside, LLC/SNAP), Linux cooked v1 and v2, raw IP, BSD loopback, PPP
//! and SLIP. IPv4 with options, IPv6 with extension headers; fragments of both are put together.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};

use crate::capture::Frame;

/// An IPv6 address, or an IPv4 address mapped to one (RFC 4291 2.5.5.2), in network order, highest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(pub u128);

impl Address {
    /// An IPv4 address.
    #[inline(always)]
    pub const fn four(number: u32) -> Address {
        Address(0xffff << 32 | number as u128)
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> IpAddr {
        Ipv6Addr::from(address.0).to_canonical()
    }
}

/// What the checksums of a packet say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// All of them are right.
    Good,
    /// One is wrong: no receiver takes the packet.
    Bad,
    /// Left to the network card by the sender (the field holds the pseudo header's sum, or nothing), or the packet was
    /// not kept whole.
    Unknown,
}

/// Bits of the IP header's ECN field (RFC 3168).
pub mod ecn {
    /// Neither the sender nor the network says anything.
    pub const NOT_ECT: u8 = 0;
    /// Congestion experienced.
    pub const CE: u8 = 3;
}

/// What a TCP header says, and how long its packet was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpPacket {
    /// Sender.
    pub src: (Address, u16),
    /// Receiver.
    pub dst: (Address, u16),
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number; meaningless without ACK.
    pub ack: u32,
    /// Flags, FIN lowest.
    pub flags: u8,
    /// Window field, unscaled.
    pub window: u16,
    /// Length of the IP packet in bytes; of all its fragments when it came in some.
    pub ip_len: u32,
    /// Bytes of data.
    pub payload: u32,
    /// ECN field of the IP header.
    pub ecn: u8,
    /// What the checksums say.
    pub checksum: Checksum,
    /// Window scale option.
    pub window_scale: Option<u8>,
    /// Maximum segment size option.
    pub mss: Option<u16>,
    /// Whether SACK was offered.
    pub sack_permitted: bool,
    /// How many of `sacks` there are.
    pub sack_blocks: u8,
    /// SACK blocks carried: left and right edge.
    pub sacks: [(u32, u32); 4],
    /// Timestamp option: value, echo.
    pub timestamps: Option<(u32, u32)>,
}

impl Default for TcpPacket {
    /// An empty one, to be read into.
    fn default() -> TcpPacket {
        let nobody = (Address(0), 0);
        TcpPacket {
            src: nobody,
            dst: nobody,
            seq: 0,
            ack: 0,
            flags: 0,
            window: 0,
            ip_len: 0,
            payload: 0,
            ecn: 0,
            checksum: Checksum::Unknown,
            window_scale: None,
            mss: None,
            sack_permitted: false,
            sack_blocks: 0,
            sacks: [(0, 0); 4],
            timestamps: None,
        }
    }
}

/// Why a frame gives no TCP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Not {
    /// It is of another protocol.
    Tcp,
    /// It is a fragment of a packet that is not whole yet.
    Whole,
    /// Too little of it was kept, or its headers contradict each other.
    Readable,
    /// Its link type is none of ours.
    Link,
}

/// Turns frames to TCP packets.
#[derive(Debug, Default)]
pub struct Decoder {
    fragments: Fragments,
}

impl Decoder {
    /// Reads the TCP packet of a frame, or the one that this fragment completes, into `packet`.
    ///
    /// # Errors
    /// Why there is none; what is in `packet` then means nothing.
    #[inline(always)]
    pub fn decode(&mut self, frame: &Frame, packet: &mut TcpPacket) -> Result<(), Not> {
        let ip = network(frame.link_type, frame.data)?;
        // What a length of zero in an IP header stands for: the whole frame. Where a card cut a frame off, even less.
        let on_wire = frame.wire_len.saturating_sub((frame.data.len() - ip.len()) as u32);
        if plain(ip, packet) {
            return Ok(());
        }
        match ip.first().ok_or(Not::Readable)? >> 4 {
            4 => self.ipv4(ip, on_wire, packet),
            6 => self.ipv6(ip, on_wire, packet),
            _ => Err(Not::Tcp),
        }
    }

    /// Packets of which fragments are missing.
    pub fn unfinished(&self) -> u64 {
        self.fragments.given_up + self.fragments.open.len() as u64
    }

    #[inline(never)]
    fn ipv4(&mut self, ip: &[u8], on_wire: u32, packet: &mut TcpPacket) -> Result<(), Not> {
        let fixed: &[u8; 20] = ip.first_chunk().ok_or(Not::Readable)?;
        let header = usize::from(fixed[0] & 15) * 4;
        if header < 20 {
            return Err(Not::Readable);
        }
        if fixed[9] != 6 {
            return Err(Not::Tcp);
        }
        let total = match u32::from(u16::from_be_bytes([fixed[2], fixed[3]])) {
            0 => on_wire,
            total => total,
        };
        let rest = ip.get(header..).ok_or(Not::Readable)?;
        let tcp_len = total.checked_sub(header as u32).ok_or(Not::Readable)?;
        let good = match u16::from_be_bytes([fixed[10], fixed[11]]) {
            // Left to the network card.
            0 => true,
            _ => fold(sum(&ip[..header])) == 0xffff,
        };
        let address = |a, b, c, d| Address::four(u32::from_be_bytes([a, b, c, d]));
        let src = address(fixed[12], fixed[13], fixed[14], fixed[15]);
        let dst = address(fixed[16], fixed[17], fixed[18], fixed[19]);
        let fragment = u16::from_be_bytes([fixed[6], fixed[7]]);
        let around = Around {
            src,
            dst,
            ip_len: total,
            tcp_len,
            ecn: fixed[1] & 3,
            good,
            // Source routes change the address that the checksum is of.
            summed: header == 20 || !ip[20..header].iter().any(|&kind| matches!(kind, 131 | 137)),
        };
        if fragment & 0x3fff != 0 {
            let id = u32::from(u16::from_be_bytes([fixed[4], fixed[5]]));
            return self.fragments.take(
                id,
                u32::from(fragment & 0x1fff) * 8,
                fragment & 0x2000 != 0,
                rest,
                around,
                packet,
            );
        }
        tcp(rest, around, packet)
    }

    #[inline(never)]
    fn ipv6(&mut self, ip: &[u8], on_wire: u32, packet: &mut TcpPacket) -> Result<(), Not> {
        let fixed: &[u8; 40] = ip.first_chunk().ok_or(Not::Readable)?;
        // Zero for a jumbogram (RFC 2675) and before segmentation offload.
        let total = match u32::from(u16::from_be_bytes([fixed[4], fixed[5]])) {
            0 => on_wire,
            left => left + 40,
        };
        let [src, dst] =
            [8, 24].map(|at| Address(u128::from_be_bytes(fixed[at..at + 16].try_into().expect("these are sixteen"))));
        let ecn = fixed[1] >> 4 & 3;
        let (mut next, mut at, mut summed) = (fixed[6], 40, true);
        loop {
            let rest = ip.get(at..).ok_or(Not::Readable)?;
            let left = total.checked_sub(at as u32).ok_or(Not::Readable)?;
            let around = Around { src, dst, ip_len: total, tcp_len: left, ecn, good: true, summed };
            let long = || rest.get(1).map(|&length| usize::from(length)).ok_or(Not::Readable);
            let length = match next {
                6 => return tcp(rest, around, packet),
                // Hop-by-hop, destination options; mobility, HIP, Shim6.
                0 | 60 | 135 | 139 | 140 => (long()? + 1) * 8,
                // Routing: the checksum is of the last address on the way, not this one, while segments are left.
                43 => {
                    summed &= *rest.get(3).ok_or(Not::Readable)? == 0;
                    (long()? + 1) * 8
                }
                // Authentication.
                51 => (long()? + 2) * 4,
                44 => {
                    let head: &[u8; 8] = rest.first_chunk().ok_or(Not::Readable)?;
                    let place = u16::from_be_bytes([head[2], head[3]]);
                    if place & 0xfff9 == 0 {
                        // An atomic fragment (RFC 6946) is whole.
                        8
                    } else if head[0] != 6 {
                        return Err(Not::Tcp);
                    } else {
                        let id = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
                        let around = Around { tcp_len: left.checked_sub(8).ok_or(Not::Readable)?, ..around };
                        let offset = u32::from(place & 0xfff8);
                        return self.fragments.take(id, offset, place & 1 != 0, &rest[8..], around, packet);
                    }
                }
                _ => return Err(Not::Tcp),
            };
            next = *rest.first().ok_or(Not::Readable)?;
            at += length;
        }
    }
}

/// What lies around a TCP segment.
#[derive(Debug, Clone, Copy)]
struct Around {
    src: Address,
    dst: Address,
    ip_len: u32,
    /// Bytes of TCP header and data.
    tcp_len: u32,
    ecn: u8,
    /// The IP header's checksum is right.
    good: bool,
    /// `dst` is the address that the TCP checksum is of.
    summed: bool,
}

impl Around {
    /// The sum of both addresses, as [`sum`] has it.
    fn addresses(&self) -> u64 {
        // What maps an IPv4 address to an IPv6 one adds up to zero in one's complement.
        add(sum(&self.src.0.to_be_bytes()), sum(&self.dst.0.to_be_bytes()))
    }
}

/// A frame's bytes from its IP header on, with whatever pads it; `None` where its kind is not known.
pub fn network_layer<'a>(frame: &Frame<'a>) -> Option<&'a [u8]> {
    network(frame.link_type, frame.data).ok()
}

/// The IP packet of a frame.
#[inline(always)]
fn network(link_type: u16, data: &[u8]) -> Result<&[u8], Not> {
    // LINKTYPE_ETHERNET, and LINKTYPE_RAW.
    if link_type == 1 {
        return after_ethertype(be16(data, 12)?, data.get(14..).ok_or(Not::Readable)?);
    }
    if link_type == 101 {
        return Ok(data);
    }
    after_other_link(link_type, data)
}

#[inline(never)]
fn after_other_link(link_type: u16, data: &[u8]) -> Result<&[u8], Not> {
    match link_type {
        // Two older numbers of LINKTYPE_RAW, LINKTYPE_IPV4, LINKTYPE_IPV6
        12 | 14 | 228 | 229 => Ok(data),
        // LINKTYPE_LINUX_SLL
        113 => after_ethertype(be16(data, 14)?, data.get(16..).ok_or(Not::Readable)?),
        // LINKTYPE_LINUX_SLL2
        276 => after_ethertype(be16(data, 0)?, data.get(20..).ok_or(Not::Readable)?),
        // LINKTYPE_NULL has the family in the capturing machine's byte order, LINKTYPE_LOOP in the network's
        0 | 108 => {
            let family: [u8; 4] = *data.first_chunk().ok_or(Not::Readable)?;
            let low = u32::from_be_bytes(family).min(u32::from_le_bytes(family));
            // AF_INET, and AF_INET6 of Linux, NetBSD, FreeBSD, macOS.
            if matches!(low, 2 | 10 | 24 | 28 | 30) {
                Ok(&data[4..])
            } else {
                Err(Not::Tcp)
            }
        }
        // LINKTYPE_PPP, LINKTYPE_PPP_HDLC, and LINKTYPE_PPP_PPPD, whose address byte tells the direction
        9 | 50 => after_ppp(data),
        166 => after_ppp(data.get(2..).ok_or(Not::Readable)?),
        // LINKTYPE_PPP_ETHER: PPPoE from its version on
        51 => after_ppp(data.get(6..).ok_or(Not::Readable)?),
        // LINKTYPE_C_HDLC
        104 => after_ethertype(be16(data, 2)?, data.get(4..).ok_or(Not::Readable)?),
        // LINKTYPE_SLIP: direction and compressed header before the packet; of BSD/OS: 24 bytes
        8 => data.get(16..).ok_or(Not::Readable),
        15 | 16 => data.get(24..).ok_or(Not::Readable),
        // LINKTYPE_ERF
        197 => after_erf(data),
        // LINKTYPE_ENC
        109 => data.get(12..).ok_or(Not::Readable),
        _ => Err(Not::Link),
    }
}

#[inline]
fn after_ethertype(kind: u16, rest: &[u8]) -> Result<&[u8], Not> {
    match kind {
        0x0800 | 0x86dd => Ok(rest),
        _ => after_other_ethertype(kind, rest),
    }
}

fn after_other_ethertype(mut kind: u16, mut rest: &[u8]) -> Result<&[u8], Not> {
    loop {
        match kind {
            0x0800 | 0x86dd => return Ok(rest),
            // 802.1Q, 802.1ad, and the number that QinQ had before it.
            0x8100 | 0x88a8 | 0x9100 => {
                kind = be16(rest, 2)?;
                rest = rest.get(4..).ok_or(Not::Readable)?;
            }
            // PPPoE session: version, code, session, length.
            0x8864 => return after_ppp(rest.get(6..).ok_or(Not::Readable)?),
            // MPLS: labels down to the one with the bottom bit.
            0x8847 | 0x8848 => {
                while rest.get(2).ok_or(Not::Readable)? & 1 == 0 {
                    rest = rest.get(4..).ok_or(Not::Readable)?;
                }
                return rest.get(4..).ok_or(Not::Readable);
            }
            // 802.3 with LLC and SNAP.
            0..=1500 if rest.starts_with(&[0xaa, 0xaa, 3, 0, 0, 0]) => {
                kind = be16(rest, 6)?;
                rest = &rest[8..];
            }
            _ => return Err(Not::Tcp),
        }
    }
}

/// A record of Endace's extensible format: 16 bytes, and 8 for each extension while a top bit says that one follows.
fn after_erf(data: &[u8]) -> Result<&[u8], Not> {
    let kind = *data.get(8).ok_or(Not::Readable)?;
    let (mut more, mut rest) = (kind & 0x80 != 0, data.get(16..).ok_or(Not::Readable)?);
    while more {
        more = *rest.first().ok_or(Not::Readable)? & 0x80 != 0;
        rest = rest.get(8..).ok_or(Not::Readable)?;
    }
    match kind & 0x7f {
        // Ethernet, with two bytes before it.
        2 | 11 | 16 | 20 => after_ethertype(be16(rest, 14)?, rest.get(16..).ok_or(Not::Readable)?),
        22 | 23 => Ok(rest),
        _ => Err(Not::Tcp),
    }
}

/// PPP (RFC 1661, 1662): address and control may be left out, and so may the protocol's first byte when it is zero.
fn after_ppp(data: &[u8]) -> Result<&[u8], Not> {
    let data = data.strip_prefix(&[0xff, 3]).unwrap_or(data);
    let (protocol, rest) = match data {
        [low, rest @ ..] if low & 1 == 1 => (u16::from(*low), rest),
        [high, low, rest @ ..] => (u16::from_be_bytes([*high, *low]), rest),
        _ => return Err(Not::Readable),
    };
    if matches!(protocol, 0x21 | 0x57) {
        Ok(rest)
    } else {
        Err(Not::Tcp)
    }
}

/// The commonest packet, a segment without options or with timestamps alone in an IPv4 packet without options that is no
/// fragment: whether it is one, and then it is read. Says what `ipv4` would; a test holds them together.
#[inline(always)]
fn plain(ip: &[u8], packet: &mut TcpPacket) -> bool {
    let Some(fixed) = ip.first_chunk::<40>() else { return false };
    let be16 = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let be32 = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let total = u32::from(be16(2));
    if fixed[0] != 0x45 || fixed[9] != 6 || be16(6) & 0x3fff != 0 || be16(10) == 0 {
        return false;
    }
    let header;
    match fixed[32] >> 4 {
        5 => {
            header = 40;
            packet.timestamps = None;
        }
        8 => {
            let Some([1, 1, 8, 10, a, b, c, d, e, f, g, h]) = ip.get(40..52) else { return false };
            header = 52;
            packet.timestamps = Some((u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h])));
        }
        _ => return false,
    }
    let word = |at: usize| u64::from_ne_bytes(*fixed[at..].first_chunk().expect("forty hold it"));
    let half_word = |at: usize| u64::from(u32::from_ne_bytes(*fixed[at..].first_chunk().expect("forty hold it")));
    if total < header || fold(add(add(word(0), word(8)), half_word(16))) != 0xffff {
        return false;
    }
    packet.src = (Address::four(be32(12)), be16(20));
    packet.dst = (Address::four(be32(16)), be16(22));
    packet.seq = be32(24);
    packet.ack = be32(28);
    packet.flags = fixed[33];
    packet.window = be16(34);
    packet.ip_len = total;
    packet.payload = total - header;
    packet.ecn = fixed[1] & 3;
    packet.window_scale = None;
    packet.mss = None;
    packet.sack_permitted = false;
    packet.sack_blocks = 0;
    packet.checksum = match ip.get(20..total as usize) {
        Some(segment) => verify(segment, word(12)),
        None => Checksum::Unknown,
    };
    true
}

fn tcp(tcp: &[u8], around: Around, packet: &mut TcpPacket) -> Result<(), Not> {
    let fixed: &[u8; 20] = tcp.first_chunk().ok_or(Not::Readable)?;
    let be16 = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let be32 = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let header = u32::from(fixed[12] >> 4) * 4;
    if header < 20 {
        return Err(Not::Readable);
    }
    packet.src = (around.src, be16(0));
    packet.dst = (around.dst, be16(2));
    packet.seq = be32(4);
    packet.ack = be32(8);
    packet.flags = fixed[13];
    packet.window = be16(14);
    packet.ip_len = around.ip_len;
    packet.payload = around.tcp_len.checked_sub(header).ok_or(Not::Readable)?;
    packet.ecn = around.ecn;
    packet.window_scale = None;
    packet.mss = None;
    packet.sack_permitted = false;
    packet.sack_blocks = 0;
    packet.timestamps = None;
    packet.checksum = match tcp.get(..around.tcp_len as usize) {
        _ if !around.good => Checksum::Bad,
        Some(whole) if around.summed => verify(whole, around.addresses()),
        _ => Checksum::Unknown,
    };
    let options = &tcp[20..(header as usize).min(tcp.len())];
    match options {
        [] => {}
        // How nearly every segment with timestamps has them.
        [1, 1, 8, 10, a, b, c, d, e, f, g, h] => {
            packet.timestamps = Some((u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h])));
        }
        _ => any_options(options, packet),
    }
    Ok(())
}

#[inline(never)]
fn any_options(mut options: &[u8], packet: &mut TcpPacket) {
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
        let number = |at: usize| u32::from_be_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]]);
        match (kind, value) {
            (2, [high, low]) => packet.mss = Some(u16::from_be_bytes([*high, *low])),
            // RFC 7323: a shift above 14 counts as 14.
            (3, [shift]) => packet.window_scale = Some((*shift).min(14)),
            (4, []) => packet.sack_permitted = true,
            (5, _) => {
                packet.sack_blocks = (value.len() / 8).min(4) as u8;
                for block in 0..usize::from(packet.sack_blocks) {
                    packet.sacks[block] = (number(block * 8), number(block * 8 + 4));
                }
            }
            (8, value) if value.len() == 8 => packet.timestamps = Some((number(0), number(4))),
            _ => {}
        }
        options = &options[length..];
    }
}

/// The checksum of a TCP segment (RFC 9293 3.1) that was kept whole, between addresses of this sum.
#[inline(always)]
fn verify(segment: &[u8], addresses: u64) -> Checksum {
    let pseudo = add(addresses, (6 + segment.len() as u64).to_be());
    if fold(add(pseudo, sum(segment))) == 0xffff {
        return Checksum::Good;
    }
    not_good(segment, addresses, pseudo)
}

/// A checksum that is not right may have been left to the network card: the field then has the pseudo header's sum, with
/// or without the length, or nothing.
#[cold]
fn not_good(segment: &[u8], addresses: u64, pseudo: u64) -> Checksum {
    let field = u16::from_ne_bytes([segment[16], segment[17]]);
    if field == 0 || field == fold(pseudo) || field == fold(add(addresses, 6u64.to_be())) {
        Checksum::Unknown
    } else {
        Checksum::Bad
    }
}

/// Sum of 16-bit words in one's complement and this machine's byte order, before folding (RFC 1071 2).
#[inline(always)]
fn sum(bytes: &[u8]) -> u64 {
    let (mut total, mut rest) = if bytes.len() < LONG { (0, bytes) } else { sum_long(bytes) };
    while let Some((eight, after)) = rest.split_first_chunk::<8>() {
        total = add(total, u64::from_ne_bytes(*eight));
        rest = after;
    }
    if let Some((four, after)) = rest.split_first_chunk::<4>() {
        total = add(total, u64::from(u32::from_ne_bytes(*four)));
        rest = after;
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        total = add(total, u64::from(u32::from_ne_bytes(last)));
    }
    total
}

/// From here on, several words at a time are worth their preparation.
const LONG: usize = 128;

/// The sum of all but the last bytes, and these.
#[inline(never)]
fn sum_long(bytes: &[u8]) -> (u64, &[u8]) {
    let chunks = bytes.chunks_exact(32);
    let rest = chunks.remainder();
    // Halves of words, so that nothing is carried: compilers make vectors of it.
    let mut lanes = [0u64; 8];
    for chunk in chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk.chunks_exact(4)) {
            *lane += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
    }
    (lanes.into_iter().fold(0, add), rest)
}

/// Adds in one's complement.
#[inline(always)]
fn add(a: u64, b: u64) -> u64 {
    let (total, carry) = a.overflowing_add(b);
    total + u64::from(carry)
}

#[inline(always)]
fn fold(sum: u64) -> u16 {
    // The high half of a number added to itself turned around has the sum of both halves and its carry.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

#[inline]
fn be16(bytes: &[u8], at: usize) -> Result<u16, Not> {
    match bytes.get(at..at + 2) {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => Err(Not::Readable),
    }
}

/// Packets that wait for their fragments at most; the oldest gives way.
const MAX_OPEN: usize = 1024;
/// Pieces of a packet at most; it is given up beyond.
const MAX_PIECES: usize = 128;
/// As much of a TCP segment as can be its header.
const HEADER: usize = 60;

/// Fragments that wait for others of their packet (RFC 791, RFC 8200 4.5).
#[derive(Debug, Default)]
struct Fragments {
    open: VecDeque<Pieces>,
    given_up: u64,
}

/// One packet's fragments so far. Only its header is kept, and which of its bytes came.
#[derive(Debug)]
struct Pieces {
    key: (Address, Address, u32),
    /// Disjoint, in order.
    came: Vec<(u32, u32)>,
    /// Where the packet ends, once its last fragment came.
    end: Option<u32>,
    header: [u8; HEADER],
    /// Bytes of `header` that were captured.
    known: [bool; HEADER],
    ip_len: u32,
    around: Around,
}

impl Fragments {
    /// Takes a fragment of `around.tcp_len` bytes at an offset; the packet, if that makes it whole.
    #[cold]
    fn take(
        &mut self,
        id: u32,
        offset: u32,
        more: bool,
        data: &[u8],
        around: Around,
        packet: &mut TcpPacket,
    ) -> Result<(), Not> {
        let key = (around.src, around.dst, id);
        let place = self.open.iter().position(|pieces| pieces.key == key).unwrap_or_else(|| {
            if self.open.len() == MAX_OPEN {
                self.open.pop_front();
                self.given_up += 1;
            }
            let pieces = Pieces {
                key,
                came: Vec::new(),
                end: None,
                header: [0; HEADER],
                known: [false; HEADER],
                ip_len: 0,
                around,
            };
            self.open.push_back(pieces);
            self.open.len() - 1
        });
        let pieces = &mut self.open[place];
        pieces.ip_len = pieces.ip_len.saturating_add(around.ip_len);
        pieces.around.good &= around.good;
        pieces.around.ecn = pieces.around.ecn.max(around.ecn);
        let end = offset.saturating_add(around.tcp_len);
        if !more {
            pieces.end = Some(end);
        }
        let captured = data.len().min(around.tcp_len as usize);
        for at in offset as usize..(offset as usize + captured).min(HEADER) {
            pieces.header[at] = data[at - offset as usize];
            pieces.known[at] = true;
        }
        pieces.came.push((offset, end));
        pieces.came.sort_unstable();
        pieces.came.dedup_by(|later, before| {
            let touch = later.0 <= before.1;
            if touch {
                before.1 = before.1.max(later.1);
            }
            touch
        });
        if pieces.came.len() > MAX_PIECES {
            self.open.remove(place);
            self.given_up += 1;
            return Err(Not::Readable);
        }
        let whole = pieces.came[0].0 == 0 && pieces.end.is_some_and(|end| pieces.came[0].1 >= end);
        if !whole {
            return Err(Not::Whole);
        }
        let pieces = self.open.remove(place).expect("it was just there");
        let known = pieces.known.iter().take_while(|&&known| known).count();
        let tcp_len = pieces.end.expect("it is whole");
        // The checksum would need all the data; that of the IP headers has been seen.
        let around = Around { ip_len: pieces.ip_len, tcp_len, summed: false, ..pieces.around };
        tcp(&pieces.header[..known], around, packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, TcpOptionElement};
    use proptest::prelude::*;

    fn decode(link_type: u16, data: &[u8]) -> Result<TcpPacket, Not> {
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

    fn frame() -> Vec<u8> {
        let mut bytes = Vec::new();
        PacketBuilder::ethernet2([1; 6], [2; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(1000, 5001, 77, 4000)
            .syn()
            .options(&elements())
            .expect("they fit")
            .write(&mut bytes, &[3; 100])
            .expect("a Vec takes every write");
        bytes
    }

    fn frame6() -> Vec<u8> {
        let mut bytes = Vec::new();
        PacketBuilder::ethernet2([1; 6], [2; 6])
            .ipv6([0xfe; 16], [0xfd; 16], 64)
            .tcp(1000, 5001, 77, 4000)
            .syn()
            .options(&elements())
            .expect("they fit")
            .write(&mut bytes, &[3; 101])
            .expect("a Vec takes every write");
        bytes
    }

    #[test]
    fn every_field_is_read_whatever_the_link() {
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
        assert_eq!(decode(147, ip), Err(Not::Link));
        assert_eq!(decode(0, &[&[7, 0, 0, 0], ip].concat()), Err(Not::Tcp));
        assert_eq!(decode(9, &[&[0xff, 3, 0xc0, 0x21], ip].concat()), Err(Not::Tcp));
    }

    #[test]
    fn ipv6_with_every_extension_header_before_it() {
        let frame = frame6();
        let plain = decode(1, &frame).expect("it is TCP");
        assert_eq!((plain.payload, plain.checksum), (101, Checksum::Good));
        assert_eq!(IpAddr::from(plain.src.0), IpAddr::from([0xfe; 16]));
        let (head, segment) = (&frame[14..54], &frame[54..]);
        // Hop-by-hop (long), routing, destination options, authentication, an atomic fragment.
        let mut extensions =
            [&[43u8, 1][..], &[0; 14], &[60, 0, 0, 0, 0, 0, 0, 0], &[51, 0, 0, 0, 0, 0, 0, 0]].concat();
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
    fn a_snap_length_that_cuts_the_payload_does_not_matter() {
        let mut cut = frame();
        cut.truncate(14 + 60);
        let packet = decode(1, &cut).expect("its headers are whole");
        assert_eq!((packet.payload, packet.checksum), (100, Checksum::Unknown));
    }

    #[test]
    fn a_length_of_zero_is_the_frame_s() {
        let mut four = frame();
        four[16..18].copy_from_slice(&[0, 0]);
        four[24..26].copy_from_slice(&[0, 0]);
        assert_eq!(decode(1, &four).expect("it is TCP").payload, 100);
        let mut six = frame6();
        six[18..20].copy_from_slice(&[0, 0]);
        assert_eq!(decode(1, &six).expect("it is TCP").payload, 101);
    }

    #[test]
    fn a_wrong_checksum_is_told_from_one_left_to_the_card() {
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

    /// Cuts an IPv4 packet to fragments of 8 * `units` bytes.
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

    proptest! {
        #[test]
        fn fragments_in_any_order_make_one_packet(
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
                    Err(why) => prop_assert!(pieces.len() == 1 || why == Not::Whole),
                }
            }
            prop_assert!(!found.is_empty());
            let packet = &found[0];
            prop_assert_eq!((packet.src, packet.seq, packet.payload, packet.mss), (whole.src, whole.seq, whole.payload, whole.mss));
        }

        /// What is done for the commonest packets is what would be done for any.
        #[test]
        fn the_short_way_is_the_long_way(
            timestamps: bool, payload in proptest::collection::vec(any::<u8>(), 0..400), cut in 0usize..500,
            at in 0usize..60, value: u8, mended: bool,
        ) {
            let options = [TcpOptionElement::Noop, TcpOptionElement::Noop, TcpOptionElement::Timestamp(7, 1 << 31)];
            let mut ip = Vec::new();
            PacketBuilder::ipv4([10, 0, 0, 1], [192, 168, 255, 254], 64)
                .tcp(1000, 5001, u32::MAX, 4000)
                .ack(1 << 31)
                .options(if timestamps { &options } else { &[] })
                .expect("they fit")
                .write(&mut ip, &payload)
                .expect("a Vec takes every write");
            if let Some(byte) = ip.get_mut(at).filter(|_| at >= 20 || !mended) {
                *byte = value;
            }
            ip.truncate(cut.max(20));
            let (mut short, mut long) = (TcpPacket::default(), TcpPacket::default());
            let taken = plain(&ip, &mut short);
            let told = Decoder::default().ipv4(&ip, ip.len() as u32, &mut long);
            if taken {
                prop_assert_eq!(told, Ok(()));
                prop_assert_eq!(short, long);
            } else if (at < 20 && !mended) || cut < 52 {
                return Ok(());
            } else {
                // Only what has other options goes the long way.
                prop_assert!(at == 32 || (timestamps && (40..44).contains(&at)), "byte {}", at);
            }
        }

        /// Sums of any length, by words of sixteen bits.
        #[test]
        fn sums_are_those_of_the_definition(bytes in proptest::collection::vec(any::<u8>(), 1..700)) {
            let mut slow = 0u64;
            for pair in bytes.chunks(2) {
                slow += u64::from(u16::from_ne_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
            }
            while slow > 0xffff {
                slow = (slow & 0xffff) + (slow >> 16);
            }
            prop_assert_eq!(u64::from(fold(sum(&bytes))), slow);
        }

        #[test]
        fn no_frame_makes_it_panic(data in proptest::collection::vec(any::<u8>(), 0..120), link in 0usize..16, more in 0u32..9) {
            let link_type = [1, 101, 113, 276, 0, 108, 12, 99, 9, 50, 51, 166, 104, 8, 15, 229][link];
            let frame = Frame { time_ns: 0, link_type, wire_len: data.len() as u32 + more, data: &data };
            let _ = Decoder::default().decode(&frame, &mut TcpPacket::default());
        }

        #[test]
        fn no_damage_to_a_frame_makes_it_panic(at in 0usize..174, value: u8, cut in 0usize..195, six: bool) {
            let mut damaged = if six { frame6() } else { frame() };
            damaged[at] = value;
            damaged.truncate(cut);
            let _ = decode(1, &damaged);
        }
    }
}
