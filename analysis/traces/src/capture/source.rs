//! The bytes of a capture behind a buffer, and the log of places that could not be read.

use std::io::{ErrorKind, Read};
use std::ops::Range;

use super::Damage;

/// Longest pcapng block that is parsed. A longer one that holds no packet is skipped.
pub(super) const MAX_BLOCK: usize = 1 << 19;
/// Bytes per read. Small enough to stay in the processor's cache.
pub(super) const CHUNK: usize = 1 << 16;
/// Bytes searched for the next record after damage.
const MAX_SEARCH: u64 = 64 << 20;
/// Entries of the damage log. Further damage is only counted.
const MAX_DAMAGE: usize = 100;

/// Byte order of a file's or a section's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endian {
    Little,
    Big,
}

impl Endian {
    #[inline(always)]
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let bytes = *bytes[at..].first_chunk().expect("the caller checked the length");
        match self {
            Endian::Little => u16::from_le_bytes(bytes),
            Endian::Big => u16::from_be_bytes(bytes),
        }
    }

    #[inline(always)]
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let bytes = *bytes[at..].first_chunk().expect("the caller checked the length");
        match self {
            Endian::Little => u32::from_le_bytes(bytes),
            Endian::Big => u32::from_be_bytes(bytes),
        }
    }

    pub(super) fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Endian::Little => u64::from_le_bytes(bytes),
            Endian::Big => u64::from_be_bytes(bytes),
        }
    }
}

/// An uncompressed capture.
pub(super) struct Source {
    input: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset of `start` in the uncompressed file.
    offset: u64,
    /// Why reading failed.
    failure: Option<String>,
    damage: Vec<Damage>,
    damages: u64,
    /// Nothing further can be read.
    ended: bool,
}

impl Source {
    pub(super) fn new(input: Box<dyn Read + Send>) -> Source {
        Source {
            input,
            buffer: vec![0; (MAX_BLOCK + CHUNK).next_power_of_two()],
            start: 0,
            end: 0,
            offset: 0,
            failure: None,
            damage: Vec::new(),
            damages: 0,
            ended: false,
        }
    }

    pub(super) fn buffered(&self) -> usize {
        self.end - self.start
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    #[inline(always)]
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    pub(super) fn damage(&self) -> &[Damage] {
        &self.damage
    }

    pub(super) fn damages(&self) -> u64 {
        self.damages
    }

    /// Makes `n` bytes available. Returns false if the file ends before.
    #[inline]
    pub(super) fn fill(&mut self, n: usize) -> bool {
        self.buffered() >= n || self.fill_more(n)
    }

    #[cold]
    fn fill_more(&mut self, n: usize) -> bool {
        debug_assert!(n <= self.buffer.len());
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        while self.end < n {
            let to = (self.end + CHUNK).min(self.buffer.len());
            match self.input.read(&mut self.buffer[self.end..to]) {
                Ok(0) => break,
                Ok(more) => self.end += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failure.get_or_insert_with(|| format!("reading failed: {error}"));
                    break;
                }
            }
        }
        self.end >= n
    }

    /// Consumes `n` buffered bytes. Returns where they are, for [`Source::slice`].
    #[inline(always)]
    pub(super) fn take(&mut self, n: usize) -> Range<usize> {
        let from = self.start;
        self.start += n;
        self.offset += n as u64;
        from..self.start
    }

    /// Bytes that [`Source::take`] returned, valid until the next `fill`.
    #[inline(always)]
    pub(super) fn slice(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Consumes `n` bytes, which may be more than the buffer holds. Returns how many the file had.
    fn skip(&mut self, n: u64) -> u64 {
        let mut left = n;
        while left > 0 && self.fill(1) {
            let step = left.min(self.buffered() as u64);
            self.take(step as usize);
            left -= step;
        }
        n - left
    }

    /// Consumes a block that is too long for the buffer.
    #[cold]
    pub(super) fn skip_block(&mut self, length: usize) {
        let from = self.offset;
        let skipped = self.skip(length as u64);
        if skipped < length as u64 {
            self.ended = true;
            self.log(from, skipped, "the file is cut off within a block".into());
        }
    }

    #[cold]
    fn log(&mut self, offset: u64, bytes: u64, reason: String) {
        self.damages += 1;
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(Damage { offset, bytes, reason });
        }
    }

    /// Logs the last `bytes` that were consumed as damage.
    #[cold]
    pub(super) fn log_consumed(&mut self, bytes: usize, reason: String) {
        self.log(self.offset - bytes as u64, bytes as u64, reason);
    }

    /// Ends a file that stops before a record is complete, and logs what is left of it.
    #[cold]
    pub(super) fn end_within(&mut self, what: &str) {
        self.ended = true;
        let (offset, left) = (self.offset, self.buffered() as u64);
        match self.failure.take() {
            Some(why) => self.log(offset, left, why),
            None if left > 0 => self.log(offset, left, format!("the file is cut off within {what}")),
            None => {}
        }
    }

    /// Logs damage and searches for the next place where `plausible` holds. If there is none, the file ends, and
    /// `if_none` replaces the reason.
    #[cold]
    pub(super) fn resynchronise(
        &mut self,
        reason: String,
        if_none: Option<&str>,
        plausible: impl Fn(&mut Source, usize) -> bool,
    ) {
        let from = self.offset;
        self.take(1);
        while self.offset - from < MAX_SEARCH && (self.fill(MAX_BLOCK) || self.buffered() >= 16) {
            // A candidate needs a whole block in sight, unless the file ends before.
            let buffered = self.buffered();
            let candidates = if buffered < MAX_BLOCK { buffered } else { CHUNK };
            let next_frame = (0..candidates).find(|&at| plausible(self, at));
            self.take(next_frame.unwrap_or(candidates));
            if next_frame.is_some() {
                self.log(from, self.offset - from, reason);
                return;
            }
        }
        self.ended = true;
        self.skip(MAX_SEARCH);
        let reason = match if_none {
            Some(other) => other.into(),
            None => format!("{reason}; nothing after it looks like a capture"),
        };
        self.log(from, self.offset - from, reason);
    }
}
