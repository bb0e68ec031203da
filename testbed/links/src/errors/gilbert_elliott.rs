//! The Gilbert-Elliott channel: a good and a bad state, each with its own loss probability (Gilbert, "Capacity of a
//! burst-noise channel", 1960; Elliott, 1963).
//!
//! Before each packet the state changes from good to bad with probability `p`, and from bad to good with `r`. In the long run the
//! state is bad for p/(p + r) of the packets, and a bad period lasts 1/r packets on average.

use backchannel_core::packet::Packet;
use backchannel_core::registry::{CheckedOptions, Entry, Param, Preset, Random, Unit, MUST};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;

use super::{effect, ErrorModel, Fate, EFFECT};

pub(super) static ENTRY: Entry = Entry {
    kind: "error-model",
    name: "gilbert-elliott",
    summary: "bursty losses: a channel with a good and a bad state, each with its own loss probability",
    source: "Gilbert 1960, Elliott 1963",
    random: Random::Always,
    params: &[
        Param::new(
            "p",
            Unit::Fraction,
            Preset::Required(MUST),
            "probability per packet of a change from the good to the bad state",
        )
        .range(0.0, 1.0),
        Param::new(
            "r",
            Unit::Fraction,
            Preset::Required(MUST),
            "probability per packet of a change from the bad to the good state; 1/r packets is the mean burst length",
        )
        .range(0.0, 1.0),
        Param::new(
            "good_loss",
            Unit::Fraction,
            Preset::Number(0.0),
            "probability that a packet is hit in the good state",
        )
        .range(0.0, 1.0),
        Param::new(
            "bad_loss",
            Unit::Fraction,
            Preset::Number(1.0),
            "probability that a packet is hit in the bad state",
        )
        .range(0.0, 1.0),
        EFFECT,
    ],
};

pub(super) fn build(checked: &CheckedOptions<'_>, rng: RunRng) -> Result<Box<dyn ErrorModel>, String> {
    let number = |name: &str| checked.number(name).expect("it is required or has a default");
    Ok(Box::new(GilbertElliott {
        to_bad: number("p"),
        to_good: number("r"),
        loss: [number("good_loss"), number("bad_loss")],
        effect: effect(checked),
        bad: false,
        rng,
    }))
}

struct GilbertElliott {
    to_bad: f64,
    to_good: f64,
    /// In the good state, in the bad state.
    loss: [f64; 2],
    effect: Fate,
    bad: bool,
    rng: RunRng,
}

impl ErrorModel for GilbertElliott {
    fn judge(&mut self, _: Time, _: &Packet) -> Fate {
        let turn = if self.bad { self.to_good } else { self.to_bad };
        self.bad ^= rng::uniform(&mut self.rng) < turn;
        self.effect.at(self.loss[usize::from(self.bad)], &mut self.rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::data;

    #[test]
    fn losses_have_the_share_and_the_length_of_the_chain() {
        let (to_bad, to_good) = (0.02, 0.25);
        let rng = rng::stream(1, "test");
        let mut model = GilbertElliott { to_bad, to_good, loss: [0.0, 1.0], effect: Fate::Lost, bad: false, rng };
        let lost: Vec<bool> = (0..200_000).map(|_| model.judge(Time::ZERO, &data(1, 10)) == Fate::Lost).collect();
        let share = lost.iter().filter(|&&hit| hit).count() as f64 / lost.len() as f64;
        assert!((share - to_bad / (to_bad + to_good)).abs() < 0.005, "{share}");
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        let length = share * lost.len() as f64 / bursts;
        assert!((length - 1.0 / to_good).abs() < 0.15, "{length}");
    }
}
