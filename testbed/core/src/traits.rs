//! Three of the four traits; the fourth is [`crate::transport::Transport`]. Each is a pure state machine. A driver (`testbed/simulator` in virtual time, `testbed/emulator` in
//! real time) gives it a clock and carries its packets.

use std::iter::Sum;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::error::Error;
use crate::event::Events;
pub use crate::ids::Port;
use crate::packet::Packet;
use crate::scenario::Change;
use crate::time::Time;

/// The queueing discipline at one end of a link.
///
/// Every packet that does not come out of [`Policy::dequeue`] is reported to `events`, so in = out + dropped + purged +
/// queued always holds. The packet in transmission is not in the queue.
///
/// A policy may hold another one, its child, as queueing disciplines do: a filter, a scheduler or active queue
/// management decides, and the child keeps what waits. [`Policy::peek`] and [`Policy::take`] let it reach those packets.
///
/// A queue that holds two packets and drops further arrivals:
///
/// ```
/// use std::collections::VecDeque;
/// use std::mem;
///
/// use backchannel_core::event::{EventKind, Events};
/// use backchannel_core::packet::build::data;
/// use backchannel_core::traits::Backlog;
/// use backchannel_core::{Packet, Policy, Time};
///
/// #[derive(Default)]
/// struct TwoPackets(VecDeque<Packet>);
///
/// impl Policy for TwoPackets {
///     fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
///         if self.0.len() < 2 {
///             self.0.push_back(packet);
///         } else {
///             events.record(now, EventKind::DroppedFull, &packet);
///         }
///     }
///
///     fn dequeue(&mut self, _now: Time, _events: &mut Events) -> Option<Packet> {
///         self.0.pop_front()
///     }
///
///     fn backlog(&self) -> Backlog {
///         Backlog { packets: self.0.len(), bytes: self.0.iter().map(|packet| u64::from(packet.len())).sum() }
///     }
///
///     fn peek(&self, place: usize) -> Option<&Packet> {
///         self.0.get(place)
///     }
///
///     fn take(&mut self, place: usize, instead: Option<Packet>) -> Option<Packet> {
///         match instead {
///             Some(packet) => self.0.get_mut(place).map(|waiting| mem::replace(waiting, packet)),
///             None => self.0.remove(place),
///         }
///     }
/// }
///
/// let (mut policy, mut events) = (TwoPackets::default(), Events::default());
/// for id in 1..=3 {
///     policy.enqueue(Time::ZERO, data(id, 1000), &mut events);
/// }
/// assert_eq!((policy.len_packets(), policy.len_bytes()), (2, 2080));
/// assert_eq!(events.count(EventKind::DroppedFull), 1);
/// assert_eq!(policy.dequeue(Time::ZERO, &mut events).map(|packet| packet.id), Some(1));
/// ```
pub trait Policy: Send {
    /// A packet arrives at `now`.
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events);

    /// A packet arrives at `now`, when the transmitter is free and asks for the next one: [`Policy::enqueue`], then
    /// [`Policy::dequeue`]. A policy may take a shorter way to the same result.
    fn pass(&mut self, now: Time, packet: Packet, events: &mut Events) -> Option<Packet> {
        self.enqueue(now, packet, events);
        self.dequeue(now, events)
    }

    /// The transmitter is free at `now` and asks for the next packet.
    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet>;

    /// Earliest time at which [`Policy::dequeue`] can return a packet or drop what waits; [`Time::ZERO`]: at once.
    /// `None`: not before a packet arrives or the rates change. A link whose transmitter is free asks again at that time.
    ///
    /// Only a policy that can hold packets back, such as one with bounded classes, overrides this.
    fn next_time(&self) -> Option<Time> {
        (self.len_packets() > 0).then_some(Time::ZERO)
    }

    /// A packet passed in the opposite direction through the router that owns this queue. ACQ and AQ estimate the
    /// opposite direction from it; other policies ignore it.
    fn on_opposite(&mut self, _now: Time, _packet: &Packet) {}

    /// The rates of the line changed, in bit/s: of the direction behind this queue and of the opposite one. Policies with
    /// configured rates ignore it.
    fn on_rates(&mut self, _now: Time, _own_bps: Option<u64>, _opposite_bps: Option<u64>) {}

    /// What waits.
    fn backlog(&self) -> Backlog;

    /// The waiting packet at a place. Places count from 0, and packets of one flow have them in their order.
    fn peek(&self, place: usize) -> Option<&Packet>;

    /// Removes the waiting packet at a place, without an event. `instead` takes its place, if it is given.
    fn take(&mut self, place: usize, instead: Option<Packet>) -> Option<Packet>;

    /// Packets waiting.
    fn len_packets(&self) -> usize {
        self.backlog().packets
    }

    /// Network-layer bytes waiting.
    fn len_bytes(&self) -> u64 {
        self.backlog().bytes
    }
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        (**self).enqueue(now, packet, events);
    }

    fn pass(&mut self, now: Time, packet: Packet, events: &mut Events) -> Option<Packet> {
        (**self).pass(now, packet, events)
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        (**self).dequeue(now, events)
    }

    fn next_time(&self) -> Option<Time> {
        (**self).next_time()
    }

    fn on_opposite(&mut self, now: Time, packet: &Packet) {
        (**self).on_opposite(now, packet);
    }

    fn on_rates(&mut self, now: Time, own_bps: Option<u64>, opposite_bps: Option<u64>) {
        (**self).on_rates(now, own_bps, opposite_bps);
    }

    fn backlog(&self) -> Backlog {
        (**self).backlog()
    }

    fn peek(&self, place: usize) -> Option<&Packet> {
        (**self).peek(place)
    }

    fn take(&mut self, place: usize, instead: Option<Packet>) -> Option<Packet> {
        (**self).take(place, instead)
    }
}

/// What waits in a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets.
    pub packets: usize,
    /// Network-layer bytes.
    pub bytes: u64,
}

impl Sum for Backlog {
    fn sum<I: Iterator<Item = Backlog>>(queues: I) -> Backlog {
        queues.fold(Backlog::default(), |all, one| Backlog {
            packets: all.packets + one.packets,
            bytes: all.bytes + one.bytes,
        })
    }
}

/// A packet that leaves a link.
#[derive(Debug)]
pub struct Delivery {
    /// The end at which it leaves.
    pub port: Port,
    /// When it should leave, on the link's ideal timeline; never after the `now` of the poll that returned it. Drivers
    /// measure lateness against it.
    pub at: Time,
    /// The packet.
    pub packet: Packet,
}

/// A link between nodes: rate, delay, framing, MAC, error models and the policies at its ends.
///
/// Departures are computed on an ideal timeline: a late call of [`Link::poll`] delays what it delivers but nothing after
/// that.
///
/// A link without a queue that carries every packet to the other end in 10 ms:
///
/// ```
/// use std::collections::VecDeque;
/// use std::time::Duration;
///
/// use backchannel_core::event::Events;
/// use backchannel_core::packet::build::data;
/// use backchannel_core::traits::{Backlog, Usage};
/// use backchannel_core::{Delivery, Link, Packet, Port, Time};
///
/// #[derive(Default)]
/// struct Delay {
///     in_flight: VecDeque<Delivery>,
///     usage: [Usage; 2],
/// }
///
/// impl Link for Delay {
///     fn submit(&mut self, now: Time, port: Port, packet: Packet, _events: &mut Events) {
///         let usage = &mut self.usage[usize::from(port)];
///         usage.packets += 1;
///         usage.bytes += u64::from(packet.len());
///         self.in_flight.push_back(Delivery { port: 1 - port, at: now + Duration::from_millis(10), packet });
///     }
///
///     fn next_event(&self) -> Option<Time> {
///         self.in_flight.front().map(|delivery| delivery.at)
///     }
///
///     fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, _events: &mut Events) {
///         while self.next_event().is_some_and(|at| at <= now) {
///             out.extend(self.in_flight.pop_front());
///         }
///     }
///
///     fn backlog(&self, _port: Port) -> Option<Backlog> {
///         None
///     }
///
///     fn usage(&self, port: Port) -> Usage {
///         self.usage[usize::from(port)]
///     }
/// }
///
/// let (mut link, mut out, mut events) = (Delay::default(), Vec::new(), Events::default());
/// link.submit(Time::ZERO, 0, data(7, 1000), &mut events);
/// let due = link.next_event().expect("a packet is in flight");
/// // The driver is 5 ms late. The delivery still has its time on the ideal timeline.
/// link.poll(due + Duration::from_millis(5), &mut out, &mut events);
/// assert_eq!((out[0].port, out[0].at, out[0].packet.id), (1, Time::from_seconds(0.01), 7));
/// assert_eq!((link.next_event(), link.usage(0).bytes), (None, 1040));
/// ```
pub trait Link: Send {
    /// A packet enters at `port` at `now`. `now` never decreases over the calls of submit and poll.
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events);

    /// When [`Link::poll`] is next due; `None` while the link is idle.
    fn next_event(&self) -> Option<Time>;

    /// Advances to `now` and appends what has come out by then, in order of time.
    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events);

    /// What waits in front of `port`; `None` if the port has no queue.
    fn backlog(&self, port: Port) -> Option<Backlog>;

    /// The packet that waits in front of `port` at a place, as [`Policy::peek`]. `None` beyond the last one, and on links
    /// that do not tell.
    fn peek(&self, _port: Port, _place: usize) -> Option<&Packet> {
        None
    }

    /// What the direction that enters at `port` has serialised so far.
    fn usage(&self, port: Port) -> Usage;

    /// Changes the direction that enters at `port`, at `now`, while it runs. `at_s` of the change is ignored.
    ///
    /// # Errors
    /// The change is invalid, or a link of this kind cannot change. Nothing has changed then.
    fn change(&mut self, _now: Time, _port: Port, _change: &Change) -> Result<(), Error> {
        Err("only a point-to-point link can be changed while it runs".into())
    }
}

impl<L: Link + ?Sized> Link for Box<L> {
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events) {
        (**self).submit(now, port, packet, events);
    }

    fn next_event(&self) -> Option<Time> {
        (**self).next_event()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events) {
        (**self).poll(now, out, events);
    }

    fn backlog(&self, port: Port) -> Option<Backlog> {
        (**self).backlog(port)
    }

    fn peek(&self, port: Port, place: usize) -> Option<&Packet> {
        (**self).peek(port, place)
    }

    fn usage(&self, port: Port) -> Usage {
        (**self).usage(port)
    }

    fn change(&mut self, now: Time, port: Port, change: &Change) -> Result<(), Error> {
        (**self).change(now, port, change)
    }
}

/// What a direction of a link has serialised.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Packets that finished serialisation.
    pub packets: u64,
    /// Network-layer bytes of those packets.
    pub bytes: u64,
    /// Bits of those packets on the line, framing included.
    pub line_bits: u64,
    /// Time the transmitter was busy on the ideal timeline.
    pub busy: Duration,
    /// Header compression, where the line uses it.
    pub headers: Option<Headers>,
}

/// RFC 1144 header compression of one direction. All counts are packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Headers {
    /// Sent with a compressed header.
    pub compressed: u64,
    /// Sent uncompressed to set a slot of the far end.
    pub uncompressed: u64,
    /// Sent unchanged: not TCP, start or end of a connection, or a fragment.
    pub unmodified: u64,
    /// Discarded by the far end, which could not decompress the header.
    pub tossed: u64,
    /// Delivered with a wrong header, because the ends were out of step.
    pub wrong: u64,
}

/// A side of a middlebox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Towards the first end of the link (port 0).
    A,
    /// Towards the second end (port 1).
    B,
}

impl Side {
    /// The opposite side.
    pub const fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }
}

/// Per-packet logic in a node that is not a queue: snoop, split connection, ack reconstruction.
///
/// A middlebox that delays pure acks by 10 ms and passes everything else:
///
/// ```
/// use std::collections::VecDeque;
/// use std::time::Duration;
///
/// use backchannel_core::event::Events;
/// use backchannel_core::packet::build::{ack, data};
/// use backchannel_core::{Middlebox, Packet, Side, Time};
///
/// #[derive(Default)]
/// struct DelayAcks(VecDeque<(Time, Side, Packet)>);
///
/// impl Middlebox for DelayAcks {
///     fn process(&mut self, now: Time, from: Side, packet: Packet, out: &mut Vec<(Side, Packet)>, _: &mut Events) {
///         if packet.is_pure_ack() {
///             self.0.push_back((now + Duration::from_millis(10), from.other(), packet));
///         } else {
///             out.push((from.other(), packet));
///         }
///     }
///
///     fn next_event(&self) -> Option<Time> {
///         self.0.front().map(|(at, ..)| *at)
///     }
///
///     fn poll(&mut self, now: Time, out: &mut Vec<(Side, Packet)>, _: &mut Events) {
///         while self.next_event().is_some_and(|at| at <= now) {
///             out.extend(self.0.pop_front().map(|(_, to, packet)| (to, packet)));
///         }
///     }
/// }
///
/// let (mut middlebox, mut out, mut events) = (DelayAcks::default(), Vec::new(), Events::default());
/// middlebox.process(Time::ZERO, Side::B, ack(2000), &mut out, &mut events);
/// middlebox.process(Time::ZERO, Side::A, data(1, 1000), &mut out, &mut events);
/// assert_eq!(out.pop().map(|(to, packet)| (to, packet.id)), Some((Side::B, 1)));
/// let due = middlebox.next_event().expect("an ack waits");
/// middlebox.poll(due, &mut out, &mut events);
/// assert_eq!((due, out[0].0, out[0].1.id), (Time::from_seconds(0.01), Side::A, 2000));
/// ```
pub trait Middlebox: Send {
    /// A packet arrives from `from`. Packets to forward at `now` are appended to `out` with the side to send them to; an
    /// unaffected packet goes to `from.other()`.
    fn process(&mut self, now: Time, from: Side, packet: Packet, out: &mut Vec<(Side, Packet)>, events: &mut Events);

    /// When [`Middlebox::poll`] is next due.
    fn next_event(&self) -> Option<Time>;

    /// Advances to `now` and appends packets that are due.
    fn poll(&mut self, now: Time, out: &mut Vec<(Side, Packet)>, events: &mut Events);
}
