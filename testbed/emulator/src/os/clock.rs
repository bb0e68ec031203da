//! Clocks and timers.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{
    clock_gettime, timerfd_create, timerfd_settime, ClockId, Itimerspec, TimerfdClockId, TimerfdFlags,
    TimerfdTimerFlags,
};

use super::timespec;

fn now_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> u64 {
    now_ns(ClockId::Monotonic)
}

/// CLOCK_REALTIME in nanoseconds since the epoch.
pub fn realtime_ns() -> u64 {
    now_ns(ClockId::Realtime)
}

/// Processor time of this process so far, in seconds.
pub fn cpu_s() -> f64 {
    now_ns(ClockId::ProcessCPUTime) as f64 * 1e-9
}

/// Sleeps until this instant of CLOCK_MONOTONIC, or until a signal arrives.
pub fn sleep_until_or_signal(at_ns: u64) {
    match clock_nanosleep_absolute(ClockId::Monotonic, &timespec(at_ns)) {
        Ok(()) | Err(Errno::INTR) => {}
        Err(error) => unreachable!("CLOCK_MONOTONIC and a valid time: {error}"),
    }
}

/// A timer on CLOCK_MONOTONIC whose descriptor becomes readable when it fires. It is watched for changes, so that it need
/// not be read.
pub(crate) struct Timer {
    fd: OwnedFd,
    /// What it is set to; `None`: it has fired or is disarmed.
    set_to_ns: Option<u64>,
}

impl Timer {
    pub(crate) fn new() -> io::Result<Timer> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Timer { fd, set_to_ns: None })
    }

    /// Fires at this instant, or at once if it has passed. `None` disarms the timer.
    pub(crate) fn set(&mut self, at_ns: Option<u64>) {
        if at_ns == self.set_to_ns {
            return;
        }
        self.set_to_ns = at_ns;
        // Zero would disarm it.
        let it_value = timespec(at_ns.map_or(0, |at| at.max(1)));
        let value = Itimerspec { it_interval: timespec(0), it_value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &value).expect("an armed timer of ours and a valid time");
    }

    /// Call when it has fired: the same instant may be set again.
    pub(crate) fn on_fired(&mut self) {
        self.set_to_ns = None;
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
