//! Jitter: what a link reports to have drawn for each packet, and with it the times at which packets would have left
//! without.
//!
//! The link reports the deviation from its delay only. The delay itself, the rate and the order are still measured by
//! the captures, so a link with another delay than declared shows, whatever it reports.

use std::collections::VecDeque;

use backchannel_core::event::EventKind;
use backchannel_core::scenario::DirectionSpec;
use rustc_hash::FxHashMap;

use crate::direction::{Direction, JitterEvent};

/// Time by which the order of packets at the end of a run is uncertain, beyond what jitter explains.
const GRACE_NS: i64 = 100_000_000;

/// The greatest jitter of a direction in nanoseconds, at its start or after a change; 0 without jitter.
pub(crate) fn most_ns(spec: &DirectionSpec) -> i64 {
    let changes = spec.schedule.iter().filter_map(|change| change.jitter_s);
    (changes.fold(spec.jitter_s, f64::max) * 1e9).round() as i64
}

/// When a packet must have left for a later one that it could overtake to be missing, in nanoseconds.
pub(crate) fn settled_ns(direction: &Direction<'_>) -> i64 {
    match most_ns(direction.spec) {
        0 => i64::MAX,
        most_ns => direction.window.end_ns.saturating_sub(2 * most_ns + GRACE_NS),
    }
}

/// Packets that left, without the jitter that the link reports.
pub(crate) struct WithoutJitter {
    /// Times without jitter, by the number of the packet.
    pub(crate) left_ns: Vec<i64>,
    /// By the number of the packet: the time by which it has its place in the order of a link without jitter. It is
    /// exact where the link reports a packet, because a driver's lateness must not exchange packets.
    pub(crate) place_ns: Vec<i64>,
    /// Packets that left after one whose arrival the link reports as later.
    pub(crate) reordered: u64,
    /// Packets for which the link reports nothing, or more than its jitter.
    pub(crate) unexplained: u64,
    /// Of each lost packet, by the number of its event, its time without jitter.
    pub(crate) lost_ns: FxHashMap<usize, i64>,
}

impl WithoutJitter {
    /// Takes the reported jitter off the times of a direction.
    pub(crate) fn new(direction: &Direction<'_>) -> WithoutJitter {
        let left = direction.left;
        let left_ns: Vec<i64> = left.iter().map(|record| record.time_ns).collect();
        let mut without_jitter = WithoutJitter {
            place_ns: left_ns.clone(),
            left_ns,
            reordered: 0,
            unexplained: 0,
            lost_ns: FxHashMap::default(),
        };
        if most_ns(direction.spec) > 0 {
            without_jitter.subtract(direction);
        }
        without_jitter
    }

    /// Numbers of the packets in the order in which they would have left.
    pub(crate) fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.left_ns.len()).collect();
        order.sort_by_key(|&number| self.place_ns[number]);
        order
    }

    fn subtract(&mut self, direction: &Direction<'_>) {
        let (most_ns, mut reports) = (most_ns(direction.spec), Reports::new(direction.jitter));
        let lost = direction.events.iter().enumerate().filter(|(_, event)| event.kind == EventKind::Lost);
        for ((number, event), report) in lost.zip(direction.jitter.iter().filter(|report| report.lost)) {
            self.lost_ns.insert(number, event.at_ns - report.jitter_ns);
        }
        let mut latest_ns = i64::MIN;
        for (number, record) in direction.left.iter().enumerate() {
            let Some(report) = reports.of(record.bytes, record.checksum, record.time_ns) else {
                // A link that gets its jitter by a change reports nothing before. Captures go on after the run's end.
                let window = direction.window;
                let is_of_run = (window.begin_ns..window.end_ns).contains(&record.time_ns);
                let is_reported = direction.spec.jitter_s > 0.0 && is_of_run;
                self.unexplained += u64::from(is_reported);
                continue;
            };
            self.left_ns[number] -= report.jitter_ns;
            self.place_ns[number] = report.at_ns - report.jitter_ns;
            self.unexplained += u64::from(report.jitter_ns.abs() > most_ns);
            self.reordered += u64::from(report.at_ns < latest_ns);
            latest_ns = latest_ns.max(report.at_ns);
        }
    }
}

/// Reports that no packet has taken yet.
struct Reports<'a> {
    all: &'a [&'a JitterEvent],
    /// Numbers by length and checksum, in order of arrival.
    alike: FxHashMap<(u32, u16), VecDeque<usize>>,
    /// Of each: another packet has it, or it is of a lost one.
    taken: Vec<bool>,
}

impl<'a> Reports<'a> {
    fn new(all: &'a [&'a JitterEvent]) -> Reports<'a> {
        let mut alike: FxHashMap<_, VecDeque<usize>> = FxHashMap::default();
        for (number, report) in all.iter().enumerate().filter(|(_, report)| !report.lost) {
            alike.entry((report.bytes, report.checksum)).or_default().push_back(number);
        }
        Reports { all, alike, taken: all.iter().map(|report| report.lost).collect() }
    }

    /// The first report of such a packet. One with a damaged checksum gets the last of its length by the time it left.
    fn of(&mut self, bytes: u32, checksum: u16, left_ns: i64) -> Option<&'a JitterEvent> {
        let alike = self.alike.get_mut(&(bytes, checksum));
        if let Some(number) = alike.and_then(|alike| {
            while alike.front().is_some_and(|&number| self.taken[number]) {
                alike.pop_front();
            }
            alike.pop_front()
        }) {
            return self.take(number);
        }
        let until = self.all.partition_point(|report| report.at_ns <= left_ns);
        let number = (0..until).rev().find(|&number| !self.taken[number] && self.all[number].bytes == bytes)?;
        self.take(number)
    }

    fn take(&mut self, number: usize) -> Option<&'a JitterEvent> {
        self.taken[number] = true;
        Some(self.all[number])
    }
}
