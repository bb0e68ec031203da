//! RFC 6675: the scoreboard tells which bytes are lost and how many are in the network.

use backchannel_core::time::Time;

use super::{Choice, Outstanding, Piece, Selective, DUPLICATE_THRESHOLD};
use crate::scoreboard::Scoreboard;
use crate::seq::Offset;

#[derive(Clone, Debug, Default)]
pub(super) struct Pipe {
    /// HighRxt: one beyond the highest byte retransmitted in this recovery.
    high_rxt: Offset,
}

impl Selective for Pipe {
    /// Step (2) of section 5.
    fn shows_loss(&self, scoreboard: &Scoreboard, outstanding: &Outstanding, duplicates: u32) -> bool {
        duplicates < DUPLICATE_THRESHOLD && scoreboard.is_lost(outstanding.una, outstanding.mss)
    }

    fn begin(&mut self, outstanding: &Outstanding, _: u32) {
        self.high_rxt = outstanding.una;
    }

    fn on_transmit(&mut self, _: Time, _: Piece, end: Offset, again: bool) {
        if again {
            self.high_rxt = self.high_rxt.max(end);
        }
    }

    /// Step (C) of section 5, and NextSeg's rules (1) to (3).
    fn next(&self, choice: &Choice, fresh: &dyn Fn() -> Option<Piece>) -> Option<Piece> {
        let &Choice { scoreboard, outstanding: Outstanding { una, max, mss }, .. } = choice;
        if scoreboard.pipe(una, max, self.high_rxt, mss) + mss > choice.cwnd {
            return None;
        }
        let lost = scoreboard.next_lost(una, max, self.high_rxt, mss);
        lost.or_else(fresh).or_else(|| scoreboard.next_missing(una, self.high_rxt, mss))
    }
}
