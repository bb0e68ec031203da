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
    /// Headers of this length, which `write` writes, and then `data`.
    #[inline]
    pub(super) fn new(length: usize, data: &[u8], write: impl FnOnce(&mut [u8])) -> Bytes {
        if !data.is_empty() || length > INLINE_BYTES {
            let mut bytes = vec![0; length];
            write(&mut bytes);
            bytes.extend_from_slice(data);
            return Bytes::Allocated(bytes);
        }
        let mut bytes = [0; INLINE_BYTES];
        write(&mut bytes[..length]);
        Bytes::Inline { length: length as u8, bytes }
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
