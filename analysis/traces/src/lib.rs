//! From captures to a record of every TCP segment: reads pcap and pcapng, follows connections and classifies segments.
//!
//! [`write_tables`] reads captures and writes `segments.parquet`, `sacks.parquet`, `connections.parquet`,
//! `summary.json` and, on request, `datagrams.parquet`. docs/traces.md describes their columns. Each capture is read
//! once as a stream, and memory is bounded by the live connections.
//!
//! A frame passes these types in order:
//!
//! 1. [`Capture`] reads file formats and yields a [`Frame`]. It continues after [`Damage`].
//! 2. [`Decoder`] reads the headers of link, IP and TCP into a [`TcpPacket`], and reassembles fragments.
//! 3. [`Tracker`] finds the [`Connection`] of the packet.
//! 4. The connection updates its streams and round trips, and returns a [`Segment`] with its [`SegmentClass`] bits.
//! 5. `tables` writes Parquet.
//!
//! Captures may come from anywhere, so no input may crash this crate or exhaust its memory. `tests/fuzz` checks that.
//!
//! A new segment class is a row of [`SEGMENT_CLASSES`] and a rule in `classify.rs`. A new file format is a file below
//! `capture/`.

mod budget;
mod capture;
mod checksum;
pub mod class;
mod classify;
mod connection;
mod counts;
mod datagram;
mod decode;
mod fragments;
mod in_turn;
mod link_layer;
mod packet;
mod ranges;
mod rtt;
mod stream;
mod tables;
mod tracker;

pub use capture::{Capture, Damage, FileInfo, Frame};
pub use class::{SegmentClass, SEGMENT_CLASSES};
pub use connection::{Connection, Segment};
pub use counts::{Counts, RoundTrips};
pub use datagram::Datagram;
pub use decode::Decoder;
pub use link_layer::network_layer;
pub use packet::{ecn, Address, Checksum, NoTcp, TcpPacket};
pub use tables::{write_tables, Input, Options};
pub use tracker::Tracker;
