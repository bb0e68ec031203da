//! What all crates share: time, packets, the scenario, reports, and the four traits that a driver gives a clock.
//!
//! Implementations of the traits open no sockets, read no clock and use no global random source. Time is an argument,
//! packets are values, and randomness comes from [`rng::stream`], seeded by the run. So the same code is simulated,
//! emulated and deployed.

mod checksum;
pub mod command;
mod error;
pub mod event;
pub mod exchange;
pub mod icmp;
pub mod ids;
pub mod ip;
pub mod options;
pub mod packet;
pub mod pcap;
pub mod plan;
pub mod registry;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod service;
pub mod service_rate;
pub mod telemetry;
pub mod time;
pub mod traits;

pub use error::Error;
pub use event::{Event, EventKind, Events};
pub use ip::IpVersion;
pub use packet::{Ecn, FlowKey, Packet, Tcp, TcpFlags, Transport};
pub use time::{service_time, Time};
pub use traits::{Delivery, Endpoint, Link, Middlebox, Policy, Port, Side};
