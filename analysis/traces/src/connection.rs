//! TCP connections of one capture, and what each of their segments was.
//!
//! What is said of a segment holds at the place of the capture: next to the sender, a hole in the sequence numbers that
//! is filled later is a retransmission; next to the receiver it may be reordering, told from a retransmission by how
//! soon it comes. Names and rules are those of Wireshark's tcp.analysis where it has them; docs/traces.md lists where and
//! why this differs.

use std::collections::VecDeque;
use std::net::IpAddr;

use rustc_hash::FxHashMap;

use crate::decode::TcpPacket;
use crate::ranges::Ranges;

/// Bits of [`Segment::class`].
pub mod class {
    /// Data (or SYN, FIN) beyond everything seen before.
    pub const NEW: u16 = 1 << 0;
    /// Bytes that were sent before.
    pub const RETRANSMISSION: u16 = 1 << 1;
    /// A retransmission that follows duplicate acks for just this byte.
    pub const FAST_RETRANSMISSION: u16 = 1 << 2;
    /// A retransmission of bytes that the receiver had acknowledged by then.
    pub const SPURIOUS: u16 = 1 << 3;
    /// Fills a hole so soon that it was overtaken, not sent again.
    pub const OUT_OF_ORDER: u16 = 1 << 4;
    /// Bytes before this segment were not captured (yet).
    pub const GAP_BEFORE: u16 = 1 << 5;
    /// An ack that acknowledges nothing new and changes no window.
    pub const DUPLICATE_ACK: u16 = 1 << 6;
    /// An ack that changes the window only.
    pub const WINDOW_UPDATE: u16 = 1 << 7;
    /// A window of zero.
    pub const ZERO_WINDOW: u16 = 1 << 8;
    /// Asks for an ack with a byte that was acknowledged.
    pub const KEEP_ALIVE: u16 = 1 << 9;
    /// ACK without data, SYN, FIN or RST.
    pub const PURE_ACK: u16 = 1 << 10;
    /// Carries SACK blocks.
    pub const SACK: u16 = 1 << 11;
    /// Carries data.
    pub const DATA: u16 = 1 << 12;
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
/// A retransmission this soon after the duplicate ack that asked for it is a fast one (as Wireshark has it).
const FAST_NS: i64 = 20_000_000;
/// Reordering threshold while no round trip has been measured (as Wireshark has it).
const REORDERING_NS: i64 = 3_000_000;

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
    pub class: u16,
    /// Time from the segment that this ack acknowledges, by Karn's rule never a retransmitted one.
    pub rtt_ns: Option<i64>,
    /// Bytes of this direction's stream, after this segment, before the first hole.
    pub in_order: i64,
}

/// Counts of one direction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Bytes of IP packets.
    pub ip_bytes: u64,
    /// Bytes of data, retransmissions included.
    pub payload_bytes: u64,
    /// Distinct bytes of data.
    pub unique_bytes: i64,
    /// Segments with the RETRANSMISSION bit.
    pub retransmissions: u64,
    /// Of these, with the FAST_RETRANSMISSION bit.
    pub fast_retransmissions: u64,
    /// Segments out of order.
    pub out_of_order: u64,
    /// Duplicate acks sent.
    pub duplicate_acks: u64,
    /// Maximum segment size offered.
    pub mss: Option<u16>,
    /// Window shift offered.
    pub window_scale: Option<u8>,
    /// SACK offered.
    pub sack_permitted: bool,
    /// Timestamps used.
    pub timestamps: bool,
}

/// One connection of a capture.
#[derive(Debug)]
pub struct Connection {
    /// Number within the capture.
    pub number: u32,
    /// Who sent the SYN, or the first segment seen.
    pub client: (IpAddr, u16),
    /// The other.
    pub server: (IpAddr, u16),
    /// Time of its first segment.
    pub first_ns: i64,
    /// Time of its last.
    pub last_ns: i64,
    /// Whether the SYN was seen.
    pub handshake: bool,
    /// Client's and server's counts.
    pub counts: [Counts; 2],
    halves: [Half; 2],
    rtt_ns: Option<i64>,
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
    start: i64,
    fin_at: Option<i64>,
    last_ack: Option<i64>,
    last_ack_time_ns: i64,
    duplicate_acks: u32,
    window: Option<u16>,
    scale: Option<u8>,
    in_flight: VecDeque<InFlight>,
}

#[derive(Debug)]
struct InFlight {
    start: i64,
    end: i64,
    time_ns: i64,
    retransmitted: bool,
}

impl Half {
    fn unwrap(&mut self, number: u32, first_is: u32) -> i64 {
        let zero = *self.zero.get_or_insert(first_is);
        let value = self.last + i64::from(number.wrapping_sub(zero).wrapping_sub(self.last as u32) as i32);
        self.last = self.last.max(value);
        value
    }

    /// Bytes of data before the first hole.
    fn in_order(&self) -> i64 {
        let end = self.seen.contiguous_from(self.start);
        let syn = i64::from(self.start == 0);
        let fin = i64::from(self.fin_at.is_some_and(|at| at < end));
        (end - self.start - syn - fin).max(0)
    }
}

/// Follows every connection of one capture.
#[derive(Debug, Default)]
pub struct Tracker {
    numbers: FxHashMap<[(IpAddr, u16); 2], usize>,
    /// Every connection so far, in the order of their first segments.
    pub connections: Vec<Connection>,
}

impl Tracker {
    /// Takes the next segment of the capture.
    pub fn take(&mut self, time_ns: i64, packet: &TcpPacket) -> Segment {
        let key = if packet.src <= packet.dst { [packet.src, packet.dst] } else { [packet.dst, packet.src] };
        let opens = packet.flags & (SYN | ACK) == SYN;
        let known =
            self.numbers.get(&key).copied().filter(|&number| !(opens && self.connections[number].is_other(packet)));
        let number = known.unwrap_or_else(|| {
            let number = self.connections.len();
            self.connections.push(Connection::new(number as u32, time_ns, packet));
            self.numbers.insert(key, number);
            number
        });
        self.connections[number].take(time_ns, packet)
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
            rtt_ns: None,
            over: false,
        }
    }

    /// Whether this SYN opens another connection between the same ports.
    fn is_other(&self, syn: &TcpPacket) -> bool {
        let half = &self.halves[usize::from(syn.src != self.client)];
        self.over || half.zero != Some(syn.seq)
    }

    fn take(&mut self, time_ns: i64, packet: &TcpPacket) -> Segment {
        let direction = usize::from(packet.src != self.client);
        self.last_ns = self.last_ns.max(time_ns);
        self.over |= packet.flags & (FIN | RST) != 0;
        self.learn(direction, packet);

        let (seq, end) = self.place(direction, packet);
        let mut class = 0;
        if packet.payload > 0 {
            class |= class::DATA;
        }
        if packet.sack_blocks > 0 {
            class |= class::SACK;
        }
        let bare = packet.payload == 0 && packet.flags & (SYN | FIN | RST) == 0;
        if bare && packet.flags & ACK != 0 {
            class |= class::PURE_ACK;
        }
        let next_before = self.halves[direction].next;
        class |= self.classify_sequence(direction, time_ns, packet, seq, end);
        let (ack, rtt_ns) = if packet.flags & ACK != 0 {
            let ack = self.halves[1 - direction].unwrap(packet.ack, packet.ack.wrapping_sub(1));
            class |=
                self.classify_ack(direction, time_ns, packet, ack, bare && next_before.is_none_or(|next| next == seq));
            (ack, self.sample_rtt(1 - direction, time_ns, ack))
        } else {
            (-1, None)
        };
        self.halves[direction].window = Some(packet.window);
        self.count(direction, packet, class);
        Segment {
            connection: self.number,
            direction: direction as u8,
            seq,
            ack,
            window: self.window(direction, packet),
            class,
            rtt_ns,
            in_order: self.halves[direction].in_order(),
        }
    }

    fn learn(&mut self, direction: usize, packet: &TcpPacket) {
        if packet.flags & SYN != 0 {
            self.halves[direction].scale = packet.window_scale;
            let counts = &mut self.counts[direction];
            counts.mss = packet.mss;
            counts.window_scale = packet.window_scale;
            counts.sack_permitted = packet.sack_permitted;
        }
    }

    /// Unwrapped sequence number of a segment and of what follows it.
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

    fn classify_sequence(&mut self, direction: usize, time_ns: i64, packet: &TcpPacket, seq: i64, end: i64) -> u16 {
        let reordering_ns = self.rtt_ns.unwrap_or(REORDERING_NS);
        let [mine, other] = both(&mut self.halves, direction);
        let Some(next) = mine.next else {
            mine.next = Some(end);
            mine.next_time_ns = time_ns;
            if end > seq {
                mine.sent(seq, end, time_ns);
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
            mine.next = Some(end);
            mine.next_time_ns = time_ns;
            mine.sent(seq, end, time_ns);
            return class::NEW | if seq > next { class::GAP_BEFORE } else { 0 };
        }
        let new = mine.seen.add(seq, end);
        mine.next = Some(next.max(end));
        for flying in mine.in_flight.iter_mut().filter(|flying| flying.start < end && flying.end > seq) {
            flying.retransmitted = true;
        }
        let asked_for =
            other.duplicate_acks >= 2 && other.last_ack == Some(seq) && time_ns - other.last_ack_time_ns < FAST_NS;
        if new > 0 && !asked_for && time_ns - mine.next_time_ns < reordering_ns {
            return class::OUT_OF_ORDER;
        }
        let mut class = class::RETRANSMISSION;
        if asked_for {
            class |= class::FAST_RETRANSMISSION;
        }
        if other.last_ack.is_some_and(|ack| end <= ack) {
            class |= class::SPURIOUS;
        }
        class
    }

    fn classify_ack(
        &mut self,
        direction: usize,
        time_ns: i64,
        packet: &TcpPacket,
        ack: i64,
        bare_at_next: bool,
    ) -> u16 {
        let half = &mut self.halves[direction];
        let mut class = 0;
        if packet.window == 0 && packet.flags & (SYN | FIN | RST) == 0 {
            class |= class::ZERO_WINDOW;
        }
        if half.last_ack == Some(ack) {
            if bare_at_next && packet.window != 0 {
                if half.window == Some(packet.window) {
                    class |= class::DUPLICATE_ACK;
                    half.duplicate_acks += 1;
                } else {
                    class |= class::WINDOW_UPDATE;
                }
            }
        } else if half.last_ack.is_none_or(|last| ack > last) {
            half.duplicate_acks = 0;
            half.last_ack = Some(ack);
        }
        half.last_ack_time_ns = time_ns;
        class
    }

    fn sample_rtt(&mut self, sender: usize, time_ns: i64, ack: i64) -> Option<i64> {
        let half = &mut self.halves[sender];
        let mut sample = None;
        while half.in_flight.front().is_some_and(|flying| flying.end <= ack) {
            let flying = half.in_flight.pop_front().expect("it has a front");
            sample = (flying.end == ack && !flying.retransmitted).then_some(time_ns - flying.time_ns);
        }
        self.rtt_ns = sample.or(self.rtt_ns);
        sample
    }

    fn window(&self, direction: usize, packet: &TcpPacket) -> i64 {
        let scaled = self.halves.iter().all(|half| half.scale.is_some()) && packet.flags & SYN == 0;
        i64::from(packet.window) << if scaled { self.halves[direction].scale.unwrap_or(0) } else { 0 }
    }

    fn count(&mut self, direction: usize, packet: &TcpPacket, class: u16) {
        let counts = &mut self.counts[direction];
        counts.packets += 1;
        counts.ip_bytes += u64::from(packet.ip_len);
        counts.payload_bytes += u64::from(packet.payload);
        counts.retransmissions += u64::from(class & class::RETRANSMISSION != 0);
        counts.fast_retransmissions += u64::from(class & class::FAST_RETRANSMISSION != 0);
        counts.out_of_order += u64::from(class & class::OUT_OF_ORDER != 0);
        counts.duplicate_acks += u64::from(class & class::DUPLICATE_ACK != 0);
        counts.timestamps |= packet.timestamps.is_some();
        counts.unique_bytes = self.halves[direction].unique_bytes();
    }
}

impl Half {
    fn sent(&mut self, seq: i64, end: i64, time_ns: i64) {
        self.seen.add(seq, end);
        self.in_flight.push_back(InFlight { start: seq, end, time_ns, retransmitted: false });
    }

    fn unique_bytes(&self) -> i64 {
        let total = self.seen.total();
        (total - i64::from(self.start == 0 && total > 0) - i64::from(self.fin_at.is_some())).max(0)
    }
}

/// The half of `direction` and the other one.
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

    const A: (IpAddr, u16) = (IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 1000);
    const B: (IpAddr, u16) = (IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), 5001);
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
            timestamps: None,
        }
    }

    /// A tracker that has seen a handshake: client's ISN 100, server's 300.
    fn established() -> Tracker {
        let mut tracker = Tracker::default();
        tracker.take(0, &packet(true, 100, 0, SYN, 0));
        tracker.take(10 * MS, &packet(false, 300, 101, SYN | ACK, 0));
        tracker.take(20 * MS, &packet(true, 101, 301, ACK, 0));
        tracker
    }

    fn data(tracker: &mut Tracker, ms: i64, byte: u32) -> Segment {
        tracker.take(ms * MS, &packet(true, 100 + byte, 301, ACK, 100))
    }

    fn ack(tracker: &mut Tracker, ms: i64, byte: u32) -> Segment {
        tracker.take(ms * MS, &packet(false, 301, 100 + byte, ACK, 0))
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
        assert_eq!(tracker.connections[0].counts[0].unique_bytes, 200);
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
        assert_eq!(data(&mut tracker, 1030, 1).class, class::RETRANSMISSION | class::DATA);
        ack(&mut tracker, 1050, 101);
        assert!(data(&mut tracker, 1100, 1).class & class::SPURIOUS != 0);
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
        assert!(tracker.take(50 * MS, &update).class & class::WINDOW_UPDATE == 0, "it acknowledges new data");
        update.window = 700;
        assert!(tracker.take(51 * MS, &update).class & class::WINDOW_UPDATE != 0);
        update.window = 0;
        assert!(tracker.take(52 * MS, &update).class & class::ZERO_WINDOW != 0);
        let keep_alive = tracker.take(9000 * MS, &packet(true, 200, 301, ACK, 0));
        assert!(keep_alive.class & class::KEEP_ALIVE != 0);
    }

    #[test]
    fn the_same_ports_again_are_another_connection() {
        let mut tracker = established();
        tracker.take(30 * MS, &packet(true, 101, 301, FIN | ACK, 0));
        let again = tracker.take(90 * MS, &packet(true, 7000, 0, SYN, 0));
        assert_eq!((again.connection, again.seq), (1, 0));
        assert_eq!(tracker.connections.len(), 2);
    }

    #[test]
    fn a_capture_that_begins_in_the_middle_is_followed() {
        let mut tracker = Tracker::default();
        let first = tracker.take(0, &packet(true, 5000, 9000, ACK, 100));
        assert_eq!((first.seq, first.ack, first.in_order), (1, 1, 100));
        assert_eq!(tracker.take(MS, &packet(true, 5100, 9000, ACK, 100)).in_order, 200);
    }

    proptest! {
        /// Whatever is lost, repeated or reordered, and wherever the numbers wrap: what is in order at the end is what
        /// came, and every data segment is exactly one of new, retransmitted, out of order.
        #[test]
        fn every_byte_is_accounted_for(isn: u32, order in proptest::collection::vec(0u32..40, 1..150)) {
            let mut tracker = Tracker::default();
            tracker.take(0, &packet(true, isn, 0, SYN, 0));
            let mut came = [false; 40];
            for (step, &block) in order.iter().enumerate() {
                let seq = isn.wrapping_add(1 + block * 100);
                let segment = tracker.take((step as i64 + 1) * MS, &packet(true, seq, 1, ACK, 100));
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
            prop_assert_eq!(tracker.connections[0].counts[0].unique_bytes, unique);
        }
    }
}
