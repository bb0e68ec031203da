//! What exists, as one JSON document.

use serde_json::json;

/// Prints it.
pub fn print() -> Result<(), String> {
    let links = backchannel_links::entries();
    let of_kind = |kind: &str| links.iter().filter(|entry| entry.kind == kind).copied().collect::<Vec<_>>();
    let document = json!({
        "policies": backchannel_policies::entries(),
        "links": of_kind("link"),
        "directions": of_kind("direction"),
        "error_models": of_kind("error-model"),
        "middleboxes": backchannel_middleboxes::entries(),
        "stacks": backchannel_stacks::config::entries(),
        "workloads": backchannel_simulator::workloads(),
        "profiles": backchannel_links::profiles(),
    });
    println!("{document:#}");
    Ok(())
}
