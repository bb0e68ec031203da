//! Ack filtering (asym 6.2, 8.4): a newer cumulative ack makes older ones in the queue redundant.
//!
//! When a pure ack is about to be enqueued, the queue is traversed for pure acks of the same connection. Removed are
//!
//! - those with a smaller acknowledgment number, and
//! - those with the same number and another window: later window updates subsume earlier ones (8.4).
//!
//! The new ack goes to the tail. Never removed are segments with data, duplicate acks (same number, same window: they
//! count towards a fast retransmit, 8.4), and, where the paper is silent, anything with SYN, FIN or RST and acks that
//! carry SACK blocks. The packet in transmission is no longer in the queue. No per-connection state is kept: all
//! that is needed stands in the queued packets (6.2).

use backchannel_core::event::{EventKind, Events};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Given};
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;

use crate::droptail::{limit, LIMIT};
use crate::fifo::Fifo;
use crate::Context;

pub(crate) static ENTRY: Entry = Entry {
    kind: "policy",
    name: "ack-filtering",
    summary: "a newer cumulative ack removes the older ones of its connection from the queue",
    source: "asym 6.2, 8.4",
    params: &[LIMIT],
};

pub(crate) fn build(given: &Given<'_>, _: &Context) -> Result<Box<dyn Policy>, String> {
    Ok(Box::new(AckFiltering::new(limit(given))))
}

/// Removes from `queue` what `newer` makes redundant and reports it.
pub(crate) fn filter(queue: &mut Fifo, now: Time, newer: &Packet, events: &mut Events) {
    if newer.is_pure_ack() {
        queue.remove(|older| redundant(older, newer), |older| events.note(now, EventKind::Purged, &older));
    }
}

/// Whether a queued packet is subsumed by a pure ack that arrives after it.
fn redundant(older: &Packet, newer: &Packet) -> bool {
    let (Some(old), Some(new)) = (older.tcp(), newer.tcp()) else { return false };
    if !older.is_pure_ack() || old.sack_blocks > 0 || older.flow() != newer.flow() {
        return false;
    }
    // Serial number arithmetic: smaller means behind by less than half the space (RFC 9293, 3.4).
    let behind = new.ack.wrapping_sub(old.ack) as i32;
    behind > 0 || (behind == 0 && old.window != new.window)
}

/// See the module.
#[derive(Debug)]
pub struct AckFiltering {
    limit: usize,
    queue: Fifo,
}

impl AckFiltering {
    /// A queue of at most `limit` packets.
    pub fn new(limit: usize) -> AckFiltering {
        AckFiltering { limit, queue: Fifo::default() }
    }
}

impl Policy for AckFiltering {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        filter(&mut self.queue, now, &packet, events);
        if self.queue.len() < self.limit {
            self.queue.push(packet);
        } else {
            events.note(now, EventKind::DroppedFull, &packet);
        }
    }

    fn dequeue(&mut self, _: Time, _: &mut Events) -> Option<Packet> {
        self.queue.pop()
    }

    fn peek(&self) -> Option<&Packet> {
        self.queue.front()
    }

    fn len_packets(&self) -> usize {
        self.queue.len()
    }

    fn len_bytes(&self) -> u64 {
        self.queue.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::{ack, data, Segment};
    use backchannel_core::packet::TcpFlags;

    /// Ids that wait after `packets` have come, in order.
    fn left(limit: usize, packets: Vec<Packet>) -> Vec<u64> {
        let (mut queue, mut events) = (AckFiltering::new(limit), Events::default());
        for packet in packets {
            queue.enqueue(Time::ZERO, packet, &mut events);
        }
        std::iter::from_fn(|| queue.dequeue(Time::ZERO, &mut events)).map(|packet| packet.id).collect()
    }

    #[test]
    fn the_newest_cumulative_ack_stays_alone_and_at_the_tail() {
        assert_eq!(left(10, vec![ack(1001), data(7, 960), ack(2001), ack(3001)]), [7, 3001]);
    }

    #[test]
    fn an_older_ack_that_comes_late_removes_nothing() {
        assert_eq!(left(10, vec![ack(3001), ack(1001)]), [3001, 1001]);
    }

    #[test]
    fn duplicate_acks_all_stay() {
        let dup = |id| Segment { id, ack: 5, ..Segment::default() }.packet();
        assert_eq!(left(10, vec![dup(1), dup(2), dup(3)]), [1, 2, 3]);
    }

    #[test]
    fn a_window_update_replaces_the_ack_with_the_same_number() {
        let update = |id, window| Segment { id, ack: 5, window, ..Segment::default() }.packet();
        assert_eq!(left(10, vec![update(1, 100), update(2, 200)]), [2]);
    }

    #[test]
    fn another_connection_is_left_alone() {
        let other = Segment { id: 1, flow: 1, ack: 5, ..Segment::default() }.packet();
        assert_eq!(left(10, vec![other, ack(9)]), [1, 9]);
    }

    #[test]
    fn syn_fin_and_rst_are_never_removed() {
        let packets = [TcpFlags::SYN, TcpFlags::FIN, TcpFlags::RST]
            .iter()
            .zip(1..)
            .map(|(&flags, id)| Segment { id, flags, ..Segment::default() }.packet())
            .chain([ack(9)]);
        assert_eq!(left(10, packets.collect()), [1, 2, 3, 9]);
    }

    #[test]
    fn numbers_that_wrap_are_compared_as_serial_numbers() {
        let old = Segment { id: 1, ack: u32::MAX - 10, ..Segment::default() }.packet();
        assert_eq!(left(10, vec![old, ack(5)]), [5]);
    }

    #[test]
    fn a_full_queue_has_room_again_once_it_is_filtered() {
        assert_eq!(left(2, vec![ack(1), data(7, 960), ack(2)]), [7, 2]);
        assert_eq!(left(2, vec![data(7, 960), data(8, 960), ack(2)]), [7, 8]);
    }
}
