//! The segments in the network: when each was sent, what had been delivered and lost until then, and whether it counts
//! as lost (draft-ietf-ccwg-bbr 4.1; RFC 8985 5.2). From those that an ack delivers follows the rate at which the
//! network delivers. The names are the draft's.
//!
//! ```text
//! RS.delivery_rate = RS.delivered / max(RS.send_elapsed, RS.ack_elapsed)
//! ```
//!
//! Only controllers that use samples and senders that detect losses by time pay for the records.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use backchannel_core::time::Time;

use crate::seq::Offset;

/// What an ack shows of the delivery rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateSample {
    /// Bytes a second: of the data delivered between the sending of the newest segment that the ack delivers and the
    /// ack.
    pub delivery_rate: f64,
    /// The time over which they were delivered, or sent if that took longer.
    pub interval: Duration,
    /// RS.delivered: bytes delivered in it.
    pub delivered: u64,
    /// RS.prior_delivered: bytes delivered on the connection when that segment was sent.
    pub prior_delivered: u64,
    /// C.delivered: bytes delivered on the connection so far. A round trip has passed when `prior_delivered` reaches
    /// what this was at its start.
    pub total_delivered: u64,
    /// RS.tx_in_flight: bytes in the network when that segment was sent, its own included.
    pub tx_in_flight: u64,
    /// RS.lost: bytes that were found to be lost since.
    pub lost: u64,
    /// Whether the application, not the window, limited the rate.
    pub is_app_limited: bool,
    /// The round trip of that segment; `None`: it was sent more than once (Karn).
    pub rtt: Option<Duration>,
}

/// A segment that was sent and not delivered. Sequence numbers of a FIN count as a byte.
#[derive(Clone, Copy, Debug)]
pub struct SentRecord {
    /// Its first byte, and one beyond its last.
    pub start: Offset,
    pub end: Offset,
    /// When it was last sent.
    pub sent_time: Time,
    /// Whether it was sent before.
    pub is_retransmission: bool,
    /// Whether it is taken to be lost, and was not sent since.
    pub is_lost: bool,
    /// P.tx_in_flight: bytes in the network after it was sent.
    pub tx_in_flight: u64,
    /// Whether the application limited the sender when it was sent.
    pub is_app_limited: bool,
    /// P.lost: bytes lost until it was sent.
    pub lost: u64,
    /// When the segment was sent that was delivered last before this one was sent.
    first_sent_time: Time,
    /// Bytes that had been delivered, and when the last of them were.
    delivered: u64,
    delivered_time: Time,
}

impl SentRecord {
    /// Bytes.
    pub fn len(&self) -> u64 {
        self.end.since(self.start)
    }

    /// Its place in the order of transmissions.
    fn place(&self) -> (Time, Offset, Offset) {
        (self.sent_time, self.end, self.start)
    }
}

/// The records and counts of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// First byte to record. They do not overlap.
    records: BTreeMap<Offset, SentRecord>,
    /// Those in flight, which are neither delivered nor lost, in the order in which they were sent.
    in_flight: BTreeSet<(Time, Offset, Offset)>,
    /// First bytes of those that are lost.
    lost_starts: BTreeSet<Offset>,
    /// C.inflight in bytes.
    bytes_in_flight: u64,
    /// C.lost, C.delivered, C.delivered_time, C.first_sent_time.
    lost: u64,
    delivered: u64,
    delivered_time: Time,
    first_sent_time: Time,
    /// C.app_limited: samples are limited by the application until more than this was delivered.
    app_limited: Option<u64>,
    min_rtt: Option<Duration>,
    /// Since the last sample: of the records delivered, the one that was sent last; C.delivered and C.lost then.
    newest: Option<SentRecord>,
    delivered_before: u64,
    lost_before: u64,
}

impl Ledger {
    /// C.inflight: bytes that were sent and are neither delivered nor lost.
    pub fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// Whether the application limits what is sent now.
    pub fn is_app_limited(&self) -> bool {
        self.app_limited.is_some()
    }

    /// C.lost: bytes found to be lost so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Bytes delivered and lost since the last sample.
    pub fn news(&self) -> (u64, u64) {
        (self.delivered - self.delivered_before, self.lost - self.lost_before)
    }

    /// Data from `start` to `end` are sent, `again` or for the first time. What was in flight of them counts as lost,
    /// unless the copy is a `probe`.
    pub fn on_sent(&mut self, now: Time, (start, end): (Offset, Offset), again: bool, probe: bool) {
        if self.bytes_in_flight == 0 {
            (self.first_sent_time, self.delivered_time) = (now, now);
        }
        if again {
            self.split_at(start);
            self.split_at(end);
            while let Some((&at, _)) = self.records.range(start..end).next() {
                if !probe {
                    self.mark_lost(at);
                }
                self.remove(at);
            }
        }
        let record = SentRecord {
            start,
            end,
            sent_time: now,
            is_retransmission: again,
            is_lost: false,
            tx_in_flight: self.bytes_in_flight + end.since(start),
            is_app_limited: self.app_limited.is_some(),
            lost: self.lost,
            first_sent_time: self.first_sent_time,
            delivered: self.delivered,
            delivered_time: self.delivered_time,
        };
        self.insert(record);
    }

    fn insert(&mut self, record: SentRecord) {
        if record.is_lost {
            self.lost_starts.insert(record.start);
        } else {
            self.in_flight.insert(record.place());
            self.bytes_in_flight += record.len();
        }
        self.records.insert(record.start, record);
    }

    fn remove(&mut self, start: Offset) -> Option<SentRecord> {
        let record = self.records.remove(&start)?;
        if record.is_lost {
            self.lost_starts.remove(&start);
        } else {
            self.in_flight.remove(&record.place());
            self.bytes_in_flight -= record.len();
        }
        Some(record)
    }

    /// Makes two records of one that holds `at` in its middle.
    fn split_at(&mut self, at: Offset) {
        let holds = |record: &SentRecord| record.start < at && at < record.end;
        let Some(&record) = self.records.range(..at).next_back().map(|(_, record)| record).filter(|r| holds(r)) else {
            return;
        };
        self.remove(record.start);
        self.insert(SentRecord { end: at, ..record });
        self.insert(SentRecord { start: at, ..record });
    }

    /// The application has no more to send, although the window has room; or samples are to count as if it had not.
    pub fn on_app_limited(&mut self) {
        self.app_limited = Some((self.delivered + self.bytes_in_flight).max(1));
    }

    /// An ack delivers the bytes from `start` to `end`: each record of them goes to `each`.
    pub fn deliver(&mut self, now: Time, start: Offset, end: Offset, mut each: impl FnMut(&SentRecord)) {
        self.split_at(start);
        self.split_at(end);
        while let Some((&at, _)) = self.records.range(start..end).next() {
            let Some(record) = self.remove(at) else { return };
            self.delivered += record.len();
            self.delivered_time = now;
            if self.newest.is_none_or(|newest| (newest.sent_time, newest.end) < (record.sent_time, record.end)) {
                self.first_sent_time = record.sent_time;
                self.newest = Some(record);
            }
            each(&record);
        }
    }

    /// The record that begins at `start` is lost. Returns it, unless it was so before.
    pub fn mark_lost(&mut self, start: Offset) -> Option<SentRecord> {
        let record = self.remove(start)?;
        let news = !record.is_lost;
        self.insert(SentRecord { is_lost: true, ..record });
        if news {
            self.lost += record.len();
        }
        news.then_some(record)
    }

    /// What is lost was not lost.
    pub fn restore_lost(&mut self) {
        while let Some(&start) = self.lost_starts.first() {
            let Some(record) = self.remove(start) else { return };
            self.insert(SentRecord { is_lost: false, ..record });
        }
    }

    /// The peer no longer holds what it had reported to (RFC 2018 8): all of `holes` but what is recorded is lost.
    pub fn on_reneging(&mut self, now: Time, una: Offset, max: Offset) {
        let recorded: Vec<_> = self.records.values().map(|record| (record.start, record.end)).collect();
        let mut at = una;
        for (start, end) in recorded.into_iter().chain([(max, max)]) {
            if at < start {
                self.on_sent(now, (at, start), false, false);
                self.mark_lost(at);
            }
            at = at.max(end);
        }
    }

    /// The first lost record, by sequence number.
    #[inline]
    pub fn first_lost(&self) -> Option<&SentRecord> {
        self.records.get(self.lost_starts.first()?)
    }

    /// Whether segments are lost, or were sent again and are under way.
    pub fn is_repairing(&self) -> bool {
        self.records.values().any(|record| record.is_lost || record.is_retransmission)
    }

    /// The last record, by sequence number.
    pub fn last(&self) -> Option<&SentRecord> {
        self.records.last_key_value().map(|(_, record)| record)
    }

    /// Records in flight in the order in which they were sent.
    pub fn in_order_of_sending(&self) -> impl Iterator<Item = &SentRecord> {
        self.in_flight.iter().filter_map(|(_, _, start)| self.records.get(start))
    }

    /// The sample of the ack whose deliveries were the last; `None`: it delivered nothing, or too fast to be true.
    pub fn sample(&mut self, now: Time) -> Option<RateSample> {
        self.app_limited = self.app_limited.filter(|&until| self.delivered <= until);
        (self.delivered_before, self.lost_before) = (self.delivered, self.lost);
        let record = self.newest.take()?;
        let rtt = (!record.is_retransmission).then_some(now - record.sent_time);
        self.min_rtt = self.min_rtt.into_iter().chain(rtt).min();
        let send_elapsed = record.sent_time - record.first_sent_time;
        let ack_elapsed = now - record.delivered_time;
        let interval = send_elapsed.max(ack_elapsed);
        let delivered = self.delivered - record.delivered;
        let plausible = interval > Duration::ZERO && self.min_rtt.is_none_or(|min_rtt| interval >= min_rtt);
        plausible.then(|| RateSample {
            delivery_rate: delivered as f64 / interval.as_secs_f64(),
            interval,
            delivered,
            prior_delivered: record.delivered,
            total_delivered: self.delivered,
            tx_in_flight: record.tx_in_flight,
            lost: self.lost - record.lost,
            is_app_limited: record.is_app_limited,
            rtt,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    /// Segment `number` of 1000 bytes.
    fn segment(number: i64) -> (Offset, Offset) {
        (Offset(1 + 1000 * number), Offset(1001 + 1000 * number))
    }

    fn send(ledger: &mut Ledger, at_ms: u64, number: i64) {
        let again = ledger.records.contains_key(&segment(number).0);
        ledger.on_sent(ms(at_ms), segment(number), again, false);
    }

    fn deliver(ledger: &mut Ledger, at_ms: u64, number: i64) -> Option<RateSample> {
        let (at, end) = segment(number);
        ledger.deliver(ms(at_ms), at, end, |_| {});
        ledger.sample(ms(at_ms))
    }

    /// Ten segments leave at once and a line delivers one each 10 ms: 100 kB/s, however fast they were sent.
    #[test]
    fn a_burst_is_sampled_at_the_rate_of_the_line() {
        let mut ledger = Ledger::default();
        (0..10).for_each(|number| send(&mut ledger, 0, number));
        for number in 0..30 {
            let at_ms = 50 + 10 * (number as u64 + 1);
            let sample = deliver(&mut ledger, at_ms, number).unwrap();
            assert_eq!(sample.total_delivered, 1000 * (number as u64 + 1));
            // Until the burst is acknowledged, the time since it was sent counts: at most the line's rate.
            assert!(sample.delivery_rate < 1e5 + 1.0, "{sample:?}");
            if number >= 20 {
                assert!((sample.delivery_rate - 1e5).abs() < 1.0, "{sample:?}");
                assert_eq!((sample.rtt, sample.tx_in_flight), (Some(Duration::from_millis(100)), 10_000));
            }
            send(&mut ledger, at_ms, 10 + number);
        }
    }

    #[test]
    fn acks_that_arrive_together_do_not_exceed_the_rate_at_which_data_were_sent() {
        let mut ledger = Ledger::default();
        (0..5).for_each(|number| send(&mut ledger, 20 * number as u64, number));
        ledger.deliver(ms(100), segment(0).0, segment(4).1, |_| {});
        let sample = ledger.sample(ms(100)).unwrap();
        assert_eq!((sample.delivered, sample.interval), (5000, Duration::from_millis(100)));
    }

    #[test]
    fn a_copy_gives_no_round_trip_and_an_idle_application_marks_what_it_sends() {
        let mut ledger = Ledger::default();
        send(&mut ledger, 0, 0);
        send(&mut ledger, 0, 1);
        ledger.on_app_limited();
        send(&mut ledger, 300, 0);
        assert_eq!(deliver(&mut ledger, 400, 0).map(|sample| (sample.rtt, sample.is_app_limited)), Some((None, true)));
        assert!(!deliver(&mut ledger, 410, 1).unwrap().is_app_limited, "it was sent before");
        send(&mut ledger, 420, 2);
        deliver(&mut ledger, 520, 2);
        send(&mut ledger, 520, 3);
        assert!(!deliver(&mut ledger, 620, 3).unwrap().is_app_limited, "more than the 2000 bytes were delivered");
        assert_eq!(ledger.sample(ms(630)), None);
    }

    #[test]
    fn what_is_sent_again_was_lost_and_a_probe_was_not() {
        let mut ledger = Ledger::default();
        (0..3).for_each(|number| send(&mut ledger, 0, number));
        send(&mut ledger, 100, 0);
        assert_eq!((ledger.bytes_in_flight(), ledger.lost(), ledger.news()), (3000, 1000, (0, 1000)));
        ledger.on_sent(ms(110), segment(2), true, true);
        assert_eq!((ledger.bytes_in_flight(), ledger.lost()), (3000, 1000));
        let order: Vec<_> = ledger.in_order_of_sending().map(|record| record.start).collect();
        assert_eq!(order, [segment(1).0, segment(0).0, segment(2).0]);
        // Of segment 0 the loss is not seen: it was sent after that.
        assert_eq!(deliver(&mut ledger, 150, 1).map(|sample| sample.lost), Some(1000));
        assert_eq!(deliver(&mut ledger, 200, 0).map(|sample| sample.lost), Some(0));
    }

    #[test]
    fn lost_segments_leave_the_network_once_and_an_ack_splits_records() {
        let mut ledger = Ledger::default();
        (0..3).for_each(|number| send(&mut ledger, 0, number));
        assert!(ledger.mark_lost(segment(1).0).is_some() && ledger.mark_lost(segment(1).0).is_none());
        assert_eq!((ledger.bytes_in_flight(), ledger.lost()), (2000, 1000));
        let mut delivered = 0;
        ledger.deliver(ms(10), Offset(1), Offset(1501), |record| delivered += record.len());
        assert_eq!((delivered, ledger.bytes_in_flight()), (1500, 1000));
        assert_eq!(ledger.first_lost().map(|record| (record.start, record.end)), Some((Offset(1501), Offset(2001))));
        ledger.restore_lost();
        assert_eq!((ledger.bytes_in_flight(), ledger.first_lost().is_none()), (1500, true));
    }

    #[test]
    fn a_loss_is_repaired_when_its_copy_is_delivered() {
        let mut ledger = Ledger::default();
        (0..2).for_each(|number| send(&mut ledger, 0, number));
        assert!(!ledger.is_repairing());
        ledger.mark_lost(segment(0).0);
        assert!(ledger.is_repairing());
        send(&mut ledger, 50, 0);
        assert!(ledger.is_repairing() && ledger.first_lost().is_none());
        deliver(&mut ledger, 90, 0);
        assert!(!ledger.is_repairing());
    }

    #[test]
    fn what_a_receiver_takes_back_is_lost() {
        let mut ledger = Ledger::default();
        (0..4).for_each(|number| send(&mut ledger, 0, number));
        deliver(&mut ledger, 50, 1);
        ledger.on_reneging(ms(60), segment(0).0, segment(3).1);
        assert_eq!(ledger.first_lost().map(|record| record.start), Some(segment(1).0));
        assert_eq!(ledger.bytes_in_flight(), 3000);
    }
}
