//! What an ack changes in the sender: window updates, new acks, duplicate acks.

use backchannel_core::packet::TcpFlags;
use backchannel_core::time::Time;

use crate::congestion::{AckSample, CongestionController, Exit, Signal};
use crate::extensions::{DuplicateHints, Extension};
use crate::recovery::{NewAck, DUPLICATE_THRESHOLD};
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
    #[inline(always)]
    pub fn on_ack(&mut self, incoming: &IncomingAck, cx: &mut Context) -> bool {
        if self.recovery.by_time {
            return self.on_ack_by_time(incoming, cx);
        }
        let &IncomingAck { segment, ack, .. } = incoming;
        let newly_sacked = self.recovery.selective.is_some() && self.update_scoreboard(segment, ack, cx.now);
        if ack < self.una {
            return false;
        }
        let same_window = self.take_window(incoming, cx);
        if let Some(selective) = &mut self.recovery.selective {
            selective.on_ack(!segment.sack.is_empty());
        }
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
            self.on_loss(cx.now, Signal::Mark, self.cwnd());
            self.record(cx.now, SenderEvent::Mark);
        }
        fin_acknowledged
    }

    /// Takes the window of an ack that is not old. Returns whether it offers what was offered before.
    #[inline(always)]
    pub fn take_window(&mut self, &IncomingAck { segment, seq, ack, .. }: &IncomingAck, cx: &mut Context) -> bool {
        let window = u64::from(segment.window) << self.window.shift;
        let same_window = ack + window == self.window.edge;
        if self.window.update(seq, ack, window) && self.window.edge > self.nxt {
            cx.timers.stop(Timer::Persist);
            self.probe.sent = 0;
        }
        same_window
    }

    /// The SACK blocks of a segment, but those of what was never sent.
    pub fn plausible_blocks<'a>(
        &self,
        segment: &'a Segment,
    ) -> impl Iterator<Item = (Offset, Offset)> + Clone + use<'a> {
        let (una, max, initial) = (self.una, self.max, self.initial);
        let blocks =
            segment.sack.iter().map(move |&(start, end)| (start.expand(initial, una), end.expand(initial, una)));
        blocks.filter(move |&(start, end)| Offset::SYN <= start && start < end && end <= max)
    }

    /// Takes the SACK blocks of a segment. Returns whether they report anything new.
    fn update_scoreboard(&mut self, segment: &Segment, ack: Offset, now: Time) -> bool {
        let (una, plausible) = (self.una, self.plausible_blocks(segment));
        if let Some(ledger) = &mut self.ledger {
            plausible.clone().for_each(|(start, end)| ledger.deliver(now, start, end, |_| {}));
        }
        self.recovery.scoreboard.update(una.max(ack), plausible)
    }

    #[inline(always)]
    fn on_new_ack(&mut self, incoming: &IncomingAck, cx: &mut Context) {
        let &IncomingAck { segment, ack, .. } = incoming;
        let predicted = self.predicts(segment, || cx.extensions.is_repairing());
        let window_limited = self.is_window_limited(cx);
        let early_timer = self.era.early_timer(cx.now, &self.rtt, ack > self.nxt);
        self.sample_rtt(cx.now, incoming);
        let acked = self.advance(ack);
        self.recovery.resend = false;
        if let Some(ledger) = &mut self.ledger {
            ledger.deliver(cx.now, Offset::SYN, ack, |_| {});
        }
        let mut restart_timer = true;
        if !predicted {
            let mut sample = self.ack_sample(cx.now, acked, window_limited);
            sample.increase = cx.extensions.window_increase(segment, self.mss);
            sample.marked = cx.ecn.marked_bytes(segment, acked, self.mss);
            self.congestion.on_ack(&sample);
            if let Some(end) = self.recovery.end() {
                restart_timer = self.on_ack_in_recovery(&sample, end, cx);
            }
            self.recovery.duplicates = 0;
        }
        if let Some(at) = early_timer {
            cx.timers.set(Timer::Retransmission, at);
        } else if self.una >= self.max {
            cx.timers.stop(Timer::Retransmission);
        } else if restart_timer {
            cx.timers.set(Timer::Retransmission, self.rtt.deadline(cx.now));
        }
        self.record(cx.now, SenderEvent::Ack);
    }

    /// Everything before `ack` is acknowledged. Returns the bytes of that which were not before.
    #[inline(always)]
    pub fn advance(&mut self, ack: Offset) -> u64 {
        let acked = ack.since(self.una);
        self.una = ack;
        self.nxt = self.nxt.max(ack);
        self.max = self.max.max(ack);
        if self.source.relays() {
            self.source.forget_before(self.acknowledged());
        }
        acked
    }

    /// What an ack tells the controller, the marks and an extension's increase excepted.
    #[inline(always)]
    pub fn ack_sample(&mut self, now: Time, acked: u64, window_limited: bool) -> AckSample {
        let round_start = self.una > self.round_end;
        if round_start {
            self.round_end = self.max;
        }
        let mut sample = AckSample {
            now,
            acked,
            srtt_s: self.srtt_s(),
            window_limited,
            in_recovery: self.recovery.is_active(),
            increase: None,
            rate: None,
            rtt: self.rtt.latest_at(now),
            round_start,
            in_flight: self.flight(),
            delivered: acked,
            lost: 0,
            marked: 0,
        };
        if let Some(ledger) = &mut self.ledger {
            (sample.delivered, sample.lost) = ledger.news();
            if self.congestion.limits_samples() {
                ledger.on_app_limited();
            }
            sample.rate = ledger.sample(now);
            sample.in_flight = ledger.bytes_in_flight();
        }
        sample
    }

    /// A new ack in fast recovery, which ends at `end`. Returns whether the retransmission timer restarts: of partial
    /// acks without selective ones, at the first alone (RFC 6582 3.2, the impatient variant).
    fn on_ack_in_recovery(&mut self, sample: &AckSample, end: Offset, cx: &mut Context) -> bool {
        // After a repair another gap shows in the duplicates that follow.
        let exit = if cx.extensions.ends_repair() {
            Some(Exit::Unchanged)
        } else {
            let (full, flight, mss) = (self.una >= end, self.flight(), f64::from(self.mss));
            self.recovery.on_new_ack(&NewAck { acked: sample.acked, full, flight, mss })
        };
        if let Some(exit) = exit {
            self.recovery.leave();
            self.congestion.on_recovery_end(sample, exit);
        }
        self.recovery.partial_acks() <= 1
    }

    /// Whether the congestion window, or the pacer, keeps the sender from sending more: less than a full
    /// segment fits. Otherwise the application or the peer's window limits it (RFC 9438 5.8).
    #[inline(always)]
    pub fn is_window_limited(&self, cx: &Context) -> bool {
        let cwnd = self.cwnd();
        let is_limited = match &self.by_time {
            Some(by_time) => by_time.window_use.is_limited(cwnd, self.congestion.in_slow_start(cwnd)),
            None => (self.flight() + u64::from(self.mss)) as f64 > cwnd,
        };
        is_limited || cx.timers.is_set(Timer::Pacing)
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
        if newly_sacked && self.congestion.uses_rate_samples() {
            let sample = self.ack_sample(cx.now, 0, self.is_window_limited(cx));
            self.congestion.on_ack(&sample);
        }
        if self.recovery.is_active() {
            self.recovery.on_duplicate_ack(self.mss, newly_sacked);
            return;
        }
        let mut hints = DuplicateHints::default();
        cx.extensions.on_duplicate_ack(segment, &mut hints);
        let third = self.recovery.duplicates == DUPLICATE_THRESHOLD;
        if !(hints.retransmit_now || third || self.recovery.shows_loss(&self.outstanding())) {
            return;
        }
        if hints.corrupted {
            // The threshold stays, and the window is as before once the loss is repaired. Until then each duplicate, of
            // those that have come and those that follow, lets one segment go.
            cx.extensions.on_repair();
            self.retransmit(self.recovery.duplicates, SenderEvent::CorruptionRetransmit, cx);
        } else if !self.recovery.is_old_loss(self.una, |timed_out| self.era.ignores_old_duplicates(timed_out)) {
            self.fast_retransmit(cx);
        }
    }

    fn fast_retransmit(&mut self, cx: &mut Context) {
        self.recovery.on_loss(self.max);
        cx.ecn.on_reduction(self.max);
        let signal = if self.recovery.goes_back() { Signal::Timeout { again: false } } else { Signal::Duplicates };
        self.on_loss(cx.now, signal, self.cwnd());
        self.retransmit(DUPLICATE_THRESHOLD, SenderEvent::FastRetransmit, cx);
    }

    /// Sends the first segment again: fast recovery begins, with `departed` segments that have left the network, or
    /// everything follows.
    fn retransmit(&mut self, departed: u32, event: SenderEvent, cx: &mut Context) {
        self.counts.fast_retransmits += 1;
        self.rtt.stop_timing();
        if self.recovery.goes_back() {
            self.nxt = self.una;
        } else {
            self.recovery.begin(&self.outstanding(), self.congestion.window(), departed);
        }
        cx.timers.set(Timer::Retransmission, self.rtt.deadline(cx.now));
        self.record(cx.now, event);
    }
}
