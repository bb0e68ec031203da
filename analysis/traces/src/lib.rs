//! From captures to truth per segment: reads pcap and pcapng, follows TCP connections and says what each segment was.
//!
//! One streaming pass per capture; memory is bounded by the live connections. [`write_tables`] leaves `segments.parquet`,
//! `connections.parquet` and `summary.json`, which docs/traces.md describes.

mod capture;
mod connection;
mod decode;
mod ranges;
mod tables;

pub use capture::{Record, Records};
pub use connection::{class, Connection, Segment, Tracker};
pub use decode::{decode, network_layer, TcpPacket};
pub use tables::write_tables;
