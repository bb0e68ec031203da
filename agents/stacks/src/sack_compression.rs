//! Acks of data out of order that stand for several, as Linux's receivers send them (tcp_input.c, `__tcp_ack_snd_check`;
//! sysctls `tcp_comp_sack_*`): the first three go at once, and then one for what arrives in a millisecond.
//!
//! A hole behind a fast line and in front of a slow return would otherwise bring an ack for each segment, which is twice
//! as many as without a hole, with blocks in each.

use std::time::Duration;

use backchannel_core::time::Time;

/// Segments out of order whose acks go at once: those that tell a sender of a loss (RFC 5681 3.2).
const AT_ONCE: u32 = 3;
/// Most acks that one stands for (`tcp_comp_sack_nr`).
const MOST: u32 = 44;
/// Longest delay (`tcp_comp_sack_delay_ns`), and as a share of the round trip: 33 % (`tcp_comp_sack_rtt_percent`) of five
/// quarters of it.
const LONGEST: Duration = Duration::from_millis(1);
const SHARE: f64 = 0.33 * 1.25;

/// The acks that wait in one connection.
#[derive(Clone, Debug, Default)]
pub struct SackCompression {
    waiting: u32,
}

impl SackCompression {
    /// Until when the ack may wait for a segment out of order, the `nth` since the last one in order, with a round trip
    /// of `rtt`. `None`: it goes at once.
    pub fn until(&mut self, now: Time, nth: u32, rtt: Option<Duration>) -> Option<Time> {
        if nth <= AT_ONCE || self.waiting >= MOST {
            return None;
        }
        self.waiting += 1;
        Some(now + rtt.map_or(LONGEST, |rtt| rtt.mul_f64(SHARE).min(LONGEST)))
    }

    pub fn on_ack_sent(&mut self) {
        self.waiting = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourth_waits_a_millisecond_or_a_share_of_the_round_trip() {
        let mut compression = SackCompression::default();
        let mut until = |nth, rtt_us| compression.until(Time::ZERO, nth, Some(Duration::from_micros(rtt_us)));
        assert_eq!([1, 2, 3].map(|nth| until(nth, 20_000)), [None; 3]);
        assert_eq!(until(4, 20_000), Some(Time(1_000_000)));
        assert_eq!(until(5, 1_000), Some(Time(412_500)));
    }

    #[test]
    fn one_ack_stands_for_44_at_most() {
        let mut compression = SackCompression::default();
        let first = (4..).find(|&nth| compression.until(Time::ZERO, nth, None).is_none());
        assert_eq!(first, Some(4 + 44));
        compression.on_ack_sent();
        assert!(compression.until(Time::ZERO, 49, None).is_some());
    }
}
