//! The queue in front of a link at each drop: a droptail queue drops when it holds its limit, and at no other time.

use backchannel_core::event::EventKind;
use backchannel_core::scenario::{DirectionSpec, LinkSpec};

use crate::direction::{Direction, DirectionAudit};
use crate::pairs::{Outcome, Pairs};
use crate::records::Unchecked;
use crate::timeline::Timeline;

/// Uncertainty of the time at which the link began to serve a packet.
const START_NS: i64 = 150_000;
/// Packets must take longer on average, so that their starts can be told apart.
const LEAST_SERVICE_NS: i64 = 500_000;
/// A driver may read a packet this late.
const READ_LATE_NS: i64 = 60_000_000;
/// Where the scenario names no limit.
const DEFAULT_LIMIT: u64 = 20;

/// The declared limit, or why the queue cannot be checked.
pub(crate) fn limit_packets(link: &LinkSpec, spec: &DirectionSpec, timeline: &Timeline) -> Result<u64, Unchecked> {
    if spec.queue.name != "droptail" {
        return Err(Unchecked(format!("the policy {} does not drop at a fixed length", spec.queue.name)));
    }
    if spec.rate_bps.is_none() {
        return Err(Unchecked("the link only delays".into()));
    }
    if spec.queue.options.contains_key("buffer_bytes") {
        return Err(Unchecked("the queue has a limit in bytes".into()));
    }
    if !spec.errors.is_empty() {
        return Err(Unchecked("packets lost by error models cannot be distinguished from dropped ones".into()));
    }
    if [&spec.options, &link.options].iter().any(|options| options.contains_key("device_buffer_bytes")) {
        return Err(Unchecked("the modem's buffer holds packets too".into()));
    }
    if timeline.mean_service_ns() < LEAST_SERVICE_NS {
        return Err(Unchecked("packets are closer than the timestamps' resolution".into()));
    }
    Ok(spec.queue.options.get("limit_packets").and_then(|value| value.as_u64()).unwrap_or(DEFAULT_LIMIT))
}

/// Compares the queue's length at each drop, and its greatest length, with the limit.
pub(crate) fn check(
    direction: &Direction<'_>,
    limit: u64,
    pairs: &Pairs,
    timeline: &Timeline,
    audit: &mut DirectionAudit,
) {
    let mut starts_ns = timeline.starts_ns.clone();
    starts_ns.sort_unstable();
    let started = |at_ns: i64| starts_ns.partition_point(|&start| start <= at_ns) as i64;
    let mut served = vec![false; direction.entered.len()];
    for origin in timeline.slots.iter().filter_map(|slot| slot.origin) {
        served[origin] = true;
    }
    let mut admitted = 0i64;
    let mut longest = 0;
    for (number, outcome) in pairs.outcomes.iter().enumerate() {
        let entered_ns = direction.entered[number].time_ns;
        match *outcome {
            Outcome::Left if served[number] => {
                admitted += 1;
                longest = longest.max(admitted - started(entered_ns + READ_LATE_NS));
            }
            Outcome::Open if entered_ns >= direction.window.begin_ns => admitted += 1,
            // At the end of the run, packets that were dropped cannot be told from those that still wait.
            Outcome::Explained(which)
                if pairs.overtaken[number] && direction.events[which].kind == EventKind::DroppedFull =>
            {
                let at_ns = direction.events[which].at_ns;
                let (least, most) = (admitted - started(at_ns + START_NS), admitted - started(at_ns - START_NS));
                audit.drops_checked += 1;
                audit.drops_beyond_limit += u64::from(least > limit as i64);
                audit.drops_before_limit += u64::from(most < limit as i64);
            }
            _ => {}
        }
    }
    audit.queue_limit_packets = Some(limit);
    audit.longest_queue_packets = Some(longest.max(0) as u64);
}
