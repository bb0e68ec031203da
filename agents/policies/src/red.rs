//! RED, random early detection: the gateway of ack congestion control.
//!
//! Source: Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance" (1993), figure 2; asym 6.1
//! for acks as candidates and random victims; Floyd 2000 for the gentle variant; RFC 3168 section 7 for ECN.
//!
//! The average queue length decides whether an arriving packet is marked (ECN) or dropped early.
//!
//! ```text
//! avg  := (1 - w) avg + w q             at each arrival, q packets in the queue
//! avg  := (1 - w)^m avg                 after an idle time of m typical packets
//! p_b  := max_p (avg - min)/(max - min) while min <= avg < max
//! p_b  := max_p + (1 - max_p)(avg - max)/max   while max <= avg < 2 max, if gentle
//! p_b  := 1                             above
//! p_a  := p_b/(1 - count p_b)           count: packets since the last mark
//! ```
//!
//! p_a spaces the marks uniformly on 1 to 1/p_b - 1 packets, as figure 2 counts them.
//!
//! Differs from the source in:
//! - Where the average has reached its upper end, the paper marks every packet and only a full queue drops. `above_max:
//!   drop` treats the queue as full from there on, as ns and RFC 3168 section 7 do.
//! - A packet chosen for a mark that is not ECN-capable passes (asym 6.1). `not_capable: drop` drops it (RFC 3168).
//! - A full queue drops a random packet (ACC-R, asym 7.1.1 B). `victim: tail` drops the arriving one (ACC-D).
//! - Thresholds are fractions of the limit. The defaults are those of the simulator of asym.

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Queueing, When};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::scenario::Named;
use backchannel_core::time::{service_time, Time};
use backchannel_core::traits::Policy;
use backchannel_core::Error;
use backchannel_core::{choice, options};

use crate::limit::Limit;
use crate::{AcksFirst, Context, DropTail};

choice! {
    /// What happens to a chosen packet, or to all above the ramp.
    pub enum Action {
        /// It gets Congestion Experienced.
        Mark = "mark",
        /// It is dropped.
        Drop = "drop",
    }
}

choice! {
    /// What happens to a chosen packet that is not ECN-capable.
    pub enum NotCapable {
        /// It is enqueued.
        Pass = "pass",
        /// It is dropped.
        Drop = "drop",
    }
}

choice! {
    /// Which packet a full queue drops.
    pub enum Victim {
        /// The arriving one.
        Tail = "tail",
        /// One of those waiting.
        Random = "random",
    }
}

choice! {
    /// Which packets are marked or dropped early.
    pub enum Candidates {
        /// All.
        All = "all",
        /// All but pure acks.
        Data = "data",
    }
}

options! {
    /// What the campaign sets; fixed for the run.
    #[derive(Copy)]
    pub struct Parameters {
        .. limit: Limit;
        min_fraction: f64 = 0.15, [Fraction]
            "average queue length below which nothing is marked, as a fraction of limit_packets (asym, ns)";
        max_fraction: f64 = 0.6, [Fraction]
            "average queue length at which the mark probability reaches max_p, as a fraction of limit_packets (asym, \
             ns)";
        weight: f64 = 0.01, [Fraction]
            "weight of the newest sample in the average queue length; 1 follows the queue at once (asym, ns)";
        max_p: f64 = 0.1, [Fraction] "mark probability when the average reaches max_fraction (asym, ns)";
        gentle: bool = false, [Flag]
            "raise the mark probability from max_p to 1 between max and twice max, instead of at max (Floyd 2000)";
        action: Action = "mark", [Choice]
            "what happens to a chosen packet: mark sets Congestion Experienced, drop drops it early";
        not_capable: NotCapable = "pass", [Choice]
            "what happens to a chosen packet that is not ECN-capable: pass enqueues it, so only a full queue drops it \
             (asym 6.1); drop drops it (RFC 3168, 7)";
        above_max: Action = "mark", [Choice]
            "what happens once the average has reached max (twice max if gentle): mark marks every packet (Floyd and \
             Jacobson 1993); drop treats the queue as full unless it is empty (ns; RFC 3168, 7)";
        victim: Victim = "random", [Choice]
            "which packet a full queue drops: tail, the arriving one (ACC-D); random, one of those waiting (ACC-R)";
        candidates: Candidates = "all", [Choice]
            "which packets are marked or dropped early: all, or data, which spares pure acks and so disables ack \
             congestion control (asym 7.1.3)";
        acks_first: bool = false, [Flag] "send pure acks before all other packets (asym 6.5)";
        typical_packet_bytes: u64 = 500, [Bytes 1]
            "packet size whose transmission time measures how long the queue was idle";
    }
}

options! {
    /// The same with the policy that holds the packets.
    struct Options {
        .. parameters: Parameters;
        child: Option<Named> = ABSENT, [Policy]
            "policy that holds the packets, with a limit of its own in addition to limit_packets; absent: first in, \
             first out, or acks-first with acks_first";
    }
}

pub(crate) static ENTRY: Entry = Entry::policy(
    "red",
    "random early detection: marks (ECN) or drops packets by the average queue length, acks included",
    Queueing { reorders: When::With("acks_first"), ..Queueing::FIFO },
)
.source("asym 6.1, 7.1.1, 7.1.3; Floyd and Jacobson 1993")
.random(When::Always)
.options(Options::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: &Context) -> Result<Box<dyn Policy>, Error> {
    let Options { parameters, child } = Options::read(checked);
    if parameters.min_fraction >= parameters.max_fraction {
        return Err("policy red: min_fraction must be below max_fraction".into());
    }
    let rng = rng::stream(context.seed, &format!("{}/red", context.label));
    let child: Box<dyn Policy> = match (context.child("child", &child)?, parameters.acks_first) {
        (None, false) => return Ok(Box::new(Red::new(DropTail::new(Limit::NONE), parameters, context.rate_bps, rng))),
        (None, true) => Box::new(AcksFirst::new(Limit::NONE)),
        (Some(child), false) => child,
        (Some(_), true) => return Err("policy red: set only one of acks_first and child".into()),
    };
    Ok(Box::new(Red::new(child, parameters, context.rate_bps, rng)))
}

/// What changes at run time. Statistics are not kept: each mark and drop is an event, which the driver counts.
#[derive(Clone, Copy, Debug)]
struct Variables {
    /// avg, packets.
    average: f64,
    /// Candidates since the last mark; `None` while the average is below min (count = -1 in figure 2).
    count: Option<u32>,
    /// When the queue became empty.
    idle_since: Option<Time>,
    /// Transmission time of a typical packet, in seconds; `None` on a line without a rate.
    typical_packet_s: Option<f64>,
}

/// Random early detection in front of its child, which holds the packets.
#[derive(Debug)]
pub struct Red<P = Box<dyn Policy>> {
    parameters: Parameters,
    /// In packets: below min nothing is marked, at max the mark probability is max_p.
    thresholds: [f64; 2],
    variables: Variables,
    rng: RunRng,
    child: P,
}

impl<P: Policy> Red<P> {
    /// An empty child in front of a line of this rate. Draws from `rng`.
    pub fn new(child: P, parameters: Parameters, rate_bps: Option<u64>, rng: RunRng) -> Red<P> {
        let Parameters { limit, min_fraction, max_fraction, .. } = parameters;
        let mut red = Red {
            parameters,
            thresholds: [min_fraction, max_fraction].map(|fraction| fraction * limit.limit_packets as f64),
            variables: Variables { average: 0.0, count: None, idle_since: Some(Time::ZERO), typical_packet_s: None },
            rng,
            child,
        };
        red.set_rate(rate_bps);
        red
    }

    /// The average queue length, in packets.
    pub fn average(&self) -> f64 {
        self.variables.average
    }

    fn set_rate(&mut self, rate_bps: Option<u64>) {
        let bits = self.parameters.typical_packet_bytes * 8;
        self.variables.typical_packet_s = rate_bps.map(|rate_bps| service_time(bits, rate_bps).as_secs_f64());
    }

    fn update_average(&mut self, now: Time) {
        let (w, waiting) = (self.parameters.weight, self.len_packets() as f64);
        let Variables { average, idle_since, typical_packet_s, .. } = &mut self.variables;
        match (*idle_since, *typical_packet_s) {
            (Some(since), Some(typical_packet_s)) => {
                let m = now.since(since).as_secs_f64() / typical_packet_s;
                *average *= (1.0 - w).powf(m);
                // If this packet is dropped, the queue stays empty, and the next one counts the time from now on.
                *idle_since = Some(now);
            }
            _ => *average = (1.0 - w) * *average + w * waiting,
        }
    }

    /// p_b of the present average; `None` below min.
    fn p_b(&self) -> Option<f64> {
        let (Parameters { max_p, gentle, .. }, [min, max]) = (self.parameters, self.thresholds);
        let average = self.variables.average;
        if average < min {
            None
        } else if average < max {
            Some(max_p * (average - min) / (max - min))
        } else if gentle && average < 2.0 * max {
            Some(max_p + (1.0 - max_p) * (average - max) / max)
        } else {
            Some(1.0)
        }
    }

    /// Whether the arriving packet is chosen for a mark or an early drop.
    fn choose(&mut self) -> bool {
        let Some(p_b) = self.p_b() else {
            self.variables.count = None;
            return false;
        };
        let count = self.variables.count.map_or(0, |count| count + 1);
        self.variables.count = Some(count);
        let spread = 1.0 - f64::from(count) * p_b;
        let p_a = if spread > p_b { p_b / spread } else { 1.0 };
        // A certain outcome draws no random number.
        let chosen = p_a >= 1.0 || rng::uniform(&mut self.rng) < p_a;
        if chosen {
            self.variables.count = Some(0);
        }
        chosen
    }

    /// Whether the average makes the queue count as full. An empty queue has no packet to drop and never counts as
    /// full.
    fn full_by_average(&self) -> bool {
        let (Parameters { gentle, above_max, .. }, [_, max]) = (self.parameters, self.thresholds);
        let end = if gentle { 2.0 * max } else { max };
        above_max == Action::Drop && self.len_packets() > 0 && self.variables.average >= end
    }

    /// Drops a random waiting packet.
    fn drop_random(&mut self, now: Time, events: &mut Events) {
        let waiting = self.len_packets();
        let place = rng::below(&mut self.rng, waiting);
        let victim = self.child.take(place, None);
        events.record(now, EventKind::DroppedFull, &victim.expect("the place is below the length"));
    }

    fn admits(&self, packet: &Packet) -> bool {
        self.parameters.limit.admits(self.len_packets(), self.len_bytes(), packet)
    }
}

impl<P: Policy> Policy for Red<P> {
    fn enqueue(&mut self, now: Time, mut packet: Packet, events: &mut Events) {
        self.update_average(now);
        let candidate = !(self.parameters.candidates == Candidates::Data && packet.is_pure_ack());
        let full = candidate && self.full_by_average();
        let chosen = candidate && self.choose();
        let too_long = !self.parameters.limit.admits(0, 0, &packet);
        if too_long || (self.parameters.victim == Victim::Tail && (full || !self.admits(&packet))) {
            events.record(now, EventKind::DroppedFull, &packet);
            return;
        }
        if full {
            self.drop_random(now, events);
        } else if chosen {
            let Parameters { action, not_capable, .. } = self.parameters;
            if action == Action::Mark && packet.set_congestion_experienced() {
                events.record(now, EventKind::Marked, &packet);
            } else if action == Action::Drop || not_capable == NotCapable::Drop {
                events.record(now, EventKind::DroppedEarly, &packet);
                return;
            }
        }
        while !self.admits(&packet) {
            self.drop_random(now, events);
        }
        self.child.enqueue(now, packet, events);
        if self.len_packets() > 0 {
            self.variables.idle_since = None;
        }
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        let packet = self.child.dequeue(now, events);
        if self.len_packets() == 0 {
            self.variables.idle_since.get_or_insert(now);
        }
        packet
    }

    fn next_time(&self) -> Option<Time> {
        self.child.next_time()
    }

    fn on_opposite(&mut self, now: Time, packet: &Packet) {
        self.child.on_opposite(now, packet);
    }

    fn on_rates(&mut self, now: Time, own_bps: Option<u64>, opposite_bps: Option<u64>) {
        self.set_rate(own_bps);
        self.child.on_rates(now, own_bps, opposite_bps);
    }

    crate::fifo::kept_in!(child);
}

#[cfg(test)]
mod tests;
