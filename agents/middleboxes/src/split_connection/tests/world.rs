//! A fixed host, the middlebox, a mobile host, and the hops between them, in virtual time.

use super::*;

/// What a hop does to packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    pub(super) delay_ms: u64,
    pub(super) jitter_ms: u64,
    pub(super) loss: f64,
    pub(super) twice: f64,
    pub(super) damage: f64,
}

pub(super) const CLEAN: Hop = Hop { delay_ms: 5, jitter_ms: 0, loss: 0.0, twice: 0.0, damage: 0.0 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    Host(usize),
    Box(Side),
}

/// A fixed host, the box, a mobile host, and the hops between them.
pub(super) struct World {
    pub(super) now: Time,
    pub(super) hosts: [Option<Connection>; 2],
    /// Of each host: what it answers a SYN with.
    pub(super) listens: [Option<(Config, u32, Source)>; 2],
    pub(super) split: SplitConnection,
    pub(super) hops: [Hop; 2],
    rng: RunRng,
    flying: BTreeMap<(u64, u64), (Destination, Packet)>,
    numbers: u64,
    /// Data segments over the air that are lost, counted from 1.
    pub(super) lose: Vec<usize>,
    pub(super) on_air: usize,
    seeds: [u64; 2],
    pub(super) received: [u64; 2],
    pub(super) most_in_use: u64,
    pub(super) log: Vec<(u64, &'static str, Segment)>,
    pub(super) links: Vec<(Side, Option<[u8; 14]>)>,
    pub(super) told: Vec<SenderState>,
    /// Retransmissions over the air that the box reports.
    pub(super) reported_again: usize,
}

impl World {
    pub(super) fn new(split: SplitConnection, client: Connection, opener: usize, hops: [Hop; 2], seed: u64) -> World {
        let mut hosts = [None, None];
        hosts[opener] = Some(client);
        World {
            now: Time::ZERO,
            hosts,
            listens: [None, None],
            split,
            hops,
            rng: rng::stream(seed, "hops"),
            flying: BTreeMap::new(),
            numbers: 0,
            lose: Vec::new(),
            on_air: 0,
            seeds: [seed, seed ^ 1],
            received: [0; 2],
            most_in_use: 0,
            log: Vec::new(),
            links: Vec::new(),
            told: Vec::new(),
            reported_again: 0,
        }
    }

    /// The fixed host sends `bytes`, the mobile host receives them.
    pub(super) fn bulk(split: SplitConnection, config: &Config, bytes: u64, hops: [Hop; 2], seed: u64) -> World {
        let source = Source::new(Content::Pattern(seed), Some(bytes));
        World::bulk_over(flow(), split, config, source, hops, seed)
    }

    /// The fixed host sends what `source` has, over the version of IP that the addresses of `flow` have.
    pub(super) fn bulk_over(
        flow: FlowKey,
        split: SplitConnection,
        config: &Config,
        source: Source,
        hops: [Hop; 2],
        seed: u64,
    ) -> World {
        let client = Connection::connect(config.clone(), flow, 1000, source);
        let mut world = World::new(split, client, 0, hops, seed);
        world.listens[1] = Some((config.clone(), 77_000, Source::silent()));
        world
    }

    fn fly(&mut self, who: &'static str, hop: usize, to: Destination, packet: Packet) {
        // A SYN that was damaged before the box passes it.
        let segment = Segment::read_damaged(&packet).expect("it is TCP");
        if let (1, true) = (hop, segment.payload > 0 && matches!(to, Destination::Host(1))) {
            self.on_air += 1;
            if self.lose.contains(&self.on_air) {
                self.log.push((self.now.nanos(), "lost", segment));
                return;
            }
        }
        self.log.push((self.now.nanos(), who, segment));
        assert!(self.log.len() < 400_000, "it sends without end: {:?}", self.log.last());
        let Hop { delay_ms, jitter_ms, loss, twice, damage } = self.hops[hop];
        if rng::uniform(&mut self.rng) < loss {
            return;
        }
        for _ in 0..if rng::uniform(&mut self.rng) < twice { 2 } else { 1 } {
            let jitter = (rng::uniform(&mut self.rng) * (jitter_ms * MS) as f64) as u64;
            let mut packet = packet.clone();
            if rng::uniform(&mut self.rng) < damage && packet.checksum_ok() {
                packet.damage_checksum();
            }
            self.numbers += 1;
            let at = self.now.nanos() + delay_ms * MS + jitter;
            self.flying.insert((at, self.numbers), (to, packet));
        }
    }

    fn box_speaks(&mut self, out: Vec<(Side, Packet)>) {
        for (side, packet) in out {
            self.links.push((side, packet.link_header()));
            let who = if side == Side::A { "box-a" } else { "box-b" };
            self.fly(who, number(side), Destination::Host(number(side)), packet);
        }
        for host in self.split.pairs.values().flat_map(|pair| &pair.hosts) {
            if let Some(part) = &host.part {
                self.most_in_use = self.most_in_use.max(part.in_use().0);
            }
        }
        // What a part keeps for its host is what the other one was lent and has not got back.
        for pair in self.split.pairs.values().filter(|pair| !pair.ended()) {
            if let [HostSide { part: Some(a), .. }, HostSide { part: Some(b), .. }] = &pair.hosts {
                assert!(b.in_use().1 <= a.in_use().0 && a.in_use().1 <= b.in_use().0);
            }
        }
    }

    fn hosts_speak(&mut self) {
        for host in 0..2 {
            let Some(mut connection) = self.hosts[host].take() else { continue };
            for part in connection.read() {
                let from = self.received[host];
                let mut bytes = part.bytes.clone();
                bytes.resize(part.len() as usize, 0);
                let expected = pattern(self.seeds[1 - host], from, part.len());
                assert!(bytes == expected, "of {} bytes from {from} on one is wrong", bytes.len());
                self.received[host] += part.bytes.len() as u64 + part.zeros;
            }
            if connection.peer_finished() {
                connection.finish();
            }
            while let Some(mut packet) = connection.poll_transmit(self.now) {
                let mut header = [0; 14];
                header[..6].fill(1 - host as u8);
                header[6..12].fill(host as u8);
                packet.set_link_header(header);
                let side = [Side::A, Side::B][host];
                self.fly(["fixed", "mobile"][host], host, Destination::Box(side), packet);
            }
            self.hosts[host] = Some(connection);
        }
    }

    /// Advances to the next thing that happens; false when nothing will.
    pub(super) fn step(&mut self) -> bool {
        self.hosts_speak();
        let timers = self.hosts.iter().flatten().filter_map(Transport::next_timeout).min();
        let timer = [timers, self.split.next_event()].into_iter().flatten().min();
        let arrival = self.flying.keys().next().map(|&(at, _)| Time(at));
        let Some(next) = [timer, arrival].into_iter().flatten().min() else { return false };
        assert!(next >= self.now || timer.is_some(), "time runs backwards");
        self.now = self.now.max(next);
        let now = self.now;
        for host in self.hosts.iter_mut().flatten() {
            if host.next_timeout().is_some_and(|due| due <= now) {
                host.on_timer(now);
            }
        }
        let mut events = Events::default();
        let mut out = Vec::new();
        self.split.poll(now, &mut out, &mut events);
        if arrival == Some(next) {
            let (_, (to, packet)) = self.flying.pop_first().expect("it is under way");
            match to {
                Destination::Box(side) => self.split.process(now, side, packet, &mut out, &mut events),
                Destination::Host(host) => self.arrive(host, &packet),
            }
        }
        self.reported_again += events.count(EventKind::LinkRetransmit);
        self.told.append(&mut events.senders);
        self.box_speaks(out);
        true
    }

    fn arrive(&mut self, host: usize, packet: &Packet) {
        match (&mut self.hosts[host], &self.listens[host]) {
            (Some(connection), _) => connection.on_packet(self.now, packet),
            (None, Some((config, iss, source))) => {
                let back = packet.flow().expect("it is TCP").reversed();
                self.hosts[host] = Connection::accept(config.clone(), back, *iss, source.clone(), packet);
            }
            (None, None) => {
                if let Some(reset) = reset_for(0, packet) {
                    self.fly(["fixed", "mobile"][host], host, Destination::Box([Side::A, Side::B][host]), reset);
                }
            }
        }
    }

    /// Until nothing happens, or this time.
    pub(super) fn run(&mut self, until_s: f64) {
        while self.now < Time::from_seconds(until_s) && self.step() {}
    }

    pub(super) fn end(&self, host: usize) -> Option<End> {
        self.hosts[host].as_ref().and_then(Connection::end)
    }

    /// Everything sent, a line each; numbers count from each host's SYN, on whichever part.
    pub(super) fn transcript(&self) -> String {
        let mut text = String::new();
        for (at, who, segment) in &self.log {
            let forward = matches!(*who, "fixed" | "box-b" | "lost");
            let (own, peer) = if forward { (1000, 77_000) } else { (77_000, 1000) };
            let seq = segment.seq.0.wrapping_sub(own);
            let flags: String = [(TcpFlags::SYN, 'S'), (TcpFlags::FIN, 'F'), (TcpFlags::RST, 'R')]
                .iter()
                .filter(|(mask, _)| segment.has(*mask))
                .map(|(_, letter)| *letter)
                .collect();
            let flags = if flags.is_empty() { "." } else { &flags };
            let _ = write!(text, "{:.3} {who:<6} {flags} {seq}:{}", *at as f64 / 1e9, seq + segment.payload);
            if segment.has(TcpFlags::ACK) {
                let _ = write!(text, " ack {}", segment.ack.0.wrapping_sub(peer));
            }
            let _ = write!(text, " win {}", segment.window);
            if let Some(mss) = segment.mss {
                let _ = write!(text, " mss {mss}");
            }
            text.push('\n');
        }
        text
    }
}
