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
