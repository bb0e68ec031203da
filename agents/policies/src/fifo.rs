//! A first-in, first-out queue that counts its bytes, and the places of packets in several queues.

use std::collections::VecDeque;

use backchannel_core::packet::Packet;
use backchannel_core::traits::{Backlog, Policy};

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

    /// See [`Policy::peek`].
    #[inline]
    pub(crate) fn peek(&self, place: usize) -> Option<&Packet> {
        self.packets.get(place)
    }

    /// See [`Policy::take`].
    pub(crate) fn take(&mut self, place: usize, instead: Option<Packet>) -> Option<Packet> {
        let packet = match instead {
            Some(instead) => {
                self.bytes += u64::from(instead.len());
                std::mem::replace(self.packets.get_mut(place)?, instead)
            }
            None => self.packets.remove(place)?,
        };
        self.bytes -= u64::from(packet.len());
        Some(packet)
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline(always)]
    pub(crate) fn backlog(&self) -> Backlog {
        Backlog { packets: self.len(), bytes: self.bytes }
    }
}

/// The methods of a policy whose packets all wait in one of its fields.
macro_rules! kept_in {
    ($field:ident) => {
        #[inline(always)]
        fn backlog(&self) -> backchannel_core::traits::Backlog {
            self.$field.backlog()
        }

        fn peek(&self, place: usize) -> Option<&Packet> {
            self.$field.peek(place)
        }

        fn take(&mut self, place: usize, instead: Option<Packet>) -> Option<Packet> {
            self.$field.take(place, instead)
        }
    };
}
pub(crate) use kept_in;

/// The same for a policy whose packets wait in several policies, one behind the other, which is one of its fields.
macro_rules! kept_in_each {
    ($vis:vis $field:ident) => {
        $vis fn on_opposite(&mut self, now: Time, packet: &Packet) {
            self.$field.iter_mut().for_each(|queue| queue.on_opposite(now, packet));
        }

        $vis fn on_rates(&mut self, now: Time, own_bps: Option<u64>, opposite_bps: Option<u64>) {
            self.$field.iter_mut().for_each(|queue| queue.on_rates(now, own_bps, opposite_bps));
        }

        $vis fn backlog(&self) -> backchannel_core::traits::Backlog {
            self.$field.iter().map(|queue| queue.backlog()).sum()
        }

        $vis fn peek(&self, place: usize) -> Option<&Packet> {
            let (queue, place) = crate::fifo::place_in(&self.$field, place)?;
            self.$field[queue].peek(place)
        }

        $vis fn take(&mut self, place: usize, instead: Option<Packet>) -> Option<Packet> {
            let (queue, place) = crate::fifo::place_in(&self.$field, place)?;
            self.$field[queue].take(place, instead)
        }
    };
}
pub(crate) use kept_in_each;

/// The queue in which a packet waits, and its place there, if the queues stand one behind the other.
pub(crate) fn place_in<'a>(
    queues: impl IntoIterator<Item = &'a Box<dyn Policy>>,
    mut place: usize,
) -> Option<(usize, usize)> {
    for (number, queue) in queues.into_iter().enumerate() {
        let waiting = queue.len_packets();
        if place < waiting {
            return Some((number, place));
        }
        place -= waiting;
    }
    None
}
