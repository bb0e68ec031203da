//! Link-layer headers of interfaces. Inside the programs every frame has an Ethernet header. Interfaces without one
//! (PPP, SLIP, TUN) get a frame's packet only, and what they deliver gets a header of zeros with the EtherType.

use std::io;

use super::interface::hardware_type;

/// Length of Ethernet's header.
pub const ETHERNET_HEADER: usize = 14;
/// EtherTypes (IEEE 802).
pub const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// See [`ETHERTYPE_IPV4`].
pub const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];

/// Hardware types of interfaces whose packet sockets see bare packets (linux/if_arp.h).
const BARE: [u16; 12] = [
    libc::ARPHRD_SLIP,
    libc::ARPHRD_CSLIP,
    libc::ARPHRD_SLIP6,
    libc::ARPHRD_CSLIP6,
    libc::ARPHRD_PPP,
    libc::ARPHRD_RAWHDLC,
    libc::ARPHRD_TUNNEL,
    libc::ARPHRD_TUNNEL6,
    libc::ARPHRD_SIT,
    libc::ARPHRD_IPGRE,
    // ARPHRD_RAWIP of cellular modems, and ARPHRD_NONE of TUNs.
    519,
    0xfffe,
];

/// What stands before the packets of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// Ethernet's header.
    Ethernet,
    /// Nothing. The interface leads to one neighbour.
    Bare,
}

impl LinkLayer {
    /// That of an interface of the current network namespace.
    ///
    /// # Errors
    /// `ENODEV`: there is no such interface. `Unsupported`: its link layer is neither.
    pub fn of(interface: &str) -> io::Result<LinkLayer> {
        match hardware_type(interface)? {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(LinkLayer::Ethernet),
            kind if BARE.contains(&kind) => Ok(LinkLayer::Bare),
            kind => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("its hardware type {kind} is neither Ethernet nor one without headers (PPP, SLIP, TUN)"),
            )),
        }
    }

    /// Bytes before the packet.
    pub fn header_len(self) -> usize {
        match self {
            LinkLayer::Ethernet => ETHERNET_HEADER,
            LinkLayer::Bare => 0,
        }
    }

    /// Where in a buffer for a whole frame the interface's bytes go. `None`: the buffer is shorter than a header.
    pub fn room(self, buffer: &mut [u8]) -> Option<&mut [u8]> {
        buffer.get_mut(ETHERNET_HEADER - self.header_len()..)
    }

    /// Completes the frame whose last `length` bytes were read into [`LinkLayer::room`]. Returns the frame's length.
    pub fn complete(self, buffer: &mut [u8], length: usize) -> usize {
        if self == LinkLayer::Ethernet {
            return length;
        }
        let Some((header, packet)) = buffer.split_first_chunk_mut::<ETHERNET_HEADER>() else { return 0 };
        header.fill(0);
        header[12..].copy_from_slice(&ethertype(packet.get(..length).unwrap_or_default()));
        ETHERNET_HEADER + length
    }

    /// The part of a frame that the interface takes. `None`: it carries no such packet, or the frame is cut.
    pub fn part_sent(self, frame: &[u8]) -> Option<&[u8]> {
        let (header, packet) = frame.split_first_chunk::<ETHERNET_HEADER>()?;
        match self {
            LinkLayer::Ethernet => Some(frame),
            LinkLayer::Bare => is_ip([header[12], header[13]]).then_some(packet),
        }
    }
}

/// Whether frames of this EtherType carry IPv4 or IPv6.
pub fn is_ip(ethertype: [u8; 2]) -> bool {
    ethertype == ETHERTYPE_IPV4 || ethertype == ETHERTYPE_IPV6
}

/// EtherType of a bare packet, by its version; zero for anything but IP.
fn ethertype(packet: &[u8]) -> [u8; 2] {
    match packet.first().map(|first| first >> 4) {
        Some(4) => ETHERTYPE_IPV4,
        Some(6) => ETHERTYPE_IPV6,
        _ => [0; 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_packet_gets_a_header_and_loses_it_again() {
        for (packet, kind) in [(&[0x45, 1, 2][..], ETHERTYPE_IPV4), (&[0x60, 9][..], ETHERTYPE_IPV6)] {
            let mut buffer = [0xff; 40];
            LinkLayer::Bare.room(&mut buffer).unwrap()[..packet.len()].copy_from_slice(packet);
            let length = LinkLayer::Bare.complete(&mut buffer, packet.len());
            assert_eq!(buffer[..length], [&[0; 12][..], &kind, packet].concat());
            assert_eq!(LinkLayer::Bare.part_sent(&buffer[..length]), Some(packet));
            assert_eq!(LinkLayer::Ethernet.part_sent(&buffer[..length]), Some(&buffer[..length]));
        }
    }

    #[test]
    fn an_interface_without_headers_takes_no_arp_and_nothing_that_is_cut() {
        let mut arp = [0; 42];
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        assert_eq!(LinkLayer::Bare.part_sent(&arp), None);
        assert_eq!(LinkLayer::Ethernet.part_sent(&arp), Some(&arp[..]));
        assert_eq!(LinkLayer::Bare.part_sent(&arp[..10]), None);
    }

    #[test]
    fn an_ethernet_frame_is_read_as_it_is() {
        let mut buffer = [7; 20];
        assert_eq!(LinkLayer::Ethernet.room(&mut buffer).unwrap().len(), 20);
        assert_eq!(LinkLayer::Ethernet.complete(&mut buffer, 20), 20);
        assert_eq!(buffer, [7; 20]);
    }

    #[test]
    fn loopback_has_an_ethernet_header_and_a_missing_interface_is_an_error() {
        assert_eq!(LinkLayer::of("lo").unwrap(), LinkLayer::Ethernet);
        assert_eq!(LinkLayer::of("no-such-thing").unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
