//! Error models: lose, damage, delay or duplicate packets at the receiving end of a link.

mod duplicate;
mod exponential;
mod gilbert_elliott;
mod recorded;
mod reorder;
mod uniform;

use std::time::Duration;

use backchannel_core::options::CheckedOptions;
use backchannel_core::packet::Packet;
use backchannel_core::registry::Table;
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;
use backchannel_core::Error;
use backchannel_core::{choice, options};

/// An error model's decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The packet is delivered.
    Intact,
    /// It is delivered with a wrong checksum.
    Damaged,
    /// It is not delivered.
    Lost,
    /// It is delivered this much later and does not delay later packets.
    Late(Duration),
    /// It is delivered twice.
    Twice,
}

impl Outcome {
    /// This outcome if the next draw is below `probability`, else none.
    fn at(self, probability: f64, rng: &mut RunRng) -> Outcome {
        if rng::uniform(rng) < probability {
            self
        } else {
            Outcome::Intact
        }
    }
}

/// Decides about one packet after another.
///
/// A model that loses every third packet:
///
/// ```
/// use backchannel_core::packet::build::data;
/// use backchannel_core::{Packet, Time};
/// use backchannel_links::errors::{ErrorModel, Outcome};
///
/// struct EveryThird(u64);
///
/// impl ErrorModel for EveryThird {
///     fn apply(&mut self, _at: Time, _packet: &Packet) -> Outcome {
///         self.0 += 1;
///         if self.0.is_multiple_of(3) {
///             Outcome::Lost
///         } else {
///             Outcome::Intact
///         }
///     }
/// }
///
/// let mut model = EveryThird(0);
/// let outcomes: Vec<Outcome> = (1..=4).map(|id| model.apply(Time::ZERO, &data(id, 1000))).collect();
/// assert_eq!(outcomes, [Outcome::Intact, Outcome::Intact, Outcome::Lost, Outcome::Intact]);
/// ```
pub trait ErrorModel: Send {
    /// Decides about a packet whose last bit arrives at `at`.
    fn apply(&mut self, at: Time, packet: &Packet) -> Outcome;
}

/// Constructor of an error model, which draws from a random stream.
pub type Build = fn(&CheckedOptions<'_>, RunRng) -> Result<Box<dyn ErrorModel>, Error>;
/// Error models by name.
pub type ErrorModels = Table<Build>;

/// The error models of this crate.
pub fn builtin() -> ErrorModels {
    Table::<Build>::new(
        "error model",
        &[
            (&uniform::ENTRY, uniform::build),
            (&exponential::ENTRY, exponential::build),
            (&gilbert_elliott::ENTRY, gilbert_elliott::build),
            (&recorded::ENTRY, recorded::build),
            (&reorder::ENTRY, reorder::build),
            (&duplicate::ENTRY, duplicate::build),
        ],
    )
}

choice! {
    /// What happens to a packet that is hit.
    pub(crate) enum Effect {
        /// It is lost.
        Lose = "lose",
        /// It is delivered with a wrong checksum.
        Damage = "damage",
    }
}

impl From<Effect> for Outcome {
    fn from(effect: Effect) -> Outcome {
        match effect {
            Effect::Lose => Outcome::Lost,
            Effect::Damage => Outcome::Damaged,
        }
    }
}

options! {
    /// Option of models whose hits are losses unless it says otherwise.
    pub(crate) struct Hit {
        effect: Effect = "lose", [Choice]
            "what happens to a packet that is hit: lose it, or damage its checksum";
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use backchannel_core::packet::build::data;
    use backchannel_core::scenario::Named;
    use serde_json::{json, Value};

    /// What a model does to 2000 packets of 1040 bytes, in order.
    fn outcomes(name: &str, options: Value) -> Result<Vec<Outcome>, Error> {
        let named: Named =
            serde_json::from_value(json!({"name": name, "options": options})).expect("a name and options");
        let models = builtin();
        let (checked, build) = models.checked(&named.name, &named.options)?;
        let mut model = build(&checked, rng::stream(1, "test"))?;
        Ok((0..2000).map(|n| model.apply(Time(n), &data(n, 1000))).collect())
    }

    fn kinds(outcomes: &[Outcome]) -> BTreeSet<&'static str> {
        let kind = |outcome: &Outcome| match outcome {
            Outcome::Intact => "intact",
            Outcome::Damaged => "damaged",
            Outcome::Lost => "lost",
            Outcome::Late(_) => "late",
            Outcome::Twice => "twice",
        };
        outcomes.iter().map(kind).collect()
    }

    #[test]
    fn every_model_is_listed_and_has_the_effect_that_its_options_name() {
        let table = [
            ("uniform", json!({"probability": 0.1}), "lost"),
            ("uniform", json!({"probability": 0.1, "effect": "damage"}), "damaged"),
            ("exponential", json!({}), "damaged"),
            ("exponential", json!({"effect": "lose"}), "lost"),
            ("gilbert-elliott", json!({"p": 0.1, "r": 0.5}), "lost"),
            ("gilbert-elliott", json!({"p": 0.1, "r": 0.5, "effect": "damage"}), "damaged"),
            ("recorded", json!({"trace": "01"}), "lost"),
            ("recorded", json!({"trace": "01", "effect": "damage"}), "damaged"),
            ("reorder", json!({"probability": 0.1}), "late"),
            ("duplicate", json!({"probability": 0.1}), "twice"),
        ];
        for (name, options, effect) in &table {
            let drawn_fates = outcomes(name, options.clone()).expect("allowed");
            assert_eq!(kinds(&drawn_fates), BTreeSet::from(["intact", effect]), "{name} {options}");
        }
        let tried: BTreeSet<_> = table.iter().map(|(name, ..)| *name).collect();
        let listed: BTreeSet<_> = builtin().entries().map(|entry| entry.name).collect();
        assert_eq!(listed, tried);
        let why = outcomes("gremlins", json!({})).expect_err("the model is unknown");
        assert!(listed.iter().all(|name| why.to_string().contains(name)), "{why}");
    }

    #[test]
    fn numbers_among_the_options_are_obeyed() {
        let hit = |name: &str, options: Value| {
            outcomes(name, options).expect("allowed").iter().filter(|outcome| **outcome != Outcome::Intact).count()
        };
        // Within five standard deviations of the binomial distribution.
        let close = |hit: usize, share: f64| {
            let deviation = (2000.0 * share * (1.0 - share)).sqrt();
            assert!((hit as f64 - 2000.0 * share).abs() <= 5.0 * deviation, "{hit} of 2000 for {share}");
        };
        for probability in [0.0, 0.3, 1.0] {
            for name in ["uniform", "reorder", "duplicate"] {
                close(hit(name, json!({"probability": probability})), probability);
            }
            close(hit("gilbert-elliott", json!({"p": 0.0, "r": 0.0, "good_loss": probability})), probability);
            close(hit("gilbert-elliott", json!({"p": 1.0, "r": 0.0, "bad_loss": probability})), probability);
        }
        // 1040 bytes, with an error every 2080 on average.
        close(hit("exponential", json!({"mean_bytes": 2080})), 1.0 - (-0.5f64).exp());
        let late = outcomes("reorder", json!({"probability": 1.0, "delay_s": 2.0})).expect("allowed");
        let most = late
            .iter()
            .filter_map(|outcome| if let Outcome::Late(by) = outcome { Some(by.as_secs_f64()) } else { None });
        assert!((1.9..=2.0).contains(&most.fold(0.0, f64::max)));
    }
}
