//! The downlink, which needs no grants: a line that pauses during the uplink's part of a cycle.

use backchannel_core::event::Events;
use backchannel_core::packet::Packet;
use backchannel_core::time::{service_time, service_time_ns, Time};
use backchannel_core::traits::Policy;

use super::cycle::Part;
use crate::medium::Medium;

pub(super) struct Downlink {
    pub(super) medium: Medium,
    part: Part,
    /// Mean rate over a cycle.
    rate_bps: u64,
    framing_bytes: u64,
    /// The packet in transmission, and when its last bit leaves.
    sending: Option<(Time, Packet)>,
    /// When the transmitter last became idle.
    idle_since: Time,
}

impl Downlink {
    pub(super) fn new(medium: Medium, part: Part, rate_bps: u64, framing_bytes: u64) -> Downlink {
        Downlink { medium, part, rate_bps, framing_bytes, sending: None, idle_since: Time::ZERO }
    }

    /// Sends what has its turn by `now`.
    pub(super) fn advance(&mut self, now: Time, events: &mut Events) {
        while let Some(at) = self.next_step().filter(|at| *at <= now) {
            if let Some((end, packet)) = self.sending.take() {
                self.medium.send(end, packet);
                self.idle_since = end;
                continue;
            }
            match self.medium.policy.dequeue(at, events) {
                Some(packet) => {
                    let bits = (u64::from(packet.len()) + self.framing_bytes) * 8;
                    self.medium.usage.line_bits += bits;
                    self.medium.usage.busy += service_time(bits, self.rate_bps);
                    self.sending = Some((self.part.end(at, service_time_ns(bits, self.rate_bps)), packet));
                }
                None => self.idle_since = at,
            }
        }
        // A packet that arrives now is not sent before.
        self.idle_since = self.idle_since.max(now);
    }

    /// When the transmitter is free again, or may send what waits; `None`: nothing is there to send.
    fn next_step(&self) -> Option<Time> {
        match &self.sending {
            Some((end, _)) => Some(*end),
            None => self.medium.policy.next_time().map(|ready| self.part.open_at(ready.max(self.idle_since))),
        }
    }

    pub(super) fn next_event(&self) -> Option<Time> {
        [self.next_step(), self.medium.next_delivery()].into_iter().flatten().min()
    }
}
