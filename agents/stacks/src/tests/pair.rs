//! Two endpoints in virtual time and the path between them.

use std::collections::BTreeMap;

use backchannel_core::ip::IpVersion;
use backchannel_core::packet::{FlowKey, Packet, TcpFlags};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::scenario::Options;
use backchannel_core::time::Time;
use backchannel_core::transport::Transport;

use crate::config::{stack_config, Config};
use crate::telemetry::SenderEvent;
use crate::wire::Segment;
use crate::{pattern, Connection, Content, SeqNumber, Source};

pub(crate) const MS: u64 = 1_000_000;

pub(crate) fn flow() -> FlowKey {
    flow_over(IpVersion::V4)
}

pub(crate) fn flow_over(ip: IpVersion) -> FlowKey {
    let address = |last| ip.address([10, 0, 0, last].into());
    FlowKey { src: address(1), dst: address(2), src_port: 4000, dst_port: 5001 }
}

pub(crate) fn stack(name: &str, options: &[(&str, serde_json::Value)]) -> Config {
    let options: Options = options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    stack_config(name, &options).expect("a good stack")
}

/// What the path does to packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) delay_ms: u64,
    pub(crate) jitter_ms: u64,
    pub(crate) loss: f64,
    pub(crate) twice: f64,
    pub(crate) damage: f64,
    /// Congestion marks, from the client and from the server.
    pub(crate) mark: [f64; 2],
    pub(crate) rate_bps: u64,
    /// What waits in front of the rate at most, in bytes.
    pub(crate) buffer_bytes: u64,
}

pub(crate) const CLEAN: Path = Path {
    delay_ms: 20,
    jitter_ms: 0,
    loss: 0.0,
    twice: 0.0,
    damage: 0.0,
    mark: [0.0; 2],
    rate_bps: 10_000_000,
    buffer_bytes: u64::MAX,
};

/// A client that sends to a server, in virtual time.
pub(crate) struct Pair {
    pub(crate) now: u64,
    pub(crate) ends: [Option<Connection>; 2],
    server: (Config, u32, Source),
    pub(crate) path: Path,
    rng: RunRng,
    /// Receiver and packet, by arrival time and number.
    in_flight: BTreeMap<(u64, u64), (usize, Packet)>,
    numbers: u64,
    free_at: [u64; 2],
    pub(crate) received: [Vec<u8>; 2],
    /// (time, from, segment) of everything sent.
    pub(crate) log: Vec<(u64, usize, Segment)>,
    /// Of each end: its first number, the right edge of the window that has reached it, its peer's window shift.
    first: [SeqNumber; 2],
    edge: [u64; 2],
    shift: [u8; 2],
    /// Packets to drop, by their number among those that the client sends.
    pub(crate) drop: Vec<usize>,
    sent: usize,
}

impl Pair {
    pub(crate) fn new(client: (Config, Source), server: (Config, Source), path: Path, seed: u64, isn: u32) -> Pair {
        Pair::over(IpVersion::V4, client, server, path, seed, isn)
    }

    pub(crate) fn over(
        ip: IpVersion,
        client: (Config, Source),
        server: (Config, Source),
        path: Path,
        seed: u64,
        isn: u32,
    ) -> Pair {
        Pair {
            now: 0,
            ends: [Some(Connection::connect(client.0, flow_over(ip), isn, client.1)), None],
            server: (server.0, isn.wrapping_mul(3), server.1),
            path,
            rng: rng::stream(seed, "path"),
            in_flight: BTreeMap::new(),
            numbers: 0,
            free_at: [0; 2],
            received: [Vec::new(), Vec::new()],
            log: Vec::new(),
            first: [SeqNumber(0); 2],
            edge: [0; 2],
            shift: [0; 2],
            drop: Vec::new(),
            sent: 0,
        }
    }

    pub(crate) fn bulk(name: &str, options: &[(&str, serde_json::Value)], bytes: u64, path: Path, seed: u64) -> Pair {
        let source = Source::new(Content::Pattern(seed), Some(bytes));
        let config = stack(name, options);
        Pair::new((config.clone(), source), (config, Source::silent()), path, seed, seed as u32)
    }

    fn transmit(&mut self) {
        let before = self.log.len();
        for from in 0..2 {
            while let Some(packet) = self.ends[from].as_mut().and_then(|end| end.poll_transmit(Time(self.now))) {
                self.watch(from, &packet);
                self.log.push((self.now, from, Segment::read(&packet).expect("we sent it")));
                assert!(self.log.len() - before < 10_000, "it sends without end: {:?}", self.log.last());
                self.send(from, packet);
            }
        }
    }

    /// What must hold for everything sent: no packet too long, nothing beyond the window that the peer has offered (but
    /// the one byte of a probe).
    fn watch(&mut self, from: usize, packet: &Packet) {
        let segment = Segment::read(packet).expect("we sent it");
        if segment.has(TcpFlags::SYN) {
            self.first[from] = segment.seq;
        }
        assert!(packet.len() <= self.server.0.packet_bytes, "{} bytes: {segment:?}", packet.len());
        let end = (segment.seq - self.first[from]) as u64 + u64::from(segment.payload);
        let probe = u64::from(segment.payload == 1);
        assert!(segment.payload == 0 || end <= self.edge[from] + probe, "{end} > {}: {segment:?}", self.edge[from]);
    }

    /// What reaches an end bounds what it may send.
    fn learn(&mut self, to: usize, packet: &Packet) {
        let Some(segment) = Segment::read(packet) else { return };
        let syn = segment.has(TcpFlags::SYN);
        if syn {
            self.shift[to] = segment.window_scale.unwrap_or(0);
            self.edge[to] = self.edge[to].max(1 + u64::from(segment.window));
        }
        if segment.has(TcpFlags::ACK) {
            let shift = if syn { 0 } else { self.shift[to] };
            let acked = (segment.ack - self.first[to]) as u64;
            self.edge[to] = self.edge[to].max(acked + (u64::from(segment.window) << shift));
        }
    }

    fn send(&mut self, from: usize, packet: Packet) {
        if from == 0 {
            self.sent += 1;
            if self.drop.contains(&self.sent) {
                return;
            }
        }
        let start = self.free_at[from].max(self.now);
        let waiting = u128::from(start - self.now) * u128::from(self.path.rate_bps) / 8_000_000_000;
        if waiting as u64 + u64::from(packet.len()) > self.path.buffer_bytes {
            return;
        }
        self.free_at[from] = start + u64::from(packet.len()) * 8 * 1_000_000_000 / self.path.rate_bps;
        if rng::uniform(&mut self.rng) < self.path.loss {
            return;
        }
        let copies = if rng::uniform(&mut self.rng) < self.path.twice { 2 } else { 1 };
        for _ in 0..copies {
            let jitter = (rng::uniform(&mut self.rng) * (self.path.jitter_ms * MS) as f64) as u64;
            let mut packet = packet.clone();
            if rng::uniform(&mut self.rng) < self.path.damage {
                packet.damage_checksum();
            }
            if self.path.mark[from] > 0.0 && rng::uniform(&mut self.rng) < self.path.mark[from] {
                packet.set_congestion_experienced();
            }
            self.numbers += 1;
            let at = self.free_at[from] + self.path.delay_ms * MS + jitter;
            self.in_flight.insert((at, self.numbers), (1 - from, packet));
        }
    }

    /// Advances to the next thing that happens; false when nothing will.
    pub(crate) fn step(&mut self) -> bool {
        self.transmit();
        let timer = self.ends.iter().flatten().filter_map(Transport::next_timeout).min().map(Time::nanos);
        let arrival = self.in_flight.keys().next().map(|&(at, _)| at);
        let Some(next) = [timer, arrival].into_iter().flatten().min() else { return false };
        self.now = self.now.max(next);
        if arrival.is_some_and(|at| at <= self.now) {
            let (_, (to, packet)) = self.in_flight.pop_first().expect("it was seen");
            self.arrive(to, &packet);
        } else {
            for end in self.ends.iter_mut().flatten() {
                if end.next_timeout().is_some_and(|at| at.nanos() <= self.now) {
                    end.on_timer(Time(self.now));
                }
            }
        }
        true
    }

    fn arrive(&mut self, to: usize, packet: &Packet) {
        self.learn(to, packet);
        if to == 1 && self.ends[1].is_none() {
            let (config, isn, source) = self.server.clone();
            let flow = packet.flow().expect("it is TCP").reversed();
            self.ends[1] = Connection::accept(config, flow, isn, source, packet);
            return;
        }
        let Some(end) = self.ends[to].as_mut() else { return };
        end.on_packet(Time(self.now), packet);
        for part in end.read() {
            self.received[to].extend(part.bytes);
            self.received[to].resize(self.received[to].len() + part.zeros as usize, 0);
        }
        // An application that only receives finishes when its peer has.
        if end.peer_finished() {
            end.finish();
        }
    }

    pub(crate) fn run(&mut self, limit_s: u64) {
        let mut steps = 0u64;
        while self.now < limit_s * 1_000_000_000 && steps < 5_000_000 && self.step() {
            steps += 1;
        }
    }

    pub(crate) fn client(&self) -> &Connection {
        self.ends[0].as_ref().expect("it is there from the start")
    }

    /// When the client first reported an event, in ns.
    pub(crate) fn client_event(&self, event: SenderEvent) -> u64 {
        let mut samples = self.client().samples().iter();
        samples.find(|sample| sample.event == event).expect("it was reported").at.nanos()
    }

    /// Seconds until the server had everything.
    pub(crate) fn last_data_s(&self) -> f64 {
        let last = self.log.iter().rev().find(|(_, from, segment)| *from == 0 && segment.payload > 0);
        last.map_or(0.0, |(at, ..)| *at as f64 * 1e-9)
    }
}

/// Where a stream differs from its pattern; in few words, for streams are long.
pub(crate) fn difference(received: &[u8], seed: u64, bytes: u64) -> Option<String> {
    let expected = pattern(seed, 0, received.len() as u64);
    if let Some(at) = received.iter().zip(&expected).position(|(here, there)| here != there) {
        return Some(format!("byte {at} is wrong"));
    }
    (received.len() as u64 != bytes).then(|| format!("{} bytes of {bytes}", received.len()))
}
