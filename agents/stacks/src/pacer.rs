//! When the segments that the window allows leave: at once, in bursts of at most `maxburst` segments (asym 6.3, 8.3 and
//! figure 19), or at the pacing rate where the controller has one, a quantum at a time. While the pacing timer runs
//! nothing new is sent, however many acks arrive.
//!
//! ```text
//! bursts:  wait = maxburst / (cwnd / srtt_exact)        cwnd in segments
//! paced:   wait = bytes / pacing_rate
//! quanta:  wait = bytes / pacing_rate - late      at least half of it, as in Linux
//! ```
//!
//! With a timer of 10 ms granularity (BSDI) the wait of bursts is rounded up to it, which caps the rate at maxburst
//! segments per 10 ms.

use std::time::Duration;

use backchannel_core::time::Time;

use crate::config::Config;
use crate::timers::{Timer, TimerTable};

/// Spaces the segments of one connection, and counts those that leave at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    /// Segments that may go back to back without a pacing rate; `None`: no limit.
    most: Option<u32>,
    /// Granularity of the timer between bursts; zero: exact.
    tick: Duration,
    /// With a pacing rate: when the next quantum may go, and the bytes left of the last one.
    next: Time,
    left: u64,
    /// The instant of the last burst.
    at: Time,
    /// Its segments so far.
    sent: u32,
    /// The longest burst so far, in segments.
    pub longest: u32,
}

impl Pacer {
    /// With the limit of a configuration.
    pub fn new(config: &Config) -> Pacer {
        Pacer { most: config.maxburst_segments, tick: config.burst_tick_s, ..Pacer::default() }
    }

    /// Whether a new segment may go now; if not, sets the pacing timer. `rate` is the controller's in bytes a second.
    /// `spacing` returns the window in segments and the exact round trip, which is `None` before the first sample, when
    /// no rate is known: bursts then wait for one step of the timer's granularity.
    #[inline]
    pub fn may_send(
        &self,
        now: Time,
        rate: Option<f64>,
        spacing: impl FnOnce() -> (f64, Option<Duration>),
        timers: &mut TimerTable,
    ) -> bool {
        if timers.deadline(Timer::Pacing).is_some_and(|until| now < until) {
            return false;
        }
        timers.stop(Timer::Pacing);
        let until = match (rate, self.most) {
            (Some(_), _) if now < self.next && (self.at != now || self.left == 0) => self.next,
            (None, Some(most)) if self.at == now && self.sent >= most => {
                let (cwnd, srtt_exact) = spacing();
                let wait = srtt_exact.unwrap_or_default().mul_f64(f64::from(most) / cwnd.max(1.0));
                let tick = self.tick.as_nanos() as u64;
                let until = (now + wait).nanos().max(now.nanos() + 1);
                Time(if tick == 0 { until } else { until.div_ceil(tick) * tick })
            }
            _ => return true,
        };
        timers.set(Timer::Pacing, until);
        false
    }

    /// Length of the last burst, in segments.
    pub fn last(&self) -> u32 {
        self.sent
    }

    /// A segment with `bytes` of data is sent. `rate` and `quantum` are the controller's.
    #[inline(always)]
    pub fn on_transmit(&mut self, now: Time, bytes: u64, rate: Option<f64>, quantum: u64) {
        if self.at != now {
            (self.at, self.sent, self.left) = (now, 0, quantum);
        }
        self.left = self.left.saturating_sub(bytes);
        self.sent += 1;
        self.longest = self.longest.max(self.sent);
        if let Some(rate) = rate {
            let wait = Duration::from_secs_f64(bytes as f64 / rate);
            let late = if quantum > 0 { (self.next.max(now) - self.next).min(wait / 2) } else { Duration::ZERO };
            self.next = self.next.max(now) + (wait - late);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst(most: Option<u32>, tick: Duration) -> (Pacer, TimerTable) {
        (Pacer { most, tick, ..Pacer::default() }, TimerTable::default())
    }

    fn drain_at(rate: Option<f64>, at: &mut (Pacer, TimerTable), now: Time) -> u32 {
        drain_quanta(rate, 0, at, now)
    }

    fn drain_quanta(rate: Option<f64>, quantum: u64, (pacer, timers): &mut (Pacer, TimerTable), now: Time) -> u32 {
        let mut n = 0;
        while pacer.may_send(now, rate, || (40.0, Some(Duration::from_millis(100))), timers) && n < 100 {
            pacer.on_transmit(now, 1000, rate, quantum);
            n += 1;
        }
        n
    }

    fn drain(pacer: &mut (Pacer, TimerTable), now: Time) -> u32 {
        drain_at(None, pacer, now)
    }

    #[test]
    fn with_a_rate_one_segment_leaves_at_a_time_whatever_the_limit_on_bursts() {
        let mut paced = burst(Some(4), Duration::ZERO);
        for at in [5_000_000, 6_000_000, 7_000_000] {
            assert_eq!(drain_at(Some(1e6), &mut paced, Time(at)), 1);
            assert_eq!(paced.1.deadline(Timer::Pacing), Some(Time(at + 1_000_000)));
        }
        // A pause gives no credit.
        assert_eq!(drain_at(Some(1e6), &mut paced, Time(50_000_000)), 1);
    }

    #[test]
    fn with_a_quantum_of_two_segments_two_leave_at_a_time_at_the_same_rate() {
        let mut paced = burst(None, Duration::ZERO);
        // The first is late by more than its gap, of which the half is left.
        let mut next = 5_000_000;
        for gap in [1_500_000, 2_000_000, 2_000_000] {
            assert_eq!(drain_quanta(Some(1e6), 2000, &mut paced, Time(next)), 2);
            next += gap;
            assert_eq!(paced.1.deadline(Timer::Pacing), Some(Time(next)));
        }
        // One was all that the window let go: the other may not follow before the gap is over.
        paced.0.on_transmit(Time(20_000_000), 1000, Some(1e6), 2000);
        assert_eq!(drain_quanta(Some(1e6), 2000, &mut paced, Time(20_400_000)), 0);
    }

    #[test]
    fn four_go_and_the_rest_follow_at_the_window_over_the_round_trip() {
        let mut limited = burst(Some(4), Duration::ZERO);
        assert_eq!(drain(&mut limited, Time(5_000_000)), 4);
        // 4 / (40 / 100 ms) = 10 ms.
        assert_eq!(limited.1.deadline(Timer::Pacing), Some(Time(15_000_000)));
        assert_eq!(drain(&mut limited, Time(9_000_000)), 0, "an ack does not lift the limit");
        assert_eq!(drain(&mut limited, Time(15_000_000)), 4);
    }

    #[test]
    fn a_coarse_timer_rounds_up_and_no_limit_is_no_limit() {
        let mut coarse = burst(Some(4), Duration::from_millis(10));
        drain(&mut coarse, Time(5_000_000));
        assert_eq!(coarse.1.deadline(Timer::Pacing), Some(Time(20_000_000)));
        let mut free = burst(None, Duration::ZERO);
        assert_eq!(drain(&mut free, Time(1)), 100);
        free.0.on_transmit(Time(2), 1000, None, 0);
        assert_eq!((free.0.last(), free.0.longest), (1, 100));
    }
}
