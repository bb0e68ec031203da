//! Helpers of the tests.

use backchannel_core::event::{EventKind, Events};
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;

use crate::Context;

/// That of a queue in front of a line without a rate.
pub(crate) fn context() -> Context {
    Context { seed: 1, label: "test".into(), rate_bps: None, opposite_rate_bps: None, policies: crate::builtin() }
}

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
