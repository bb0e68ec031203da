//! The example test cases of draft-ietf-ccwg-bbr, appendix A, on a path of 10 Mbit/s and 40 ms (41 packets of 1500 bytes).

use backchannel_core::transport::Transport;
use serde_json::json;

use super::{Bbr, State, BETA};
use crate::controllers::{CongestionControl, CongestionController};
use crate::tests::pair::{stack, Pair, Path, CLEAN};
use crate::{Content, Source};

/// 10 Mbit/s in bytes of data a second, without headers.
const RATE: f64 = 1.25e6 * 1448.0 / 1500.0;

/// A sender with BBR.
fn pair(source: Source, path: Path) -> Pair {
    let config = stack("modern-bbr", &[("receive_buffer_bytes", json!(64_000_000))]);
    Pair::new((config.clone(), source), (config, Source::silent()), path, 1, 1)
}

fn bulk(path: Path) -> Pair {
    pair(Source::new(Content::Zeros, None), path)
}

fn bbr(pair: &Pair) -> &Bbr {
    match &pair.client().sender.congestion {
        CongestionControl::Bbr(bbr) => bbr,
        other => panic!("{other:?}"),
    }
}

/// Runs until `done`, and returns the seconds. Panics after `limit_s` seconds.
fn until(pair: &mut Pair, limit_s: f64, done: impl Fn(&Pair) -> bool) -> f64 {
    while !done(pair) {
        assert!(pair.now as f64 * 1e-9 < limit_s, "at {} s: {:?}", pair.now as f64 * 1e-9, bbr(pair));
        assert!(pair.step(), "nothing will happen");
        // What was received is of no use here, and would fill the memory.
        pair.received[1].clear();
        pair.log.clear();
    }
    pair.now as f64 * 1e-9
}

fn is_in(state: State) -> impl Fn(&Pair) -> bool {
    move |pair| bbr(pair).state == state
}

/// Bytes a second that the server receives in `seconds`.
fn rate(pair: &mut Pair, seconds: f64) -> f64 {
    let before = pair.client().acknowledged();
    let end = pair.now as f64 * 1e-9 + seconds;
    until(pair, end + 1.0, |pair| pair.now as f64 * 1e-9 >= end);
    (pair.client().acknowledged() - before) as f64 / seconds
}

#[test]
fn startup_ends_on_a_plateau_of_the_bandwidth_and_drain_when_the_queue_is_gone() {
    let mut pair = bulk(CLEAN);
    until(&mut pair, 2.0, is_in(State::Drain));
    let drains = bbr(&pair);
    assert!(drains.full_bw_reached && drains.full_bw_now && drains.full_bw_count == 3);
    assert!((drains.max_bw.get() / RATE - 1.0).abs() < 0.02, "{} of {RATE}", drains.max_bw.get());
    assert_eq!((drains.pacing_gain, drains.cwnd_gain), (0.5, 2.0));
    // With the queue gone ProbeBW_DOWN has nothing to do.
    until(&mut pair, 3.0, is_in(State::ProbeBwCruise));
    let cruises = bbr(&pair);
    assert!(
        cruises.in_flight <= cruises.inflight(cruises.bw, 1.0) && cruises.round_count <= cruises.drain_start_round + 1
    );
}

#[test]
fn the_cycle_probes_and_the_line_is_full() {
    let mut pair = bulk(CLEAN);
    for state in [State::ProbeBwCruise, State::ProbeBwRefill, State::ProbeBwUp, State::ProbeBwDown] {
        until(&mut pair, 10.0, is_in(state));
    }
    // The pacing margin and the states below the rate cost some percent.
    let share = rate(&mut pair, 10.0) / RATE;
    assert!((0.93..=1.0).contains(&share), "{share}");
}

#[test]
fn after_five_seconds_the_round_trip_is_measured_anew_for_200_ms() {
    let mut pair = bulk(CLEAN);
    until(&mut pair, 3.0, is_in(State::ProbeBwDown));
    let began = until(&mut pair, 8.0, is_in(State::ProbeRtt));
    assert!(began > 5.0);
    until(&mut pair, 9.0, |pair| bbr(pair).probe_rtt_done_stamp.is_some());
    let probing = bbr(&pair);
    assert!(probing.cwnd <= probing.probe_rtt_cwnd() && probing.limits_samples());
    let ended = until(&mut pair, 9.0, is_in(State::ProbeBwCruise));
    assert!((0.2..0.5).contains(&(ended - began)), "{}", ended - began);
    let min_rtt = bbr(&pair).min_rtt.unwrap().as_secs_f64();
    assert!((0.0411..0.0450).contains(&min_rtt), "{min_rtt}");
}

/// An idle sender has no need to measure, and resumes at the bandwidth that it knows.
#[test]
fn an_application_that_pauses_spares_the_measurement() {
    let mut pair = pair(Source::silent(), CLEAN);
    pair.ends[0].as_mut().unwrap().write(3_000_000);
    until(&mut pair, 6.0, |pair| pair.client().acknowledged() >= 3_000_000);
    assert!(bbr(&pair).full_bw_reached);
    pair.now += 6_000_000_000;
    pair.ends[0].as_mut().unwrap().write(3_000_000);
    until(&mut pair, 12.0, |pair| bbr(pair).idle_restart);
    assert!((bbr(&pair).pacing_rate / bbr(&pair).bw - 0.99).abs() < 0.001);
    until(&mut pair, 12.0, |pair| pair.client().acknowledged() >= 4_000_000);
    assert_ne!(bbr(&pair).state, State::ProbeRtt);
}

#[test]
fn heavy_losses_end_startup() {
    // A buffer of ten packets: Startup sends 2.77 times what leaves.
    let mut pair = bulk(Path { buffer_bytes: 15_000, ..CLEAN });
    until(&mut pair, 2.0, is_in(State::Drain));
    let drains = bbr(&pair);
    assert!(drains.full_bw_reached && drains.inflight_longterm.is_finite());
    assert!(drains.inflight_longterm >= drains.bdp(1.0).min(drains.inflight_latest));
}

#[test]
fn a_probe_that_loses_more_than_two_percent_ends_and_sets_the_greatest_volume() {
    // A buffer of half of what fits on the line.
    let mut pair = bulk(Path { buffer_bytes: 20_000, ..CLEAN });
    until(&mut pair, 10.0, is_in(State::ProbeBwCruise));
    until(&mut pair, 10.0, is_in(State::ProbeBwUp));
    until(&mut pair, 10.0, |pair| bbr(pair).prev_probe_too_high);
    let down = bbr(&pair);
    assert_eq!(down.state, State::ProbeBwDown);
    assert!(down.inflight_longterm >= BETA * down.target_inflight() - 1.0);
    let full = bbr(&pair).bdp(1.0) + 20_000.0;
    assert!(down.inflight_longterm < 1.3 * full, "{} of {full}", down.inflight_longterm);
    let share = rate(&mut pair, 10.0) / RATE;
    assert!(share > 0.85, "{share}");
}

#[test]
fn a_line_ten_times_faster_is_full_some_round_trips_later() {
    let mut pair = bulk(CLEAN);
    until(&mut pair, 5.0, is_in(State::ProbeBwCruise));
    pair.path.rate_bps *= 10;
    let changed = pair.now as f64 * 1e-9;
    let found = until(&mut pair, 20.0, |pair| bbr(pair).max_bw.get() > 9.0 * RATE);
    assert!(found - changed < 12.0, "{}", found - changed);
}

#[test]
fn a_line_ten_times_slower_is_found_within_two_cycles() {
    let mut pair = bulk(Path { rate_bps: 100_000_000, buffer_bytes: 250_000, ..CLEAN });
    until(&mut pair, 5.0, is_in(State::ProbeBwCruise));
    assert!(bbr(&pair).max_bw.get() > 9.0 * RATE);
    pair.path.rate_bps /= 10;
    until(&mut pair, 20.0, |pair| bbr(pair).max_bw.get() < 1.05 * RATE);
    assert!(bbr(&pair).bw >= 0.5 * RATE, "{}", bbr(&pair).bw / RATE);
}

#[test]
fn a_path_of_less_than_a_packet_has_four_in_flight() {
    // 200 kbit/s and 4 ms: 100 bytes.
    let mut pair = bulk(Path { rate_bps: 200_000, delay_ms: 2, ..CLEAN });
    until(&mut pair, 30.0, is_in(State::ProbeBwCruise));
    assert!(bbr(&pair).cwnd >= 4.0 * bbr(&pair).smss);
    let share = rate(&mut pair, 10.0) / (RATE / 50.0);
    assert!((0.9..=1.01).contains(&share), "{share}");
}

/// A probe of the bandwidth answers losses itself.
#[test]
fn losses_lower_the_short_term_bounds_unless_the_sender_probes() {
    for (state, lowers) in [(State::ProbeBwCruise, true), (State::ProbeBwUp, false), (State::Startup, false)] {
        let mut control = Bbr::new(&stack("modern-bbr", &[]), 1000, 1);
        (control.state, control.is_loss_in_round, control.cwnd) = (state, true, 50_000.0);
        control.adapt_lower_bounds_from_congestion();
        let lowered = if lowers { BETA * 50_000.0 } else { f64::INFINITY };
        assert_eq!(control.inflight_shortterm, lowered, "{state:?}");
    }
}

/// Losses that were none: the sender goes back to probing, with the volumes that it had.
#[test]
fn a_spurious_recovery_is_undone() {
    let mut pair = bulk(CLEAN);
    until(&mut pair, 10.0, is_in(State::ProbeBwUp));
    let mut control = {
        let CongestionControl::Bbr(bbr) = &mut pair.ends[0].as_mut().unwrap().sender.congestion else { panic!() };
        std::mem::replace(bbr, Box::new(Bbr::new(&stack("modern-bbr", &[]), 1448, 1)))
    };
    let now = backchannel_core::Time(pair.now);
    let tx_in_flight = control.in_flight as u64;
    control.is_bw_probe_sample = true;
    let lost = tx_in_flight / 10;
    control.on_lost(now, &super::Lost { bytes: 1448, tx_in_flight, lost, is_app_limited: false });
    assert_eq!((control.state, control.undo.state), (State::ProbeBwDown, Some(State::ProbeBwUp)));
    assert!(control.inflight_longterm.is_finite());
    control.on_spurious_loss();
    assert_eq!((control.state, control.inflight_longterm), (State::ProbeBwRefill, f64::INFINITY));
}
