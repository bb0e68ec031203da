//! Interfaces, addresses and routes of a scenario's nodes, as testbed/addressing.py assigns them.

use std::net::Ipv4Addr;

use serde::Deserialize;

use crate::error::Error;
use crate::ids::Port;

/// Interfaces and routes of one node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePlan {
    /// Interfaces, in order.
    pub interfaces: Vec<Interface>,
    /// Routes to subnets that are not connected.
    pub routes: Vec<Route>,
}

/// One end of one link.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Name of the link.
    pub link: String,
    /// End of the link.
    pub end: Port,
    /// Address of the interface.
    pub address: Ipv4Addr,
}

/// A route.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Destination, such as "10.1.0.0/24".
    pub subnet: String,
    /// Address of the next hop.
    pub via: Ipv4Addr,
    /// Name of the node's interface.
    pub interface: String,
}

/// Address and prefix length of a subnet.
///
/// # Errors
/// The text is not ADDRESS/LENGTH.
pub fn parse_subnet(text: &str) -> Result<(u32, u32), Error> {
    let parsed = text.split_once('/').and_then(|(address, length)| {
        let length = length.parse::<u32>().ok().filter(|&length| length <= 32)?;
        Some((u32::from(address.parse::<Ipv4Addr>().ok()?), length))
    });
    parsed.ok_or_else(|| Error::Malformed(format!("'{text}' is not a subnet such as 10.1.0.0/24")))
}
