//! Ack congestion control with preset limits (asym 8.2, figure 18), as implemented for the measurements of section 9: no
//! marks; the sender tells its window in segments on each data segment (the peerwin option).
//!
//! ```text
//! w      = min(peerwin, rcvbuf / mss)
//! delack = min(max_delack, w / min_acks_per_win)
//! ```

/// What the peer has told.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccPeerwin {
    /// The sender's window in segments; `None`: it has not said, and every second segment is acknowledged.
    pub peerwin: Option<u32>,
}

impl AccPeerwin {
    /// Segments an ack stands for. The paper does not say how to round: down, and at least 1.
    pub fn delack(&self, max_delack: u32, min_acks_per_win: u32, rcvbuf_segments: u32) -> u32 {
        let Some(peerwin) = self.peerwin else { return 2 };
        let w = peerwin.min(rcvbuf_segments);
        max_delack.min(w / min_acks_per_win).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_nine_presets_give_five_acks_a_window_up_to_eight_segments() {
        let delack = |peerwin| AccPeerwin { peerwin: Some(peerwin) }.delack(8, 5, 100);
        assert_eq!([1, 4, 5, 10, 20, 39, 40, 200].map(delack), [1, 1, 1, 2, 4, 7, 8, 8]);
        assert_eq!(AccPeerwin { peerwin: Some(200) }.delack(50, 5, 30), 6, "the receive buffer bounds it");
        assert_eq!(AccPeerwin::default().delack(8, 5, 100), 2);
    }
}
