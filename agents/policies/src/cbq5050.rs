//! CBQ 50:50, class-based queueing with fixed shares (acq 3.3): acks and data have a queue each and half of the line each, with or
//! without ack filtering. acq compares ACQ with it.

use backchannel_core::event::Events;
use backchannel_core::packet::Packet;
use backchannel_core::registry::{CheckedOptions, Entry, Param, Preset, Random, Unit};
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Policy};

use crate::ack_filter::{self, ALLOWED_ACKS, FILTER};
use crate::classes::{Class, Classes};
use crate::limit::{Limit, BUFFER};
use crate::Context;

/// Option of policies with a buffer per class.
pub(crate) const CLASS_LIMIT: Param = Param::new(
    "limit_packets",
    Unit::Packets,
    Preset::Number(40.0),
    "capacity of each class's queue in packets (acq 3)",
)
.at_least(1.0);

/// Option of policies whose classes can be bounded.
pub(crate) const BOUNDED: Param = Param::new(
    "bounded",
    Unit::Flag,
    Preset::Flag(false),
    "do not let a class use more than its share of the line, even while the other class is empty (Floyd and Jacobson 1995, 2)",
);

pub(crate) static ENTRY: Entry = Entry {
    kind: "policy",
    name: "cbq-5050",
    summary: "class-based queueing: acks and data have a queue each and half of the line each",
    source: "acq 3.3",
    random: Random::Never,
    params: &[
        CLASS_LIMIT,
        BUFFER,
        FILTER,
        ALLOWED_ACKS,
        Param::new("ack_share", Unit::Fraction, Preset::Number(0.5), "share of the line for acks while both classes wait; data gets the rest"),
        BOUNDED,
        Param::new("rate_bps", Unit::Rate, Preset::Absent, "rate that bounded classes share, for lines whose framing or compression changes packet sizes; absent: the line's rate")
            .at_least(1.0),
    ],
};

pub(crate) fn build(checked: &CheckedOptions<'_>, context: &Context) -> Result<Box<dyn Policy>, String> {
    let share = checked.number("ack_share").expect("it has a default");
    let mut halves = Halves::new(Limit::of(checked), share, ack_filter::allowed_acks(checked, "cbq-5050")?);
    if checked.flag(BOUNDED.name) {
        let rate_bps = checked.number("rate_bps");
        let line_bps = rate_bps.or(context.rate_bps.map(|bps| bps as f64)).ok_or(
            "policy cbq-5050: bounded classes need a rate, and the direction has none: set rate_bps, or give the link a rate",
        )?;
        halves = Halves { classes: halves.classes.bounded(line_bps), follows_line: rate_bps.is_none(), ..halves };
    }
    Ok(Box::new(halves))
}

/// Two queues with fixed shares.
#[derive(Debug)]
pub struct Halves {
    classes: Classes,
    /// Acks of a connection that may wait; `None`: they are not filtered.
    allowed_acks: Option<u64>,
    /// The shared rate is the line's and changes with it.
    follows_line: bool,
}

impl Halves {
    /// Empty queues of at most `limit` each; acks get `ack_share` of the line, and with
    /// `allowed_acks` only so many of a connection wait.
    pub fn new(limit: impl Into<Limit>, ack_share: f64, allowed_acks: Option<u64>) -> Halves {
        let limit = limit.into();
        Halves { classes: Classes::new(limit, limit, ack_share), allowed_acks, follows_line: false }
    }
}

impl Policy for Halves {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        let class = if packet.is_pure_ack() { Class::Acks } else { Class::Data };
        self.classes.push(class, self.allowed_acks, now, packet, events);
    }

    fn dequeue(&mut self, now: Time, _: &mut Events) -> Option<Packet> {
        Some(self.classes.pop(now)?.1)
    }

    fn next_time(&self) -> Option<Time> {
        self.classes.next_time()
    }

    fn on_rates(&mut self, now: Time, own_bps: Option<u64>, _: Option<u64>) {
        if let (true, Some(bps)) = (self.follows_line, own_bps) {
            self.classes.set_line(now, bps as f64);
        }
    }

    fn backlog(&self) -> Backlog {
        self.classes.backlog()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{drain, kinds};
    use backchannel_core::event::EventKind;
    use backchannel_core::packet::build::{ack, data};
    use serde_json::json;

    #[test]
    fn five_acks_of_40_bytes_are_sent_per_200_bytes_of_data() {
        let (mut queue, mut events) = (Halves::new(40, 0.5, None), Events::default());
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
        let (mut queue, mut events) = (Halves::new(1, 0.5, None), Events::default());
        for packet in [data(1, 960), data(2, 960), ack(11), ack(12)] {
            queue.enqueue(Time::ZERO, packet, &mut events);
        }
        assert_eq!(kinds(&events), [(2, EventKind::DroppedFull), (12, EventKind::DroppedFull)]);
    }

    #[test]
    fn with_the_filter_only_the_newest_ack_waits() {
        let (mut queue, mut events) = (Halves::new(9, 0.5, Some(1)), Events::default());
        for packet in [ack(11), ack(12), data(1, 960)] {
            queue.enqueue(Time::ZERO, packet, &mut events);
        }
        assert_eq!(drain(&mut queue, &mut events), [12, 1]);
    }

    /// When the second of two packets of 1000 bytes is due, after the line has changed to 2 Mbit/s.
    fn second_due_ms(options: serde_json::Value, line_bps: Option<u64>) -> Result<u64, String> {
        let context = Context { seed: 1, label: "x".into(), rate_bps: line_bps, opposite_rate_bps: None };
        let mut queue = crate::build("cbq-5050", &serde_json::from_value(options).unwrap(), &context)?;
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
        assert!(why.contains("set rate_bps"), "{why}");
    }
}
