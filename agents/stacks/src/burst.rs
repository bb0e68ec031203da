//! The sender's limit on bursts (asym 6.3, 8.3 and figure 19): at most `maxburst` segments back to back; the rest later, at
//! the rate cwnd/srtt. While the burst timer runs nothing new is sent, however many acks come.
//!
//! ```text
//! wait = maxburst / (cwnd / srtt_exact)        cwnd in segments
//! ```
//!
//! With a timer of 10 ms granularity (BSDI) the wait is rounded up to it, which caps the rate at maxburst segments per 10 ms.

use std::time::Duration;

use backchannel_core::time::Time;

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstLimit {
    /// Segments that may go back to back.
    pub most: u32,
    /// Granularity of the burst timer; zero: exact.
    pub tick: Duration,
}

/// Segments sent back to back: counted always, limited if there is a limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Burst {
    limit: Option<BurstLimit>,
    at: Time,
    sent: u32,
    /// Until when nothing new is sent.
    pub until: Option<Time>,
    /// The longest burst so far, in segments.
    pub longest: u32,
}

impl Burst {
    /// With or without a limit.
    pub fn new(limit: Option<BurstLimit>) -> Burst {
        Burst { limit, ..Burst::default() }
    }

    /// Whether a new segment may go now. `cwnd` in segments; `srtt_exact` is `None` before the first sample, when no rate
    /// is known and the limit alone holds back: then a round of the timer's granularity is waited.
    pub fn may_send(&mut self, now: Time, cwnd: f64, srtt_exact: Option<Duration>) -> bool {
        if self.until.is_some_and(|until| now < until) {
            return false;
        }
        self.until = None;
        let Some(limit) = self.limit else { return true };
        if self.at != now || self.sent < limit.most {
            return true;
        }
        let wait = srtt_exact.unwrap_or_default().mul_f64(f64::from(limit.most) / cwnd.max(1.0));
        let tick = limit.tick.as_nanos() as u64;
        let until = (now + wait).nanos().max(now.nanos() + 1);
        self.until = Some(Time(if tick == 0 { until } else { until.div_ceil(tick) * tick }));
        false
    }

    /// Length of the last burst, in segments.
    pub fn last(&self) -> u32 {
        self.sent
    }

    /// A segment goes.
    pub fn sent(&mut self, now: Time) {
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

    fn drain(burst: &mut Burst, now: Time) -> u32 {
        let mut n = 0;
        while burst.may_send(now, 40.0, Some(Duration::from_millis(100))) && n < 100 {
            burst.sent(now);
            n += 1;
        }
        n
    }

    #[test]
    fn four_go_and_the_rest_follow_at_the_window_over_the_round_trip() {
        let mut burst = Burst::new(Some(BurstLimit { most: 4, tick: Duration::ZERO }));
        assert_eq!(drain(&mut burst, Time(5_000_000)), 4);
        // 4 / (40 / 100 ms) = 10 ms.
        assert_eq!(burst.until, Some(Time(15_000_000)));
        assert_eq!(drain(&mut burst, Time(9_000_000)), 0, "an ack does not lift the limit");
        assert_eq!(drain(&mut burst, Time(15_000_000)), 4);
    }

    #[test]
    fn a_coarse_timer_rounds_up_and_no_limit_is_no_limit() {
        let mut burst = Burst::new(Some(BurstLimit { most: 4, tick: Duration::from_millis(10) }));
        drain(&mut burst, Time(5_000_000));
        assert_eq!(burst.until, Some(Time(20_000_000)));
        let mut free = Burst::new(None);
        assert_eq!(drain(&mut free, Time(1)), 100);
        free.sent(Time(2));
        assert_eq!((free.last(), free.longest), (1, 100));
    }
}
