//! Sequence numbers (RFC 9293 3.4).
//!
//! On the wire a number has 32 bits and wraps: [`SeqNumber`]. A connection expands each number once, when its segment
//! arrives, to a distance from the initial number that never wraps: [`Offset`]. QUIC expands packet numbers in the same
//! way. Offsets have a total order, so they can be compared, subtracted and used as keys of a map.

use std::cmp::Ordering;
use std::ops::{Add, AddAssign, Sub};

/// A sequence number on the wire. It wraps, and so does its order: of two numbers, the one up to 2^31 ahead is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// The number at `offset` in the stream that begins with this initial number.
    pub fn at(self, offset: Offset) -> SeqNumber {
        self + offset.0 as u32
    }

    /// Expands the number to its offset from `initial`. Of the offsets that it can stand for, it is the one closest to
    /// `near`, which the caller chooses so that the error is below 2^31: the next number expected.
    pub fn expand(self, initial: SeqNumber, near: Offset) -> Offset {
        Offset(near.0 + i64::from(self - initial.at(near)))
    }
}

impl From<u32> for SeqNumber {
    fn from(number: u32) -> SeqNumber {
        SeqNumber(number)
    }
}

impl PartialOrd for SeqNumber {
    fn partial_cmp(&self, other: &SeqNumber) -> Option<Ordering> {
        (*self - *other).partial_cmp(&0)
    }
}

impl Add<u32> for SeqNumber {
    type Output = SeqNumber;

    fn add(self, bytes: u32) -> SeqNumber {
        SeqNumber(self.0.wrapping_add(bytes))
    }
}

impl Sub for SeqNumber {
    type Output = i32;

    /// Bytes from `other` to this number, negative when `other` is ahead.
    fn sub(self, other: SeqNumber) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }
}

/// A position in one direction of a connection, counted from its SYN. Numbers before the SYN are negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub i64);

impl Offset {
    /// The SYN.
    pub const SYN: Offset = Offset(0);
    /// The first byte of data.
    pub const FIRST_BYTE: Offset = Offset(1);
    /// Beyond every position.
    pub const MAX: Offset = Offset(i64::MAX);

    /// Bytes from `earlier` to this position; 0 when `earlier` is ahead.
    #[inline]
    pub fn since(self, earlier: Offset) -> u64 {
        (self.0 - earlier.0).max(0) as u64
    }

    /// Bytes of application data before this position.
    #[inline]
    pub fn data_bytes(self) -> u64 {
        self.since(Offset::FIRST_BYTE)
    }
}

impl Add<u64> for Offset {
    type Output = Offset;

    fn add(self, bytes: u64) -> Offset {
        Offset(self.0 + bytes as i64)
    }
}

impl AddAssign<u64> for Offset {
    fn add_assign(&mut self, bytes: u64) {
        *self = *self + bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_wraps() {
        let last = SeqNumber(u32::MAX);
        assert!(last < last + 1 && last + 1 == SeqNumber(0));
        assert_eq!((SeqNumber(5) - last, last - SeqNumber(5)), (6, -6));
        assert!(SeqNumber(0) < SeqNumber(0x7fff_ffff) && SeqNumber(0) > SeqNumber(0x8000_0001));
    }

    #[test]
    fn numbers_before_the_syn_are_negative() {
        assert_eq!(SeqNumber(95).expand(SeqNumber(100), Offset(3)), Offset(-5));
        assert_eq!((Offset(-5).since(Offset::SYN), Offset(7).since(Offset(-5))), (0, 12));
    }

    proptest! {
        #[test]
        fn a_number_expands_to_the_offset_it_was_made_of(initial: u32, near in 0i64..1 << 50, ahead: i32) {
            let offset = Offset(near + i64::from(ahead));
            prop_assert_eq!(SeqNumber(initial).at(offset).expand(SeqNumber(initial), Offset(near)), offset);
        }
    }
}
