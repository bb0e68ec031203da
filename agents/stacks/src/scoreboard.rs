//! The sender's record of selective acknowledgments (RFC 2018), and what follows from it: which bytes are lost, and how
//! many are in the network (RFC 6675).

use backchannel_core::choice;
use std::collections::BTreeMap;
use std::time::Duration;

use backchannel_core::time::Time;

use crate::seq::Offset;

choice! {
    /// How a sender uses selective acknowledgments.
    pub enum SackSender {
        /// RFC 6675: three segments' worth above a hole make it lost; the pipe follows from the scoreboard.
        Rfc6675 = "rfc6675",
        /// The sender of 1996 (Fall and Floyd's sack1, which ton cites): after the third duplicate ack every hole below
        /// the highest block is missing; what is sent raises the pipe, what duplicates report as gone lowers it.
        Sack1996 = "1996",
        /// SMART as in ton III-A: a hole is lost at once; a segment is retransmitted unless that happened within the
        /// last round trip.
        Smart = "smart",
        /// Not at all: the blocks are for a base station on the path (ton III-B).
        Ignored = "ignored",
    }
}

/// What the receiver has reported to hold above the cumulative ack.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    /// Start to end. Ranges neither overlap nor touch, and lie above the last `una` of [`Scoreboard::update`].
    held: BTreeMap<Offset, Offset>,
    /// Bytes in them.
    bytes: u64,
    /// HighRxt of RFC 6675: one beyond the highest byte retransmitted in this recovery.
    pub high_rxt: Offset,
    /// The 1996 sender's count of bytes in the network. It may fall below 0, because it is an estimate.
    pub counted: i64,
    /// SMART: when a retransmission last went, by its first byte.
    resent: BTreeMap<Offset, Time>,
}

impl Scoreboard {
    /// Takes an ack: everything below `una` is settled, `blocks` (start, end) are held. Returns whether it reported
    /// anything new.
    pub fn update(&mut self, una: Offset, blocks: impl Iterator<Item = (Offset, Offset)>) -> bool {
        let before = self.bytes;
        for (start, end) in blocks {
            let start = start.max(una);
            if start < end {
                self.add(start, end);
            }
        }
        let news = self.bytes > before;
        self.forget_below(una);
        news
    }

    fn add(&mut self, mut start: Offset, mut end: Offset) {
        while let Some((&from, &to)) = self.held.range(..=end).next_back().filter(|(_, &to)| to >= start) {
            start = start.min(from);
            end = end.max(to);
            self.remove(from);
        }
        self.insert(start, end);
    }

    fn insert(&mut self, start: Offset, end: Offset) {
        self.held.insert(start, end);
        self.bytes += end.since(start);
    }

    fn remove(&mut self, start: Offset) {
        self.bytes -= self.held.remove(&start).map_or(0, |end| end.since(start));
    }

    fn forget_below(&mut self, una: Offset) {
        if !self.resent.is_empty() {
            self.resent = self.resent.split_off(&una);
        }
        while let Some((&start, &end)) = self.held.first_key_value().filter(|(&start, _)| start < una) {
            self.remove(start);
            if end > una {
                self.insert(una, end);
            }
        }
    }

    /// The range that holds `at`, or ends there.
    pub fn range_of(&self, at: Offset) -> Option<(Offset, Offset)> {
        self.held.range(..=at).next_back().map(|(&start, &end)| (start, end)).filter(|&(_, end)| end >= at)
    }

    /// Forgets everything, because the receiver may have reneged (RFC 2018 section 8, after a timeout).
    pub fn clear(&mut self) {
        self.held.clear();
        self.bytes = 0;
        self.resent.clear();
        self.high_rxt = Offset::SYN;
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// IsLost of RFC 6675: at least three ranges, or more than two segments' worth of bytes, are held above `at`.
    pub fn is_lost(&self, at: Offset, mss: u64) -> bool {
        let (mut ranges, mut bytes) = (0, 0);
        for (start, end) in self.held.range(at..) {
            ranges += 1;
            bytes += end.since(*start);
            if ranges >= 3 || bytes > 2 * mss {
                return true;
            }
        }
        false
    }

    /// SetPipe of RFC 6675: the estimate of bytes in the network, of those between `una` and `max`.
    pub fn pipe(&self, una: Offset, max: Offset, mss: u64) -> u64 {
        let mut pipe = 0;
        for (start, end) in self.holes(una, max) {
            // Above the last range nothing is lost; below, a hole is lost or not as a whole.
            if !self.is_lost(start, mss) {
                pipe += end.since(start);
            }
            pipe += self.high_rxt.clamp(start, end).since(start);
        }
        pipe
    }

    /// NextSeg rule 1 of RFC 6675: the next lost segment to retransmit, as its first byte and length.
    pub fn next_lost(&self, una: Offset, max: Offset, mss: u64) -> Option<(Offset, u64)> {
        self.holes(una, max)
            .map(|(start, end)| (start.max(self.high_rxt), end))
            .find(|&(start, end)| start < end && self.is_lost(start, mss))
            .map(|(start, end)| (start, end.since(start).min(mss)))
    }

    /// The next segment below the highest block that was not retransmitted in this recovery: rule 3 of RFC 6675's
    /// NextSeg, and the whole choice of the 1996 sender.
    pub fn next_missing(&self, una: Offset, mss: u64) -> Option<(Offset, u64)> {
        self.holes(una, una)
            .map(|(start, end)| (start.max(self.high_rxt), end))
            .find(|&(start, end)| start < end)
            .map(|(start, end)| (start, end.since(start).min(mss)))
    }

    /// SMART: the next missing segment that was not retransmitted within `rtt`.
    pub fn next_smart(&self, una: Offset, mss: u64, now: Time, rtt: Duration) -> Option<(Offset, u64)> {
        self.holes(una, una).find_map(|(mut start, end)| {
            while start < end {
                let length = end.since(start).min(mss);
                if self.resent.get(&start).is_none_or(|&at| now - at >= rtt) {
                    return Some((start, length));
                }
                start += length;
            }
            None
        })
    }

    /// SMART: the segment at `at` is retransmitted.
    pub fn on_retransmit(&mut self, at: Offset, now: Time) {
        self.resent.insert(at, now);
    }

    /// SMART's estimate of bytes in the network: what is above the highest block, and what was retransmitted below.
    pub fn smart_pipe(&self, una: Offset, max: Offset, mss: u64) -> u64 {
        let highest = self.held.last_key_value().map_or(una, |(_, &end)| end);
        let resent = self.resent.range(una..highest).filter(|(&at, _)| self.skip_held(at) == at).count() as u64;
        max.since(highest) + resent * mss
    }

    /// Bytes that may be sent from `at` on before the next held range.
    #[inline]
    pub fn room(&self, at: Offset) -> u64 {
        // A search costs more than this test, and nothing is held most of the time.
        if self.is_empty() {
            return u64::MAX;
        }
        self.room_before_held(at)
    }

    fn room_before_held(&self, at: Offset) -> u64 {
        self.held.range(at..).next().map_or(u64::MAX, |(&start, _)| start.since(at))
    }

    /// The first byte at or after `at` that is not held.
    #[inline]
    pub fn skip_held(&self, at: Offset) -> Offset {
        if self.is_empty() {
            return at;
        }
        self.end_of_held(at)
    }

    /// The end of the range that holds `at`, or `at`.
    fn end_of_held(&self, at: Offset) -> Offset {
        match self.held.range(..=at).next_back() {
            Some((_, &end)) if end > at => end,
            _ => at,
        }
    }

    fn holes(&self, una: Offset, max: Offset) -> impl Iterator<Item = (Offset, Offset)> + '_ {
        let starts = std::iter::once(una).chain(self.held.values().copied());
        let ends = self.held.keys().copied().chain(std::iter::once(max));
        starts.zip(ends).filter(|(start, end)| start < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(una: i64, blocks: &[(i64, i64)]) -> Scoreboard {
        let mut board = Scoreboard::default();
        update(&mut board, una, blocks);
        board
    }

    fn update(board: &mut Scoreboard, una: i64, blocks: &[(i64, i64)]) -> bool {
        board.update(Offset(una), blocks.iter().map(|&(start, end)| (Offset(start), Offset(end))))
    }

    const UNA: Offset = Offset(1000);
    const MAX: Offset = Offset(9000);

    fn segment(at: i64) -> Option<(Offset, u64)> {
        Some((Offset(at), 1000))
    }

    #[test]
    fn three_segments_above_make_a_hole_lost() {
        let board = held(1000, &[(2000, 4000)]);
        assert!(!board.is_lost(UNA, 1000));
        let board = held(1000, &[(2000, 5000)]);
        assert!(board.is_lost(UNA, 1000));
        assert_eq!(board.next_lost(UNA, MAX, 1000), segment(1000));
        // 8000 outstanding: 3000 held, 1000 lost.
        assert_eq!(board.pipe(UNA, MAX, 1000), 4000);
    }

    #[test]
    fn what_was_retransmitted_counts_and_is_not_chosen_again() {
        let mut board = held(1000, &[(2000, 3000), (4000, 8000)]);
        board.high_rxt = Offset(2000);
        assert_eq!(board.next_lost(UNA, MAX, 1000), segment(3000));
        assert_eq!(board.pipe(UNA, MAX, 1000), 2000);
    }

    #[test]
    fn the_1996_sender_takes_every_hole_below_the_highest_block_once() {
        let mut board = held(1000, &[(2000, 3000), (4000, 5000)]);
        assert_eq!(board.next_missing(UNA, 1000), segment(1000));
        board.high_rxt = Offset(2000);
        assert_eq!(board.next_missing(UNA, 1000), segment(3000));
        board.high_rxt = Offset(4000);
        assert_eq!(board.next_missing(UNA, 1000), None);
    }

    #[test]
    fn smart_retransmits_a_missing_segment_once_a_round_trip() {
        let mut board = held(1000, &[(3000, 4000)]);
        let rtt = Duration::from_millis(100);
        let at = |ms: u64| Time(ms * 1_000_000);
        assert_eq!(board.next_smart(UNA, 1000, at(0), rtt), segment(1000));
        board.on_retransmit(Offset(1000), at(0));
        assert_eq!(board.next_smart(UNA, 1000, at(1), rtt), segment(2000));
        board.on_retransmit(Offset(2000), at(1));
        assert_eq!(board.next_smart(UNA, 1000, at(99), rtt), None);
        assert_eq!(board.smart_pipe(UNA, Offset(6000), 1000), 4000);
        assert_eq!(board.next_smart(UNA, 1000, at(100), rtt), segment(1000));
    }

    #[test]
    fn overlapping_blocks_merge_and_acks_forget() {
        let mut board = held(0, &[(10, 20), (30, 40), (15, 32)]);
        assert_eq!(board.bytes(), 30);
        assert!(!update(&mut board, 0, &[(12, 38)]));
        assert!(!update(&mut board, 25, &[]));
        assert_eq!((board.bytes(), board.skip_held(Offset(26)), board.room(Offset(0))), (15, Offset(40), 25));
    }
}
