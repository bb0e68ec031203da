//! COBALT, the queue management of CAKE: CoDel and BLUE together (Høiland-Jørgensen, Täht, Morton: "Piece of CAKE", 2018,
//! III.C; the details that the paper leaves out follow Linux's description of sch_cake).
//!
//! - CoDel: while packets wait longer than TARGET, one is dropped or marked every INTERVAL/sqrt(count). Unlike CoDel's
//!   pseudocode, the count falls at the pace at which it rose, so that a state that ends soon resumes where it was, and
//!   INTERVAL is also the time from the first packet above TARGET to the first drop. Only the very first state of a queue
//!   has no such time, as Linux's: its 1/sqrt(count) is 0 until the first signal.
//! - BLUE: an overflow raises the probability at which packets are dropped, an empty queue lowers it, each at most once a
//!   TARGET. It stops flows that respond to nothing, and so marks nothing.

use std::time::Duration;

use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;

/// Steps of BLUE's probability, up and down.
const P_INC: f64 = 1.0 / 256.0;
const P_DEC: f64 = 1.0 / 4096.0;

/// What all queues share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters {
    /// TARGET, at least one and a half transmission times of the largest packet.
    pub(crate) target: Duration,
    /// INTERVAL.
    pub(crate) interval: Duration,
    /// Transmission time of the largest packet at the shaper's rate; 0 without a shaper. Four of them are always allowed.
    pub(crate) mtu_time: Duration,
}

/// What happens to a packet at the head of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// It leaves.
    None,
    /// CoDel signals congestion: it is marked, or dropped if it is not ECN-capable.
    Congestion,
    /// BLUE drops it, ECN-capable or not.
    Overload,
}

/// The state of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cobalt {
    /// Signals of this dropping state, which fall as they rose.
    count: u32,
    is_dropping: bool,
    /// Whether the count has ever risen or fallen, as which Linux computes 1/sqrt(count). It is 0 before.
    has_counted: bool,
    /// The next signal while dropping; otherwise when the count falls next, or a pause that ends a state.
    drop_next: Time,
    /// BLUE's probability, and when it changed last.
    p_drop: f64,
    blue_changed: Time,
}

impl Cobalt {
    /// `from` and the time until the next signal.
    fn control(&self, from: Time, parameters: &Parameters) -> Time {
        if !self.has_counted {
            return from;
        }
        from + parameters.interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }

    fn set_count(&mut self, count: u32) {
        (self.count, self.has_counted) = (count, true);
    }

    fn may_change_blue(&self, now: Time, parameters: &Parameters) -> bool {
        now.since(self.blue_changed) > parameters.target
    }

    /// A packet of the queue was dropped, because the buffer is full.
    pub(crate) fn on_overflow(&mut self, now: Time, parameters: &Parameters) {
        if self.may_change_blue(now, parameters) {
            (self.p_drop, self.blue_changed) = ((self.p_drop + P_INC).min(1.0), now);
        }
        (self.is_dropping, self.drop_next, self.count) = (true, now, self.count.max(1));
    }

    /// The queue was served and is empty.
    pub(crate) fn on_empty(&mut self, now: Time, parameters: &Parameters) {
        if self.p_drop > 0.0 && self.may_change_blue(now, parameters) {
            (self.p_drop, self.blue_changed) = ((self.p_drop - P_DEC).max(0.0), now);
        }
        self.is_dropping = false;
        if self.count > 0 && now >= self.drop_next {
            self.set_count(self.count - 1);
            self.drop_next = self.control(self.drop_next, parameters);
        }
    }

    /// Whether nothing of an earlier state is left.
    pub(crate) fn is_at_rest(&self, now: Time) -> bool {
        self.p_drop == 0.0 && self.count == 0 && now >= self.drop_next
    }

    /// What happens to the head of the queue, which has waited for `wait`. `can_mark`: a mark suffices as a signal.
    pub(crate) fn on_head(
        &mut self,
        now: Time,
        wait: Duration,
        can_mark: bool,
        parameters: &Parameters,
        stream: &mut RunRng,
    ) -> Signal {
        let mut signal = Signal::None;
        let mut is_past = now > self.drop_next;
        let mut is_due = self.count > 0 && now >= self.drop_next;
        if wait > parameters.target && wait > 4 * parameters.mtu_time {
            if !self.is_dropping {
                (self.is_dropping, self.drop_next) = (true, self.control(now, parameters));
            }
            self.count = self.count.max(1);
        } else {
            self.is_dropping = false;
        }
        if is_due && self.is_dropping {
            signal = Signal::Congestion;
            self.set_count(self.count.saturating_add(1));
            self.drop_next = self.control(self.drop_next, parameters);
            is_past = now > self.drop_next;
        } else {
            while is_due {
                self.set_count(self.count - 1);
                self.drop_next = self.control(self.drop_next, parameters);
                is_past = now > self.drop_next;
                is_due = self.count > 0 && now >= self.drop_next;
            }
        }
        if self.p_drop > 0.0 && rng::uniform(stream) < self.p_drop {
            signal = Signal::Overload;
        }
        let drops = signal == Signal::Overload || (signal == Signal::Congestion && !can_mark);
        if self.count == 0 {
            self.drop_next = now + parameters.interval;
        } else if is_past && !drops {
            // Signals that were missed are not made up for.
            self.drop_next = now;
        }
        signal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    const PARAMETERS: Parameters = Parameters {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
        mtu_time: Duration::from_millis(1),
    };

    /// Times in ms of the signals to a queue whose heads, one a ms, have waited for `wait_ms` each.
    fn signals(cobalt: &mut Cobalt, wait_ms: impl Fn(u64) -> u64, until_ms: u64) -> Vec<u64> {
        let mut stream = rng::stream(1, "test");
        (0..until_ms)
            .filter(|ms| {
                let wait = Duration::from_millis(wait_ms(*ms));
                let signal = cobalt.on_head(at(*ms as f64 / 1e3), wait, false, &PARAMETERS, &mut stream);
                signal == Signal::Congestion
            })
            .collect()
    }

    #[test]
    fn signals_come_after_an_interval_and_then_faster_by_the_square_root() {
        // Not the first one of a queue, as in Linux: it comes with the second packet above target.
        let times = signals(&mut Cobalt::default(), |_| 20, 300);
        assert_eq!(times, [1, 71, 129, 179, 224, 264]);
        // Later 100 ms after the first packet above target, then 100/sqrt(2), 100/sqrt(3), ... later.
        let times = signals(&mut Cobalt { has_counted: true, ..Cobalt::default() }, |_| 20, 400);
        assert_eq!(times, [100, 171, 229, 279, 324, 364]);
    }

    #[test]
    fn nothing_is_signalled_at_target_or_within_four_transmission_times() {
        assert!(signals(&mut Cobalt::default(), |_| 5, 400).is_empty());
        let slow = Parameters { mtu_time: Duration::from_millis(6), ..PARAMETERS };
        let mut stream = rng::stream(1, "test");
        let mut of = |wait_ms| {
            let mut cobalt = Cobalt::default();
            (0..400).any(|ms| {
                let wait = Duration::from_millis(wait_ms);
                cobalt.on_head(at(f64::from(ms) / 1e3), wait, true, &slow, &mut stream) == Signal::Congestion
            })
        };
        assert!(!of(24) && of(25));
    }

    #[test]
    fn the_count_falls_as_it_rose() {
        let mut cobalt = Cobalt { has_counted: true, ..Cobalt::default() };
        signals(&mut cobalt, |_| 20, 400);
        assert_eq!(cobalt.count, 7);
        let mut stream = rng::stream(1, "test");
        let counts: Vec<_> = (400..1000)
            .map(|ms| {
                cobalt.on_head(at(f64::from(ms) / 1e3), Duration::ZERO, false, &PARAMETERS, &mut stream);
                cobalt.count
            })
            .collect();
        assert!(counts.windows(2).all(|pair| pair[1] <= pair[0] && pair[0] - pair[1] <= 1), "{counts:?}");
        assert_eq!(counts.last(), Some(&0));
    }

    #[test]
    fn blue_rises_with_overflows_falls_with_empty_queues_and_drops_what_could_be_marked() {
        let mut cobalt = Cobalt::default();
        for ms in 1..=1000 {
            cobalt.on_overflow(at(f64::from(ms) / 1e3), &PARAMETERS);
        }
        // Once in more than 5 ms.
        assert_eq!((cobalt.p_drop / P_INC).round(), 166.0);
        let mut stream = rng::stream(1, "test");
        let hits = (0..4000)
            .filter(|_| {
                let mut copy = cobalt;
                copy.on_head(at(1.0), Duration::ZERO, true, &PARAMETERS, &mut stream) == Signal::Overload
            })
            .count();
        assert!((2500..2700).contains(&hits), "166/256 of 4000: {hits}");
        (0..6000).for_each(|ms| cobalt.on_empty(at(1.01 + f64::from(ms) / 1e3), &PARAMETERS));
        assert_eq!(((cobalt.p_drop - 166.0 * P_INC) / P_DEC).round(), -1000.0);
        assert!(!cobalt.is_at_rest(at(8.0)));
    }
}
