//! EDCA's backoff in slots.
//!
//! Slot boundary m lies m slots after a SIFS of idle medium. A station with AIFSN a takes part from boundary a on: with a
//! backoff of 0 it sends, otherwise it counts down by one (802.11-2020, 10.23.2.4). So a backoff of b is over at boundary
//! a + b, and stations need not be followed slot by slot.

use std::time::Duration;

use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;

/// EDCA's parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) aifsn: u64,
    pub(super) cw_min: u64,
    pub(super) cw_max: u64,
    /// Failures in a row after which the window is the least again.
    pub(super) retries: u64,
}

/// A station's backoff.
#[derive(Clone, Copy, Debug)]
struct Backoff {
    access: Access,
    cw: u64,
    failures: u64,
    /// Boundaries that it still counts down from the AIFS of the next idle period on.
    count: u64,
}

pub(super) struct Contention {
    slot_ns: u64,
    sifs: Duration,
    /// The ends of the link, then the contenders.
    backoffs: Vec<Backoff>,
    ends: usize,
    /// Boundary 0: the medium has been idle for a SIFS.
    origin: Time,
    /// Who sends.
    sending: Vec<usize>,
    /// Transmissions that succeeded, of all stations.
    #[cfg(test)]
    pub(super) successes: u64,
}

impl Contention {
    /// Nothing was ever sent: ends may send at once, and contenders draw their first backoff.
    pub(super) fn new(
        ends: &[Access],
        contenders: &[Access],
        slot: Duration,
        sifs: Duration,
        rng: &mut RunRng,
    ) -> Contention {
        let over = |access: &Access| Backoff { access: *access, cw: access.cw_min, failures: 0, count: 0 };
        let drawn = |access: &Access| Backoff { count: draw(access.cw_min, rng), ..over(access) };
        Contention {
            slot_ns: slot.as_nanos() as u64,
            sifs,
            ends: ends.len(),
            backoffs: ends.iter().map(over).chain(contenders.iter().map(drawn)).collect(),
            origin: Time::ZERO + sifs,
            sending: Vec::new(),
            #[cfg(test)]
            successes: 0,
        }
    }

    /// The boundary at which a station sends, if the medium is idle until then.
    fn start_slot(&self, station: usize, ready: Option<Time>) -> Option<u64> {
        let over = self.backoffs[station].access.aifsn + self.backoffs[station].count;
        if station >= self.ends {
            return Some(over);
        }
        let arrived = ready?.nanos().saturating_sub(self.origin.nanos()).div_ceil(self.slot_ns);
        Some(over.max(arrived))
    }

    fn start_slots<'a>(&'a self, ready: &'a [Option<Time>]) -> impl Iterator<Item = Option<u64>> + 'a {
        (0..self.backoffs.len()).map(|station| self.start_slot(station, ready.get(station).copied().flatten()))
    }

    /// When the next transmission starts; `None`: nobody has anything to send.
    pub(super) fn next_start(&self, ready: &[Option<Time>]) -> Option<Time> {
        let slot = self.start_slots(ready).flatten().min()?;
        Some(Time(self.origin.nanos() + slot * self.slot_ns))
    }

    /// The stations that send at `at`, the time of [`Contention::next_start`].
    pub(super) fn winners(&self, at: Time, ready: &[Option<Time>]) -> Vec<usize> {
        let now = self.slot_at(at);
        self.start_slots(ready).enumerate().filter(|(_, slot)| *slot == Some(now)).map(|(station, _)| station).collect()
    }

    fn slot_at(&self, at: Time) -> u64 {
        at.since(self.origin).as_nanos() as u64 / self.slot_ns
    }

    /// The medium is busy from `at` on, with these transmissions.
    pub(super) fn begin(&mut self, at: Time, sending: Vec<usize>) {
        // At this boundary the others counted down once more.
        let boundaries = self.slot_at(at) + 1;
        for backoff in &mut self.backoffs {
            backoff.count = backoff.count.saturating_sub(boundaries.saturating_sub(backoff.access.aifsn));
        }
        self.sending = sending;
    }

    /// A packet arrives at an end without any. On a busy medium it needs a backoff, if none is left.
    pub(super) fn on_arrival(&mut self, now: Time, end: usize, is_on_air: bool, rng: &mut RunRng) {
        let is_busy = is_on_air || now + self.sifs < self.origin;
        let backoff = &mut self.backoffs[end];
        if is_busy && backoff.count == 0 && !self.sending.contains(&end) {
            backoff.count = draw(backoff.cw, rng);
        }
    }

    #[cfg(test)]
    pub(super) fn window(&self, station: usize) -> u64 {
        self.backoffs[station].cw
    }

    /// Whether a contender is among those that send.
    pub(super) fn has_contender_on_air(&self) -> bool {
        self.sending.iter().any(|station| *station >= self.ends)
    }

    /// The medium is idle from `idle` on. Those that sent draw a new backoff.
    pub(super) fn end(&mut self, idle: Time, succeeded: bool, rng: &mut RunRng) {
        self.origin = idle + self.sifs;
        #[cfg(test)]
        {
            self.successes += u64::from(succeeded);
        }
        for station in std::mem::take(&mut self.sending) {
            let backoff = &mut self.backoffs[station];
            backoff.failures = if succeeded { 0 } else { backoff.failures + 1 };
            if succeeded || backoff.failures > backoff.access.retries {
                (backoff.cw, backoff.failures) = (backoff.access.cw_min, 0);
            } else {
                backoff.cw = (2 * backoff.cw + 1).min(backoff.access.cw_max);
            }
            backoff.count = draw(backoff.cw, rng);
        }
    }
}

/// A backoff from 0 to the window.
fn draw(window: u64, rng: &mut RunRng) -> u64 {
    rng::below(rng, window as usize + 1) as u64
}
