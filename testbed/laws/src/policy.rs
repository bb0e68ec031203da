//! Laws of queue policies.

use std::collections::BTreeSet;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::ip::IpVersion;
use backchannel_core::packet::build::{data, udp};
use backchannel_core::packet::Ecn;
use backchannel_core::registry::When;
use backchannel_core::scenario::Options;
use backchannel_core::{Policy, Time};

use crate::steps::Step;
use crate::{hold, Broken, CONSERVATION, DETERMINISM, IP, MEMORY, ORDER, POLLING, TIME};

/// Packets beyond which a policy without a limit of its own counts as unbounded.
const MOST_PACKETS: usize = 20_000;

/// What a policy claims of itself, in its entry and by its options.
#[derive(Clone, Copy, Debug)]
pub struct Claims {
    /// Packets that wait at most; `None`: it has no such option.
    pub limit_packets: Option<u64>,
    /// Bytes that wait at most.
    pub limit_bytes: u64,
    /// Whether a line that is free gets a packet as long as one waits.
    pub lends: bool,
    /// Whether all packets, not only the data of each connection, leave in the order in which they came.
    pub is_fifo: bool,
}

/// Whether an entry's property holds with these options.
pub fn applies(when: When, options: &Options) -> bool {
    match when {
        When::Never => false,
        When::Always => true,
        When::With(option) => options.contains_key(option),
        When::IsOf(option, values) => options.get(option).is_some_and(|set| values.iter().any(|value| set == value)),
    }
}

/// Each packet leaves once or is reported once; limits hold; only pure acks are purged; each connection's data keep
/// their order; the announced time is right; a second question at the same time changes nothing.
///
/// # Errors
/// The first violation.
pub fn accounts(policy: &mut dyn Policy, steps: &[Step], claims: &Claims) -> Result<(), Broken> {
    let mut events = Events::default();
    let (mut entered, mut left, mut data_out, mut last_out) = (0u64, BTreeSet::new(), Vec::new(), None);
    let mut now = Time::ZERO;
    for (number, step) in steps.iter().enumerate() {
        now = Time(now.nanos() + 1000);
        match step {
            Step::Wait { ms } => now = Time(now.nanos() + ms * 1_000_000),
            Step::Opposite { payload } => policy.on_opposite(now, &udp(0, *payload)),
            Step::Dequeue => {
                let (waiting, next) = (policy.len_packets(), policy.next_time());
                let out = policy.dequeue(now, &mut events);
                let is_due = next.is_some_and(|at| at <= now);
                hold!(TIME, out.is_some() == is_due, "next_time said {next:?}, and dequeue at {now:?} gave {out:?}");
                let is_served = !claims.lends || out.is_some() == (waiting > 0);
                hold!(TIME, is_served, "{waiting} packets wait, the line is free, and dequeue gave {out:?}");
                let Some(packet) = out else {
                    let (reported, after) = (events.list.len(), policy.backlog());
                    let again = policy.dequeue(now, &mut events);
                    let is_same = again.is_none() && events.list.len() == reported && policy.backlog() == after;
                    hold!(POLLING, is_same, "dequeue at {now:?} gave nothing, and then {again:?} or an event");
                    continue;
                };
                hold!(CONSERVATION, left.insert(packet.id), "packet {} left twice", packet.id);
                let in_order = last_out.is_none_or(|last| last < packet.id);
                hold!(ORDER, !claims.is_fifo || in_order, "packet {} left after {last_out:?}", packet.id);
                last_out = Some(packet.id);
                if packet.tcp().is_some_and(|tcp| tcp.payload > 0) {
                    data_out.push((packet.flow().map(|flow| flow.src_port), packet.id));
                }
            }
            _ => {
                entered += 1;
                policy.enqueue(now, step.packet(number as u64).expect("the other steps have no packet"), &mut events);
            }
        }
        let backlog = policy.backlog();
        let is_bounded = claims.limit_packets.is_none_or(|limit| backlog.packets as u64 <= limit);
        hold!(MEMORY, is_bounded, "{} packets wait, and the limit is {:?}", backlog.packets, claims.limit_packets);
        hold!(MEMORY, backlog.bytes <= claims.limit_bytes, "{} bytes wait: more than the limit", backlog.bytes);
        hold!(MEMORY, (backlog.packets == 0) == (backlog.bytes == 0), "the backlog is {backlog:?}");
    }
    let waiting: Vec<_> = (0..policy.len_packets()).map(|place| policy.peek(place).map(|packet| packet.id)).collect();
    let beyond = policy.peek(waiting.len()).map(|packet| packet.id);
    hold!(MEMORY, waiting.iter().all(Option::is_some) && beyond.is_none(), "peek shows {waiting:?}, then {beyond:?}");
    for event in &events.list {
        match event.kind {
            // The packet is still queued or sent.
            EventKind::Marked | EventKind::MarkedDupack => continue,
            EventKind::Purged => hold!(CONSERVATION, event.pure_ack, "data were purged: packet {}", event.packet_id),
            _ => {}
        }
        hold!(CONSERVATION, left.insert(event.packet_id), "packet {} is reported, and left before", event.packet_id);
    }
    let (gone, waiting) = (left.len() as u64, policy.len_packets() as u64);
    hold!(
        CONSERVATION,
        entered == gone + waiting,
        "{entered} packets came, {gone} left or are reported, {waiting} wait"
    );
    for flow in data_out.iter().map(|(flow, _)| *flow).collect::<BTreeSet<_>>() {
        let ids: Vec<_> = data_out.iter().filter(|(other, _)| *other == flow).map(|(_, id)| *id).collect();
        hold!(ORDER, ids.windows(2).all(|pair| pair[0] < pair[1]), "a connection's data left in the order {ids:?}");
    }
    Ok(())
}

/// A policy that nobody empties does not grow without bound.
///
/// # Errors
/// It does.
pub fn is_bounded(policy: &mut dyn Policy) -> Result<(), Broken> {
    let mut events = Events::default();
    for id in 0..=MOST_PACKETS as u64 {
        policy.enqueue(Time(id * 1000), data(id, 40), &mut events);
        events.list.clear();
    }
    hold!(MEMORY, policy.len_packets() < MOST_PACKETS, "all of {MOST_PACKETS} packets wait that nobody fetches");
    Ok(())
}

/// What a policy does with some packets.
#[derive(Debug, PartialEq)]
pub struct Treatment {
    /// Id and ECN field of each that leaves.
    pub left: Vec<(u64, Ecn)>,
    /// Id and kind of each event.
    pub events: Vec<(u64, EventKind)>,
}

/// What a policy does with these steps over a version of IP.
pub fn treatment(policy: &mut dyn Policy, ip: IpVersion, steps: &[Step]) -> Treatment {
    let (mut events, mut left, mut now) = (Events::default(), Vec::new(), Time::ZERO);
    for (number, step) in steps.iter().enumerate() {
        now = Time(now.nanos() + 1000);
        match step {
            Step::Wait { ms } => now = Time(now.nanos() + ms * 1_000_000),
            Step::Opposite { payload } => policy.on_opposite(now, &udp(0, *payload)),
            Step::Dequeue => left.extend(policy.dequeue(now, &mut events).map(|packet| (packet.id, packet.ecn()))),
            _ => {
                let packet = step.packet_over(ip, number as u64).expect("the other steps have no packet");
                policy.enqueue(now, packet, &mut events);
            }
        }
    }
    Treatment { left, events: events.list.iter().map(|event| (event.packet_id, event.kind)).collect() }
}

/// Two policies of one seed do the same, and with packets of IPv6 what they do with those of IPv4.
///
/// # Errors
/// They do not.
pub fn repeats(build: &mut dyn FnMut() -> Box<dyn Policy>, steps: &[Step]) -> Result<(), Broken> {
    let mut over = |ip| treatment(&mut *build(), ip, steps);
    let (first, second, third) = (over(IpVersion::V4), over(IpVersion::V4), over(IpVersion::V6));
    hold!(DETERMINISM, first == second, "{}", difference(&first, &second));
    hold!(IP, first == third, "{}", difference(&first, &third));
    Ok(())
}

fn difference(one: &Treatment, other: &Treatment) -> String {
    let left = one.left.iter().zip(&other.left).find(|(one, other)| one != other);
    let events = one.events.iter().zip(&other.events).find(|(one, other)| one != other);
    format!("packets that left differ at {left:?}, events at {events:?}")
}

/// What a line of a rate gets through a policy.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// Packets that arrived.
    pub arrived: usize,
    /// How long each packet that left had waited, in seconds.
    pub waits_s: Vec<f64>,
    /// Packets that waited at once, at most.
    pub longest_packets: usize,
    /// Kind of each event.
    pub events: Vec<EventKind>,
}

/// Serves a policy by a line of a rate in bit/s. Arrivals are steps with their times, in order of time.
pub fn serve(policy: &mut dyn Policy, rate_bps: f64, arrivals: &[(Time, Step)]) -> Served {
    let (mut events, mut served) = (Events::default(), Served::default());
    let mut came = Vec::new();
    let mut free = Time::ZERO;
    let mut next = arrivals.iter().enumerate().peekable();
    loop {
        // The line asks as soon as it is free and the policy can give; arrivals of that time come first.
        let ask = policy.next_time().map(|at| at.max(free));
        match (next.peek(), ask) {
            (Some(&(id, (at, step))), ask) if ask.is_none_or(|ask| *at <= ask) => {
                next.next();
                came.push(*at);
                let Some(packet) = step.packet(id as u64) else { continue };
                served.arrived += 1;
                free = free.max(*at);
                policy.enqueue(*at, packet, &mut events);
                served.longest_packets = served.longest_packets.max(policy.len_packets());
            }
            (_, Some(ask)) => {
                let Some(packet) = policy.dequeue(ask, &mut events) else {
                    // It dropped what waited.
                    free = Time(ask.nanos() + 1);
                    continue;
                };
                served.waits_s.push(ask.seconds() - came[packet.id as usize].seconds());
                free = Time(ask.nanos() + (f64::from(packet.len()) * 8e9 / rate_bps) as u64);
            }
            (None, None) => break,
            (Some(_), None) => unreachable!("an arrival is taken where the line does not ask"),
        }
    }
    served.events = events.list.iter().map(|event| event.kind).collect();
    served
}
