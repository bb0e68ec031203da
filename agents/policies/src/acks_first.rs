//! Acks-first scheduling (asym 6.5): pure acks have strict, non-preemptive priority over all other packets.
//!
//! All packets share one buffer, and there is no state per flow. Without ack filtering, acks that arrive faster than
//! the line carries them starve the data of the reverse transfer (asym 7.1.3, table 3).

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options;
use backchannel_core::options::CheckedOptions;
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Queueing};
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Policy};

use crate::ack_filter::{self, SackFilter};
use crate::ack_queue::AckQueue;
use crate::fifo::Fifo;
use crate::limit::Limit;
use crate::Context;

pub(crate) static ENTRY: Entry =
    Entry::policy("acks-first", "pure acks are sent before all other packets; one shared buffer", Queueing::CLASSES)
        .source("asym 6.5")
        .options(Limit::PARAMS);

options! {
    /// Options with the filter.
    struct FilterOptions {
        .. limit: Limit;
        ... sack: SackFilter;
    }
}

pub(crate) static ENTRY_WITH_FILTER: Entry = Entry::policy(
    "ack-filtering-acks-first",
    "pure acks are sent before all other packets, and a newer ack removes the older ones of its connection",
    Queueing::CLASSES,
)
.source("asym 6.2, 6.5, 7.1.3")
.options(FilterOptions::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, _: &Context) -> Result<Box<dyn Policy>, String> {
    Ok(Box::new(AcksFirst::new(Limit::read(checked), false)))
}

pub(crate) fn build_with_filter(checked: &CheckedOptions<'_>, _: &Context) -> Result<Box<dyn Policy>, String> {
    let FilterOptions { limit, sack } = FilterOptions::read(checked);
    let acks = AckQueue::with_sack(sack.filter_sack);
    Ok(Box::new(AcksFirst { acks, ..AcksFirst::new(limit, true) }))
}

/// A queue with priority for pure acks.
#[derive(Debug)]
pub struct AcksFirst {
    limit: Limit,
    filtering: bool,
    acks: AckQueue,
    others: Fifo,
}

impl AcksFirst {
    /// An empty queue with one buffer of `limit`; `filtering` adds ack filtering.
    pub fn new(limit: impl Into<Limit>, filtering: bool) -> AcksFirst {
        AcksFirst { limit: limit.into(), filtering, acks: AckQueue::default(), others: Fifo::default() }
    }
}

impl Policy for AcksFirst {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        if self.filtering {
            ack_filter::filter(&mut self.acks, 1, now, &packet, events);
        }
        if !self.limit.admits(self.len_packets(), self.len_bytes(), &packet) {
            events.record(now, EventKind::DroppedFull, &packet);
        } else if packet.is_pure_ack() {
            self.acks.push(packet);
        } else {
            self.others.push(packet);
        }
    }

    fn dequeue(&mut self, _: Time, _: &mut Events) -> Option<Packet> {
        self.acks.pop().or_else(|| self.others.pop())
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.acks.len() + self.others.len(), bytes: self.acks.bytes() + self.others.bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::{ack, data, udp, Segment};
    use backchannel_core::scenario::Named;

    fn left(limit: usize, filtering: bool, packets: Vec<Packet>) -> Vec<u64> {
        let (mut queue, mut events) = (AcksFirst::new(limit, filtering), Events::default());
        for packet in packets {
            queue.enqueue(Time::ZERO, packet, &mut events);
        }
        std::iter::from_fn(|| queue.dequeue(Time::ZERO, &mut events)).map(|packet| packet.id).collect()
    }

    #[test]
    fn acks_overtake_data_and_keep_their_order() {
        assert_eq!(left(9, false, vec![data(1, 960), udp(2, 100), ack(11), data(3, 960), ack(12)]), [11, 12, 1, 2, 3]);
    }

    #[test]
    fn with_filtering_one_ack_overtakes() {
        assert_eq!(left(9, true, vec![data(1, 960), ack(11), ack(12)]), [12, 1]);
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
            let context = Context {
                seed: 1,
                label: "x".into(),
                rate_bps: None,
                opposite_rate_bps: None,
                policies: crate::builtin(),
            };
            let mut queue =
                context.build(&Named { name: "ack-filtering-acks-first".into(), options }).expect("valid options");
            let mut events = Events::default();
            arrivals().into_iter().for_each(|packet| queue.enqueue(Time::ZERO, packet, &mut events));
            let left: Vec<_> =
                std::iter::from_fn(|| queue.dequeue(Time::ZERO, &mut events)).map(|packet| packet.id).collect();
            assert_eq!(left, expected);
        }
    }

    #[test]
    fn the_buffer_is_shared() {
        assert_eq!(left(2, false, vec![data(1, 960), data(2, 960), ack(11)]), [1, 2]);
    }
}
