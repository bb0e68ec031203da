//! The windowed maxima of BBR's models (draft-ietf-ccwg-bbr 5.5.3 to 5.5.6, 5.5.9; of the first version 4.1.1.5).

use std::collections::VecDeque;

/// BBR.max_bw: the greatest delivery rate of this and the last cycle of bandwidth probing, in bytes a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct MaxBw {
    last_cycle: f64,
    this_cycle: f64,
}

impl MaxBw {
    pub fn update(&mut self, rate: f64) {
        self.this_cycle = self.this_cycle.max(rate);
    }

    /// AdvanceMaxBwFilter: a cycle ends. One without samples does not count.
    pub fn advance(&mut self) {
        if self.this_cycle > 0.0 {
            (self.last_cycle, self.this_cycle) = (self.this_cycle, 0.0);
        }
    }

    pub fn get(&self) -> f64 {
        self.last_cycle.max(self.this_cycle)
    }
}

/// The greatest value of the last round trips, such as BBR.extra_acked.
#[derive(Clone, Debug, Default)]
pub struct MaxOfRounds {
    /// Rounds with values, the values falling.
    maxima: VecDeque<(u64, f64)>,
}

impl MaxOfRounds {
    /// A value of `round`; those of `length` rounds count.
    pub fn update(&mut self, value: f64, round: u64, length: u64) {
        while self.maxima.back().is_some_and(|(_, smaller)| *smaller <= value) {
            self.maxima.pop_back();
        }
        self.maxima.push_back((round, value));
        while self.maxima.front().is_some_and(|(then, _)| then + length < round) {
            self.maxima.pop_front();
        }
    }

    pub fn get(&self) -> f64 {
        self.maxima.front().map_or(0.0, |(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_remembered_for_two_cycles() {
        let mut max_bw = MaxBw::default();
        max_bw.update(100.0);
        max_bw.advance();
        max_bw.advance();
        max_bw.update(60.0);
        assert_eq!(max_bw.get(), 100.0, "a cycle without a sample is none");
        max_bw.advance();
        assert_eq!(max_bw.get(), 60.0);
    }

    #[test]
    fn a_volume_is_remembered_for_some_rounds() {
        let mut extra = MaxOfRounds::default();
        [(0, 50.0), (1, 20.0), (2, 30.0)].iter().for_each(|&(round, value)| extra.update(value, round, 10));
        assert_eq!(extra.get(), 50.0);
        extra.update(0.0, 11, 10);
        assert_eq!(extra.get(), 30.0);
        extra.update(0.0, 13, 1);
        assert_eq!(extra.get(), 0.0);
    }
}
