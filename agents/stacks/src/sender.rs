//! The sending half: which segment goes next, and what a transmission or a timeout changes. `acks.rs` has the other
//! half of its work, what an ack changes.

use std::sync::Arc;
use std::time::Duration;

use backchannel_core::time::Time;

use crate::burst::Burst;
use crate::config::Config;
use crate::controllers::CongestionControl;
use crate::ecn::Ecn;
use crate::extensions::{Extension, Extensions};
use crate::recovery::{Recovery, TimeoutDecrease, DUPLICATE_THRESHOLD};
use crate::rtt::{RtoConfig, RttEstimator};
use crate::scoreboard::SackSender;
use crate::send_window::SendWindow;
use crate::seq::{Offset, SeqNumber};
use crate::source::Source;
use crate::telemetry::{Counts, Sample, SenderEvent};
use crate::timers::{Timer, TimerTable};

/// The parts of a connection that its sender works with.
pub(crate) struct Context<'a> {
    pub now: Time,
    pub timers: &'a mut TimerTable,
    pub ecn: &'a mut Ecn,
    pub extensions: &'a mut Extensions,
}

/// State of the sending half. Offsets are those of our stream, and `una <= nxt.max(max)`.
pub(crate) struct Sender {
    pub config: Arc<Config>,
    /// What the application sends.
    pub source: Source,
    /// ISS: the number of our SYN.
    pub initial: SeqNumber,
    /// Bytes of data in a full segment, options taken off.
    pub mss: u32,
    /// SND.UNA: everything before it is acknowledged. It never falls.
    pub una: Offset,
    /// SND.NXT: what is sent next. A timeout takes it back to `una`.
    pub nxt: Offset,
    /// One beyond everything ever sent. It never falls.
    pub max: Offset,
    /// The peer's window.
    pub window: SendWindow,
    /// The congestion window and its algorithm.
    pub congestion: CongestionControl,
    /// Round trips and timeout.
    pub rtt: RttEstimator,
    /// Loss recovery.
    pub recovery: Recovery,
    /// Whether the sender uses selective acks.
    pub uses_sack: bool,
    /// The limit on bursts.
    pub burst: Burst,
    /// Probes of a closed window.
    pub probe: WindowProbe,
    /// When data were last sent.
    sent_at: Time,
    /// When a segment last arrived.
    pub received_at: Time,
    /// Counts of the sender; the connection adds its own.
    pub counts: Counts,
    /// Telemetry since it was last cleared; `None`: nobody reads it.
    pub samples: Option<Vec<Sample>>,
}

/// Probes of a closed window (RFC 9293 3.8.6.1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowProbe {
    /// Probes since the window last opened.
    pub sent: u32,
    /// The persist timer has expired: a probe goes next.
    pub due: bool,
    /// One beyond the last probe's byte, which lies beyond `max`: a probe is not retransmitted, but may be
    /// acknowledged.
    pub end: Offset,
}

impl Sender {
    /// `mss`: bytes of data in a full segment, until the handshake has settled it.
    pub fn new(config: &Arc<Config>, mss: u32, initial: SeqNumber, source: Source) -> Sender {
        Sender {
            source,
            initial,
            mss,
            una: Offset::SYN,
            nxt: Offset::SYN,
            max: Offset::SYN,
            window: SendWindow::new(),
            congestion: CongestionControl::new(config, mss),
            rtt: RttEstimator::new(RtoConfig::new(config)),
            recovery: Recovery::default(),
            uses_sack: false,
            burst: Burst::new(config),
            probe: WindowProbe::default(),
            sent_at: Time::ZERO,
            received_at: Time::ZERO,
            counts: Counts::default(),
            samples: Some(Vec::new()),
            config: Arc::clone(config),
        }
    }

    /// The handshake has settled the segment size.
    pub fn on_mss(&mut self, mss: u32) {
        self.mss = mss;
        self.congestion = CongestionControl::new(&self.config, mss);
    }

    /// One beyond the last byte there is to send.
    pub fn data_end(&self) -> Offset {
        Offset::FIRST_BYTE + self.source.available()
    }

    /// Whether nothing was ever sent and there is nothing to send, as at the receiver of a transfer.
    #[inline(always)]
    pub fn is_unused(&self) -> bool {
        self.max <= Offset::FIRST_BYTE && self.data_end() <= Offset::FIRST_BYTE && !self.source.finished()
    }

    /// FlightSize: bytes outstanding.
    pub fn flight(&self) -> u64 {
        self.max.max(self.nxt).since(self.una)
    }

    /// FlightSize for a decrease: what the window let go, at least a segment.
    pub fn flight_within(&self, window: f64) -> u64 {
        self.flight().min(window.max(f64::from(self.mss)) as u64)
    }

    /// Bytes of data that the peer has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.una.data_bytes().min(self.source.end().unwrap_or(u64::MAX))
    }

    /// The next data segment to send, as its first byte and length; `None` when none may go now.
    #[inline(always)]
    pub fn next_data(&mut self, now: Time, timers: &mut TimerTable) -> Option<(Offset, u64)> {
        let mss = u64::from(self.mss);
        if self.recovery.resend {
            let length = self.data_end().since(self.una).min(mss).min(self.recovery.scoreboard.room(self.una));
            return Some((self.una, length));
        }
        self.restart_after_idle(now);
        let next = self.next_in_window(now, mss)?;
        let cwnd = self.congestion.window.segments();
        self.burst.may_send(now, cwnd, self.burst_rtt(), timers).then_some(next)
    }

    /// RFC 5681 4.1. It counts from the last data sent; 4.4BSD's t_idle from the last segment that arrived, so that one
    /// which opens a closed window finds no idle sender (ton figure 11).
    #[inline]
    fn restart_after_idle(&mut self, now: Time) {
        let since = if self.rtt.is_bsd() { self.received_at } else { self.sent_at };
        if self.una >= self.max && self.max > Offset::FIRST_BYTE && now - since > self.rtt.rto() {
            self.congestion.on_idle(f64::from(self.config.initial_window_segments) * self.congestion.window.mss);
        }
    }

    /// The round trip by which bursts are spaced.
    pub(crate) fn burst_rtt(&self) -> Option<Duration> {
        if self.config.burst_by_first_rtt {
            self.rtt.first
        } else {
            self.rtt.exact_srtt
        }
    }

    /// The next data segment without the limit on bursts.
    #[inline]
    fn next_in_window(&mut self, now: Time, mss: u64) -> Option<(Offset, u64)> {
        if self.uses_sack && self.recovery.is_active() {
            return self.next_in_sack_recovery(now, mss);
        }
        self.nxt = self.recovery.scoreboard.skip_held(self.nxt);
        if self.nxt >= self.data_end() {
            return self.rest(self.nxt);
        }
        let duplicates = self.recovery.duplicates;
        // Outside recovery, three duplicates were of an old loss: ns of 1997 counts them as segments that have left all
        // the same.
        let ignored = self.config.reno_of_1997 && !self.recovery.is_active() && duplicates >= DUPLICATE_THRESHOLD;
        let mut cwnd = self.congestion.window.inflated(if ignored { duplicates } else { 0 });
        if self.config.limited_transmit && !self.recovery.is_active() {
            // RFC 3042: up to two segments beyond the window, one a duplicate ack.
            cwnd += u64::from(duplicates.min(2)) * mss;
        }
        self.fresh(self.nxt, self.una + cwnd)
    }

    fn next_in_sack_recovery(&mut self, now: Time, mss: u64) -> Option<(Offset, u64)> {
        let cwnd = self.congestion.window.cwnd as u64;
        let scoreboard = &self.recovery.scoreboard;
        match self.config.sack_sender {
            SackSender::Rfc6675 => {
                // Step (C) of section 5, and NextSeg's rules (1) to (3).
                if scoreboard.pipe(self.una, self.max, mss) + mss > cwnd {
                    return None;
                }
                let lost = scoreboard.next_lost(self.una, self.max, mss);
                lost.or_else(|| self.fresh(self.nxt, Offset::MAX)).or_else(|| scoreboard.next_missing(self.una, mss))
            }
            SackSender::Sack1996 => {
                if scoreboard.counted + mss as i64 > cwnd as i64 {
                    return None;
                }
                scoreboard.next_missing(self.una, mss).or_else(|| self.fresh(self.nxt, Offset::MAX))
            }
            SackSender::Smart => {
                // A missing segment goes when an ack reports it, whatever the window, because it has left the network.
                // The round trip is the stack's own estimate: 4.4BSD knows it in ticks alone.
                let rtt = self.rtt.srtt().unwrap_or_else(|| self.rtt.rto()).max(Duration::from_millis(1));
                let missing = self.recovery.smart_ack.then(|| scoreboard.next_smart(self.una, mss, now, rtt));
                missing.flatten().or_else(|| {
                    let pipe = scoreboard.smart_pipe(self.una, self.max, mss);
                    (pipe + mss <= cwnd).then(|| self.fresh(self.nxt, Offset::MAX)).flatten()
                })
            }
            // It recovers as without selective acks.
            SackSender::Ignored => None,
        }
    }

    /// A segment from `at` on that ends before `limit` and the edge of the peer's window.
    #[inline]
    fn fresh(&self, at: Offset, limit: Offset) -> Option<(Offset, u64)> {
        let mss = u64::from(self.mss);
        let left = self.data_end().since(at);
        if left == 0 {
            return self.rest(at);
        }
        let window = limit.min(self.window.edge).since(at);
        let hole = self.recovery.scoreboard.room(at);
        let length = left.min(mss).min(window).min(hole);
        // The sender's side of silly window avoidance (RFC 9293 3.8.6.2.1): a full segment, the last of the data, the
        // rest of a hole, or half of the greatest window the peer ever offered. What is left of a relay's data is not
        // the last: it waits for more while something is outstanding (3.7.4, Nagle), unless it is sent again.
        let waits = self.source.relays() && !self.source.finished() && self.una < self.max && at >= self.max;
        let last = length == left && !waits;
        let is_complete = length == mss || last || length == hole;
        (length > 0 && (is_complete || 2 * length >= self.window.largest)).then_some((at, length))
    }

    /// What is left behind the last byte: a FIN, which needs no room in the congestion window.
    #[inline]
    fn rest(&self, at: Offset) -> Option<(Offset, u64)> {
        (self.source.finished() && at == self.data_end()).then_some((at, 0))
    }

    /// A data segment of `length` bytes from `at` on is sent; `end` is one beyond it, and its FIN if it has one.
    pub fn on_transmit(&mut self, now: Time, at: Offset, length: u64, end: Offset, timers: &mut TimerTable) {
        if self.una >= self.max && length > 0 {
            self.congestion.on_idle_end();
        }
        self.burst.on_transmit(now);
        self.sent_at = now;
        self.recovery.scoreboard.counted += length as i64;
        if at < self.max {
            self.counts.retransmitted += 1;
            if self.config.sack_sender == SackSender::Smart {
                self.recovery.scoreboard.on_retransmit(at, now);
            }
            self.recovery.scoreboard.high_rxt = self.recovery.scoreboard.high_rxt.max(end);
            if !(self.config.timing_in_recovery && self.recovery.has_partial_ack()) {
                self.rtt.on_retransmission(at);
            }
        } else {
            self.rtt.on_first_transmission(end, now);
        }
        if self.recovery.resend {
            self.recovery.resend = false;
            self.nxt = self.nxt.max(end);
        } else if at == self.nxt {
            self.nxt = end;
        }
        self.max = self.max.max(end);
        timers.stop(Timer::Persist);
        if !timers.is_set(Timer::Retransmission) {
            timers.set(Timer::Retransmission, self.rtt.deadline(now));
        }
    }

    /// The retransmission timer has expired with data outstanding: everything goes again, from slow start.
    pub fn on_retransmission_timeout(&mut self, cx: &mut Context) {
        // RFC 5681 3.1 keeps the threshold when a segment times out again; 4.4BSD and ns-2 halve the one segment that
        // the window then is.
        let decrease = self.rtt.backoff == 0 || !self.rtt.is_modern();
        // What duplicate acks added to the window lies above the threshold that recovery began with.
        let window = &self.congestion.window;
        let inflated = self.recovery.is_active() && self.config.timeout_halves == TimeoutDecrease::Window;
        let cwnd = if inflated { window.cwnd.min(window.ssthresh) } else { window.cwnd };
        self.congestion.on_timeout(self.flight_within(cwnd), decrease);
        cx.extensions.on_timeout();
        cx.ecn.on_reduction(self.max);
        self.counts.timeouts += 1;
        if let Some(deadline) = self.rtt.early_deadline(cx.now) {
            cx.timers.set(Timer::Retransmission, deadline);
        }
        self.rtt.back_off();
        self.rtt.stop_timing();
        self.recovery.on_timeout(self.max);
        self.nxt = self.una;
        self.record(cx.now, SenderEvent::Timeout);
    }

    /// Sets the persist timer when the peer's window, closed or too small for a full segment, is all that holds data
    /// back (RFC 9293 3.8.6.1; the override timeout of 3.8.6.2.1).
    #[inline]
    pub fn watch_closed_window(&mut self, now: Time, timers: &mut TimerTable) {
        let waiting = self.data_end() > self.nxt
            && self.una >= self.nxt
            && !timers.is_set(Timer::Retransmission)
            && !self.probe.due;
        if waiting && !timers.is_set(Timer::Persist) {
            timers.set(Timer::Persist, now + self.rtt.persist(self.probe.sent));
        }
    }

    /// Records the sender's state.
    #[inline]
    pub fn record(&mut self, at: Time, event: SenderEvent) {
        if self.samples.is_some() {
            self.add_sample(at, event);
        }
    }

    fn add_sample(&mut self, at: Time, event: SenderEvent) {
        let outstanding = self.flight();
        let Some(samples) = &mut self.samples else { return };
        samples.push(Sample {
            at,
            event,
            cwnd: self.congestion.window.cwnd,
            ssthresh: self.congestion.window.threshold(),
            outstanding,
            rtt: self.rtt.latest,
            srtt: self.rtt.srtt(),
            rto: self.rtt.rto(),
            duplicates: self.recovery.duplicates,
            burst: self.burst.last(),
        });
    }
}
