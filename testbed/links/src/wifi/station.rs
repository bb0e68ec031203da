//! One end: its queue, the packets that are not acknowledged, and the receiver that puts them in order.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::packet::Packet;
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;

use super::airtime::Airtime;
use crate::medium::Medium;

/// A packet that left the queue and is not acknowledged.
struct Mpdu {
    number: u64,
    packet: Packet,
    /// Transmissions that failed.
    failures: u64,
}

/// A transmission: the first packets that are not acknowledged.
pub(super) struct Ppdu {
    packets: usize,
    /// On the air, without preamble.
    pub(super) bytes: u64,
    pub(super) airtime: Duration,
}

pub(super) struct Station {
    pub(super) medium: Medium,
    /// Since when something waits, as long as something does.
    pub(super) ready_since: Time,
    /// In order of their numbers.
    unacknowledged: VecDeque<Mpdu>,
    next_number: u64,
    /// At the receiver: what follows a missing packet, `None` in place of a packet that was dropped.
    held: BTreeMap<u64, Option<Packet>>,
    /// The number that it delivers next.
    expected: u64,
}

impl Station {
    pub(super) fn new(medium: Medium) -> Station {
        Station {
            medium,
            ready_since: Time::ZERO,
            unacknowledged: VecDeque::new(),
            next_number: 0,
            held: BTreeMap::new(),
            expected: 0,
        }
    }

    /// Packets that the receiver holds back.
    #[cfg(test)]
    pub(super) fn held_packets(&self) -> usize {
        self.held.len()
    }

    /// Since when it has something to send, or from when on the policy releases it; `None`: it has nothing.
    pub(super) fn ready_at(&self) -> Option<Time> {
        let queued = if self.unacknowledged.is_empty() { self.medium.policy.next_time() } else { Some(Time::ZERO) };
        queued.map(|ready| ready.max(self.ready_since))
    }

    /// Whether a transmission of the next packet lasts no longer than `limit`.
    pub(super) fn fits(&mut self, at: Time, air: &Airtime, limit: Duration, events: &mut Events) -> bool {
        let first = self.bytes_of(0, at, air, events);
        first.is_some_and(|bytes| air.transmission(bytes) <= limit)
    }

    /// The next transmission: as many packets as the limits of an A-MPDU allow, and at least one; `None`: nothing waits.
    pub(super) fn build(&mut self, at: Time, air: &Airtime, limit: Duration, events: &mut Events) -> Option<Ppdu> {
        let mut ppdu = Ppdu { packets: 0, bytes: 0, airtime: Duration::ZERO };
        while ppdu.packets < air.aggregate_packets {
            let Some(more) = self.bytes_of(ppdu.packets, at, air, events) else { break };
            let (bytes, airtime) = (ppdu.bytes + more, air.transmission(ppdu.bytes + more));
            // The block ack's window starts at the first packet that is missing.
            let window = self.unacknowledged[ppdu.packets].number - self.unacknowledged[0].number;
            let is_beyond = bytes > air.ampdu_bytes || airtime > limit || window >= air.aggregate_packets as u64;
            if is_beyond && ppdu.packets > 0 {
                break;
            }
            ppdu = Ppdu { packets: ppdu.packets + 1, bytes, airtime };
        }
        (ppdu.packets > 0).then_some(ppdu)
    }

    /// Bytes on the air of a packet that is not acknowledged, at a place; takes it from the queue if it must.
    fn bytes_of(&mut self, place: usize, at: Time, air: &Airtime, events: &mut Events) -> Option<u64> {
        if place == self.unacknowledged.len() {
            let packet = self.medium.policy.dequeue(at, events)?;
            self.unacknowledged.push_back(Mpdu { number: self.next_number, packet, failures: 0 });
            self.next_number += 1;
        }
        Some(air.mpdu_bytes(u64::from(self.unacknowledged[place].packet.len())))
    }

    /// A transmission ended at `at`; each of its packets was lost with the probability `loss`. Returns whether one arrived.
    pub(super) fn finish(
        &mut self,
        at: Time,
        ppdu: &Ppdu,
        loss: f64,
        retries: u64,
        rng: &mut RunRng,
        events: &mut Events,
    ) -> bool {
        let mut failed = Vec::new();
        let mut arrived = false;
        for mut mpdu in self.unacknowledged.drain(..ppdu.packets) {
            if loss < 1.0 && (loss == 0.0 || rng::uniform(rng) >= loss) {
                arrived = true;
                self.held.insert(mpdu.number, Some(mpdu.packet));
                continue;
            }
            mpdu.failures += 1;
            if mpdu.failures > retries {
                events.record(at, EventKind::Lost, &mpdu.packet);
                self.held.insert(mpdu.number, None);
            } else {
                failed.push(mpdu);
            }
        }
        failed.into_iter().rev().for_each(|mpdu| self.unacknowledged.push_front(mpdu));
        while let Some(entry) = self.held.first_entry().filter(|entry| *entry.key() == self.expected) {
            self.expected += 1;
            if let Some(packet) = entry.remove() {
                self.medium.send(at, packet);
            }
        }
        arrived
    }
}
