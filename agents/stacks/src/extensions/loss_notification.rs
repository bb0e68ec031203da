//! Explicit loss notification (ton III-A): duplicate acks that are due to a segment corrupted on the wireless hop carry a
//! mark, and the sender retransmits it without shrinking its window.
//!
//! The receiver learns of corruption from a segment with a wrong checksum and a readable header (the paper assumes such
//! knowledge). It remembers the last one; a duplicate ack carries the mark if the next byte expected lies in it. Of several
//! losses in a window it therefore reports one. The paper describes its own the same way ("does not convey information about
//! multiple wireless-related losses to the sender", IV-C) and ascribes to it the timeouts that remain.

use backchannel_core::packet::mark;

use super::{DuplicateHints, Extension, Outgoing};
use crate::config::{choice, Config};
use crate::controllers::Window;
use crate::seq::Offset;
use crate::wire::Segment;

choice! {
    /// When the sender acts on the mark.
    pub enum LossNotificationMode {
        /// Never, and the receiver does not send it.
        Off = "off",
        /// At the third duplicate ack (E2E-ELN).
        ThirdDuplicate = "third-duplicate",
        /// At the first duplicate ack with the mark (E2E-ELN-RXMT).
        FirstDuplicate = "first-duplicate",
    }
}

/// Both halves.
#[derive(Clone, Debug)]
pub(super) struct LossNotification {
    mode: LossNotificationMode,
    /// Receiver: the range that arrived corrupted last. Not empty.
    corrupted: Option<(Offset, Offset)>,
    /// Sender: the window to return to when the corrupted segment is repaired, in bytes. Set only in fast recovery.
    intact: Option<f64>,
}

impl LossNotification {
    pub(super) fn new(config: &Config) -> LossNotification {
        LossNotification { mode: config.eln, corrupted: None, intact: None }
    }

    fn enabled(&self) -> bool {
        self.mode != LossNotificationMode::Off
    }

    /// Whether the next byte expected was corrupted on its way.
    fn explains(&self, next: Offset) -> bool {
        self.corrupted.is_some_and(|(start, end)| (start..end).contains(&next))
    }
}

impl Extension for LossNotification {
    fn on_transmit(&mut self, segment: &mut Segment, outgoing: &Outgoing) {
        if self.enabled() && self.explains(outgoing.next) {
            segment.marks |= mark::ELN;
        }
    }

    fn on_damaged(&mut self, start: Offset, end: Offset, next: Offset) {
        if self.enabled() && start < end && end > next {
            self.corrupted = Some((start, end));
        }
    }

    fn on_duplicate_ack(&mut self, segment: &Segment, hints: &mut DuplicateHints) {
        if self.enabled() && segment.marks & mark::ELN != 0 {
            hints.corrupted = true;
            hints.retransmit_now |= self.mode == LossNotificationMode::FirstDuplicate;
        }
    }

    /// The threshold stays, and the window is as before once the loss is repaired. Until then each duplicate, of those that
    /// have come and those that follow, lets one segment go.
    fn on_corruption(&mut self, window: &mut Window, duplicates: u32) {
        self.intact = Some(window.cwnd);
        window.cwnd += f64::from(duplicates) * window.mss;
    }

    fn is_repairing(&self) -> bool {
        self.intact.is_some()
    }

    fn on_recovery_ack(&mut self, window: &mut Window) -> bool {
        let intact = self.intact.take();
        window.cwnd = intact.unwrap_or(window.cwnd);
        intact.is_some()
    }

    fn on_timeout(&mut self) {
        self.intact = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::stack_config;
    use crate::controllers::tests::avoiding;

    fn notification() -> LossNotification {
        LossNotification::new(&stack_config("eln", &Default::default()).unwrap())
    }

    #[test]
    fn the_mark_holds_for_the_gap_that_corruption_made_last_and_for_no_other() {
        let mut eln = notification();
        eln.on_damaged(Offset(1001), Offset(2001), Offset(1));
        assert!(!eln.explains(Offset(1)), "that one was lost to congestion");
        assert!(eln.explains(Offset(1001)));
        assert!(!eln.explains(Offset(2001)));
        eln.on_damaged(Offset(1), Offset(1001), Offset(2001));
        assert!(eln.explains(Offset(1001)), "old data do not count");
        eln.on_damaged(Offset(5001), Offset(6001), Offset(1001));
        assert!(!eln.explains(Offset(1001)), "one loss of a window is reported");
        assert!(eln.explains(Offset(5001)));
    }

    #[test]
    fn corruption_leaves_window_and_threshold_as_they_were() {
        let mut control = avoiding(20, &[]);
        let mut eln = notification();
        let before = (control.window.cwnd, control.window.ssthresh);
        eln.on_corruption(&mut control.window, 1);
        control.on_duplicate_ack();
        assert_eq!(control.window.cwnd, before.0 + 2000.0, "one new segment a duplicate");
        assert!(eln.is_repairing() && eln.on_recovery_ack(&mut control.window));
        assert_eq!((control.window.cwnd, control.window.ssthresh), before);
        assert!(!eln.on_recovery_ack(&mut control.window));
    }
}
