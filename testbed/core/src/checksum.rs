//! The Internet checksum (RFC 1071).

/// Sum of big-endian 16-bit words, an odd byte padded with zero; not folded. Words are added in pairs, as 32-bit
/// numbers, which folds to the same.
#[inline]
pub fn ones_sum(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let number = |pair: &[u8; 4]| u64::from(u32::from_be_bytes(*pair));
    pairs.iter().map(number).sum::<u64>() + number(&last)
}

/// Folds a sum of 16-bit words into one (RFC 1071): its halves are added, and each carry comes back at the low end.
#[inline]
pub fn fold(sum: u64) -> u16 {
    let (half, carry) = (sum as u32).overflowing_add((sum >> 32) as u32);
    let half = half + u32::from(carry);
    // Beside its rotation: the lower halves add up to the same as the upper ones, and their carry goes to these.
    (half.wrapping_add(half.rotate_left(16)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_definition(mut sum: u64) -> u16 {
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    proptest! {
        #[test]
        fn any_sum_folds_to_what_adding_its_carries_gives(
            sum: u64,
            parts in proptest::array::uniform4(proptest::sample::select(vec![0u64, 1, 0x7fff, 0x8000, 0xfffe, 0xffff])),
        ) {
            let edge = parts.iter().fold(0, |all, part| all << 16 | part);
            for sum in [sum, edge] {
                prop_assert_eq!(fold(sum), by_definition(sum), "{:#x}", sum);
            }
        }
    }
}
