//! Parses headers once, when a packet is created.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{Ipv4HeaderSlice, Ipv6HeaderSlice, TcpHeaderSlice, UdpHeaderSlice};

use super::{sack, FlowKey, Packet, Tcp, TcpFlags, TransportHeader};

impl Packet {
    pub(super) fn parse(&mut self) {
        let Some(version) = self.body.bytes.first().map(|b| b >> 4) else { return };
        let (src, dst, protocol, at) = match version {
            4 => {
                let Ok(ip) = Ipv4HeaderSlice::from_slice(&self.body.bytes) else { return };
                self.body.transport_at = ip.slice().len() as u16;
                if ip.is_fragmenting_payload() {
                    return;
                }
                let addresses = (Ipv4Addr::from(ip.source()), Ipv4Addr::from(ip.destination()));
                (IpAddr::V4(addresses.0), IpAddr::V4(addresses.1), ip.protocol().0, ip.slice().len())
            }
            6 => {
                let Ok(ip) = Ipv6HeaderSlice::from_slice(&self.body.bytes) else { return };
                let addresses = (Ipv6Addr::from(ip.source()), Ipv6Addr::from(ip.destination()));
                (IpAddr::V6(addresses.0), IpAddr::V6(addresses.1), ip.next_header().0, 40)
            }
            _ => return,
        };
        self.body.transport_at = at as u16;
        let rest = &self.body.bytes[at..];
        match protocol {
            6 => {
                let Ok(tcp) = TcpHeaderSlice::from_slice(rest) else { return };
                let header = tcp.slice().len();
                self.body.flow =
                    Some(FlowKey { src, dst, src_port: tcp.source_port(), dst_port: tcp.destination_port() });
                self.body.transport = TransportHeader::Tcp(Tcp {
                    seq: tcp.sequence_number(),
                    ack: tcp.acknowledgment_number(),
                    flags: TcpFlags(rest[13]),
                    window: tcp.window_size(),
                    payload: (rest.len() - header) as u32 + self.body.zeros,
                    header: header as u8,
                    sack_blocks: sack::blocks(tcp.options()).len() as u8,
                    marks: rest[12] & 0x0f,
                    urgent: tcp.urgent_pointer(),
                });
            }
            17 => {
                let Ok(udp) = UdpHeaderSlice::from_slice(rest) else { return };
                self.body.flow =
                    Some(FlowKey { src, dst, src_port: udp.source_port(), dst_port: udp.destination_port() });
                self.body.transport = TransportHeader::Udp { payload: rest.len() as u32 - 8 + self.body.zeros };
            }
            _ => (),
        }
    }
}
