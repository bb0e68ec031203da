//! Two classes, acks and data, that share a line by weight. CBQ 50:50, ACQ (acq 2) and AQ (aq 3) use them.
//!
//! Without bounds the scheduler is self-clocked weighted fair queueing (Golestani 1994). It is work-conserving: the
//! weights matter only while both classes wait.
//!
//! 1. F = max(F of the class's last packet, v) + length/weight, for the packet at a class's head.
//! 2. The head with the smaller F is sent next.
//! 3. v is the F of the packet that was sent last.
//!
//! A class of weight 0 is served only while the other is empty. A head keeps its tag when an ack filter replaces it;
//! otherwise a class whose acks are replaced again and again would never be served.
//!
//! [`Bounded`] classes never use more than their share.

use backchannel_core::event::Events;
use backchannel_core::options;
use backchannel_core::options::ABSENT;
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Queueing, When};
use backchannel_core::scenario::Named;
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;
use backchannel_core::Error;

use crate::ack_filter::Variant;
use crate::droptail::child_or_fifo;
use crate::limit::Limit;
use crate::{AckFiltering, Context, DropTail};

/// Policies whose classes can be bounded, with a queue each.
pub(crate) const BOUNDED_CLASSES: Queueing =
    Queueing { queues: 2, holds_back: When::With("bounded"), ..Queueing::CLASSES };

options! {
    /// Options of policies with a buffer for each class.
    #[derive(Copy)]
    pub(crate) struct ClassOptions {
        limit_packets: usize = 40, [Packets 1] "capacity of each class's queue in packets (acq 3)";
        buffer_bytes: Option<u64> = ABSENT, [Bytes 1]
            "capacity in bytes of the network layer, in addition to limit_packets; absent: unlimited";
        filter: bool = false, [Flag] "apply ack filtering to the queue of acks (AF in acq 3.3)";
        allowed_acks: Option<u64> = ABSENT, [Count 1]
            "with filter: acks of a connection that may wait, as of ack-filtering; absent: one";
    }
}

options! {
    /// Options of policies whose classes have queues of any policy.
    pub(crate) struct ClassChildren {
        acks: Option<Named> = ABSENT, [Policy]
            "policy that holds the acks, instead of limit_packets and buffer_bytes; absent: first in, first out";
        data: Option<Named> = ABSENT, [Policy]
            "policy that holds the data, instead of limit_packets and buffer_bytes; absent: first in, first out";
    }
}

impl ClassChildren {
    /// First-in, first-out queues.
    #[cfg(test)]
    pub(crate) const NONE: ClassChildren = ClassChildren { acks: None, data: None };
}

impl ClassOptions {
    /// Empty queues of a policy of this name that share the line by this weight of acks.
    ///
    /// # Errors
    /// Acks may wait, but are not filtered, or a child is invalid.
    pub(crate) fn queues(
        &self,
        policy: &str,
        children: &ClassChildren,
        ack_share: f64,
        context: &Context,
    ) -> Result<Classes, Error> {
        let limit = Limit { limit_packets: self.limit_packets, buffer_bytes: self.buffer_bytes };
        let mut acks = child_or_fifo(context, "acks", &children.acks, limit)?;
        let data = child_or_fifo(context, "data", &children.data, limit)?;
        if self.filter {
            let variant = Variant::beyond(self.allowed_acks.unwrap_or(1));
            acks = Box::new(AckFiltering::over(acks, Limit::NONE, variant));
        } else if self.allowed_acks.is_some() {
            return Err(format!("policy {policy}: allowed_acks needs filter: true").into());
        }
        Ok(Classes::over([acks, data], ack_share))
    }
}

/// A class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Acks,
    Data,
}

/// Two queues and their scheduler.
pub(crate) struct Classes {
    queues: [Box<dyn Policy>; 2],
    weights: [f64; 2],
    /// max(F of the last packet, v) of the packet at the head; `None` if the class is empty.
    starts: [Option<f64>; 2],
    /// F of the class's last packet.
    finished: [f64; 2],
    /// v.
    clock: f64,
    /// Replaces fair queueing if classes do not borrow.
    bounded: Option<Bounded>,
}

/// Classes that may not borrow: "bounded" in class-based queueing (Floyd and Jacobson 1995, section 2), without its
/// averaging.
///
/// The start times of a class are those on a line of its own, at its share of the rate:
///
/// 1. A head is eligible from E on: when its predecessor would have ended at the class's rate, or when it arrived at an
///    empty class, whichever is later.
/// 2. Of the eligible heads, the one with the smaller E + length/rate is sent next.
/// 3. E + length/rate is the E of the next packet, however late the line was free. Waiting for the other class's packet
///    does not reduce a class's share.
///
/// So a class that is never empty from t on sends at most rate * (now - t) and one packet.
#[derive(Debug)]
struct Bounded {
    line_bps: f64,
    /// E of the head, or of the next packet.
    from: [Time; 2],
}

impl Bounded {
    /// The E of the packet behind a head of `length` bytes, at `share` of the line.
    fn ends(&self, i: usize, length: f64, share: f64) -> Time {
        later(self.from[i], length * 8.0 / (share * self.line_bps))
    }

    /// The class's rate changed by `factor` at `now`, and the time left until E changes inversely.
    fn stretch(&mut self, i: usize, now: Time, factor: f64) {
        if self.from[i] > now && factor > 0.0 {
            self.from[i] = later(now, (self.from[i] - now).as_secs_f64() / factor);
        }
    }
}

/// `seconds` after a time, rounded up to a nanosecond so that no class gains. Saturates for tiny shares.
fn later(from: Time, seconds: f64) -> Time {
    Time(from.nanos().saturating_add((seconds * 1e9).ceil() as u64))
}

impl Classes {
    /// First-in, first-out queues with a limit each.
    pub(crate) fn new(acks: usize, data: usize, ack_share: f64) -> Classes {
        Classes::over([Box::new(DropTail::new(acks)), Box::new(DropTail::new(data))], ack_share)
    }

    /// Empty queues. Acks have the weight `ack_share`, data the rest of 1.
    fn over(queues: [Box<dyn Policy>; 2], ack_share: f64) -> Classes {
        Classes {
            queues,
            weights: [ack_share, 1.0 - ack_share],
            starts: [None; 2],
            finished: [0.0; 2],
            clock: 0.0,
            bounded: None,
        }
    }

    /// The same with bounded classes, on a line of this rate.
    pub(crate) fn bounded(self, line_bps: f64) -> Classes {
        Classes { bounded: Some(Bounded { line_bps, from: [Time::ZERO; 2] }), ..self }
    }

    pub(crate) fn share_of_acks(&self) -> f64 {
        self.weights[0]
    }

    pub(crate) fn set_share_of_acks(&mut self, now: Time, share: f64) {
        let weights = [share, 1.0 - share];
        if let Some(bounded) = &mut self.bounded {
            for i in [0, 1] {
                bounded.stretch(i, now, weights[i] / self.weights[i]);
            }
        }
        self.weights = weights;
    }

    /// Changes the line's rate at `now`.
    pub(crate) fn set_line(&mut self, now: Time, bps: f64) {
        if let Some(bounded) = &mut self.bounded {
            for i in [0, 1] {
                bounded.stretch(i, now, bps / bounded.line_bps);
            }
            bounded.line_bps = bps;
        }
    }

    pub(crate) fn push(&mut self, class: Class, now: Time, packet: Packet, events: &mut Events) {
        let i = class as usize;
        self.queues[i].enqueue(now, packet, events);
        if self.starts[i].is_none() && self.queues[i].len_packets() > 0 {
            self.starts[i] = Some(self.finished[i].max(self.clock));
            if let Some(bounded) = &mut self.bounded {
                bounded.from[i] = bounded.from[i].max(now);
            }
        }
    }

    pub(crate) fn pop(&mut self, now: Time, events: &mut Events) -> Option<(Class, Packet)> {
        // A queue that drops all its packets leaves the line to the other one.
        while let Some(class) = self.next(now) {
            let i = class as usize;
            let packet = self.queues[i].dequeue(now, events);
            if let Some(packet) = &packet {
                self.sent(i, f64::from(packet.len()));
            }
            self.starts[i] = (self.queues[i].len_packets() > 0).then(|| self.finished[i].max(self.clock));
            if let Some(packet) = packet {
                return Some((class, packet));
            }
        }
        None
    }

    /// A packet of class `i` leaves.
    fn sent(&mut self, i: usize, length: f64) {
        let tag = self.tag(i, length);
        if let Some(bounded) = &mut self.bounded {
            bounded.from[i] = bounded.ends(i, length, self.weights[i]);
        }
        // A class of weight 0 has an infinite tag. It was served only because the other is empty.
        if tag.is_finite() {
            (self.finished[i], self.clock) = (tag, tag);
        }
    }

    /// Earliest time at which [`Classes::pop`] returns a packet, as for [`Policy::next_time`].
    pub(crate) fn next_time(&self) -> Option<Time> {
        match &self.bounded {
            Some(bounded) => self.heads().map(|(i, ready)| bounded.from[i].max(ready)).min(),
            None => self.queues.iter().filter_map(Policy::next_time).min(),
        }
    }

    crate::fifo::kept_in_each!(pub(crate) queues);

    /// The class whose head is sent next; acks win ties.
    fn next(&self, now: Time) -> Option<Class> {
        if let Some(bounded) = &self.bounded {
            let eligible = self.heads().filter(|(i, ready)| bounded.from[*i].max(*ready) <= now);
            let end = |(i, _): &(usize, Time)| bounded.ends(*i, self.head(*i), self.weights[*i]);
            return eligible.min_by_key(end).map(|(i, _)| if i == 0 { Class::Acks } else { Class::Data });
        }
        match self.queues.each_ref().map(|queue| queue.next_time().is_some_and(|ready| ready <= now)) {
            [false, false] => None,
            [true, false] => Some(Class::Acks),
            [false, true] => Some(Class::Data),
            _ if self.tag(0, self.head(0)) <= self.tag(1, self.head(1)) => Some(Class::Acks),
            _ => Some(Class::Data),
        }
    }

    /// Bounded classes that have a packet and a share, and when their queues release it. A class without a share is
    /// never served.
    fn heads(&self) -> impl Iterator<Item = (usize, Time)> + '_ {
        let head = |i: usize| Some((i, self.queues[i].next_time().filter(|_| self.weights[i] > 0.0)?));
        [0, 1].into_iter().filter_map(head)
    }

    /// Length of the head of class `i`.
    fn head(&self, i: usize) -> f64 {
        self.queues[i].peek(0).map_or(0.0, |packet| f64::from(packet.len()))
    }

    /// F of a packet of this length at the head of class `i`.
    fn tag(&self, i: usize, length: f64) -> f64 {
        self.starts[i].unwrap_or(self.clock) + length / self.weights[i]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::{ack, data};
    use proptest::prelude::*;

    /// Bytes of acks and data among the first `packets` that leave while both classes wait.
    fn served(share: f64, packets: usize) -> [u64; 2] {
        let (mut classes, mut events) = (Classes::new(100_000, 100_000, share), Events::default());
        for id in 0..40_000 {
            classes.push(Class::Acks, Time::ZERO, ack(id), &mut events);
            classes.push(Class::Data, Time::ZERO, data(u64::from(id), 1460), &mut events);
        }
        let mut bytes = [0; 2];
        for _ in 0..packets {
            let (class, packet) = classes.pop(Time::ZERO, &mut events).expect("both wait");
            bytes[class as usize] += u64::from(packet.len());
        }
        assert!(classes.queues.iter().all(|queue| queue.len_packets() > 0));
        bytes
    }

    #[test]
    fn bytes_are_shared_by_weight_while_both_wait() {
        for share in [0.1, 0.266, 0.5, 0.9] {
            let [acks, data] = served(share, 20_000);
            let got = acks as f64 / (acks + data) as f64;
            assert!((got - share).abs() < 0.005, "{share}: {got}");
        }
    }

    #[test]
    fn a_class_of_weight_zero_is_served_when_the_other_is_empty() {
        let (mut classes, mut events) = (Classes::new(9, 9, 0.0), Events::default());
        for packet in [ack(11), ack(12)] {
            classes.push(Class::Acks, Time::ZERO, packet, &mut events);
        }
        classes.push(Class::Data, Time::ZERO, data(1, 960), &mut events);
        let order: Vec<_> =
            std::iter::from_fn(|| classes.pop(Time::ZERO, &mut events)).map(|(_, packet)| packet.id).collect();
        assert_eq!(order, [1, 11, 12]);
    }

    #[test]
    fn bounded_classes_have_their_shares_and_the_line_is_full_while_both_wait() {
        for share in [0.1, 0.5, 0.8] {
            let mut classes = Classes::new(100_000, 100_000, share).bounded(1e6);
            let mut events = Events::default();
            for id in 0..20_000 {
                classes.push(Class::Acks, Time::ZERO, ack(id), &mut events);
                classes.push(Class::Data, Time::ZERO, data(u64::from(id), 1460), &mut events);
            }
            let (mut now, mut bytes) = (Time::ZERO, [0.0; 2]);
            while now < Time::from_seconds(3.0) {
                now = now.max(classes.next_time().expect("both wait"));
                let (class, packet) = classes.pop(now, &mut events).expect("its time has come");
                bytes[class as usize] += f64::from(packet.len());
                now = later(now, f64::from(packet.len()) * 8.0 / 1e6);
            }
            let rate = bytes.map(|bytes| bytes * 8.0 / now.seconds() / 1e6);
            assert!((rate[0] - share).abs() < 0.01 && (rate[1] - 1.0 + share).abs() < 0.01, "{share}: {rate:?}");
        }
    }

    #[test]
    fn a_bounded_class_alone_gets_its_share_only_and_a_new_share_applies_at_once() {
        let mut classes = Classes::new(99, 99, 0.5).bounded(1e6);
        let mut events = Events::default();
        for id in 0..9 {
            classes.push(Class::Data, Time::ZERO, data(id, 960), &mut events);
        }
        // 1000 bytes at 0.5 Mbit/s are 16 ms.
        assert!(classes.pop(Time::ZERO, &mut events).is_some());
        assert_eq!(classes.next_time(), Some(Time(16_000_000)));
        assert!(classes.pop(Time(15_999_999), &mut events).is_none());
        // When acks get three quarters of the line, the 8 ms left take twice as long.
        classes.set_share_of_acks(Time(8_000_000), 0.75);
        assert_eq!(classes.next_time(), Some(Time(24_000_000)));
        // When the line is four times as fast, they take a quarter.
        classes.set_line(Time(8_000_000), 4e6);
        assert_eq!(classes.next_time(), Some(Time(12_000_000)));
        assert!(classes.pop(Time(12_000_000), &mut events).is_some());
        // Without a share nothing is sent, and there is no next time.
        classes.set_share_of_acks(Time(13_000_000), 1.0);
        assert_eq!((classes.next_time(), classes.pop(Time::MAX, &mut events).is_none()), (None, true));
        classes.set_share_of_acks(Time(14_000_000), 0.5);
        assert!(classes.next_time().is_some());
    }

    proptest! {
        /// For any arrivals: while a bounded class is not empty it sends at most its share of the line and one packet,
        /// and all packets are sent in the end.
        #[test]
        fn a_bounded_class_is_never_above_its_share(
            arrivals in proptest::collection::vec((0u64..400, any::<bool>(), 1u32..1460), 1..150),
            share in 0.05f64..0.95,
        ) {
            let line_bps = 1e6;
            let mut classes = Classes::new(1000, 1000, share).bounded(line_bps);
            let (mut events, mut now) = (Events::default(), Time::ZERO);
            let mut arrivals: Vec<_> = arrivals.into_iter().map(|(ms, is_ack, size)| (Time(ms * 1_000_000), is_ack, size)).collect();
            arrivals.sort_unstable();
            let (mut arrivals, mut sent) = (arrivals.into_iter().peekable(), 0);
            // Of each class: since when it has not been empty, and bytes sent since then.
            let (mut since, mut bytes, mut total) = ([None; 2], [0.0; 2], 0);
            loop {
                while let Some((at, is_ack, size)) = arrivals.next_if(|(at, _, _)| *at <= now) {
                    let (class, packet) =
                        if is_ack { (Class::Acks, ack(1)) } else { (Class::Data, data(1, size)) };
                    if since[class as usize].is_none() {
                        (since[class as usize], bytes[class as usize]) = (Some(at), 0.0);
                    }
                    classes.push(class, at, packet, &mut events);
                    total += 1;
                }
                if let Some((class, packet)) = classes.pop(now, &mut events) {
                    let i = class as usize;
                    sent += 1;
                    let length = f64::from(packet.len());
                    bytes[i] += length;
                    let rate = line_bps * [share, 1.0 - share][i] / 8.0;
                    let begun: Time = since[i].expect("it was not empty");
                    let most = rate * (now - begun).as_secs_f64() + length;
                    prop_assert!(bytes[i] <= most + 0.01, "{} bytes in {} s", bytes[i], (now - begun).as_secs_f64());
                    if classes.queues[i].len_packets() == 0 {
                        since[i] = None;
                    }
                    now = later(now, length * 8.0 / line_bps);
                    continue;
                }
                let next = [classes.next_time(), arrivals.peek().map(|(at, _, _)| *at)];
                match next.into_iter().flatten().min() {
                    Some(at) => now = now.max(at),
                    None => break,
                }
            }
            prop_assert_eq!((sent, classes.backlog().packets), (total, 0));
        }
    }

    #[test]
    fn an_idle_class_gets_no_credit() {
        let (mut classes, mut events) = (Classes::new(99, 99, 0.5), Events::default());
        for id in 0..20 {
            classes.push(Class::Data, Time::ZERO, data(id, 960), &mut events);
        }
        for _ in 0..10 {
            classes.pop(Time::ZERO, &mut events);
        }
        for number in 101..=160 {
            classes.push(Class::Acks, Time::ZERO, ack(number), &mut events);
        }
        // Ten kilobytes of data went before; had they been saved up, all sixty acks would go now.
        let next: Vec<_> = (0..26).map(|_| classes.pop(Time::ZERO, &mut events).expect("both wait").0).collect();
        assert_eq!(next.iter().filter(|class| **class == Class::Acks).count(), 25);
    }

    #[test]
    fn a_replaced_ack_keeps_the_tag_of_its_class() {
        let options = ClassOptions { limit_packets: 9, buffer_bytes: None, filter: true, allowed_acks: None };
        let classes = options.queues("test", &ClassChildren::NONE, 0.1, &crate::testing::context());
        let (mut classes, mut events) = (classes.expect("allowed"), Events::default());
        for id in 0..5 {
            classes.push(Class::Data, Time::ZERO, data(id, 960), &mut events);
        }
        // Each ack replaces the last before its class has its turn: 40/0.1 = 400 lies before 1000/0.9 = 1111.
        classes.push(Class::Acks, Time::ZERO, ack(100), &mut events);
        classes.push(Class::Acks, Time::ZERO, ack(200), &mut events);
        assert_eq!(classes.pop(Time::ZERO, &mut events).map(|(_, packet)| packet.id), Some(200));
        // The next turn of the acks is at 800, still before the data, and so on: 12 is at 1200, after one of data.
        for (number, expected) in [(300, 300), (400, 0), (500, 500)] {
            classes.push(Class::Acks, Time::ZERO, ack(number), &mut events);
            assert_eq!(classes.pop(Time::ZERO, &mut events).map(|(_, packet)| packet.id), Some(expected), "{number}");
        }
    }
}
