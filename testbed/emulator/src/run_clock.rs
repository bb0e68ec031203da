//! The clock of the event loop, in real and in virtual time.

use crate::os::clock::monotonic_ns;

/// A machine takes about this long to wake a sleeper. Before a long sleep the timer is set this much earlier, and the
/// rest is waited for busily.
pub(crate) const EARLY_NS: u64 = 40_000;
/// A sleep is long from here on, so that busy waiting takes at most 4 % of a CPU.
const LONG_SLEEP_NS: u64 = 1_000_000;

/// The time that a run's clocks count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunTime {
    /// Sleepers wake late, and the loop may be kept from running.
    Real,
    /// The clock stands still while programs compute and jumps to the next timer, so nothing is late.
    Virtual,
}

/// CLOCK_MONOTONIC as the event loop sees it.
///
/// Virtual time stands still between two waits, and reading it costs a system call, so it is read once after each wait,
/// and not where the wait itself tells it. Real time passes, so it is read whenever it is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunClock {
    pub(crate) time: RunTime,
    woken_ns: u64,
}

impl RunClock {
    pub(crate) fn new(time: RunTime) -> RunClock {
        RunClock { time, woken_ns: monotonic_ns() }
    }

    /// Call after each wait. `until_ns`: when it should end, if it has ended by that and not by an event.
    pub(crate) fn on_wake(&mut self, until_ns: Option<u64>) {
        if self.time == RunTime::Virtual {
            self.woken_ns = until_ns.unwrap_or_else(monotonic_ns);
        }
    }

    /// Now, in nanoseconds.
    pub(crate) fn now_ns(&self) -> u64 {
        match self.time {
            RunTime::Real => monotonic_ns(),
            RunTime::Virtual => self.woken_ns,
        }
    }

    /// When to wake for something that is due.
    pub(crate) fn wake_for(&self, due_ns: u64) -> u64 {
        if self.time == RunTime::Real && due_ns.saturating_sub(monotonic_ns()) > LONG_SLEEP_NS {
            due_ns - EARLY_NS
        } else {
            due_ns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_stands_still_between_two_waits() {
        let mut clock = RunClock::new(RunTime::Virtual);
        let before = clock.now_ns();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert_eq!(clock.now_ns(), before);
        clock.on_wake(None);
        assert!(clock.now_ns() >= before + 1_000_000);
        let until_ns = clock.now_ns() + 7;
        clock.on_wake(Some(until_ns));
        assert_eq!(clock.now_ns(), until_ns);
    }

    #[test]
    fn only_in_real_time_sleepers_are_woken_early_and_only_from_long_sleeps() {
        let due_ns = monotonic_ns() + 60_000_000_000;
        assert_eq!(RunClock::new(RunTime::Real).wake_for(due_ns), due_ns - EARLY_NS);
        assert_eq!(RunClock::new(RunTime::Virtual).wake_for(due_ns), due_ns);
        let soon_ns = monotonic_ns() + 500_000;
        assert_eq!(RunClock::new(RunTime::Real).wake_for(soon_ns), soon_ns);
    }
}
