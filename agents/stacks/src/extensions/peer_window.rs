//! The peerwin option and the acks that go by it (asym 8.2, figure 18).
//!
//! The sender reports its window in segments on each data segment, and the receiver acknowledges so that a window
//! brings at least a preset number of acks. This is what the paper implemented for the measurements of section 9: no
//! marks.
//!
//! ```text
//! w      = min(peerwin, rcvbuf / mss)
//! delack = min(max_delack, w / min_acks_per_win)
//! ```

use std::time::Duration;

use backchannel_core::time::Time;

use super::{Extension, Outgoing};
use crate::config::{AckRule, Config};
use crate::wire::{Segment, PEERWIN_OPTION};

/// Both halves: what data report, and how acks follow from it.
#[derive(Clone, Debug)]
pub(super) struct PeerWindow {
    /// Whether data carry the option.
    sends: bool,
    /// Whether acks follow from the peer's option.
    limits: Option<Limits>,
    /// The peer's window in segments, as it reported it last.
    reported: Option<u32>,
}

/// The preset limits of the receiver, in segments and acks.
#[derive(Clone, Copy, Debug)]
struct Limits {
    max_delack: u32,
    min_acks_per_win: u32,
    receive_buffer_bytes: u64,
    /// Bytes of data in a segment without options.
    segment_bytes: u32,
}

impl PeerWindow {
    pub(super) fn new(config: &Config) -> PeerWindow {
        let limits = Limits {
            max_delack: config.max_delack_segments,
            min_acks_per_win: config.min_acks_per_win,
            receive_buffer_bytes: config.receive_buffer_bytes,
            segment_bytes: config.packet_bytes,
        };
        let limits = (config.ack_rule == AckRule::AccPeerwin).then_some(limits);
        PeerWindow { sends: config.peerwin, limits, reported: None }
    }

    /// Sets the size of a segment, which depends on the headers in front of it.
    pub(super) fn set_segment(&mut self, bytes: u32) {
        if let Some(limits) = &mut self.limits {
            limits.segment_bytes = bytes;
        }
    }
}

impl Limits {
    /// Segments an ack stands for. The paper does not say how to round: down, and at least 1.
    fn delack(self, peerwin: u32) -> u32 {
        let rcvbuf_segments = self.receive_buffer_bytes / u64::from(self.segment_bytes.max(1));
        let w = peerwin.min(rcvbuf_segments as u32);
        self.max_delack.min(w / self.min_acks_per_win).max(1)
    }
}

impl Extension for PeerWindow {
    fn is_enabled(&self) -> bool {
        self.sends || self.limits.is_some()
    }

    fn data_option_bytes(&self) -> u32 {
        if self.sends {
            PEERWIN_OPTION
        } else {
            0
        }
    }

    /// min(cwnd, bytes in the send buffer) / mss (asym 8.2).
    fn on_transmit(&mut self, segment: &mut Segment, outgoing: &Outgoing) {
        if self.sends && outgoing.data {
            let window = outgoing.cwnd.min(outgoing.buffered as f64) / outgoing.mss;
            segment.peer_window = Some(window.min(65_535.0) as u16);
        }
    }

    fn on_data(&mut self, _: Time, segment: &Segment, _: Option<Duration>) {
        self.reported = segment.peer_window.map(u32::from).or(self.reported);
    }

    /// Every second segment until the peer has reported its window.
    fn segments_per_ack(&self) -> Option<u32> {
        self.limits.map(|limits| self.reported.map_or(2, |peerwin| limits.delack(peerwin)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_nine_presets_give_five_acks_a_window_up_to_eight_segments() {
        let limits = Limits { max_delack: 8, min_acks_per_win: 5, receive_buffer_bytes: 146_000, segment_bytes: 1460 };
        assert_eq!([1, 4, 5, 10, 20, 39, 40, 200].map(|w| limits.delack(w)), [1, 1, 1, 2, 4, 7, 8, 8]);
        let small = Limits { max_delack: 50, receive_buffer_bytes: 30 * 1460, ..limits };
        assert_eq!(small.delack(200), 6, "the receive buffer bounds it");
        let unreported = PeerWindow { sends: false, limits: Some(limits), reported: None };
        assert_eq!(unreported.segments_per_ack(), Some(2));
    }
}
