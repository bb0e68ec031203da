//! Ack congestion control with explicit congestion notification (asym 6.1).
//!
//! A router with RED in front of the slow reverse link marks acks. The sender echoes a mark on its next data segment
//! (`ecn.rs`). The receiver then doubles d, the number of segments an ack stands for, at most once a round trip; each
//! round trip without a mark takes one off. A mark that does not double d, because d was doubled within the same round
//! trip, does not restart that round trip. The paper gives no constants: doubling, the greatest d and the fewest acks a
//! window brings (3 in 1997, 2 in ns-2.35) are those of the authors' ns-2 code (`tcp-asym-sink.cc`).

use std::time::Duration;

use backchannel_core::packet::mark;
use backchannel_core::time::Time;

use super::Extension;
use crate::config::{AckRule, Config};
use crate::wire::Segment;

/// The receiver's half. Round trips are measured by timestamps, as in the paper: one has passed since an event when the
/// peer echoes an ack that was sent after it. Marks on acks that were under way when d was doubled therefore do not
/// double it again, however long the queue has become meanwhile.
#[derive(Clone, Debug)]
pub(super) struct AckCongestion {
    enabled: bool,
    /// Segments an ack stands for: from 1 to `most`.
    d: u32,
    most: u32,
    /// When the newest ack was sent that the peer has echoed. It never falls.
    echoed: Time,
    /// When a mark last doubled d.
    doubled: Option<Time>,
    /// When d changed last: since when a round trip without a change has been running.
    quiet_since: Time,
    /// Fewest acks that a window of the peer brings.
    min_acks_per_win: u32,
    /// The peer's window in segments, where it reports it.
    peer_window: Option<u32>,
}

impl AckCongestion {
    pub(super) fn new(config: &Config) -> AckCongestion {
        AckCongestion {
            enabled: config.ack_rule == AckRule::AccEcn,
            d: 1,
            most: config.max_delack_segments,
            echoed: Time::ZERO,
            doubled: None,
            quiet_since: Time::ZERO,
            min_acks_per_win: config.min_acks_per_win,
            peer_window: None,
        }
    }

    /// A data segment arrives, with or without an echoed mark; `rtt`: how long ago the ack was sent that its timestamp
    /// echoes.
    fn on_echo(&mut self, now: Time, mark: bool, rtt: Duration) {
        self.echoed = self.echoed.max(Time(now.nanos().saturating_sub(rtt.as_nanos() as u64)));
        if mark && self.doubled.is_none_or(|doubled| self.echoed >= doubled) {
            self.d = (2 * self.d).min(self.most);
            self.doubled = Some(now);
            self.quiet_since = now;
        } else if self.echoed >= self.quiet_since {
            self.d = self.d.saturating_sub(1).max(1);
            self.quiet_since = now;
        }
    }

    /// d, never above a share of what the sender may send, or the receiver would wait for data that do not come.
    fn bounded_d(&self) -> u32 {
        self.d.min(self.peer_window.map_or(u32::MAX, |window| (window / self.min_acks_per_win).max(1)))
    }
}

impl Extension for AckCongestion {
    fn is_enabled(&self) -> bool {
        self.enabled
    }

    fn on_data(&mut self, now: Time, segment: &Segment, rtt: Option<Duration>) {
        if !self.enabled {
            return;
        }
        self.peer_window = segment.peer_window.map(u32::from).or(self.peer_window);
        if let Some(rtt) = rtt {
            self.on_echo(now, segment.marks & mark::ACK_CONGESTION != 0, rtt);
        }
    }

    fn segments_per_ack(&self) -> Option<u32> {
        self.enabled.then(|| self.bounded_d())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::stack_config;

    fn acc() -> AckCongestion {
        AckCongestion::new(&stack_config("acc", &Default::default()).unwrap())
    }

    fn ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn d_doubles_once_a_round_trip_and_falls_by_one() {
        let mut acc = acc();
        let rtt = Duration::from_millis(100);
        acc.on_echo(ms(200), true, rtt);
        acc.on_echo(ms(250), true, rtt);
        assert_eq!(acc.d, 2, "one change a round trip");
        for (at, d) in [(300, 4), (400, 8), (500, 16), (600, 25), (700, 25)] {
            acc.on_echo(ms(at), true, rtt);
            assert_eq!(acc.d, d, "at {at} ms");
        }
        acc.on_echo(ms(800), false, rtt);
        acc.on_echo(ms(850), false, rtt);
        assert_eq!(acc.d, 24);
        acc.on_echo(ms(860), true, rtt);
        assert_eq!(acc.d, 25, "a mark counts however recently d fell");
        acc.on_echo(ms(961), false, rtt);
        assert_eq!(acc.d, 24);
        let bounded =
            [Some(10), Some(1), None].map(|peer_window| AckCongestion { peer_window, ..acc.clone() }.bounded_d());
        assert_eq!(bounded, [3, 1, 24]);
        for round in 0..40 {
            acc.on_echo(ms(1100 + round * 100), false, rtt);
        }
        assert_eq!(acc.d, 1);
    }

    /// `tcp-asym-sink.cc` of ns-2: the time of a mark is kept only if the mark doubled d.
    #[test]
    fn a_mark_that_does_not_double_d_does_not_restart_the_quiet_round_trip() {
        let mut acc = acc();
        let rtt = Duration::from_millis(100);
        for (at, d) in [(200, 2), (300, 4), (400, 8)] {
            acc.on_echo(ms(at), true, rtt);
            assert_eq!(acc.d, d);
        }
        acc.on_echo(ms(450), true, rtt);
        assert_eq!(acc.d, 8, "d was doubled 50 ms ago");
        acc.on_echo(ms(500), false, rtt);
        assert_eq!(acc.d, 7, "a round trip after the mark that doubled it");
    }

    #[test]
    fn marks_of_acks_that_were_under_way_do_not_count_however_long_they_took() {
        let mut acc = acc();
        acc.on_echo(ms(200), true, Duration::from_millis(60));
        assert_eq!(acc.d, 2);
        // The queue grows: these acks were sent at 180 and 199 ms, before d was 2.
        acc.on_echo(ms(270), true, Duration::from_millis(90));
        acc.on_echo(ms(300), true, Duration::from_millis(101));
        assert_eq!(acc.d, 2);
        // Sent after it.
        acc.on_echo(ms(310), true, Duration::from_millis(108));
        assert_eq!(acc.d, 4);
    }
}
