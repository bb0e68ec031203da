//! Connections of the research stack, TCP's or QUIC's, on a real interface.
//!
//! It sends and receives whole frames on an interface whose address the kernel has given up, so that the kernel neither
//! answers nor resets its connections. tcpdump captures them on the interface as it captures the kernel's.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use backchannel_core::ip::IpVersion;
use backchannel_core::packet::FlowKey;
use backchannel_core::rng;
use backchannel_core::telemetry::{FlowLine, FlowTelemetry};
use backchannel_core::time::Time;
use backchannel_core::transport::{Connections, End, Transport};
use backchannel_core::Error;
use backchannel_emulator::monotonic_ns;
use backchannel_emulator::os::clock::{cpu_s, realtime_ns};
use backchannel_emulator::os::packet_socket::Protocol;
use backchannel_quic::{AnyConfig, AnyConnection, AnyFactory};
use backchannel_stacks::{Content, Counts};
use backchannel_workloads::flow::Write;

use super::streams::{Progress, Streams, Tally};
use crate::host_interface::{Attachment, HostInterface};
use crate::payload::Check;
use crate::promptness::timer_late_ns;
use crate::reports::{ReceiveEnd, StackReport, TransportReport};
use crate::signals::LONGEST_WAIT_NS;

/// Frames that are processed before the application runs.
const BATCH: usize = 64;
/// Source ports of the connections that a program opens, which follow one another.
const FIRST_PORT: u64 = 10_000;
const PORTS: u64 = 50_000;
/// How far the first of them is from [`FIRST_PORT`], added to the flow's port.
const PORT_OFFSET: u64 = 20_000;

/// The connections of one end of a flow.
pub(super) struct Research {
    interface: HostInterface,
    connections: Connections<AnyFactory>,
    /// This end, with the flow's port.
    local: SocketAddr,
    peer: SocketAddr,
    /// Timer ticks are aligned to the start of the run (ton IV: 500 ms), on CLOCK_MONOTONIC.
    run_begins_ns: u64,
    /// The last instant that the connections were told, on the same clock.
    told_ns: u64,
    /// What the application has read of each connection that has not ended.
    reading: BTreeMap<FlowKey, Reading>,
    tally: Tally,
    /// Of connections that were removed.
    counts: Counts,
    /// At the sender: the file, and the start of the flow.
    telemetry: Option<(FlowTelemetry, Time)>,
    /// Names of the qlog files of QUIC.
    qlogs: Vec<String>,
}

struct Reading {
    check: Check,
    peer_finished: bool,
}

impl Research {
    /// `listens`: whether it accepts connections at its address.
    pub(super) fn open(
        config: AnyConfig,
        attachment: &Attachment,
        (local, peer): (SocketAddr, SocketAddr),
        listens: bool,
        seed: u64,
        qlog: Option<&Path>,
    ) -> Result<Research, Error> {
        if local.is_ipv4() != peer.is_ipv4() {
            return Err(format!("{local} and {peer} are not of one version of IP").into());
        }
        config.fits(IpVersion::of(local.ip()))?;
        // It differs from flow to flow and from end to end.
        let mut draws = rng::stream(seed, &format!("isn/{local}"));
        let initial = (rng::uniform(&mut draws) * f64::from(u32::MAX)) as u32;
        let protocol = match config {
            AnyConfig::Tcp(_) => Protocol::Tcp,
            AnyConfig::Quic(_) => Protocol::Udp,
        };
        let factory = AnyFactory::new(config, Content::Pattern(seed), initial);
        let factory = match qlog {
            Some(prefix) => factory.logging(prefix.to_owned()),
            None => factory,
        };
        Ok(Research {
            interface: HostInterface::open(attachment, protocol, local)?,
            connections: Connections::new(factory, listens.then_some(local.port())),
            local,
            peer,
            run_begins_ns: monotonic_ns(),
            told_ns: 0,
            reading: BTreeMap::new(),
            tally: Tally::new(seed),
            counts: Counts::default(),
            telemetry: None,
            qlogs: Vec::new(),
        })
    }

    /// For the sending end: the state of senders goes to a file, with times since `start`.
    pub(super) fn recording(mut self, file: &Path, run_begins_ns: u64, start: Time) -> Result<Research, Error> {
        self.run_begins_ns = run_begins_ns;
        self.telemetry = Some((FlowTelemetry::create(file)?, start));
        Ok(self)
    }

    /// Time since the start of the run.
    fn since_start(&self, now_ns: u64) -> Time {
        Time(now_ns.saturating_sub(self.run_begins_ns))
    }

    fn total_counts(&mut self) -> Counts {
        let mut counts = self.counts;
        self.connections.iter_mut().for_each(|(_, connection)| counts += connection.counts());
        counts
    }

    /// Waits for the next frame, timer or `until_ns`, and passes frames and timers to the connections. It reads clocks
    /// as rarely as it can, because in virtual time that is a system call of 15 us.
    fn step(&mut self, until_ns: u64) -> Result<(), Error> {
        let from_ns = monotonic_ns();
        self.transmit_all(from_ns)?;
        let timer = self.connections.next_timeout().map(|at| self.run_begins_ns + at.nanos());
        let mut now_ns = self.interface.wait(from_ns, timer.map_or(until_ns, |at| at.min(until_ns)));
        if let Some(late_ns) = timer.and_then(|due_ns| timer_late_ns(due_ns, self.told_ns, now_ns)) {
            self.interface.lateness.add(late_ns);
        }
        // In batches: the caller checks clocks and signals between them, however fast the frames arrive.
        for _ in 0..BATCH {
            let Some(packet) = self.interface.read()? else { break };
            let arrival_ns = monotonic_ns();
            let Some((flow, is_new)) = self.connections.on_packet(self.since_start(arrival_ns), &packet) else {
                continue;
            };
            now_ns = arrival_ns;
            if let Some(arrived_ns) = self.interface.arrived_ns {
                self.interface.lateness.add(realtime_ns().saturating_sub(arrived_ns));
            }
            let now = self.since_start(now_ns);
            let connection = self.connections.get_mut(&flow).expect("it has just received a packet");
            if is_new {
                connection.ignore_samples();
                self.reading.insert(flow, Reading { check: self.tally.open(), peer_finished: false });
            }
            transmit(&mut self.interface, connection, now)?;
        }
        let now = self.since_start(now_ns);
        for (_, connection) in self.connections.iter_mut() {
            if connection.next_timeout().is_some_and(|due| due <= now) {
                connection.on_timer(now);
            }
        }
        self.told_ns = now_ns;
        self.transmit_all(now_ns)
    }

    fn transmit_all(&mut self, now_ns: u64) -> Result<(), Error> {
        let now = self.since_start(now_ns);
        for (_, connection) in self.connections.iter_mut() {
            transmit(&mut self.interface, connection, now)?;
        }
        Ok(())
    }

    /// Reads what has arrived and takes telemetry.
    fn read(&mut self) -> Result<Vec<Progress<FlowKey>>, Error> {
        let mut progress = Vec::new();
        for (flow, connection) in self.connections.iter_mut() {
            if let Some((file, start)) = &mut self.telemetry {
                let mut result = Ok(());
                connection.sample(&mut |at, sample| {
                    if result.is_ok() {
                        result = file.write(&FlowLine { t_ns: at.since(*start).as_nanos() as u64, sample });
                    }
                });
                result?;
            }
            let Some(reading) = self.reading.get_mut(flow) else { continue };
            let before = reading.check.bytes;
            for chunk in connection.read() {
                // A real packet's zeros are stored, too.
                reading.check.check(&chunk.bytes);
            }
            let ended = !reading.peer_finished && connection.peer_finished();
            reading.peer_finished |= ended;
            progress.extend(Progress::since(before, *flow, &reading.check, ended));
        }
        Ok(progress)
    }

    /// The application has nothing more to read from a connection.
    fn stop_reading(&mut self, flow: &FlowKey, acknowledged: u64, end: Option<End>) {
        let Some(reading) = self.reading.remove(flow) else { return };
        let end = match end {
            Some(End::Finished) => ReceiveEnd::Finished,
            Some(End::Reset) => ReceiveEnd::Reset,
            Some(End::TimedOut) => ReceiveEnd::TimedOut,
            Some(End::Aborted) | None => ReceiveEnd::Stopped,
        };
        self.tally.add(reading.check, acknowledged, end);
    }
}

/// Sends everything that a connection has to send now and the interface has room for.
///
/// One instant for all of it, as in virtual time, because what is sent at one instant is a burst (asym 6.3).
fn transmit(interface: &mut HostInterface, connection: &mut AnyConnection, now: Time) -> Result<(), Error> {
    while interface.has_room()? {
        let Some(packet) = connection.poll_transmit(now) else { break };
        interface.send(&packet)?;
    }
    Ok(())
}

impl Streams for Research {
    type Id = FlowKey;
    const NEEDS_START: bool = true;

    fn on_start(&mut self, run_begins_ns: u64) {
        self.run_begins_ns = run_begins_ns;
    }

    fn connect(&mut self) -> Result<FlowKey, Error> {
        let port = FIRST_PORT + (u64::from(self.local.port()) + PORT_OFFSET + self.tally.opened) % PORTS;
        let flow =
            FlowKey { src: self.local.ip(), dst: self.peer.ip(), src_port: port as u16, dst_port: self.peer.port() };
        let now = self.since_start(monotonic_ns());
        let connection = self.connections.connect(now, flow);
        if self.telemetry.is_none() {
            connection.ignore_samples();
        }
        self.reading.insert(flow, Reading { check: self.tally.open(), peer_finished: false });
        Ok(flow)
    }

    fn write(&mut self, flow: FlowKey, next: Write) -> Result<(), Error> {
        if let Some(connection) = self.connections.get_mut(&flow) {
            connection.write(next.bytes);
            if next.finishes {
                connection.finish();
            }
        }
        Ok(())
    }

    fn key(&self, flow: FlowKey) -> u16 {
        if flow.src_port == self.local.port() {
            flow.dst_port
        } else {
            flow.src_port
        }
    }

    fn wait(&mut self, until_ns: Option<u64>) -> Result<Vec<Progress<FlowKey>>, Error> {
        self.step(until_ns.unwrap_or_else(|| monotonic_ns() + LONGEST_WAIT_NS))?;
        self.read()
    }

    /// An application closes when its peer has. A connection that has ended may still have packets to answer.
    fn drop_ended(&mut self) {
        let mut ended = Vec::new();
        for (flow, connection) in self.connections.iter_mut() {
            if connection.peer_finished() {
                connection.finish();
            }
            if connection.end().is_some() {
                ended.push((*flow, connection.acknowledged(), connection.end()));
            }
        }
        for (flow, acknowledged, end) in ended {
            self.stop_reading(&flow, acknowledged, end);
        }
        for (_, connection) in self.connections.remove_closed() {
            self.counts += connection.counts();
        }
    }

    fn is_empty(&self) -> bool {
        self.reading.is_empty()
    }

    fn has_connected(&mut self) -> bool {
        self.total_counts().received > 0
    }

    /// Peers receive no reset while the interface is full.
    fn abort(&mut self) -> Result<(), Error> {
        self.interface.discard_waiting();
        for (_, connection) in self.connections.iter_mut() {
            connection.abort();
        }
        self.transmit_all(monotonic_ns())?;
        self.drop_ended();
        Ok(())
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn report(&mut self) -> Result<TransportReport, Error> {
        self.telemetry.take().map_or(Ok(()), |(file, _)| file.finish())?;
        self.connections.iter_mut().try_for_each(|(_, connection)| connection.flush_log())?;
        self.qlogs.extend(self.connections.factory_mut().take_logs()?);
        let counts = self.total_counts();
        let stack = StackReport {
            segments_sent: counts.sent,
            segments_received: counts.received,
            segments_refused: counts.refused,
            retransmitted: counts.retransmitted,
            coarse_timeouts: counts.timeouts,
            fast_retransmits: counts.fast_retransmits,
            duplicate_acks: counts.duplicate_acks,
            lateness_s: self.interface.lateness.report(),
            cpu_s: cpu_s(),
        };
        Ok(TransportReport { stack: Some(stack), qlogs: self.qlogs.clone(), ..TransportReport::default() })
    }
}
