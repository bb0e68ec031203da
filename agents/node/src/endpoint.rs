//! `endpoint`: the research stack on a real interface.
//!
//! It sends and receives whole frames on an interface whose address the kernel has given up, so that the kernel neither
//! answers nor resets its connections. tcpdump captures them on the interface as it captures the kernel's. One process
//! is one end of one flow. Its options and reports are those of `send` and `receive`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use backchannel_core::ip::IpVersion;
use backchannel_core::packet::FlowKey;
use backchannel_core::scenario::Options;
use backchannel_core::telemetry::FlowTelemetry;
use backchannel_core::time::Time;
use backchannel_core::traits::Endpoint;
use backchannel_emulator::monotonic_ns;
use backchannel_emulator::os::clock::{cpu_s, realtime_ns};
use backchannel_links::Registry;
use backchannel_simulator::write_samples;
use backchannel_stacks::config::Config;
use backchannel_stacks::{Connection, Content, End, Source};

use crate::host_interface::{Attachment, HostInterface};
use crate::promptness::LatenessHistogram;
use crate::receive::Check;
use crate::reports::{self, ConnectionReport, EndpointReceiveReport, EndpointSendReport, Outcome, ReceiveEnd};
use crate::signals::{sleep_until, stop_on_signals, stopped, LONGEST_WAIT_NS};
use crate::transfer::Transfer;

/// Frames that are processed before the application runs.
const BATCH: usize = 64;

/// Subcommands of `endpoint`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Send a seeded byte stream
    Send(SendArgs),
    /// Receive a seeded byte stream and check it
    Receive(ReceiveArgs),
}

/// Options of both ends: the interface and the stack.
#[derive(clap::Args)]
struct HostOptions {
    #[command(flatten)]
    attachment: Attachment,
    /// Name of the stack, as `backchannel-node registry` lists it
    #[arg(long)]
    stack: String,
    /// Options of the stack, as a JSON object
    #[arg(long, default_value = "{}")]
    stack_options: String,
}

/// Arguments of `endpoint send`.
#[derive(clap::Args)]
pub struct SendArgs {
    #[command(flatten)]
    host: HostOptions,
    /// Address of this end, as ADDRESS:PORT
    #[arg(long)]
    from: SocketAddr,
    #[command(flatten)]
    transfer: Transfer,
    /// Start of the run, to which timer ticks are aligned, in nanoseconds of CLOCK_MONOTONIC; without it, the time of
    /// connecting
    #[arg(long, value_name = "NS")]
    run_begins_ns: Option<u64>,
    /// File for the sender's telemetry, as JSON lines
    #[arg(long, value_name = "FILE")]
    telemetry: Option<PathBuf>,
}

/// Arguments of `endpoint receive`.
#[derive(clap::Args)]
pub struct ReceiveArgs {
    #[command(flatten)]
    host: HostOptions,
    /// Address of this end, as ADDRESS:PORT
    #[arg(long)]
    listen: SocketAddr,
    /// Seed of the byte stream to expect
    #[arg(long)]
    seed: u64,
    /// File with the start of the run, to which timer ticks are aligned, in nanoseconds of CLOCK_MONOTONIC. It must
    /// exist when the first SYN arrives; without it, the time of listening
    #[arg(long, value_name = "FILE")]
    run_begins_file: Option<PathBuf>,
}

/// Runs either end and prints its report.
pub fn run(registry: &Registry, command: &Command) -> Result<(), String> {
    stop_on_signals();
    match command {
        Command::Send(args) => send(registry, args),
        Command::Receive(args) => receive(registry, args),
    }
}

fn send(registry: &Registry, args: &SendArgs) -> Result<(), String> {
    let config = args.host.config(registry, args.from)?;
    let mut telemetry = args.telemetry.as_deref().map(FlowTelemetry::create).transpose()?;
    let mut interface = HostInterface::open(&args.host.attachment, args.from)?;
    if let Some(at) = args.transfer.start_at_ns {
        sleep_until(at);
    }
    let started_ns = monotonic_ns();
    let started_late = Duration::from_nanos(started_ns.saturating_sub(args.transfer.start_at_ns.unwrap_or(started_ns)));
    // Ticks of coarse timers belong to the host, not to the connection (ton IV: 500 ms).
    let zero_ns = args.run_begins_ns.unwrap_or(started_ns);
    let flow_start = Time(started_ns.saturating_sub(zero_ns));
    if args.from.is_ipv4() != args.transfer.to.is_ipv4() {
        return Err(format!("{} and {} are not of one version of IP", args.from, args.transfer.to));
    }
    let flow = FlowKey {
        src: args.from.ip(),
        dst: args.transfer.to.ip(),
        src_port: args.from.port(),
        dst_port: args.transfer.to.port(),
    };
    interface.peer = Some(flow.reversed());
    let source = Source::new(Content::Pattern(args.transfer.seed), args.transfer.bytes);
    let mut connection = Connection::connect(config, flow, isn(args.transfer.seed), source);
    let mut now_ns = monotonic_ns();
    while connection.end().is_none() && !stopped() && args.transfer.stop_at_ns.is_none_or(|at| now_ns < at) {
        now_ns = step(&mut interface, &mut connection, zero_ns, args.transfer.stop_at_ns)?;
        if let Some(file) = &mut telemetry {
            write_samples(file, connection.samples(), flow_start, connection.mss())?;
        }
        connection.clear_samples();
    }
    let outcome = match connection.end() {
        Some(End::Finished) => Outcome::Completed,
        Some(End::Reset) => Outcome::Reset,
        Some(End::TimedOut) => Outcome::TimedOut,
        _ => Outcome::Stopped,
    };
    abort(&mut interface, &mut connection, zero_ns)?;
    telemetry.map_or(Ok(()), FlowTelemetry::finish)?;
    reports::print(&EndpointSendReport {
        bytes: connection.acknowledged(),
        outcome,
        started_late_s: started_late.as_secs_f64(),
        connection: counts(&connection, &interface.lateness),
    })
}

fn receive(registry: &Registry, args: &ReceiveArgs) -> Result<(), String> {
    let config = args.host.config(registry, args.listen)?;
    let mut interface = HostInterface::open(&args.host.attachment, args.listen)?;
    eprintln!("ready on {}", args.listen);
    let listening_ns = monotonic_ns();
    let mut check = Check::new(args.seed);
    let Some((mut connection, zero_ns)) = accept(&mut interface, &config, args, listening_ns)? else {
        return reports::print(&EndpointReceiveReport { received: check.report(false), connection: None });
    };
    while connection.end().is_none() && !stopped() {
        step(&mut interface, &mut connection, zero_ns, None)?;
        for chunk in connection.read() {
            check.check(&chunk.bytes);
            check.check(&vec![0; chunk.zeros as usize]);
        }
        if connection.peer_finished() {
            connection.finish();
        }
    }
    check.end = match connection.end() {
        Some(End::Finished) => ReceiveEnd::Finished,
        Some(End::Reset) => ReceiveEnd::Reset,
        Some(End::TimedOut) => ReceiveEnd::TimedOut,
        _ => ReceiveEnd::Stopped,
    };
    abort(&mut interface, &mut connection, zero_ns)?;
    let connection = Some(counts(&connection, &interface.lateness));
    reports::print(&EndpointReceiveReport { received: check.report(true), connection })
}

/// Waits for a SYN to the listening port. Returns the connection, and the start of the run in nanoseconds of
/// CLOCK_MONOTONIC; `None` when the process is stopped first.
fn accept(
    interface: &mut HostInterface,
    config: &Config,
    args: &ReceiveArgs,
    listening_ns: u64,
) -> Result<Option<(Connection, u64)>, String> {
    while !stopped() {
        let now_ns = monotonic_ns();
        interface.wait(now_ns, now_ns + LONGEST_WAIT_NS);
        while let Some(packet) = interface.read()? {
            let Some(flow) = packet.flow().filter(|flow| flow.dst_port == args.listen.port()) else { continue };
            let accepted =
                Connection::accept(config.clone(), flow.reversed(), isn(args.seed ^ 1), Source::silent(), &packet);
            if let Some(mut connection) = accepted {
                interface.peer = Some(flow);
                let zero_ns = args.run_begins_file.as_deref().map_or(Ok(listening_ns), read_run_start)?;
                transmit(interface, &mut connection, since(zero_ns, monotonic_ns()))?;
                return Ok(Some((connection, zero_ns)));
            }
        }
    }
    Ok(None)
}

/// Reads the start of the run from a file. The conductor writes it when the start is settled, which is after receivers
/// have to listen.
pub(crate) fn read_run_start(file: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("a SYN arrived before the run's start was written to {}: {error}", file.display()))?;
    text.trim().parse().map_err(|_| format!("{}: '{}' is not a number of nanoseconds", file.display(), text.trim()))
}

/// Waits for the next frame, timer or `until_ns`, and passes frames and timers to the connection. Returns
/// CLOCK_MONOTONIC. It reads clocks as rarely as it can, because in virtual time that is a system call of 15 us.
fn step(
    interface: &mut HostInterface,
    connection: &mut Connection,
    zero_ns: u64,
    until_ns: Option<u64>,
) -> Result<u64, String> {
    let from_ns = monotonic_ns();
    transmit(interface, connection, since(zero_ns, from_ns))?;
    let timer = connection.next_timeout().map(|at| zero_ns + at.nanos());
    // A signal that arrives just before the wait is handled when the wait ends.
    let patience = from_ns + LONGEST_WAIT_NS;
    let mut now_ns = interface.wait(from_ns, [timer, until_ns].into_iter().flatten().fold(patience, u64::min));
    // In batches: the caller checks clocks and signals between them, however fast the frames arrive.
    for _ in 0..BATCH {
        let Some(packet) = interface.read()? else { break };
        if packet.flow().is_none() || packet.flow() != interface.peer {
            continue;
        }
        if let Some(arrived_ns) = interface.arrived_ns {
            interface.lateness.add(realtime_ns().saturating_sub(arrived_ns));
        }
        now_ns = monotonic_ns();
        connection.on_segment(since(zero_ns, now_ns), &packet);
        transmit(interface, connection, since(zero_ns, now_ns))?;
    }
    let now = since(zero_ns, now_ns);
    if let Some(due) = connection.next_timeout().filter(|due| *due <= now) {
        interface.lateness.add(now.since(due).as_nanos() as u64);
        connection.on_timer(now);
    }
    transmit(interface, connection, now)?;
    Ok(now_ns)
}

/// Sends everything that the connection has to send now and the interface has room for.
///
/// One instant for all of it, as in virtual time, because what is sent at one instant is a burst (asym 6.3).
fn transmit(interface: &mut HostInterface, connection: &mut Connection, now: Time) -> Result<(), String> {
    while interface.has_room()? {
        let Some(packet) = connection.poll_transmit(now) else { break };
        interface.send(&packet)?;
    }
    Ok(())
}

/// Resets the connection. Where the interface is full the peer does not hear of it.
fn abort(interface: &mut HostInterface, connection: &mut Connection, zero_ns: u64) -> Result<(), String> {
    connection.abort();
    interface.discard_waiting();
    transmit(interface, connection, since(zero_ns, monotonic_ns()))
}

/// Time since the start of the run.
fn since(zero_ns: u64, now_ns: u64) -> Time {
    Time(now_ns.saturating_sub(zero_ns))
}

/// An initial sequence number that differs from flow to flow.
fn isn(seed: u64) -> u32 {
    (backchannel_core::rng::uniform(&mut backchannel_core::rng::stream(seed, "isn")) * f64::from(u32::MAX)) as u32
}

fn counts(connection: &Connection, lateness: &LatenessHistogram) -> ConnectionReport {
    let counts = connection.counts();
    ConnectionReport {
        segments_sent: counts.sent,
        segments_received: counts.received,
        segments_refused: counts.refused,
        retransmitted: counts.retransmitted,
        coarse_timeouts: counts.timeouts,
        fast_retransmits: counts.fast_retransmits,
        duplicate_acks: counts.duplicate_acks,
        lateness_s: lateness.report(),
        cpu_s: cpu_s(),
    }
}

impl HostOptions {
    /// For a connection from this address.
    fn config(&self, registry: &Registry, local: SocketAddr) -> Result<Config, String> {
        let options: Options = serde_json::from_str(&self.stack_options)
            .map_err(|error| format!("--stack-options is not a JSON object of options: {error}"))?;
        let config = registry.stacks.config(&self.stack, &options)?;
        config.fits(IpVersion::of(local.ip()))?;
        Ok(config)
    }
}
