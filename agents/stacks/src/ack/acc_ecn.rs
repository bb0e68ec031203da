//! Ack congestion control with explicit congestion notification (asym 6.1).
//!
//! A router with RED in front of the slow reverse link marks acks. The sender echoes a mark on its next data segment. The
//! receiver then doubles d, the number of segments an ack stands for, at most once a round trip; each round trip without a
//! mark takes one off. The paper gives no constants; doubling, the greatest d and the bound by half of the sender's window
//! are those of the authors' ns-2 code.

use std::time::Duration;

use backchannel_core::time::Time;

/// State of one receiver. Round trips are told by timestamps, as in the paper: one has passed since something happened when
/// the peer echoes an ack that was sent after it. So marks on acks that were under way when d was doubled do not double it again,
/// however long the queue has become meanwhile.
#[derive(Clone, Debug)]
pub struct AccEcn {
    d: u32,
    most: u32,
    /// When the newest ack that the peer has echoed was sent.
    echoed: Time,
    /// When a mark was last acted on.
    acted: Option<Time>,
    /// Since when a round trip without a mark has been running.
    quiet: Time,
}

impl AccEcn {
    /// d begins at 1.
    pub fn new(most: u32) -> AccEcn {
        AccEcn { d: 1, most, echoed: Time::ZERO, acted: None, quiet: Time::ZERO }
    }

    /// A data segment comes, with or without an echoed mark; `rtt`: how long ago the ack was sent that its timestamp echoes.
    pub fn hear(&mut self, now: Time, mark: bool, rtt: Option<Duration>) {
        let Some(rtt) = rtt else { return };
        self.echoed = self.echoed.max(Time(now.nanos().saturating_sub(rtt.as_nanos() as u64)));
        if mark {
            self.quiet = now;
            if self.acted.is_none_or(|acted| self.echoed >= acted) {
                self.d = (2 * self.d).min(self.most);
                self.acted = Some(now);
            }
        } else if self.echoed >= self.quiet {
            self.d = self.d.saturating_sub(1).max(1);
            self.quiet = now;
        }
    }

    /// d, never above half of what the sender may send: it would wait for acks that do not come.
    pub fn d(&self, peer_window: Option<u32>) -> u32 {
        self.d.min(peer_window.map_or(u32::MAX, |window| (window / 2).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn d_doubles_once_a_round_trip_and_falls_by_one() {
        let mut acc = AccEcn::new(25);
        let rtt = Some(Duration::from_millis(100));
        acc.hear(ms(200), true, rtt);
        acc.hear(ms(250), true, rtt);
        assert_eq!(acc.d, 2, "one change a round trip");
        for (at, d) in [(300, 4), (400, 8), (500, 16), (600, 25), (700, 25)] {
            acc.hear(ms(at), true, rtt);
            assert_eq!(acc.d, d, "at {at} ms");
        }
        acc.hear(ms(800), false, rtt);
        acc.hear(ms(850), false, rtt);
        assert_eq!(acc.d, 24);
        acc.hear(ms(860), true, rtt);
        assert_eq!(acc.d, 25, "a mark is acted on however recently d fell");
        acc.hear(ms(961), false, rtt);
        assert_eq!(acc.d, 24);
        assert_eq!((acc.d(Some(10)), acc.d(Some(1)), acc.d(None)), (5, 1, 24));
        for round in 0..40 {
            acc.hear(ms(1100 + round * 100), false, rtt);
        }
        assert_eq!(acc.d, 1);
    }

    #[test]
    fn marks_of_acks_that_were_under_way_do_not_count_however_long_they_took() {
        let mut acc = AccEcn::new(25);
        acc.hear(ms(200), true, Some(Duration::from_millis(60)));
        assert_eq!(acc.d, 2);
        // The queue grows: these acks were sent at 180 and 199 ms, before d was 2.
        acc.hear(ms(270), true, Some(Duration::from_millis(90)));
        acc.hear(ms(300), true, Some(Duration::from_millis(101)));
        assert_eq!(acc.d, 2);
        // Sent after it.
        acc.hear(ms(310), true, Some(Duration::from_millis(108)));
        assert_eq!(acc.d, 4);
    }
}
