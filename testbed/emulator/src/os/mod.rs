//! The operating system: clocks, scheduling, waiting, namespaces, interfaces and packet sockets, for every program of
//! the node binary.

pub mod arrivals;
pub mod clock;
pub mod interface;
pub mod link_layer;
pub(crate) mod namespace;
pub mod packet_socket;
pub mod process;
pub mod socket_option;
pub mod wait;

use rustix::time::Timespec;

/// Nanoseconds as the kernel takes them.
pub(crate) fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}
