//! What the registry hands to a middlebox.

use backchannel_core::options::CheckedOptions;
use backchannel_core::registry::Table;
use backchannel_core::traits::Middlebox;
use backchannel_core::Error;
use backchannel_stacks::config::Stacks;

/// What a middlebox knows of its surroundings, in addition to its options.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The stacks that exist, for one that has connections of its own.
    pub stacks: &'a Stacks,
}

/// Constructor of a middlebox.
pub type Build = fn(&CheckedOptions<'_>, &Context<'_>) -> Result<Box<dyn Middlebox>, Error>;
/// Middleboxes by name.
pub type Middleboxes = Table<Build>;
