//! Data that arrived out of order, and the SACK blocks that describe them (RFC 2018).

use std::collections::BTreeMap;

use backchannel_core::transport::Chunk;

use crate::scoreboard::Scoreboard;
use crate::seq::Offset;

/// The most blocks that an ack can carry.
const RECENT: usize = 8;

/// Out-of-order data. The chunks do not overlap, lie beyond the next byte expected, and cover `ranges` exactly.
#[derive(Clone, Debug, Default)]
pub struct Reassembly {
    /// First byte to data.
    chunks: BTreeMap<Offset, Chunk>,
    /// The same as merged ranges.
    ranges: Scoreboard,
    /// A byte of each of the last ranges that data arrived for, the most recent first.
    recent: Vec<Offset>,
}

impl Reassembly {
    /// Bytes stored.
    pub fn bytes(&self) -> u64 {
        self.ranges.bytes()
    }

    /// The first part of a range that is stored.
    pub fn held(&self, range: (Offset, Offset)) -> Option<(Offset, Offset)> {
        self.ranges.first_in(range)
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Stores data that begin at `start`, beyond `next`. Where data are stored already, those stay.
    pub fn store(&mut self, next: Offset, mut start: Offset, mut data: Chunk) {
        self.ranges.update(next, std::iter::once((start, start + data.len())));
        if let Some((&before, held)) = self.chunks.range(..=start).next_back() {
            let end = before + held.len();
            if end > start {
                let overlap = end.since(start).min(data.len());
                data.skip(overlap);
                start += overlap;
            }
        }
        while !data.is_empty() {
            let following = self.chunks.range(start..).next().map(|(&at, held)| (at, at + held.len()));
            match following {
                Some((at, end)) if at < start + data.len() => {
                    if at > start {
                        let mut part = data.clone();
                        part.truncate(at.since(start));
                        self.chunks.insert(start, part);
                    }
                    let skip = end.since(start).min(data.len());
                    data.skip(skip);
                    start += skip;
                }
                _ => {
                    self.chunks.insert(start, data);
                    break;
                }
            }
        }
        self.recent.insert(0, start);
        self.recent.truncate(RECENT);
    }

    /// The next stored chunk in order, from `next` on, without what lies before it. Called until it returns `None`,
    /// then [`Reassembly::settle`].
    pub fn take_in_order(&mut self, next: Offset) -> Option<Chunk> {
        while self.chunks.first_key_value().is_some_and(|(&at, _)| at <= next) {
            let (at, mut chunk) = self.chunks.pop_first().expect("it is there");
            if at + chunk.len() > next {
                chunk.skip(next.since(at));
                return Some(chunk);
            }
        }
        None
    }

    /// Everything before `next` has arrived.
    pub fn settle(&mut self, next: Offset) {
        self.ranges.update(next, std::iter::empty());
    }

    /// SACK blocks, that of the last arrival first, at most `most` (RFC 2018 section 4).
    pub fn sack_blocks(&mut self, next: Offset, most: usize) -> Vec<(Offset, Offset)> {
        if self.chunks.is_empty() {
            self.recent.clear();
            return Vec::new();
        }
        let mut blocks: Vec<(Offset, Offset)> = Vec::new();
        for range in self.recent.iter().filter_map(|&at| self.ranges.range_of(at)) {
            if range.0 > next && !blocks.contains(&range) {
                blocks.push(range);
            }
        }
        blocks.truncate(most);
        blocks
    }
}
