//! `load`: the workloads of a scenario on real packets. What is sent and when is [`Application`]'s, as in simulation.

mod datagrams;
mod receiver;
mod sender;
mod streams;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use backchannel_core::exchange::{write_lines, ArrivalLine};
use backchannel_core::scenario::Flow;
use backchannel_core::time::Time;
use backchannel_emulator::monotonic_ns;
use backchannel_links::Registry;
use backchannel_workloads::Application;

use crate::endpoint::read_run_start;
use crate::signals::{sleep_until, stop_on_signals, stopped};
use crate::socket;

/// Time between two looks for the file with the start of the run, in nanoseconds.
const LOOK_NS: u64 = 5_000_000;

/// Subcommands of `load`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Run the sending end of a flow
    Send(SendArgs),
    /// Run the receiving end of a flow
    Receive(ReceiveArgs),
}

/// The flow at either end.
#[derive(clap::Args)]
pub struct Workload {
    /// The flow, as the scenario's JSON
    #[arg(long, value_name = "JSON")]
    flow: String,
    /// Seed of the run, from which the flow's random numbers derive
    #[arg(long)]
    seed: u64,
    /// File for what the application experienced, as JSON lines
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,
    #[command(flatten)]
    socket: socket::Options,
}

/// Arguments of `load send`.
#[derive(clap::Args)]
pub struct SendArgs {
    #[command(flatten)]
    workload: Workload,
    /// Receiver, as ADDRESS:PORT
    #[arg(long)]
    to: SocketAddr,
    /// Where a workload that is requested accepts the request, as ADDRESS:PORT
    #[arg(long)]
    listen: SocketAddr,
    /// Start of the run, in nanoseconds of CLOCK_MONOTONIC
    #[arg(long, value_name = "NS")]
    run_begins_ns: u64,
    /// When to stop, in nanoseconds of CLOCK_MONOTONIC
    #[arg(long, value_name = "NS")]
    stop_at_ns: u64,
    /// File for the kernel's tcp_info of the latest connection every 50 ms, as JSON lines
    #[arg(long, value_name = "FILE")]
    telemetry: PathBuf,
}

/// Arguments of `load receive`.
#[derive(clap::Args)]
pub struct ReceiveArgs {
    #[command(flatten)]
    workload: Workload,
    /// Where to listen, as ADDRESS:PORT
    #[arg(long)]
    listen: SocketAddr,
    /// Where a workload that is requested sends the request, as ADDRESS:PORT
    #[arg(long)]
    sender: SocketAddr,
    /// File that has the start of the run once it is settled, in nanoseconds of CLOCK_MONOTONIC
    #[arg(long, value_name = "FILE")]
    run_begins_file: PathBuf,
}

/// Runs either end.
pub fn run(registry: &Registry, command: &Command) -> Result<(), String> {
    stop_on_signals();
    match command {
        Command::Send(args) => {
            let (flow, application) = args.workload.read(registry)?;
            if application.is_datagrams() {
                datagrams::send(args, &flow, application)
            } else {
                sender::send(args, &flow, application)
            }
        }
        Command::Receive(args) => {
            let (flow, application) = args.workload.read(registry)?;
            if application.is_datagrams() {
                datagrams::receive(args, &application)
            } else {
                receiver::receive(args, &flow, &application)
            }
        }
    }
}

impl Workload {
    fn read(&self, registry: &Registry) -> Result<(Flow, Application), String> {
        let flow: Flow = serde_json::from_str(&self.flow).map_err(|error| format!("--flow is no flow: {error}"))?;
        let application = Application::new(&registry.workloads, &flow, self.seed)?;
        Ok((flow, application))
    }

    fn record<T: serde::Serialize>(&self, lines: impl IntoIterator<Item = T>) -> Result<(), String> {
        self.records.as_deref().map_or(Ok(()), |path| write_lines(path, lines))
    }
}

/// Since the start of the run.
fn run_time(zero_ns: u64) -> Time {
    Time(monotonic_ns().saturating_sub(zero_ns))
}

/// Waits for the start of the run; `None` after a signal.
fn wait_for_run_start(file: &Path) -> Result<Option<u64>, String> {
    while !file.exists() {
        if stopped() {
            return Ok(None);
        }
        sleep_until(monotonic_ns() + LOOK_NS);
    }
    read_run_start(file).map(Some)
}

/// Arrivals, by CLOCK_MONOTONIC until the start of the run is known.
#[derive(Default)]
struct Arrivals(Vec<(u64, u64)>);

impl Arrivals {
    fn add(&mut self, key: u64, at_ns: u64) {
        self.0.push((key, at_ns));
    }

    fn write(&self, args: &ReceiveArgs) -> Result<(), String> {
        if self.0.is_empty() {
            return args.workload.record::<ArrivalLine>([]);
        }
        let zero_ns = read_run_start(&args.run_begins_file)?;
        args.workload
            .record(self.0.iter().map(|&(key, at_ns)| ArrivalLine { key, arrived_ns: at_ns.saturating_sub(zero_ns) }))
    }
}
