//! An interface that exists already, through AF_PACKET: one side of a bump in the wire, or what a queue of ours sends to.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::sys::Network;

/// Leaves out what this socket itself sends (linux/if_packet.h; not in libc yet).
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
/// Room in the kernel for what comes while the emulator is not scheduled, and for what the interface does not take yet.
const BUFFER_BYTES: libc::c_int = 1 << 25;
const ETHERNET_HEADER: usize = 14;

/// The interface.
pub(crate) struct Wire {
    socket: OwnedFd,
    pub(crate) name: String,
    /// Of the station at the other end of the cable.
    pub(crate) mac: Option<[u8; 6]>,
    /// The kernel's counter begins anew whenever it is read.
    overflowed: Cell<u64>,
}

impl Wire {
    /// Takes over the interface in this network namespace: every frame that arrives there is read here, whomever it is
    /// for. The node's own kernel should have no address on it.
    pub(crate) fn attach(network: &Network, name: &str, mac: Option<[u8; 6]>) -> Result<Wire, String> {
        let socket = network.inside(|| {
            open(name).map_err(|error| match error.raw_os_error() {
                Some(libc::ENODEV) => format!("there is no interface {name}"),
                Some(libc::EPERM) => format!("cannot take over {name}: CAP_NET_RAW is needed"),
                _ => format!("cannot take over {name}: {error}"),
            })
        })?;
        Ok(Wire { socket, name: name.to_owned(), mac, overflowed: Cell::new(0) })
    }

    /// Frames that the kernel has dropped on their way to the emulator since the interface was taken over.
    pub(crate) fn overflowed(&self) -> Option<u64> {
        // SAFETY: an all-zero value is a valid one, and its size is told.
        unsafe {
            let mut stats: libc::tpacket_stats = std::mem::zeroed();
            let mut length = size_of_val(&stats) as libc::socklen_t;
            let (fd, level, what) = (self.socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS);
            if libc::getsockopt(fd, level, what, (&raw mut stats).cast(), &raw mut length) != 0 {
                return None;
            }
            self.overflowed.set(self.overflowed.get() + u64::from(stats.tp_drops));
        }
        Some(self.overflowed.get())
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// The next frame that arrived, or `None`.
    pub(crate) fn read<'a>(&mut self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        // SAFETY: a buffer of that length.
        let n = unsafe { libc::recv(self.fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        if n < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                // A cable that was pulled out comes back; so does an interface.
                Some(libc::ENETDOWN) => Ok(None),
                _ if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                _ => Err(error),
            };
        }
        let frame = &buffer[..n as usize];
        Ok(Some(&frame[..unpadded(frame)]))
    }

    /// Sends a frame; false where the interface is down, gone or does not take it.
    pub(crate) fn write(&mut self, frame: &[u8]) -> bool {
        // SAFETY: a buffer of that length.
        unsafe { libc::send(self.fd(), frame.as_ptr().cast(), frame.len(), 0) == frame.len() as isize }
    }
}

/// Length of a frame without Ethernet's padding to 60 bytes: an ack of 40 bytes would weigh 46 on an emulated line.
fn unpadded(frame: &[u8]) -> usize {
    let word = |at: usize| frame.get(at..at + 2).map(|word| usize::from(u16::from_be_bytes([word[0], word[1]])));
    let ip = match word(12) {
        Some(0x0800) => word(ETHERNET_HEADER + 2),
        Some(0x86dd) => word(ETHERNET_HEADER + 4).map(|payload| payload + 40),
        _ => None,
    };
    // A length of zero is a segment that the sending kernel has not cut yet: nothing to trim.
    ip.filter(|&ip| ip >= 20).map_or(frame.len(), |ip| frame.len().min(ETHERNET_HEADER + ip))
}

fn open(name: &str) -> io::Result<OwnedFd> {
    let c_name = std::ffi::CString::new(name).map_err(io::Error::other)?;
    // SAFETY: a NUL-terminated name; results are checked; addresses and options are valid and their sizes are told.
    unsafe {
        let index = libc::if_nametoindex(c_name.as_ptr());
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        // Protocol 0 receives nothing: no frame of another interface slips in before it is bound.
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(socket);
        set(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &BUFFER_BYTES)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &BUFFER_BYTES)?;
        let mut everything: libc::packet_mreq = std::mem::zeroed();
        everything.mr_ifindex = index as i32;
        everything.mr_type = libc::PACKET_MR_PROMISC as u16;
        set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &everything)?;
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as i32;
        let length = size_of_val(&address) as libc::socklen_t;
        if libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(socket)
    }
}

fn set<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: a value of that size.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ethertype: u16, ip: &[u8], length: usize) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend(ethertype.to_be_bytes());
        frame.extend(ip);
        frame.resize(length, 0);
        frame
    }

    #[test]
    fn padding_is_no_part_of_a_packet() {
        let ack = [0x45, 0, 0, 40];
        assert_eq!(unpadded(&frame(0x0800, &ack, 60)), 54);
        assert_eq!(unpadded(&frame(0x0800, &ack, 54)), 54);
        let v6 = [0x60, 0, 0, 0, 0, 4];
        assert_eq!(unpadded(&frame(0x86dd, &v6, 60)), 58);
        assert_eq!(unpadded(&frame(0x0806, &[0; 28], 60)), 60);
    }

    #[test]
    fn a_packet_that_lies_about_its_length_is_left_alone() {
        assert_eq!(unpadded(&frame(0x0800, &[0x45, 0, 5, 0], 60)), 60);
        assert_eq!(unpadded(&frame(0x0800, &[0x45, 0, 0, 0], 60)), 60);
        assert_eq!(unpadded(&frame(0x0800, &[0x45, 0, 0, 3], 60)), 60);
        assert_eq!(unpadded(&[0; 10]), 10);
    }
}
