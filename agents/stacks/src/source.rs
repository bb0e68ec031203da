//! What an application sends: a number of bytes or an endless stream, of zeros, of a pattern that a receiver can check,
//! or of what another connection has received.

use std::collections::VecDeque;

use backchannel_core::transport::{Chunk, ENDLESS};

/// What the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zeros.
    Zeros,
    /// The pattern of a seed ([`pattern`]).
    Pattern(u64),
    /// What [`Source::push`] adds, kept until the peer has acknowledged it.
    Relayed,
}

/// The application's side of a sending half.
#[derive(Clone, Debug)]
pub struct Source {
    content: Content,
    /// Bytes to send so far; [`ENDLESS`]: no end.
    total: u64,
    /// Whether `total` is final.
    finished: bool,
    /// Of relayed bytes, those that the peer has not acknowledged, with their place in the stream. Without gaps, and up
    /// to `total`.
    kept: VecDeque<(u64, Chunk)>,
}

impl Source {
    /// `total` bytes, then the end; `None`: no end, until [`Source::finish`].
    pub fn new(content: Content, total: Option<u64>) -> Source {
        Source { content, total: total.unwrap_or(ENDLESS), finished: total.is_some(), kept: VecDeque::new() }
    }

    /// Nothing: a side that only receives, and stays open until [`Source::finish`].
    pub fn silent() -> Source {
        Source::written(Content::Zeros)
    }

    /// What [`Source::extend`] adds, until [`Source::finish`].
    pub fn written(content: Content) -> Source {
        Source { finished: false, ..Source::new(content, Some(0)) }
    }

    /// What another connection receives, added with [`Source::push`].
    pub fn relay() -> Source {
        Source::written(Content::Relayed)
    }

    /// Whether it relays another connection.
    pub fn relays(&self) -> bool {
        self.content == Content::Relayed
    }

    /// Bytes to send so far; more than any run can send for an endless source.
    pub fn available(&self) -> u64 {
        self.total
    }

    /// Bytes to send so far; `None` for an endless source.
    pub fn end(&self) -> Option<u64> {
        (self.total != ENDLESS).then_some(self.total)
    }

    /// Whether no more will follow.
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// Adds `bytes` to send. Nothing changes after [`Source::finish`], nor for an endless source.
    pub fn extend(&mut self, bytes: u64) {
        if !self.finished && self.total != ENDLESS {
            self.total += bytes;
        }
    }

    /// Adds the next chunk of a relay. Nothing changes after [`Source::finish`].
    pub fn push(&mut self, piece: Chunk) {
        debug_assert!(self.relays());
        if self.finished || piece.is_empty() {
            return;
        }
        let at = self.available();
        self.total = at + piece.len();
        match self.kept.back_mut() {
            // Zeros behind zeros: virtual data stay one chunk.
            Some((_, last)) if piece.bytes.is_empty() => last.zeros += piece.zeros,
            _ => self.kept.push_back((at, piece)),
        }
    }

    /// The peer has acknowledged everything before `at`: a relay drops it.
    pub fn forget_before(&mut self, at: u64) {
        while let Some((start, piece)) = self.kept.front_mut() {
            let done = at.saturating_sub(*start).min(piece.len());
            if done < piece.len() {
                piece.skip(done);
                *start += done;
                return;
            }
            self.kept.pop_front();
        }
    }

    /// Bytes of a relay that the peer has not acknowledged.
    pub fn kept(&self) -> u64 {
        self.kept.iter().map(|(_, piece)| piece.len()).sum()
    }

    /// No more follows. An endless source ends after the `sent` bytes that were sent.
    pub fn finish(&mut self, sent: u64) {
        if self.total == ENDLESS {
            self.total = sent;
        }
        self.finished = true;
    }

    /// `length` bytes from `at` on, counted from 0. Where fewer are returned, zeros follow.
    #[inline]
    pub fn bytes(&self, at: u64, length: u64) -> Vec<u8> {
        match self.content {
            Content::Zeros => Vec::new(),
            Content::Pattern(seed) => pattern(seed, at, length),
            Content::Relayed => self.kept_bytes(at, at + length),
        }
    }

    /// The stored bytes of a range, with the zeros between them.
    fn kept_bytes(&self, from: u64, to: u64) -> Vec<u8> {
        debug_assert!(from == to || self.kept.front().is_some_and(|&(start, _)| start <= from), "it was dropped");
        let first = self.kept.partition_point(|(start, piece)| start + piece.len() <= from);
        let mut all = Vec::new();
        for (start, piece) in self.kept.range(first..).take_while(|&&(start, _)| start < to) {
            let within = |at: u64| at.saturating_sub(*start).min(piece.bytes.len() as u64) as usize;
            let stored = &piece.bytes[within(from)..within(to)];
            if !stored.is_empty() {
                all.resize((from.max(*start) - from) as usize, 0);
                all.extend_from_slice(stored);
            }
        }
        all
    }
}

/// `length` bytes of a seed's pattern from `at` on: splitmix64 outputs in a row, so any part can be computed alone.
pub fn pattern(seed: u64, at: u64, length: u64) -> Vec<u8> {
    let end = at + length;
    let (first, last) = (at / 8, end.div_ceil(8));
    let mut bytes = vec![0; (last - first) as usize * 8];
    for (place, number) in bytes.chunks_exact_mut(8).zip(first..) {
        place.copy_from_slice(&word(seed, number).to_be_bytes());
    }
    bytes.truncate((end - first * 8) as usize);
    bytes.drain(..(at % 8) as usize);
    bytes
}

/// A splitmix64 output, the first of a seed being number 0.
fn word(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Any part that is not acknowledged comes back as it was pushed, zeros and bytes alike.
        #[test]
        fn a_relay_returns_what_was_pushed(
            pieces in proptest::collection::vec((proptest::collection::vec(1u8.., 0..40), 0u64..40), 1..20),
            parts in proptest::collection::vec((0.0f64..1.0, 0.0f64..1.0, 0.0f64..1.0), 1..20),
        ) {
            let mut source = Source::relay();
            let mut stream = Vec::new();
            for (bytes, zeros) in pieces {
                stream.extend_from_slice(&bytes);
                stream.resize(stream.len() + zeros as usize, 0);
                source.push(Chunk { bytes, zeros });
            }
            prop_assert_eq!(source.available(), stream.len() as u64);
            let mut forgotten = 0;
            for (forget, from, length) in parts {
                let upto = |low: usize, share: f64| low + ((stream.len() - low) as f64 * share) as usize;
                forgotten = upto(forgotten, forget / 4.0);
                source.forget_before(forgotten as u64);
                prop_assert_eq!(source.kept(), (stream.len() - forgotten) as u64);
                let from = upto(forgotten, from);
                let to = upto(from, length);
                if from < to {
                    let mut bytes = source.bytes(from as u64, (to - from) as u64);
                    prop_assert!(bytes.len() <= to - from && bytes.last() != Some(&0), "trailing zeros are not spelled out");
                    bytes.resize(to - from, 0);
                    prop_assert_eq!(&bytes[..], &stream[from..to]);
                }
            }
        }
    }

    /// The first outputs of splitmix64 for the seed 1234567, as its authors' program prints them.
    const SPLITMIX64: [u64; 3] = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];

    #[test]
    fn any_part_of_a_pattern_is_that_part_of_the_generators_output() {
        let stream: Vec<u8> = SPLITMIX64.iter().flat_map(|word| word.to_be_bytes()).collect();
        let source = Source::new(Content::Pattern(1_234_567), None);
        for from in 0..stream.len() {
            for to in from..=stream.len() {
                assert_eq!(source.bytes(from as u64, (to - from) as u64), &stream[from..to], "{from}..{to}");
            }
        }
    }

    #[test]
    fn virtual_data_stay_one_chunk() {
        let mut source = Source::relay();
        (0..1000).for_each(|_| source.push(Chunk { bytes: Vec::new(), zeros: 1400 }));
        assert_eq!((source.kept.len(), source.kept()), (1, 1_400_000));
        source.finish(0);
        source.push(Chunk { bytes: vec![1], zeros: 0 });
        assert_eq!(source.available(), 1_400_000, "it was finished");
    }
}
