//! CoDel, controlled delay (RFC 8289 section 5; names are those of its pseudocode).
//!
//! When packets have waited longer than TARGET for at least INTERVAL, CoDel drops at the head, and again after
//! INTERVAL/sqrt(count), until the wait falls below TARGET. With `ecn` it marks ECN-capable packets instead. A full
//! buffer drops the arriving packet.
//!
//! On a slow line TARGET must exceed the transmission time of a packet (RFC 8289 section 4.2): 278 ms for 1000 bytes at
//! 28.8 kbit/s.

use std::collections::VecDeque;
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Queueing};
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Policy};
use backchannel_core::Error;

use crate::fifo::Fifo;
use crate::limit::Limit;
use crate::Context;

options! {
    /// What the campaign sets; fixed for the run.
    #[derive(Copy)]
    pub struct Parameters {
        limit_packets: usize = 1000, [Packets 1] "capacity in packets";
        buffer_bytes: Option<u64> = ABSENT, [Bytes 1]
            "capacity in bytes of the network layer, in addition to limit_packets; absent: unlimited";
        target_s: Duration = 0.005, [Time 1e-6 to 100]
            "TARGET, the acceptable waiting time; must exceed a packet's transmission time (RFC 8289, 4.2)";
        interval_s: Duration = 0.1, [Time 1e-6 to 1000] "INTERVAL, about the longest usual round-trip time";
        max_packet_bytes: u64 = 1500, [Bytes 1]
            "MAXPACKET, the largest packet; with no more bytes than this waiting, nothing is dropped";
        ecn: bool = false, [Flag] "mark ECN-capable packets instead of dropping them";
    }
}

pub(crate) static ENTRY: Entry = Entry::policy(
    "codel",
    "controlled delay: drops or marks at the head while the waiting time stays above a target",
    Queueing::FIFO,
)
.source("RFC 8289")
.options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, _: &Context) -> Result<Box<dyn Policy>, Error> {
    Ok(Box::new(CoDel::new(Parameters::read(checked))))
}

/// A queue with controlled delay.
#[derive(Debug)]
pub struct CoDel {
    parameters: Parameters,
    limit: Limit,
    variables: Variables,
    queue: Fifo,
    /// When each packet of the queue arrived.
    arrivals: VecDeque<Time>,
}

/// What changes at run time, beside the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Variables {
    /// When the wait will have been above TARGET for INTERVAL; `None` while it is below.
    first_above_time: Option<Time>,
    drop_next: Time,
    /// Drops in this dropping state, and in the one before.
    count: u32,
    lastcount: u32,
    dropping: bool,
}

impl CoDel {
    /// An empty queue.
    pub fn new(parameters: Parameters) -> CoDel {
        let limit = Limit { limit_packets: parameters.limit_packets, buffer_bytes: parameters.buffer_bytes };
        let (variables, queue, arrivals) = (Variables::default(), Fifo::default(), VecDeque::new());
        CoDel { parameters, limit, variables, queue, arrivals }
    }

    /// RFC 8289, 5.5, control_law.
    fn control_law(&self, t: Time) -> Time {
        t + self.parameters.interval_s.div_f64(f64::from(self.variables.count.max(1)).sqrt())
    }

    /// RFC 8289, 5.6, dodequeue: the head, and ok_to_drop.
    fn dodequeue(&mut self, now: Time) -> Option<(Packet, bool)> {
        let Some(packet) = self.queue.pop() else {
            self.variables.first_above_time = None;
            return None;
        };
        let arrival = self.arrivals.pop_front().expect("each packet has an arrival time");
        if now.since(arrival) < self.parameters.target_s || self.queue.bytes() <= self.parameters.max_packet_bytes {
            self.variables.first_above_time = None;
            return Some((packet, false));
        }
        match self.variables.first_above_time {
            None => {
                self.variables.first_above_time = Some(now + self.parameters.interval_s);
                Some((packet, false))
            }
            Some(above) => Some((packet, now >= above)),
        }
    }

    /// Marks the packet and returns it, or drops it.
    fn mark_or_drop(&self, now: Time, mut packet: Packet, events: &mut Events) -> Option<Packet> {
        if self.parameters.ecn && packet.set_congestion_experienced() {
            events.record(now, EventKind::Marked, &packet);
            return Some(packet);
        }
        events.record(now, EventKind::DroppedEarly, &packet);
        None
    }
}

impl Policy for CoDel {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        if self.limit.admits(self.queue.len(), self.queue.bytes(), &packet) {
            self.queue.push(packet);
            self.arrivals.push_back(now);
        } else {
            events.record(now, EventKind::DroppedFull, &packet);
        }
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        // RFC 8289, 5.5, dequeue.
        let Some((mut packet, mut ok_to_drop)) = self.dodequeue(now) else {
            self.variables.dropping = false;
            return None;
        };
        if self.variables.dropping {
            self.variables.dropping = ok_to_drop;
            while self.variables.dropping && now >= self.variables.drop_next {
                self.variables.count += 1;
                if let Some(marked) = self.mark_or_drop(now, packet, events) {
                    self.variables.drop_next = self.control_law(self.variables.drop_next);
                    return Some(marked);
                }
                let Some(next) = self.dodequeue(now) else {
                    self.variables.dropping = false;
                    return None;
                };
                (packet, ok_to_drop) = next;
                if ok_to_drop {
                    self.variables.drop_next = self.control_law(self.variables.drop_next);
                } else {
                    self.variables.dropping = false;
                }
            }
            return Some(packet);
        }
        if !ok_to_drop {
            return Some(packet);
        }
        self.variables.dropping = true;
        // Resume the drop rate of the last dropping state if that ended recently.
        let delta = self.variables.count - self.variables.lastcount;
        let recent = now.since(self.variables.drop_next) < 16 * self.parameters.interval_s;
        self.variables.count = if delta > 1 && recent { delta } else { 1 };
        self.variables.drop_next = self.control_law(now);
        self.variables.lastcount = self.variables.count;
        match self.mark_or_drop(now, packet, events) {
            Some(marked) => Some(marked),
            None => self.dodequeue(now).map(|(packet, _)| packet),
        }
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn peek(&self, place: usize) -> Option<&Packet> {
        self.queue.peek(place)
    }

    fn take(&mut self, place: usize, instead: Option<Packet>) -> Option<Packet> {
        // What takes a place has waited as long as its predecessor.
        if instead.is_none() {
            self.arrivals.remove(place);
        }
        self.queue.take(place, instead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, drain, kinds};
    use backchannel_core::packet::build::{data, Segment};

    const RFC: Parameters = Parameters {
        limit_packets: 1000,
        buffer_bytes: None,
        target_s: Duration::from_millis(5),
        interval_s: Duration::from_millis(100),
        max_packet_bytes: 1500,
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

    /// Fills the queue at each of these instants (ms), serves it every millisecond for as long and then empties it at
    /// once. Returns when packets were dropped.
    fn drops_of_overloads(overloads: &[(u64, u64)]) -> Vec<u64> {
        let (mut queue, mut events) = (CoDel::new(RFC), Events::default());
        let ms = |ms: u64| Time(ms * 1_000_000);
        for &(start, length) in overloads {
            for id in 0..1000 {
                queue.enqueue(ms(start), data(id, 1460), &mut events);
            }
            for now in start..start + length {
                queue.dequeue(ms(now), &mut events);
            }
            // The next drop is later than this, so nothing is dropped.
            while queue.dequeue(ms(start + length - 1), &mut events).is_some() {}
        }
        events.list.iter().map(|event| event.at.nanos() / 1_000_000).collect()
    }

    /// RFC 8289, 5.5: the second dropping state starts with the drops of the first one, less the one it began with.
    #[test]
    fn a_dropping_state_soon_after_another_resumes_its_rate() {
        // Five drops: count 5, lastcount 1. The next state starts at 4: 100/sqrt(4), 100/sqrt(5), 100/sqrt(6) ms.
        let first = [105, 205, 276, 334, 384];
        assert_eq!(drops_of_overloads(&[(0, 390), (400, 245)])[5..], [505, 555, 600, 641]);
        assert_eq!(drops_of_overloads(&[(0, 390), (400, 245)])[..5], first);
        // Three drops of that state: count 6, lastcount 4. The third state starts at 2: 100/sqrt(2), 100/sqrt(3) ms.
        assert_eq!(drops_of_overloads(&[(0, 390), (400, 205), (700, 235)])[8..], [805, 876, 934]);
        // One drop: count 1, lastcount 1, so the next state starts at 1.
        assert_eq!(drops_of_overloads(&[(0, 190), (200, 210)]), [105, 305, 405]);
    }

    /// The first state would have dropped next at 384 + 100/sqrt(5) = 428.7 ms. 16 INTERVALs later its rate is
    /// forgotten.
    #[test]
    fn a_dropping_state_16_intervals_later_starts_anew() {
        assert_eq!(drops_of_overloads(&[(0, 390), (1923, 160)])[5..], [2028, 2078]);
        assert_eq!(drops_of_overloads(&[(0, 390), (1924, 210)])[5..], [2029, 2129]);
    }

    /// RFC 8289, 5.5: `now - drop_next_ < 16.0 * interval_`.
    #[test]
    fn exactly_16_intervals_after_the_next_drop_the_rate_is_forgotten() {
        for (early_ns, count) in [(1, 4), (0, 1)] {
            let (mut queue, mut events) = (CoDel::new(RFC), Events::default());
            for id in 0..3 {
                queue.enqueue(Time::ZERO, data(id, 1460), &mut events);
            }
            let next = Time(1_000_000_000);
            queue.variables =
                Variables { first_above_time: Some(next), drop_next: next, count: 5, lastcount: 1, dropping: false };
            queue.dequeue(Time(2_600_000_000 - early_ns), &mut events);
            assert_eq!((queue.variables.dropping, queue.variables.count), (true, count));
        }
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
        assert_eq!(queue.dequeue(at(9.0), &mut events).map(|packet| packet.id), Some(3));
        assert_eq!(queue.dequeue(at(9.0), &mut events).map(|packet| packet.id), None);
    }

    #[test]
    fn with_ecn_it_marks_what_can_be_marked() {
        let (mut queue, mut events) = (CoDel::new(Parameters { ecn: true, ..RFC }), Events::default());
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
