//! What the registry says of the mechanisms that a scenario names. The audit knows none of them by name.

use backchannel_core::options::Unit;
use backchannel_core::registry::{Disorder, Entry, Kind, Queueing, When};
use backchannel_core::scenario::Named;

/// Entries of mechanisms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mechanisms<'a>(pub(crate) &'a [&'static Entry]);

impl Mechanisms<'_> {
    /// Whether a policy and those that it holds keep the order of packets. Nothing is taken for granted of a policy
    /// without an entry.
    pub(crate) fn keeps_order(self, policy: &Named) -> bool {
        let reorders = self.policy(policy).map_or(When::Always, |(_, queueing)| queueing.reorders);
        !is_so(reorders, policy) && self.children(policy).all(|child| self.keeps_order(&child))
    }

    /// Whether a policy, or one that it holds, can hold packets back while the link is free.
    pub(crate) fn holds_back(self, policy: &Named) -> bool {
        let own = self.policy(policy).map_or(When::Always, |(_, queueing)| queueing.holds_back);
        is_so(own, policy) || self.children(policy).any(|child| self.holds_back(&child))
    }

    fn policy(self, policy: &Named) -> Option<(&'static Entry, Queueing)> {
        self.0.iter().find_map(|entry| match entry.kind {
            Kind::Policy(queueing) if entry.name == policy.name => Some((*entry, queueing)),
            _ => None,
        })
    }

    /// The policies that a policy holds.
    fn children(self, policy: &Named) -> impl Iterator<Item = Named> + '_ {
        let params = self.policy(policy).map_or(&[][..], |(entry, _)| entry.params);
        let values =
            params.iter().filter(|param| param.unit == Unit::Policy).map(|param| policy.options.get(param.name));
        let values: Vec<_> = values.flatten().cloned().collect();
        values.into_iter().filter_map(|value| serde_json::from_value(value).ok())
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

/// Whether something is true of a policy with its options.
fn is_so(when: When, policy: &Named) -> bool {
    match when {
        When::Never => false,
        When::Always => true,
        When::IsOf(option, values) => {
            policy.options.get(option).and_then(|given| given.as_str()).is_some_and(|given| values.contains(&given))
        }
        When::With(option) => policy.options.get(option).and_then(|value| value.as_bool()).unwrap_or(false),
    }
}
