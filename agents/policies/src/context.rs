//! What a policy knows when it is built, and how it builds those that it holds.

use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::registry::Table;
use backchannel_core::scenario::Named;
use backchannel_core::traits::Policy;
use backchannel_core::Error;

/// What a policy knows of its surroundings, in addition to its options.
#[derive(Clone, Debug)]
pub struct Context {
    /// Seed of the run.
    pub seed: u64,
    /// Label of this queue's random streams, such as `bottleneck/reverse`.
    pub label: String,
    /// Rate of the direction it serves, in bit/s.
    pub rate_bps: Option<u64>,
    /// Rate of the opposite direction, in bit/s.
    pub opposite_rate_bps: Option<u64>,
    /// The policies that exist, for one that has another within.
    pub policies: Policies,
}

/// The rate that option `name` gives, or else the line's, in bit/s. A given rate stays, right or wrong; the line's may
/// change.
pub(crate) fn rate_bps(
    given: Option<f64>,
    line: Option<u64>,
    name: &str,
    policy: &str,
    direction: &str,
) -> Result<f64, Error> {
    given
        .or(line.map(|bps| bps as f64))
        .ok_or_else(|| format!("policy {policy}: {direction} has no rate: set {name}, or give the link a rate").into())
}

options! {
    /// Option of a policy that has one child.
    pub(crate) struct Child {
        child: Option<Named> = ABSENT, [Policy]
            "policy that holds the packets, with a limit of its own; limit_packets then counts only if it is set; \
             absent: first in, first out";
    }
}

/// Constructor of a policy.
pub type Build = fn(&CheckedOptions<'_>, &Context) -> Result<Box<dyn Policy>, Error>;
/// Policies by name.
pub type Policies = Table<Build>;

impl Context {
    /// Builds a policy.
    ///
    /// # Errors
    /// A message that names the unknown policy or the invalid option and lists what is allowed.
    pub fn build(&self, policy: &Named) -> Result<Box<dyn Policy>, Error> {
        let (checked, build) = self.policies.checked(&policy.name, &policy.options)?;
        build(&checked, self)
    }

    /// Builds the child of a policy, if one is given. `role` names its random streams and is where an error is.
    ///
    /// # Errors
    /// Those of [`Context::build`].
    pub fn child(&self, role: &str, policy: &Option<Named>) -> Result<Option<Box<dyn Policy>>, Error> {
        let Some(policy) = policy else { return Ok(None) };
        let context = Context { label: format!("{}/{role}", self.label), ..self.clone() };
        context.build(policy).map(Some).map_err(|error| error.within(role))
    }
}
