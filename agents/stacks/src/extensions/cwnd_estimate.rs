//! Acknowledgement based on Cwnd Estimation (ACE; Ming-Chit, Jinsong, Wang 2000; aq 6): the receiver estimates the
//! sender's window and varies the segments that an ack stands for with it. The sender is unchanged.
//!
//! aq gives the idea alone, so both rules are ours, made of asym's:
//!
//! ```text
//! cwnd = segments that arrived within one round trip; a round trip is measured by echoed timestamps (asym 6.1)
//! d    = min(max_delack, cwnd / min_acks_per_win), at least 1                       (asym 8.2, with this estimate)
//! ```
//!
//! A round trip has passed once the peer echoes the timestamp of an ack that was sent after the round trip began. What a
//! sender sends in a round trip is its window, as long as the application has data and nothing else limits it.

use std::time::Duration;

use backchannel_core::time::Time;

use super::Extension;
use crate::config::{AckRule, Config};
use crate::wire::Segment;

/// The receiver's estimate.
#[derive(Clone, Debug)]
pub(super) struct CwndEstimate {
    enabled: bool,
    max_delack: u32,
    min_acks_per_win: u32,
    /// When this round trip began; `None` before the first segment.
    begun: Option<Time>,
    /// Segments that have arrived since then.
    arrived: u32,
    /// cwnd in segments: what arrived in the last whole round trip.
    cwnd: u32,
}

impl CwndEstimate {
    pub(super) fn new(config: &Config) -> CwndEstimate {
        CwndEstimate {
            enabled: config.ack_rule == AckRule::Ace,
            max_delack: config.max_delack_segments,
            min_acks_per_win: config.min_acks_per_win,
            begun: None,
            arrived: 0,
            cwnd: 0,
        }
    }

    /// A data segment arrives. It echoes an ack that was sent `rtt` ago.
    fn on_segment(&mut self, now: Time, rtt: Option<Duration>) {
        let begun = *self.begun.get_or_insert(now);
        if rtt.is_some_and(|rtt| now.since(begun) >= rtt && now > begun) {
            self.cwnd = self.arrived;
            (self.begun, self.arrived) = (Some(now), 0);
        }
        self.arrived += 1;
    }

    /// d.
    fn d(&self) -> u32 {
        (self.cwnd / self.min_acks_per_win).clamp(1, self.max_delack)
    }
}

impl Extension for CwndEstimate {
    fn is_enabled(&self) -> bool {
        self.enabled
    }

    fn on_data(&mut self, now: Time, _: &Segment, rtt: Option<Duration>) {
        if self.enabled {
            self.on_segment(now, rtt);
        }
    }

    fn segments_per_ack(&self) -> Option<u32> {
        self.enabled.then(|| self.d())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::stack_config;

    fn ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    /// An estimate after windows of these segments, a millisecond apart, one each 100 ms.
    fn after(windows: &[u64]) -> CwndEstimate {
        let mut estimate = CwndEstimate::new(&stack_config("ace", &Default::default()).unwrap());
        for (round, &window) in (0..).zip(windows) {
            for segment in 0..window {
                estimate.on_segment(ms(100 * round + segment), Some(Duration::from_millis(100)));
            }
        }
        estimate
    }

    #[test]
    fn the_window_is_what_arrived_in_the_last_whole_round_trip() {
        assert_eq!(after(&[1]).cwnd, 0, "no round trip has passed");
        for (windows, cwnd) in [(&[1, 2, 1][..], 2), (&[1, 2, 4, 8, 16, 32, 1], 32), (&[40, 1, 1], 1)] {
            assert_eq!(after(windows).cwnd, cwnd, "{windows:?}");
        }
    }

    #[test]
    fn acks_echoed_from_before_the_round_trip_do_not_end_it() {
        let mut estimate = after(&[4]);
        // 90 ms after the round trip began, the echo of an ack that was sent 10 ms before that.
        estimate.on_segment(ms(90), Some(Duration::from_millis(100)));
        estimate.on_segment(ms(200), None);
        assert_eq!((estimate.cwnd, estimate.arrived), (0, 6));
        estimate.on_segment(ms(201), Some(Duration::from_millis(201)));
        assert_eq!((estimate.cwnd, estimate.arrived), (6, 1));
    }

    #[test]
    fn an_ack_stands_for_a_fifth_of_the_window_between_one_segment_and_eight() {
        for (window, d) in [(4, 1), (9, 1), (10, 2), (27, 5), (40, 8), (90, 8)] {
            assert_eq!(after(&[window, 1]).d(), d, "{window}");
        }
    }
}
