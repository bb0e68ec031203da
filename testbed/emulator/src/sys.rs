//! The system calls that the driver needs, with errors as sentences.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

/// CLOCK_MONOTONIC, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec to write to; these clocks always exist.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Has the kernel kill this process when its parent dies.
///
/// # Errors
/// The parent is not `parent` any more: it has died already.
pub fn die_with(parent: Option<u32>) -> Result<(), String> {
    // SAFETY: plain prctl and getppid.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        match parent {
            Some(parent) if libc::getppid() != parent as libc::pid_t => {
                Err("the process that started this one is gone".into())
            }
            _ => Ok(()),
        }
    }
}

/// Real-time priorities: links go before the hosts that they join.
pub(crate) const LINKS: i32 = 20;
/// Of a host's TCP outside the kernel.
pub const HOSTS: i32 = 10;

/// Asks for the real-time scheduling class and for memory that stays; whether the kernel agreed to the former.
pub fn become_realtime(priority: i32) -> bool {
    let priority = libc::sched_param { sched_priority: priority };
    // SAFETY: plain calls on this process.
    unsafe {
        libc::mlockall(libc::MCL_CURRENT);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &priority) == 0
    }
}

/// Goes back among ordinary programs.
pub fn leave_realtime() {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: a plain call on this process.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, &priority) };
}

/// How long a thread was ready to run while other programs had its CPU.
pub(crate) struct Waits(Option<File>);

impl Waits {
    /// Of the thread that calls.
    pub(crate) fn of_this_thread() -> Waits {
        Waits(File::open("/proc/thread-self/schedstat").ok())
    }

    /// In all, since the thread began; `None` where the kernel does not count.
    pub(crate) fn read_ns(&self) -> Option<u64> {
        let mut text = [0u8; 64];
        let length = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A timer on CLOCK_MONOTONIC that makes its descriptor readable.
pub(crate) struct Timer(OwnedFd);

impl Timer {
    pub(crate) fn new() -> io::Result<Timer> {
        // SAFETY: plain call.
        owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) }).map(Timer)
    }

    /// Fires at this instant (at once when it lies in the past); `None` disarms it.
    pub(crate) fn set(&self, at_ns: Option<u64>) {
        // Zero would disarm.
        let at = at_ns.map_or(0, |at| at.max(1));
        let value = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as i64 },
        };
        // SAFETY: a timer of ours and a valid value.
        unsafe { libc::timerfd_settime(self.0.as_raw_fd(), libc::TFD_TIMER_ABSTIME, &value, std::ptr::null_mut()) };
    }

    /// Makes it unreadable until it fires again.
    pub(crate) fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight bytes to write to.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// What waits for descriptors to become readable.
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        // SAFETY: plain call.
        owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Epoll)
    }

    pub(crate) fn add(&self, fd: RawFd, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        // SAFETY: a valid event; the kernel checks the descriptor.
        match unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn remove(&self, fd: RawFd) {
        // SAFETY: plain call; a descriptor that is not there is no harm.
        unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }

    /// Tokens of what is readable; waits until something is.
    pub(crate) fn wait(&self, tokens: &mut Vec<u64>) -> io::Result<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: room for 64 events.
        let n = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), 64, -1) };
        tokens.clear();
        if n < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        }
        tokens.extend(events[..n as usize].iter().map(|event| event.u64));
        Ok(())
    }
}

/// Makes a descriptor's reads and writes return instead of waiting.
pub(crate) fn set_nonblocking(fd: RawFd) {
    // SAFETY: plain calls.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
    }
}

/// The network namespace of a node; `None` is this process's own, which needs no privilege to work in.
pub(crate) struct Network(Option<File>);

impl Network {
    /// That of process `pid`.
    pub(crate) fn of(pid: u32) -> Result<Network, String> {
        File::open(format!("/proc/{pid}/ns/net"))
            .map(|file| Network(Some(file)))
            .map_err(|error| format!("cannot open the network namespace of process {pid}: {error}"))
    }

    /// That of this process.
    #[expect(clippy::unnecessary_wraps, reason = "stands beside `of`, which can fail")]
    pub(crate) fn own() -> Result<Network, String> {
        Ok(Network(None))
    }

    /// Runs `work` with this thread inside.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let Some(there) = &self.0 else { return work() };
        let home = File::open("/proc/thread-self/ns/net")
            .map_err(|error| format!("cannot open the own network namespace: {error}"))?;
        enter(there).map_err(|error| format!("cannot enter a node's network namespace: {error}"))?;
        let result = work();
        enter(&home).map_err(|error| format!("cannot return to the own network namespace: {error}"))?;
        result
    }
}

fn enter(namespace: &File) -> io::Result<()> {
    // SAFETY: plain call with an open namespace descriptor.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
