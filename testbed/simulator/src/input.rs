//! What a simulation is given: a scenario, and the addresses and routes of its network (testbed/addressing.py).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use backchannel_core::scenario::Scenario;
use serde::Deserialize;

/// The whole input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The scenario.
    pub scenario: Scenario,
    /// Per node its interfaces and routes.
    pub nodes: BTreeMap<String, NodePlan>,
}

/// One node's place in the network.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePlan {
    /// Its interfaces, in order.
    pub interfaces: Vec<Interface>,
    /// Everything it reaches through others.
    pub routes: Vec<Route>,
}

/// One end of one link.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The link.
    pub link: String,
    /// Which end of it.
    pub end: u16,
    /// Its address.
    pub address: Ipv4Addr,
}

/// A destination and the interface towards it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Such as "10.1.0.0/24".
    pub subnet: String,
    /// The next hop.
    pub via: Ipv4Addr,
    /// Name of the own interface.
    pub interface: String,
}

/// Address and prefix length of a subnet.
///
/// # Errors
/// A sentence.
pub(crate) fn parse_subnet(text: &str) -> Result<(u32, u32), String> {
    let parsed = text.split_once('/').and_then(|(address, length)| {
        let length = length.parse::<u32>().ok().filter(|&length| length <= 32)?;
        Some((u32::from(address.parse::<Ipv4Addr>().ok()?), length))
    });
    parsed.ok_or_else(|| format!("'{text}' is no subnet such as 10.1.0.0/24"))
}
