//! The base of all other crates: time, packets, scenarios, reports, and the traits of mechanisms.
//!
//! The same code is simulated, emulated and deployed. So mechanisms are pure state machines that open no sockets, read
//! no clock and use no global random source. Their driver passes the time as an argument and packets as values. Random
//! numbers come from [`rng::stream`], seeded by the run.
//!
//! | part | contents |
//! | --- | --- |
//! | [`traits`] | what a mechanism implements: [`Policy`], [`Link`], [`Middlebox`], each with an example |
//! | [`Packet`] | the bytes of a packet and its parsed headers; [`packet::build`] builds packets for tests |
//! | [`datagram`] | packets of UDP and ICMP echoes |
//! | [`Time`] | nanoseconds since the start of the run |
//! | [`Events`] | drops, marks, losses: what mechanisms report to their driver |
//! | [`scenario`], [`plan`] | input of a run: network, flows and options, then addresses and routes |
//! | [`report`], [`telemetry`], [`exchange`], [`pcap`] | output of a run |
//! | [`registry`], [`options!`] | how a mechanism declares its name, properties and options |
//! | [`service`] | the path of a packet through one link, shared by both drivers |
//!
//! A mechanism is one file: a struct of its options by [`options!`], a static [`registry::Entry`], a `build` function,
//! and an implementation of the trait. The crate for its kind lists it in a [`registry::Table`]. This crate contains no
//! mechanism and depends on no other crate of the workspace.

mod checksum;
pub mod command;
pub mod datagram;
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
pub mod transport;

pub use error::{Error, ResultExt};
pub use event::{Event, EventKind, Events};
pub use ip::IpVersion;
pub use packet::{Ecn, FlowKey, Packet, Tcp, TcpFlags, TransportHeader};
pub use time::{service_time, Time};
pub use traits::{Delivery, Link, Middlebox, Policy, Port, Side};
