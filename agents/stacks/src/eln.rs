//! Explicit loss notification (ton III-A): acks that stand still because a segment was corrupted on the wireless hop say so,
//! and the sender sends it again without shrinking its window.
//!
//! The receiver learns of corruption from a segment with a wrong checksum and a readable header (the paper assumes such
//! knowledge). It keeps the ranges; a duplicate ack carries the mark if the next byte expected lies in one. The sender's
//! part stands here as data; the window's part is `Window::on_corruption`.

/// When the sender acts on the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eln {
    /// Never: the option is off.
    Off,
    /// At the third duplicate ack (E2E-ELN).
    ThirdDuplicate,
    /// At the first duplicate ack with the mark (E2E-ELN-RXMT).
    FirstDuplicate,
}

/// Ranges of stream offsets that arrived corrupted and have not arrived since.
#[derive(Clone, Debug, Default)]
pub struct Corrupted {
    ranges: Vec<(u64, u64)>,
}

/// A header may be corrupt too: what it says of itself is bounded.
const MOST_RANGES: usize = 1024;

impl Corrupted {
    /// A segment from `start` to `end` came with a wrong checksum, while `next` was expected.
    pub fn note(&mut self, start: u64, end: u64, next: u64) {
        self.ranges.retain(|&(_, end)| end > next);
        if start < end && end > next && self.ranges.len() < MOST_RANGES {
            self.ranges.push((start, end));
        }
    }

    /// Whether the next byte expected was corrupted on its way.
    pub fn explains(&self, next: u64) -> bool {
        self.ranges.iter().any(|&(start, end)| (start..end).contains(&next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_holds_for_the_gap_that_corruption_made_and_for_no_other() {
        let mut corrupted = Corrupted::default();
        corrupted.note(1001, 2001, 1);
        assert!(!corrupted.explains(1), "that one was lost to congestion");
        assert!(corrupted.explains(1001));
        assert!(!corrupted.explains(2001));
        corrupted.note(5001, 6001, 3001);
        assert!(!corrupted.explains(1001), "settled ranges are forgotten");
        assert!(corrupted.explains(5001));
    }
}
