//! A policy that drops every nth packet of another one.

use backchannel_node::core::event::{EventKind, Events};
use backchannel_node::core::options;
use backchannel_node::core::options::{CheckedOptions, ABSENT};
use backchannel_node::core::registry::{Entry, Queueing};
use backchannel_node::core::scenario::Named;
use backchannel_node::core::traits::Backlog;
use backchannel_node::core::Error;
use backchannel_node::core::{Packet, Policy, Time};
use backchannel_node::policies::Context;

options! {
    /// Options of the policy.
    struct Parameters {
        every_packets: u64 = 10, [Packets 1 to 1e6] "every packet of this number is dropped";
        child: Option<Named> = ABSENT, [Policy] "policy that holds the packets; absent: droptail";
    }
}

pub(crate) static ENTRY: Entry =
    Entry::policy("drop-nth", "drops every nth packet in front of a droptail queue", Queueing::FIFO)
        .options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: &Context) -> Result<Box<dyn Policy>, Error> {
    let Parameters { every_packets, child } = Parameters::read(checked);
    let child = child.unwrap_or(Named { name: "droptail".into(), options: Default::default() });
    Ok(Box::new(DropNth { every_packets, arrived: 0, child: context.build(&child)? }))
}

struct DropNth {
    every_packets: u64,
    arrived: u64,
    child: Box<dyn Policy>,
}

impl Policy for DropNth {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        self.arrived += 1;
        if self.arrived.is_multiple_of(self.every_packets) {
            events.record(now, EventKind::DroppedEarly, &packet);
        } else {
            self.child.enqueue(now, packet, events);
        }
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        self.child.dequeue(now, events)
    }

    fn backlog(&self) -> Backlog {
        self.child.backlog()
    }

    fn peek(&self, place: usize) -> Option<&Packet> {
        self.child.peek(place)
    }

    fn take(&mut self, place: usize, instead: Option<Packet>) -> Option<Packet> {
        self.child.take(place, instead)
    }
}
