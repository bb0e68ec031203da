//! The Internet checksum (RFC 1071).

/// Sum of big-endian 16-bit words, an odd byte padded with zero; not folded. Words are added in pairs, as 32-bit
/// numbers, which folds to the same.
pub fn ones_sum(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let number = |pair: &[u8; 4]| u64::from(u32::from_be_bytes(*pair));
    pairs.iter().map(number).sum::<u64>() + number(&last)
}

/// Folds a sum of 16-bit words into one (RFC 1071).
#[inline]
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
