//! A queue with an index of each connection's acks, so that a filter does not search the whole queue.

use std::collections::VecDeque;

use backchannel_core::packet::{FlowKey, Packet};
use rustc_hash::FxHashMap;

/// Packets in order of arrival. A packet keeps its place: removing one from the middle leaves a gap.
#[derive(Debug, Default)]
pub(crate) struct AckQueue {
    slots: VecDeque<Option<Packet>>,
    /// The place of the first slot; the first slot holds a packet.
    first: u64,
    count: usize,
    bytes: u64,
    /// Places of each connection's acks that a filter may remove, in order.
    acks: FxHashMap<FlowKey, VecDeque<u64>>,
    /// Whether a filter may remove acks with SACK blocks.
    filters_sack: bool,
}

impl AckQueue {
    /// An empty queue for a filter that may remove acks with SACK blocks too.
    pub(crate) fn with_sack(filters_sack: bool) -> AckQueue {
        AckQueue { filters_sack, ..AckQueue::default() }
    }

    pub(crate) fn filters_sack(&self) -> bool {
        self.filters_sack
    }

    /// Whether a filter may remove the packet: a pure ack (asym 6.2, 8.4).
    pub(crate) fn filterable(&self, packet: &Packet) -> bool {
        packet.is_pure_ack() && (self.filters_sack || packet.tcp().is_some_and(|tcp| tcp.sack_blocks == 0))
    }

    pub(crate) fn push(&mut self, packet: Packet) {
        let place = self.first + self.slots.len() as u64;
        self.index(place, &packet);
        self.slots.push_back(Some(packet));
    }

    pub(crate) fn pop(&mut self) -> Option<Packet> {
        self.take(self.first)
    }

    /// The packet at `place`.
    pub(crate) fn at(&self, place: u64) -> Option<&Packet> {
        self.slots.get(usize::try_from(place.checked_sub(self.first)?).ok()?)?.as_ref()
    }

    /// Removes the packet at `place`.
    pub(crate) fn take(&mut self, place: u64) -> Option<Packet> {
        let packet = self.slots.get_mut(usize::try_from(place.checked_sub(self.first)?).ok()?)?.take()?;
        self.count -= 1;
        self.bytes -= u64::from(packet.len());
        if let (true, Some(flow)) = (self.filterable(&packet), packet.flow()) {
            let places = self.acks.get_mut(&flow).expect("it was indexed on arrival");
            let index = places.binary_search(&place).expect("it was indexed on arrival");
            places.remove(index);
            if places.is_empty() {
                self.acks.remove(&flow);
            }
        }
        while self.slots.front().is_some_and(Option::is_none) {
            self.slots.pop_front();
            self.first += 1;
        }
        Some(packet)
    }

    /// Inserts a packet into the gap that a removed packet left.
    pub(crate) fn put(&mut self, place: u64, packet: Packet) {
        // Gaps at the front are closed; the packet that fills one is the first again.
        if self.slots.is_empty() {
            self.first = place;
            self.slots.push_back(None);
        }
        while place < self.first {
            self.slots.push_front(None);
            self.first -= 1;
        }
        self.index(place, &packet);
        let slot = &mut self.slots[(place - self.first) as usize];
        debug_assert!(slot.is_none());
        *slot = Some(packet);
    }

    fn index(&mut self, place: u64, packet: &Packet) {
        self.count += 1;
        self.bytes += u64::from(packet.len());
        if let (true, Some(flow)) = (self.filterable(packet), packet.flow()) {
            let places = self.acks.entry(flow).or_default();
            let index = places.partition_point(|other| *other < place);
            places.insert(index, place);
        }
    }

    /// Places of the filterable acks of a packet's connection, oldest first.
    pub(crate) fn acks_of(&self, packet: &Packet) -> impl DoubleEndedIterator<Item = u64> + '_ {
        packet.flow().and_then(|flow| self.acks.get(&flow)).into_iter().flatten().copied()
    }

    pub(crate) fn front(&self) -> Option<&Packet> {
        self.slots.front().and_then(Option::as_ref)
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}
