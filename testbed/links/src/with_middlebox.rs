//! A link with a middlebox at one of its ends. The pair is a [`Link`] again, so drivers run it like any other.

use backchannel_core::event::Events;
use backchannel_core::packet::Packet;
use backchannel_core::scenario::Change;
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Delivery, Link, Middlebox, Port, Side, Usage};
use backchannel_core::Error;

/// Side A of the middlebox is its node, side B the link.
pub(crate) struct WithMiddlebox {
    link: Box<dyn Link>,
    port: Port,
    middlebox: Box<dyn Middlebox>,
    /// Packets for the node and when they were emitted. The next poll delivers them.
    to_node: Vec<(Time, Packet)>,
    // Buffers that are empty between calls.
    emitted: Vec<(Side, Packet)>,
    deliveries: Vec<Delivery>,
}

impl WithMiddlebox {
    pub(crate) fn new(link: Box<dyn Link>, port: Port, middlebox: Box<dyn Middlebox>) -> WithMiddlebox {
        WithMiddlebox { link, port, middlebox, to_node: Vec::new(), emitted: Vec::new(), deliveries: Vec::new() }
    }

    /// Forwards what the middlebox emitted at `now`.
    fn forward(&mut self, now: Time, events: &mut Events) {
        for (side, packet) in self.emitted.drain(..) {
            match side {
                Side::A => self.to_node.push((now, packet)),
                Side::B => self.link.submit(now, self.port, packet, events),
            }
        }
    }
}

impl Link for WithMiddlebox {
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events) {
        if port != self.port {
            return self.link.submit(now, port, packet, events);
        }
        events.port = port;
        self.middlebox.process(now, Side::A, packet, &mut self.emitted, events);
        self.forward(now, events);
    }

    fn next_event(&self) -> Option<Time> {
        let to_node = self.to_node.first().map(|(at, _)| *at);
        [self.link.next_event(), self.middlebox.next_event(), to_node].into_iter().flatten().min()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events) {
        // One event at a time: a delivery may move the middlebox's timers, and a timer may make the link deliver.
        let first = out.len();
        loop {
            let due = [self.link.next_event(), self.middlebox.next_event()].into_iter().flatten().min();
            let Some(at) = due.filter(|at| *at <= now) else { break };
            if self.middlebox.next_event().is_some_and(|timer| timer <= at) {
                events.port = self.port;
                self.middlebox.poll(at, &mut self.emitted, events);
                self.forward(at, events);
            }
            let mut deliveries = std::mem::take(&mut self.deliveries);
            self.link.poll(at, &mut deliveries, events);
            for delivery in deliveries.drain(..) {
                if delivery.port == self.port {
                    events.port = self.port;
                    self.middlebox.process(delivery.at, Side::B, delivery.packet, &mut self.emitted, events);
                    self.forward(at, events);
                } else {
                    out.push(delivery);
                }
            }
            self.deliveries = deliveries;
        }
        out.extend(self.to_node.drain(..).map(|(at, packet)| Delivery { port: self.port, at, packet }));
        out[first..].sort_by_key(|delivery| delivery.at);
    }

    fn backlog(&self, port: Port) -> Option<Backlog> {
        self.link.backlog(port)
    }

    fn peek(&self, port: Port, place: usize) -> Option<&Packet> {
        self.link.peek(port, place)
    }

    fn usage(&self, port: Port) -> Usage {
        self.link.usage(port)
    }

    fn change(&mut self, now: Time, port: Port, change: &Change) -> Result<(), Error> {
        self.link.change(now, port, change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::drain;
    use backchannel_core::packet::build::{ack, data};
    use serde_json::json;

    /// Answers each packet of its node with an ack and forwards it; sends what came from the link on 3 ms later.
    #[derive(Default)]
    struct Answering {
        delayed: Vec<(Time, Packet)>,
    }

    impl Middlebox for Answering {
        fn process(&mut self, now: Time, from: Side, packet: Packet, out: &mut Vec<(Side, Packet)>, _: &mut Events) {
            match from {
                Side::A => out.extend([(Side::A, ack(100 + packet.id as u32)), (Side::B, packet)]),
                Side::B => self.delayed.push((Time(now.nanos() + 3_000_000), packet)),
            }
        }
        fn next_event(&self) -> Option<Time> {
            self.delayed.first().map(|(at, _)| *at)
        }
        fn poll(&mut self, now: Time, out: &mut Vec<(Side, Packet)>, _: &mut Events) {
            while self.delayed.first().is_some_and(|(at, _)| *at <= now) {
                out.push((Side::A, self.delayed.remove(0).1));
            }
        }
    }

    /// (port, ms, id) of what a link of 5 ms each way delivers in the end, with the middlebox at `end`.
    fn delivered(end: Port) -> Vec<(Port, u64, u64)> {
        let way = json!({"delay_s": 0.005, "queue": {"name": "droptail"}});
        let spec =
            json!({"name": "line", "kind": "point-to-point", "ends": ["a", "b"], "forward": way, "reverse": way});
        let plain = crate::testing::build(&serde_json::from_value(spec).expect("a link"), 1).expect("a good link");
        let mut link = WithMiddlebox::new(plain, end, Box::new(Answering::default()));
        let mut events = Events::default();
        link.submit(Time::ZERO, 0, data(1, 960), &mut events);
        link.submit(Time::ZERO, 1, data(2, 960), &mut events);
        drain(&mut link, &mut events).into_iter().map(|(port, ns, id)| (port, ns / 1_000_000, id)).collect()
    }

    #[test]
    fn what_a_middlebox_emits_goes_to_its_node_or_over_the_link_at_once() {
        assert_eq!(delivered(0), [(0, 0, 101), (1, 5, 1), (0, 8, 2)]);
        assert_eq!(delivered(1), [(1, 0, 102), (0, 5, 2), (1, 8, 1)]);
    }
}
