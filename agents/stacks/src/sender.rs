//! The sending half: which segment goes next, and what a transmission or a timeout changes. `acks.rs` has the other
//! half of its work, what an ack changes.

use std::sync::Arc;
use std::time::Duration;

use backchannel_core::time::Time;

use crate::config::Config;
use crate::congestion::{CongestionController, Loss, Sent, Signal};
use crate::controllers::CongestionControl;
use crate::ecn::Ecn;
use crate::era::Era;
use crate::extensions::{Extension, Extensions, Outgoing};
use crate::ledger::Ledger;
use crate::pacer::Pacer;
use crate::receiver::Receiver;
use crate::recovery::by_time::LossDetection;
use crate::recovery::{Choice, Outstanding, Piece, Recovery};
use crate::rtt::{RtoConfig, RttEstimator};
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
    /// The congestion controller.
    pub congestion: CongestionControl,
    /// The segments in the network, if the controller or loss detection uses them.
    pub ledger: Option<Ledger>,
    /// Loss detection by time, with selective acks.
    pub by_time: Option<LossDetection>,
    /// What was sent when the current round trip began: it ends with the first ack of what was sent later.
    pub round_end: Offset,
    /// Round trips and timeout.
    pub rtt: RttEstimator,
    /// Loss recovery.
    pub recovery: Recovery,
    /// What implementations did beside the RFCs.
    pub era: Era,
    /// When segments leave.
    pub pacer: Pacer,
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
        let congestion = CongestionControl::new(config, mss, initial);
        Sender {
            source,
            initial,
            mss,
            una: Offset::SYN,
            nxt: Offset::SYN,
            max: Offset::SYN,
            window: SendWindow::new(),
            ledger: congestion.uses_rate_samples().then(Ledger::default),
            by_time: None,
            round_end: Offset::SYN,
            congestion,
            rtt: RttEstimator::new(RtoConfig::new(config)),
            recovery: Recovery::new(config, mss, false),
            era: Era::new(config),
            pacer: Pacer::new(config),
            probe: WindowProbe::default(),
            sent_at: Time::ZERO,
            received_at: Time::ZERO,
            counts: Counts::default(),
            samples: Some(Vec::new()),
            config: Arc::clone(config),
        }
    }

    /// The handshake has settled the segment size, and whether there are selective acks.
    pub fn on_agreement(&mut self, mss: u32, sack: bool) {
        self.mss = mss;
        self.congestion = CongestionControl::new(&self.config, mss, self.initial);
        self.recovery = Recovery::new(&self.config, mss, sack);
        self.by_time = self.recovery.by_time.then(|| LossDetection::new(&self.config));
        let has_records = self.by_time.is_some() || self.congestion.uses_rate_samples();
        self.ledger = has_records.then(Ledger::default);
    }

    /// The congestion window: the controller's, or that of fast recovery.
    #[inline]
    pub fn cwnd(&self) -> f64 {
        self.recovery.window().unwrap_or_else(|| self.congestion.window())
    }

    /// What is outstanding, as recovery sees it.
    pub fn outstanding(&self) -> Outstanding {
        Outstanding { una: self.una, max: self.max, mss: u64::from(self.mss) }
    }

    /// What a segment that leaves may report.
    pub fn outgoing(&self, data: bool, receiver: &Receiver) -> Outgoing {
        let cwnd = self.cwnd();
        Outgoing {
            data,
            cwnd,
            mss: f64::from(self.mss),
            in_slow_start: self.congestion.in_slow_start(cwnd),
            buffered: self.data_end().since(self.una),
            next: receiver.next,
            out_of_order: receiver.out_of_order,
        }
    }

    /// A signal of congestion, with a window of `cwnd` before it.
    pub fn on_loss(&mut self, now: Time, signal: Signal, cwnd: f64) {
        let (flight, in_flight) = (self.flight_within(cwnd), self.in_flight());
        self.congestion.on_loss(&Loss { now, signal, flight, in_flight });
    }

    /// The full queue of the host's own interface dropped a packet. In fast recovery the window is small until that
    /// ends.
    pub fn on_quench(&mut self, now: Time) {
        if self.recovery.window().is_some() {
            self.recovery.bound_inflated(f64::from(self.mss));
        } else {
            self.on_loss(now, Signal::Quench, self.cwnd());
        }
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

    /// Smoothed round-trip time in seconds; 0 before the first sample.
    pub fn srtt_s(&self) -> f64 {
        self.rtt.srtt().unwrap_or_default().as_secs_f64()
    }

    /// FlightSize: bytes outstanding.
    pub fn flight(&self) -> u64 {
        self.max.max(self.nxt).since(self.una)
    }

    /// Bytes in the network, as far as records of segments tell.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.ledger.as_ref().map_or_else(|| self.flight(), Ledger::bytes_in_flight)
    }

    /// FlightSize for a decrease: what the window let go, at least a segment.
    fn flight_within(&self, window: f64) -> u64 {
        self.flight().min(window.max(f64::from(self.mss)) as u64)
    }

    /// Bytes of data that the peer has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.una.data_bytes().min(self.source.end().unwrap_or(u64::MAX))
    }

    /// The next data segment to send, as its first byte and length; `None` when none may go now.
    #[inline(always)]
    pub fn next_data(&mut self, now: Time, timers: &mut TimerTable) -> Option<Piece> {
        let mss = u64::from(self.mss);
        if self.recovery.resend {
            let length = self.data_end().since(self.una).min(mss).min(self.recovery.scoreboard.room(self.una));
            return Some((self.una, length));
        }
        if let Some(probe) = self.next_probe() {
            return Some(probe);
        }
        self.restart_after_idle(now);
        let Some(next) = self.next_in_window(now, mss) else {
            self.watch_application();
            return None;
        };
        let spacing = || (self.cwnd() / f64::from(self.mss), self.era.burst_rtt(&self.rtt));
        self.pacer.may_send(now, self.congestion.pacing_rate(), spacing, timers).then_some(next)
    }

    /// Nothing goes. If the window has room, the application limits the delivery rate.
    #[inline]
    fn watch_application(&mut self) {
        let Some(ledger) = &self.ledger else { return };
        let has_room = ledger.bytes_in_flight() + u64::from(self.mss) <= self.cwnd() as u64;
        if self.nxt >= self.data_end() && has_room && ledger.first_lost().is_none() {
            self.ledger.iter_mut().for_each(Ledger::on_app_limited);
        }
    }

    /// RFC 5681 4.1. It counts from the last data sent; 4.4BSD's t_idle from the last segment that arrived, so that one
    /// which opens a closed window finds no idle sender (ton figure 11).
    #[inline]
    fn restart_after_idle(&mut self, now: Time) {
        let since = if self.rtt.is_bsd() { self.received_at } else { self.sent_at };
        if self.una >= self.max && self.max > Offset::FIRST_BYTE && now - since > self.rtt.rto() {
            self.congestion.on_idle();
            let initial = f64::from(self.config.initial_window_segments) * f64::from(self.mss);
            self.recovery.bound_inflated(initial);
        }
    }

    /// The next data segment, whenever it may leave.
    #[inline(always)]
    fn next_in_window(&mut self, now: Time, mss: u64) -> Option<Piece> {
        if let Some(selective) = self.recovery.selective.as_ref().filter(|_| self.recovery.is_active()) {
            let choice = Choice {
                scoreboard: &self.recovery.scoreboard,
                outstanding: self.outstanding(),
                cwnd: self.cwnd() as u64,
                now,
                rtt: self.rtt.srtt().unwrap_or_else(|| self.rtt.rto()).max(Duration::from_millis(1)),
            };
            return selective.next(&choice, &|| self.fresh(self.nxt, Offset::MAX));
        }
        if self.recovery.by_time {
            return self.next_by_time(mss);
        }
        self.nxt = self.recovery.scoreboard.skip_held(self.nxt);
        if self.nxt >= self.data_end() {
            return self.rest(self.nxt);
        }
        let mut cwnd = self.cwnd() as u64;
        let departed = self.era.departed(&self.recovery);
        if departed > 0 {
            cwnd = self.recovery.with_departed(self.cwnd(), departed, f64::from(self.mss)) as u64;
        }
        if self.config.limited_transmit && !self.recovery.is_active() {
            // RFC 3042: up to two segments beyond the window, one a duplicate ack.
            cwnd += u64::from(self.recovery.duplicates.min(2)) * mss;
        }
        self.fresh(self.nxt, self.una + cwnd)
    }

    /// A segment from `at` on that ends before `limit` and the edge of the peer's window.
    #[inline(always)]
    pub fn fresh(&self, at: Offset, limit: Offset) -> Option<Piece> {
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
    fn rest(&self, at: Offset) -> Option<Piece> {
        (self.source.finished() && at == self.data_end()).then_some((at, 0))
    }

    /// A data segment of `length` bytes from `at` on is sent; `end` is one beyond it, and its FIN if it has one.
    #[inline(always)]
    pub fn on_transmit(&mut self, now: Time, at: Offset, length: u64, end: Offset, timers: &mut TimerTable) {
        let again = at < self.max;
        if length > 0 {
            let outstanding = if self.recovery.by_time { self.in_flight() } else { self.max.since(self.una) };
            let is_app_limited = self.ledger.as_ref().is_some_and(Ledger::is_app_limited);
            let srtt_s = self.srtt_s();
            self.congestion.on_sent(&Sent { now, bytes: length, outstanding, is_app_limited, srtt_s });
        }
        self.record_sent(now, (at, end), again, timers);
        self.pacer.on_transmit(now, length, self.congestion.pacing_rate(), self.congestion.send_quantum());
        self.sent_at = now;
        if let Some(selective) = &mut self.recovery.selective {
            selective.on_transmit(now, (at, length), end, again);
        }
        if again {
            self.counts.retransmitted += 1;
            if self.era.stops_timing(&self.recovery) {
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
        if self.by_time.is_some() {
            let is_full = self.in_flight() + u64::from(self.mss) > self.cwnd() as u64;
            self.by_time.iter_mut().for_each(|by_time| by_time.window_use.on_transmit(self.una, self.max, is_full));
        }
        timers.stop(Timer::Persist);
        if !timers.is_set(Timer::Retransmission) {
            timers.set(Timer::Retransmission, self.rtt.deadline(now));
        }
    }

    /// The retransmission timer has expired with data outstanding: everything goes again, from slow start.
    pub fn on_retransmission_timeout(&mut self, cx: &mut Context) {
        self.mark_lost_at_timeout(cx.now);
        // RFC 5681 3.1 keeps the threshold when a segment times out again; 4.4BSD and ns-2 halve the one segment that
        // the window then is.
        let again = self.rtt.backoff > 0 && self.rtt.is_modern();
        let cwnd = self.era.window_at_timeout(self.cwnd(), self.congestion.ssthresh(), &self.recovery);
        self.on_loss(cx.now, Signal::Timeout { again }, cwnd);
        cx.extensions.on_timeout();
        cx.ecn.on_reduction(self.max);
        self.counts.timeouts += 1;
        if let Some(at) = self.era.early_timer(cx.now, &self.rtt, false) {
            cx.timers.set(Timer::Retransmission, at);
        }
        self.rtt.back_off();
        self.rtt.stop_timing();
        if self.recovery.by_time {
            self.begin_timeout_recovery(cx.now, again, cx.timers);
        } else {
            self.recovery.on_timeout(self.max);
            self.nxt = self.una;
        }
        self.record(cx.now, SenderEvent::Timeout);
    }

    /// Sets the persist timer when the peer's window, closed or too small for a full segment, is all that holds data
    /// back (RFC 9293 3.8.6.1; the override timeout of 3.8.6.2.1).
    #[inline]
    pub fn watch_closed_window(&mut self, now: Time, timers: &mut TimerTable) {
        let waits = self.data_end() > self.nxt && self.una >= self.nxt && !self.probe.due;
        let is_closed = self.window.edge.since(self.nxt) < u64::from(self.mss);
        if waits && is_closed && self.era.probes_instead_of_timing() {
            timers.stop(Timer::Retransmission);
        }
        if waits && !timers.is_set(Timer::Retransmission) && !timers.is_set(Timer::Persist) {
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
        let (outstanding, cwnd, ssthresh) = (self.flight(), self.cwnd(), self.congestion.ssthresh());
        let Some(samples) = &mut self.samples else { return };
        samples.push(Sample {
            at,
            event,
            cwnd,
            ssthresh,
            outstanding,
            rtt: self.rtt.latest,
            srtt: self.rtt.srtt(),
            rto: self.rtt.rto(),
            duplicates: self.recovery.duplicates,
            burst: self.pacer.last(),
        });
    }
}
