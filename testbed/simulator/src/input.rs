//! Input of a simulation: a scenario, and the addresses and routes of its network (testbed/addressing.py).

use std::collections::BTreeMap;

use backchannel_core::plan::NodePlan;
use backchannel_core::scenario::Scenario;
use backchannel_links::Fault;
use serde::Deserialize;

/// Input of a simulation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The scenario.
    pub scenario: Scenario,
    /// Interfaces and routes by name of the node.
    pub nodes: BTreeMap<String, NodePlan>,
    /// Tests of the guards only: a fault of a link.
    #[serde(default)]
    pub fault: Option<Fault>,
}
