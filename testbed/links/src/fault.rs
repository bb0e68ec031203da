//! Faults for tests of the guards: a link that does not do what its specification declares, and does not report it.
//!
//! Only `BACKCHANNEL_FAULT` of the emulator and the field `fault` of a simulation's input set one
//! (docs/emulator-protocol.md). A run with a fault is always invalid.

use std::collections::BTreeMap;
use std::time::Duration;

use backchannel_core::event::Events;
use backchannel_core::packet::Packet;
use backchannel_core::scenario::{DirectionSpec, LinkSpec};
use backchannel_core::time::{service_time, Time};
use backchannel_core::traits::{Delivery, Link, Policy, Port, Usage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A fault of both directions of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Name of the link.
    pub link: String,
    /// What is wrong with it.
    pub kind: FaultKind,
}

/// What is wrong with a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FaultKind {
    /// Its rate is multiplied by this factor.
    RateFactor(f64),
    /// Its line stands still once.
    Stall {
        /// Start in seconds since the start of the run.
        at_s: f64,
        /// Length in seconds.
        length_s: f64,
    },
    /// Each packet carries this many more bytes of framing.
    FramingBytes(u64),
    /// Its delay is longer by this many seconds.
    DelayS(f64),
    /// Its queues hold this many more packets.
    QueuePackets(u64),
    /// Each packet of this number is delivered twice.
    DuplicateEvery(u64),
    /// Each packet of this number is delivered after its successor.
    ReorderEvery(u64),
    /// Each packet of this number is lost.
    SwallowEvery(u64),
}

/// Longest time for which a packet waits for its successor.
const REORDER_AT_MOST: Duration = Duration::from_secs(1);

/// Builds a link, with the fault if it is one of this link.
///
/// # Errors
/// Those of [`crate::build`].
pub fn build_with_fault(spec: &LinkSpec, seed: u64, fault: Option<&Fault>) -> Result<Box<dyn Link>, String> {
    let Some(fault) = fault.filter(|fault| fault.link == spec.name) else { return crate::build(spec, seed) };
    let mut faulty = spec.clone();
    for direction in [&mut faulty.forward, &mut faulty.reverse] {
        apply(&fault.kind, direction);
    }
    if let FaultKind::FramingBytes(more) = fault.kind {
        add(&mut faulty.options, "framing_bytes", more, 0);
    }
    let link = crate::build(&faulty, seed)?;
    Ok(Box::new(Faulty {
        link,
        kind: fault.kind.clone(),
        rates_bps: spec.rates_bps(),
        ends: (0..spec.ends.len()).map(|_| End::default()).collect(),
        pending: Pending::default(),
        fresh: Vec::new(),
    }))
}

fn apply(kind: &FaultKind, direction: &mut DirectionSpec) {
    match *kind {
        FaultKind::RateFactor(factor) => {
            direction.rate_bps = direction.rate_bps.map(|bps| (bps as f64 * factor).round() as u64);
        }
        FaultKind::DelayS(more) => direction.delay_s += more,
        FaultKind::QueuePackets(more) => add(&mut direction.queue.options, "limit_packets", more, 20),
        _ => {}
    }
}

fn add(options: &mut backchannel_core::scenario::Options, name: &str, more: u64, default: u64) {
    let declared = options.get(name).and_then(|value| value.as_u64()).unwrap_or(default);
    options.insert(name.to_owned(), (declared + more).into());
}

/// A link that reorders, repeats, loses or delays what it delivers.
struct Faulty {
    link: Box<dyn Link>,
    kind: FaultKind,
    rates_bps: [Option<u64>; 2],
    ends: Vec<End>,
    pending: Pending,
    fresh: Vec<Delivery>,
}

/// Deliveries by time, and in the order in which they came.
#[derive(Default)]
struct Pending {
    by_time: BTreeMap<(Time, u64), Delivery>,
    count: u64,
}

impl Pending {
    fn add(&mut self, delivery: Delivery) {
        self.count += 1;
        self.by_time.insert((delivery.at, self.count), delivery);
    }
}

/// What one end has received.
#[derive(Default)]
struct End {
    count: u64,
    /// Delivery of the last packet, once the line has stood still.
    last: Option<Time>,
    /// A packet that waits for its successor.
    held: Option<Delivery>,
}

impl Faulty {
    fn pass(&mut self, mut delivery: Delivery) {
        let end = &mut self.ends[usize::from(delivery.port)];
        end.count += 1;
        let is_turn = |every: u64| end.count.is_multiple_of(every);
        match self.kind {
            FaultKind::SwallowEvery(every) if is_turn(every) => return,
            FaultKind::DuplicateEvery(every) if is_turn(every) => {
                self.pending.add(Delivery { port: delivery.port, at: delivery.at, packet: delivery.packet.clone() });
            }
            FaultKind::ReorderEvery(every) if is_turn(every) && end.held.is_none() => {
                end.held = Some(delivery);
                return;
            }
            FaultKind::Stall { at_s, length_s } if delivery.at >= Time::from_seconds(at_s) => {
                let rate_bps = self.rates_bps[usize::from(delivery.port == 0)].unwrap_or(u64::MAX);
                let own = service_time(u64::from(delivery.packet.len()) * 8, rate_bps);
                delivery.at = match end.last {
                    None => delivery.at + Duration::from_secs_f64(length_s),
                    Some(last) => delivery.at.max(last + own),
                };
                end.last = Some(delivery.at);
            }
            _ => {}
        }
        let held = end.held.take();
        let at = delivery.at;
        self.pending.add(delivery);
        if let Some(held) = held {
            self.pending.add(Delivery { at, ..held });
        }
    }
}

impl Link for Faulty {
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events) {
        self.link.submit(now, port, packet, events);
    }

    fn next_event(&self) -> Option<Time> {
        let pending = self.pending.by_time.first_key_value().map(|((at, _), _)| *at);
        let held = self.ends.iter().filter_map(|end| end.held.as_ref().map(|held| held.at + REORDER_AT_MOST));
        held.chain(pending).chain(self.link.next_event()).min()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events) {
        let mut fresh = std::mem::take(&mut self.fresh);
        self.link.poll(now, &mut fresh, events);
        fresh.drain(..).for_each(|delivery| self.pass(delivery));
        self.fresh = fresh;
        for end in 0..self.ends.len() {
            if let Some(held) = self.ends[end].held.take_if(|held| held.at + REORDER_AT_MOST <= now) {
                self.pending.add(Delivery { at: now, ..held });
            }
        }
        while let Some(first) = self.pending.by_time.first_entry().filter(|first| first.key().0 <= now) {
            out.push(first.remove());
        }
    }

    fn policy(&self, port: Port) -> Option<&dyn Policy> {
        self.link.policy(port)
    }

    fn usage(&self, port: Port) -> Usage {
        self.link.usage(port)
    }
}
