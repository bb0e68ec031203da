//! The SACK blocks of one segment (RFC 2018 3), stored in place: segments are made and read too often to allocate.

use std::ops::Deref;

use crate::seq::SeqNumber;

/// A block: its first number, and one beyond its last.
type Block = (SeqNumber, SeqNumber);

/// As many as 40 bytes of options can hold.
const MOST: usize = 4;

/// Up to four SACK blocks, the most recent first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    /// Those behind `count` are zero.
    blocks: [Block; MOST],
    count: u8,
}

impl Deref for SackBlocks {
    type Target = [Block];

    #[inline]
    fn deref(&self) -> &[Block] {
        &self.blocks[..usize::from(self.count)]
    }
}

impl FromIterator<Block> for SackBlocks {
    /// Blocks behind the fourth are left out.
    fn from_iter<I: IntoIterator<Item = Block>>(blocks: I) -> SackBlocks {
        let mut kept = SackBlocks::default();
        for (place, block) in kept.blocks.iter_mut().zip(blocks) {
            *place = block;
            kept.count += 1;
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_four_blocks_are_kept_in_order() {
        let blocks: Vec<Block> = (0..6).map(|n| (SeqNumber(10 * n), SeqNumber(10 * n + 5))).collect();
        for count in 0..=6 {
            let kept: SackBlocks = blocks[..count].iter().copied().collect();
            assert_eq!(kept[..], blocks[..count.min(4)]);
        }
    }
}
