//! A queue policy: it marks packets that arrive while more than a threshold wait, and drops those that are not
//! ECN-capable.

use backchannel_node::core::event::{EventKind, Events};
use backchannel_node::core::options;
use backchannel_node::core::options::CheckedOptions;
use backchannel_node::core::registry::{Entry, Queueing};
use backchannel_node::core::scenario::Named;
use backchannel_node::core::traits::Backlog;
use backchannel_node::core::{Error, Packet, Policy, Time};
use backchannel_node::policies::Context;
use backchannel_node::Registry;

/// Adds what this crate has to a node. The launcher calls it.
pub fn register(registry: Registry) -> Registry {
    registry.policy(&ENTRY, build)
}

// The options that a campaign may set: name, type, default, unit with the least and the greatest value, help.
options! {
    /// Options of the policy.
    struct Parameters {
        limit_packets: usize = 20, [Packets 1 to 1e6] "capacity";
        threshold_packets: usize = 5, [Packets 1 to 1e6] "packets waiting from which an arriving one is marked or dropped";
    }
}

// `Queueing::FIFO`: packets leave in the order in which they came. `./backchannel check` holds the policy to it.
static ENTRY: Entry = Entry::policy("my-crate", "marks or drops arriving packets above a threshold", Queueing::FIFO)
    .source("a sentence, or a paper's section")
    .options(Parameters::PARAMS);

fn build(checked: &CheckedOptions<'_>, context: &Context) -> Result<Box<dyn Policy>, Error> {
    let Parameters { limit_packets, threshold_packets } = Parameters::read(checked);
    let options = [("limit_packets".into(), limit_packets.into())].into();
    let queue = context.build(&Named { name: "droptail".into(), options })?;
    Ok(Box::new(MyCrate { threshold_packets, queue }))
}

struct MyCrate {
    threshold_packets: usize,
    /// Another policy holds the packets: this one only decides.
    queue: Box<dyn Policy>,
}

impl Policy for MyCrate {
    // Every packet that does not leave by `dequeue` is reported, once.
    fn enqueue(&mut self, now: Time, mut packet: Packet, events: &mut Events) {
        if self.queue.len_packets() >= self.threshold_packets {
            if !packet.set_congestion_experienced() {
                events.record(now, EventKind::DroppedEarly, &packet);
                return;
            }
            events.record(now, EventKind::Marked, &packet);
        }
        self.queue.enqueue(now, packet, events);
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        self.queue.dequeue(now, events)
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn peek(&self, place: usize) -> Option<&Packet> {
        self.queue.peek(place)
    }

    fn take(&mut self, place: usize, instead: Option<Packet>) -> Option<Packet> {
        self.queue.take(place, instead)
    }
}

#[cfg(test)]
mod tests {
    use backchannel_node::core::packet::build::Segment;
    use serde_json::json;

    use super::*;

    fn policy(threshold: u64) -> Box<dyn Policy> {
        let policies = register(Registry::builtin()).policies;
        let context = Context { seed: 1, label: "test".into(), rate_bps: None, opposite_rate_bps: None, policies };
        let options = [("threshold_packets".into(), json!(threshold))].into();
        context.build(&Named { name: "my-crate".into(), options }).expect("good options")
    }

    #[test]
    fn from_the_threshold_on_packets_are_marked_or_dropped() {
        let (mut policy, mut events) = (policy(1), Events::default());
        for (id, ecn) in [(1, false), (2, true), (3, false)] {
            policy.enqueue(Time::ZERO, Segment { id, ecn, payload: 1000, ..Segment::default() }.packet(), &mut events);
        }
        let kinds: Vec<_> = events.list.iter().map(|event| (event.packet_id, event.kind)).collect();
        assert_eq!(kinds, [(2, EventKind::Marked), (3, EventKind::DroppedEarly)]);
        let left: Vec<_> = std::iter::from_fn(|| policy.dequeue(Time::ZERO, &mut events)).map(|out| out.id).collect();
        assert_eq!(left, [1, 2]);
    }
}
