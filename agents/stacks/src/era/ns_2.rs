//! ns-2 since October 2004: `TcpAgent`, `RenoTcpAgent`, `NewRenoTcpAgent` with their defaults. aq's and pulsed's
//! simulations ran on releases near it. Two initial segments came in May 2001, limited transmit in November 2001, ticks
//! of 10 ms in March 2002, the least timeout of 0.2 s in October 2004.

use super::Era;
use crate::config::TimeoutDecrease;
use crate::recovery::Recovery;

impl Era {
    /// `bugFix_`: whether duplicates of what was outstanding at the last loss are none. 4.4BSD counts them as another
    /// one. ns-2's Tahoe does not, and its Reno does not after a timeout.
    pub fn ignores_old_duplicates(&self, timed_out: bool) -> bool {
        !self.successive && (timed_out || !self.successive_after_recovery)
    }

    /// `RenoTcpAgent::timeout`: the window that a timeout halves. What duplicate acks added to it lies above the
    /// threshold that recovery began with.
    pub fn window_at_timeout(&self, cwnd: f64, ssthresh: Option<f64>, recovery: &Recovery) -> f64 {
        let uninflated = recovery.is_active() && self.timeout_halves == TimeoutDecrease::Window;
        ssthresh.filter(|_| uninflated).map_or(cwnd, |ssthresh| cwnd.min(ssthresh))
    }

    /// Whether a segment that is sent again takes the sample from one that is timed (Karn). ns-2 keeps the sample of
    /// one first sent in fast recovery, although partial acks send earlier ones again.
    pub fn stops_timing(&self, recovery: &Recovery) -> bool {
        !(self.timing_in_recovery && recovery.partial_acks() > 0)
    }
}
