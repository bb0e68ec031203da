//! ICMP echo messages (RFC 792, RFC 4443 4.1, 4.2).

use crate::checksum::{fold, ones_sum};
use crate::ip::IpVersion;

/// Length of the header of an echo message, in bytes.
pub const ECHO_HEADER: usize = 8;

/// Header of an echo request or an echo reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// An answer to a request.
    pub is_reply: bool,
    /// Tells the requests of one sender apart; a reply repeats it.
    pub identifier: u16,
    /// Number of the request; a reply repeats it.
    pub sequence: u16,
}

/// Protocol number of ICMP in the IP header.
pub const fn protocol(ip: IpVersion) -> u8 {
    match ip {
        IpVersion::V4 => 1,
        IpVersion::V6 => 58,
    }
}

/// Types of requests and replies.
const fn types(ip: IpVersion) -> [u8; 2] {
    match ip {
        IpVersion::V4 => [8, 0],
        IpVersion::V6 => [128, 129],
    }
}

impl Echo {
    /// The header. `sum` is the one's complement sum of all else that the checksum covers: the data, and over IPv6 the
    /// pseudo-header (RFC 4443 2.3), which the kernel adds to raw sockets' messages itself.
    pub fn header(self, ip: IpVersion, sum: u64) -> [u8; ECHO_HEADER] {
        let mut header = [0; ECHO_HEADER];
        header[0] = types(ip)[usize::from(self.is_reply)];
        header[4..6].copy_from_slice(&self.identifier.to_be_bytes());
        header[6..].copy_from_slice(&self.sequence.to_be_bytes());
        let checksum = !fold(ones_sum(&header) + sum);
        header[2..4].copy_from_slice(&checksum.to_be_bytes());
        header
    }

    /// The header of a message; `None` if it is not an echo. The checksum is not verified.
    pub fn parse(ip: IpVersion, message: &[u8]) -> Option<Echo> {
        let header = message.first_chunk::<ECHO_HEADER>()?;
        let is_reply = types(ip).iter().position(|kind| *kind == header[0])? == 1;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        (header[1] == 0).then_some(Echo { is_reply, identifier: word(4), sequence: word(6) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        for ip in [IpVersion::V4, IpVersion::V6] {
            for is_reply in [false, true] {
                let echo = Echo { is_reply, identifier: 0x1234, sequence: 0xfffe };
                let data = [1, 2, 3, 4];
                let header = echo.header(ip, ones_sum(&data));
                assert_eq!(Echo::parse(ip, &header), Some(echo));
                assert_eq!(fold(ones_sum(&header) + ones_sum(&data)), 0xffff);
                assert_eq!(Echo::parse(ip, &header[..7]), None);
            }
        }
        // RFC 792: an unreachable destination is not an echo. ICMPv6 has other types.
        assert_eq!(Echo::parse(IpVersion::V4, &[3, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Echo::parse(IpVersion::V6, &[8, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
