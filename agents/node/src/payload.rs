//! The byte stream of a flow: a keystream of its seed, so that the receiver knows what must come.

use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Bytes made at a time.
const BLOCK: usize = 65_536;

/// An endless stream.
pub struct Payload {
    rng: ChaCha8Rng,
    block: Vec<u8>,
    used: usize,
}

impl Payload {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Payload {
        Payload { rng: ChaCha8Rng::seed_from_u64(seed), block: vec![0; BLOCK], used: BLOCK }
    }

    /// The next bytes, at least one; [`Payload::advance`] says how many were used.
    pub fn peek(&mut self) -> &[u8] {
        if self.used == BLOCK {
            self.rng.fill_bytes(&mut self.block);
            self.used = 0;
        }
        &self.block[self.used..]
    }

    /// Moves on by `n` bytes, no more than [`Payload::peek`] showed.
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
    fn the_stream_is_the_seeds_however_it_is_cut() {
        let whole = take(&mut Payload::new(7), 200_000, usize::MAX);
        assert_eq!(whole, take(&mut Payload::new(7), 200_000, 1447));
        assert_ne!(whole, take(&mut Payload::new(8), 200_000, 1447));
    }
}
