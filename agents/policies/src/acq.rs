//! Adaptive class-based queueing (acq 2): data and acks have a queue each; the weights follow the gradient of
//! U = x_r/C_r + x_f/C_f, the use of both directions by data.
//!
//! Every T the data rates x_r(n) up and x_f(n) down of the last interval give the rate of the data class,
//!
//! (5)  r(n+1) = x_r(n) + gamma·(1/C_r + (1/C_f)·(x_f(n) − x_f(n−1))/(x_r(n) − x_r(n−1))),
//!
//! in kbit/s, its weight X = r/C_r and that of acks 1 − X. Where the paper is silent: X is `initial_weight` until the first
//! update, after two intervals; the quotient is 0 where x_r did not change; X lies within `least_weight` of 0 and 1, so that no
//! class starves. What goes down is counted as it reaches the other interface of the same router, what goes up as it leaves.

use backchannel_core::event::Events;
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Given, Param, Preset, Unit};
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;

use crate::cbq5050::{BOUNDED, CLASS_LIMIT, FILTER};
use crate::classes::{Class, Classes};
use crate::limit::{Limit, BUFFER};
use crate::meter::Intervals;
use crate::Context;

pub(crate) static ENTRY: Entry = Entry {
    kind: "policy",
    name: "acq",
    summary: "adaptive class-based queueing: weights of acks and data follow the gradient of the utility",
    source: "acq 2, 3 (equation 5)",
    params: &[
        CLASS_LIMIT,
        BUFFER,
        FILTER,
        Param::new("period_s", Unit::Time, Preset::Number(10.0), "T; at least twice the longest round trip (acq 2)")
            .range(0.01, 100_000.0),
        Param::new("gamma", Unit::Number, Preset::Number(50.0), "step of the gradient, in (kbit/s)^2 (acq 3.1)")
            .at_least(0.0),
        Param::new("initial_weight", Unit::Number, Preset::Number(0.5), "of data, until the first update")
            .range(0.0, 1.0),
        Param::new("least_weight", Unit::Number, Preset::Number(0.01), "of either class").range(0.0, 0.5),
        Param::new("reverse_bps", Unit::Rate, Preset::Absent, "C_r; absent: the line's rate").at_least(1.0),
        Param::new("forward_bps", Unit::Rate, Preset::Absent, "C_f; absent: the opposite direction's rate")
            .at_least(1.0),
        BOUNDED,
    ],
};

pub(crate) fn build(given: &Given<'_>, context: &Context) -> Result<Box<dyn Policy>, String> {
    let rate = |name: &str, line: Option<u64>, whose: &str| {
        given.number(name).or(line.map(|bps| bps as f64)).ok_or_else(|| {
            format!("policy acq: {whose} has no rate: give {name}, or a rate to the link (it weighs both directions)")
        })
    };
    let number = |name| given.number(name).expect("it has a default");
    let settings = Settings {
        limit: Limit::of(given),
        filtering: given.flag(FILTER.name),
        bounded: given.flag(BOUNDED.name),
        period_s: number("period_s"),
        gamma_kbps2: number("gamma"),
        initial_weight: number("initial_weight"),
        least_weight: number("least_weight"),
        reverse_bps: rate("reverse_bps", context.rate_bps, "the direction")?,
        forward_bps: rate("forward_bps", context.opposite_rate_bps, "the opposite direction")?,
        follows: [given.number("reverse_bps").is_none(), given.number("forward_bps").is_none()],
    };
    Ok(Box::new(Acq::new(settings)))
}

/// What ACQ is told.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What may wait in each class.
    pub limit: Limit,
    /// Filter the queue of acks.
    pub filtering: bool,
    /// Classes do not lend.
    pub bounded: bool,
    /// T, seconds.
    pub period_s: f64,
    /// gamma, (kbit/s)^2.
    pub gamma_kbps2: f64,
    /// X, the weight of data, at first.
    pub initial_weight: f64,
    /// Bound of X and of 1 − X.
    pub least_weight: f64,
    /// C_r, bit/s.
    pub reverse_bps: f64,
    /// C_f, bit/s.
    pub forward_bps: f64,
    /// Whether C_r and C_f are the line's and change with it.
    pub follows: [bool; 2],
}

/// See the module.
#[derive(Debug)]
pub struct Acq {
    settings: Settings,
    classes: Classes,
    intervals: Intervals,
    /// Bytes of data since the interval began: up, down.
    data: [u64; 2],
    /// x_r(n−1), x_f(n−1), kbit/s.
    before: Option<[f64; 2]>,
}

impl Acq {
    /// Empty queues that share the line as the initial weight has it.
    pub fn new(settings: Settings) -> Acq {
        let least = settings.least_weight;
        let share_of_acks = 1.0 - settings.initial_weight.clamp(least, 1.0 - least);
        let classes = Classes::new(settings.limit, settings.limit, share_of_acks);
        Acq {
            settings,
            classes: if settings.bounded { classes.bounded(settings.reverse_bps) } else { classes },
            intervals: Intervals::of(settings.period_s),
            data: [0, 0],
            before: None,
        }
    }

    /// X, the weight of data, in force.
    pub fn share_of_data(&self) -> f64 {
        1.0 - self.classes.share_of_acks()
    }

    fn update(&mut self, now: Time) {
        // An interval in which nobody came is one without data. After three of them nothing changes any more.
        for _ in 0..self.intervals.ended(now).min(4) {
            let [up, down] = std::mem::take(&mut self.data).map(|bytes| self.intervals.rate_bps(bytes) / 1000.0);
            self.adapt(now, up, down);
        }
    }

    /// Equation 5, with the rates of the interval that has ended, in kbit/s.
    fn adapt(&mut self, now: Time, x_r: f64, x_f: f64) {
        if let Some([x_r_before, x_f_before]) = self.before {
            let [c_r, c_f] = [self.settings.reverse_bps, self.settings.forward_bps].map(|bps| bps / 1000.0);
            let exchange = match x_r - x_r_before {
                0.0 => 0.0,
                change => (x_f - x_f_before) / change,
            };
            let r = x_r + self.settings.gamma_kbps2 * (1.0 / c_r + exchange / c_f);
            let least = self.settings.least_weight;
            self.classes.set_share_of_acks(now, 1.0 - (r / c_r).clamp(least, 1.0 - least));
        }
        self.before = Some([x_r, x_f]);
    }
}

impl Policy for Acq {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        self.update(now);
        let class = if packet.is_pure_ack() { Class::Acks } else { Class::Data };
        self.classes.push(class, self.settings.filtering, now, packet, events);
    }

    fn dequeue(&mut self, now: Time, _: &mut Events) -> Option<Packet> {
        self.update(now);
        let (class, packet) = self.classes.pop(now)?;
        if class == Class::Data {
            self.data[0] += u64::from(packet.len());
        }
        Some(packet)
    }

    fn next_time(&self) -> Option<Time> {
        self.classes.next_time()
    }

    fn on_rates(&mut self, now: Time, own_bps: Option<u64>, opposite_bps: Option<u64>) {
        self.update(now);
        let [reverse, forward] = self.settings.follows;
        if let (true, Some(bps)) = (reverse, own_bps) {
            self.settings.reverse_bps = bps as f64;
            self.classes.set_line(now, bps as f64);
        }
        if let (true, Some(bps)) = (forward, opposite_bps) {
            self.settings.forward_bps = bps as f64;
        }
    }

    fn peek(&self) -> Option<&Packet> {
        self.classes.front()
    }

    fn on_opposite(&mut self, now: Time, packet: &Packet) {
        self.update(now);
        if !packet.is_pure_ack() {
            self.data[1] += u64::from(packet.len());
        }
    }

    fn len_packets(&self) -> usize {
        self.classes.len()
    }

    fn len_bytes(&self) -> u64 {
        self.classes.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, drain};
    use backchannel_core::packet::build::{ack, data};

    /// The setting of acq 3.2, with the rates that the catalogue infers.
    const PAPER: Settings = Settings {
        limit: Limit { packets: 40, bytes: None },
        filtering: false,
        bounded: false,
        period_s: 10.0,
        gamma_kbps2: 50.0,
        initial_weight: 0.5,
        least_weight: 0.01,
        reverse_bps: 100e3,
        forward_bps: 1e6,
        follows: [true, true],
    };

    /// An interval in which `up` and `down` kilobytes of data passed, starting at `start`.
    fn interval(acq: &mut Acq, start: f64, up: u32, down: u32) {
        let mut events = Events::default();
        for n in 0..up.max(down) {
            let now = at(start + 0.01 * f64::from(n));
            if n < up {
                acq.enqueue(now, data(n.into(), 960), &mut events);
                acq.dequeue(now, &mut events);
            }
            if n < down {
                acq.on_opposite(now, &data(n.into(), 960));
            }
        }
    }

    #[test]
    fn it_begins_with_the_weight_that_it_is_told_within_the_bounds() {
        for (told, begins) in [(0.5, 0.5), (0.2, 0.2), (0.0, 0.01), (1.0, 0.99)] {
            let acq = Acq::new(Settings { initial_weight: told, ..PAPER });
            assert!((acq.share_of_data() - begins).abs() < 1e-12);
        }
    }

    #[test]
    fn a_line_that_changes_its_rate_changes_the_equation() {
        let mut acq = Acq::new(PAPER);
        acq.on_rates(Time::ZERO, Some(50_000), Some(2_000_000));
        assert_eq!((acq.settings.reverse_bps, acq.settings.forward_bps), (50_000.0, 2_000_000.0));
        let mut told = Acq::new(Settings { follows: [false, false], ..PAPER });
        told.on_rates(Time::ZERO, Some(50_000), Some(2_000_000));
        assert_eq!(told.settings.reverse_bps, PAPER.reverse_bps);
    }

    #[test]
    fn the_first_update_comes_after_two_intervals_and_follows_equation_5() {
        let mut acq = Acq::new(PAPER);
        interval(&mut acq, 0.0, 50, 500);
        interval(&mut acq, 10.0, 55, 490);
        assert_eq!(acq.share_of_data(), 0.5);
        acq.dequeue(at(20.0), &mut Events::default());
        // 40 and 44 kbit/s up, 400 and 392 down: 44 + 50·(1/100 + (1/1000)·(−8/4)) = 44.4 kbit/s of 100.
        assert!((acq.share_of_data() - 0.444).abs() < 1e-9, "{}", acq.share_of_data());
    }

    #[test]
    fn without_a_change_up_only_the_first_term_counts() {
        let mut acq = Acq::new(PAPER);
        interval(&mut acq, 0.0, 50, 500);
        interval(&mut acq, 10.0, 50, 100);
        acq.dequeue(at(20.0), &mut Events::default());
        // 40 + 50·(1/100) = 40.5.
        assert!((acq.share_of_data() - 0.405).abs() < 1e-9, "{}", acq.share_of_data());
    }

    #[test]
    fn the_weight_is_bounded_and_the_quotient_is_not() {
        let mut acq = Acq::new(Settings { gamma_kbps2: 5000.0, ..PAPER });
        acq.adapt(Time::ZERO, 40.0, 400.0);
        acq.adapt(Time::ZERO, 40.1, 900.0);
        assert!((acq.share_of_data() - 0.99).abs() < 1e-12);
        acq.adapt(Time::ZERO, 40.2, 100.0);
        assert!((acq.share_of_data() - 0.01).abs() < 1e-12);
        let mut acq = Acq::new(PAPER);
        acq.adapt(Time::ZERO, 40.0, 400.0);
        acq.adapt(Time::ZERO, 40.5, 500.0);
        // 40.5 + 50·(0.01 + (100/0.5)/1000) = 51, although an ack spared lets 37.5 times its bytes through at most.
        assert!((acq.share_of_data() - 0.51).abs() < 1e-9, "{}", acq.share_of_data());
    }

    #[test]
    fn a_long_silence_ends_like_many_short_ones() {
        let after = |times: &[f64]| {
            let mut acq = Acq::new(PAPER);
            interval(&mut acq, 0.0, 50, 500);
            interval(&mut acq, 10.0, 40, 500);
            for time in times {
                acq.dequeue(at(*time), &mut Events::default());
            }
            (acq.share_of_data(), acq.before)
        };
        assert_eq!(after(&[90.0]), after(&[20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0]));
    }

    #[test]
    fn with_the_filter_one_ack_waits() {
        let (mut acq, mut events) = (Acq::new(Settings { filtering: true, ..PAPER }), Events::default());
        for packet in [data(1, 960), ack(11), ack(12)] {
            acq.enqueue(Time::ZERO, packet, &mut events);
        }
        assert_eq!(drain(&mut acq, &mut events), [12, 1]);
    }
}
