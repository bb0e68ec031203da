//! A web page as asym 7.3 fetches it: a request, whose answer is shared by several connections.

use backchannel_core::options;
use backchannel_core::options::CheckedOptions;
use backchannel_core::registry::{Entry, ExchangeKind};
use backchannel_core::time::Time;
use backchannel_core::Error;

use crate::{Action, Context, Workload};

options! {
    /// Options of the workload.
    struct Options {
        request_bytes: u64 = 500, [Bytes 1 to 1e6] "size of the request (asym 7.3)";
        connections: u64 = 4, [Count 1 to 100] "connections that share the flow's size (asym 7.3)";
    }
}

pub(crate) static ENTRY: Entry = Entry::workload(
    "fetch",
    "the receiver sends a request, which the sender answers over several connections at once",
    ExchangeKind::Transfers,
)
.source("asym 7.3")
.options(Options::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: Context<'_>) -> Result<Box<dyn Workload>, Error> {
    let Options { request_bytes, connections } = Options::read(checked);
    let bytes = context.flow.bytes.ok_or("a fetch needs a size: the bytes that are requested")?;
    if connections > bytes {
        return Err(format!("{bytes} bytes cannot be shared by {connections} connections").into());
    }
    Ok(Box::new(Fetch { request_bytes, bytes, connections, opened: None }))
}

#[derive(Debug)]
struct Fetch {
    request_bytes: u64,
    bytes: u64,
    connections: u64,
    /// Connections opened. `None` until the request is sent.
    opened: Option<u64>,
}

impl Workload for Fetch {
    fn request_bytes(&self) -> Option<u64> {
        Some(self.request_bytes)
    }

    fn act(&mut self, now: Time) -> (Action, Option<Time>) {
        let Some(opened) = &mut self.opened else {
            self.opened = Some(0);
            return (Action::Request(self.request_bytes), None);
        };
        if *opened == self.connections {
            return (Action::Pause, None);
        }
        let share = self.bytes * (*opened + 1) / self.connections - self.bytes * *opened / self.connections;
        *opened += 1;
        (Action::Connect { bytes: Some(share), silent: false }, (*opened < self.connections).then_some(now))
    }
}
