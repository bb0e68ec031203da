//! Van Jacobson's TCP/IP header compression (RFC 1144), both ends of a line, as pure state machines.
//!
//! Both ends keep the last header of each connection in a numbered slot (3.1). A packet carries only the differences
//! from it: a mask of changes, the unchanged TCP checksum, and a delta for each changed field.
//!
//! ```text
//!   mask     0 C I P  S A W U     (3.2.2)
//!   [slot]                        C: another connection than the packet before
//!   checksum, 2 bytes             of TCP, unchanged: it shows the receiver when the ends are out of step
//!   [U][W][A][S][I]               urgent pointer; deltas of window, ack, sequence number, IP identification
//! ```
//!
//! A delta of 1..=255 takes one byte. Other deltas take three: 0 and 16 bits. Without I, the IP identification rose by
//! one. Two masks that cannot otherwise occur stand for the most frequent packets: S+W+U for an echo, where ack and
//! sequence number both rise by the data of the packet before, and S+A+W+U for data in one direction, where only the
//! sequence number does.
//!
//! A packet that cannot be compressed is sent as UNCOMPRESSED_TCP: whole, with its slot in place of the protocol, which
//! sets both ends (3.2.3). That is a new connection, a changed option (so every packet of a connection with
//! timestamps), time to live or type of service, a delta beyond 16 bits, or what looks like a retransmission. SYN, FIN,
//! RST, fragments and other protocols are sent unchanged.
//!
//! Differs from the RFC's code in four places, where that code would not restore what was sent:
//! - A change of the bits that RFC 3168 and the papers' marks use makes a packet UNCOMPRESSED_TCP.
//! - The two special masks clear URG.
//! - A packet whose IP checksum or length is wrong is sent unchanged.
//! - A slot that was never set tosses packets instead of inventing a header.

mod compressor;
mod decompressor;
mod header;

pub use compressor::Compressor;
pub use decompressor::Decompressor;

/// Most slots: a slot number is a byte (RFC 1332 section 4 counts them from 0 to 255).
pub const MOST_SLOTS: usize = 256;

/// Type of a packet on the line, which the framing carries (3.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any packet, unchanged.
    Ip,
    /// A whole TCP packet that sets a slot; the slot's number stands where the protocol was.
    UncompressedTcp,
    /// A compressed header and the data.
    CompressedTcp,
}

/// A packet as it crosses the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compressed {
    /// Its type.
    pub kind: Kind,
    /// Its bytes, before framing.
    pub bytes: Vec<u8>,
}

/// Why a decompressor tossed a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tossed {
    /// An earlier frame was lost and this one does not name its slot, so it may belong to any connection (4.1).
    SlotUnknown,
    /// It names a slot that does not exist or was never set.
    NoSuchSlot,
    /// It ends too early, or is not a TCP/IP header.
    Malformed,
}

#[cfg(test)]
mod tests;
