//! Queue policies: what stands in front of a link and decides which packet waits, goes next, is dropped or purged.
//!
//! One policy is one file and one line in [`POLICIES`]. Drivers, validator, `./backchannel list` and the docs read that
//! table. Every policy keeps the law of [`Policy`]: in = out + dropped + purged + queued.

mod ack_filter;
mod acks_first;
mod droptail;
mod fifo;

use backchannel_core::registry::{Entry, Given};
use backchannel_core::scenario::Options;
use backchannel_core::traits::Policy;

pub use ack_filter::AckFiltering;
pub use acks_first::AcksFirst;
pub use droptail::DropTail;

/// What a policy may know of its surroundings beside its options.
#[derive(Clone, Debug)]
pub struct Context {
    /// Seed of the run.
    pub seed: u64,
    /// Label of this queue's random streams, such as `bottleneck/reverse`.
    pub label: String,
    /// Rate of the direction it serves, in bit/s.
    pub rate_bps: Option<u64>,
    /// Rate of the opposite direction, in bit/s.
    pub opposite_rate_bps: Option<u64>,
}

type Build = fn(&Given<'_>, &Context) -> Result<Box<dyn Policy>, String>;

/// Every policy: what it is, and how it is made.
static POLICIES: &[(&Entry, Build)] = &[
    (&droptail::ENTRY, droptail::build),
    (&ack_filter::ENTRY, ack_filter::build),
    (&acks_first::ENTRY, acks_first::build),
    (&acks_first::ENTRY_WITH_FILTER, acks_first::build_with_filter),
];

/// What the registry prints.
pub fn entries() -> Vec<&'static Entry> {
    POLICIES.iter().map(|(entry, _)| *entry).collect()
}

/// Makes a policy.
///
/// # Errors
/// A sentence: there is no such policy, or an option does not fit.
pub fn build(name: &str, options: &Options, context: &Context) -> Result<Box<dyn Policy>, String> {
    let (entry, build) = POLICIES.iter().find(|(entry, _)| entry.name == name).ok_or_else(|| {
        let known: Vec<_> = POLICIES.iter().map(|(entry, _)| entry.name).collect();
        format!("there is no queue policy '{name}'; there are: {}", known.join(", "))
    })?;
    build(&Given::check(entry, options)?, context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::event::{EventKind, Events};
    use backchannel_core::packet::build::{udp, Segment};
    use backchannel_core::packet::Packet;
    use backchannel_core::time::Time;
    use proptest::prelude::*;
    use serde_json::json;
    use std::collections::BTreeSet;

    fn context() -> Context {
        Context { seed: 1, label: "test".into(), rate_bps: Some(28_800), opposite_rate_bps: Some(10_000_000) }
    }

    #[test]
    fn an_unknown_policy_and_a_bad_option_are_told() {
        let said = build("drop-tale", &Options::new(), &context()).err().expect("refused");
        assert!(said.contains("'drop-tale'") && said.contains("droptail"), "{said}");
        let options = Options::from([("limit".into(), json!(3))]);
        let said = build("droptail", &options, &context()).err().expect("refused");
        assert!(said.contains("no option 'limit'") && said.contains("limit_packets"), "{said}");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Ack { flow: u16, number: u32, window: u16 },
        Data { flow: u16, payload: u32 },
        Syn { flow: u16 },
        Datagram,
        Dequeue,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u16..3, 1u32..12, 1u16..3).prop_map(|(flow, number, window)| Step::Ack { flow, number, window }),
            2 => (0u16..3, 1u32..1500).prop_map(|(flow, payload)| Step::Data { flow, payload }),
            1 => (0u16..3).prop_map(|flow| Step::Syn { flow }),
            1 => Just(Step::Datagram),
            3 => Just(Step::Dequeue),
        ]
    }

    fn packet(id: u64, step: &Step) -> Option<Packet> {
        let base = Segment { id, ..Segment::default() };
        Some(match *step {
            Step::Ack { flow, number, window } => Segment { flow, ack: number, window, ..base }.packet(),
            Step::Data { flow, payload } => Segment { flow, payload, ..base }.packet(),
            Step::Syn { flow } => Segment { flow, flags: backchannel_core::packet::TcpFlags::SYN, ..base }.packet(),
            Step::Datagram => udp(id, 100),
            Step::Dequeue => return None,
        })
    }

    proptest! {
        /// Every policy of the table: nothing is lost without a word, nothing comes out twice, the limit holds,
        /// only pure acks are purged, and each flow's data keeps its order.
        #[test]
        fn every_policy_accounts_for_every_packet(steps in proptest::collection::vec(step(), 1..200), limit in 1u64..12) {
            for (entry, _) in POLICIES {
                let options = Options::from([("limit_packets".into(), json!(limit))]);
                let mut policy = build(entry.name, &options, &context()).expect("builds with a limit");
                let mut events = Events::default();
                let (mut entered, mut left, mut data_out) = (0u64, BTreeSet::new(), Vec::new());
                for (number, step) in steps.iter().enumerate() {
                    let now = Time(number as u64);
                    if let Some(packet) = packet(number as u64, step) {
                        entered += 1;
                        policy.enqueue(now, packet, &mut events);
                    } else {
                        let seen = policy.peek().map(|packet| packet.id);
                        let waiting = policy.len_packets();
                        let out = policy.dequeue(now, &mut events);
                        prop_assert_eq!(out.is_some(), waiting > 0, "{} is work-conserving", entry.name);
                        if let Some(packet) = out {
                            prop_assert_eq!(seen, Some(packet.id));
                            prop_assert!(left.insert(packet.id), "{} gave a packet twice", entry.name);
                            if packet.tcp().is_some_and(|tcp| tcp.payload > 0) {
                                data_out.push((packet.flow(), packet.id));
                            }
                        }
                    }
                    prop_assert!(policy.len_packets() as u64 <= limit);
                    prop_assert_eq!(policy.len_packets() == 0, policy.len_bytes() == 0);
                }
                for event in &events.list {
                    prop_assert!(left.insert(event.packet_id), "{} told of a packet twice", entry.name);
                    prop_assert!(event.kind != EventKind::Purged || event.pure_ack, "{} purged data", entry.name);
                }
                prop_assert_eq!(entered, left.len() as u64 + policy.len_packets() as u64, "{}", entry.name);
                for flow in data_out.iter().map(|(flow, _)| *flow).collect::<Vec<_>>() {
                    let ids: Vec<_> = data_out.iter().filter(|(other, _)| *other == flow).map(|(_, id)| *id).collect();
                    prop_assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{} reordered data", entry.name);
                }
            }
        }
    }
}
