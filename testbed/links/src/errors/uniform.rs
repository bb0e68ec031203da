//! Independent losses: every packet is lost or damaged with the same probability.

use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, REQUIRED};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Disorder, Entry, When};
use backchannel_core::rng::RunRng;
use backchannel_core::time::Time;
use backchannel_core::Error;

use super::{ErrorModel, Hit, Outcome};

options! {
    /// Options of the model.
    struct Parameters {
        probability: f64 = REQUIRED, [Fraction 0 to 1] "probability that a packet is hit";
        ... hit: Hit;
    }
}

pub(super) static ENTRY: Entry =
    Entry::error_model("uniform", "independent losses: each packet is hit with the same probability", Disorder::None)
        .source("ns2 ErrorModel, unit packet")
        .random(When::With("probability"))
        .options(Parameters::PARAMS);

pub(super) fn build(checked: &CheckedOptions<'_>, rng: RunRng) -> Result<Box<dyn ErrorModel>, Error> {
    Ok(Box::new(Uniform { parameters: Parameters::read(checked), rng }))
}

struct Uniform {
    parameters: Parameters,
    rng: RunRng,
}

impl ErrorModel for Uniform {
    fn apply(&mut self, _: Time, _: &Packet) -> Outcome {
        Outcome::from(self.parameters.hit.effect).at(self.parameters.probability, &mut self.rng)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Effect;
    use super::*;
    use backchannel_core::packet::build::data;
    use backchannel_core::rng;

    #[test]
    fn one_in_ten_is_hit() {
        let parameters = Parameters { probability: 0.1, hit: Hit { effect: Effect::Lose } };
        let mut model = Uniform { parameters, rng: rng::stream(1, "test") };
        let hit = (0..20_000).filter(|_| model.apply(Time::ZERO, &data(1, 10)) == Outcome::Lost).count();
        // Five standard deviations of Binomial(20 000, 0.1).
        assert!((1788..=2212).contains(&hit), "{hit}");
    }
}
