//! A middlebox: it holds pure acks for a time and passes everything else at once.

use std::collections::VecDeque;
use std::time::Duration;

use backchannel_node::core::event::Events;
use backchannel_node::core::options;
use backchannel_node::core::options::CheckedOptions;
use backchannel_node::core::registry::Entry;
use backchannel_node::core::{Error, Middlebox, Packet, Side, Time};
use backchannel_node::middleboxes::Context;
use backchannel_node::Registry;

/// Adds what this crate has to a node. The launcher calls it.
pub fn register(registry: Registry) -> Registry {
    registry.middlebox(&ENTRY, build)
}

// The options that a campaign may set: name, type, default, unit with the least and the greatest value, help.
options! {
    /// Options of the middlebox.
    struct Parameters {
        hold_s: Duration = 0.02, [Time 0 to 10] "time for which a pure ack waits";
    }
}

static ENTRY: Entry = Entry::middlebox("my-crate", "holds pure acks for a time")
    .source("a sentence, or a paper's section")
    .options(Parameters::PARAMS);

fn build(checked: &CheckedOptions<'_>, _: &Context<'_>) -> Result<Box<dyn Middlebox>, Error> {
    Ok(Box::new(MyCrate { parameters: Parameters::read(checked), held: VecDeque::new() }))
}

struct MyCrate {
    parameters: Parameters,
    /// Acks with the time at which they go and the side that they go to, the first first.
    held: VecDeque<(Time, Side, Packet)>,
}

impl Middlebox for MyCrate {
    // A packet that is neither passed, held nor reported to `events` would be lost without a trace.
    fn process(&mut self, now: Time, from: Side, packet: Packet, out: &mut Vec<(Side, Packet)>, _: &mut Events) {
        if packet.is_pure_ack() {
            self.held.push_back((now + self.parameters.hold_s, from.other(), packet));
        } else {
            out.push((from.other(), packet));
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.held.front().map(|(at, ..)| *at)
    }

    fn poll(&mut self, now: Time, out: &mut Vec<(Side, Packet)>, _: &mut Events) {
        while self.next_event().is_some_and(|at| at <= now) {
            out.extend(self.held.pop_front().map(|(_, to, packet)| (to, packet)));
        }
    }
}

#[cfg(test)]
mod tests {
    use backchannel_node::core::packet::build::{ack, data};
    use serde_json::json;

    use super::*;

    #[test]
    fn an_ack_waits_and_data_do_not() {
        let options = [("hold_s".to_owned(), json!(0.5))].into();
        let checked = CheckedOptions::check(&ENTRY, &options).expect("good options");
        let mut middlebox = MyCrate { parameters: Parameters::read(&checked), held: VecDeque::new() };
        let (mut out, mut events) = (Vec::new(), Events::default());
        middlebox.process(Time::ZERO, Side::B, ack(2000), &mut out, &mut events);
        middlebox.process(Time::ZERO, Side::A, data(1, 1000), &mut out, &mut events);
        assert_eq!(out.pop().map(|(to, packet)| (to, packet.id)), Some((Side::B, 1)));
        assert_eq!(middlebox.next_event(), Some(Time::from_seconds(0.5)));
        middlebox.poll(Time::from_seconds(0.5), &mut out, &mut events);
        assert_eq!(out.pop().map(|(to, packet)| (to, packet.id)), Some((Side::A, 2000)));
    }
}
