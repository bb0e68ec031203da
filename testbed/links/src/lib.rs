//! Links: what joins nodes. Rate, delay, framing, error models; the queue policies at their ends come from
//! `agents/policies`.
//!
//! A link kind is one file and one line in [`KINDS`]; an error model one file and one line in [`errors::MODELS`].

pub mod errors;
mod far_end;
pub mod framing;
mod mahimahi;
mod point_to_point;
mod profiles;
pub mod rfc1144;
mod ricochet;
mod serial;
mod wavelan;

use backchannel_core::registry::{Entry, Given};
use backchannel_core::scenario::LinkSpec;
use backchannel_core::traits::Link;

pub use point_to_point::PointToPoint;
pub use profiles::{profiles, Profile};

type Build = fn(&Given<'_>, &LinkSpec, u64) -> Result<Box<dyn Link>, String>;

/// Every kind of link.
static KINDS: &[(&Entry, Build)] = &[
    (&mahimahi::ENTRY, mahimahi::build),
    (&point_to_point::ENTRY, point_to_point::build),
    (&ricochet::ENTRY, ricochet::build),
    (&wavelan::ENTRY, wavelan::build),
];

/// What the registry prints: link kinds and error models.
pub fn entries() -> Vec<&'static Entry> {
    let directions = [&serial::DIRECTION, &mahimahi::DIRECTION];
    KINDS.iter().map(|(entry, _)| *entry).chain(directions).chain(errors::entries()).collect()
}

/// Makes a link. Its random streams derive from `seed` and its name.
///
/// # Errors
/// A sentence that names the link, the direction and what is allowed.
pub fn build(spec: &LinkSpec, seed: u64) -> Result<Box<dyn Link>, String> {
    let in_link = |why: String| format!("link '{}': {why}", spec.name);
    let (entry, build) = KINDS.iter().find(|(entry, _)| entry.name == spec.kind).ok_or_else(|| {
        let known: Vec<_> = KINDS.iter().map(|(entry, _)| entry.name).collect();
        in_link(format!("there is no link kind '{}'; there are: {}", spec.kind, known.join(", ")))
    })?;
    let given = Given::check(entry, &spec.options).map_err(in_link)?;
    build(&given, spec, seed).map_err(in_link)
}
