//! From a captured frame to its TCP header. Lengths come from the IP header, so a snap length that cuts the payload off
//! does not matter.
//!
//! IPv4 with options, IPv6 with extension headers, fragments of both. [`crate::link_layer`] has the link types.

use crate::capture::Frame;
use crate::checksum::{add, fold, sum};
use crate::fragments::{Fragment, Fragments};
use crate::link_layer::ip_packet;
use crate::packet::{Address, Checksum, IpContext, NoTcp, TcpPacket};

/// Turns frames into TCP packets.
#[derive(Debug, Default)]
pub struct Decoder {
    fragments: Fragments,
}

impl Decoder {
    /// Decodes the TCP packet of a frame, or the one that this fragment completes, into `packet`.
    ///
    /// # Errors
    /// Why there is none. The content of `packet` is undefined then.
    #[inline(always)]
    pub fn decode(&mut self, frame: &Frame, packet: &mut TcpPacket) -> Result<(), NoTcp> {
        let ip = ip_packet(frame.link_type, frame.data)?;
        match ip.first().ok_or(NoTcp::Truncated)? >> 4 {
            4 => self.decode_ipv4(frame, ip, packet),
            6 => self.decode_ipv6(frame, ip, packet),
            _ => Err(NoTcp::OtherProtocol),
        }
    }

    /// Packets of which fragments are missing.
    pub fn unfinished(&self) -> u64 {
        self.fragments.unfinished()
    }

    #[inline(always)]
    fn decode_ipv4(&mut self, frame: &Frame, ip: &[u8], packet: &mut TcpPacket) -> Result<(), NoTcp> {
        let fixed: &[u8; 20] = ip.first_chunk().ok_or(NoTcp::Truncated)?;
        let header_len = usize::from(fixed[0] & 15) * 4;
        if header_len < 20 {
            return Err(NoTcp::Truncated);
        }
        if fixed[9] != 6 {
            return Err(NoTcp::OtherProtocol);
        }
        let ip_len = match u16::from_be_bytes([fixed[2], fixed[3]]) {
            0 => length_on_wire(frame, ip),
            length => u32::from(length),
        };
        let segment = ip.get(header_len..).ok_or(NoTcp::Truncated)?;
        let (header_sum, verifiable) = if header_len == 20 {
            (sum(fixed), true)
        } else {
            // A source route changes the address that the checksum covers.
            (sum(&ip[..header_len]), !ip[20..header_len].iter().any(|&kind| matches!(kind, 131 | 137)))
        };
        let addresses = sum(&fixed[12..]);
        let context = IpContext {
            src: Address::four(u32::from_be_bytes([fixed[12], fixed[13], fixed[14], fixed[15]])),
            dst: Address::four(u32::from_be_bytes([fixed[16], fixed[17], fixed[18], fixed[19]])),
            ip_len,
            tcp_len: ip_len.checked_sub(header_len as u32).ok_or(NoTcp::Truncated)?,
            ecn: fixed[1] & 3,
            // Zero is left to the network card.
            header_ok: fold(header_sum) == 0xffff || fixed[10..12] == [0, 0],
            address_sum: verifiable.then_some(addresses),
        };
        let place = u16::from_be_bytes([fixed[6], fixed[7]]);
        if place & 0x3fff != 0 {
            let id = u32::from(u16::from_be_bytes([fixed[4], fixed[5]]));
            let (offset, more) = (u32::from(place & 0x1fff) * 8, place & 0x2000 != 0);
            return self.decode_fragment(&Fragment { id, offset, more, data: segment, context }, packet);
        }
        decode_tcp(segment, context, packet)
    }

    #[inline(never)]
    fn decode_ipv6(&mut self, frame: &Frame, ip: &[u8], packet: &mut TcpPacket) -> Result<(), NoTcp> {
        let fixed: &[u8; 40] = ip.first_chunk().ok_or(NoTcp::Truncated)?;
        // Zero for a jumbogram (RFC 2675), and before segmentation offload.
        let ip_len = match u32::from(u16::from_be_bytes([fixed[4], fixed[5]])) {
            0 => length_on_wire(frame, ip),
            length => length + 40,
        };
        let [src, dst] = [8, 24]
            .map(|at| Address(u128::from_be_bytes(*fixed[at..].first_chunk().expect("the header has 40 bytes"))));
        let mut context = IpContext {
            src,
            dst,
            ip_len,
            tcp_len: 0,
            ecn: fixed[1] >> 4 & 3,
            header_ok: true,
            address_sum: Some(sum(&fixed[8..])),
        };
        let (mut next_header, mut at) = (fixed[6], 40);
        loop {
            let rest = ip.get(at..).ok_or(NoTcp::Truncated)?;
            context.tcp_len = ip_len.checked_sub(at as u32).ok_or(NoTcp::Truncated)?;
            let length_field = || rest.get(1).map(|&length| usize::from(length)).ok_or(NoTcp::Truncated);
            let header_len = match next_header {
                6 => return decode_tcp(rest, context, packet),
                // Hop-by-hop options, destination options, mobility, HIP, Shim6.
                0 | 60 | 135 | 139 | 140 => (length_field()? + 1) * 8,
                // Routing. While segments are left, the checksum covers the final address and not this one.
                43 => {
                    if *rest.get(3).ok_or(NoTcp::Truncated)? != 0 {
                        context.address_sum = None;
                    }
                    (length_field()? + 1) * 8
                }
                // Authentication header.
                51 => (length_field()? + 2) * 4,
                // Fragment. An atomic fragment (RFC 6946) is complete.
                44 => {
                    let header: &[u8; 8] = rest.first_chunk().ok_or(NoTcp::Truncated)?;
                    let place = u16::from_be_bytes([header[2], header[3]]);
                    if place & 0xfff9 != 0 {
                        if header[0] != 6 {
                            return Err(NoTcp::OtherProtocol);
                        }
                        context.tcp_len = context.tcp_len.checked_sub(8).ok_or(NoTcp::Truncated)?;
                        let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                        let (offset, more) = (u32::from(place & 0xfff8), place & 1 != 0);
                        return self.decode_fragment(&Fragment { id, offset, more, data: &rest[8..], context }, packet);
                    }
                    8
                }
                _ => return Err(NoTcp::OtherProtocol),
            };
            next_header = *rest.first().ok_or(NoTcp::Truncated)?;
            at += header_len;
        }
    }

    #[cold]
    fn decode_fragment(&mut self, fragment: &Fragment<'_>, packet: &mut TcpPacket) -> Result<(), NoTcp> {
        let datagram = self.fragments.add(fragment)?;
        decode_tcp(datagram.header(), datagram.context, packet)
    }
}

/// The length that a length field of zero stands for: the frame's. Where a network card cut the frame off, even less.
#[cold]
fn length_on_wire(frame: &Frame, ip: &[u8]) -> u32 {
    frame.wire_len.saturating_sub((frame.data.len() - ip.len()) as u32)
}

#[inline(always)]
fn decode_tcp(segment: &[u8], context: IpContext, packet: &mut TcpPacket) -> Result<(), NoTcp> {
    let fixed: &[u8; 20] = segment.first_chunk().ok_or(NoTcp::Truncated)?;
    let be16 = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let be32 = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let header_len = u32::from(fixed[12] >> 4) * 4;
    if header_len < 20 {
        return Err(NoTcp::Truncated);
    }
    packet.src = (context.src, be16(0));
    packet.dst = (context.dst, be16(2));
    packet.seq = be32(4);
    packet.ack = be32(8);
    packet.flags = fixed[13];
    packet.window = be16(14);
    packet.ip_len = context.ip_len;
    packet.payload = context.tcp_len.checked_sub(header_len).ok_or(NoTcp::Truncated)?;
    packet.ecn = context.ecn;
    packet.window_scale = None;
    packet.mss = None;
    packet.sack_permitted = false;
    packet.sack_blocks = 0;
    packet.timestamps = None;
    packet.checksum = match (segment.get(..context.tcp_len as usize), context.address_sum) {
        _ if !context.header_ok => Checksum::Bad,
        (Some(segment), Some(address_sum)) => verify(segment, address_sum),
        _ => Checksum::Unknown,
    };
    if header_len == 20 {
        return Ok(());
    }
    match &segment[20..(header_len as usize).min(segment.len())] {
        // The layout that RFC 7323 A recommends, and that nearly every segment with timestamps has.
        [1, 1, 8, 10, a, b, c, d, e, f, g, h] => {
            packet.timestamps = Some((u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h])));
        }
        options => decode_options(options, packet),
    }
    Ok(())
}

#[inline(never)]
fn decode_options(mut options: &[u8], packet: &mut TcpPacket) {
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
            // A shift above 14 counts as 14 (RFC 7323 2.3).
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

/// Verifies the checksum of a TCP segment that was captured whole (RFC 9293 3.1), given the sum of its addresses.
#[inline(always)]
fn verify(segment: &[u8], address_sum: u64) -> Checksum {
    let pseudo_header = add(address_sum, (6 + segment.len() as u64).to_be());
    if fold(add(pseudo_header, sum(segment))) == 0xffff {
        return Checksum::Good;
    }
    bad_or_offloaded(segment, address_sum, pseudo_header)
}

/// With checksum offload, the field holds the pseudo header's sum, with or without the length, or zero.
#[cold]
fn bad_or_offloaded(segment: &[u8], address_sum: u64, pseudo_header: u64) -> Checksum {
    let field = u16::from_ne_bytes([segment[16], segment[17]]);
    if field == 0 || field == fold(pseudo_header) || field == fold(add(address_sum, 6u64.to_be())) {
        Checksum::Unknown
    } else {
        Checksum::Bad
    }
}

#[cfg(test)]
mod tests;
