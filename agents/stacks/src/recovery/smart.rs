//! SMART as in ton III-A: an ack names the segment that caused it. A hole is lost at once, and a segment is
//! retransmitted unless that happened within the last round trip.

use std::collections::BTreeMap;

use backchannel_core::time::Time;

use super::{Choice, Outstanding, Piece, Selective};
use crate::scoreboard::Scoreboard;
use crate::seq::Offset;

#[derive(Clone, Debug, Default)]
pub(super) struct Smart {
    /// The last event was an ack with blocks: retransmissions go on such.
    reported: bool,
    /// When a retransmission last went, by its first byte.
    resent: BTreeMap<Offset, Time>,
}

impl Smart {
    /// Bytes in the network: what is above the highest block, and what was retransmitted below.
    fn pipe(&self, scoreboard: &Scoreboard, outstanding: &Outstanding) -> u64 {
        let &Outstanding { una, max, mss } = outstanding;
        let highest = scoreboard.highest().unwrap_or(una);
        let resent = self.resent.range(una..highest).filter(|(&at, _)| scoreboard.skip_held(at) == at).count() as u64;
        max.since(highest) + resent * mss
    }

    /// The next missing segment that was not retransmitted within the round trip.
    fn next_missing(&self, choice: &Choice) -> Option<Piece> {
        let Outstanding { una, mss, .. } = choice.outstanding;
        choice.scoreboard.holes(una, una).find_map(|(mut start, end)| {
            while start < end {
                let length = end.since(start).min(mss);
                if self.resent.get(&start).is_none_or(|&at| choice.now - at >= choice.rtt) {
                    return Some((start, length));
                }
                start += length;
            }
            None
        })
    }
}

impl Selective for Smart {
    fn shows_loss(&self, scoreboard: &Scoreboard, _: &Outstanding, _: u32) -> bool {
        !scoreboard.is_empty()
    }

    fn on_ack(&mut self, selective: bool) {
        self.reported = selective;
    }

    /// What lies below is acknowledged.
    fn begin(&mut self, outstanding: &Outstanding, _: u32) {
        self.resent = self.resent.split_off(&outstanding.una);
    }

    fn on_transmit(&mut self, now: Time, (at, _): Piece, _: Offset, again: bool) {
        if again {
            self.resent.insert(at, now);
        }
    }

    fn on_timeout(&mut self) {
        *self = Smart::default();
    }

    /// A missing segment goes when an ack reports it, whatever the window, because it has left the network.
    fn next(&self, choice: &Choice, fresh: &dyn Fn() -> Option<Piece>) -> Option<Piece> {
        let missing = self.reported.then(|| self.next_missing(choice)).flatten();
        let pipe = || self.pipe(choice.scoreboard, &choice.outstanding);
        missing.or_else(|| (pipe() + choice.outstanding.mss <= choice.cwnd).then(fresh).flatten())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_missing_segment_goes_once_a_round_trip() {
        let mut scoreboard = Scoreboard::default();
        scoreboard.update(Offset(1000), [(Offset(3000), Offset(4000))].into_iter());
        let outstanding = Outstanding { una: Offset(1000), max: Offset(6000), mss: 1000 };
        let mut smart = Smart::default();
        let next = |smart: &Smart, ms: u64| {
            let (now, rtt) = (Time(ms * 1_000_000), Duration::from_millis(100));
            smart.next_missing(&Choice { scoreboard: &scoreboard, outstanding, cwnd: 0, now, rtt })
        };
        assert_eq!(next(&smart, 0), Some((Offset(1000), 1000)));
        smart.on_transmit(Time::ZERO, (Offset(1000), 1000), Offset(2000), true);
        assert_eq!(next(&smart, 1), Some((Offset(2000), 1000)));
        smart.on_transmit(Time(1_000_000), (Offset(2000), 1000), Offset(3000), true);
        assert_eq!(next(&smart, 99), None);
        assert_eq!(smart.pipe(&scoreboard, &outstanding), 4000);
        assert_eq!(next(&smart, 100), Some((Offset(1000), 1000)));
    }
}
