//! Socket options that neither rustix nor socket2 has.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use libc::c_int;
use rustix::io::Errno;
use rustix::net::sockopt;

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

/// Gives a socket a receive buffer of this size; without CAP_NET_ADMIN in the first user namespace, of at most the
/// sysctl net.core.rmem_max. Returns the size that it has. The kernel reserves twice as much.
///
/// # Errors
/// The kernel refuses.
pub fn set_receive_buffer(fd: impl AsFd, bytes: usize) -> io::Result<usize> {
    match sockopt::set_socket_recv_buffer_size_force(&fd, bytes) {
        Err(Errno::PERM) => sockopt::set_socket_recv_buffer_size(&fd, bytes)?,
        result => result?,
    }
    Ok(sockopt::socket_recv_buffer_size(&fd)? / 2)
}

/// The same for the send buffer and net.core.wmem_max.
///
/// # Errors
/// The kernel refuses.
pub fn set_send_buffer(fd: impl AsFd, bytes: usize) -> io::Result<usize> {
    match sockopt::set_socket_send_buffer_size_force(&fd, bytes) {
        Err(Errno::PERM) => sockopt::set_socket_send_buffer_size(&fd, bytes)?,
        result => result?,
    }
    Ok(sockopt::socket_send_buffer_size(&fd)? / 2)
}
