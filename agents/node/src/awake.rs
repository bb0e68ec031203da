//! `awake`: keeps a virtual machine's CPUs from halting, so that a timer or a packet finds them there.
//!
//! A CPU of a virtual machine that has nothing to do is given back to the host, and comes back when the host finds time
//! for it: milliseconds later, once in a hundred times, on a host with other guests. A thread for each CPU, in the class
//! that runs only when nothing else does, keeps it. What it takes is niced time, which is counted as free.

use std::io;
use std::thread;

use crate::socket::check;

/// Runs until standard input ends.
///
/// # Errors
/// The kernel refuses the CPUs, or the class; nothing is spun then.
pub fn run(parent: Option<u32>) -> Result<(), String> {
    backchannel_emulator::die_with(parent)?;
    let cpus = cpus().map_err(|error| format!("the kernel does not tell its CPUs: {error}"))?;
    // The whole process is put behind everything else before its threads are made; they inherit it.
    give_way().map_err(|error| format!("the kernel refused the idle class: {error}"))?;
    for cpu in cpus {
        thread::Builder::new()
            .name(format!("awake {cpu}"))
            .spawn(move || spin(cpu))
            .map_err(|error| format!("no thread for CPU {cpu}: {error}"))?;
    }
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map_err(|error| format!("standard input: {error}"))?;
    Ok(())
}

/// The CPUs that this process may use.
fn cpus() -> io::Result<Vec<usize>> {
    // SAFETY: all zeros is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a set to write to, with its size.
    check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) })?;
    // SAFETY: every index lies in the set.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

fn give_way() -> io::Result<()> {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: plain calls on this thread.
    unsafe {
        // Nice as well: by that the kernel tells its time from other programs'.
        check(libc::setpriority(libc::PRIO_PROCESS, 0, 19))?;
        check(libc::sched_setscheduler(0, libc::SCHED_IDLE, &none))
    }
}

fn spin(cpu: usize) {
    // SAFETY: all zeros is an empty set; the index came from such a set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        // A CPU that went away leaves the thread where the kernel puts it.
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
    // Not `spin_loop`: the pause instruction asks the host to run somebody else.
    loop {
        std::hint::black_box(());
    }
}
