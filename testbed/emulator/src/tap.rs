//! A TAP interface in a node's network namespace. Without the vnet header it has no offloads: what is read and written
//! are packets of true size with true checksums.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::sys::Network;

const TUNSETIFF: libc::Ioctl = 0x4004_54ca_u32 as libc::Ioctl;

/// Frames that wait in the kernel while the emulator is not scheduled: a second of 100 Mbit/s. The policies' queues are
/// the link's; this one must never be what loses a packet.
const QUEUED_FRAMES: i32 = 10_000;

/// The node's end of a link.
pub(crate) struct Tap {
    file: File,
    network: Network,
    pub(crate) name: String,
    pub(crate) mac: Option<[u8; 6]>,
}

impl Tap {
    /// Creates the interface in the network namespace of process `pid`, with this MAC address if one is given.
    pub(crate) fn create(pid: u32, name: &str, mac: Option<[u8; 6]>) -> Result<Tap, String> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', ' ', '\0']) {
            return Err(format!("'{name}' is not an interface name: 1 to 15 characters without '/' or space"));
        }
        let network = Network::of(pid)?;
        let file = network.inside(|| {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
                .open("/dev/net/tun")
                .map_err(|error| format!("cannot open /dev/net/tun: {error}"))?;
            let mut request = request(name);
            request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
            ioctl(file.as_raw_fd(), TUNSETIFF, &mut request)
                .map_err(|error| format!("cannot make the TAP interface {name}: {error}"))?;
            if let Some(mac) = mac {
                set_mac(name, mac).map_err(|error| format!("cannot set the MAC address of {name}: {error}"))?;
            }
            set_queue_length(name, QUEUED_FRAMES)
                .map_err(|error| format!("cannot set the queue length of {name}: {error}"))?;
            Ok(file)
        })?;
        Ok(Tap { file, network, name: name.to_owned(), mac })
    }

    /// Frames that the kernel has dropped on their way to the emulator, because its queue was full, since the interface
    /// was made; `None` where the interface is gone.
    pub(crate) fn overflowed(&self) -> Option<u64> {
        let table = self
            .network
            .inside(|| std::fs::read_to_string("/proc/thread-self/net/dev").map_err(|error| error.to_string()));
        sent_and_dropped(&table.ok()?, &self.name)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The next frame that the node sent, or `None`.
    pub(crate) fn read<'a>(&mut self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match self.file.read(buffer) {
            Ok(n) => Ok(Some(&buffer[..n])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands the node a frame; false where its interface is down or gone.
    pub(crate) fn write(&mut self, frame: &[u8]) -> bool {
        self.file.write(frame).is_ok()
    }
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: an all-zero ifreq is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn ioctl(fd: RawFd, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every request used here takes an ifreq.
    match unsafe { libc::ioctl(fd, what, request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The "drop" column of the transmit side of `/proc/net/dev`.
fn sent_and_dropped(table: &str, name: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    // Eight columns of receiving, then bytes, packets, errs, drop.
    line.split_whitespace().nth(11)?.parse().ok()
}

fn set_queue_length(name: &str, frames: i32) -> io::Result<()> {
    let mut request = request(name);
    // SIOCSIFTXQLEN takes its value in the member that shares the union's first integer.
    request.ifr_ifru.ifru_ifindex = frames;
    ioctl(control()?.as_raw_fd(), libc::SIOCSIFTXQLEN as libc::Ioctl, &mut request)
}

/// A socket to ask of interfaces with.
fn control() -> io::Result<std::net::UdpSocket> {
    std::net::UdpSocket::bind("127.0.0.1:0").or_else(|_| std::net::UdpSocket::bind("0.0.0.0:0"))
}

fn set_mac(name: &str, mac: [u8; 6]) -> io::Result<()> {
    let mut request = request(name);
    // SAFETY: a zeroed union; the hardware address is the member this request reads.
    unsafe {
        request.ifr_ifru.ifru_hwaddr.sa_family = libc::ARPHRD_ETHER;
        for (to, from) in request.ifr_ifru.ifru_hwaddr.sa_data.iter_mut().zip(mac) {
            *to = from as libc::c_char;
        }
    }
    ioctl(control()?.as_raw_fd(), libc::SIOCSIFHWADDR as libc::Ioctl, &mut request)
}

/// Reads "02:bc:00:01:00:01".
///
/// # Errors
/// A sentence.
pub fn parse_mac(text: &str) -> Result<[u8; 6], String> {
    let parts: Vec<_> = text.split(':').map(|part| u8::from_str_radix(part, 16)).collect();
    match parts.as_slice() {
        [Ok(a), Ok(b), Ok(c), Ok(d), Ok(e), Ok(f)] => Ok([*a, *b, *c, *d, *e, *f]),
        _ => Err(format!("'{text}' is not a MAC address such as 02:bc:00:01:00:01")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_from_the_transmit_side() {
        let table = "Inter-|   Receive                            |  Transmit\n face |bytes ...\n\
            \x20   lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\nr1-eth0: 1 2 3 4 5 6 7 8 900 9 0 2000 0 0 0 0\n";
        assert_eq!(sent_and_dropped(table, "r1-eth0"), Some(2000));
        assert_eq!(sent_and_dropped(table, "r1-eth1"), None);
        assert_eq!(sent_and_dropped(table, "r1"), None);
    }

    #[test]
    fn mac_addresses_are_read_and_refused() {
        assert_eq!(parse_mac("02:bc:00:01:00:ff"), Ok([2, 0xbc, 0, 1, 0, 0xff]));
        assert!(parse_mac("02:bc:00:01:00").is_err());
        assert!(parse_mac("02:bc:00:01:00:zz").is_err());
    }
}
