//! The sender's record of selective acknowledgments (RFC 2018), and what follows from it: which bytes are lost, and how
//! many are in the network (RFC 6675).

use std::collections::BTreeMap;

use crate::seq::Offset;

/// What the receiver has reported to hold above the cumulative ack.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    /// Start to end. Ranges neither overlap nor touch, and lie above the last `una` of [`Scoreboard::update`].
    held: BTreeMap<Offset, Offset>,
    /// Bytes in them.
    bytes: u64,
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
        while let Some((&start, &end)) = self.held.first_key_value().filter(|(&start, _)| start < una) {
            self.remove(start);
            if end > una {
                self.insert(una, end);
            }
        }
    }

    /// The range that holds `at`, or ends there.
    #[inline]
    pub fn range_of(&self, at: Offset) -> Option<(Offset, Offset)> {
        self.held.range(..=at).next_back().map(|(&start, &end)| (start, end)).filter(|&(_, end)| end >= at)
    }

    /// The first part of a range that is held.
    pub fn first_in(&self, (start, end): (Offset, Offset)) -> Option<(Offset, Offset)> {
        let at_start = self.range_of(start).filter(|&(_, held)| held > start);
        let (first, held) =
            at_start.or_else(|| self.held.range(start..end).next().map(|(&first, &held)| (first, held)))?;
        Some((first.max(start), held.min(end)))
    }

    /// Forgets everything, because the receiver may have reneged (RFC 2018 section 8, after a timeout).
    pub fn clear(&mut self) {
        self.held.clear();
        self.bytes = 0;
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

    /// SetPipe of RFC 6675: the estimate of bytes in the network, of those between `una` and `max`. `high_rxt` is HighRxt:
    /// one beyond the highest byte retransmitted in this recovery.
    pub fn pipe(&self, una: Offset, max: Offset, high_rxt: Offset, mss: u64) -> u64 {
        let mut pipe = 0;
        for (start, end) in self.holes(una, max) {
            // Above the last range nothing is lost; below, a hole is lost or not as a whole.
            if !self.is_lost(start, mss) {
                pipe += end.since(start);
            }
            pipe += high_rxt.clamp(start, end).since(start);
        }
        pipe
    }

    /// NextSeg rule 1 of RFC 6675: the next lost segment to retransmit, as its first byte and length.
    pub fn next_lost(&self, una: Offset, max: Offset, high_rxt: Offset, mss: u64) -> Option<(Offset, u64)> {
        self.holes(una, max)
            .map(|(start, end)| (start.max(high_rxt), end))
            .find(|&(start, end)| start < end && self.is_lost(start, mss))
            .map(|(start, end)| (start, end.since(start).min(mss)))
    }

    /// The next segment below the highest block that was not retransmitted in this recovery: rule 3 of RFC 6675's
    /// NextSeg, and the whole choice of the 1996 sender.
    pub fn next_missing(&self, una: Offset, high_rxt: Offset, mss: u64) -> Option<(Offset, u64)> {
        self.holes(una, una)
            .map(|(start, end)| (start.max(high_rxt), end))
            .find(|&(start, end)| start < end)
            .map(|(start, end)| (start, end.since(start).min(mss)))
    }

    /// The end of the highest range.
    pub fn highest(&self) -> Option<Offset> {
        self.held.last_key_value().map(|(_, &end)| end)
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

    /// What is missing between `una` and `max`, or below the highest range if that is above.
    pub fn holes(&self, una: Offset, max: Offset) -> impl Iterator<Item = (Offset, Offset)> + '_ {
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
        assert_eq!(board.next_lost(UNA, MAX, Offset::SYN, 1000), segment(1000));
        // 8000 outstanding: 3000 held, 1000 lost.
        assert_eq!(board.pipe(UNA, MAX, Offset::SYN, 1000), 4000);
    }

    #[test]
    fn what_was_retransmitted_counts_and_is_not_chosen_again() {
        let board = held(1000, &[(2000, 3000), (4000, 8000)]);
        assert_eq!(board.next_lost(UNA, MAX, Offset(2000), 1000), segment(3000));
        assert_eq!(board.pipe(UNA, MAX, Offset(2000), 1000), 2000);
    }

    #[test]
    fn the_1996_sender_takes_every_hole_below_the_highest_block_once() {
        let board = held(1000, &[(2000, 3000), (4000, 5000)]);
        let next = |high_rxt| board.next_missing(UNA, Offset(high_rxt), 1000);
        assert_eq!([0, 2000, 4000].map(next), [segment(1000), segment(3000), None]);
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
