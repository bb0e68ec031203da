//! An interface that existed before: one side of a bump in the wire.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use backchannel_core::Error;
use rustix::io::Errno;

use crate::os::link_layer::{LinkLayer, ETHERNET_HEADER};
use crate::os::namespace::NetworkNamespace;
use crate::os::packet_socket::{PacketSocket, Receive};

/// The interface.
pub(crate) struct Attached {
    socket: PacketSocket,
    pub(crate) name: String,
    /// MAC address of the station at the other end of the cable.
    pub(crate) mac: Option<[u8; 6]>,
    /// Frames dropped so far. The kernel resets its own count at each read.
    overflowed: Cell<u64>,
}

impl Attached {
    /// Takes over the interface in this network namespace: reads every frame that arrives, whatever its destination.
    /// The node's kernel should have no address on it.
    pub(crate) fn open(namespace: &NetworkNamespace, name: &str, mac: Option<[u8; 6]>) -> Result<Attached, Error> {
        let socket = namespace.inside(|| {
            PacketSocket::open(name, Receive::Everything).map_err(|error| {
                Error::System(match Errno::from_io_error(&error) {
                    Some(Errno::NODEV) => format!("interface {name} does not exist"),
                    Some(Errno::PERM) => format!("cannot take over {name}: CAP_NET_RAW is needed"),
                    _ => format!("cannot take over {name}: {error}"),
                })
            })
        })?;
        Ok(Attached { socket, name: name.to_owned(), mac, overflowed: Cell::new(0) })
    }

    /// Link layer of the interface.
    pub(crate) fn link_layer(&self) -> LinkLayer {
        self.socket.link_layer()
    }

    /// Frames that the kernel has dropped for lack of room since the interface was taken over.
    pub(crate) fn overflowed(&self) -> Option<u64> {
        self.overflowed.set(self.overflowed.get() + self.socket.take_drops().ok()?);
        Some(self.overflowed.get())
    }

    /// The next frame that arrived, without Ethernet's padding; `None` if there is none.
    pub(crate) fn read<'a>(&mut self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match self.socket.receive(buffer) {
            Ok(length) => Ok(Some(&buffer[..unpadded_length(&buffer[..length])])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // An unplugged cable or a removed interface may come back.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NETDOWN) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a frame; false if the interface is down, gone or full.
    pub(crate) fn write(&mut self, frame: &[u8]) -> bool {
        self.socket.send(frame).is_ok()
    }
}

impl AsFd for Attached {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Length of a frame without Ethernet's padding to 60 bytes, with which an ack of 40 bytes would count as 46.
fn unpadded_length(frame: &[u8]) -> usize {
    let word = |at: usize| frame.get(at..at + 2).map(|word| usize::from(u16::from_be_bytes([word[0], word[1]])));
    let ip = match word(12) {
        Some(0x0800) => word(ETHERNET_HEADER + 2),
        Some(0x86dd) => word(ETHERNET_HEADER + 4).map(|payload| payload + 40),
        _ => None,
    };
    // A length of zero is a segment that the sending kernel has not cut yet: nothing to trim.
    ip.filter(|&ip| ip >= 20).map_or(frame.len(), |ip| frame.len().min(ETHERNET_HEADER + ip))
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
    fn padding_is_not_part_of_a_packet() {
        let ack = [0x45, 0, 0, 40];
        assert_eq!(unpadded_length(&frame(0x0800, &ack, 60)), 54);
        assert_eq!(unpadded_length(&frame(0x0800, &ack, 54)), 54);
        let v6 = [0x60, 0, 0, 0, 0, 4];
        assert_eq!(unpadded_length(&frame(0x86dd, &v6, 60)), 58);
        assert_eq!(unpadded_length(&frame(0x0806, &[0; 28], 60)), 60);
    }

    #[test]
    fn a_packet_with_an_impossible_length_is_not_cut() {
        assert_eq!(unpadded_length(&frame(0x0800, &[0x45, 0, 5, 0], 60)), 60);
        assert_eq!(unpadded_length(&frame(0x0800, &[0x45, 0, 0, 0], 60)), 60);
        assert_eq!(unpadded_length(&frame(0x0800, &[0x45, 0, 0, 3], 60)), 60);
        assert_eq!(unpadded_length(&[0; 10]), 10);
    }
}
