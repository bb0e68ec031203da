//! Pairs packets that entered a link with packets that left it, and explains the others by reported drops and losses.

use std::collections::VecDeque;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use backchannel_core::event::EventKind;
use backchannel_core::registry::Disorder;

use crate::direction::{Direction, DirectionAudit, Event};
use crate::jitter::{self, WithoutJitter};
use crate::link_model::{LinkModel, Size};
use crate::records::{Key, Record};

/// A dropped packet entered at most this long before its drop was reported; if no packet did, an older one that waited.
const AT_ARRIVAL_NS: i64 = 100_000_000;
/// A stamp may be this much later than the event, because two clocks were read.
const CLOCK_NS: i64 = 1_000_000;
/// Time beyond the ideal that a packet may take at the end of a run.
const GRACE_NS: i64 = 100_000_000;

/// What became of a packet that entered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// It left.
    Left,
    /// Dropped or lost; the number of the event.
    Explained(usize),
    /// It may still be in the link at the end of the run, or entered before its start.
    Open,
    /// The link had time for it.
    Swallowed,
}

pub(crate) struct Pairs {
    /// Of each packet that entered.
    pub(crate) outcomes: Vec<Outcome>,
    /// Numbers of packets that left and entered, in the order in which they left, or would have left without jitter.
    pub(crate) pairs: Vec<(usize, usize)>,
    /// Of each packet that entered: it did not leave, and a later one did.
    pub(crate) overtaken: Vec<bool>,
    /// Times at which packets left, without jitter.
    pub(crate) without_jitter: WithoutJitter,
    /// Packets that left during the run and had not entered.
    invented: u64,
}

/// Whether an event ends a packet.
pub(crate) fn ends_packet(event: &Event) -> bool {
    use EventKind::{DroppedEarly, DroppedFull, Lost, Purged, Tossed};
    matches!(event.kind, DroppedFull | DroppedEarly | Purged | Lost | Tossed)
}

/// Pairs all packets of a direction. `model` is absent where service times are unknown.
pub(crate) fn pair(direction: &Direction<'_>, model: Option<&LinkModel>) -> Pairs {
    let Direction { entered, left, window, .. } = direction;
    let mut waiting: FxHashMap<Key, VecDeque<usize>> = FxHashMap::default();
    for (number, record) in entered.iter().enumerate() {
        waiting.entry(record.key).or_default().push_back(number);
    }
    let mut outcomes = vec![Outcome::Open; entered.len()];
    let mut left_ns = vec![i64::MAX; entered.len()];
    let (mut pairs, mut invented) = (Vec::with_capacity(left.len()), 0);
    let without_jitter = WithoutJitter::new(direction);
    for number in without_jitter.order() {
        let record = &left[number];
        match waiting.get_mut(&record.key).and_then(|alike| take(alike, |origin| entered[origin].checksum, record)) {
            Some(origin) => {
                outcomes[origin] = Outcome::Left;
                left_ns[origin] = record.time_ns;
                if record.time_ns >= window.begin_ns {
                    pairs.push((number, origin));
                }
            }
            None => invented += u64::from(record.time_ns >= window.begin_ns),
        }
    }
    let overtaken = overtaken(direction, &outcomes, &left_ns);
    // A packet that may still be in the link needs no explanation, so the others come first.
    let unused = explain(direction, (0..direction.events.len()).collect(), &mut outcomes, |number| overtaken[number]);
    explain(direction, unused, &mut outcomes, |_| true);
    find_swallowed(direction, model, &overtaken, &mut outcomes);
    Pairs { outcomes, pairs, overtaken, without_jitter, invented }
}

/// Takes the packet that left from those that entered with its key: the first with its checksum too, or else the first.
/// Linux sends acks of connections that it is opening or has closed without an identification, so only their time
/// stamps, and with them the checksums, differ.
fn take(alike: &mut VecDeque<usize>, checksum: impl Fn(usize) -> u16, left: &Record) -> Option<usize> {
    let same = alike.iter().position(|&origin| checksum(origin) == left.checksum);
    alike.remove(same.unwrap_or(0))
}

/// Assigns drops and losses, given by the numbers of their events, to packets of their size that did not leave. Returns
/// the events without such a packet among those that `includes` selects.
fn explain(
    direction: &Direction<'_>,
    events: Vec<usize>,
    outcomes: &mut [Outcome],
    includes: impl Fn(usize) -> bool,
) -> Vec<usize> {
    let mut missing: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
    for (number, record) in direction.entered.iter().enumerate() {
        if outcomes[number] == Outcome::Open && includes(number) {
            missing.entry(record.bytes).or_default().push(number);
        }
    }
    let entered_ns = |number: usize| direction.entered[number].time_ns;
    let mut unused = Vec::new();
    for which in events {
        let event = direction.events[which];
        if !ends_packet(event) {
            continue;
        }
        let candidates = missing.entry(event.bytes).or_default();
        let not_after = candidates.partition_point(|&number| entered_ns(number) <= event.at_ns + CLOCK_NS);
        let arriving = candidates.partition_point(|&number| entered_ns(number) < event.at_ns - AT_ARRIVAL_NS);
        if not_after == 0 {
            unused.push(which);
            continue;
        }
        let chosen = candidates.remove(arriving.min(not_after - 1));
        outcomes[chosen] = Outcome::Explained(which);
    }
    unused
}

/// Packets that keep their order behind a policy with several queues: a flow's data, its acks, and its SYN, FIN and RST
/// without data. A policy that classifies by size enqueues the last with the acks, others with the data.
fn class(record: &Record) -> impl Eq + Hash {
    let kind = record.tcp.map(|tcp| (tcp.has_data, tcp.pure_ack));
    (record.key.flow(), kind)
}

/// Whether a packet that did not leave was overtaken by one that did: behind a policy that keeps the order, by any
/// packet; otherwise by one of its class. Over a link with jitter, long before the end of the run.
fn overtaken(direction: &Direction<'_>, outcomes: &[Outcome], left_ns: &[i64]) -> Vec<bool> {
    let Direction { entered, .. } = direction;
    let one_class = direction.keeps_order();
    let class = |number: usize| (!one_class).then(|| class(&entered[number]));
    let mut last_left = FxHashMap::default();
    let settled_ns = jitter::settled_ns(direction);
    let has_left = |&number: &usize| outcomes[number] == Outcome::Left && left_ns[number] <= settled_ns;
    for number in (0..entered.len()).filter(has_left) {
        last_left.insert(class(number), number);
    }
    let is_overtaken = |number| last_left.get(&class(number)).is_some_and(|&last| last > number);
    (0..entered.len()).map(|number| outcomes[number] == Outcome::Open && is_overtaken(number)).collect()
}

/// Packets without an explanation that the link had time for: one that entered later has left, or all that may have
/// been served first took less than the run. Behind a policy that keeps the order these entered before; otherwise they
/// are all packets of the run, for a policy may let a packet wait for ever.
fn find_swallowed(direction: &Direction<'_>, model: Option<&LinkModel>, overtaken: &[bool], outcomes: &mut [Outcome]) {
    let Direction { entered, window, spec, .. } = direction;
    let free_ns: Vec<i64> = entered
        .iter()
        .scan(window.begin_ns, |free_ns, record| {
            // Dropped packets did not use the link. Those lost at its end did, and the two may be confused, so all
            // count.
            *free_ns = (*free_ns).max(record.time_ns) + model.map_or(0, |model| model.service_ns(Size::from(record)));
            Some(*free_ns)
        })
        .collect();
    let one_class = direction.keeps_order();
    for (number, record) in entered.iter().enumerate() {
        let served_ns = if one_class { free_ns[number] } else { *free_ns.last().expect("it has this packet") };
        let longest_ns = |model: &LinkModel| model.delay_ns + jitter::most_ns(spec) + GRACE_NS;
        let overdue = model.is_some_and(|model| served_ns + longest_ns(model) < window.end_ns);
        if outcomes[number] == Outcome::Open && record.time_ns >= window.begin_ns && (overtaken[number] || overdue) {
            outcomes[number] = Outcome::Swallowed;
        }
    }
}

impl Pairs {
    /// Counts of packets.
    pub(crate) fn counts(&self, direction: &Direction<'_>) -> DirectionAudit {
        let Direction { entered, left, window, spec, .. } = direction;
        let reported = |kind| direction.events.iter().filter(|event| event.kind == kind).count() as u64;
        let during = |number: usize| (window.begin_ns..window.end_ns).contains(&entered[number].time_ns);
        let changed = self.pairs.iter().filter(|(out, origin)| left[*out].checksum != entered[*origin].checksum);
        let reorders = spec.errors.iter().any(|model| direction.mechanisms.disorder(model) == Disorder::Reorders);
        DirectionAudit {
            entered_packets: (0..entered.len()).filter(|&number| during(number)).count() as u64,
            left_packets: self.pairs.len() as u64,
            swallowed_packets: self.outcomes.iter().filter(|outcome| **outcome == Outcome::Swallowed).count() as u64,
            invented_packets: self.invented.saturating_sub(reported(EventKind::Duplicated)),
            reordered_packets: if reorders { 0 } else { self.reordered(direction) },
            jitter_unexplained_packets: self.without_jitter.unexplained.saturating_sub(reported(EventKind::Duplicated)),
            changed_packets: (changed.count() as u64)
                .saturating_sub(reported(EventKind::Damaged) + reported(EventKind::MarkedDupack)),
            ..DirectionAudit::default()
        }
    }

    fn reordered(&self, direction: &Direction<'_>) -> u64 {
        let one_class = direction.keeps_order();
        let mut latest = FxHashMap::default();
        let mut count = self.without_jitter.reordered;
        // Without its delay, the order in which packets with jitter left their queue is unknown.
        if jitter::most_ns(direction.spec) > 0 && direction.spec.schedule.iter().any(|change| change.delay_s.is_some())
        {
            return count;
        }
        for (_, origin) in &self.pairs {
            let record = &direction.entered[*origin];
            let last = latest.entry((!one_class).then(|| class(record))).or_insert(*origin);
            count += u64::from(*origin < *last);
            *last = (*last).max(*origin);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use backchannel_core::scenario::LinkSpec;
    use serde_json::json;

    use super::*;
    use crate::direction::Window;
    use crate::mechanisms::Mechanisms;
    use crate::records::Tcp;

    /// Pairs packets of these kinds ("data", "ack", "rst"). `left` lists those that left, in order, by number. Returns
    /// the outcomes and the number of reordered packets.
    fn outcomes(policy: &str, kinds: &[&str], left: &[u16]) -> (Vec<Outcome>, u64) {
        outcomes_behind(&json!({"name": policy}), kinds, left)
    }

    /// The same behind a policy with options.
    fn outcomes_behind(queue: &serde_json::Value, kinds: &[&str], left: &[u16]) -> (Vec<Outcome>, u64) {
        let line = json!({"rate_bps": 1_000_000, "queue": queue});
        let link =
            json!({"name": "line", "kind": "point-to-point", "ends": ["a", "b"], "forward": line, "reverse": line});
        let link: LinkSpec = serde_json::from_value(link).expect("a link");
        let record = |number: u16, time_ns| {
            let kind = kinds[usize::from(number)];
            let (has_data, pure_ack) = (kind == "data", kind == "ack");
            let tcp = Tcp { pure_ack, has_data, opens_or_closes: kind == "rst", options_bytes: 0 };
            Record { time_ns, bytes: 40, key: Key::default(), checksum: number, tcp: Some(tcp) }
        };
        let entered: Vec<Record> = (0..kinds.len() as u16).map(|number| record(number, i64::from(number))).collect();
        let left: Vec<Record> = left.iter().zip(100..).map(|(&number, at)| record(number, at)).collect();
        let direction = Direction {
            link: &link,
            spec: &link.forward,
            mechanisms: Mechanisms(&backchannel_links::Registry::builtin().entries()),
            window: Window { begin_ns: 0, end_ns: 1000 },
            entered: &entered,
            left: &left,
            events: &[],
            jitter: &[],
            writes_ns: &[],
        };
        let pairs = pair(&direction, None);
        let reordered = pairs.counts(&direction).reordered_packets;
        (pairs.outcomes, reordered)
    }

    #[test]
    fn a_packet_without_data_that_ends_a_connection_overtakes_none_behind_a_policy_with_classes() {
        use Outcome::{Left, Open, Swallowed};
        let kinds = ["data", "data", "ack", "rst"];
        // AQ classifies by size and enqueues the reset with the acks. Data still wait at the end of the run.
        assert_eq!(outcomes("aq", &kinds, &[0, 2, 3]), (vec![Left, Open, Left, Left], 0));
        assert_eq!(outcomes("aq", &kinds, &[0, 3, 2, 1]), (vec![Left; 4], 0));
        // Others enqueue it with the data, where acks overtake it.
        assert_eq!(outcomes("acks-first", &["rst", "ack"], &[1]), (vec![Open, Left], 0));
        assert_eq!(outcomes("acks-first", &["rst", "ack"], &[1, 0]), (vec![Left; 2], 0));
        // Data overtake no data, and acks no acks.
        assert_eq!(outcomes("aq", &kinds, &[1, 2, 3]), (vec![Swallowed, Left, Left, Left], 0));
        assert_eq!(outcomes("aq", &["ack", "ack"], &[1, 0]), (vec![Left; 2], 1));
        // Behind droptail nothing overtakes anything.
        assert_eq!(outcomes("droptail", &kinds, &[0, 2, 3]), (vec![Left, Swallowed, Left, Left], 0));
        assert_eq!(outcomes("droptail", &kinds, &[0, 1, 3, 2]), (vec![Left; 4], 1));
    }

    #[test]
    fn acks_overtake_data_behind_red_with_acks_first_alone() {
        let red = |acks_first: bool| json!({"name": "red", "options": {"acks_first": acks_first}});
        let kinds = ["data", "ack"];
        assert_eq!(outcomes_behind(&red(true), &kinds, &[1, 0]), (vec![Outcome::Left; 2], 0));
        assert_eq!(outcomes_behind(&red(true), &kinds, &[1]), (vec![Outcome::Open, Outcome::Left], 0));
        assert_eq!(outcomes_behind(&red(false), &kinds, &[1, 0]), (vec![Outcome::Left; 2], 1));
        assert_eq!(outcomes_behind(&red(false), &kinds, &[1]), (vec![Outcome::Swallowed, Outcome::Left], 0));
    }

    #[test]
    fn of_packets_with_one_key_the_one_with_the_checksum_left() {
        let left = |checksum| Record { time_ns: 9, bytes: 40, key: Key::default(), checksum, tcp: None };
        let checksums = [5, 6, 7];
        let mut alike = VecDeque::from([0, 1, 2]);
        // The first one was dropped.
        assert_eq!(take(&mut alike, |origin| checksums[origin], &left(6)), Some(1));
        // A damaged one has no twin, and is the first that is there.
        assert_eq!(take(&mut alike, |origin| checksums[origin], &left(1)), Some(0));
        assert_eq!(take(&mut alike, |origin| checksums[origin], &left(7)), Some(2));
        assert_eq!(take(&mut alike, |origin| checksums[origin], &left(7)), None);
    }
}
