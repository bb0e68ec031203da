//! Round-trip times and the retransmission timeout.
//!
//! Two families. `ticks`: the coarse clocks of the papers' stacks (4.4BSD's 500 ms, ns-2's 100 ms), in scaled integers as
//! there; the wireless results rest on this more than on anything else. `smooth`: RFC 6298.

use std::time::Duration;

use backchannel_core::time::Time;

/// How the timeout is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Clock {
    /// Jacobson's estimator in ticks of this length, as in 4.4BSD: srtt scaled by 8, mean deviation by 4.
    Ticks(Duration),
    /// The same estimator as ns-2 has it: a sample is rounded to ticks and at least one; timers do not wait for a tick.
    Ns(Duration),
    /// RFC 6298 with this granularity.
    Smooth(Duration),
}

/// Parameters of the timeout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RtoConfig {
    /// The estimator.
    pub clock: Clock,
    /// Before the first sample.
    pub initial: Duration,
    /// Least.
    pub min: Duration,
    /// Greatest, backed off or not.
    pub max: Duration,
}

/// 4.4BSD's TCPTV_PERSMIN and TCPTV_PERSMAX.
const BSD_PERSIST: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// The estimator of one connection.
#[derive(Clone, Debug)]
pub struct Rto {
    config: RtoConfig,
    /// Ticks scaled by 8 and by 4, or seconds.
    srtt: f64,
    rttvar: f64,
    sampled: bool,
    /// Doublings since the last good sample.
    pub backoff: u32,
}

impl Rto {
    /// Without a sample.
    pub fn new(config: RtoConfig) -> Rto {
        Rto { config, srtt: 0.0, rttvar: 0.0, sampled: false, backoff: 0 }
    }

    /// A segment sent at `sent` was acknowledged at `now`, and was sent once only (Karn) or told apart by its timestamp.
    pub fn sample(&mut self, sent: Time, now: Time) {
        self.backoff = 0;
        match self.config.clock {
            Clock::Ticks(tick) | Clock::Ns(tick) => {
                let tick = tick.as_nanos() as u64;
                let ticks = if matches!(self.config.clock, Clock::Ns(_)) {
                    ((now - sent).as_secs_f64() / (tick as f64 * 1e-9)).round().max(1.0)
                } else {
                    // Ticks that passed, as a counter sees them.
                    (now.nanos() / tick - sent.nanos() / tick) as f64
                };
                if self.sampled {
                    // srtt += m/8 and rttvar += |m|/4 in scaled integers: m truncated as the shift does.
                    let m = ticks - (self.srtt / 8.0).floor();
                    self.srtt = (self.srtt + m).max(1.0);
                    self.rttvar = (self.rttvar + m.abs() - (self.rttvar / 4.0).floor()).max(1.0);
                } else {
                    // BSD's counter begins at 1, and its first sample is taken as it is.
                    let first = ticks + f64::from(u8::from(matches!(self.config.clock, Clock::Ticks(_))));
                    self.srtt = first * 8.0;
                    self.rttvar = first * 2.0;
                }
            }
            Clock::Smooth(_) => {
                let r = (now - sent).as_secs_f64();
                if self.sampled {
                    // RFC 6298 (2.3): RTTVAR first, with beta = 1/4; alpha = 1/8.
                    self.rttvar = 0.75 * self.rttvar + 0.25 * (self.srtt - r).abs();
                    self.srtt = 0.875 * self.srtt + 0.125 * r;
                } else {
                    // (2.2)
                    self.srtt = r;
                    self.rttvar = r / 2.0;
                }
            }
        }
        self.sampled = true;
    }

    /// The smoothed round-trip time; `None` before the first sample.
    pub fn srtt(&self) -> Option<Duration> {
        self.sampled.then(|| match self.config.clock {
            Clock::Ticks(tick) | Clock::Ns(tick) => tick.mul_f64(self.srtt / 8.0),
            Clock::Smooth(_) => Duration::from_secs_f64(self.srtt),
        })
    }

    /// The timeout, backed off.
    pub fn rto(&self) -> Duration {
        let base = match (self.sampled, self.config.clock) {
            (false, _) => self.config.initial,
            (true, Clock::Ticks(tick)) => tick.mul_f64((self.srtt / 8.0).floor() + self.rttvar),
            (true, Clock::Ns(tick)) => tick.mul_f64((self.srtt / 8.0 + self.rttvar).floor()),
            (true, Clock::Smooth(granularity)) => {
                Duration::from_secs_f64(self.srtt) + granularity.max(Duration::from_secs_f64(4.0 * self.rttvar))
            }
        };
        let base = base.max(self.config.min);
        base.saturating_mul(1u32.checked_shl(self.backoff.min(6)).unwrap_or(64)).min(self.config.max)
    }

    /// How long a closed window is waited for after `probes` probes of it.
    pub fn persist(&self, probes: u32) -> Duration {
        match (self.sampled, self.config.clock) {
            // 4.4BSD's tcp_setpersist: srtt + 2 rttvar in its scaled integers, doubled up to 64 times.
            (true, Clock::Ticks(tick)) => {
                let first = (((self.srtt / 4.0).floor() + self.rttvar) / 2.0).floor();
                tick.mul_f64(first * f64::from(1 << probes.min(6))).clamp(BSD_PERSIST.0, BSD_PERSIST.1)
            }
            // RFC 9293 3.8.6.1: the retransmission timeout, doubled.
            _ => self.rto().saturating_mul(1 << probes.min(6)).min(self.config.max),
        }
    }

    /// When a timer that is set at `now` fires: on a tick for coarse clocks, as a counter of ticks does.
    pub fn deadline(&self, now: Time) -> Time {
        match self.config.clock {
            Clock::Ticks(tick) => {
                let tick = tick.as_nanos() as u64;
                let ticks = (self.rto().as_nanos() as u64).div_ceil(tick).max(1);
                Time((now.nanos() / tick + ticks) * tick)
            }
            Clock::Ns(_) | Clock::Smooth(_) => now + self.rto(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BSD: RtoConfig = RtoConfig {
        clock: Clock::Ticks(Duration::from_millis(500)),
        initial: Duration::from_secs(6),
        min: Duration::from_secs(1),
        max: Duration::from_secs(64),
    };
    const MODERN: RtoConfig = RtoConfig {
        clock: Clock::Smooth(Duration::from_millis(1)),
        initial: Duration::from_secs(1),
        min: Duration::from_millis(200),
        max: Duration::from_secs(60),
    };

    fn ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn a_closed_window_is_waited_for_as_stevens_saw_it() {
        // TCP/IP Illustrated 1, 22.2: 1.5 s doubled, but never less than 5 s nor more than 60 s.
        let rto = Rto { srtt: 8.0, rttvar: 4.0, sampled: true, ..Rto::new(BSD) };
        let waits: Vec<_> = (0..8).map(|probes| rto.persist(probes).as_secs()).collect();
        assert_eq!(waits, [5, 5, 6, 12, 24, 48, 60, 60]);
    }

    #[test]
    fn bsd_times_out_within_one_to_one_and_a_half_seconds_on_a_short_path() {
        let mut rto = Rto::new(BSD);
        assert_eq!(rto.rto(), Duration::from_secs(6));
        for i in 0..50 {
            rto.sample(ms(i * 100), ms(i * 100 + 10));
        }
        // srtt decays to a fraction of a tick; the deviation, scaled by four, sticks at three: a shift by two takes nothing
        // off it any more. Three ticks, of which the first is cut short.
        assert_eq!(rto.rto(), Duration::from_millis(1500));
        assert_eq!(rto.deadline(ms(5_250)), ms(6_500));
        assert_eq!(rto.deadline(ms(5_499)), ms(6_500));
    }

    #[test]
    fn ns_rounds_samples_and_waits_for_no_tick() {
        let tick = Duration::from_millis(100);
        let mut rto = Rto::new(RtoConfig { clock: Clock::Ns(tick), min: Duration::from_millis(200), ..BSD });
        rto.sample(ms(0), ms(20));
        // One tick: srtt 8/8, deviation 2/4: 1 + 2 ticks.
        assert_eq!(rto.rto(), Duration::from_millis(300));
        assert_eq!(rto.deadline(ms(333)), ms(633));
        rto.sample(ms(0), ms(260));
        // Three ticks: srtt (8 + 2)/8, deviation 2 + 2 - 0: floor(1.25 + 4).
        assert_eq!(rto.rto(), Duration::from_millis(500));
    }

    #[test]
    fn modern_follows_rfc_6298() {
        let mut rto = Rto::new(MODERN);
        assert_eq!(rto.rto(), Duration::from_secs(1));
        rto.sample(ms(0), ms(100));
        assert_eq!(rto.rto(), Duration::from_millis(300));
        rto.sample(ms(0), ms(100));
        assert_eq!(rto.rto(), Duration::from_micros(250_000));
        for _ in 0..100 {
            rto.sample(ms(0), ms(100));
        }
        assert_eq!(rto.rto(), Duration::from_millis(200), "the minimum");
    }

    #[test]
    fn backoff_doubles_up_to_sixty_four_times_and_a_sample_ends_it() {
        let mut rto = Rto::new(MODERN);
        rto.sample(ms(0), ms(100));
        rto.backoff = 2;
        assert_eq!(rto.rto(), Duration::from_millis(1200));
        rto.backoff = 20;
        assert_eq!(rto.rto(), Duration::from_millis(300 * 64));
        rto.sample(ms(0), ms(100));
        assert_eq!(rto.backoff, 0);
    }
}
