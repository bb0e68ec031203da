//! The research TCP stack: pure endpoints, put together from small parts that read like their sources.
//!
//! A driver makes a [`Connection`] with a [`config::Config`] (by [`config::config`] from a named stack and a campaign's
//! options) and a [`Source`], and runs it through [`backchannel_core::traits::Endpoint`]: `on_segment`, `on_timer` when
//! `next_timeout` has come, `poll_transmit` until it gives `None`. `read` gives what arrived, `take_samples` the sender's
//! telemetry.

pub mod ack;
pub mod burst;
pub mod config;
pub mod congestion;
mod connection;
pub mod ecn;
pub mod eln;
pub mod receive;
mod reset;
pub mod rtt;
pub mod scoreboard;
mod source;
pub mod wire;

pub use connection::{Connection, Counts, End, Happening, Sample, State};
pub use reset::reset_for;
pub use source::{pattern, Content, Source};

#[cfg(test)]
mod tests;
