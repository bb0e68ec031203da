//! The virtual-time driver: runs a scenario under an event queue. The same input gives the same bytes in every output
//! file.
//!
//! [`simulate`] takes the mechanisms of a [`Registry`](backchannel_links::Registry) and an [`Input`]: a scenario, and
//! the addresses and routes of its nodes. It writes captures, telemetry and counters into a folder and returns a
//! [`SimulationReport`] in the form of the emulator's reports. [`simulate_in_memory`] returns counters and writes nothing.
//!
//! - `event_queue` orders events by time, and by scheduling within one instant.
//! - `simulation` dispatches them to links, hosts and flows until the scenario ends.
//! - `node` routes packets. `processing` models the time that a host takes for a segment.
//! - `flow` and `connection` run the application of a flow over the research TCP or QUIC, over UDP or ICMP echoes.
//! - `counters` replaces captures where those would be too large.
//!
//! Links, policies, middleboxes, stacks and workloads are the same code that handles real packets. A new one is added
//! to its own crate, or to the registry, and needs no change here.

mod connection;
mod counters;
mod event_queue;
mod flow;
mod input;
mod node;
mod processing;
mod report;
mod simulation;

pub use counters::CountersFile;
pub use input::Input;
pub use report::SimulationReport;
pub use simulation::{simulate, simulate_in_memory};
