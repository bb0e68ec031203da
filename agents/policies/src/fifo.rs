//! A first-in, first-out queue that counts its bytes.

use std::collections::VecDeque;

use backchannel_core::packet::Packet;
use backchannel_core::traits::Backlog;

/// Packets, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Fifo {
    packets: VecDeque<Packet>,
    bytes: u64,
}

impl Fifo {
    #[inline(always)]
    pub(crate) fn push(&mut self, packet: Packet) {
        self.bytes += u64::from(packet.len());
        self.packets.push_back(packet);
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.len());
        Some(packet)
    }

    /// Removes the newest packet.
    pub(crate) fn pop_newest(&mut self) -> Option<Packet> {
        self.take(self.packets.len().checked_sub(1)?)
    }

    /// Removes the packet at this index, counted from the front.
    pub(crate) fn take(&mut self, index: usize) -> Option<Packet> {
        let packet = self.packets.remove(index)?;
        self.bytes -= u64::from(packet.len());
        Some(packet)
    }

    pub(crate) fn front(&self) -> Option<&Packet> {
        self.packets.front()
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    pub(crate) fn backlog(&self) -> Backlog {
        Backlog { packets: self.len(), bytes: self.bytes }
    }
}
