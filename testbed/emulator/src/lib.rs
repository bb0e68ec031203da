//! The real-time driver: emulates links between network interfaces and carries real packets over them.
//!
//! [`serve`] runs one event loop in one thread. It reads requests from standard input and writes answers to standard
//! output, one JSON object a line. docs/emulator-protocol.md describes them. [`check_request`] validates a request
//! without running it.
//!
//! 1. A node sends a frame. The emulator reads it from the node's TAP, or from an existing interface through a packet
//!    socket, and submits it to the link at that instant.
//! 2. The loop sleeps until a link is due or a frame arrives, and polls the link.
//! 3. The emulator writes the packet to the interface at the other end.
//!
//! Links compute departures on an ideal timeline, so a late wake-up delays one write but nothing after it. The
//! [`EmulationReport`] states how late the writes were, and [`Stalls`] when the emulator itself was not scheduled. Runs
//! beyond the limits of docs/validity.md are invalid.
//!
//! [`RunTime`] selects real time, or the virtual time of a User-Mode Linux kernel, in which nothing is late. [`os`]
//! wraps the system calls: clocks, packet sockets, epoll, namespaces and scheduling classes. The node's traffic
//! programs use it too.
//!
//! No mechanism belongs here. `serve` builds links from the [`Registry`](backchannel_links::Registry) it is given.

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
pub use protocol::{check_request, EmulationReport};
pub use pulse::Stalls;
pub use run_clock::RunTime;
pub use server::serve;
pub use tap::parse_mac;
