//! Bulk: one connection with the flow's size, or without end.

use backchannel_core::options::CheckedOptions;
use backchannel_core::registry::{Entry, ExchangeKind};
use backchannel_core::time::Time;
use backchannel_core::Error;

use crate::{Action, Context, Workload};

pub(crate) static ENTRY: Entry =
    Entry::workload("bulk", "one connection that sends until its size or stop time is reached", ExchangeKind::None)
        .source("asym 4.1");

pub(crate) fn build(_: &CheckedOptions<'_>, context: Context<'_>) -> Result<Box<dyn Workload>, Error> {
    Ok(Box::new(Bulk { bytes: context.flow.bytes }))
}

#[derive(Debug)]
struct Bulk {
    bytes: Option<u64>,
}

impl Workload for Bulk {
    fn act(&mut self, _: Time) -> (Action, Option<Time>) {
        (Action::Connect { bytes: self.bytes, silent: false }, None)
    }
}
