//! What the registry says of the mechanisms that a scenario names. The audit knows none of them by name.

use backchannel_core::registry::{Disorder, Entry, Kind, Queueing, When};
use backchannel_core::scenario::Named;

/// Entries of mechanisms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mechanisms<'a>(pub(crate) &'a [&'static Entry]);

impl Mechanisms<'_> {
    /// What a policy does with the packets that wait. Nothing is taken for granted of a policy without an entry.
    pub(crate) fn queueing(self, policy: &Named) -> Queueing {
        let of_policy = |entry: &&Entry| match entry.kind {
            Kind::Policy(queueing) if entry.name == policy.name => Some(queueing),
            _ => None,
        };
        self.0.iter().find_map(of_policy).unwrap_or(Queueing { holds_back: When::Always, ..Queueing::CLASSES })
    }

    /// What an error model does to the order of packets.
    pub(crate) fn disorder(self, model: &Named) -> Disorder {
        let of_model = |entry: &&Entry| match entry.kind {
            Kind::ErrorModel { disorder } if entry.name == model.name => Some(disorder),
            _ => None,
        };
        self.0.iter().find_map(of_model).unwrap_or(Disorder::Reorders)
    }
}
