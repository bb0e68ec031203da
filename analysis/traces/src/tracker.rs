//! Finds the connection of each packet of a capture.
//!
//! Memory is bounded by the live connections. A connection that ended is released some time later, and the idlest of a
//! few is released when there are too many. Queues within connections draw on one [`Budget`].

use std::collections::{HashMap, VecDeque};

use crate::budget::Budget;
use crate::connection::{Connection, Segment};
use crate::packet::{flag, Address, TcpPacket};

/// A connection that ended is released after this time: twice the maximum segment lifetime (RFC 9293 3.4.2).
const LINGER_NS: i64 = 240_000_000_000;
/// Connections followed at a time.
const MAX_LIVE: usize = 1 << 15;
/// Connections compared to find an idle one.
const IDLE_CANDIDATES: usize = 64;
/// Entries of the cache of directed address pairs.
const SLOTS: usize = 1 << 10;

/// Addresses and ports of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    src: u128,
    dst: u128,
    src_port: u16,
    dst_port: u16,
}

impl Key {
    #[inline]
    fn of(src: (Address, u16), dst: (Address, u16)) -> Key {
        Key { src: src.0 .0, dst: dst.0 .0, src_port: src.1, dst_port: dst.1 }
    }

    fn swapped(self) -> Key {
        Key { src: self.dst, dst: self.src, src_port: self.dst_port, dst_port: self.src_port }
    }

    /// The same key for both directions.
    fn undirected(self) -> Key {
        self.min(self.swapped())
    }

    /// Index of the cache entry. Ports are shifted as 64-bit values: with 32 bits, compilers load more than the half
    /// word that was just stored, and the processor stalls on the store.
    #[inline]
    fn slot(self) -> usize {
        let ports = u64::from(self.src_port) << 40 ^ u64::from(self.dst_port) << 17;
        let mixed = (self.src as u64 ^ (self.dst as u64).rotate_left(32) ^ ports).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 54) as usize % SLOTS
    }
}

/// A cache entry, on a cache line of its own.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Slot {
    key: Key,
    index: u32,
    direction: u8,
}

const EMPTY: u32 = u32::MAX;

/// Follows all connections of one capture.
#[derive(Debug)]
pub struct Tracker {
    /// Cache: where the connection of a directed pair was found last.
    slots: Box<[Slot]>,
    /// Index in `live` by undirected key. The hash is keyed, because a capture can be made to collide.
    indices: HashMap<Key, u32>,
    live: Vec<Option<Connection>>,
    free: Vec<u32>,
    /// Connections that saw a FIN or RST, in that order: time, index, number.
    closing: VecDeque<(i64, u32, u32)>,
    /// Where the search for an idle connection goes on.
    hand: usize,
    budget: Budget,
    /// Connections so far.
    pub count: u64,
    /// Connections that were released early to make room.
    pub given_up: u64,
    /// Released connections, for the caller to take.
    pub finished: Vec<Connection>,
    /// Rows of retransmissions that the last segment proved spurious, for the caller to take.
    pub proved: Vec<u64>,
}

impl Default for Tracker {
    fn default() -> Tracker {
        let empty = Slot { key: Key { src: 0, dst: 0, src_port: 0, dst_port: 0 }, index: EMPTY, direction: 0 };
        Tracker {
            slots: vec![empty; SLOTS].into(),
            indices: HashMap::new(),
            live: Vec::new(),
            free: Vec::new(),
            closing: VecDeque::new(),
            hand: 0,
            budget: Budget::default(),
            count: 0,
            given_up: 0,
            finished: Vec::new(),
            proved: Vec::new(),
        }
    }
}

impl Tracker {
    /// Takes the next segment of the capture, which has (or would have) this row in the table.
    #[inline(always)]
    pub fn process(&mut self, time_ns: i64, packet: &TcpPacket, row: u64) -> Segment {
        let key = Key::of(packet.src, packet.dst);
        let slot = &self.slots[key.slot()];
        let (mut index, mut direction) = (slot.index, slot.direction);
        if index == EMPTY || slot.key != key {
            (index, direction) = self.find(time_ns, packet, key);
        } else if packet.flags & (flag::SYN | flag::ACK) == flag::SYN {
            let connection = self.live[index as usize].as_ref().expect("slots refer to live connections");
            if connection.is_other(direction, packet) {
                self.remove(index);
                (index, direction) = self.find(time_ns, packet, key);
            }
        }
        let connection = self.live[index as usize].as_mut().expect("slots refer to live connections");
        let was_closing = connection.closing;
        let (budget, proved) = (&mut self.budget, &mut self.proved);
        let segment = connection.process(time_ns, packet, usize::from(direction), row, budget, proved);
        if connection.closing && !was_closing {
            self.closing.push_back((time_ns, index, connection.number));
        }
        segment
    }

    /// Indices of all live connections, in the order of their first segments.
    pub fn remaining(&self) -> Vec<u32> {
        let numbered = self.live.iter().zip(0..).filter_map(|(live, index)| Some((live.as_ref()?.number, index)));
        let mut numbers: Vec<(u32, u32)> = numbered.collect();
        numbers.sort_unstable();
        numbers.into_iter().map(|(_, index)| index).collect()
    }

    #[cold]
    fn find(&mut self, time_ns: i64, packet: &TcpPacket, key: Key) -> (u32, u8) {
        let opens = packet.flags & (flag::SYN | flag::ACK) == flag::SYN;
        let known = self.indices.get(&key.undirected()).copied().and_then(|index| {
            let connection = self.live[index as usize].as_ref().expect("indices refer to live connections");
            let direction = u8::from(packet.src != connection.client);
            let other = opens && connection.is_other(direction, packet);
            if other {
                self.remove(index);
            }
            (!other).then_some((index, direction))
        });
        let (index, direction) = known.unwrap_or_else(|| self.open(time_ns, packet, key));
        self.slots[key.slot()] = Slot { key, index, direction };
        (index, direction)
    }

    fn open(&mut self, time_ns: i64, packet: &TcpPacket, key: Key) -> (u32, u8) {
        self.release_closed(time_ns);
        if self.is_full() {
            self.release_idlest();
        }
        let connection = Connection::new(self.count as u32, time_ns, packet);
        self.count += 1;
        let direction = u8::from(packet.src != connection.client);
        let index = self.free.pop().unwrap_or_else(|| {
            self.live.push(None);
            self.live.len() as u32 - 1
        });
        self.live[index as usize] = Some(connection);
        self.indices.insert(key.undirected(), index);
        (index, direction)
    }

    fn is_full(&self) -> bool {
        self.live.len() - self.free.len() >= MAX_LIVE
    }

    /// Releases connections that closed long enough ago, or any that closed while there is no room.
    fn release_closed(&mut self, time_ns: i64) {
        while let Some(&(closed_ns, index, number)) = self.closing.front() {
            let full = self.is_full();
            if !full && time_ns - closed_ns < LINGER_NS {
                break;
            }
            self.closing.pop_front();
            let live = self.live[index as usize].as_ref().filter(|live| live.number == number);
            match live.map(|live| live.last_ns) {
                Some(last_ns) if full || time_ns - last_ns >= LINGER_NS => self.remove(index),
                Some(last_ns) => self.closing.push_back((last_ns, index, number)),
                None => {}
            }
        }
    }

    /// Releases the idlest of the next few connections.
    fn release_idlest(&mut self) {
        let idlest = (0..IDLE_CANDIDATES)
            .map(|step| (self.hand + step) % self.live.len())
            .filter_map(|index| self.live[index].as_ref().map(|connection| (connection.last_ns, index)))
            .min();
        self.hand = (self.hand + IDLE_CANDIDATES) % self.live.len();
        if let Some((_, index)) = idlest {
            self.given_up += 1;
            self.remove(index as u32);
        }
    }

    /// Releases a connection to [`Tracker::finished`].
    pub fn remove(&mut self, index: u32) {
        let Some(connection) = self.live[index as usize].take() else { return };
        let key = Key::of(connection.client, connection.server);
        for directed in [key, key.swapped()] {
            let slot = &mut self.slots[directed.slot()];
            if slot.index == index {
                slot.index = EMPTY;
            }
        }
        self.indices.remove(&key.undirected());
        self.free.push(index);
        self.budget.release(connection.streams.iter().map(|stream| stream.charged()).sum());
        self.finished.push(connection.closed());
    }
}

#[cfg(test)]
mod tests;
