//! The limit on challenge acks (RFC 5961 section 7): somebody who forges resets, SYNs or acks must not make a
//! connection send more than a few segments.

use std::time::Duration;

use backchannel_core::time::Time;

/// Challenge acks in an [`INTERVAL`] at most, as section 7 suggests.
const MOST: u32 = 10;
/// The interval.
const INTERVAL: Duration = Duration::from_secs(5);

/// The challenge acks of one connection. The limit is per connection: one that all connections share would tell an
/// attacker whether another connection exists.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChallengeAcks {
    /// When the current interval began.
    since: Option<Time>,
    /// Challenge acks since then: at most [`MOST`].
    sent: u32,
}

impl ChallengeAcks {
    /// Whether one more may go now; it counts if so.
    pub fn may_send(&mut self, now: Time) -> bool {
        if self.since.is_none_or(|since| now - since >= INTERVAL) {
            *self = ChallengeAcks { since: Some(now), sent: 0 };
        }
        let may = self.sent < MOST;
        self.sent += u32::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_go_in_five_seconds() {
        let mut challenges = ChallengeAcks::default();
        let mut sent = |at_ms: u64| challenges.may_send(Time(at_ms * 1_000_000));
        assert_eq!((0..40).filter(|n| sent(1_000 + n * 100)).count(), 10);
        assert!(!sent(5_999) && sent(6_000));
    }
}
