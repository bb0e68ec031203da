//! Changes of a packet in flight: ECN and other marks, acknowledgment number, window, time to live, damage. Checksums
//! are updated.

use std::net::IpAddr;

use super::{fold, ones_sum};
use super::{Ecn, Packet, TransportHeader};

impl Packet {
    /// Sets Congestion Experienced. Returns false, and changes nothing, if the packet is not ECN-capable.
    pub fn set_congestion_experienced(&mut self) -> bool {
        if self.ecn() == Ecn::NotCapable {
            return false;
        }
        if self.body.bytes[0] >> 4 == 4 {
            let old = u16::from_be_bytes([self.body.bytes[0], self.body.bytes[1]]);
            self.body.bytes[1] |= 3;
            let new = u16::from_be_bytes([self.body.bytes[0], self.body.bytes[1]]);
            self.patch_checksum(10, old, new);
        } else {
            self.body.bytes[1] |= 0x30;
        }
        true
    }

    /// Sets bits of byte 12 of the TCP header (see [`mark`](super::mark)) and updates the checksum. Returns whether the
    /// packet is TCP.
    pub fn set_mark(&mut self, bits: u8) -> bool {
        let at = self.body.transport_at as usize + 12;
        let TransportHeader::Tcp(tcp) = &mut self.body.transport else { return false };
        tcp.marks |= bits;
        let old = u16::from_be_bytes([self.body.bytes[at], self.body.bytes[at + 1]]);
        self.body.bytes[at] |= bits;
        let new = u16::from_be_bytes([self.body.bytes[at], self.body.bytes[at + 1]]);
        self.patch_checksum(self.body.transport_at as usize + 16, old, new);
        true
    }

    /// Replaces the acknowledgment number and updates the checksum. Returns whether the packet is TCP.
    pub fn set_ack_number(&mut self, ack: u32) -> bool {
        let at = self.body.transport_at as usize + 8;
        let TransportHeader::Tcp(tcp) = &mut self.body.transport else { return false };
        tcp.ack = ack;
        for (offset, new) in [(at, (ack >> 16) as u16), (at + 2, ack as u16)] {
            let old = u16::from_be_bytes([self.body.bytes[offset], self.body.bytes[offset + 1]]);
            self.body.bytes[offset..offset + 2].copy_from_slice(&new.to_be_bytes());
            self.patch_checksum(self.body.transport_at as usize + 16, old, new);
        }
        true
    }

    /// Replaces the window field, which is unscaled, and updates the checksum. Returns whether the packet is TCP.
    pub fn set_window(&mut self, window: u16) -> bool {
        let at = self.body.transport_at as usize;
        let TransportHeader::Tcp(tcp) = &mut self.body.transport else { return false };
        let old = std::mem::replace(&mut tcp.window, window);
        self.body.bytes[at + 14..at + 16].copy_from_slice(&window.to_be_bytes());
        self.patch_checksum(at + 16, old, window);
        true
    }

    /// Sets the echo of the timestamp option to 0, which RFC 7323 3.2 leaves without meaning, and updates the checksum.
    /// Returns whether the packet has the option.
    pub fn clear_timestamp_echo(&mut self) -> bool {
        let options = self.tcp_options();
        let mut at = 0;
        while at < options.len() && options[at] != 0 {
            match options[at..] {
                [1, ..] => at += 1,
                [8, 10, ..] if at + 10 <= options.len() => {
                    let offset = self.body.transport_at as usize + 20 + at + 6;
                    for offset in [offset, offset + 2] {
                        // A word at an odd place adds to the checksum with its bytes exchanged.
                        let is_odd = (at + 6) % 2 == 1;
                        let old = u16::from_be_bytes([self.body.bytes[offset], self.body.bytes[offset + 1]]);
                        self.body.bytes[offset..offset + 2].fill(0);
                        let old = if is_odd { old.swap_bytes() } else { old };
                        self.patch_checksum(self.body.transport_at as usize + 16, old, 0);
                    }
                    return true;
                }
                [_, length, ..] if length >= 2 => at += usize::from(length),
                _ => return false,
            }
        }
        false
    }

    /// Damages the TCP or UDP checksum, as the error model of ton IV-A does: the packet crosses the link, uses airtime,
    /// and the receiver's transport drops it. Returns false if there is no such checksum.
    pub fn damage_checksum(&mut self) -> bool {
        let at = self.body.transport_at as usize
            + match self.body.transport {
                TransportHeader::Tcp(_) => 16,
                TransportHeader::Udp { .. } => 6,
                TransportHeader::Other => return false,
            };
        // Every change makes the checksum wrong, except 0 <-> 0xffff, the same number in one's complement.
        self.body.bytes[at + 1] ^= 0x55;
        self.body.checksum_is_right = false;
        true
    }

    /// Whether the transport checksum is correct; true if there is none to check.
    #[inline]
    pub fn checksum_ok(&self) -> bool {
        self.body.checksum_is_right || self.computed_checksum_ok()
    }

    fn computed_checksum_ok(&self) -> bool {
        let at = self.body.transport_at as usize;
        let (Some(flow), protocol) = (
            self.body.flow,
            match self.body.transport {
                TransportHeader::Tcp(_) => 6u16,
                TransportHeader::Udp { .. } if self.body.bytes[at + 6..at + 8] == [0, 0] => return true,
                TransportHeader::Udp { .. } => 17,
                TransportHeader::Other => return true,
            },
        ) else {
            return true;
        };
        let length = self.len() - u32::from(self.body.transport_at);
        let mut sum = u64::from(protocol) + u64::from(length >> 16) + u64::from(length & 0xffff);
        sum += match (flow.src, flow.dst) {
            (IpAddr::V4(a), IpAddr::V4(b)) => ones_sum(&a.octets()) + ones_sum(&b.octets()),
            (IpAddr::V6(a), IpAddr::V6(b)) => ones_sum(&a.octets()) + ones_sum(&b.octets()),
            _ => unreachable!("both addresses come from one header"),
        };
        sum += ones_sum(&self.body.bytes[at..]);
        fold(sum) == 0xffff
    }

    /// Decrements the time to live (IPv4) or hop limit (IPv6), as a router does when it forwards. Returns false if it
    /// has expired and the packet must be discarded (RFC 1812 5.3.1).
    #[inline]
    pub fn lower_hop_limit(&mut self) -> bool {
        if self.body.transport_at == 0 {
            return true;
        }
        let Some(header) = self.body.bytes.first_chunk_mut::<20>() else { return true };
        match header[0] >> 4 {
            4 if header[8] > 1 => {
                header[8] -= 1;
                // The word that holds the time to live is less by 0x100 (RFC 1624, equation 3).
                let sum = u32::from(!u16::from_be_bytes([header[10], header[11]])) + 0xfeff;
                let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
                [header[10], header[11]] = checksum.to_be_bytes();
                true
            }
            6 if header[7] > 1 => {
                header[7] -= 1;
                true
            }
            4 | 6 => false,
            _ => true,
        }
    }

    /// Updates a checksum after a 16-bit word that it covers has changed (RFC 1624).
    pub(super) fn patch_checksum(&mut self, at: usize, old: u16, new: u16) {
        let checksum = u16::from_be_bytes([self.body.bytes[at], self.body.bytes[at + 1]]);
        let sum = fold(u64::from(!checksum) + u64::from(!old) + u64::from(new));
        self.body.bytes[at..at + 2].copy_from_slice(&(!sum).to_be_bytes());
    }
}
