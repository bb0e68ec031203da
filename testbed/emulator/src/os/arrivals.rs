//! Packets and when they arrived, by the kernel's time stamps: one, or several with one call.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

use libc::c_int;

use super::link_layer::LinkLayer;
use super::socket_option;

/// Most packets that are received with one call.
pub const BATCH: usize = 32;
/// Room for a time stamp, in words, for the alignment that control messages need.
type Control = [u64; 8];

/// Makes the kernel stamp what a socket receives.
///
/// # Errors
/// The kernel refuses.
pub fn stamp_arrivals(fd: impl AsFd) -> io::Result<()> {
    socket_option::set::<c_int>(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1)
}

/// Receives a packet as recv(2) does. Returns its length and, where [`stamp_arrivals`] is on, when it arrived, in
/// nanoseconds of CLOCK_REALTIME.
///
/// # Errors
/// Those of recvmsg(2), `WouldBlock` and `Interrupted` included.
pub fn receive_stamped(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = Control::default();
    let mut message = header(&raw mut part, &mut control);
    // SAFETY: the header points to one part, which lies in `buffer`, and to `control`. All of them outlive the call.
    let received = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut message, 0) };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled the header in, and `control` is alive.
    Ok((received as usize, unsafe { stamp(&message) }))
}

/// Frames that were received with one call, to be taken one by one.
pub struct Batch {
    /// Of each frame.
    room: usize,
    /// [`BATCH`] times the room.
    bytes: Vec<u8>,
    /// Lengths and times of arrival of the frames in `bytes`.
    received: [(usize, Option<u64>); BATCH],
    /// Those that were not taken yet.
    left: Range<usize>,
}

impl Batch {
    /// An empty one for frames of at most `room` bytes.
    pub fn new(room: usize) -> Batch {
        Batch { room, bytes: vec![0; BATCH * room], received: [(0, None); BATCH], left: 0..0 }
    }

    /// Whether all frames were taken.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Receives as many frames of an interface as there are, at most [`BATCH`], and returns how many. Fewer than that
    /// have emptied the socket. Those that were not taken before are lost.
    ///
    /// # Errors
    /// Those of recvmmsg(2) on a socket that does not block, `WouldBlock` and `Interrupted` included.
    pub(super) fn receive(&mut self, fd: impl AsFd, layer: LinkLayer) -> io::Result<usize> {
        self.left = 0..0;
        let mut controls = [Control::default(); BATCH];
        let mut rooms = self.bytes.chunks_exact_mut(self.room);
        let mut parts: [libc::iovec; BATCH] = std::array::from_fn(|_| {
            let room = rooms.next().and_then(|room| layer.room(room)).unwrap_or_default();
            libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() }
        });
        let mut messages: [libc::mmsghdr; BATCH] = std::array::from_fn(|number| libc::mmsghdr {
            msg_hdr: header(&raw mut parts[number], &mut controls[number]),
            msg_len: 0,
        });
        // SAFETY: each header points to a part, which lies in `bytes`, and to a place of `controls`. All of them
        // outlive the call.
        let count = unsafe {
            let fd = fd.as_fd().as_raw_fd();
            libc::recvmmsg(fd, messages.as_mut_ptr(), BATCH as u32, libc::MSG_DONTWAIT, std::ptr::null_mut())
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        let rooms = self.bytes.chunks_exact_mut(self.room).zip(&mut self.received);
        for (message, (room, received)) in messages[..count].iter().zip(rooms) {
            // SAFETY: the call has filled the header in, and `controls` is alive.
            *received = (layer.complete(room, message.msg_len as usize), unsafe { stamp(&message.msg_hdr) });
        }
        self.left = 0..count;
        Ok(count)
    }

    /// Takes the next frame, and when it arrived, in nanoseconds of CLOCK_REALTIME.
    pub fn take(&mut self) -> Option<(&[u8], Option<u64>)> {
        let number = self.left.next()?;
        let (length, stamp_ns) = self.received[number];
        Some((&self.bytes[number * self.room..][..length], stamp_ns))
    }
}

/// A message of one part.
fn header(part: *mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: an all-zero msghdr is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(control) as _;
    message
}

/// The time stamp among the control messages of a message that was received.
///
/// # Safety
/// The message comes from the kernel, and its control buffer is alive.
unsafe fn stamp(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: the macros stay within the control buffer's length, and a stamp is a timespec.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(control) = header.as_ref() {
            if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
                let stamp = libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned();
                return Some(stamp.tv_sec as u64 * 1_000_000_000 + stamp.tv_nsec as u64);
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::os::link_layer::ETHERTYPE_IPV4;

    #[test]
    fn a_batch_has_every_frame_in_order_with_its_time() {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        stamp_arrivals(&receiver).unwrap();
        let mut batch = Batch::new(128);
        assert_eq!(batch.receive(&receiver, LinkLayer::Bare).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // IPv4, as far as a bare interface looks at it.
        let packet = |number: usize| [vec![0x45; 20 + number], vec![number as u8]].concat();
        let packets: Vec<Vec<u8>> = (0..BATCH + 3).map(packet).collect();
        packets.iter().for_each(|packet| assert_eq!(sender.send(packet).unwrap(), packet.len()));
        let (mut frames, mut before_ns) = (Vec::new(), 0);
        for expected in [BATCH, 3] {
            assert_eq!(batch.receive(&receiver, LinkLayer::Bare).unwrap(), expected);
            while let Some((frame, stamp_ns)) = batch.take() {
                assert_eq!(frame[12..14], ETHERTYPE_IPV4);
                frames.push(frame[14..].to_vec());
                assert!(stamp_ns.unwrap() >= before_ns);
                before_ns = stamp_ns.unwrap();
            }
            assert!(batch.is_empty());
        }
        assert_eq!(frames, packets);
    }
}
