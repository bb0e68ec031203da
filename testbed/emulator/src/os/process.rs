//! Parents, scheduling classes and time spent waiting for a CPU.

use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;

use backchannel_core::{Error, ResultExt};
use rustix::mm::{mlockall, MlockAllFlags};
use rustix::process::{getppid, set_parent_process_death_signal, Pid, Signal};
use rustix::thread::set_current_timer_slack;

/// Makes the kernel kill this process when its parent dies.
///
/// # Errors
/// The parent is not process `parent` any more: it has died already.
pub fn die_with(parent: Option<u32>) -> Result<(), Error> {
    set_parent_process_death_signal(Some(Signal::KILL)).or_system("no parent-death signal")?;
    match parent {
        Some(parent) if getppid().map(Pid::as_raw_nonzero).is_none_or(|pid| pid.get() as u32 != parent) => {
            Err("the process that started this one is gone".into())
        }
        _ => Ok(()),
    }
}

/// A priority in the real-time class: links run before the hosts that they join.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub enum Priority {
    /// A host's TCP outside the kernel, and other traffic.
    Host = 10,
    /// Emulated links.
    Link = 20,
}

/// A class of the scheduler.
#[derive(Clone, Copy, Debug)]
pub enum Class {
    /// Ordinary programs.
    Ordinary,
    /// Runs only when nothing else does.
    Idle,
    /// Runs before all ordinary programs. Children of the process start as ordinary ones.
    Realtime(Priority),
}

/// Moves this thread to a scheduling class. False if the kernel refuses.
pub fn set_class(class: Class) -> bool {
    let (policy, sched_priority) = match class {
        Class::Ordinary => (libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, 0),
        Class::Idle => (libc::SCHED_IDLE, 0),
        Class::Realtime(priority) => (libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority as i32),
    };
    let param = libc::sched_param { sched_priority };
    // SAFETY: `param` is valid for the call. rustix has no sched_setscheduler.
    unsafe { libc::sched_setscheduler(0, policy, &param) == 0 }
}

/// Asks for the real-time class, precise timers and memory that is never paged out. Returns whether the kernel granted
/// the class; without the others a program is only later.
pub fn become_realtime(priority: Priority) -> bool {
    let _ = mlockall(MlockAllFlags::CURRENT);
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    set_class(Class::Realtime(priority))
}

/// Returns to the ordinary class.
pub fn leave_realtime() {
    set_class(Class::Ordinary);
}

/// Time that a thread was ready to run while other programs had its CPU.
pub(crate) struct CpuWaits(Option<File>);

impl CpuWaits {
    /// Of the calling thread.
    pub(crate) fn of_this_thread() -> CpuWaits {
        CpuWaits(File::open("/proc/thread-self/schedstat").ok())
    }

    /// Total since the thread started, in nanoseconds. `None` where the kernel does not count.
    pub(crate) fn total_ns(&self) -> Option<u64> {
        let mut text = [0u8; 64];
        let length = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}
