//! The virtual-time driver: the links, policies and stacks of real networks under an event queue. The same input gives
//! the same bytes in every output file.

mod connection;
mod counters;
mod datagram;
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
pub use simulation::simulate;
