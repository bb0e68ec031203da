//! The stored bytes of a packet.

use std::ops::{Deref, DerefMut};

/// Bytes that fit beside the other fields of a packet: an IPv4 header without options and any TCP header.
const INLINE_BYTES: usize = 80;

/// The bytes of one packet. Those of a simulated packet, which has headers alone, need no allocation.
#[derive(Clone, Debug)]
pub(super) enum Bytes {
    Inline { length: u8, bytes: [u8; INLINE_BYTES] },
    Allocated(Vec<u8>),
}

impl Bytes {
    /// Zeros for headers of this length, at most 80 bytes.
    #[inline(always)]
    pub(super) const fn headers(length: usize) -> Bytes {
        Bytes::Inline { length: length as u8, bytes: [0; INLINE_BYTES] }
    }

    /// Appends data to headers.
    pub(super) fn append(&mut self, data: &[u8]) {
        *self = Bytes::Allocated([&**self, data].concat());
    }

    /// Headers of any length, and then `data`.
    pub(super) fn of(headers: &[u8], data: &[u8]) -> Bytes {
        if headers.len() > INLINE_BYTES || !data.is_empty() {
            return Bytes::Allocated([headers, data].concat());
        }
        let mut bytes = Bytes::headers(headers.len());
        bytes.copy_from_slice(headers);
        bytes
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Bytes::Allocated(bytes) => bytes,
        }
    }
}

impl DerefMut for Bytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Bytes::Inline { length, bytes } => &mut bytes[..usize::from(*length)],
            Bytes::Allocated(bytes) => bytes,
        }
    }
}
