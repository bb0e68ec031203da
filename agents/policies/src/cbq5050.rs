//! Class-based queueing with fixed halves (acq 3.3): acks and data have a queue each and half the line each, with or
//! without ack filtering in the queue of acks. What ACQ is compared with.

use backchannel_core::event::Events;
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Given, Param, Preset, Unit};
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;

use crate::classes::{Class, Classes};
use crate::limit::{Limit, BUFFER};
use crate::Context;

/// For policies with a buffer per class.
pub(crate) const CLASS_LIMIT: Param =
    Param::new("limit_packets", Unit::Packets, Preset::Number(40.0), "packets that may wait in each class (acq 3)")
        .at_least(1.0);

/// For policies with an ack filter inside.
pub(crate) const FILTER: Param =
    Param::new("filter", Unit::Flag, Preset::Flag(false), "ack filtering in the queue of acks (acq 3.3, AF)");

/// For policies whose classes need not lend.
pub(crate) const BOUNDED: Param = Param::new(
    "bounded",
    Unit::Flag,
    Preset::Flag(false),
    "a class never has more than its share, whatever the other leaves (Floyd and Jacobson 1995, 2)",
);

pub(crate) static ENTRY: Entry = Entry {
    kind: "policy",
    name: "cbq-5050",
    summary: "acks and data have a queue each and half the line each",
    source: "acq 3.3",
    params: &[
        CLASS_LIMIT,
        BUFFER,
        FILTER,
        Param::new("ack_share", Unit::Fraction, Preset::Number(0.5), "share of the line that acks get"),
        BOUNDED,
        Param::new("rate_bps", Unit::Rate, Preset::Absent, "what bounded classes share; absent: the line's rate")
            .at_least(1.0),
    ],
};

pub(crate) fn build(given: &Given<'_>, context: &Context) -> Result<Box<dyn Policy>, String> {
    let share = given.number("ack_share").expect("it has a default");
    let mut halves = Halves::new(Limit::of(given), share, given.flag(FILTER.name));
    if given.flag(BOUNDED.name) {
        let told = given.number("rate_bps");
        let line_bps = told.or(context.rate_bps.map(|bps| bps as f64)).ok_or(
            "policy cbq-5050: bounded classes have shares of a rate, and the direction has none: give rate_bps, or a rate \
             to the link",
        )?;
        halves = Halves { classes: halves.classes.bounded(line_bps), follows: told.is_none(), ..halves };
    }
    Ok(Box::new(halves))
}

/// See the module.
#[derive(Debug)]
pub struct Halves {
    classes: Classes,
    filtering: bool,
    /// Whether what its classes share is the line's rate and changes with it.
    follows: bool,
}

impl Halves {
    /// A queue of at most `limit` for each class; acks get `ack_share` of the line.
    pub fn new(limit: impl Into<Limit>, ack_share: f64, filtering: bool) -> Halves {
        let limit = limit.into();
        Halves { classes: Classes::new(limit, limit, ack_share), filtering, follows: false }
    }
}

impl Policy for Halves {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        let class = if packet.is_pure_ack() { Class::Acks } else { Class::Data };
        self.classes.push(class, self.filtering, now, packet, events);
    }

    fn dequeue(&mut self, now: Time, _: &mut Events) -> Option<Packet> {
        Some(self.classes.pop(now)?.1)
    }

    fn next_time(&self) -> Option<Time> {
        self.classes.next_time()
    }

    fn on_rates(&mut self, now: Time, own_bps: Option<u64>, _: Option<u64>) {
        if let (true, Some(bps)) = (self.follows, own_bps) {
            self.classes.set_line(now, bps as f64);
        }
    }

    fn peek(&self) -> Option<&Packet> {
        self.classes.front()
    }

    fn len_packets(&self) -> usize {
        self.classes.len()
    }

    fn len_bytes(&self) -> u64 {
        self.classes.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{drain, kinds};
    use backchannel_core::event::EventKind;
    use backchannel_core::packet::build::{ack, data};

    #[test]
    fn five_acks_of_40_bytes_go_for_each_200_bytes_of_data() {
        let (mut queue, mut events) = (Halves::new(40, 0.5, false), Events::default());
        for id in 1..=2 {
            queue.enqueue(Time::ZERO, data(id, 160), &mut events);
        }
        for number in 11..=19 {
            queue.enqueue(Time::ZERO, ack(number), &mut events);
        }
        assert_eq!(drain(&mut queue, &mut events), [11, 12, 13, 14, 15, 1, 16, 17, 18, 19, 2]);
    }

    #[test]
    fn a_class_that_is_full_leaves_the_other_alone() {
        let (mut queue, mut events) = (Halves::new(1, 0.5, false), Events::default());
        for packet in [data(1, 960), data(2, 960), ack(11), ack(12)] {
            queue.enqueue(Time::ZERO, packet, &mut events);
        }
        assert_eq!(kinds(&events), [(2, EventKind::DroppedFull), (12, EventKind::DroppedFull)]);
    }

    #[test]
    fn with_the_filter_the_newest_ack_stays() {
        let (mut queue, mut events) = (Halves::new(9, 0.5, true), Events::default());
        for packet in [ack(11), ack(12), data(1, 960)] {
            queue.enqueue(Time::ZERO, packet, &mut events);
        }
        assert_eq!(drain(&mut queue, &mut events), [12, 1]);
    }
}
