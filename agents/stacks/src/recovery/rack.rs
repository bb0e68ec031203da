//! RACK (RFC 8985 6): a segment is lost if one that was sent sufficiently later has been delivered. How much later
//! adapts to the reordering of the path. The names are the RFC's.
//!
//! ```text
//! lost = Segment.xmit_ts + RACK.rtt + RACK.reo_wnd <= now, if it was sent before RACK.xmit_ts
//! ```

use std::time::Duration;

use backchannel_core::time::Time;

use super::DUPLICATE_THRESHOLD;
use crate::ledger::{Ledger, SentRecord};
use crate::seq::Offset;

/// Recoveries for which the reordering window stays wider after a duplicate was reported.
const REO_WND_PERSIST: u32 = 16;

/// What the sender is doing, for the reordering window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    pub now: Time,
    /// Whether the sender is in fast or timeout recovery.
    pub in_recovery: bool,
    /// RACK.segs_sacked: segments that the peer holds beyond the cumulative ack.
    pub segs_sacked: u64,
    pub srtt: Duration,
}

/// RACK of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Rack {
    /// RACK.xmit_ts and RACK.end_seq: the segment delivered that was sent last.
    newest: Option<(Time, Offset)>,
    /// RACK.rtt: its round trip.
    rtt: Duration,
    /// RACK.min_RTT.
    min_rtt: Option<Duration>,
    /// RACK.fack: one beyond the highest byte delivered.
    fack: Offset,
    /// The same before the current ack.
    prior_fack: Offset,
    /// RACK.reordering_seen.
    reordering_seen: bool,
    /// RACK.dsack_round: until this is acknowledged, further duplicates do not widen the window.
    dsack_round: Option<Offset>,
    reo_wnd_mult: u32,
    reo_wnd_persist: u32,
}

impl Default for Rack {
    fn default() -> Rack {
        Rack {
            newest: None,
            rtt: Duration::ZERO,
            min_rtt: None,
            fack: Offset::SYN,
            prior_fack: Offset::SYN,
            reordering_seen: false,
            dsack_round: None,
            reo_wnd_mult: 1,
            reo_wnd_persist: REO_WND_PERSIST,
        }
    }
}

impl Rack {
    /// An ack arrives. What it delivers is no reordering among itself, in whatever order it names that: step 3 goes by
    /// ascending sequence numbers.
    pub fn on_ack(&mut self) {
        self.prior_fack = self.fack;
    }

    /// Steps 1 to 3 of section 6.2, for a segment that an ack delivers. `echo_sent`: when the segment was sent whose
    /// timestamp the ack echoes, at the latest.
    pub fn on_delivered(&mut self, now: Time, record: &SentRecord, echo_sent: Option<Time>) {
        let rtt = now - record.sent_time;
        if record.is_retransmission {
            // The ack may be for the original.
            let echoes_original = echo_sent.is_some_and(|sent| sent < record.sent_time);
            if echoes_original || self.min_rtt.is_some_and(|min_rtt| rtt < min_rtt) {
                return;
            }
        } else {
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |min_rtt| min_rtt.min(rtt)));
        }
        self.rtt = rtt;
        self.newest = self.newest.max(Some((record.sent_time, record.end)));
        self.fack = self.fack.max(record.end);
        self.reordering_seen |= record.end < self.prior_fack && !record.is_retransmission;
    }

    /// Step 4: the peer reports a segment that it has received twice. `nxt` is SND.NXT.
    pub fn on_duplicate_reported(&mut self, una: Offset, nxt: Offset) {
        self.dsack_round = self.dsack_round.filter(|&round| una < round);
        if self.dsack_round.is_none() {
            self.dsack_round = Some(nxt);
            self.reo_wnd_mult += 1;
            self.reo_wnd_persist = REO_WND_PERSIST;
        }
    }

    /// Step 4: a recovery ends.
    pub fn on_recovery_end(&mut self) {
        self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
        if self.reo_wnd_persist == 0 {
            self.reo_wnd_mult = 1;
        }
    }

    /// RACK.reo_wnd.
    fn reo_wnd(&self, situation: &Situation) -> Duration {
        let many = situation.segs_sacked >= u64::from(DUPLICATE_THRESHOLD);
        if !self.reordering_seen && (situation.in_recovery || many) {
            return Duration::ZERO;
        }
        (self.min_rtt.unwrap_or_default() / 4 * self.reo_wnd_mult).min(situation.srtt)
    }

    /// Step 5: marks as lost what is. Returns those segments, and after what time others will be if nothing is heard of
    /// them.
    pub fn detect_loss(&self, ledger: &mut Ledger, situation: &Situation) -> (Vec<SentRecord>, Option<Duration>) {
        let Some(newest) = self.newest else { return (Vec::new(), None) };
        let patience = self.rtt + self.reo_wnd(situation);
        let mut wait = None;
        let mut lost = Vec::new();
        for record in ledger.in_order_of_sending() {
            if (record.sent_time, record.end) >= newest {
                break;
            }
            let deadline = record.sent_time + patience;
            if deadline <= situation.now {
                lost.push(record.start);
            } else {
                wait = Some(deadline - situation.now);
            }
        }
        (lost.into_iter().filter_map(|start| ledger.mark_lost(start)).collect(), wait)
    }

    /// Section 6.3: the retransmission timer has expired. The first segment is lost, and of the others those that were
    /// sent long enough ago.
    pub fn on_timeout(&self, ledger: &mut Ledger, situation: &Situation, una: Offset) -> Vec<SentRecord> {
        let patience = self.rtt + self.reo_wnd(situation);
        let is_lost = |record: &&SentRecord| record.start == una || record.sent_time + patience <= situation.now;
        let lost: Vec<_> = ledger.in_order_of_sending().filter(is_lost).map(|record| record.start).collect();
        lost.into_iter().filter_map(|start| ledger.mark_lost(start)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    fn segment(number: i64) -> (Offset, Offset) {
        (Offset(1 + 1000 * number), Offset(1001 + 1000 * number))
    }

    /// Segments 0 to 4 sent 1 ms apart, on a path of 40 ms.
    fn five_sent() -> (Rack, Ledger) {
        let mut ledger = Ledger::default();
        (0..5).for_each(|number| ledger.on_sent(ms(number as u64), segment(number), false, false));
        (Rack::default(), ledger)
    }

    /// One ack delivers these segments, and names them in this order.
    fn deliver_all(rack: &mut Rack, ledger: &mut Ledger, at_ms: u64, numbers: &[i64]) {
        rack.on_ack();
        for (start, end) in numbers.iter().map(|number| segment(*number)) {
            ledger.deliver(ms(at_ms), start, end, |record| rack.on_delivered(ms(at_ms), record, None));
        }
    }

    fn deliver(rack: &mut Rack, ledger: &mut Ledger, at_ms: u64, number: i64) {
        deliver_all(rack, ledger, at_ms, &[number]);
    }

    fn detect(rack: &Rack, ledger: &mut Ledger, at_ms: u64, segs_sacked: u64) -> (Vec<Offset>, Option<u128>) {
        let srtt = Duration::from_millis(40);
        let situation = Situation { now: ms(at_ms), in_recovery: false, segs_sacked, srtt };
        let (lost, wait) = rack.detect_loss(ledger, &situation);
        (lost.iter().map(|record| record.start).collect(), wait.map(|wait| wait.as_millis()))
    }

    #[test]
    fn a_gap_is_a_loss_a_quarter_of_a_round_trip_later_or_at_the_third_segment_beyond() {
        let (mut rack, mut ledger) = five_sent();
        deliver(&mut rack, &mut ledger, 40, 0);
        deliver(&mut rack, &mut ledger, 42, 2);
        // Segment 1 left at 1 ms; the round trip is 40 ms, a quarter of it 10 ms.
        assert_eq!(detect(&rack, &mut ledger, 42, 1), (vec![], Some(9)));
        assert_eq!(detect(&rack, &mut ledger, 51, 1), (vec![segment(1).0], None));
        let (mut rack, mut ledger) = five_sent();
        for (at, number) in [(40, 0), (42, 2), (43, 3), (44, 4)] {
            deliver(&mut rack, &mut ledger, at, number);
        }
        assert_eq!(detect(&rack, &mut ledger, 44, 3), (vec![segment(1).0], None));
    }

    #[test]
    fn after_reordering_was_seen_three_segments_are_no_proof_and_reported_duplicates_widen_the_window() {
        let (mut rack, mut ledger) = five_sent();
        for (at, number) in [(40, 0), (42, 2), (43, 1)] {
            deliver(&mut rack, &mut ledger, at, number);
        }
        assert!(rack.reordering_seen);
        deliver(&mut rack, &mut ledger, 45, 4);
        // RACK.rtt is 41 ms, that of segment 4; segment 3 left at 3 ms.
        assert_eq!(detect(&rack, &mut ledger, 45, 3), (vec![], Some(9)));
        rack.on_duplicate_reported(segment(0).0, segment(5).0);
        rack.on_duplicate_reported(segment(1).0, segment(6).0);
        assert_eq!(rack.reo_wnd_mult, 2, "once a round trip");
        assert_eq!(detect(&rack, &mut ledger, 45, 3), (vec![], Some(19)));
        (0..REO_WND_PERSIST).for_each(|_| rack.on_recovery_end());
        assert_eq!(rack.reo_wnd_mult, 1);
    }

    /// The acks of segments 0 and 2 were delayed or lost. The next one has the block of 4, which came last, before that of
    /// 2, and its number acknowledges 0.
    #[test]
    fn segments_that_one_ack_delivers_are_no_reordering() {
        let (mut rack, mut ledger) = five_sent();
        deliver_all(&mut rack, &mut ledger, 44, &[4, 2, 0]);
        assert!(!rack.reordering_seen);
        // RACK.rtt is 44 ms, that of segment 0; without a quarter of a round trip more, the gaps are losses.
        assert_eq!(detect(&rack, &mut ledger, 47, 3), (vec![segment(1).0, segment(3).0], None));
        let (mut rack, mut ledger) = five_sent();
        deliver(&mut rack, &mut ledger, 43, 4);
        deliver_all(&mut rack, &mut ledger, 44, &[2, 0]);
        assert!(rack.reordering_seen, "another ack did");
    }

    #[test]
    fn an_ack_of_the_original_says_nothing_of_the_copy() {
        let (mut rack, mut ledger) = five_sent();
        deliver(&mut rack, &mut ledger, 40, 0);
        ledger.on_sent(ms(50), segment(1), true, false);
        deliver(&mut rack, &mut ledger, 52, 1);
        assert_eq!(rack.newest, Some((ms(0), segment(0).1)), "2 ms are less than any round trip");
        ledger.on_sent(ms(60), segment(2), true, false);
        let (start, end) = segment(2);
        ledger.deliver(ms(110), start, end, |record| rack.on_delivered(ms(110), record, Some(ms(3))));
        assert_eq!(rack.newest, Some((ms(0), segment(0).1)));
    }

    #[test]
    fn at_a_timeout_the_first_segment_is_lost_and_those_that_left_long_ago() {
        let (rack, mut ledger) = five_sent();
        let situation = Situation { now: ms(3), in_recovery: false, segs_sacked: 0, srtt: Duration::ZERO };
        let lost = rack.on_timeout(&mut ledger, &situation, segment(0).0);
        assert_eq!(lost.len(), 4, "no round trip is known, and the fifth left later");
        let (mut rack, mut ledger) = five_sent();
        deliver(&mut rack, &mut ledger, 40, 2);
        let situation = Situation { now: ms(40), in_recovery: true, segs_sacked: 1, srtt: Duration::ZERO };
        assert_eq!(rack.on_timeout(&mut ledger, &situation, segment(0).0).len(), 2, "0 and 1, sent 38 ms ago or more");
    }
}
