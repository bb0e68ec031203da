//! Bulk over a connection that is opened before the flow starts.

use backchannel_core::options;
use backchannel_core::options::CheckedOptions;
use backchannel_core::registry::{Entry, ExchangeKind};
use backchannel_core::time::Time;
use backchannel_core::transport::ENDLESS;
use backchannel_core::Error;

use crate::{Action, Context, Workload};

options! {
    /// Options of the workload.
    struct Options {
        opened_s: f64 = 0, [Time 0 to 1e6] "when the connection is opened, not after the start";
    }
}

pub(crate) static ENTRY: Entry = Entry::workload(
    "established",
    "bulk over a connection opened before the start, so the start has no handshake, as in ns-2's one-way TCP",
    ExchangeKind::None,
)
.source("ns; asym 7.1; aq 4")
.options(Options::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: Context<'_>) -> Result<Box<dyn Workload>, Error> {
    let opened = Time::from_seconds(Options::read(checked).opened_s);
    let start = context.flow.start();
    if opened > start {
        return Err(format!("it is opened at {opened}, after its start at {start}").into());
    }
    Ok(Box::new(Established { opened, start, bytes: context.flow.bytes, connected: false }))
}

#[derive(Debug)]
struct Established {
    opened: Time,
    start: Time,
    bytes: Option<u64>,
    connected: bool,
}

impl Workload for Established {
    fn first(&self, _: Time) -> Time {
        self.opened
    }

    fn act(&mut self, _: Time) -> (Action, Option<Time>) {
        if std::mem::replace(&mut self.connected, true) {
            (Action::Write(self.bytes.unwrap_or(ENDLESS)), None)
        } else {
            (Action::Connect { bytes: None, silent: true }, Some(self.start))
        }
    }
}
