//! How much of the congestion window a sender used lately. A window that the application leaves empty does not grow
//! (RFC 9293 3.8.6, RFC 7661); Linux asks about the whole last window instead of the moment of the ack, and lets slow
//! start go on until the window is twice what was sent.

use crate::seq::Offset;

/// Of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowUse {
    /// Whether the window was full.
    was_full: bool,
    /// Most bytes outstanding.
    most: u64,
    /// Both are of what was sent before this.
    until: Offset,
}

impl Default for WindowUse {
    fn default() -> WindowUse {
        WindowUse { was_full: false, most: 0, until: Offset::SYN }
    }
}

impl WindowUse {
    /// A segment was sent: `una` is not acknowledged, `end` is one beyond what was sent, and `is_full` says that no
    /// further segment fits the window.
    #[inline]
    pub fn on_transmit(&mut self, una: Offset, end: Offset, is_full: bool) {
        let outstanding = end.since(una);
        if una >= self.until || is_full || (!self.was_full && outstanding > self.most) {
            *self = WindowUse { was_full: is_full, most: outstanding, until: end };
        }
    }

    /// Whether a window of `cwnd` bytes limits the sender.
    pub fn is_limited(&self, cwnd: f64, in_slow_start: bool) -> bool {
        self.was_full || (in_slow_start && cwnd < 2.0 * self.most as f64)
    }
}
