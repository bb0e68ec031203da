//! Waiting for descriptors.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{epoll, poll, PollFd, PollFlags};
use rustix::io::Errno;

use super::timespec;

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// There is something to read, or an error.
    Readable,
    /// There is room to write, or an error.
    Writable,
}

/// Waits until one of the descriptors is ready, at most for a time in nanoseconds. False after that time, or when a
/// signal arrives.
pub fn wait_for<'a>(
    fds: impl IntoIterator<Item = &'a (impl AsFd + 'a)>,
    readiness: Readiness,
    timeout_ns: Option<u64>,
) -> bool {
    let flags = match readiness {
        Readiness::Readable => PollFlags::IN,
        Readiness::Writable => PollFlags::OUT,
    };
    let mut fds: Vec<PollFd<'_>> = fds.into_iter().map(|fd| PollFd::new(fd, flags)).collect();
    let timeout = timeout_ns.map(timespec);
    poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Waits until one of the descriptors can be read, or another one can be written, at most for a time in nanoseconds.
pub fn wait_for_input_or_room<'a>(
    readable: impl IntoIterator<Item = &'a (impl AsFd + 'a)>,
    writable: &'a impl AsFd,
    timeout_ns: u64,
) {
    let mut fds: Vec<PollFd<'_>> = readable.into_iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    fds.push(PollFd::new(writable, PollFlags::OUT));
    // A signal ends the wait too.
    let _ = poll(&mut fds, Some(&timespec(timeout_ns)));
}

/// Waits for many descriptors at once, each known by a token.
pub(crate) struct Epoll {
    fd: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        Ok(Epoll { fd: epoll::create(epoll::CreateFlags::CLOEXEC)?, events: Vec::with_capacity(64) })
    }

    /// Starts to watch a descriptor for reading. It is reported as long as there is something to read.
    pub(crate) fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.fd, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
    }

    /// Stops watching a descriptor, if it is watched.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.fd, fd);
    }

    /// Waits until something is readable and puts its tokens into `tokens`, at most for a time in nanoseconds. True if
    /// that time has passed; there are no tokens then, nor after a signal.
    pub(crate) fn wait(&mut self, tokens: &mut Vec<u64>, timeout_ns: Option<u64>) -> io::Result<bool> {
        tokens.clear();
        self.events.clear();
        let timeout = timeout_ns.map(timespec);
        match epoll::wait(&self.fd, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(ready) => {
                tokens.extend(self.events.iter().map(|event| event.data.u64()));
                Ok(ready == 0)
            }
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
