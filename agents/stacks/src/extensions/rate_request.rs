//! The sender requests an ack rate and the receiver obeys: the idea of the TCP ACK Rate Request option
//! (draft-ietf-tcpm-ack-rate-request) and of QUIC's ack frequency (draft-ietf-quic-ack-frequency).
//!
//! ```text
//! sender:    R = 2 in slow start, else cwnd / (acks wanted a window), between 1 and 127
//! receiver:  one ack every R segments; 2 before the first request
//! ```
//!
//! The drafts leave the choice of R to the sender. In slow start every ack opens the window by two segments at most
//! (RFC 3465), so fewer acks would slow it down.

use std::time::Duration;

use backchannel_core::time::Time;

use super::{Extension, Outgoing};
use crate::config::{AckRule, Config};
use crate::wire::{Segment, REQUEST_OPTION};

/// Largest R: seven bits.
const MOST: u8 = 127;

/// Both halves.
#[derive(Clone, Debug)]
pub(super) struct RateRequest {
    /// Acks a window that data ask for; `None`: data carry no request.
    acks_per_window: Option<u32>,
    /// Whether this side obeys requests.
    obeys: bool,
    /// The peer's last request.
    requested: Option<u8>,
}

impl RateRequest {
    pub(super) fn new(config: &Config) -> RateRequest {
        RateRequest {
            acks_per_window: config.requested_acks_per_window,
            obeys: config.ack_rule == AckRule::Requested,
            requested: None,
        }
    }
}

/// The R that a sender requests.
fn request(window_segments: f64, slow_start: bool, acks_per_window: u32) -> u8 {
    if slow_start {
        return 2;
    }
    (window_segments / f64::from(acks_per_window)).clamp(1.0, f64::from(MOST)) as u8
}

/// Segments an ack stands for, by the last request; 0 requests an ack at once.
fn every(requested: Option<u8>) -> u32 {
    requested.map_or(2, |segments| u32::from(segments.min(MOST)).max(1))
}

impl Extension for RateRequest {
    fn is_enabled(&self) -> bool {
        self.acks_per_window.is_some() || self.obeys
    }

    fn data_option_bytes(&self) -> u32 {
        if self.acks_per_window.is_some() {
            REQUEST_OPTION
        } else {
            0
        }
    }

    fn on_transmit(&mut self, segment: &mut Segment, outgoing: &Outgoing) {
        let wanted = self.acks_per_window.filter(|_| outgoing.data);
        segment.request = wanted.map(|acks| request(outgoing.segments(), outgoing.in_slow_start, acks));
    }

    fn on_data(&mut self, _: Time, segment: &Segment, _: Option<Duration>) {
        self.requested = segment.request.or(self.requested);
    }

    fn segments_per_ack(&self) -> Option<u32> {
        self.obeys.then(|| every(self.requested))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_requests_its_number_of_acks_a_window_outside_slow_start() {
        let requested = |window| request(window, false, 4);
        assert_eq!([1.0, 7.9, 8.0, 100.0, 508.0, 5000.0].map(requested), [1, 1, 2, 25, 127, 127]);
        assert_eq!(request(5000.0, true, 4), 2);
    }

    #[test]
    fn a_receiver_obeys_and_acknowledges_every_second_segment_before() {
        assert_eq!([None, Some(0), Some(1), Some(25), Some(255)].map(every), [2, 1, 1, 25, 127]);
    }
}
