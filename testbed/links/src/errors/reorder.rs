//! Reordering: some packets are held back for a while, and later packets overtake them.
//!
//! Differs from netem's `reorder`, where the chosen packets skip the delay of the others. Here the chosen packets are
//! delayed, so the line keeps its declared delay.

use std::time::Duration;

use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, REQUIRED};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Disorder, Entry, When};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;
use backchannel_core::Error;

use super::{ErrorModel, Outcome};

options! {
    /// Options of the model.
    struct Parameters {
        probability: f64 = REQUIRED, [Fraction 0 to 1] "probability that a packet is held back";
        delay_s: f64 = 0.005, [Time 0 to 60] "longest extra delay; drawn uniformly from 0 to this";
    }
}

pub(super) static ENTRY: Entry =
    Entry::error_model("reorder", "holds some packets back, so that later packets overtake them", Disorder::Reorders)
        .source("tc-netem(8)")
        .random(When::With("probability"))
        .options(Parameters::PARAMS);

pub(super) fn build(checked: &CheckedOptions<'_>, rng: RunRng) -> Result<Box<dyn ErrorModel>, Error> {
    Ok(Box::new(Reorder { parameters: Parameters::read(checked), rng }))
}

struct Reorder {
    parameters: Parameters,
    rng: RunRng,
}

impl ErrorModel for Reorder {
    fn apply(&mut self, _: Time, _: &Packet) -> Outcome {
        // Both numbers are drawn for every packet, so that the choice for one packet does not shift the next draws.
        let (chosen, share) = (rng::uniform(&mut self.rng), rng::uniform(&mut self.rng));
        if chosen < self.parameters.probability {
            Outcome::Late(Duration::from_secs_f64(share * self.parameters.delay_s))
        } else {
            Outcome::Intact
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::data;

    #[test]
    fn the_chosen_are_late_by_no_more_than_was_said() {
        let mut model =
            Reorder { parameters: Parameters { probability: 0.25, delay_s: 0.01 }, rng: rng::stream(1, "test") };
        let outcomes: Vec<_> = (0..20_000).map(|_| model.apply(Time::ZERO, &data(1, 10))).collect();
        let late: Vec<_> = outcomes
            .iter()
            .filter_map(|outcome| if let Outcome::Late(by) = outcome { Some(*by) } else { None })
            .collect();
        // Five standard deviations of Binomial(20 000, 0.25).
        assert!((4694..=5306).contains(&late.len()), "{}", late.len());
        assert!(late.iter().all(|by| *by <= Duration::from_millis(10)));
        let mean_s = late.iter().map(Duration::as_secs_f64).sum::<f64>() / late.len() as f64;
        assert!((mean_s - 0.005).abs() < 0.0003, "{mean_s}");
    }
}
