//! What an application writes, in portions that a connection keeps until they are acknowledged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use backchannel_stacks::{pattern, Content};
use bytes::Bytes;

/// Bytes of a portion.
const PORTION: u64 = 1024;
static ZEROS: [u8; PORTION as usize] = [0; PORTION as usize];

/// The application's side of the sending half of a stream.
#[derive(Debug)]
pub(crate) struct Source {
    content: Content,
    /// Bytes to send so far, and those of them that are in portions.
    total: u64,
    portioned: u64,
    /// The part of a portion that the connection has yet to take.
    waiting: Bytes,
    is_finished: bool,
    /// Bytes of portions that the connection has dropped.
    acknowledged: Arc<AtomicU64>,
}

impl Source {
    pub(crate) fn new(content: Content) -> Source {
        let (total, portioned, waiting, is_finished) = (0, 0, Bytes::new(), false);
        Source { content, total, portioned, waiting, is_finished, acknowledged: Arc::default() }
    }

    /// Adds `bytes`, unless it is finished.
    pub(crate) fn extend(&mut self, bytes: u64) {
        if !self.is_finished {
            self.total += bytes;
        }
    }

    /// No more follow. Of an endless source, what the connection has taken is the last. Returns whether this is new.
    pub(crate) fn finish(&mut self) -> bool {
        if self.total >= backchannel_core::transport::ENDLESS {
            self.total = self.portioned;
        }
        !std::mem::replace(&mut self.is_finished, true)
    }

    /// The next part, which the connection may take in pieces; empty if there is none.
    pub(crate) fn next(&mut self) -> &mut Bytes {
        if self.waiting.is_empty() {
            let length = PORTION.min(self.total - self.portioned);
            if length > 0 {
                let bytes = match self.content {
                    Content::Pattern(seed) => Data::Stored(pattern(seed, self.portioned, length)),
                    Content::Zeros | Content::Relayed => Data::Zeros(length as usize),
                };
                self.portioned += length;
                self.waiting = Bytes::from_owner(Portion { bytes, acknowledged: self.acknowledged.clone() });
            }
        }
        &mut self.waiting
    }

    /// Whether the connection has taken all there is, and no more follow.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_finished && self.portioned == self.total && self.waiting.is_empty()
    }

    /// Whether there is anything that the peer has not acknowledged.
    pub(crate) fn has_unacknowledged(&self) -> bool {
        self.acknowledged() < self.total
    }

    /// Bytes that the peer has acknowledged, in whole portions but for the last.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }
}

/// The connection drops a portion when all bytes up to its end are acknowledged.
struct Portion {
    bytes: Data,
    acknowledged: Arc<AtomicU64>,
}

enum Data {
    Zeros(usize),
    Stored(Vec<u8>),
}

impl AsRef<[u8]> for Portion {
    fn as_ref(&self) -> &[u8] {
        match &self.bytes {
            Data::Zeros(length) => &ZEROS[..*length],
            Data::Stored(bytes) => bytes,
        }
    }
}

impl Drop for Portion {
    fn drop(&mut self) {
        self.acknowledged.fetch_add(self.as_ref().len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_are_acknowledged_when_they_are_dropped_whole() {
        let mut source = Source::new(Content::Pattern(5));
        source.extend(2500);
        let mut taken = Vec::new();
        let mut pieces = Vec::new();
        while !source.next().is_empty() {
            let half = source.next().len().div_ceil(2);
            pieces.push(source.next().split_to(half));
            taken.extend_from_slice(pieces.last().unwrap());
        }
        assert_eq!(taken, pattern(5, 0, 2500));
        assert!(!source.is_exhausted(), "more may follow");
        assert!(source.finish() && !source.finish());
        source.extend(9);
        assert!(source.is_exhausted() && source.has_unacknowledged());
        assert_eq!(source.acknowledged(), 0);
        let first = pieces.remove(0);
        assert_eq!(source.acknowledged(), 0);
        drop((first, pieces));
        assert_eq!((source.acknowledged(), source.has_unacknowledged()), (2500, false));
    }

    #[test]
    fn an_endless_source_ends_with_what_was_taken() {
        let mut source = Source::new(Content::Zeros);
        source.extend(backchannel_core::transport::ENDLESS);
        drop(source.next().split_to(1000));
        assert!(!source.is_exhausted());
        source.finish();
        drop(std::mem::take(source.next()));
        assert!(source.is_exhausted());
        assert_eq!(source.acknowledged(), 1024);
    }
}
