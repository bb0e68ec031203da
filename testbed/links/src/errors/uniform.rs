//! Independent losses: every packet is lost or damaged with the same probability.

use backchannel_core::packet::Packet;
use backchannel_core::registry::{CheckedOptions, Entry, Param, Preset, Random, Unit, MUST};
use backchannel_core::rng::RunRng;
use backchannel_core::time::Time;

use super::{effect, ErrorModel, Fate, EFFECT};

pub(super) static ENTRY: Entry = Entry {
    kind: "error-model",
    name: "uniform",
    summary: "independent losses: each packet is hit with the same probability",
    source: "ns2 ErrorModel, unit packet",
    random: Random::With("probability"),
    params: &[
        Param::new("probability", Unit::Fraction, Preset::Required(MUST), "probability that a packet is hit")
            .range(0.0, 1.0),
        EFFECT,
    ],
};

pub(super) fn build(checked: &CheckedOptions<'_>, rng: RunRng) -> Result<Box<dyn ErrorModel>, String> {
    let probability = checked.number("probability").expect("it is required");
    Ok(Box::new(Uniform { probability, effect: effect(checked), rng }))
}

struct Uniform {
    probability: f64,
    effect: Fate,
    rng: RunRng,
}

impl ErrorModel for Uniform {
    fn judge(&mut self, _: Time, _: &Packet) -> Fate {
        self.effect.at(self.probability, &mut self.rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::data;
    use backchannel_core::rng;

    #[test]
    fn one_in_ten_is_hit() {
        let mut model = Uniform { probability: 0.1, effect: Fate::Lost, rng: rng::stream(1, "test") };
        let hit = (0..20_000).filter(|_| model.judge(Time::ZERO, &data(1, 10)) == Fate::Lost).count();
        // Five standard deviations of Binomial(20 000, 0.1).
        assert!((1788..=2212).contains(&hit), "{hit}");
    }
}
