use super::*;
use std::fmt::Write as _;

use backchannel_core::packet::build;
use backchannel_core::rng::{self, RunRng};
use backchannel_stacks::{pattern, Content};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn flow() -> FlowKey {
    FlowKey { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), src_port: 4000, dst_port: 5001 }
}

fn options(value: serde_json::Value) -> Options {
    serde_json::from_value(value).unwrap()
}

fn split(entry: &Entry, given: serde_json::Value) -> SplitConnection {
    SplitConnection::new(&Given::check(entry, &options(given)).unwrap())
}

fn stack(name: &str, given: serde_json::Value) -> Config {
    stack_config(name, &options(given)).unwrap()
}

/// What a hop does to packets.
#[derive(Clone, Copy, Debug)]
struct Hop {
    delay_ms: u64,
    jitter_ms: u64,
    loss: f64,
    twice: f64,
    damage: f64,
}

const CLEAN: Hop = Hop { delay_ms: 5, jitter_ms: 0, loss: 0.0, twice: 0.0, damage: 0.0 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Host(usize),
    Box(Side),
}

/// A fixed host, the box, a mobile host, and the hops between them.
struct World {
    now: Time,
    hosts: [Option<Connection>; 2],
    /// Of each host: what it answers a SYN with.
    listens: [Option<(Config, u32, Source)>; 2],
    split: SplitConnection,
    hops: [Hop; 2],
    rng: RunRng,
    flying: BTreeMap<(u64, u64), (Place, Packet)>,
    numbers: u64,
    /// Data segments over the air that are lost, counted from 1.
    lose: Vec<usize>,
    on_air: usize,
    seeds: [u64; 2],
    received: [u64; 2],
    most_in_use: u64,
    log: Vec<(u64, &'static str, Segment)>,
    links: Vec<(Side, Option<[u8; 14]>)>,
    told: Vec<SenderState>,
}

impl World {
    fn new(split: SplitConnection, client: Connection, opener: usize, hops: [Hop; 2], seed: u64) -> World {
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
        }
    }

    /// The fixed host sends `bytes`, the mobile host receives them.
    fn bulk(split: SplitConnection, config: &Config, bytes: u64, hops: [Hop; 2], seed: u64) -> World {
        let source = Source::new(Content::Pattern(seed), Some(bytes));
        let client = Connection::connect(config.clone(), flow(), 1000, source);
        let mut world = World::new(split, client, 0, hops, seed);
        world.listens[1] = Some((config.clone(), 77_000, Source::silent()));
        world
    }

    fn fly(&mut self, who: &'static str, hop: usize, to: Place, packet: Packet) {
        // A SYN that was damaged before the box passes it.
        let segment = Segment::read_damaged(&packet).expect("it is TCP");
        if let (1, true) = (hop, segment.payload > 0 && matches!(to, Place::Host(1))) {
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
            self.fly(who, number(side), Place::Host(number(side)), packet);
        }
        for face in self.split.pairs.values().flat_map(|pair| &pair.faces) {
            if let Some(part) = &face.part {
                self.most_in_use = self.most_in_use.max(part.in_use().0);
            }
        }
        // What a part keeps for its host is what the other one was lent and has not got back.
        for pair in self.split.pairs.values().filter(|pair| !pair.ended()) {
            if let [Face { part: Some(a), .. }, Face { part: Some(b), .. }] = &pair.faces {
                assert!(b.in_use().1 <= a.in_use().0 && a.in_use().1 <= b.in_use().0);
            }
        }
    }

    fn hosts_speak(&mut self) {
        for host in 0..2 {
            let Some(mut connection) = self.hosts[host].take() else { continue };
            for part in connection.read() {
                let from = self.received[host];
                let bytes = part.bytes.iter().copied().chain((0..part.zeros).map(|_| 0));
                for (at, byte) in (from..).zip(bytes) {
                    assert_eq!(byte, pattern(self.seeds[1 - host], at), "byte {at}");
                }
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
                self.fly(["fixed", "mobile"][host], host, Place::Box(side), packet);
            }
            self.hosts[host] = Some(connection);
        }
    }

    /// Advances to the next thing that happens; false when nothing will.
    fn step(&mut self) -> bool {
        self.hosts_speak();
        let timers = self.hosts.iter().flatten().filter_map(Endpoint::next_timeout).min();
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
                Place::Box(side) => self.split.process(now, side, packet, &mut out, &mut events),
                Place::Host(host) => self.arrive(host, &packet),
            }
        }
        self.told.append(&mut events.senders);
        self.box_speaks(out);
        true
    }

    fn arrive(&mut self, host: usize, packet: &Packet) {
        match (&mut self.hosts[host], &self.listens[host]) {
            (Some(connection), _) => connection.on_segment(self.now, packet),
            (None, Some((config, iss, source))) => {
                let back = if host == 0 { flow() } else { flow().reversed() };
                self.hosts[host] = Connection::accept(config.clone(), back, *iss, source.clone(), packet);
            }
            (None, None) => {
                if let Some(reset) = reset_for(0, packet) {
                    self.fly(["fixed", "mobile"][host], host, Place::Box([Side::A, Side::B][host]), reset);
                }
            }
        }
    }

    /// Until nothing happens, or this time.
    fn run(&mut self, until_s: f64) {
        while self.now < Time::from_seconds(until_s) && self.step() {}
    }

    fn end(&self, host: usize) -> Option<End> {
        self.hosts[host].as_ref().and_then(Connection::end)
    }

    /// Everything sent, a line each; numbers count from each host's SYN, on whichever part.
    fn transcript(&self) -> String {
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

fn plain() -> Config {
    stack(
        "reno-bsd",
        serde_json::json!({"timestamps": false, "window_scaling": false, "packet_bytes": 1040, "time_wait_s": 1}),
    )
}

#[test]
fn the_choices_are_all_the_stacks() {
    let all: Vec<_> = backchannel_stacks::config::entries().iter().map(|entry| entry.name).collect();
    assert_eq!(STACKS, all);
    for stack in all {
        split(&SPLIT_SMART, serde_json::json!({"wired": stack, "wireless": stack, "buffer_bytes": 4096}));
    }
}

#[test]
fn the_parameters_are_the_papers() {
    let [wired, wireless] = split(&SPLIT, serde_json::json!({})).configs;
    assert_eq!((wired.receive_buffer_bytes, wired.sack, wireless.sack), (65_536, false, false));
    assert!(split(&SPLIT_SMART, serde_json::json!({})).configs[1].sack);
}

/// 12 000 bytes through 4096 of buffer, of which the air loses the third: `golden/split.txt`, to be read beside ton IV-D.
#[test]
fn golden_trace_of_a_loss_on_the_air() {
    let given = serde_json::json!({"buffer_bytes": 4096});
    let mut world = World::bulk(split(&SPLIT, given), &plain(), 12_000, [CLEAN; 2], 7);
    world.lose = vec![3];
    world.run(100.0);
    assert_eq!((world.received, world.end(0), world.end(1)), ([0, 12_000], Some(End::Finished), Some(End::Finished)));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/golden/split.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(file, world.transcript()).unwrap();
    }
    let golden = std::fs::read_to_string(file).unwrap();
    for (number, (is, was)) in world.transcript().lines().zip(golden.lines()).enumerate() {
        assert_eq!(is, was, "line {} (BLESS=1 writes the file)", number + 1);
    }
    assert_eq!(world.transcript().lines().count(), golden.lines().count());
}

#[test]
fn a_host_that_does_not_read_stops_the_other_one_at_the_bound() {
    let config = Config { receive_buffer_bytes: 8000, ..plain() };
    let mut world = World::bulk(split(&SPLIT, serde_json::json!({})), &config, 400_000, [CLEAN; 2], 7);
    world.run(0.1);
    world.hosts[1].as_mut().unwrap().set_reading(false);
    world.run(60.0);
    assert_eq!(world.most_in_use, 65_536);
    let sent = world.log.iter().filter(|(_, who, _)| *who == "fixed").map(|(_, _, one)| one.seq.0 - 1000).max();
    assert!(sent.unwrap() < 65_536 + 8000 + 30_000, "it stopped");
    let told = world.log.iter().filter(|(_, who, _)| *who == "box-a").map(|(_, _, one)| one.window).next_back();
    assert_eq!(told, Some(0));
    world.hosts[1].as_mut().unwrap().set_reading(true);
    world.run(400.0);
    assert_eq!((world.received[1], world.end(0)), (400_000, Some(End::Finished)));
    assert_eq!(world.hosts[0].as_ref().unwrap().counts().retransmitted, 0, "a closed window loses nothing");
}

#[test]
fn losses_on_the_air_are_the_boxs_affair() {
    let hop = Hop { loss: 0.05, ..CLEAN };
    let mut world = World::bulk(split(&SPLIT_SMART, serde_json::json!({})), &plain(), 300_000, [CLEAN, hop], 3);
    world.run(600.0);
    assert_eq!((world.received[1], world.end(0)), (300_000, Some(End::Finished)));
    let counts = world.hosts[0].as_ref().unwrap().counts();
    assert_eq!((counts.retransmitted, counts.timeouts, counts.duplicate_acks), (0, 0, 0));
}

#[test]
fn what_happens_to_the_wireless_part_is_told() {
    let mut world =
        World::bulk(split(&SPLIT, serde_json::json!({"buffer_bytes": 4096})), &plain(), 12_000, [CLEAN; 2], 7);
    world.lose = vec![3];
    world.run(100.0);
    let told: Vec<_> = world.told.iter().filter(|one| one.sample.event.name() == "coarse_timeout").collect();
    assert_eq!(
        (told.len(), world.told.iter().filter(|one| one.sample.event.name() == "fast_retransmit").count()),
        (1, 0)
    );
    assert_eq!(
        (told[0].at, told[0].part, told[0].onto_link, told[0].flow),
        (Time(1500 * MS), "wireless", true, flow())
    );
    assert_eq!((told[0].sample.cwnd_segments, told[0].sample.ssthresh_segments), (1.0, Some(2.0)));
    assert!(world.told.windows(2).all(|two| two[0].at <= two[1].at));
}

#[test]
fn smart_needs_fewer_timeouts_than_reno_on_the_air() {
    let hop = Hop { loss: 0.03, ..CLEAN };
    let time = |entry| {
        let smart = stack("smart", serde_json::json!({"timestamps": false, "time_wait_s": 1}));
        let mut world = World::bulk(split(entry, serde_json::json!({})), &smart, 1_000_000, [CLEAN, hop], 3);
        while world.received[1] < 1_000_000 && world.step() {}
        world.now.seconds()
    };
    assert!(time(&SPLIT_SMART) * 2.0 < time(&SPLIT));
}

#[test]
fn the_mobile_host_may_open_and_both_may_send() {
    let up = Source::new(Content::Pattern(8 ^ 1), Some(50_000));
    let mobile = Connection::connect(plain(), flow().reversed(), 77_000, up);
    let mut world = World::new(split(&SPLIT, serde_json::json!({})), mobile, 1, [CLEAN; 2], 8);
    world.listens[0] = Some((plain(), 1000, Source::new(Content::Pattern(8), Some(70_000))));
    world.run(100.0);
    assert_eq!(
        (world.received, world.end(0), world.end(1)),
        ([50_000, 70_000], Some(End::Finished), Some(End::Finished))
    );
    // Who opened it cannot be told from the ports, addresses and numbers either.
    assert!(world.transcript().starts_with("0.000 mobile S 0:0"));
}

#[test]
fn one_direction_may_end_long_before_the_other() {
    let mut world = World::bulk(split(&SPLIT, serde_json::json!({})), &plain(), 5000, [CLEAN; 2], 8);
    world.listens[1] = Some((plain(), 77_000, Source::new(Content::Pattern(8 ^ 1), Some(500_000))));
    world.run(100.0);
    assert_eq!(
        (world.received, world.end(0), world.end(1)),
        ([500_000, 5000], Some(End::Finished), Some(End::Finished))
    );
}

#[test]
fn a_refusal_is_passed_on_and_nobody_is_not_answered_for() {
    let mut refused = World::bulk(split(&SPLIT, serde_json::json!({})), &plain(), 5000, [CLEAN; 2], 8);
    refused.listens[1] = None;
    refused.run(100.0);
    assert_eq!((refused.end(0), refused.now), (Some(End::Reset), Time(20 * MS)));
    let mut silent =
        World::bulk(split(&SPLIT, serde_json::json!({})), &plain(), 5000, [CLEAN, Hop { loss: 1.0, ..CLEAN }], 8);
    silent.run(1000.0);
    assert_eq!(silent.end(0), Some(End::TimedOut));
    assert!(silent.log.iter().all(|(_, who, _)| *who != "box-a"));
}

#[test]
fn a_reset_of_either_host_reaches_the_other() {
    for (who, other) in [(0, 1), (1, 0)] {
        let mut world = World::bulk(split(&SPLIT, serde_json::json!({})), &plain(), 4_000_000, [CLEAN; 2], 5);
        world.run(0.6);
        world.hosts[who].as_mut().unwrap().abort();
        world.run(300.0);
        assert_eq!(world.end(other), Some(End::Reset), "of host {who}");
        assert!(world.split.pairs.values().all(|pair| pair.over.is_some()));
    }
}

/// A reset behind lost data is not the next number, and is challenged (RFC 5961 3.2): what has ended answers for itself.
#[test]
fn a_reset_that_is_challenged_is_sent_again() {
    let mut world = World::bulk(split(&SPLIT, serde_json::json!({})), &plain(), 4_000_000, [CLEAN; 2], 5);
    world.lose = vec![40];
    while world.on_air < 43 {
        assert!(world.step());
    }
    world.hosts[0].as_mut().unwrap().abort();
    world.run(world.now.seconds() + 1.0);
    let resets = world.log.iter().filter(|(_, who, one)| *who == "box-b" && one.has(TcpFlags::RST)).count();
    assert_eq!((resets > 1, world.end(1)), (true, Some(End::Reset)));
}

#[test]
fn a_host_that_has_gone_is_a_reset_to_the_other() {
    let mut world = World::bulk(split(&SPLIT, serde_json::json!({})), &plain(), 4_000_000, [CLEAN; 2], 5);
    world.run(1.0);
    world.hops[1].loss = 1.0;
    world.run(2000.0);
    assert_eq!(world.end(0), Some(End::Reset));
}

#[test]
fn a_new_connection_between_the_same_ports_is_a_new_pair() {
    let mut world = World::bulk(split(&SPLIT, serde_json::json!({})), &plain(), 5000, [CLEAN; 2], 8);
    world.run(2.0);
    assert_eq!(world.received[1], 5000);
    let again = Source::new(Content::Pattern(8), Some(6000));
    world.hosts = [Some(Connection::connect(plain(), flow(), 500_000_000, again)), None];
    world.received = [0; 2];
    world.run(100.0);
    assert_eq!((world.received[1], world.split.pairs.len()), (6000, 1));
}

#[test]
fn pairs_that_are_over_are_forgotten() {
    let mut split = split(&SPLIT, serde_json::json!({}));
    let open = |split: &mut SplitConnection, at_s: f64, port: u16| {
        let (mut out, mut events) = (Vec::new(), Events::default());
        let now = Time::from_seconds(at_s);
        let syn = Segment { seq: 5.into(), flags: TcpFlags::SYN, ..Segment::default() };
        split.process(now, Side::A, syn.packet(1, FlowKey { src_port: port, ..flow() }, &[]), &mut out, &mut events);
        // Refused.
        let rst = reset_for(2, &out[0].1).unwrap();
        split.process(now, Side::B, rst, &mut out, &mut events);
        assert_eq!(out.iter().map(|(side, _)| *side).collect::<Vec<_>>(), [Side::B, Side::A]);
    };
    (0..10).for_each(|port| open(&mut split, 1.0, port));
    assert_eq!((split.pairs.len(), split.next_event()), (10, None));
    open(&mut split, 62.0, 10);
    assert_eq!(split.pairs.len(), 1);
}

#[test]
fn what_is_no_connection_of_the_boxs_passes() {
    let mut split = split(&SPLIT, serde_json::json!({}));
    let mut damaged = Segment { flags: TcpFlags::SYN, ..Segment::default() }.packet(4, flow(), &[]);
    damaged.damage_checksum();
    for packet in [build::udp(1, 100), build::data(2, 100), build::ack(3), damaged] {
        let (id, length) = (packet.id, packet.len());
        for from in [Side::A, Side::B] {
            let mut out = Vec::new();
            split.process(Time::ZERO, from, packet.clone(), &mut out, &mut Events::default());
            let passed: Vec<_> = out.iter().map(|(side, packet)| (*side, packet.id, packet.len())).collect();
            assert_eq!(passed, [(from.other(), id, length)]);
        }
    }
    assert!(split.pairs.is_empty());
}

#[test]
fn packets_leave_in_the_frames_that_the_other_host_would_have_used() {
    let mut world = World::bulk(split(&SPLIT, serde_json::json!({})), &plain(), 5000, [CLEAN; 2], 8);
    world.run(10.0);
    let header = |to: u8, from: u8| {
        let mut header = [0; 14];
        header[..6].fill(to);
        header[6..12].fill(from);
        Some(header)
    };
    assert!(world.links.len() > 10);
    for (side, is) in &world.links {
        assert_eq!(*is, if *side == Side::A { header(0, 1) } else { header(1, 0) });
    }
}

#[test]
fn a_part_offers_what_the_host_offered_that_it_stands_for() {
    let rich = stack("sack", serde_json::json!({"receive_buffer_bytes": 1_000_000}));
    for (fixed, offered) in [(rich.clone(), true), (plain(), false)] {
        let mut world = World::bulk(split(&SPLIT, serde_json::json!({})), &fixed, 50_000, [CLEAN; 2], 8);
        world.listens[1] = Some((rich.clone(), 77_000, Source::silent()));
        world.run(60.0);
        assert_eq!(world.received[1], 50_000);
        let syns: Vec<_> = world.log.iter().filter(|(_, _, one)| one.has(TcpFlags::SYN)).collect();
        assert_eq!(syns.len(), 4);
        for (_, who, syn) in syns.iter().filter(|(_, who, _)| who.starts_with("box")) {
            assert_eq!((syn.timestamps.is_some(), syn.window_scale.is_some()), (offered, offered), "{who}");
            assert!(!syn.sack_permitted);
        }
        assert_eq!(syns[1].2.mss, syns[0].2.mss);
    }
}

fn hop() -> impl Strategy<Value = Hop> {
    (0u64..80, 0u64..30, 0.0f64..0.08, 0.0f64..0.05, 0.0f64..0.05)
        .prop_map(|(delay_ms, jitter_ms, loss, twice, damage)| Hop { delay_ms, jitter_ms, loss, twice, damage })
}

proptest! {
    /// Whatever both hops do, and whichever stacks there are: every byte arrives once and in order (each is compared as
    /// it is read), both hosts end, and the buffers never hold more than their bound.
    #[test]
    fn nothing_is_lost_or_invented_and_the_bound_holds(
        hops in [hop(), hop()],
        bytes in (0u64..120_000, 0u64..30_000),
        stacks in proptest::array::uniform4(0..STACKS.len()),
        buffer in 4096u64..80_000,
        isns in any::<(u32, u32)>(),
        mobile_opens: bool,
        seed in any::<u64>(),
        pause in proptest::option::of((0usize..2, 0.0f64..3.0, 0.0f64..20.0)),
    ) {
        let given = serde_json::json!({"time_wait_s": 5, "receive_buffer_bytes": 1500 + seed % 60_000});
        let [fixed, mobile] = [stack(STACKS[stacks[0]], given.clone()), stack(STACKS[stacks[1]], given)];
        let given = serde_json::json!(
            {"wired": STACKS[stacks[2]], "wireless": STACKS[stacks[3]], "buffer_bytes": buffer}
        );
        let down = Source::new(Content::Pattern(seed), Some(bytes.0));
        let up = Source::new(Content::Pattern(seed ^ 1), Some(bytes.1));
        let split = split(&SPLIT, given);
        let mut world = if mobile_opens {
            let mobile = Connection::connect(mobile, flow().reversed(), isns.1, up);
            World { listens: [Some((fixed, isns.0, down)), None], ..World::new(split, mobile, 1, hops, seed) }
        } else {
            let fixed = Connection::connect(fixed, flow(), isns.0, down);
            World { listens: [None, Some((mobile, isns.1, up))], ..World::new(split, fixed, 0, hops, seed) }
        };
        if let Some((who, after_s, for_s)) = pause {
            world.run(after_s);
            if let Some(host) = &mut world.hosts[who] {
                host.set_reading(false);
            }
            world.run(world.now.seconds() + for_s);
            if let Some(host) = &mut world.hosts[who] {
                host.set_reading(true);
            }
        }
        world.run(40_000.0);
        prop_assert!(world.most_in_use <= buffer, "{} of {buffer}", world.most_in_use);
        // Six SYNs in a row that were lost end a connection, and say nothing about the box.
        let parts = world.split.pairs.values().flat_map(|pair| &pair.faces).filter_map(|face| face.part.as_ref());
        let gave_up = |one: &Connection| one.end() == Some(End::TimedOut) && one.counts().timeouts == 0;
        prop_assume!(!parts.chain(world.hosts.iter().flatten()).any(gave_up));
        prop_assert_eq!(world.received, [bytes.1, bytes.0]);
        for end in [world.end(0), world.end(1)] {
            // A host whose timer is backed off to 64 s may ask for the last ack after the box's TIME-WAIT.
            prop_assert!(matches!(end, Some(End::Finished | End::Reset)), "{end:?}");
        }
        prop_assert!(world.split.pairs.values().all(|pair| pair.over.is_some()));
    }
}
