//! The timers of a connection: one table of deadlines, one row a timer.

use backchannel_core::time::Time;

/// The rows of the table, in the order in which timers that expire together fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// When to look for losses by time, or to probe the tail (RFC 8985 6.2, 7.2): before the retransmission timer,
    /// which a probe sets anew.
    LossDetection,
    /// When to retransmit the SYN or the first unacknowledged segment (RFC 6298 5). Runs while something is
    /// outstanding.
    Retransmission,
    /// When to probe a closed window, or fill one that is too small for a full segment (RFC 9293 3.8.6.1).
    Persist,
    /// When to send a delayed ack (RFC 1122 4.2.3.2).
    DelayedAck,
    /// When to send the next segment, or burst (asym 6.3).
    Pacing,
    /// When to leave TIME-WAIT (RFC 9293 3.6).
    TimeWait,
}

impl Timer {
    /// All rows.
    pub const ALL: [Timer; 6] = [
        Timer::LossDetection,
        Timer::Retransmission,
        Timer::Persist,
        Timer::DelayedAck,
        Timer::Pacing,
        Timer::TimeWait,
    ];
}

/// The deadlines; [`Time::MAX`] is a timer that is not set.
#[derive(Clone, Debug)]
pub struct TimerTable([Time; Timer::ALL.len()]);

impl Default for TimerTable {
    fn default() -> TimerTable {
        TimerTable([Time::MAX; Timer::ALL.len()])
    }
}

impl TimerTable {
    /// Sets a timer, or sets it anew.
    pub fn set(&mut self, timer: Timer, at: Time) {
        self.0[timer as usize] = at;
    }

    /// Stops a timer, set or not.
    pub fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = Time::MAX;
    }

    /// Stops all.
    pub fn stop_all(&mut self) {
        *self = TimerTable::default();
    }

    /// The deadline of a timer.
    #[inline]
    pub fn deadline(&self, timer: Timer) -> Option<Time> {
        Some(self.0[timer as usize]).filter(|at| *at < Time::MAX)
    }

    /// Whether a timer is set.
    pub fn is_set(&self, timer: Timer) -> bool {
        self.0[timer as usize] < Time::MAX
    }

    /// Whether a timer has expired. An expired timer is stopped.
    pub fn expire(&mut self, timer: Timer, now: Time) -> bool {
        let expired = self.deadline(timer).is_some_and(|at| at <= now);
        if expired {
            self.stop(timer);
        }
        expired
    }

    /// The earliest deadline.
    #[inline]
    pub fn next_timeout(&self) -> Option<Time> {
        let earliest = self.0.iter().fold(Time::MAX, |earliest, at| earliest.min(*at));
        Some(earliest).filter(|at| *at < Time::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_deadline_comes_first_and_expires_once() {
        let mut timers = TimerTable::default();
        assert_eq!(timers.next_timeout(), None);
        timers.set(Timer::Persist, Time(30));
        timers.set(Timer::DelayedAck, Time(20));
        assert_eq!(timers.next_timeout(), Some(Time(20)));
        assert!(!timers.expire(Timer::DelayedAck, Time(19)));
        assert!(timers.expire(Timer::DelayedAck, Time(20)));
        assert!(!timers.expire(Timer::DelayedAck, Time(20)));
        assert_eq!((timers.next_timeout(), timers.is_set(Timer::Persist)), (Some(Time(30)), true));
        timers.stop_all();
        assert_eq!(timers.next_timeout(), None);
    }

    #[test]
    fn every_row_has_its_own_place() {
        for (place, timer) in Timer::ALL.into_iter().enumerate() {
            assert_eq!(timer as usize, place);
        }
    }
}
