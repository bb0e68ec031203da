//! BBR's first version on a path of 10 Mbit/s and 40 ms (35 segments of 1500 bytes).

use std::time::Duration;

use backchannel_core::transport::Transport;
use backchannel_core::Time;
use serde_json::json;

use super::{Bbr1, Recovery, State};
use crate::congestion::{AckSample, CongestionController, Exit, Loss, Sent, Signal};
use crate::controllers::{CongestionControl, RateSample};
use crate::tests::pair::{stack, Pair, Path, CLEAN};
use crate::{Content, Source};

/// 10 Mbit/s in bytes of data a second, without headers.
const RATE: f64 = 1.25e6 * 1448.0 / 1500.0;

fn pair(source: Source, path: Path) -> Pair {
    let config = stack("modern-bbr1", &[("receive_buffer_bytes", json!(64_000_000))]);
    Pair::new((config.clone(), source), (config, Source::silent()), path, 1, 1)
}

fn bulk(path: Path) -> Pair {
    pair(Source::new(Content::Zeros, None), path)
}

fn bbr(pair: &Pair) -> &Bbr1 {
    match &pair.client().sender.congestion {
        CongestionControl::Bbr1(bbr) => bbr,
        other => panic!("{other:?}"),
    }
}

fn seconds(pair: &Pair) -> f64 {
    pair.now as f64 * 1e-9
}

/// Runs until `done`, and returns the seconds. Panics after `limit_s` seconds.
fn until(pair: &mut Pair, limit_s: f64, done: impl Fn(&Pair) -> bool) -> f64 {
    while !done(pair) {
        assert!(seconds(pair) < limit_s, "at {} s: {:?}", seconds(pair), bbr(pair));
        assert!(pair.step(), "nothing will happen");
        // What was received is of no use here, and would fill the memory.
        pair.received[1].clear();
        pair.log.clear();
    }
    seconds(pair)
}

fn is_in(state: State) -> impl Fn(&Pair) -> bool {
    move |pair| bbr(pair).state == state
}

#[test]
fn startup_ends_after_three_round_trips_without_a_quarter_more_and_drain_with_the_queue() {
    let mut pair = bulk(CLEAN);
    assert_eq!((bbr(&pair).pacing_gain, bbr(&pair).cwnd_gain), (739.0 / 256.0, 739.0 / 256.0));
    until(&mut pair, 2.0, |pair| bbr(pair).full_bw_count == 1);
    let plateau = bbr(&pair).round_count;
    until(&mut pair, 2.0, is_in(State::Drain));
    let drains = bbr(&pair);
    assert_eq!((drains.full_bw_count, drains.round_count), (3, plateau + 2));
    assert!((drains.btl_bw() / RATE - 1.0).abs() < 0.02, "{} of {RATE}", drains.btl_bw());
    assert_eq!((drains.pacing_gain, drains.cwnd_gain), (88.0 / 256.0, 739.0 / 256.0));
    until(&mut pair, 3.0, is_in(State::ProbeBw));
    let probes = bbr(&pair);
    // Six segments leave the network before the pacer lets the next two go.
    assert!(probes.in_flight <= probes.inflight(1.0) + 6.0, "{} of {}", probes.in_flight, probes.inflight(1.0));
}

#[test]
fn the_gains_cycle_a_round_trip_each_and_the_line_is_full() {
    let mut pair = bulk(CLEAN);
    until(&mut pair, 3.0, |pair| is_in(State::ProbeBw)(pair) && bbr(pair).cycle_index == 0);
    let (start, before) = (seconds(&pair), pair.client().acknowledged());
    let mut at = start;
    for (phase, gain) in [(1, 0.75), (2, 1.0), (3, 1.0), (4, 1.0), (5, 1.0), (6, 1.0), (7, 1.0), (0, 1.25)] {
        let entered = until(&mut pair, 5.0, |pair| bbr(pair).cycle_index == phase);
        assert_eq!(bbr(&pair).pacing_gain, gain);
        // The drain ends when the queue is gone, and an ack may be due after a phase's end.
        let least = if phase == 2 { 0.0 } else { 0.040 };
        assert!((least..0.047).contains(&(entered - at)), "phase before {phase}: {}", entered - at);
        at = entered;
    }
    let share = (pair.client().acknowledged() - before) as f64 / (at - start) / RATE;
    assert!((0.95..1.01).contains(&share), "{share}");
}

#[test]
fn after_ten_seconds_the_round_trip_is_measured_anew_for_200_ms_with_four_segments() {
    let mut pair = bulk(CLEAN);
    let mut last = 0.0;
    for _ in 0..2 {
        let began = until(&mut pair, 25.0, is_in(State::ProbeRtt));
        assert!((9.9..10.4).contains(&(began - last)), "{began} after {last}");
        let before = bbr(&pair).prior_cwnd;
        until(&mut pair, 25.0, |pair| bbr(pair).probe_rtt_done_stamp.is_some());
        let probing = bbr(&pair);
        assert_eq!((probing.cwnd, probing.in_flight <= 4.0, probing.limits_samples()), (4.0, true, true));
        let drained = seconds(&pair);
        let ended = until(&mut pair, 25.0, is_in(State::ProbeBw));
        assert!((0.2..0.25).contains(&(ended - drained)), "{}", ended - drained);
        assert!(bbr(&pair).cwnd >= before, "the window is restored");
        last = ended;
    }
    // Bytes on the wire: a segment of 1500 and an ack of 52.
    let rt_prop = bbr(&pair).rt_prop.unwrap().as_secs_f64();
    assert!((0.0411..0.0430).contains(&rt_prop), "{rt_prop}");
}

#[test]
fn an_application_that_pauses_spares_the_measurement() {
    let mut pair = pair(Source::silent(), CLEAN);
    pair.ends[0].as_mut().unwrap().write(3_000_000);
    until(&mut pair, 6.0, |pair| pair.client().acknowledged() >= 3_000_000);
    assert_eq!(bbr(&pair).state, State::ProbeBw);
    pair.now += 11_000_000_000;
    pair.ends[0].as_mut().unwrap().write(3_000_000);
    until(&mut pair, 20.0, |pair| bbr(pair).idle_restart);
    until(&mut pair, 20.0, |pair| {
        assert_ne!(bbr(pair).state, State::ProbeRtt);
        pair.client().acknowledged() >= 4_000_000
    });
}

#[test]
fn what_ends_an_idle_period_leaves_at_the_rate_whatever_the_phase() {
    let mut control = probing();
    control.segments_sent = 10;
    control.cycle_index = 0;
    control.update_gains();
    control.set_pacing_rate_with_gain(control.pacing_gain);
    assert!((control.pacing_rate / 1.25e6 - 0.99).abs() < 1e-9);
    control.on_sent(&Sent { now: Time(1), bytes: 1000, outstanding: 0, is_app_limited: true, srtt_s: 0.04 });
    assert!((control.pacing_rate / 1e6 - 0.99).abs() < 1e-9);
}

/// The first ten segments leave at once, and the next at the rate of 2.89 windows a round trip.
#[test]
fn the_first_rate_follows_from_the_round_trip_of_the_handshake() {
    let mut control = Bbr1::new(&stack("modern-bbr1", &[]), 1448, 1);
    let sent = Sent { now: Time(1), bytes: 1448, outstanding: 0, is_app_limited: false, srtt_s: 0.04 };
    for _ in 0..9 {
        control.on_sent(&sent);
        assert_eq!(control.pacing_rate(), None);
    }
    control.on_sent(&sent);
    let expected = 739.0 / 256.0 * 10.0 * 1448.0 / 0.04 * 0.99;
    assert!((control.pacing_rate().unwrap() / expected - 1.0).abs() < 1e-9);
    assert_eq!(control.rt_prop.map(|rtt| rtt.as_millis()), Some(40));
    for (rate, segments) in [(100_000.0, 1), (200_000.0, 2), (6.25e6, 4), (1e9, 45)] {
        control.pacing_rate = rate;
        assert_eq!(control.send_quantum(), 1448 * segments, "{rate}");
    }
}

/// A sender in ProbeBW with 30 of 60 segments in flight.
fn probing() -> Bbr1 {
    let mut control = Bbr1::new(&stack("modern-bbr1", &[]), 1000, 1);
    control.btl_bw_filter.update(1e6, 0, 10);
    control.rt_prop = Some(Duration::from_millis(40));
    (control.filled_pipe, control.cwnd, control.delivered) = (true, 60.0, 1_000_000);
    control.enter_probe_bw(Time::ZERO);
    control.cycle_index = 2;
    control.update_gains();
    control.has_srtt = true;
    control.set_pacing_rate_with_gain(1.0);
    control
}

#[test]
fn before_the_pipe_is_full_the_window_grows_to_its_target_or_by_the_first_window() {
    let mut control = probing();
    control.filled_pipe = false;
    let target = control.target_cwnd();
    let mut grown = |cwnd: f64, delivered: u64| {
        (control.cwnd, control.delivered) = (cwnd, delivered);
        control.grow_cwnd(5.0);
        control.cwnd
    };
    assert_eq!(grown(target - 1.0, 1_000_000), target + 4.0);
    assert_eq!(grown(target, 1_000_000), target);
    assert_eq!(grown(target, 9_000), target + 5.0);
    assert_eq!(grown(target, 10_000), target);
}

#[test]
fn a_cycle_begins_in_any_phase_but_the_one_that_drains() {
    let mut control = probing();
    let mut begun = [false; 8];
    for _ in 0..200 {
        control.enter_probe_bw(Time::ZERO);
        begun[control.cycle_index] = true;
    }
    assert_eq!(begun, [true, false, true, true, true, true, true, true]);
}

fn ack(delivered: u64, in_flight: u64, lost: u64) -> AckSample {
    AckSample { now: Time(1), delivered, in_flight, lost, ..AckSample::default() }
}

fn loss(signal: Signal, in_flight: u64) -> Loss {
    Loss { now: Time(1), signal, flight: 60_000, in_flight }
}

#[test]
fn in_the_first_round_of_recovery_as_much_leaves_as_arrives_and_at_its_end_the_window_is_restored() {
    let mut control = probing();
    control.on_loss(&loss(Signal::Duplicates, 30_000));
    control.on_ack(&ack(2000, 30_000, 1000));
    assert_eq!((control.cwnd, control.packet_conservation), (32.0, true));
    control.on_ack(&ack(1000, 31_000, 0));
    assert_eq!(control.cwnd, 32.0);
    // The round is over: two leave for each that arrives, less those that are lost.
    control.update_round(&sample(1e6, false));
    assert!(!control.packet_conservation);
    control.on_ack(&ack(3000, 29_000, 1000));
    assert_eq!(control.cwnd, 34.0);
    control.on_recovery_end(&ack(3000, 29_000, 0), Exit::Threshold);
    assert_eq!(control.cwnd, 63.0);
    assert_eq!((control.recovery, control.prior_recovery), (Recovery::None, Recovery::None));
}

#[test]
fn a_timeout_leaves_what_is_in_flight_and_a_segment_and_its_end_restores_the_window() {
    let mut control = probing();
    control.full_bw = 1e6;
    control.on_loss(&loss(Signal::Timeout { again: false }, 0));
    assert_eq!((control.cwnd, control.full_bw), (1.0, 0.0));
    control.on_ack(&ack(1000, 0, 0));
    assert_eq!((control.cwnd, control.packet_conservation), (4.0, false));
    control.on_spurious_loss();
    control.on_ack(&ack(1000, 3000, 0));
    assert!(control.cwnd >= 60.0);
}

/// 40 segments fill the path, so that the target is 80, six of quanta, and what acks brought at once: at most a tenth of
/// a second of the rate, and forgotten after five to ten round trips.
#[test]
fn acks_that_arrive_at_once_let_the_window_be_larger() {
    let mut control = probing();
    assert_eq!(control.target_cwnd(), 86.0);
    control.cycle_index = 0;
    assert_eq!(control.target_cwnd(), 88.0, "a probe has two more");
    control.cycle_index = 2;
    let rate = Some(sample(1e6, false));
    let at_once = AckSample { rate, ..ack(20_000, 0, 0) };
    control.update_ack_aggregation(&at_once);
    assert_eq!(control.target_cwnd(), 106.0);
    control.extra_acked.most[0] = 500.0;
    assert_eq!(control.target_cwnd(), 186.0);
    control.round_start = true;
    let none = AckSample { now: Time(1_000_000_000), rate, ..ack(1000, 0, 0) };
    for round in 1..=10 {
        control.update_ack_aggregation(&none);
        assert_eq!(control.target_cwnd() > 100.0, round < 10, "{round}");
    }
}

/// A quarter of all is lost, as by a policer whose bucket is empty: its rate is used for 48 round trips, without probes.
#[test]
fn heavy_losses_at_a_steady_rate_are_those_of_a_policer() {
    let mut pair = bulk(Path { loss: 0.25, ..CLEAN });
    until(&mut pair, 120.0, |pair| bbr(pair).policer.rate().is_some() && is_in(State::ProbeBw)(pair));
    let policed = bbr(&pair);
    assert_eq!(policed.btl_bw(), policed.policer.rate().unwrap());
    assert!(policed.btl_bw() < policed.btl_bw_filter.get());
    until(&mut pair, 240.0, |pair| {
        let is_policed = bbr(pair).policer.rate().is_some();
        assert!(!is_policed || !is_in(State::ProbeBw)(pair) || bbr(pair).pacing_gain == 1.0);
        !is_policed
    });
    until(&mut pair, 240.0, |pair| bbr(pair).policer.rate().is_some());
    let CongestionControl::Bbr1(bbr) = &mut pair.ends[0].as_mut().unwrap().sender.congestion else { panic!() };
    bbr.on_spurious_loss();
    assert_eq!(bbr.policer.rate(), None, "there were no losses");
}

#[test]
fn the_measurement_takes_200_ms_and_a_round_trip() {
    let mut control = probing();
    (control.state, control.in_flight) = (State::ProbeRtt, 4.0);
    for (at_ms, round_start, state) in [
        (0, true, State::ProbeRtt),
        (190, false, State::ProbeRtt),
        (210, false, State::ProbeRtt),
        (230, true, State::ProbeBw),
    ] {
        control.round_start = round_start;
        control.handle_probe_rtt(Time(at_ms * 1_000_000));
        assert_eq!(control.state, state, "{at_ms} ms");
    }
}

/// A sample of 40 ms in which 20 segments arrived.
fn sample(delivery_rate: f64, is_app_limited: bool) -> RateSample {
    RateSample {
        delivery_rate,
        interval: Duration::from_millis(40),
        delivered: 20_000,
        prior_delivered: u64::MAX,
        total_delivered: 1_000_000,
        tx_in_flight: 0,
        lost: 0,
        is_app_limited,
        rtt: None,
    }
}

#[test]
fn the_rate_is_the_greatest_of_ten_round_trips_and_one_that_the_application_limits_only_raises_it() {
    let mut control = probing();
    let of = |rate: f64, is_app_limited: bool| AckSample { rate: Some(sample(rate, is_app_limited)), ..ack(1, 0, 0) };
    for _ in 0..20 {
        control.update_btl_bw(&of(5e5, true));
    }
    assert_eq!(control.btl_bw(), 1e6);
    control.update_btl_bw(&of(2e6, true));
    for round in 1..=11 {
        control.update_btl_bw(&of(5e5, false));
        assert_eq!(control.btl_bw(), if round <= 10 { 2e6 } else { 5e5 });
    }
}

#[test]
fn round_trips_that_the_application_limits_do_not_show_a_full_pipe() {
    let mut control = probing();
    (control.filled_pipe, control.full_bw, control.round_start) = (false, 1e6, true);
    (0..10).for_each(|_| control.check_full_pipe(true));
    assert!(!control.filled_pipe);
    (0..3).for_each(|_| control.check_full_pipe(false));
    assert!(control.filled_pipe);
}

#[test]
fn a_probe_of_a_round_trip_ends_with_a_loss_or_the_volume_that_it_aims_at() {
    let mut control = probing();
    control.pacing_gain = 1.25;
    let later = |ack: AckSample, ms: u64| AckSample { now: Time(ms * 1_000_000), ..ack };
    // 1.25 times 40 segments, and six of quanta. The next two count.
    assert!(control.is_next_cycle_phase(&later(ack(1000, 53_000, 0), 41)));
    assert!(!control.is_next_cycle_phase(&later(ack(1000, 52_000, 0), 41)));
    assert!(control.is_next_cycle_phase(&later(ack(1000, 40_000, 1000), 41)));
    assert!(!control.is_next_cycle_phase(&later(ack(1000, 53_000, 1000), 40)));
}

#[test]
fn an_ack_that_may_have_been_delayed_does_not_replace_a_round_trip_that_has_expired() {
    let mut control = probing();
    let after = |delivered: u64| AckSample {
        now: Time(11_000_000_000),
        rate: Some(RateSample { delivered, rtt: Some(Duration::from_millis(80)), ..sample(1e6, false) }),
        ..ack(delivered, 0, 0)
    };
    control.update_rt_prop(&after(500));
    assert_eq!(control.rt_prop, Some(Duration::from_millis(40)));
    control.update_rt_prop(&after(1000));
    assert_eq!(control.rt_prop, Some(Duration::from_millis(80)));
}
