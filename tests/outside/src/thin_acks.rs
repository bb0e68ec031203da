//! A middlebox that passes one pure ack of several, whatever they acknowledge.

use backchannel_node::core::event::{EventKind, Events};
use backchannel_node::core::options;
use backchannel_node::core::options::CheckedOptions;
use backchannel_node::core::registry::Entry;
use backchannel_node::core::{Error, Middlebox, Packet, Side, Time};
use backchannel_node::middleboxes::Context;

options! {
    /// Options of the middlebox.
    struct Parameters {
        every_packets: u64 = 4, [Packets 1 to 1000] "acks of which one passes";
    }
}

pub(crate) static ENTRY: Entry =
    Entry::middlebox("thin-acks", "passes one pure ack of several").options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, _: &Context<'_>) -> Result<Box<dyn Middlebox>, Error> {
    Ok(Box::new(ThinAcks { parameters: Parameters::read(checked), acks: 0 }))
}

struct ThinAcks {
    parameters: Parameters,
    acks: u64,
}

impl Middlebox for ThinAcks {
    fn process(&mut self, now: Time, from: Side, packet: Packet, out: &mut Vec<(Side, Packet)>, events: &mut Events) {
        self.acks += u64::from(packet.is_pure_ack());
        if packet.is_pure_ack() && !self.acks.is_multiple_of(self.parameters.every_packets) {
            events.record(now, EventKind::Purged, &packet);
        } else {
            out.push((from.other(), packet));
        }
    }

    fn next_event(&self) -> Option<Time> {
        None
    }

    fn poll(&mut self, _: Time, _: &mut Vec<(Side, Packet)>, _: &mut Events) {}
}
