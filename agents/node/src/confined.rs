//! Confines a process that reads foreign bytes, such as captures from anywhere: a reader that they take over can use
//! CPU time and write into its own folder, and nothing else.
//!
//! `trace` confines itself. `confined` does it to a program, such as tshark. Where a kernel lacks Landlock or seccomp,
//! the other measures hold.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use backchannel_core::{Error, ResultExt};
use landlock::{path_beneath_rules, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope, ABI};
use rustix::thread::{
    clear_ambient_capability_set, configure_capability_in_ambient_set, remove_capability_from_bounding_set,
    set_capabilities, set_capabilities_secure_bits, set_no_new_privs, CapabilitiesSecureBits, CapabilitySet,
    CapabilitySets,
};
use seccompiler::{
    apply_filter, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Landlock's newest rules that this file knows: files, devices, TCP, abstract sockets and signals.
const RULES: ABI = ABI::V6;
/// What a program needs of the system before its own files. `/etc` as a whole has secrets.
const SYSTEM: [&str; 8] =
    ["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/etc/wireshark", "/dev/urandom"];
/// Exit status if the program could not be confined or started.
const NOT_STARTED: u8 = 125;
/// Root's right to read and write other users' files. Without it a results folder in a user's home could not be used;
/// Landlock limits it to the declared files.
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE;

/// System calls with which a process acts on others. Landlock limits tracing and signals to processes that are confined with it.
const ON_PROCESSES: [libc::c_long; 9] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
];

/// System calls that no reader of files needs, and that attacks on kernels begin with.
const REFUSED: [libc::c_long; 36] = [
    // Networks. Descriptors may be inherited, so making sockets is not all.
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendmmsg,
    libc::SYS_sendto,
    // Descriptors of other processes.
    libc::SYS_pidfd_getfd,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    // The kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_clock_settime,
    libc::SYS_settimeofday,
];

/// Arguments of `confined`.
#[derive(clap::Args)]
pub struct Args {
    /// File or folder that the program may read, beside the system's programs and libraries; may be repeated
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// File or folder that the program may also write; may be repeated
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// The program may trace and signal the processes that it starts, as User-Mode Linux does
    #[arg(long)]
    traces: bool,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Confines this process and becomes the program. Returns only if that fails, with status 125.
pub fn run(args: &Args) -> ExitCode {
    let read: Vec<&Path> = SYSTEM.iter().map(Path::new).chain(args.read.iter().map(PathBuf::as_path)).collect();
    let write: Vec<&Path> = args.write.iter().map(PathBuf::as_path).chain([Path::new("/dev/null")]).collect();
    let programs = if args.traces { Programs::Traced } else { Programs::Started };
    let why = match confine(&read, &write, programs) {
        Err(why) => why,
        Ok(()) => {
            let error = Command::new(&args.command[0]).args(&args.command[1..]).exec();
            Error::System(format!("cannot run '{}': {error}", args.command[0]))
        }
    };
    eprintln!("error: {why}");
    ExitCode::from(NOT_STARTED)
}

/// Whether a confined process may start programs.
#[derive(Clone, Copy, PartialEq)]
pub enum Programs {
    /// From what it may read.
    Started,
    /// The same, and it may act on them.
    Traced,
    /// None.
    Refused,
}

/// Confines this process, which has one thread, for the rest of its life: no capability but [`KEPT`], no network, no
/// file but those below `read` and `write`, no system call of [`REFUSED`].
///
/// # Errors
/// A sentence, if a measure that this kernel offers fails. What the kernel lacks is left out, and so are paths that do
/// not exist.
pub fn confine(read: &[&Path], write: &[&Path], programs: Programs) -> Result<(), Error> {
    set_no_new_privs(true).or_system("cannot give up new privileges")?;
    drop_capabilities().or_system("cannot drop capabilities")?;
    limit_files(read, write, programs).or_system("cannot limit access to files")?;
    limit_calls(programs).or_system("cannot limit system calls")
}

fn drop_capabilities() -> rustix::io::Result<()> {
    let held = rustix::thread::capabilities(None)?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        // Otherwise root's programs start with all capabilities again.
        set_capabilities_secure_bits(CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_ROOT_LOCKED)?;
        for capability in CapabilitySet::all().difference(KEPT).iter() {
            // This kernel may not have the newest.
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
    clear_ambient_capability_set()?;
    let kept = held.permitted & KEPT;
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: kept })?;
    kept.iter().try_for_each(|capability| configure_capability_in_ambient_set(capability, true))
}

fn limit_files(read: &[&Path], write: &[&Path], programs: Programs) -> Result<(), landlock::RulesetError> {
    let mut reading = AccessFs::from_read(RULES);
    if programs == Programs::Refused {
        reading.remove(AccessFs::Execute);
    }
    let mut writing = AccessFs::from_all(RULES);
    writing.remove(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock);
    Ruleset::default()
        .handle_access(AccessFs::from_all(RULES))?
        .handle_access(AccessNet::from_all(RULES))?
        .scope(Scope::from_all(RULES))?
        .create()?
        .add_rules(path_beneath_rules(read, reading))?
        .add_rules(path_beneath_rules(write, writing))?
        .restrict_self()?;
    Ok(())
}

fn limit_calls(programs: Programs) -> Result<(), seccompiler::Error> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else { return Ok(()) };
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|&call| (call, vec![])).collect();
    if programs == Programs::Traced {
        // User-Mode Linux passes descriptors to its processes over pairs of stream sockets. Those cannot send to an
        // address, so a message reaches nothing but the other end.
        refused.insert(libc::SYS_socketpair, not_of_type(libc::SOCK_STREAM)?);
    } else {
        refused.extend(ON_PROCESSES.iter().chain(&[libc::SYS_sendmsg]).map(|&call| (call, vec![])));
    }
    if programs == Programs::Refused {
        refused.extend([(libc::SYS_execve, vec![]), (libc::SYS_execveat, vec![])]);
    }
    // A clone with any flag of a new namespace.
    let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNET | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC;
    for flag in (0..32).map(|bit| 1 << bit).filter(|flag| flags & flag != 0) {
        let condition =
            SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag as u64), flag as u64)?;
        refused.entry(libc::SYS_clone).or_default().push(SeccompRule::new(vec![condition])?);
    }
    install(refused, libc::EPERM, arch)?;
    // Its flags lie in memory, where a filter cannot see them. Without it libraries use clone.
    install(BTreeMap::from([(libc::SYS_clone3, vec![])]), libc::ENOSYS, arch)
}

/// Matches a `socketpair` of another type. The bits above the type are flags of the descriptors.
fn not_of_type(socket: libc::c_int) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    const TYPE_BITS: u64 = 0xf;
    (0..=TYPE_BITS)
        .filter(|&kind| kind != socket as u64)
        .map(|kind| {
            let condition = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(TYPE_BITS), kind)?;
            SeccompRule::new(vec![condition])
        })
        .collect::<Result<_, _>>()
        .map_err(Into::into)
}

/// Lets a system call of this thread and of what it starts succeed without an effect.
///
/// # Errors
/// The kernel refuses the filter.
pub(crate) fn skip_call(call: libc::c_long) -> Result<(), Error> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else { return Ok(()) };
    install(BTreeMap::from([(call, vec![])]), 0, arch).or_system("cannot set a filter of system calls")
}

fn install(refused: BTreeMap<i64, Vec<SeccompRule>>, errno: i32, arch: TargetArch) -> Result<(), seccompiler::Error> {
    let filter = SeccompFilter::new(refused, SeccompAction::Allow, SeccompAction::Errno(errno as u32), arch)?;
    match apply_filter(&BpfProgram::try_from(filter)?) {
        // A kernel without seccomp.
        Err(seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error))
            if error.raw_os_error() == Some(libc::EINVAL) || error.raw_os_error() == Some(libc::ENOSYS) =>
        {
            Ok(())
        }
        result => result,
    }
}
