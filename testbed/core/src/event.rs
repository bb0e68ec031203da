//! Events: what happened to a packet on a link, and what a TCP sender inside the network did. The component that decides
//! reports them; the driver counts them and writes telemetry.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::Port;
use crate::packet::{FlowKey, Packet};
use crate::time::Time;

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Dropped because the queue was full. The policy chooses which packet.
    DroppedFull,
    /// Dropped early by active queue management (RED, CoDel, ...).
    DroppedEarly,
    /// Removed as redundant by an ack filter.
    Purged,
    /// ECN Congestion Experienced was set.
    Marked,
    /// A duplicate ack was marked for fast retransmit (asym 6.3).
    MarkedDupack,
    /// Damaged by an error model. The packet still crosses the link.
    Damaged,
    /// Lost by an error model, or by a link that gave up.
    Lost,
    /// Discarded by the far end of a line, which could not decompress its header.
    Tossed,
    /// Delayed by an error model until later packets had passed.
    Reordered,
    /// Delivered twice by an error model.
    Duplicated,
    /// A link-layer frame was retransmitted.
    LinkRetransmit,
    /// The source retransmitted a segment that a base station had retransmitted before.
    SourceRetransmit,
    /// Created by a middlebox.
    Made,
}

impl EventKind {
    /// Name in telemetry and reports, the same as serde's.
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::DroppedFull => "dropped_full",
            EventKind::DroppedEarly => "dropped_early",
            EventKind::Purged => "purged",
            EventKind::Marked => "marked",
            EventKind::MarkedDupack => "marked_dupack",
            EventKind::Damaged => "damaged",
            EventKind::Lost => "lost",
            EventKind::Tossed => "tossed",
            EventKind::Reordered => "reordered",
            EventKind::Duplicated => "duplicated",
            EventKind::LinkRetransmit => "link_retransmit",
            EventKind::SourceRetransmit => "source_retransmit",
            EventKind::Made => "made",
        }
    }
}

/// What a TCP sender did when it reported its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SenderEvent {
    /// An ack changed the congestion window.
    Ack,
    /// A fast retransmit.
    FastRetransmit,
    /// A segment known to be corrupted was retransmitted. The congestion window did not change.
    CorruptionRetransmit,
    /// An echoed congestion mark reduced the congestion window.
    Mark,
    /// Nothing had been lost: the congestion window is what it was before the last recovery.
    SpuriousLoss,
    /// The retransmission timer expired.
    #[serde(rename = "coarse_timeout")]
    Timeout,
}

impl SenderEvent {
    /// Name in telemetry and reports, the same as serde's.
    pub const fn name(self) -> &'static str {
        match self {
            SenderEvent::Ack => "ack",
            SenderEvent::FastRetransmit => "fast_retransmit",
            SenderEvent::CorruptionRetransmit => "corruption_retransmit",
            SenderEvent::Mark => "mark",
            SenderEvent::SpuriousLoss => "spurious_loss",
            SenderEvent::Timeout => "coarse_timeout",
        }
    }
}

/// Number of events of each kind, by name.
pub type EventCounts = BTreeMap<&'static str, u64>;

/// One event of one packet.
#[derive(Clone, Debug)]
pub struct Event {
    /// When it happened.
    pub at: Time,
    /// What happened.
    pub kind: EventKind,
    /// [`Packet::id`] of the packet.
    pub packet_id: u64,
    /// Network-layer length of the packet in bytes.
    pub len: u32,
    /// Whether the packet was a pure ack.
    pub pure_ack: bool,
    /// Link end at which the packet entered, see [`Events::port`].
    pub port: Port,
}

/// State of a TCP sender after an event, in the quantities and units of telemetry files.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SenderSample {
    /// What the sender did.
    pub event: SenderEvent,
    /// Congestion window.
    #[schemars(extend("unit" = "segment"))]
    pub cwnd_segments: f64,
    /// Slow-start threshold. Null until it is set.
    #[schemars(extend("unit" = "segment"))]
    pub ssthresh_segments: Option<f64>,
    /// Data sent and not acknowledged.
    #[schemars(extend("unit" = "byte"))]
    pub outstanding_bytes: u64,
    /// Smoothed round-trip time. Null until one is measured.
    #[schemars(extend("unit" = "s"))]
    pub rtt_s: Option<f64>,
    /// Retransmission timeout.
    #[schemars(extend("unit" = "s"))]
    pub rto_s: f64,
    /// Duplicate acks in a row.
    #[schemars(extend("unit" = "segment"))]
    pub duplicate_acks: u32,
    /// Segments sent at the instant of the last transmission.
    #[schemars(extend("unit" = "segment"))]
    pub burst_segments: u32,
}

/// A sample of a TCP sender inside the network: one part of a split connection.
#[derive(Clone, Copy, Debug)]
pub struct SenderState {
    /// When it was taken.
    pub at: Time,
    /// Direction of its data, with the hosts' addresses and ports.
    pub flow: FlowKey,
    /// Name of the part of the split connection.
    pub part: &'static str,
    /// Whether its data enter the link at [`SenderState::port`]. Otherwise they leave the link there.
    pub onto_link: bool,
    /// State of the sender.
    pub sample: SenderSample,
    /// Link end at which the sender runs, see [`Events::port`].
    pub port: Port,
}

/// What a line with jitter made of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitterSample {
    /// Arrival of its last bit.
    pub at: Time,
    /// Its delay minus the declared one, in nanoseconds.
    pub jitter_ns: i64,
    /// Network-layer length in bytes.
    pub len: u32,
    /// See [`Packet::transport_checksum`].
    pub checksum: u16,
    /// An error model lost it.
    pub lost: bool,
    /// Link end at which the packet entered, see [`Events::port`].
    pub port: Port,
}

/// Collects the events of policies, links and middleboxes. The driver drains it after each call.
#[derive(Default, Debug)]
pub struct Events {
    /// In the order in which they were reported.
    pub list: Vec<Event>,
    /// Samples of senders inside the network, in order of time.
    pub senders: Vec<SenderState>,
    /// Packets that arrived over a line with jitter, in order of time.
    pub jitter: Vec<JitterSample>,
    /// End of the link whose queue or line is active. A link sets it before it calls into either.
    pub port: Port,
}

impl Events {
    /// Adds an event of `packet`.
    pub fn record(&mut self, at: Time, kind: EventKind, packet: &Packet) {
        let (packet_id, len, pure_ack) = (packet.id, packet.len(), packet.is_pure_ack());
        self.list.push(Event { at, kind, packet_id, len, pure_ack, port: self.port });
    }

    /// Adds a packet whose last bit arrives at `at`, `jitter_ns` after the declared delay.
    pub fn record_jitter(&mut self, at: Time, jitter_ns: i64, packet: &Packet) {
        let (len, checksum) = (packet.len(), packet.transport_checksum());
        self.jitter.push(JitterSample { at, jitter_ns, len, checksum, lost: false, port: self.port });
    }

    /// Whether nothing was reported since the driver drained it.
    pub fn is_empty(&self) -> bool {
        self.list.len() + self.senders.len() + self.jitter.len() == 0
    }

    /// Number of events of this kind.
    pub fn count(&self, kind: EventKind) -> usize {
        self.list.iter().filter(|event| event.kind == kind).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_serde_writes() {
        for kind in [EventKind::DroppedFull, EventKind::MarkedDupack, EventKind::LinkRetransmit, EventKind::Made] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        for event in [SenderEvent::Ack, SenderEvent::CorruptionRetransmit, SenderEvent::Timeout] {
            assert_eq!(serde_json::to_value(event).unwrap(), event.name());
        }
    }
}
