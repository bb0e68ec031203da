//! Two classes, acks and data, that share a line by weight: what CBQ 50:50, ACQ (acq 2) and AQ (aq 3) are made of.
//!
//! The scheduler is weighted fair queueing in its self-clocked form (Golestani 1994), packet by packet and
//! work-conserving: the weights matter only while both classes wait.
//!
//! 1. F = max(F of the class's last packet, v) + length/weight for the packet at a class's head;
//! 2. the head with the least F goes next;
//! 3. v is the F of the packet that went last.
//!
//! A class of weight 0 is served only while the other is empty. Heads keep their place when an ack filter replaces
//! them, else a class whose acks are replaced again and again would never be served.

use backchannel_core::event::{EventKind, Events};
use backchannel_core::packet::Packet;
use backchannel_core::time::Time;

use crate::ack_filter;
use crate::ack_queue::AckQueue;
use crate::limit::Limit;

/// A class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Acks,
    Data,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Classes {
    queues: [AckQueue; 2],
    limits: [Limit; 2],
    weights: [f64; 2],
    /// max(F of the last packet, v) of the packet at the head; `None`: nothing has waited since.
    starts: [Option<f64>; 2],
    /// F of the class's last packet.
    finished: [f64; 2],
    /// v.
    clock: f64,
}

impl Classes {
    /// Empty queues with a limit each; acks have the weight `ack_share`, data the rest of 1.
    pub(crate) fn new(acks: impl Into<Limit>, data: impl Into<Limit>, ack_share: f64) -> Classes {
        Classes {
            queues: [AckQueue::default(), AckQueue::default()],
            limits: [acks.into(), data.into()],
            weights: [ack_share, 1.0 - ack_share],
            starts: [None; 2],
            finished: [0.0; 2],
            clock: 0.0,
        }
    }

    pub(crate) fn share_of_acks(&self) -> f64 {
        self.weights[0]
    }

    pub(crate) fn set_share_of_acks(&mut self, share: f64) {
        self.weights = [share, 1.0 - share];
    }

    /// A packet arrives; `filtering` removes the acks that it makes redundant.
    pub(crate) fn push(&mut self, class: Class, filtering: bool, now: Time, packet: Packet, events: &mut Events) {
        let i = class as usize;
        let queue = &mut self.queues[i];
        if filtering && class == Class::Acks {
            ack_filter::filter(queue, now, &packet, events);
        }
        if self.limits[i].admits(queue.len(), queue.bytes(), &packet) {
            queue.push(packet);
            self.starts[i].get_or_insert(self.finished[i].max(self.clock));
        } else {
            events.note(now, EventKind::DroppedFull, &packet);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<(Class, Packet)> {
        let class = self.next()?;
        let i = class as usize;
        let tag = self.tag(i);
        let packet = self.queues[i].pop().expect("a next class has a head");
        // A class of weight 0 has an infinite tag: it was served only because the other is empty.
        if tag.is_finite() {
            (self.finished[i], self.clock) = (tag, tag);
        }
        self.starts[i] = (self.queues[i].len() > 0).then(|| self.finished[i].max(self.clock));
        Some((class, packet))
    }

    pub(crate) fn front(&self) -> Option<&Packet> {
        self.queues[self.next()? as usize].front()
    }

    pub(crate) fn len(&self) -> usize {
        self.queues.iter().map(AckQueue::len).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.queues.iter().map(AckQueue::bytes).sum()
    }

    /// Whose head goes next; acks where it is the same.
    fn next(&self) -> Option<Class> {
        match self.queues.each_ref().map(AckQueue::len) {
            [0, 0] => None,
            [_, 0] => Some(Class::Acks),
            [0, _] => Some(Class::Data),
            _ if self.tag(0) <= self.tag(1) => Some(Class::Acks),
            _ => Some(Class::Data),
        }
    }

    /// F of the head of class `i`.
    fn tag(&self, i: usize) -> f64 {
        let length = self.queues[i].front().map_or(0.0, |packet| f64::from(packet.len()));
        self.starts[i].unwrap_or(self.clock) + length / self.weights[i]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::{ack, data};

    /// Bytes of acks and data among the first `packets` that leave while both classes wait.
    fn served(share: f64, packets: usize) -> [u64; 2] {
        let (mut classes, mut events) = (Classes::new(100_000, 100_000, share), Events::default());
        for id in 0..40_000 {
            classes.push(Class::Acks, false, Time::ZERO, ack(id), &mut events);
            classes.push(Class::Data, false, Time::ZERO, data(u64::from(id), 1460), &mut events);
        }
        let mut bytes = [0; 2];
        for _ in 0..packets {
            let (class, packet) = classes.pop().expect("both wait");
            bytes[class as usize] += u64::from(packet.len());
        }
        assert!(classes.queues.iter().all(|queue| queue.len() > 0));
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
            classes.push(Class::Acks, false, Time::ZERO, packet, &mut events);
        }
        classes.push(Class::Data, false, Time::ZERO, data(1, 960), &mut events);
        let order: Vec<_> = std::iter::from_fn(|| classes.pop()).map(|(_, packet)| packet.id).collect();
        assert_eq!(order, [1, 11, 12]);
    }

    #[test]
    fn an_idle_class_saves_nothing_up() {
        let (mut classes, mut events) = (Classes::new(99, 99, 0.5), Events::default());
        for id in 0..20 {
            classes.push(Class::Data, false, Time::ZERO, data(id, 960), &mut events);
        }
        for _ in 0..10 {
            classes.pop();
        }
        for number in 101..=160 {
            classes.push(Class::Acks, false, Time::ZERO, ack(number), &mut events);
        }
        // Ten kilobytes of data went before; had they been saved up, all sixty acks would go now.
        let next: Vec<_> = (0..26).map(|_| classes.pop().expect("both wait").0).collect();
        assert_eq!(next.iter().filter(|class| **class == Class::Acks).count(), 25);
    }

    #[test]
    fn a_replaced_ack_keeps_its_classs_turn() {
        let (mut classes, mut events) = (Classes::new(9, 9, 0.1), Events::default());
        for id in 0..5 {
            classes.push(Class::Data, true, Time::ZERO, data(id, 960), &mut events);
        }
        // Each ack replaces the last before its class has its turn: 40/0.1 = 400 lies before 1000/0.9 = 1111.
        classes.push(Class::Acks, true, Time::ZERO, ack(100), &mut events);
        classes.push(Class::Acks, true, Time::ZERO, ack(200), &mut events);
        assert_eq!(classes.pop().map(|(_, packet)| packet.id), Some(200));
        // The next turn of the acks is at 800, still before the data, and so on: 12 is at 1200, after one of data.
        for (number, expected) in [(300, 300), (400, 0), (500, 500)] {
            classes.push(Class::Acks, true, Time::ZERO, ack(number), &mut events);
            assert_eq!(classes.pop().map(|(_, packet)| packet.id), Some(expected), "{number}");
        }
    }
}
