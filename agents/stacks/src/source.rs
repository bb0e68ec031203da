//! What an application sends: a number of bytes, or no end of them; zeros, a pattern that a receiver can check, or what
//! another connection has brought.

use std::collections::VecDeque;

use crate::receive::Arrived;

/// What the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zeros, which cost nothing to carry in virtual time.
    Zeros,
    /// A pattern of this seed, any part of which can be made again.
    Pattern(u64),
    /// What is handed over piece by piece, kept until the peer has it.
    Relayed,
}

/// The application's side of a sending half.
#[derive(Clone, Debug)]
pub struct Source {
    content: Content,
    total: Option<u64>,
    finished: bool,
    /// Of relayed bytes, those that the peer may yet need: offset to piece, without gaps.
    kept: VecDeque<(u64, Arrived)>,
}

impl Source {
    /// `total` bytes, then the end; `None`: no end, until [`Source::finish`].
    pub fn new(content: Content, total: Option<u64>) -> Source {
        Source { content, total, finished: total.is_some(), kept: VecDeque::new() }
    }

    /// Nothing at all: a side that only receives, and stays open until it is told to finish.
    pub fn silent() -> Source {
        Source { finished: false, ..Source::new(Content::Zeros, Some(0)) }
    }

    /// The application passes on what another connection brings: nothing so far.
    pub fn relay() -> Source {
        Source { finished: false, ..Source::new(Content::Relayed, Some(0)) }
    }

    /// Whether it passes on what another connection brings.
    pub fn relays(&self) -> bool {
        self.content == Content::Relayed
    }

    /// Bytes given so far.
    pub fn given(&self) -> u64 {
        self.total.unwrap_or(1 << 62)
    }

    /// Bytes in all, if there is an end.
    pub fn end(&self) -> Option<u64> {
        self.total
    }

    /// Whether no more will come.
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// `bytes` more are to be sent; nothing changes once the end was told, or where there is none.
    pub fn give(&mut self, bytes: u64) {
        if !self.finished {
            self.total = self.total.map(|total| total + bytes);
        }
    }

    /// The next piece of a relay; nothing changes once the end was told.
    pub fn hand_over(&mut self, piece: Arrived) {
        debug_assert!(self.relays());
        if self.finished || piece.is_empty() {
            return;
        }
        let at = self.given();
        self.total = Some(at + piece.len());
        match self.kept.back_mut() {
            // Zeros behind zeros: virtual data stay one piece.
            Some((_, last)) if piece.bytes.is_empty() => last.zeros += piece.zeros,
            _ => self.kept.push_back((at, piece)),
        }
    }

    /// The peer has everything before `at`: a relay keeps it no longer.
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

    /// Bytes of a relay that the peer may yet need.
    pub fn kept(&self) -> u64 {
        self.kept.iter().map(|(_, piece)| piece.len()).sum()
    }

    /// No more will come than was given; an endless source ends at the `sent` bytes that have gone.
    pub fn finish(&mut self, sent: u64) {
        self.total.get_or_insert(sent);
        self.finished = true;
    }

    /// The bytes from `at` on, counted from 0; what is missing of `length` at their end stands for zeros.
    pub fn bytes(&self, at: u64, length: u64) -> Vec<u8> {
        match self.content {
            Content::Zeros => Vec::new(),
            Content::Pattern(seed) => (at..at + length).map(|at| pattern(seed, at)).collect(),
            Content::Relayed => self.kept_bytes(at, at + length),
        }
    }

    /// The given bytes of a range, with the zeros between them.
    fn kept_bytes(&self, from: u64, to: u64) -> Vec<u8> {
        debug_assert!(from == to || self.kept.front().is_some_and(|&(start, _)| start <= from), "it was forgotten");
        let first = self.kept.partition_point(|(start, piece)| start + piece.len() <= from);
        let mut all = Vec::new();
        for (start, piece) in self.kept.range(first..).take_while(|&&(start, _)| start < to) {
            let within = |at: u64| at.saturating_sub(*start).min(piece.bytes.len() as u64) as usize;
            let given = &piece.bytes[within(from)..within(to)];
            if !given.is_empty() {
                all.resize((from.max(*start) - from) as usize, 0);
                all.extend_from_slice(given);
            }
        }
        all
    }
}

/// Byte `at` of a seed's pattern: a byte of the splitmix64 output for its word.
pub fn pattern(seed: u64, at: u64) -> u8 {
    let mut z = seed.wrapping_add((at / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_be_bytes()[(at % 8) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Any part that is not forgotten comes back as it was handed over, zeros and bytes alike.
        #[test]
        fn a_relay_gives_back_what_it_was_given(
            pieces in proptest::collection::vec((proptest::collection::vec(1u8.., 0..40), 0u64..40), 1..20),
            parts in proptest::collection::vec((0.0f64..1.0, 0.0f64..1.0, 0.0f64..1.0), 1..20),
        ) {
            let mut source = Source::relay();
            let mut stream = Vec::new();
            for (bytes, zeros) in pieces {
                stream.extend_from_slice(&bytes);
                stream.resize(stream.len() + zeros as usize, 0);
                source.hand_over(Arrived { bytes, zeros });
            }
            prop_assert_eq!(source.given(), stream.len() as u64);
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

    #[test]
    fn virtual_data_stay_one_piece() {
        let mut source = Source::relay();
        (0..1000).for_each(|_| source.hand_over(Arrived { bytes: Vec::new(), zeros: 1400 }));
        assert_eq!((source.kept.len(), source.kept()), (1, 1_400_000));
        source.finish(0);
        source.hand_over(Arrived { bytes: vec![1], zeros: 0 });
        assert_eq!(source.given(), 1_400_000, "the end was told");
    }
}
