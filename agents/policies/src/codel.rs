//! CoDel (RFC 8289, 5): drops at the head when packets have waited longer than TARGET for at least INTERVAL, then ever
//! more often, INTERVAL/sqrt(count) apart, until the wait falls below TARGET. With `ecn` it marks instead of dropping
//! what can be marked. Names are those of the RFC's pseudocode. A full buffer drops what arrives.
//!
//! On a slow line TARGET must exceed the transmission time of a packet (RFC 8289, 4.2): 278 ms for 1000 bytes at
//! 28.8 kbit/s.

use std::collections::VecDeque;
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Given, Param, Preset, Unit};
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;

use crate::fifo::Fifo;
use crate::limit::{Limit, BUFFER};
use crate::Context;

pub(crate) static ENTRY: Entry = Entry {
    kind: "policy",
    name: "codel",
    summary: "controlled delay: drops (or marks) at the head when packets have waited too long for too long",
    source: "RFC 8289",
    params: &[
        Param::new("limit_packets", Unit::Packets, Preset::Number(1000.0), "packets that may wait").at_least(1.0),
        BUFFER,
        Param::new(
            "target_s",
            Unit::Time,
            Preset::Number(0.005),
            "TARGET: the wait that is accepted; above a packet's transmission time (RFC 8289, 4.2)",
        )
        .range(1e-6, 100.0),
        Param::new("interval_s", Unit::Time, Preset::Number(0.1), "INTERVAL: about the longest common round trip")
            .range(1e-6, 1000.0),
        Param::new("max_packet_bytes", Unit::Bytes, Preset::Number(1500.0), "MAXPACKET: with no more waiting, no drop")
            .at_least(1.0),
        Param::new("ecn", Unit::Flag, Preset::Flag(false), "mark what is ECN-capable instead of dropping it"),
    ],
};

pub(crate) fn build(given: &Given<'_>, _: &Context) -> Result<Box<dyn Policy>, String> {
    let seconds = |name| Duration::from_secs_f64(given.number(name).expect("it has a default"));
    let settings = Settings {
        limit: Limit::of(given),
        target: seconds("target_s"),
        interval: seconds("interval_s"),
        max_packet: given.count("max_packet_bytes").expect("it has a default"),
        ecn: given.flag("ecn"),
    };
    Ok(Box::new(CoDel::new(settings)))
}

/// What CoDel is told.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What may wait.
    pub limit: Limit,
    /// TARGET.
    pub target: Duration,
    /// INTERVAL.
    pub interval: Duration,
    /// MAXPACKET, bytes.
    pub max_packet: u64,
    /// Mark instead of dropping.
    pub ecn: bool,
}

/// See the module.
#[derive(Debug)]
pub struct CoDel {
    settings: Settings,
    queue: Fifo,
    /// When each packet of the queue came.
    came: VecDeque<Time>,
    /// When the wait will have been above TARGET for INTERVAL; `None`: it is below.
    first_above_time: Option<Time>,
    drop_next: Time,
    count: u32,
    lastcount: u32,
    dropping: bool,
}

impl CoDel {
    /// An empty queue.
    pub fn new(settings: Settings) -> CoDel {
        CoDel {
            settings,
            queue: Fifo::default(),
            came: VecDeque::new(),
            first_above_time: None,
            drop_next: Time::ZERO,
            count: 0,
            lastcount: 0,
            dropping: false,
        }
    }

    /// RFC 8289, 5.5, control_law.
    fn control_law(&self, t: Time) -> Time {
        t + self.settings.interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }

    /// RFC 8289, 5.6, dodequeue: the head, and whether it may be dropped.
    fn dodequeue(&mut self, now: Time) -> Option<(Packet, bool)> {
        let Some(packet) = self.queue.pop() else {
            self.first_above_time = None;
            return None;
        };
        let came = self.came.pop_front().expect("each packet has its time");
        if now.since(came) < self.settings.target || self.queue.bytes() <= self.settings.max_packet {
            self.first_above_time = None;
            return Some((packet, false));
        }
        match self.first_above_time {
            None => {
                self.first_above_time = Some(now + self.settings.interval);
                Some((packet, false))
            }
            Some(above) => Some((packet, now >= above)),
        }
    }

    /// Marks the packet, or drops it: then gives nothing back.
    fn mark_or_drop(&self, now: Time, mut packet: Packet, events: &mut Events) -> Option<Packet> {
        if self.settings.ecn && packet.set_congestion_experienced() {
            events.note(now, EventKind::Marked, &packet);
            return Some(packet);
        }
        events.note(now, EventKind::DroppedEarly, &packet);
        None
    }
}

impl Policy for CoDel {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        if self.settings.limit.admits(self.queue.len(), self.queue.bytes(), &packet) {
            self.queue.push(packet);
            self.came.push_back(now);
        } else {
            events.note(now, EventKind::DroppedFull, &packet);
        }
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        // RFC 8289, 5.5, dequeue.
        let Some((mut packet, mut ok_to_drop)) = self.dodequeue(now) else {
            self.dropping = false;
            return None;
        };
        if self.dropping {
            self.dropping = ok_to_drop;
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                if let Some(marked) = self.mark_or_drop(now, packet, events) {
                    self.drop_next = self.control_law(self.drop_next);
                    return Some(marked);
                }
                let Some(next) = self.dodequeue(now) else {
                    self.dropping = false;
                    return None;
                };
                (packet, ok_to_drop) = next;
                if ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
            return Some(packet);
        }
        if !ok_to_drop {
            return Some(packet);
        }
        self.dropping = true;
        // Start where the last dropping state was, if it ended not long ago.
        let delta = self.count - self.lastcount;
        let recent = now.since(self.drop_next) < 16 * self.settings.interval;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = self.control_law(now);
        self.lastcount = self.count;
        match self.mark_or_drop(now, packet, events) {
            Some(marked) => Some(marked),
            None => self.dodequeue(now).map(|(packet, _)| packet),
        }
    }

    fn peek(&self) -> Option<&Packet> {
        // With no more than MAXPACKET behind it the head is not dropped; else that depends on when it is asked for.
        let head = self.queue.front()?;
        (self.queue.bytes() - u64::from(head.len()) <= self.settings.max_packet).then_some(head)
    }

    fn len_packets(&self) -> usize {
        self.queue.len()
    }

    fn len_bytes(&self) -> u64 {
        self.queue.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, drain, kinds};
    use backchannel_core::packet::build::{data, Segment};

    const RFC: Settings = Settings {
        limit: Limit { packets: 1000, bytes: None },
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
        max_packet: 1500,
        ecn: false,
    };

    /// When packets are dropped if a standing queue of `packets` is served every millisecond.
    fn drops(packets: u64, until_ms: u64) -> Vec<u64> {
        let (mut queue, mut events) = (CoDel::new(RFC), Events::default());
        for id in 0..packets {
            queue.enqueue(Time::ZERO, data(id, 1460), &mut events);
        }
        for ms in 0..until_ms {
            queue.dequeue(at(0.001 * ms as f64), &mut events);
        }
        events.list.iter().map(|event| event.at.nanos() / 1_000_000).collect()
    }

    #[test]
    fn the_first_drop_comes_an_interval_after_the_wait_exceeds_target_and_the_next_by_the_control_law() {
        // Above target at 5 ms; at 105 ms the first drop; then after 100/sqrt(1), 100/sqrt(2), 100/sqrt(3) ms.
        assert_eq!(drops(1000, 390), [105, 205, 276, 334, 384]);
    }

    #[test]
    fn a_short_wait_drops_nothing() {
        let (mut queue, mut events) = (CoDel::new(RFC), Events::default());
        for ms in 0..1000 {
            queue.enqueue(at(0.001 * f64::from(ms)), data(ms as u64, 1460), &mut events);
            if ms >= 4 {
                queue.dequeue(at(0.001 * f64::from(ms)), &mut events);
            }
        }
        assert!(events.list.is_empty());
    }

    #[test]
    fn the_last_packet_is_never_dropped_however_long_it_waited() {
        let (mut queue, mut events) = (CoDel::new(RFC), Events::default());
        for id in 0..3 {
            queue.enqueue(Time::ZERO, data(id, 1460), &mut events);
        }
        assert!(queue.dequeue(at(1.0), &mut events).is_some());
        queue.enqueue(at(1.0), data(3, 1460), &mut events);
        assert_eq!(queue.dequeue(at(2.0), &mut events).map(|packet| packet.id), Some(2));
        assert_eq!(kinds(&events), [(1, EventKind::DroppedEarly)]);
        assert_eq!(queue.peek().map(|packet| packet.id), Some(3));
        assert_eq!(queue.dequeue(at(9.0), &mut events).map(|packet| packet.id), Some(3));
        assert_eq!(queue.dequeue(at(9.0), &mut events).map(|packet| packet.id), None);
    }

    #[test]
    fn with_ecn_it_marks_what_can_be_marked() {
        let (mut queue, mut events) = (CoDel::new(Settings { ecn: true, ..RFC }), Events::default());
        for id in 0..5 {
            queue.enqueue(
                Time::ZERO,
                Segment { id, payload: 1460, ecn: true, ..Segment::default() }.packet(),
                &mut events,
            );
        }
        queue.dequeue(at(0.01), &mut events);
        assert_eq!(queue.dequeue(at(0.2), &mut events).map(|packet| packet.id), Some(1));
        assert_eq!(kinds(&events), [(1, EventKind::Marked)]);
        assert_eq!(drain(&mut queue, &mut events), [2, 3, 4]);
    }
}
