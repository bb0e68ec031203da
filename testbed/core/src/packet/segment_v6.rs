//! TCP segments over IPv6 made of their fields. They are not parsed again, and their checksums are known to be right.

use std::net::Ipv6Addr;

use super::bytes::Bytes;
use super::segment::{body_of, ecn_bits, tcp_words, PROTOCOL, TCP_HEADER, TIME_TO_LIVE};
use super::{ones_sum, Ecn, FlowKey, Packet, Tcp};

const IP_HEADER: usize = 40;
/// Bytes of both headers and the most options that a TCP header can hold.
const MOST_HEADERS: usize = IP_HEADER + TCP_HEADER + 40;

/// The fields of a TCP segment over IPv6. The flow label is 0.
#[derive(Clone, Copy, Debug)]
pub struct TcpOverIpv6<'a> {
    /// Address and port of the sender.
    pub src: (Ipv6Addr, u16),
    /// Address and port of the receiver.
    pub dst: (Ipv6Addr, u16),
    /// The TCP header. Its `header` is 20 more than the length of `options`.
    pub tcp: Tcp,
    /// ECN field of the IP header.
    pub ecn: Ecn,
    /// TCP options, padded to a multiple of four bytes.
    pub options: &'a [u8],
    /// The stored bytes of the payload. Zeros follow up to `tcp.payload`.
    pub data: &'a [u8],
}

impl TcpOverIpv6<'_> {
    /// The packet with this number.
    ///
    /// # Panics
    /// There are more data than the payload has, or more than 40 bytes of options: defects of the caller.
    pub fn packet(&self, id: u64) -> Packet {
        let length = IP_HEADER + TCP_HEADER + self.options.len();
        let mut headers = [0; MOST_HEADERS];
        self.write(&mut headers[..length]);
        let flow =
            FlowKey { src: self.src.0.into(), dst: self.dst.0.into(), src_port: self.src.1, dst_port: self.dst.1 };
        let bytes = Bytes::of(&headers[..length], self.data);
        Packet { id, body: Box::new(body_of(flow, IP_HEADER, &self.tcp, self.data.len(), bytes)) }
    }

    /// Writes both headers (RFC 8200 3, RFC 9293 3.1) and the options.
    fn write(&self, headers: &mut [u8]) {
        let length = (TCP_HEADER + self.options.len()) as u32 + self.tcp.payload;
        headers[..4].copy_from_slice(&(0x6000_0000 | ecn_bits(self.ecn) << 20).to_be_bytes());
        headers[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        headers[6..8].copy_from_slice(&[PROTOCOL, TIME_TO_LIVE]);
        headers[8..24].copy_from_slice(&self.src.0.octets());
        headers[24..IP_HEADER].copy_from_slice(&self.dst.0.octets());
        // The pseudo header of RFC 8200 8.1.
        let pseudo_header = ones_sum(&headers[8..IP_HEADER]) + u64::from(PROTOCOL) + u64::from(length);
        let words = tcp_words(&self.tcp, (self.src.1, self.dst.1), self.options, self.data, pseudo_header);
        for (place, word) in headers[IP_HEADER..].as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        headers[IP_HEADER + TCP_HEADER..].copy_from_slice(self.options);
    }
}
