//! The time of a run as quinn-proto has it. Only differences of instants matter to it, so the one clock reading of a
//! process has no effect on what a connection does.

use std::sync::OnceLock;
use std::time::Instant;

use backchannel_core::time::Time;

/// The instant of [`Time::ZERO`].
pub(crate) fn base_instant() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    *BASE.get_or_init(Instant::now)
}

/// A time of the run.
pub(crate) fn instant(at: Time) -> Instant {
    base_instant() + at.since(Time::ZERO)
}

/// The inverse of [`instant`].
pub(crate) fn time(at: Instant) -> Time {
    Time(at.saturating_duration_since(base_instant()).as_nanos() as u64)
}
