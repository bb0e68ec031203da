//! Vegas (Brakmo and Peterson, TCP Vegas: End to End Congestion Avoidance on a Global Internet, 1995): once a round trip
//! the sender compares its rate with that of an empty path, and keeps two to four segments in queues.
//!
//! ```text
//! Diff = cwnd (rtt - base_rtt) / rtt           in segments
//! ```
//!
//! Losses are Reno's. alpha, beta and gamma are Linux's. Differs from the source: slow start doubles in each round
//! trip, not in every other one, as in Linux, and Vegas's own retransmission rules are not built. Differs from Linux:
//! its Diff is cwnd (rtt - base_rtt) / base_rtt, in whole segments.

use std::time::Duration;

use super::delay_based::DelayRule;
use super::{AckSample, Classic, CongestionController, Reno, Window};

/// Segments in queues: fewer than alpha let the window grow, more than beta let it shrink, more than gamma end slow
/// start.
const ALPHA: f64 = 2.0;
const BETA: f64 = 4.0;
const GAMMA: f64 = 1.0;
/// Round-trip samples below which a round trip says nothing, because one ack may have been delayed.
const FEW: u32 = 2;

/// The controller of one connection.
#[derive(Debug, Default)]
pub struct Vegas {
    /// BaseRTT.
    base_rtt: Option<Duration>,
    /// The least of this round trip, and how many there were.
    least: Option<Duration>,
    samples: u32,
}

impl Vegas {
    /// The end of a round trip. Returns whether slow start goes on.
    fn adjust(window: &mut Window, rtt: Duration, base_rtt: Duration) -> bool {
        let (mss, cwnd) = (window.mss(), window.segments());
        let in_slow_start = window.cwnd < window.ssthresh;
        let expected = cwnd * base_rtt.as_secs_f64() / rtt.as_secs_f64();
        let diff = cwnd - expected;
        if in_slow_start && diff <= GAMMA {
            return true;
        }
        let segments = match diff {
            _ if in_slow_start => (expected + 1.0).min(cwnd),
            _ if diff > BETA => cwnd - 1.0,
            _ if diff < ALPHA => cwnd + 1.0,
            _ => cwnd,
        };
        window.cwnd = segments.max(2.0) * mss;
        if in_slow_start || diff > BETA {
            // The window itself: a threshold above it would bring slow start back.
            window.ssthresh = window.ssthresh.min(window.cwnd);
        }
        false
    }
}

impl DelayRule for Vegas {
    fn on_ack(&mut self, reno: &mut Classic<Reno>, ack: &AckSample) {
        // By the segment's own time where there is a record of it: timestamps count milliseconds.
        if let Some(rtt) = ack.rate.map_or(ack.rtt, |rate| rate.rtt) {
            let least = |known: Option<Duration>| Some(known.map_or(rtt, |known| known.min(rtt)));
            (self.base_rtt, self.least) = (least(self.base_rtt), least(self.least));
            self.samples += 1;
        }
        if ack.in_recovery {
            // What is left of a burst that was lost says nothing of the round trips that follow.
            (self.least, self.samples) = (None, 0);
        }
        let as_reno = if ack.round_start && !ack.in_recovery {
            match (self.least.take(), self.base_rtt, std::mem::take(&mut self.samples)) {
                (Some(rtt), Some(base_rtt), samples) if samples > FEW => Vegas::adjust(&mut reno.window, rtt, base_rtt),
                _ => true,
            }
        } else {
            reno.window.cwnd < reno.window.ssthresh
        };
        if as_reno {
            reno.on_ack(ack);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::delay_based::DelayBased;
    use super::super::tests::sample;
    use super::*;
    use crate::config::stack_config;
    use crate::ledger::RateSample;

    /// In congestion avoidance, unless `starts`, with 20 segments of 1000 bytes.
    fn vegas(starts: bool) -> DelayBased<Vegas> {
        let options = [("initial_window_segments".to_owned(), serde_json::json!(20))].into();
        let mut vegas = DelayBased::<Vegas>::new(&stack_config("newreno", &options).unwrap(), 1000);
        if !starts {
            vegas.reno.window.ssthresh = 1000.0;
        }
        vegas
    }

    /// A round trip of ten acks; returns the window in segments.
    fn round(vegas: &mut DelayBased<Vegas>, rtt_ms: u64) -> f64 {
        for number in (0..10).rev() {
            let rtt = Some(Duration::from_millis(rtt_ms));
            vegas.on_ack(&AckSample { rtt, round_start: number == 0, ..sample(1000) });
        }
        vegas.reno.window.segments()
    }

    #[test]
    fn two_to_four_segments_stay_in_queues() {
        let mut vegas = vegas(false);
        // 20 segments: none queued, then 20 (1 - 100/118) = 3.2 and 20 (1 - 100/130) = 4.6.
        assert_eq!(round(&mut vegas, 100), 21.0);
        assert_eq!(round(&mut vegas, 118), 21.0);
        assert_eq!(round(&mut vegas, 130), 20.0);
    }

    #[test]
    fn a_queue_of_a_segment_ends_slow_start_at_what_the_path_holds() {
        let mut vegas = vegas(true);
        assert_eq!(round(&mut vegas, 100), 30.0);
        // In the middle of the second round trip the window is 39 segments, of which 39 * 100 / 120 fill the path.
        let ended = round(&mut vegas, 120);
        assert!((ended - (39.0 * 100.0 / 120.0 + 1.0)).abs() < 1e-9, "{ended}");
        let window = &vegas.reno.window;
        assert_eq!(window.cwnd, window.ssthresh, "or slow start would go on");
    }

    #[test]
    fn a_smaller_window_does_not_start_slow_start_again() {
        let mut vegas = DelayBased::<Vegas>::new(&stack_config("newreno", &Default::default()).unwrap(), 1448);
        vegas.reno.window.ssthresh = 1448.0;
        round(&mut vegas, 100);
        // Thirds of a segment, which are not exact.
        vegas.reno.window.cwnd = 1448.0 * (30.0 + 1.0 / 3.0);
        vegas.reno.window.ssthresh = vegas.reno.window.cwnd;
        for left in (5..30).rev() {
            assert_eq!(round(&mut vegas, 1000).floor(), f64::from(left));
            assert!(vegas.reno.window.cwnd >= vegas.reno.window.ssthresh);
        }
    }

    #[test]
    fn too_few_samples_count_as_renos_once_and_those_of_a_recovery_not_at_all() {
        let mut vegas = vegas(true);
        let rtt = Some(Duration::from_millis(100));
        vegas.on_ack(&AckSample { rtt, round_start: true, ..sample(1000) });
        assert_eq!(vegas.reno.window.segments(), 21.0);
        vegas.reno.window.ssthresh = 1000.0;
        (0..9).for_each(|_| vegas.on_ack(&AckSample { rtt, in_recovery: true, ..sample(1000) }));
        assert_eq!(round(&mut vegas, 130), 20.0, "30 ms of queue: 4.8 segments");
    }

    #[test]
    fn a_segments_own_time_goes_before_the_timestamps() {
        let mut vegas = vegas(false);
        let rate = RateSample {
            delivery_rate: 1e6,
            interval: Duration::from_millis(100),
            delivered: 1000,
            prior_delivered: 0,
            total_delivered: 1000,
            tx_in_flight: 1000,
            lost: 0,
            is_app_limited: false,
            rtt: Some(Duration::from_micros(100_400)),
        };
        vegas.on_ack(&AckSample { rtt: Some(Duration::from_millis(100)), rate: Some(rate), ..sample(1000) });
        assert_eq!(vegas.rule.base_rtt, Some(Duration::from_micros(100_400)));
    }
}
