//! `endpoint`: the research stack on a real interface.
//!
//! It takes and sends whole frames on an interface whose address the kernel does not hold, so that the kernel neither
//! answers nor resets its connections; tcpdump on the interface sees them as it sees the kernel's. One process is one end
//! of one flow, with the options of `send` and `receive`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use backchannel_core::packet::{FlowKey, Packet};
use backchannel_core::scenario::Options;
use backchannel_core::time::Time;
use backchannel_core::traits::Endpoint;
use backchannel_emulator::{become_realtime, leave_realtime, monotonic_ns, HOSTS};
use backchannel_simulator::write_samples;
use backchannel_stacks::config::{stack_config, Config};
use backchannel_stacks::{Connection, Content, End, Source};
use serde_json::{json, Value};

use crate::promptness::{Class, Lateness};
use crate::receive::Check;
use crate::socket::{
    check, only_tcp_port, realtime_ns, receive_stamped, set_int, sleep_until, stamp_arrivals, stop_on_signals, stopped,
};

const ETHERNET_HEADER: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// Until an interface whose queue is full is tried again.
const FULL: Duration = Duration::from_micros(20);
/// Frames taken before the application gets its turn.
const BATCH: usize = 64;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

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
    /// Interface, of this network namespace
    #[arg(long)]
    interface: String,
    /// Further interfaces that its packets may come in by, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    also_hear: Vec<String>,
    /// Own hardware address
    #[arg(long)]
    mac: String,
    /// Hardware address of the next hop
    #[arg(long)]
    next_hop_mac: String,
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
    let mut wire = Wire::open(&args.place, args.from)?;
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
    wire.transmit(&mut connection, zero_ns)?;
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
    let mut wire = Wire::open(&args.place, args.listen)?;
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
            check.take(&part.bytes);
            check.take(&vec![0; part.zeros as usize]);
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
    wire.transmit(&mut connection, zero_ns)?;
    let mut report = check.report(true);
    if let (Value::Object(all), Value::Object(more)) = (&mut report, counts(&connection, &wire.lateness)) {
        all.extend(more);
    }
    println!("{report}");
    Ok(())
}

/// Waits for a SYN to the own port. The connection, and from when its timers tick.
fn accept(
    wire: &mut Wire,
    config: &Config,
    args: &ReceiveArgs,
    listening_ns: u64,
) -> Result<Option<(Connection, u64)>, String> {
    while !stopped() {
        wire.wait(Some(monotonic_ns() + 200_000_000));
        while let Some(packet) = wire.read()? {
            let Some(flow) = packet.flow().filter(|flow| flow.dst_port == args.listen.port()) else { continue };
            let made =
                Connection::accept(config.clone(), flow.reversed(), isn(args.seed ^ 1), Source::silent(), &packet);
            if let Some(mut connection) = made {
                wire.peer = Some(flow);
                let zero_ns = args.run_begins_file.as_deref().map_or(Ok(listening_ns), run_begins)?;
                wire.transmit(&mut connection, zero_ns)?;
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
fn step(wire: &mut Wire, connection: &mut Connection, zero_ns: u64, until_ns: Option<u64>) -> Result<(), String> {
    wire.transmit(connection, zero_ns)?;
    let timer = connection.next_timeout().map(|at| zero_ns + at.nanos());
    // A signal that comes just before the wait is seen when it ends.
    let patience = monotonic_ns() + 200_000_000;
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
        wire.transmit(connection, zero_ns)?;
    }
    let now = now(zero_ns);
    if let Some(due) = connection.next_timeout().filter(|due| *due <= now) {
        wire.lateness.add(now.since(due).as_nanos() as u64);
        connection.on_timer(now);
    }
    wire.transmit(connection, zero_ns)
}

fn now(zero_ns: u64) -> Time {
    Time(monotonic_ns().saturating_sub(zero_ns))
}

/// An initial sequence number that differs from flow to flow.
fn isn(seed: u64) -> u32 {
    (backchannel_core::rng::uniform(&mut backchannel_core::rng::stream(seed, "isn")) * f64::from(u32::MAX)) as u32
}

fn counts(connection: &Connection, lateness: &Lateness) -> Value {
    let counts = connection.counts();
    json!({
        "segments_sent": counts.sent,
        "segments_received": counts.received,
        "segments_refused": counts.refused,
        "retransmitted": counts.retransmitted,
        "coarse_timeouts": counts.timeouts,
        "fast_retransmits": counts.fast_retransmits,
        "duplicate_acks": counts.duplicate_acks,
        "lateness_s": lateness.json(),
        "cpu_s": cpu_s(),
    })
}

/// Processor time of this process so far, in seconds.
fn cpu_s() -> f64 {
    // SAFETY: a zeroed rusage to write to.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    [usage.ru_utime, usage.ru_stime].iter().map(|time| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6).sum()
}

impl Place {
    fn config(&self) -> Result<Config, String> {
        let options: Options = serde_json::from_str(&self.stack_options)
            .map_err(|error| format!("--stack-options is no JSON object of options: {error}"))?;
        stack_config(&self.stack, &options)
    }
}

/// The interface, as frames.
struct Wire {
    fd: OwnedFd,
    /// Of a host with several interfaces, those that it only hears on: the way back may be another (asym 3.1).
    ears: Vec<OwnedFd>,
    header: [u8; ETHERNET_HEADER],
    address: Ipv4Addr,
    /// The flow that comes in; nothing is taken before it is known.
    peer: Option<FlowKey>,
    buffer: Vec<u8>,
    next_id: u64,
    /// When the kernel got the frame that was read last, by CLOCK_REALTIME.
    arrived_ns: Option<u64>,
    lateness: Lateness,
    class: Class,
}

impl Wire {
    fn open(place: &Place, own_end: SocketAddrV4) -> Result<Wire, String> {
        let (own, peer) =
            (backchannel_emulator::parse_mac(&place.mac)?, backchannel_emulator::parse_mac(&place.next_hop_mac)?);
        let mut header = [0; ETHERNET_HEADER];
        header[..6].copy_from_slice(&peer);
        header[6..12].copy_from_slice(&own);
        header[12..].copy_from_slice(&ETHERTYPE_IPV4);
        let open = |name: &String| {
            open_interface(name, own_end.port()).map_err(|error| format!("cannot take frames on {name}: {error}"))
        };
        let fd = open(&place.interface)?;
        let ears = place.also_hear.iter().map(open).collect::<Result<_, _>>()?;
        // Where the kernel does not agree, the lateness tells.
        become_realtime(HOSTS);
        Ok(Wire {
            fd,
            ears,
            header,
            address: *own_end.ip(),
            peer: None,
            buffer: vec![0; 65_536 + ETHERNET_HEADER],
            next_id: 0,
            arrived_ns: None,
            lateness: Lateness::new(),
            class: Class::realtime(monotonic_ns()),
        })
    }

    /// The next IPv4 packet that is for the own address.
    fn read(&mut self) -> Result<Option<Packet>, String> {
        let mut ears = self.ears.iter();
        let mut fd = &self.fd;
        loop {
            let (n, arrived_ns) = match receive_stamped(fd, &mut self.buffer) {
                Ok(received) => received,
                Err(error) => {
                    match (error.kind(), ears.next()) {
                        (io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted, Some(next)) => fd = next,
                        (io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted, None) => return Ok(None),
                        _ => return Err(format!("the interface is gone: {error}")),
                    }
                    continue;
                }
            };
            let Some(ip) = self.buffer[..n].get(ETHERNET_HEADER..).filter(|ip| ip.len() >= 20) else {
                continue;
            };
            // A short frame may be padded; the header says where the packet ends.
            let length = usize::from(u16::from_be_bytes([ip[2], ip[3]])).min(ip.len());
            if ip[16..20] != self.address.octets() {
                continue;
            }
            self.next_id += 1;
            self.arrived_ns = arrived_ns;
            return Ok(Some(Packet::from_bytes(self.next_id, ip[..length].to_vec())));
        }
    }

    /// Sends whatever the connection has to say.
    fn transmit(&mut self, connection: &mut Connection, zero_ns: u64) -> Result<(), String> {
        // One instant for all of it, as in virtual time: what goes out at one instant is a burst (asym 6.3).
        let now = now(zero_ns);
        while let Some(packet) = connection.poll_transmit(now) {
            let mut frame = self.header.to_vec();
            frame.extend(packet.to_vec());
            loop {
                // SAFETY: a valid frame.
                let n = unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
                if n >= 0 {
                    break;
                }
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    // The interface's own queue is full: wait until it has room, as a kernel's stack would.
                    io::ErrorKind::WouldBlock => self.wait_for(libc::POLLOUT, None),
                    _ if error.raw_os_error() == Some(libc::ENOBUFS) => std::thread::sleep(FULL),
                    _ => return Err(format!("sending failed: {error}")),
                }
            }
        }
        Ok(())
    }

    /// Until a frame comes, at most until this instant.
    fn wait(&mut self, until_ns: Option<u64>) {
        let from_ns = monotonic_ns();
        self.wait_for(libc::POLLIN, until_ns);
        match self.class.waited(from_ns, monotonic_ns()) {
            Some(true) => _ = become_realtime(HOSTS),
            Some(false) => leave_realtime(),
            None => {}
        }
    }

    fn wait_for(&self, events: libc::c_short, until_ns: Option<u64>) {
        let left = until_ns.map(|until| until.saturating_sub(monotonic_ns()));
        let timeout =
            left.map(|ns| libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 });
        // What it only hears on is of no use to one who waits to send.
        let ears = self.ears.iter().filter(|_| events == libc::POLLIN);
        let mut watch: Vec<_> = std::iter::once(&self.fd)
            .chain(ears)
            .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 })
            .collect();
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: valid pollfds, a valid timeout or none.
        unsafe { libc::ppoll(watch.as_mut_ptr(), watch.len() as libc::nfds_t, timeout, std::ptr::null()) };
    }
}

/// A packet socket bound to an interface, which sees the TCP segments that come to a port.
fn open_interface(name: &str, port: u16) -> io::Result<OwnedFd> {
    let protocol = (libc::ETH_P_IP as u16).to_be();
    let c_name = std::ffi::CString::new(name).map_err(io::Error::other)?;
    // SAFETY: a NUL-terminated name; results are checked; the address is a valid sockaddr_ll.
    unsafe {
        let index = libc::if_nametoindex(c_name.as_ptr());
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // Without a protocol nothing comes before the socket knows what it wants, and from where.
        let fd = libc::socket(libc::AF_PACKET, kind, 0);
        check(fd)?;
        let fd = OwnedFd::from_raw_fd(fd);
        set_int(&fd, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        set_int(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 1 << 24)?;
        stamp_arrivals(&fd)?;
        only_tcp_port(&fd, port)?;
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as i32;
        let length = size_of_val(&address) as u32;
        check(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length))?;
        Ok(fd)
    }
}
