//! The virtual-time driver: the same links, policies and stacks as on real wires, under an event queue. The same input gives
//! the same bytes in every output file.

mod capture;
mod counters;
mod host;
mod input;
mod network;
mod queue;
mod workload;

pub use host::write_samples;
pub use input::Input;
pub use network::simulate;
pub use workload::workloads;
