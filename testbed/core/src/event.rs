//! What happened to a packet, told by whoever decided it and recorded by the driver: the telemetry that
//! stands beside the captures.

use crate::packet::{FlowKey, Packet};
use crate::time::Time;

/// Why a packet left a queue other than by being sent, or what was done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Dropped because the queue was full; which packet is the policy's choice.
    DroppedFull,
    /// Dropped early by active queue management (RED, CoDel, ...).
    DroppedEarly,
    /// Removed as redundant by an ack filter.
    Purged,
    /// ECN Congestion Experienced was set.
    Marked,
    /// A dupack was marked for fast retransmit (asym 6.3).
    MarkedDupack,
    /// The error model damaged it; it still crosses the link.
    Damaged,
    /// The error model, or a link that gave up, lost it.
    Lost,
    /// The far end of a line could not tell what its compressed header stood for.
    Tossed,
    /// The error model held it back behind later ones.
    Reordered,
    /// The error model let it come out twice.
    Duplicated,
    /// A link-layer frame was sent again.
    LinkRetransmit,
    /// A middlebox made this packet.
    Made,
}

impl EventKind {
    /// The name used in telemetry files.
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
            EventKind::Made => "made",
        }
    }
}

/// One thing that happened to one packet.
#[derive(Clone, Debug)]
pub struct Event {
    /// When.
    pub at: Time,
    /// What.
    pub kind: EventKind,
    /// The packet's number, see [`Packet::id`].
    pub packet_id: u64,
    /// Its network-layer length in bytes.
    pub len: u32,
    /// Whether it was a pure ack.
    pub pure_ack: bool,
    /// The link end it entered at, see [`Events::port`].
    pub port: u16,
}

/// A TCP sender that stands in the network, after something happened to it: a part of a split connection. The same
/// quantities as those of a host's sender.
#[derive(Clone, Copy, Debug)]
pub struct SenderState {
    /// When.
    pub at: Time,
    /// What: `ack`, `fast_retransmit`, `coarse_timeout`, ...
    pub what: &'static str,
    /// The direction of its data, with the hosts' addresses and ports.
    pub flow: FlowKey,
    /// Which part of the connection it is.
    pub part: &'static str,
    /// Whether its data enter the link at [`SenderState::port`]; if not, they leave it there.
    pub onto_link: bool,
    /// Congestion window in segments.
    pub cwnd_segments: f64,
    /// Slow-start threshold in segments, once there is one.
    pub ssthresh_segments: Option<f64>,
    /// Bytes outstanding.
    pub outstanding_bytes: u64,
    /// Smoothed round-trip time in s.
    pub rtt_s: Option<f64>,
    /// Retransmission timeout in s.
    pub rto_s: f64,
    /// Duplicate acks in a row.
    pub duplicate_acks: u32,
    /// Segments of the last burst.
    pub burst_segments: u32,
    /// The link end at which it stands, see [`Events::port`].
    pub port: u16,
}

/// Where the parts put their events; the driver empties it.
#[derive(Default, Debug)]
pub struct Events {
    /// In the order in which they were noted.
    pub list: Vec<Event>,
    /// What senders in the network told, in order of time.
    pub senders: Vec<SenderState>,
    /// The link end whose queue and line are at work: a link sets it before it lets them act.
    pub port: u16,
}

impl Events {
    /// Notes that `kind` happened to `packet` at `at`.
    pub fn note(&mut self, at: Time, kind: EventKind, packet: &Packet) {
        let (packet_id, len, pure_ack) = (packet.id, packet.len(), packet.is_pure_ack());
        self.list.push(Event { at, kind, packet_id, len, pure_ack, port: self.port });
    }

    /// How many events of this kind it holds.
    pub fn count(&self, kind: EventKind) -> usize {
        self.list.iter().filter(|e| e.kind == kind).count()
    }
}
