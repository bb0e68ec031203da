//! Duplication: some packets are delivered twice.

use backchannel_core::packet::Packet;
use backchannel_core::registry::{CheckedOptions, Entry, Param, Preset, Random, Unit, MUST};
use backchannel_core::rng::RunRng;
use backchannel_core::time::Time;

use super::{ErrorModel, Fate};

pub(super) static ENTRY: Entry = Entry {
    kind: "error-model",
    name: "duplicate",
    summary: "delivers some packets twice",
    source: "tc-netem(8)",
    random: Random::With("probability"),
    params: &[Param::new(
        "probability",
        Unit::Fraction,
        Preset::Required(MUST),
        "probability that a packet is delivered twice",
    )
    .range(0.0, 1.0)],
};

pub(super) fn build(checked: &CheckedOptions<'_>, rng: RunRng) -> Result<Box<dyn ErrorModel>, String> {
    Ok(Box::new(Duplicate { probability: checked.number("probability").expect("it is required"), rng }))
}

struct Duplicate {
    probability: f64,
    rng: RunRng,
}

impl ErrorModel for Duplicate {
    fn judge(&mut self, _: Time, _: &Packet) -> Fate {
        Fate::Twice.at(self.probability, &mut self.rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::data;
    use backchannel_core::rng;

    #[test]
    fn one_in_ten_comes_twice() {
        let mut model = Duplicate { probability: 0.1, rng: rng::stream(1, "test") };
        let twice = (0..20_000).filter(|_| model.judge(Time::ZERO, &data(1, 10)) == Fate::Twice).count();
        assert!((1788..=2212).contains(&twice), "{twice}");
    }
}
