//! The packets of a queue, oldest first, with their bytes counted.

use std::collections::VecDeque;

use backchannel_core::packet::Packet;

/// A queue of packets that knows its length in bytes.
#[derive(Debug, Default)]
pub(crate) struct Fifo {
    packets: VecDeque<Packet>,
    bytes: u64,
}

impl Fifo {
    pub(crate) fn push(&mut self, packet: Packet) {
        self.bytes += u64::from(packet.len());
        self.packets.push_back(packet);
    }

    pub(crate) fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.len());
        Some(packet)
    }

    /// Takes the newest packet.
    pub(crate) fn pop_newest(&mut self) -> Option<Packet> {
        self.take(self.packets.len().checked_sub(1)?)
    }

    /// Takes the packet with this number from the front.
    pub(crate) fn take(&mut self, index: usize) -> Option<Packet> {
        let packet = self.packets.remove(index)?;
        self.bytes -= u64::from(packet.len());
        Some(packet)
    }

    /// Puts a packet where `index` others go before it.
    pub(crate) fn insert(&mut self, index: usize, packet: Packet) {
        self.bytes += u64::from(packet.len());
        self.packets.insert(index, packet);
    }

    /// Oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Packet> {
        self.packets.iter()
    }

    pub(crate) fn front(&self) -> Option<&Packet> {
        self.packets.front()
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes out every packet that `unwanted` names, in order.
    pub(crate) fn remove(&mut self, mut unwanted: impl FnMut(&Packet) -> bool, mut removed: impl FnMut(Packet)) {
        if !self.packets.iter().any(&mut unwanted) {
            return;
        }
        for packet in std::mem::take(&mut self.packets) {
            if unwanted(&packet) {
                self.bytes -= u64::from(packet.len());
                removed(packet);
            } else {
                self.packets.push_back(packet);
            }
        }
    }
}
