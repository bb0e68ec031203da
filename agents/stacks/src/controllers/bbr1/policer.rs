//! The rate of a policer, which drops what exceeds a token bucket: BBR's first version as Linux 7.3 has it (long-term
//! sampling in `tcp_bbr.c`) takes two intervals of heavy losses and nearly the same rate for one, and keeps to their mean
//! for 48 round trips. Rates are in bytes a second.

use backchannel_core::time::Time;

/// Round trips of an interval: fewer say too little, more are too long.
const INTERVAL_ROUNDS: u32 = 4;
const MOST_INTERVAL_ROUNDS: u32 = 4 * INTERVAL_ROUNDS;
/// Of the bytes delivered, so many must be lost.
const LOSS_THRESHOLD: f64 = 50.0 / 256.0;
/// Rates that differ by no more than one of these are the same.
const RATE_RATIO: f64 = 1.0 / 8.0;
const RATE_DIFFERENCE: f64 = 4000.0 / 8.0;
/// Round trips after which the sender looks for more.
const MOST_ROUNDS: u32 = 48;

/// What an ack shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    pub now: Time,
    /// Whether it begins a round trip.
    pub round_start: bool,
    pub has_losses: bool,
    pub is_app_limited: bool,
    /// Bytes of the connection so far.
    pub delivered: u64,
    pub lost: u64,
}

/// What it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// There is a policer.
    Found,
    /// Its rate has been used for long enough.
    Forgotten,
}

/// What is known of one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policer {
    /// Whether an interval is being sampled: since when, and bytes delivered and lost until then.
    interval: Option<(Time, u64, u64)>,
    rounds: u32,
    /// The rate of the last interval; of a policer, the mean of the last two.
    rate: Option<f64>,
    is_found: bool,
}

impl Policer {
    /// The rate of the policer; `None`: there is none.
    pub fn rate(&self) -> Option<f64> {
        self.rate.filter(|_| self.is_found)
    }

    /// Fires on each ack with a rate sample, and on timeouts. `counts_rounds`: the round trips with the policer's rate
    /// count, those of ProbeBW.
    pub fn on_ack(&mut self, ack: &Ack, counts_rounds: bool) -> Option<Change> {
        if self.is_found {
            self.rounds += u32::from(counts_rounds && ack.round_start);
            if self.rounds < MOST_ROUNDS {
                return None;
            }
            *self = Policer::default();
            return Some(Change::Forgotten);
        }
        // Before the first loss there may be tokens left.
        if self.interval.is_none() && !ack.has_losses {
            return None;
        }
        let (since, delivered, lost) = match self.interval {
            Some(interval) => interval,
            None => self.begin_interval(ack),
        };
        self.rounds += u32::from(ack.round_start);
        if ack.is_app_limited || self.rounds > MOST_INTERVAL_ROUNDS {
            *self = Policer::default();
            return None;
        }
        // An interval ends with a loss, when the tokens are used up.
        if self.rounds < INTERVAL_ROUNDS || !ack.has_losses {
            return None;
        }
        let (delivered, lost) = ((ack.delivered - delivered) as f64, (ack.lost - lost) as f64);
        let seconds = (ack.now - since).as_secs_f64();
        if delivered == 0.0 || lost < LOSS_THRESHOLD * delivered || seconds < 0.001 {
            return None;
        }
        self.end_interval(ack, delivered / seconds)
    }

    fn begin_interval(&mut self, ack: &Ack) -> (Time, u64, u64) {
        self.rounds = 0;
        *self.interval.insert((ack.now, ack.delivered, ack.lost))
    }

    fn end_interval(&mut self, ack: &Ack, rate: f64) -> Option<Change> {
        if let Some(last) = self.rate {
            let difference = (rate - last).abs();
            if difference <= RATE_RATIO * last || difference <= RATE_DIFFERENCE {
                *self = Policer { rate: Some((rate + last) / 2.0), is_found: true, ..Policer::default() };
                return Some(Change::Found);
            }
        }
        self.rate = Some(rate);
        self.begin_interval(ack);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acks of round trips of 100 ms, each with `delivered` and `lost` bytes. Returns what the last one changes.
    fn rounds(policer: &mut Policer, at: &mut Ack, (count, delivered, lost): (u32, u64, u64)) -> Option<Change> {
        let mut change = None;
        for _ in 0..count {
            at.now += std::time::Duration::from_millis(100);
            at.delivered += delivered;
            at.lost += lost;
            at.has_losses = lost > 0;
            change = policer.on_ack(at, true);
        }
        change
    }

    fn begin() -> (Policer, Ack) {
        let ack =
            Ack { now: Time::ZERO, round_start: true, has_losses: false, is_app_limited: false, delivered: 0, lost: 0 };
        (Policer::default(), ack)
    }

    #[test]
    fn two_intervals_of_heavy_losses_at_one_rate_show_it_and_48_rounds_later_it_is_forgotten() {
        let (mut policer, mut ack) = begin();
        assert_eq!(rounds(&mut policer, &mut ack, (20, 10_000, 0)), None, "without losses nothing is sampled");
        assert!(policer.interval.is_none());
        // The first ack begins the interval.
        assert_eq!(rounds(&mut policer, &mut ack, (1 + 3, 10_000, 2500)), None);
        assert_eq!(policer.rate, Some(100_000.0));
        assert_eq!(rounds(&mut policer, &mut ack, (3, 10_500, 2500)), None);
        assert_eq!(rounds(&mut policer, &mut ack, (1, 10_500, 2500)), Some(Change::Found));
        assert_eq!(policer.rate(), Some(102_500.0));
        assert_eq!(rounds(&mut policer, &mut ack, (47, 10_000, 0)), None);
        assert_eq!(rounds(&mut policer, &mut ack, (1, 10_000, 0)), Some(Change::Forgotten));
        assert_eq!(policer.rate(), None);
    }

    #[test]
    fn an_interval_ends_with_a_loss_and_slow_rates_may_differ_by_more() {
        let (mut policer, mut ack) = begin();
        rounds(&mut policer, &mut ack, (1 + 3, 200, 50));
        assert_eq!(policer.rate, Some(2000.0));
        rounds(&mut policer, &mut ack, (3, 240, 80));
        assert_eq!(rounds(&mut policer, &mut ack, (1, 240, 0)), None);
        assert_eq!(rounds(&mut policer, &mut ack, (1, 240, 80)), Some(Change::Found));
        assert_eq!(policer.rate(), Some(2200.0));
    }

    #[test]
    fn other_rates_and_lighter_losses_show_none() {
        let (mut policer, mut ack) = begin();
        rounds(&mut policer, &mut ack, (4, 10_000, 2500));
        rounds(&mut policer, &mut ack, (4, 12_000, 3000));
        assert_eq!((policer.rate(), policer.rate), (None, Some(120_000.0)), "a fifth more is another rate");
        let (mut policer, mut ack) = begin();
        rounds(&mut policer, &mut ack, (16, 10_000, 1900));
        assert_eq!(policer.rate, None);
        assert!(policer.interval.is_some());
        rounds(&mut policer, &mut ack, (1, 10_000, 1900));
        assert!(policer.interval.is_none(), "after 16 round trips it begins anew");
    }

    #[test]
    fn an_application_without_data_and_rounds_of_other_states_do_not_count() {
        let (mut policer, mut ack) = begin();
        rounds(&mut policer, &mut ack, (4, 10_000, 2500));
        ack.is_app_limited = true;
        rounds(&mut policer, &mut ack, (1, 10_000, 2500));
        assert_eq!((policer.rate, policer.interval), (None, None));
        ack.is_app_limited = false;
        rounds(&mut policer, &mut ack, (8, 10_000, 2500));
        assert_eq!(policer.rate(), Some(100_000.0));
        for _ in 0..100 {
            assert_eq!(policer.on_ack(&ack, false), None);
        }
    }
}
