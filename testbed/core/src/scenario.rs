//! The scenario that the node binary runs: JSON in SI units with every value fixed. `experiments` expands a campaign file
//! into scenarios. `backchannel-node registry` exports the JSON Schema of [`Scenario`], from which
//! `python -m tests.node_types --update` makes testbed/node_types.py.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::command::CommandSpec;
use crate::ids::Port;
use crate::ip::IpVersion;
use crate::time::Time;

/// Options of a mechanism, with the names and units of its registry entry.
pub type Options = BTreeMap<String, Value>;

/// A network, its traffic and what is recorded.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Version of this format: 1.
    #[serde(deserialize_with = "version_read")]
    pub version: u32,
    /// Seed of the run. Every random stream derives from it.
    pub seed: u64,
    /// Length of the run in seconds.
    pub duration_s: f64,
    /// Seconds at the start that are not measured.
    #[serde(default)]
    pub warm_up_s: f64,
    /// Hosts and routers.
    pub nodes: Vec<Node>,
    /// Links between the nodes.
    pub links: Vec<LinkSpec>,
    /// Flows.
    pub workload: Vec<Flow>,
    /// What is recorded.
    #[serde(default)]
    pub capture: Capture,
    /// What the repetition varied. A record: drivers use the drawn values in their own fields. Absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variation: Option<Variation>,
}

/// The version of the scenarios that this node reads.
pub const VERSION: u32 = 1;

fn version_read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let version = u32::deserialize(deserializer)?;
    if version == VERSION {
        return Ok(version);
    }
    let sentence = format!(
        "scenario version {version}: this node reads version {VERSION}; controller and node must be of one release"
    );
    Err(serde::de::Error::custom(sentence))
}

/// Differences between repetitions that the expansion of a campaign drew: bounds of the uniform draws, and the draws.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variation {
    /// Bound of the delay of a flow's start, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_s: Option<f64>,
    /// Bound of a host's processing time of a segment, in seconds; drawn during the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processing_s: Option<f64>,
    /// Bound of the growth of a round-trip time, as a share of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<f64>,
    /// Whether traces start at a drawn offset.
    #[serde(default)]
    pub phase: bool,
    /// Draws by the field of the scenario that has them, such as `workload.bulk.start_s`, in its unit.
    #[serde(default)]
    pub drawn: BTreeMap<String, f64>,
}

impl Scenario {
    /// End of the run.
    pub fn end(&self) -> Time {
        Time::from_seconds(self.duration_s)
    }
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// An end system.
    Host,
    /// Forwards packets.
    Router,
    /// A router in front of a lossy hop.
    BaseStation,
}

/// A node.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Name, unique in the scenario.
    pub name: String,
    /// What the node does.
    pub kind: NodeKind,
    /// TCP of a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<Named>,
    /// Simulation only: each segment that a host sends or receives takes it a time drawn uniformly from 0 to this many
    /// seconds. Segments of one direction keep their order. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processing_s: Option<f64>,
    /// Routes that replace the shortest ones. testbed/addressing.py makes addresses of them; drivers read those.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteSpec>,
}

/// Where a node sends packets for another node, or for all that it has no other route for.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteSpec {
    /// Name of a node, or `default`.
    pub to: String,
    /// Name of the neighbour that gets the packets.
    pub via: String,
    /// Name of the link to the neighbour. Absent: there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

/// A mechanism by name, with its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// Name in the registry.
    pub name: String,
    /// Options. Absent options take the registry's defaults.
    #[serde(default)]
    pub options: Options,
}

/// A middlebox in the node at one end of a link, between node and link.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MiddleboxSpec {
    /// Name in the registry.
    pub name: String,
    /// Options.
    #[serde(default)]
    pub options: Options,
    /// End of the link: 0 or 1.
    pub end: Port,
}

/// A link. Direction `forward` runs from `ends[0]` to `ends[1]`, `reverse` back. A shared medium has more ends.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// Name, unique in the scenario.
    pub name: String,
    /// Kind in the registry, such as `point-to-point`, `ricochet` or `wavelan`.
    pub kind: String,
    /// Names of the nodes at its ends.
    pub ends: Vec<String>,
    /// Direction from the first end.
    pub forward: DirectionSpec,
    /// Direction from the second end, and from every further end of a shared medium.
    pub reverse: DirectionSpec,
    /// Options of the link kind.
    #[serde(default)]
    pub options: Options,
    /// Middleboxes at its ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub middleboxes: Vec<MiddleboxSpec>,
}

impl LinkSpec {
    /// Declared rates in bit/s at the start of the run: forward, reverse.
    pub fn rates_bps(&self) -> [Option<u64>; 2] {
        [self.forward.rate_bps, self.reverse.rate_bps]
    }

    /// Whether the schedule of either direction changes anything during the run.
    pub fn has_schedule(&self) -> bool {
        !self.forward.schedule.is_empty() || !self.reverse.schedule.is_empty()
    }
}

/// One direction of a link.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DirectionSpec {
    /// Rate in bit/s. Absent: the line only delays, and no queue builds up for a policy to act on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// One-way propagation delay in seconds.
    #[serde(default)]
    pub delay_s: f64,
    /// Jitter in seconds, at most the delay: each packet's propagation delay is drawn uniformly from `delay_s` - `jitter_s`
    /// to `delay_s` + `jitter_s`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub jitter_s: f64,
    /// Jitter does not let packets overtake each other: a packet arrives no earlier than the one before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_order: bool,
    /// Queue policy in front of the line.
    pub queue: Named,
    /// Error models at the receiving side, applied in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Named>,
    /// Options of the direction, such as header compression and framing, see the link kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: Options,
    /// Changes during the run, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<Change>,
}

impl DirectionSpec {
    /// The queue policy at the start, then those of scheduled changes.
    pub fn queues(&self) -> impl Iterator<Item = &Named> {
        std::iter::once(&self.queue).chain(self.schedule.iter().filter_map(|change| change.queue.as_ref()))
    }
}

/// Whether a quantity is absent.
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// A change of a direction at an instant. Absent fields do not change.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Seconds since the start of the run.
    pub at_s: f64,
    /// New rate in bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// New delay in seconds. Packets in flight keep theirs, and packets do not overtake each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_s: Option<f64>,
    /// New jitter in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_s: Option<f64>,
    /// New error models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<Named>>,
    /// New queue policy. Packets that wait move to it in order, and it drops those for which it has no room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Named>,
}

/// A flow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Name, unique in the scenario.
    pub name: String,
    /// Kind in the registry, such as `bulk`, `cbr`, `web` or `on-off`.
    pub kind: String,
    /// Flows of one group are also measured together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Sending host.
    pub from: String,
    /// Receiving host.
    pub to: String,
    /// Start in seconds since the start of the run. A range in the campaign has been drawn already.
    #[serde(default)]
    pub start_s: f64,
    /// End in seconds since the start of the run. Absent: when its bytes are delivered, or at the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_s: Option<f64>,
    /// Bytes to send. Absent: until stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Port of the receiver.
    pub port: u16,
    /// Version of IP that it uses: 4 or 6.
    #[serde(default, skip_serializing_if = "IpVersion::is_v4")]
    pub ip: IpVersion,
    /// Stack options of this flow that override those of its hosts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stack: Options,
    /// Options of the workload kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: Options,
    /// Programs of a flow of kind `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandSpec>,
}

impl Flow {
    /// Start of the flow.
    pub fn start(&self) -> Time {
        Time::from_seconds(self.start_s)
    }
}

/// What is recorded.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// Bytes kept of each packet.
    pub snaplen: u32,
    /// Interfaces as `node:link`. Empty: all. A single `none`: no captures.
    #[serde(default)]
    pub at: Vec<String>,
    /// Whether stacks and links write telemetry. A simulation without it is faster.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub telemetry: bool,
    /// Simulation only: traffic in bins of time, for runs without captures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
}

impl Capture {
    /// Whether the interface of `node` on `link` is captured.
    pub fn includes(&self, node: &str, link: &str) -> bool {
        self.at.is_empty() || self.at.contains(&format!("{node}:{link}"))
    }
}

/// What a simulation counts in bins of time.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// Length of a bin in seconds.
    pub every_s: f64,
    /// Names of the links. Empty: all.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_of_another_version_is_refused() {
        let read = |version: u32| {
            serde_json::from_value::<Scenario>(serde_json::json!({
                "version": version, "seed": 1, "duration_s": 1.0, "nodes": [], "links": [], "workload": [],
            }))
        };
        assert_eq!(read(VERSION).expect("this node's version").version, VERSION);
        for other in [0, 2] {
            let sentence = read(other).expect_err("another version").to_string();
            assert!(
                sentence.starts_with(&format!("scenario version {other}: this node reads version 1")),
                "{sentence}"
            );
        }
    }
}
