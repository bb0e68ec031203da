//! Explicit loss notification (ton III-A): acks that stand still because a segment was corrupted on the wireless hop say so,
//! and the sender sends it again without shrinking its window.
//!
//! The receiver learns of corruption from a segment with a wrong checksum and a readable header (the paper assumes such
//! knowledge). It remembers the last one; a duplicate ack carries the mark if the next byte expected lies in it. Of several
//! losses in a window it so tells of one: the paper's own "does not convey information about multiple wireless-related
//! losses to the sender" (IV-C), to which it ascribes the timeouts that remain. The sender's part stands here as data; the
//! window's part is `Window::on_corruption`.

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

/// The range of stream offsets that arrived corrupted last.
#[derive(Clone, Debug, Default)]
pub struct Corrupted {
    last: Option<(u64, u64)>,
}

impl Corrupted {
    /// A segment from `start` to `end` came with a wrong checksum, while `next` was expected.
    pub fn note(&mut self, start: u64, end: u64, next: u64) {
        if start < end && end > next {
            self.last = Some((start, end));
        }
    }

    /// Whether the next byte expected was corrupted on its way.
    pub fn explains(&self, next: u64) -> bool {
        self.last.is_some_and(|(start, end)| (start..end).contains(&next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_holds_for_the_gap_that_corruption_made_last_and_for_no_other() {
        let mut corrupted = Corrupted::default();
        corrupted.note(1001, 2001, 1);
        assert!(!corrupted.explains(1), "that one was lost to congestion");
        assert!(corrupted.explains(1001));
        assert!(!corrupted.explains(2001));
        corrupted.note(1, 1001, 2001);
        assert!(corrupted.explains(1001), "old data are no news");
        corrupted.note(5001, 6001, 1001);
        assert!(!corrupted.explains(1001), "one loss of a window is told of");
        assert!(corrupted.explains(5001));
    }
}
