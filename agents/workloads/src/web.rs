//! Web-like traffic of aq: connections that start at random, with sizes from Pareto's distribution.

use std::time::Duration;

use backchannel_core::options;
use backchannel_core::options::CheckedOptions;
use backchannel_core::registry::{Entry, ExchangeKind, When};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;
use backchannel_core::Error;

use crate::{Action, Context, Workload};

options! {
    /// Options of the workload.
    struct Options {
        distance_s: f64 = 1, [Time 1e-6 to 1e6] "mean time between two starts, exponential (aq 4.2)";
        mean_bytes: f64 = 30_000, [Bytes 1] "mean size of a transfer (aq 4.2)";
        shape: f64 = 1.3, [Number 1.01 to 100] "shape of the Pareto distribution (aq 4.2)";
    }
}

pub(crate) static ENTRY: Entry = Entry::workload(
    "web",
    "connections that start at random and carry a Pareto-distributed number of bytes each",
    ExchangeKind::Transfers,
)
.source("aq 4.2")
.random(When::Always)
.options(Options::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: Context<'_>) -> Result<Box<dyn Workload>, Error> {
    Ok(Box::new(Web { options: Options::read(checked), rng: context.rng }))
}

#[derive(Debug)]
struct Web {
    options: Options,
    rng: RunRng,
}

impl Workload for Web {
    fn act(&mut self, now: Time) -> (Action, Option<Time>) {
        let bytes = rng::pareto(&mut self.rng, self.options.mean_bytes, self.options.shape).ceil() as u64;
        let wait = Duration::from_secs_f64(rng::exponential(&mut self.rng, self.options.distance_s));
        (Action::Connect { bytes: Some(bytes), silent: false }, Some(now + wait))
    }
}
