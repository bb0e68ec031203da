//! From captures to a record of every TCP segment: reads pcap and pcapng, follows connections and classifies segments.
//!
//! One streaming pass per capture; the live connections bound the memory. [`write_tables`] writes `segments.parquet`,
//! `sacks.parquet`, `connections.parquet`, `summary.json` and, if asked for, `datagrams.parquet` (docs/traces.md).
//!
//! A frame passes these files in order: `capture` (file formats), `link_layer` and `decode` (headers), `tracker` (which
//! connection), `connection`, `stream`, `rtt` and `classify` (what the segment was), `tables` (Parquet).

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
mod ranges;
mod rtt;
mod stream;
mod tables;
mod tracker;

pub use capture::{About, Capture, Damage, Frame};
pub use class::{SegmentClass, SEGMENT_CLASSES};
pub use connection::{Connection, Segment};
pub use counts::{Counts, RoundTrips};
pub use datagram::Datagram;
pub use decode::{ecn, Address, Checksum, Decoder, NoTcp, TcpPacket};
pub use link_layer::network_layer;
pub use tables::{write_tables, Input, Options};
pub use tracker::Tracker;
