//! The sender asks for an ack rate and the receiver obeys: the idea of the TCP ACK Rate Request option
//! (draft-ietf-tcpm-ack-rate-request) and of QUIC's ack frequency (draft-ietf-quic-ack-frequency).
//!
//! ```text
//! sender:    R = 2 in slow start, else cwnd / (acks wanted a window), between 1 and 127
//! receiver:  one ack every R segments; 2 before it was asked
//! ```
//!
//! The drafts leave the sender's choice of R to it. In slow start every ack opens the window by two segments at most
//! (RFC 3465), so that fewer acks would slow it down.

/// Largest R: seven bits.
pub const MOST: u8 = 127;

/// What a sender asks for.
pub fn ask(window_segments: f64, slow_start: bool, acks_per_window: u32) -> u8 {
    if slow_start {
        return 2;
    }
    (window_segments / f64::from(acks_per_window)).clamp(1.0, f64::from(MOST)) as u8
}

/// Segments an ack stands for, by the last request; 0 asks for an ack at once.
pub fn every(request: Option<u8>) -> u32 {
    request.map_or(2, |segments| u32::from(segments.min(MOST)).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_asks_for_its_number_of_acks_a_window_outside_slow_start() {
        let asked = |window| ask(window, false, 4);
        assert_eq!([1.0, 7.9, 8.0, 100.0, 508.0, 5000.0].map(asked), [1, 1, 2, 25, 127, 127]);
        assert_eq!(ask(5000.0, true, 4), 2);
    }

    #[test]
    fn a_receiver_does_as_it_is_asked_and_delays_as_ever_before() {
        assert_eq!([None, Some(0), Some(1), Some(25), Some(255)].map(every), [2, 1, 1, 25, 127]);
    }
}
