//! Helpers of the tests.

use backchannel_core::event::Events;
use backchannel_core::scenario::LinkSpec;
use backchannel_core::traits::{Link, Port};
use backchannel_core::Error;

use crate::{Context, Registry};

/// The surroundings of a link of this software.
pub(crate) fn context(seed: u64) -> Context {
    Context { seed, registry: Registry::builtin() }
}

/// Builds a link of this software.
pub(crate) fn build(spec: &LinkSpec, seed: u64) -> Result<Box<dyn Link>, Error> {
    crate::build(spec, &context(seed))
}

/// Polls a link until nothing is left: port, time in nanoseconds and packet id of each delivery.
pub(crate) fn drain(link: &mut dyn Link, events: &mut Events) -> Vec<(Port, u64, u64)> {
    let (mut all, mut out) = (Vec::new(), Vec::new());
    while let Some(at) = link.next_event() {
        link.poll(at, &mut out, events);
        all.extend(out.drain(..).map(|delivery| (delivery.port, delivery.at.nanos(), delivery.packet.id)));
    }
    all
}

/// The same in microseconds.
pub(crate) fn drain_us(link: &mut dyn Link, events: &mut Events) -> Vec<(Port, u64, u64)> {
    drain(link, events).into_iter().map(|(port, ns, id)| (port, ns / 1000, id)).collect()
}
