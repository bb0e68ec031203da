//! Two endpoints and a path between them that loses, repeats, delays and damages: whatever it does, the stream arrives.

pub(crate) mod pair;

use backchannel_core::ip::IpVersion;
use backchannel_core::options;
use backchannel_core::options::Param;
use backchannel_core::packet::TcpFlags;
use backchannel_core::time::Time;
use backchannel_core::transport::{Chunk, End, Transport};
use proptest::prelude::*;
use serde_json::json;

use self::pair::{difference, flow, stack, Pair, Path, CLEAN, MS};
use crate::config::{entries, Config, Stacks};
use crate::congestion::{AckSample, CongestionController, Exit, Loss};
use crate::wire::Segment;
use crate::{Connection, Content, SeqNumber, Source, State};

#[test]
fn a_transfer_opens_sends_and_closes_on_both_sides() {
    for entry in entries() {
        let mut pair = Pair::bulk(entry.name, &[], 200_000, CLEAN, 7);
        pair.run(300);
        assert_eq!(difference(&pair.received[1], 7, 200_000), None, "{}", entry.name);
        let sent = |from: usize| pair.log.iter().filter(|entry| entry.1 == from).count() as u64;
        for (number, end) in pair.ends.iter().enumerate() {
            let end = end.as_ref().unwrap();
            assert_eq!(end.end(), Some(End::Finished), "{}", entry.name);
            assert_eq!((end.counts().sent, end.counts().received), (sent(number), sent(1 - number)), "{}", entry.name);
        }
        assert_eq!(pair.client().counts().retransmitted, 0, "{}", entry.name);
    }
}

options! {
    struct OwnOptions {
        own_segments: f64 = 10, [Number 1 to 1000] "own: window";
    }
}

/// A controller of another crate: a constant window, and when recoveries ended.
#[derive(Debug)]
struct Own {
    window: f64,
    ended: Vec<Time>,
}

impl Own {
    fn build(config: &Config, mss: u32) -> Box<dyn CongestionController> {
        let window = OwnOptions::read(&config.added(OwnOptions::PARAMS)).own_segments * f64::from(mss);
        Box::new(Own { window, ended: Vec::new() })
    }
}

impl CongestionController for Own {
    fn on_ack(&mut self, _: &AckSample) {}

    fn on_loss(&mut self, _: &Loss) {}

    fn on_recovery_end(&mut self, ack: &AckSample, _: Exit) {
        self.ended.push(ack.now);
    }

    fn window(&self) -> f64 {
        self.window
    }
}

#[test]
fn an_added_controller_is_a_choice_of_every_stack_with_its_options() {
    let mut stacks = Stacks::builtin();
    stacks.add_controller("own", OwnOptions::PARAMS, Own::build);
    for entry in stacks.entries() {
        let has = |name: &str, choice: Option<&str>| {
            let is_it = |param: &Param| param.name == name && choice.is_none_or(|own| param.choices.contains(&own));
            entry.params.iter().any(is_it)
        };
        assert!(has("congestion", Some("own")) && has("own_segments", None), "{}", entry.name);
    }
    for name in ["newreno", "sack", "cubic-sack", "modern"] {
        let options = [("congestion".into(), json!("own")), ("own_segments".into(), json!(3))].into();
        let config = stacks.config(name, &options).unwrap_or_else(|why| panic!("{name}: {why}"));
        let own = config.added_controller.expect("it was added")(&config, 1000);
        assert_eq!(own.window(), 3000.0, "{name}");
        let too_small = [("congestion".into(), json!("own")), ("own_segments".into(), json!(0))].into();
        let error = stacks.config(name, &too_small).expect_err("refused").to_string();
        assert!(error.contains("own_segments"), "{error}");
    }
}

/// The last of eight segments is lost. A probe repairs it, which the ack of the next one shows.
#[test]
fn a_controller_learns_when_a_probe_has_repaired_a_loss() {
    let mut stacks = Stacks::builtin();
    stacks.add_controller("own", OwnOptions::PARAMS, Own::build);
    let options = [("congestion".into(), json!("own")), ("dsack".into(), json!(false))].into();
    let config = stacks.config("modern", &options).expect("a good stack");
    let client = (config.clone(), Source::written(Content::Pattern(5)));
    let mut pair = Pair::new(client, (config, Source::silent()), CLEAN, 5, 5);
    pair.drop = vec![9];
    for bytes in [8 * 1448, 1448] {
        pair.ends[0].as_mut().expect("it is there").write(bytes);
        pair.run(60);
    }
    assert_eq!((pair.client().counts().retransmitted, pair.client().counts().timeouts), (1, 0));
    let own = format!("{:?}", pair.client().sender.congestion);
    assert!(own.contains(&format!("ended: [Time({})]", pair.now)), "{own} at {}", pair.now);
}

/// Every stack over IPv6 on a path that does it all: the stream arrives in segments of 20 bytes less.
#[test]
fn a_stream_arrives_over_ipv6() {
    for entry in entries() {
        let config = stack(entry.name, &[]);
        let path = Path { loss: 0.02, damage: 0.02, twice: 0.02, jitter_ms: 10, ..CLEAN };
        let source = Source::new(Content::Pattern(7), Some(100_000));
        let server = (config.clone(), Source::silent());
        let mut pair = Pair::over(IpVersion::V6, (config.clone(), source), server, path, 7, 7);
        pair.run(600);
        assert_eq!(difference(&pair.received[1], 7, 100_000), None, "{}", entry.name);
        let largest = pair.log.iter().map(|(_, _, segment)| 60 + segment.payload + segment.option_bytes()).max();
        assert_eq!(largest, Some(config.packet_bytes), "{}", entry.name);
        let syn = pair.log[0].2;
        assert_eq!(syn.mss, Some(config.packet_bytes as u16 - 60), "{}", entry.name);
    }
}

/// Timestamps, the sender's window, Pulsed ACK and an ack-rate request leave eight bytes of options on data, too few for
/// a block.
#[test]
fn data_whose_options_leave_no_room_carry_no_block() {
    for sender in ["rfc6675", "smart"] {
        let options = [
            ("sack_sender", json!(sender)),
            ("peerwin", json!(true)),
            ("pulsed", json!(true)),
            ("requested_acks_per_window", json!(5)),
        ];
        let config = stack("smart", &options);
        let source = |seed| Source::new(Content::Pattern(seed), Some(100_000));
        let path = Path { loss: 0.05, ..CLEAN };
        let mut pair = Pair::new((config.clone(), source(7)), (config, source(8)), path, 7, 7);
        pair.run(600);
        let received = [(1, 7), (0, 8)].map(|(end, seed)| difference(&pair.received[end], seed, 100_000));
        assert_eq!(received, [None, None], "{sender}");
        assert!(pair.log.iter().any(|(.., segment)| segment.payload > 0 && segment.option_bytes() == 32), "{sender}");
    }
}

/// A client with `bytes` to send, and the server that has its SYN. Their first sequence numbers are 1 and 9.
fn opening(config: &Config, bytes: u64, server: Source) -> (Connection, Connection) {
    let mut client = Connection::connect(config.clone(), flow(), 1, Source::silent());
    client.write(bytes);
    let syn = client.poll_transmit(Time::ZERO).unwrap();
    let server = Connection::accept(config.clone(), flow().reversed(), 9, server, &syn).unwrap();
    (client, server)
}

/// Exchanges everything that both ends send at one instant, after their timers.
fn exchange(at_s: u64, [a, b]: [&mut Connection; 2]) {
    let now = Time(at_s * 1_000_000_000);
    for end in [&mut *a, &mut *b] {
        if end.next_timeout().is_some_and(|due| due <= now) {
            end.on_timer(now);
        }
    }
    loop {
        let (from_a, from_b) = (a.poll_transmit(now), b.poll_transmit(now));
        if from_a.is_none() && from_b.is_none() {
            return;
        }
        from_a.iter().for_each(|packet| b.on_packet(now, packet));
        from_b.iter().for_each(|packet| a.on_packet(now, packet));
    }
}

/// A relay sends a window update when it has released two segments or half of the buffer.
#[test]
fn held_data_take_room_and_a_small_buffer_is_updated_by_halves() {
    for (buffer, worth) in [(4000, 2000), (100_000, 2920)] {
        let config = stack("reno-bsd", &[("timestamps", json!(false)), ("receive_buffer_bytes", json!(buffer))]);
        let (mut client, mut server) = opening(&config, 2920, Source::relay());
        (0..4).for_each(|at_s| exchange(at_s, [&mut client, &mut server]));
        let held = server.read_and_hold();
        assert_eq!((held.iter().map(Chunk::len).sum(), server.in_use()), (2920u64, (2920, 0)));
        held.into_iter().for_each(|chunk| server.relay(chunk));
        assert_eq!(server.in_use(), (2920, 2920));
        (4..9).for_each(|at_s| exchange(at_s, [&mut client, &mut server]));
        let now = Time(8_000_000_000);
        server.release(worth - 1);
        assert!(server.poll_transmit(now).is_none(), "{buffer}");
        server.release(1);
        assert!(server.poll_transmit(now).is_some(), "{buffer}");
        assert_eq!(server.in_use().0, 2920 - worth);
    }
}

/// RFC 9293 3.10.7.4, SYN-RECEIVED: an ack that does not cover our SYN is answered with a reset.
#[test]
fn an_ack_of_too_little_does_not_open_a_connection() {
    for (ack, opens) in [(9, false), (10, true), (11, false)] {
        let (_, mut server) = opening(&stack("reno-bsd", &[("timestamps", json!(false))]), 0, Source::silent());
        server.poll_transmit(Time::ZERO).unwrap();
        let answer = Segment { seq: SeqNumber(2), ack: SeqNumber(ack), flags: TcpFlags::ACK, ..Segment::default() };
        server.on_packet(Time(1), &answer.packet(7, flow(), &[]));
        assert_eq!(server.state() == State::Established, opens, "{ack}");
        let reset = server.poll_transmit(Time(1)).and_then(|packet| Segment::read(&packet));
        assert_eq!(reset.is_some_and(|reset| reset.has(TcpFlags::RST)), !opens, "{ack}");
    }
}

#[test]
fn slow_start_doubles_and_every_second_segment_is_acknowledged() {
    let mut pair =
        Pair::bulk("reno-bsd", &[("timestamps", json!(false)), ("ack_every_segments", json!(1))], 100_000, CLEAN, 1);
    pair.run(60);
    // Round trips of 40 ms and more: 1, 2, 4, 8 segments of 1460 bytes.
    let data: Vec<_> = pair.log.iter().filter(|(_, from, segment)| *from == 0 && segment.payload > 0).collect();
    let mut bursts: Vec<(u64, u32)> = Vec::new();
    for (at, _, _) in data {
        match bursts.last_mut() {
            Some((start, n)) if at - *start < 30 * MS => *n += 1,
            _ => bursts.push((*at, 1)),
        }
    }
    assert_eq!(bursts.iter().take(4).map(|(_, n)| *n).collect::<Vec<_>>(), [1, 2, 4, 8]);
}

#[test]
fn one_loss_costs_one_fast_retransmit_and_half_the_window() {
    for name in ["reno-bsd", "newreno", "sack"] {
        let mut pair = Pair::bulk(name, &[("ack_every_segments", json!(1))], 400_000, CLEAN, 1);
        pair.drop = vec![40];
        pair.run(60);
        let counts = pair.client().counts();
        assert_eq!((counts.fast_retransmits, counts.timeouts, counts.retransmitted), (1, 0, 1), "{name}");
        assert_eq!(pair.received[1].len(), 400_000);
    }
}

#[test]
fn tahoe_sends_everything_again_from_one_segment() {
    let mut pair = Pair::bulk("tahoe", &[("ack_every_segments", json!(1))], 400_000, CLEAN, 1);
    pair.drop = vec![40];
    pair.run(60);
    let samples = pair.ends[0].as_ref().unwrap().samples().to_vec();
    let loss = samples.iter().find(|sample| sample.event == crate::SenderEvent::FastRetransmit).expect("one loss");
    assert!((loss.cwnd - 1448.0).abs() < 1.0, "{}", loss.cwnd);
    assert_eq!(pair.client().counts().timeouts, 0);
}

#[test]
fn three_losses_in_a_window_part_reno_from_newreno_and_sack() {
    let lose = |name: &str| {
        let mut pair = Pair::bulk(name, &[("ack_every_segments", json!(1))], 600_000, CLEAN, 1);
        pair.drop = vec![60, 62, 64];
        pair.run(120);
        assert_eq!(pair.received[1].len(), 600_000, "{name}");
        (pair.client().counts(), pair.last_data_s())
    };
    let (reno, reno_s) = lose("reno-bsd");
    let (newreno, newreno_s) = lose("newreno");
    let (sack, sack_s) = lose("sack");
    assert!(
        reno.timeouts >= 1 || reno.fast_retransmits >= 2,
        "Reno leaves recovery at the first partial ack: {reno:?}"
    );
    assert_eq!((newreno.timeouts, newreno.fast_retransmits, newreno.retransmitted), (0, 1, 3));
    assert_eq!((sack.timeouts, sack.fast_retransmits, sack.retransmitted), (0, 1, 3));
    assert!(sack_s <= newreno_s && newreno_s < reno_s, "{sack_s} {newreno_s} {reno_s}");
}

#[test]
fn a_segment_first_sent_in_recovery_gives_a_sample_where_ns_2_takes_one() {
    let longest_s = |timed: bool| {
        let options =
            [("timestamps", json!(false)), ("ack_every_segments", json!(1)), ("timing_in_recovery", json!(timed))];
        let mut pair = Pair::bulk("newreno", &options, 600_000, CLEAN, 1);
        pair.drop = vec![60, 62, 64, 66, 68];
        pair.run(120);
        let samples = pair.ends[0].as_ref().unwrap().samples().to_vec();
        samples.iter().filter_map(|sample| sample.rtt).max().unwrap()
    };
    // Its ack waits for the holes that partial acks fill.
    assert!(longest_s(true) > longest_s(false) * 2, "{:?} {:?}", longest_s(true), longest_s(false));
}

#[test]
fn a_lost_syn_and_a_lost_fin_are_sent_again() {
    let mut pair = Pair::bulk("modern", &[], 10_000, CLEAN, 1);
    pair.drop = vec![1];
    pair.run(60);
    assert_eq!(pair.received[1].len(), 10_000);
    let syns = pair.log.iter().filter(|(_, from, segment)| *from == 0 && segment.has(TcpFlags::SYN)).count();
    assert_eq!(syns, 2);
}

#[test]
fn nobody_answers_and_the_connection_ends() {
    let mut pair = Pair::bulk("modern", &[], 10_000, Path { loss: 1.0, ..CLEAN }, 1);
    pair.run(10_000);
    assert_eq!(pair.client().end(), Some(End::TimedOut));
    assert_eq!(pair.client().state(), State::Closed);
}

#[test]
fn a_closed_window_is_probed_and_opens_again() {
    let mut pair = Pair::bulk("modern", &[("receive_buffer_bytes", json!(20_000))], 100_000, CLEAN, 1);
    while pair.ends[1].is_none() {
        pair.step();
    }
    pair.ends[1].as_mut().unwrap().set_reading(false);
    pair.run(30);
    let got = pair.log.iter().filter(|(_, from, segment)| *from == 0 && segment.payload == 1).count();
    assert!(got >= 2, "window probes: {got}");
    assert!(pair.received[1].len() <= 20_000);
    let server = pair.ends[1].as_mut().unwrap();
    server.set_reading(true);
    for part in server.read() {
        pair.received[1].extend(part.bytes);
    }
    pair.run(200);
    assert_eq!(difference(&pair.received[1], 1, 100_000), None);
}

#[test]
fn a_reset_ends_the_connection_and_one_beside_the_mark_does_not() {
    let mut pair = Pair::bulk("modern", &[], 10_000_000, CLEAN, 1);
    pair.run(1);
    let client = pair.ends[0].as_mut().unwrap();
    let (seq, at) = pair.log.iter().rev().find(|(_, from, _)| *from == 1).map(|(at, _, s)| (s.seq, *at)).unwrap();
    let reset =
        |seq: SeqNumber| Segment { seq, flags: TcpFlags::RST, ..Segment::default() }.packet(1, flow().reversed(), &[]);
    client.on_packet(Time(at), &reset(seq + 10));
    assert_eq!(client.state(), State::Established, "a challenge ack, RFC 5961");
    client.on_packet(Time(at), &reset(seq));
    assert_eq!(client.end(), Some(End::Reset));
}

#[test]
fn corrupted_segments_cost_eln_no_window_and_reno_half_of_it() {
    // As on the LAN of ton IV: 10 ms, 1.5 Mbit/s, 2 % of packets corrupted, 8 Mbytes.
    const BYTES: u64 = 8 << 20;
    let seconds = |name: &str, buffer: u64| {
        let one = |seed| {
            let path = Path { damage: 0.02, rate_bps: 1_500_000, delay_ms: 5, ..CLEAN };
            let options = [("timestamps", json!(false)), ("receive_buffer_bytes", json!(buffer))];
            let mut pair = Pair::bulk(name, &options, BYTES, path, seed);
            pair.run(1000);
            assert_eq!(difference(&pair.received[1], seed, BYTES), None, "{name}");
            pair.last_data_s()
        };
        (0..4).map(one).sum::<f64>()
    };
    // Ton table III: E2E is the slowest by far; which duplicate it is matters little with buffers of 32 kbytes.
    let [reno, eln, rxmt] = ["reno-bsd", "eln", "eln-rxmt"].map(|name| seconds(name, 32_768));
    assert!(rxmt < 0.9 * reno && eln < 0.9 * reno, "{rxmt} {eln} {reno}");
    // IV-C: with 8 kbytes three duplicates often do not come, and the first is worth more.
    let [eln, rxmt] = ["eln", "eln-rxmt"].map(|name| seconds(name, 8192));
    assert!(rxmt < 0.9 * eln, "{rxmt} {eln}");
}

#[test]
fn by_the_printed_rule_pulsed_acks_come_once_less_than_a_times_a_round_trip() {
    let options = [
        ("initial_window_segments", json!(100)),
        ("initial_ssthresh_segments", json!(2)),
        ("receive_buffer_bytes", json!(10_000_000)),
    ];
    let path = Path { delay_ms: 50, rate_bps: 1_000_000_000, ..CLEAN };
    let mut pair = Pair::bulk("pulsed-ack", &options, 40_000_000, path, 3);
    pair.run(5);
    let from = pair.now - 2_000_000_000;
    let acks = pair.log.iter().filter(|(at, from_, _)| *from_ == 1 && *at >= from).count() as f64;
    // 20 round trips of 100 ms. The printed rule acks every d = ceil(w/5) + 1 segments, so that a window holds 4 whole
    // groups and a rest that waits: 4 acks a round trip, not 5, and not the 4.76 of w/d.
    assert!((76.0..=84.0).contains(&acks), "{acks}");
    let samples = pair.ends[0].as_ref().unwrap().samples().to_vec();
    let at =
        |seconds: f64| samples.iter().rev().find(|s| s.at.seconds() <= seconds).unwrap().cwnd / pair.client().mss();
    let growth = (at(4.5) - at(1.5)) / 30.0;
    assert!((0.76..=0.84).contains(&growth), "{growth}");
}

#[test]
fn ack_congestion_control_lets_fewer_acks_through_a_marked_path() {
    let acks = |mark| {
        let path = Path { mark: [0.0, mark], delay_ms: 30, ..CLEAN };
        let mut pair = Pair::bulk("acc-sa", &[("max_window_segments", json!(60))], 3_000_000, path, 3);
        pair.run(200);
        assert_eq!(difference(&pair.received[1], 3, 3_000_000), None);
        (pair.log.iter().filter(|(_, from, _)| *from == 1).count(), pair.ends[0].as_ref().unwrap().longest_burst())
    };
    let ((all, _), (few, burst)) = (acks(0.0), acks(0.1));
    assert!(few < all * 2 / 3, "{few} of {all}");
    assert_eq!(burst, 4, "maxburst");
}

#[test]
fn bursts_are_spaced_by_the_mean_round_trip_or_by_the_first() {
    let round_trips = |first: bool| {
        let options = [("burst_by_first_rtt", json!(first)), ("max_window_segments", json!(64))];
        // Each segment of 1500 bytes takes 12 ms, so that the window's 64 make a queue of most of a second.
        let mut pair = Pair::bulk("sa", &options, 400_000, Path { rate_bps: 1_000_000, delay_ms: 5, ..CLEAN }, 3);
        pair.run(200);
        let sender = &pair.client().sender;
        (sender.era.burst_rtt(&sender.rtt).unwrap(), sender.rtt.first.unwrap(), sender.rtt.exact_srtt.unwrap())
    };
    let (spacing, first, mean) = round_trips(true);
    assert!(spacing == first && first.as_millis() < 30 && mean.as_millis() > 300, "{spacing:?} {first:?} {mean:?}");
    let (spacing, first, mean) = round_trips(false);
    assert!(spacing == mean && first.as_millis() < 30, "{spacing:?} {first:?} {mean:?}");
}

fn any_path() -> impl Strategy<Value = Path> {
    let rates = (0.0f64..0.12, 0.0f64..0.1, 0.0f64..0.05, 0.0f64..0.2);
    (1u64..80, 0u64..60, rates, 300_000u64..20_000_000).prop_map(
        |(delay_ms, jitter_ms, (loss, twice, damage, mark), rate_bps)| Path {
            delay_ms,
            jitter_ms,
            loss,
            twice,
            damage,
            mark: [mark; 2],
            rate_bps,
            buffer_bytes: u64::MAX,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// Whatever the path does, both streams arrive once, in order, intact, and both sides end; sequence numbers wrap.
    #[test]
    fn every_byte_arrives_whatever_the_path_does(
        path in any_path(), which in 0usize..16, seed: u64, near_wrap: bool, sack: bool, timestamps: bool, by_space: bool,
        up in 0u64..120_000, down in 0u64..60_000, every in 1u32..4,
    ) {
        let name = entries()[which].name;
        let mut options = vec![("ack_every_segments", json!(every)), ("acks_by_space", json!(by_space))];
        if !name.starts_with("acc") {
            options.push(("timestamps", json!(timestamps)));
        }
        if ["reno-bsd", "newreno", "sack", "modern", "acc-sa", "pulsed-ack"].contains(&name) {
            options.push(("sack", json!(sack)));
        }
        let config = stack(name, &options);
        let isn = if near_wrap { u32::MAX - (seed % 50_000) as u32 } else { seed as u32 };
        let client = Source::new(Content::Pattern(seed), Some(up));
        let server = Source::new(Content::Pattern(seed ^ 1), Some(down));
        let mut pair = Pair::new((config.clone(), client), (config, server), path, seed, isn);
        pair.run(40_000);
        prop_assert_eq!(difference(&pair.received[1], seed, up), None, "{} up", name);
        prop_assert_eq!(difference(&pair.received[0], seed ^ 1, down), None, "{} down", name);
        let states: Vec<_> = pair.ends.iter().flatten().map(Connection::state).collect();
        prop_assert!(states.iter().all(|&state| state == State::Closed), "{} {:?} at {}", name, states, pair.now);
    }

    /// Damage alone, small receive buffers and small packets: every stack, every mechanism.
    #[test]
    fn small_buffers_and_packets_pass_everything(
        which in 0usize..16, seed: u64, packet in 200u32..1500, buffer in 2_000u32..9_000, damage in 0.0f64..0.1,
        mark in 0.0f64..0.3, bytes in 1u64..60_000,
    ) {
        let name = entries()[which].name;
        let path = Path { damage, mark: [mark; 2], ..CLEAN };
        let options = [("packet_bytes", json!(packet)), ("receive_buffer_bytes", json!(buffer))];
        let mut pair = Pair::bulk(name, &options, bytes, path, seed);
        pair.run(40_000);
        prop_assert_eq!(difference(&pair.received[1], seed, bytes), None, "{}", name);
        prop_assert!(pair.ends.iter().flatten().all(|end| end.state() == State::Closed), "{}", name);
    }

    /// No segment, however wrong, makes a connection panic or take bytes that were not sent.
    #[test]
    fn no_segment_makes_it_panic(
        segments in proptest::collection::vec((any::<i32>(), any::<i32>(), any::<u8>(), any::<u16>(), 0u32..3000, any::<bool>()), 1..60),
        seed: u32,
    ) {
        let config = stack("modern", &[]);
        let mut connection = Connection::connect(config, flow(), seed, Source::new(Content::Zeros, Some(5000)));
        let mut now = 0;
        for (seq, ack, flags, window, payload, near) in segments {
            while connection.poll_transmit(Time(now)).is_some() {}
            let spread = if near { 4000 } else { i32::MAX };
            let segment = Segment {
                seq: SeqNumber(900) + (seq % spread) as u32,
                ack: SeqNumber(seed) + (ack % spread) as u32,
                flags,
                window,
                payload,
                sack: [(SeqNumber(seed) + seq as u32, SeqNumber(seed) + ack as u32)].into_iter().collect(),
                ..Segment::default()
            };
            connection.on_packet(Time(now), &segment.packet(1, flow().reversed(), &[]));
            now += 10_000_000;
            if connection.next_timeout().is_some_and(|at| at.nanos() <= now) {
                connection.on_timer(Time(now));
            }
        }
    }
}

/// What a relay has left over waits for more while something is outstanding (RFC 9293 3.7.4), but not when it goes
/// again.
#[test]
fn a_relays_rest_waits_for_more_or_for_the_ack_and_is_sent_again_in_time() {
    use backchannel_core::transport::Chunk;
    let config = stack("reno-bsd", &[("timestamps", json!(false))]);
    let mut relay = Connection::connect(config.clone(), flow(), 1, Source::relay());
    let syn = relay.poll_transmit(Time::ZERO).unwrap();
    let mut peer = Connection::accept(config, flow().reversed(), 2, Source::silent(), &syn).unwrap();
    let answer = peer.poll_transmit(Time::ZERO).unwrap();
    relay.on_packet(Time(10 * MS), &answer);
    let sent = |relay: &mut Connection, at: u64| -> Vec<(i32, u32)> {
        let all =
            std::iter::from_fn(|| relay.poll_transmit(Time(at * MS))).map(|packet| Segment::read(&packet).unwrap());
        all.filter(|segment| segment.payload > 0).map(|segment| (segment.seq - SeqNumber(2), segment.payload)).collect()
    };
    assert_eq!(sent(&mut relay, 10), []);
    let piece = |bytes| Chunk { bytes: vec![7; bytes], zeros: 0 };
    relay.relay(piece(100));
    assert_eq!(sent(&mut relay, 20), [(0, 100)]);
    relay.relay(piece(50));
    assert_eq!(sent(&mut relay, 30), [], "100 bytes are under way");
    // Nothing comes back: what was sent goes again, with what has come since.
    let due = relay.next_timeout().unwrap();
    relay.on_timer(due);
    assert_eq!(sent(&mut relay, due.nanos() / MS), [(0, 150)]);
    relay.relay(piece(30));
    assert_eq!(sent(&mut relay, due.nanos() / MS), []);
    relay.finish();
    assert_eq!(sent(&mut relay, due.nanos() / MS), [(150, 30)], "now they are the last");
}
