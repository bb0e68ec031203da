//! Mechanisms that break one law each, by their names. `tests/sim/own/test_check.py` makes a crate of this file.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backchannel_node::core::event::{EventKind, Events};
use backchannel_node::core::options::CheckedOptions;
use backchannel_node::core::registry::{Entry, ExchangeKind, Physical, Queueing};
use backchannel_node::core::scenario::LinkSpec;
use backchannel_node::core::traits::{Backlog, Usage};
use backchannel_node::core::{Delivery, Error, Link, Middlebox, Packet, Policy, Port, Side, Time};
use backchannel_node::links::{Direction, Fields};
use backchannel_node::stacks::config::Config;
use backchannel_node::stacks::controllers::{AckSample, Classic, CongestionController, Growth, Window};
use backchannel_node::workloads::{Action, Workload};
use backchannel_node::{links, middleboxes, policies, workloads, Registry};

const LOSES: u8 = 0;
const REORDERS: u8 = 1;
const EARLY: u8 = 2;
const REPEATS: u8 = 3;
const GROWS: u8 = 4;
const VARIES: u8 = 5;
const HATES_IPV6: u8 = 6;
const NOTHING: u8 = 7;

/// Instances so far: what differs from run to run.
static BUILT: AtomicU64 = AtomicU64::new(0);

macro_rules! entries {
    ($entry:ident, $($name:ident = $text:literal $(, $more:expr)?;)*) => {
        $(static $name: Entry = Entry::$entry($text, "breaks a law" $(, $more)?).source("this test");)*
    };
}
entries! { policy,
    P0 = "p-loses", Queueing::FIFO; P1 = "p-reorders", Queueing::FIFO; P2 = "p-early", Queueing::FIFO;
    P3 = "p-repeats", Queueing::FIFO; P4 = "p-grows", Queueing::FIFO; P5 = "p-varies", Queueing::FIFO;
    P6 = "p-hates-ipv6", Queueing::FIFO; P7 = "p-nothing", Queueing::FIFO;
}
const AIR: Physical = Physical { radio: false, probing: None };
entries! { link,
    L0 = "l-loses", AIR; L1 = "l-reorders", AIR; L2 = "l-early", AIR; L3 = "l-repeats", AIR; L4 = "l-grows", AIR;
    L5 = "l-varies", AIR; L7 = "l-nothing", AIR;
}
entries! { middlebox,
    M0 = "m-loses"; M2 = "m-early"; M3 = "m-repeats"; M5 = "m-varies"; M7 = "m-nothing";
}
entries! { workload,
    W2 = "w-early", ExchangeKind::Transfers; W5 = "w-varies", ExchangeKind::Transfers;
    W7 = "w-nothing", ExchangeKind::Transfers;
}

pub fn register(registry: Registry) -> Registry {
    registry
        .policy(&P0, policy::<LOSES>)
        .policy(&P1, policy::<REORDERS>)
        .policy(&P2, policy::<EARLY>)
        .policy(&P3, policy::<REPEATS>)
        .policy(&P4, policy::<GROWS>)
        .policy(&P5, policy::<VARIES>)
        .policy(&P6, policy::<HATES_IPV6>)
        .policy(&P7, policy::<NOTHING>)
        .link(&L0, link::<LOSES>)
        .link(&L1, link::<REORDERS>)
        .link(&L2, link::<EARLY>)
        .link(&L3, link::<REPEATS>)
        .link(&L4, link::<GROWS>)
        .link(&L5, link::<VARIES>)
        .link(&L7, link::<NOTHING>)
        .middlebox(&M0, middlebox::<LOSES>)
        .middlebox(&M2, middlebox::<EARLY>)
        .middlebox(&M3, middlebox::<REPEATS>)
        .middlebox(&M5, middlebox::<VARIES>)
        .middlebox(&M7, middlebox::<NOTHING>)
        .workload(&W2, workload::<EARLY>)
        .workload(&W5, workload::<VARIES>)
        .workload(&W7, workload::<NOTHING>)
        .controller_with("c-idle", &[], controller::<LOSES>)
        .controller_with("c-varies", &[], controller::<VARIES>)
        .controller_with("c-nothing", &[], controller::<NOTHING>)
}

fn number() -> u64 {
    BUILT.fetch_add(1, Ordering::Relaxed)
}

// Policies: a queue of ten packets.

struct Queue<const FAULT: u8> {
    packets: VecDeque<Packet>,
    arrived: u64,
    number: u64,
}

fn policy<const FAULT: u8>(_: &CheckedOptions<'_>, _: &policies::Context) -> Result<Box<dyn Policy>, Error> {
    Ok(Box::new(Queue::<FAULT> { packets: VecDeque::new(), arrived: 0, number: number() }))
}

impl<const FAULT: u8> Policy for Queue<FAULT> {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        self.arrived += 1;
        let drops = (FAULT == VARIES && self.arrived.is_multiple_of(5 + self.number % 3))
            || (FAULT == HATES_IPV6 && packet.bytes()[0] >> 4 == 6)
            || (self.packets.len() >= 10 && FAULT != GROWS);
        if !drops {
            self.packets.push_back(packet);
        } else if FAULT != LOSES {
            events.record(now, EventKind::DroppedFull, &packet);
        }
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        if FAULT == REPEATS && self.packets.is_empty() {
            events.record(now, EventKind::Marked, &backchannel_node::core::packet::build::data(1, 1));
        }
        if FAULT == REORDERS { self.packets.pop_back() } else { self.packets.pop_front() }
    }

    fn next_time(&self) -> Option<Time> {
        (FAULT == EARLY || !self.packets.is_empty()).then_some(Time::ZERO)
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.packets.len(), bytes: self.packets.iter().map(|packet| u64::from(packet.len())).sum() }
    }

    fn peek(&self, place: usize) -> Option<&Packet> {
        self.packets.get(place)
    }

    fn take(&mut self, place: usize, _: Option<Packet>) -> Option<Packet> {
        self.packets.remove(place)
    }
}

// Links and middleboxes: 10 ms.

struct Delay<const FAULT: u8> {
    held: VecDeque<(Time, Side, Packet)>,
    number: u64,
}

impl<const FAULT: u8> Delay<FAULT> {
    fn new() -> Self {
        Delay { held: VecDeque::new(), number: number() }
    }

    fn hold(&mut self, now: Time, to: Side, packet: Packet) {
        let varied = if FAULT == VARIES { self.number % 3 } else { 0 };
        let entry = (now + Duration::from_millis(10 + varied), to, packet);
        match self.held.back().map(|(at, ..)| *at) {
            _ if FAULT == LOSES && entry.2.id.is_multiple_of(7) => {}
            Some(at) if FAULT == REORDERS => {
                let place = self.held.len() - 1;
                self.held.insert(place, (at, entry.1, entry.2));
            }
            _ => self.held.push_back(entry),
        }
    }

    fn due(&self) -> Option<Time> {
        // A link that forgets its last packet keeps it for ever.
        let least = usize::from(FAULT == GROWS);
        let at = self.held.front().filter(|_| self.held.len() > least).map(|(at, ..)| *at);
        if FAULT == EARLY { at.or(Some(Time::ZERO)) } else { at }
    }

    fn ready(&mut self, now: Time) -> Vec<(Time, Side, Packet)> {
        let most = if FAULT == REPEATS { 1 } else { usize::MAX };
        let mut ready = Vec::new();
        while ready.len() < most && self.held.front().is_some_and(|(at, ..)| *at <= now) {
            ready.extend(self.held.pop_front());
        }
        ready
    }
}

fn middlebox<const FAULT: u8>(
    _: &CheckedOptions<'_>,
    _: &middleboxes::Context<'_>,
) -> Result<Box<dyn Middlebox>, Error> {
    Ok(Box::new(Delay::<FAULT>::new()))
}

impl<const FAULT: u8> Middlebox for Delay<FAULT> {
    fn process(&mut self, now: Time, from: Side, packet: Packet, _: &mut Vec<(Side, Packet)>, _: &mut Events) {
        self.hold(now, from.other(), packet);
    }

    fn next_event(&self) -> Option<Time> {
        self.due()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<(Side, Packet)>, _: &mut Events) {
        out.extend(self.ready(now).into_iter().map(|(_, to, packet)| (to, packet)));
    }
}

struct BrokenLink<const FAULT: u8>(Delay<FAULT>);

fn link<const FAULT: u8>(
    _: &CheckedOptions<'_>,
    spec: &LinkSpec,
    _: &links::Context,
) -> Result<Box<dyn Link>, Error> {
    Direction::of_two_ends(spec, &Fields { rate: Err("has none"), ..Fields::FIXED })?;
    Ok(Box::new(BrokenLink(Delay::<FAULT>::new())))
}

impl<const FAULT: u8> Link for BrokenLink<FAULT> {
    fn submit(&mut self, now: Time, port: Port, packet: Packet, _: &mut Events) {
        // Several are due at once.
        let tick = if FAULT == REPEATS { 10_000_000 } else { 1 };
        self.0.hold(Time(now.nanos() / tick * tick), if port == 0 { Side::B } else { Side::A }, packet);
    }

    fn next_event(&self) -> Option<Time> {
        self.0.due()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, _: &mut Events) {
        let ready = self.0.ready(now).into_iter();
        out.extend(ready.map(|(at, to, packet)| Delivery { port: Port::from(to == Side::B), at, packet }));
    }

    fn backlog(&self, port: Port) -> Option<Backlog> {
        let packets = if port == 0 { self.0.held.len() } else { 0 };
        Some(Backlog { packets, bytes: 0 })
    }

    fn usage(&self, _: Port) -> Usage {
        Usage::default()
    }
}

// Workloads: a connection a second.

#[derive(Debug)]
struct Every<const FAULT: u8>(u64);

fn workload<const FAULT: u8>(
    _: &CheckedOptions<'_>,
    _: workloads::Context<'_>,
) -> Result<Box<dyn Workload>, Error> {
    Ok(Box::new(Every::<FAULT>(number())))
}

impl<const FAULT: u8> Workload for Every<FAULT> {
    fn act(&mut self, now: Time) -> (Action, Option<Time>) {
        let bytes = if FAULT == VARIES { 1000 + self.0 } else { 1000 };
        let next = if FAULT == EARLY { Time(now.nanos() / 2) } else { now + Duration::from_secs(1) };
        (Action::Connect { bytes: Some(bytes), silent: false }, Some(next))
    }
}

// Controllers: NewReno.

#[derive(Debug)]
struct Reno<const FAULT: u8>(u64);

fn controller<const FAULT: u8>(config: &Config, mss: u32) -> Box<dyn CongestionController> {
    Box::new(Classic::new(config, mss, Reno::<FAULT>(number())))
}

impl<const FAULT: u8> Growth for Reno<FAULT> {
    fn grown(&mut self, window: &Window, ack: &AckSample) -> f64 {
        let increase = if FAULT == LOSES { 0.0 } else { window.mss() };
        window.cwnd() + increase * window.mss() * ack.acked as f64 / window.mss() / window.cwnd()
    }

    fn decreased(&mut self, _: &Window, bytes: f64) -> f64 {
        let share = match FAULT {
            LOSES => 0.01,
            VARIES => 0.4 + 0.01 * (self.0 % 7) as f64,
            _ => 0.5,
        };
        share * bytes
    }
}
