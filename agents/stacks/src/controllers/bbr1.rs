//! BBR's first version (draft-cardwell-iccrg-bbr-congestion-control-00): the window and the pacing rate follow from the
//! path's greatest delivery rate of ten round trips and its least round trip of ten seconds. Functions and variables have
//! the draft's names. Where Linux 7.3 (`tcp_bbr.c`), which people run, decides otherwise or has more, this file follows
//! Linux: a rate of its own behind policers ([`policer`]), windows that allow for aggregated acks, a pacing rate 1 %
//! below the estimate, and gains in 256ths.
//!
//! Rates are in bytes a second; volumes are in segments, and `delivered` and `lost` in bytes.
//!
//! Differs from Linux: the maximum of the delivery rates is exact, where Linux keeps three of them; times are exact,
//! where Linux counts ticks; losses that a timer found reduce the window with the next ack.

mod policer;

use std::time::Duration;

use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;

use super::bbr::filters::MaxOfRounds;
use super::{AckSample, CongestionController, Exit, Loss, Lost, RateSample, Sent, Signal};
use crate::config::Config;
use policer::Policer;

/// BBRHighGain: 2/ln(2), and its inverse (4.3.2.1, 4.3.3).
const HIGH_GAIN: f64 = 739.0 / 256.0;
const DRAIN_GAIN: f64 = 88.0 / 256.0;
const CWND_GAIN: f64 = 2.0;
/// The gain cycle (4.3.4.3).
const PACING_GAIN_CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// BtlBwFilterLen, in round trips (4.1.1.2).
const BTL_BW_FILTER_LEN: u64 = 10;
/// RTpropFilterLen, which is ProbeRTTInterval too (4.1.2.2).
const RT_PROP_FILTER_LEN: Duration = Duration::from_secs(10);
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
/// BBRMinPipeCwnd (4.2.3.3).
const MIN_PIPE_CWND: f64 = 4.0;
/// Startup goes on while a round trip brings so many times the rate, and ends after three that do not (4.3.2.2).
const FULL_BW_GROWTH: f64 = 1.25;
const FULL_BW_ROUNDS: u32 = 3;
/// The round trip that the first pacing rate assumes (4.2.1).
const NOMINAL_RTT_S: f64 = 0.001;
const PACING_MARGIN: f64 = 0.01;
/// Segments before the first that is paced.
const UNPACED_SEGMENTS: u32 = 10;
/// Below this pacing rate a quantum may be a single segment (4.2.2).
const LOW_RATE: f64 = 150_000.0;
const QUANTUM_S: f64 = 1.0 / 1024.0;
const MOST_QUANTUM: f64 = 65_536.0;
/// Round trips of one of the two windows of extra acks, and how much they may add, in seconds of the rate.
const EXTRA_ACKED_ROUNDS: u32 = 5;
const MOST_EXTRA_ACKED_S: f64 = 0.1;

/// BBR.state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// What the connection does about losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    None,
    Fast,
    Timeout,
}

/// Acks of more than the rate explains. Volumes in segments.
#[derive(Clone, Copy, Debug, Default)]
struct ExtraAcked {
    /// The most of the current and of the last window.
    most: [f64; 2],
    current: usize,
    rounds: u32,
    epoch_start: Time,
    epoch_acked: f64,
}

/// The controller of one connection.
#[derive(Debug)]
pub struct Bbr1 {
    rng: RunRng,
    smss: f64,
    initial_cwnd: f64,
    limit: f64,
    // Output.
    cwnd: f64,
    pacing_rate: f64,
    // What the draft takes as given.
    delivered: u64,
    lost: u64,
    in_flight: f64,
    has_srtt: bool,
    segments_sent: u32,
    /// When the next segment may leave.
    next_send_time: Time,
    recovery: Recovery,
    /// At the last ack.
    prior_recovery: Recovery,
    // The path (4.1).
    btl_bw_filter: MaxOfRounds,
    rt_prop: Option<Duration>,
    rt_prop_stamp: Time,
    rt_prop_expired: bool,
    round_count: u64,
    round_start: bool,
    next_round_delivered: u64,
    policer: Policer,
    extra_acked: ExtraAcked,
    // The state machine (4.3).
    state: State,
    pacing_gain: f64,
    cwnd_gain: f64,
    filled_pipe: bool,
    full_bw: f64,
    full_bw_count: u32,
    cycle_index: usize,
    cycle_stamp: Time,
    idle_restart: bool,
    packet_conservation: bool,
    prior_cwnd: f64,
    probe_rtt_done_stamp: Option<Time>,
    probe_rtt_round_done: bool,
}

impl Bbr1 {
    /// BBRInit (4.3.1). `seed` is for the phases in which gain cycles begin.
    pub fn new(config: &Config, mss: u32, seed: u32) -> Bbr1 {
        let smss = f64::from(mss);
        let initial_cwnd = f64::from(config.initial_window_segments);
        Bbr1 {
            rng: rng::stream(u64::from(seed), "bbr1"),
            smss,
            initial_cwnd,
            limit: f64::from(config.max_window_segments),
            cwnd: initial_cwnd,
            pacing_rate: HIGH_GAIN * initial_cwnd * smss / NOMINAL_RTT_S * (1.0 - PACING_MARGIN),
            delivered: 0,
            lost: 0,
            in_flight: 0.0,
            has_srtt: false,
            segments_sent: 0,
            next_send_time: Time::ZERO,
            recovery: Recovery::None,
            prior_recovery: Recovery::None,
            btl_bw_filter: MaxOfRounds::default(),
            rt_prop: None,
            rt_prop_stamp: Time::ZERO,
            rt_prop_expired: false,
            round_count: 0,
            round_start: false,
            next_round_delivered: 0,
            policer: Policer::default(),
            extra_acked: ExtraAcked::default(),
            state: State::Startup,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            filled_pipe: false,
            full_bw: 0.0,
            full_bw_count: 0,
            cycle_index: 0,
            cycle_stamp: Time::ZERO,
            idle_restart: false,
            packet_conservation: false,
            prior_cwnd: 0.0,
            probe_rtt_done_stamp: None,
            probe_rtt_round_done: false,
        }
    }

    fn segments(&self, bytes: u64) -> f64 {
        bytes as f64 / self.smss
    }

    // 4.1 The model of the path

    /// BBR.BtlBw: the policer's rate, if there is one.
    fn btl_bw(&self) -> f64 {
        self.policer.rate().unwrap_or_else(|| self.btl_bw_filter.get())
    }

    /// 4.1.1.3.
    fn update_round(&mut self, rs: &RateSample) {
        self.round_start = rs.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.next_round_delivered = self.delivered;
            self.round_count += 1;
            self.packet_conservation = false;
        }
    }

    /// 4.1.1.5.
    fn update_btl_bw(&mut self, ack: &AckSample) {
        self.round_start = false;
        let Some(rs) = &ack.rate else { return };
        self.update_round(rs);
        self.watch_for_policer(ack.now, ack.lost > 0, rs.is_app_limited);
        if !rs.is_app_limited || rs.delivery_rate >= self.btl_bw_filter.get() {
            self.btl_bw_filter.update(rs.delivery_rate, self.round_count, BTL_BW_FILTER_LEN);
        }
    }

    fn watch_for_policer(&mut self, now: Time, has_losses: bool, is_app_limited: bool) {
        let (delivered, lost) = (self.delivered, self.lost);
        let ack = policer::Ack { now, round_start: self.round_start, has_losses, is_app_limited, delivered, lost };
        match self.policer.on_ack(&ack, self.state == State::ProbeBw) {
            Some(policer::Change::Found) => self.pacing_gain = 1.0,
            Some(policer::Change::Forgotten) => self.enter_probe_bw(now),
            None => {}
        }
    }

    /// Acks that arrive together let the window be larger, so that the sender has something to send until the next
    /// ones do.
    fn update_ack_aggregation(&mut self, ack: &AckSample) {
        if ack.rate.is_none() || ack.delivered == 0 {
            return;
        }
        let (acked, btl_bw) = (self.segments(ack.delivered), self.btl_bw() / self.smss);
        let extra = &mut self.extra_acked;
        extra.rounds += u32::from(self.round_start);
        if extra.rounds >= EXTRA_ACKED_ROUNDS {
            extra.rounds = 0;
            extra.current = 1 - extra.current;
            extra.most[extra.current] = 0.0;
        }
        let mut expected = (btl_bw * (ack.now - extra.epoch_start).as_secs_f64()).floor();
        if extra.epoch_acked <= expected {
            (extra.epoch_start, extra.epoch_acked, expected) = (ack.now, 0.0, 0.0);
        }
        extra.epoch_acked += acked;
        let more = (extra.epoch_acked - expected).min(self.cwnd);
        extra.most[extra.current] = extra.most[extra.current].max(more);
    }

    /// 4.1.2.3. An ack that may have waited for a delayed-ack timer does not replace an estimate that has expired.
    fn update_rt_prop(&mut self, ack: &AckSample) {
        self.rt_prop_expired = ack.now > self.rt_prop_stamp + RT_PROP_FILTER_LEN;
        let Some(rtt) = ack.rate.and_then(|rs| rs.rtt).or(ack.rtt) else { return };
        let is_delayed = ack.rate.is_some_and(|rs| (rs.delivered as f64) < self.smss);
        if self.rt_prop.is_none_or(|least| rtt < least) || (self.rt_prop_expired && !is_delayed) {
            (self.rt_prop, self.rt_prop_stamp) = (Some(rtt), ack.now);
        }
    }

    // 4.2 Control parameters

    /// BBRSetPacingRateWithGain (4.2.1).
    fn set_pacing_rate_with_gain(&mut self, gain: f64) {
        let rate = gain * self.btl_bw() * (1.0 - PACING_MARGIN);
        if self.filled_pipe || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// BBRInitPacingRate, with the round trip of the handshake, which is BBR.RTprop too.
    fn init_pacing_rate(&mut self, now: Time, srtt_s: f64) {
        if !self.has_srtt && srtt_s > 0.0 {
            self.has_srtt = true;
            self.pacing_rate = HIGH_GAIN * self.cwnd * self.smss / srtt_s * (1.0 - PACING_MARGIN);
            if self.segments_sent == 0 {
                (self.rt_prop, self.rt_prop_stamp) = (Some(Duration::from_secs_f64(srtt_s)), now);
            }
        }
    }

    /// BBR.send_quantum (4.2.2).
    fn quantum(&self) -> f64 {
        let least = if self.pacing_rate < LOW_RATE { 1.0 } else { 2.0 };
        ((self.pacing_rate * QUANTUM_S).min(MOST_QUANTUM) / self.smss).floor().max(least)
    }

    fn bdp(&self, bw: f64, gain: f64) -> f64 {
        let of = |rt_prop: Duration| (gain * bw * rt_prop.as_secs_f64() / self.smss).ceil();
        self.rt_prop.map_or(self.initial_cwnd, of)
    }

    /// The quanta of BBRInflight. An even window brings fewer delayed acks, and two segments more let a probe exceed even
    /// a small volume.
    fn with_quanta(&self, volume: f64) -> f64 {
        let even = 2.0 * ((volume + 3.0 * self.quantum()) / 2.0).ceil();
        even + if self.state == State::ProbeBw && self.cycle_index == 0 { 2.0 } else { 0.0 }
    }

    /// BBRInflight (4.2.3.2).
    fn inflight(&self, gain: f64) -> f64 {
        self.with_quanta(self.bdp(self.btl_bw_filter.get(), gain))
    }

    /// BBRUpdateTargetCwnd.
    fn target_cwnd(&self) -> f64 {
        let [first, second] = self.extra_acked.most;
        let most_extra = (self.btl_bw() * MOST_EXTRA_ACKED_S / self.smss).floor();
        let extra = if self.filled_pipe { first.max(second).floor().min(most_extra) } else { 0.0 };
        self.with_quanta(self.bdp(self.btl_bw(), self.cwnd_gain) + extra)
    }

    /// BBRSaveCwnd (4.2.3.4).
    fn save_cwnd(&mut self) {
        let unmodulated = self.prior_recovery == Recovery::None && self.state != State::ProbeRtt;
        self.prior_cwnd = if unmodulated { self.cwnd } else { self.prior_cwnd.max(self.cwnd) };
    }

    fn restore_cwnd(&mut self) {
        self.packet_conservation = false;
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }

    /// BBRModulateCwndForRecovery (4.2.3.4).
    fn modulate_cwnd_for_recovery(&mut self, acked: f64, lost: f64) {
        if lost > 0.0 {
            self.cwnd = (self.cwnd - lost).max(1.0);
        }
        if self.recovery == Recovery::Fast && self.prior_recovery != Recovery::Fast {
            self.packet_conservation = true;
            self.next_round_delivered = self.delivered;
            self.cwnd = self.in_flight + acked;
        } else if self.recovery == Recovery::None && self.prior_recovery != Recovery::None {
            self.restore_cwnd();
        }
        self.prior_recovery = self.recovery;
        if self.packet_conservation {
            self.cwnd = self.cwnd.max(self.in_flight + acked);
        }
    }

    /// The core of BBRSetCwnd (4.2.3.6).
    fn grow_cwnd(&mut self, acked: f64) {
        let target_cwnd = self.target_cwnd();
        if self.filled_pipe {
            self.cwnd = (self.cwnd + acked).min(target_cwnd);
        } else if self.cwnd < target_cwnd || self.segments(self.delivered) < self.initial_cwnd {
            self.cwnd += acked;
        }
        self.cwnd = self.cwnd.max(MIN_PIPE_CWND);
    }

    fn bound_cwnd(&mut self) {
        self.cwnd = self.cwnd.min(self.limit);
        if self.state == State::ProbeRtt {
            self.cwnd = self.cwnd.min(MIN_PIPE_CWND);
        }
    }

    /// BBRSetCwnd.
    fn set_cwnd(&mut self, acked: f64, lost: f64) {
        if acked > 0.0 {
            self.modulate_cwnd_for_recovery(acked, lost);
            if !self.packet_conservation {
                self.grow_cwnd(acked);
            }
        }
        self.bound_cwnd();
    }

    // 4.3.2 Startup, 4.3.3 Drain

    /// BBRCheckFullPipe (4.3.2.2).
    fn check_full_pipe(&mut self, is_app_limited: bool) {
        if self.filled_pipe || !self.round_start || is_app_limited {
            return;
        }
        let btl_bw = self.btl_bw_filter.get();
        if btl_bw >= self.full_bw * FULL_BW_GROWTH {
            (self.full_bw, self.full_bw_count) = (btl_bw, 0);
            return;
        }
        self.full_bw_count += 1;
        self.filled_pipe = self.full_bw_count >= FULL_BW_ROUNDS;
    }

    /// BBRCheckDrain (4.3.3).
    fn check_drain(&mut self, now: Time) {
        if self.state == State::Startup && self.filled_pipe {
            self.state = State::Drain;
        }
        if self.state == State::Drain && self.in_network_when_next_leaves(now, self.in_flight) <= self.inflight(1.0) {
            self.enter_probe_bw(now);
        }
    }

    // 4.3.4 ProbeBW

    /// BBREnterProbeBW: in any phase but that of 3/4, because there is no queue to drain.
    fn enter_probe_bw(&mut self, now: Time) {
        self.state = State::ProbeBw;
        self.cycle_index = PACING_GAIN_CYCLE.len() - 1 - rng::below(&mut self.rng, 7) as usize;
        self.advance_cycle_phase(now);
    }

    fn advance_cycle_phase(&mut self, now: Time) {
        self.cycle_stamp = now;
        self.cycle_index = (self.cycle_index + 1) % PACING_GAIN_CYCLE.len();
    }

    fn check_cycle_phase(&mut self, ack: &AckSample) {
        if self.state == State::ProbeBw && self.is_next_cycle_phase(ack) {
            self.advance_cycle_phase(ack.now);
        }
    }

    fn is_next_cycle_phase(&self, ack: &AckSample) -> bool {
        let is_full_length = self.rt_prop.is_some_and(|rt_prop| ack.now - self.cycle_stamp > rt_prop);
        if self.pacing_gain == 1.0 {
            return is_full_length;
        }
        let prior_inflight = self.segments(ack.in_flight + ack.delivered + ack.lost);
        let in_network = self.in_network_when_next_leaves(ack.now, prior_inflight);
        if self.pacing_gain > 1.0 {
            return is_full_length && (ack.lost > 0 || in_network >= self.inflight(self.pacing_gain));
        }
        is_full_length || in_network <= self.inflight(1.0)
    }

    /// Of `inflight`, what will be in the network when the pacer lets the next segment go.
    fn in_network_when_next_leaves(&self, now: Time, inflight: f64) -> f64 {
        let wait = self.next_send_time.max(now) - now;
        let delivered = (self.btl_bw() * wait.as_secs_f64() / self.smss).floor();
        let next = if self.pacing_gain > 1.0 { self.quantum() } else { 0.0 };
        (inflight + next - delivered).max(0.0)
    }

    /// BBRHandleRestartFromIdle (4.3.4.4).
    fn handle_restart_from_idle(&mut self, now: Time) {
        self.idle_restart = true;
        (self.extra_acked.epoch_start, self.extra_acked.epoch_acked) = (now, 0.0);
        match self.state {
            State::ProbeBw => self.set_pacing_rate_with_gain(1.0),
            State::ProbeRtt => self.check_probe_rtt_done(now),
            State::Startup | State::Drain => {}
        }
    }

    // 4.3.5 ProbeRTT

    /// BBRCheckProbeRTT.
    fn check_probe_rtt(&mut self, ack: &AckSample) {
        if self.state != State::ProbeRtt && self.rt_prop_expired && !self.idle_restart {
            self.save_cwnd();
            self.state = State::ProbeRtt;
            self.probe_rtt_done_stamp = None;
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(ack.now);
        }
        if ack.rate.is_some_and(|rs| rs.delivered > 0) {
            self.idle_restart = false;
        }
    }

    fn handle_probe_rtt(&mut self, now: Time) {
        if self.probe_rtt_done_stamp.is_none() {
            if self.in_flight <= MIN_PIPE_CWND {
                self.probe_rtt_done_stamp = Some(now + PROBE_RTT_DURATION);
                self.probe_rtt_round_done = false;
                self.next_round_delivered = self.delivered;
            }
            return;
        }
        self.probe_rtt_round_done |= self.round_start;
        if self.probe_rtt_round_done {
            self.check_probe_rtt_done(now);
        }
    }

    /// Goes back to the state before.
    fn check_probe_rtt_done(&mut self, now: Time) {
        if self.probe_rtt_done_stamp.is_none_or(|done| now <= done) {
            return;
        }
        self.rt_prop_stamp = now;
        self.cwnd = self.cwnd.max(self.prior_cwnd);
        if self.filled_pipe {
            self.enter_probe_bw(now);
        } else {
            self.state = State::Startup;
        }
    }

    /// The gains of each state.
    fn update_gains(&mut self) {
        (self.pacing_gain, self.cwnd_gain) = match self.state {
            State::Startup => (HIGH_GAIN, HIGH_GAIN),
            State::Drain => (DRAIN_GAIN, HIGH_GAIN),
            State::ProbeBw if self.policer.rate().is_some() => (1.0, CWND_GAIN),
            State::ProbeBw => (PACING_GAIN_CYCLE[self.cycle_index], CWND_GAIN),
            State::ProbeRtt => (1.0, 1.0),
        };
    }
}

impl CongestionController for Bbr1 {
    fn on_sent(&mut self, sent: &Sent) {
        self.init_pacing_rate(sent.now, sent.srtt_s);
        if sent.outstanding == 0 && sent.is_app_limited {
            self.handle_restart_from_idle(sent.now);
        }
        self.segments_sent = self.segments_sent.saturating_add(1);
        if let Some(rate) = self.pacing_rate() {
            let start = self.next_send_time.max(sent.now);
            self.next_send_time = start + Duration::from_secs_f64(sent.bytes as f64 / rate);
        }
    }

    /// BBRUpdateModelAndState and BBRUpdateControlParameters (3.5.2).
    fn on_ack(&mut self, ack: &AckSample) {
        self.in_flight = self.segments(ack.in_flight);
        self.delivered = ack.rate.map_or(self.delivered + ack.delivered, |rs| rs.total_delivered);
        self.update_btl_bw(ack);
        self.update_ack_aggregation(ack);
        self.check_cycle_phase(ack);
        self.check_full_pipe(ack.rate.is_some_and(|rs| rs.is_app_limited));
        self.check_drain(ack.now);
        self.update_rt_prop(ack);
        self.check_probe_rtt(ack);
        self.update_gains();
        self.set_pacing_rate_with_gain(self.pacing_gain);
        self.set_cwnd(self.segments(ack.delivered), self.segments(ack.lost));
    }

    fn on_lost(&mut self, _: Time, lost: &Lost) {
        self.lost += lost.bytes;
    }

    fn on_loss(&mut self, loss: &Loss) {
        match loss.signal {
            Signal::Duplicates => {
                self.save_cwnd();
                self.recovery = Recovery::Fast;
            }
            Signal::Timeout { .. } => {
                self.save_cwnd();
                (self.recovery, self.prior_recovery) = (Recovery::Timeout, Recovery::Timeout);
                self.cwnd = self.segments(loss.in_flight) + 1.0;
                self.full_bw = 0.0;
                // A timeout counts as the end of a round trip.
                self.round_start = true;
                self.watch_for_policer(loss.now, true, false);
            }
            Signal::Mark | Signal::Quench => {}
        }
    }

    /// The window is restored with the ack that ends the recovery.
    fn on_recovery_end(&mut self, ack: &AckSample, _: Exit) {
        self.recovery = Recovery::None;
        if self.prior_recovery != Recovery::None && ack.delivered > 0 {
            self.set_cwnd(self.segments(ack.delivered), 0.0);
        }
    }

    /// Startup looks for a full pipe anew. The window is restored with the next ack.
    fn on_spurious_loss(&mut self) {
        self.recovery = Recovery::None;
        (self.full_bw, self.full_bw_count) = (0.0, 0);
        self.policer = Policer::default();
    }

    fn window(&self) -> f64 {
        self.cwnd * self.smss
    }

    fn in_slow_start(&self, _: f64) -> bool {
        self.state == State::Startup
    }

    fn pacing_rate(&self) -> Option<f64> {
        (self.segments_sent >= UNPACED_SEGMENTS).then_some(self.pacing_rate)
    }

    fn send_quantum(&self) -> u64 {
        (self.quantum() * self.smss) as u64
    }

    /// The window of the first round of recovery holds until the last loss is repaired, and not again and again.
    fn recovers_at_once(&self) -> bool {
        true
    }

    fn uses_rate_samples(&self) -> bool {
        true
    }

    /// In ProbeRTT.
    fn limits_samples(&self) -> bool {
        self.state == State::ProbeRtt
    }
}

#[cfg(test)]
mod tests;
