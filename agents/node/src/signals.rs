//! SIGTERM and SIGINT end a program with its report.

use std::sync::atomic::{AtomicBool, Ordering};

use backchannel_emulator::monotonic_ns;
use backchannel_emulator::os::clock::sleep_until_or_signal;

/// Longest wait in nanoseconds between two looks at [`stopped`], for a signal that arrives just before a wait.
pub const LONGEST_WAIT_NS: u64 = 200_000_000;

static STOPPED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    STOPPED.store(true, Ordering::Relaxed);
}

/// Installs the handlers.
pub fn stop_on_signals() {
    // SAFETY: the handler only stores to an atomic. Without SA_RESTART, waits return.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        libc::sigaction(libc::SIGTERM, &action, std::ptr::null_mut());
        libc::sigaction(libc::SIGINT, &action, std::ptr::null_mut());
    }
}

/// Whether a signal has arrived.
pub fn stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}

/// Sleeps until this instant of CLOCK_MONOTONIC, or until [`stopped`].
pub fn sleep_until(at_ns: u64) {
    while !stopped() && monotonic_ns() < at_ns {
        sleep_until_or_signal(at_ns);
    }
}
