//! From captures to truth per segment: reads pcap and pcapng, follows TCP connections and says what each segment was.
//!
//! One streaming pass per capture; memory is bounded by the live connections. [`write_tables`] leaves `segments.parquet`,
//! `sacks.parquet`, `connections.parquet` and `summary.json`, which docs/traces.md describes.

mod capture;
pub mod class;
mod connection;
mod decode;
mod ranges;
mod tables;

pub use capture::{About, Capture, Damage, Frame};
pub use class::{SegmentClass, SEGMENT_CLASSES};
pub use connection::{Connection, Counts, RoundTrips, Segment, Tracker};
pub use decode::{ecn, network_layer, Address, Checksum, Decoder, Not, TcpPacket};
pub use tables::{write_tables, Input, Options};
