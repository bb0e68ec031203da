//! CBQ 50:50, class-based queueing with fixed shares (acq 3.3): acks and data have a queue each and half of the line
//! each, with or without ack filtering. acq compares ACQ with it.

use backchannel_core::event::Events;
use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::Packet;
use backchannel_core::registry::Entry;
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;
use backchannel_core::Error;

use crate::classes::{Class, ClassChildren, ClassOptions, Classes, BOUNDED_CLASSES};
use crate::Context;

options! {
    /// Options of the policy.
    struct Parameters {
        .. classes: ClassOptions;
        ack_share: f64 = 0.5, [Fraction]
            "share of the link for acks while both classes wait; data gets the rest";
        bounded: bool = false, [Flag]
            "do not let a class use more than its share of the link, even while the other class is empty (Floyd and \
             Jacobson 1995, 2)";
        rate_bps: Option<f64> = ABSENT, [Rate 1]
            "rate that bounded classes share, for links whose framing or compression changes packet sizes; absent: the \
             link's rate";
        ... children: ClassChildren;
    }
}

pub(crate) static ENTRY: Entry = Entry::policy(
    "cbq-5050",
    "class-based queueing: acks and data have a queue each and half of the link each",
    BOUNDED_CLASSES,
)
.source("acq 3.3")
.options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: &Context) -> Result<Box<dyn Policy>, Error> {
    Ok(Box::new(Cbq5050::new(Parameters::read(checked), context)?))
}

/// Two queues with fixed shares.
pub struct Cbq5050 {
    classes: Classes,
    /// The shared rate is the line's and changes with it.
    follows_line: bool,
}

impl Cbq5050 {
    fn new(parameters: Parameters, context: &Context) -> Result<Cbq5050, Error> {
        let Parameters { classes, ack_share, bounded, rate_bps, children } = parameters;
        let mut classes = classes.queues("cbq-5050", &children, ack_share, context)?;
        if bounded {
            let line_bps = rate_bps.or(context.rate_bps.map(|bps| bps as f64)).ok_or(
                "policy cbq-5050: bounded classes need a rate, and the direction has none: set rate_bps, or give the \
                 link a rate",
            )?;
            classes = classes.bounded(line_bps);
        }
        Ok(Cbq5050 { classes, follows_line: rate_bps.is_none() })
    }
}

impl Policy for Cbq5050 {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        let class = if packet.is_pure_ack() { Class::Acks } else { Class::Data };
        self.classes.push(class, now, packet, events);
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        Some(self.classes.pop(now, events)?.1)
    }

    fn next_time(&self) -> Option<Time> {
        self.classes.next_time()
    }

    fn on_opposite(&mut self, now: Time, packet: &Packet) {
        self.classes.on_opposite(now, packet);
    }

    fn on_rates(&mut self, now: Time, own_bps: Option<u64>, opposite_bps: Option<u64>) {
        self.classes.on_rates(now, own_bps, opposite_bps);
        if let (true, Some(bps)) = (self.follows_line, own_bps) {
            self.classes.set_line(now, bps as f64);
        }
    }

    crate::fifo::kept_in!(classes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{context, drain, kinds};
    use backchannel_core::event::EventKind;
    use backchannel_core::packet::build::{ack, data};
    use backchannel_core::scenario::Named;
    use serde_json::json;

    /// Those of a line without a rate.
    fn queues(options: serde_json::Value) -> Box<dyn Policy> {
        let options = serde_json::from_value(options).expect("an object");
        context().build(&Named { name: "cbq-5050".into(), options }).expect("allowed")
    }

    #[test]
    fn five_acks_of_40_bytes_are_sent_per_200_bytes_of_data() {
        let (mut queue, mut events) = (queues(json!({})), Events::default());
        for id in 1..=2 {
            queue.enqueue(Time::ZERO, data(id, 160), &mut events);
        }
        for number in 11..=19 {
            queue.enqueue(Time::ZERO, ack(number), &mut events);
        }
        assert_eq!(drain(&mut queue, &mut events), [11, 12, 13, 14, 15, 1, 16, 17, 18, 19, 2]);
    }

    #[test]
    fn a_full_class_does_not_affect_the_other() {
        let (mut queue, mut events) = (queues(json!({"limit_packets": 1})), Events::default());
        for packet in [data(1, 960), data(2, 960), ack(11), ack(12)] {
            queue.enqueue(Time::ZERO, packet, &mut events);
        }
        assert_eq!(kinds(&events), [(2, EventKind::DroppedFull), (12, EventKind::DroppedFull)]);
    }

    #[test]
    fn with_the_filter_only_the_newest_ack_waits() {
        let (mut queue, mut events) = (queues(json!({"limit_packets": 9, "filter": true})), Events::default());
        for packet in [ack(11), ack(12), data(1, 960)] {
            queue.enqueue(Time::ZERO, packet, &mut events);
        }
        assert_eq!(drain(&mut queue, &mut events), [12, 1]);
    }

    /// When the second of two packets of 1000 bytes is due, after the line has changed to 2 Mbit/s.
    fn second_due_ms(options: serde_json::Value, line_bps: Option<u64>) -> Result<u64, Error> {
        let context = Context { rate_bps: line_bps, ..context() };
        let options = serde_json::from_value(options).unwrap();
        let mut queue = context.build(&Named { name: "cbq-5050".into(), options })?;
        let mut events = Events::default();
        for id in 1..=2 {
            queue.enqueue(Time::ZERO, data(id, 960), &mut events);
        }
        queue.dequeue(Time::ZERO, &mut events);
        queue.on_rates(Time::ZERO, Some(2_000_000), None);
        Ok(queue.next_time().expect("a packet waits").nanos() / 1_000_000)
    }

    /// Data has three quarters of the line.
    #[test]
    fn bounded_classes_share_the_lines_rate_or_the_one_of_the_option() {
        let due = |options, line_bps| second_due_ms(options, line_bps);
        assert_eq!(due(json!({"ack_share": 0.25}), Some(1_000_000)), Ok(0));
        assert_eq!(due(json!({"ack_share": 0.25, "bounded": true}), Some(1_000_000)), Ok(5));
        assert_eq!(due(json!({"ack_share": 0.25, "bounded": true, "rate_bps": 1e6}), Some(4_000_000)), Ok(10));
        let why = due(json!({"bounded": true}), None).unwrap_err();
        assert!(why.to_string().contains("set rate_bps"), "{why}");
    }
}
