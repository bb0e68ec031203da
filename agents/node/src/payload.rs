//! The byte stream of a flow: the research stack's pattern for a seed, so the receiver can check every byte.

use backchannel_stacks::{Content, Source};

/// Bytes generated at a time.
const BLOCK: u64 = 65_536;

/// An endless stream.
pub struct Payload {
    seed: u64,
    at: u64,
    block: Vec<u8>,
    used: usize,
}

impl Payload {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Payload {
        Payload { seed, at: 0, block: Vec::new(), used: 0 }
    }

    /// The next bytes, at least one.
    pub fn peek(&mut self) -> &[u8] {
        if self.used == self.block.len() {
            self.block = Source::new(Content::Pattern(self.seed), None).bytes(self.at, BLOCK);
            self.at += BLOCK;
            self.used = 0;
        }
        &self.block[self.used..]
    }

    /// Moves on by `n` bytes, at most as many as [`Payload::peek`] returned.
    pub fn advance(&mut self, n: usize) {
        self.used += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(payload: &mut Payload, mut n: usize, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while n > 0 {
            let part = payload.peek();
            let m = part.len().min(n).min(step);
            all.extend_from_slice(&part[..m]);
            payload.advance(m);
            n -= m;
        }
        all
    }

    #[test]
    fn the_stream_does_not_depend_on_how_it_is_cut() {
        let whole = take(&mut Payload::new(7), 200_000, usize::MAX);
        assert_eq!(whole, take(&mut Payload::new(7), 200_000, 1447));
        assert_eq!(whole, Source::new(Content::Pattern(7), None).bytes(0, 200_000));
        assert_ne!(whole, take(&mut Payload::new(8), 200_000, 1447));
    }
}
