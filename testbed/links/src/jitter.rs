//! Jitter: each packet's propagation delay is drawn uniformly around the declared one.
//!
//! This is netem's distribution without a table (tc-netem(8)): from delay - jitter to delay + jitter. As there, a
//! packet may overtake those sent up to twice the jitter before it. With `keep_order` it does not: it arrives with the
//! packet before it if its own delay would bring it earlier. The delays of a busy line then lie above the declared one
//! on average.

use std::time::Duration;

use backchannel_core::rng::{self, RunRng};
use backchannel_core::scenario::Change;
use backchannel_core::time::Time;
use backchannel_core::Error;

/// The jitter of one direction.
pub(crate) struct Jitter {
    most_ns: u64,
    /// Packets do not overtake each other.
    keeps_order: bool,
    rng: RunRng,
    /// Arrival of the packet that was sent last.
    pub(crate) newest_arrival: Time,
}

impl Jitter {
    /// Draws from the stream of the direction with this label.
    pub(crate) fn new(seed: u64, label: &str, keeps_order: bool) -> Jitter {
        let rng = rng::stream(seed, &format!("{label}/jitter"));
        Jitter { most_ns: 0, keeps_order, rng, newest_arrival: Time::ZERO }
    }

    /// Packets that are sent from now on have another jitter.
    pub(crate) fn set_most(&mut self, most: Duration) {
        self.most_ns = most.as_nanos() as u64;
    }

    /// The greatest deviation from the delay, in nanoseconds.
    pub(crate) fn most_ns(&self) -> u64 {
        self.most_ns
    }

    /// Arrival of a packet that would arrive at `nominal` without jitter; no packet sent before it arrives after
    /// `latest`.
    pub(crate) fn arrival(&mut self, nominal: Time, latest: Time) -> Time {
        let drawn = rng::below(&mut self.rng, 2 * self.most_ns as usize + 1) as u64;
        let arrival = Time(nominal.nanos().saturating_add(drawn).saturating_sub(self.most_ns));
        // Without jitter a line keeps order, even if its delay becomes shorter.
        let is_ordered = self.keeps_order || self.most_ns == 0;
        self.newest_arrival = if is_ordered { arrival.max(latest) } else { arrival };
        self.newest_arrival
    }
}

/// Checks a delay and its jitter.
///
/// # Errors
/// One of them is impossible, or the jitter exceeds the delay.
pub(crate) fn check(delay_s: f64, jitter_s: f64) -> Result<(), Error> {
    delay(delay_s)?;
    delay(jitter_s).map_err(|_| format!("a jitter of {jitter_s} s is not possible"))?;
    if jitter_s > delay_s {
        return Err(format!(
            "a jitter of {jitter_s} s exceeds the delay of {delay_s} s: a packet cannot arrive before it was sent; \
             lower the jitter or raise the delay"
        )
        .into());
    }
    Ok(())
}

/// Checks a direction's delay and jitter at its start and after each change of its schedule.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_schedule<'a>(
    delay_s: f64,
    jitter_s: f64,
    schedule: impl IntoIterator<Item = &'a Change>,
) -> Result<(), Error> {
    check(delay_s, jitter_s)?;
    let (mut delay_s, mut jitter_s) = (delay_s, jitter_s);
    for change in schedule {
        delay_s = change.delay_s.unwrap_or(delay_s);
        jitter_s = change.jitter_s.unwrap_or(jitter_s);
        check(delay_s, jitter_s).map_err(|why| format!("at {} s: {why}", change.at_s))?;
    }
    Ok(())
}

pub(crate) fn delay(seconds: f64) -> Result<Duration, Error> {
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("a delay of {seconds} s is not possible").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn jitter(seed: u64, most_ns: u64, keeps_order: bool) -> Jitter {
        let mut jitter = Jitter::new(seed, "line/forward", keeps_order);
        jitter.set_most(Duration::from_nanos(most_ns));
        jitter
    }

    proptest! {
        /// Within the bounds, and in order if it is kept, whatever the gaps between packets.
        #[test]
        fn arrivals_keep_the_bounds_and_the_order_that_is_asked_for(
            gaps in proptest::collection::vec(0u64..5_000, 1..200), most_ns in 0u64..20_000, seed: u64, keeps_order: bool,
        ) {
            let mut jitter = jitter(seed, most_ns, keeps_order);
            let (mut nominal, mut latest) = (1_000_000, Time::ZERO);
            for gap in gaps {
                nominal += gap;
                let arrival = jitter.arrival(Time(nominal), latest);
                prop_assert!(arrival.nanos().abs_diff(nominal) <= most_ns);
                prop_assert!(arrival >= latest || !(keeps_order || most_ns == 0));
                latest = latest.max(arrival);
            }
        }
    }

    /// The mean, the variance and both bounds of the uniform distribution.
    #[test]
    fn draws_are_uniform_between_the_bounds() {
        let (n, most_ns) = (100_000, 1_000_000);
        let mut jitter = jitter(3, most_ns, false);
        let nominal = Time(5_000_000);
        let draws: Vec<f64> = (0..n)
            .map(|_| jitter.arrival(nominal, Time::ZERO).nanos() as f64 - nominal.nanos() as f64)
            .map(|deviation_ns| deviation_ns / most_ns as f64)
            .collect();
        let mean = draws.iter().sum::<f64>() / f64::from(n);
        let variance = draws.iter().map(|draw| draw * draw).sum::<f64>() / f64::from(n);
        // Five standard deviations of the mean of n draws, and of their mean square (1/3, variance 4/45).
        let five = |variance: f64| 5.0 * (variance / f64::from(n)).sqrt();
        assert!(mean.abs() < five(1.0 / 3.0), "{mean}");
        assert!((variance - 1.0 / 3.0).abs() < five(4.0 / 45.0), "{variance}");
        let (least, most) = draws.iter().fold((0.0f64, 0.0f64), |(low, high), draw| (low.min(*draw), high.max(*draw)));
        assert!(least < -0.999 && most > 0.999, "{least} {most}");
        assert!(draws.iter().all(|draw| draw.abs() <= 1.0));
    }

    #[test]
    fn a_jitter_beyond_the_delay_is_refused_at_the_start_and_after_each_change() {
        assert!(check(0.01, 0.01).is_ok());
        assert!(check(0.01, 0.011)
            .unwrap_err()
            .to_string()
            .contains("a jitter of 0.011 s exceeds the delay of 0.01 s"));
        assert!(check(0.01, -0.001).unwrap_err().to_string().contains("a jitter of -0.001 s is not possible"));
        let change = |json: &str| serde_json::from_str::<Change>(json).unwrap();
        let changes = [change(r#"{"at_s": 1, "jitter_s": 0.004}"#), change(r#"{"at_s": 2, "delay_s": 0.003}"#)];
        assert!(check_schedule(0.01, 0.0, &changes[..1]).is_ok());
        assert!(check_schedule(0.01, 0.0, &changes)
            .unwrap_err()
            .to_string()
            .starts_with("at 2 s: a jitter of 0.004 s exceeds"));
    }
}
