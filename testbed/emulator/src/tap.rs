//! A TAP interface in a node's network namespace. Without the vnet header it has no offloads: packets have their true
//! size and checksums. Before an interface without a link-layer header it is a TUN.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use backchannel_core::{Error, ResultExt};

use crate::os::interface::{create_tap, set_mac, set_queue_length};
use crate::os::link_layer::LinkLayer;
use crate::os::namespace::NetworkNamespace;

/// Frames that the kernel keeps while the emulator does not run: a second at 100 Mbit/s. The policies' queues belong to
/// the link; this one must never lose a packet.
const QUEUE_PACKETS: u32 = 10_000;

/// The node's end of a link.
pub(crate) struct Tap {
    file: File,
    namespace: NetworkNamespace,
    layer: LinkLayer,
    pub(crate) name: String,
    pub(crate) mac: Option<[u8; 6]>,
}

impl Tap {
    /// Creates the interface in the network namespace of process `pid`, or of this process. A persistent TAP without
    /// another owner is opened instead, and so is a TUN.
    pub(crate) fn create(pid: Option<u32>, name: &str, mac: Option<[u8; 6]>) -> Result<Tap, Error> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', ' ', '\0']) {
            return Err(format!("'{name}' is not an interface name: 1 to 15 characters without '/' or space").into());
        }
        let namespace = NetworkNamespace::of(pid)?;
        let (file, layer) = namespace.inside(|| {
            let layer = LinkLayer::of(name).unwrap_or(LinkLayer::Ethernet);
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
                .open("/dev/net/tun")
                .or_system("cannot open /dev/net/tun")?;
            let kind = match layer {
                LinkLayer::Ethernet => libc::IFF_TAP,
                LinkLayer::Bare => libc::IFF_TUN,
            };
            create_tap(&file, name, kind).or_system(format_args!("cannot create the TAP interface {name}"))?;
            if let Some(mac) = mac {
                set_mac(name, mac).or_system(format_args!("cannot set the MAC address of {name}"))?;
            }
            set_queue_length(name, QUEUE_PACKETS).or_system(format_args!("cannot set the queue length of {name}"))?;
            Ok((file, layer))
        })?;
        Ok(Tap { file, namespace, layer, name: name.to_owned(), mac })
    }

    /// Link layer of the interface.
    pub(crate) fn link_layer(&self) -> LinkLayer {
        self.layer
    }

    /// Frames that the kernel has dropped since the interface was created, because its queue was full. `None` if the
    /// interface is gone.
    pub(crate) fn overflowed(&self) -> Option<u64> {
        let path = "/proc/thread-self/net/dev";
        let table = self.namespace.inside(|| std::fs::read_to_string(path).or_system(path));
        transmit_drops(&table.ok()?, &self.name)
    }

    /// The next frame that the node sent, or `None`.
    pub(crate) fn read<'a>(&mut self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        let room = self.layer.room(buffer).ok_or(io::ErrorKind::InvalidInput)?;
        match self.file.read(room) {
            Ok(length) => {
                let length = self.layer.complete(buffer, length);
                Ok(Some(&buffer[..length]))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Delivers a frame to the node; false if the interface is down or gone.
    pub(crate) fn write(&mut self, frame: &[u8]) -> bool {
        self.layer.part_sent(frame).is_some_and(|part| self.file.write(part).is_ok())
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The transmit side's "drop" column of `/proc/net/dev`.
fn transmit_drops(table: &str, name: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    // Eight columns of the receive side, then bytes, packets, errs, drop.
    line.split_whitespace().nth(11)?.parse().ok()
}

/// Parses a MAC address such as `02:bc:00:01:00:01`.
///
/// # Errors
/// The text is not one.
pub fn parse_mac(text: &str) -> Result<[u8; 6], Error> {
    let parts: Vec<_> = text.split(':').map(|part| u8::from_str_radix(part, 16)).collect();
    match parts.as_slice() {
        [Ok(a), Ok(b), Ok(c), Ok(d), Ok(e), Ok(f)] => Ok([*a, *b, *c, *d, *e, *f]),
        _ => Err(format!("'{text}' is not a MAC address such as 02:bc:00:01:00:01").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_from_the_transmit_side() {
        let table = "Inter-|   Receive                            |  Transmit\n face |bytes ...\n\
            \x20   lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\nr1-eth0: 1 2 3 4 5 6 7 8 900 9 0 2000 0 0 0 0\n";
        assert_eq!(transmit_drops(table, "r1-eth0"), Some(2000));
        assert_eq!(transmit_drops(table, "r1-eth1"), None);
        assert_eq!(transmit_drops(table, "r1"), None);
    }

    #[test]
    fn mac_addresses_are_parsed_or_rejected() {
        assert_eq!(parse_mac("02:bc:00:01:00:ff"), Ok([2, 0xbc, 0, 1, 0, 0xff]));
        assert!(parse_mac("02:bc:00:01:00").is_err());
        assert!(parse_mac("02:bc:00:01:00:zz").is_err());
    }
}
