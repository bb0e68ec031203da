//! The Internet checksum (RFC 1071), on sums in this machine's byte order.

/// From this length on, the vectorised loop is worth its set-up.
const LONG: usize = 128;

/// Sum of the 16-bit words of `bytes` in one's complement, before folding (RFC 1071 2).
#[inline(always)]
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let (mut total, mut rest) = if bytes.len() < LONG { (0, bytes) } else { sum_long(bytes) };
    while let Some((eight, after)) = rest.split_first_chunk::<8>() {
        total = add(total, u64::from_ne_bytes(*eight));
        rest = after;
    }
    if let Some((four, after)) = rest.split_first_chunk::<4>() {
        total = add(total, u64::from(u32::from_ne_bytes(*four)));
        rest = after;
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        total = add(total, u64::from(u32::from_ne_bytes(last)));
    }
    total
}

/// The sum of whole 32-byte chunks, and the rest.
#[inline(never)]
fn sum_long(bytes: &[u8]) -> (u64, &[u8]) {
    let chunks = bytes.chunks_exact(32);
    let rest = chunks.remainder();
    // 32-bit words in 64-bit lanes need no carry, so the compiler can use vector instructions.
    let mut lanes = [0u64; 8];
    for chunk in chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk.chunks_exact(4)) {
            *lane += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
    }
    (lanes.into_iter().fold(0, add), rest)
}

/// Adds in one's complement.
#[inline(always)]
pub(crate) fn add(a: u64, b: u64) -> u64 {
    let (total, carry) = a.overflowing_add(b);
    total + u64::from(carry)
}

/// Folds a sum to 16 bits. A packet whose checksum is right has 0xffff.
#[inline(always)]
pub(crate) fn fold(sum: u64) -> u16 {
    // Rotated by half its width and added to itself, a number has the sum of both halves, with carry, in its high half.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_of_any_length_agree_with_the_definition(bytes in proptest::collection::vec(any::<u8>(), 1..700)) {
            let mut expected = 0u64;
            for pair in bytes.chunks(2) {
                expected += u64::from(u16::from_ne_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
            }
            while expected > 0xffff {
                expected = (expected & 0xffff) + (expected >> 16);
            }
            prop_assert_eq!(u64::from(fold(sum(&bytes))), expected);
        }
    }
}
