//! `replay`: what a capture has in each direction of a line, and what a queue policy does to the packets of one of them.
//!
//! The packets of `--from` arrive at the policy at their times in the capture, and leave at `--rate`. They are those that
//! were captured: nothing is sent less because a packet is dropped or late.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::packet::Packet;
use backchannel_core::scenario::Named;
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;
use backchannel_core::{Error, ResultExt};
use backchannel_links::Registry;
use backchannel_policies::Context;
use backchannel_traces::{network_layer, Capture};
use serde::Serialize;

use crate::confined::{confine, Programs};
use crate::reports;

/// The port of QUIC that carries HTTP/3.
const QUIC_PORT: u16 = 443;

/// Arguments of `replay`.
#[derive(clap::Args)]
pub struct Args {
    /// Capture to read, in any format and link type of `trace`
    capture: PathBuf,
    /// Address of a host whose packets go through the queue; may be repeated
    #[arg(long, value_name = "ADDRESS", required = true)]
    from: Vec<IpAddr>,
    /// Rate of the line behind the queue, in bit/s; absent: packets are only counted
    #[arg(long, value_name = "BPS")]
    rate: Option<u64>,
    /// The policy as JSON, such as {"name": "ack-filtering", "options": {"filter_sack": true}}
    #[arg(long, value_name = "JSON", default_value = r#"{"name": "droptail"}"#)]
    policy: String,
}

/// What a direction carried.
#[derive(Default, Serialize)]
struct Direction {
    packets: u64,
    /// Of the network layer, as all bytes here.
    bytes: u64,
    /// Of TCP, without data, SYN, FIN and RST.
    pure_acks: u64,
    pure_ack_bytes: u64,
    tcp_bytes: u64,
    /// Of UDP from or to port 443.
    quic_packets: u64,
    quic_bytes: u64,
    /// Most bytes within any second: seconds of the clock would cut a short capture's only one in two.
    busiest_second_bytes: u64,
    /// Times and lengths of the packets of the last second, and their sum.
    #[serde(skip)]
    second: VecDeque<(i64, u64)>,
    #[serde(skip)]
    second_bytes: u64,
}

impl Direction {
    fn count(&mut self, time_ns: i64, packet: &Packet, wire: &[u8]) {
        let bytes = u64::from(packet.len());
        self.packets += 1;
        self.bytes += bytes;
        if packet.tcp().is_some() {
            self.tcp_bytes += bytes;
        } else if is_udp(wire) && packet.flow().is_some_and(|flow| [flow.src_port, flow.dst_port].contains(&QUIC_PORT))
        {
            self.quic_packets += 1;
            self.quic_bytes += bytes;
        }
        if packet.is_pure_ack() {
            self.pure_acks += 1;
            self.pure_ack_bytes += bytes;
        }
        self.second.push_back((time_ns, bytes));
        self.second_bytes += bytes;
        while let Some((_, gone)) = self.second.front().filter(|(before_ns, _)| *before_ns <= time_ns - 1_000_000_000) {
            self.second_bytes -= gone;
            self.second.pop_front();
        }
        self.busiest_second_bytes = self.busiest_second_bytes.max(self.second_bytes);
    }
}

/// What the policy did.
#[derive(Default, Serialize)]
struct Replayed {
    /// Packets that left.
    left: u64,
    left_bytes: u64,
    left_acks: u64,
    purged: u64,
    dropped: u64,
    /// Of those that left, until their transmission began.
    mean_wait_s: f64,
    longest_wait_s: f64,
}

/// What is printed.
#[derive(Serialize)]
struct Summary {
    duration_s: f64,
    /// From the hosts of `--from`, and to them.
    forward: Direction,
    reverse: Direction,
    /// Frames between other hosts, or without an IP packet.
    other_frames: u64,
    /// What is wrong with the capture file.
    damage: Vec<String>,
    replayed: Option<Replayed>,
}

/// A queue before a line, on the capture's clock.
struct Queue {
    policy: Box<dyn Policy>,
    rate_bps: u64,
    free: Time,
    /// Arrival of each packet that waits, by its id.
    arrived: HashMap<u64, Time>,
    events: Events,
    replayed: Replayed,
    waited_s: f64,
}

impl Queue {
    /// Lets leave what leaves before `now`; everything without a time.
    fn advance(&mut self, now: Option<Time>) {
        while let Some(next) = self.policy.next_time() {
            let at = self.free.max(next);
            if now.is_some_and(|now| at > now) {
                break;
            }
            let Some(packet) = self.policy.dequeue(at, &mut self.events) else { break };
            let wait_s = self.arrived.remove(&packet.id).map_or(0.0, |arrival| at.since(arrival).as_secs_f64());
            self.replayed.left += 1;
            self.replayed.left_bytes += u64::from(packet.len());
            self.replayed.left_acks += u64::from(packet.is_pure_ack());
            self.waited_s += wait_s;
            self.replayed.longest_wait_s = self.replayed.longest_wait_s.max(wait_s);
            self.free = at + Duration::from_secs_f64(8.0 * f64::from(packet.len()) / self.rate_bps as f64);
        }
        for event in self.events.list.drain(..) {
            match event.kind {
                EventKind::Purged => self.replayed.purged += 1,
                EventKind::DroppedFull | EventKind::DroppedEarly => self.replayed.dropped += 1,
                _ => continue,
            }
            self.arrived.remove(&event.packet_id);
        }
    }

    fn arrive(&mut self, now: Time, packet: Packet) {
        self.advance(Some(now));
        self.free = self.free.max(now);
        self.arrived.insert(packet.id, now);
        self.policy.enqueue(now, packet, &mut self.events);
        self.advance(Some(now));
    }

    fn end(mut self) -> Replayed {
        self.advance(None);
        self.replayed.mean_wait_s = self.waited_s / (self.replayed.left.max(1) as f64);
        self.replayed
    }
}

/// Reads the capture and prints a summary as JSON.
pub fn run(registry: &Registry, args: &Args) -> Result<(), Error> {
    let named: Named = serde_json::from_str(&args.policy).or_malformed("--policy")?;
    let queue = |rate_bps| -> Result<Queue, Error> {
        let context = Context {
            seed: 1,
            label: "replay".into(),
            rate_bps: Some(rate_bps),
            opposite_rate_bps: None,
            policies: registry.policies.clone(),
        };
        Ok(Queue {
            policy: context.build(&named)?,
            rate_bps,
            free: Time::ZERO,
            arrived: HashMap::new(),
            events: Events::default(),
            replayed: Replayed::default(),
            waited_s: 0.0,
        })
    };
    let mut queue = args.rate.map(|rate| queue(rate.max(1))).transpose()?;
    confine(&[args.capture.as_path()], &[], Programs::Refused)?;
    let from: HashSet<IpAddr> = args.from.iter().copied().collect();
    let mut capture = Capture::open(&args.capture)?;
    let (mut forward, mut reverse) = (Direction::default(), Direction::default());
    let (mut others, mut id, mut first_ns, mut last_ns) = (0, 0, None, 0);
    while let Some(frame) = capture.next() {
        let Some((packet, source, destination)) = network_layer(&frame).and_then(|bytes| read(id, bytes)) else {
            others += 1;
            continue;
        };
        // Clocks may jump back; a queue's does not.
        let begin = *first_ns.get_or_insert(frame.time_ns);
        last_ns = frame.time_ns.max(last_ns).max(begin);
        let wire = network_layer(&frame).unwrap_or_default();
        if from.contains(&source) && !from.contains(&destination) {
            forward.count(frame.time_ns, &packet, wire);
            id += 1;
            if let Some(queue) = &mut queue {
                queue.arrive(Time((last_ns - begin) as u64), packet);
            }
        } else if from.contains(&destination) && !from.contains(&source) {
            reverse.count(frame.time_ns, &packet, wire);
        } else {
            others += 1;
        }
    }
    let summary = Summary {
        duration_s: (last_ns - first_ns.unwrap_or(last_ns)) as f64 / 1e9,
        forward,
        reverse,
        other_frames: others,
        damage: capture.damage().iter().map(ToString::to_string).collect(),
        replayed: queue.map(Queue::end),
    };
    reports::print(&summary)
}

/// The packet with its addresses; `None` if its header is cut off. Bytes that were not captured are zeros.
fn read(id: u64, bytes: &[u8]) -> Option<(Packet, IpAddr, IpAddr)> {
    let address = |at: usize| Some(IpAddr::from(*bytes.get(at..at + 4)?.first_chunk::<4>()?));
    let long_address = |at: usize| Some(IpAddr::from(*bytes.get(at..at + 16)?.first_chunk::<16>()?));
    let word = |at: usize| Some(usize::from(u16::from_be_bytes(*bytes.get(at..at + 2)?.first_chunk::<2>()?)));
    let (length, source, destination) = match bytes.first()? >> 4 {
        4 => (word(2)?, address(12)?, address(16)?),
        6 => (40 + word(4)?, long_address(8)?, long_address(24)?),
        _ => return None,
    };
    // Frames are padded; segments that the kernel splits later state no length.
    let kept = &bytes[..if length == 0 { bytes.len() } else { bytes.len().min(length) }];
    let zeros = length.saturating_sub(kept.len());
    Some((Packet::with_zeros(id, kept.to_vec(), zeros as u32), source, destination))
}

fn is_udp(bytes: &[u8]) -> bool {
    let protocol = match bytes.first().map(|byte| byte >> 4) {
        Some(4) => bytes.get(9),
        _ => bytes.get(6),
    };
    protocol == Some(&17)
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::Segment;

    fn queue(policy: &str) -> Queue {
        let context = Context {
            seed: 1,
            label: "test".into(),
            rate_bps: Some(8000),
            opposite_rate_bps: None,
            policies: backchannel_policies::builtin(),
        };
        let named = serde_json::from_str(policy).expect("a policy");
        Queue {
            policy: context.build(&named).expect("valid"),
            rate_bps: 8000,
            free: Time::ZERO,
            arrived: HashMap::new(),
            events: Events::default(),
            replayed: Replayed::default(),
            waited_s: 0.0,
        }
    }

    #[test]
    fn packets_leave_at_the_lines_rate_and_a_filter_purges_those_that_wait() {
        let acks = |policy| {
            let mut queue = queue(policy);
            for id in 0..4u32 {
                let ack = Segment { id: u64::from(id), ack: id, ..Segment::default() };
                queue.arrive(Time(u64::from(id) * 1_000_000), ack.packet());
            }
            queue.end()
        };
        let plain = acks(r#"{"name": "droptail"}"#);
        // 40 bytes take 40 ms of 8 kbit/s, and arrive 1 ms apart.
        assert_eq!((plain.left, plain.left_bytes, plain.purged), (4, 160, 0));
        assert!((plain.mean_wait_s - (0.039 + 0.078 + 0.117) / 4.0).abs() < 1e-9, "{}", plain.mean_wait_s);
        let filtered = acks(r#"{"name": "ack-filtering"}"#);
        assert_eq!((filtered.left, filtered.left_acks, filtered.purged), (2, 2, 2));
        assert!((filtered.longest_wait_s - 0.037).abs() < 1e-9);
    }

    #[test]
    fn the_busiest_second_begins_at_any_packet() {
        let (ack, mut way) = (Segment::default().packet(), Direction::default());
        // Ten packets of 40 bytes within a second, of which seconds of the clock have five each.
        for number in 0..10 {
            way.count(500_000_000 + number * 100_000_000, &ack, ack.bytes());
        }
        assert_eq!(way.busiest_second_bytes, 400);
        way.count(10_000_000_000, &ack, ack.bytes());
        assert_eq!((way.busiest_second_bytes, way.second_bytes, way.second.len()), (400, 40, 1));
    }

    #[test]
    fn a_packet_that_was_cut_has_its_length_and_padding_does_not_count() {
        let bytes = Segment { payload: 1000, ..Segment::default() }.packet().bytes().to_vec();
        let (cut, source, destination) = read(0, &bytes[..60]).expect("a header");
        assert_eq!((cut.len(), source.is_ipv4(), source != destination), (1040, true, true));
        let ack = Segment::default().packet().bytes().to_vec();
        let (padded, ..) = read(0, &[&ack[..], &[0; 6]].concat()).expect("a header");
        assert_eq!((padded.len(), padded.is_pure_ack()), (40, true));
        assert!(read(0, &ack[..18]).is_none());
    }
}
