//! `check`: whether stacks and links can be put together as asked, before anything runs.

use std::io::Read;

use backchannel_core::scenario::{LinkSpec, Named};
use backchannel_stacks::config::stack_config;
use serde_json::Value;

/// Reads a JSON list of stacks (name, options) and links (as a scenario has them) and prints a list of reasons, null for
/// what is good.
pub fn run() -> Result<(), String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| format!("cannot read what to check: {error}"))?;
    let all: Vec<Value> =
        serde_json::from_str(&text).map_err(|error| format!("this is no list of stacks and links: {error}"))?;
    let reasons: Vec<Value> = all.into_iter().map(|one| refusal(one).map_or(Value::Null, Value::from)).collect();
    println!("{}", Value::from(reasons));
    Ok(())
}

fn refusal(one: Value) -> Option<String> {
    if one.get("ends").is_some() {
        let built = serde_json::from_value::<LinkSpec>(one)
            .map_err(|error| format!("this is no link: {error}"))
            .and_then(|spec| backchannel_links::build(&spec, 1));
        return built.err();
    }
    let stack = serde_json::from_value::<Named>(one).map_err(|error| format!("this is no stack: {error}"));
    stack.and_then(|stack| stack_config(&stack.name, &stack.options)).err()
}
