//! `cell`: a command in new PID, mount, network, IPC and UTS namespaces.
//!
//! Three processes: this one, which the parent-death signal of the runner reaches; the first process of the PID
//! namespace, which this one's death kills; and the command. When the first process of a PID namespace dies, the kernel
//! kills every process inside, and with them go the namespaces, their interfaces and their mounts. Nothing is ever cleaned
//! up by name.

use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::socket::check;

/// Arguments of `cell`.
#[derive(clap::Args)]
pub struct Args {
    /// Die when this process is gone (it must be the one that starts this one)
    #[arg(long, value_name = "PID")]
    parent: Option<u32>,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Runs the command; its exit status is the result, 125 stands for "the cell could not be made".
pub fn run(args: &Args) -> ExitCode {
    match enter(args) {
        Ok(status) => ExitCode::from(status),
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(125)
        }
    }
}

fn enter(args: &Args) -> Result<u8, String> {
    backchannel_emulator::die_with(args.parent)?;
    let flags = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    // SAFETY: plain call.
    check(unsafe { libc::unshare(flags) }).map_err(|error| {
        format!("the kernel refused namespaces of our own ({error}): root, or CAP_SYS_ADMIN, is needed")
    })?;
    // The first process of the cell watches this pipe: its other end closes when this process dies.
    let mut pipe = [0; 2];
    // SAFETY: room for two descriptors.
    check(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) }).map_err(|error| format!("no pipe: {error}"))?;
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(format!("cannot fork: {}", io::Error::last_os_error())),
        0 => {
            // SAFETY: the end that the outer process keeps.
            unsafe { libc::close(pipe[1]) };
            let status = first_process(args, pipe[0]).unwrap_or_else(|why| {
                eprintln!("error: {why}");
                125
            });
            std::process::exit(i32::from(status))
        }
        child => {
            // SAFETY: the end that the inner process keeps.
            unsafe { libc::close(pipe[0]) };
            wait_for(child)
        }
    }
}

/// Process 1 of the cell: mounts, loopback, the command, and orphans to bury.
fn first_process(args: &Args, outer: i32) -> Result<u8, String> {
    backchannel_emulator::die_with(None)?;
    // The outer process may have died before the line above; then its end of the pipe is closed.
    let mut watch = libc::pollfd { fd: outer, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd.
    if unsafe { libc::poll(&mut watch, 1, 0) } > 0 {
        return Err("the process that started this cell is gone".into());
    }
    mount(None, "/", None, libc::MS_REC | libc::MS_PRIVATE, "make its mounts its own")?;
    mount(Some("proc"), "/proc", Some("proc"), 0, "mount its /proc")?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), 0, "mount its /sys")?;
    raise_loopback().map_err(|error| format!("the cell cannot raise its loopback interface: {error}"))?;

    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    // SAFETY: only calls that are allowed between fork and exec. The command must not outlive process 1 even while
    // that is still burying it.
    unsafe { command.pre_exec(|| check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))) };
    let child = command.spawn().map_err(|error| format!("cannot run '{}': {error}", args.command[0]))?;
    wait_for(child.id() as libc::pid_t)
}

/// Waits for a child, burying others that end before it. A signal's number counts from 128 on, as in a shell.
fn wait_for(child: libc::pid_t) -> Result<u8, String> {
    loop {
        let mut status = 0;
        // SAFETY: room for a status.
        let ended = unsafe { libc::waitpid(-1, &mut status, 0) };
        if ended == child {
            return Ok(if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status) as u8
            } else {
                128 + libc::WTERMSIG(status) as u8
            });
        }
        if ended < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return Err(format!("cannot wait for the command: {}", io::Error::last_os_error()));
        }
    }
}

fn mount(
    source: Option<&str>,
    target: &str,
    kind: Option<&str>,
    flags: libc::c_ulong,
    what: &str,
) -> Result<(), String> {
    let words = |text: Option<&str>| CString::new(text.unwrap_or("none")).expect("no NUL in our own words");
    let (source, target, kind) = (words(source), words(Some(target)), words(kind));
    // SAFETY: three strings that end in NUL.
    check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) })
        .map_err(|error| format!("the cell cannot {what}: {error}"))
}

fn raise_loopback() -> io::Result<()> {
    // SAFETY: a socket of ours, a zeroed ifreq with the name and flags filled in.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        check(socket)?;
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
        let result = check(libc::ioctl(socket, libc::SIOCSIFFLAGS as libc::Ioctl, &mut request));
        libc::close(socket);
        result
    }
}
