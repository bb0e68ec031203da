//! Duplication: some packets are delivered twice.

use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, REQUIRED};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Disorder, Entry, When};
use backchannel_core::rng::RunRng;
use backchannel_core::time::Time;
use backchannel_core::Error;

use super::{ErrorModel, Outcome};

options! {
    /// Options of the model.
    struct Parameters {
        probability: f64 = REQUIRED, [Fraction 0 to 1] "probability that a packet is delivered twice";
    }
}

pub(super) static ENTRY: Entry = Entry::error_model("duplicate", "delivers some packets twice", Disorder::Repeats)
    .source("tc-netem(8)")
    .random(When::With("probability"))
    .options(Parameters::PARAMS);

pub(super) fn build(checked: &CheckedOptions<'_>, rng: RunRng) -> Result<Box<dyn ErrorModel>, Error> {
    Ok(Box::new(Duplicate { parameters: Parameters::read(checked), rng }))
}

struct Duplicate {
    parameters: Parameters,
    rng: RunRng,
}

impl ErrorModel for Duplicate {
    fn apply(&mut self, _: Time, _: &Packet) -> Outcome {
        Outcome::Twice.at(self.parameters.probability, &mut self.rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::data;
    use backchannel_core::rng;

    #[test]
    fn one_in_ten_comes_twice() {
        let mut model = Duplicate { parameters: Parameters { probability: 0.1 }, rng: rng::stream(1, "test") };
        let twice = (0..20_000).filter(|_| model.apply(Time::ZERO, &data(1, 10)) == Outcome::Twice).count();
        assert!((1788..=2212).contains(&twice), "{twice}");
    }
}
