//! The receiving half: it puts data in order, holds the window offered, and decides when to acknowledge.

use std::time::Duration;

use backchannel_core::time::Time;
use backchannel_core::transport::Chunk;

use crate::config::Config;
use crate::reassembly::Reassembly;
use crate::receive_window::ReceiveWindow;
use crate::sack_compression::SackCompression;
use crate::seq::{Offset, SeqNumber};
use crate::timers::{Timer, TimerTable};

/// State of the receiving half. Offsets are those of the peer's stream.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// IRS: the number of the peer's SYN.
    pub initial: SeqNumber,
    /// RCV.NXT without the peer's FIN: the next byte expected. It never falls.
    pub next: Offset,
    /// The buffer and the window offered.
    pub window: ReceiveWindow,
    /// Data in order that the application has not read: `window.unread` bytes.
    ready: Vec<Chunk>,
    /// Data beyond `next`.
    reassembly: Reassembly,
    /// Where the peer's FIN is, once it has arrived; data before it may still be missing.
    pub fin: Option<Offset>,
    /// Whether the peer's FIN has been taken: everything before it has arrived.
    pub finished: bool,
    /// Last.ACK.sent of RFC 7323: `next` when the last ack was sent.
    pub last_acked: Offset,
    /// Segments in order since the last ack.
    unacked: u32,
    /// Segments out of order since the last one in order.
    pub out_of_order: u32,
    /// The range of the last arrival, if out of order: SMART's acks name it.
    last_out_of_order: Option<(Offset, Offset)>,
    /// The range of a segment that had arrived before, until an ack reports it (RFC 2883).
    duplicate: Option<(Offset, Offset)>,
    /// Whether acks report such a range.
    reports_duplicates: bool,
    /// How acks of data out of order wait; `None`: they do not.
    compression: Option<SackCompression>,
    /// Bytes held until the next ack has gone.
    deferred: u64,
    /// An ack must go at once.
    pub ack_now: bool,
    /// Segments in order that are still acknowledged one by one.
    quick_acks: u32,
    /// Longest delay of an ack.
    ack_delay: Duration,
    /// Whether delays end at multiples of `ack_delay` (BSD's 200 ms heartbeat), not `ack_delay` after the segment.
    heartbeat: bool,
}

impl Receiver {
    /// Before the peer's SYN.
    pub fn new(config: &Config) -> Receiver {
        Receiver {
            initial: SeqNumber::default(),
            next: Offset::SYN,
            window: ReceiveWindow::new(config.receive_buffer_bytes),
            ready: Vec::new(),
            reassembly: Reassembly::default(),
            fin: None,
            finished: false,
            last_acked: Offset::SYN,
            unacked: 0,
            out_of_order: 0,
            last_out_of_order: None,
            duplicate: None,
            reports_duplicates: config.dsack,
            compression: config.sack_compression.then(SackCompression::default),
            deferred: 0,
            ack_now: false,
            quick_acks: config.quick_acks_segments.unwrap_or_default(),
            ack_delay: config.ack_delay_s,
            heartbeat: config.ack_heartbeat,
        }
    }

    /// The peer's SYN arrives.
    pub fn on_syn(&mut self, initial: SeqNumber) {
        self.initial = initial;
        self.next = Offset::FIRST_BYTE;
    }

    /// Whether both ends have selective acks: without them each ack out of order is one of the duplicates that a sender
    /// counts, and goes at once.
    pub fn on_agreement(&mut self, sack: bool) {
        self.compression = self.compression.take().filter(|_| sack);
    }

    /// RCV.WND: bytes that may still arrive.
    #[inline]
    pub fn window_size(&self) -> u64 {
        self.window.size(self.next)
    }

    /// RCV.NXT: the number that acks carry, behind the FIN once that was taken.
    pub fn ack_offset(&self) -> Offset {
        self.next + u64::from(self.finished)
    }

    /// An ack that offers `window` bytes is sent.
    #[inline]
    pub fn on_ack_sent(&mut self, window: u64, timers: &mut TimerTable) {
        self.window.on_offer(self.next, window);
        self.last_acked = self.next;
        self.unacked = 0;
        self.ack_now = false;
        self.window.held -= std::mem::take(&mut self.deferred);
        if let Some(compression) = &mut self.compression {
            compression.on_ack_sent();
        }
        timers.stop(Timer::DelayedAck);
    }

    /// Whether data in order wait for their ack.
    pub fn has_unacknowledged(&self) -> bool {
        self.unacked > 0
    }

    /// A segment with `bytes` of data from `start` on was refused: if it had arrived before, an ack reports it.
    pub fn on_refused(&mut self, start: Offset, bytes: u64) {
        if self.reports_duplicates && bytes > 0 && start >= Offset::FIRST_BYTE && start + bytes <= self.next {
            self.duplicate = Some((start, start + bytes));
        }
    }

    /// Takes the data of a segment that begins at `start`. An ack is due after `segments_per_ack` segments in order;
    /// `None`: their number decides nothing. `rtt` is the smoothed round trip, if known.
    #[inline(always)]
    pub fn on_data(
        &mut self,
        now: Time,
        mut start: Offset,
        mut data: Chunk,
        segments_per_ack: Option<u32>,
        rtt: Option<Duration>,
        timers: &mut TimerTable,
    ) {
        self.last_out_of_order = None;
        if start + data.len() <= self.next {
            // Old data: the peer has not received our ack.
            self.ack_now = true;
            self.duplicate = self.reports_duplicates.then_some((start, start + data.len()));
            return;
        }
        let range = (start, start + data.len());
        if self.reports_duplicates {
            let duplicate = if start < self.next { Some((start, self.next)) } else { self.reassembly.held(range) };
            // One whose ack waits is reported with the next ack.
            self.duplicate = duplicate.or(self.duplicate);
        }
        if start < self.next {
            data.skip(self.next.since(start));
            start = self.next;
        }
        let room = (self.next + self.window_size()).since(start);
        if data.len() > room {
            data.truncate(room);
            self.ack_now = true;
            if room == 0 {
                return;
            }
        }
        if start > self.next {
            let range = (start, start + data.len());
            self.last_out_of_order = Some(range);
            self.out_of_order += 1;
            self.reassembly.store(self.next, start, data);
            let waiting = self.compression.as_mut().filter(|_| !self.ack_now && self.quick_acks == 0);
            match waiting.and_then(|acks| acks.until(now, self.out_of_order, rtt)) {
                Some(until) if !timers.is_set(Timer::DelayedAck) => timers.set(Timer::DelayedAck, until),
                Some(_) => {}
                None => self.ack_now = true,
            }
            return;
        }
        let fills_gap = !self.reassembly.is_empty();
        self.append(data);
        if fills_gap {
            while let Some(chunk) = self.reassembly.take_in_order(self.next) {
                self.append(chunk);
            }
            self.reassembly.settle(self.next);
        }
        self.unacked += 1;
        self.out_of_order = 0;
        // RFC 5681 4.2: a segment that fills a gap is acknowledged at once.
        let quick = self.quick_acks > 0;
        self.quick_acks = self.quick_acks.saturating_sub(1);
        if fills_gap || quick || segments_per_ack.is_some_and(|segments| self.unacked >= segments) {
            self.ack_now = true;
        } else if !timers.is_set(Timer::DelayedAck) {
            timers.set(Timer::DelayedAck, self.delayed_ack_deadline(now));
        }
    }

    /// When the ack of a segment that arrives `now` must go.
    fn delayed_ack_deadline(&self, now: Time) -> Time {
        if self.heartbeat {
            let tick = (self.ack_delay.as_nanos() as u64).max(1);
            Time((now.nanos() / tick + 1) * tick)
        } else {
            now + self.ack_delay
        }
    }

    #[inline(always)]
    fn append(&mut self, data: Chunk) {
        self.next += data.len();
        self.window.unread += data.len();
        self.ready.push(data);
    }

    /// The application reads everything in order: it is appended to `out`.
    #[inline(always)]
    pub fn read_into(&mut self, out: &mut Vec<Chunk>) {
        self.window.unread = 0;
        if out.is_empty() {
            std::mem::swap(out, &mut self.ready);
        } else {
            out.append(&mut self.ready);
        }
    }

    /// What is in order and not read keeps its room until the next ack has gone.
    pub fn defer_room(&mut self) {
        self.deferred += self.window.unread;
        self.window.held += self.window.unread;
    }

    /// The application reads everything in order. The data keep their room in the buffer until [`Receiver::release`].
    pub fn read_and_hold(&mut self) -> Vec<Chunk> {
        self.window.held += std::mem::take(&mut self.window.unread);
        std::mem::take(&mut self.ready)
    }

    /// Frees the room of `bytes` that were held.
    pub fn release(&mut self, bytes: u64) {
        self.window.held -= bytes;
    }

    /// Bytes of the buffer in use: held, not read, and out of order.
    pub fn in_use(&self) -> u64 {
        self.window.held + self.window.unread + self.reassembly.bytes()
    }

    /// SACK blocks, that of the last arrival first, at most `most`. A segment that arrived twice comes before them (RFC
    /// 2883 4).
    pub fn sack_blocks(&mut self, most: usize) -> Vec<(Offset, Offset)> {
        match self.duplicate.take().filter(|_| most > 0) {
            None => self.reassembly.sack_blocks(self.next, most),
            Some(duplicate) => {
                let others = self.reassembly.sack_blocks(self.next, most - 1);
                std::iter::once(duplicate).chain(others).collect()
            }
        }
    }

    /// SMART's block: the segment that caused this ack, if it was out of order.
    pub fn smart_block(&self) -> Option<(Offset, Offset)> {
        self.last_out_of_order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::stack_config;
    use proptest::prelude::*;

    /// A receiver that acknowledges every second segment at once and others at a heartbeat of 200 ms, with its timers.
    struct Bench {
        receiver: Receiver,
        timers: TimerTable,
    }

    impl Bench {
        fn new(buffer: u64) -> Bench {
            let mut receiver = Receiver::new(&stack_config("reno-bsd", &Default::default()).unwrap());
            receiver.window = ReceiveWindow::new(buffer);
            receiver.on_syn(SeqNumber(0));
            Bench { receiver, timers: TimerTable::default() }
        }

        fn data(&mut self, at_ms: u64, start: i64, bytes: u64) {
            self.data_at(Time(at_ms * 1_000_000), start, bytes);
        }

        fn data_at(&mut self, at: Time, start: i64, bytes: u64) {
            let data = Chunk { bytes: Vec::new(), zeros: bytes };
            self.receiver.on_data(at, Offset(start), data, Some(2), None, &mut self.timers);
        }

        fn ack(&mut self, window: u64) {
            self.receiver.on_ack_sent(window, &mut self.timers);
        }

        /// By how much an ack of all the room would move the window.
        fn movement(&self) -> u64 {
            self.receiver.window.movement(self.receiver.next, self.receiver.window_size())
        }

        fn blocks(&mut self) -> Vec<(i64, i64)> {
            self.receiver.sack_blocks(3).into_iter().map(|(start, end)| (start.0, end.0)).collect()
        }
    }

    #[test]
    fn every_second_segment_is_acknowledged_at_once_and_a_single_one_at_the_heartbeat() {
        let mut bench = Bench::new(65_536);
        bench.data(130, 1, 1000);
        assert!(!bench.receiver.ack_now);
        assert_eq!(bench.timers.deadline(Timer::DelayedAck), Some(Time(200_000_000)));
        bench.data(140, 1001, 1000);
        assert!(bench.receiver.ack_now);
    }

    #[test]
    fn out_of_order_data_and_the_filling_of_a_gap_are_acknowledged_at_once() {
        let mut bench = Bench::new(65_536);
        bench.data(0, 2001, 1000);
        assert!(bench.receiver.ack_now);
        assert_eq!(bench.blocks(), [(2001, 3001)]);
        bench.ack(65_536);
        bench.data(0, 4001, 1000);
        assert_eq!(bench.blocks(), [(4001, 5001), (2001, 3001)], "the latest first");
        bench.ack(65_536);
        bench.data(0, 1, 2000);
        assert!(bench.receiver.ack_now);
        assert_eq!(bench.receiver.next, Offset(3001));
    }

    #[test]
    fn what_does_not_fit_the_window_is_cut_off() {
        let mut bench = Bench::new(1500);
        bench.data(0, 1, 2000);
        assert_eq!((bench.receiver.next, bench.receiver.window_size()), (Offset(1501), 0));
        bench.receiver.read_into(&mut Vec::new());
        assert_eq!(bench.receiver.window_size(), 1500);
    }

    #[test]
    fn deferred_room_is_offered_after_the_next_ack() {
        let mut bench = Bench::new(4000);
        bench.ack(4000);
        bench.data(0, 1001, 1000);
        bench.data(0, 1, 1000);
        bench.receiver.defer_room();
        bench.receiver.read_into(&mut Vec::new());
        assert_eq!((bench.receiver.window_size(), bench.movement()), (2000, 0));
        bench.ack(2000);
        assert_eq!((bench.receiver.window_size(), bench.movement()), (4000, 2000));
        bench.ack(4000);
        assert_eq!(bench.receiver.in_use(), 0);
    }

    #[test]
    fn what_is_held_takes_room_until_it_is_released() {
        let mut bench = Bench::new(1500);
        bench.ack(1500);
        bench.data(0, 1, 1000);
        assert_eq!(bench.receiver.read_and_hold(), [Chunk { bytes: Vec::new(), zeros: 1000 }]);
        assert_eq!(
            (bench.receiver.window.unread, bench.receiver.in_use(), bench.receiver.window_size()),
            (0, 1000, 500)
        );
        bench.data(0, 1201, 300);
        assert_eq!(bench.receiver.in_use(), 1300);
        bench.receiver.release(400);
        assert_eq!(bench.movement(), 400, "the edge was 1501");
        bench.ack(900);
        bench.receiver.release(600);
        assert_eq!(bench.movement(), 600);
        assert_eq!((bench.receiver.in_use(), bench.receiver.window_size()), (300, 1500));
    }

    #[test]
    fn compressed_acks_of_a_hole_wait_a_millisecond_and_end_with_it() {
        let mut bench = Bench::new(65_536);
        bench.receiver.compression = Some(SackCompression::default());
        for nth in 0..3 {
            bench.data(0, 2001 + nth * 1000, 1000);
            assert!(bench.receiver.ack_now);
            bench.ack(65_536);
        }
        bench.data(7, 5001, 1000);
        assert!(!bench.receiver.ack_now);
        bench.data_at(Time(7_500_000), 6001, 1000);
        assert_eq!(bench.timers.deadline(Timer::DelayedAck), Some(Time(8_000_000)), "of the first that waits");
        (0..42).for_each(|nth| bench.data(7, 7001 + nth * 10, 10));
        assert!(!bench.receiver.ack_now);
        bench.data(7, 8001, 10);
        assert!(bench.receiver.ack_now, "44 wait");
        bench.ack(65_536);
        bench.data(8, 8011, 10);
        assert!(!bench.receiver.ack_now, "an ack stands for all that waited");
        bench.data(8, 1, 2000);
        assert!(bench.receiver.ack_now, "what fills the hole is acknowledged at once");
        bench.receiver.on_agreement(true);
        assert!(bench.receiver.compression.is_some());
        bench.receiver.on_agreement(false);
        assert!(bench.receiver.compression.is_none(), "without selective acks");
    }

    #[test]
    fn a_duplicate_whose_ack_waits_is_reported_with_the_next_ack() {
        let mut bench = Bench::new(65_536);
        bench.receiver.compression = Some(SackCompression::default());
        bench.receiver.reports_duplicates = true;
        for nth in 0..3 {
            bench.data(0, 2001 + nth * 1000, 1000);
            bench.blocks();
            bench.ack(65_536);
        }
        bench.data(1, 3001, 1000);
        assert!(!bench.receiver.ack_now);
        bench.data(1, 5001, 1000);
        assert_eq!(bench.blocks(), [(3001, 4001), (2001, 6001)]);
        assert_eq!(bench.blocks(), [(2001, 6001)], "once");
    }

    proptest! {
        #[test]
        fn any_order_of_any_pieces_gives_the_stream(pieces in proptest::collection::vec((0u64..500, 1u64..80), 1..80)) {
            let stream: Vec<u8> = (0..600u32).map(|i| (i * 7 % 251) as u8).collect();
            let Bench { mut receiver, mut timers } = Bench::new(10_000);
            let mut arrived = vec![false; stream.len()];
            let mut read = Vec::new();
            for (from, length) in pieces {
                let to = (from + length).min(stream.len() as u64);
                let bytes = stream[from as usize..to as usize].to_vec();
                arrived[from as usize..to as usize].fill(true);
                receiver.on_data(Time::ZERO, Offset::FIRST_BYTE + from, Chunk { bytes, zeros: 0 }, Some(2), None, &mut timers);
                let mut parts = Vec::new();
                receiver.read_into(&mut parts);
                parts.into_iter().for_each(|part| read.extend(part.bytes));
                let in_order = arrived.iter().take_while(|&&here| here).count();
                prop_assert_eq!(receiver.next.data_bytes() as usize, in_order);
                prop_assert_eq!(&read[..], &stream[..in_order]);
                for (start, end) in receiver.sack_blocks(3) {
                    let (first, last) = (start.data_bytes() as usize, end.data_bytes() as usize);
                    let held = &arrived[first..last];
                    prop_assert!(start > receiver.next && held.iter().all(|&here| here), "{start:?}-{end:?}");
                    prop_assert!(!arrived[first - 1] && !arrived.get(last).is_some_and(|&here| here));
                }
            }
        }
    }
}
