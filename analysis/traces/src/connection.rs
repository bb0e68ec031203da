//! TCP connections of one capture, and what each of their segments was.
//!
//! What is said of a segment holds at the place of the capture: next to the sender, a hole in the sequence numbers that
//! is filled later is a retransmission; next to the receiver it may be reordering, told from a retransmission by how
//! soon it comes. Names and rules are those of Wireshark's tcp.analysis where it has them; docs/traces.md lists where and
//! why this differs.
//!
//! Memory is bounded by the live connections: one that ended is handed out some time after, and so is the idlest when
//! there are too many. What grows within a connection (data in flight, holes) draws on one [`Budget`].

use std::collections::{HashMap, VecDeque};

use crate::class;
use crate::decode::{ecn, Address, Checksum, TcpPacket};
use crate::ranges::Ranges;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
const ECE: u8 = 64;
/// A retransmission this soon after the duplicate ack that asked for it is a fast one (as Wireshark has it).
const FAST_NS: i64 = 20_000_000;
/// Reordering threshold where the handshake was not seen (as Wireshark has it).
const REORDERING_NS: i64 = 3_000_000;
/// Silence that tells a timeout while no round trip has been measured: Linux's least timeout.
const SILENCE_NS: i64 = 200_000_000;
/// A connection that ended is handed out after this long: by then no old segment is on its way (RFC 9293 3.4.1).
const LINGER_NS: i64 = 240_000_000_000;
/// Connections followed at a time; beyond, the idlest of some gives way.
const MAX_LIVE: usize = 1 << 15;
/// Places looked at for the idlest.
const LOOKED_AT: usize = 64;
/// Entries that grow within connections, over all of them.
const BUDGET: i64 = 1 << 20;
/// Entries that every half may have whatever the budget.
const ALLOWED: usize = 4;
/// Retransmissions of a half that wait for a proof.
const MAX_RESENT: usize = 512;
/// Directed address pairs at hand.
const SLOTS: usize = 1 << 10;

/// What is known of one segment once it has been followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Number of its connection within the capture.
    pub connection: u32,
    /// 0 from the client (who sent the SYN, or the first segment seen), 1 from the server.
    pub direction: u8,
    /// Relative sequence number, unwrapped: the SYN has 0, the first byte 1.
    pub seq: i64,
    /// Relative acknowledgment number, unwrapped; -1 without ACK.
    pub ack: i64,
    /// Window in bytes, scaled where both SYNs were seen.
    pub window: i64,
    /// Bits of [`class`].
    pub class: u32,
    /// Time from the segment that this ack acknowledges; by Karn's rule never one that was sent again, nor one whose ack
    /// waited for another that was.
    pub rtt_ns: Option<i64>,
    /// Bytes of this direction's stream, after this segment, before the first hole.
    pub in_order: i64,
}

/// Round-trip samples of one direction's data.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RoundTrips {
    /// How many.
    pub count: u64,
    /// Their sum, least and greatest, in ns.
    pub sum_ns: i64,
    /// Least.
    pub min_ns: i64,
    /// Greatest.
    pub max_ns: i64,
    /// Sum of their squares, in s².
    pub squares_s2: f64,
}

impl RoundTrips {
    #[inline(always)]
    fn take(&mut self, sample_ns: i64) {
        self.min_ns = if self.count == 0 { sample_ns } else { self.min_ns.min(sample_ns) };
        self.max_ns = self.max_ns.max(sample_ns);
        self.sum_ns = self.sum_ns.saturating_add(sample_ns);
        self.count += 1;
        let seconds = sample_ns as f64 * 1e-9;
        self.squares_s2 += seconds * seconds;
    }
}

/// Counts of one direction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Bytes of IP packets.
    pub ip_bytes: u64,
    /// Packets that carry data.
    pub data_packets: u64,
    /// Bytes of data, retransmissions included.
    pub payload_bytes: u64,
    /// Distinct bytes of data.
    pub unique_bytes: i64,
    /// Bytes of data that were acknowledged.
    pub acked_bytes: i64,
    /// Segments with the RETRANSMISSION bit.
    pub retransmissions: u64,
    /// Bytes of data in them.
    pub retransmitted_bytes: u64,
    /// Of these, with the FAST_RETRANSMISSION bit.
    pub fast_retransmissions: u64,
    /// With the TIMEOUT bit.
    pub timeout_retransmissions: u64,
    /// Timeouts: each begins a series of those.
    pub timeouts: u64,
    /// Retransmissions that were proved spurious: by an ack before them, ...
    pub spurious_by_ack: u64,
    /// by the timestamp that the ack after them echoed (RFC 3522), ...
    pub spurious_by_timestamp: u64,
    /// by a D-SACK (RFC 2883, RFC 3708).
    pub spurious_by_dsack: u64,
    /// Segments out of order.
    pub out_of_order: u64,
    /// Duplicate acks sent.
    pub duplicate_acks: u64,
    /// Acks without data.
    pub pure_acks: u64,
    /// Window updates sent.
    pub window_updates: u64,
    /// Segments with a window of zero.
    pub zero_windows: u64,
    /// Keep-alives sent.
    pub keep_alives: u64,
    /// Probes of a zero window.
    pub probes: u64,
    /// Segments with SACK blocks.
    pub sacks: u64,
    /// With a D-SACK.
    pub dsacks: u64,
    /// Packets marked CE.
    pub ce_marks: u64,
    /// Segments with ECE, the handshake left out.
    pub ece: u64,
    /// Packets with a wrong checksum.
    pub bad_checksums: u64,
    /// Super-packets.
    pub super_packets: u64,
    /// Bytes of data that were acknowledged but never captured.
    pub lost_in_capture_bytes: i64,
    /// Round trips of its data.
    pub round_trips: RoundTrips,
    /// Initial sequence number, where the SYN was seen.
    pub isn: Option<u32>,
    /// What counts as 0 in relative numbers: the initial sequence number, or one below the first byte seen.
    pub zero: Option<u32>,
    /// Maximum segment size offered.
    pub mss: Option<u16>,
    /// Window shift offered.
    pub window_scale: Option<u8>,
    /// SACK offered.
    pub sack_permitted: bool,
    /// Timestamps used.
    pub timestamps: bool,
    /// A FIN was seen, a RST was.
    pub fin: bool,
    /// Reset.
    pub rst: bool,
}

impl Counts {
    /// Retransmissions that were proved spurious by anything.
    pub fn spurious(&self) -> u64 {
        self.spurious_by_ack + self.spurious_by_timestamp + self.spurious_by_dsack
    }
}

/// One connection of a capture.
#[derive(Debug)]
pub struct Connection {
    /// Number within the capture.
    pub number: u32,
    /// Who sent the SYN, or the first segment seen.
    pub client: (Address, u16),
    /// The other.
    pub server: (Address, u16),
    /// Time of its first segment.
    pub first_ns: i64,
    /// Time of its last.
    pub last_ns: i64,
    /// Whether the SYN was seen.
    pub handshake: bool,
    /// Client's and server's counts.
    pub counts: [Counts; 2],
    halves: [Half; 2],
    /// By how much each side's window is to be shifted; unknown until both SYNs were seen.
    shifts: [Option<u8>; 2],
    over: bool,
}

/// What one side has sent.
#[derive(Debug, Default)]
struct Half {
    /// Absolute sequence number that counts as 0, once known.
    zero: Option<u32>,
    /// Unwrapped number last seen, for unwrapping the next.
    last: i64,
    /// One beyond the highest sequence number sent.
    next: Option<i64>,
    next_time_ns: i64,
    seen: Ranges,
    /// Bytes that were acknowledged before they were captured, if they ever are.
    assumed: Ranges,
    start: i64,
    syn: bool,
    fin_at: Option<i64>,
    last_ack: Option<i64>,
    last_ack_time_ns: i64,
    duplicate_acks: u32,
    window: Option<u16>,
    scale: Option<u8>,
    /// Class of the last segment.
    last_class: u32,
    /// A checksum was seen to be right: a wrong one is then the packet's fault, not that of an offloading card.
    checked: bool,
    in_flight: VecDeque<InFlight>,
    /// Acks of what lies in this range tell of no round trip.
    held: (i64, i64),
    /// Round trip of the SYN, from here to the other end.
    syn_rtt_ns: Option<i64>,
    /// When data was sent last, and when an ack last acknowledged some of it.
    sent_ns: i64,
    acked_ns: i64,
    /// Smoothed round trip and its variation (RFC 6298 2).
    smoothed: Option<(i64, i64)>,
    /// Retransmissions up to here belong to the recovery that began with the first.
    recovery: Option<Recovery>,
    resent: VecDeque<Resent>,
    /// Of `resent`, how many were not acknowledged yet.
    unresolved: usize,
    /// End of a probe's byte, which a receiver may take after all.
    probe_end: Option<i64>,
    /// Holes that the budget was charged for.
    charged: usize,
}

#[derive(Debug)]
struct InFlight {
    start: i64,
    end: i64,
    time_ns: i64,
}

#[derive(Debug, Clone, Copy)]
struct Recovery {
    until: i64,
    timeout: bool,
}

/// A retransmission, until it is known whether it was needed.
#[derive(Debug)]
struct Resent {
    start: i64,
    end: i64,
    /// Its timestamp, if it was of the oldest outstanding data.
    timestamp: Option<u32>,
    /// Row of the segments' table.
    row: u64,
    acked: bool,
    proven: bool,
}

/// What may still grow within connections.
#[derive(Debug)]
struct Budget(i64);

impl Budget {
    /// Adds an entry; the one that had to give way to it, if any.
    #[inline]
    fn push<T>(&mut self, queue: &mut VecDeque<T>, value: T) -> Option<T> {
        let dropped = if queue.len() == queue.capacity() { self.grow(queue) } else { None };
        queue.push_back(value);
        dropped
    }

    /// Makes room, or drops the oldest entry when there is no budget for more.
    #[cold]
    fn grow<T>(&mut self, queue: &mut VecDeque<T>) -> Option<T> {
        let more = queue.len().max(4);
        if queue.len() >= ALLOWED && self.0 < more as i64 {
            return queue.pop_front();
        }
        let before = queue.capacity();
        queue.reserve_exact(more);
        self.0 -= (queue.capacity() - before) as i64;
        None
    }
}

impl Half {
    #[inline]
    fn unwrap(&mut self, number: u32, first_is: u32) -> i64 {
        let zero = *self.zero.get_or_insert(first_is);
        let value = self.last + i64::from(number.wrapping_sub(zero).wrapping_sub(self.last as u32) as i32);
        self.last = self.last.max(value);
        value
    }

    /// The same without learning from it; 0 when nothing is known.
    fn peek(&self, number: u32) -> i64 {
        let Some(zero) = self.zero else { return 0 };
        self.last + i64::from(number.wrapping_sub(zero).wrapping_sub(self.last as u32) as i32)
    }

    /// Bytes of data before the first hole.
    #[inline]
    fn in_order(&self) -> i64 {
        let end = self.seen.contiguous();
        let syn = i64::from(self.start == 0);
        let fin = i64::from(self.fin_at.is_some_and(|at| at < end));
        (end - self.start - syn - fin).max(0)
    }

    #[inline]
    fn take_sample(&mut self, sample_ns: i64) {
        self.smoothed = Some(match self.smoothed {
            None => (sample_ns, sample_ns / 2),
            Some((mean, variation)) => {
                (mean + ((sample_ns - mean) >> 3), variation + (((sample_ns - mean).abs() - variation) >> 2))
            }
        });
    }

    /// The round trip that an ack of this side's data tells, if any.
    #[inline(always)]
    fn sample(&mut self, time_ns: i64, ack: i64) -> Option<i64> {
        let mut sample = None;
        while self.in_flight.front().is_some_and(|flying| flying.end <= ack) {
            let flying = self.in_flight.pop_front().expect("it has a front");
            let held = flying.end > self.held.0 && flying.start < self.held.1;
            sample = (flying.end == ack && !held).then_some(time_ns - flying.time_ns);
            if flying.start == 0 {
                self.syn_rtt_ns = sample;
            }
        }
        if let Some(sample) = sample {
            self.take_sample(sample);
        }
        sample
    }

    #[inline]
    fn sent(&mut self, seq: i64, end: i64, time_ns: i64, budget: &mut Budget) {
        self.seen.add(seq, end);
        if !self.assumed.is_empty() && self.assumed.holds(seq, end) > 0 {
            self.captured_late(seq, end);
        }
        if self.in_flight.is_empty() {
            // The timer starts with the first outstanding data (RFC 6298 5.1).
            self.acked_ns = time_ns;
        }
        self.sent_ns = time_ns;
        budget.push(&mut self.in_flight, InFlight { start: seq, end, time_ns });
        if self.seen.islands() > ALLOWED {
            self.bound_holes(budget);
        }
    }

    /// Closes the first hole when there are too many.
    #[cold]
    fn bound_holes(&mut self, budget: &mut Budget) {
        let wanted = self.seen.islands().next_multiple_of(64);
        if self.seen.islands() <= self.charged.max(ALLOWED) {
            return;
        }
        let more = (wanted - self.charged) as i64;
        if more <= budget.0 {
            budget.0 -= more;
            self.charged = wanted;
        } else if let Some((from, to)) = self.seen.first_hole() {
            self.seen.add(from, to);
        }
    }

    /// Distinct bytes of data that were captured.
    fn unique_bytes(&self) -> i64 {
        let total = self.seen.total() - self.assumed.total();
        (total - i64::from(self.start == 0 && total > 0) - i64::from(self.fin_at.is_some())).max(0)
    }
}

/// Addresses and ports of a packet, as it has them.
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

    /// The same for both directions.
    fn undirected(self) -> Key {
        self.min(self.swapped())
    }

    /// Ports are moved within 64 bits: within 32, compilers read more than the half word that was just written, and
    /// processors then wait for it.
    #[inline]
    fn slot(self) -> usize {
        let ports = u64::from(self.src_port) << 40 ^ u64::from(self.dst_port) << 17;
        let mixed = (self.src as u64 ^ (self.dst as u64).rotate_left(32) ^ ports).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 54) as usize % SLOTS
    }
}

/// On a cache line of its own.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Slot {
    key: Key,
    place: u32,
    direction: u8,
}

const NOWHERE: u32 = u32::MAX;

/// What `Connection::take_plain` found of a segment.
#[derive(Debug, Clone, Copy)]
struct Plain {
    seq: i64,
    ack: i64,
    class: u32,
    rtt_ns: Option<i64>,
}

/// Follows every connection of one capture.
#[derive(Debug)]
pub struct Tracker {
    /// Where the connection of a directed pair was found last.
    slots: Box<[Slot]>,
    /// Place of a connection in `live`, by its undirected key. Not a fast hash: files may be made to collide.
    places: HashMap<Key, u32>,
    live: Vec<Option<Connection>>,
    free: Vec<u32>,
    /// Ended connections in the order of their ends: when, where, and which.
    ended: VecDeque<(i64, u32, u32)>,
    hand: usize,
    budget: Budget,
    /// Connections so far.
    pub count: u64,
    /// Connections that gave way to others while they lived.
    pub given_up: u64,
    /// Connections that are through, for the caller to take.
    pub finished: Vec<Connection>,
    /// Rows of retransmissions that the last segment proved spurious, for the caller to take.
    pub proven: Vec<u64>,
}

impl Default for Tracker {
    fn default() -> Tracker {
        let empty = Slot { key: Key { src: 0, dst: 0, src_port: 0, dst_port: 0 }, place: NOWHERE, direction: 0 };
        Tracker {
            slots: vec![empty; SLOTS].into(),
            places: HashMap::new(),
            live: Vec::new(),
            free: Vec::new(),
            ended: VecDeque::new(),
            hand: 0,
            budget: Budget(BUDGET),
            count: 0,
            given_up: 0,
            finished: Vec::new(),
            proven: Vec::new(),
        }
    }
}

impl Tracker {
    /// Takes the next segment of the capture, which is (or would be) in this row of a table, and says what it was.
    #[inline]
    pub fn take(&mut self, time_ns: i64, packet: &TcpPacket, row: u64) -> Segment {
        self.follow::<true>(time_ns, packet, row).expect("it was asked to tell")
    }

    /// Takes the next segment for the counts of its connection alone.
    #[inline]
    pub fn count(&mut self, time_ns: i64, packet: &TcpPacket, row: u64) {
        self.follow::<false>(time_ns, packet, row);
    }

    #[inline(always)]
    fn follow<const TELL: bool>(&mut self, time_ns: i64, packet: &TcpPacket, row: u64) -> Option<Segment> {
        let key = Key::of(packet.src, packet.dst);
        let slot = &self.slots[key.slot()];
        let (mut place, mut direction) = (slot.place, slot.direction);
        if place == NOWHERE || slot.key != key {
            (place, direction) = self.find(time_ns, packet, key);
        } else if packet.flags & (SYN | ACK) == SYN {
            let connection = self.live[place as usize].as_ref().expect("slots know only live connections");
            if connection.is_other(direction, packet) {
                self.remove(place);
                (place, direction) = self.find(time_ns, packet, key);
            }
        }
        let connection = self.live[place as usize].as_mut().expect("slots know only live connections");
        let (budget, proven) = (&mut self.budget, &mut self.proven);
        if let Some(plain) = connection.take_plain(time_ns, packet, usize::from(direction), budget) {
            return if TELL { Some(connection.tell(packet, usize::from(direction), plain)) } else { None };
        }
        let was_over = connection.over;
        let segment = connection.take_any(time_ns, packet, usize::from(direction), row, budget, proven);
        if connection.over && !was_over {
            let number = connection.number;
            self.ended.push_back((time_ns, place, number));
        }
        if TELL {
            Some(segment)
        } else {
            None
        }
    }

    /// Places of all connections that are followed, in the order of their first segments.
    pub fn remaining(&self) -> Vec<u32> {
        let numbered = self.live.iter().zip(0..).filter_map(|(there, place)| Some((there.as_ref()?.number, place)));
        let mut found: Vec<(u32, u32)> = numbered.collect();
        found.sort_unstable();
        found.into_iter().map(|(_, place)| place).collect()
    }

    #[cold]
    fn find(&mut self, time_ns: i64, packet: &TcpPacket, key: Key) -> (u32, u8) {
        let opens = packet.flags & (SYN | ACK) == SYN;
        let known = self.places.get(&key.undirected()).copied().and_then(|place| {
            let connection = self.live[place as usize].as_ref().expect("places are those of live connections");
            let direction = u8::from(packet.src != connection.client);
            let other = opens && connection.is_other(direction, packet);
            if other {
                self.remove(place);
            }
            (!other).then_some((place, direction))
        });
        let (place, direction) = known.unwrap_or_else(|| self.open(time_ns, packet, key));
        self.slots[key.slot()] = Slot { key, place, direction };
        (place, direction)
    }

    fn open(&mut self, time_ns: i64, packet: &TcpPacket, key: Key) -> (u32, u8) {
        while let Some(&(ended_ns, place, number)) = self.ended.front() {
            let full = self.live.len() - self.free.len() >= MAX_LIVE;
            if !full && time_ns - ended_ns < LINGER_NS {
                break;
            }
            self.ended.pop_front();
            let last_ns =
                self.live[place as usize].as_ref().filter(|there| there.number == number).map(|there| there.last_ns);
            match last_ns {
                Some(last_ns) if full || time_ns - last_ns >= LINGER_NS => self.remove(place),
                Some(last_ns) => self.ended.push_back((last_ns, place, number)),
                None => {}
            }
        }
        if self.live.len() - self.free.len() >= MAX_LIVE {
            self.give_up_one();
        }
        let connection = Connection::new(self.count as u32, time_ns, packet);
        self.count += 1;
        let direction = u8::from(packet.src != connection.client);
        let place = self.free.pop().unwrap_or_else(|| {
            self.live.push(None);
            self.live.len() as u32 - 1
        });
        self.live[place as usize] = Some(connection);
        self.places.insert(key.undirected(), place);
        (place, direction)
    }

    /// The idlest of the next few goes.
    fn give_up_one(&mut self) {
        let idlest = (0..LOOKED_AT)
            .map(|step| (self.hand + step) % self.live.len())
            .filter_map(|place| self.live[place].as_ref().map(|connection| (connection.last_ns, place)))
            .min();
        self.hand = (self.hand + LOOKED_AT) % self.live.len();
        if let Some((_, place)) = idlest {
            self.given_up += 1;
            self.remove(place as u32);
        }
    }

    /// Hands out the connection of a place: nothing follows it any more.
    pub fn remove(&mut self, place: u32) {
        let Some(connection) = self.live[place as usize].take() else { return };
        let key = Key::of(connection.client, connection.server);
        for directed in [key, key.swapped()] {
            let slot = &mut self.slots[directed.slot()];
            if slot.place == place {
                slot.place = NOWHERE;
            }
        }
        self.places.remove(&key.undirected());
        self.free.push(place);
        for half in &connection.halves {
            self.budget.0 += (half.in_flight.capacity() + half.resent.capacity() + half.charged) as i64;
        }
        self.finished.push(connection.closed());
    }
}

impl Connection {
    fn new(number: u32, time_ns: i64, packet: &TcpPacket) -> Connection {
        // A SYN-ACK as the first thing seen comes from the server.
        let from_server = packet.flags & (SYN | ACK) == SYN | ACK;
        let (client, server) = if from_server { (packet.dst, packet.src) } else { (packet.src, packet.dst) };
        Connection {
            number,
            client,
            server,
            first_ns: time_ns,
            last_ns: time_ns,
            handshake: packet.flags & SYN != 0,
            counts: Default::default(),
            halves: Default::default(),
            shifts: [None; 2],
            over: false,
        }
    }

    /// With the counts that are known at the end only, and without what only followed it.
    fn closed(mut self) -> Connection {
        for side in 0..2 {
            let acked = self.halves[1 - side].last_ack;
            let (half, counts) = (&self.halves[side], &mut self.counts[side]);
            counts.unique_bytes = half.unique_bytes();
            counts.zero = half.zero;
            counts.lost_in_capture_bytes = half.assumed.total();
            let fin = |ack: i64| i64::from(half.fin_at.is_some_and(|at| at < ack));
            counts.acked_bytes = acked.map_or(0, |ack| (ack - 1 - fin(ack)).max(0));
        }
        self.halves = Default::default();
        self
    }

    /// Whether this SYN opens another connection between the same ports. (Both sides may send one: RFC 9293 3.5.)
    fn is_other(&self, direction: u8, syn: &TcpPacket) -> bool {
        self.over || self.halves[usize::from(direction)].zero.is_some_and(|zero| zero != syn.seq)
    }

    /// The two commonest segments, new data in order and an ack of more, without what cannot be about them. It says and
    /// notes what `take_any` would; a test holds them together.
    #[inline(always)]
    fn take_plain(&mut self, time_ns: i64, packet: &TcpPacket, direction: usize, budget: &mut Budget) -> Option<Plain> {
        if packet.flags & !PSH != ACK
            || packet.window == 0
            || packet.sack_blocks != 0
            || packet.ecn != ecn::NOT_ECT
            || packet.checksum == Checksum::Bad
        {
            return None;
        }
        let [mine, other] = both(&mut self.halves, direction);
        let (Some(_), Some(_), Some(last_ack)) = (mine.zero, other.zero, mine.last_ack) else { return None };
        let (seq, ack) = (mine.peek(packet.seq), other.peek(packet.ack));
        if mine.next != Some(seq) || other.unresolved != 0 {
            return None;
        }
        let (class, rtt_ns);
        if packet.payload == 0 {
            if ack <= last_ack || other.seen.islands() > 0 || other.next.is_none_or(|next| ack > next) {
                return None;
            }
            class = class::PURE_ACK;
            mine.duplicate_acks = 0;
            mine.last_ack = Some(ack);
            other.acked_ns = time_ns;
            rtt_ns = other.sample(time_ns, ack);
        } else {
            let waiting = other.in_flight.front();
            let super_packet = self.counts[1 - direction].mss.is_some_and(|mss| packet.payload > u32::from(mss));
            if ack != last_ack || packet.payload == 1 || super_packet || waiting.is_some_and(|first| first.end <= ack) {
                return None;
            }
            let end = seq + i64::from(packet.payload);
            let limit = (self.shifts[1 - direction].zip(other.last_ack).zip(other.window))
                .map(|((shift, ack), window)| ack + (i64::from(window) << shift));
            class = class::DATA | class::NEW | if limit == Some(end) { class::WINDOW_FULL } else { 0 };
            mine.next = Some(end);
            mine.next_time_ns = time_ns;
            mine.sent(seq, end, time_ns, budget);
            rtt_ns = None;
        }
        mine.last = mine.last.max(seq);
        other.last = other.last.max(ack);
        mine.last_ack_time_ns = time_ns;
        mine.checked |= packet.checksum == Checksum::Good;
        mine.window = Some(packet.window);
        mine.last_class = class;
        self.last_ns = self.last_ns.max(time_ns);
        let counts = &mut self.counts[direction];
        counts.packets += 1;
        counts.ip_bytes += u64::from(packet.ip_len);
        counts.payload_bytes += u64::from(packet.payload);
        if packet.payload == 0 {
            counts.pure_acks += 1;
        } else {
            counts.data_packets += 1;
        }
        counts.timestamps |= packet.timestamps.is_some();
        if let Some(sample) = rtt_ns {
            self.counts[1 - direction].round_trips.take(sample);
        }
        Some(Plain { seq, ack, class, rtt_ns })
    }

    /// All that is to be said of a plain segment that was just taken.
    #[inline(always)]
    fn tell(&self, packet: &TcpPacket, direction: usize, Plain { seq, ack, class, rtt_ns }: Plain) -> Segment {
        let window = i64::from(packet.window) << self.shifts[direction].unwrap_or(0);
        let in_order = self.halves[direction].in_order();
        Segment { connection: self.number, direction: direction as u8, seq, ack, window, class, rtt_ns, in_order }
    }

    fn take_any(
        &mut self,
        time_ns: i64,
        packet: &TcpPacket,
        direction: usize,
        row: u64,
        budget: &mut Budget,
        proven: &mut Vec<u64>,
    ) -> Segment {
        self.last_ns = self.last_ns.max(time_ns);
        let mut class = 0;
        if packet.payload > 0 {
            class |= class::DATA;
            if self.counts[1 - direction].mss.is_some_and(|mss| packet.payload > u32::from(mss)) {
                class |= class::SUPER;
            }
        }
        if packet.ecn != ecn::NOT_ECT {
            class |= class::ECT | if packet.ecn == ecn::CE { class::CE } else { 0 };
        }
        match packet.checksum {
            Checksum::Good => self.halves[direction].checked = true,
            Checksum::Bad if self.halves[direction].checked && class & class::SUPER == 0 => {
                return self.damaged(direction, packet, class | class::BAD_CHECKSUM);
            }
            _ => {}
        }
        self.over |= packet.flags & (FIN | RST) != 0;
        if packet.flags & SYN != 0 {
            self.learn(direction, packet);
        }

        let (seq, end) = self.place(direction, packet);
        let bare = packet.payload == 0 && packet.flags & (SYN | FIN | RST) == 0;
        if bare && packet.flags & ACK != 0 {
            class |= class::PURE_ACK;
        }
        let next_before = self.halves[direction].next;
        class |= self.classify_sequence(direction, time_ns, packet, seq, end, row, budget);
        let (ack, rtt_ns) = if packet.flags & ACK != 0 {
            let ack = self.halves[1 - direction].unwrap(packet.ack, packet.ack.wrapping_sub(1));
            let at_next = next_before.is_none_or(|next| next == seq);
            class |= self.classify_ack(direction, time_ns, packet, ack, bare && at_next);
            if packet.sack_blocks > 0 {
                class |= class::SACK | self.classify_sack(1 - direction, packet, ack, proven);
            }
            if self.halves[1 - direction].unresolved > 0 {
                class |= self.resolve(1 - direction, packet, ack, proven);
            }
            (ack, self.sample_rtt(1 - direction, time_ns, ack))
        } else {
            (-1, None)
        };
        let half = &mut self.halves[direction];
        half.window = Some(packet.window);
        half.last_class = class;
        let in_order = half.in_order();
        self.count(direction, packet, class);
        let window = self.window(direction, packet);
        Segment { connection: self.number, direction: direction as u8, seq, ack, window, class, rtt_ns, in_order }
    }

    /// A packet that no receiver takes.
    #[cold]
    fn damaged(&mut self, direction: usize, packet: &TcpPacket, class: u32) -> Segment {
        let counts = &mut self.counts[direction];
        counts.packets += 1;
        counts.ip_bytes += u64::from(packet.ip_len);
        counts.bad_checksums += 1;
        Segment {
            connection: self.number,
            direction: direction as u8,
            seq: self.halves[direction].peek(packet.seq),
            ack: if packet.flags & ACK != 0 { self.halves[1 - direction].peek(packet.ack) } else { -1 },
            window: self.window(direction, packet),
            class,
            rtt_ns: None,
            in_order: self.halves[direction].in_order(),
        }
    }

    #[cold]
    fn learn(&mut self, direction: usize, packet: &TcpPacket) {
        self.halves[direction].scale = packet.window_scale;
        self.halves[direction].syn = true;
        let [a, b] = &self.halves;
        self.shifts = match (a.scale, b.scale) {
            (Some(_), Some(_)) => [a.scale, b.scale],
            _ => [(a.syn && b.syn).then_some(0); 2],
        };
        let counts = &mut self.counts[direction];
        counts.isn = Some(packet.seq);
        counts.mss = packet.mss;
        counts.window_scale = packet.window_scale;
        counts.sack_permitted = packet.sack_permitted;
    }

    /// Unwrapped sequence number of a segment and of what follows it.
    #[inline]
    fn place(&mut self, direction: usize, packet: &TcpPacket) -> (i64, i64) {
        let syn = i64::from(packet.flags & SYN != 0);
        let fin = i64::from(packet.flags & FIN != 0);
        let half = &mut self.halves[direction];
        // Without its SYN, a stream's first byte seen counts as byte 1.
        let first_is = if syn == 1 { packet.seq } else { packet.seq.wrapping_sub(1) };
        let seq = half.unwrap(packet.seq, first_is);
        let end = seq + syn + i64::from(packet.payload) + fin;
        if half.next.is_none() {
            half.start = seq;
        }
        if fin == 1 {
            half.fin_at = Some(end - 1);
        }
        (seq, end)
    }

    #[inline]
    #[allow(clippy::too_many_arguments, reason = "a segment has as many sides")]
    fn classify_sequence(
        &mut self,
        direction: usize,
        time_ns: i64,
        packet: &TcpPacket,
        seq: i64,
        end: i64,
        row: u64,
        budget: &mut Budget,
    ) -> u32 {
        let scaled = self.shifts[1 - direction];
        let [mine, other] = both(&mut self.halves, direction);
        let Some(next) = mine.next else {
            mine.next = Some(end);
            mine.next_time_ns = time_ns;
            if end > seq {
                mine.sent(seq, end, time_ns, budget);
                return class::NEW;
            }
            return 0;
        };
        if packet.payload <= 1 && seq == next - 1 && packet.flags & (SYN | FIN | RST) == 0 && packet.flags & ACK != 0 {
            return class::KEEP_ALIVE;
        }
        if end == seq {
            return if seq > next { class::GAP_BEFORE } else { 0 };
        }
        if seq >= next {
            if packet.payload == 1 && seq == next && other.window == Some(0) && packet.flags & (SYN | FIN | RST) == 0 {
                mine.probe_end = Some(end);
                return class::PROBE;
            }
            mine.next = Some(end);
            mine.next_time_ns = time_ns;
            mine.sent(seq, end, time_ns, budget);
            let gap = if seq > next { class::GAP_BEFORE } else { 0 };
            let full = match (scaled, other.last_ack, other.window) {
                (Some(shift), Some(ack), Some(window))
                    if packet.payload > 0 && packet.flags & (SYN | FIN | RST) == 0 =>
                {
                    end == ack + (i64::from(window) << shift)
                }
                _ => false,
            };
            return class::NEW | gap | if full { class::WINDOW_FULL } else { 0 };
        }
        // No sender learns of a loss sooner than a round trip: the handshake's, from here to both ends.
        let reordering_ns = mine.syn_rtt_ns.zip(other.syn_rtt_ns).map_or(REORDERING_NS, |(one, two)| one + two);
        // The round trip is from here to one end and from here to the other (RFC 6298 2, with a floor of our own).
        let there = other.smoothed.map_or(0, |(mean, _)| mean);
        let timeout_ns =
            mine.smoothed.map_or(SILENCE_NS, |(mean, variation)| (there + mean + 4 * variation).max(SILENCE_NS / 2));
        let it = Again { time_ns, packet, seq, end, row, reordering_ns, timeout_ns };
        again(mine, other, it, budget, &mut self.counts[direction])
    }

    #[inline]
    fn classify_ack(
        &mut self,
        direction: usize,
        time_ns: i64,
        packet: &TcpPacket,
        ack: i64,
        bare_at_next: bool,
    ) -> u32 {
        let [half, other] = both(&mut self.halves, direction);
        let mut class = 0;
        if packet.window == 0 && packet.flags & (SYN | FIN | RST) == 0 {
            class |= class::ZERO_WINDOW;
        }
        let asked = other.last_class & (class::KEEP_ALIVE | class::PROBE) != 0;
        if half.last_ack == Some(ack) {
            if bare_at_next && (packet.window != 0 || asked) {
                if half.window != Some(packet.window) {
                    class |= if packet.window != 0 { class::WINDOW_UPDATE } else { 0 };
                } else if asked {
                    class |= class::PROBE_ACK;
                } else {
                    class |= class::DUPLICATE_ACK;
                    half.duplicate_acks += 1;
                }
            }
        } else if half.last_ack.is_none_or(|last| ack > last) {
            half.duplicate_acks = 0;
            half.last_ack = Some(ack);
            other.acked_ns = time_ns;
            if other.next.is_some_and(|next| ack > next) || other.seen.islands() > 0 {
                let window = half.window.unwrap_or(packet.window).max(packet.window);
                class |= other.acknowledged(ack, i64::from(window) << half.scale.unwrap_or(14));
            }
        }
        half.last_ack_time_ns = time_ns;
        class
    }

    /// SACK blocks: whether the first tells of what came twice (RFC 2883 4), and which retransmission that was.
    fn classify_sack(&mut self, sender: usize, packet: &TcpPacket, ack: i64, proven: &mut Vec<u64>) -> u32 {
        let half = &mut self.halves[sender];
        let blocks = packet.sacks.map(|(left, right)| (half.peek(left), half.peek(right)));
        let (left, right) = blocks[0];
        let within_second = packet.sack_blocks > 1 && blocks[1].0 <= left && right <= blocks[1].1;
        if left >= right || !(right <= ack || within_second) {
            return 0;
        }
        let again = half.resent.iter_mut().rev().find(|one| !one.proven && one.start < right && one.end > left);
        let Some(again) = again else { return class::DSACK };
        again.proven = true;
        proven.push(again.row);
        self.counts[sender].spurious_by_dsack += 1;
        class::DSACK | class::PROVES_SPURIOUS
    }

    /// The first ack of a retransmission of the oldest outstanding data: an echo older than the retransmission's own
    /// timestamp is of the original (RFC 3522 3.2, step 5).
    #[cold]
    fn resolve(&mut self, sender: usize, packet: &TcpPacket, ack: i64, proven: &mut Vec<u64>) -> u32 {
        let half = &mut self.halves[sender];
        let mut class = 0;
        let mut left = 0;
        // The latest ones, back to the oldest that waits.
        for one in half.resent.iter_mut().rev().filter(|one| !one.acked).take(half.unresolved) {
            one.acked = one.end <= ack;
            left += usize::from(!one.acked);
            let (Some(sent), Some((_, echo))) = (one.timestamp, packet.timestamps) else { continue };
            if one.acked && !one.proven && (echo.wrapping_sub(sent) as i32) < 0 {
                one.proven = true;
                proven.push(one.row);
                self.counts[sender].spurious_by_timestamp += 1;
                class |= class::PROVES_SPURIOUS;
            }
        }
        half.unresolved = left;
        class
    }

    fn sample_rtt(&mut self, sender: usize, time_ns: i64, ack: i64) -> Option<i64> {
        let sample = self.halves[sender].sample(time_ns, ack);
        if let Some(sample) = sample {
            self.counts[sender].round_trips.take(sample);
        }
        sample
    }

    #[inline]
    fn window(&self, direction: usize, packet: &TcpPacket) -> i64 {
        let shift = if packet.flags & SYN == 0 { self.shifts[direction].unwrap_or(0) } else { 0 };
        i64::from(packet.window) << shift
    }

    #[inline]
    fn count(&mut self, direction: usize, packet: &TcpPacket, class: u32) {
        let counts = &mut self.counts[direction];
        let is = |bits: u32| u64::from(class & bits != 0);
        counts.packets += 1;
        counts.ip_bytes += u64::from(packet.ip_len);
        counts.data_packets += is(class::DATA);
        counts.payload_bytes += u64::from(packet.payload);
        counts.pure_acks += is(class::PURE_ACK);
        counts.timestamps |= packet.timestamps.is_some();
        let common = class::NEW | class::DATA | class::PURE_ACK | class::ECT;
        if class & !common == 0 && packet.flags & !ACK == 0 {
            return;
        }
        counts.fin |= packet.flags & FIN != 0;
        counts.rst |= packet.flags & RST != 0;
        counts.ece += u64::from(packet.flags & (ECE | SYN) == ECE);
        counts.retransmissions += is(class::RETRANSMISSION);
        counts.retransmitted_bytes += is(class::RETRANSMISSION) * u64::from(packet.payload);
        counts.fast_retransmissions += is(class::FAST_RETRANSMISSION);
        counts.timeout_retransmissions += is(class::TIMEOUT);
        counts.spurious_by_ack += is(class::SPURIOUS);
        counts.out_of_order += is(class::OUT_OF_ORDER);
        counts.duplicate_acks += is(class::DUPLICATE_ACK);
        counts.window_updates += is(class::WINDOW_UPDATE);
        counts.zero_windows += is(class::ZERO_WINDOW);
        counts.keep_alives += is(class::KEEP_ALIVE);
        counts.probes += is(class::PROBE);
        counts.sacks += is(class::SACK);
        counts.dsacks += is(class::DSACK);
        counts.ce_marks += is(class::CE);
        counts.super_packets += is(class::SUPER);
    }
}

impl Half {
    /// An ack beyond what was captured, or over holes: what it covers was delivered, so it was lost in the capture.
    #[cold]
    fn acknowledged(&mut self, ack: i64, window: i64) -> u32 {
        let Some(next) = self.next else { return 0 };
        if ack > next + window {
            // Nobody may have sent that.
            return 0;
        }
        if self.probe_end.is_some_and(|end| end == ack && end == next + 1) {
            // The receiver took the probe's byte after all.
            self.seen.add(next, ack);
            self.next = Some(ack);
            return 0;
        }
        let mut class = 0;
        while self.seen.contiguous() < ack {
            let from = self.seen.contiguous().max(self.start);
            let to = self.seen.first_hole().map_or(ack, |(_, to)| to.min(ack));
            if self.seen.add(from, to) == 0 {
                break;
            }
            self.assumed.add(from, to);
            class = class::LOST_IN_CAPTURE;
        }
        while self.assumed.islands() > 2 * ALLOWED {
            let Some((from, to)) = self.assumed.first_hole() else { break };
            self.assumed.add(from, to);
        }
        class
    }
}

/// A segment that begins below the highest sequence number.
struct Again<'a> {
    time_ns: i64,
    packet: &'a TcpPacket,
    seq: i64,
    end: i64,
    row: u64,
    reordering_ns: i64,
    timeout_ns: i64,
}

#[cold]
fn again(mine: &mut Half, other: &Half, it: Again, budget: &mut Budget, counts: &mut Counts) -> u32 {
    let Again { time_ns, packet, seq, end, row, reordering_ns, timeout_ns } = it;
    let late = mine.assumed.holds(seq, end);
    let new = mine.seen.add(seq, end) + late;
    if late > 0 {
        mine.captured_late(seq, end);
    }
    mine.bound_holes(budget);
    let next = mine.next.unwrap_or(end);
    mine.next = Some(next.max(end));
    // Not what comes again (Karn), and not what its ack was held back for: all from here gives no round trip.
    if other.last_ack.is_none_or(|ack| end > ack) {
        let from = if mine.held.1 > other.last_ack.unwrap_or(seq) { mine.held.0.min(seq) } else { seq };
        mine.held = (from, next.max(end));
    }
    let asked_for =
        other.duplicate_acks >= 2 && other.last_ack == Some(seq) && time_ns - other.last_ack_time_ns < FAST_NS;
    if new > 0 && !asked_for && time_ns - mine.next_time_ns < reordering_ns {
        return class::OUT_OF_ORDER;
    }
    let quiet_ns = time_ns - mine.sent_ns;
    mine.sent_ns = time_ns;
    let mut class = class::RETRANSMISSION;
    if late == 0 && other.last_ack.is_some_and(|ack| end <= ack) {
        class |= class::SPURIOUS;
    }
    // The oldest outstanding data again, nothing acknowledged for as long as a timer runs, and the sender silent: for
    // half of that, since dup acks let it send a little in the meantime; for all of it when three asked for this.
    let oldest = other.last_ack.is_none_or(|ack| seq <= ack);
    let asked_before = other.duplicate_acks >= 3 && other.last_ack == Some(seq);
    let least_quiet_ns = if asked_before { timeout_ns } else { timeout_ns / 2 };
    let timer = !asked_for && oldest && quiet_ns >= least_quiet_ns && time_ns - mine.acked_ns >= timeout_ns;
    let recovering = mine.recovery.filter(|recovery| seq < recovery.until);
    if timer {
        counts.timeouts += 1;
        mine.recovery = Some(Recovery { until: next, timeout: true });
        class |= class::TIMEOUT;
    } else if recovering.is_some_and(|recovery| recovery.timeout) && !asked_for {
        class |= class::TIMEOUT;
    } else if recovering.is_some() || asked_for || asked_before {
        if recovering.is_none() {
            mine.recovery = Some(Recovery { until: next, timeout: false });
        }
        class |= class::FAST_RETRANSMISSION;
    }
    if mine.resent.len() >= MAX_RESENT {
        if let Some(first) = mine.resent.pop_front() {
            mine.unresolved -= usize::from(!first.acked);
        }
    }
    let proven = class & class::SPURIOUS != 0;
    let timestamp = packet.timestamps.filter(|_| oldest && !proven).map(|(value, _)| value);
    let dropped = budget.push(&mut mine.resent, Resent { start: seq, end, timestamp, row, acked: proven, proven });
    mine.unresolved += usize::from(!proven);
    mine.unresolved -= usize::from(dropped.is_some_and(|dropped| !dropped.acked));
    class
}

impl Half {
    /// Bytes that were thought lost in the capture were captured after all.
    fn captured_late(&mut self, from: i64, to: i64) {
        let mut rest = Ranges::default();
        for (start, end) in self.assumed.iter() {
            rest.add(start, end.min(from).max(start));
            rest.add(start.max(to).min(end), end);
        }
        self.assumed = rest;
    }
}

/// The half of `direction` and the other one.
#[inline]
fn both(halves: &mut [Half; 2], direction: usize) -> [&mut Half; 2] {
    let [client, server] = halves;
    if direction == 0 {
        [client, server]
    } else {
        [server, client]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: (Address, u16) = (Address::four(0x0a00_0001), 1000);
    const B: (Address, u16) = (Address::four(0x0a00_0002), 5001);
    const MS: i64 = 1_000_000;

    fn packet(from_client: bool, seq: u32, ack: u32, flags: u8, payload: u32) -> TcpPacket {
        let (src, dst) = if from_client { (A, B) } else { (B, A) };
        let scale = (flags & SYN != 0).then_some(2);
        TcpPacket {
            src,
            dst,
            seq,
            ack,
            flags,
            window: 1000,
            ip_len: 40 + payload,
            payload,
            window_scale: scale,
            mss: None,
            sack_permitted: false,
            sack_blocks: 0,
            sacks: [(0, 0); 4],
            ecn: 0,
            checksum: Checksum::Good,
            timestamps: None,
        }
    }

    /// A tracker that has seen a handshake: client's ISN 100, server's 300.
    fn established() -> Tracker {
        let mut tracker = Tracker::default();
        tracker.take(0, &packet(true, 100, 0, SYN, 0), 0);
        tracker.take(10 * MS, &packet(false, 300, 101, SYN | ACK, 0), 0);
        tracker.take(20 * MS, &packet(true, 101, 301, ACK, 0), 0);
        tracker
    }

    fn closed(mut tracker: Tracker) -> Vec<Connection> {
        for place in tracker.remaining() {
            tracker.remove(place);
        }
        tracker.finished
    }

    fn data(tracker: &mut Tracker, ms: i64, byte: u32) -> Segment {
        tracker.take(ms * MS, &packet(true, 100 + byte, 301, ACK, 100), byte.into())
    }

    fn ack(tracker: &mut Tracker, ms: i64, byte: u32) -> Segment {
        tracker.take(ms * MS, &packet(false, 301, 100 + byte, ACK, 0), 0)
    }

    #[test]
    fn a_clean_transfer_is_new_data_with_round_trips() {
        let mut tracker = established();
        let first = data(&mut tracker, 30, 1);
        assert_eq!((first.seq, first.ack, first.in_order, first.window), (1, 1, 100, 4000));
        assert_eq!(first.class, class::NEW | class::DATA);
        data(&mut tracker, 31, 101);
        let ack = ack(&mut tracker, 50, 201);
        assert_eq!(ack.rtt_ns, Some(19 * MS));
        assert_eq!(ack.class, class::PURE_ACK);
        assert_eq!(closed(tracker)[0].counts[0].unique_bytes, 200);
    }

    #[test]
    fn data_in_order_and_acks_of_it_go_the_short_way() {
        let mut tracker = established();
        data(&mut tracker, 30, 1);
        ack(&mut tracker, 50, 101);
        let Tracker { live, budget, .. } = &mut tracker;
        let connection = live[0].as_mut().expect("it lives");
        let next = packet(true, 201, 301, ACK | PSH, 100);
        let told = connection.take_plain(60 * MS, &next, 0, budget).expect("it is new data in order");
        assert_eq!(told.class, class::NEW | class::DATA);
        let told = connection.take_plain(70 * MS, &packet(false, 301, 301, ACK, 0), 1, budget);
        assert_eq!(told.and_then(|told| told.rtt_ns), Some(10 * MS));
    }

    #[test]
    fn three_duplicate_acks_make_a_fast_retransmission() {
        let mut tracker = established();
        for i in 0..5 {
            data(&mut tracker, 30 + i, 1 + 100 * i as u32);
        }
        ack(&mut tracker, 50, 101);
        for i in 0..3 {
            let duplicate = ack(&mut tracker, 51 + i, 101);
            assert!(duplicate.class & class::DUPLICATE_ACK != 0);
        }
        let again = data(&mut tracker, 54, 101);
        assert_eq!(again.class, class::RETRANSMISSION | class::FAST_RETRANSMISSION | class::DATA);
        // Karn: the ack of a retransmitted segment is no sample.
        assert_eq!(ack(&mut tracker, 80, 201).rtt_ns, None);
    }

    #[test]
    fn a_late_one_without_duplicate_acks_is_a_timeout_and_a_needless_one_spurious() {
        let mut tracker = established();
        data(&mut tracker, 30, 1);
        let again = data(&mut tracker, 1030, 1);
        assert_eq!(again.class, class::RETRANSMISSION | class::TIMEOUT | class::DATA);
        ack(&mut tracker, 1050, 101);
        assert!(data(&mut tracker, 1100, 1).class & class::SPURIOUS != 0);
        let counts = &closed(tracker)[0].counts[0];
        assert_eq!((counts.timeouts, counts.retransmissions, counts.spurious()), (1, 2, 1));
    }

    #[test]
    fn at_the_receiver_a_hole_filled_soon_is_reordering_and_filled_late_a_retransmission() {
        let mut tracker = established();
        data(&mut tracker, 30, 1);
        let after_hole = data(&mut tracker, 31, 201);
        assert!(after_hole.class & class::GAP_BEFORE != 0);
        assert_eq!(after_hole.in_order, 100);
        let late = data(&mut tracker, 32, 101);
        assert_eq!((late.class & !class::DATA, late.in_order), (class::OUT_OF_ORDER, 300));
        data(&mut tracker, 33, 401);
        assert_eq!(data(&mut tracker, 300, 301).class & !class::DATA, class::RETRANSMISSION);
    }

    #[test]
    fn window_update_zero_window_and_keep_alive() {
        let mut tracker = established();
        data(&mut tracker, 30, 1);
        ack(&mut tracker, 40, 51);
        let mut update = packet(false, 301, 201, ACK, 0);
        update.window = 500;
        assert!(tracker.take(50 * MS, &update, 0).class & class::WINDOW_UPDATE == 0, "it acknowledges new data");
        update.window = 700;
        assert!(tracker.take(51 * MS, &update, 0).class & class::WINDOW_UPDATE != 0);
        update.window = 0;
        assert!(tracker.take(52 * MS, &update, 0).class & class::ZERO_WINDOW != 0);
        let keep_alive = tracker.take(9000 * MS, &packet(true, 200, 301, ACK, 0), 0);
        assert!(keep_alive.class & class::KEEP_ALIVE != 0);
    }

    #[test]
    fn the_same_ports_again_are_another_connection() {
        let mut tracker = established();
        tracker.take(30 * MS, &packet(true, 101, 301, FIN | ACK, 0), 0);
        let again = tracker.take(90 * MS, &packet(true, 7000, 0, SYN, 0), 0);
        assert_eq!((again.connection, again.seq), (1, 0));
        assert_eq!(closed(tracker).len(), 2);
    }

    #[test]
    fn a_capture_that_begins_in_the_middle_is_followed() {
        let mut tracker = Tracker::default();
        let first = tracker.take(0, &packet(true, 5000, 9000, ACK, 100), 0);
        assert_eq!((first.seq, first.ack, first.in_order), (1, 1, 100));
        assert_eq!(tracker.take(MS, &packet(true, 5100, 9000, ACK, 100), 0).in_order, 200);
    }

    /// With timestamps: value and echo.
    fn stamped(from_client: bool, seq: u32, ack: u32, payload: u32, value: u32, echo: u32) -> TcpPacket {
        TcpPacket { timestamps: Some((value, echo)), ..packet(from_client, seq, ack, ACK, payload) }
    }

    #[test]
    fn an_echo_older_than_the_retransmission_proves_it_spurious() {
        for (echo, spurious) in [(1000, 1), (2000, 0)] {
            let mut tracker = established();
            tracker.take(30 * MS, &stamped(true, 101, 301, 100, 1000, 0), 7);
            let again = tracker.take(1030 * MS, &stamped(true, 101, 301, 100, 2000, 0), 8);
            assert_eq!(again.class & (class::TIMEOUT | class::SPURIOUS), class::TIMEOUT);
            let ack = tracker.take(1040 * MS, &stamped(false, 301, 201, 0, 5, echo), 9);
            assert_eq!(ack.class & class::PROVES_SPURIOUS != 0, spurious == 1);
            assert_eq!(tracker.proven, vec![8u64; spurious]);
            assert_eq!(closed(tracker)[0].counts[0].spurious_by_timestamp, spurious as u64);
        }
    }

    #[test]
    fn a_d_sack_proves_the_retransmission_that_it_reports() {
        let mut tracker = established();
        data(&mut tracker, 30, 1);
        data(&mut tracker, 31, 101);
        ack(&mut tracker, 32, 101);
        assert!(data(&mut tracker, 1040, 101).class & class::TIMEOUT != 0);
        ack(&mut tracker, 1041, 201);
        let mut report = packet(false, 301, 301, ACK, 0);
        (report.sack_blocks, report.sacks[0]) = (1, (201, 301));
        let told = tracker.take(1050 * MS, &report, 0);
        let wanted = class::SACK | class::DSACK | class::PROVES_SPURIOUS;
        assert_eq!(told.class & wanted, wanted);
        assert_eq!(tracker.proven, [101]);
        // The same again reports nothing that was not known.
        assert_eq!(tracker.take(1051 * MS, &report, 0).class & class::PROVES_SPURIOUS, 0);
        let counts = closed(tracker);
        assert_eq!((counts[0].counts[0].spurious_by_dsack, counts[0].counts[1].dsacks), (1, 2));
    }

    #[test]
    fn after_a_timeout_all_that_was_outstanding_is_sent_again_after_it() {
        let mut tracker = established();
        for i in 0..4 {
            data(&mut tracker, 30 + i, 1 + 100 * i as u32);
        }
        assert!(data(&mut tracker, 1030, 1).class & class::TIMEOUT != 0);
        ack(&mut tracker, 1050, 101);
        assert!(data(&mut tracker, 1051, 101).class & class::TIMEOUT != 0);
        let counts = &closed(tracker)[0].counts[0];
        assert_eq!((counts.timeouts, counts.timeout_retransmissions, counts.fast_retransmissions), (1, 2, 0));
    }

    #[test]
    fn the_other_losses_of_a_fast_recovery_belong_to_it() {
        let mut tracker = established();
        for i in 0..6 {
            data(&mut tracker, 30 + i, 1 + 100 * i as u32);
        }
        for i in 0..4 {
            ack(&mut tracker, 50 + i, 101);
        }
        assert!(data(&mut tracker, 54, 101).class & class::FAST_RETRANSMISSION != 0);
        ack(&mut tracker, 74, 301);
        let partial = data(&mut tracker, 75, 301);
        assert_eq!(partial.class & (class::FAST_RETRANSMISSION | class::TIMEOUT), class::FAST_RETRANSMISSION);
    }

    #[test]
    fn a_bad_checksum_changes_nothing_unless_no_checksum_of_that_side_is_good() {
        let mut tracker = established();
        let bad = TcpPacket { checksum: Checksum::Bad, ..packet(true, 9_000_000, 77, ACK, 100) };
        let segment = tracker.take(25 * MS, &bad, 0);
        assert_eq!(segment.class, class::BAD_CHECKSUM | class::DATA);
        assert_eq!(data(&mut tracker, 30, 1).class, class::NEW | class::DATA);
        assert_eq!(closed(tracker)[0].counts[0].bad_checksums, 1);

        let mut tracker = Tracker::default();
        for (seq, flags, payload) in [(100, SYN, 0), (101, ACK, 100)] {
            let bad = TcpPacket { checksum: Checksum::Bad, ..packet(true, seq, 301, flags, payload) };
            assert_eq!(tracker.take(0, &bad, 0).class & class::BAD_CHECKSUM, 0);
        }
    }

    #[test]
    fn what_was_acknowledged_but_not_captured_was_lost_in_the_capture() {
        let mut tracker = established();
        data(&mut tracker, 30, 1);
        data(&mut tracker, 31, 301);
        let told = ack(&mut tracker, 50, 401);
        assert!(told.class & class::LOST_IN_CAPTURE != 0);
        assert_eq!(data(&mut tracker, 60, 401).in_order, 500);
        // And what is captured late was not lost.
        assert!(ack(&mut tracker, 61, 601).class & class::LOST_IN_CAPTURE != 0);
        assert_eq!(data(&mut tracker, 62, 501).class & class::NEW, class::NEW);
        let counts = &closed(tracker)[0].counts[0];
        assert_eq!((counts.lost_in_capture_bytes, counts.unique_bytes), (200, 400));
        assert_eq!(counts.acked_bytes, 600);
    }

    #[test]
    fn a_probe_of_a_zero_window_is_told_and_its_answer_is_no_duplicate() {
        let mut tracker = established();
        data(&mut tracker, 30, 1);
        let closed_window = TcpPacket { window: 0, ..packet(false, 301, 201, ACK, 0) };
        assert!(tracker.take(40 * MS, &closed_window, 0).class & class::ZERO_WINDOW != 0);
        assert_eq!(tracker.take(300 * MS, &packet(true, 201, 301, ACK, 1), 0).class, class::PROBE | class::DATA);
        let answer = tracker.take(310 * MS, &closed_window, 0);
        assert_eq!(answer.class & (class::PROBE_ACK | class::DUPLICATE_ACK), class::PROBE_ACK);
        // The byte comes again with others: it is new.
        tracker.take(320 * MS, &packet(false, 301, 201, ACK, 0), 0);
        assert!(data(&mut tracker, 330, 101).class & class::NEW != 0);
    }

    #[test]
    fn ecn_marks_and_super_packets_are_told() {
        let mut tracker = Tracker::default();
        tracker.take(0, &packet(true, 100, 0, SYN, 0), 0);
        tracker.take(MS, &TcpPacket { mss: Some(1460), ..packet(false, 300, 101, SYN | ACK, 0) }, 0);
        let marked = TcpPacket { ecn: 3, ..packet(true, 101, 301, ACK, 65_000) };
        let told = tracker.take(2 * MS, &marked, 0);
        assert_eq!(told.class, class::NEW | class::DATA | class::ECT | class::CE | class::SUPER);
        let echo = packet(false, 301, 65_101, ACK | ECE, 0);
        tracker.take(3 * MS, &echo, 0);
        let counts = &closed(tracker)[0].counts;
        assert_eq!((counts[0].ce_marks, counts[0].super_packets, counts[1].ece), (1, 1, 1));
    }

    #[test]
    fn both_may_open_a_connection_at_once() {
        let mut tracker = Tracker::default();
        tracker.take(0, &packet(true, 100, 0, SYN, 0), 0);
        tracker.take(MS, &packet(false, 300, 0, SYN, 0), 0);
        tracker.take(2 * MS, &packet(true, 100, 301, SYN | ACK, 0), 0);
        tracker.take(3 * MS, &packet(false, 300, 101, SYN | ACK, 0), 0);
        let first = data(&mut tracker, 4, 1);
        assert_eq!((first.connection, first.seq, first.ack, first.window), (0, 1, 1, 4000));
        assert_eq!(closed(tracker).len(), 1);
    }

    #[test]
    fn one_direction_alone_is_followed() {
        let mut acks = Tracker::default();
        for i in 0..50 {
            acks.take(i * MS, &packet(false, 301, 1001 + 100 * i as u32, ACK, 0), 0);
        }
        let found = closed(acks);
        assert_eq!((found[0].counts[1].acked_bytes, found[0].counts[0].packets), (4900, 50));
        let mut sent = Tracker::default();
        for i in 0..50 {
            assert!(data(&mut sent, i, 1 + 100 * i as u32).class & class::NEW != 0);
        }
        assert_eq!(closed(sent)[0].counts[0].unique_bytes, 5000);
    }

    #[test]
    fn a_flood_of_connections_and_of_holes_stays_within_bounds() {
        let mut tracker = Tracker::default();
        for i in 0..200_000u32 {
            let mut syn = packet(true, i, 0, SYN, 0);
            syn.src.0 = Address::four(i);
            tracker.take(i64::from(i) * 1000, &syn, 0);
            tracker.finished.clear();
        }
        assert!(tracker.live.len() <= MAX_LIVE && tracker.places.len() <= MAX_LIVE);
        assert_eq!(tracker.given_up, 200_000 - MAX_LIVE as u64);
        let mut tracker = established();
        for i in 0..3_000_000u32 {
            tracker.take(i64::from(i), &packet(true, 100 + 3 * i, 301, ACK, 1), 0);
        }
        let half = &tracker.live[0].as_ref().expect("it lives").halves[0];
        assert!(half.seen.islands() + half.in_flight.len() <= 2 * BUDGET as usize + 64);
    }

    #[test]
    fn a_connection_that_ended_is_handed_out_after_a_while() {
        let mut tracker = established();
        tracker.take(30 * MS, &packet(true, 101, 301, RST, 0), 0);
        let mut other = packet(true, 9, 0, SYN, 0);
        other.src.1 = 77;
        tracker.take(31 * MS, &other, 0);
        assert!(tracker.finished.is_empty());
        other.src.1 = 78;
        tracker.take(400_000 * MS, &other, 0);
        assert_eq!(tracker.finished.len(), 1);
        assert_eq!((tracker.finished[0].number, tracker.finished[0].counts[0].rst), (0, true));
    }

    proptest! {
        /// What is done for the commonest segments is what would be done for any.
        #[test]
        fn the_short_way_is_the_long_way(
            handshake: bool,
            steps in proptest::collection::vec((any::<bool>(), 0u8..9, 0usize..5, 0u8..7, 0u8..24, 0i64..400), 1..120),
        ) {
            let mut short = Connection::new(0, 0, &packet(true, 100, 0, if handshake { SYN } else { ACK }, 0));
            let mut long = Connection::new(0, 0, &packet(true, 100, 0, if handshake { SYN } else { ACK }, 0));
            let (mut budgets, mut proven) = ([Budget(BUDGET), Budget(BUDGET)], [Vec::new(), Vec::new()]);
            let (mut sent, mut time_ms) = ([100u32, 300], 0);
            for (row, (from_client, place, size, acked, odd, wait)) in steps.into_iter().enumerate() {
                let (me, other) = (usize::from(!from_client), usize::from(from_client));
                let payload = [0, 0, 1, 100, 1448][size];
                let seq = match place { 0 => sent[me].wrapping_sub(100), 1 => sent[me].wrapping_add(100), _ => sent[me] };
                let ack = match acked { 0 => sent[other].wrapping_sub(100), 1 => sent[other].wrapping_add(9), _ => sent[other] };
                let flags = match odd { 0 => ACK | SYN, 1 => ACK | FIN, 2 => RST, 3 => ACK | ECE, 4 | 5 => ACK | PSH, _ => ACK };
                let flags = if handshake && row == 0 { SYN } else { flags };
                let mut it = packet(from_client, seq, ack, flags, payload);
                it.window = match odd { 6 => 0, 7 => 2, _ => 1000 };
                (it.sack_blocks, it.sacks[0]) = (u8::from(odd == 8), (ack.wrapping_add(100), ack.wrapping_add(200)));
                it.ecn = if odd == 9 { 3 } else { 0 };
                it.mss = Some(1000);
                it.checksum = match odd { 10 => Checksum::Bad, 11 => Checksum::Unknown, _ => Checksum::Good };
                it.timestamps = (odd > 3).then_some((time_ms as u32, time_ms as u32 / 2));
                sent[me] = seq.wrapping_add(payload).max(sent[me]);
                time_ms += wait;
                let direction = me;
                let one = match short.take_plain(time_ms * MS, &it, direction, &mut budgets[0]) {
                    Some(plain) => short.tell(&it, direction, plain),
                    None => short.take_any(time_ms * MS, &it, direction, row as u64, &mut budgets[0], &mut proven[0]),
                };
                let two = long.take_any(time_ms * MS, &it, direction, row as u64, &mut budgets[1], &mut proven[1]);
                prop_assert_eq!(one, two);
                prop_assert_eq!(format!("{short:?}"), format!("{long:?}"));
            }
        }

        /// Whatever is lost, repeated or reordered, and wherever the numbers wrap: what is in order at the end is what
        /// came, and every data segment is exactly one of new, retransmitted, out of order.
        #[test]
        fn every_byte_is_accounted_for(isn: u32, order in proptest::collection::vec(0u32..40, 1..150)) {
            let mut tracker = Tracker::default();
            tracker.take(0, &packet(true, isn, 0, SYN, 0), 0);
            let mut came = [false; 40];
            for (step, &block) in order.iter().enumerate() {
                let seq = isn.wrapping_add(1 + block * 100);
                let segment = tracker.take((step as i64 + 1) * MS, &packet(true, seq, 1, ACK, 100), 0);
                let kinds = segment.class & (class::NEW | class::RETRANSMISSION | class::OUT_OF_ORDER);
                prop_assert_eq!(kinds.count_ones(), 1);
                prop_assert_eq!(segment.seq, i64::from(1 + block * 100));
                if came[block as usize] {
                    prop_assert!(segment.class & class::RETRANSMISSION != 0);
                }
                came[block as usize] = true;
                let whole = came.iter().take_while(|&&here| here).count() as i64 * 100;
                prop_assert_eq!(segment.in_order, whole);
            }
            let unique = came.iter().filter(|&&here| here).count() as i64 * 100;
            prop_assert_eq!(closed(tracker)[0].counts[0].unique_bytes, unique);
        }
    }
}
