//! Round-trip times of one direction's data, as seen at the capture: from a segment to the ack that covers exactly it.
//!
//! Karn's rule (RFC 6298 3): a segment that was retransmitted gives no sample, and neither does one whose ack the
//! receiver held back until a retransmission had arrived.

use std::collections::VecDeque;

use crate::budget::Budget;

/// A segment that is not acknowledged yet.
#[derive(Debug)]
struct InFlight {
    start: i64,
    end: i64,
    time_ns: i64,
}

/// Segments in flight and the smoothed round-trip time.
#[derive(Debug, Default)]
pub(crate) struct RttEstimator {
    in_flight: VecDeque<InFlight>,
    /// Sequence range whose acks give no sample.
    excluded: (i64, i64),
    /// Round-trip time of the SYN between the capture and the other end.
    pub(crate) syn_rtt_ns: Option<i64>,
    /// SRTT and RTTVAR (RFC 6298 2).
    pub(crate) smoothed: Option<(i64, i64)>,
}

impl RttEstimator {
    /// Nothing is in flight.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.in_flight.capacity()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// A segment with new data was sent.
    #[inline]
    pub(crate) fn on_sent(&mut self, start: i64, end: i64, time_ns: i64, budget: &mut Budget) {
        budget.push(&mut self.in_flight, InFlight { start, end, time_ns });
    }

    /// `start..end` was retransmitted or overtaken when `acked` was the highest ack and `next` the next sequence
    /// number: from here up to `next`, acks are ambiguous or late.
    pub(crate) fn exclude(&mut self, start: i64, end: i64, acked: Option<i64>, next: i64) {
        if acked.is_none_or(|acked| end > acked) {
            let from = if self.excluded.1 > acked.unwrap_or(start) { self.excluded.0.min(start) } else { start };
            self.excluded = (from, next.max(end));
        }
    }

    /// Removes what `ack` covers from the segments in flight. Returns a sample if `ack` is the end of one of them.
    #[inline(always)]
    pub(crate) fn on_ack(&mut self, time_ns: i64, ack: i64) -> Option<i64> {
        let mut sample = None;
        while self.in_flight.front().is_some_and(|segment| segment.end <= ack) {
            let segment = self.in_flight.pop_front().expect("the queue has a front");
            let excluded = segment.end > self.excluded.0 && segment.start < self.excluded.1;
            sample = (segment.end == ack && !excluded).then_some(time_ns - segment.time_ns);
            if segment.start == 0 {
                self.syn_rtt_ns = sample;
            }
        }
        if let Some(sample_ns) = sample {
            self.update(sample_ns);
        }
        sample
    }

    /// RFC 6298 2.2 and 2.3, with alpha 1/8 and beta 1/4.
    #[inline]
    fn update(&mut self, sample_ns: i64) {
        self.smoothed = Some(match self.smoothed {
            None => (sample_ns, sample_ns / 2),
            Some((srtt, rttvar)) => {
                (srtt + ((sample_ns - srtt) >> 3), rttvar + (((sample_ns - srtt).abs() - rttvar) >> 2))
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of acks that each cover one of these segments, which were sent at 0 ns.
    fn samples(rtt: &mut RttEstimator, segments: &[(i64, i64)]) -> Vec<bool> {
        let mut budget = Budget::default();
        segments.iter().for_each(|&(start, end)| rtt.on_sent(start, end, 0, &mut budget));
        segments.iter().map(|&(_, end)| rtt.on_ack(7, end).is_some()).collect()
    }

    #[test]
    fn what_was_excluded_stays_so_until_it_is_acknowledged() {
        let mut rtt = RttEstimator::default();
        rtt.exclude(100, 200, Some(50), 300);
        // The second retransmission extends the range.
        rtt.exclude(200, 300, Some(50), 300);
        assert_eq!(samples(&mut rtt, &[(50, 100), (100, 200), (200, 300), (300, 400)]), [true, false, false, true]);
        // Everything before 350 is acknowledged, so a range of its own begins.
        rtt.exclude(450, 500, Some(350), 500);
        assert_eq!(samples(&mut rtt, &[(400, 450), (450, 500)]), [true, false]);
        // A retransmission of what is acknowledged excludes nothing.
        rtt.exclude(500, 600, Some(600), 700);
        assert_eq!(samples(&mut rtt, &[(500, 600), (600, 700)]), [true, true]);
    }
}
