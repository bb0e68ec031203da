//! The Gilbert-Elliott channel: a good and a bad state, each with its own loss probability (Gilbert, "Capacity of a
//! burst-noise channel", 1960; Elliott, 1963).
//!
//! Before each packet the state changes from good to bad with probability `p`, and from bad to good with `r`. In the
//! long run the state is bad for p/(p + r) of the packets, and a bad period lasts 1/r packets on average.

use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, REQUIRED};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Disorder, Entry, When};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;
use backchannel_core::Error;

use super::{ErrorModel, Hit, Outcome};

options! {
    /// Options of the model.
    struct Parameters {
        p: f64 = REQUIRED, [Fraction 0 to 1] "probability per packet of a change from the good to the bad state";
        r: f64 = REQUIRED, [Fraction 0 to 1]
            "probability per packet of a change from the bad to the good state; 1/r packets is the mean burst length";
        good_loss: f64 = 0, [Fraction 0 to 1] "probability that a packet is hit in the good state";
        bad_loss: f64 = 1, [Fraction 0 to 1] "probability that a packet is hit in the bad state";
        ... hit: Hit;
    }
}

pub(super) static ENTRY: Entry = Entry::error_model(
    "gilbert-elliott",
    "bursty losses: a channel with a good and a bad state, each with its own loss probability",
    Disorder::None,
)
.source("Gilbert 1960, Elliott 1963")
.random(When::Always)
.options(Parameters::PARAMS);

pub(super) fn build(checked: &CheckedOptions<'_>, rng: RunRng) -> Result<Box<dyn ErrorModel>, Error> {
    Ok(Box::new(GilbertElliott { parameters: Parameters::read(checked), bad: false, rng }))
}

struct GilbertElliott {
    parameters: Parameters,
    bad: bool,
    rng: RunRng,
}

impl ErrorModel for GilbertElliott {
    fn apply(&mut self, _: Time, _: &Packet) -> Outcome {
        let Parameters { p, r, good_loss, bad_loss, ref hit } = self.parameters;
        self.bad ^= rng::uniform(&mut self.rng) < if self.bad { r } else { p };
        let loss = if self.bad { bad_loss } else { good_loss };
        Outcome::from(hit.effect).at(loss, &mut self.rng)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Effect;
    use super::*;
    use backchannel_core::packet::build::data;

    #[test]
    fn losses_have_the_share_and_the_length_of_the_chain() {
        let hit = Hit { effect: Effect::Lose };
        let parameters = Parameters { p: 0.02, r: 0.25, good_loss: 0.0, bad_loss: 1.0, hit };
        let rng = rng::stream(1, "test");
        let mut model = GilbertElliott { parameters, bad: false, rng };
        let lost: Vec<bool> = (0..200_000).map(|_| model.apply(Time::ZERO, &data(1, 10)) == Outcome::Lost).collect();
        let share = lost.iter().filter(|&&hit| hit).count() as f64 / lost.len() as f64;
        assert!((share - 0.02 / (0.02 + 0.25)).abs() < 0.005, "{share}");
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        let length = share * lost.len() as f64 / bursts;
        assert!((length - 1.0 / 0.25).abs() < 0.15, "{length}");
    }
}
