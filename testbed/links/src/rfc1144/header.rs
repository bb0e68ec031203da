//! TCP/IP headers, the mask of changes and the encoding of deltas.

use backchannel_core::packet::{fold, ones_sum, TcpFlags};

/// The mask's bits (3.2.2; NEW_* in the RFC's code).
pub(super) mod bit {
    pub(in crate::rfc1144) const C: u8 = 0x40;
    pub(in crate::rfc1144) const I: u8 = 0x20;
    pub(in crate::rfc1144) const P: u8 = 0x10;
    pub(in crate::rfc1144) const S: u8 = 0x08;
    pub(in crate::rfc1144) const A: u8 = 0x04;
    pub(in crate::rfc1144) const W: u8 = 0x02;
    pub(in crate::rfc1144) const U: u8 = 0x01;
    /// S, W and U: ack and sequence number rise by the data of the packet before.
    pub(in crate::rfc1144) const ECHO: u8 = S | W | U;
    /// All four: the sequence number does.
    pub(in crate::rfc1144) const DATA_ONE_WAY: u8 = S | A | W | U;
}

/// Offsets of fields in a header without IP options; those of TCP count from the TCP header.
pub(super) mod at {
    pub(in crate::rfc1144) const IP_LENGTH: usize = 2;
    pub(in crate::rfc1144) const IP_ID: usize = 4;
    pub(in crate::rfc1144) const FRAGMENT: usize = 6;
    pub(in crate::rfc1144) const PROTOCOL: usize = 9;
    pub(in crate::rfc1144) const IP_CHECKSUM: usize = 10;
    pub(in crate::rfc1144) const ADDRESSES: usize = 12;
    pub(in crate::rfc1144) const SEQ: usize = 4;
    pub(in crate::rfc1144) const ACK: usize = 8;
    pub(in crate::rfc1144) const OFFSET: usize = 12;
    pub(in crate::rfc1144) const FLAGS: usize = 13;
    pub(in crate::rfc1144) const WINDOW: usize = 14;
    pub(in crate::rfc1144) const TCP_CHECKSUM: usize = 16;
    pub(in crate::rfc1144) const URGENT: usize = 18;
}

pub(super) const TCP: u8 = 6;
/// Longest IP and TCP headers together.
pub(super) const LONGEST: usize = 120;

pub(super) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn put_word(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

pub(super) fn put_long(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// An IP and a TCP header with their options.
#[derive(Clone, Copy)]
pub(super) struct Header {
    pub(super) bytes: [u8; LONGEST],
    /// Offset of the TCP header.
    tcp: u8,
    /// Offset of the data.
    end: u8,
}

impl Header {
    /// The headers of an IPv4 packet with TCP. The protocol field is not checked.
    pub(super) fn read(packet: &[u8]) -> Option<Header> {
        let first = *packet.first()?;
        let tcp = usize::from(first & 0x0f) * 4;
        if first >> 4 != 4 || tcp < 20 || packet.len() < tcp + 20 {
            return None;
        }
        let end = tcp + usize::from(packet[tcp + at::OFFSET] >> 4) * 4;
        if end < tcp + 20 || packet.len() < end {
            return None;
        }
        let mut bytes = [0; LONGEST];
        bytes[..end].copy_from_slice(&packet[..end]);
        Some(Header { bytes, tcp: tcp as u8, end: end as u8 })
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.end)
    }

    pub(super) fn ip(&self) -> &[u8] {
        &self.bytes[..usize::from(self.tcp)]
    }

    pub(super) fn tcp(&self) -> &[u8] {
        &self.bytes[usize::from(self.tcp)..self.len()]
    }

    pub(super) fn tcp_mut(&mut self) -> &mut [u8] {
        let end = self.len();
        &mut self.bytes[usize::from(self.tcp)..end]
    }

    /// Addresses and ports.
    pub(super) fn connection(&self) -> [u8; 12] {
        let mut all = [0; 12];
        all[..8].copy_from_slice(&self.ip()[at::ADDRESSES..20]);
        all[8..].copy_from_slice(&self.tcp()[..4]);
        all
    }

    pub(super) fn flags(&self) -> TcpFlags {
        TcpFlags(self.tcp()[at::FLAGS])
    }

    /// Length of the IP packet by its header.
    pub(super) fn total(&self) -> usize {
        usize::from(word(self.ip(), at::IP_LENGTH))
    }

    /// Bytes of data by the IP header.
    pub(super) fn data(&self) -> u32 {
        self.total().saturating_sub(self.len()) as u32
    }

    /// The right IP checksum.
    pub(super) fn ip_checksum(&self) -> u16 {
        !fold(ones_sum(self.ip()) - u64::from(word(self.ip(), at::IP_CHECKSUM)))
    }

    /// Whether all fields without a delta equal those of `before` (3.2.3).
    pub(super) fn differs_in_deltas_only(&self, before: &Header) -> bool {
        const HAVE_A_BIT: u8 = TcpFlags::PSH | TcpFlags::URG;
        let (ip, old_ip, tcp, old_tcp) = (self.ip(), before.ip(), self.tcp(), before.tcp());
        // Version, header length, type of service; fragment field, time to live, protocol; options.
        ip[..at::IP_LENGTH] == old_ip[..at::IP_LENGTH]
            && ip[at::FRAGMENT..at::IP_CHECKSUM] == old_ip[at::FRAGMENT..at::IP_CHECKSUM]
            && ip[20..] == old_ip[20..]
            && tcp[at::OFFSET] == old_tcp[at::OFFSET]
            && tcp[at::FLAGS] & !HAVE_A_BIT == old_tcp[at::FLAGS] & !HAVE_A_BIT
            && tcp[20..] == old_tcp[20..]
    }
}

/// Appends a delta: one byte for 1..=255, otherwise three.
pub(super) fn encode(deltas: &mut Vec<u8>, delta: u16) {
    match u8::try_from(delta) {
        Ok(short @ 1..) => deltas.push(short),
        _ => {
            deltas.push(0);
            deltas.extend(delta.to_be_bytes());
        }
    }
}

/// Reads a delta from the front of `bytes`.
pub(super) fn decode(bytes: &mut &[u8]) -> Option<u16> {
    let (value, rest) = match **bytes {
        [0, high, low, ref rest @ ..] => (u16::from_be_bytes([high, low]), rest),
        [0, ..] | [] => return None,
        [short, ref rest @ ..] => (u16::from(short), rest),
    };
    *bytes = rest;
    Some(value)
}
