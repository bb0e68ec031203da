//! Adds the lateness of a real-time driver to the stamps of an exact run, for tests: packets are read and written late
//! by some tens of microseconds, and now and then written late by milliseconds, within the limits of a valid run.

use backchannel_core::rng::{self, RunRng};

use crate::records::{Ends, Record};

/// Typical lateness in nanoseconds, and that of the few late packets.
const TYPICAL_NS: f64 = 40_000.0;
const RARE_NS: f64 = 1_500_000.0;
const RARE_SHARE: f64 = 0.005;

/// Adds lateness to a link's captures. A packet that is read late is stamped early at its sender; one that is written
/// late delays those after it.
pub(crate) fn add(ends: &mut [Ends; 2], seed: u64) {
    let mut rng = rng::stream(seed, "audit/lateness");
    for end in ends {
        for record in &mut end.departing {
            record.time_ns -= rng::exponential(&mut rng, TYPICAL_NS) as i64;
        }
        keep_order(end.departing.iter_mut().rev(), i64::min);
        for record in &mut end.arriving {
            record.time_ns += late_ns(&mut rng);
        }
        keep_order(end.arriving.iter_mut(), i64::max);
    }
}

fn keep_order<'a>(records: impl Iterator<Item = &'a mut Record>, bound: fn(i64, i64) -> i64) {
    let mut previous = None;
    for record in records {
        record.time_ns = previous.map_or(record.time_ns, |previous| bound(record.time_ns, previous));
        previous = Some(record.time_ns);
    }
}

fn late_ns(rng: &mut RunRng) -> i64 {
    let scale = if rng::uniform(rng) < RARE_SHARE { RARE_NS } else { TYPICAL_NS };
    rng::exponential(rng, scale) as i64
}
