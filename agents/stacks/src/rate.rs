//! Delivery rate samples (draft-ietf-ccwg-bbr 4.1; draft-cheng-iccrg-delivery-rate-estimation): one record a segment,
//! and from those that an ack delivers the rate at which the network delivers. The names are the draft's.
//!
//! ```text
//! delivery_rate = rs.delivered / max(send_elapsed, ack_elapsed)
//! ```
//!
//! Only controllers that use samples pay for the records ([`crate::controllers::CongestionController`]).

use std::collections::BTreeMap;
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
    /// Whether the application, not the window, limited the rate.
    pub is_app_limited: bool,
    /// The round trip of that segment; `None`: it was sent more than once (Karn).
    pub rtt: Option<Duration>,
}

/// A segment in the network.
#[derive(Clone, Copy, Debug)]
struct SentRecord {
    /// One beyond its last byte.
    end: Offset,
    sent_time: Time,
    /// When the segment was sent that was delivered last before this one was sent.
    first_sent_time: Time,
    /// Bytes that had been delivered, and when the last of them were.
    delivered: u64,
    delivered_time: Time,
    is_app_limited: bool,
    is_retransmission: bool,
}

/// The records and counts of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateSampler {
    records: BTreeMap<Offset, SentRecord>,
    /// C.delivered, C.delivered_time, C.first_sent_time.
    delivered: u64,
    delivered_time: Time,
    first_sent_time: Time,
    /// C.app_limited: samples are limited by the application until more than this was delivered.
    app_limited: Option<u64>,
    min_rtt: Option<Duration>,
    /// Of the records that the current ack delivers, the one that was sent last.
    newest: Option<SentRecord>,
}

impl RateSampler {
    /// Data from `at` to `end` are sent, with `outstanding` bytes in the network. A copy replaces the record of the
    /// original.
    pub fn on_sent(&mut self, now: Time, at: Offset, end: Offset, outstanding: u64) {
        if outstanding == 0 {
            (self.first_sent_time, self.delivered_time) = (now, now);
        }
        let mut is_retransmission = false;
        while let Some((&start, _)) = self.records.range(..end).next_back().filter(|(_, record)| record.end > at) {
            self.records.remove(&start);
            is_retransmission = true;
        }
        let record = SentRecord {
            end,
            sent_time: now,
            first_sent_time: self.first_sent_time,
            delivered: self.delivered,
            delivered_time: self.delivered_time,
            is_app_limited: self.app_limited.is_some(),
            is_retransmission,
        };
        self.records.insert(at, record);
    }

    /// The application has no more to send, although the window has room.
    pub fn on_app_limited(&mut self, outstanding: u64) {
        self.app_limited = Some(self.delivered + outstanding);
    }

    /// An ack delivers the bytes from `start` to `end`.
    pub fn on_delivered(&mut self, now: Time, start: Offset, end: Offset) {
        while let Some((&at, &record)) = self.records.range(start..end).next().filter(|(_, record)| record.end <= end) {
            self.records.remove(&at);
            self.delivered += record.end.since(at);
            self.delivered_time = now;
            if self.newest.is_none_or(|newest| (newest.sent_time, newest.end) < (record.sent_time, record.end)) {
                self.first_sent_time = record.sent_time;
                self.newest = Some(record);
            }
        }
    }

    /// The sample of the ack whose deliveries were the last; `None`: it delivered nothing, or too fast to be true.
    pub fn sample(&mut self, now: Time) -> Option<RateSample> {
        self.app_limited = self.app_limited.filter(|&until| self.delivered <= until);
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

    fn send(sampler: &mut RateSampler, at_ms: u64, number: i64, outstanding: u64) {
        let (at, end) = segment(number);
        sampler.on_sent(ms(at_ms), at, end, outstanding);
    }

    fn deliver(sampler: &mut RateSampler, at_ms: u64, number: i64) -> Option<RateSample> {
        let (at, end) = segment(number);
        sampler.on_delivered(ms(at_ms), at, end);
        sampler.sample(ms(at_ms))
    }

    /// Ten segments leave at once and a line delivers one each 10 ms: 100 kB/s, however fast they were sent.
    #[test]
    fn a_burst_is_sampled_at_the_rate_of_the_line() {
        let mut sampler = RateSampler::default();
        (0..10).for_each(|number| send(&mut sampler, 0, number, 1000 * number as u64));
        for number in 0..30 {
            let at_ms = 50 + 10 * (number as u64 + 1);
            let sample = deliver(&mut sampler, at_ms, number).unwrap();
            assert_eq!(sample.total_delivered, 1000 * (number as u64 + 1));
            // Until the burst is acknowledged, the time since it was sent counts: at most the line's rate.
            assert!(sample.delivery_rate < 1e5 + 1.0, "{sample:?}");
            if number >= 20 {
                assert!((sample.delivery_rate - 1e5).abs() < 1.0, "{sample:?}");
                assert_eq!(sample.rtt, Some(Duration::from_millis(100)));
            }
            send(&mut sampler, at_ms, 10 + number, 9000);
        }
    }

    #[test]
    fn acks_that_arrive_together_do_not_exceed_the_rate_at_which_data_were_sent() {
        let mut sampler = RateSampler::default();
        (0..5).for_each(|number| send(&mut sampler, 20 * number as u64, number, 1000 * number as u64));
        sampler.on_delivered(ms(100), segment(0).0, segment(4).1);
        let sample = sampler.sample(ms(100)).unwrap();
        assert_eq!((sample.delivered, sample.interval), (5000, Duration::from_millis(100)));
    }

    #[test]
    fn a_copy_gives_no_round_trip_and_an_idle_application_marks_what_it_sends() {
        let mut sampler = RateSampler::default();
        send(&mut sampler, 0, 0, 0);
        send(&mut sampler, 0, 1, 1000);
        sampler.on_app_limited(2000);
        send(&mut sampler, 300, 0, 2000);
        assert_eq!(deliver(&mut sampler, 400, 0).map(|sample| (sample.rtt, sample.is_app_limited)), Some((None, true)));
        assert!(!deliver(&mut sampler, 410, 1).unwrap().is_app_limited, "it was sent before");
        send(&mut sampler, 420, 2, 0);
        deliver(&mut sampler, 520, 2);
        send(&mut sampler, 520, 3, 0);
        assert!(!deliver(&mut sampler, 620, 3).unwrap().is_app_limited, "more than the 2000 bytes were delivered");
        assert_eq!(sampler.sample(ms(630)), None);
    }
}
