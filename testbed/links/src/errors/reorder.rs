//! Reordering: some packets are held back for a while, and later packets overtake them.
//!
//! Differs from netem's `reorder`, where the chosen packets skip the delay of the others. Here the chosen packets are delayed, so the
//! line keeps its declared delay.

use std::time::Duration;

use backchannel_core::packet::Packet;
use backchannel_core::registry::{CheckedOptions, Entry, Param, Preset, Random, Unit, MUST};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;

use super::{ErrorModel, Fate};

pub(super) static ENTRY: Entry = Entry {
    kind: "error-model",
    name: "reorder",
    summary: "holds some packets back, so that later packets overtake them",
    source: "tc-netem(8)",
    random: Random::With("probability"),
    params: &[
        Param::new("probability", Unit::Fraction, Preset::Required(MUST), "probability that a packet is held back")
            .range(0.0, 1.0),
        Param::new("delay_s", Unit::Time, Preset::Number(0.005), "longest extra delay; drawn uniformly from 0 to this")
            .range(0.0, 60.0),
    ],
};

pub(super) fn build(checked: &CheckedOptions<'_>, rng: RunRng) -> Result<Box<dyn ErrorModel>, String> {
    Ok(Box::new(Reorder {
        probability: checked.number("probability").expect("it is required"),
        most_s: checked.number("delay_s").expect("it has a default"),
        rng,
    }))
}

struct Reorder {
    probability: f64,
    most_s: f64,
    rng: RunRng,
}

impl ErrorModel for Reorder {
    fn judge(&mut self, _: Time, _: &Packet) -> Fate {
        // Both numbers are drawn for every packet, so that the choice for one packet does not shift the next draws.
        let (chosen, share) = (rng::uniform(&mut self.rng), rng::uniform(&mut self.rng));
        if chosen < self.probability {
            Fate::Late(Duration::from_secs_f64(share * self.most_s))
        } else {
            Fate::Intact
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::data;

    #[test]
    fn the_chosen_are_late_by_no_more_than_was_said() {
        let mut model = Reorder { probability: 0.25, most_s: 0.01, rng: rng::stream(1, "test") };
        let fates: Vec<_> = (0..20_000).map(|_| model.judge(Time::ZERO, &data(1, 10))).collect();
        let late: Vec<_> =
            fates.iter().filter_map(|fate| if let Fate::Late(by) = fate { Some(*by) } else { None }).collect();
        // Five standard deviations of Binomial(20 000, 0.25).
        assert!((4694..=5306).contains(&late.len()), "{}", late.len());
        assert!(late.iter().all(|by| *by <= Duration::from_millis(10)));
        let mean_s = late.iter().map(Duration::as_secs_f64).sum::<f64>() / late.len() as f64;
        assert!((mean_s - 0.005).abs() < 0.0003, "{mean_s}");
    }
}
