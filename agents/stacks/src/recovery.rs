//! Loss recovery of the sender: duplicate acks, fast recovery, and what was outstanding at the last loss.

use crate::scoreboard::Scoreboard;
use crate::seq::Offset;
use backchannel_core::choice;

choice! {
    /// What a timeout in fast recovery halves, where duplicate acks have inflated the window.
    pub enum TimeoutDecrease {
        /// What is outstanding (RFC 5681 3.1, equation 4), the segments included that duplicate acks let go.
        Outstanding = "outstanding",
        /// The window that recovery began with, as in ns-2.
        Window = "window",
    }
}

/// Duplicate acks that mean a loss (RFC 5681 3.2).
pub const DUPLICATE_THRESHOLD: u32 = 3;

/// State of loss recovery.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// In fast recovery: where it ends, one beyond what was outstanding when it began. `None` outside.
    end: Option<Offset>,
    /// recover of RFC 6582: one beyond what was outstanding at the last loss, detected by duplicates or by the timer.
    /// It never falls.
    pub recover: Offset,
    /// The last loss was detected by the timer.
    pub timed_out: bool,
    /// Duplicate acks since the last new ack.
    pub duplicates: u32,
    /// Partial acks of this recovery; 0 outside.
    partial_acks: u32,
    /// The segment at the cumulative ack goes next, whatever the window.
    pub resend: bool,
    /// The last event was an ack with selective acks: SMART retransmits on such.
    pub smart_ack: bool,
    /// What the peer holds above the cumulative ack.
    pub scoreboard: Scoreboard,
}

impl Recovery {
    /// Where fast recovery ends; `None` outside.
    pub fn end(&self) -> Option<Offset> {
        self.end
    }

    /// Whether the sender is in fast recovery.
    pub fn is_active(&self) -> bool {
        self.end.is_some()
    }

    /// Whether this recovery has seen a partial ack.
    pub fn has_partial_ack(&self) -> bool {
        self.partial_acks > 0
    }

    /// Fast recovery begins, with everything before `max` sent, and the first segment is retransmitted.
    pub fn begin(&mut self, max: Offset) {
        self.end = Some(max);
        self.resend = true;
    }

    /// Fast recovery ends.
    pub fn leave(&mut self) {
        self.end = None;
        self.partial_acks = 0;
    }

    /// A partial ack: the next hole goes next. Returns whether the retransmission timer restarts: at the first partial
    /// ack only (RFC 6582 3.2, the impatient variant).
    pub fn on_partial_ack(&mut self) -> bool {
        self.resend = true;
        self.partial_acks += 1;
        self.partial_acks == 1
    }

    /// The retransmission timer has expired, with everything before `max` sent. What the peer held may be gone (RFC
    /// 2018 8).
    pub fn on_timeout(&mut self, max: Offset) {
        self.leave();
        self.recover = max;
        self.timed_out = true;
        self.duplicates = 0;
        self.resend = false;
        self.smart_ack = false;
        self.scoreboard.clear();
    }
}
