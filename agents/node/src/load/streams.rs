//! The TCP connections of a program, whichever TCP carries them: sockets of the kernel, or the research stack.

use backchannel_core::Error;
use backchannel_workloads::flow::Write;

use crate::payload::Check;
use crate::reports::{ReceiveEnd, StreamsReport, TransportReport};

/// The connections of one end of a flow.
pub(super) trait Streams {
    /// Names a connection.
    type Id: Copy;
    /// Whether it must know the start of the run before the first connection.
    const NEEDS_START: bool;

    /// The start of the run, in nanoseconds of CLOCK_MONOTONIC.
    fn on_start(&mut self, _run_begins_ns: u64) {}

    /// Opens a connection to the other end.
    fn connect(&mut self) -> Result<Self::Id, Error>;

    /// Adds what a connection is to carry. Does nothing if the connection has ended.
    fn write(&mut self, id: Self::Id, next: Write) -> Result<(), Error>;

    /// Port of the end that opened a connection, which joins both ends' records.
    fn key(&self, id: Self::Id) -> u16;

    /// Waits until something happens, at most until an instant of CLOCK_MONOTONIC or, without one, for
    /// [`LONGEST_WAIT_NS`](crate::signals::LONGEST_WAIT_NS), and returns what has been read.
    fn wait(&mut self, until_ns: Option<u64>) -> Result<Vec<Progress<Self::Id>>, Error>;

    /// Drops connections that have ended, once what was read from them is handled.
    fn drop_ended(&mut self);

    /// Whether no connection is open.
    fn is_empty(&self) -> bool;

    /// Whether the other end has answered on any.
    fn has_connected(&mut self) -> bool;

    /// Resets all.
    fn abort(&mut self) -> Result<(), Error>;

    /// What the connections that have ended have carried.
    fn tally(&self) -> &Tally;

    /// What the TCP reports of itself.
    fn report(&mut self) -> Result<TransportReport, Error>;
}

/// What has been read from a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress<I> {
    pub(super) id: I,
    /// Bytes before and now.
    pub(super) before: u64,
    pub(super) received: u64,
    /// When the last of them was read, on CLOCK_MONOTONIC.
    pub(super) last_ns: u64,
    /// Whether these were the last, because the peer has closed its direction.
    pub(super) ended: bool,
}

impl<I> Progress<I> {
    /// What has been read since there were `before` bytes; `None`: nothing.
    pub(super) fn since(before: u64, id: I, check: &Check, ended: bool) -> Option<Progress<I>> {
        let (received, last_ns) = (check.bytes, check.last_ns.unwrap_or(0));
        (ended || received > before).then_some(Progress { id, before, received, last_ns, ended })
    }
}

/// What the connections of a program have carried.
pub(super) struct Tally {
    /// Seed of the byte stream on each of them, in either direction.
    pub(super) seed: u64,
    /// Connections that were opened from either end.
    pub(super) opened: u64,
    /// Bytes on those that have ended.
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) intact: bool,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    /// BLAKE3 hash of the bytes that arrived on the first connection.
    hash: Option<String>,
    /// How the last connection to end did so.
    pub(super) end: ReceiveEnd,
}

impl Tally {
    pub(super) fn new(seed: u64) -> Tally {
        let (opened, sent, received, intact) = (0, 0, 0, true);
        let (first_ns, last_ns, hash, end) = (None, None, None, ReceiveEnd::Stopped);
        Tally { seed, opened, sent, received, intact, first_ns, last_ns, hash, end }
    }

    /// The check of a connection that is opened now. Only the first is hashed: a hash of several would mean nothing.
    pub(super) fn open(&mut self) -> Check {
        self.opened += 1;
        Check::new(self.seed, self.opened == 1)
    }

    /// A connection has ended on which `sent` bytes were sent.
    pub(super) fn add(&mut self, check: Check, sent: u64, end: ReceiveEnd) {
        self.sent += sent;
        self.received += check.bytes;
        self.intact &= check.intact;
        self.first_ns = [self.first_ns, check.first_ns].into_iter().flatten().min();
        self.last_ns = self.last_ns.max(check.last_ns);
        self.hash = check.hash.map(|hash| hash.hex()).or(self.hash.take());
        self.end = end;
    }

    pub(super) fn report(&self) -> StreamsReport {
        StreamsReport {
            connected: self.opened > 0,
            end: self.end,
            blake3: self.hash.clone().filter(|_| self.opened == 1),
            first_monotonic_ns: self.first_ns,
            last_monotonic_ns: self.last_ns,
        }
    }
}
