//! A split connection between two hosts, over hops that lose, repeat, delay and damage.

mod world;

use super::*;
use std::fmt::Write as _;

use backchannel_core::options::OptionValue;
use backchannel_core::packet::build;
use backchannel_core::rng::{self, RunRng};
use backchannel_stacks::{pattern, Content};
use proptest::prelude::*;
use serde_json::json;

use self::world::{Hop, World, CLEAN};

const STACKS: &[&str] = StackName::CHOICES;
const MS: u64 = 1_000_000;

fn flow() -> FlowKey {
    FlowKey { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), src_port: 4000, dst_port: 5001 }
}

fn options(value: serde_json::Value) -> Options {
    serde_json::from_value(value).unwrap()
}

fn split(entry: &Entry, checked: serde_json::Value) -> SplitConnection {
    let options = options(checked);
    let parameters = Parameters::read(&CheckedOptions::check(entry, &options).unwrap());
    SplitConnection::new(&parameters, &Stacks::builtin()).unwrap()
}

fn stack(name: &str, checked: serde_json::Value) -> Config {
    Stacks::builtin().config(name, &options(checked)).unwrap()
}

fn plain() -> Config {
    stack("reno-bsd", json!({"timestamps": false, "window_scaling": false, "packet_bytes": 1040, "time_wait_s": 1}))
}

/// The fixed host sends `bytes` to the mobile host over hops that lose nothing.
fn clean(bytes: u64, seed: u64) -> World {
    World::bulk(split(&SPLIT, json!({})), &plain(), bytes, [CLEAN; 2], seed)
}

/// 12 000 bytes through a buffer of 4096, of which the air loses the third segment.
fn third_segment_lost() -> World {
    let mut world = World::bulk(split(&SPLIT, json!({"buffer_bytes": 4096})), &plain(), 12_000, [CLEAN; 2], 7);
    world.lose = vec![3];
    world.run(100.0);
    world
}

#[test]
fn each_part_can_have_any_stack() {
    for entry in backchannel_stacks::config::entries() {
        split(&SPLIT_SMART, json!({"wired": entry.name, "wireless": entry.name, "buffer_bytes": 4096}));
    }
}

#[test]
fn both_parts_take_the_rules_of_bsd() {
    let rules = json!({"counting": "bsd", "acks_by_space": true, "header_prediction": true});
    for Part { config: part, .. } in split(&SPLIT, rules).configs {
        assert!(
            part.acks_by_space
                && part.header_prediction
                && part.counting == stack("reno-bsd", json!({"counting": "bsd"})).counting
        );
    }
}

/// By space (asym 8.2), the wired part acknowledges what the wireless part has passed on, not what has arrived.
#[test]
fn by_space_a_part_acknowledges_what_has_been_passed_on() {
    let acked_while_the_air_is_down = |by_space: bool| {
        let split = split(&SPLIT, json!({"acks_by_space": by_space}));
        let mut world = World::bulk(split, &plain(), 40_000, [CLEAN; 2], 7);
        world.lose = (2..200).collect();
        world.run(1.0);
        // What the heartbeat of 200 ms makes go comes either way.
        let acks = world.log.iter().filter(|(at, who, _)| *who == "box-a" && *at % (200 * MS) != 0);
        acks.map(|(_, _, one)| one.ack.0).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert!(acked_while_the_air_is_down(false) > acked_while_the_air_is_down(true));
}

#[test]
fn the_parameters_are_the_papers() {
    let [wired, wireless] = split(&SPLIT, json!({})).configs.map(|part| part.config);
    assert_eq!((wired.receive_buffer_bytes, wired.sack, wireless.sack), (65_536, false, false));
    assert!(split(&SPLIT_SMART, json!({})).configs[1].config.sack);
}

#[test]
fn the_wireless_part_has_its_send_buffer_outstanding_at_most() {
    let most = |options| {
        let mut world = World::bulk(split(&SPLIT, options), &plain(), 200_000, [CLEAN; 2], 7);
        world.run(100.0);
        assert_eq!(world.received[1], 200_000);
        let (mut most, mut acked) = (0, 1000);
        for (_, who, segment) in &world.log {
            match *who {
                "box-b" => most = most.max((segment.seq.0 + segment.payload).saturating_sub(acked)),
                "mobile" => acked = segment.ack.0,
                _ => {}
            }
        }
        most
    };
    // Two whole segments of 1000 bytes in 2500.
    assert_eq!(most(json!({"send_buffer_bytes": 2500})), 2000);
    assert!(most(json!({})) > 10_000);
}

/// `golden/split.txt`, to be read beside ton IV-D.
#[test]
fn golden_trace_of_a_loss_on_the_air() {
    let world = third_segment_lost();
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
    let mut world = World::bulk(split(&SPLIT, json!({})), &config, 400_000, [CLEAN; 2], 7);
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

/// Each part has segments of the size that the other host offers over IPv6.
#[test]
fn connections_over_ipv6_are_split() {
    let address = |last| IpVersion::V6.address([10, 0, 0, last].into());
    let flow = FlowKey { src: address(1), dst: address(2), ..flow() };
    let (hop, source) = (Hop { loss: 0.05, ..CLEAN }, Source::new(Content::Pattern(3), Some(300_000)));
    let split = split(&SPLIT_SMART, json!({}));
    let mut world = World::bulk_over(flow, split, &plain(), source, [CLEAN, hop], 3);
    world.run(600.0);
    assert_eq!((world.received[1], world.end(0)), (300_000, Some(End::Finished)));
    assert_eq!(world.hosts[0].as_ref().unwrap().counts().retransmitted, 0, "losses are the box's affair");
    let offered = |who: &str| world.log.iter().find(|(_, name, _)| *name == who).and_then(|(_, _, syn)| syn.mss);
    assert_eq!((offered("fixed"), offered("box-b")), (Some(980), Some(980)));
}

#[test]
fn losses_on_the_air_are_the_boxs_affair() {
    let hop = Hop { loss: 0.05, ..CLEAN };
    let mut world = World::bulk(split(&SPLIT_SMART, json!({})), &plain(), 300_000, [CLEAN, hop], 3);
    world.run(600.0);
    assert_eq!((world.received[1], world.end(0)), (300_000, Some(End::Finished)));
    let counts = world.hosts[0].as_ref().unwrap().counts();
    assert_eq!((counts.retransmitted, counts.timeouts, counts.duplicate_acks), (0, 0, 0));
}

#[test]
fn what_happens_to_the_wireless_part_is_told() {
    let world = third_segment_lost();
    let told: Vec<_> = world.told.iter().filter(|one| one.sample.event.name() == "coarse_timeout").collect();
    assert_eq!(
        (told.len(), world.told.iter().filter(|one| one.sample.event.name() == "fast_retransmit").count()),
        (1, 0)
    );
    assert_eq!(
        (told[0].at, told[0].part, told[0].onto_link, told[0].flow),
        (Time(1500 * MS), "wireless", true, flow())
    );
    assert_eq!(world.reported_again, 1);
    assert_eq!((told[0].sample.cwnd_segments, told[0].sample.ssthresh_segments), (1.0, Some(2.0)));
    assert!(world.told.windows(2).all(|two| two[0].at <= two[1].at));
}

#[test]
fn smart_needs_fewer_timeouts_than_reno_on_the_air() {
    let hop = Hop { loss: 0.03, ..CLEAN };
    let time = |entry| {
        let smart = stack("smart", json!({"timestamps": false, "time_wait_s": 1}));
        let mut world = World::bulk(split(entry, json!({})), &smart, 1_000_000, [CLEAN, hop], 3);
        while world.received[1] < 1_000_000 && world.step() {}
        world.now.seconds()
    };
    assert!(time(&SPLIT_SMART) * 2.0 < time(&SPLIT));
}

#[test]
fn the_mobile_host_may_open_and_both_may_send() {
    let up = Source::new(Content::Pattern(8 ^ 1), Some(50_000));
    let mobile = Connection::connect(plain(), flow().reversed(), 77_000, up);
    let mut world = World::new(split(&SPLIT, json!({})), mobile, 1, [CLEAN; 2], 8);
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
    let mut world = clean(5000, 8);
    world.listens[1] = Some((plain(), 77_000, Source::new(Content::Pattern(8 ^ 1), Some(500_000))));
    world.run(100.0);
    assert_eq!(
        (world.received, world.end(0), world.end(1)),
        ([500_000, 5000], Some(End::Finished), Some(End::Finished))
    );
}

#[test]
fn a_refusal_is_passed_on_and_nobody_is_not_answered_for() {
    let mut refused = clean(5000, 8);
    refused.listens[1] = None;
    refused.run(100.0);
    assert_eq!((refused.end(0), refused.now), (Some(End::Reset), Time(20 * MS)));
    let mut silent = World::bulk(split(&SPLIT, json!({})), &plain(), 5000, [CLEAN, Hop { loss: 1.0, ..CLEAN }], 8);
    silent.run(1000.0);
    assert_eq!(silent.end(0), Some(End::TimedOut));
    assert!(silent.log.iter().all(|(_, who, _)| *who != "box-a"));
}

#[test]
fn a_reset_of_either_host_reaches_the_other() {
    for (who, other) in [(0, 1), (1, 0)] {
        let mut world = clean(4_000_000, 5);
        world.run(0.6);
        world.hosts[who].as_mut().unwrap().abort();
        world.run(300.0);
        assert_eq!(world.end(other), Some(End::Reset), "of host {who}");
        assert!(world.split.pairs.values().all(|pair| pair.over.is_some()));
    }
}

/// A reset behind lost data is not the next number, and is challenged (RFC 5961 3.2): what has ended answers for
/// itself.
#[test]
fn a_reset_that_is_challenged_is_sent_again() {
    let mut world = clean(4_000_000, 5);
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
    let mut world = clean(4_000_000, 5);
    world.run(1.0);
    world.hops[1].loss = 1.0;
    world.run(2000.0);
    assert_eq!(world.end(0), Some(End::Reset));
}

#[test]
fn a_new_connection_between_the_same_ports_is_a_new_pair() {
    let mut world = clean(5000, 8);
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
    let mut split = split(&SPLIT, json!({}));
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
    open(&mut split, 60.999, 10);
    assert_eq!(split.pairs.len(), 11);
    open(&mut split, 61.0, 11);
    assert_eq!(split.pairs.len(), 2, "a minute later");
}

#[test]
fn a_pair_that_is_not_over_is_kept_however_long_it_is_silent() {
    let mut split = split(&SPLIT, json!({}));
    let (mut out, mut events) = (Vec::new(), Events::default());
    let syn = Segment { seq: 5.into(), flags: TcpFlags::SYN, ..Segment::default() };
    for (at_s, port) in [(1.0, 1), (500.0, 2)] {
        let packet = syn.packet(1, FlowKey { src_port: port, ..flow() }, &[]);
        split.process(Time::from_seconds(at_s), Side::A, packet, &mut out, &mut events);
    }
    assert_eq!(split.pairs.len(), 2);
}

#[test]
fn only_a_syn_alone_opens_a_pair() {
    let (syn, others) = (TcpFlags::SYN, [TcpFlags::ACK, TcpFlags::RST, TcpFlags::FIN]);
    for flags in others.iter().flat_map(|other| [*other, syn | other]).chain([0, syn]) {
        let mut split = split(&SPLIT, json!({}));
        let segment = Segment { seq: 5.into(), flags, ..Segment::default() };
        let (mut out, mut events) = (Vec::new(), Events::default());
        split.process(Time::ZERO, Side::A, segment.packet(1, flow(), &[]), &mut out, &mut events);
        assert_eq!(split.pairs.len(), usize::from(flags == syn), "{flags:#x}");
    }
}

#[test]
fn what_is_no_connection_of_the_boxs_passes() {
    let mut split = split(&SPLIT, json!({}));
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
    let mut world = clean(5000, 8);
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
    let rich = stack("sack", json!({"receive_buffer_bytes": 1_000_000}));
    for (fixed, offered) in [(rich.clone(), true), (plain(), false)] {
        let mut world = World::bulk(split(&SPLIT, json!({})), &fixed, 50_000, [CLEAN; 2], 8);
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
        by_space: bool,
        seed in any::<u64>(),
        pause in proptest::option::of((0usize..2, 0.0f64..3.0, 0.0f64..20.0)),
    ) {
        let checked =
            json!({"time_wait_s": 5, "receive_buffer_bytes": 1500 + seed % 60_000, "acks_by_space": by_space});
        let [fixed, mobile] = [stack(STACKS[stacks[0]], checked.clone()), stack(STACKS[stacks[1]], checked)];
        let checked = json!(
            {"wired": STACKS[stacks[2]], "wireless": STACKS[stacks[3]], "buffer_bytes": buffer, "acks_by_space": by_space}
        );
        let down = Source::new(Content::Pattern(seed), Some(bytes.0));
        let up = Source::new(Content::Pattern(seed ^ 1), Some(bytes.1));
        let split = split(&SPLIT, checked);
        let (opener, client, listens) = if mobile_opens {
            (1, Connection::connect(mobile, flow().reversed(), isns.1, up), [Some((fixed, isns.0, down)), None])
        } else {
            (0, Connection::connect(fixed, flow(), isns.0, down), [None, Some((mobile, isns.1, up))])
        };
        let mut world = World::new(split, client, opener, hops, seed);
        world.listens = listens;
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
        let parts = world.split.pairs.values().flat_map(|pair| &pair.hosts).filter_map(|face| face.part.as_ref());
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
