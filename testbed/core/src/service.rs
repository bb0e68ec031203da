//! The path of a packet through one link, the same in virtual and in real time: submit, count, write telemetry,
//! deliver. A driver adds the clock and the interfaces.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::event::{Event, EventKind, Events};
use crate::packet::Packet;
use crate::report::{direction_name, DirectionStats, DirectionStatus, LinkReport};
use crate::scenario::Change;
use crate::telemetry::{QueueWatch, Telemetry};
use crate::time::Time;
use crate::traits::{Backlog, Delivery, Link, Port};

/// A link in service, with what the driver counts and writes about it.
pub struct LinkService<L = Box<dyn Link>> {
    name: String,
    link: L,
    /// Rates that the reports state: of the first end, of the others.
    rates_bps: [Option<u64>; 2],
    ends: Vec<End>,
    events: Events,
}

struct End {
    /// Name of the direction that enters here.
    direction: String,
    stats: DirectionStats,
    watch: QueueWatch,
}

impl<L: Link> LinkService<L> {
    /// Puts a link with this number of ends into service.
    pub fn new(name: &str, link: L, ends: usize, rates_bps: [Option<u64>; 2]) -> LinkService<L> {
        let end = |port| End {
            direction: direction_name(port as Port),
            stats: DirectionStats::default(),
            watch: QueueWatch::default(),
        };
        LinkService {
            name: name.to_owned(),
            link,
            rates_bps,
            ends: (0..ends).map(end).collect(),
            events: Events::default(),
        }
    }

    /// Name of the link.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of ends.
    pub fn ends(&self) -> usize {
        self.ends.len()
    }

    /// When [`LinkService::poll`] is next due; `None` while the link is idle.
    #[inline]
    pub fn next_event(&self) -> Option<Time> {
        self.link.next_event()
    }

    /// What waits in front of an end; `None` if it has no queue.
    pub fn backlog(&self, port: Port) -> Option<Backlog> {
        self.link.backlog(port)
    }

    /// The packet that waits in front of an end at a place; `None` beyond the last one.
    pub fn peek(&self, port: Port, place: usize) -> Option<&Packet> {
        self.link.peek(port, place)
    }

    /// A packet enters at `port`. On a shared medium it goes to the end `to`. Returns whether a full queue dropped it.
    #[inline]
    pub fn submit(
        &mut self,
        now: Time,
        port: Port,
        to: Port,
        mut packet: Packet,
        telemetry: &mut Option<Telemetry>,
    ) -> bool {
        let id = packet.id;
        if self.ends.len() > 2 {
            packet.set_ports(port, to);
        }
        self.ends[usize::from(port)].stats.on_submit();
        self.link.submit(now, port, packet, &mut self.events);
        let is_refused = |event: &Event| event.kind == EventKind::DroppedFull && event.packet_id == id;
        let refused = !self.events.is_empty() && self.events.list.iter().any(is_refused);
        self.record(now, telemetry);
        refused
    }

    /// Advances the link to `now` and appends what has come out. [`LinkService::record`] must follow: in real time
    /// after the deliveries are handed over, because a slow disk must not delay packets.
    #[inline]
    pub fn poll(&mut self, now: Time, out: &mut Vec<Delivery>) {
        self.link.poll(now, out, &mut self.events);
    }

    /// End at which a delivered packet entered. On a link with two ends it is the other one.
    #[inline]
    pub fn entered_at(&self, delivery: &Delivery) -> Port {
        match self.ends.len() {
            2 => 1 - delivery.port,
            _ => delivery.packet.from_port(),
        }
    }

    /// Counts a delivery in virtual time.
    #[inline]
    pub fn on_exact_delivery(&mut self, entered_at: Port) {
        self.ends[usize::from(entered_at)].stats.on_exact_delivery();
    }

    /// Counts a delivery that was written at `real`. `accepted`: whether the interface took it.
    pub fn on_delivery(&mut self, entered_at: Port, delivery: &Delivery, real: Time, accepted: bool) {
        let rate_bps = self.rate_bps(entered_at);
        let stats = &mut self.ends[usize::from(entered_at)].stats;
        stats.on_delivery(delivery.at, real, delivery.packet.len(), rate_bps, accepted);
    }

    /// Counts the link's events since the last call and writes them and the queue lengths to telemetry.
    #[inline(always)]
    pub fn record(&mut self, now: Time, telemetry: &mut Option<Telemetry>) {
        if !self.events.is_empty() {
            self.record_events(telemetry);
        }
        if let Some(telemetry) = telemetry {
            self.watch_queues(now, telemetry);
        }
    }

    #[inline(never)]
    fn record_events(&mut self, telemetry: &mut Option<Telemetry>) {
        for event in self.events.list.drain(..) {
            let end = &mut self.ends[usize::from(event.port)];
            end.stats.on_event(&event);
            if let Some(telemetry) = telemetry {
                telemetry.event(&self.name, &end.direction, &event);
            }
        }
        for sample in self.events.jitter.drain(..) {
            if let Some(telemetry) = telemetry {
                telemetry.jitter(&self.name, &self.ends[usize::from(sample.port)].direction, &sample);
            }
        }
        for state in self.events.senders.drain(..) {
            let end = &mut self.ends[usize::from(state.port)];
            end.stats.on_sender(&state);
            if let Some(telemetry) = telemetry {
                telemetry.sender(&self.name, &end.direction, &state);
            }
        }
    }

    #[inline(always)]
    fn watch_queues(&mut self, now: Time, telemetry: &mut Telemetry) {
        let mut watch = |end: &mut End, backlog: Option<Backlog>| {
            let Some(backlog) = backlog else { return };
            if let Some(max) = end.watch.update(now, backlog.packets) {
                telemetry.queue(now, &self.name, &end.direction, backlog, max);
            }
        };
        match &mut self.ends[..] {
            // Known ports cost fewer instructions than counted ones, and most links have two.
            [first, second] => {
                watch(first, self.link.backlog(0));
                watch(second, self.link.backlog(1));
            }
            ends => (0..).zip(ends).for_each(|(port, end)| watch(end, self.link.backlog(port))),
        }
    }

    /// Reports of all directions, in the order of the ends.
    pub fn report(&mut self) -> LinkReport {
        let mut report = LinkReport::new();
        for port in 0..self.ends.len() as Port {
            let (usage, rate_bps) = (self.link.usage(port), self.rate_bps(port));
            let end = &mut self.ends[usize::from(port)];
            report.insert(end.direction.clone(), end.stats.report(usage, rate_bps));
        }
        report
    }

    /// All directions as they are now, in the order of the ends.
    pub fn status(&self) -> BTreeMap<String, DirectionStatus> {
        let status = |port: Port| {
            let end = &self.ends[usize::from(port)];
            let backlog = self.link.backlog(port);
            (end.direction.clone(), end.stats.so_far(self.link.usage(port), backlog))
        };
        (0..self.ends.len() as Port).map(status).collect()
    }

    /// Changes the direction that enters at `port`, at `now`. A rate that changed is not a reference for measurements.
    ///
    /// # Errors
    /// Those of [`Link::change`].
    pub fn change(&mut self, now: Time, port: Port, change: &Change) -> Result<(), Error> {
        self.link.change(now, port, change)?;
        self.rates_bps = [None; 2];
        Ok(())
    }

    /// Ends the record: packets are still carried and counted.
    pub fn close(&mut self) {
        self.ends.iter_mut().for_each(|end| end.stats.close());
    }

    fn rate_bps(&self, port: Port) -> Option<u64> {
        self.rates_bps[usize::from(port).min(1)]
    }
}
