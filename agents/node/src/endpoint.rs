//! `endpoint`: the research stack on a real interface.
//!
//! It takes and sends whole frames on an interface whose address the kernel does not hold, so that the kernel neither
//! answers nor resets its connections; tcpdump on the interface sees them as it sees the kernel's. One process is one end
//! of one flow, with the options of `send` and `receive`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::Duration;

use backchannel_core::packet::FlowKey;
use backchannel_core::scenario::Options;
use backchannel_core::time::Time;
use backchannel_core::traits::Endpoint;
use backchannel_emulator::monotonic_ns;
use backchannel_emulator::os::clock::{cpu_s, realtime_ns};
use backchannel_simulator::write_samples;
use backchannel_stacks::config::{stack_config, Config};
use backchannel_stacks::{Connection, Content, End, Source};
use serde_json::{json, Value};

use crate::host_interface::{Attachment, HostInterface};
use crate::promptness::LatenessHistogram;
use crate::receive::Check;
use crate::signals::{sleep_until, stop_on_signals, stopped, LONGEST_WAIT_NS};

/// Frames taken before the application gets its turn.
const BATCH: usize = 64;

/// Subcommands of `endpoint`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Send a seeded byte stream
    Send(SendArgs),
    /// Receive one and check it
    Receive(ReceiveArgs),
}

/// Where and as what an endpoint stands.
#[derive(clap::Args)]
struct Place {
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
    place: Place,
    /// Own end, as ADDRESS:PORT
    #[arg(long)]
    from: SocketAddrV4,
    /// Receiver, as ADDRESS:PORT
    #[arg(long)]
    to: SocketAddrV4,
    /// Seed of the byte stream; the receiver must be told the same
    #[arg(long)]
    seed: u64,
    /// Bytes to send; without it, until stopped
    #[arg(long)]
    bytes: Option<u64>,
    /// When to connect, in nanoseconds of CLOCK_MONOTONIC; without it, at once
    #[arg(long, value_name = "NS")]
    start_at_ns: Option<u64>,
    /// When to stop, in nanoseconds of CLOCK_MONOTONIC; the peer is reset then
    #[arg(long, value_name = "NS")]
    stop_at_ns: Option<u64>,
    /// When the run begins, from where timers tick, in nanoseconds of CLOCK_MONOTONIC; without it, when it connects
    #[arg(long, value_name = "NS")]
    run_begins_ns: Option<u64>,
    /// File for the sender's state after each ack, as JSON lines
    #[arg(long, value_name = "FILE")]
    telemetry: Option<PathBuf>,
}

/// Arguments of `endpoint receive`.
#[derive(clap::Args)]
pub struct ReceiveArgs {
    #[command(flatten)]
    place: Place,
    /// Own end, as ADDRESS:PORT
    #[arg(long)]
    listen: SocketAddrV4,
    /// Seed of the byte stream that must come
    #[arg(long)]
    seed: u64,
    /// File that says, by the first SYN, when the run begins, from where timers tick, in nanoseconds of CLOCK_MONOTONIC;
    /// without it, when it listens
    #[arg(long, value_name = "FILE")]
    run_begins_file: Option<PathBuf>,
}

/// Runs either end and prints its report.
pub fn run(command: &Command) -> Result<(), String> {
    stop_on_signals();
    match command {
        Command::Send(args) => send(args),
        Command::Receive(args) => receive(args),
    }
}

fn send(args: &SendArgs) -> Result<(), String> {
    let config = args.place.config()?;
    let mut telemetry = match &args.telemetry {
        Some(path) => Some(BufWriter::new(
            File::create(path).map_err(|error| format!("cannot write {}: {error}", path.display()))?,
        )),
        None => None,
    };
    let mut wire = HostInterface::open(&args.place.attachment, args.from)?;
    if let Some(at) = args.start_at_ns {
        sleep_until(at);
    }
    let started_ns = monotonic_ns();
    let started_late = Duration::from_nanos(started_ns.saturating_sub(args.start_at_ns.unwrap_or(started_ns)));
    // Ticks of coarse timers are the host's, whenever its connections begin (ton IV: 500 ms); in virtual time too.
    let zero_ns = args.run_begins_ns.unwrap_or(started_ns);
    let begun = Time(started_ns.saturating_sub(zero_ns));
    let flow = FlowKey {
        src: (*args.from.ip()).into(),
        dst: (*args.to.ip()).into(),
        src_port: args.from.port(),
        dst_port: args.to.port(),
    };
    wire.peer = Some(flow.reversed());
    let source = Source::new(Content::Pattern(args.seed), args.bytes);
    let mut connection = Connection::connect(config, flow, isn(args.seed), source);
    let ready = |connection: &Connection| connection.end().is_none();
    while ready(&connection) && !stopped() && args.stop_at_ns.is_none_or(|at| monotonic_ns() < at) {
        step(&mut wire, &mut connection, zero_ns, args.stop_at_ns)?;
        if let Some(file) = &mut telemetry {
            write_samples(file, connection.samples(), begun, connection.mss())
                .map_err(|error| format!("cannot write telemetry: {error}"))?;
        }
        connection.clear_samples();
    }
    let outcome = match connection.end() {
        Some(End::Finished) => "completed",
        Some(End::Reset) => "reset",
        Some(End::TimedOut) => "timed_out",
        _ => "stopped",
    };
    connection.abort();
    transmit(&wire, &mut connection, zero_ns)?;
    if let Some(mut file) = telemetry {
        file.flush().map_err(|error| format!("cannot write telemetry: {error}"))?;
    }
    let mut report = counts(&connection, &wire.lateness);
    report["bytes"] = connection.acknowledged().into();
    report["outcome"] = outcome.into();
    report["started_late_s"] = started_late.as_secs_f64().into();
    println!("{report}");
    Ok(())
}

fn receive(args: &ReceiveArgs) -> Result<(), String> {
    let config = args.place.config()?;
    let mut wire = HostInterface::open(&args.place.attachment, args.listen)?;
    eprintln!("ready on {}", args.listen);
    let listening_ns = monotonic_ns();
    let mut check = Check::new(args.seed);
    let Some((mut connection, zero_ns)) = accept(&mut wire, &config, args, listening_ns)? else {
        println!("{}", check.report(false));
        return Ok(());
    };
    while connection.end().is_none() && !stopped() {
        step(&mut wire, &mut connection, zero_ns, None)?;
        for part in connection.read() {
            check.check(&part.bytes);
            check.check(&vec![0; part.zeros as usize]);
        }
        if connection.peer_finished() {
            connection.finish();
        }
    }
    check.end = match connection.end() {
        Some(End::Finished) => "finished",
        Some(End::Reset) => "reset",
        Some(End::TimedOut) => "timed out",
        _ => "stopped",
    };
    connection.abort();
    transmit(&wire, &mut connection, zero_ns)?;
    let mut report = check.report(true);
    if let (Value::Object(all), Value::Object(more)) = (&mut report, counts(&connection, &wire.lateness)) {
        all.extend(more);
    }
    println!("{report}");
    Ok(())
}

/// Waits for a SYN to the own port. The connection, and from when its timers tick.
fn accept(
    wire: &mut HostInterface,
    config: &Config,
    args: &ReceiveArgs,
    listening_ns: u64,
) -> Result<Option<(Connection, u64)>, String> {
    while !stopped() {
        wire.wait(Some(monotonic_ns() + LONGEST_WAIT_NS));
        while let Some(packet) = wire.read()? {
            let Some(flow) = packet.flow().filter(|flow| flow.dst_port == args.listen.port()) else { continue };
            let made =
                Connection::accept(config.clone(), flow.reversed(), isn(args.seed ^ 1), Source::silent(), &packet);
            if let Some(mut connection) = made {
                wire.peer = Some(flow);
                let zero_ns = args.run_begins_file.as_deref().map_or(Ok(listening_ns), run_begins)?;
                transmit(wire, &mut connection, zero_ns)?;
                return Ok(Some((connection, zero_ns)));
            }
        }
    }
    Ok(None)
}

/// What the file says: it is written when the run's begin is settled, which is after receivers have to listen.
fn run_begins(file: &Path) -> Result<u64, String> {
    let said = std::fs::read_to_string(file)
        .map_err(|error| format!("a SYN has come, and nothing says when the run began: {}: {error}", file.display()))?;
    said.trim().parse().map_err(|_| format!("{}: '{}' is no number of nanoseconds", file.display(), said.trim()))
}

/// Waits for the next frame or timer and lets the connection act.
fn step(
    wire: &mut HostInterface,
    connection: &mut Connection,
    zero_ns: u64,
    until_ns: Option<u64>,
) -> Result<(), String> {
    transmit(wire, connection, zero_ns)?;
    let timer = connection.next_timeout().map(|at| zero_ns + at.nanos());
    // A signal that comes just before the wait is seen when it ends.
    let patience = monotonic_ns() + LONGEST_WAIT_NS;
    wire.wait([timer, until_ns, Some(patience)].into_iter().flatten().min());
    // In batches: the caller looks at clocks and signals between them, however fast the frames come.
    for _ in 0..BATCH {
        let Some(packet) = wire.read()? else { break };
        if packet.flow().is_none() || packet.flow() != wire.peer {
            continue;
        }
        if let Some(arrived_ns) = wire.arrived_ns {
            wire.lateness.add(realtime_ns().saturating_sub(arrived_ns));
        }
        connection.on_segment(now(zero_ns), &packet);
        transmit(wire, connection, zero_ns)?;
    }
    let now = now(zero_ns);
    if let Some(due) = connection.next_timeout().filter(|due| *due <= now) {
        wire.lateness.add(now.since(due).as_nanos() as u64);
        connection.on_timer(now);
    }
    transmit(wire, connection, zero_ns)
}

/// Sends whatever the connection has to send.
fn transmit(wire: &HostInterface, connection: &mut Connection, zero_ns: u64) -> Result<(), String> {
    // One instant for all of it, as in virtual time: what is sent at one instant is a burst (asym 6.3).
    let now = now(zero_ns);
    while let Some(packet) = connection.poll_transmit(now) {
        wire.send(&packet)?;
    }
    Ok(())
}

fn now(zero_ns: u64) -> Time {
    Time(monotonic_ns().saturating_sub(zero_ns))
}

/// An initial sequence number that differs from flow to flow.
fn isn(seed: u64) -> u32 {
    (backchannel_core::rng::uniform(&mut backchannel_core::rng::stream(seed, "isn")) * f64::from(u32::MAX)) as u32
}

fn counts(connection: &Connection, lateness: &LatenessHistogram) -> Value {
    let counts = connection.counts();
    json!({
        "segments_sent": counts.sent,
        "segments_received": counts.received,
        "segments_refused": counts.refused,
        "retransmitted": counts.retransmitted,
        "coarse_timeouts": counts.timeouts,
        "fast_retransmits": counts.fast_retransmits,
        "duplicate_acks": counts.duplicate_acks,
        "lateness_s": lateness.report(),
        "cpu_s": cpu_s(),
    })
}

impl Place {
    fn config(&self) -> Result<Config, String> {
        let options: Options = serde_json::from_str(&self.stack_options)
            .map_err(|error| format!("--stack-options is no JSON object of options: {error}"))?;
        stack_config(&self.stack, &options)
    }
}
