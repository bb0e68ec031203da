//! ns of July to October 1997: `tcp.cc`, `tcp-reno.cc`, `tcp-asym.cc`. asym's simulations ran on it. What it shares with
//! later releases is in `ns_2.rs`.

use std::time::Duration;

use backchannel_core::time::Time;

use super::Era;
use crate::recovery::{Recovery, DUPLICATE_THRESHOLD};
use crate::rtt::RttEstimator;

impl Era {
    /// `tcp-reno.cc`: outside recovery, three duplicates were of an old loss, and count as segments that have left all
    /// the same: how many.
    #[inline]
    pub fn departed(&self, recovery: &Recovery) -> u32 {
        let counts = self.reno_of_1997 && recovery.duplicates >= DUPLICATE_THRESHOLD && !recovery.is_active();
        if counts {
            recovery.duplicates
        } else {
            0
        }
    }

    /// `tcp.cc`: an ack, or a timeout, sets the timer before it changes the estimate. Where it passes everything sent
    /// since the last timeout (`passes`) it stops the timer, even with segments outstanding. Returns when the timer
    /// expires; `None`: in other eras the new estimate decides.
    #[inline]
    pub fn early_timer(&self, now: Time, rtt: &RttEstimator, passes: bool) -> Option<Time> {
        self.timer_of_1997.then(|| if passes { Time::MAX } else { rtt.deadline(now) })
    }

    /// Whether the timer gives way to probes where the peer's window holds everything back. It may run with nothing sent
    /// since the last ack or timeout. `tcp.cc` has no closed windows: there it would expire again and again, until the
    /// connection is given up, and no probe would go.
    pub fn probes_instead_of_timing(&self) -> bool {
        self.timer_of_1997
    }

    /// `tcp-asym.cc`: the smoothed round trip stays the first one, because its gain of 1/8 is an integer division. The
    /// round trip by which bursts are spaced.
    pub fn burst_rtt(&self, rtt: &RttEstimator) -> Option<Duration> {
        if self.burst_by_first_rtt {
            rtt.first
        } else {
            rtt.exact_srtt
        }
    }
}
