//! Middleboxes: per-packet logic in a node that is no queue. Each stands at one end of a link, inside the node that owns the
//! end: it sees what the node hands to the link, and what comes out of the link there.
//!
//! A middlebox is one file and a line in [`BOXES`].

mod ack_reconstruction;
mod attached;
mod link_layer;
mod loss_notification;
mod split_connection;
#[cfg(test)]
mod testing;

use backchannel_core::registry::{Entry, Given};
use backchannel_core::scenario::LinkSpec;
use backchannel_core::traits::{Link, Middlebox};

type Build = fn(&Given<'_>) -> Box<dyn Middlebox>;

/// Every middlebox.
static BOXES: &[(&Entry, Build)] = &[
    (&ack_reconstruction::ENTRY, ack_reconstruction::build),
    (&loss_notification::ENTRY, loss_notification::build),
    (&link_layer::LL, link_layer::ll),
    (&link_layer::LL_SMART, link_layer::ll_smart),
    (&link_layer::LL_TCP_AWARE, link_layer::ll_tcp_aware),
    (&link_layer::LL_SMART_TCP_AWARE, link_layer::ll_smart_tcp_aware),
    (&split_connection::SPLIT, split_connection::build),
    (&split_connection::SPLIT_SMART, split_connection::build),
];

/// What the registry prints.
pub fn entries() -> Vec<&'static Entry> {
    BOXES.iter().map(|(entry, _)| *entry).collect()
}

/// Makes a link and the middleboxes at its ends.
///
/// # Errors
/// A sentence that names the link and what is allowed.
pub fn build_link(spec: &LinkSpec, seed: u64) -> Result<Box<dyn Link>, String> {
    let mut link = backchannel_links::build(spec, seed)?;
    for one in &spec.middleboxes {
        let in_link = |why: String| format!("link '{}': {why}", spec.name);
        if usize::from(one.end) >= spec.ends.len() || spec.ends.len() != 2 {
            return Err(in_link(format!(
                "a middlebox stands at end 0 or 1 of a link with two ends, not at {}",
                one.end
            )));
        }
        let (entry, build) = BOXES.iter().find(|(entry, _)| entry.name == one.name).ok_or_else(|| {
            let known: Vec<_> = BOXES.iter().map(|(entry, _)| entry.name).collect();
            in_link(format!("there is no middlebox '{}'; there are: {}", one.name, known.join(", ")))
        })?;
        let given = Given::check(entry, &one.options).map_err(in_link)?;
        link = Box::new(attached::Attached::new(link, one.end, build(&given)));
    }
    Ok(link)
}
