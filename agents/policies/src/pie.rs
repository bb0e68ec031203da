//! PIE, proportional integral controller enhanced (RFC 8033; names are those of its pseudocode).
//!
//! Every T_UPDATE the drop probability follows the latency, and arriving packets are dropped with it (4.1, 4.2):
//!
//! ```text
//! p          = alpha (current_qdelay - QDELAY_REF) + beta (current_qdelay - qdelay_old), scaled by a table of drop_prob
//! drop_prob += p                                   at most 1, at least 0, and 2 % less where no packet waits
//! ```
//!
//! - The latency is the waiting time of the packet that left last, and 0 if it left the queue empty (4.3).
//! - In the first 150 ms after a time without congestion nothing is dropped (4.4).
//! - Nothing is dropped while the latency was below half of QDELAY_REF with a probability below 0.2, or with no more than
//!   two packets' worth of bytes waiting (4.1).
//! - Of the optional elements (5): ECN up to a probability of 0.1 (5.1), derandomization (5.4), and steps of at most 0.02
//!   from a probability of 0.1 on (5.5). Not built: the estimate of the dequeue rate (5.2), for which timestamps stand, and
//!   PIE that is inactive below a third of the buffer (5.3), which `docsis-pie` has.
//!
//! Linux also adds 2 % a step while packets wait longer than 250 ms.

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

use crate::limit::Limit;
use crate::stamped::Stamped;
use crate::Context;

options! {
    /// Options of the policy.
    #[derive(Copy)]
    struct Parameters {
        limit_packets: usize = 1000, [Packets 1] "capacity in packets";
        buffer_bytes: Option<u64> = ABSENT, [Bytes 1]
            "capacity in bytes of the network layer, in addition to limit_packets; absent: unlimited";
        target_s: Duration = 0.015, [Time 1e-6 to 100] "QDELAY_REF, the latency that is aimed at (4.2)";
        tupdate_s: Duration = 0.015, [Time 0.001 to 1] "T_UPDATE, the time between two updates of the probability (4.2)";
        alpha: f64 = 0.125, [Number 0 to 100] "weight of the latency's distance from the target, in Hz (4.2)";
        beta: f64 = 1.25, [Number 0 to 100] "weight of the latency's change, in Hz (4.2)";
        max_burst_s: Duration = 0.15, [Time 0 to 10] "MAX_BURST, the time without drops after a quiet time (4.4)";
        mean_packet_bytes: u64 = 1500, [Bytes 1 to 65_535]
            "MEAN_PKTSIZE; with no more than twice as many bytes waiting, nothing is dropped early (4.1)";
        ecn: bool = false, [Flag]
            "mark ECN-capable packets instead of dropping them, up to a probability of 0.1 (5.1)";
    }
}

pub(crate) static ENTRY: Entry = Entry::policy(
    "pie",
    "drops or marks arriving packets with a probability that follows the queueing delay",
    Queueing::FIFO,
)
.source("RFC 8033")
.random(When::Always)
.options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: &Context) -> Result<Box<dyn Policy>, Error> {
    let random = rng::stream(context.seed, &format!("{}/pie", context.label));
    Ok(Box::new(Pie::new(Parameters::read(checked), random)))
}

/// The greatest probability with which ECN-capable packets are marked (5.1).
const MARK_ECN_TH: f64 = 0.1;
/// Bounds of the accumulated probability: below the first nothing is dropped, from the second on a packet is (5.4).
const PROB_LOW: f64 = 0.85;
const PROB_HIGH: f64 = 8.5;

/// A queue with this controller.
struct Pie {
    parameters: Parameters,
    limit: Limit,
    variables: Variables,
    queue: Stamped,
    random: RunRng,
}

/// What changes at run time, beside the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Variables {
    drop_prob: f64,
    current_qdelay: Duration,
    qdelay_old: Duration,
    burst_allowance: Duration,
    /// Sum of the probabilities since the last drop (5.4).
    accu_prob: f64,
    /// When the probability was updated last.
    updated: Time,
}

/// The factor of a change of the probability `drop_prob` (4.2).
pub(crate) fn autotune(drop_prob: f64) -> f64 {
    match drop_prob {
        p if p < 0.000_001 => 1.0 / 2048.0,
        p if p < 0.000_01 => 1.0 / 512.0,
        p if p < 0.000_1 => 1.0 / 128.0,
        p if p < 0.001 => 1.0 / 32.0,
        p if p < 0.01 => 1.0 / 8.0,
        p if p < 0.1 => 1.0 / 2.0,
        _ => 1.0,
    }
}

impl Pie {
    fn new(parameters: Parameters, random: RunRng) -> Pie {
        let limit = Limit { limit_packets: parameters.limit_packets, buffer_bytes: parameters.buffer_bytes };
        let variables = Variables { burst_allowance: parameters.max_burst_s, ..Variables::default() };
        Pie { parameters, limit, variables, queue: Stamped::default(), random }
    }

    /// Appendix A, calculate_drop_prob, for every T_UPDATE until `now`.
    fn update(&mut self, now: Time) {
        let Parameters { target_s, tupdate_s, alpha, beta, .. } = self.parameters;
        while self.variables.updated + tupdate_s <= now {
            let variables = &mut self.variables;
            variables.updated += tupdate_s;
            let [qdelay, old] = [variables.current_qdelay, variables.qdelay_old].map(|delay| delay.as_secs_f64());
            let mut p = alpha * (qdelay - target_s.as_secs_f64()) + beta * (qdelay - old);
            p *= autotune(variables.drop_prob);
            if variables.drop_prob >= 0.1 {
                // 5.5.
                p = p.min(0.02);
            }
            variables.drop_prob += p;
            if qdelay == 0.0 && old == 0.0 {
                variables.drop_prob *= 0.98;
            }
            variables.drop_prob = variables.drop_prob.clamp(0.0, 1.0);
            variables.qdelay_old = variables.current_qdelay;
            variables.burst_allowance = variables.burst_allowance.saturating_sub(tupdate_s);
        }
    }

    /// Appendix A, drop_early; with 5.4.
    fn drop_early(&mut self) -> bool {
        let Parameters { target_s, mean_packet_bytes, .. } = self.parameters;
        let variables = &mut self.variables;
        if (variables.qdelay_old < target_s / 2 && variables.drop_prob < 0.2)
            || self.queue.bytes() <= 2 * mean_packet_bytes
        {
            return false;
        }
        if variables.drop_prob == 0.0 {
            variables.accu_prob = 0.0;
        }
        variables.accu_prob += variables.drop_prob;
        variables.accu_prob >= PROB_LOW
            && (variables.accu_prob >= PROB_HIGH || rng::uniform(&mut self.random) < variables.drop_prob)
    }
}

impl Policy for Pie {
    fn enqueue(&mut self, now: Time, mut packet: Packet, events: &mut Events) {
        self.update(now);
        if !self.limit.admits(self.queue.len(), self.queue.bytes(), &packet) {
            events.record(now, EventKind::DroppedFull, &packet);
            self.variables.accu_prob = 0.0;
            return;
        }
        let half = self.parameters.target_s / 2;
        let Variables { drop_prob, current_qdelay, qdelay_old, .. } = self.variables;
        if drop_prob == 0.0 && current_qdelay < half && qdelay_old < half {
            self.variables.burst_allowance = self.parameters.max_burst_s;
        }
        if self.variables.burst_allowance.is_zero() && self.drop_early() {
            self.variables.accu_prob = 0.0;
            let marks = self.parameters.ecn && drop_prob < MARK_ECN_TH;
            if !(marks && packet.set_congestion_experienced()) {
                events.record(now, EventKind::DroppedEarly, &packet);
                return;
            }
            events.record(now, EventKind::Marked, &packet);
        }
        self.queue.push(now, packet);
    }

    fn dequeue(&mut self, now: Time, _: &mut Events) -> Option<Packet> {
        self.update(now);
        let (packet, waited) = self.queue.pop(now)?;
        self.variables.current_qdelay = if self.queue.len() == 0 { Duration::ZERO } else { waited };
        Some(packet)
    }

    crate::fifo::kept_in!(queue);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, kinds};
    use backchannel_core::packet::build::{data, Segment};

    fn pie(change: impl FnOnce(&mut Parameters)) -> Pie {
        let mut parameters = Parameters::read(&CheckedOptions::check(&ENTRY, &Default::default()).expect("defaults"));
        change(&mut parameters);
        Pie::new(parameters, rng::stream(1, "test"))
    }

    /// A queue in which packets wait and have waited for so long, after a time with drops.
    fn congested(seconds: f64, drop_prob: f64) -> Pie {
        let mut queue = pie(|_| {});
        let delay = Duration::from_secs_f64(seconds);
        queue.variables = Variables { drop_prob, current_qdelay: delay, qdelay_old: delay, ..Variables::default() };
        (0..10).for_each(|id| queue.queue.push(Time::ZERO, data(id, 1460)));
        queue
    }

    #[test]
    fn the_probability_follows_section_4_2() {
        let after = |mut queue: Pie, seconds: f64| {
            queue.update(at(seconds));
            queue.variables.drop_prob
        };
        let close = |first: f64, second: f64| (first - second).abs() < 1e-12;
        // alpha (0.035 - 0.015) = 0.0025 a step, by the table: 1/2048 at first, 1/2 from 0.01 on, 1 from 0.1 on.
        assert!(close(after(congested(0.035, 0.0), 0.015), 0.0025 / 2048.0));
        assert!(close(after(congested(0.035, 0.01), 0.015), 0.01 + 0.0025 / 2.0));
        assert!(close(after(congested(0.035, 0.2), 0.015), 0.2025));
        assert_eq!(after(congested(0.035, 0.2), 0.0149), 0.2, "the first update comes after T_UPDATE");
        assert!(close(after(congested(0.035, 0.2), 0.030), 0.205), "two updates");
        // beta times the change: 1.25 (0.035 - 0.025).
        let mut rising = congested(0.035, 0.05);
        rising.variables.qdelay_old = Duration::from_millis(25);
        assert!(close(after(rising, 0.015), 0.05 + (0.0025 + 0.0125) / 2.0));
        // 5.5: at most 0.02 from 0.1 on.
        assert!(close(after(congested(1.0, 0.1), 0.015), 0.12));
        assert!(close(after(congested(1.0, 0.09), 0.015), 0.09 + 0.125 * 0.985 / 2.0));
        // Without delay: alpha times the target off, and 2 %.
        assert!(close(after(congested(0.0, 0.5), 0.015), (0.5 - 0.125 * 0.015) * 0.98));
        assert_eq!(after(congested(0.0, 0.001), 0.015), 0.001f64.mul_add(0.98, -0.98 * 0.125 * 0.015 / 8.0));
        assert_eq!(after(congested(5.0, 1.0), 0.015), 1.0);
    }

    #[test]
    fn nothing_is_dropped_in_a_burst_below_half_of_the_target_or_with_two_packets_waiting() {
        let drops = |mut queue: Pie| {
            let mut events = Events::default();
            (100..200).for_each(|id| queue.enqueue(Time::ZERO, data(id, 1460), &mut events));
            events.count(EventKind::DroppedEarly)
        };
        assert!(drops(congested(0.035, 0.5)) > 30);
        let mut burst = congested(0.035, 0.5);
        burst.variables.burst_allowance = Duration::from_millis(1);
        assert_eq!(drops(burst), 0);
        let mut below = congested(0.007, 0.19);
        assert!(!below.drop_early());
        below.variables.drop_prob = 0.2;
        below.variables.accu_prob = 10.0;
        assert!(below.drop_early());
        let mut short = congested(0.035, 1.0);
        (0..8).for_each(|_| drop(short.queue.pop(Time::ZERO)));
        assert!(!short.drop_early(), "3000 bytes wait");
        short.queue.push(Time::ZERO, data(1, 1));
        assert!(short.drop_early());
    }

    #[test]
    fn a_quiet_time_allows_the_next_burst() {
        let mut queue = pie(|_| {});
        queue.update(at(1.0));
        assert_eq!(queue.variables.burst_allowance, Duration::ZERO);
        queue.enqueue(at(1.0), data(1, 1460), &mut Events::default());
        assert_eq!(queue.variables.burst_allowance, Duration::from_millis(150));
        queue.update(at(1.03));
        assert_eq!(queue.variables.burst_allowance, Duration::from_millis(120));
        // 4.4: both delays below half of the target.
        for (current, old, quiet) in [(7, 7, true), (8, 7, false), (7, 8, false)] {
            let mut queue = pie(|parameters| parameters.target_s = Duration::from_millis(16));
            queue.variables.burst_allowance = Duration::ZERO;
            queue.variables.current_qdelay = Duration::from_millis(current);
            queue.variables.qdelay_old = Duration::from_millis(old);
            queue.enqueue(Time::ZERO, data(1, 1460), &mut Events::default());
            assert_eq!(!queue.variables.burst_allowance.is_zero(), quiet, "{current} and {old} ms");
        }
    }

    #[test]
    fn drops_are_spread_by_the_accumulated_probability() {
        // 5.4: not before 0.85/p packets, and no later than 8.5/p.
        let mut queue = congested(0.035, 0.05);
        let mut gaps = Vec::new();
        for _ in 0..200 {
            let mut gap = 1;
            while !queue.drop_early() {
                gap += 1;
            }
            queue.variables.accu_prob = 0.0;
            gaps.push(gap);
        }
        assert!(gaps.iter().all(|gap| (17..=170).contains(gap)), "{gaps:?}");
        let mean = gaps.iter().sum::<i32>() as f64 / 200.0;
        // 16 packets that are safe, and then 20 on average.
        assert!((32.0..41.0).contains(&mean), "{mean}");
    }

    #[test]
    fn the_latency_is_the_last_waiting_time_and_zero_of_an_empty_queue() {
        let mut queue = congested(0.0, 0.0);
        queue.dequeue(at(0.02), &mut Events::default());
        assert_eq!(queue.variables.current_qdelay, Duration::from_millis(20));
        while queue.dequeue(at(0.05), &mut Events::default()).is_some() {}
        assert_eq!(queue.variables.current_qdelay, Duration::ZERO);
    }

    #[test]
    fn ecn_marks_up_to_a_tenth_and_drops_beyond() {
        for (drop_prob, kind) in [(0.09, EventKind::Marked), (0.1, EventKind::DroppedEarly)] {
            let mut queue = congested(0.035, drop_prob);
            queue.parameters.ecn = true;
            queue.variables.accu_prob = 9.0;
            let mut events = Events::default();
            let packet = Segment { id: 7, payload: 1460, ecn: true, ..Segment::default() }.packet();
            queue.enqueue(Time::ZERO, packet, &mut events);
            assert_eq!(kinds(&events), [(7, kind)]);
            queue.variables.accu_prob = 9.0;
            queue.enqueue(Time::ZERO, data(8, 1460), &mut events);
            assert_eq!(kinds(&events)[1], (8, EventKind::DroppedEarly), "not ECN-capable");
        }
    }
}
