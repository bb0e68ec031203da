//! The scenario as the node binary takes it: JSON, SI units, every value fixed. Campaign files are written for people;
//! `experiments` turns a point of a campaign into this.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Options of a named mechanism: names and units as its registry entry declares them.
pub type Options = BTreeMap<String, Value>;

/// One point, all values fixed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Format of this file: 1.
    pub version: u32,
    /// Seed of the run; every random stream derives from it.
    pub seed: u64,
    /// When the run ends, in seconds.
    pub duration_s: f64,
    /// What happens before this second is not measured.
    #[serde(default)]
    pub warm_up_s: f64,
    /// Hosts and routers.
    pub nodes: Vec<Node>,
    /// What joins them.
    pub links: Vec<LinkSpec>,
    /// Who sends what.
    pub workload: Vec<Flow>,
    /// What is captured.
    #[serde(default)]
    pub capture: Capture,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// An end system.
    Host,
    /// Forwards packets.
    Router,
    /// A router with the lossy hop behind it.
    BaseStation,
}

/// A node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its name, unique in the scenario.
    pub name: String,
    /// What it is.
    pub kind: NodeKind,
    /// A host's TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<Named>,
}

/// A mechanism by name, with its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// Name in the registry.
    pub name: String,
    /// Options; what is absent has the registry's default.
    #[serde(default)]
    pub options: Options,
}

/// A middlebox and where it stands: in the node at an end of a link, between it and the link.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MiddleboxSpec {
    /// Name in the registry.
    pub name: String,
    /// Options.
    #[serde(default)]
    pub options: Options,
    /// Which end: 0 or 1.
    pub end: u16,
}

/// A link. Direction `forward` runs from `ends[0]` to `ends[1]`, `reverse` back; a shared medium lists more ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// Its name, unique in the scenario.
    pub name: String,
    /// Kind in the registry: `point-to-point`, `ricochet`, `wavelan`, ...
    pub kind: String,
    /// Node names.
    pub ends: Vec<String>,
    /// From the first end.
    pub forward: DirectionSpec,
    /// From the second end (from every further end, for a shared medium).
    pub reverse: DirectionSpec,
    /// Options of the link kind.
    #[serde(default)]
    pub options: Options,
    /// What stands at its ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub middleboxes: Vec<MiddleboxSpec>,
}

/// One direction of a link.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectionSpec {
    /// Bit/s; absent: not limited (a wire that only delays), which a policy cannot act on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// One-way propagation delay in seconds.
    #[serde(default)]
    pub delay_s: f64,
    /// The queue in front of it.
    pub queue: Named,
    /// What damages or loses packets at the receiving side, applied in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Named>,
    /// Header compression, framing: see the link kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: Options,
    /// Changes over time, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<Change>,
}

/// A change of a direction at an instant; absent fields stay as they are.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Seconds since the start of the run.
    pub at_s: f64,
    /// New rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// New delay; packets under way keep theirs, and order is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_s: Option<f64>,
    /// New error models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<Named>>,
}

/// A flow, or a group of like flows.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Its name, unique in the scenario.
    pub name: String,
    /// Kind in the registry: `bulk`, `cbr`, `web`, `on-off`, `pareto`, ...
    pub kind: String,
    /// Flows of one group are measured together as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Sending host.
    pub from: String,
    /// Receiving host.
    pub to: String,
    /// Start, in seconds since the start of the run (already drawn, where the campaign gives a range).
    #[serde(default)]
    pub start_s: f64,
    /// End, in seconds since the start of the run; absent: when its bytes are through, or the run ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_s: Option<f64>,
    /// Bytes to send; absent: until stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Receiver's port.
    pub port: u16,
    /// Stack options of this flow that differ from its hosts'.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stack: Options,
    /// Options of the workload kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: Options,
}

/// What is captured.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// Bytes kept of each frame.
    pub snaplen: u32,
    /// `node:link` interfaces; empty: all. A single `none` captures nothing.
    #[serde(default)]
    pub at: Vec<String>,
    /// Whether the stacks' and links' own samples are written down; a simulation without them is faster.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub telemetry: bool,
    /// Simulations only: what passed, in bins, for runs without captures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
}

/// What a simulation counts in bins of time.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// Length of a bin, in seconds.
    pub every_s: f64,
    /// Names of the links; empty: all.
    #[serde(default)]
    pub at: Vec<String>,
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

impl Default for Capture {
    fn default() -> Capture {
        Capture { snaplen: 128, at: Vec::new(), telemetry: true, counters: None }
    }
}
