//! From a specification to a link with everything at its ends.

use backchannel_core::scenario::LinkSpec;
use backchannel_core::traits::Link;
use backchannel_core::Error;

use crate::registry::{Context, Registry};
use crate::with_middlebox::WithMiddlebox;

/// Builds a link with its queue policies, error models and middleboxes.
///
/// # Errors
/// A message that names the link, the direction and what is allowed.
pub fn build(spec: &LinkSpec, context: &Context) -> Result<Box<dyn Link>, Error> {
    build_kind(spec, context)
        .and_then(|link| attach_middleboxes(link, spec, context))
        .map_err(|error| error.within(format!("link '{}'", spec.name)))
}

fn build_kind(spec: &LinkSpec, context: &Context) -> Result<Box<dyn Link>, Error> {
    let (checked, build) = context.registry.links.checked(&spec.kind, &spec.options)?;
    build(&checked, spec, context)
}

fn attach_middleboxes(mut link: Box<dyn Link>, spec: &LinkSpec, context: &Context) -> Result<Box<dyn Link>, Error> {
    let Registry { middleboxes, stacks, .. } = &context.registry;
    let of_middlebox = backchannel_middleboxes::Context { stacks: stacks.tcp() };
    for middlebox in &spec.middleboxes {
        if spec.ends.len() != 2 || middlebox.end > 1 {
            return Err(
                format!("a middlebox must be at end 0 or 1 of a link with two ends, not at {}", middlebox.end).into()
            );
        }
        let (checked, build) = middleboxes.checked(&middlebox.name, &middlebox.options)?;
        link = Box::new(WithMiddlebox::new(link, middlebox.end, build(&checked, &of_middlebox)?));
    }
    Ok(link)
}
