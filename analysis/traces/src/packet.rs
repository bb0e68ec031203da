//! What the headers of a captured packet say.

use std::net::{IpAddr, Ipv6Addr};

/// An IPv6 address in host byte order. IPv4 addresses are mapped (RFC 4291 2.5.5.2).
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

/// Result of verifying a packet's checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// All are right.
    Good,
    /// At least one is wrong, so the receiver discards the packet.
    Bad,
    /// Not computed yet by the sender (checksum offload leaves the pseudo header's sum or zero), or not verifiable
    /// because the packet was cut.
    Unknown,
}

/// TCP flags (RFC 9293 3.1).
pub(crate) mod flag {
    pub(crate) const FIN: u8 = 1;
    pub(crate) const SYN: u8 = 2;
    pub(crate) const RST: u8 = 4;
    pub(crate) const PSH: u8 = 8;
    pub(crate) const ACK: u8 = 16;
    pub(crate) const ECE: u8 = 64;
}

/// Values of the IP header's ECN field (RFC 3168).
pub mod ecn {
    /// Not ECN-capable.
    pub const NOT_ECT: u8 = 0;
    /// Congestion experienced.
    pub const CE: u8 = 3;
}

/// Fields of a TCP segment and of its IP header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpPacket {
    /// Sender's address and port.
    pub src: (Address, u16),
    /// Receiver's address and port.
    pub dst: (Address, u16),
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number; undefined without ACK.
    pub ack: u32,
    /// Flags, FIN lowest.
    pub flags: u8,
    /// Window field, unscaled.
    pub window: u16,
    /// Length of the IP packet in bytes; the sum of all fragments if it was fragmented.
    pub ip_len: u32,
    /// Bytes of data.
    pub payload: u32,
    /// ECN field of the IP header.
    pub ecn: u8,
    /// Result of verifying the IP and TCP checksums.
    pub checksum: Checksum,
    /// Window scale option.
    pub window_scale: Option<u8>,
    /// Maximum segment size option.
    pub mss: Option<u16>,
    /// SACK-permitted option.
    pub sack_permitted: bool,
    /// Number of valid entries of `sacks`.
    pub sack_blocks: u8,
    /// SACK blocks: left and right edge.
    pub sacks: [(u32, u32); 4],
    /// Timestamps option: value, echo.
    pub timestamps: Option<(u32, u32)>,
}

impl Default for TcpPacket {
    fn default() -> TcpPacket {
        let unspecified = (Address(0), 0);
        TcpPacket {
            src: unspecified,
            dst: unspecified,
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
pub enum NoTcp {
    /// It carries another protocol.
    OtherProtocol,
    /// It is a fragment, and others of its packet are missing so far.
    Incomplete,
    /// Too little of it was captured, or its headers contradict each other.
    Truncated,
    /// The link type is not supported.
    UnknownLinkType,
}

/// The IP layer around a TCP segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IpContext {
    pub(crate) src: Address,
    pub(crate) dst: Address,
    pub(crate) ip_len: u32,
    /// Bytes of TCP header and data.
    pub(crate) tcp_len: u32,
    pub(crate) ecn: u8,
    /// The IP header's checksum is right.
    pub(crate) header_ok: bool,
    /// Sum of both addresses for the TCP checksum; `None` if the checksum cannot be verified.
    pub(crate) address_sum: Option<u64>,
}

#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> Result<u16, NoTcp> {
    match bytes.get(at..at + 2) {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => Err(NoTcp::Truncated),
    }
}
