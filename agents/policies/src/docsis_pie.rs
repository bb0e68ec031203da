//! DOCSIS-PIE, PIE for the uplink of a cable modem (RFC 8034, appendix A; names are those of its pseudocode).
//!
//! It differs from PIE (`pie.rs`):
//!
//! - The latency is predicted from the bytes that wait and the rate at which they will leave, not measured (3.1). Our line
//!   has one rate, so that PEAK_RATE and MSR, the sustained rate of the modem's token bucket, are equal.
//! - The target is 10 ms, an update comes every 16 ms, and the gains are twice as high (A.1).
//! - The probability counts for a packet of MEAN_PKTSIZE, and smaller packets are dropped less (A.2). So it may exceed 1.
//! - It falls by 2 % a step while the latency is below 5 ms, and grows by 0.02 while it is above 200 ms.
//! - It is inactive until a third of the buffer is in use, and again after a second without congestion. Then a burst of
//!   142 ms passes.

use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Queueing, When};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;
use backchannel_core::Error;

use crate::context::rate_bps;
use crate::fifo::Fifo;
use crate::limit::Limit;
use crate::pie::autotune;
use crate::Context;

options! {
    /// Options of the policy.
    #[derive(Copy)]
    struct Parameters {
        limit_packets: usize = 1000, [Packets 1] "capacity in packets; a third of it makes the policy active";
        buffer_bytes: Option<u64> = ABSENT, [Bytes 1]
            "BUFFER_SIZE, capacity in bytes of the network layer, in addition to limit_packets; absent: unlimited";
        target_s: Duration = 0.01, [Time 1e-6 to 100] "LATENCY_TARGET (A.1)";
        rate_bps: Option<f64> = ABSENT, [Rate 1]
            "PEAK_RATE and MSR, the rate at which packets leave; absent: the link's rate, also when it changes";
    }
}

pub(crate) static ENTRY: Entry = Entry::policy(
    "docsis-pie",
    "PIE of cable modems: the delay is predicted from the rate, and small packets are dropped less",
    Queueing::FIFO,
)
.source("RFC 8034")
.random(When::Always)
.options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: &Context) -> Result<Box<dyn Policy>, Error> {
    let parameters = Parameters::read(checked);
    let rate = rate_bps(parameters.rate_bps, context.rate_bps, "rate_bps", "docsis-pie", "this direction")?;
    let random = rng::stream(context.seed, &format!("{}/docsis-pie", context.label));
    Ok(Box::new(DocsisPie::new(parameters, rate, random)))
}

// A.1, in s, bytes and Hz.
const A: f64 = 0.25;
const B: f64 = 2.5;
const INTERVAL: Duration = Duration::from_millis(16);
const BURST_RESET_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_BURST: Duration = Duration::from_millis(142);
const MEAN_PKTSIZE: f64 = 1024.0;
const MIN_PKTSIZE: f64 = 64.0;
const PROB_LOW: f64 = 0.85;
const PROB_HIGH: f64 = 8.5;
const LATENCY_LOW: f64 = 0.005;
const LATENCY_HIGH: f64 = 0.2;

/// The states of burst protection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing is dropped until a third of the buffer is in use.
    #[default]
    Inactive,
    /// Packets may be dropped, and have not been since a quiet time.
    Quiescent,
    /// A packet was dropped.
    Active,
}

/// A queue with this controller.
struct DocsisPie {
    parameters: Parameters,
    limit: Limit,
    rate_bps: f64,
    variables: Variables,
    queue: Fifo,
    random: RunRng,
}

/// What changes at run time, beside the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Variables {
    drop_prob: f64,
    accu_prob: f64,
    /// In s.
    qdelay_old: f64,
    burst_allowance: Duration,
    burst_reset: Duration,
    state: State,
    updated: Time,
}

impl DocsisPie {
    fn new(parameters: Parameters, rate_bps: f64, random: RunRng) -> DocsisPie {
        let limit = Limit { limit_packets: parameters.limit_packets, buffer_bytes: parameters.buffer_bytes };
        DocsisPie { parameters, limit, rate_bps, variables: Variables::default(), queue: Fifo::default(), random }
    }

    /// The time until a packet that arrives now would leave, in s.
    fn qdelay(&self) -> f64 {
        self.queue.bytes() as f64 * 8.0 / self.rate_bps
    }

    /// A.2, calculate_drop_prob, for every INTERVAL until `now`.
    fn update(&mut self, now: Time) {
        let target = self.parameters.target_s.as_secs_f64();
        while self.variables.updated + INTERVAL <= now {
            let qdelay = self.qdelay();
            let variables = &mut self.variables;
            variables.updated += INTERVAL;
            if variables.burst_allowance > Duration::ZERO {
                variables.drop_prob = 0.0;
                variables.burst_allowance = variables.burst_allowance.saturating_sub(INTERVAL);
            } else {
                let p = A * (qdelay - target) + B * (qdelay - variables.qdelay_old);
                let mut p = p * match variables.drop_prob {
                    p if p < 0.1 => autotune(p),
                    p if p < 1.0 => 2.0,
                    p if p < 10.0 => 8.0,
                    _ => 32.0,
                };
                if variables.drop_prob >= 0.1 {
                    p = p.min(0.02);
                }
                variables.drop_prob += p;
                if qdelay < LATENCY_LOW && variables.qdelay_old < LATENCY_LOW {
                    variables.drop_prob *= 0.98;
                } else if qdelay > LATENCY_HIGH {
                    variables.drop_prob += 0.02;
                }
                variables.drop_prob = variables.drop_prob.clamp(0.0, PROB_LOW * MEAN_PKTSIZE / MIN_PKTSIZE);
            }
            let is_quiet = qdelay < 0.5 * target
                && variables.qdelay_old < 0.5 * target
                && variables.drop_prob == 0.0
                && variables.burst_allowance.is_zero();
            match variables.state {
                State::Active if is_quiet => {
                    (variables.state, variables.burst_reset) = (State::Quiescent, Duration::ZERO);
                }
                State::Quiescent if is_quiet => {
                    variables.burst_reset += INTERVAL;
                    if variables.burst_reset > BURST_RESET_TIMEOUT {
                        (variables.state, variables.burst_reset) = (State::Inactive, Duration::ZERO);
                    }
                }
                State::Quiescent => variables.burst_reset = Duration::ZERO,
                State::Inactive | State::Active => {}
            }
            variables.qdelay_old = qdelay;
        }
    }

    /// Whether a third of the buffer is in use.
    fn is_third_full(&self) -> bool {
        3 * self.queue.len() >= self.limit.limit_packets
            || self.limit.buffer_bytes.is_some_and(|most| 3 * self.queue.bytes() >= most)
    }

    /// A.2, drop_early.
    fn drop_early(&mut self, length: u32) -> bool {
        if self.variables.burst_allowance > Duration::ZERO {
            return false;
        }
        if self.variables.state == State::Inactive {
            if self.is_third_full() {
                let (qdelay_old, updated) = (self.variables.qdelay_old, self.variables.updated);
                let (state, burst_allowance) = (State::Quiescent, MAX_BURST);
                self.variables = Variables { state, burst_allowance, qdelay_old, updated, ..Variables::default() };
            }
            return false;
        }
        let half = 0.5 * self.parameters.target_s.as_secs_f64();
        let variables = &mut self.variables;
        if variables.drop_prob == 0.0 {
            variables.accu_prob = 0.0;
        }
        let p1 = (variables.drop_prob * f64::from(length) / MEAN_PKTSIZE).min(PROB_LOW);
        variables.accu_prob += p1;
        if (variables.qdelay_old < half && variables.drop_prob < 0.2)
            || self.queue.bytes() as f64 <= 2.0 * MEAN_PKTSIZE
            || variables.accu_prob < PROB_LOW
        {
            return false;
        }
        variables.accu_prob >= PROB_HIGH || rng::uniform(&mut self.random) < p1
    }

    /// A packet is dropped.
    fn on_drop(&mut self) {
        self.variables.accu_prob = 0.0;
        if self.variables.state == State::Quiescent {
            (self.variables.state, self.variables.burst_reset) = (State::Active, Duration::ZERO);
        }
    }
}

impl Policy for DocsisPie {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        self.update(now);
        if !self.limit.admits(self.queue.len(), self.queue.bytes(), &packet) {
            events.record(now, EventKind::DroppedFull, &packet);
            self.on_drop();
        } else if self.drop_early(packet.len()) {
            events.record(now, EventKind::DroppedEarly, &packet);
            self.on_drop();
        } else {
            self.queue.push(packet);
        }
    }

    fn dequeue(&mut self, now: Time, _: &mut Events) -> Option<Packet> {
        self.update(now);
        self.queue.pop()
    }

    fn on_rates(&mut self, now: Time, own_bps: Option<u64>, _: Option<u64>) {
        self.update(now);
        if let (None, Some(bps)) = (self.parameters.rate_bps, own_bps) {
            self.rate_bps = bps as f64;
        }
    }

    crate::fifo::kept_in!(queue);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, kinds};
    use backchannel_core::packet::build::{ack, data};

    /// A queue of 60 packets on 1 Mbit/s, where 1250 bytes wait for 10 ms.
    fn queue() -> DocsisPie {
        let parameters = Parameters::read(&CheckedOptions::check(&ENTRY, &Default::default()).expect("defaults"));
        let parameters = Parameters { limit_packets: 60, ..parameters };
        DocsisPie::new(parameters, 1e6, rng::stream(1, "test"))
    }

    /// With so many packets of 1250 bytes that wait, and active with this probability.
    fn active(packets: u64, drop_prob: f64) -> DocsisPie {
        let mut queue = queue();
        (0..packets).for_each(|id| queue.queue.push(data(id, 1210)));
        queue.variables =
            Variables { drop_prob, qdelay_old: 0.01 * packets as f64, state: State::Active, ..Variables::default() };
        queue
    }

    #[test]
    fn the_probability_follows_the_predicted_delay() {
        let after = |mut queue: DocsisPie, seconds: f64| {
            queue.update(at(seconds));
            queue.variables.drop_prob
        };
        let close = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-12, "{found} {wanted}");
        // Three packets wait for 30 ms: A 0.02 = 0.005 a step, scaled by the table.
        close(after(active(3, 0.0), 0.016), 0.005 / 2048.0);
        close(after(active(3, 0.05), 0.016), 0.05 + 0.005 / 2.0);
        close(after(active(3, 0.05), 0.015), 0.05);
        close(after(active(3, 0.2), 0.016), 0.2 + 0.01);
        // Ten for 100 ms: 0.0225, twice, but no more than 0.02 a step; 30 for 300 ms: another 0.02.
        close(after(active(10, 0.2), 0.016), 0.22);
        close(after(active(30, 0.2), 0.016), 0.24);
        close(after(active(30, 13.6), 0.016), 13.6);
        // Eight times from 1 on: 2.5e-3 below the target without packets, and 2 %.
        close(after(active(0, 2.0), 0.016), (2.0 - 8.0 * 0.25 * 0.01) * 0.98);
        let mut rising = active(3, 0.05);
        rising.variables.qdelay_old = 0.02;
        close(after(rising, 0.016), 0.05 + (0.005 + 0.025) / 2.0);
    }

    #[test]
    fn it_becomes_active_with_a_third_of_the_buffer_and_lets_a_burst_pass() {
        let (mut queue, mut events) = (queue(), Events::default());
        (0..20).for_each(|id| queue.enqueue(Time::ZERO, data(id, 1210), &mut events));
        assert_eq!(queue.variables.state, State::Inactive);
        queue.enqueue(Time::ZERO, data(20, 1210), &mut events);
        assert_eq!((queue.variables.state, queue.variables.burst_allowance), (State::Quiescent, MAX_BURST));
        queue.update(at(0.144));
        assert_eq!((queue.variables.drop_prob, queue.variables.burst_allowance), (0.0, Duration::ZERO));
        queue.update(at(2.0));
        assert!(queue.variables.drop_prob > 1.0);
        (30..60).for_each(|id| queue.enqueue(at(2.0), data(id, 1210), &mut events));
        assert!(events.count(EventKind::DroppedEarly) > 20);
        assert_eq!(queue.variables.state, State::Active);
    }

    #[test]
    fn a_burst_leaves_the_last_delay_and_the_time_of_the_next_update() {
        let mut queue = active(21, 0.0);
        queue.variables = Variables { qdelay_old: 0.3, updated: at(5.0), ..Variables::default() };
        assert!(!queue.drop_early(1210));
        assert_eq!(queue.variables.state, State::Quiescent);
        assert_eq!((queue.variables.qdelay_old, queue.variables.updated), (0.3, at(5.0)));
    }

    #[test]
    fn a_quiet_second_makes_it_inactive_again() {
        let mut queue = active(0, 0.0);
        queue.update(at(0.016));
        assert_eq!(queue.variables.state, State::Quiescent);
        queue.update(at(1.02));
        assert_eq!(queue.variables.state, State::Quiescent);
        // The 63rd further interval is the first beyond a second.
        queue.update(at(0.016 * 64.0));
        assert_eq!(queue.variables.state, State::Inactive);
        let mut queue = active(0, 0.0);
        queue.update(at(0.5));
        queue.queue.push(data(1, 1210));
        queue.update(at(0.516));
        assert_eq!(queue.variables.burst_reset, Duration::ZERO);
    }

    #[test]
    fn small_packets_are_dropped_less() {
        let mut queue = active(10, 0.1);
        let drops = |queue: &mut DocsisPie, length: u32| {
            let mut dropped = 0;
            for _ in 0..4000 {
                if queue.drop_early(length) {
                    queue.variables.accu_prob = 0.0;
                    dropped += 1;
                }
            }
            dropped
        };
        let (large, small) = (drops(&mut queue, 1024), drops(&mut queue, 256));
        // A probability of 0.1 and 0.025: about 0.85 + 1 packets' worth between drops.
        assert!((195..250).contains(&large) && (45..70).contains(&small), "{large} {small}");
    }

    #[test]
    fn a_full_buffer_drops_what_arrives_and_two_packets_are_safe() {
        let (mut queue, mut events) = (queue(), Events::default());
        (0..61).for_each(|id| queue.enqueue(Time::ZERO, data(id, 10), &mut events));
        assert_eq!(kinds(&events), [(60, EventKind::DroppedFull)]);
        let mut short = active(0, 10.0);
        short.variables.qdelay_old = 1.0;
        (0..2).for_each(|id| short.queue.push(data(id, 984)));
        short.variables.accu_prob = 9.0;
        assert!(!short.drop_early(1024), "2048 bytes wait");
        short.queue.push(ack(3));
        assert!(short.drop_early(1024));
    }
}
