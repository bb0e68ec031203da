//! Pulsed ACK (pulsed 3.2): a acks a round trip, however large the window.
//!
//! ```text
//! sender:    data carry the flag (on in congestion avoidance) and the window w in packets
//!            an ack with the flag:  cwnd += (1 / cwnd) (cwnd / a) = 1 / a
//! receiver:  if pulsed and receivecount < w / a:  receivecount += 1, no ack
//!            else:                                ack, receivecount = 0
//! ```
//!
//! As printed, with w / a in reals, the receiver acknowledges every ceil(w / a) + 1 segments: one more than the paper's
//! prose says, and every second segment below w = a. Outside congestion avoidance the flag is off and each segment is
//! acknowledged.

use std::time::Duration;

use backchannel_core::time::Time;

use super::{Extension, Outgoing};
use crate::config::{AckRule, Config};
use crate::wire::{Pulse, Segment, PULSE_OPTION};

/// Both halves.
#[derive(Clone, Debug)]
pub(super) struct PulsedAck {
    /// Whether data carry the option.
    sends: bool,
    /// Whether the fields are in the header, not in an option.
    in_header: bool,
    /// The receiver's acks a round trip; `None`: acks do not go by the option.
    a: Option<u32>,
    /// The option of the peer's last data segment.
    pulse: Option<Pulse>,
}

impl PulsedAck {
    pub(super) fn new(config: &Config) -> PulsedAck {
        let a = (config.ack_rule == AckRule::Pulsed).then_some(config.pulses_per_window);
        PulsedAck { sends: config.pulsed, in_header: config.pulse_in_header, a, pulse: None }
    }

    /// The option of an ack copies the flag and reports a. `None`: the peer has not shown that it knows the option.
    fn reply(&self) -> Option<Pulse> {
        self.a.and_then(|a| self.pulse.map(|pulse| Pulse { a: a as u8, ..pulse }))
    }
}

/// Segments an ack stands for, by the last data segment's option: the k-th segment since the last ack finds
/// receivecount = k - 1, so it is the first k with k - 1 >= w / a.
fn every(pulse: Option<Pulse>, a: u32) -> u32 {
    match pulse {
        Some(pulse) if pulse.on => u32::from(pulse.w).div_ceil(a) + 1,
        _ => 1,
    }
}

/// The increase of an ack in bytes: 1 / a segments (3.2.2).
fn increase(mss: f64, a: u8) -> f64 {
    mss / f64::from(a)
}

impl Extension for PulsedAck {
    fn is_enabled(&self) -> bool {
        self.sends || self.a.is_some()
    }

    fn data_option_bytes(&self) -> u32 {
        if self.sends && !self.in_header {
            PULSE_OPTION
        } else {
            0
        }
    }

    fn on_transmit(&mut self, segment: &mut Segment, outgoing: &Outgoing) {
        let sent = (self.sends && outgoing.data).then(|| Pulse {
            on: !outgoing.in_slow_start,
            w: outgoing.segments().min(65_535.0) as u16,
            a: 0,
        });
        segment.pulse = match (sent, self.reply()) {
            // Data that also acknowledge carry both.
            (Some(sent), Some(reply)) => Some(Pulse { a: reply.a, ..sent }),
            (sent, reply) => sent.or(reply),
        };
        segment.pulse_in_header = self.in_header && segment.pulse.is_some();
    }

    fn on_data(&mut self, _: Time, segment: &Segment, _: Option<Duration>) {
        self.pulse = segment.pulse;
    }

    fn segments_per_ack(&self) -> Option<u32> {
        self.a.map(|a| every(self.pulse, a))
    }

    /// An ack without the flag is Reno's.
    fn window_increase(&self, segment: &Segment, mss: u32) -> Option<f64> {
        let pulse = segment.pulse.filter(|pulse| self.sends && pulse.on && pulse.a > 0)?;
        Some(increase(f64::from(mss), pulse.a))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seq::Offset;

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

    #[test]
    fn data_carry_the_senders_window_and_the_receivers_answer() {
        let outgoing = |data| Outgoing {
            data,
            cwnd: 7000.0,
            mss: 1000.0,
            in_slow_start: false,
            buffered: 0,
            next: Offset(0),
            out_of_order: 0,
        };
        let pulse = |a, peer, data| {
            let mut segment = Segment::default();
            PulsedAck { sends: true, in_header: false, a, pulse: peer }.on_transmit(&mut segment, &outgoing(data));
            segment.pulse
        };
        let peer = Some(Pulse { on: false, w: 3, a: 0 });
        assert_eq!(pulse(Some(5), peer, true), Some(Pulse { on: true, w: 7, a: 5 }));
        assert_eq!(pulse(None, peer, true), Some(Pulse { on: true, w: 7, a: 0 }));
        assert_eq!(pulse(Some(5), peer, false), Some(Pulse { on: false, w: 3, a: 5 }));
        assert_eq!(pulse(Some(5), None, false), None);
    }

    #[test]
    fn a_sender_and_a_receiver_each_have_it_alone() {
        for (sends, a, enabled) in [(true, None, true), (false, Some(5), true), (false, None, false)] {
            assert_eq!(PulsedAck { sends, in_header: false, a, pulse: None }.is_enabled(), enabled, "{sends} {a:?}");
        }
    }

    #[test]
    fn five_acks_grow_the_window_by_one_segment() {
        let grown: f64 = (0..5).map(|_| increase(1000.0, 5)).sum();
        assert!((grown - 1000.0).abs() < 1e-6);
    }
}
