//! The window that the peer offers (RFC 9293 3.8.6).

use crate::seq::Offset;

/// The peer's window, as the sender knows it.
#[derive(Clone, Copy, Debug)]
pub struct SendWindow {
    /// SND.UNA + SND.WND: one beyond the last byte that the peer accepts. It may move left, although a peer should not
    /// (3.8.6).
    pub edge: Offset,
    /// The largest window ever offered, in bytes.
    pub largest: u64,
    /// The window last offered, in bytes.
    pub offered: u64,
    /// Whether the offer before was the same.
    pub offer_stands: bool,
    /// The shift of the peer's window field (RFC 7323 2); 0 without window scaling.
    pub shift: u8,
    /// SND.WL1: the number of the segment that updated the window last. It never falls.
    update_seq: Offset,
    /// SND.WL2: its acknowledgment. For one SND.WL1 it never falls.
    update_ack: Offset,
}

impl SendWindow {
    /// Before the peer's SYN.
    pub fn new() -> SendWindow {
        SendWindow {
            edge: Offset::FIRST_BYTE,
            largest: 0,
            offered: 0,
            offer_stands: false,
            shift: 0,
            update_seq: Offset::SYN,
            update_ack: Offset::SYN,
        }
    }

    /// The window of the peer's SYN, which is never scaled; `una` is acknowledged.
    pub fn on_syn(&mut self, una: Offset, window: u16) {
        self.edge = una.max(Offset::FIRST_BYTE) + u64::from(window);
        self.largest = u64::from(window);
    }

    /// A segment `seq` acknowledges `ack` and offers `window` bytes. An older segment than the last does not update the
    /// window (3.10.7.4, SND.WL1 and SND.WL2). Returns whether it did.
    #[inline(always)]
    pub fn update(&mut self, seq: Offset, ack: Offset, window: u64) -> bool {
        let newer = self.update_seq < seq || (self.update_seq == seq && self.update_ack <= ack);
        if newer {
            (self.update_seq, self.update_ack) = (seq, ack);
            self.edge = ack + window;
            self.largest = self.largest.max(window);
            self.offer_stands = window == self.offered;
            self.offered = window;
        }
        newer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_segment_does_not_update_the_window() {
        let mut window = SendWindow::new();
        window.on_syn(Offset(1), 1000);
        assert_eq!(window.edge, Offset(1001));
        assert!(window.update(Offset(5), Offset(10), 500));
        assert!(!window.update(Offset(4), Offset(20), 9000));
        assert!(!window.update(Offset(5), Offset(9), 9000));
        assert_eq!((window.edge, window.largest, window.offer_stands), (Offset(510), 1000, false));
        assert!(window.update(Offset(5), Offset(10), 500) && window.offer_stands);
    }
}
