//! A link as the simulator holds it: point-to-point links, which carry most packets, are called statically.

use backchannel_core::event::Events;
use backchannel_core::packet::Packet;
use backchannel_core::registry::CheckedOptions;
use backchannel_core::scenario::{Change, LinkSpec};
use backchannel_core::time::Time;
use backchannel_core::traits::{Delivery, Link, Policy, Port, Usage};
use backchannel_policies::DropTail;

use crate::point_to_point::{self, PointToPoint};
use crate::{build_with_fault, Fault};

/// A link of any kind.
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
    pub fn new(spec: &LinkSpec, seed: u64, fault: Option<&Fault>) -> Result<AnyLink, String> {
        let is_faulty = fault.is_some_and(|fault| fault.link == spec.name);
        if spec.kind != point_to_point::ENTRY.name || is_faulty || !spec.middleboxes.is_empty() {
            return build_with_fault(spec, seed, fault).map(AnyLink::Boxed);
        }
        AnyLink::point_to_point(spec, seed).map_err(|why| format!("link '{}': {why}", spec.name))
    }

    fn point_to_point(spec: &LinkSpec, seed: u64) -> Result<AnyLink, String> {
        let checked = CheckedOptions::check(&point_to_point::ENTRY, &spec.options)?;
        if point_to_point::has_droptail_alone(spec) {
            point_to_point::with_droptail(&checked, spec, seed).map(AnyLink::DropTail)
        } else {
            point_to_point::with_any_policy(&checked, spec, seed).map(AnyLink::PointToPoint)
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

    fn policy(&self, port: Port) -> Option<&dyn Policy> {
        each!(self, link => link.policy(port))
    }

    fn usage(&self, port: Port) -> Usage {
        each!(self, link => link.usage(port))
    }

    fn change(&mut self, now: Time, port: Port, change: &Change) -> Result<(), String> {
        each!(self, link => link.change(now, port, change))
    }
}
