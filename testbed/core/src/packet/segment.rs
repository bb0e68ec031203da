//! TCP segments over IPv4 made of their fields. They are not parsed again, and their checksums are known to be right.

use std::net::Ipv4Addr;

use super::bytes::Bytes;
use super::{fold, ones_sum, Body, Ecn, FlowKey, Packet, Tcp, TransportHeader};

const IP_HEADER: usize = 20;
pub(super) const TCP_HEADER: usize = 20;
pub(super) const TIME_TO_LIVE: u8 = 64;
pub(super) const PROTOCOL: u8 = 6;

/// The fields of a TCP segment over IPv4.
#[derive(Clone, Copy, Debug)]
pub struct TcpOverIpv4<'a> {
    /// Address and port of the sender.
    pub src: (Ipv4Addr, u16),
    /// Address and port of the receiver.
    pub dst: (Ipv4Addr, u16),
    /// The TCP header. Its `header` is 20 more than the length of `options`.
    pub tcp: Tcp,
    /// ECN field of the IP header.
    pub ecn: Ecn,
    /// Identification field of the IP header.
    pub identification: u16,
    /// TCP options, padded to a multiple of four bytes.
    pub options: &'a [u8],
    /// The stored bytes of the payload. Zeros follow up to `tcp.payload`.
    pub data: &'a [u8],
}

impl TcpOverIpv4<'_> {
    /// The packet with this number.
    ///
    /// # Panics
    /// There are more data than the payload has: a defect of the caller.
    #[inline]
    pub fn packet(&self, id: u64) -> Packet {
        let flow =
            FlowKey { src: self.src.0.into(), dst: self.dst.0.into(), src_port: self.src.1, dst_port: self.dst.1 };
        let headers = Bytes::headers(IP_HEADER + TCP_HEADER + self.options.len());
        let body = Box::new_uninit();
        // The body is written where it stays, and then the headers in it: a copy of words that were just written one by
        // one is slow.
        let mut body = Box::write(body, body_of(flow, IP_HEADER, &self.tcp, self.data.len(), headers));
        self.write(&mut body.bytes);
        if !self.data.is_empty() {
            body.bytes.append(self.data);
        }
        Packet { id, body }
    }

    /// Length of header and payload.
    fn tcp_length(&self) -> u16 {
        (TCP_HEADER + self.options.len()) as u16 + self.tcp.payload as u16
    }

    /// Writes both headers and the options.
    #[inline(always)]
    fn write(&self, headers: &mut [u8]) {
        let (ip, rest) = headers.split_first_chunk_mut().expect("there is room for an IP header");
        let (tcp, options) = rest.split_first_chunk_mut().expect("there is room for a TCP header");
        write_words(ip, self.ip_words());
        write_words(tcp, self.tcp_words());
        if !self.options.is_empty() {
            options.copy_from_slice(self.options);
        }
    }

    /// The IP header in words of 32 bits, as RFC 791 3.1 draws it.
    #[inline]
    fn ip_words(&self) -> [u32; IP_HEADER / 4] {
        let ecn = ecn_bits(self.ecn);
        let length = IP_HEADER as u16 + self.tcp_length();
        let mut words = [
            0x4500_0000 | ecn << 16 | u32::from(length),
            // Don't Fragment.
            u32::from(self.identification) << 16 | 0x4000,
            u32::from(TIME_TO_LIVE) << 24 | u32::from(PROTOCOL) << 16,
            u32::from(self.src.0),
            u32::from(self.dst.0),
        ];
        words[2] |= u32::from(!fold(sum(&words)));
        words
    }

    /// The TCP header in words of 32 bits.
    #[inline]
    fn tcp_words(&self) -> [u32; TCP_HEADER / 4] {
        let addresses = sum(&[u32::from(self.src.0), u32::from(self.dst.0)]);
        let pseudo_header = addresses + u64::from(PROTOCOL) + u64::from(self.tcp_length());
        tcp_words(&self.tcp, (self.src.1, self.dst.1), self.options, self.data, pseudo_header)
    }
}

/// The body of a TCP packet with sound checksums. `ip_header` and `data` are lengths, of the header and of the stored
/// part of the payload; `bytes` is all that is stored.
///
/// # Panics
/// There are more data than the payload has: a defect of the caller.
#[inline(always)]
pub(super) fn body_of(flow: FlowKey, ip_header: usize, tcp: &Tcp, data: usize, bytes: Bytes) -> Body {
    Body {
        link_header: None,
        ports: [0; 2],
        bytes,
        zeros: tcp.payload.checked_sub(data as u32).expect("the data fit the payload"),
        length: ip_header as u32 + u32::from(tcp.header) + tcp.payload,
        flow: Some(flow),
        transport: TransportHeader::Tcp(*tcp),
        transport_at: ip_header as u16,
        checksum_is_right: true,
    }
}

/// A TCP header in words of 32 bits, as RFC 9293 3.1 draws it. `pseudo_header` is the sum of its 16-bit words.
#[inline(always)]
pub(super) fn tcp_words(
    tcp: &Tcp,
    ports: (u16, u16),
    options: &[u8],
    data: &[u8],
    pseudo_header: u64,
) -> [u32; TCP_HEADER / 4] {
    let Tcp { seq, ack, flags, window, marks, urgent, .. } = *tcp;
    let offset = (TCP_HEADER + options.len()) as u32 / 4;
    let mut words = [
        u32::from(ports.0) << 16 | u32::from(ports.1),
        seq,
        ack,
        offset << 28 | u32::from(marks) << 24 | u32::from(flags.0) << 16 | u32::from(window),
        u32::from(urgent),
    ];
    // Zeros add nothing to the sum, but the length in the pseudo header counts them.
    let mut checked = pseudo_header + sum(&words);
    for part in [options, data] {
        if !part.is_empty() {
            checked += ones_sum(part);
        }
    }
    words[4] |= u32::from(!fold(checked)) << 16;
    words
}

/// The two bits of a congestion mark in the IP header (RFC 3168 5).
#[inline]
pub(crate) fn ecn_bits(ecn: Ecn) -> u32 {
    match ecn {
        Ecn::NotCapable => 0,
        Ecn::LowLatency => 1,
        Ecn::Capable => 2,
        Ecn::Experienced => 3,
    }
}

/// Sum of words, for a checksum: pairs of 16-bit words add up to the same as single ones ([`ones_sum`]).
#[inline]
fn sum(words: &[u32]) -> u64 {
    words.iter().map(|word| u64::from(*word)).sum()
}

/// Writes words in the order of the network.
#[inline]
fn write_words<const WORDS: usize>(header: &mut [u8; 20], words: [u32; WORDS]) {
    for (place, word) in header.as_chunks_mut().0.iter_mut().zip(words) {
        *place = word.to_be_bytes();
    }
}
