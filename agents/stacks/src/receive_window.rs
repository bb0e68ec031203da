//! The window that a connection offers, and the buffer behind it (RFC 9293 3.8.6).

use crate::seq::Offset;

/// The receive buffer and the right edge offered to the peer.
///
/// `unread + held <= buffer`, but for data that arrived under an edge that was offered before the application held
/// bytes back: an edge is never taken back.
#[derive(Clone, Debug)]
pub struct ReceiveWindow {
    /// Size of the buffer in bytes.
    pub buffer: u64,
    /// Bytes in order that the application has not read.
    pub unread: u64,
    /// Bytes that the application has read and whose room it has yet to release.
    pub held: u64,
    /// The rightmost edge ever offered: it never moves left.
    edge: Offset,
}

impl ReceiveWindow {
    /// An empty buffer.
    pub fn new(buffer: u64) -> ReceiveWindow {
        ReceiveWindow { buffer, unread: 0, held: 0, edge: Offset::SYN }
    }

    /// RCV.WND: bytes that may still arrive from `next` on.
    #[inline]
    pub fn size(&self, next: Offset) -> u64 {
        self.buffer.saturating_sub(self.unread + self.held).max(self.edge.since(next))
    }

    /// Bytes by which an ack of `next` that offers `window` would move the edge.
    pub fn movement(&self, next: Offset, window: u64) -> u64 {
        (next + window).since(self.edge)
    }

    /// An ack of `next` offers `window` bytes.
    #[inline]
    pub fn on_offer(&mut self, next: Offset, window: u64) {
        self.edge = self.edge.max(next + window);
    }
}
