//! Ends of the first slow start before a loss: HyStart (Ha and Rhee, Taming the elephants: New TCP slow start, 2011; the
//! constants are Linux's), and HyStart++ (RFC 9406), where the least round trip of a round leads to conservative slow
//! start (CSS), which goes back if that was chance.
//!
//! Differs from the sources: HyStart++ is not used after the first slow start, which RFC 9406 4.3 leaves open.

use std::time::Duration;

use backchannel_core::time::Time;

use super::AckSample;
use crate::config::{Config, SlowStart};

/// Which of the two.
#[derive(Clone, Debug)]
pub enum SlowStartExit {
    HyStart(HyStart),
    PlusPlus(HyStartPlusPlus),
}

impl SlowStartExit {
    pub fn new(config: &Config) -> Option<SlowStartExit> {
        match config.slow_start {
            SlowStart::Standard => None,
            SlowStart::HyStart => Some(SlowStartExit::HyStart(HyStart::new(config.pacing))),
            SlowStart::HyStartPlusPlus => Some(SlowStartExit::PlusPlus(HyStartPlusPlus::default())),
        }
    }

    /// Takes an ack in slow start, with a window of `segments`. Returns the share of slow start's increase by which the
    /// window grows; `None`: slow start is over.
    pub fn on_ack(&mut self, ack: &AckSample, segments: f64) -> Option<f64> {
        match self {
            SlowStartExit::HyStart(hystart) => hystart.on_ack(ack, segments),
            SlowStartExit::PlusPlus(hystart) => hystart.on_ack(ack),
        }
    }
}

/// Least window in segments, greatest time between acks of a train.
const LOW_WINDOW: f64 = 16.0;
const ACK_DELTA: Duration = Duration::from_millis(2);

/// HyStart of one connection.
#[derive(Clone, Debug)]
pub struct HyStart {
    paced: bool,
    /// The least round trip so far, and that of this round after how many samples.
    delay_min: Option<Duration>,
    curr_rtt: Option<Duration>,
    samples: u32,
    round_start: Time,
    /// The last ack of the train.
    last_ack: Time,
}

impl HyStart {
    fn new(paced: bool) -> HyStart {
        let (round_start, last_ack) = (Time::ZERO, Time::ZERO);
        HyStart { paced, delay_min: None, curr_rtt: None, samples: 0, round_start, last_ack }
    }

    fn on_ack(&mut self, ack: &AckSample, segments: f64) -> Option<f64> {
        if ack.round_start {
            (self.round_start, self.last_ack) = (ack.now, ack.now);
            (self.curr_rtt, self.samples) = (None, 0);
        }
        let Some(rtt) = ack.rtt else { return Some(1.0) };
        let delay_min = self.delay_min.map_or(rtt, |least| least.min(rtt));
        self.delay_min = Some(delay_min);
        if segments < LOW_WINDOW {
            return Some(1.0);
        }
        if ack.now - self.last_ack <= ACK_DELTA {
            self.last_ack = ack.now;
            // A paced sender spreads its segments over half of the round trip.
            let threshold = if self.paced { delay_min } else { delay_min / 2 };
            if ack.now - self.round_start > threshold {
                return None;
            }
        }
        let curr_rtt = self.curr_rtt.map_or(rtt, |least| least.min(rtt));
        self.curr_rtt = Some(curr_rtt);
        self.samples += 1;
        let threshold = (delay_min / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
        (self.samples <= N_RTT_SAMPLE || curr_rtt <= delay_min + threshold).then_some(1.0)
    }
}

/// Tuning constants and variables (RFC 9406 4.3); the first four are HyStart's too.
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: f64 = 4.0;
const CSS_ROUNDS: u32 = 5;

/// HyStart++ of one connection. The names are the RFC's.
#[derive(Clone, Debug, Default)]
pub struct HyStartPlusPlus {
    last_round_min_rtt: Option<Duration>,
    current_round_min_rtt: Option<Duration>,
    rtt_sample_count: u32,
    css: Option<Css>,
}

#[derive(Clone, Copy, Debug)]
struct Css {
    baseline_min_rtt: Duration,
    /// Rounds that have ended in it.
    rounds: u32,
}

impl HyStartPlusPlus {
    fn on_ack(&mut self, ack: &AckSample) -> Option<f64> {
        if ack.round_start {
            self.last_round_min_rtt = self.current_round_min_rtt.take();
            self.rtt_sample_count = 0;
            if let Some(css) = &mut self.css {
                css.rounds += 1;
            }
        }
        if let Some(rtt) = ack.rtt {
            self.current_round_min_rtt = Some(self.current_round_min_rtt.map_or(rtt, |least| least.min(rtt)));
            self.rtt_sample_count += 1;
        }
        let current = self.current_round_min_rtt.filter(|_| self.rtt_sample_count >= N_RTT_SAMPLE);
        match (self.css, current, self.last_round_min_rtt) {
            (Some(css), Some(current), _) if current < css.baseline_min_rtt => self.css = None,
            (Some(css), ..) if css.rounds >= CSS_ROUNDS => return None,
            (None, Some(current), Some(last)) => {
                let rtt_thresh = (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                if current >= last + rtt_thresh {
                    self.css = Some(Css { baseline_min_rtt: current, rounds: 0 });
                }
            }
            _ => {}
        }
        Some(if self.css.is_some() { 1.0 / CSS_GROWTH_DIVISOR } else { 1.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of ten acks with this round trip. Returns what the last of them said.
    fn round(hystart: &mut HyStartPlusPlus, rtt_ms: u64) -> Option<f64> {
        let ack = |number: u32| AckSample {
            rtt: Some(Duration::from_millis(rtt_ms)),
            round_start: number == 0,
            ..AckSample::default()
        };
        (0..10).map(|number| hystart.on_ack(&ack(number))).last().flatten()
    }

    #[test]
    fn round_trips_that_grow_by_an_eighth_make_slow_start_conservative_and_end_it_five_rounds_later() {
        let mut hystart = HyStartPlusPlus::default();
        assert_eq!([100, 100, 112].map(|rtt| round(&mut hystart, rtt)), [Some(1.0); 3], "12 ms are less than 12.5");
        assert_eq!(round(&mut hystart, 126), Some(0.25));
        assert_eq!([126; 4].map(|rtt| round(&mut hystart, rtt)), [Some(0.25); 4]);
        assert_eq!(round(&mut hystart, 126), None);
    }

    #[test]
    fn a_round_trip_below_the_first_of_conservative_slow_start_resumes_slow_start() {
        let mut hystart = HyStartPlusPlus::default();
        assert_eq!([20, 24, 23].map(|rtt| round(&mut hystart, rtt)), [Some(1.0), Some(0.25), Some(1.0)]);
    }

    #[test]
    fn the_threshold_lies_between_4_and_16_ms_and_few_samples_decide_nothing() {
        let mut hystart = HyStartPlusPlus::default();
        assert_eq!([1000, 1015].map(|rtt| round(&mut hystart, rtt)), [Some(1.0); 2]);
        assert_eq!(round(&mut hystart, 1031), Some(0.25));
        let mut hystart = HyStartPlusPlus::default();
        round(&mut hystart, 10);
        let late = AckSample { rtt: Some(Duration::from_millis(90)), round_start: true, ..AckSample::default() };
        assert_eq!(hystart.on_ack(&late), Some(1.0));
    }

    /// A round of acks with this round trip in ms, `spacing_us` apart. Returns the number of the ack that ends slow start.
    fn train(hystart: &mut HyStart, at_ms: u64, rtt_ms: u64, spacing_us: u64, acks: u64) -> Option<u64> {
        (0..acks).find(|number| {
            let now = Time(at_ms * 1_000_000 + number * spacing_us * 1000);
            let rtt = Some(Duration::from_millis(rtt_ms));
            hystart.on_ack(&AckSample { now, rtt, round_start: *number == 0, ..AckSample::default() }, 20.0).is_none()
        })
    }

    #[test]
    fn a_train_of_acks_over_half_a_round_trip_ends_slow_start() {
        let mut hystart = HyStart::new(false);
        assert_eq!(train(&mut hystart, 100, 100, 1000, 50), None);
        assert_eq!(train(&mut hystart, 200, 100, 1000, 60), Some(51), "51 ms after the first");
        let mut gaps = HyStart::new(false);
        assert_eq!(train(&mut gaps, 100, 100, 2500, 60), None, "acks 2.5 ms apart are not a train");
        let mut paced = HyStart::new(true);
        assert_eq!(train(&mut paced, 100, 100, 1000, 100), None);
    }

    #[test]
    fn longer_round_trips_end_slow_start_after_eight_samples() {
        let mut hystart = HyStart::new(false);
        assert_eq!(train(&mut hystart, 100, 100, 1000, 20), None);
        assert_eq!(train(&mut hystart, 200, 113, 1000, 20), Some(8));
        let mut hystart = HyStart::new(false);
        train(&mut hystart, 100, 100, 1000, 20);
        assert_eq!(train(&mut hystart, 200, 112, 1000, 20), None);
    }
}
