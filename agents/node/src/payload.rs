//! The byte stream of a flow: the research stack's pattern for a seed, so that the receiver can check every byte.

use backchannel_emulator::monotonic_ns;
use backchannel_stacks::pattern;

/// Bytes generated at a time.
const BLOCK: u64 = 65_536;
/// Bytes that are hashed at a time: the hash of many takes a fraction of the time of one segment after another.
const HASHED_BYTES: usize = 65_536;

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
            self.block = pattern(self.seed, self.at, BLOCK);
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

/// The BLAKE3 hash of a stream.
#[derive(Default)]
pub struct StreamHash {
    hasher: blake3::Hasher,
    /// What is not in the hash yet.
    waiting: Vec<u8>,
}

impl StreamHash {
    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= HASHED_BYTES {
            self.hasher.update(&self.waiting);
            self.waiting.clear();
        }
    }

    /// The hash of all so far, in hexadecimal.
    pub fn hex(&self) -> String {
        self.hasher.clone().update(&self.waiting).finalize().to_hex().to_string()
    }
}

/// Compares what arrives on a connection with what should arrive.
pub struct Check {
    expected: Payload,
    /// Whether every byte is as expected.
    pub intact: bool,
    /// Bytes so far.
    pub bytes: u64,
    /// When the first and the last of them were read, on CLOCK_MONOTONIC.
    pub first_ns: Option<u64>,
    pub last_ns: Option<u64>,
    /// `None`: not wanted.
    pub hash: Option<StreamHash>,
}

impl Check {
    /// The stream of a seed, which is hashed or not.
    pub fn new(seed: u64, hashed: bool) -> Check {
        let hash = hashed.then(StreamHash::default);
        Check { expected: Payload::new(seed), intact: true, bytes: 0, first_ns: None, last_ns: None, hash }
    }

    /// The next bytes of the stream.
    pub fn check(&mut self, mut bytes: &[u8]) {
        let now = monotonic_ns();
        self.first_ns.get_or_insert(now);
        self.last_ns = Some(now);
        self.bytes += bytes.len() as u64;
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        while !bytes.is_empty() {
            let expected = self.expected.peek();
            let n = expected.len().min(bytes.len());
            self.intact &= bytes[..n] == expected[..n];
            self.expected.advance(n);
            bytes = &bytes[n..];
        }
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
        assert_eq!(whole, pattern(7, 0, 200_000));
        assert_ne!(whole, take(&mut Payload::new(8), 200_000, 1447));
    }

    #[test]
    fn the_hash_is_that_of_all_bytes_however_they_arrive() {
        let stream = pattern(3, 0, 200_000);
        for length in [0, 1000, HASHED_BYTES, stream.len()] {
            let mut check = Check::new(3, true);
            stream[..length].chunks(1448).for_each(|part| check.check(part));
            assert_eq!(check.hash.unwrap().hex(), blake3::hash(&stream[..length]).to_hex().to_string());
            assert!(check.intact);
        }
    }

    #[test]
    fn a_single_wrong_byte_is_detected() {
        let stream = pattern(3, 0, 1000);
        let mut bad = stream.clone();
        bad[700] ^= 1;
        for (bytes, intact) in [(stream, true), (bad, false)] {
            let mut check = Check::new(3, false);
            check.check(&bytes[..400]);
            check.check(&bytes[400..]);
            assert_eq!(check.intact, intact);
        }
    }
}
