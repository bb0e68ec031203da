//! A first-in, first-out queue that knows when each packet arrived.

use std::collections::VecDeque;
use std::time::Duration;

use backchannel_core::packet::Packet;
use backchannel_core::time::Time;
use backchannel_core::traits::Backlog;

use crate::fifo::Fifo;

/// Packets, oldest first, with their times of arrival.
#[derive(Debug, Default)]
pub(crate) struct Stamped {
    queue: Fifo,
    arrivals: VecDeque<Time>,
}

impl Stamped {
    pub(crate) fn push(&mut self, now: Time, packet: Packet) {
        self.queue.push(packet);
        self.arrivals.push_back(now);
    }

    /// The oldest packet, and how long it has waited.
    pub(crate) fn pop(&mut self, now: Time) -> Option<(Packet, Duration)> {
        let packet = self.queue.pop()?;
        let arrival = self.arrivals.pop_front().expect("each packet has an arrival time");
        Some((packet, now.since(arrival)))
    }

    /// How long the oldest packet has waited; 0 if none waits.
    pub(crate) fn wait(&self, now: Time) -> Duration {
        self.arrivals.front().map_or(Duration::ZERO, |arrival| now.since(*arrival))
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.queue.bytes()
    }

    pub(crate) fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    /// See [`backchannel_core::traits::Policy::peek`].
    pub(crate) fn peek(&self, place: usize) -> Option<&Packet> {
        self.queue.peek(place)
    }

    /// See [`backchannel_core::traits::Policy::take`]. What takes a place has waited as long as its predecessor.
    pub(crate) fn take(&mut self, place: usize, instead: Option<Packet>) -> Option<Packet> {
        if instead.is_none() {
            self.arrivals.remove(place);
        }
        self.queue.take(place, instead)
    }
}
