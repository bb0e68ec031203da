//! Round-trip times and the retransmission timeout.
//!
//! Two families. The coarse clocks of the papers' stacks (4.4BSD's 500 ms, ns-2's 100 ms) work in scaled integers as
//! there; the wireless results depend on this more than on anything else. The other is RFC 6298.

use std::time::Duration;

use backchannel_core::time::Time;

use crate::config::{Config, TimerKind};
use crate::seq::Offset;

/// How the timeout is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Clock {
    /// Jacobson's estimator in ticks of this length, as in 4.4BSD: srtt scaled by 8, mean deviation by 4.
    Ticks(Duration),
    /// The same deviation, and srtt is the mean of exact round trips, in whole ticks (asym 8.3).
    ExactTicks(Duration),
    /// The same estimator as in ns-2: a sample is rounded to ticks and at least one; timers do not wait for a tick.
    Ns(Duration),
    /// RFC 6298 with this granularity.
    Smooth(Duration),
}

/// Parameters of the timeout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RtoConfig {
    /// The estimator.
    pub clock: Clock,
    /// The timeout before the first sample.
    pub initial: Duration,
    /// Least timeout.
    pub min: Duration,
    /// Least time between the smoothed round trip and the timeout, of [`Clock::Smooth`].
    pub min_deviation: Duration,
    /// Greatest timeout, backed off or not.
    pub max: Duration,
    /// Whether every sample ends a backoff; otherwise only that of a segment that is timed (Karn), although others are
    /// sampled by their echoes.
    pub samples_end_backoff: bool,
    /// Doublings beyond which a timeout clears the mean.
    pub forgets_after: u32,
}

impl RtoConfig {
    /// The parameters of a configuration: where it leaves tick and minimum open, those of its timer.
    pub fn new(config: &Config) -> RtoConfig {
        let tick = |default_s| config.timer_tick_s.unwrap_or(Duration::from_secs_f64(default_s));
        let (clock, initial_s, min_s, max_s) = match config.timer {
            TimerKind::Bsd => (Clock::Ticks(tick(0.5)), 6.0, 1.0, 64.0),
            TimerKind::BsdExact => (Clock::ExactTicks(tick(0.5)), 6.0, 1.0, 64.0),
            TimerKind::Ns => (Clock::Ns(tick(0.1)), 6.0, 0.2, 64.0),
            TimerKind::Ns1997 => (Clock::Ns(tick(0.1)), 3.0, 0.2, 64.0),
            TimerKind::Modern => (Clock::Smooth(tick(0.001)), 1.0, 1.0, 60.0),
            TimerKind::Linux => (Clock::Smooth(tick(0.001)), 1.0, 0.2, 120.0),
        };
        let min = config.rto_min_s.unwrap_or(Duration::from_secs_f64(min_s));
        RtoConfig {
            clock,
            initial: Duration::from_secs_f64(initial_s),
            min,
            min_deviation: if config.timer == TimerKind::Linux { min } else { Duration::ZERO },
            max: Duration::from_secs_f64(max_s),
            samples_end_backoff: config.timer != TimerKind::Ns1997,
            forgets_after: if config.timer == TimerKind::Ns1997 { 3 } else { u32::MAX },
        }
    }
}

/// 4.4BSD's TCPTV_PERSMIN and TCPTV_PERSMAX.
const BSD_PERSIST: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// The estimator of one connection.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    config: RtoConfig,
    /// Smoothed round trip: ticks scaled by 8, or seconds. Meaningless before the first sample.
    srtt: f64,
    /// Mean deviation: ticks scaled by 4, or seconds. Meaningless before the first sample.
    rttvar: f64,
    sampled: bool,
    /// The smoothed round-trip time, and the timeout without backoff and within its least value: what follows from the
    /// three.
    smoothed: Option<Duration>,
    base: Duration,
    /// Doublings of the timeout since the last sample, or in ns of 1997 since the last ack for a segment that was
    /// timed.
    pub backoff: u32,
    /// The segment that is timed: one beyond its last byte, and when it was sent. It was sent once only.
    timed: Option<(Offset, Time)>,
    /// The first round trip, exactly.
    pub first: Option<Duration>,
    /// The last round trip, exactly.
    pub latest: Option<Duration>,
    /// When it was measured.
    latest_at: Time,
    /// The mean of exact round trips with gain 1/8: for the burst timer, and for the timeout of [`Clock::ExactTicks`].
    pub exact_srtt: Option<Duration>,
}

impl RttEstimator {
    /// Without a sample.
    pub fn new(config: RtoConfig) -> RttEstimator {
        RttEstimator {
            config,
            srtt: 0.0,
            rttvar: 0.0,
            sampled: false,
            smoothed: None,
            base: config.initial.max(config.min),
            backoff: 0,
            timed: None,
            first: None,
            latest: None,
            latest_at: Time::ZERO,
            exact_srtt: None,
        }
    }

    /// A segment that ends before `end` is sent for the first time. Without timestamps one segment is timed at a time.
    #[inline]
    pub fn on_first_transmission(&mut self, end: Offset, now: Time) {
        self.timed.get_or_insert((end, now));
    }

    /// Karn's algorithm (RFC 6298 3): the segment at `at` is sent again, so a timed segment that ends behind it gives
    /// no sample.
    pub fn on_retransmission(&mut self, at: Offset) {
        self.timed = self.timed.filter(|&(end, _)| end <= at);
    }

    /// No segment is timed any longer.
    pub fn stop_timing(&mut self) {
        self.timed = None;
    }

    /// An ack of everything before `ack`. `echo_sent`: when the segment was sent whose timestamp it echoes. The sample
    /// is by that, or by the timed segment, if the ack covers it.
    pub fn on_ack(&mut self, ack: Offset, echo_sent: Option<Time>, now: Time) {
        let timed = self.timed.take_if(|&mut (end, _)| end <= ack).map(|(_, sent)| sent);
        if let Some(sent) = echo_sent.or(timed) {
            self.on_sample(sent, now);
        }
        if timed.is_some() {
            self.backoff = 0;
        }
    }

    /// A timeout: the next one takes twice as long.
    pub fn back_off(&mut self) {
        self.backoff += 1;
        if self.backoff > self.config.forgets_after {
            (self.sampled, self.srtt) = (false, 0.0);
            self.update();
        }
    }

    /// A segment sent at `sent` was acknowledged at `now`, and was sent once only (Karn) or identified by its
    /// timestamp.
    pub fn on_sample(&mut self, sent: Time, now: Time) {
        if self.config.samples_end_backoff {
            self.backoff = 0;
        }
        let rtt = now - sent;
        let exact_srtt = self.exact_srtt.map_or(rtt, |srtt| (srtt * 7 + rtt) / 8);
        let before = (self.sampled, self.srtt, self.rttvar);
        match self.config.clock {
            Clock::Ticks(tick) => {
                let tick = tick.as_nanos() as u64;
                // Ticks that passed, as a counter sees them.
                self.on_ticks((now.nanos() / tick - sent.nanos() / tick) as f64, 1.0);
            }
            Clock::ExactTicks(tick) => {
                let whole_ticks = |time: Duration| (time.as_nanos() / tick.as_nanos()) as f64;
                self.on_ticks(whole_ticks(rtt), 1.0);
                self.srtt = whole_ticks(exact_srtt) * 8.0;
            }
            Clock::Ns(tick) => {
                let tick = tick.as_nanos() as u64;
                self.on_ticks((rtt.as_secs_f64() / (tick as f64 * 1e-9)).round().max(1.0), 0.0);
            }
            Clock::Smooth(_) => self.on_seconds(rtt.as_secs_f64()),
        }
        self.sampled = true;
        // Those in ticks rarely change.
        if before != (true, self.srtt, self.rttvar) {
            self.update();
        }
        self.first.get_or_insert(rtt);
        (self.latest, self.latest_at) = (Some(rtt), now);
        self.exact_srtt = Some(exact_srtt);
    }

    /// The round trip that was measured `now`.
    #[inline]
    pub fn latest_at(&self, now: Time) -> Option<Duration> {
        self.latest.filter(|_| self.latest_at == now)
    }

    /// Jacobson's estimator in ticks. `counter_start` is what the first sample has too much: BSD's counter begins at 1.
    fn on_ticks(&mut self, ticks: f64, counter_start: f64) {
        if self.sampled {
            // srtt += m/8 and rttvar += |m|/4 in scaled integers: m truncated as the shift does.
            let m = ticks - (self.srtt / 8.0).floor();
            self.srtt = (self.srtt + m).max(1.0);
            self.rttvar = (self.rttvar + m.abs() - (self.rttvar / 4.0).floor()).max(1.0);
        } else {
            let first = ticks + counter_start;
            self.srtt = first * 8.0;
            self.rttvar = first * 2.0;
        }
    }

    /// RFC 6298 2.2 and 2.3, with alpha = 1/8 and beta = 1/4.
    fn on_seconds(&mut self, r: f64) {
        if self.sampled {
            self.rttvar = 0.75 * self.rttvar + 0.25 * (self.srtt - r).abs();
            self.srtt = 0.875 * self.srtt + 0.125 * r;
        } else {
            self.srtt = r;
            self.rttvar = r / 2.0;
        }
    }

    /// Whether the clock is 4.4BSD's.
    pub fn is_bsd(&self) -> bool {
        matches!(self.config.clock, Clock::Ticks(_) | Clock::ExactTicks(_))
    }

    /// Whether the timeout is that of RFC 6298.
    pub fn is_modern(&self) -> bool {
        matches!(self.config.clock, Clock::Smooth(_))
    }

    /// The smoothed round-trip time; `None` before the first sample.
    pub fn srtt(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Derives the smoothed round-trip time and the timeout from the estimator's numbers.
    fn update(&mut self) {
        let (srtt, rttvar) = (self.srtt, self.rttvar);
        let (smoothed, timeout) = match self.config.clock {
            Clock::Ticks(tick) | Clock::ExactTicks(tick) => {
                (tick.mul_f64(srtt / 8.0), tick.mul_f64((srtt / 8.0).floor() + rttvar))
            }
            Clock::Ns(tick) => (tick.mul_f64(srtt / 8.0), tick.mul_f64((srtt / 8.0 + rttvar).floor())),
            Clock::Smooth(granularity) => {
                let smoothed = Duration::from_secs_f64(srtt);
                let deviation = Duration::from_secs_f64(4.0 * rttvar).max(self.config.min_deviation);
                (smoothed, smoothed + granularity.max(deviation))
            }
        };
        self.smoothed = Some(smoothed);
        self.base = timeout.max(self.config.min);
    }

    /// The timeout, backed off.
    pub fn rto(&self) -> Duration {
        if self.backoff == 0 {
            return self.base.min(self.config.max);
        }
        self.base.saturating_mul(1u32.checked_shl(self.backoff.min(6)).unwrap_or(64)).min(self.config.max)
    }

    /// How long to wait before the next probe of a closed window, after `probes` probes.
    pub fn persist(&self, probes: u32) -> Duration {
        match (self.sampled, self.config.clock) {
            // 4.4BSD's tcp_setpersist: srtt + 2 rttvar in its scaled integers, doubled up to 64 times.
            (true, Clock::Ticks(tick) | Clock::ExactTicks(tick)) => {
                let first = (((self.srtt / 4.0).floor() + self.rttvar) / 2.0).floor();
                tick.mul_f64(first * f64::from(1 << probes.min(6))).clamp(BSD_PERSIST.0, BSD_PERSIST.1)
            }
            // RFC 9293 3.8.6.1: the retransmission timeout, doubled.
            _ => self.rto().saturating_mul(1 << probes.min(6)).min(self.config.max),
        }
    }

    /// When a retransmission timer that is set at `now` expires. 4.4BSD's expires on a tick.
    #[inline]
    pub fn deadline(&self, now: Time) -> Time {
        match self.config.clock {
            Clock::Ticks(tick) | Clock::ExactTicks(tick) => {
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
        min_deviation: Duration::ZERO,
        max: Duration::from_secs(64),
        samples_end_backoff: true,
        forgets_after: u32::MAX,
    };
    const MODERN: RtoConfig = RtoConfig {
        clock: Clock::Smooth(Duration::from_millis(1)),
        initial: Duration::from_secs(1),
        min: Duration::from_millis(200),
        min_deviation: Duration::ZERO,
        max: Duration::from_secs(60),
        samples_end_backoff: true,
        forgets_after: u32::MAX,
    };

    fn ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn a_closed_window_is_waited_for_as_stevens_saw_it() {
        // TCP/IP Illustrated 1, 22.2: 1.5 s doubled, but never less than 5 s nor more than 60 s.
        let rto = RttEstimator { srtt: 8.0, rttvar: 4.0, sampled: true, ..RttEstimator::new(BSD) };
        let waits: Vec<_> = (0..8).map(|probes| rto.persist(probes).as_secs()).collect();
        assert_eq!(waits, [5, 5, 6, 12, 24, 48, 60, 60]);
    }

    #[test]
    fn bsd_times_out_within_one_to_one_and_a_half_seconds_on_a_short_path() {
        let mut rto = RttEstimator::new(BSD);
        assert_eq!(rto.rto(), Duration::from_secs(6));
        for i in 0..50 {
            rto.on_sample(ms(i * 100), ms(i * 100 + 10));
        }
        // srtt decays to a fraction of a tick; the deviation, scaled by four, sticks at three: a shift by two takes
        // nothing off it any more. Three ticks, of which the first is cut short.
        assert_eq!(rto.rto(), Duration::from_millis(1500));
        assert_eq!(rto.deadline(ms(5_250)), ms(6_500));
        assert_eq!(rto.deadline(ms(5_499)), ms(6_500));
    }

    #[test]
    fn exact_round_trips_below_a_tick_leave_the_timeout_at_its_least() {
        let mut counted = RttEstimator::new(BSD);
        let mut exact = RttEstimator::new(RtoConfig { clock: Clock::ExactTicks(Duration::from_millis(500)), ..BSD });
        for rto in [&mut counted, &mut exact] {
            for i in 1..50 {
                // 400 ms across a tick of the clock.
                rto.on_sample(ms(i * 500 - 100), ms(i * 500 + 300));
            }
        }
        assert_eq!(counted.rto(), Duration::from_millis(2000), "the counter saw a tick pass each time");
        assert_eq!(exact.rto(), Duration::from_millis(1000));
        // A mean of 400 + (4000 - 400)/8 = 850 ms is a tick. The sample is 8, with no tick before: 2 + 8 - 0.
        exact.on_sample(ms(40_000), ms(44_000));
        assert_eq!(exact.rto(), Duration::from_millis(500 * (1 + 10)));
        assert_eq!(exact.deadline(ms(44_100)), ms(49_500));
    }

    #[test]
    fn in_1997_an_echo_is_a_sample_and_only_a_segment_sent_since_ends_the_backoff() {
        let options = [("timer".into(), serde_json::json!("ns-1997"))].into();
        let mut rto = RttEstimator::new(RtoConfig::new(&crate::config::stack_config("reno-ns", &options).unwrap()));
        assert_eq!(rto.deadline(ms(0)), ms(3_000));
        let first = Offset::FIRST_BYTE + 1000;
        rto.on_first_transmission(first, ms(0));
        rto.stop_timing();
        rto.back_off();
        // Sent again at 3 s. Two ticks: srtt 16/8, deviation 4.
        rto.on_ack(first, Some(ms(3_000)), ms(3_200));
        assert_eq!((rto.backoff, rto.rto()), (1, Duration::from_millis(2 * 600)));
        let second = first + 1000;
        rto.on_first_transmission(second, ms(3_200));
        rto.on_ack(second, Some(ms(3_200)), ms(3_400));
        assert_eq!((rto.backoff, rto.rto()), (0, Duration::from_millis(500)));
        // 16 times: the mean is gone, and the deviation is that of before. The next sample is a first one.
        for backoff in 1..=4 {
            rto.back_off();
            assert_eq!(rto.rto(), Duration::from_millis((if backoff < 4 { 500 } else { 300 }) << backoff));
        }
        rto.on_ack(second, Some(ms(8_000)), ms(8_100));
        assert_eq!(rto.rto(), Duration::from_millis(300 << 4));
    }

    #[test]
    fn ns_rounds_samples_and_waits_for_no_tick() {
        let tick = Duration::from_millis(100);
        let mut rto = RttEstimator::new(RtoConfig { clock: Clock::Ns(tick), min: Duration::from_millis(200), ..BSD });
        rto.on_sample(ms(0), ms(20));
        // One tick: srtt 8/8, deviation 2/4: 1 + 2 ticks.
        assert_eq!(rto.rto(), Duration::from_millis(300));
        assert_eq!(rto.deadline(ms(333)), ms(633));
        rto.on_sample(ms(0), ms(260));
        // Three ticks: srtt (8 + 2)/8, deviation 2 + 2 - 0: floor(1.25 + 4).
        assert_eq!(rto.rto(), Duration::from_millis(500));
    }

    #[test]
    fn modern_follows_rfc_6298() {
        let mut rto = RttEstimator::new(MODERN);
        assert_eq!(rto.rto(), Duration::from_secs(1));
        rto.on_sample(ms(0), ms(100));
        assert_eq!(rto.rto(), Duration::from_millis(300));
        rto.on_sample(ms(0), ms(100));
        assert_eq!(rto.rto(), Duration::from_micros(250_000));
        for _ in 0..100 {
            rto.on_sample(ms(0), ms(100));
        }
        assert_eq!(rto.rto(), Duration::from_millis(200), "the minimum");
    }

    #[test]
    fn linux_adds_200_ms_at_least() {
        let options = [("timer".into(), serde_json::json!("linux"))].into();
        let mut rto = RttEstimator::new(RtoConfig::new(&crate::config::stack_config("reno-ns", &options).unwrap()));
        (0..100).for_each(|_| rto.on_sample(ms(0), ms(100)));
        assert_eq!(rto.rto(), Duration::from_millis(300));
        rto.on_sample(ms(0), ms(900));
        // srtt 7/8 100 + 1/8 900 = 200 ms, rttvar 1/4 800 = 200 ms.
        assert_eq!(rto.rto(), Duration::from_millis(1000));
    }

    /// The timeout in ms after two samples, of these round trips in ms.
    fn rto_after(config: RtoConfig, first: u64, second: u64) -> f64 {
        let mut rto = RttEstimator::new(config);
        rto.on_sample(ms(0), ms(first));
        rto.on_sample(ms(10_000), ms(10_000 + second));
        (rto.rto().as_secs_f64() * 1e6).round() / 1e3
    }

    #[test]
    fn the_deviation_follows_rising_and_falling_round_trips_alike() {
        // RFC 6298 2.3: rttvar 3/4·50 + 1/4·100 = 62.5 ms; srtt 7/8·100 + 1/8·200 = 112.5 or 1/8·0 = 87.5 ms.
        assert_eq!(rto_after(MODERN, 100, 200), 112.5 + 4.0 * 62.5);
        assert_eq!(rto_after(MODERN, 100, 0), 87.5 + 4.0 * 62.5);
        // 4.4BSD: 2 ticks and the counter's 1: srtt 24/8, deviation 6/4. Then m = 6 - 3: 27/8 and (6 + 3 - 1)/4, or
        // m = 0 - 3: 21/8 and (6 + 3 - 1)/4; the timeout is srtt and the scaled deviation, in ticks.
        assert_eq!(rto_after(BSD, 1000, 3000), 500.0 * (3.0 + 8.0));
        assert_eq!(rto_after(BSD, 1000, 0), 500.0 * (2.0 + 8.0));
        // ns-2: 4 ticks: srtt 32/8, deviation 8/4. Then m = ±3: 35/8 or 29/8, deviation (8 + 3 - 2)/4.
        let ns = RtoConfig { clock: Clock::Ns(Duration::from_millis(100)), ..BSD };
        assert_eq!(rto_after(ns, 400, 700), 100.0 * (4.375f64 + 9.0).floor());
        assert_eq!(rto_after(ns, 400, 100), 100.0 * (3.625f64 + 9.0).floor());
    }

    #[test]
    fn backoff_doubles_up_to_sixty_four_times_and_a_sample_ends_it() {
        let mut rto = RttEstimator::new(MODERN);
        rto.on_sample(ms(0), ms(100));
        rto.backoff = 2;
        assert_eq!(rto.rto(), Duration::from_millis(1200));
        rto.backoff = 20;
        assert_eq!(rto.rto(), Duration::from_millis(300 * 64));
        rto.on_sample(ms(0), ms(100));
        assert_eq!(rto.backoff, 0);
    }
}
