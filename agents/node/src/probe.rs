//! `probe`: measures a path with UDP packets: a burst, whose spacing at the far end gives the rate, then single
//! packets, whose transit time gives the delay. The kernel stamps arrivals. Both ends must share a clock.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use backchannel_core::{Error, ResultExt};
use backchannel_emulator::os::arrivals::{receive_stamped, stamp_arrivals};
use backchannel_emulator::os::clock::realtime_ns;
use backchannel_emulator::os::process::Priority;
use backchannel_emulator::os::socket_option::set_receive_buffer;
use backchannel_emulator::{become_realtime, monotonic_ns};

use crate::reports::{self, Arrival, ProbeReceiveReport, ProbeSendReport};
use crate::signals::{sleep_until, stop_on_signals, stopped};
use crate::socket::{any_port_towards, is_transient, udp_headers};

/// Length of sequence number and time of sending.
const STAMP: usize = 16;

/// Subcommands of `probe`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Send the packets
    Send(SendArgs),
    /// Receive them and print when each arrived
    Receive(ReceiveArgs),
}

/// Arguments of `probe send`.
#[derive(clap::Args)]
pub struct SendArgs {
    /// Receiver, as ADDRESS:PORT
    #[arg(long)]
    to: SocketAddr,
    /// Length of each packet in bytes, IP and UDP headers included
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(44..=65_535))]
    size: u16,
    /// Number of packets sent back to back
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    burst: u32,
    /// Pause after the burst, in seconds
    #[arg(long, value_name = "SECONDS")]
    pause_s: f64,
    /// Number of single packets after the pause
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    spaced: u32,
    /// Time between single packets, in seconds
    #[arg(long, value_name = "SECONDS")]
    interval_s: f64,
}

/// Arguments of `probe receive`.
#[derive(clap::Args)]
pub struct ReceiveArgs {
    /// Where to listen, as ADDRESS:PORT
    #[arg(long)]
    listen: SocketAddr,
    /// Number of packets to wait for
    #[arg(long)]
    count: u32,
    /// Longest time to wait, in seconds from the start
    #[arg(long, value_name = "SECONDS")]
    timeout_s: f64,
}

/// Runs either end.
pub fn run(command: &Command) -> Result<(), Error> {
    stop_on_signals();
    match command {
        Command::Send(args) => send(args),
        Command::Receive(args) => receive(args),
    }
}

fn send(args: &SendArgs) -> Result<(), Error> {
    let socket = UdpSocket::bind(any_port_towards(args.to)).or_system("cannot create a socket")?;
    socket.connect(args.to).or_system(format_args!("cannot reach {}", args.to))?;
    let (size, least) = (usize::from(args.size), udp_headers(args.to) + STAMP);
    if size < least {
        return Err(format!("--size is {size}, and must be at least {least} to {}", args.to).into());
    }
    let mut packet = vec![0; size - udp_headers(args.to)];
    let mut send = |seq: u32| {
        packet[..8].copy_from_slice(&u64::from(seq).to_be_bytes());
        packet[8..STAMP].copy_from_slice(&realtime_ns().to_be_bytes());
        socket.send(&packet).or_system("sending failed")
    };
    // A burst that another program interrupts would look like a slow line.
    become_realtime(Priority::Host);
    for seq in 0..args.burst {
        send(seq)?;
    }
    let mut at = monotonic_ns() + nanoseconds(args.pause_s);
    for seq in args.burst..args.burst + args.spaced {
        sleep_until(at);
        send(seq)?;
        at += nanoseconds(args.interval_s);
    }
    reports::print(&ProbeSendReport { sent: args.burst + args.spaced })
}

fn receive(args: &ReceiveArgs) -> Result<(), Error> {
    let socket = UdpSocket::bind(args.listen).or_system(format_args!("cannot listen on {}", args.listen))?;
    stamp_arrivals(&socket).or_system("cannot time-stamp arrivals")?;
    set_receive_buffer(&socket, 1 << 24).or_system("cannot enlarge the receive buffer")?;
    socket.set_read_timeout(Some(Duration::from_millis(100))).or_system("cannot set a timeout")?;
    eprintln!("ready on {}", args.listen);
    let deadline = monotonic_ns() + nanoseconds(args.timeout_s);
    let mut packets = Vec::new();
    while packets.len() < args.count as usize && monotonic_ns() < deadline && !stopped() {
        packets.extend(receive_probe(&socket)?);
    }
    reports::print(&ProbeReceiveReport { packets })
}

/// The next probe; `None` if none arrived in time.
fn receive_probe(socket: &UdpSocket) -> Result<Option<Arrival>, Error> {
    let mut data = [0u8; 65_536];
    let (n, stamp_ns) = match receive_stamped(socket, &mut data) {
        Ok(received) => received,
        Err(error) if is_transient(&error) => return Ok(None),
        Err(error) => return Err(Error::System(format!("receiving failed: {error}"))),
    };
    if n < STAMP {
        return Ok(None);
    }
    let word = |at: usize| u64::from_be_bytes(data[at..at + 8].try_into().expect("eight bytes"));
    let received_ns = stamp_ns.ok_or("the kernel did not time-stamp an arrival")?;
    Ok(Some(Arrival { seq: word(0), sent_ns: word(8), received_ns }))
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e9) as u64
}
