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
