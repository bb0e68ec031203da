//! Workloads: what a flow sends and when. The simulator and the node's traffic programs drive the same state machines
//! with the same random streams, so a flow has the same traffic on every backend.
//!
//! A [`Workload`] returns its next [`Action`] and the time of the one after: open a connection, write, request, or send
//! a datagram. [`flow`] turns it into calls of the driver. An [`Application`] is the workload of one flow, built from the scenario with
//! [`Application::new`]. It also answers what drivers ask throughout the run, such as whether the flow uses datagrams.
//!
//! - Streams: `bulk`, `established`, `on-off`.
//! - Finite transfers and requests: `transfers`, `web`, `fetch`, `transactions`.
//! - Datagrams: `cbr`, `call`, `video`, and `probe` with echoes.
//! - `command` runs programs of the user, on real packets only.
//!
//! # Add a workload
//!
//! Write one file with its options, its entry, a [`Build`] function and the trait, and add a line to [`builtin`]. Its
//! [`ExchangeKind`](backchannel_core::registry::ExchangeKind) states what is recorded. Another crate calls
//! `Registry::workload` instead. Draw random numbers from [`Context::rng`] only, so that runs are reproducible.

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
mod workload;

use backchannel_core::registry::Table;

pub use application::Application;
pub use datagrams::{datagram_header_bytes, LEAST_NUMBERED_BYTES};
pub use workload::{Action, Build, Context, Transaction, Workload, Workloads};

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
