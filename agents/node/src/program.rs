//! `program`: runs a program of a flow. It starts at an instant, its output is kept up to a limit, and everything that
//! it started ends with it.
//!
//! This process adopts what the program leaves in the background (PR_SET_CHILD_SUBREAPER), so that it finds all of it
//! without rights of its own.

mod descendants;
mod output;
mod readiness;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use backchannel_core::command::Ready;
use backchannel_core::{Error, ResultExt};
use backchannel_emulator::monotonic_ns;
use backchannel_emulator::os::process::{leave_realtime, set_class, Class, Priority};
use backchannel_emulator::os::wait::{wait_for, Readiness};
use rustix::process::{
    getpid, getppid, pidfd_open, set_child_subreaper, set_parent_process_death_signal, setsid, Pid, PidfdFlags, Signal,
    WaitStatus,
};

use self::output::Output;
use self::readiness::Condition;
use crate::reports::{self, Ended, ProgramReport};
use crate::signals::{sleep_until, stop_on_signals, stopped, LONGEST_WAIT_NS};

/// Time between two looks for readiness, in nanoseconds.
const LOOK_NS: u64 = 5_000_000;
/// Time that a program has to end after SIGTERM, and that its children have to end after it, in nanoseconds.
const GRACE_NS: u64 = 1_500_000_000;

/// Arguments of `program`.
#[derive(clap::Args)]
pub struct Args {
    /// The program and its arguments, as a JSON list
    #[arg(long, value_name = "JSON")]
    words: String,
    /// Its environment, as a JSON object; it has no other variables
    #[arg(long, value_name = "JSON")]
    environment: String,
    /// Its working folder
    #[arg(long, value_name = "FOLDER")]
    cwd: PathBuf,
    /// File for its standard output
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// File for its standard error
    #[arg(long, value_name = "FILE")]
    errors: PathBuf,
    /// Most that it may write to either, in bytes; it is ended beyond that
    #[arg(long, value_name = "BYTES")]
    limit_bytes: u64,
    /// When to start it, in nanoseconds of CLOCK_MONOTONIC; without it, at once
    #[arg(long, value_name = "NS")]
    start_at_ns: Option<u64>,
    /// When to end it, in nanoseconds of CLOCK_MONOTONIC; without it, on SIGTERM
    #[arg(long, value_name = "NS")]
    stop_at_ns: Option<u64>,
    /// What shows that it serves: tcp, udp, line or started
    #[arg(long, default_value = "started", value_parser = readiness::parse)]
    ready: Ready,
    /// Port on which it serves
    #[arg(long)]
    port: Option<u16>,
    /// Text of the line that shows that it serves
    #[arg(long)]
    line: Option<String>,
    /// Longest time until it serves, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    within_s: f64,
}

/// Runs the program and prints the report.
///
/// # Errors
/// There is no such program, it cannot be started, or it does not serve in time.
pub fn run(args: &Args) -> Result<(), Error> {
    stop_on_signals();
    let parent = getppid();
    let words: Vec<String> = serde_json::from_str(&args.words).or_malformed("--words cannot be read")?;
    let environment: BTreeMap<String, String> =
        serde_json::from_str(&args.environment).or_malformed("--environment cannot be read")?;
    let [name, ..] = words.as_slice() else { return Err("--words needs a program".into()) };
    let path = find(name, environment.get("PATH").map_or("", String::as_str), &args.cwd)?;
    set_child_subreaper(Some(getpid())).or_system("cannot adopt processes")?;
    let mut supervisor = Supervisor {
        output: Output::create(&args.output, args.limit_bytes)?,
        errors: Output::create(&args.errors, args.limit_bytes)?,
        main: None,
        status: None,
        parent,
    };
    let mut started_late_s = 0.0;
    if let Some(at) = args.start_at_ns {
        eprintln!("ready on {}", path.display());
        set_class(Class::Realtime(Priority::Host));
        sleep_until(at);
        started_late_s = monotonic_ns().saturating_sub(at) as f64 / 1e9;
        leave_realtime();
    }
    let mut report = ProgramReport {
        ended: Ended::Stopped,
        exit_status: None,
        signal: None,
        started_late_s,
        started_monotonic_ns: None,
        ended_monotonic_ns: monotonic_ns(),
        output_bytes: 0,
        error_bytes: 0,
        left_behind: 0,
    };
    if !stopped() {
        report.started_monotonic_ns = Some(monotonic_ns());
        supervisor.start(&path, &words, &environment, &args.cwd)?;
        if args.start_at_ns.is_none() {
            if let Err(why) = supervisor.await_readiness(args) {
                supervisor.end();
                return Err(why);
            }
            eprintln!("ready on {}", path.display());
        }
        report.ended = supervisor.watch(args.stop_at_ns.unwrap_or(u64::MAX));
        report.ended_monotonic_ns = monotonic_ns();
        report.left_behind = supervisor.end();
    }
    report.output_bytes = supervisor.output.total;
    report.error_bytes = supervisor.errors.total;
    if let Some(status) = supervisor.status {
        report.exit_status = status.exit_status();
        report.signal = status.terminating_signal();
    }
    reports::print(&report)
}

/// The file of a program: a path, or a name that is looked up in PATH.
fn find(name: &str, path: &str, folder: &Path) -> Result<PathBuf, Error> {
    let candidates: Vec<PathBuf> = if name.contains('/') {
        vec![folder.join(name)]
    } else {
        path.split(':').filter(|folder| !folder.is_empty()).map(|folder| Path::new(folder).join(name)).collect()
    };
    let found = candidates.iter().find(|file| is_executable(file));
    found.cloned().ok_or_else(|| {
        Error::Unfit(match candidates.iter().find(|file| file.is_file()) {
            Some(file) => format!("'{}' is not executable", file.display()),
            None if name.contains('/') => format!("program '{name}' not found on this host: check its path"),
            None => format!("program '{name}' not found on this host: check its spelling, or install it"),
        })
    })
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

struct Supervisor {
    output: Output,
    errors: Output,
    main: Option<Pid>,
    /// Of the program, once it has ended.
    status: Option<WaitStatus>,
    parent: Option<Pid>,
}

impl Supervisor {
    fn start(
        &mut self,
        path: &Path,
        words: &[String],
        environment: &BTreeMap<String, String>,
        folder: &Path,
    ) -> Result<(), Error> {
        let mut command = Command::new(path);
        command.arg0(&words[0]).args(&words[1..]).env_clear().envs(environment).current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let alone = || {
            setsid()?;
            // Should this process be killed, the program does not stay.
            Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
        };
        // SAFETY: two system calls, which are allowed between fork and exec.
        unsafe { command.pre_exec(alone) };
        let mut child: Child = command.spawn().or_system(format_args!("cannot start '{}'", words[0]))?;
        self.output.read_from(child.stdout.take().map(OwnedFd::from))?;
        self.errors.read_from(child.stderr.take().map(OwnedFd::from))?;
        self.main = Pid::from_raw(child.id() as i32);
        Ok(())
    }

    /// Waits until the program serves.
    fn await_readiness(&mut self, args: &Args) -> Result<(), Error> {
        let condition = Condition::new(args.ready, args.port, args.line.as_deref())?;
        let deadline = monotonic_ns() + (args.within_s * 1e9) as u64;
        loop {
            let ended = self.look(LOOK_NS);
            if condition.holds(&self.output, &self.errors) {
                return Ok(());
            }
            let why = if ended {
                format!("the server ended {} before it served", self.how_it_ended())
            } else if self.is_flooded() {
                "the server wrote more output than is kept before it served".to_owned()
            } else if monotonic_ns() > deadline {
                format!("the server did not serve within {} s: {}", args.within_s, condition.lack())
            } else if self.is_over() {
                "the server was stopped before it served".to_owned()
            } else {
                continue;
            };
            let last = self.errors.last_line().or_else(|| self.output.last_line());
            return Err(Error::System(last.map_or(why.clone(), |line| format!("{why}; its last output: {line}"))));
        }
    }

    fn how_it_ended(&self) -> String {
        match self.status.map(|status| (status.exit_status(), status.terminating_signal())) {
            Some((Some(status), _)) => format!("with status {status}"),
            Some((_, Some(signal))) => format!("by signal {signal}"),
            _ => "unnoticed".to_owned(),
        }
    }

    /// Until the program ends, is to be stopped, or writes too much.
    fn watch(&mut self, stop_at_ns: u64) -> Ended {
        loop {
            let now = monotonic_ns();
            if self.is_over() || now >= stop_at_ns {
                return Ended::Stopped;
            }
            if self.look((stop_at_ns - now).min(LONGEST_WAIT_NS)) {
                return Ended::Itself;
            }
            if self.is_flooded() {
                return Ended::Flooded;
            }
        }
    }

    fn is_flooded(&self) -> bool {
        self.output.is_over() || self.errors.is_over()
    }

    /// Whether this process was asked to end, or has lost the one that started it.
    fn is_over(&self) -> bool {
        stopped() || getppid() != self.parent
    }

    /// Waits at most so many nanoseconds for output or the end of the program. True once the program has ended.
    fn look(&mut self, timeout_ns: u64) -> bool {
        let ending = self.main.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        if self.status.is_none() {
            let fds = [self.output.fd(), self.errors.fd(), ending.as_ref()];
            if !wait_for(fds.into_iter().flatten(), Readiness::Readable, Some(timeout_ns)) && stopped() {
                return self.reap();
            }
        }
        self.output.take();
        self.errors.take();
        self.reap()
    }

    /// Takes the status of every process that has ended. True once the program has.
    fn reap(&mut self) -> bool {
        for (pid, status) in descendants::reap() {
            if Some(pid) == self.main {
                self.status = Some(status);
            }
        }
        self.status.is_some()
    }

    /// Ends the program and everything that it started. The number of processes that it had left in the background.
    fn end(&mut self) -> u32 {
        let was_running = self.status.is_none() && self.main.is_some();
        if was_running {
            descendants::signal_all(Signal::TERM);
        }
        let deadline = monotonic_ns() + GRACE_NS;
        // A program's helpers may need a moment to notice its end.
        while monotonic_ns() < deadline && !descendants::all().is_empty() {
            self.drain();
        }
        let left = descendants::all().len() as u32;
        let deadline = monotonic_ns() + GRACE_NS;
        while monotonic_ns() < deadline && descendants::signal_all(Signal::KILL) > 0 {
            self.drain();
        }
        self.output.take();
        self.errors.take();
        self.reap();
        if was_running {
            0
        } else {
            left
        }
    }

    fn drain(&mut self) {
        sleep_briefly();
        self.output.take();
        self.errors.take();
        self.reap();
    }
}

fn sleep_briefly() {
    std::thread::sleep(std::time::Duration::from_nanos(LOOK_NS));
}
