//! Error models: what damages or loses packets at the receiving end of a link.

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

/// What an error model does to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing.
    Intact,
    /// It crosses the link with a wrong checksum.
    Damaged,
    /// It does not come out.
    Lost,
    /// It comes out this much later, and does not hold up those behind it.
    Late(Duration),
    /// It comes out twice.
    Twice,
}

/// Decides for one packet after another.
pub trait ErrorModel: Send {
    /// The fate of a packet whose last bit arrives at `at`.
    fn judge(&mut self, at: Time, packet: &Packet) -> Fate;
}

type Build = fn(&Given<'_>, RunRng) -> Result<Box<dyn ErrorModel>, String>;

/// Every error model.
static MODELS: &[(&Entry, Build)] = &[
    (&uniform::ENTRY, uniform::build),
    (&exponential::ENTRY, exponential::build),
    (&gilbert_elliott::ENTRY, gilbert_elliott::build),
    (&recorded::ENTRY, recorded::build),
    (&reorder::ENTRY, reorder::build),
    (&duplicate::ENTRY, duplicate::build),
];

/// What the registry prints.
pub(crate) fn entries() -> impl Iterator<Item = &'static Entry> {
    MODELS.iter().map(|(entry, _)| *entry)
}

/// Makes an error model that draws from `rng`.
///
/// # Errors
/// A sentence: there is no such model, or an option does not fit.
pub fn build(named: &Named, rng: RunRng) -> Result<Box<dyn ErrorModel>, String> {
    let (entry, build) = MODELS.iter().find(|(entry, _)| entry.name == named.name).ok_or_else(|| {
        let known: Vec<_> = MODELS.iter().map(|(entry, _)| entry.name).collect();
        format!("there is no error model '{}'; there are: {}", named.name, known.join(", "))
    })?;
    build(&Given::check(entry, &named.options)?, rng)
}
