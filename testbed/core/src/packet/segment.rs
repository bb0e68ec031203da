//! TCP segments over IPv4 made of their fields. They are not parsed again, and their checksums are known to be right.

use std::net::Ipv4Addr;

use super::bytes::Bytes;
use super::{fold, ones_sum, Body, Ecn, FlowKey, Packet, Tcp, Transport};

const IP_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
const TIME_TO_LIVE: u8 = 64;
const PROTOCOL: u8 = 6;

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
    pub fn packet(&self, id: u64) -> Packet {
        let zeros = self.tcp.payload.checked_sub(self.data.len() as u32).expect("the data fit the payload");
        let length = IP_HEADER + TCP_HEADER + self.options.len();
        let flow =
            FlowKey { src: self.src.0.into(), dst: self.dst.0.into(), src_port: self.src.1, dst_port: self.dst.1 };
        let body = Body {
            link_header: None,
            ports: [0; 2],
            bytes: Bytes::new(length, self.data, |headers| self.write(headers)),
            zeros,
            length: length as u32 + self.tcp.payload,
            flow: Some(flow),
            transport: Transport::Tcp(self.tcp),
            transport_at: IP_HEADER as u16,
            checksum_is_right: true,
        };
        Packet { id, body: Box::new(body) }
    }

    /// Length of header and payload.
    fn tcp_length(&self) -> u16 {
        (TCP_HEADER + self.options.len()) as u16 + self.tcp.payload as u16
    }

    /// Writes both headers, which consist of zeros so far.
    fn write(&self, headers: &mut [u8]) {
        let (ip, tcp) = headers.split_first_chunk_mut().expect("there is room for an IP header");
        self.write_ip(ip);
        let (tcp, options) = tcp.split_first_chunk_mut().expect("there is room for a TCP header");
        if !self.options.is_empty() {
            options.copy_from_slice(self.options);
        }
        self.write_tcp(tcp);
    }

    fn write_ip(&self, header: &mut [u8; IP_HEADER]) {
        header[0] = 0x45;
        header[1] = match self.ecn {
            Ecn::NotCapable => 0,
            Ecn::Capable => 2,
            Ecn::Experienced => 3,
        };
        header[2..4].copy_from_slice(&(IP_HEADER as u16 + self.tcp_length()).to_be_bytes());
        header[4..6].copy_from_slice(&self.identification.to_be_bytes());
        // Don't Fragment.
        header[6] = 0x40;
        (header[8], header[9]) = (TIME_TO_LIVE, PROTOCOL);
        header[12..16].copy_from_slice(&self.src.0.octets());
        header[16..20].copy_from_slice(&self.dst.0.octets());
        let checksum = !fold(ones_sum(header));
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    fn write_tcp(&self, header: &mut [u8; TCP_HEADER]) {
        let Tcp { seq, ack, flags, window, marks, .. } = self.tcp;
        header[0..2].copy_from_slice(&self.src.1.to_be_bytes());
        header[2..4].copy_from_slice(&self.dst.1.to_be_bytes());
        header[4..8].copy_from_slice(&seq.to_be_bytes());
        header[8..12].copy_from_slice(&ack.to_be_bytes());
        header[12] = ((TCP_HEADER + self.options.len()) as u8 / 4) << 4 | marks;
        header[13] = flags.0;
        header[14..16].copy_from_slice(&window.to_be_bytes());
        // Zeros add nothing to the sum, but the length in the pseudo header counts them.
        let addresses = u64::from(u32::from(self.src.0)) + u64::from(u32::from(self.dst.0));
        let pseudo_header = addresses + u64::from(PROTOCOL) + u64::from(self.tcp_length());
        let checksum = !fold(pseudo_header + ones_sum(header) + ones_sum(self.options) + ones_sum(self.data));
        header[16..18].copy_from_slice(&checksum.to_be_bytes());
    }
}
