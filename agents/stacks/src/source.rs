//! What an application sends: a number of bytes, or no end of them; zeros, or a pattern that a receiver can check.

/// What the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zeros, which cost nothing to carry in virtual time.
    Zeros,
    /// A pattern of this seed, any part of which can be made again.
    Pattern(u64),
}

/// The application's side of a sending half.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    content: Content,
    total: Option<u64>,
    finished: bool,
}

impl Source {
    /// `total` bytes, then the end; `None`: no end, until [`Source::finish`].
    pub fn new(content: Content, total: Option<u64>) -> Source {
        Source { content, total, finished: total.is_some() }
    }

    /// Nothing at all: a side that only receives, and stays open until it is told to finish.
    pub fn silent() -> Source {
        Source { content: Content::Zeros, total: Some(0), finished: false }
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

    /// No more will come than was given; an endless source ends at the `sent` bytes that have gone.
    pub fn finish(&mut self, sent: u64) {
        self.total.get_or_insert(sent);
        self.finished = true;
    }

    /// The bytes from `at` on, counted from 0; empty stands for zeros.
    pub fn bytes(&self, at: u64, length: u64) -> Vec<u8> {
        match self.content {
            Content::Zeros => Vec::new(),
            Content::Pattern(seed) => (at..at + length).map(|at| pattern(seed, at)).collect(),
        }
    }
}

/// Byte `at` of a seed's pattern: a byte of the splitmix64 output for its word.
pub fn pattern(seed: u64, at: u64) -> u8 {
    let mut z = seed.wrapping_add((at / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_be_bytes()[(at % 8) as usize]
}
