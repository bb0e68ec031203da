//! Applications of flows, as pure state machines: what a flow sends and when. The simulator and the traffic programs of the
//! node binary drive the same code with the same random streams, so a workload is the same on every backend.

mod application;
mod entries;
mod video;

pub use application::{datagram_header_bytes, Action, Application, Transaction};
pub use entries::{entries, LEAST_NUMBERED_BYTES};
