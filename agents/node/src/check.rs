//! `check`: validates stacks and links before anything runs.

use std::io::Read;

use backchannel_core::scenario::{LinkSpec, Named};
use backchannel_links::{Context, Registry};
use serde_json::Value;

/// Reads a JSON list of stacks (name, options) and links (as in a scenario). Prints a list with the error of each, null
/// for valid ones.
pub fn run(registry: &Registry) -> Result<(), String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| format!("cannot read standard input: {error}"))?;
    let all: Vec<Value> =
        serde_json::from_str(&text).map_err(|error| format!("the input is not a list of stacks and links: {error}"))?;
    let errors: Vec<Value> =
        all.into_iter().map(|spec| error_of(registry, spec).map_or(Value::Null, Value::from)).collect();
    println!("{}", Value::from(errors));
    Ok(())
}

fn error_of(registry: &Registry, spec: Value) -> Option<String> {
    if spec.get("ends").is_some() {
        let built = serde_json::from_value::<LinkSpec>(spec)
            .map_err(|error| format!("invalid link: {error}"))
            .and_then(|spec| Ok(backchannel_links::build(&spec, &Context { seed: 1, registry: registry.clone() })?));
        return built.err();
    }
    let stack = serde_json::from_value::<Named>(spec).map_err(|error| format!("invalid stack: {error}"));
    stack.and_then(|stack| Ok(registry.stacks.config(&stack.name, &stack.options)?)).err()
}
