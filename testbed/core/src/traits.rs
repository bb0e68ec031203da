//! The four traits. Each is a pure state machine; a driver (`testbed/simulator` in virtual time,
//! `testbed/emulator` in real time) gives it a clock and carries its packets.

use std::time::Duration;

use serde::Serialize;

use crate::event::Events;
use crate::packet::Packet;
use crate::time::Time;

/// The queueing discipline at one end of a link.
///
/// A policy decides; it counts nothing but its own queue. Every packet that does not come out of
/// [`Policy::dequeue`] is reported to `events`, so that in = out + dropped + purged + queued always holds.
/// The packet in transmission is not in the queue.
pub trait Policy: Send {
    /// A packet arrives at `now`.
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events);

    /// The transmitter is free at `now` and asks for the next packet.
    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet>;

    /// From when on [`Policy::dequeue`] has a packet to give, or drops all that waits; [`Time::ZERO`]: at once. `None`: not
    /// before something arrives or the rates change. A link whose transmitter is free asks again at that time.
    ///
    /// Only a policy that may hold back what waits, as one with bounded classes does, has an answer of its own.
    fn next_time(&self) -> Option<Time> {
        (self.len_packets() > 0).then_some(Time::ZERO)
    }

    /// The packet that [`Policy::dequeue`] would give, if the policy can tell without changing state.
    /// Radios ask for it to see whether a frame for a peer waits (asym 7.2.1, piggybacked link acks).
    fn peek(&self) -> Option<&Packet>;

    /// A packet passed in the opposite direction through the router that owns this queue (ACQ measures the
    /// downlink with it, AF marks dupacks). Most policies do not look.
    fn on_opposite(&mut self, _now: Time, _packet: &Packet) {}

    /// The line's rates have changed: of the direction that this queue stands before, and of the opposite one, in bit/s.
    /// Only policies that were told no rates of their own follow.
    fn on_rates(&mut self, _now: Time, _own_bps: Option<u64>, _opposite_bps: Option<u64>) {}

    /// Packets waiting.
    fn len_packets(&self) -> usize;

    /// Network-layer bytes waiting.
    fn len_bytes(&self) -> u64;
}

/// An attachment point of a link: 0 and 1 for a link with two ends, more for a shared medium.
pub type Port = u16;

/// A packet that leaves a link.
#[derive(Debug)]
pub struct Delivery {
    /// The end it comes out of.
    pub port: Port,
    /// The instant at which it should come out, on the link's ideal timeline; never after the `now` of the poll
    /// that returned it. Drivers measure lateness against it.
    pub at: Time,
    /// The packet.
    pub packet: Packet,
}

/// What joins nodes: rate, delay, framing, MAC, error model and the policies at its ends.
///
/// Departures are computed on an ideal timeline: a late call of [`Link::poll`] delays what it delivers but never
/// what follows.
pub trait Link: Send {
    /// A packet enters at `port` at `now`. `now` never decreases over the calls of submit and poll.
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events);

    /// When [`Link::poll`] should next be called; `None` when the link is idle.
    fn next_event(&self) -> Option<Time>;

    /// Advances to `now` and appends what has come out by then, in order of time.
    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events);

    /// The policy in front of `port`, for telemetry; `None` where the port has none.
    fn policy(&self, port: Port) -> Option<&dyn Policy>;

    /// What each direction has sent so far.
    fn usage(&self, port: Port) -> Usage;
}

/// What entered a link at one port and was serialised, for the fidelity report and utilisation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Packets that finished serialisation.
    pub packets: u64,
    /// Network-layer bytes of them.
    pub bytes: u64,
    /// Bits they took on the line, framing included.
    pub line_bits: u64,
    /// Time the transmitter was busy on the ideal timeline.
    pub busy: Duration,
    /// What became of headers, where the line compresses them.
    pub headers: Option<Headers>,
}

/// What RFC 1144 made of the packets of one direction; each count in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Headers {
    /// Sent with a compressed header.
    pub compressed: u64,
    /// Sent whole, to set a slot of the far end.
    pub uncompressed: u64,
    /// Sent as they are: no TCP, the ends of connections, fragments.
    pub as_they_are: u64,
    /// Thrown away by the far end, which could not tell what they stood for.
    pub tossed: u64,
    /// Delivered with another header than they were sent with, since the ends were out of step.
    pub wrong: u64,
}

/// A side of a middlebox or a two-ended thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Towards the first end (link port 0).
    A,
    /// Towards the second end (link port 1).
    B,
}

impl Side {
    /// The other one.
    pub const fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }
}

/// Per-packet logic in a node that is no queue: snoop, split connection, ack reconstruction.
pub trait Middlebox: Send {
    /// A packet reaches the node from `from`. What is to be sent on, now, is appended to `out` as
    /// (side to send it to, packet); a packet that merely passes goes to `from.other()`.
    fn process(&mut self, now: Time, from: Side, packet: Packet, out: &mut Vec<(Side, Packet)>, events: &mut Events);

    /// When [`Middlebox::poll`] should next be called.
    fn next_event(&self) -> Option<Time>;

    /// Advances to `now`; appends packets whose time has come.
    fn poll(&mut self, now: Time, out: &mut Vec<(Side, Packet)>, events: &mut Events);
}

/// One TCP connection (or another transport) at a host.
pub trait Endpoint: Send {
    /// A packet for this endpoint arrives. Malformed or foreign packets are counted and dropped.
    fn on_segment(&mut self, now: Time, packet: &Packet);

    /// `now` has reached [`Endpoint::next_timeout`].
    fn on_timer(&mut self, now: Time);

    /// The next packet to send, or `None`. Called until it gives `None` after every other call, with the same `now` each
    /// time: what is sent at one instant is a burst.
    fn poll_transmit(&mut self, now: Time) -> Option<Packet>;

    /// When [`Endpoint::on_timer`] is due.
    fn next_timeout(&self) -> Option<Time>;
}
