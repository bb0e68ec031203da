//! The sender's limit on bursts (asym 6.3, 8.3 and figure 19): at most `maxburst` segments back to back; the rest
//! later, at the rate cwnd/srtt. While the burst timer runs nothing new is sent, however many acks arrive.
//!
//! ```text
//! wait = maxburst / (cwnd / srtt_exact)        cwnd in segments
//! ```
//!
//! With a timer of 10 ms granularity (BSDI) the wait is rounded up to it, which caps the rate at maxburst segments per
//! 10 ms.

use std::time::Duration;

use backchannel_core::time::Time;

use crate::config::Config;
use crate::timers::{Timer, TimerTable};

/// Segments sent back to back: counted always, limited if there is a limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Burst {
    /// Segments that may go back to back; `None`: no limit.
    most: Option<u32>,
    /// Granularity of the burst timer; zero: exact.
    tick: Duration,
    /// The instant of the last burst.
    at: Time,
    /// Its segments so far.
    sent: u32,
    /// The longest burst so far, in segments.
    pub longest: u32,
}

impl Burst {
    /// With the limit of a configuration.
    pub fn new(config: &Config) -> Burst {
        Burst { most: config.maxburst_segments, tick: config.burst_tick_s, ..Burst::default() }
    }

    /// Whether a new segment may go now; if not, sets the burst timer. `cwnd` in segments; `srtt_exact` is `None`
    /// before the first sample, when no rate is known: then the wait is one step of the timer's granularity.
    pub fn may_send(&self, now: Time, cwnd: f64, srtt_exact: Option<Duration>, timers: &mut TimerTable) -> bool {
        if timers.deadline(Timer::Burst).is_some_and(|until| now < until) {
            return false;
        }
        timers.stop(Timer::Burst);
        let Some(most) = self.most else { return true };
        if self.at != now || self.sent < most {
            return true;
        }
        let wait = srtt_exact.unwrap_or_default().mul_f64(f64::from(most) / cwnd.max(1.0));
        let tick = self.tick.as_nanos() as u64;
        let until = (now + wait).nanos().max(now.nanos() + 1);
        timers.set(Timer::Burst, Time(if tick == 0 { until } else { until.div_ceil(tick) * tick }));
        false
    }

    /// Length of the last burst, in segments.
    pub fn last(&self) -> u32 {
        self.sent
    }

    /// A data segment is sent.
    pub fn on_transmit(&mut self, now: Time) {
        if self.at != now {
            (self.at, self.sent) = (now, 0);
        }
        self.sent += 1;
        self.longest = self.longest.max(self.sent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst(most: Option<u32>, tick: Duration) -> (Burst, TimerTable) {
        (Burst { most, tick, ..Burst::default() }, TimerTable::default())
    }

    fn drain((burst, timers): &mut (Burst, TimerTable), now: Time) -> u32 {
        let mut n = 0;
        while burst.may_send(now, 40.0, Some(Duration::from_millis(100)), timers) && n < 100 {
            burst.on_transmit(now);
            n += 1;
        }
        n
    }

    #[test]
    fn four_go_and_the_rest_follow_at_the_window_over_the_round_trip() {
        let mut limited = burst(Some(4), Duration::ZERO);
        assert_eq!(drain(&mut limited, Time(5_000_000)), 4);
        // 4 / (40 / 100 ms) = 10 ms.
        assert_eq!(limited.1.deadline(Timer::Burst), Some(Time(15_000_000)));
        assert_eq!(drain(&mut limited, Time(9_000_000)), 0, "an ack does not lift the limit");
        assert_eq!(drain(&mut limited, Time(15_000_000)), 4);
    }

    #[test]
    fn a_coarse_timer_rounds_up_and_no_limit_is_no_limit() {
        let mut coarse = burst(Some(4), Duration::from_millis(10));
        drain(&mut coarse, Time(5_000_000));
        assert_eq!(coarse.1.deadline(Timer::Burst), Some(Time(20_000_000)));
        let mut free = burst(None, Duration::ZERO);
        assert_eq!(drain(&mut free, Time(1)), 100);
        free.0.on_transmit(Time(2));
        assert_eq!((free.0.last(), free.0.longest), (1, 100));
    }
}
