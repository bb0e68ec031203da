//! A sender that detects losses by time (RFC 8985), with tail loss probes (section 7), proportional rate reduction (RFC
//! 9937) and the undoing of recoveries that were for nothing (RFC 5682, RFC 2883). The algorithms are `recovery/rack.rs`
//! and `recovery/prr.rs`; here is what acks, timers and transmissions change in the sender.
//!
//! What is lost is in the ledger. Nothing is sent anew from the cumulative ack on: SND.NXT never falls.

use std::time::Duration;

use backchannel_core::time::Time;

use crate::acks::IncomingAck;
use crate::congestion::{AckSample, CongestionController, Exit, Lost, Signal};
use crate::extensions::Extension;
use crate::ledger::{Ledger, SentRecord};
use crate::recovery::by_time::{ForwardRto, LossDetection};
use crate::recovery::prr::{Prr, PrrAck};
use crate::recovery::rack::Situation;
use crate::recovery::Piece;
use crate::sender::{Context, Sender};
use crate::seq::Offset;
use crate::telemetry::SenderEvent;
use crate::timers::{Timer, TimerTable};
use crate::wire::Segment;

/// TLP.max_ack_delay (RFC 8985 7.2): how long a receiver may delay the ack of a single segment.
const MAX_ACK_DELAY: Duration = Duration::from_millis(200);
/// The probe timeout before the first round trip was measured (7.2).
const FIRST_PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// New segments that F-RTO sends before it retransmits more (RFC 5682 2.1, step 2b).
const F_RTO_SEGMENTS: u32 = 2;

/// What an ack delivered.
struct Delivery {
    /// Bytes by which it moves the cumulative ack.
    acked: u64,
    /// Bytes, cumulatively or selectively.
    bytes: u64,
    /// Whether a segment is among them that was sent once, before the last timeout.
    has_original: bool,
    /// A segment that the peer received twice.
    duplicate: Option<(Offset, Offset)>,
}

impl Sender {
    /// Takes an ack. Returns whether it acknowledges our FIN.
    pub fn on_ack_by_time(&mut self, incoming: &IncomingAck, cx: &mut Context) -> bool {
        let window_limited = self.is_window_limited(cx);
        let is_old = incoming.ack < self.una;
        if !is_old {
            self.take_window(incoming, cx);
        }
        let delivery = self.take_delivery(incoming, cx.now);
        if delivery.acked == 0 && delivery.bytes == 0 && delivery.duplicate.is_none() {
            return false;
        }
        if delivery.acked == 0 && !is_old {
            self.counts.duplicate_acks += 1;
        }
        let was_spurious = self.is_spurious(&delivery);
        if was_spurious {
            self.undo(cx);
        }
        let lost = self.detect_losses(cx);
        self.finish_probe(&delivery, incoming.segment, cx);
        let begins = lost > 0 && !self.is_recovering();
        if begins {
            self.begin_fast_recovery(&delivery, cx);
        }
        let mut sample = self.ack_sample(cx.now, delivery.acked, window_limited);
        sample.increase = cx.extensions.window_increase(incoming.segment, self.mss);
        sample.marked = cx.ecn.marked_bytes(incoming.segment, delivery.bytes, self.mss);
        if delivery.bytes > 0 {
            self.congestion.on_ack(&sample);
        }
        self.reduce(&delivery, lost);
        if begins {
            self.record(cx.now, SenderEvent::FastRetransmit);
        }
        self.finish_recovery(&sample);
        if cx.ecn.requests_reduction(incoming.segment, self.una, self.max) && !self.recovery.is_active() {
            self.on_loss(cx.now, Signal::Mark, self.cwnd());
            self.record(cx.now, SenderEvent::Mark);
        }
        if self.una >= self.max {
            cx.timers.stop(Timer::Retransmission);
            cx.timers.stop(Timer::LossDetection);
        } else if delivery.acked > 0 {
            cx.timers.set(Timer::Retransmission, self.rtt.deadline(cx.now));
        }
        self.schedule_probe(cx.now, cx.timers);
        self.record(cx.now, SenderEvent::Ack);
        delivery.acked > 0 && self.source.finished() && self.una == self.data_end() + 1
    }

    /// What an ack delivers goes to the scoreboard, the ledger and RACK.
    fn take_delivery(&mut self, &IncomingAck { segment, ack, echo_sent, .. }: &IncomingAck, now: Time) -> Delivery {
        let una = self.una;
        let blocks: Vec<_> = self.plausible_blocks(segment).collect();
        let duplicate = reported_duplicate(&blocks, ack);
        let first = usize::from(duplicate.is_some());
        let (mut has_original, mut first_sent) = (false, None);
        let Sender { ledger: Some(ledger), by_time: Some(by_time), recovery, .. } = self else {
            unreachable!("loss detection by time has both")
        };
        let LossDetection { rack, f_rto, .. } = by_time;
        rack.on_ack();
        let mut deliver = |record: &SentRecord, echo_sent: Option<Time>| {
            rack.on_delivered(now, record, echo_sent);
            has_original |=
                !record.is_retransmission && f_rto.is_some_and(|f_rto| record.sent_time < f_rto.timed_out_at);
        };
        for &(start, end) in &blocks[first..] {
            // With a gap before it a segment's own timestamp is not echoed (RFC 7323 4.3).
            ledger.deliver(now, start, end, |record| {
                if !record.is_retransmission {
                    first_sent = Some(first_sent.map_or(record.sent_time, |first: Time| first.min(record.sent_time)));
                }
                deliver(record, None);
            });
        }
        ledger.deliver(now, Offset::SYN, ack, |record| deliver(record, echo_sent));
        let (bytes, _) = ledger.news();
        recovery.scoreboard.update(una.max(ack), blocks[first..].iter().copied());
        let acked = if ack > una {
            self.sample_rtt(now, &IncomingAck { segment, seq: Offset::SYN, ack, echo_sent });
            self.advance(ack)
        } else {
            // Behind a gap round trips go on, as in Linux: the timeout would be that of an empty queue.
            first_sent.into_iter().for_each(|sent| self.rtt.on_sample(sent, now));
            0
        };
        Delivery { acked, bytes, has_original, duplicate }
    }

    /// Whether the sender is in fast or timeout recovery.
    fn is_recovering(&self) -> bool {
        self.recovery.is_active() || self.by_time.as_ref().is_some_and(|by_time| by_time.timeout_end.is_some())
    }

    fn situation(&self, now: Time) -> Situation {
        Situation {
            now,
            in_recovery: self.is_recovering(),
            segs_sacked: self.recovery.scoreboard.bytes().div_ceil(u64::from(self.mss)),
            srtt: self.rtt.srtt().unwrap_or_default(),
        }
    }

    /// Marks what is lost, and sets the timer for what may be. Returns the bytes that are.
    fn detect_losses(&mut self, cx: &mut Context) -> u64 {
        let situation = self.situation(cx.now);
        let Sender { ledger: Some(ledger), by_time: Some(by_time), .. } = self else { return 0 };
        let (lost, wait) = by_time.rack.detect_loss(ledger, &situation);
        match wait {
            Some(wait) => {
                cx.timers.set(Timer::LossDetection, cx.now + wait);
                by_time.timer_is_probe = false;
            }
            None if !by_time.timer_is_probe => cx.timers.stop(Timer::LossDetection),
            None => {}
        }
        self.report_lost(cx.now, &lost)
    }

    /// The controller hears of segments that are lost. Returns their bytes.
    fn report_lost(&mut self, now: Time, records: &[SentRecord]) -> u64 {
        let total = self.ledger.as_ref().map_or(0, Ledger::lost);
        let bytes: u64 = records.iter().map(SentRecord::len).sum();
        let mut so_far = total - bytes;
        for record in records {
            so_far += record.len();
            self.congestion.on_lost(now, &Lost::new(record, so_far));
        }
        bytes
    }

    fn begin_fast_recovery(&mut self, delivery: &Delivery, cx: &mut Context) {
        cx.ecn.on_reduction(self.max);
        self.on_loss(cx.now, Signal::Duplicates, self.cwnd());
        self.counts.fast_retransmits += 1;
        self.rtt.stop_timing();
        let Some(by_time) = &mut self.by_time else { return };
        (by_time.unreported, by_time.retransmit_due) = (Some(0), true);
        // RFC 9937 6: what is outstanding without what the peer had reported before this ack.
        let recover_fs = (self.max.since(self.una) + delivery.bytes).saturating_sub(self.recovery.scoreboard.bytes());
        let has_prr = by_time.has_prr && self.congestion.ssthresh().is_some();
        let prr = has_prr.then(|| Prr::new(recover_fs, u64::from(self.mss)));
        self.recovery.begin_by_time(self.max, prr);
    }

    /// PRR takes an ack.
    fn reduce(&mut self, delivery: &Delivery, lost: u64) {
        let in_flight = self.in_flight();
        let ssthresh = self.congestion.ssthresh().unwrap_or_default() as u64;
        if let Some(prr) = &mut self.recovery.prr {
            let safe = delivery.acked > 0 && lost == 0;
            prr.on_ack(&PrrAck { delivered: delivery.bytes, safe, in_flight, ssthresh });
        }
    }

    /// Ends fast or timeout recovery, if what was outstanding at its begin is acknowledged.
    fn finish_recovery(&mut self, sample: &AckSample) {
        let Some(by_time) = &mut self.by_time else { return };
        if by_time.timeout_end.is_some_and(|end| self.una >= end) {
            (by_time.timeout_end, by_time.f_rto) = (None, None);
            by_time.rack.on_recovery_end();
            self.congestion.on_recovery_end(sample, Exit::Unchanged);
        }
        if self.recovery.end().is_some_and(|end| self.una >= end) {
            by_time.rack.on_recovery_end();
            // The ledger is read through only for a controller that wants to know.
            if self.congestion.recovers_at_once() && self.ledger.as_ref().is_some_and(Ledger::is_repairing) {
                by_time.unreported = Some(0);
                self.recovery.begin_by_time(self.max, None);
                self.on_loss(sample.now, Signal::Duplicates, self.cwnd());
                return;
            }
            self.recovery.leave();
            self.congestion.on_recovery_end(sample, Exit::Threshold);
        }
    }

    /// Whether an ack shows that the current or the last recovery was for nothing: after a timeout it delivers a segment
    /// that was not sent again (RFC 5682 3.1, step 3b), or everything sent again had arrived before (RFC 2883).
    fn is_spurious(&mut self, delivery: &Delivery) -> bool {
        let (una, nxt) = (self.una, self.nxt);
        let Some(by_time) = &mut self.by_time else { return false };
        if delivery.duplicate.is_some() {
            by_time.rack.on_duplicate_reported(una, nxt);
            let is_probe = by_time.probe.is_some_and(|(end, is_retrans)| is_retrans && una >= end);
            if let Some(unreported) = by_time.unreported.as_mut().filter(|unreported| **unreported > 0 && !is_probe) {
                *unreported -= 1;
                return *unreported == 0;
            }
        }
        let Some(f_rto) = by_time.f_rto else { return false };
        if delivery.has_original {
            return true;
        }
        by_time.f_rto = match f_rto.new_segments {
            None if delivery.acked > 0 => Some(ForwardRto { new_segments: Some(F_RTO_SEGMENTS), ..f_rto }),
            _ => None,
        };
        false
    }

    /// The recovery was for nothing.
    fn undo(&mut self, cx: &mut Context) {
        let Some(by_time) = &mut self.by_time else { return };
        (by_time.timeout_end, by_time.f_rto, by_time.unreported) = (None, None, None);
        self.recovery.leave();
        self.ledger.iter_mut().for_each(Ledger::restore_lost);
        self.rtt.backoff = 0;
        self.congestion.on_spurious_loss();
        self.counts.spurious_recoveries += 1;
        self.record(cx.now, SenderEvent::SpuriousLoss);
    }

    /// The timer of loss detection has expired: a probe is due, or segments are lost that were sent too long ago.
    pub fn on_loss_detection_timer(&mut self, cx: &mut Context) {
        let Some(by_time) = &mut self.by_time else { return };
        if std::mem::take(&mut by_time.timer_is_probe) {
            by_time.probe_due = true;
            cx.timers.set(Timer::Retransmission, self.rtt.deadline(cx.now));
            return;
        }
        let lost = self.detect_losses(cx);
        if lost > 0 && !self.is_recovering() {
            let nothing = Delivery { acked: 0, bytes: 0, has_original: false, duplicate: None };
            self.begin_fast_recovery(&nothing, cx);
            self.reduce(&nothing, lost);
            self.record(cx.now, SenderEvent::FastRetransmit);
        }
    }

    /// Sets the timer for a probe (RFC 8985 7.2), unless the sender recovers, knows of a gap, or has a probe under way.
    fn schedule_probe(&mut self, now: Time, timers: &mut TimerTable) {
        let srtt = self.rtt.srtt();
        let is_recovering = self.is_recovering() || !self.recovery.scoreboard.is_empty();
        let (in_flight, mss) = (self.in_flight(), u64::from(self.mss));
        let Some(by_time) = self.by_time.as_mut().filter(|by_time| by_time.has_probes) else { return };
        if is_recovering || in_flight == 0 || by_time.probe.is_some() || by_time.probe_due {
            if std::mem::take(&mut by_time.timer_is_probe) {
                timers.stop(Timer::LossDetection);
            }
            return;
        }
        let timeout = match srtt {
            Some(srtt) if in_flight > mss => 2 * srtt,
            Some(srtt) => 2 * srtt + MAX_ACK_DELAY,
            None => FIRST_PROBE_TIMEOUT,
        };
        let at = timers.deadline(Timer::Retransmission).unwrap_or(Time::MAX).min(now + timeout);
        timers.set(Timer::LossDetection, at);
        by_time.timer_is_probe = true;
    }

    /// The probe, if one is due: a new segment, or else the last one again (7.3).
    pub fn next_probe(&self) -> Option<Piece> {
        self.by_time.as_ref().filter(|by_time| by_time.probe_due)?;
        self.fresh(self.nxt, Offset::MAX).or_else(|| {
            let last = self.ledger.as_ref()?.last()?;
            let data_end = last.end.min(self.data_end());
            let start = last.start + data_end.since(last.start).saturating_sub(u64::from(self.mss));
            Some((start, data_end.since(start)))
        })
    }

    /// A probe is answered (7.4.2). If it had to repair a loss, the window is reduced as after fast recovery.
    fn finish_probe(&mut self, delivery: &Delivery, segment: &Segment, cx: &mut Context) {
        let una = self.una;
        let Some(by_time) = &mut self.by_time else { return };
        let Some((end, is_retrans)) = by_time.probe.filter(|&(end, _)| una >= end) else { return };
        let was_received = !is_retrans || delivery.duplicate.is_some();
        let repaired_loss = !was_received && una > end;
        let is_duplicate_ack = delivery.acked == 0 && segment.sack.is_empty();
        if was_received || repaired_loss || is_duplicate_ack {
            by_time.probe = None;
        }
        if repaired_loss && !self.is_recovering() {
            cx.ecn.on_reduction(self.max);
            self.on_loss(cx.now, Signal::Duplicates, self.cwnd());
            let sample = AckSample { now: cx.now, ..AckSample::default() };
            self.congestion.on_recovery_end(&sample, Exit::Threshold);
        }
    }

    /// The next segment: what is lost comes before new data.
    #[inline]
    pub fn next_by_time(&mut self, mss: u64) -> Option<Piece> {
        let (ledger, by_time) = (self.ledger.as_ref()?, self.by_time.as_ref()?);
        let room = (self.cwnd() as u64).saturating_sub(ledger.bytes_in_flight());
        let fresh = || self.fresh(self.nxt, self.nxt + room);
        let new_segments = by_time.f_rto.and_then(|f_rto| f_rto.new_segments).unwrap_or_default();
        if let Some(new) = Some(fresh).filter(|_| new_segments > 0).and_then(|fresh| fresh()) {
            return Some(new);
        }
        let Some(lost) = ledger.first_lost() else { return fresh() };
        let length = lost.end.min(self.data_end()).since(lost.start).min(mss);
        (room >= length || by_time.retransmit_due).then_some((lost.start, length))
    }

    /// Data and FIN from `at` to `end` are sent.
    #[inline]
    pub fn record_sent(&mut self, now: Time, (at, end): (Offset, Offset), again: bool, timers: &mut TimerTable) {
        let Some(ledger) = &mut self.ledger else { return };
        let Some(by_time) = &mut self.by_time else {
            ledger.on_sent(now, (at, end), again, false);
            return;
        };
        let is_probe = std::mem::take(&mut by_time.probe_due);
        ledger.on_sent(now, (at, end), again, is_probe);
        if let Some(prr) = &mut self.recovery.prr {
            prr.on_transmit(end.since(at));
        }
        if is_probe {
            by_time.probe = Some((self.max.max(end), again));
        } else if again {
            by_time.retransmit_due = false;
            if at == self.una {
                // Its answer takes a round trip from now on, as Linux counts it.
                timers.set(Timer::Retransmission, self.rtt.deadline(now));
            }
            by_time.unreported.iter_mut().for_each(|segments| *segments += 1);
        } else if let Some(left) = by_time.f_rto.as_mut().and_then(|f_rto| f_rto.new_segments.as_mut()) {
            *left = left.saturating_sub(1);
        }
        if !again && !is_probe {
            self.schedule_probe(now, timers);
        }
    }

    /// The retransmission timer has expired: marks what is lost (RFC 8985 6.3).
    pub fn mark_lost_at_timeout(&mut self, now: Time) {
        let situation = self.situation(now);
        let Sender { ledger: Some(ledger), by_time: Some(by_time), una, max, recovery, .. } = self else { return };
        if recovery.scoreboard.skip_held(*una) > *una {
            // The peer has taken back what it had reported to hold (RFC 2018 8).
            recovery.scoreboard.clear();
            ledger.on_reneging(now, *una, *max);
        }
        let lost = by_time.rack.on_timeout(ledger, &situation, *una);
        self.report_lost(now, &lost);
    }

    /// Timeout recovery begins. `again`: of a segment that had timed out before, for which F-RTO is of no use.
    pub fn begin_timeout_recovery(&mut self, now: Time, again: bool, timers: &mut TimerTable) {
        timers.set(Timer::Retransmission, self.rtt.deadline(now));
        self.recovery.begin_timeout(self.max);
        let Some(by_time) = &mut self.by_time else { return };
        // The loss window is one segment whatever is still in flight (RFC 5681 3.1), a FIN for example.
        by_time.retransmit_due = true;
        by_time.timeout_end = Some(self.max);
        (by_time.probe, by_time.probe_due) = (None, false);
        if again {
            by_time.f_rto = None;
        } else {
            by_time.f_rto = by_time.has_f_rto.then_some(ForwardRto { timed_out_at: now, new_segments: None });
            by_time.unreported = Some(0);
        }
    }
}

/// The segment that the peer received twice, which the first block reports: it lies below the cumulative ack or within
/// the second block (RFC 2883 4).
fn reported_duplicate(blocks: &[(Offset, Offset)], ack: Offset) -> Option<(Offset, Offset)> {
    let &(start, end) = blocks.first()?;
    let within_second = blocks.get(1).is_some_and(|&(from, to)| from <= start && end <= to);
    (end <= ack || within_second).then_some((start, end))
}

#[cfg(test)]
mod tests;
