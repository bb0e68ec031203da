//! The sender's record of selective acknowledgments (RFC 2018), and what follows from it: which bytes are lost and how
//! many are in flight (RFC 6675). Numbers are stream offsets.

use std::collections::BTreeMap;
use std::time::Duration;

use backchannel_core::time::Time;

/// How a sender reads selective acknowledgments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// RFC 6675: three segments' worth above a hole make it lost; the pipe follows from the board.
    Rfc6675,
    /// The sender of 1996 (Fall and Floyd's sack1, which ton cites): after the third duplicate ack every hole below the
    /// highest block is missing; the pipe is counted up by what is sent and down by what duplicates say has left.
    Sack1996,
    /// SMART as in ton III-A: a hole is lost at once; a segment is sent again unless it was within the last round trip.
    Smart,
    /// Nothing: the blocks are for somebody on the way, such as a base station (ton III-B), and the sender is as without.
    Ignored,
}

/// What the receiver has said it holds above the cumulative ack.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    /// Disjoint ranges, start to end.
    held: BTreeMap<u64, u64>,
    /// Bytes in them.
    bytes: u64,
    /// One beyond the highest byte sent again in this recovery.
    pub high_rxt: u64,
    /// The 1996 sender's count of bytes in the network.
    pub counted: i64,
    /// SMART: when what was sent again went last, by its first byte.
    resent: BTreeMap<u64, Time>,
}

impl Scoreboard {
    /// Takes an ack: everything below `una` is settled, `blocks` (start, end) are held. Returns whether it told anything
    /// new.
    pub fn update(&mut self, una: u64, blocks: impl Iterator<Item = (u64, u64)>) -> bool {
        let before = self.bytes();
        let mut news = false;
        for (start, end) in blocks {
            let start = start.max(una);
            if start < end {
                self.add(start, end);
            }
        }
        news |= self.bytes() > before;
        self.forget_below(una);
        news
    }

    fn add(&mut self, mut start: u64, mut end: u64) {
        let touching: Vec<_> =
            self.held.range(..=end).rev().take_while(|(_, &to)| to >= start).map(|(&from, &to)| (from, to)).collect();
        for (from, to) in touching {
            start = start.min(from);
            end = end.max(to);
            self.remove(from);
        }
        self.insert(start, end);
    }

    fn insert(&mut self, start: u64, end: u64) {
        self.held.insert(start, end);
        self.bytes += end - start;
    }

    fn remove(&mut self, start: u64) {
        self.bytes -= self.held.remove(&start).map_or(0, |end| end - start);
    }

    fn forget_below(&mut self, una: u64) {
        self.resent = self.resent.split_off(&una);
        while let Some((&start, &end)) = self.held.first_key_value() {
            if start >= una {
                break;
            }
            self.remove(start);
            if end > una {
                self.insert(una, end);
            }
        }
    }

    /// The range that holds `at`, or ends there.
    pub fn range_of(&self, at: u64) -> Option<(u64, u64)> {
        self.held.range(..=at).next_back().map(|(&start, &end)| (start, end)).filter(|&(_, end)| end >= at)
    }

    /// Forgets everything (the receiver may have reneged: RFC 2018 section 8, after a timeout).
    pub fn clear(&mut self) {
        self.held.clear();
        self.bytes = 0;
        self.resent.clear();
        self.high_rxt = 0;
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
    pub fn is_lost(&self, at: u64, mss: u64) -> bool {
        let above = self.held.range(at..);
        let (mut ranges, mut bytes) = (0, 0);
        for (start, end) in above {
            ranges += 1;
            bytes += end - start;
            if ranges >= 3 || bytes > 2 * mss {
                return true;
            }
        }
        false
    }

    /// SetPipe of RFC 6675: bytes thought to be in the network, of those between `una` and `max`.
    pub fn pipe(&self, una: u64, max: u64, mss: u64) -> u64 {
        let mut pipe = 0;
        for (start, end) in self.holes(una, max) {
            // Above the last range nothing is lost; below, a hole is lost or not as a whole (its end decides).
            if !self.is_lost(start, mss) {
                pipe += end - start;
            }
            pipe += self.high_rxt.clamp(start, end) - start;
        }
        pipe
    }

    /// NextSeg rule 1 of RFC 6675: the next lost byte to send again, and how many of its hole.
    pub fn next_lost(&self, una: u64, max: u64, mss: u64) -> Option<(u64, u64)> {
        self.holes(una, max)
            .map(|(start, end)| (start.max(self.high_rxt), end))
            .find(|&(start, end)| start < end && self.is_lost(start, mss))
            .map(|(start, end)| (start, (end - start).min(mss)))
    }

    /// The next hole below the highest block that was not sent again in this recovery: rule 3 of RFC 6675's NextSeg, and
    /// the whole choice of the 1996 sender.
    pub fn next_missing(&self, una: u64, mss: u64) -> Option<(u64, u64)> {
        self.holes(una, una)
            .map(|(start, end)| (start.max(self.high_rxt), end))
            .find(|&(start, end)| start < end)
            .map(|(start, end)| (start, (end - start).min(mss)))
    }

    /// SMART: the next missing segment that was not sent again within `rtt`.
    pub fn next_smart(&self, una: u64, mss: u64, now: Time, rtt: Duration) -> Option<(u64, u64)> {
        self.holes(una, una).find_map(|(mut start, end)| {
            while start < end {
                if self.resent.get(&start).is_none_or(|&at| now - at >= rtt) {
                    return Some((start, (end - start).min(mss)));
                }
                start += (end - start).min(mss);
            }
            None
        })
    }

    /// SMART: a segment at `at` goes again.
    pub fn note_resent(&mut self, at: u64, now: Time) {
        self.resent.insert(at, now);
    }

    /// SMART's estimate of bytes in the network: what is above the highest block, and what was sent again below.
    pub fn smart_pipe(&self, una: u64, max: u64, mss: u64) -> u64 {
        let highest = self.held.last_key_value().map_or(una, |(_, &end)| end);
        let again = self.resent.range(una..highest).filter(|(&at, _)| self.skip_held(at) == at).count() as u64;
        max.saturating_sub(highest) + again * mss
    }

    /// End of what may be sent from `at`: up to the next held range.
    pub fn room(&self, at: u64) -> u64 {
        self.held.range(at..).next().map_or(u64::MAX, |(&start, _)| start - at)
    }

    /// The first byte at or after `at` that is not held.
    pub fn skip_held(&self, at: u64) -> u64 {
        match self.held.range(..=at).next_back() {
            Some((_, &end)) if end > at => end,
            _ => at,
        }
    }

    fn holes(&self, una: u64, max: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let starts = std::iter::once(una).chain(self.held.values().copied());
        let ends = self.held.keys().copied().chain(std::iter::once(max));
        starts.zip(ends).filter(|(start, end)| start < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(una: u64, blocks: &[(u64, u64)]) -> Scoreboard {
        let mut board = Scoreboard::default();
        board.update(una, blocks.iter().copied());
        board
    }

    #[test]
    fn three_segments_above_make_a_hole_lost() {
        let board = held(1000, &[(2000, 4000)]);
        assert!(!board.is_lost(1000, 1000));
        let board = held(1000, &[(2000, 5000)]);
        assert!(board.is_lost(1000, 1000));
        assert_eq!(board.next_lost(1000, 9000, 1000), Some((1000, 1000)));
        // 8000 outstanding: 3000 held, 1000 lost.
        assert_eq!(board.pipe(1000, 9000, 1000), 4000);
    }

    #[test]
    fn what_was_sent_again_counts_and_is_not_chosen_again() {
        let mut board = held(1000, &[(2000, 3000), (4000, 8000)]);
        board.high_rxt = 2000;
        assert_eq!(board.next_lost(1000, 9000, 1000), Some((3000, 1000)));
        assert_eq!(board.pipe(1000, 9000, 1000), 2000);
    }

    #[test]
    fn the_1996_sender_takes_every_hole_below_the_highest_block_once() {
        let mut board = held(1000, &[(2000, 3000), (4000, 5000)]);
        assert_eq!(board.next_missing(1000, 1000), Some((1000, 1000)));
        board.high_rxt = 2000;
        assert_eq!(board.next_missing(1000, 1000), Some((3000, 1000)));
        board.high_rxt = 4000;
        assert_eq!(board.next_missing(1000, 1000), None);
    }

    #[test]
    fn smart_sends_a_missing_segment_again_once_a_round_trip() {
        let mut board = held(1000, &[(3000, 4000)]);
        let rtt = Duration::from_millis(100);
        let at = |ms: u64| Time(ms * 1_000_000);
        assert_eq!(board.next_smart(1000, 1000, at(0), rtt), Some((1000, 1000)));
        board.note_resent(1000, at(0));
        assert_eq!(board.next_smart(1000, 1000, at(1), rtt), Some((2000, 1000)));
        board.note_resent(2000, at(1));
        assert_eq!(board.next_smart(1000, 1000, at(99), rtt), None);
        assert_eq!(board.smart_pipe(1000, 6000, 1000), 4000);
        assert_eq!(board.next_smart(1000, 1000, at(100), rtt), Some((1000, 1000)));
    }

    #[test]
    fn overlapping_blocks_merge_and_acks_forget() {
        let mut board = held(0, &[(10, 20), (30, 40), (15, 32)]);
        assert_eq!(board.bytes(), 30);
        assert!(!board.update(0, [(12, 38)].into_iter()));
        assert!(!board.update(25, std::iter::empty()));
        assert_eq!((board.bytes(), board.skip_held(26), board.room(0)), (15, 40, 25));
    }
}
