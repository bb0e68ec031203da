//! BBRv3 (draft-ietf-ccwg-bbr of 3 August 2026): the window and the pacing rate follow from a model of the path, its
//! bandwidth and its least round trip, which the sender probes in turn. The functions are those of sections 5.2 to 5.6,
//! by their names there, and so are the variables; `bbr/filters.rs` has the windowed maxima.
//!
//! Rates are in bytes a second, volumes in bytes.
//!
//! Differs from the source: there is no offload, so that the send quantum is a segment or two and the offload budget
//! three of them.

pub(super) mod filters;

use std::time::Duration;

use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;

use super::{AckSample, CongestionController, Exit, Loss, Lost, RateSample, Sent, Signal};
use crate::config::Config;
use filters::{MaxBw, MaxOfRounds};

/// Constants of sections 2.4 to 2.13.
const STARTUP_PACING_GAIN: f64 = 2.77;
const DRAIN_PACING_GAIN: f64 = 0.5;
const PROBE_DOWN_PACING_GAIN: f64 = 0.9;
const PROBE_UP_PACING_GAIN: f64 = 1.25;
const PACING_MARGIN: f64 = 0.01;
const DEFAULT_CWND_GAIN: f64 = 2.0;
const PROBE_UP_CWND_GAIN: f64 = 2.25;
const PROBE_RTT_CWND_GAIN: f64 = 0.5;
const LOSS_THRESH: f64 = 0.02;
const BETA: f64 = 0.7;
const HEADROOM: f64 = 0.15;
const MIN_PIPE_SEGMENTS: f64 = 4.0;
const STARTUP_FULL_LOSS_COUNT: u32 = 6;
const EXTRA_ACKED_FILTER_LEN: u64 = 10;
const MIN_RTT_FILTER_LEN: Duration = Duration::from_secs(10);
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
/// The round trip that the first pacing rate assumes (5.6.2).
const NOMINAL_RTT_S: f64 = 0.001;
/// Round trips after which Drain ends whatever is in flight (5.3.2).
const DRAIN_ROUNDS: u64 = 3;
/// Round trips after which a flow probes to coexist with Reno and CUBIC, at most (5.3.3.8).
const COEXISTENCE_ROUNDS: f64 = 63.0;

/// BBR.state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    ProbeBwDown,
    ProbeBwCruise,
    ProbeBwRefill,
    ProbeBwUp,
    ProbeRtt,
}

/// BBR.ack_phase: what acks tell of the bandwidth probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// What HandleSpuriousLossDetection restores.
#[derive(Clone, Copy, Debug, Default)]
struct Undo {
    state: Option<State>,
    bw_shortterm: f64,
    inflight_shortterm: f64,
    inflight_longterm: f64,
}

/// The controller of one connection.
#[derive(Debug)]
pub struct Bbr {
    rng: RunRng,
    smss: f64,
    initial_cwnd: f64,
    limit: f64,
    // Output.
    cwnd: f64,
    pacing_rate: f64,
    send_quantum: f64,
    // Connection state that the draft takes as given.
    delivered: u64,
    in_flight: f64,
    is_cwnd_limited: bool,
    was_cwnd_limited: bool,
    in_loss_recovery: bool,
    has_srtt: bool,
    // General state.
    state: State,
    pacing_gain: f64,
    cwnd_gain: f64,
    round_count: u64,
    round_start: bool,
    next_round_delivered: u64,
    idle_restart: bool,
    drain_start_round: u64,
    prior_cwnd: f64,
    undo: Undo,
    // The path.
    max_bw: MaxBw,
    bw: f64,
    bw_shortterm: f64,
    inflight_shortterm: f64,
    inflight_longterm: f64,
    extra_acked: MaxOfRounds,
    extra_acked_interval_start: Time,
    extra_acked_delivered: f64,
    // Congestion signals.
    bw_latest: f64,
    inflight_latest: f64,
    is_loss_in_round: bool,
    losses_in_round: u32,
    lost_in_round: f64,
    loss_round_delivered: u64,
    loss_round_start: bool,
    /// Startup: the round in which fast recovery began.
    recovery_round: Option<u64>,
    // Full pipe.
    full_bw_reached: bool,
    full_bw_now: bool,
    full_bw: f64,
    full_bw_count: u32,
    // ProbeBW.
    ack_phase: AckPhase,
    is_bw_probe_sample: bool,
    bw_probe_up_acked: f64,
    probe_up_acked_per_inc: f64,
    bw_probe_up_rounds: u32,
    rounds_since_probe_up: u64,
    bw_probe_wait: Duration,
    cycle_stamp: Time,
    prev_probe_too_high: bool,
    prev_probe_precautionary: bool,
    // ProbeRTT.
    min_rtt: Option<Duration>,
    min_rtt_stamp: Time,
    probe_rtt_min_delay: Option<Duration>,
    probe_rtt_min_stamp: Time,
    probe_rtt_expired: bool,
    probe_rtt_done_stamp: Option<Time>,
    probe_rtt_round_done: bool,
}

impl Bbr {
    /// OnInit (5.2.1). `seed` is for the times between probes.
    pub fn new(config: &Config, mss: u32, seed: u32) -> Bbr {
        let smss = f64::from(mss);
        let initial_cwnd = smss * f64::from(config.initial_window_segments);
        let mut bbr = Bbr {
            rng: rng::stream(u64::from(seed), "bbr"),
            smss,
            initial_cwnd,
            limit: smss * f64::from(config.max_window_segments),
            cwnd: initial_cwnd,
            pacing_rate: STARTUP_PACING_GAIN * initial_cwnd / NOMINAL_RTT_S,
            send_quantum: 2.0 * smss,
            delivered: 0,
            in_flight: 0.0,
            is_cwnd_limited: false,
            was_cwnd_limited: false,
            in_loss_recovery: false,
            has_srtt: false,
            state: State::Startup,
            pacing_gain: STARTUP_PACING_GAIN,
            cwnd_gain: DEFAULT_CWND_GAIN,
            round_count: 0,
            round_start: false,
            next_round_delivered: 0,
            idle_restart: false,
            drain_start_round: 0,
            prior_cwnd: 0.0,
            undo: Undo::default(),
            max_bw: MaxBw::default(),
            bw: 0.0,
            bw_shortterm: f64::INFINITY,
            inflight_shortterm: f64::INFINITY,
            inflight_longterm: f64::INFINITY,
            extra_acked: MaxOfRounds::default(),
            extra_acked_interval_start: Time::ZERO,
            extra_acked_delivered: 0.0,
            bw_latest: 0.0,
            inflight_latest: 0.0,
            is_loss_in_round: false,
            losses_in_round: 0,
            lost_in_round: 0.0,
            loss_round_delivered: 0,
            loss_round_start: false,
            recovery_round: None,
            full_bw_reached: false,
            full_bw_now: false,
            full_bw: 0.0,
            full_bw_count: 0,
            ack_phase: AckPhase::Init,
            is_bw_probe_sample: false,
            bw_probe_up_acked: 0.0,
            probe_up_acked_per_inc: f64::INFINITY,
            bw_probe_up_rounds: 0,
            rounds_since_probe_up: 0,
            bw_probe_wait: Duration::ZERO,
            cycle_stamp: Time::ZERO,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            min_rtt: None,
            min_rtt_stamp: Time::ZERO,
            probe_rtt_min_delay: None,
            probe_rtt_min_stamp: Time::ZERO,
            probe_rtt_expired: false,
            probe_rtt_done_stamp: None,
            probe_rtt_round_done: false,
        };
        bbr.enter_startup();
        bbr
    }

    // 5.3.1 Startup, 5.3.2 Drain

    fn enter_startup(&mut self) {
        self.state = State::Startup;
        self.pacing_gain = STARTUP_PACING_GAIN;
        self.cwnd_gain = DEFAULT_CWND_GAIN;
    }

    fn reset_full_bw(&mut self) {
        self.full_bw = 0.0;
        self.full_bw_count = 0;
        self.full_bw_now = false;
    }

    fn check_full_bw_reached(&mut self, rs: &RateSample) {
        if self.full_bw_now || !self.round_start || rs.is_app_limited {
            return;
        }
        if rs.delivery_rate >= self.full_bw * 1.25 {
            self.reset_full_bw();
            self.full_bw = rs.delivery_rate;
            return;
        }
        self.full_bw_count += 1;
        self.full_bw_now = self.full_bw_count >= 3;
        self.full_bw_reached |= self.full_bw_now;
    }

    fn check_startup_done(&mut self) {
        self.check_startup_high_loss();
        if self.state == State::Startup && self.full_bw_reached {
            self.enter_drain();
        }
    }

    /// 5.3.1.3: after a whole round trip in fast recovery, with more than 2 % lost of it in six runs or more.
    fn check_startup_high_loss(&mut self) {
        let in_recovery = self.recovery_round.is_some_and(|round| self.round_count > round);
        if self.state != State::Startup || self.full_bw_reached || !in_recovery || !self.loss_round_start {
            return;
        }
        let in_round = self.inflight_latest + self.lost_in_round;
        if self.losses_in_round >= STARTUP_FULL_LOSS_COUNT && self.lost_in_round > LOSS_THRESH * in_round {
            self.undo.state = Some(State::Startup);
            (self.full_bw_reached, self.full_bw_now) = (true, true);
            self.inflight_longterm = self.bdp(1.0).max(self.inflight_latest);
        }
    }

    fn enter_drain(&mut self) {
        self.state = State::Drain;
        self.pacing_gain = DRAIN_PACING_GAIN;
        self.cwnd_gain = DEFAULT_CWND_GAIN;
        self.drain_start_round = self.round_count;
    }

    fn check_drain_done(&mut self, now: Time) {
        let has_drained = self.in_flight <= self.inflight(self.bw, 1.0);
        let is_late = self.round_count > self.drain_start_round + DRAIN_ROUNDS;
        if self.state == State::Drain && (has_drained || is_late) {
            self.enter_probe_bw(now);
        }
    }

    // 5.3.3 ProbeBW

    fn enter_probe_bw(&mut self, now: Time) {
        self.cwnd_gain = DEFAULT_CWND_GAIN;
        self.start_probe_bw_down(now);
    }

    fn start_probe_bw_down(&mut self, now: Time) {
        self.reset_congestion_signals();
        self.probe_up_acked_per_inc = f64::INFINITY;
        self.pick_probe_wait();
        self.cycle_stamp = now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.set_state(State::ProbeBwDown);
    }

    fn start_probe_bw_refill(&mut self) {
        self.reset_short_term_model();
        self.bw_probe_up_rounds = 0;
        self.bw_probe_up_acked = 0.0;
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.set_state(State::ProbeBwRefill);
    }

    fn start_probe_bw_up(&mut self, delivery_rate: f64) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.reset_full_bw();
        self.full_bw = delivery_rate;
        self.set_state(State::ProbeBwUp);
        self.raise_inflight_longterm_slope();
    }

    /// One of the states of ProbeBW, with the gains of the table in 5.6.1.
    fn set_state(&mut self, state: State) {
        self.state = state;
        (self.pacing_gain, self.cwnd_gain) = match state {
            State::ProbeBwDown => (PROBE_DOWN_PACING_GAIN, DEFAULT_CWND_GAIN),
            State::ProbeBwUp => (PROBE_UP_PACING_GAIN, PROBE_UP_CWND_GAIN),
            _ => (1.0, DEFAULT_CWND_GAIN),
        };
    }

    fn update_probe_bw_cycle_phase(&mut self, now: Time, rs: &RateSample, newly_acked: f64) {
        if !self.full_bw_reached || self.adapt_long_term_model(rs, newly_acked) {
            return;
        }
        match self.state {
            State::ProbeBwDown => {
                if !self.is_time_to_probe_bw(now) && self.is_time_to_cruise() {
                    self.set_state(State::ProbeBwCruise);
                }
            }
            State::ProbeBwCruise => {
                self.is_time_to_probe_bw(now);
            }
            State::ProbeBwRefill => {
                if self.round_start {
                    self.is_bw_probe_sample = true;
                    self.start_probe_bw_up(rs.delivery_rate);
                }
            }
            State::ProbeBwUp => {
                if self.is_time_to_go_down(rs.delivery_rate) {
                    self.prev_probe_too_high = false;
                    self.start_probe_bw_down(now);
                }
            }
            State::Startup | State::Drain | State::ProbeRtt => {}
        }
    }

    fn is_in_a_probe_bw_state(&self) -> bool {
        use State::{ProbeBwCruise, ProbeBwDown, ProbeBwRefill, ProbeBwUp};
        matches!(self.state, ProbeBwDown | ProbeBwCruise | ProbeBwRefill | ProbeBwUp)
    }

    fn is_probing_bw(&self) -> bool {
        matches!(self.state, State::Startup | State::ProbeBwRefill | State::ProbeBwUp)
    }

    fn is_time_to_cruise(&self) -> bool {
        self.in_flight <= self.inflight_with_headroom() && self.in_flight <= self.inflight(self.max_bw.get(), 1.0)
    }

    fn is_time_to_go_down(&mut self, delivery_rate: f64) -> bool {
        if self.prev_probe_too_high && self.in_flight >= self.inflight_longterm {
            self.prev_probe_precautionary = true;
            return true;
        }
        if self.used_cwnd() && self.cwnd >= self.inflight_longterm {
            self.reset_full_bw();
            self.full_bw = delivery_rate;
            return false;
        }
        self.full_bw_now
    }

    fn is_time_to_probe_bw(&mut self, now: Time) -> bool {
        let has_waited = now > self.cycle_stamp + self.bw_probe_wait;
        let is_time = has_waited || self.is_reno_coexistence_probe_time();
        if is_time {
            self.start_probe_bw_refill();
        }
        is_time
    }

    fn is_reno_coexistence_probe_time(&self) -> bool {
        let reno_rounds = self.target_inflight() / self.smss;
        self.rounds_since_probe_up as f64 >= reno_rounds.min(COEXISTENCE_ROUNDS)
    }

    fn pick_probe_wait(&mut self) {
        self.rounds_since_probe_up = rng::below(&mut self.rng, 2) as u64;
        self.bw_probe_wait = Duration::from_secs_f64(2.0 + rng::uniform(&mut self.rng));
    }

    fn target_inflight(&self) -> f64 {
        self.bdp(1.0).min(self.cwnd)
    }

    fn inflight_with_headroom(&self) -> f64 {
        if self.inflight_longterm.is_infinite() {
            return f64::INFINITY;
        }
        let headroom = self.smss.max(HEADROOM * self.inflight_longterm);
        (self.inflight_longterm - headroom).max(self.min_pipe_cwnd())
    }

    fn raise_inflight_longterm_slope(&mut self) {
        let growth_this_round = f64::from(1u32 << self.bw_probe_up_rounds);
        self.bw_probe_up_rounds = (self.bw_probe_up_rounds + 1).min(30);
        self.probe_up_acked_per_inc = (self.cwnd / growth_this_round).max(self.smss);
    }

    fn probe_inflight_longterm_upward(&mut self, newly_acked: f64) {
        if !self.used_cwnd() || self.cwnd < self.inflight_longterm {
            return;
        }
        self.bw_probe_up_acked += newly_acked;
        if self.bw_probe_up_acked >= self.probe_up_acked_per_inc {
            let delta = (self.bw_probe_up_acked / self.probe_up_acked_per_inc).floor();
            self.bw_probe_up_acked -= delta * self.probe_up_acked_per_inc;
            self.inflight_longterm += delta * self.smss;
        }
        if self.round_start {
            self.raise_inflight_longterm_slope();
        }
    }

    /// Returns whether it decided a state.
    fn adapt_long_term_model(&mut self, rs: &RateSample, newly_acked: f64) -> bool {
        if self.ack_phase == AckPhase::ProbeStarting && self.round_start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.round_start {
            self.is_bw_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if self.is_in_a_probe_bw_state() && !rs.is_app_limited {
                self.max_bw.advance();
            }
            if self.is_in_a_probe_bw_state() && self.prev_probe_precautionary && !self.prev_probe_too_high {
                self.start_probe_bw_refill();
                return true;
            }
        }
        if !is_inflight_too_high(rs.lost as f64, rs.tx_in_flight as f64) && self.inflight_longterm.is_finite() {
            self.inflight_longterm = self.inflight_longterm.max(rs.tx_in_flight as f64);
            if self.state == State::ProbeBwUp {
                self.probe_inflight_longterm_upward(newly_acked);
            }
        }
        false
    }

    /// C.is_cwnd_limited: in this round trip or the one before.
    fn used_cwnd(&self) -> bool {
        self.is_cwnd_limited || self.was_cwnd_limited
    }

    // 5.3.4 ProbeRTT

    fn update_min_rtt(&mut self, now: Time, rtt: Option<Duration>) {
        self.probe_rtt_expired = now > self.probe_rtt_min_stamp + PROBE_RTT_INTERVAL;
        if let Some(rtt) = rtt {
            if self.probe_rtt_expired || self.probe_rtt_min_delay.is_none_or(|least| rtt < least) {
                (self.probe_rtt_min_delay, self.probe_rtt_min_stamp) = (Some(rtt), now);
            }
        }
        let min_rtt_expired = now > self.min_rtt_stamp + MIN_RTT_FILTER_LEN;
        if let Some(delay) = self.probe_rtt_min_delay {
            if min_rtt_expired || self.min_rtt.is_none_or(|min_rtt| delay < min_rtt) {
                (self.min_rtt, self.min_rtt_stamp) = (Some(delay), self.probe_rtt_min_stamp);
            }
        }
    }

    fn check_probe_rtt(&mut self, now: Time, delivered: bool) {
        if self.state != State::ProbeRtt && self.probe_rtt_expired && !self.idle_restart {
            self.save_cwnd();
            self.state = State::ProbeRtt;
            self.pacing_gain = 1.0;
            self.cwnd_gain = PROBE_RTT_CWND_GAIN;
            self.probe_rtt_done_stamp = None;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(now);
        }
        if delivered {
            self.idle_restart = false;
        }
    }

    fn handle_probe_rtt(&mut self, now: Time) {
        if self.probe_rtt_done_stamp.is_none() {
            if self.in_flight <= self.probe_rtt_cwnd() {
                self.probe_rtt_done_stamp = Some(now + PROBE_RTT_DURATION);
                self.probe_rtt_round_done = false;
                self.start_round();
            }
            return;
        }
        self.probe_rtt_round_done |= self.round_start;
        if self.probe_rtt_round_done {
            self.check_probe_rtt_done(now);
        }
    }

    fn check_probe_rtt_done(&mut self, now: Time) {
        if self.probe_rtt_done_stamp.is_some_and(|done| now > done) {
            self.probe_rtt_min_stamp = now;
            self.restore_cwnd();
            self.exit_probe_rtt(now);
        }
    }

    fn exit_probe_rtt(&mut self, now: Time) {
        self.reset_short_term_model();
        if self.full_bw_reached {
            self.start_probe_bw_down(now);
            self.set_state(State::ProbeBwCruise);
        } else {
            self.enter_startup();
        }
    }

    // 5.4 Restarting from idle

    fn handle_restart_from_idle(&mut self, now: Time) {
        self.idle_restart = true;
        self.extra_acked_interval_start = now;
        if self.is_in_a_probe_bw_state() {
            self.set_pacing_rate_with_gain(1.0);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(now);
        }
    }

    // 5.5 The model of the path

    fn update_round(&mut self, rs: &RateSample) {
        self.round_start = rs.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.start_round();
            self.round_count += 1;
            self.rounds_since_probe_up += 1;
            (self.was_cwnd_limited, self.is_cwnd_limited) = (self.is_cwnd_limited, false);
        }
    }

    fn start_round(&mut self) {
        self.next_round_delivered = self.delivered;
    }

    fn update_max_bw(&mut self, rs: &RateSample) {
        self.update_round(rs);
        if rs.delivery_rate > 0.0 && (rs.delivery_rate >= self.max_bw.get() || !rs.is_app_limited) {
            self.max_bw.update(rs.delivery_rate);
        }
    }

    fn update_ack_aggregation(&mut self, now: Time, newly_acked: f64) {
        let mut expected = self.bw * (now - self.extra_acked_interval_start).as_secs_f64();
        if self.extra_acked_delivered <= expected {
            self.extra_acked_delivered = 0.0;
            self.extra_acked_interval_start = now;
            expected = 0.0;
        }
        self.extra_acked_delivered += newly_acked;
        let extra = (self.extra_acked_delivered - expected).min(self.cwnd);
        let length = if self.full_bw_reached { EXTRA_ACKED_FILTER_LEN } else { 1 };
        self.extra_acked.update(extra, self.round_count, length);
    }

    /// 5.5.10.2: the probe put more in flight than the path takes.
    fn handle_inflight_too_high(&mut self, now: Time, tx_in_flight: f64, is_app_limited: bool) {
        self.prev_probe_too_high = true;
        self.is_bw_probe_sample = false;
        if !is_app_limited {
            self.inflight_longterm = tx_in_flight.max(self.target_inflight() * BETA);
        }
        if self.state == State::ProbeBwUp {
            self.undo.state = Some(State::ProbeBwUp);
            self.start_probe_bw_down(now);
        }
    }

    fn note_loss(&mut self) {
        if !self.is_loss_in_round {
            self.loss_round_delivered = self.delivered;
            self.save_state_upon_loss();
        }
        self.is_loss_in_round = true;
    }

    // 5.5.10.3 When not probing for bandwidth

    fn update_latest_delivery_signals(&mut self, rs: &RateSample) {
        self.bw_latest = self.bw_latest.max(rs.delivery_rate);
        self.inflight_latest = self.inflight_latest.max(rs.delivered as f64);
        self.loss_round_start = rs.prior_delivered >= self.loss_round_delivered;
        if self.loss_round_start {
            self.loss_round_delivered = self.delivered;
        }
    }

    fn advance_latest_delivery_signals(&mut self, rs: &RateSample) {
        if self.loss_round_start {
            self.bw_latest = rs.delivery_rate;
            self.inflight_latest = rs.delivered as f64;
            (self.losses_in_round, self.lost_in_round) = (0, 0.0);
        }
    }

    fn reset_congestion_signals(&mut self) {
        self.is_loss_in_round = false;
        self.bw_latest = 0.0;
        self.inflight_latest = 0.0;
    }

    fn update_congestion_signals(&mut self, rs: &RateSample) {
        self.update_max_bw(rs);
        if self.loss_round_start {
            self.adapt_lower_bounds_from_congestion();
            self.is_loss_in_round = false;
        }
    }

    fn adapt_lower_bounds_from_congestion(&mut self) {
        if self.is_probing_bw() || !self.is_loss_in_round {
            return;
        }
        if self.bw_shortterm.is_infinite() {
            self.bw_shortterm = self.max_bw.get();
        }
        if self.inflight_shortterm.is_infinite() {
            self.inflight_shortterm = self.cwnd;
        }
        self.bw_shortterm = self.bw_latest.max(BETA * self.bw_shortterm);
        self.inflight_shortterm = self.inflight_latest.max(BETA * self.inflight_shortterm);
    }

    fn reset_short_term_model(&mut self) {
        self.bw_shortterm = f64::INFINITY;
        self.inflight_shortterm = f64::INFINITY;
    }

    fn save_state_upon_loss(&mut self) {
        self.save_cwnd();
        self.undo = Undo {
            state: None,
            bw_shortterm: self.bw_shortterm,
            inflight_shortterm: self.inflight_shortterm,
            inflight_longterm: self.inflight_longterm,
        };
    }

    // 5.6 Control parameters

    fn set_pacing_rate_with_gain(&mut self, gain: f64) {
        let rate = gain * self.bw * (1.0 - PACING_MARGIN);
        if self.full_bw_reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// 5.6.2: until a round trip is known, one of a millisecond is assumed.
    fn init_pacing_rate(&mut self, srtt_s: f64) {
        if !self.has_srtt && srtt_s > 0.0 {
            self.has_srtt = true;
            self.pacing_rate = STARTUP_PACING_GAIN * self.initial_cwnd / srtt_s;
        }
    }

    fn set_send_quantum(&mut self) {
        self.send_quantum = (self.pacing_rate * 0.001).min(65_536.0).max(2.0 * self.smss);
    }

    fn min_pipe_cwnd(&self) -> f64 {
        MIN_PIPE_SEGMENTS * self.smss
    }

    /// BDPMultiple with BBR.bw.
    fn bdp(&self, gain: f64) -> f64 {
        self.bdp_at(self.bw, gain)
    }

    fn bdp_at(&self, bw: f64, gain: f64) -> f64 {
        self.min_rtt.map_or(self.initial_cwnd, |min_rtt| gain * bw * min_rtt.as_secs_f64())
    }

    fn quantization_budget(&self, inflight_cap: f64) -> f64 {
        let offload_budget = 3.0 * self.send_quantum.min(2.0 * self.smss);
        let cap = inflight_cap.max(offload_budget).max(self.min_pipe_cwnd());
        cap + if self.state == State::ProbeBwUp { 2.0 * self.smss } else { 0.0 }
    }

    fn inflight(&self, bw: f64, gain: f64) -> f64 {
        self.quantization_budget(self.bdp_at(bw, gain))
    }

    fn probe_rtt_cwnd(&self) -> f64 {
        self.bdp(PROBE_RTT_CWND_GAIN).max(self.min_pipe_cwnd())
    }

    fn save_cwnd(&mut self) {
        let unmodulated = !self.in_loss_recovery && self.state != State::ProbeRtt;
        self.prior_cwnd = if unmodulated { self.cwnd } else { self.prior_cwnd.max(self.cwnd) };
    }

    fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }

    fn set_cwnd(&mut self, newly_acked: f64) {
        let max_inflight = self.quantization_budget(self.bdp(self.cwnd_gain) + self.extra_acked.get());
        if self.full_bw_reached {
            self.cwnd = (self.cwnd + newly_acked).min(max_inflight);
        } else if self.cwnd < max_inflight || (self.delivered as f64) < self.initial_cwnd {
            self.cwnd += newly_acked;
        }
        self.cwnd = self.cwnd.max(self.min_pipe_cwnd());
        if self.state == State::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
        self.bound_cwnd_for_model();
    }

    fn bound_cwnd_for_model(&mut self) {
        let cap = match self.state {
            State::ProbeBwCruise | State::ProbeRtt => self.inflight_with_headroom(),
            _ if self.is_in_a_probe_bw_state() => self.inflight_longterm,
            _ => f64::INFINITY,
        };
        let cap = cap.min(self.inflight_shortterm).max(self.min_pipe_cwnd());
        self.cwnd = self.cwnd.min(cap).min(self.limit);
    }
}

/// IsInflightTooHigh, with selective acks.
fn is_inflight_too_high(lost: f64, tx_in_flight: f64) -> bool {
    lost > tx_in_flight * LOSS_THRESH
}

/// InflightAtLoss (5.5.10.2): what was in flight when losses exceeded the threshold, somewhere in the segment that was
/// lost.
fn inflight_at_loss(lost: &Lost) -> f64 {
    let size = lost.bytes as f64;
    let inflight_prev = lost.tx_in_flight as f64 - size;
    let lost_prev = lost.lost as f64 - size;
    inflight_prev + (LOSS_THRESH * inflight_prev - lost_prev) / (1.0 - LOSS_THRESH)
}

impl CongestionController for Bbr {
    /// OnTransmit.
    fn on_sent(&mut self, sent: &Sent) {
        self.init_pacing_rate(sent.srtt_s);
        if sent.outstanding == 0 && sent.is_app_limited {
            self.handle_restart_from_idle(sent.now);
        }
        self.is_cwnd_limited |= (sent.outstanding + sent.bytes) as f64 + self.smss > self.cwnd;
    }

    /// UpdateOnACK (5.2.3).
    fn on_ack(&mut self, ack: &AckSample) {
        let newly_acked = ack.delivered as f64;
        self.in_flight = ack.in_flight as f64;
        if let Some(rs) = &ack.rate {
            self.delivered = rs.total_delivered;
            self.update_latest_delivery_signals(rs);
            self.update_congestion_signals(rs);
            self.update_ack_aggregation(ack.now, newly_acked);
            self.check_full_bw_reached(rs);
            self.check_startup_done();
            self.check_drain_done(ack.now);
            self.update_probe_bw_cycle_phase(ack.now, rs, newly_acked);
            self.update_min_rtt(ack.now, rs.rtt);
            self.check_probe_rtt(ack.now, rs.delivered > 0);
            self.advance_latest_delivery_signals(rs);
            self.bw = self.max_bw.get().min(self.bw_shortterm);
        }
        self.set_pacing_rate_with_gain(self.pacing_gain);
        self.set_send_quantum();
        self.set_cwnd(newly_acked);
    }

    /// HandleLostPacket.
    fn on_lost(&mut self, now: Time, lost: &Lost) {
        self.note_loss();
        self.losses_in_round += 1;
        self.lost_in_round += lost.bytes as f64;
        let too_high = is_inflight_too_high(lost.lost as f64, lost.tx_in_flight as f64);
        if self.is_bw_probe_sample && too_high {
            self.handle_inflight_too_high(now, inflight_at_loss(lost), lost.is_app_limited);
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        match loss.signal {
            Signal::Duplicates => {
                self.save_state_upon_loss();
                self.recovery_round.get_or_insert(self.round_count);
                self.in_loss_recovery = true;
            }
            Signal::Timeout { .. } => {
                self.save_state_upon_loss();
                self.in_loss_recovery = true;
                self.cwnd = loss.in_flight as f64 + self.smss;
            }
            Signal::Mark | Signal::Quench => {}
        }
    }

    fn on_recovery_end(&mut self, _: &AckSample, _: Exit) {
        self.in_loss_recovery = false;
        self.recovery_round = None;
        self.restore_cwnd();
        self.bound_cwnd_for_model();
    }

    /// HandleSpuriousLossDetection (5.5.11.2).
    fn on_spurious_loss(&mut self) {
        self.in_loss_recovery = false;
        self.recovery_round = None;
        self.restore_cwnd();
        self.is_loss_in_round = false;
        self.reset_full_bw();
        self.bw_shortterm = self.bw_shortterm.max(self.undo.bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(self.undo.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(self.undo.inflight_longterm);
        match self.undo.state.take() {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_bw_reached = false;
                if self.state != State::ProbeRtt {
                    self.enter_startup();
                }
            }
            Some(State::ProbeBwUp) if !matches!(self.state, State::ProbeBwUp | State::ProbeRtt) => {
                self.start_probe_bw_refill();
            }
            _ => {}
        }
    }

    fn window(&self) -> f64 {
        self.cwnd
    }

    fn in_slow_start(&self, _: f64) -> bool {
        self.state == State::Startup
    }

    fn pacing_rate(&self) -> Option<f64> {
        Some(self.pacing_rate)
    }

    fn uses_rate_samples(&self) -> bool {
        true
    }

    /// MarkConnectionAppLimited, in ProbeRTT.
    fn limits_samples(&self) -> bool {
        self.state == State::ProbeRtt
    }
}

#[cfg(test)]
mod tests;
