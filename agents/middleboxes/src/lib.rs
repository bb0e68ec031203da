//! Middleboxes: per-packet logic in a node other than queueing, such as snoop, split connections and ack
//! reconstruction.
//!
//! A middlebox is placed at one end of a link, inside the node at that end. It sees every packet that the node sends to
//! the link and every packet that the link delivers to the node. It may pass, hold, change, drop and create packets.
//! The trait is [`Middlebox`](backchannel_core::Middlebox). `backchannel-links` wraps a link and its middlebox into one
//! link, so drivers need not distinguish them.
//!
//! | file | middleboxes |
//! | --- | --- |
//! | `ack_reconstruction` | fills gaps between acks behind a slow reverse line |
//! | `link_layer` | the base station's local retransmission, with and without TCP awareness (snoop) and SMART |
//! | `loss_notification` | explicit loss notification |
//! | `split_connection` | two TCP connections joined at the base station |
//!
//! # Add a middlebox
//!
//! Write one file with its options, its entry, a [`Build`] function and the trait, and add a line to [`builtin`].
//! `build` receives a [`Context`] with the stacks, for a middlebox that terminates connections. Another crate calls
//! `Registry::middlebox` instead. docs/middleboxes.md describes each middlebox and the steps.

mod ack_reconstruction;
mod context;
mod link_layer;
mod loss_notification;
mod split_connection;
#[cfg(test)]
mod testing;

use backchannel_core::registry::Table;

pub use context::{Build, Context, Middleboxes};

/// The middleboxes of this crate.
pub fn builtin() -> Middleboxes {
    Table::<Build>::new(
        "middlebox",
        &[
            (&ack_reconstruction::ENTRY, ack_reconstruction::build),
            (&loss_notification::ENTRY, loss_notification::build),
            (&link_layer::LL, link_layer::build::<false, false>),
            (&link_layer::LL_SMART, link_layer::build::<true, false>),
            (&link_layer::LL_TCP_AWARE, link_layer::build::<false, true>),
            (&link_layer::LL_SMART_TCP_AWARE, link_layer::build::<true, true>),
            (&split_connection::SPLIT, split_connection::build),
            (&split_connection::SPLIT_SMART, split_connection::build),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::back;
    use backchannel_core::event::{EventKind, Events};
    use backchannel_core::ip::IpVersion;
    use backchannel_core::packet::build::Segment;
    use backchannel_core::packet::{Packet, Tcp, TcpFlags};
    use backchannel_core::registry::Entry;
    use backchannel_core::scenario::Options;
    use backchannel_core::time::Time;
    use backchannel_core::traits::Side;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[derive(Clone, Debug)]
    enum Step {
        /// From side A: number of the segment of 1000 bytes.
        Data {
            number: u32,
            damaged: bool,
        },
        /// From side B: everything before this segment; whether it has a SACK block for the segment after it.
        Ack {
            number: u32,
            sack: bool,
        },
        Syn,
        Wait {
            ms: u64,
        },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u32..12, prop::bool::weighted(0.1)).prop_map(|(number, damaged)| Step::Data { number, damaged }),
            4 => (0u32..30, any::<bool>()).prop_map(|(number, sack)| Step::Ack { number, sack }),
            1 => Just(Step::Syn),
            3 => (1u64..300).prop_map(|ms| Step::Wait { ms }),
        ]
    }

    /// What leaves a box: instant, side, id, TCP header and the soundness of its checksum.
    type Left = Vec<(Time, Side, u64, Option<Tcp>, bool)>;

    fn treatment(name: &str, ip: IpVersion, steps: &[Step]) -> (Left, Vec<(u64, EventKind)>) {
        let mut middlebox = crate::testing::build(name, &Options::new());
        let (mut now, mut left, mut events) = (Time::ZERO, Vec::new(), Events::default());
        // A block of 1000 bytes behind a gap of as many at the start of the connection.
        const SACK: &[u8] = &[1, 1, 5, 10, 0, 0, 3, 232, 0, 0, 7, 208];
        for (id, step) in (1..).zip(steps) {
            let base = Segment { id, ip, seq: 0, ..Segment::default() };
            let mut out = Vec::new();
            match *step {
                Step::Data { number, damaged } => {
                    let mut packet = Segment { seq: 1000 * number, payload: 1000, ..base }.packet();
                    if damaged {
                        packet.damage_checksum();
                    }
                    middlebox.process(now, Side::A, packet, &mut out, &mut events);
                }
                Step::Ack { number, sack } => {
                    let segment = Segment { ack: 1000 * number, options: if sack { SACK } else { &[] }, ..base };
                    middlebox.process(now, Side::B, back(&segment.packet()), &mut out, &mut events);
                }
                Step::Syn => {
                    let packet = Segment { flags: TcpFlags::SYN, ..base }.packet();
                    middlebox.process(now, Side::A, packet, &mut out, &mut events);
                }
                Step::Wait { ms } => {
                    now = Time(now.nanos() + ms * 1_000_000);
                    middlebox.poll(now, &mut out, &mut events);
                }
            }
            let fields = |packet: &Packet| (packet.tcp().copied(), packet.checksum_ok());
            left.extend(out.iter().map(|(side, packet)| {
                let (tcp, is_sound) = fields(packet);
                (now, *side, packet.id, tcp, is_sound)
            }));
        }
        (left, events.list.iter().map(|event| (event.packet_id, event.kind)).collect())
    }

    proptest! {
        /// Boxes treat the packets of IPv6 as those of IPv4, whatever they look at in headers. Split connections have
        /// their own test, because their segments differ in length.
        #[test]
        fn every_middlebox_treats_both_versions_of_ip_alike(steps in proptest::collection::vec(step(), 1..120)) {
            for entry in builtin().entries().filter(|entry| !entry.name.starts_with("split")) {
                let over = |ip| treatment(entry.name, ip, &steps);
                prop_assert_eq!(over(IpVersion::V6), over(IpVersion::V4), "{}", entry.name);
            }
        }
    }

    proptest! {
        /// The laws of `testbed/laws`, for boxes that end no connection: those answer packets, which do not pass.
        #[test]
        fn every_middlebox_keeps_the_laws(seed: u64) {
            let steps = backchannel_laws::steps::of_seed(seed, 120);
            for entry in builtin().entries().filter(|entry| !entry.name.starts_with("split")) {
                let mut build = || crate::testing::build(entry.name, &Options::new());
                backchannel_laws::middlebox::repeats(&mut build, &steps)
                    .map_err(|broken| TestCaseError::fail(format!("{}: {broken}", entry.name)))?;
            }
        }
    }

    #[test]
    fn every_middlebox_has_a_name_and_a_summary_of_its_own() {
        let entries: Vec<_> = builtin().entries().collect();
        let texts = |of: fn(&Entry) -> &'static str| entries.iter().map(|entry| of(entry)).collect::<HashSet<_>>();
        assert_eq!(
            (texts(|entry| entry.name).len(), texts(|entry| entry.summary).len()),
            (entries.len(), entries.len())
        );
    }
}
