//! Middleboxes: per-packet logic in a node other than queueing. A middlebox is placed at one end of a link, inside the node at that
//! end. It sees every packet that the node sends to the link and every packet that the link delivers to the node.
//!
//! A middlebox is one file and one line in [`MIDDLEBOXES`]. docs/middleboxes.md describes each.

mod ack_reconstruction;
mod link_layer;
mod loss_notification;
mod split_connection;
#[cfg(test)]
mod testing;

use backchannel_core::registry::{CheckedOptions, Entry};
use backchannel_core::scenario::Options;
use backchannel_core::traits::Middlebox;

type Build = fn(&CheckedOptions<'_>) -> Box<dyn Middlebox>;

/// Every middlebox: its registry entry and its constructor.
static MIDDLEBOXES: &[(&Entry, Build)] = &[
    (&ack_reconstruction::ENTRY, ack_reconstruction::build),
    (&loss_notification::ENTRY, loss_notification::build),
    (&link_layer::LL, link_layer::ll),
    (&link_layer::LL_SMART, link_layer::ll_smart),
    (&link_layer::LL_TCP_AWARE, link_layer::ll_tcp_aware),
    (&link_layer::LL_SMART_TCP_AWARE, link_layer::ll_smart_tcp_aware),
    (&split_connection::SPLIT, split_connection::build),
    (&split_connection::SPLIT_SMART, split_connection::build),
];

/// The registry entries of all middleboxes.
pub fn entries() -> Vec<&'static Entry> {
    MIDDLEBOXES.iter().map(|(entry, _)| *entry).collect()
}

/// Builds a middlebox by name.
///
/// # Errors
/// A message that names the unknown middlebox or the invalid option and lists what is allowed.
pub fn build(name: &str, options: &Options) -> Result<Box<dyn Middlebox>, String> {
    let (entry, build) = MIDDLEBOXES.iter().find(|(entry, _)| entry.name == name).ok_or_else(|| {
        let known: Vec<_> = MIDDLEBOXES.iter().map(|(entry, _)| entry.name).collect();
        format!("there is no middlebox '{name}'; there are: {}", known.join(", "))
    })?;
    Ok(build(&CheckedOptions::check(entry, options)?))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn every_middlebox_has_a_name_and_a_summary_of_its_own() {
        let entries = super::entries();
        let texts =
            |of: fn(&super::Entry) -> &'static str| entries.iter().map(|entry| of(entry)).collect::<HashSet<_>>();
        assert_eq!(
            (texts(|entry| entry.name).len(), texts(|entry| entry.summary).len()),
            (entries.len(), entries.len())
        );
    }
}
