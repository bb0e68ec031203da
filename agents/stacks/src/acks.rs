//! What an ack changes in the sender: window updates, new acks, duplicate acks.

use backchannel_core::packet::TcpFlags;
use backchannel_core::time::Time;

use crate::controllers::{AckEvent, LossResponse, RecoveryAck, RecoveryStep};
use crate::extensions::{DuplicateHints, Extension};
use crate::recovery::DUPLICATE_THRESHOLD;
use crate::scoreboard::SackSender;
use crate::sender::{Context, Sender};
use crate::seq::Offset;
use crate::telemetry::SenderEvent;
use crate::timers::Timer;
use crate::wire::Segment;

/// An acceptable segment with ACK.
pub(crate) struct IncomingAck<'a> {
    pub segment: &'a Segment,
    /// Its place in the peer's stream.
    pub seq: Offset,
    /// What it acknowledges of ours.
    pub ack: Offset,
    /// When the segment was sent whose timestamp it echoes.
    pub echo_sent: Option<Time>,
}

impl Sender {
    /// Takes an ack. Returns whether it acknowledges our FIN.
    pub fn on_ack(&mut self, incoming: &IncomingAck, cx: &mut Context) -> bool {
        let &IncomingAck { segment, seq, ack, .. } = incoming;
        let newly_sacked = self.uses_sack && self.update_scoreboard(segment, ack);
        if ack < self.una {
            return false;
        }
        let window = u64::from(segment.window) << self.window.shift;
        let same_window = ack + window == self.window.edge;
        if self.window.update(seq, ack, window) && self.window.edge > self.nxt {
            cx.timers.stop(Timer::Persist);
            self.probe.sent = 0;
        }
        self.recovery.smart_ack = !segment.sack.is_empty();
        let mut fin_acknowledged = false;
        if ack > self.una {
            self.on_new_ack(incoming, cx);
            fin_acknowledged = self.source.finished() && self.una == self.data_end() + 1;
        } else if self.max > self.una {
            // RFC 5681 2, or RFC 6675 2.
            let moves_nothing =
                segment.payload == 0 && same_window && !TcpFlags(segment.flags).any(TcpFlags::SYN | TcpFlags::FIN);
            if newly_sacked || moves_nothing {
                self.on_duplicate_ack(segment, newly_sacked, cx);
            }
        }
        if cx.ecn.requests_reduction(segment, self.una, self.max) && !self.recovery.is_active() {
            self.congestion.on_mark();
            self.record(cx.now, SenderEvent::Mark);
        }
        fin_acknowledged
    }

    /// Takes the SACK blocks of a segment. Returns whether they report anything new.
    fn update_scoreboard(&mut self, segment: &Segment, ack: Offset) -> bool {
        let (una, max, initial) = (self.una, self.max, self.initial);
        let expand = |number: crate::seq::SeqNumber| number.expand(initial, una);
        let blocks = segment.sack.iter().map(|&(start, end)| (expand(start), expand(end)));
        let plausible = blocks.filter(|&(start, end)| Offset::SYN <= start && start < end && end <= max);
        self.recovery.scoreboard.update(una.max(ack), plausible)
    }

    fn on_new_ack(&mut self, incoming: &IncomingAck, cx: &mut Context) {
        let &IncomingAck { segment, ack, .. } = incoming;
        let predicted = self.is_predicted(segment, cx);
        let window_limited = self.is_window_limited(cx);
        // ns of 1997 stops the timer only where the ack passes what was sent since the timeout, even if all is
        // acknowledged.
        let early = self.rtt.early_deadline(cx.now).filter(|_| ack <= self.nxt);
        self.sample_rtt(cx.now, incoming);
        let acked = ack.since(self.una);
        self.una = ack;
        self.nxt = self.nxt.max(ack);
        self.max = self.max.max(ack);
        self.recovery.resend = false;
        if self.source.relays() {
            self.source.forget_before(self.acknowledged());
        }
        let srtt_s = self.rtt.srtt().unwrap_or_default().as_secs_f64();
        let event = AckEvent { acked, now: cx.now, srtt_s, window_limited };
        let mut restart_timer = true;
        if !predicted {
            match self.recovery.end() {
                Some(end) => restart_timer = self.on_ack_in_recovery(&event, end, cx),
                None if cx.extensions.on_growth(&mut self.congestion.window, segment) => {}
                None => self.congestion.on_ack(&event),
            }
            self.recovery.duplicates = 0;
        }
        if let Some(deadline) = early {
            cx.timers.set(Timer::Retransmission, deadline);
        } else if self.una >= self.max || self.rtt.sets_timers_early() {
            cx.timers.stop(Timer::Retransmission);
        } else if restart_timer {
            cx.timers.set(Timer::Retransmission, self.rtt.deadline(cx.now));
        }
        self.record(cx.now, SenderEvent::Ack);
    }

    /// A new ack in fast recovery, which ends at `end`. Returns whether the retransmission timer restarts.
    fn on_ack_in_recovery(&mut self, event: &AckEvent, end: Offset, cx: &mut Context) -> bool {
        let full = self.una >= end;
        if cx.extensions.on_recovery_ack(&mut self.congestion.window) {
            // Another gap shows in the duplicates that follow.
            self.end_recovery(event);
        } else if self.uses_sack {
            if full {
                self.congestion.window.cwnd = self.congestion.window.ssthresh;
                self.end_recovery(event);
            } else {
                // Fall and Floyd: a partial ack stands for two packets that left, the original and its copy.
                self.recovery.scoreboard.counted -= 2 * i64::from(self.mss);
            }
        } else {
            let ack = RecoveryAck { acked: event.acked, full, outstanding: self.flight() };
            match self.congestion.on_recovery_ack(&ack) {
                RecoveryStep::Leave => self.end_recovery(event),
                RecoveryStep::RetransmitAndStay => return self.recovery.on_partial_ack(),
            }
        }
        true
    }

    fn end_recovery(&mut self, event: &AckEvent) {
        self.recovery.leave();
        self.congestion.on_recovery_end(event);
    }

    /// Whether 4.4BSD's header prediction takes a new ack (RFC 2525 2.8): it checks that nothing is being sent again,
    /// that the window offered stands, and that the congestion window would hold nothing back, but not whether that
    /// window is inflated. Fast recovery then does not end: the window stays inflated, and duplicates are counted on
    /// from where they were. The repair of a corrupted segment ends all the same: loss notification looks at every ack.
    fn is_predicted(&self, segment: &Segment, cx: &Context) -> bool {
        self.config.header_prediction
            && segment.payload == 0
            && self.nxt == self.max
            && self.window.offer_stands
            && self.congestion.window.cwnd >= self.window.offered as f64
            && !cx.extensions.is_repairing()
    }

    /// Whether the congestion window, or the limit on bursts, keeps the sender from sending more: less than a full
    /// segment fits. Otherwise the application or the peer's window limits it (RFC 9438 5.8).
    fn is_window_limited(&self, cx: &Context) -> bool {
        self.flight() + u64::from(self.mss) > self.congestion.window.cwnd as u64 || cx.timers.is_set(Timer::Burst)
    }

    /// Takes a round-trip sample: by the timestamp echoed, or by the segment that is timed.
    pub fn sample_rtt(&mut self, now: Time, incoming: &IncomingAck) {
        // A middlebox that made or held the ack has cleared its echo (asym 6.4).
        if matches!(incoming.segment.timestamps, Some((_, 0))) {
            return;
        }
        self.rtt.on_ack(incoming.ack, incoming.echo_sent, now);
    }

    fn on_duplicate_ack(&mut self, segment: &Segment, newly_sacked: bool, cx: &mut Context) {
        self.recovery.duplicates += 1;
        self.counts.duplicate_acks += 1;
        if self.recovery.is_active() {
            if !self.uses_sack {
                self.congestion.on_duplicate_ack();
            } else if newly_sacked {
                self.recovery.scoreboard.counted -= i64::from(self.mss);
            }
            return;
        }
        let mut hints = DuplicateHints::default();
        cx.extensions.on_duplicate_ack(segment, &mut hints);
        if !(hints.retransmit_now || self.recovery.duplicates == DUPLICATE_THRESHOLD || self.sack_shows_loss()) {
            return;
        }
        if hints.corrupted {
            self.retransmit_corrupted(cx);
        } else if !self.is_old_loss() {
            self.fast_retransmit(cx);
        }
    }

    /// Whether selective acks show a loss before the third duplicate.
    fn sack_shows_loss(&self) -> bool {
        let early = self.recovery.duplicates < DUPLICATE_THRESHOLD;
        self.uses_sack
            && match self.config.sack_sender {
                SackSender::Rfc6675 => early && self.recovery.scoreboard.is_lost(self.una, u64::from(self.mss)),
                SackSender::Smart => !self.recovery.scoreboard.is_empty(),
                SackSender::Sack1996 | SackSender::Ignored => false,
            }
    }

    /// Whether duplicates concern what was outstanding at the last loss, which has been dealt with. RFC 6675 5.1: until
    /// everything sent before it is acknowledged. RFC 6582 3.2 step 2: until more than that is, because what a timeout
    /// sends again brings duplicates of the very ack that covers all of it. 4.4BSD does not check. ns-2's Tahoe does,
    /// and its Reno does unless the last loss was a fast retransmit.
    fn is_old_loss(&self) -> bool {
        if self.uses_sack {
            return self.una < self.recovery.recover;
        }
        let counts_again = self.config.successive_fast_retransmits
            || (self.config.successive_after_recovery && !self.recovery.timed_out);
        let checks = self.congestion.ignores_old_duplicates() || !counts_again;
        checks && self.una <= self.recovery.recover
    }

    fn retransmit_corrupted(&mut self, cx: &mut Context) {
        self.recovery.begin(self.max);
        self.rtt.stop_timing();
        cx.extensions.on_corruption(&mut self.congestion.window, self.recovery.duplicates);
        self.counts.fast_retransmits += 1;
        cx.timers.set(Timer::Retransmission, self.rtt.deadline(cx.now));
        self.record(cx.now, SenderEvent::CorruptionRetransmit);
    }

    fn fast_retransmit(&mut self, cx: &mut Context) {
        let flight = self.flight_within(self.congestion.window.cwnd);
        self.recovery.recover = self.max;
        self.recovery.timed_out = false;
        self.counts.fast_retransmits += 1;
        self.rtt.stop_timing();
        cx.ecn.on_reduction(self.max);
        match self.congestion.on_fast_retransmit(flight) {
            LossResponse::Recover => {
                self.recovery.begin(self.max);
                if self.uses_sack {
                    self.congestion.window.cwnd = self.congestion.window.ssthresh;
                    self.recovery.scoreboard.high_rxt = self.una;
                    self.recovery.scoreboard.counted =
                        self.flight() as i64 - i64::from(self.recovery.duplicates) * i64::from(self.mss);
                }
            }
            LossResponse::GoBack => self.nxt = self.una,
        }
        cx.timers.set(Timer::Retransmission, self.rtt.deadline(cx.now));
        self.record(cx.now, SenderEvent::FastRetransmit);
    }
}
