//! `awake`: keeps a virtual machine's CPUs from halting, so that timers and packets are handled at once.
//!
//! An idle CPU of a virtual machine is returned to the host. On a host with other guests it may come back milliseconds
//! late, once in a hundred times. A thread per CPU in the idle scheduling class, which runs only when nothing else
//! does, keeps it. Its time counts as niced, that is, as free.

use std::{io, thread};

use backchannel_core::{Error, ResultExt};
use backchannel_emulator::die_with;
use backchannel_emulator::os::process::{set_class, Class};
use rustix::process::setpriority_process;
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};

/// Runs until standard input ends.
///
/// # Errors
/// The kernel refuses the idle class or a thread. Nothing spins then.
pub fn run(parent: Option<u32>) -> Result<(), Error> {
    die_with(parent)?;
    let usable = sched_getaffinity(None).or_system("cannot list the CPUs")?;
    // Before the threads are created, which inherit it. By the nice value the kernel separates its time from others'.
    setpriority_process(None, 19).or_system("cannot set the nice value")?;
    if !set_class(Class::Idle) {
        return Err(Error::System(format!("the kernel refused the idle class: {}", io::Error::last_os_error())));
    }
    for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| usable.is_set(cpu)) {
        thread::Builder::new()
            .name(format!("awake {cpu}"))
            .spawn(move || spin(cpu))
            .or_system(format_args!("cannot create a thread for CPU {cpu}"))?;
    }
    io::copy(&mut io::stdin().lock(), &mut io::sink()).or_system("standard input")?;
    Ok(())
}

fn spin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // If the CPU is gone, the thread runs where the kernel puts it.
    let _ = sched_setaffinity(None, &set);
    // Not `spin_loop`: its pause instruction lets the host run another guest.
    loop {
        std::hint::black_box(());
    }
}
