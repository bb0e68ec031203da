//! `load`: the workloads of a scenario on real packets, over the kernel's TCP, or the research stack's or QUIC. What is sent and
//! when is [`Application`]'s, as in simulation.

mod datagrams;
mod receiver;
mod research;
mod sender;
mod sockets;
mod streams;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use backchannel_core::exchange::{write_lines, ArrivalLine};
use backchannel_core::rng;
use backchannel_core::scenario::{Flow, Options};
use backchannel_core::time::Time;
use backchannel_core::{Error, ResultExt};
use backchannel_emulator::monotonic_ns;
use backchannel_links::Registry;
use backchannel_quic::AnyConfig;
use backchannel_workloads::Application;

use self::research::Research;
use self::sockets::Sockets;
use crate::host_interface::Attachment;
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
    /// Use this research stack on an interface, as `backchannel-node registry` lists it, instead of the kernel's TCP
    #[arg(long, value_name = "NAME", requires_all = ["interface", "mac", "next_hop_mac"])]
    stack: Option<String>,
    /// Options of the stack, as a JSON object
    #[arg(long, value_name = "JSON", requires = "stack")]
    stack_options: Option<String>,
    /// Prefix of the qlog files of a QUIC stack's connections
    #[arg(long, value_name = "PREFIX", requires = "stack")]
    qlog: Option<PathBuf>,
    #[command(flatten)]
    attachment: Option<Attachment>,
}

/// Arguments of `load send`.
#[derive(clap::Args)]
pub struct SendArgs {
    #[command(flatten)]
    workload: Workload,
    /// Receiver, as ADDRESS:PORT
    #[arg(long)]
    to: SocketAddr,
    /// This end with the flow's port, where a workload that is requested accepts the request, as ADDRESS:PORT
    #[arg(long)]
    listen: SocketAddr,
    /// Start of the run, in nanoseconds of CLOCK_MONOTONIC
    #[arg(long, value_name = "NS")]
    run_begins_ns: u64,
    /// When to stop, in nanoseconds of CLOCK_MONOTONIC
    #[arg(long, value_name = "NS")]
    stop_at_ns: u64,
    /// File for the kernel's tcp_info of the latest connection every 50 ms, or for the states of the research stack's
    /// senders, as JSON lines
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
    /// File that has the start of the run once it is settled, in nanoseconds of CLOCK_MONOTONIC; without it, the time of
    /// listening
    #[arg(long, value_name = "FILE")]
    run_begins_file: Option<PathBuf>,
}

/// Runs either end.
pub fn run(registry: &Registry, command: &Command) -> Result<(), Error> {
    stop_on_signals();
    match command {
        Command::Send(args) => send(registry, args),
        Command::Receive(args) => receive(registry, args),
    }
}

fn send(registry: &Registry, args: &SendArgs) -> Result<(), Error> {
    let workload = &args.workload;
    let (flow, application) = workload.read(registry)?;
    if application.is_datagrams() {
        return datagrams::send(args, &flow, application);
    }
    let (is_requested, seed) = (application.request_bytes().is_some(), workload.payload_seed(&flow));
    match workload.research(registry)? {
        Some((config, attachment)) => {
            let ends = (args.listen, args.to);
            let research = Research::open(config, attachment, ends, is_requested, seed, workload.qlog.as_deref())?;
            let research = research.recording(&args.telemetry, args.run_begins_ns, flow.start())?;
            sender::send(args, &flow, application, research)
        }
        None => {
            let sockets = Sockets::open(&workload.socket, args.to, is_requested.then_some(args.listen), seed)?;
            let start_ns = args.run_begins_ns + flow.start().nanos();
            sender::send(args, &flow, application, sockets.recording(&args.telemetry, start_ns)?)
        }
    }
}

fn receive(registry: &Registry, args: &ReceiveArgs) -> Result<(), Error> {
    let workload = &args.workload;
    let (flow, application) = workload.read(registry)?;
    let seed = workload.payload_seed(&flow);
    match workload.research(registry)? {
        _ if application.is_datagrams() => datagrams::receive(args, &application),
        Some((config, attachment)) => {
            let research =
                Research::open(config, attachment, (args.listen, args.sender), true, seed, workload.qlog.as_deref())?;
            receiver::receive(args, &flow, &application, research)
        }
        None => {
            let sockets = Sockets::open(&workload.socket, args.sender, Some(args.listen), seed)?;
            receiver::receive(args, &flow, &application, sockets)
        }
    }
}

impl Workload {
    fn read(&self, registry: &Registry) -> Result<(Flow, Application), Error> {
        let flow: Flow = serde_json::from_str(&self.flow).or_malformed("--flow is not a flow")?;
        let application = Application::new(&registry.workloads, &flow, self.seed)?;
        Ok((flow, application))
    }

    /// The research stack and its interface; `None`: the kernel's TCP.
    fn research(&self, registry: &Registry) -> Result<Option<(AnyConfig, &Attachment)>, Error> {
        let (Some(stack), Some(attachment)) = (&self.stack, &self.attachment) else { return Ok(None) };
        let options: Options = serde_json::from_str(self.stack_options.as_deref().unwrap_or("{}"))
            .or_malformed("--stack-options is not a JSON object of options")?;
        Ok(Some((registry.stacks.config(stack, &options)?, attachment)))
    }

    /// Seed of the bytes on each of the flow's connections, equal at both ends.
    fn payload_seed(&self, flow: &Flow) -> u64 {
        let mut draws = rng::stream(self.seed, &format!("payload/{}", flow.name));
        (rng::uniform(&mut draws) * (1u64 << 53) as f64) as u64
    }

    fn record<T: serde::Serialize>(&self, lines: impl IntoIterator<Item = T>) -> Result<(), Error> {
        self.records.as_deref().map_or(Ok(()), |path| write_lines(path, lines))
    }
}

/// Since the start of the run.
fn run_time(zero_ns: u64) -> Time {
    Time(monotonic_ns().saturating_sub(zero_ns))
}

/// Waits for the start of the run, which the conductor writes to a file after receivers listen; `None` after a signal.
fn wait_for_run_start(file: Option<&Path>) -> Result<Option<u64>, Error> {
    let Some(file) = file else { return Ok(Some(monotonic_ns())) };
    while !file.exists() {
        if stopped() {
            return Ok(None);
        }
        sleep_until(monotonic_ns() + LOOK_NS);
    }
    read_run_start(file).map(Some)
}

fn read_run_start(file: &Path) -> Result<u64, Error> {
    let what = format!("cannot read the start of the run from {}", file.display());
    let text = std::fs::read_to_string(file).or_system(&what)?;
    let text = text.trim();
    text.parse().map_err(|_| Error::Malformed(format!("{what}: '{text}' is not a number of nanoseconds")))
}

/// Arrivals, by CLOCK_MONOTONIC until the start of the run is known.
#[derive(Default)]
struct Arrivals(Vec<(u64, u64)>);

impl Arrivals {
    fn add(&mut self, key: u64, at_ns: u64) {
        self.0.push((key, at_ns));
    }

    fn write(&self, args: &ReceiveArgs) -> Result<(), Error> {
        if self.0.is_empty() {
            return args.workload.record::<ArrivalLine>([]);
        }
        let Some(zero_ns) = args.run_begins_file.as_deref().map(read_run_start).transpose()? else { return Ok(()) };
        args.workload
            .record(self.0.iter().map(|&(key, at_ns)| ArrivalLine { key, arrived_ns: at_ns.saturating_sub(zero_ns) }))
    }
}
