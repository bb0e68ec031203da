//! A TAP interface in a node's network namespace. Without the vnet header it has no offloads: what is read and written
//! are packets of true size with true checksums.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::sys;

const TUNSETIFF: libc::Ioctl = 0x4004_54ca_u32 as libc::Ioctl;

/// The node's end of a link.
pub(crate) struct Tap {
    file: File,
    pub(crate) name: String,
}

impl Tap {
    /// Creates the interface in the network namespace of process `pid`, with this MAC address if one is given.
    pub(crate) fn create(pid: u32, name: &str, mac: Option<[u8; 6]>) -> Result<Tap, String> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', ' ', '\0']) {
            return Err(format!("'{name}' is not an interface name: 1 to 15 characters without '/' or space"));
        }
        sys::in_network_of(pid, || {
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
            Ok(Tap { file, name: name.to_owned() })
        })
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

fn set_mac(name: &str, mac: [u8; 6]) -> io::Result<()> {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").or_else(|_| std::net::UdpSocket::bind("0.0.0.0:0"))?;
    let mut request = request(name);
    // SAFETY: a zeroed union; the hardware address is the member this request reads.
    unsafe {
        request.ifr_ifru.ifru_hwaddr.sa_family = libc::ARPHRD_ETHER;
        for (to, from) in request.ifr_ifru.ifru_hwaddr.sa_data.iter_mut().zip(mac) {
            *to = from as libc::c_char;
        }
    }
    ioctl(socket.as_raw_fd(), libc::SIOCSIFHWADDR as libc::Ioctl, &mut request)
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
    fn mac_addresses_are_read_and_refused() {
        assert_eq!(parse_mac("02:bc:00:01:00:ff"), Ok([2, 0xbc, 0, 1, 0, 0xff]));
        assert!(parse_mac("02:bc:00:01:00").is_err());
        assert!(parse_mac("02:bc:00:01:00:zz").is_err());
    }
}
