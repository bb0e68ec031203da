//! Workloads: what a flow sends and when, as pure state machines. The simulator and the traffic programs of the node
//! binary drive the same code with the same random streams, so a workload is the same on every backend.
//!
//! A workload is one file and one line in [`builtin`]. Other crates add theirs to that table. An [`Application`] is the
//! workload of one flow, and [`flow`] turns its actions into calls of a driver.

mod application;
mod bulk;
mod call;
mod cbr;
mod command;
mod datagrams;
mod established;
mod fetch;
pub mod flow;
mod on_off;
mod probe;
#[cfg(test)]
mod tests;
mod transactions;
mod transfers;
mod video;
mod web;

use backchannel_core::options::CheckedOptions;
use backchannel_core::registry::Table;
use backchannel_core::rng::RunRng;
use backchannel_core::scenario::Flow;

pub use application::{Action, Application, Transaction, Workload};
pub use datagrams::{datagram_header_bytes, LEAST_NUMBERED_BYTES};

/// What a workload knows of its surroundings, in addition to its options.
#[derive(Debug)]
pub struct Context<'a> {
    /// The flow.
    pub flow: &'a Flow,
    /// The random stream of the flow.
    pub rng: RunRng,
}

/// Constructor of a workload.
pub type Build = fn(&CheckedOptions<'_>, Context<'_>) -> Result<Box<dyn Workload>, String>;
/// Workloads by name.
pub type Workloads = Table<Build>;

/// The workloads of this crate.
pub fn builtin() -> Workloads {
    Table::<Build>::new(
        "workload",
        &[
            (&bulk::ENTRY, bulk::build),
            (&call::ENTRY, call::build),
            (&cbr::ENTRY, cbr::build),
            (&command::ENTRY, command::build),
            (&established::ENTRY, established::build),
            (&fetch::ENTRY, fetch::build),
            (&on_off::ENTRY, on_off::build),
            (&probe::ENTRY, probe::build),
            (&transactions::ENTRY, transactions::build),
            (&transfers::ENTRY, transfers::build),
            (&video::ENTRY, video::build),
            (&web::ENTRY, web::build),
        ],
    )
}
