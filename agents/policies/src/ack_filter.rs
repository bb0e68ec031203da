//! Ack filtering: a newer cumulative ack makes older acks in the queue redundant.
//!
//! Source: asym 6.2 (the filter), 8.4 (its implementation), 6.3 (filtered duplicate acks).
//!
//! When a pure ack arrives, the queue is searched for pure acks of the same connection. Removed are
//!
//! - acks with a smaller acknowledgment number, and
//! - acks with the same number and another window, because a later window update replaces earlier ones (8.4).
//!
//! The new ack joins the tail. All the state is in the queued packets (6.2).
//!
//! Never removed are segments with data and duplicates of the arriving ack (same number, same window), which count
//! towards a fast retransmit (8.4). Differs from the source, which is silent, in: SYN, FIN, RST and, by default, acks
//! with SACK blocks are never removed either.
//!
//! Options that the paper allows for: remove only a fraction of the redundant acks, fixed or equal to the fill level of
//! the queue, the oldest or random ones (6.2). Filter duplicate acks too, and mark later ones for a fast retransmit
//! once enough were filtered (6.3); this needs a count per connection. Put the new ack in the place of the first one
//! removed (ns). Let several acks of a connection wait (static filtering, Barakat and Altman 2000, the filter that acq
//! compares with): one is too few where acks come in bursts. Not of the paper, whose TCP has no SACK: remove an ack
//! with SACK blocks once a later one tells all that it told.

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::{mark, FlowKey, Packet};
use backchannel_core::registry::{Entry, Queueing, When};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Policy};
use backchannel_core::Error;
use rustc_hash::FxHashMap;

use crate::limit::Limit;
use crate::{AcksFirst, Child, Context, DropTail};

options! {
    /// Option of policies that filter acks.
    pub(crate) struct SackFilter {
        filter_sack: bool = ABSENT, [Flag]
            "remove acks with SACK blocks too, once a later ack of the connection has a number as high and \
             acknowledges, by its number or its blocks, all that theirs do (RFC 2018)";
    }
}

options! {
    /// Options of the policy.
    struct Options {
        .. limit: Limit;
        fraction: Option<f64> = ABSENT, [Fraction]
            "fraction of the redundant acks to remove, rounded down; absent: all (asym 6.2)";
        by_fullness: bool = ABSENT, [Flag]
            "remove a fraction equal to the fill level of the queue, in packets, rounded down (asym 6.2); not together with \
             fraction";
        allowed_acks: Option<u64> = ABSENT, [Count 1]
            "acks of a connection that may wait; only redundant ones in excess of them are removed, the oldest first \
             (static filtering, Barakat and Altman 2000); not together with fraction or by_fullness";
        random: bool = ABSENT, [Flag]
            "remove random redundant acks instead of the oldest; needs fraction or by_fullness (asym 6.2)";
        replace_head: bool = ABSENT, [Flag]
            "put the new ack in the place of the first one removed instead of at the tail (ns)";
        mark_dupacks_after: Option<u64> = ABSENT, [Count 1]
            "filter duplicate acks too, and after this many filtered duplicates of one number mark the later ones for \
             a fast retransmit (asym 6.3); absent: duplicate acks are never removed (asym 8.4)";
        ... sack: SackFilter;
        ... below: Child;
    }
}

options! {
    /// Options of `ack-filtering-acks-first`.
    struct AcksFirstOptions {
        .. limit: Limit;
        ... sack: SackFilter;
    }
}

pub(crate) static ENTRY: Entry = Entry::policy(
    "ack-filtering",
    "ack filtering: a newer cumulative ack removes the older acks of its connection from the queue",
    Queueing::CLASSES,
)
.source("asym 6.2, 8.4, 6.3")
.random(When::With("random"))
.options(Options::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: &Context) -> Result<Box<dyn Policy>, Error> {
    let options = Options::read(checked);
    let share = match (options.fraction, options.by_fullness, options.allowed_acks) {
        (Some(fraction), false, None) => Share::Fraction(fraction),
        (None, true, None) => Share::Fullness,
        (None, false, Some(allowed)) => Share::Beyond(allowed),
        (None, false, None) => Share::All,
        _ => return Err("policy ack-filtering: set only one of fraction, by_fullness and allowed_acks".into()),
    };
    if matches!(share, Share::All | Share::Beyond(_)) && options.random {
        return Err("policy ack-filtering: random needs fraction or by_fullness, because otherwise the filter says \
                    which acks go"
            .into());
    }
    let variant = Variant {
        share,
        random: options.random.then(|| rng::stream(context.seed, &format!("{}/ack-filtering", context.label))),
        replace_head: options.replace_head,
        mark_dupacks_after: options.mark_dupacks_after,
        filter_sack: options.sack.filter_sack,
        reports_oldest_first: false,
    };
    let Some(child) = context.child("child", &options.below.child)? else {
        return Ok(Box::new(AckFiltering::new(options.limit, variant)));
    };
    let limit = options.limit.of_parent(checked, true);
    if variant.share == Share::Fullness && limit.limit_packets == usize::MAX {
        return Err("policy ack-filtering: by_fullness over a child needs limit_packets".into());
    }
    Ok(Box::new(AckFiltering::over(child, limit, variant)))
}

pub(crate) static ENTRY_ACKS_FIRST: Entry = Entry::policy(
    "ack-filtering-acks-first",
    "pure acks are sent before all other packets, and a newer ack removes the older ones of its connection",
    Queueing::CLASSES,
)
.source("asym 6.2, 6.5, 7.1.3")
.options(AcksFirstOptions::PARAMS);

/// `ack-filtering` over `acks-first`.
pub(crate) fn over_acks_first(checked: &CheckedOptions<'_>, _: &Context) -> Result<Box<dyn Policy>, Error> {
    let AcksFirstOptions { limit, sack } = AcksFirstOptions::read(checked);
    let variant = Variant { filter_sack: sack.filter_sack, ..Variant::beyond(1) };
    Ok(Box::new(AckFiltering::over(AcksFirst::new(Limit::NONE), limit, variant)))
}

/// The fraction of the redundant acks that is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Share {
    /// All of them, as in the paper's experiments.
    #[default]
    All,
    /// This fraction, rounded down.
    Fraction(f64),
    /// The fill level of the queue, rounded down.
    Fullness,
    /// Those in excess of this number of acks of the connection, the arriving one included.
    Beyond(u64),
}

/// Options that the paper allows for.
#[derive(Debug, Default)]
pub struct Variant {
    /// How many redundant acks are removed.
    pub share: Share,
    /// Chooses which ones are removed; `None`: the oldest.
    pub random: Option<RunRng>,
    /// The new ack takes the place of the first one removed.
    pub replace_head: bool,
    /// Filter duplicate acks, and mark later ones after this many.
    pub mark_dupacks_after: Option<u64>,
    /// Remove acks with SACK blocks that a later ack covers.
    pub filter_sack: bool,
    /// Report purges of one instant oldest first. Telemetry keeps their order.
    pub reports_oldest_first: bool,
}

impl Variant {
    /// The filter within other policies: `allowed` acks of a connection wait.
    pub(crate) fn beyond(allowed: u64) -> Variant {
        Variant { share: Share::Beyond(allowed), reports_oldest_first: true, ..Variant::default() }
    }
}

/// Whether a later pure ack makes a queued packet redundant.
fn redundant(older: &Packet, newer: &Packet, filters_sack: bool) -> bool {
    let (Some(old), Some(new)) = (older.tcp(), newer.tcp()) else { return false };
    if !older.is_pure_ack() || older.flow() != newer.flow() {
        return false;
    }
    // Serial number arithmetic: smaller means behind by less than half the space (RFC 9293, 3.4).
    let behind = new.ack.wrapping_sub(old.ack) as i32;
    if old.sack_blocks == 0 && (behind > 0 || (behind == 0 && old.window != new.window)) {
        return true;
    }
    // Duplicates without blocks count towards a fast retransmit; with blocks, what they tell counts.
    filters_sack && behind >= 0 && old.sack_blocks + new.sack_blocks > 0 && covers(newer, older)
}

/// Whether the number and the SACK blocks of `newer` acknowledge all that the blocks of `older` do.
fn covers(newer: &Packet, older: &Packet) -> bool {
    let Some(new) = newer.tcp() else { return false };
    let at_most = |a: u32, b: u32| b.wrapping_sub(a) as i32 >= 0;
    older.sack_blocks().all(|(start, end)| {
        at_most(end, new.ack) || newer.sack_blocks().any(|(from, to)| at_most(from, start) && at_most(end, to))
    })
}

/// Whether a later pure ack is a duplicate of a queued one: same number, same window.
fn same(older: &Packet, newer: &Packet) -> bool {
    let (Some(old), Some(new)) = (older.tcp(), newer.tcp()) else { return false };
    let plain = |packet: &Packet, blocks: u8| packet.is_pure_ack() && blocks == 0;
    plain(older, old.sack_blocks)
        && plain(newer, new.sack_blocks)
        && older.flow() == newer.flow()
        && (old.ack, old.window) == (new.ack, new.window)
}

/// A filter of the acks that wait in its child.
pub struct AckFiltering<P = Box<dyn Policy>> {
    limit: Limit,
    child: P,
    variant: Variant,
    /// Acknowledgment number and count of the filtered duplicate acks, per connection.
    filtered: FxHashMap<FlowKey, (u32, u64)>,
}

impl AckFiltering<DropTail> {
    /// An empty queue of at most `limit` with this filter.
    pub fn new(limit: impl Into<Limit>, variant: Variant) -> AckFiltering<DropTail> {
        AckFiltering::over(DropTail::new(Limit::NONE), limit, variant)
    }
}

impl<P: Policy> AckFiltering<P> {
    /// A filter over an empty child. `limit` counts in addition to the child's.
    pub fn over(child: P, limit: impl Into<Limit>, variant: Variant) -> AckFiltering<P> {
        AckFiltering { limit: limit.into(), child, variant, filtered: FxHashMap::default() }
    }

    /// Places of the acks that go because of a newer pure ack, oldest first.
    fn redundant_to(&mut self, newer: &Packet) -> Vec<usize> {
        let waiting = self.child.len_packets();
        if waiting == 0 || !newer.is_pure_ack() {
            return Vec::new();
        }
        let dupacks = self.variant.mark_dupacks_after.is_some();
        let removable =
            |older: &Packet| redundant(older, newer, self.variant.filter_sack) || (dupacks && same(older, newer));
        let mut places: Vec<_> = (0..waiting).filter(|place| self.child.peek(*place).is_some_and(removable)).collect();
        // Rounded down: rounded up, every ack would remove the one before it, as the filter of all does. The small addend
        // is for products such as 0.29 times 100.
        let of_redundant = |share: f64| (share * places.len() as f64 + 1e-9) as usize;
        let count = match self.variant.share {
            Share::All => places.len(),
            Share::Fraction(fraction) => of_redundant(fraction),
            Share::Fullness => of_redundant(waiting as f64 / self.limit.limit_packets as f64),
            Share::Beyond(allowed) => (places.len() + 1).saturating_sub(allowed as usize),
        };
        if let Some(rng) = &mut self.variant.random {
            // The first `count` steps of a Fisher-Yates shuffle.
            for chosen in 0..count {
                let other = chosen + rng::below(rng, places.len() - chosen);
                places.swap(chosen, other);
            }
        }
        places.truncate(count);
        places.sort_unstable();
        places
    }

    /// Reports the acks at these places as purged.
    fn report(&mut self, now: Time, places: &[usize], newer: &Packet, events: &mut Events) {
        for place in places {
            let Some(older) = self.child.peek(*place) else { continue };
            events.record(now, EventKind::Purged, older);
            if same(older, newer) {
                let older = older.clone();
                self.count_dupack(&older);
            }
        }
    }

    fn count_dupack(&mut self, dupack: &Packet) {
        if let (Some(flow), Some(tcp)) = (dupack.flow(), dupack.tcp()) {
            let (number, count) = self.filtered.entry(flow).or_insert((tcp.ack, 0));
            *count = if *number == tcp.ack { *count + 1 } else { 1 };
            *number = tcp.ack;
        }
    }

    /// Marks a duplicate ack if enough others of its number were filtered (asym 6.3).
    fn mark_dupack(&mut self, now: Time, packet: &mut Packet, events: &mut Events) {
        let Some(threshold) = self.variant.mark_dupacks_after else { return };
        let (Some(flow), Some(tcp)) = (packet.flow(), packet.tcp()) else { return };
        if !packet.is_pure_ack() {
            return;
        }
        let Some(&(number, count)) = self.filtered.get(&flow) else { return };
        if number != tcp.ack {
            // The missing segment has arrived.
            self.filtered.remove(&flow);
        } else if count >= threshold && packet.set_mark(mark::FAST_RETRANSMIT) {
            events.record(now, EventKind::MarkedDupack, packet);
        }
    }
}

impl<P: Policy> Policy for AckFiltering<P> {
    fn enqueue(&mut self, now: Time, mut packet: Packet, events: &mut Events) {
        let mut places = self.redundant_to(&packet);
        if !self.variant.reports_oldest_first {
            places.reverse();
        }
        self.report(now, &places, &packet, events);
        // From the last one on, so that the places before it stay.
        places.sort_unstable_by(|a, b| b.cmp(a));
        let replaced = if self.variant.replace_head { places.pop() } else { None };
        places.into_iter().for_each(|place| drop(self.child.take(place, None)));
        let Backlog { packets, bytes } = self.child.backlog();
        let freed = replaced.and_then(|place| self.child.peek(place)).map_or(0, |older| u64::from(older.len()));
        if !self.limit.admits(packets - usize::from(replaced.is_some()), bytes - freed, &packet) {
            replaced.and_then(|place| self.child.take(place, None));
            events.record(now, EventKind::DroppedFull, &packet);
            return;
        }
        self.mark_dupack(now, &mut packet, events);
        match replaced {
            Some(place) => drop(self.child.take(place, Some(packet))),
            None => self.child.enqueue(now, packet, events),
        }
    }

    fn pass(&mut self, now: Time, mut packet: Packet, events: &mut Events) -> Option<Packet> {
        if self.child.len_packets() > 0 || !self.limit.admits(0, 0, &packet) {
            self.enqueue(now, packet, events);
            return self.dequeue(now, events);
        }
        self.mark_dupack(now, &mut packet, events);
        self.child.pass(now, packet, events)
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        self.child.dequeue(now, events)
    }

    fn next_time(&self) -> Option<Time> {
        self.child.next_time()
    }

    fn on_opposite(&mut self, now: Time, packet: &Packet) {
        self.child.on_opposite(now, packet);
    }

    fn on_rates(&mut self, now: Time, own_bps: Option<u64>, opposite_bps: Option<u64>) {
        self.child.on_rates(now, own_bps, opposite_bps);
    }

    crate::fifo::kept_in!(child);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{drain, kinds};
    use backchannel_core::packet::build::{ack, data, Segment};
    use backchannel_core::packet::TcpFlags;

    /// Ids of the packets that wait after these arrivals, in order.
    fn left(limit: usize, packets: Vec<Packet>) -> Vec<u64> {
        let (mut queue, mut events) = (AckFiltering::new(limit, Variant::default()), Events::default());
        for packet in packets {
            queue.enqueue(Time::ZERO, packet, &mut events);
        }
        drain(&mut queue, &mut events)
    }

    #[test]
    fn only_the_newest_cumulative_ack_waits_at_the_tail() {
        assert_eq!(left(10, vec![ack(1001), data(7, 960), ack(2001), ack(3001)]), [7, 3001]);
    }

    #[test]
    fn an_older_ack_that_arrives_late_removes_nothing() {
        assert_eq!(left(10, vec![ack(3001), ack(1001)]), [3001, 1001]);
    }

    #[test]
    fn duplicate_acks_all_stay() {
        let dup = |id| Segment { id, ack: 5, ..Segment::default() }.packet();
        assert_eq!(left(10, vec![dup(1), dup(2), dup(3)]), [1, 2, 3]);
    }

    #[test]
    fn acks_beyond_an_allowance_go_and_are_reported_oldest_first() {
        let (mut queue, mut events) = (AckFiltering::new(10, Variant::beyond(2)), Events::default());
        let dup = |id| Segment { id, ack: 5, ..Segment::default() }.packet();
        for packet in [dup(1), dup(2), dup(3), ack(1001)] {
            queue.enqueue(Time::ZERO, packet, &mut events);
        }
        assert_eq!(kinds(&events), [(1, EventKind::Purged), (2, EventKind::Purged)]);
        assert_eq!(drain(&mut queue, &mut events), [3, 1001]);
    }

    #[test]
    fn a_window_update_replaces_the_ack_with_the_same_number() {
        let update = |id, window| Segment { id, ack: 5, window, ..Segment::default() }.packet();
        assert_eq!(left(10, vec![update(1, 100), update(2, 200)]), [2]);
    }

    #[test]
    fn acks_of_another_connection_stay() {
        let other = Segment { id: 1, flow: 1, ack: 5, ..Segment::default() }.packet();
        assert_eq!(left(10, vec![other, ack(9)]), [1, 9]);
    }

    #[test]
    fn syn_fin_and_rst_are_never_removed() {
        let packets = [TcpFlags::SYN, TcpFlags::FIN, TcpFlags::RST]
            .iter()
            .zip(1..)
            .map(|(&flags, id)| Segment { id, flags, ..Segment::default() }.packet())
            .chain([ack(9)]);
        assert_eq!(left(10, packets.collect()), [1, 2, 3, 9]);
    }

    /// An ack with one SACK block, of `id`.
    fn sack(id: u64, ack: u32, options: &'static [u8]) -> Packet {
        Segment { id, ack, options, ..Segment::default() }.packet()
    }

    /// From sequence number 100 to 200, to 300, and from 400 to 500.
    const TO_200: &[u8] = &[1, 1, 5, 10, 0, 0, 0, 100, 0, 0, 0, 200];
    const TO_300: &[u8] = &[1, 1, 5, 10, 0, 0, 0, 100, 0, 0, 1, 44];
    const TO_500: &[u8] = &[1, 1, 5, 10, 0, 0, 1, 144, 0, 0, 1, 244];
    /// From 400 to 500, and from 100 to 200.
    const BOTH: &[u8] = &[1, 1, 5, 18, 0, 0, 1, 144, 0, 0, 1, 244, 0, 0, 0, 100, 0, 0, 0, 200];

    #[test]
    fn acks_with_sack_blocks_stay_unless_a_filter_of_them_is_asked_for() {
        assert_eq!(left(10, vec![sack(1, 50, TO_200), sack(2, 50, TO_300), ack(1001)]), [1, 2, 1001]);
        assert_eq!(left(10, vec![sack(1, 50, &[]), sack(2, 50, TO_200)]), [1, 2], "a duplicate counts");
    }

    #[test]
    fn an_ack_with_sack_blocks_goes_once_a_later_one_tells_all_that_it_told() {
        let left = |packets| left_with(Variant { filter_sack: true, ..Variant::default() }, packets).0;
        assert_eq!(left(vec![sack(1, 50, TO_200), sack(2, 50, TO_300)]), [2], "a wider block");
        assert_eq!(left(vec![sack(1, 50, TO_300), sack(2, 50, TO_200)]), [1, 2], "a narrower one");
        assert_eq!(left(vec![sack(1, 50, TO_200), sack(2, 50, TO_500)]), [1, 2], "another one");
        assert_eq!(left(vec![sack(1, 50, TO_200), sack(2, 50, BOTH)]), [2], "another one and the same");
        assert_eq!(left(vec![sack(1, 50, BOTH), sack(2, 60, TO_200)]), [1, 2], "one of two");
        assert_eq!(left(vec![sack(1, 50, TO_200), sack(2, 200, TO_500)]), [2], "the number covers it");
        assert_eq!(left(vec![sack(1, 50, TO_200), sack(2, 199, TO_500)]), [1, 2], "but for its last byte");
        assert_eq!(left(vec![sack(1, 60, TO_200), sack(2, 50, TO_300)]), [1, 2], "the number is behind");
        assert_eq!(left(vec![sack(1, 50, &[]), sack(2, 50, TO_200)]), [2], "the ack before the gap");
        assert_eq!(left(vec![sack(1, 50, &[]), sack(2, 50, &[])]), [1, 2], "duplicates without blocks");
        assert_eq!(
            left(vec![sack(1, 50, &[]), sack(2, 40, TO_200), sack(3, 50, &[])]),
            [1, 2, 3],
            "an older ack between them"
        );
        let other = Segment { id: 3, flow: 1, ack: 50, options: TO_300, ..Segment::default() }.packet();
        assert_eq!(left(vec![sack(1, 50, TO_200), other]), [1, 3], "another connection");
    }

    #[test]
    fn numbers_that_wrap_are_compared_as_serial_numbers() {
        let old = Segment { id: 1, ack: u32::MAX - 10, ..Segment::default() }.packet();
        assert_eq!(left(10, vec![old, ack(5)]), [5]);
    }

    /// The same with a variant of the filter, and the events.
    fn left_with(variant: Variant, packets: Vec<Packet>) -> (Vec<u64>, Events) {
        let (mut queue, mut events) = (AckFiltering::new(10, variant), Events::default());
        for packet in packets {
            queue.enqueue(Time::ZERO, packet, &mut events);
        }
        (drain(&mut queue, &mut events), events)
    }

    #[test]
    fn only_acks_in_excess_of_those_allowed_are_removed() {
        let allowing = |allowed| Variant { share: Share::Beyond(allowed), ..Variant::default() };
        let arrivals = || vec![ack(1), data(7, 960), ack(2), ack(3), ack(4)];
        assert_eq!(left_with(allowing(1), arrivals()).0, [7, 4]);
        assert_eq!(left_with(allowing(2), arrivals()).0, [7, 3, 4]);
        assert_eq!(left_with(allowing(4), arrivals()).0, [1, 7, 2, 3, 4]);
        let other = Segment { id: 8, flow: 1, ack: 5, ..Segment::default() }.packet();
        assert_eq!(left_with(allowing(1), vec![ack(1), other, ack(2)]).0, [8, 2], "each connection has its own");
    }

    #[test]
    fn half_of_the_redundant_acks_are_removed_oldest_first() {
        let half = Variant { share: Share::Fraction(0.5), ..Variant::default() };
        // Half of one redundant ack is none, so 1 stays when 2 comes; 3 removes one of two, and so does 4.
        assert_eq!(left_with(half, vec![ack(1), ack(2), ack(3), ack(4)]).0, [3, 4]);
        let none = Variant { share: Share::Fraction(0.0), ..Variant::default() };
        assert_eq!(left_with(none, vec![ack(1), ack(2), ack(3)]).0, [1, 2, 3]);
        // Those of 3 that came late are redundant together: the older half goes.
        let half = Variant { share: Share::Fraction(0.5), ..Variant::default() };
        assert_eq!(left_with(half, vec![ack(4), ack(3), ack(2), ack(1), ack(5)]).0, [2, 1, 5]);
    }

    #[test]
    fn a_fuller_queue_removes_more() {
        let fullness = || Variant { share: Share::Fullness, ..Variant::default() };
        // Four of ten places taken: 0.4·4 = 1.6, so one goes; with four data packets before them 0.8·4 = 3.2, so three.
        assert_eq!(left_with(fullness(), vec![ack(4), ack(3), ack(2), ack(1), ack(5)]).0, [3, 2, 1, 5]);
        let mut packets: Vec<_> = (101..=104).map(|id| data(id, 960)).collect();
        packets.extend([ack(4), ack(3), ack(2), ack(1), ack(5)]);
        assert_eq!(left_with(fullness(), packets).0, [101, 102, 103, 104, 1, 5]);
    }

    #[test]
    fn random_removal_removes_as_many_but_not_always_the_oldest() {
        let mut survivors = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let variant =
                Variant { share: Share::Fraction(0.5), random: Some(rng::stream(seed, "test")), ..Variant::default() };
            let (left, _) = left_with(variant, vec![ack(4), ack(3), ack(2), ack(1), ack(5)]);
            assert_eq!((left.len(), left[2]), (3, 5));
            survivors.insert(left);
        }
        assert_eq!(survivors.len(), 6, "every pair of four should survive in some run");
    }

    #[test]
    fn replace_head_puts_the_new_ack_in_the_first_removed_place() {
        let variant = Variant { replace_head: true, ..Variant::default() };
        let packets = vec![data(101, 960), ack(1), data(102, 960), ack(2)];
        assert_eq!(left_with(variant, packets).0, [101, 2, 102]);
    }

    #[test]
    fn later_duplicate_acks_are_marked_after_enough_were_filtered() {
        let dup = |id| Segment { id, ack: 5, ..Segment::default() }.packet();
        let variant = Variant { mark_dupacks_after: Some(3), ..Variant::default() };
        let (left, events) = left_with(variant, vec![dup(1), dup(2), dup(3), dup(4), dup(5), ack(6)]);
        assert_eq!(left, [6]);
        let marked: Vec<_> = events
            .list
            .iter()
            .filter(|event| event.kind == EventKind::MarkedDupack)
            .map(|event| event.packet_id)
            .collect();
        // 2, 3 and 4 each removed one: from the third on the ack is marked. 6 acknowledges more and is not.
        assert_eq!(marked, [4, 5]);

        let variant = Variant { mark_dupacks_after: Some(1), ..Variant::default() };
        let (mut queue, mut events) = (AckFiltering::new(10, variant), Events::default());
        for id in 1..=2 {
            queue.enqueue(Time::ZERO, dup(id), &mut events);
        }
        let packet = queue.dequeue(Time::ZERO, &mut events).expect("one waits");
        assert_eq!(packet.tcp().map(|tcp| tcp.marks), Some(mark::FAST_RETRANSMIT));
        assert!(packet.checksum_ok());
    }

    #[test]
    fn filtering_makes_room_in_a_full_queue() {
        assert_eq!(left(2, vec![ack(1), data(7, 960), ack(2)]), [7, 2]);
        assert_eq!(left(2, vec![data(7, 960), data(8, 960), ack(2)]), [7, 8]);
    }
}
