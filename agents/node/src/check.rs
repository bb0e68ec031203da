//! `check`: whether stacks can be put together as asked, before anything runs.

use std::io::Read;

use backchannel_core::scenario::Named;
use backchannel_stacks::config::config;
use serde_json::Value;

/// Reads a JSON list of {name, options} and prints a list of reasons, null for what is good.
pub fn run() -> Result<(), String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| format!("cannot read the stacks: {error}"))?;
    let stacks: Vec<Named> =
        serde_json::from_str(&text).map_err(|error| format!("this is no list of stacks: {error}"))?;
    let reasons: Vec<Value> =
        stacks.iter().map(|stack| config(&stack.name, &stack.options).err().map_or(Value::Null, Value::from)).collect();
    println!("{}", Value::from(reasons));
    Ok(())
}
