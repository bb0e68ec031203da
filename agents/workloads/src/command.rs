//! Programs of the user's on both hosts. They need real packets, and `agents/node/src/program.rs` runs them.

use backchannel_core::options::CheckedOptions;
use backchannel_core::registry::{Entry, ExchangeKind};
use backchannel_core::Error;

use crate::{Context, Workload};

pub(crate) static ENTRY: Entry = Entry::workload(
    "command",
    "programs of yours on both hosts; needs real packets (docs/programs.md)",
    ExchangeKind::None,
)
.source("docs/programs.md");

pub(crate) fn build(_: &CheckedOptions<'_>, _: Context<'_>) -> Result<Box<dyn Workload>, Error> {
    Err("a command needs real packets: use emulated, virtual-kernel or physical".into())
}
