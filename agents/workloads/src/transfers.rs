//! Finite transfers, a connection each, that start by an arrival process, independent of earlier ones (Paxson and
//! Floyd 1995, section 3).

use std::time::Duration;

use backchannel_core::options::CheckedOptions;
use backchannel_core::registry::{Entry, ExchangeKind, When};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;
use backchannel_core::Error;
use backchannel_core::{choice, options};

use crate::{Action, Context, Workload};

choice! {
    /// Distribution of the time between two starts.
    enum Arrivals {
        /// A Poisson process.
        Exponential = "exponential",
        /// Equal distances.
        Constant = "constant",
    }
}

choice! {
    /// Distribution of the sizes.
    enum Sizes {
        /// Heavy-tailed.
        Pareto = "pareto",
        /// Without memory.
        Exponential = "exponential",
        /// Equal sizes.
        Constant = "constant",
    }
}

options! {
    /// Options of the workload.
    struct Options {
        arrivals: Arrivals = "exponential", [Choice] "distribution of the time between two starts";
        distance_s: f64 = 1, [Time 1e-6 to 1e6] "mean time between two starts";
        sizes: Sizes = "pareto", [Choice] "distribution of the sizes";
        mean_bytes: f64 = 30_000, [Bytes 1 to 1e12] "mean size of a transfer";
        shape: f64 = 1.3, [Number 1.01 to 100] "shape of the Pareto distribution";
    }
}

pub(crate) static ENTRY: Entry = Entry::workload(
    "transfers",
    "finite transfers, a connection each, that start by an arrival process, independent of earlier ones",
    ExchangeKind::Transfers,
)
.source("Paxson and Floyd 1995, section 3")
.random(When::Always)
.options(Options::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: Context<'_>) -> Result<Box<dyn Workload>, Error> {
    Ok(Box::new(Transfers { options: Options::read(checked), rng: context.rng }))
}

#[derive(Debug)]
struct Transfers {
    options: Options,
    rng: RunRng,
}

impl Transfers {
    fn draw_bytes(&mut self) -> f64 {
        let Options { sizes, mean_bytes, shape, .. } = self.options;
        match sizes {
            Sizes::Constant => mean_bytes,
            Sizes::Exponential => rng::exponential(&mut self.rng, mean_bytes),
            Sizes::Pareto => rng::pareto(&mut self.rng, mean_bytes, shape),
        }
    }

    fn draw_distance_s(&mut self) -> f64 {
        match self.options.arrivals {
            Arrivals::Constant => self.options.distance_s,
            Arrivals::Exponential => rng::exponential(&mut self.rng, self.options.distance_s),
        }
    }
}

impl Workload for Transfers {
    fn act(&mut self, now: Time) -> (Action, Option<Time>) {
        let bytes = (self.draw_bytes().ceil() as u64).max(1);
        let wait = Duration::from_secs_f64(self.draw_distance_s());
        (Action::Connect { bytes: Some(bytes), silent: false }, Some(now + wait))
    }
}
