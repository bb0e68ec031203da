//! Crates outside the repository whose mechanisms a node has, and what each of them added.

use std::collections::BTreeSet;

use backchannel_links::Registry;
use backchannel_stacks::config::CONGESTION;
use serde::Serialize;

/// A crate with mechanisms. The launcher builds a node of those that a campaign names (testbed/own_nodes.py).
#[derive(Clone, Copy, Debug)]
pub struct Crate {
    /// Name of the package.
    pub name: &'static str,
    /// Version of the package.
    pub version: &'static str,
    /// Digest of its sources, in hexadecimal digits.
    pub sha256: &'static str,
    /// Adds its mechanisms.
    pub register: fn(Registry) -> Registry,
}

/// A crate as `registry` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Added {
    name: &'static str,
    version: &'static str,
    sha256: &'static str,
    /// Kind and name of each mechanism that it adds. A congestion controller has the kind `controller`, and an option
    /// that it adds to stacks `stack-option`.
    adds: BTreeSet<(String, &'static str)>,
}

/// Adds the mechanisms of these crates to a registry, and says which are whose.
///
/// # Panics
/// Two mechanisms of a kind have one name.
pub fn add(mut registry: Registry, crates: &[Crate]) -> (Registry, Vec<Added>) {
    let mut added = Vec::new();
    for &Crate { name, version, sha256, register } in crates {
        let before = mechanisms(&registry);
        registry = register(registry);
        let adds = mechanisms(&registry).difference(&before).cloned().collect();
        added.push(Added { name, version, sha256, adds });
    }
    (registry, added)
}

fn mechanisms(registry: &Registry) -> BTreeSet<(String, &'static str)> {
    let entries = registry.entries();
    let params = || registry.stacks.entries().flat_map(|entry| entry.params);
    let choices = params().filter(|param| param.name == CONGESTION).flat_map(|param| param.choices);
    let controllers = choices.map(|name| ("controller".to_owned(), *name));
    let options = params().map(|param| ("stack-option".to_owned(), param.name));
    let named = entries.iter().map(|entry| (entry.kind.to_string(), entry.name));
    named.chain(controllers).chain(options).collect()
}
