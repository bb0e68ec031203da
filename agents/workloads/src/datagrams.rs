//! Packets without a connection, of one size and at equal intervals: what [`crate::cbr`], [`crate::probe`] and
//! [`crate::call`] send.

use std::time::Duration;

use backchannel_core::ip::IpVersion;
use backchannel_core::time::Time;
use backchannel_core::Error;

use crate::{Action, Workload};

/// Header of UDP, and of an ICMP echo.
const UDP_HEADER: u32 = 8;
/// Fixed header of RTP (RFC 3550 5.1).
pub(crate) const RTP_HEADER: u32 = 12;
/// Least length of a packet with a number of 8 bytes over either version of IP.
pub const LEAST_NUMBERED_BYTES: u32 = datagram_header_bytes(IpVersion::V6) + 8;

/// Bytes of the headers of a packet without a connection: IP, and UDP or ICMP echo.
pub const fn datagram_header_bytes(ip: IpVersion) -> u32 {
    ip.header_bytes() + UDP_HEADER
}

/// Checks that packets of this length have room for data beside headers of this many bytes.
///
/// # Errors
/// They have not.
pub(crate) fn check_room(packet_bytes: u32, headers: u32, ip: IpVersion) -> Result<(), Error> {
    if packet_bytes > headers {
        return Ok(());
    }
    let version = u8::from(ip);
    Err(format!("packet_bytes is {packet_bytes}, and must be more than {headers} over IPv{version}").into())
}

#[derive(Debug)]
pub(crate) struct Datagrams {
    pub(crate) every: Duration,
    pub(crate) packet_bytes: u32,
    pub(crate) is_icmp: bool,
}

impl Workload for Datagrams {
    fn act(&mut self, now: Time) -> (Action, Option<Time>) {
        (Action::Datagram { length: self.packet_bytes, frame: None }, Some(now + self.every))
    }

    fn is_icmp(&self) -> bool {
        self.is_icmp
    }
}
