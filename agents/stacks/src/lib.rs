//! The research TCP stack: pure endpoints, made of small parts that read like their sources.
//!
//! A driver builds a [`Connection`] from a [`config::Config`] and a [`Source`] of data. [`config::stack_config`] makes
//! the configuration of a named stack and a campaign's options. The driver passes in packets and expired timers
//! ([`Transport`](backchannel_core::transport::Transport)), and after each call sends what `poll_transmit` returns, until
//! it returns `None`. `read` returns what has arrived, `samples` the telemetry of the sender. [`Tcp`] makes the
//! connections of one program.
//!
//! ```
//! use backchannel_core::{packet::FlowKey, scenario::Options, transport::Transport, Time};
//! use backchannel_stacks::{config::stack_config, Connection, Content, Source};
//!
//! let flow = FlowKey { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), src_port: 4000, dst_port: 80 };
//! let config = stack_config("newreno", &Options::new())?;
//! let mut client = Connection::connect(config.clone(), flow, 1000, Source::new(Content::Zeros, Some(50_000)));
//! let syn = client.poll_transmit(Time::ZERO).expect("a connection begins with its SYN");
//! let mut server = Connection::accept(config, flow.reversed(), 2000, Source::silent(), &syn).expect("it is a SYN");
//!
//! // A path of 10 ms each way, without loss.
//! let (mut now, mut received) = (Time::ZERO, 0);
//! while !server.peer_finished() {
//!     for (from, to) in [(0, 1), (1, 0)] {
//!         let ends = &mut [&mut client, &mut server];
//!         let under_way: Vec<_> = std::iter::from_fn(|| ends[from].poll_transmit(now)).collect();
//!         now = Time(now.nanos() + 10_000_000);
//!         under_way.iter().for_each(|packet| ends[to].on_packet(now, packet));
//!         if ends[to].next_timeout().is_some_and(|at| at <= now) {
//!             ends[to].on_timer(now);
//!         }
//!     }
//!     received += server.read().map(|chunk| chunk.len()).sum::<u64>();
//! }
//! assert_eq!((received, client.counts().retransmitted), (50_000, 0));
//! println!("{:?}", client.samples().last());
//! # Ok::<(), backchannel_core::Error>(())
//! ```
//!
//! # Parts
//!
//! A [controller](controllers) alone decides on the congestion window and the pacing rate. `recovery` chooses what is
//! retransmitted, and `pacer` spaces segments. `sender`, `acks`, `scoreboard`, `receiver` and `rtt` follow the RFCs.
//! What 4.4BSD and ns did differently is in `bsd_4_4` and `era`, what single papers add in `extensions`. [`wire`]
//! converts segments to packets.
//!
//! # Add a controller
//!
//! Implement [`controllers::Growth`] for a controller that keeps slow start and Reno's reactions, or
//! [`controllers::CongestionController`] for any other. A controller of this crate is one file below `controllers/`.
//! Another crate calls `Registry::controller` instead. docs/stacks.md describes the options and the steps.

mod accurate_option;
mod acks;
mod bsd_4_4;
mod challenge;
pub mod config;
mod congestion;
mod connection;
pub mod controllers;
mod ecn;
mod era;
mod extensions;
mod factory;
mod handshake;
mod input;
mod ledger;
mod loss_detection;
mod opening;
mod output;
mod pacer;
mod reassembly;
mod receive_window;
mod receiver;
mod recovery;
mod reset;
mod rtt;
mod sack_blocks;
mod sack_compression;
mod scoreboard;
mod send_window;
mod sender;
mod seq;
mod source;
mod telemetry;
mod timers;
mod timestamps;
mod window_use;
pub mod wire;

pub use connection::{Connection, State};
pub use factory::Tcp;
pub use reset::reset_for;
pub use seq::{Offset, SeqNumber};
pub use source::{pattern, Content, Source};
pub use telemetry::{Counts, Sample, SenderEvent};

#[cfg(test)]
mod tests;
