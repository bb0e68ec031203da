//! A link as the simulator holds it: point-to-point links, which carry most packets, are called statically.

use backchannel_core::event::Events;
use backchannel_core::options::CheckedOptions;
use backchannel_core::packet::Packet;
use backchannel_core::scenario::{Change, LinkSpec};
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Delivery, Link, Policy, Port, Usage};
use backchannel_core::Error;
use backchannel_policies::DropTail;

use crate::fault::{build_with_fault, Fault};
use crate::point_to_point::{self, PointToPoint};
use crate::registry::Context;

/// A link of any kind. With a tag of its own, because a match on one within a variant costs more.
#[repr(u8)]
pub enum AnyLink {
    /// Point-to-point with droptail queues.
    DropTail(PointToPoint<DropTail>),
    /// Point-to-point with other policies.
    PointToPoint(PointToPoint<Box<dyn Policy>>),
    /// Any other kind, and links with middleboxes or faults.
    Boxed(Box<dyn Link>),
}

impl AnyLink {
    /// Builds a link, with the fault if it is one of this link. See [`crate::build`].
    ///
    /// # Errors
    /// Those of [`crate::build`].
    pub fn new(spec: &LinkSpec, context: &Context, fault: Option<&Fault>) -> Result<AnyLink, Error> {
        let is_faulty = fault.is_some_and(|fault| fault.link == spec.name);
        if spec.kind != point_to_point::ENTRY.name || is_faulty || !spec.middleboxes.is_empty() {
            return build_with_fault(spec, context, fault).map(AnyLink::Boxed);
        }
        AnyLink::point_to_point(spec, context).map_err(|error| error.within(format!("link '{}'", spec.name)))
    }

    fn point_to_point(spec: &LinkSpec, context: &Context) -> Result<AnyLink, Error> {
        let checked = CheckedOptions::check(&point_to_point::ENTRY, &spec.options)?;
        if point_to_point::has_droptail_alone(spec) {
            point_to_point::with_droptail(&checked, spec, context).map(AnyLink::DropTail)
        } else {
            point_to_point::with_any_policy(&checked, spec, context).map(AnyLink::PointToPoint)
        }
    }
}

/// Calls a method of whichever link it is.
macro_rules! each {
    ($any:expr, $link:ident => $call:expr) => {
        match $any {
            AnyLink::DropTail($link) => $call,
            AnyLink::PointToPoint($link) => $call,
            AnyLink::Boxed($link) => $call,
        }
    };
}

impl Link for AnyLink {
    #[inline]
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events) {
        each!(self, link => link.submit(now, port, packet, events));
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        each!(self, link => link.next_event())
    }

    #[inline]
    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events) {
        each!(self, link => link.poll(now, out, events));
    }

    #[inline(always)]
    fn backlog(&self, port: Port) -> Option<Backlog> {
        each!(self, link => link.backlog(port))
    }

    fn peek(&self, port: Port, place: usize) -> Option<&Packet> {
        each!(self, link => link.peek(port, place))
    }

    fn usage(&self, port: Port) -> Usage {
        each!(self, link => link.usage(port))
    }

    fn change(&mut self, now: Time, port: Port, change: &Change) -> Result<(), Error> {
        each!(self, link => link.change(now, port, change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::{ack, data};
    use proptest::prelude::*;
    use serde_json::json;

    /// What a link delivers and records of these packets: waits in ns, ends at which they enter, bytes of payload.
    fn carried(link: &mut dyn Link, offered: &[(u64, Port, u32)]) -> (Vec<(Port, u64, u64)>, String) {
        let (mut events, mut out, mut now) = (Events::default(), Vec::new(), Time::ZERO);
        for (id, &(wait_ns, port, payload)) in (1..).zip(offered) {
            now = Time(now.nanos() + wait_ns);
            while let Some(due) = link.next_event().filter(|due| *due <= now) {
                link.poll(due, &mut out, &mut events);
            }
            let packet = if payload == 0 { ack(id) } else { data(u64::from(id), payload) };
            link.submit(now, port, packet, &mut events);
        }
        while let Some(due) = link.next_event() {
            link.poll(due, &mut out, &mut events);
        }
        let delivered = out.iter().map(|delivery| (delivery.port, delivery.at.nanos(), delivery.packet.id));
        (delivered.collect(), format!("{:?} {:?} {:?}", events.list, link.usage(0), link.usage(1)))
    }

    proptest! {
        /// The laws of `testbed/laws`, for the kinds that keep the order of packets.
        #[test]
        fn links_keep_the_laws(
            seed: u64,
            kind in proptest::sample::select(vec!["point-to-point", "mahimahi"]),
            limit in 1u32..200,
        ) {
            let mut direction =
                json!({"delay_s": 0.01, "queue": {"name": "droptail", "options": {"limit_packets": limit}}});
            if kind == "mahimahi" {
                direction["options"] = json!({"trace": "3\n10\n"});
            } else {
                direction["rate_bps"] = 2_000_000.into();
            }
            let spec: LinkSpec = serde_json::from_value(json!({
                "name": "line", "kind": kind, "ends": ["a", "b"], "forward": direction, "reverse": direction,
            })).expect("a link");
            let steps = backchannel_laws::steps::of_seed(seed, 150);
            let mut build = || crate::testing::build(&spec, 1).expect("a good link");
            backchannel_laws::link::carries(&mut *build(), &steps, true)
                .and_then(|_| backchannel_laws::link::keeps_time(&mut build, &steps))
                .map_err(|broken| TestCaseError::fail(format!("{kind}: {broken}")))?;
        }

        /// A link that is called statically does what the same link in a box does.
        #[test]
        fn it_carries_as_a_boxed_link_does(
            offered in proptest::collection::vec((0u64..3_000_000, 0u16..2, 0u32..1400), 1..150),
            policy in proptest::sample::select(vec!["droptail", "red", "ack-filtering"]),
            limit in 1u32..10,
            changes: bool,
        ) {
            let queue = json!({"name": policy, "options": {"limit_packets": limit}});
            let schedule = if changes { json!([{"at_s": 0.02, "rate_bps": 3_000_000}]) } else { json!([]) };
            let forward = json!({"rate_bps": 10_000_000, "delay_s": 0.002, "queue": queue, "schedule": schedule});
            let reverse = json!({"rate_bps": 1_000_000, "delay_s": 0.001, "queue": queue});
            let spec: LinkSpec = serde_json::from_value(json!({
                "name": "line", "kind": "point-to-point", "ends": ["a", "b"], "forward": forward, "reverse": reverse,
            })).expect("a link");
            let mut built = AnyLink::new(&spec, &crate::testing::context(1), None).expect("a good link");
            prop_assert_eq!(matches!(built, AnyLink::DropTail(_)), policy == "droptail");
            prop_assert!(!matches!(built, AnyLink::Boxed(_)));
            let mut boxed = crate::testing::build(&spec, 1).expect("a good link");
            prop_assert_eq!(carried(&mut built, &offered), carried(&mut boxed, &offered));
        }
    }
}
