//! `check`: validates stacks and links before anything runs.

use std::io::Read;

use backchannel_core::scenario::{LinkSpec, Named};
use backchannel_core::{Error, ResultExt};
use backchannel_links::{Context, Registry};
use serde_json::Value;

use crate::reports;

/// Reads a JSON list of stacks (name, options) and links (as in a scenario). Prints a list with the error of each, null
/// for valid ones.
pub fn run(registry: &Registry) -> Result<(), Error> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).or_system("cannot read standard input")?;
    let all: Vec<Value> = serde_json::from_str(&text).or_malformed("the input is not a list of stacks and links")?;
    let errors: Vec<_> =
        all.into_iter().map(|spec| check(registry, spec).err().map(|error| error.to_string())).collect();
    reports::print(&errors)
}

fn check(registry: &Registry, spec: Value) -> Result<(), Error> {
    if spec.get("ends").is_some() {
        let spec: LinkSpec = serde_json::from_value(spec).or_malformed("invalid link")?;
        backchannel_links::build(&spec, &Context { seed: 1, registry: registry.clone() })?;
    } else {
        let stack: Named = serde_json::from_value(spec).or_malformed("invalid stack")?;
        registry.stacks.config(&stack.name, &stack.options)?;
    }
    Ok(())
}
