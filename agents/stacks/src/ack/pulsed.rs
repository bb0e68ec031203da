//! Pulsed ACK's receiver (pulsed 3.2.3): a acks a round trip, however large the window.
//!
//! ```text
//! if pulsed and receivecount < w / a:  receivecount += 1, no ack
//! else:                                ack, receivecount = 0
//! ```
//!
//! As printed, with w/a in reals, this acknowledges every ceil(w/a) + 1 segments: one more than the paper's prose says, and
//! every second segment below w = a. Outside congestion avoidance the flag is off and each segment is acknowledged.

use crate::wire::Pulse;

/// Segments an ack stands for, by the last data segment's option.
pub fn every(pulse: Option<Pulse>, a: u32) -> u32 {
    match pulse {
        // The k-th segment since the last ack finds receivecount = k - 1: the first k with k - 1 >= w / a.
        Some(pulse) if pulse.on => u32::from(pulse.w).div_ceil(a) + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published rule, segment by segment, with w / a in reals.
    fn published(w: u16, a: u32) -> u32 {
        let (mut receivecount, mut segments) = (0, 0);
        loop {
            segments += 1;
            if f64::from(receivecount) < f64::from(w) / f64::from(a) {
                receivecount += 1;
            } else {
                return segments;
            }
        }
    }

    #[test]
    fn it_is_the_published_rule() {
        for a in [5, 10] {
            for w in 1..300 {
                let pulse = Some(Pulse { on: true, w, a: 0 });
                assert_eq!(every(pulse, a), published(w, a), "w = {w}, a = {a}");
            }
        }
    }

    #[test]
    fn below_a_window_of_a_every_second_segment_and_every_one_without_the_flag() {
        assert_eq!(every(Some(Pulse { on: true, w: 4, a: 0 }), 5), 2);
        assert_eq!(every(Some(Pulse { on: true, w: 100, a: 0 }), 5), 21, "4.76 acks a window");
        assert_eq!(every(Some(Pulse { on: false, w: 100, a: 0 }), 5), 1);
        assert_eq!(every(None, 5), 1);
    }
}
