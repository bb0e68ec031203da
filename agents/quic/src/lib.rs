//! QUIC as a transport (RFC 9000, RFC 9002), by quinn-proto: the same endpoints in virtual time and on real packets.
//!
//! [`Quic`] makes the connections of one program. Each is a
//! [`Transport`](backchannel_core::transport::Transport) that sends UDP packets and carries the application's data on
//! one stream in both directions. [`AnyStacks`] has the stack `quic` beside those of TCP, and drivers hold either as
//! [`AnyConnection`].
//!
//! ```
//! use backchannel_core::{packet::FlowKey, scenario::Options, transport::{Factory, Transport}, Time};
//! use backchannel_quic::{AnyFactory, AnyStacks};
//! use backchannel_stacks::Content;
//!
//! let flow = FlowKey { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), src_port: 4000, dst_port: 443 };
//! let config = AnyStacks::builtin().config("quic", &Options::new())?;
//! let mut client = AnyFactory::new(config.clone(), Content::Zeros, 1).connect(Time::ZERO, flow);
//! client.write(50_000);
//! client.finish();
//! let first = client.poll_transmit(Time::ZERO).expect("a connection begins with its Initial packet");
//! let mut server = AnyFactory::new(config, Content::Zeros, 2);
//! let mut server = server.accept(Time::ZERO, flow.reversed(), &first).expect("it is an Initial packet");
//!
//! // A path of 10 ms each way, without loss.
//! let (mut now, mut received) = (Time::ZERO, 0);
//! while !(server.peer_finished() && client.end().is_some()) {
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
//!     if server.peer_finished() {
//!         server.finish();
//!     }
//! }
//! assert_eq!((received, client.counts().retransmitted), (50_000, 0));
//! println!("{:?}", client.samples().last());
//! # Ok::<(), backchannel_core::Error>(())
//! ```
//!
//! # What is not as in the Internet
//!
//! The plain session does not encrypt (`null_crypto`): quinn-proto computes with the sizes of TLS 1.3, and captures show
//! every frame. Such an endpoint understands only another one of this crate. The other is TLS 1.3 (`tls`) with draws that
//! follow from the seed. There is no discovery of the path's MTU, no migration, no 0-RTT and no resumption.
//!
//! # Parts
//!
//! `session` surrounds either session: it shows packets to the log and lends TLS the connection's generator.
//! `config` has the options, `connection` a connection, `content` what it sends, `clock` the time of quinn-proto.
//! `bridge` runs the congestion controllers of TCP under quinn-proto, `observer` takes telemetry, and `qlog` writes the
//! log of a connection.

mod any;
mod bridge;
mod clock;
mod config;
mod connection;
mod content;
mod factory;
mod null_crypto;
mod observer;
mod qlog;
mod session;
mod tls;

pub use any::{AnyConfig, AnyConnection, AnyFactory, AnyStacks};
pub use config::{Config, ControllerName, SessionKind, NAME};
pub use connection::Connection;
pub use factory::Quic;

#[cfg(test)]
mod tests;
