//! The real-time driver: carries packets between interfaces and gives links a clock.
//!
//! One thread runs one event loop. A frame that a node sends is read from its TAP, or from an existing interface
//! through a packet socket, and enters its link at that instant. It is written to the other end when the link delivers
//! it. The report states how late that write was against the link's ideal timeline. docs/emulator-protocol.md describes
//! the requests.

mod attached;
mod emulated_link;
mod interface;
pub mod os;
mod protocol;
mod pulse;
mod run_clock;
mod server;
mod tap;

pub use os::clock::monotonic_ns;
pub use os::process::{become_realtime, die_with, leave_realtime};
pub use protocol::check_request;
pub use pulse::Stalls;
pub use run_clock::RunTime;
pub use server::{serve, EmulationReport};
pub use tap::parse_mac;
