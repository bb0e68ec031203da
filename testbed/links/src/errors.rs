//! Error models: lose, damage, delay or duplicate packets at the receiving end of a link.

mod duplicate;
mod exponential;
mod gilbert_elliott;
mod recorded;
mod reorder;
mod uniform;

use std::time::Duration;

use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Given};
use backchannel_core::rng::RunRng;
use backchannel_core::scenario::Named;
use backchannel_core::time::Time;

/// An error model's decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet is delivered.
    Intact,
    /// It is delivered with a wrong checksum.
    Damaged,
    /// It is not delivered.
    Lost,
    /// It is delivered this much later and does not delay later packets.
    Late(Duration),
    /// It is delivered twice.
    Twice,
}

/// Decides about one packet after another.
pub trait ErrorModel: Send {
    /// Decides about a packet whose last bit arrives at `at`.
    fn judge(&mut self, at: Time, packet: &Packet) -> Fate;
}

type Build = fn(&Given<'_>, RunRng) -> Result<Box<dyn ErrorModel>, String>;

/// Every error model: its registry entry and its constructor.
static MODELS: &[(&Entry, Build)] = &[
    (&uniform::ENTRY, uniform::build),
    (&exponential::ENTRY, exponential::build),
    (&gilbert_elliott::ENTRY, gilbert_elliott::build),
    (&recorded::ENTRY, recorded::build),
    (&reorder::ENTRY, reorder::build),
    (&duplicate::ENTRY, duplicate::build),
];

/// The registry entries of all error models.
pub(crate) fn entries() -> impl Iterator<Item = &'static Entry> {
    MODELS.iter().map(|(entry, _)| *entry)
}

/// Builds an error model that draws from `rng`.
///
/// # Errors
/// A message that names the unknown model or the invalid option and lists what is allowed.
pub fn build(named: &Named, rng: RunRng) -> Result<Box<dyn ErrorModel>, String> {
    let (entry, build) = MODELS.iter().find(|(entry, _)| entry.name == named.name).ok_or_else(|| {
        let known: Vec<_> = MODELS.iter().map(|(entry, _)| entry.name).collect();
        format!("there is no error model '{}'; there are: {}", named.name, known.join(", "))
    })?;
    build(&Given::check(entry, &named.options)?, rng)
}
