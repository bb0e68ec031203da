//! The research TCP stack: pure endpoints, put together from small parts that read like their sources.
//!
//! A driver makes a [`Connection`] with a [`config::Config`] (by [`config::config`] from a named stack and a campaign's
//! options) and a [`Source`], and runs it through [`backchannel_core::traits::Endpoint`]: `on_segment`, `on_timer` when
//! `next_timeout` has come, `poll_transmit` until it gives `None`. `read` gives what arrived, `samples` the sender's
//! telemetry.
//!
//! ```
//! use backchannel_core::{packet::FlowKey, scenario::Options, traits::Endpoint, Time};
//! use backchannel_stacks::{config::config, Connection, Content, Source};
//!
//! let flow = FlowKey { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), src_port: 4000, dst_port: 80 };
//! let settings = config("newreno", &Options::new())?;
//! let mut client = Connection::connect(settings.clone(), flow, 1000, Source::new(Content::Zeros, Some(50_000)));
//! let syn = client.poll_transmit(Time::ZERO).expect("a connection begins with its SYN");
//! let mut server = Connection::accept(settings, flow.reversed(), 2000, Source::silent(), &syn).expect("it is a SYN");
//!
//! // A path of 10 ms each way, without loss.
//! let (mut now, mut received) = (Time::ZERO, 0);
//! while !server.peer_finished() {
//!     for (from, to) in [(0, 1), (1, 0)] {
//!         let ends = &mut [&mut client, &mut server];
//!         let under_way: Vec<_> = std::iter::from_fn(|| ends[from].poll_transmit(now)).collect();
//!         now = Time(now.nanos() + 10_000_000);
//!         under_way.iter().for_each(|packet| ends[to].on_segment(now, packet));
//!         if ends[to].next_timeout().is_some_and(|at| at <= now) {
//!             ends[to].on_timer(now);
//!         }
//!     }
//!     received += server.read().iter().map(|part| part.bytes.len() as u64 + part.zeros).sum::<u64>();
//! }
//! assert_eq!((received, client.counts().retransmitted), (50_000, 0));
//! println!("{:?}", client.samples().last());
//! # Ok::<(), String>(())
//! ```

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
