//! Connections over a path of the tests: it loses, reorders, damages and marks packets.

use std::collections::BTreeMap;

use backchannel_core::packet::{Ecn, FlowKey, Packet};
use backchannel_core::rng;
use backchannel_core::scenario::Options;
use backchannel_core::time::Time;
use backchannel_core::transport::{Chunk, End, Factory, Transport, ENDLESS};
use backchannel_stacks::{pattern, Content};
use proptest::prelude::*;
use serde_json::{json, Value};

use crate::{AnyConfig, AnyStacks, Connection, Quic};

const SEED: u64 = 7;

/// Both ends and the packets between them.
struct Pair {
    ends: [Connection; 2],
    /// Arrivals, in order of time: the end, and the packet.
    under_way: BTreeMap<(Time, u64), (usize, Packet)>,
    now: Time,
    /// What each end has read.
    read: [Vec<u8>; 2],
    /// Every packet that was sent.
    sent: Vec<(usize, Packet)>,
    draws: rng::RunRng,
    /// Shares of packets that are lost, damaged, marked, and delayed by up to a round trip more.
    loss: f64,
    damage: f64,
    marks: f64,
    disorder: f64,
}

const DELAY_NS: u64 = 10_000_000;

fn factory(options: Value) -> Quic {
    let options: Options = serde_json::from_value(options).unwrap();
    let AnyConfig::Quic(config) = AnyStacks::builtin().config("quic", &options).unwrap() else { unreachable!() };
    Quic::new(config, Content::Pattern(SEED), 3)
}

impl Pair {
    fn new(options: Value) -> Pair {
        let flow = FlowKey { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), src_port: 4000, dst_port: 443 };
        let mut client = factory(options.clone()).connect(Time::ZERO, flow);
        let first = client.poll_transmit(Time::ZERO).unwrap();
        let server = factory(options).accept(Time(DELAY_NS), flow.reversed(), &first).unwrap();
        Pair {
            ends: [client, server],
            under_way: BTreeMap::new(),
            now: Time(DELAY_NS),
            read: [Vec::new(), Vec::new()],
            sent: vec![(0, first)],
            draws: rng::stream(SEED, "path"),
            loss: 0.0,
            damage: 0.0,
            marks: 0.0,
            disorder: 0.0,
        }
    }

    fn happens(&mut self, share: f64) -> bool {
        rng::uniform(&mut self.draws) < share
    }

    fn transmit(&mut self) {
        for from in [0, 1] {
            while let Some(packet) = self.ends[from].poll_transmit(self.now) {
                self.sent.push((from, packet.clone()));
                if self.happens(self.loss) {
                    continue;
                }
                let mut packet = packet;
                if self.happens(self.damage) {
                    let mut bytes = packet.to_vec();
                    let at = 20 + (rng::uniform(&mut self.draws) * (bytes.len() - 20) as f64) as usize;
                    bytes[at] ^= 1;
                    packet = Packet::from_bytes(0, bytes);
                }
                if self.happens(self.marks) {
                    packet.set_congestion_experienced();
                }
                let extra = if self.happens(self.disorder) { rng::uniform(&mut self.draws) * 2.0 } else { 0.0 };
                let arrival = Time(self.now.nanos() + DELAY_NS + (extra * DELAY_NS as f64) as u64);
                self.under_way.insert((arrival, self.sent.len() as u64), (1 - from, packet));
            }
        }
    }

    /// One event that is not later; whether there was any.
    fn step(&mut self, end: Time) -> bool {
        self.transmit();
        let arrival = self.under_way.first_key_value().map(|(key, _)| key.0);
        let timer = self.ends.iter().filter_map(Transport::next_timeout).min();
        let next = arrival.into_iter().chain(timer).min();
        let Some(next) = next.filter(|next| *next <= end) else { return false };
        self.now = self.now.max(next);
        if arrival == Some(next) {
            let (_, (end, packet)) = self.under_way.pop_first().unwrap();
            self.ends[end].on_packet(self.now, &packet);
        } else {
            for end in &mut self.ends {
                if end.next_timeout().is_some_and(|due| due <= self.now) {
                    end.on_timer(self.now);
                }
            }
        }
        for (end, read) in self.ends.iter_mut().zip(&mut self.read) {
            for Chunk { bytes, zeros } in end.read() {
                read.extend(bytes);
                read.resize(read.len() + zeros as usize, 0);
            }
            if end.peer_finished() {
                end.finish();
            }
        }
        true
    }

    fn run_until(&mut self, seconds: f64) {
        while self.step(Time::from_seconds(seconds)) {}
    }

    fn transfer(&mut self, bytes: u64) {
        self.ends[0].write(bytes);
        self.ends[0].finish();
        self.run_until(600.0);
    }
}

#[test]
fn a_transfer_arrives_whole_both_ends_finish_and_no_timer_remains() {
    let mut pair = Pair::new(json!({}));
    pair.transfer(300_000);
    assert!(pair.read[1] == pattern(SEED, 0, 300_000));
    assert_eq!(pair.ends.each_ref().map(|end| end.end()), [Some(End::Finished); 2]);
    assert_eq!(pair.ends.each_ref().map(|end| end.next_timeout()), [None; 2]);
    assert_eq!((pair.ends[0].acknowledged(), pair.ends[1].acknowledged()), (300_000, 0));
    let counts = pair.ends[0].counts();
    assert_eq!((counts.retransmitted, counts.timeouts, counts.refused), (0, 0, 0));
    let largest = pair.sent.iter().map(|(_, packet)| packet.len()).max();
    assert_eq!(largest, Some(1500));
    assert!(pair.sent.iter().all(|(_, packet)| packet.flow().is_some()));
}

/// A handshake as large as can be fills them.
#[test]
fn the_longest_packets_have_room_for_the_length_in_their_headers() {
    let mut pair = Pair::new(json!({"packet_bytes": 16_384, "certificate_bytes": 60_000}));
    pair.transfer(300_000);
    assert!(pair.read[1] == pattern(SEED, 0, 300_000));
    assert_eq!(pair.sent.iter().map(|(_, packet)| packet.len()).max(), Some(16_384));
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let bytes = |seed| {
        let mut pair = Pair::new(json!({}));
        pair.draws = rng::stream(seed, "path");
        (pair.loss, pair.disorder) = (0.05, 0.1);
        pair.transfer(100_000);
        pair.sent.iter().map(|(end, packet)| (*end, packet.to_vec())).collect::<Vec<_>>()
    };
    assert!(bytes(1) == bytes(1));
    assert!(bytes(1) != bytes(2));
}

#[test]
fn an_application_answers_on_the_stream_that_its_peer_opened() {
    let mut pair = Pair::new(json!({}));
    for round in 1..=3 {
        pair.ends[0].write(100);
        pair.run_until(f64::from(round) - 0.5);
        pair.ends[1].write(1000);
        pair.run_until(f64::from(round));
    }
    assert_eq!(pair.read.each_ref().map(Vec::len), [3000, 300]);
    assert!(pair.read[0] == pattern(SEED, 0, 3000) && pair.ends[0].end().is_none());
}

#[test]
fn an_ack_stands_for_as_many_packets_as_the_sender_requests() {
    for (every, least, most) in [(1, 0.9, 1.1), (2, 1.8, 2.2), (10, 8.0, 11.0)] {
        let mut pair = Pair::new(json!({"ack_every_segments": every, "ack_delay_s": 1.0}));
        pair.transfer(3_000_000);
        let sent = |end| pair.sent.iter().filter(|(from, _)| *from == end).count() as f64;
        let packets_per_ack = sent(0) / sent(1);
        assert!((least..most).contains(&packets_per_ack), "{every}: {packets_per_ack}");
    }
}

#[test]
fn marks_decrease_the_window_unless_ecn_is_off() {
    for (ecn, reacts) in [(true, true), (false, false)] {
        let mut pair = Pair::new(json!({"ecn": ecn}));
        pair.marks = 0.02;
        pair.transfer(500_000);
        let marked = pair.ends[0].samples().iter().any(|it| it.event == backchannel_stacks::SenderEvent::Mark);
        assert_eq!(marked, reacts);
        assert_eq!(pair.sent.iter().any(|(_, packet)| packet.ecn() == Ecn::Capable), ecn);
        assert_eq!(pair.ends[0].counts().retransmitted, 0);
    }
}

#[test]
fn an_abort_resets_the_peer_and_a_peer_that_is_gone_times_out() {
    let mut pair = Pair::new(json!({"idle_timeout_s": 3}));
    pair.ends[0].write(ENDLESS);
    pair.run_until(0.5);
    pair.ends[0].abort();
    pair.run_until(10.0);
    assert_eq!(pair.ends.each_ref().map(|end| end.end()), [Some(End::Aborted), Some(End::Reset)]);

    let mut pair = Pair::new(json!({"idle_timeout_s": 3}));
    pair.ends[0].write(ENDLESS);
    pair.run_until(0.5);
    pair.loss = 1.0;
    pair.run_until(60.0);
    assert_eq!(pair.ends.each_ref().map(|end| end.end()), [Some(End::TimedOut); 2]);
    assert!(pair.ends[0].counts().timeouts >= 2, "{}", pair.ends[0].counts().timeouts);
}

#[test]
fn telemetry_has_the_window_the_round_trip_and_what_is_outstanding() {
    let mut pair = Pair::new(json!({"initial_window_segments": 10}));
    pair.transfer(200_000);
    let first = pair.ends[0].samples().first().unwrap();
    assert_eq!(first.cwnd / pair.ends[0].mss(), 10.0);
    for sample in pair.ends[0].samples() {
        let rtt_s = sample.srtt.unwrap().as_secs_f64();
        assert!((0.02..0.06).contains(&rtt_s), "{rtt_s}");
        assert!(sample.rto > sample.srtt.unwrap());
    }
    assert!(pair.ends[0].samples().iter().any(|sample| sample.outstanding > 10_000));
    let ending = pair.ends[0].samples().last().unwrap();
    assert!(ending.cwnd > 2.0 * first.cwnd);
}

/// The log of one end: the header, then every event with its time.
fn log(folder: &std::path::Path, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line.strip_prefix('\u{1e}').unwrap()).unwrap()).collect()
}

#[test]
fn both_ends_log_their_packets_with_frames_and_the_metrics_of_recovery() {
    let folder = std::env::temp_dir().join(format!("backchannel-qlog-{}", std::process::id()));
    let flow = FlowKey { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), src_port: 4000, dst_port: 443 };
    let mut clients = factory(json!({})).logging(folder.join("up"));
    let mut servers = factory(json!({})).logging(folder.join("up"));
    let mut pair = Pair::new(json!({}));
    pair.ends[0] = clients.connect(Time::ZERO, flow);
    let first = pair.ends[0].poll_transmit(Time::ZERO).unwrap();
    pair.ends[1] = servers.accept(pair.now, flow.reversed(), &first).unwrap();
    pair.loss = 0.02;
    pair.transfer(300_000);
    let counts = pair.ends[0].counts();
    for end in &mut pair.ends {
        end.flush_log().unwrap();
    }
    assert_eq!(clients.take_logs().unwrap(), ["up-4000-client.sqlog"]);
    let (client, server) = (log(&folder, "up-4000-client.sqlog"), log(&folder, "up-4000-server.sqlog"));
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(client[0]["trace"]["vantage_point"]["type"], "client");
    let events = |log: &[Value], name: &str| -> Vec<Value> {
        log.iter().filter(|record| record["name"] == name).cloned().collect()
    };
    assert_eq!(events(&client, "recovery:packet_lost").len() as u64, counts.retransmitted);
    assert!(counts.retransmitted > 0);
    // What the server received of the stream is all of it.
    let mut parts: Vec<_> = events(&server, "transport:packet_received")
        .iter()
        .flat_map(|record| record["data"]["frames"].as_array().unwrap().clone())
        .filter(|frame| frame["frame_type"] == "stream")
        .map(|frame| (frame["offset"].as_u64().unwrap(), frame["length"].as_u64().unwrap()))
        .collect();
    parts.sort_unstable();
    let end = parts.iter().fold(0, |end, (offset, length)| if *offset <= end { end.max(offset + length) } else { end });
    assert_eq!(end, 300_000);
    let metrics = events(&client, "recovery:metrics_updated");
    let rtt_ms = metrics.iter().rev().find_map(|record| record["data"]["smoothed_rtt"].as_f64()).unwrap();
    assert!((20.0..70.0).contains(&rtt_ms), "{rtt_ms}");
    assert!(metrics.iter().all(|record| record["data"]["ssthresh"].as_f64().is_none_or(|bytes| bytes < 1e9)));
    let times: Vec<_> = client[1..].iter().map(|record| record["time"].as_f64().unwrap()).collect();
    assert!(times.is_sorted() && (times[0], times.last().unwrap() < &1e5) == (0.0, true));
}

/// TLS: other bytes on the path, the same ones for the same seed, and the same frames in the logs as in a plain session.
#[test]
fn tls_encrypts_what_a_plain_session_shows_and_leaves_a_key_log() {
    let folder = std::env::temp_dir().join(format!("backchannel-tls-{}", std::process::id()));
    let transfer = |session: &str, name: &str| {
        let options = json!({"session": session});
        let mut pair = Pair::new(options.clone());
        let mut clients = factory(options.clone()).logging(folder.join(name));
        let mut servers = factory(options).logging(folder.join(name));
        pair.ends[0] = clients.connect(Time::ZERO, pair.ends[0].flow());
        let first = pair.ends[0].poll_transmit(Time::ZERO).unwrap();
        pair.ends[1] = servers.accept(pair.now, pair.ends[1].flow(), &first).unwrap();
        pair.sent = vec![(0, first)];
        pair.transfer(200_000);
        assert_eq!(pair.ends.each_ref().map(|end| end.end()), [Some(End::Finished); 2]);
        assert!(pair.read[1] == pattern(SEED, 0, 200_000));
        pair.ends.iter_mut().for_each(|end| end.flush_log().unwrap());
        let (logs, of_server) = (clients.take_logs().unwrap(), servers.take_logs().unwrap());
        assert_eq!(of_server, [format!("{name}-4000-server.sqlog")]);
        (pair.sent.iter().map(|(_, packet)| packet.payload().to_vec()).collect::<Vec<_>>(), logs)
    };
    let shows = |sent: &[Vec<u8>]| {
        let part = pattern(SEED, 4096, 16);
        sent.iter().any(|packet| packet.windows(part.len()).any(|window| window == part))
    };
    let (plain, of_plain) = transfer("plain", "plain");
    let (tls, of_tls) = transfer("tls", "tls");
    assert_eq!((shows(&plain), shows(&tls)), (true, false));
    assert!(transfer("tls", "again").0 == tls, "the same seed gives the same bytes");
    assert_eq!(of_plain, ["plain-4000-client.sqlog"]);
    assert_eq!(of_tls, ["tls-4000-client.sqlog", "tls-4000-client.keys"]);
    let keys = std::fs::read_to_string(folder.join("tls-4000-client.keys")).unwrap();
    let labels: Vec<_> = keys.lines().map(|line| line.split(' ').next().unwrap()).collect();
    for label in ["HANDSHAKE_TRAFFIC_SECRET", "TRAFFIC_SECRET_0"] {
        for end in ["CLIENT", "SERVER"] {
            assert!(labels.contains(&format!("{end}_{label}").as_str()), "{labels:?}");
        }
    }
    let received = |name: &str| {
        let records = log(&folder, &format!("{name}-4000-server.sqlog"));
        let packets = records.iter().filter(|record| record["name"] == "transport:packet_received");
        let frames = packets.flat_map(|record| record["data"]["frames"].as_array().unwrap().clone());
        let is_of_the_stream = |frame: &Value| frame["frame_type"] == "stream";
        frames.filter(is_of_the_stream).map(|frame| frame["length"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(["plain", "tls"].map(received), [200_000; 2]);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Every controller of TCP fills the path, and yields after losses.
#[test]
fn controllers_of_tcp_send_through_the_bridge() {
    for congestion in ["reno", "tcp-cubic", "newreno", "cubic"] {
        let mut pair = Pair::new(json!({"congestion": congestion}));
        pair.ends[0].write(ENDLESS);
        pair.run_until(0.15);
        let before = pair.ends[0].samples().last().unwrap().cwnd;
        pair.loss = 0.1;
        pair.run_until(0.3);
        let after = pair.ends[0].samples().last().unwrap().cwnd;
        assert!(before > 20.0 * 1472.0, "{congestion}: {before}");
        assert!(after < 0.8 * before, "{congestion}: {after} of {before}");
        let decreases = pair.ends[0].counts().fast_retransmits;
        assert!((1..=10).contains(&decreases), "{congestion}: {decreases}, and one a round trip at most");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Over a path that loses, damages, marks and reorders packets every byte arrives once, in order and unchanged. The
    /// handshake is spared: quinn-proto 0.11 never sends a client's lost Finished again while its window is full of
    /// data, which the server cannot acknowledge without it (docs/quic.md).
    #[test]
    fn any_path_delivers_every_byte_once(
        bytes in 1u64..60_000,
        loss in 0.0..0.2f64,
        damage in 0.0..0.1f64,
        marks in 0.0..0.1f64,
        disorder in 0.0..0.5f64,
        seed in any::<u64>(),
        congestion in prop::sample::select(vec!["cubic", "newreno", "reno", "tcp-cubic"]),
        every in 1u32..12,
        session in prop::sample::select(vec!["plain", "tls"]),
    ) {
        let options = json!({"congestion": congestion, "ack_every_segments": every, "session": session});
        let mut pair = Pair::new(options);
        pair.draws = rng::stream(seed, "path");
        pair.run_until(0.2);
        (pair.loss, pair.damage, pair.marks, pair.disorder) = (loss, damage, marks, disorder);
        pair.transfer(bytes);
        prop_assert!(pair.read[1] == pattern(SEED, 0, bytes), "{} of {bytes}", pair.read[1].len());
        prop_assert_eq!(pair.ends[1].end(), Some(End::Finished));
    }
}
