//! `cell`: a command in new PID, mount, network, IPC and UTS namespaces, and in a new user namespace on request.
//!
//! Three processes: this one, which the runner's death kills; the first process of the PID namespace, which this one's
//! death kills; and the command. When the first process of a PID namespace dies, the kernel kills every process inside
//! and frees the namespaces with their interfaces and mounts. Nothing is cleaned up by name.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use backchannel_core::{Error, ResultExt};
use backchannel_emulator::die_with;
use backchannel_emulator::os::interface::set_up;
use backchannel_emulator::os::wait::{self, Readiness};
use rustix::io::Errno;
use rustix::mount::{mount, mount_change, MountFlags, MountPropagationFlags};
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::{getegid, geteuid, set_parent_process_death_signal, wait, Pid, Signal, WaitOptions};
use rustix::thread::{unshare_unsafe, UnshareFlags};

use crate::confined::skip_call;

/// Exit status if the cell could not be created.
const NO_CELL: u8 = 125;

/// Arguments of `cell`.
#[derive(clap::Args)]
pub struct Args {
    /// Die when process PID dies; it must be the parent of this one
    #[arg(long, value_name = "PID")]
    parent: Option<u32>,
    /// Make them inside a new user namespace, in which this user is root: for users without rights
    #[arg(long)]
    user_namespace: bool,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Runs the command. The result is its exit status, or 125 if the cell could not be created.
pub fn run(args: &Args) -> ExitCode {
    ExitCode::from(enter(args).unwrap_or_else(report))
}

fn report(why: Error) -> u8 {
    eprintln!("error: {why}");
    NO_CELL
}

fn enter(args: &Args) -> Result<u8, Error> {
    let mut flags =
        UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    let mut needs = "root, or the capability CAP_SYS_ADMIN,";
    if args.user_namespace {
        flags |= UnshareFlags::NEWUSER;
        needs = "a kernel that lets users make user namespaces";
    }
    // Numbers of the outer namespace, which this process cannot see from inside.
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: descriptor tables are not unshared.
    unsafe { unshare_unsafe(flags) }
        .map_err(|error| Error::System(format!("the kernel refused namespaces ({error}): {needs} is needed")))?;
    if args.user_namespace {
        become_root_inside(uid, gid)?;
    }
    // After the new rights, with which the kernel may forget a parent-death signal.
    die_with(args.parent)?;
    // The first process of the cell watches this pipe: the writing end closes when this process dies.
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).or_system("cannot create a pipe")?;
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(Error::System(format!("cannot fork: {}", io::Error::last_os_error()))),
        0 => {
            drop(writer);
            std::process::exit(i32::from(first_process(args, &reader).unwrap_or_else(report)))
        }
        child => {
            drop(reader);
            let status = wait_for(child);
            drop(writer);
            status
        }
    }
}

/// Maps a user and a group to root of this process's new user namespace (user_namespaces(7)).
fn become_root_inside(uid: u32, gid: u32) -> Result<(), Error> {
    // Without a right outside, a group may be mapped only if the process can never leave one.
    let maps = [("setgroups", "deny".into()), ("uid_map", format!("0 {uid} 1")), ("gid_map", format!("0 {gid} 1"))];
    for (name, text) in maps {
        std::fs::write(format!("/proc/self/{name}"), text)
            .or_system(format_args!("the kernel refused the user namespace's {name}"))?;
    }
    Ok(())
}

/// The first process of the cell: mounts, loopback, the command, and reaping orphans.
fn first_process(args: &Args, outer: &OwnedFd) -> Result<u8, Error> {
    die_with(None)?;
    // The outer process may have died before the line above. Its end of the pipe is closed then.
    if wait::wait_for([outer], Readiness::Readable, Some(0)) {
        return Err("the process that started this cell is gone".into());
    }
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .or_system("the cell cannot separate its mounts")?;
    mount("proc", "/proc", "proc", MountFlags::empty(), None).or_system("the cell cannot mount its /proc")?;
    mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None).or_system("the cell cannot mount its /sys")?;
    set_up("lo").or_system("the cell cannot set its loopback interface up")?;
    if std::fs::read_to_string("/proc/self/setgroups").is_ok_and(|may| may.trim() == "deny") {
        // In a user's namespace. Programs that become root once more, as tcpdump does, set their groups.
        skip_call(libc::SYS_setgroups)?;
    }

    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    // The command must not outlive the first process, not even while that is being reaped.
    let die_too = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: one system call, which is allowed between fork and exec.
    unsafe { command.pre_exec(die_too) };
    let child = command.spawn().or_system(format_args!("cannot run '{}'", args.command[0]))?;
    wait_for(child.id() as i32)
}

/// Waits for a child and reaps others that end before it. As in a shell, a signal counts as 128 and its number.
fn wait_for(child: i32) -> Result<u8, Error> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if Some(pid) == Pid::from_raw(child) => {
                let signal = || 128 + status.terminating_signal().unwrap_or(0);
                return Ok(status.exit_status().unwrap_or_else(signal) as u8);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::System(format!("cannot wait for the command: {error}"))),
        }
    }
}
