//! The sender of 1996 (Fall and Floyd's sack1, which ton cites): every hole below the highest block is missing.

use backchannel_core::time::Time;

use super::{Choice, Outstanding, Piece, Selective};
use crate::seq::Offset;

#[derive(Clone, Debug, Default)]
pub(super) struct Sack1996 {
    /// One beyond the highest byte retransmitted in this recovery.
    high_rxt: Offset,
    /// The count of bytes in the network. It may fall below 0, because it is an estimate.
    pipe: i64,
}

impl Selective for Sack1996 {
    fn begin(&mut self, outstanding: &Outstanding, duplicates: u32) {
        let &Outstanding { una, max, mss } = outstanding;
        self.high_rxt = una;
        self.pipe = max.since(una) as i64 - i64::from(duplicates) * mss as i64;
    }

    fn on_duplicate_ack(&mut self, mss: u64) {
        self.pipe -= mss as i64;
    }

    /// A partial ack stands for two packets that left, the original and its copy.
    fn on_partial_ack(&mut self, mss: u64) {
        self.pipe -= 2 * mss as i64;
    }

    fn on_transmit(&mut self, _: Time, (_, length): Piece, end: Offset, again: bool) {
        self.pipe += length as i64;
        if again {
            self.high_rxt = self.high_rxt.max(end);
        }
    }

    fn next(&self, choice: &Choice, fresh: &dyn Fn() -> Option<Piece>) -> Option<Piece> {
        let Outstanding { una, mss, .. } = choice.outstanding;
        if self.pipe + mss as i64 > choice.cwnd as i64 {
            return None;
        }
        choice.scoreboard.next_missing(una, self.high_rxt, mss).or_else(fresh)
    }
}
