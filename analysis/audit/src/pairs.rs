//! Pairs packets that entered a link with packets that left it, and explains the others by reported drops and losses.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::line::{keeps_order, Line, Size};
use crate::records::Key;
use crate::{Direction, DirectionAudit, Event};

/// A dropped packet entered at most this long before its drop was reported; if no packet did, an older one that waited.
const AT_ARRIVAL_NS: i64 = 100_000_000;
/// A stamp may be this much later than the event, because two clocks were read.
const CLOCK_NS: i64 = 1_000_000;
/// Time beyond the ideal that a packet may take at the end of a run.
const GRACE_NS: i64 = 100_000_000;

/// What became of a packet that entered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    /// It left.
    Left,
    /// Dropped or lost; the number of the event.
    Explained(usize),
    /// It may still be in the link at the end of the run, or entered before its start.
    Open,
    /// The line had time for it.
    Swallowed,
}

pub(crate) struct Pairs {
    /// Of each packet that entered.
    pub(crate) fates: Vec<Fate>,
    /// Numbers of packets that left and entered, in the order in which they left.
    pub(crate) pairs: Vec<(usize, usize)>,
    /// Packets that left during the run and had not entered.
    invented: u64,
}

/// Whether an event ends a packet.
pub(crate) fn ends_packet(event: &Event) -> bool {
    matches!(event.event.as_str(), "dropped_full" | "dropped_early" | "purged" | "lost" | "tossed")
}

/// Pairs all packets of a direction. `line` is absent where service times are unknown.
pub(crate) fn pair(direction: &Direction<'_>, line: Option<&Line>) -> Pairs {
    let Direction { entered, left, window, .. } = direction;
    let mut waiting: FxHashMap<Key, VecDeque<usize>> = FxHashMap::default();
    for (number, record) in entered.iter().enumerate() {
        waiting.entry(record.key).or_default().push_back(number);
    }
    let mut fates = vec![Fate::Open; entered.len()];
    let (mut pairs, mut invented) = (Vec::with_capacity(left.len()), 0);
    for (number, record) in left.iter().enumerate() {
        match waiting.get_mut(&record.key).and_then(VecDeque::pop_front) {
            Some(origin) => {
                fates[origin] = Fate::Left;
                if record.time_ns >= window.begin_ns {
                    pairs.push((number, origin));
                }
            }
            None => invented += u64::from(record.time_ns >= window.begin_ns),
        }
    }
    explain(direction, &mut fates);
    find_swallowed(direction, line, &mut fates);
    Pairs { fates, pairs, invented }
}

/// Assigns each reported drop or loss to a packet of its size that did not leave.
fn explain(direction: &Direction<'_>, fates: &mut [Fate]) {
    let mut missing: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
    for (number, record) in direction.entered.iter().enumerate() {
        if fates[number] == Fate::Open {
            missing.entry(record.bytes).or_default().push(number);
        }
    }
    let entered_ns = |number: usize| direction.entered[number].time_ns;
    for (which, event) in direction.events.iter().enumerate().filter(|(_, event)| ends_packet(event)) {
        let Some(candidates) = missing.get_mut(&event.bytes) else { continue };
        let not_after = candidates.partition_point(|&number| entered_ns(number) <= event.at_ns + CLOCK_NS);
        let arriving = candidates.partition_point(|&number| entered_ns(number) < event.at_ns - AT_ARRIVAL_NS);
        if not_after == 0 {
            continue;
        }
        let chosen = candidates.remove(arriving.min(not_after - 1));
        fates[chosen] = Fate::Explained(which);
    }
}

/// Packets without an explanation that the line had time for: one that entered later has left, or all that entered before
/// took less than the run.
fn find_swallowed(direction: &Direction<'_>, line: Option<&Line>, fates: &mut [Fate]) {
    let Direction { entered, spec, window, .. } = direction;
    let one_class = keeps_order(&spec.queue.name);
    let class = |number: usize| {
        let record = &entered[number];
        (!one_class).then(|| (record.key.flow(), record.tcp.is_some_and(|tcp| tcp.pure_ack)))
    };
    let mut last_left = FxHashMap::default();
    for number in (0..entered.len()).filter(|&number| fates[number] == Fate::Left) {
        last_left.insert(class(number), number);
    }
    let mut free_ns = window.begin_ns;
    for number in 0..entered.len() {
        let record = &entered[number];
        if let Some(line) = line {
            if matches!(fates[number], Fate::Left | Fate::Open) {
                free_ns = free_ns.max(record.time_ns) + line.service_ns(Size::from(record));
            }
        }
        if fates[number] != Fate::Open || record.time_ns < window.begin_ns {
            continue;
        }
        let overtaken = last_left.get(&class(number)).is_some_and(|&last| last > number);
        let overdue = line.is_some_and(|line| free_ns + line.delay_ns + GRACE_NS < window.end_ns);
        if overtaken || overdue {
            fates[number] = Fate::Swallowed;
        }
    }
}

impl Pairs {
    /// Counts of packets.
    pub(crate) fn counts(&self, direction: &Direction<'_>) -> DirectionAudit {
        let Direction { entered, left, window, spec, .. } = direction;
        let reported = |kind: &str| direction.events.iter().filter(|event| event.event == kind).count() as u64;
        let during = |number: usize| (window.begin_ns..window.end_ns).contains(&entered[number].time_ns);
        let changed = self.pairs.iter().filter(|(out, origin)| left[*out].checksum != entered[*origin].checksum);
        let reorders = spec.errors.iter().any(|model| model.name == "reorder");
        DirectionAudit {
            entered_packets: (0..entered.len()).filter(|&number| during(number)).count() as u64,
            left_packets: self.pairs.len() as u64,
            swallowed_packets: self.fates.iter().filter(|fate| **fate == Fate::Swallowed).count() as u64,
            invented_packets: self.invented.saturating_sub(reported("duplicated")),
            reordered_packets: if reorders { 0 } else { self.reordered(direction) },
            changed_packets: (changed.count() as u64).saturating_sub(reported("damaged") + reported("marked_dupack")),
            ..DirectionAudit::default()
        }
    }

    fn reordered(&self, direction: &Direction<'_>) -> u64 {
        let one_class = keeps_order(&direction.spec.queue.name);
        let mut latest = FxHashMap::default();
        let mut count = 0;
        for (_, origin) in &self.pairs {
            let record = &direction.entered[*origin];
            let class = (!one_class).then(|| (record.key.flow(), record.tcp.is_some_and(|tcp| tcp.pure_ack)));
            let last = latest.entry(class).or_insert(*origin);
            count += u64::from(*origin < *last);
            *last = (*last).max(*origin);
        }
        count
    }
}
