//! From a captured frame to its IP packet, by link type (<https://www.tcpdump.org/linktypes.html>).

use crate::capture::Frame;
use crate::packet::{be16, NoTcp};

/// EtherTypes (IEEE 802).
mod ethertype {
    pub(super) const IPV4: u16 = 0x0800;
    pub(super) const IPV6: u16 = 0x86dd;
    pub(super) const VLAN: u16 = 0x8100;
    pub(super) const QINQ: u16 = 0x88a8;
    /// QinQ before IEEE 802.1ad.
    pub(super) const OLD_QINQ: u16 = 0x9100;
    pub(super) const MPLS: u16 = 0x8847;
    pub(super) const MPLS_MULTICAST: u16 = 0x8848;
    pub(super) const PPPOE_SESSION: u16 = 0x8864;
}

/// A frame's bytes from its IP header on, padding included. `None` if the frame carries no IP packet.
pub fn network_layer<'a>(frame: &Frame<'a>) -> Option<&'a [u8]> {
    ip_packet(frame.link_type, frame.data).ok()
}

#[inline(always)]
pub(crate) fn ip_packet(link_type: u16, data: &[u8]) -> Result<&[u8], NoTcp> {
    match link_type {
        // LINKTYPE_ETHERNET
        1 => after_ethertype(be16(data, 12)?, skip(data, 14)?),
        // LINKTYPE_RAW
        101 => Ok(data),
        _ => after_other_link(link_type, data),
    }
}

#[inline]
fn skip(data: &[u8], bytes: usize) -> Result<&[u8], NoTcp> {
    data.get(bytes..).ok_or(NoTcp::Truncated)
}

#[inline(never)]
fn after_other_link(link_type: u16, data: &[u8]) -> Result<&[u8], NoTcp> {
    match link_type {
        // Two older numbers of LINKTYPE_RAW, LINKTYPE_IPV4, LINKTYPE_IPV6
        12 | 14 | 228 | 229 => Ok(data),
        // LINKTYPE_LINUX_SLL
        113 => after_ethertype(be16(data, 14)?, skip(data, 16)?),
        // LINKTYPE_LINUX_SLL2
        276 => after_ethertype(be16(data, 0)?, skip(data, 20)?),
        // LINKTYPE_NULL has the family in the capturing machine's byte order, LINKTYPE_LOOP in network byte order
        0 | 108 => {
            let family: [u8; 4] = *data.first_chunk().ok_or(NoTcp::Truncated)?;
            let family = u32::from_be_bytes(family).min(u32::from_le_bytes(family));
            // AF_INET, and AF_INET6 of Linux, NetBSD, FreeBSD, macOS
            if matches!(family, 2 | 10 | 24 | 28 | 30) {
                Ok(&data[4..])
            } else {
                Err(NoTcp::OtherProtocol)
            }
        }
        // LINKTYPE_PPP, LINKTYPE_PPP_HDLC
        9 | 50 => after_ppp(data),
        // LINKTYPE_PPP_PPPD, whose address byte is the direction
        166 => after_ppp(skip(data, 2)?),
        // LINKTYPE_PPP_ETHER: PPPoE from its version on
        51 => after_ppp(skip(data, 6)?),
        // LINKTYPE_C_HDLC
        104 => after_ethertype(be16(data, 2)?, skip(data, 4)?),
        // LINKTYPE_SLIP: direction and compressed header before the packet; 24 bytes of them in BSD/OS
        8 => skip(data, 16),
        15 | 16 => skip(data, 24),
        // LINKTYPE_ERF
        197 => after_erf(data),
        // LINKTYPE_ENC
        109 => skip(data, 12),
        _ => Err(NoTcp::UnknownLinkType),
    }
}

#[inline]
fn after_ethertype(kind: u16, rest: &[u8]) -> Result<&[u8], NoTcp> {
    match kind {
        ethertype::IPV4 | ethertype::IPV6 => Ok(rest),
        _ => after_tags(kind, rest),
    }
}

fn after_tags(mut kind: u16, mut rest: &[u8]) -> Result<&[u8], NoTcp> {
    loop {
        match kind {
            ethertype::IPV4 | ethertype::IPV6 => return Ok(rest),
            ethertype::VLAN | ethertype::QINQ | ethertype::OLD_QINQ => {
                kind = be16(rest, 2)?;
                rest = skip(rest, 4)?;
            }
            // Version, code, session, length.
            ethertype::PPPOE_SESSION => return after_ppp(skip(rest, 6)?),
            // Labels down to the one with the bottom-of-stack bit.
            ethertype::MPLS | ethertype::MPLS_MULTICAST => {
                while rest.get(2).ok_or(NoTcp::Truncated)? & 1 == 0 {
                    rest = skip(rest, 4)?;
                }
                return skip(rest, 4);
            }
            // 802.3 with LLC and SNAP.
            0..=1500 if rest.starts_with(&[0xaa, 0xaa, 3, 0, 0, 0]) => {
                kind = be16(rest, 6)?;
                rest = &rest[8..];
            }
            _ => return Err(NoTcp::OtherProtocol),
        }
    }
}

/// A record of Endace's extensible format: 16 bytes, and 8 for each extension while a top bit announces one.
fn after_erf(data: &[u8]) -> Result<&[u8], NoTcp> {
    let kind = *data.get(8).ok_or(NoTcp::Truncated)?;
    let (mut more, mut rest) = (kind & 0x80 != 0, skip(data, 16)?);
    while more {
        more = *rest.first().ok_or(NoTcp::Truncated)? & 0x80 != 0;
        rest = skip(rest, 8)?;
    }
    match kind & 0x7f {
        // Ethernet, after two bytes of its own.
        2 | 11 | 16 | 20 => after_ethertype(be16(rest, 14)?, skip(rest, 16)?),
        22 | 23 => Ok(rest),
        _ => Err(NoTcp::OtherProtocol),
    }
}

/// PPP (RFC 1661, RFC 1662). Address and control may be omitted, and so may the first byte of the protocol if it is
/// zero.
fn after_ppp(data: &[u8]) -> Result<&[u8], NoTcp> {
    let data = data.strip_prefix(&[0xff, 3]).unwrap_or(data);
    let (protocol, rest) = match data {
        [low, rest @ ..] if low & 1 == 1 => (u16::from(*low), rest),
        [high, low, rest @ ..] => (u16::from_be_bytes([*high, *low]), rest),
        _ => return Err(NoTcp::Truncated),
    };
    if matches!(protocol, 0x21 | 0x57) {
        Ok(rest)
    } else {
        Err(NoTcp::OtherProtocol)
    }
}
