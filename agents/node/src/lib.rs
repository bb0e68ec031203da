//! The program that runs on a node, as a library. The binary `backchannel-node` has the mechanisms of Backchannel.
//! Another crate builds a node with its own mechanisms in a `main` like this:
//!
//! ```no_run
//! use backchannel_node::Registry;
//!
//! fn main() -> std::process::ExitCode {
//!     // Add mechanisms here: Registry::builtin().policy(&ENTRY, build).
//!     backchannel_node::main(Registry::builtin())
//! }
//! ```
//!
//! Such a crate depends on this one alone. The crates whose traits it implements are re-exported under short names:
//! [`core`], [`links`], [`middleboxes`], [`policies`], [`stacks`] and [`workloads`]. `tests/outside` is an example with
//! a mechanism of each kind. Set `BACKCHANNEL_NODE` to the path of the program, and `./backchannel` uses it.
//!
//! [`main()`] runs the subcommand that the arguments name:
//!
//! - `simulate` and `emulate` run the two drivers.
//! - `load`, `send`, `receive`, `endpoint` and `program` generate the traffic of a flow on real packets.
//! - `probe` measures a path before a run. `audit` and `trace` evaluate the captures after it.
//! - `laws` holds a mechanism to what all of its kind keep, and shows what it does to a standard set of arrivals.
//! - `registry` exports what Rust declares and Python reads. `check` validates stacks and links.
//! - `cell`, `confined` and `awake` prepare processes and the machine. `serial-line` compresses a capture.

mod audit;
mod awake;
mod cell;
mod check;
mod confined;
mod crates;
mod host_interface;
mod laws;
mod load;
mod payload;
mod probe;
mod program;
mod promptness;
mod registry;
mod replay;
mod reports;
mod serial_line;
mod signals;
mod simulate;
mod socket;
mod trace;

pub use backchannel_core as core;
pub use backchannel_laws as law;
pub use backchannel_links as links;
pub use backchannel_middleboxes as middleboxes;
pub use backchannel_policies as policies;
pub use backchannel_quic as quic;
pub use backchannel_simulator as simulator;
pub use backchannel_stacks as stacks;
pub use backchannel_workloads as workloads;

use std::process::ExitCode;

use backchannel_emulator::RunTime;
pub use backchannel_links::Registry;
use clap::{Parser, Subcommand};
pub use crates::Crate;

#[derive(Parser)]
#[command(name = "backchannel-node", version, about = "What Backchannel runs on a node: links, traffic, traces.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print everything that other programs must agree on as JSON: mechanisms with parameters, scenario schema, tables
    Registry,
    /// Validate stacks and links, given as JSON on standard input
    Check,
    /// Hold a mechanism to the laws of its kind, and show what it does to a standard set of arrivals
    Laws(laws::Args),
    /// Run a command in new PID, mount and network namespaces that vanish with it
    Cell(cell::Args),
    /// Run a program that reads foreign bytes without privileges, network or other files
    Confined(confined::Args),
    /// Serve emulated links between interfaces; requests are JSON lines on standard input
    Emulate {
        /// Die when process PID dies; it must be the parent of this one
        #[arg(long, value_name = "PID")]
        parent: Option<u32>,
        /// The machine's clock is virtual: wake exactly when something is due, and expect no stalls
        #[arg(long)]
        virtual_time: bool,
    },
    /// Keep this machine's CPUs from halting until standard input ends
    Awake {
        /// Die when process PID dies; it must be the parent of this one
        #[arg(long, value_name = "PID")]
        parent: Option<u32>,
    },
    /// Send or receive what a workload of a scenario sends, through the kernel or with the research stack
    #[command(subcommand)]
    Load(load::Command),
    /// Run a program of a flow, with bounds on its time and output, and end all that it started
    Program(program::Args),
    /// Measure a path with UDP packets
    #[command(subcommand)]
    Probe(probe::Command),
    /// Run a scenario, given as JSON on standard input, in virtual time
    Simulate(simulate::Args),
    /// Compare a run's captures with the links that its scenario declares; the run is JSON on standard input
    Audit(audit::Args),
    /// Count what a capture has in each direction, and let a queue policy treat one of them
    Replay(replay::Args),
    /// Compress a capture's packets by RFC 1144 and write a capture of PPP
    SerialLine(serial_line::Args),
    /// Classify every TCP segment of captures and write them as Parquet
    Trace(trace::Args),
}

/// Runs the command that the program's arguments name, with these mechanisms.
pub fn main(registry: Registry) -> ExitCode {
    main_with(registry, &[])
}

/// Runs the command that the program's arguments name, with these mechanisms and those of crates.
///
/// # Panics
/// Two mechanisms of a kind have one name.
pub fn main_with(registry: Registry, crates: &[Crate]) -> ExitCode {
    let (registry, crates) = crates::add(registry, crates);
    let result = match Cli::parse().command {
        Command::Registry => registry::print(&registry, &crates),
        Command::Check => check::run(&registry),
        Command::Laws(args) => laws::run(&registry, &args),
        Command::Cell(args) => return cell::run(&args),
        Command::Confined(args) => return confined::run(&args),
        Command::Emulate { parent, virtual_time } => {
            let time = if virtual_time { RunTime::Virtual } else { RunTime::Real };
            backchannel_emulator::die_with(parent).and_then(|()| backchannel_emulator::serve(&registry, time))
        }
        Command::Awake { parent } => awake::run(parent),
        Command::Load(command) => load::run(&registry, &command),
        Command::Program(args) => program::run(&args),
        Command::Probe(command) => probe::run(&command),
        Command::Simulate(args) => simulate::run(&registry, &args),
        Command::Audit(args) => audit::run(&registry, &args),
        Command::Replay(args) => replay::run(&registry, &args),
        Command::SerialLine(args) => serial_line::run(&args),
        Command::Trace(args) => trace::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}
