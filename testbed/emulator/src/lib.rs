//! The real-time driver: carries packets between interfaces and gives the pure links a clock.
//!
//! One thread, one event loop. A frame that a node sends is read from its TAP (or from an existing interface, through
//! AF_PACKET), enters its link at that instant, and is written to the other end when the link says so; how late that write was against the link's ideal timeline is the
//! fidelity report. `docs/emulator-protocol.md` describes the requests.

mod emulated_link;
mod interface;
mod protocol;
mod pulse;
mod sys;
mod tap;
mod wire;

pub use protocol::{serve, EmulationReport};
pub use pulse::Stalls;
pub use sys::{become_realtime, die_with, leave_realtime, monotonic_ns, HOSTS};
pub use tap::parse_mac;
