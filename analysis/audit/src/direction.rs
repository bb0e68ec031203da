//! One direction of a link: the packets and events that the checks read, and the audit that they fill.

use std::collections::BTreeMap;

use backchannel_core::event::EventKind;
use backchannel_core::report::Lateness;
use backchannel_core::scenario::{DirectionSpec, LinkSpec};
use schemars::JsonSchema;
use serde::Serialize;

use crate::mechanisms::Mechanisms;
use crate::records::Record;

/// What the captures at both ends of one direction of a link show.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct DirectionAudit {
    /// Packets that entered during the run.
    #[schemars(extend("unit" = "packet"))]
    pub entered_packets: u64,
    /// Packets that left during the run.
    #[schemars(extend("unit" = "packet"))]
    pub left_packets: u64,
    /// Packets that did not leave, although the link had time for them and reported no drop or loss.
    #[schemars(extend("unit" = "packet"))]
    pub swallowed_packets: u64,
    /// Packets that left and had not entered, apart from reported duplicates.
    #[schemars(extend("unit" = "packet"))]
    pub invented_packets: u64,
    /// Packets that left after a packet that had entered later. Behind a policy that reorders, of the same flow.
    #[schemars(extend("unit" = "packet"))]
    pub reordered_packets: u64,
    /// Packets that left with another checksum, apart from reported damage.
    #[schemars(extend("unit" = "packet"))]
    pub changed_packets: u64,
    /// On a link with jitter: packets for which it reported nothing, or more than its declared jitter.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(extend("unit" = "packet"))]
    pub jitter_unexplained_packets: u64,
    /// Achieved over declared rate, minus 1, of the second that deviates most; null if not measured.
    #[schemars(extend("unit" = "1"))]
    pub rate_error: Option<f64>,
    /// The same as a number of bytes that each packet takes in addition to its declared size on the link.
    #[schemars(extend("unit" = "byte"))]
    pub rate_error_bytes: Option<f64>,
    /// Busy time over which the rate was measured.
    #[schemars(extend("unit" = "s"))]
    pub rate_measured_s: f64,
    /// Least transit time of any packet minus what queueing, rate and delay allow; null without enough packets.
    #[schemars(extend("unit" = "s"))]
    pub least_excess_s: Option<f64>,
    /// How long after its time each packet left.
    pub lateness_s: Lateness,
    /// Drops at a full queue whose occupancy was determined.
    #[schemars(extend("unit" = "packet"))]
    pub drops_checked: u64,
    /// Those of them at a queue that was longer than declared.
    #[schemars(extend("unit" = "packet"))]
    pub drops_beyond_limit: u64,
    /// Those of them at a queue that was not full.
    #[schemars(extend("unit" = "packet"))]
    pub drops_before_limit: u64,
    /// Declared limit of the queue; null if the queue was not checked.
    #[schemars(extend("unit" = "packet"))]
    pub queue_limit_packets: Option<u64>,
    /// A length that the queue reached for certain; null if the queue was not checked.
    #[schemars(extend("unit" = "packet"))]
    pub longest_queue_packets: Option<u64>,
    /// Checks that were not made, with the reason: `all`, `rate`, `transit`, `queue`.
    pub unchecked: BTreeMap<String, String>,
}

/// Whether a count is zero.
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A packet that arrived over a link with jitter, in `telemetry/links.jsonl`.
#[derive(Clone, Debug)]
pub(crate) struct JitterEvent {
    pub(crate) at_ns: i64,
    pub(crate) link: String,
    pub(crate) direction: String,
    pub(crate) jitter_ns: i64,
    pub(crate) bytes: u32,
    pub(crate) checksum: u16,
    pub(crate) lost: bool,
}

/// An event of a packet in `telemetry/links.jsonl`.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) at_ns: i64,
    pub(crate) link: String,
    pub(crate) direction: String,
    pub(crate) kind: EventKind,
    pub(crate) bytes: u32,
    pub(crate) pure_ack: bool,
}

/// Start and end of a run in the captures' time stamps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) begin_ns: i64,
    pub(crate) end_ns: i64,
}

/// One direction of a link with its packets.
pub(crate) struct Direction<'a> {
    pub(crate) link: &'a LinkSpec,
    pub(crate) spec: &'a DirectionSpec,
    pub(crate) mechanisms: Mechanisms<'a>,
    pub(crate) window: Window,
    /// In the capture at the near end, in order.
    pub(crate) entered: &'a [Record],
    /// In the capture at the far end, in order.
    pub(crate) left: &'a [Record],
    pub(crate) events: &'a [&'a Event],
    /// In order of arrival.
    pub(crate) jitter: &'a [&'a JitterEvent],
    /// When the driver wrote a packet to either end of the link: it was running then.
    pub(crate) writes_ns: &'a [i64],
}

impl Direction<'_> {
    /// Whether the policy keeps the order of all packets. Others keep that of a flow's data and of its acks.
    pub(crate) fn keeps_order(&self) -> bool {
        self.mechanisms.keeps_order(&self.spec.queue)
    }
}
