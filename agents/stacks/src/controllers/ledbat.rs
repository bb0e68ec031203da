//! LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus-01): a background sender, which yields to others because it holds its queue
//! at 60 ms. The names are the draft's.
//!
//! ```text
//! 4.2   GAIN = 1 / min(16, CEIL(2 TARGET / base))
//!       below the target: cwnd += GAIN acked mss / cwnd
//!       above:            cwnd += max(GAIN - cwnd (delay / TARGET - 1), -cwnd / 2), a round trip
//! 4.4   every tenth of the time: cwnd = 2 segments for two round trips, then slow start to where it was
//! ```
//!
//! Differs from the source: the base delay is the least round trip since the last ten minutes began, not the least of ten
//! minutes one by one.

use std::collections::VecDeque;
use std::time::Duration;

use backchannel_core::time::Time;

use super::delay_based::DelayRule;
use super::{AckSample, Classic, Reno, Window};

/// TARGET of 4.2 in seconds.
const TARGET_S: f64 = 0.06;
/// The share of it that ends slow start (4.3).
const SLOW_START_SHARE: f64 = 0.75;
/// Round-trip samples of which the least counts as the current delay (RFC 6817 4.2).
const CURRENT_FILTER: usize = 4;
/// How long the base delay is remembered (RFC 6817 4.2).
const BASE_HISTORY: Duration = Duration::from_secs(600);
/// Segments in a slowdown, its length in round trips, and how many times longer it lasts until the next (4.4).
const SLOWDOWN_SEGMENTS: f64 = 2.0;
const SLOWDOWN_ROUND_TRIPS: u32 = 2;
const SLOWDOWN_INTERVALS: u32 = 9;

/// When the window is reduced to learn the base delay anew.
#[derive(Clone, Copy, Debug, Default)]
enum Slowdown {
    /// Slow start has not ended.
    #[default]
    None,
    /// It begins then.
    Due(Time),
    /// It began then, and lasts until then.
    Holds { began: Time, until: Time },
    /// It began then; slow start leads back.
    Recovers { began: Time },
}

/// The controller of one connection.
#[derive(Debug, Default)]
pub struct Ledbat {
    /// The least round trip, and since when it counts.
    base: Option<(Duration, Time)>,
    /// The last round trips.
    current: VecDeque<Duration>,
    slowdown: Slowdown,
}

impl Ledbat {
    fn measure(&mut self, now: Time, rtt: Duration) {
        self.current.push_back(rtt);
        if self.current.len() > CURRENT_FILTER {
            self.current.pop_front();
        }
        self.base = Some(match self.base {
            Some((base, since)) if now - since <= BASE_HISTORY => (base.min(rtt), since),
            // Not above the current delay, of which it is the least.
            _ => (self.current.iter().copied().min().unwrap_or(rtt), now),
        });
    }

    /// The base delay and the delay of queues, in seconds.
    fn delays(&self) -> Option<(f64, f64)> {
        let (base, _) = self.base?;
        let current = self.current.iter().min()?;
        Some((base.as_secs_f64(), (*current - base).as_secs_f64()))
    }

    /// Slow start and congestion avoidance (4.2, 4.3).
    fn grow(window: &mut Window, ack: &AckSample, base_s: f64, queueing_s: f64) {
        let (mss, acked) = (window.mss(), ack.acked as f64);
        let gain = 1.0 / (2.0 * TARGET_S / base_s).ceil().clamp(1.0, 16.0);
        if window.cwnd < window.ssthresh {
            window.cwnd += gain * acked;
            if queueing_s > SLOW_START_SHARE * TARGET_S {
                window.ssthresh = window.cwnd;
            }
            return;
        }
        let share = acked / window.cwnd;
        let change = if queueing_s <= TARGET_S {
            gain * mss
        } else {
            (gain * mss - window.cwnd * (queueing_s / TARGET_S - 1.0)).max(-window.cwnd / 2.0)
        };
        window.cwnd = (window.cwnd + share * change).max(SLOWDOWN_SEGMENTS * mss);
    }

    /// 4.4.
    fn pace_slowdowns(&mut self, window: &mut Window, now: Time, srtt: Duration) {
        let in_slow_start = window.cwnd < window.ssthresh;
        self.slowdown = match self.slowdown {
            Slowdown::None if !in_slow_start => Slowdown::Due(now + srtt * SLOWDOWN_ROUND_TRIPS),
            Slowdown::Due(at) if now >= at => {
                window.ssthresh = window.cwnd;
                window.cwnd = SLOWDOWN_SEGMENTS * window.mss();
                Slowdown::Holds { began: now, until: now + srtt * SLOWDOWN_ROUND_TRIPS }
            }
            Slowdown::Holds { began, until } if now >= until => Slowdown::Recovers { began },
            Slowdown::Recovers { began } if !in_slow_start => Slowdown::Due(now + (now - began) * SLOWDOWN_INTERVALS),
            other => other,
        };
    }
}

impl DelayRule for Ledbat {
    fn on_ack(&mut self, reno: &mut Classic<Reno>, ack: &AckSample) {
        if let Some(rtt) = ack.rtt {
            self.measure(ack.now, rtt);
        }
        let Some((base_s, queueing_s)) = self.delays().filter(|_| !ack.in_recovery) else { return };
        self.pace_slowdowns(&mut reno.window, ack.now, Duration::from_secs_f64(ack.srtt_s));
        if !matches!(self.slowdown, Slowdown::Holds { .. }) && ack.window_limited {
            Ledbat::grow(&mut reno.window, ack, base_s, queueing_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::delay_based::DelayBased;
    use super::super::tests::sample;
    use super::super::CongestionController;
    use super::*;
    use crate::config::stack_config;

    fn ledbat(starts: bool) -> DelayBased<Ledbat> {
        let options = [("initial_window_segments".to_owned(), serde_json::json!(20))].into();
        let mut ledbat = DelayBased::<Ledbat>::new(&stack_config("newreno", &options).unwrap(), 1000);
        if !starts {
            ledbat.reno.window.ssthresh = 1000.0;
        }
        ledbat
    }

    /// Acks of 20 segments with this round trip, from `at_ms` on. Returns the window in segments.
    fn round(ledbat: &mut DelayBased<Ledbat>, at_ms: u64, rtt_ms: u64) -> f64 {
        for number in 0..20 {
            let now = Time((at_ms + number) * 1_000_000);
            let rtt = Some(Duration::from_millis(rtt_ms));
            ledbat.on_ack(&AckSample { now, rtt, srtt_s: 0.1, ..sample(1000) });
        }
        ledbat.reno.window.segments()
    }

    #[test]
    fn the_queue_is_held_at_the_target() {
        let mut ledbat = ledbat(false);
        // Base 100 ms: a gain of 1 / ceil(1.2) = 1/2.
        assert!((round(&mut ledbat, 0, 100) - 20.5).abs() < 0.02);
        assert!((round(&mut ledbat, 30, 160) - 21.0).abs() < 0.05);
        // 75 ms of queue: a quarter of the window and half a segment, less what it shrinks meanwhile.
        let shrunk = round(&mut ledbat, 60, 175);
        assert!((16.0..18.0).contains(&shrunk), "{shrunk}");
    }

    /// When the base delay is forgotten, the current delay is that of the last four samples, some of which were shorter.
    #[test]
    fn after_ten_minutes_the_base_delay_is_the_least_of_the_last_samples() {
        let (mut ledbat, ms) = (Ledbat::default(), Duration::from_millis);
        for (at_s, rtt_ms) in [(0.0, 40), (599.9, 70), (600.0, 60), (600.1, 90)] {
            ledbat.measure(Time::from_seconds(at_s), ms(rtt_ms));
        }
        assert_eq!(ledbat.base.map(|(base, _)| base), Some(ms(40)));
        ledbat.base = ledbat.base.map(|(base, _)| (base, Time::ZERO));
        ledbat.measure(Time::from_seconds(600.2), ms(80));
        assert_eq!(ledbat.delays(), Some((0.06, 0.0)));
    }

    #[test]
    fn slow_start_ends_at_three_quarters_of_the_target_and_a_slowdown_follows() {
        let mut ledbat = ledbat(true);
        assert_eq!(round(&mut ledbat, 0, 100), 30.0);
        let ended = round(&mut ledbat, 100, 150);
        assert!(ended < 33.0, "{ended}");
        round(&mut ledbat, 200, 150);
        assert_eq!(round(&mut ledbat, 350, 100), 2.0, "two round trips later");
        assert_eq!(round(&mut ledbat, 400, 100), 2.0);
        let back: Vec<_> = [600, 700, 800, 900].iter().map(|at_ms| round(&mut ledbat, *at_ms, 100).round()).collect();
        assert_eq!(back[..3], [12.0, 22.0, 32.0], "slow start leads back");
        // The slowdown took from 0.35 s to about 0.9 s; the next comes after nine times as long.
        let Slowdown::Due(at) = ledbat.rule.slowdown else { panic!("{:?}", ledbat.rule.slowdown) };
        assert!((5.0..6.5).contains(&at.seconds()), "{at}");
    }
}
