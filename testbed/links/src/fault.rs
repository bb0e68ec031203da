//! Faults for tests of the guards: a link that does not do what its specification declares, and does not report it.
//!
//! Only `BACKCHANNEL_FAULT` of the emulator and the field `fault` of a simulation's input set one
//! (docs/emulator-protocol.md). A run with a fault is always invalid.

use std::collections::BTreeMap;
use std::time::Duration;

use backchannel_core::event::Events;
use backchannel_core::packet::Packet;
use backchannel_core::scenario::{Change, DirectionSpec, LinkSpec};
use backchannel_core::time::{service_time, Time};
use backchannel_core::traits::{Backlog, Delivery, Link, Port, Usage};
use backchannel_core::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::assembly;
use crate::registry::Context;

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
    /// Its jitter is greater by this many seconds.
    JitterS(f64),
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
pub fn build_with_fault(spec: &LinkSpec, context: &Context, fault: Option<&Fault>) -> Result<Box<dyn Link>, Error> {
    let Some(fault) = fault.filter(|fault| fault.link == spec.name) else { return assembly::build(spec, context) };
    let mut faulty = spec.clone();
    for direction in [&mut faulty.forward, &mut faulty.reverse] {
        apply(&fault.kind, direction);
    }
    if let FaultKind::FramingBytes(more) = fault.kind {
        add(&mut faulty.options, "framing_bytes", more, 0);
    }
    let link = assembly::build(&faulty, context)?;
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
        FaultKind::JitterS(more) => direction.jitter_s += more,
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
                let service_ns = service_time(u64::from(delivery.packet.len()) * 8, rate_bps);
                delivery.at = match end.last {
                    None => delivery.at + Duration::from_secs_f64(length_s),
                    Some(last) => delivery.at.max(last + service_ns),
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

    fn backlog(&self, port: Port) -> Option<Backlog> {
        self.link.backlog(port)
    }

    fn peek(&self, port: Port, place: usize) -> Option<&Packet> {
        self.link.peek(port, place)
    }

    fn usage(&self, port: Port) -> Usage {
        self.link.usage(port)
    }

    fn change(&mut self, now: Time, port: Port, change: &Change) -> Result<(), Error> {
        self.link.change(now, port, change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{context, drain};
    use backchannel_core::packet::build::data;
    use serde_json::json;

    /// Deliveries, in milliseconds and by id, of four packets of 1000 bytes submitted at 0. The link has 8 and 4 Mbit/s, a
    /// delay of 10 ms and room for 9 packets.
    fn deliveries(name: &str, kind: FaultKind, port: Port, limit_packets: u32) -> Vec<(f64, u64)> {
        let queue = json!({"name": "droptail", "options": {"limit_packets": limit_packets}});
        let way = |rate_bps: u64| json!({"rate_bps": rate_bps, "delay_s": 0.01, "queue": queue});
        let spec = json!({
            "name": "line", "kind": "point-to-point", "ends": ["a", "b"],
            "forward": way(8_000_000), "reverse": way(4_000_000),
        });
        let fault = Fault { link: name.into(), kind };
        let mut link = build_with_fault(&serde_json::from_value(spec).unwrap(), &context(1), Some(&fault)).unwrap();
        let mut events = Events::default();
        (1..=4).for_each(|id| link.submit(Time::ZERO, port, data(id, 960), &mut events));
        assert_eq!(link.peek(port, 0).map(|packet| packet.id), Some(2), "the first is in transmission");
        let out = drain(&mut *link, &mut events);
        assert!(out.iter().all(|(to, _, _)| *to == 1 - port));
        out.into_iter().map(|(_, ns, id)| (ns as f64 / 1e6, id)).collect()
    }

    #[test]
    fn each_fault_changes_what_it_names_and_nothing_else() {
        let healthy = [(11.0, 1), (12.0, 2), (13.0, 3), (14.0, 4)];
        let twice = [(12.0, 1), (14.0, 2), (16.0, 3), (18.0, 4)];
        let forward = |kind| deliveries("line", kind, 0, 9);
        assert_eq!(deliveries("other", FaultKind::SwallowEvery(1), 0, 9), healthy);
        assert_eq!(forward(FaultKind::RateFactor(0.5)), twice);
        assert_eq!(forward(FaultKind::FramingBytes(1000)), twice);
        assert_eq!(forward(FaultKind::DelayS(0.001)), healthy.map(|(ms, id)| (ms + 1.0, id)));
        assert_eq!(forward(FaultKind::SwallowEvery(2)), [healthy[0], healthy[2]]);
        let [a, b, c, d] = healthy;
        assert_eq!(forward(FaultKind::DuplicateEvery(2)), [a, b, b, c, d, d]);
        // The second follows the third; the fourth has no successor and waits for a second.
        assert_eq!(forward(FaultKind::ReorderEvery(2)), [a, c, (13.0, 2), (1014.0, 4)]);
    }

    /// From the first packet after 12 ms on, everything is a second late, and one packet's time apart.
    #[test]
    fn a_line_that_stands_still_once_goes_on_at_its_own_rate() {
        let stall = || FaultKind::Stall { at_s: 0.012, length_s: 1.0 };
        let forward = deliveries("line", stall(), 0, 9);
        assert_eq!(forward, [(11.0, 1), (1012.0, 2), (1013.0, 3), (1014.0, 4)]);
        let reverse = deliveries("line", stall(), 1, 9);
        assert_eq!(reverse, [(1012.0, 1), (1014.0, 2), (1016.0, 3), (1018.0, 4)]);
    }

    #[test]
    fn a_longer_queue_holds_as_many_packets_more() {
        let fits = |more| deliveries("line", FaultKind::QueuePackets(more), 0, 1).len();
        assert_eq!((fits(0), fits(1), fits(2)), (2, 3, 4));
    }
}
