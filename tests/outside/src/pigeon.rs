//! A link of pigeons (RFC 1149): one leaves each end at equal intervals with the packets that wait.

use std::time::Duration;

use backchannel_node::core::event::Events;
use backchannel_node::core::options;
use backchannel_node::core::options::CheckedOptions;
use backchannel_node::core::registry::{Entry, Physical};
use backchannel_node::core::scenario::LinkSpec;
use backchannel_node::core::traits::{Backlog, Usage};
use backchannel_node::core::Error;
use backchannel_node::core::{Delivery, Link, Packet, Policy, Port, Time};
use backchannel_node::links::{Context, Direction, Fields, Medium};

options! {
    /// Options of the link.
    struct Parameters {
        interval_s: Duration = 0.05, [Time 0.001 to 1e5] "time between two pigeons of one end";
        load_packets: usize = 10, [Packets 1 to 1000] "packets that a pigeon carries at most";
    }
}

pub(crate) static ENTRY: Entry =
    Entry::link("pigeon", "avian carriers at equal intervals", Physical { radio: false, probing: None })
        .source("RFC 1149")
        .options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, spec: &LinkSpec, context: &Context) -> Result<Box<dyn Link>, Error> {
    let [forward, reverse] = Direction::of_two_ends(spec, &FIELDS)?;
    let loft = |way: &Direction<'_>| way.build(|way| Medium::new(way, [None; 2], context));
    let lofts = [loft(&forward)?, loft(&reverse)?];
    Ok(Box::new(Pigeons { parameters: Parameters::read(checked), lofts, leaves: Time::ZERO }))
}

/// A pigeon has no rate, and takes off as the campaign says.
const FIELDS: Fields = Fields { rate: Err("has no rate: it has an interval and a load"), ..Fields::FIXED };

struct Pigeons {
    parameters: Parameters,
    lofts: [Medium; 2],
    /// When the next pigeons leave.
    leaves: Time,
}

impl Link for Pigeons {
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events) {
        while self.leaves < now {
            self.leaves += self.parameters.interval_s;
        }
        events.port = port;
        self.lofts[usize::from(port)].policy.enqueue(now, packet, events);
    }

    fn next_event(&self) -> Option<Time> {
        let waits = self.lofts.iter().any(|loft| loft.policy.len_packets() > 0);
        let landings = self.lofts.iter().filter_map(Medium::next_delivery);
        landings.chain(waits.then_some(self.leaves)).min()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events) {
        if self.leaves <= now {
            for (port, loft) in self.lofts.iter_mut().enumerate() {
                events.port = port as Port;
                for _ in 0..self.parameters.load_packets {
                    let Some(packet) = loft.policy.dequeue(self.leaves, events) else { break };
                    loft.send(self.leaves, packet);
                }
            }
            self.leaves += self.parameters.interval_s;
        }
        for (port, loft) in self.lofts.iter_mut().enumerate() {
            loft.poll(now, 1 - port as Port, out, events);
        }
    }

    fn backlog(&self, port: Port) -> Option<Backlog> {
        Some(self.lofts[usize::from(port)].policy.backlog())
    }

    fn usage(&self, port: Port) -> Usage {
        self.lofts[usize::from(port)].usage
    }
}
