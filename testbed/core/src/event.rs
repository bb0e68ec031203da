//! What happened to a packet, told by whoever decided it and recorded by the driver: the telemetry that
//! stands beside the captures.

use crate::packet::Packet;
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

/// Where the parts put their events; the driver empties it.
#[derive(Default, Debug)]
pub struct Events {
    /// In the order in which they were noted.
    pub list: Vec<Event>,
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
