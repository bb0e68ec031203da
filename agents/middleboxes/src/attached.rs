//! A link with a middlebox at one of its ends, as a link: so it runs wherever links run.

use backchannel_core::event::Events;
use backchannel_core::packet::Packet;
use backchannel_core::time::Time;
use backchannel_core::traits::{Delivery, Link, Middlebox, Policy, Port, Side, Usage};

/// Side A of the box is its node, side B the link.
pub(crate) struct Attached {
    link: Box<dyn Link>,
    end: Port,
    own: Box<dyn Middlebox>,
    /// What the box has for its node and the instant it said so; given out by the next poll.
    waiting: Vec<(Time, Packet)>,
    made: Vec<(Side, Packet)>,
    out: Vec<Delivery>,
}

impl Attached {
    pub(crate) fn new(link: Box<dyn Link>, end: Port, own: Box<dyn Middlebox>) -> Attached {
        Attached { link, end, own, waiting: Vec::new(), made: Vec::new(), out: Vec::new() }
    }

    /// Sends what the box has said at `now` on its ways.
    fn pass_on(&mut self, now: Time, events: &mut Events) {
        for (side, packet) in self.made.drain(..) {
            match side {
                Side::A => self.waiting.push((now, packet)),
                Side::B => self.link.submit(now, self.end, packet, events),
            }
        }
    }
}

impl Link for Attached {
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events) {
        if port != self.end {
            return self.link.submit(now, port, packet, events);
        }
        events.port = port;
        self.own.process(now, Side::A, packet, &mut self.made, events);
        self.pass_on(now, events);
    }

    fn next_event(&self) -> Option<Time> {
        let waiting = self.waiting.first().map(|(at, _)| *at);
        [self.link.next_event(), self.own.next_event(), waiting].into_iter().flatten().min()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events) {
        // Step by step: what comes out of the link may move the box's timers, and the other way round.
        let first = out.len();
        loop {
            let due = [self.link.next_event(), self.own.next_event()].into_iter().flatten().min();
            let Some(at) = due.filter(|at| *at <= now) else { break };
            if self.own.next_event().is_some_and(|own| own <= at) {
                events.port = self.end;
                self.own.poll(at, &mut self.made, events);
                self.pass_on(at, events);
            }
            let mut came = std::mem::take(&mut self.out);
            self.link.poll(at, &mut came, events);
            for delivery in came.drain(..) {
                if delivery.port == self.end {
                    events.port = self.end;
                    self.own.process(delivery.at, Side::B, delivery.packet, &mut self.made, events);
                    self.pass_on(at, events);
                } else {
                    out.push(delivery);
                }
            }
            self.out = came;
        }
        out.extend(self.waiting.drain(..).map(|(at, packet)| Delivery { port: self.end, at, packet }));
        out[first..].sort_by_key(|delivery| delivery.at);
    }

    fn policy(&self, port: Port) -> Option<&dyn Policy> {
        self.link.policy(port)
    }

    fn usage(&self, port: Port) -> Usage {
        self.link.usage(port)
    }
}
