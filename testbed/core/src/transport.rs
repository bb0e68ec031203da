//! A transport at a host: its connections, as packets and as applications see them, and which packet belongs to which.
//!
//! TCP (`agents/stacks`) is one, QUIC (`agents/quic`) another. A driver hands packets, timers and the application's calls to a [`Transport`] and sends
//! what [`Transport::poll_transmit`] returns. [`Connections`] are those of one program.

use std::collections::BTreeMap;
use std::vec::Drain;

use crate::event::SenderSample;
use crate::packet::{FlowKey, Packet};
use crate::time::Time;

/// More bytes than any run can carry: what an application writes that sends without end.
pub const ENDLESS: u64 = 1 << 60;

/// A piece of a stream. Zeros at its end are counted, not stored, which makes them free in virtual time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Stored bytes.
    pub bytes: Vec<u8>,
    /// Zeros after them.
    pub zeros: u64,
}

impl Chunk {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64 + self.zeros
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the first `n` bytes; it has at least so many.
    #[inline]
    pub fn skip(&mut self, n: u64) {
        let stored = n.min(self.bytes.len() as u64);
        self.bytes.drain(..stored as usize);
        self.zeros -= n - stored;
    }

    /// Drops all but the first `n` bytes; it has at least so many.
    pub fn truncate(&mut self, n: u64) {
        let stored = n.min(self.bytes.len() as u64);
        self.bytes.truncate(stored as usize);
        self.zeros = n - stored;
    }
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both sides had finished.
    Finished,
    /// The peer reset it.
    Reset,
    /// Nothing came back after this side's last retransmission.
    TimedOut,
    /// This side's application aborted it.
    Aborted,
}

/// One end of a connection.
pub trait Transport: Send {
    /// A packet for this connection arrives. Malformed or foreign packets are counted and dropped.
    fn on_packet(&mut self, now: Time, packet: &Packet);

    /// `now` has reached [`Transport::next_timeout`].
    fn on_timer(&mut self, now: Time);

    /// The next packet to send. Called with the same `now` until it returns `None` after every other call: all that is
    /// sent at one instant is one burst.
    fn poll_transmit(&mut self, now: Time) -> Option<Packet>;

    /// When [`Transport::on_timer`] is due.
    fn next_timeout(&self) -> Option<Time>;

    /// The application has `bytes` more to send. Nothing changes after [`Transport::finish`].
    fn write(&mut self, bytes: u64);

    /// The application has no more to send than it has written.
    fn finish(&mut self);

    /// The application ends at once; the peer is reset.
    fn abort(&mut self);

    /// Data that have arrived in order since the last call.
    fn read(&mut self) -> Drain<'_, Chunk>;

    /// Whether the peer has finished sending and the application has read everything.
    fn peer_finished(&self) -> bool;

    /// Why it is closed; `None` while it is open. A closed connection may still answer packets until it has no timer.
    fn end(&self) -> Option<End>;

    /// Bytes of this side's data that the peer has acknowledged.
    fn acknowledged(&self) -> u64;

    /// Passes on the sender's telemetry since the last call.
    fn sample(&mut self, record: &mut dyn FnMut(Time, SenderSample));
}

/// Makes the connections of one program.
pub trait Factory {
    /// Its kind of connection.
    type Connection: Transport;

    /// Opens a connection that sends the packets of this flow.
    fn connect(&mut self, now: Time, flow: FlowKey) -> Self::Connection;

    /// Answers the first packet of a connection; the answers are the packets of `flow`. `None`: it opens none.
    fn accept(&mut self, now: Time, flow: FlowKey, packet: &Packet) -> Option<Self::Connection>;
}

/// The connections of one program, by the flow that each sends.
#[derive(Debug)]
pub struct Connections<F: Factory> {
    factory: F,
    /// Port at which it accepts connections.
    listening: Option<u16>,
    open: BTreeMap<FlowKey, F::Connection>,
}

impl<F: Factory> Connections<F> {
    /// None yet.
    pub fn new(factory: F, listening: Option<u16>) -> Connections<F> {
        Connections { factory, listening, open: BTreeMap::new() }
    }

    /// Opens a connection. It replaces one that sends the same flow.
    pub fn connect(&mut self, now: Time, flow: FlowKey) -> &mut F::Connection {
        self.open.remove(&flow);
        self.open.entry(flow).or_insert(self.factory.connect(now, flow))
    }

    /// Hands a packet to its connection, which it may open. Returns the flow that this connection sends, and whether it
    /// is new.
    pub fn on_packet(&mut self, now: Time, packet: &Packet) -> Option<(FlowKey, bool)> {
        let flow = packet.flow()?.reversed();
        if let Some(connection) = self.open.get_mut(&flow) {
            connection.on_packet(now, packet);
            return Some((flow, false));
        }
        self.listening.filter(|port| *port == flow.src_port)?;
        self.open.insert(flow, self.factory.accept(now, flow, packet)?);
        Some((flow, true))
    }

    /// What makes them.
    pub fn factory_mut(&mut self) -> &mut F {
        &mut self.factory
    }

    /// The connection that sends a flow.
    pub fn get_mut(&mut self, flow: &FlowKey) -> Option<&mut F::Connection> {
        self.open.get_mut(flow)
    }

    /// All, in the order of their flows.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&FlowKey, &mut F::Connection)> {
        self.open.iter_mut()
    }

    /// When the first timer of any is due.
    pub fn next_timeout(&self) -> Option<Time> {
        self.open.values().filter_map(Transport::next_timeout).min()
    }

    /// Removes those that are closed and answer no more packets.
    pub fn remove_closed(&mut self) -> Vec<(FlowKey, F::Connection)> {
        let is_closed = |connection: &F::Connection| connection.end().is_some() && connection.next_timeout().is_none();
        let closed = self.open.iter().filter(|(_, connection)| is_closed(connection));
        let closed: Vec<_> = closed.map(|(flow, _)| *flow).collect();
        closed.into_iter().filter_map(|flow| self.open.remove_entry(&flow)).collect()
    }
}
