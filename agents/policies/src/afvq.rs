//! ACKs-first variable-size queueing (AFVQ; Park, Park, Hong and Park 2011; aq 6): TCP data, TCP acks and other packets
//! wait in three queues, acks are sent first, and the queue of acks is the smaller, the more data wait.
//!
//! aq gives no rule for the size, and the paper's own abstract only its direction. Ours is linear in the data that wait,
//! with B places for acks at most and D for data:
//!
//! ```text
//! places for acks = B (1 - waiting data / D), rounded
//! ```
//!
//! So a full queue of data leaves acks no place. Those that wait are sent, then data go until acks have a place again:
//! acks cannot starve the upload for good, as they do where they go first alone (asym 7.1.3). Acks that wait stay when the
//! queue shrinks. Data and other packets, whose order is not given either, take turns.

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Queueing};
use backchannel_core::scenario::Named;
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;
use backchannel_core::Error;

use crate::droptail::child_or_fifo;
use crate::limit::Limit;
use crate::Context;

options! {
    /// Options of the policy.
    struct Options {
        limit_packets: usize = 50, [Packets 1] "D, capacity of the queue of data, and of that of other packets";
        ack_limit_packets: Option<usize> = ABSENT, [Packets 1]
            "B, capacity of the queue of acks while no data wait; absent: limit_packets";
        acks: Option<Named> = ABSENT, [Policy]
            "policy that holds the acks, with a limit of its own in addition to the variable one; absent: first in, \
             first out";
        data: Option<Named> = ABSENT, [Policy]
            "policy that holds the data, instead of limit_packets; absent: first in, first out";
    }
}

pub(crate) static ENTRY: Entry = Entry::policy(
    "afvq",
    "acks are sent first, from a queue that shrinks as more data wait",
    Queueing { queues: 3, ..Queueing::CLASSES },
)
.source("aq 6; Park, Park, Hong, Park 2011")
.options(Options::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: &Context) -> Result<Box<dyn Policy>, Error> {
    let Options { limit_packets, ack_limit_packets, acks, data } = Options::read(checked);
    let limit = Limit::from(limit_packets);
    Ok(Box::new(VariableSize {
        data_packets: limit_packets,
        ack_limit_packets: ack_limit_packets.unwrap_or(limit_packets),
        queues: [
            child_or_fifo(context, "acks", &acks, Limit::NONE)?,
            child_or_fifo(context, "data", &data, limit)?,
            child_or_fifo(context, "others", &None, limit)?,
        ],
        others_turn: false,
    }))
}

const ACKS: usize = 0;
const DATA: usize = 1;
const OTHERS: usize = 2;

/// Three queues, of which that of acks changes its size.
struct VariableSize {
    /// D.
    data_packets: usize,
    /// B.
    ack_limit_packets: usize,
    queues: [Box<dyn Policy>; 3],
    /// Of data and other packets, the others are next.
    others_turn: bool,
}

impl VariableSize {
    /// Places for acks.
    fn places(&self) -> usize {
        let free = self.data_packets.saturating_sub(self.queues[DATA].len_packets());
        (self.ack_limit_packets as f64 * free as f64 / self.data_packets as f64).round() as usize
    }
}

impl Policy for VariableSize {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        let queue = match packet.tcp() {
            Some(_) if packet.is_pure_ack() => ACKS,
            Some(_) => DATA,
            None => OTHERS,
        };
        if queue == ACKS && self.queues[ACKS].len_packets() >= self.places() {
            events.record(now, EventKind::DroppedFull, &packet);
        } else {
            self.queues[queue].enqueue(now, packet, events);
        }
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        let order = if self.others_turn { [ACKS, OTHERS, DATA] } else { [ACKS, DATA, OTHERS] };
        for queue in order {
            if let Some(packet) = self.queues[queue].dequeue(now, events) {
                if queue != ACKS {
                    self.others_turn = queue == DATA;
                }
                return Some(packet);
            }
        }
        None
    }

    fn next_time(&self) -> Option<Time> {
        self.queues.iter().filter_map(Policy::next_time).min()
    }

    crate::fifo::kept_in_each!(queues);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{context, drain, kinds};
    use backchannel_core::packet::build::{ack, data, udp};
    use serde_json::json;

    fn afvq(options: serde_json::Value) -> Box<dyn Policy> {
        let options = serde_json::from_value(options).expect("an object");
        context().build(&Named { name: "afvq".into(), options }).expect("valid options")
    }

    /// Acks of 20 that arrive at once find a place while so many packets of data wait.
    fn places(options: serde_json::Value, waiting: u64) -> usize {
        let (mut queue, mut events) = (afvq(options), Events::default());
        (0..waiting).for_each(|id| queue.enqueue(Time::ZERO, data(id, 960), &mut events));
        (0..20).for_each(|number| queue.enqueue(Time::ZERO, ack(1000 + number), &mut events));
        20 - kinds(&events).len()
    }

    #[test]
    fn the_queue_of_acks_shrinks_in_proportion_to_the_data_that_wait() {
        let of_ten = || json!({"limit_packets": 10});
        for (waiting, left) in [(0, 10), (1, 9), (5, 5), (9, 1), (10, 0)] {
            assert_eq!(places(of_ten(), waiting), left, "{waiting} of 10 packets of data wait");
        }
        for (waiting, left) in [(0, 4), (5, 2), (8, 1), (10, 0)] {
            assert_eq!(places(json!({"limit_packets": 10, "ack_limit_packets": 4}), waiting), left, "{waiting}");
        }
    }

    #[test]
    fn acks_go_first_and_the_others_take_turns() {
        let (mut queue, mut events) = (afvq(json!({"limit_packets": 9})), Events::default());
        for packet in [data(1, 960), data(2, 960), data(3, 960), udp(11, 100), ack(21), udp(12, 100), ack(22)] {
            queue.enqueue(Time::ZERO, packet, &mut events);
        }
        assert_eq!(drain(queue.as_mut(), &mut events), [21, 22, 1, 11, 2, 12, 3]);
        assert!(events.list.is_empty());
    }

    #[test]
    fn a_full_queue_of_data_stops_the_acks_until_data_have_left() {
        let (mut queue, mut events) = (afvq(json!({"limit_packets": 2})), Events::default());
        for packet in [ack(11), data(1, 960), data(2, 960), data(3, 960), ack(12)] {
            queue.enqueue(Time::ZERO, packet, &mut events);
        }
        assert_eq!(kinds(&events), [(3, EventKind::DroppedFull), (12, EventKind::DroppedFull)]);
        assert_eq!(queue.dequeue(Time::ZERO, &mut events).map(|packet| packet.id), Some(11));
        assert_eq!(queue.dequeue(Time::ZERO, &mut events).map(|packet| packet.id), Some(1));
        queue.enqueue(Time::ZERO, ack(13), &mut events);
        assert_eq!(drain(queue.as_mut(), &mut events), [13, 2]);
    }
}
