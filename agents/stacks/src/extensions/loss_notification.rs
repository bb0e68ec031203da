//! Explicit loss notification (ton III-A): duplicate acks that are due to a segment corrupted on the wireless hop carry
//! a mark, and the sender retransmits it without shrinking its window.
//!
//! The receiver learns of corruption from a segment with a wrong checksum and a readable header (the paper assumes such
//! knowledge). It remembers which ranges arrived corrupted and are still missing; a duplicate ack carries the mark if
//! the next byte expected lies in one of them. An ack therefore reports one loss at a time ("does not convey
//! information about multiple wireless-related losses to the sender", IV-C).

use std::collections::VecDeque;

use backchannel_core::packet::mark;

use super::{DuplicateHints, Extension, Outgoing};
use crate::config::{Config, LossNotificationMode};
use crate::seq::Offset;
use crate::wire::Segment;

/// Corrupted ranges that a receiver remembers: more than any window of the paper has segments.
const MOST_RANGES: usize = 64;

/// Both halves.
#[derive(Clone, Debug)]
pub(super) struct LossNotification {
    mode: LossNotificationMode,
    /// Receiver: the latest ranges that arrived corrupted, at most [`MOST_RANGES`]. None is empty.
    corrupted: VecDeque<(Offset, Offset)>,
    /// Sender: a corrupted segment is being repaired. Set only in fast recovery.
    is_repairing: bool,
}

impl LossNotification {
    pub(super) fn new(config: &Config) -> LossNotification {
        LossNotification { mode: config.eln, corrupted: VecDeque::new(), is_repairing: false }
    }

    /// Whether the next byte expected was corrupted on its way.
    fn explains(&self, next: Offset) -> bool {
        self.corrupted.iter().any(|&(start, end)| (start..end).contains(&next))
    }
}

impl Extension for LossNotification {
    fn is_enabled(&self) -> bool {
        self.mode != LossNotificationMode::Off
    }

    fn on_transmit(&mut self, segment: &mut Segment, outgoing: &Outgoing) {
        if self.is_enabled() && self.explains(outgoing.next) {
            segment.marks |= mark::ELN;
        }
    }

    fn on_damaged(&mut self, start: Offset, end: Offset, next: Offset) {
        if self.is_enabled() && start < end && end > next {
            self.corrupted.retain(|&(_, end)| end > next);
            if self.corrupted.len() == MOST_RANGES {
                self.corrupted.pop_front();
            }
            self.corrupted.push_back((start, end));
        }
    }

    fn on_duplicate_ack(&mut self, segment: &Segment, hints: &mut DuplicateHints) {
        if self.is_enabled() && segment.marks & mark::ELN != 0 {
            hints.corrupted = true;
            hints.retransmit_now |= self.mode == LossNotificationMode::FirstDuplicate;
        }
    }

    fn on_repair(&mut self) {
        self.is_repairing = self.is_enabled();
    }

    fn is_repairing(&self) -> bool {
        self.is_repairing
    }

    fn ends_repair(&mut self) -> bool {
        std::mem::take(&mut self.is_repairing)
    }

    fn on_timeout(&mut self) {
        self.is_repairing = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::stack_config;

    fn notification() -> LossNotification {
        LossNotification::new(&stack_config("eln", &Default::default()).unwrap())
    }

    #[test]
    fn the_mark_holds_for_gaps_that_corruption_made_and_for_no_other() {
        let mut eln = notification();
        eln.on_damaged(Offset(1001), Offset(2001), Offset(1));
        assert!(!eln.explains(Offset(1)), "that one was lost to congestion");
        assert!(eln.explains(Offset(1001)));
        assert!(!eln.explains(Offset(2001)));
        eln.on_damaged(Offset(1), Offset(1001), Offset(2001));
        assert!(eln.explains(Offset(1001)), "old data do not count");
        eln.on_damaged(Offset(5001), Offset(6001), Offset(1001));
        assert!(eln.explains(Offset(1001)) && eln.explains(Offset(5001)), "each loss of a window, when its turn comes");
        eln.on_damaged(Offset(7001), Offset(8001), Offset(5001));
        assert!(!eln.explains(Offset(1001)), "ranges before the next byte expected are forgotten");
        for number in 0..100 {
            eln.on_damaged(Offset(10_001 + 1000 * number), Offset(11_001 + 1000 * number), Offset(5001));
        }
        assert_eq!(eln.corrupted.len(), MOST_RANGES);
        assert!(eln.explains(Offset(109_001)));
    }

    #[test]
    fn a_repair_lasts_until_the_next_new_ack_or_a_timeout() {
        let mut eln = notification();
        eln.on_repair();
        assert!(eln.is_repairing() && eln.ends_repair() && !eln.ends_repair());
        eln.on_repair();
        eln.on_timeout();
        assert!(!eln.is_repairing());
    }
}
