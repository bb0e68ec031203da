//! Explicit loss notification (ELN) at the base station (ton V-B), for receivers that cannot distinguish corruption
//! from congestion.
//!
//! The base station remembers which segments it sent to the wireless link. A duplicate ack for one of them means a
//! wireless loss. It gets the ELN mark, and a sender with `eln` retransmits without reducing its window. A segment that
//! never reached the base station was lost by congestion, and its duplicate acks are not marked. Drops in the link's
//! own queue count as wireless losses, so that queue must be long enough.

use std::collections::{HashMap, VecDeque};

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options;
use backchannel_core::options::CheckedOptions;
use backchannel_core::packet::{mark, FlowKey, Packet, TcpFlags};
use backchannel_core::registry::Entry;
use backchannel_core::time::Time;
use backchannel_core::traits::{Middlebox, Side};
use backchannel_core::Error;

use crate::Context;

options! {
    /// Options of the middlebox.
    struct Parameters {
        remembered_packets: usize = 1000, [Packets 1 to 1e6] "number of sent segments remembered per connection";
    }
}

pub(crate) static ENTRY: Entry =
    Entry::middlebox("loss-notification", "explicit loss notification: marks duplicate acks for wireless losses (ELN)")
        .source("ton V-B")
        .options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, _: &Context<'_>) -> Result<Box<dyn Middlebox>, Error> {
    Ok(Box::new(LossNotification { parameters: Parameters::read(checked), flows: HashMap::new() }))
}

struct LossNotification {
    parameters: Parameters,
    /// By the direction of the data.
    flows: HashMap<FlowKey, PassedSegments>,
}

#[derive(Default)]
struct PassedSegments {
    /// Sequence numbers of segments sent to the link, oldest first.
    passed: VecDeque<u32>,
    acked: Option<u32>,
}

impl Middlebox for LossNotification {
    fn process(
        &mut self,
        now: Time,
        from: Side,
        mut packet: Packet,
        out: &mut Vec<(Side, Packet)>,
        events: &mut Events,
    ) {
        let (Some(&tcp), Some(key)) = (packet.tcp().filter(|_| packet.checksum_ok()), packet.flow()) else {
            out.push((from.other(), packet));
            return;
        };
        if tcp.flags.any(TcpFlags::SYN | TcpFlags::RST) {
            // A new connection between the same ports, or the end of this one.
            self.flows.remove(&if from == Side::A { key } else { key.reversed() });
        }
        match from {
            Side::A if tcp.payload > 0 => {
                let flow = self.flows.entry(key).or_default();
                flow.passed.push_back(tcp.seq);
                if flow.passed.len() > self.parameters.remembered_packets {
                    flow.passed.pop_front();
                }
            }
            Side::B if tcp.flags.has(TcpFlags::ACK) => {
                if let Some(flow) = self.flows.get_mut(&key.reversed()) {
                    let duplicate = flow.acked == Some(tcp.ack) && packet.is_pure_ack();
                    if duplicate && flow.passed.contains(&tcp.ack) {
                        packet.set_mark(mark::ELN);
                        events.record(now, EventKind::MarkedDupack, &packet);
                    } else if flow.acked.is_none_or(|acked| (tcp.ack.wrapping_sub(acked) as i32) > 0) {
                        flow.acked = Some(tcp.ack);
                        flow.passed.retain(|seq| (seq.wrapping_sub(tcp.ack) as i32) >= 0);
                    }
                }
            }
            _ => {}
        }
        out.push((from.other(), packet));
    }

    fn next_event(&self) -> Option<Time> {
        None
    }

    fn poll(&mut self, _: Time, _: &mut Vec<(Side, Packet)>, _: &mut Events) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::back;
    use backchannel_core::packet::build::Segment;

    /// A middlebox and its events.
    struct Bench(Box<dyn Middlebox>, Events);

    impl Bench {
        fn new(remembered: u64) -> Bench {
            let options = [("remembered_packets".to_owned(), remembered.into())].into();
            Bench(crate::testing::build(ENTRY.name, &options), Events::default())
        }

        /// Whether the packet leaves with the mark.
        fn go(&mut self, from: Side, packet: Packet) -> bool {
            let mut out = Vec::new();
            self.0.process(Time::ZERO, from, packet, &mut out, &mut self.1);
            let (_, packet) = out.pop().expect("everything passes");
            assert!(packet.checksum_ok());
            packet.tcp().unwrap().marks & mark::ELN != 0
        }

        fn data(&mut self, number: u32) {
            self.go(Side::A, Segment { seq: 1000 * number, payload: 1000, ..Segment::default() }.packet());
        }

        fn ack(&mut self, number: u32) -> bool {
            self.go(Side::B, back(&Segment { ack: 1000 * number, ..Segment::default() }.packet()))
        }
    }

    #[test]
    fn as_many_segments_are_remembered_as_the_option_says() {
        for (segments, is_known) in [(2, true), (3, false)] {
            let mut bench = Bench::new(2);
            (1..=segments).for_each(|number| bench.data(number));
            bench.ack(1);
            assert_eq!(bench.ack(1), is_known, "{segments}");
        }
        assert_eq!(Bench::new(2).0.next_event(), None, "it waits for nothing");
    }

    #[test]
    fn a_new_connection_between_the_same_ports_starts_without_state() {
        for (flags, is_known) in [(0, true), (TcpFlags::SYN, false), (TcpFlags::RST, false)] {
            for from in [Side::A, Side::B] {
                let mut bench = Bench::new(10);
                bench.data(1);
                bench.ack(1);
                let segment = Segment { ack: 500, flags, ..Segment::default() }.packet();
                bench.go(from, if from == Side::A { segment } else { back(&segment) });
                assert_eq!(bench.ack(1), is_known, "{flags} {from:?}");
            }
        }
    }

    #[test]
    fn a_number_without_the_flag_is_no_ack() {
        let mut bench = Bench::new(10);
        bench.data(1);
        bench.ack(1);
        let mut bytes = back(&Segment { ack: 9000, ..Segment::default() }.packet()).to_vec();
        // The flag is gone, and the checksum is right again.
        bytes[33] = 0;
        let sum = u16::from_be_bytes([bytes[36], bytes[37]]) + u16::from(TcpFlags::ACK);
        bytes[36..38].copy_from_slice(&sum.to_be_bytes());
        bench.go(Side::B, Packet::from_bytes(9, bytes));
        assert!(bench.ack(1), "segment 1 is not acknowledged");
    }

    #[test]
    fn only_duplicate_acks_for_segments_sent_to_the_link_are_marked() {
        let mut bench = Bench::new(1000);
        // Segment 3 never comes here: a router dropped it.
        for number in [1, 2, 4, 5] {
            bench.data(number);
        }
        bench.go(Side::A, Segment { seq: 3000, ..Segment::default() }.packet()); // an ack sends nothing
        assert!(!bench.ack(2), "a new ack");
        assert!(bench.ack(2), "2 went over the air");
        assert!(bench.ack(2));
        assert!(!bench.ack(3), "2 has arrived");
        assert!(!bench.ack(3), "3 never came here");
        assert!(!bench.ack(4), "a new ack");
        assert!(bench.ack(4), "4 went over the air");
    }
}
