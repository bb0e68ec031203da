//! Workloads of UDP packets and of ICMP echoes, the first 8 bytes of whose payload are the packet's number.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use backchannel_core::exchange::{write_lines, Exchange, SentLine};
use backchannel_core::icmp::{Echo, ECHO_HEADER};
use backchannel_core::ip::IpVersion;
use backchannel_core::packet::ones_sum;
use backchannel_core::scenario::Flow;
use backchannel_core::time::Time;
use backchannel_core::{Error, ResultExt};
use backchannel_emulator::os::arrivals::{receive_stamped, stamp_arrivals};
use backchannel_emulator::os::clock::RealtimeLead;
use backchannel_emulator::os::process::Priority;
use backchannel_emulator::os::socket_option::set_receive_buffer;
use backchannel_emulator::os::wait::{wait_for, Readiness};
use backchannel_emulator::{become_realtime, monotonic_ns};
use backchannel_workloads::flow::{self, on_due, SendingEnd};
use backchannel_workloads::Application;
use socket2::{Domain, Protocol, Socket, Type};

use super::{run_time, Arrivals, ReceiveArgs, SendArgs};
use crate::reports::{self, LoadReceiveReport, LoadSendReport, Outcome, TransportReport};
use crate::signals::{stopped, LONGEST_WAIT_NS};
use crate::socket::{any_port_towards, is_transient, udp_headers};

/// Length of the packet's number.
const NUMBER: usize = 8;

/// Sends the packets, and receives what the receiver returns until a signal arrives.
pub(super) fn send(args: &SendArgs, flow: &Flow, application: Application) -> Result<(), Error> {
    let channel = if application.is_icmp() {
        let channel = Channel::icmp(args.to, true)?;
        // A raw socket has no port.
        let host = SocketAddr::new(args.to.ip(), 0);
        channel.socket.connect(host).or_system(format_args!("cannot reach {}", args.to.ip()))?;
        channel
    } else {
        let socket = UdpSocket::bind(any_port_towards(args.to)).or_system("cannot create a socket")?;
        socket.connect(args.to).or_system(format_args!("cannot reach {}", args.to))?;
        Channel::udp(socket)?
    };
    // No transport reports anything, so this file has no lines, as in simulation.
    write_lines::<Exchange>(&args.telemetry, [])?;
    // Packets that another program delays would look like jitter of the path.
    become_realtime(Priority::Host);
    let due = Some(application.first(flow.start()));
    let state = flow::Sender::new(application, flow, true);
    let mut sender = PacketSender { to: args.to, run_begins_ns: args.run_begins_ns, state, due, channel, bytes: 0 };
    let started_late = sender.run(args)?;
    let exchanges = sender.state.exchanges().unwrap_or_default();
    args.workload.record(exchanges.iter().map(|&exchange| SentLine { key: exchange.seq, exchange }))?;
    let (bytes, started_late_s) = (sender.bytes, started_late.unwrap_or(Duration::ZERO).as_secs_f64());
    let outcome = if stopped() { Outcome::Stopped } else { Outcome::Completed };
    reports::print(&LoadSendReport { bytes, outcome, started_late_s, transport: TransportReport::default() })
}

struct PacketSender {
    to: SocketAddr,
    run_begins_ns: u64,
    state: flow::Sender<()>,
    due: Option<Time>,
    channel: Channel,
    /// Payload so far.
    bytes: u64,
}

impl PacketSender {
    /// Returns how late it started.
    fn run(&mut self, args: &SendArgs) -> Result<Option<Duration>, Error> {
        let zero_ns = self.run_begins_ns;
        let is_echoed = self.state.application.is_echoed();
        let mut started_late = None;
        while !stopped() && (self.due.is_some() || is_echoed) {
            if monotonic_ns() >= args.stop_at_ns {
                self.due = None;
                if !is_echoed {
                    break;
                }
            }
            if let Some(at) = self.due.filter(|at| *at <= run_time(zero_ns)) {
                started_late.get_or_insert_with(|| run_time(zero_ns).since(at));
                self.due = None;
                on_due(self, at, run_time(zero_ns))?;
                continue;
            }
            let next_ns = self.due.map_or(u64::MAX, |at| (zero_ns + at.nanos()).min(args.stop_at_ns));
            let until_ns = next_ns.min(monotonic_ns() + LONGEST_WAIT_NS);
            let wait_ns = until_ns.saturating_sub(monotonic_ns());
            if wait_for([&self.channel.socket], Readiness::Readable, Some(wait_ns)) {
                self.complete()?;
            }
        }
        // What came while the signal did.
        self.complete()?;
        Ok(started_late)
    }

    /// Records the packets that have been returned.
    fn complete(&mut self) -> Result<(), Error> {
        while let Some(packet) = self.channel.receive()? {
            let at = Time(packet.at_ns.saturating_sub(self.run_begins_ns));
            self.state.complete(packet.number as usize, at);
        }
        Ok(())
    }
}

impl SendingEnd for PacketSender {
    type Stream = ();

    fn sender(&mut self) -> &mut flow::Sender<()> {
        &mut self.state
    }

    fn schedule(&mut self, at: Time) {
        self.due = Some(at);
    }

    fn packet(&mut self, number: u64, length: u32) -> Result<(), Error> {
        let mut payload = vec![0; length as usize - udp_headers(self.to)];
        payload[..NUMBER].copy_from_slice(&number.to_be_bytes());
        match self.channel.send(number, &payload) {
            Ok(()) => self.bytes += payload.len() as u64,
            // A full queue of the kernel, or what ICMP says of earlier packets: this packet is lost.
            Err(error) if is_transient(&error) || is_unreachable(&error) => {}
            Err(error) => return Err(Error::System(format!("sending failed after {number} packets: {error}"))),
        }
        Ok(())
    }
}

/// Receives, and returns the packets of a workload that is echoed, until a signal arrives. The kernel answers ICMP.
pub(super) fn receive(args: &ReceiveArgs, application: &Application) -> Result<(), Error> {
    let mut channel = if application.is_icmp() {
        Channel::icmp(args.listen, false)?
    } else {
        let socket = UdpSocket::bind(args.listen).or_system(format_args!("cannot listen on {}", args.listen))?;
        Channel::udp(socket)?
    };
    let returns = application.is_echoed() && !application.is_icmp();
    eprintln!("ready on {}", args.listen);
    become_realtime(Priority::Host);
    let (mut arrivals, mut bytes, mut connected) = (Arrivals::default(), 0, false);
    let mut ends = false;
    while !ends {
        // What came while the signal did is received too.
        ends = stopped();
        let longest_ns = if ends { 0 } else { LONGEST_WAIT_NS };
        if !wait_for([&channel.socket], Readiness::Readable, Some(longest_ns)) {
            continue;
        }
        if returns && !connected {
            let socket = &channel.socket;
            let (_, peer) = socket.peek_from(&mut [0; NUMBER]).or_system("receiving failed")?;
            socket.connect(peer).or_system(format_args!("cannot answer {peer}"))?;
            connected = true;
        }
        while let Some(packet) = channel.receive()? {
            if connected {
                let echo = channel.socket.send(&packet.payload);
                if let Err(error) = echo.as_ref().map_err(|error| error.kind()) {
                    log_lost_echo(packet.number, error);
                }
            }
            bytes += packet.payload.len() as u64;
            arrivals.add(packet.number, packet.at_ns);
        }
    }
    arrivals.write(args)?;
    let transport = TransportReport::default();
    reports::print(&LoadReceiveReport { bytes, payload_ok: true, streams: None, transport })
}

fn log_lost_echo(number: u64, error: io::ErrorKind) {
    eprintln!("packet {number} was not returned: {error}");
}

fn prepare(socket: &UdpSocket) -> Result<(), Error> {
    socket.set_nonblocking(true).or_system("cannot set up a socket")?;
    stamp_arrivals(socket).or_system("cannot time-stamp arrivals")?;
    set_receive_buffer(socket, 1 << 22).or_system("cannot enlarge the receive buffer")?;
    Ok(())
}

/// Whether a send reports what ICMP answered to an earlier packet.
fn is_unreachable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable
    )
}

struct Received {
    number: u64,
    payload: Vec<u8>,
    /// Arrival at the kernel, on CLOCK_MONOTONIC.
    at_ns: u64,
}

/// A socket, and the headers that it leaves to its user.
struct Channel {
    socket: UdpSocket,
    /// Of ICMP: version of IP, and the header that arriving messages have but for the sequence number.
    icmp: Option<(IpVersion, Echo)>,
    lead: RealtimeLead,
}

impl Channel {
    fn udp(socket: UdpSocket) -> Result<Channel, Error> {
        prepare(&socket)?;
        Ok(Channel { socket, icmp: None, lead: RealtimeLead::default() })
    }

    /// A raw socket for ICMP echoes, whose identifier is the port of `address`; `replies`: it receives replies, not
    /// requests. The kernel answers requests whether or not one is open.
    fn icmp(address: SocketAddr, replies: bool) -> Result<Channel, Error> {
        let ip = IpVersion::of(address.ip());
        let protocol = if ip.is_v4() { Protocol::ICMPV4 } else { Protocol::ICMPV6 };
        let socket = Socket::new(Domain::for_address(address), Type::RAW.nonblocking().cloexec(), Some(protocol))
            .map_err(|error| {
                Error::System(format!("cannot create a raw socket for ICMP: {error}; it needs CAP_NET_RAW"))
            })?;
        let socket = UdpSocket::from(socket);
        prepare(&socket)?;
        let expected = Echo { is_reply: replies, identifier: address.port(), sequence: 0 };
        Ok(Channel { socket, icmp: Some((ip, expected)), lead: RealtimeLead::default() })
    }

    fn send(&self, number: u64, payload: &[u8]) -> io::Result<()> {
        match self.icmp {
            None => self.socket.send(payload)?,
            Some((ip, expected)) => {
                let header = Echo { is_reply: false, sequence: number as u16, ..expected };
                self.socket.send(&[&header.header(ip, ones_sum(payload)), payload].concat())?
            }
        };
        Ok(())
    }

    /// The next packet of the workload; `None` if there is none now.
    fn receive(&mut self) -> Result<Option<Received>, Error> {
        let mut buffer = [0u8; 65_536];
        loop {
            let (length, stamp_ns) = match receive_stamped(&self.socket, &mut buffer) {
                Ok(received) => received,
                Err(error) if is_transient(&error) || is_unreachable(&error) => return Ok(None),
                Err(error) => return Err(Error::System(format!("receiving failed: {error}"))),
            };
            let Some(payload) = self.payload(&buffer[..length]) else { continue };
            let Some(number) = payload.first_chunk::<NUMBER>() else { continue };
            // The kernel stamps by the clock that may be set.
            let at_ns = stamp_ns.map_or_else(monotonic_ns, |stamp| self.lead.to_monotonic(stamp));
            return Ok(Some(Received { number: u64::from_be_bytes(*number), payload: payload.to_vec(), at_ns }));
        }
    }

    /// What a packet of the workload carries; `None` for other messages of ICMP.
    fn payload<'a>(&self, received: &'a [u8]) -> Option<&'a [u8]> {
        let Some((ip, expected)) = self.icmp else { return Some(received) };
        // Raw sockets give the IP header of IPv4 and not that of IPv6 (raw(7), RFC 3542 3).
        let at = if ip.is_v4() { usize::from(received.first()? & 0xf) * 4 } else { 0 };
        let message = received.get(at..)?;
        let echo = Echo::parse(ip, message)?;
        (Echo { sequence: 0, ..echo } == expected).then(|| &message[ECHO_HEADER..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_flows_own_messages_are_read() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let expected = Echo { is_reply: true, identifier: 7, sequence: 0 };
        for (ip, before) in [(IpVersion::V4, 24), (IpVersion::V6, 0)] {
            let lead = RealtimeLead::default();
            let channel = Channel { socket: socket.try_clone().unwrap(), icmp: Some((ip, expected)), lead };
            let received = |echo: Echo| {
                let mut message = vec![0x46; before];
                message.extend(echo.header(ip, 0));
                message.extend([1, 2]);
                message
            };
            let own = received(Echo { sequence: 65_535, ..expected });
            assert_eq!(channel.payload(&own), Some(&[1, 2][..]));
            for other in [Echo { is_reply: false, ..expected }, Echo { identifier: 8, ..expected }] {
                assert_eq!(channel.payload(&received(other)), None);
            }
            assert_eq!(channel.payload(&own[..before + 7]), None);
            assert_eq!(channel.payload(&[]), None);
        }
    }
}
