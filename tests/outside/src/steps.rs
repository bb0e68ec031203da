//! A workload of transfers at equal intervals, each longer than the one before.

use std::time::Duration;

use backchannel_node::core::options;
use backchannel_node::core::options::CheckedOptions;
use backchannel_node::core::registry::{Entry, ExchangeKind};
use backchannel_node::core::{Error, Time};
use backchannel_node::workloads::{Action, Context, Workload};

options! {
    /// Options of the workload.
    #[derive(Copy)]
    struct Parameters {
        interval_s: Duration = 1, [Time 0.001 to 1e6] "time between two starts";
        step_bytes: u64 = 10_000, [Bytes 1 to 1e9] "size of the first transfer, and growth of each further one";
    }
}

pub(crate) static ENTRY: Entry =
    Entry::workload("steps", "transfers at equal intervals, each longer than the one before", ExchangeKind::Transfers)
        .options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, _: Context<'_>) -> Result<Box<dyn Workload>, Error> {
    Ok(Box::new(Steps { parameters: Parameters::read(checked), bytes: 0 }))
}

#[derive(Debug)]
struct Steps {
    parameters: Parameters,
    bytes: u64,
}

impl Workload for Steps {
    fn act(&mut self, now: Time) -> (Action, Option<Time>) {
        self.bytes += self.parameters.step_bytes;
        (Action::Connect { bytes: Some(self.bytes), silent: false }, Some(now + self.parameters.interval_s))
    }
}
