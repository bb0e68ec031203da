//! Socket options that neither rustix nor socket2 has.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use libc::c_int;

/// Sets an option; `T` is the C type that socket(7), packet(7) or tcp(7) states for it.
///
/// # Errors
/// The kernel refuses.
pub fn set<T: Copy>(fd: impl AsFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    let (fd, length) = (fd.as_fd().as_raw_fd(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads `length` bytes of a value of that size.
    match unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads an option. What an older kernel does not fill in is zero.
///
/// # Safety
/// `T` must be the C type that socket(7), packet(7) or tcp(7) states for the option, and valid for every bit pattern.
///
/// # Errors
/// The kernel refuses.
pub unsafe fn get<T: Copy>(fd: impl AsFd, level: c_int, name: c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of the value, which is zeroed and so initialised.
    unsafe {
        if libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut length) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(value.assume_init())
    }
}

/// Makes the kernel stamp arrivals, see [`receive_stamped`].
///
/// # Errors
/// The kernel refuses.
pub fn stamp_arrivals(fd: impl AsFd) -> io::Result<()> {
    set::<c_int>(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1)
}

/// Receives a packet as recv(2) does. Returns its length and, where [`stamp_arrivals`] is on, when it arrived, in
/// nanoseconds of CLOCK_REALTIME.
///
/// # Errors
/// Those of recvmsg(2), `WouldBlock` and `Interrupted` included.
pub fn receive_stamped(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // Words, for the alignment that control messages need.
    let mut control = [0u64; 16];
    // SAFETY: an all-zero msghdr is valid. Its pointers outlive the call. The kernel fills the control buffer, and the
    // macros stay within its length.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let received = libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut message, 0);
        if received < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(control) = header.as_ref() {
            if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
                let stamp = libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned();
                return Ok((received as usize, Some(stamp.tv_sec as u64 * 1_000_000_000 + stamp.tv_nsec as u64)));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
        Ok((received as usize, None))
    }
}
