//! The receiving half: reassembly, the window offered, SACK blocks (RFC 2018), and when to acknowledge.

use std::collections::BTreeMap;

use backchannel_core::time::Time;

use crate::ack::{AckPolicy, Acker};
use crate::eln::Corrupted;
use crate::scoreboard::Scoreboard;

/// Bytes that have arrived: given ones, and how many zeros follow them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Materialised bytes.
    pub bytes: Vec<u8>,
    /// Zeros after them.
    pub zeros: u64,
}

impl Arrived {
    /// How many they are.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64 + self.zeros
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the first `n` bytes.
    pub(crate) fn skip(&mut self, n: u64) {
        let given = n.min(self.bytes.len() as u64);
        self.bytes.drain(..given as usize);
        self.zeros -= n - given;
    }

    fn keep(&mut self, n: u64) {
        let given = n.min(self.bytes.len() as u64);
        self.bytes.truncate(given as usize);
        self.zeros = n - given;
    }
}

/// State of the receiving half. Numbers are stream offsets: the peer's SYN is 0, its first byte 1.
#[derive(Clone, Debug)]
pub struct Receiver {
    policy: AckPolicy,
    /// Next byte expected.
    pub next: u64,
    buffer: u64,
    /// In order, and not yet taken by the application.
    ready: Vec<Arrived>,
    ready_len: u64,
    /// Taken by the application, which has yet to give their room back.
    lent: u64,
    /// Out of order: start to data.
    later: BTreeMap<u64, Arrived>,
    /// The same as whole ranges.
    ranges: Scoreboard,
    /// Ranges of the last out-of-order arrivals, the most recent first.
    recent: Vec<u64>,
    /// Right edge ever offered: it never moves left.
    edge: u64,
    /// The next byte expected when the last ack went (RFC 7323's Last.ACK.sent).
    pub last_acked: u64,
    unacked: u32,
    /// Segments out of order since the last one in order.
    out_of_order: u32,
    /// The last arrival, if out of order: what SMART's acks name.
    stray: Option<(u64, u64)>,
    /// The rule's state.
    pub acker: Acker,
    /// What arrived corrupted.
    pub corrupted: Corrupted,
    /// An ack must go at once.
    pub ack_now: bool,
    /// An ack must go by then.
    pub ack_at: Option<Time>,
}

impl Receiver {
    /// A half that buffers `buffer` bytes; `segment`: bytes of a full segment.
    pub fn new(policy: AckPolicy, buffer: u64, segment: u32) -> Receiver {
        Receiver {
            acker: Acker::new(policy.rule, (buffer / u64::from(segment.max(1))) as u32),
            corrupted: Corrupted::default(),
            last_acked: 0,
            out_of_order: 0,
            stray: None,
            policy,
            next: 0,
            buffer,
            ready: Vec::new(),
            ready_len: 0,
            lent: 0,
            later: BTreeMap::new(),
            ranges: Scoreboard::default(),
            recent: Vec::new(),
            edge: 0,
            unacked: 0,
            ack_now: false,
            ack_at: None,
        }
    }

    /// Bytes that may still come.
    pub fn window(&self) -> u64 {
        self.buffer.saturating_sub(self.ready_len + self.lent).max(self.edge.saturating_sub(self.next))
    }

    /// An ack with this window goes out.
    pub fn acknowledged(&mut self, window: u64) {
        self.edge = self.edge.max(self.next + window);
        self.last_acked = self.next;
        self.unacked = 0;
        self.ack_now = false;
        self.ack_at = None;
    }

    /// Data of a segment whose first byte is `start`.
    pub fn take(&mut self, now: Time, mut start: u64, mut data: Arrived) {
        self.stray = None;
        let end = start + data.len();
        if end <= self.next {
            // Old data: the peer has not seen our ack.
            self.ack_now = true;
            return;
        }
        if start < self.next {
            data.skip(self.next - start);
            start = self.next;
        }
        let room = (self.next + self.window()).saturating_sub(start);
        if data.len() > room {
            data.keep(room);
            self.ack_now = true;
            if room == 0 {
                return;
            }
        }
        if start > self.next {
            self.stray = Some((start, start + data.len()));
            self.out_of_order += 1;
            self.ranges.update(self.next, std::iter::once((start, start + data.len())));
            self.store(start, data);
            self.ack_now = true;
            return;
        }
        let filled = !self.later.is_empty();
        self.append(data);
        while let Some((&at, _)) = self.later.first_key_value() {
            if at > self.next {
                break;
            }
            let mut more = self.later.remove(&at).expect("it was seen");
            if at + more.len() > self.next {
                more.skip(self.next - at);
                self.append(more);
            }
        }
        self.ranges.update(self.next, std::iter::empty());
        self.unacked += 1;
        self.out_of_order = 0;
        if filled || self.unacked >= self.acker.d() {
            // RFC 5681 4.2: also when a segment fills a gap.
            self.ack_now = true;
        } else if self.ack_at.is_none() {
            self.ack_at = Some(self.policy.deadline(now));
        }
    }

    fn append(&mut self, data: Arrived) {
        self.next += data.len();
        self.ready_len += data.len();
        self.ready.push(data);
    }

    /// Keeps out-of-order data; what is there already stays.
    fn store(&mut self, mut start: u64, mut data: Arrived) {
        if let Some((&before, held)) = self.later.range(..=start).next_back() {
            let end = before + held.len();
            if end > start {
                let overlap = (end - start).min(data.len());
                data.skip(overlap);
                start += overlap;
            }
        }
        while !data.is_empty() {
            let next = self.later.range(start..).next().map(|(&at, held)| (at, at + held.len()));
            match next {
                Some((at, end)) if at < start + data.len() => {
                    if at > start {
                        let mut part = data.clone();
                        part.keep(at - start);
                        self.later.insert(start, part);
                    }
                    let skip = (end - start).min(data.len());
                    data.skip(skip);
                    start += skip;
                }
                _ => {
                    self.later.insert(start, data);
                    break;
                }
            }
        }
        self.recent.insert(0, start);
        self.recent.truncate(8);
    }

    /// Whether a duplicate ack asks for a retransmission at once (asym 6.1): `mark_after` of them have not brought it.
    pub fn asks_at_once(&self) -> bool {
        self.policy.mark_after > 0 && self.out_of_order > self.policy.mark_after
    }

    /// SMART's block: the segment that caused this ack, if it was out of order.
    pub fn smart_block(&self) -> Option<(u64, u64)> {
        self.stray.filter(|&(start, _)| start > self.next)
    }

    /// What the application takes: everything in order.
    pub fn read(&mut self) -> Vec<Arrived> {
        self.ready_len = 0;
        std::mem::take(&mut self.ready)
    }

    /// The same for an application that needs the buffer's room for as long as it works on them.
    pub fn lend(&mut self) -> Vec<Arrived> {
        self.lent += self.ready_len;
        self.read()
    }

    /// The application needs the room of `bytes` that it was lent no longer. Returns how far the window's right edge would
    /// move with an ack sent now.
    pub fn give_back(&mut self, bytes: u64) -> u64 {
        self.lent -= bytes;
        (self.next + self.window()).saturating_sub(self.edge)
    }

    /// Bytes that the buffer is there for.
    pub fn buffer(&self) -> u64 {
        self.buffer
    }

    /// Bytes of the buffer in use: lent, not taken, and out of order.
    pub fn in_use(&self) -> u64 {
        self.lent + self.ready_len + self.ranges.bytes()
    }

    /// Bytes in order that the application has not taken.
    pub fn unread(&self) -> u64 {
        self.ready_len
    }

    /// SACK blocks, the one of the last arrival first, at most `most` (RFC 2018 section 4).
    pub fn sack_blocks(&mut self, most: usize) -> Vec<(u64, u64)> {
        if self.later.is_empty() {
            self.recent.clear();
            return Vec::new();
        }
        let mut blocks: Vec<(u64, u64)> = Vec::new();
        for range in self.recent.iter().filter_map(|&at| self.ranges.range_of(at)) {
            if range.0 > self.next && !blocks.contains(&range) {
                blocks.push(range);
            }
        }
        blocks.truncate(most);
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::ack::AckRule;
    use std::time::Duration;

    const EVERY_OTHER: AckPolicy =
        AckPolicy { rule: AckRule::Every(2), delay: Duration::from_millis(200), heartbeat: true, mark_after: 0 };

    fn receiver() -> Receiver {
        let mut receiver = Receiver::new(EVERY_OTHER, 65_536, 1000);
        receiver.next = 1;
        receiver
    }

    fn zeros(n: u64) -> Arrived {
        Arrived { bytes: Vec::new(), zeros: n }
    }

    #[test]
    fn every_second_segment_is_acknowledged_at_once_and_a_single_one_at_the_heartbeat() {
        let mut receiver = receiver();
        receiver.take(Time(130_000_000), 1, zeros(1000));
        assert_eq!((receiver.ack_now, receiver.ack_at), (false, Some(Time(200_000_000))));
        receiver.take(Time(140_000_000), 1001, zeros(1000));
        assert!(receiver.ack_now);
    }

    #[test]
    fn out_of_order_data_and_the_filling_of_a_gap_are_acknowledged_at_once() {
        let mut receiver = receiver();
        receiver.take(Time::ZERO, 2001, zeros(1000));
        assert!(receiver.ack_now);
        assert_eq!(receiver.sack_blocks(3), [(2001, 3001)]);
        receiver.acknowledged(65_536);
        receiver.take(Time::ZERO, 4001, zeros(1000));
        assert_eq!(receiver.sack_blocks(3), [(4001, 5001), (2001, 3001)], "the latest first");
        receiver.acknowledged(65_536);
        receiver.take(Time::ZERO, 1, zeros(2000));
        assert!(receiver.ack_now);
        assert_eq!(receiver.next, 3001);
    }

    #[test]
    fn what_does_not_fit_the_window_is_cut_off() {
        let mut receiver = Receiver::new(EVERY_OTHER, 1500, 1000);
        receiver.next = 1;
        receiver.take(Time::ZERO, 1, zeros(2000));
        assert_eq!((receiver.next, receiver.window()), (1501, 0));
        receiver.read();
        assert_eq!(receiver.window(), 1500);
    }

    #[test]
    fn what_is_lent_takes_room_until_it_is_given_back() {
        let mut receiver = Receiver::new(EVERY_OTHER, 1500, 1000);
        receiver.next = 1;
        receiver.acknowledged(1500);
        receiver.take(Time::ZERO, 1, zeros(1000));
        assert_eq!(receiver.lend(), [zeros(1000)]);
        assert_eq!((receiver.unread(), receiver.in_use(), receiver.window()), (0, 1000, 500));
        receiver.take(Time::ZERO, 1201, zeros(300));
        assert_eq!(receiver.in_use(), 1300);
        assert_eq!(receiver.give_back(400), 400, "the edge was 1501");
        receiver.acknowledged(900);
        assert_eq!(receiver.give_back(600), 600);
        assert_eq!((receiver.in_use(), receiver.window()), (300, 1500));
    }

    proptest! {
        #[test]
        fn any_order_of_any_pieces_gives_the_stream(pieces in proptest::collection::vec((0u64..500, 1u64..80), 1..80)) {
            let stream: Vec<u8> = (0..600u32).map(|i| (i * 7 % 251) as u8).collect();
            let mut receiver = Receiver::new(EVERY_OTHER, 10_000, 80);
            receiver.next = 1;
            let mut came = vec![false; stream.len()];
            let mut read = Vec::new();
            for (from, length) in pieces {
                let to = (from + length).min(stream.len() as u64);
                let bytes = stream[from as usize..to as usize].to_vec();
                came[from as usize..to as usize].fill(true);
                receiver.take(Time::ZERO, from + 1, Arrived { bytes, zeros: 0 });
                for part in receiver.read() {
                    read.extend(part.bytes);
                }
                let whole = came.iter().take_while(|&&here| here).count();
                prop_assert_eq!(receiver.next as usize, whole + 1);
                prop_assert_eq!(&read[..], &stream[..whole]);
                for (start, end) in receiver.sack_blocks(3) {
                    let held = &came[start as usize - 1..end as usize - 1];
                    prop_assert!(start > receiver.next && held.iter().all(|&here| here), "{start}-{end}");
                    prop_assert!(!came[start as usize - 2] && !came.get(end as usize - 1).is_some_and(|&here| here));
                }
            }
        }
    }
}
