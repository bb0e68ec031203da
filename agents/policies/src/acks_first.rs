//! Acks-first scheduling (asym 6.5): pure acks have strict, non-preemptive priority over all other packets.
//!
//! All packets share one buffer, and there is no state per flow. Without ack filtering, acks that arrive faster than
//! the line carries them starve the data of the reverse transfer (asym 7.1.3, table 3).

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Queueing};
use backchannel_core::scenario::Named;
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Policy};
use backchannel_core::Error;

use crate::droptail::child_or_fifo;
use crate::limit::Limit;
use crate::{Context, DropTail};

options! {
    /// Options of the policy.
    struct Options {
        .. limit: Limit;
        acks: Option<Named> = ABSENT, [Policy]
            "policy that holds the pure acks, with a limit of its own; absent: first in, first out";
        others: Option<Named> = ABSENT, [Policy]
            "policy that holds the other packets, with a limit of its own; absent: first in, first out. With both, the \
             shared buffer has a limit only if one is set";
    }
}

pub(crate) static ENTRY: Entry =
    Entry::policy("acks-first", "pure acks are sent before all other packets; one shared buffer", Queueing::CLASSES)
        .source("asym 6.5")
        .options(Options::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: &Context) -> Result<Box<dyn Policy>, Error> {
    let Options { limit, acks, others } = Options::read(checked);
    let limit = limit.of_parent(checked, acks.is_some() && others.is_some());
    let acks = child_or_fifo(context, "acks", &acks, Limit::NONE)?;
    let others = child_or_fifo(context, "others", &others, Limit::NONE)?;
    Ok(Box::new(AcksFirst { limit, queues: [acks, others] }))
}

/// Two queues in one buffer: pure acks, which go first, and all other packets.
pub struct AcksFirst {
    limit: Limit,
    queues: [Box<dyn Policy>; 2],
}

impl AcksFirst {
    /// Empty first-in, first-out queues in one buffer of `limit`.
    pub fn new(limit: impl Into<Limit>) -> AcksFirst {
        let fifo = || Box::new(DropTail::new(Limit::NONE));
        AcksFirst { limit: limit.into(), queues: [fifo(), fifo()] }
    }
}

impl Policy for AcksFirst {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        let Backlog { packets, bytes } = self.backlog();
        if self.limit.admits(packets, bytes, &packet) {
            self.queues[usize::from(!packet.is_pure_ack())].enqueue(now, packet, events);
        } else {
            events.record(now, EventKind::DroppedFull, &packet);
        }
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        self.queues.iter_mut().find_map(|queue| queue.dequeue(now, events))
    }

    fn next_time(&self) -> Option<Time> {
        self.queues.iter().filter_map(Policy::next_time).min()
    }

    crate::fifo::kept_in_each!(queues);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::context;
    use backchannel_core::packet::build::{ack, data, udp, Segment};

    fn left(limit: usize, packets: Vec<Packet>) -> Vec<u64> {
        let (mut queue, mut events) = (AcksFirst::new(limit), Events::default());
        for packet in packets {
            queue.enqueue(Time::ZERO, packet, &mut events);
        }
        std::iter::from_fn(|| queue.dequeue(Time::ZERO, &mut events)).map(|packet| packet.id).collect()
    }

    #[test]
    fn acks_overtake_data_and_keep_their_order() {
        assert_eq!(left(9, vec![data(1, 960), udp(2, 100), ack(11), data(3, 960), ack(12)]), [11, 12, 1, 2, 3]);
    }

    #[test]
    fn acks_with_sack_blocks_are_filtered_if_asked_for() {
        let sack = |id, options| Segment { id, ack: 50, options, ..Segment::default() }.packet();
        let arrivals = || {
            let narrow = sack(1, &[1, 1, 5, 10, 0, 0, 0, 100, 0, 0, 0, 200]);
            [narrow, data(7, 960), sack(2, &[1, 1, 5, 10, 0, 0, 0, 100, 0, 0, 1, 44])]
        };
        for (filter_sack, expected) in [(false, vec![1, 2, 7]), (true, vec![2, 7])] {
            let options = serde_json::json!({"limit_packets": 9, "filter_sack": filter_sack});
            let options = serde_json::from_value(options).expect("an object");
            let mut queue =
                context().build(&Named { name: "ack-filtering-acks-first".into(), options }).expect("valid options");
            let mut events = Events::default();
            arrivals().into_iter().for_each(|packet| queue.enqueue(Time::ZERO, packet, &mut events));
            let left: Vec<_> =
                std::iter::from_fn(|| queue.dequeue(Time::ZERO, &mut events)).map(|packet| packet.id).collect();
            assert_eq!(left, expected);
        }
    }

    #[test]
    fn the_buffer_is_shared() {
        assert_eq!(left(2, vec![data(1, 960), data(2, 960), ack(11)]), [1, 2]);
    }
}
