//! Helpers of the tests.

use backchannel_core::event::{EventKind, Events};
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;

/// Ids of all waiting packets, in the order in which they leave at the start of the run.
pub(crate) fn drain(policy: &mut dyn Policy, events: &mut Events) -> Vec<u64> {
    std::iter::from_fn(|| policy.dequeue(Time::ZERO, events)).map(|packet| packet.id).collect()
}

/// Packet id and kind of each event, in order.
pub(crate) fn kinds(events: &Events) -> Vec<(u64, EventKind)> {
    events.list.iter().map(|event| (event.packet_id, event.kind)).collect()
}

/// `seconds` after the start of the run.
pub(crate) fn at(seconds: f64) -> Time {
    Time::from_seconds(seconds)
}
