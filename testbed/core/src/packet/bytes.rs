//! The stored bytes of a packet.

use std::ops::{Deref, DerefMut};

/// Bytes that fit beside the other fields of a packet: both headers with 24 bytes of TCP options.
const INLINE_BYTES: usize = 64;

/// The bytes of one packet. Those of a simulated packet, which has headers alone, need no allocation.
#[derive(Clone, Debug)]
pub(super) enum Bytes {
    Inline { length: u8, bytes: [u8; INLINE_BYTES] },
    Allocated(Vec<u8>),
}

impl Bytes {
    /// `headers` and then `data`.
    pub(super) fn new(headers: &[u8], data: &[u8]) -> Bytes {
        if !data.is_empty() || headers.len() > INLINE_BYTES {
            return Bytes::Allocated([headers, data].concat());
        }
        let mut bytes = [0; INLINE_BYTES];
        bytes[..headers.len()].copy_from_slice(headers);
        Bytes::Inline { length: headers.len() as u8, bytes }
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
