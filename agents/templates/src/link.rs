//! A link: ferries that leave both ends at equal intervals and take the packets that wait.

use std::time::Duration;

use backchannel_node::core::event::Events;
use backchannel_node::core::options;
use backchannel_node::core::options::CheckedOptions;
use backchannel_node::core::registry::{Entry, Physical};
use backchannel_node::core::scenario::LinkSpec;
use backchannel_node::core::traits::{Backlog, Usage};
use backchannel_node::core::{Delivery, Error, Link, Packet, Policy, Port, Time};
use backchannel_node::links::{Context, Direction, Fields, Medium};
use backchannel_node::Registry;

/// Adds what this crate has to a node. The launcher calls it.
pub fn register(registry: Registry) -> Registry {
    registry.link(&ENTRY, build)
}

// The options that a campaign may set: name, type, default, unit with the least and the greatest value, help.
options! {
    /// Options of the link.
    struct Parameters {
        interval_s: Duration = 0.05, [Time 0.001 to 1e5] "time between two ferries of one end";
        load_packets: usize = 10, [Packets 1 to 1000] "packets that a ferry carries at most";
    }
}

// What it is in the physical world. Trains of packets cannot measure a rate that it does not have, so it is not probed.
static ENTRY: Entry = Entry::link("my-crate", "ferries at equal intervals", Physical { radio: false, probing: None })
    .source("a sentence, or a paper's section")
    .options(Parameters::PARAMS);

// Which fields of a direction it has: all but a rate.
const FIELDS: Fields = Fields { rate: Err("has no rate: it has an interval and a load"), ..Fields::FIXED };

fn build(checked: &CheckedOptions<'_>, spec: &LinkSpec, context: &Context) -> Result<Box<dyn Link>, Error> {
    let [forward, reverse] = Direction::of_two_ends(spec, &FIELDS)?;
    // A medium has the queue in front of the line, and the delay and the errors behind it.
    let medium = |way: &Direction<'_>| way.build(|way| Medium::new(way, [None; 2], context));
    let media = [medium(&forward)?, medium(&reverse)?];
    Ok(Box::new(MyCrate { parameters: Parameters::read(checked), media, leaves: Time::ZERO }))
}

struct MyCrate {
    parameters: Parameters,
    media: [Medium; 2],
    /// When the next ferries leave.
    leaves: Time,
}

impl Link for MyCrate {
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events) {
        while self.leaves < now {
            self.leaves += self.parameters.interval_s;
        }
        events.port = port;
        self.media[usize::from(port)].policy.enqueue(now, packet, events);
    }

    fn next_event(&self) -> Option<Time> {
        let waits = self.media.iter().any(|medium| medium.policy.len_packets() > 0);
        let arrivals = self.media.iter().filter_map(Medium::next_delivery);
        arrivals.chain(waits.then_some(self.leaves)).min()
    }

    // Whatever `now` is, a ferry leaves at its time: a late call delays nothing that follows.
    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events) {
        if self.leaves <= now {
            for (port, medium) in self.media.iter_mut().enumerate() {
                events.port = port as Port;
                for _ in 0..self.parameters.load_packets {
                    let Some(packet) = medium.policy.dequeue(self.leaves, events) else { break };
                    medium.send(self.leaves, packet);
                }
            }
            self.leaves += self.parameters.interval_s;
        }
        for (port, medium) in self.media.iter_mut().enumerate() {
            medium.poll(now, 1 - port as Port, out, events);
        }
    }

    fn backlog(&self, port: Port) -> Option<Backlog> {
        Some(self.media[usize::from(port)].policy.backlog())
    }

    fn usage(&self, port: Port) -> Usage {
        self.media[usize::from(port)].usage
    }
}

#[cfg(test)]
mod tests {
    use backchannel_node::core::packet::build::data;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_ferry_takes_its_load_at_its_time() {
        let direction = json!({"delay_s": 0.1, "queue": {"name": "droptail"}});
        let spec = json!({
            "name": "line", "kind": "my-crate", "ends": ["a", "b"], "forward": direction, "reverse": direction,
            "options": {"interval_s": 1.0, "load_packets": 2},
        });
        let spec: LinkSpec = serde_json::from_value(spec).expect("a link");
        let context = Context { seed: 1, registry: register(Registry::builtin()) };
        let mut link = backchannel_node::links::build(&spec, &context).expect("a good link");
        let (mut out, mut events) = (Vec::new(), Events::default());
        for id in 1..=3 {
            link.submit(Time::from_seconds(0.5), 0, data(id, 1000), &mut events);
        }
        while let Some(due) = link.next_event() {
            link.poll(due, &mut out, &mut events);
        }
        let arrivals: Vec<_> = out.iter().map(|delivery| (delivery.packet.id, delivery.at.seconds())).collect();
        assert_eq!(arrivals, [(1, 1.1), (2, 1.1), (3, 2.1)]);
    }
}
