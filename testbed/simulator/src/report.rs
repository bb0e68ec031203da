//! The report of a simulation, in the form that the emulated backend reports.

use std::collections::BTreeMap;

use backchannel_core::report::LinkReport;
use backchannel_core::time::Time;
use backchannel_core::transport::{End, Transport};
use backchannel_links::Fault;
use backchannel_stacks::Counts;
use schemars::JsonSchema;
use serde::Serialize;

use crate::connection::HostConnection;

/// Report of a run in virtual time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SimulationReport {
    /// Start of the run in the captures' time stamps, since the epoch.
    #[schemars(extend("unit" = "ns"))]
    pub t0_epoch_ns: i64,
    /// The links.
    pub driver: DriverReport,
    /// One entry per capture file.
    pub captures: Vec<CaptureReport>,
    /// Both sides of each flow, by name of the flow.
    pub flows: BTreeMap<String, FlowReport>,
}

/// Report of the links of a run in virtual time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DriverReport {
    /// Directions of each link, by name of the link.
    pub links: BTreeMap<String, LinkReport>,
    /// Always true: distinguishes this report from the emulator's.
    pub r#virtual: bool,
    /// Tests of the guards only: the fault that was injected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// A capture file.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CaptureReport {
    /// Name of the node.
    pub node: String,
    /// Name of the interface.
    pub interface: String,
    /// Name of the file in the run's `captures` folder.
    pub path: String,
    /// Packets in the file.
    #[schemars(extend("unit" = "packet"))]
    pub captured: u64,
    /// Packets that passed the interface.
    #[schemars(extend("unit" = "packet"))]
    pub received: u64,
    /// Packets that the capture lost.
    #[schemars(extend("unit" = "packet"))]
    pub dropped: u64,
}

/// Both sides of a flow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowReport {
    /// The sending host.
    pub send: FlowSideReport,
    /// The receiving host.
    pub receive: FlowSideReport,
}

/// One side of a flow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowSideReport {
    /// Bytes of data: acknowledged (TCP) or sent (UDP) at the sender, received at the receiver.
    #[schemars(extend("unit" = "byte"))]
    pub bytes: u64,
    /// Whether every byte arrived as it was sent.
    pub payload_ok: bool,
    /// How it ended: `open`, `finished`, `reset`, `timed out`, `stopped`, `never connected`, or the number of finished
    /// connections.
    pub end: String,
    /// TCP: segments of all connections of this side.
    #[serde(flatten)]
    pub segments: Option<SegmentCounts>,
    /// A single connection: what is not summed over several.
    #[serde(flatten)]
    pub connection: Option<ConnectionReport>,
}

/// Segment counts of one side of a flow. All are segments, except as noted.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct SegmentCounts {
    /// Sent, with data or without.
    #[schemars(extend("unit" = "segment"))]
    pub segments_sent: u64,
    /// Received and accepted.
    #[schemars(extend("unit" = "segment"))]
    pub segments_received: u64,
    /// Data segments retransmitted.
    #[schemars(extend("unit" = "segment"))]
    pub retransmitted: u64,
    /// Expirations of the retransmission timer.
    pub coarse_timeouts: u64,
    /// Fast retransmits.
    pub fast_retransmits: u64,
}

/// What only the report of a single connection has.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ConnectionReport {
    /// Segments rejected as malformed, damaged or outside the window.
    #[schemars(extend("unit" = "segment"))]
    pub segments_refused: u64,
    /// Duplicate acks received.
    #[schemars(extend("unit" = "segment"))]
    pub duplicate_acks: u64,
    /// When the first byte arrived, since the start of the run. Null without a byte.
    #[schemars(extend("unit" = "s"))]
    pub first_s: Option<f64>,
    /// When the last byte arrived, since the start of the run. Null without a byte.
    #[schemars(extend("unit" = "s"))]
    pub last_s: Option<f64>,
}

impl FlowSideReport {
    /// A side without TCP connections.
    pub(crate) fn without_connections(bytes: u64, end: &str) -> FlowSideReport {
        FlowSideReport { bytes, payload_ok: true, end: end.to_owned(), segments: None, connection: None }
    }

    /// A side with these connections: the connection's own report if it is one, sums if they are several.
    pub(crate) fn of(connections: &[&HostConnection]) -> FlowSideReport {
        let mut counts = Counts::default();
        connections.iter().for_each(|end| counts += end.connection.counts());
        let segments = SegmentCounts {
            segments_sent: counts.sent,
            segments_received: counts.received,
            retransmitted: counts.retransmitted,
            coarse_timeouts: counts.timeouts,
            fast_retransmits: counts.fast_retransmits,
        };
        let (end, connection) = match connections {
            [] => return FlowSideReport::without_connections(0, "never connected"),
            [single] => {
                let connection = ConnectionReport {
                    segments_refused: counts.refused,
                    duplicate_acks: counts.duplicate_acks,
                    first_s: single.first.map(Time::seconds),
                    last_s: single.last.map(Time::seconds),
                };
                (end_name(single.connection.end()).to_owned(), Some(connection))
            }
            several => {
                let finished = several.iter().filter(|end| end.connection.end() == Some(End::Finished)).count();
                (format!("{finished} of {} connections finished", several.len()), None)
            }
        };
        FlowSideReport {
            bytes: connections.iter().map(|end| end.bytes()).sum(),
            payload_ok: connections.iter().all(|end| end.intact),
            end,
            segments: Some(segments),
            connection,
        }
    }
}

fn end_name(end: Option<End>) -> &'static str {
    match end {
        None => "open",
        Some(End::Finished) => "finished",
        Some(End::Reset) => "reset",
        Some(End::TimedOut) => "timed out",
        Some(End::Aborted) => "stopped",
    }
}
