//! What every part of Backchannel speaks: time, packets, and the four traits that a driver gives a clock.
//!
//! Nothing here, and nothing that implements these traits, opens a socket, reads a clock or draws from a
//! global random source. Time comes in as an argument, packets come in and go out as values, randomness
//! comes from [`rng::stream`], seeded by the run. The same code is therefore simulated, emulated and deployed.

pub mod event;
pub mod packet;
pub mod registry;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod telemetry;
pub mod time;
pub mod traits;

pub use event::{Event, EventKind, Events};
pub use packet::{Ecn, FlowKey, Packet, Tcp, TcpFlags, Transport};
pub use time::{service_time, Time};
pub use traits::{Delivery, Endpoint, Link, Middlebox, Policy, Port, Side};
