//! ACQ, adaptive class-based queueing: data and acks have a queue each, and the weights follow the gradient of the use
//! of both directions.
//!
//! Source: acq 2, 3, equation 5. The utility is U = x_r/C_r + x_f/C_f, with the data rates x and the capacities C of
//! the reverse (r) and the forward (f) direction. Each interval T, the data rates of the last two intervals give the
//! rate of the data class:
//!
//! ```text
//! (5)  r(n+1) = x_r(n) + gamma (1/C_r + (1/C_f) (x_f(n) - x_f(n-1))/(x_r(n) - x_r(n-1)))    in kbit/s
//!      X = r/C_r, the weight of data; acks have 1 - X
//! ```
//!
//! Parameters: T `period_s`, gamma, C_r `reverse_bps`, C_f `forward_bps`.
//!
//! Differs from the source, which is silent, in:
//! - X is `initial_weight` until the first update, after two intervals.
//! - The quotient is 0 if x_r did not change.
//! - X stays within `least_weight` of 0 and 1, so that no class starves.
//! - Forward data counts when it reaches the opposite interface of the router, reverse data when it leaves this queue.

use backchannel_core::event::Events;
use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::Packet;
use backchannel_core::registry::Entry;
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;
use backchannel_core::Error;

use crate::classes::{Class, ClassChildren, ClassOptions, Classes, BOUNDED_CLASSES};
use crate::context::rate_bps;
use crate::meter::Intervals;
use crate::Context;

options! {
    /// What the campaign sets; fixed for the run.
    #[derive(Copy)]
    pub(crate) struct Parameters {
        .. classes: ClassOptions;
        period_s: f64 = 10, [Time 0.01 to 100_000]
            "T, the interval between updates of the weights; at least twice the longest round-trip time (acq 2)";
        gamma: f64 = 50, [Number 0]
            "step size of the gradient, in (kbit/s)^2; larger adapts faster and swings more (acq 3.1)";
        initial_weight: f64 = 0.5, [Number 0 to 1]
            "weight of the data class until the first update, after two periods";
        least_weight: f64 = 0.01, [Number 0 to 0.5] "lower bound of the weight of either class";
        reverse_bps: Option<f64> = ABSENT, [Rate 1]
            "C_r, the capacity of this direction; if absent, the link's rate, also when it changes";
        forward_bps: Option<f64> = ABSENT, [Rate 1]
            "C_f, the capacity of the opposite direction; if absent, that direction's rate, also when it changes";
        bounded: bool = false, [Flag]
            "do not let a class use more than its share of the link, even while the other class is empty (Floyd and \
             Jacobson 1995, 2)";
    }
}

options! {
    /// The same with the policies of its classes.
    struct Options {
        .. parameters: Parameters;
        ... children: ClassChildren;
    }
}

pub(crate) static ENTRY: Entry = Entry::policy(
    "acq",
    "adaptive class-based queueing: the weights of acks and data follow the gradient of both directions' use",
    BOUNDED_CLASSES,
)
.source("acq 2, 3 (equation 5)")
.options(Options::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: &Context) -> Result<Box<dyn Policy>, Error> {
    let Options { parameters, children } = Options::read(checked);
    let reverse_bps = rate_bps(parameters.reverse_bps, context.rate_bps, "reverse_bps", "acq", "the direction")?;
    let opposite_bps = context.opposite_rate_bps;
    let forward_bps = rate_bps(parameters.forward_bps, opposite_bps, "forward_bps", "acq", "the opposite direction")?;
    let classes = parameters.classes.queues("acq", &children, parameters.share_of_acks(), context)?;
    Ok(Box::new(Acq::new(parameters, classes, reverse_bps, forward_bps)))
}

impl Parameters {
    /// The initial weight of acks.
    fn share_of_acks(&self) -> f64 {
        1.0 - self.initial_weight.clamp(self.least_weight, 1.0 - self.least_weight)
    }
}

/// What changes at run time, beside the queues.
#[derive(Clone, Debug)]
struct Variables {
    /// C_r and C_f in force, bit/s.
    reverse_bps: f64,
    forward_bps: f64,
    intervals: Intervals,
    /// Bytes of data since the interval began: reverse, forward.
    data_bytes: [u64; 2],
    /// x_r(n-1), x_f(n-1), kbit/s.
    previous_kbps: Option<[f64; 2]>,
}

/// Two queues with adaptive weights.
pub struct Acq {
    parameters: Parameters,
    variables: Variables,
    classes: Classes,
}

impl Acq {
    /// Empty queues that share the line by the initial weight. C_r and C_f are those at the start.
    pub(crate) fn new(parameters: Parameters, classes: Classes, reverse_bps: f64, forward_bps: f64) -> Acq {
        Acq {
            parameters,
            variables: Variables {
                reverse_bps,
                forward_bps,
                intervals: Intervals::of(parameters.period_s),
                data_bytes: [0, 0],
                previous_kbps: None,
            },
            classes: if parameters.bounded { classes.bounded(reverse_bps) } else { classes },
        }
    }

    /// X, the weight of data, in force.
    pub fn share_of_data(&self) -> f64 {
        1.0 - self.classes.share_of_acks()
    }

    /// Updates the weights for the intervals that have ended by `now`.
    fn update(&mut self, now: Time) {
        // An interval without packets is one without data. After three of them the weights stay the same.
        for _ in 0..self.variables.intervals.ended(now).min(4) {
            let bytes = std::mem::take(&mut self.variables.data_bytes);
            let [x_r, x_f] = bytes.map(|bytes| self.variables.intervals.rate_bps(bytes) / 1000.0);
            self.adapt(now, x_r, x_f);
        }
    }

    /// Equation 5 with the data rates of the interval that has ended, in kbit/s.
    fn adapt(&mut self, now: Time, x_r: f64, x_f: f64) {
        if let Some([x_r_before, x_f_before]) = self.variables.previous_kbps {
            let [c_r, c_f] = [self.variables.reverse_bps, self.variables.forward_bps].map(|bps| bps / 1000.0);
            let quotient = match x_r - x_r_before {
                0.0 => 0.0,
                change => (x_f - x_f_before) / change,
            };
            let r = x_r + self.parameters.gamma * (1.0 / c_r + quotient / c_f);
            let least = self.parameters.least_weight;
            self.classes.set_share_of_acks(now, 1.0 - (r / c_r).clamp(least, 1.0 - least));
        }
        self.variables.previous_kbps = Some([x_r, x_f]);
    }
}

impl Policy for Acq {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        self.update(now);
        let class = if packet.is_pure_ack() { Class::Acks } else { Class::Data };
        self.classes.push(class, now, packet, events);
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        self.update(now);
        let (class, packet) = self.classes.pop(now, events)?;
        if class == Class::Data {
            self.variables.data_bytes[0] += u64::from(packet.len());
        }
        Some(packet)
    }

    fn next_time(&self) -> Option<Time> {
        self.classes.next_time()
    }

    fn on_rates(&mut self, now: Time, own_bps: Option<u64>, opposite_bps: Option<u64>) {
        self.update(now);
        self.classes.on_rates(now, own_bps, opposite_bps);
        if let (None, Some(bps)) = (self.parameters.reverse_bps, own_bps) {
            let bps = bps as f64;
            self.variables.reverse_bps = bps;
            self.classes.set_line(now, bps);
        }
        if let (None, Some(bps)) = (self.parameters.forward_bps, opposite_bps) {
            self.variables.forward_bps = bps as f64;
        }
    }

    fn on_opposite(&mut self, now: Time, packet: &Packet) {
        self.update(now);
        self.classes.on_opposite(now, packet);
        if !packet.is_pure_ack() {
            self.variables.data_bytes[1] += u64::from(packet.len());
        }
    }

    crate::fifo::kept_in!(classes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, context, drain};
    use backchannel_core::packet::build::{ack, data};
    use backchannel_core::scenario::Options;
    use serde_json::json;

    /// The setting of acq 3.2, with the rates that the catalogue infers.
    const PAPER: Parameters = Parameters {
        classes: ClassOptions { limit_packets: 40, buffer_bytes: None, filter: false, allowed_acks: None },
        period_s: 10.0,
        gamma: 50.0,
        initial_weight: 0.5,
        least_weight: 0.01,
        reverse_bps: None,
        forward_bps: None,
        bounded: false,
    };

    fn queue(parameters: Parameters) -> Acq {
        let classes = parameters.classes.queues("acq", &ClassChildren::NONE, parameters.share_of_acks(), &context());
        Acq::new(parameters, classes.expect("allowed"), 100e3, 1e6)
    }

    /// An interval in which `up` and `down` kilobytes of data passed, starting at `start`. The acks beside them do not
    /// count.
    fn interval(acq: &mut dyn Policy, start: f64, up: u32, down: u32) {
        let mut events = Events::default();
        for n in 0..500 {
            let now = at(start + 0.02 * f64::from(n));
            for packet in [(n % 9 == 0 && n / 9 < up).then(|| data(n.into(), 960)), Some(ack(n))].into_iter().flatten()
            {
                acq.enqueue(now, packet, &mut events);
                acq.dequeue(now, &mut events).expect("a bounded class is idle by now");
            }
            acq.on_opposite(now, &if n < down { data(n.into(), 960) } else { ack(n) });
        }
        assert!(events.list.is_empty() && acq.len_packets() == 0);
    }

    /// C_r is the rate of the queue's own direction, C_f that of the opposite one, unless an option names another.
    #[test]
    fn rates_are_those_of_the_line_in_their_directions_or_the_ones_given() {
        let share_of_data = |options: serde_json::Value, rates: Option<[u64; 2]>, reverse_bps: f64| {
            let mut options: Options = serde_json::from_value(options).expect("an object");
            options.insert("bounded".into(), true.into());
            let checked = CheckedOptions::check(&ENTRY, &options).expect("allowed");
            let (rate_bps, opposite_rate_bps) = (Some(100_000), Some(1_000_000));
            let mut acq = build(&checked, &Context { rate_bps, opposite_rate_bps, ..context() }).expect("acq");
            if let Some([own, opposite]) = rates {
                acq.on_rates(Time::ZERO, Some(own), Some(opposite));
            }
            interval(&mut *acq, 0.0, 40, 500);
            interval(&mut *acq, 10.0, 45, 490);
            // A bounded class is idle for as long as its packet takes at its share of C_r.
            let mut events = Events::default();
            for id in 0..2 {
                acq.enqueue(at(20.0), data(id, 960), &mut events);
            }
            acq.dequeue(at(20.0), &mut events).expect("one waits");
            let next = acq.next_time().expect("another waits");
            8000.0 / (next - at(20.0)).as_secs_f64() / reverse_bps
        };
        // 32 and 36 kbit/s up, 400 and 392 down: 36 + 50·(1/100 + (1/1000)·(−8/4)) = 36.4 kbit/s of 100.
        let close = |share: f64, expected: f64| assert!((share - expected).abs() < 1e-6, "{share} {expected}");
        close(share_of_data(json!({}), None, 100e3), 0.364);
        // 36 + 50·(1/200 − (1/500)·2) = 36.05 kbit/s of 200.
        close(share_of_data(json!({}), Some([200_000, 500_000]), 200e3), 0.18025);
        close(share_of_data(json!({"reverse_bps": 200e3, "forward_bps": 500e3}), None, 200e3), 0.18025);
        // Given rates do not follow the line.
        let both = json!({"reverse_bps": 100e3, "forward_bps": 1e6});
        close(share_of_data(both, Some([200_000, 500_000]), 100e3), 0.364);
    }

    #[test]
    fn the_initial_weight_stays_within_the_bounds() {
        for (initial, expected) in [(0.5, 0.5), (0.2, 0.2), (0.0, 0.01), (1.0, 0.99)] {
            let acq = queue(Parameters { initial_weight: initial, ..PAPER });
            assert!((acq.share_of_data() - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn a_change_of_the_lines_rate_changes_the_equation_unless_the_rate_was_given() {
        let mut acq = queue(PAPER);
        acq.on_rates(Time::ZERO, Some(50_000), Some(2_000_000));
        assert_eq!((acq.variables.reverse_bps, acq.variables.forward_bps), (50_000.0, 2_000_000.0));
        let mut configured = queue(Parameters { reverse_bps: Some(100e3), ..PAPER });
        configured.on_rates(Time::ZERO, Some(50_000), Some(2_000_000));
        assert_eq!(configured.variables.reverse_bps, 100e3);
    }

    #[test]
    fn the_first_update_comes_after_two_intervals_and_follows_equation_5() {
        let mut acq = queue(PAPER);
        interval(&mut acq, 0.0, 50, 500);
        interval(&mut acq, 10.0, 55, 490);
        assert_eq!(acq.share_of_data(), 0.5);
        acq.dequeue(at(20.0), &mut Events::default());
        // 40 and 44 kbit/s up, 400 and 392 down: 44 + 50·(1/100 + (1/1000)·(−8/4)) = 44.4 kbit/s of 100.
        assert!((acq.share_of_data() - 0.444).abs() < 1e-9, "{}", acq.share_of_data());
    }

    #[test]
    fn without_a_change_up_only_the_first_term_counts() {
        let mut acq = queue(PAPER);
        interval(&mut acq, 0.0, 50, 500);
        interval(&mut acq, 10.0, 50, 100);
        acq.dequeue(at(20.0), &mut Events::default());
        // 40 + 50·(1/100) = 40.5.
        assert!((acq.share_of_data() - 0.405).abs() < 1e-9, "{}", acq.share_of_data());
    }

    #[test]
    fn the_weight_is_bounded_and_the_quotient_is_not() {
        let mut acq = queue(Parameters { gamma: 5000.0, ..PAPER });
        acq.adapt(Time::ZERO, 40.0, 400.0);
        acq.adapt(Time::ZERO, 40.1, 900.0);
        assert!((acq.share_of_data() - 0.99).abs() < 1e-12);
        acq.adapt(Time::ZERO, 40.2, 100.0);
        assert!((acq.share_of_data() - 0.01).abs() < 1e-12);
        let mut acq = queue(PAPER);
        acq.adapt(Time::ZERO, 40.0, 400.0);
        acq.adapt(Time::ZERO, 40.5, 500.0);
        // 40.5 + 50·(0.01 + (100/0.5)/1000) = 51, although an ack saved makes room for 37.5 times its bytes at most.
        assert!((acq.share_of_data() - 0.51).abs() < 1e-9, "{}", acq.share_of_data());
    }

    #[test]
    fn a_long_silence_gives_the_same_weights_as_many_updates() {
        let after = |times: &[f64]| {
            let mut acq = queue(PAPER);
            interval(&mut acq, 0.0, 50, 500);
            interval(&mut acq, 10.0, 40, 500);
            for time in times {
                acq.dequeue(at(*time), &mut Events::default());
            }
            (acq.share_of_data(), acq.variables.previous_kbps)
        };
        assert_eq!(after(&[90.0]), after(&[20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0]));
    }

    #[test]
    fn with_the_filter_one_ack_waits() {
        let classes = ClassOptions { filter: true, ..PAPER.classes };
        let (mut acq, mut events) = (queue(Parameters { classes, ..PAPER }), Events::default());
        for packet in [data(1, 960), ack(11), ack(12)] {
            acq.enqueue(Time::ZERO, packet, &mut events);
        }
        assert_eq!(drain(&mut acq, &mut events), [12, 1]);
    }
}
