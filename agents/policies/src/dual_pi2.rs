//! DualPI2, the dual-queue coupled AQM (RFC 9332, appendix A; names are those of its pseudocode).
//!
//! ```text
//! ECT(1), CE -> lq: marked by max(p'_L, p_CL) --\
//!                        ^ p_CL = k p'           >-- line
//! others     -> cq: dropped, or marked, by p_C --/
//!                          p_C = p'^2
//! p' += alpha (curq - target) + beta (curq - prevq)       every Tupdate, within 0 and 1
//! ```
//!
//! - p' controls the waiting time of the oldest packet, the longer one of both queues (A.1).
//! - p'_L is a ramp from 0 to 1 over `range` from `min_threshold` on, of the packet's own wait. A queue of one packet is
//!   not marked by it (A.1, laqm).
//! - A likelihood is not a draw: it accumulates, and a packet is hit when the sum exceeds 1 (A.1, recur).
//! - Overload (A.2): once p_CL has reached 1, lq drops by p_C as well, and once p_C has reached its greatest value,
//!   1/k^2, ECN-capable packets of cq are dropped as others are.
//! - The scheduler is conditional priority (4.2.2): lq goes first, but cq keeps a share by weighted round robin of bytes.
//!
//! A flow whose packets are of both kinds is in both queues, and may be reordered (RFC 9331, B.1).
//!
//! As PIE and Linux, and unlike the pseudocode, p' drops and marks nothing while no more than two packets' worth of bytes
//! wait. The ramp does.

use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::{Ecn, Packet};
use backchannel_core::registry::{Entry, Queueing};
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Policy};
use backchannel_core::Error;
use backchannel_core::{choice, options};

use crate::limit::Limit;
use crate::stamped::Stamped;
use crate::Context;

choice! {
    /// Which packets are L4S.
    enum Classify {
        /// ECT(1) and CE (RFC 9331).
        L4sEct = "l4s-ect",
        /// All that are ECN-capable.
        AnyEct = "any-ect",
    }
}

options! {
    /// Options of the policy.
    #[derive(Copy)]
    struct Parameters {
        limit_packets: usize = 10_000, [Packets 1] "capacity of both queues together";
        buffer_bytes: Option<u64> = ABSENT, [Bytes 1]
            "capacity in bytes of the network layer, in addition to limit_packets; absent: unlimited";
        target_s: Duration = 0.015, [Time 1e-6 to 100] "queueing delay that the controller aims at (A.1)";
        tupdate_s: Duration = 0.016, [Time 0.001 to 1] "Tupdate, the time between two updates of the probability (A.1)";
        alpha: f64 = 0.16, [Number 0 to 1000] "integral gain in Hz (A.1)";
        beta: f64 = 3.2, [Number 0 to 1000] "proportional gain in Hz (A.1)";
        coupling: f64 = 2, [Number 1 to 255] "k, the ratio of p_CL to p', the root of p_C (2.1)";
        min_threshold_s: Duration = 0.0008, [Time 0 to 100]
            "minTh, waiting time from which L4S packets are marked (A.1); must exceed a packet's transmission time";
        range_s: Duration = 0.0004, [Time 0 to 100]
            "range, length of the ramp from no packet to every packet marked (A.1); 0: a step";
        c_protection: f64 = 0.1, [Fraction] "share of the link that cq keeps while lq is never empty (4.2.2)";
        max_packet_bytes: u64 = 1500, [Bytes 1 to 65_535]
            "MTU; with no more than twice as many bytes waiting, p' drops and marks nothing";
        classify: Classify = "l4s-ect", [Choice]
            "packets of lq: l4s-ect, those with ECT(1) or CE (RFC 9331); any-ect, all that are ECN-capable, which \
             senders with ECT(0) alone need";
    }
}

pub(crate) static ENTRY: Entry = Entry::policy(
    "dual-pi2",
    "two coupled queues: L4S packets go first and are marked early, the others are dropped by the square",
    Queueing::CLASSES,
)
.source("RFC 9332")
.options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, _: &Context) -> Result<Box<dyn Policy>, Error> {
    Ok(Box::new(DualPi2::new(Parameters::read(checked))))
}

/// A queue, and the likelihood that it has accumulated.
#[derive(Debug, Default)]
struct Queue {
    packets: Stamped,
    count: f64,
}

impl Queue {
    /// A.1, recur.
    fn recur(&mut self, likelihood: f64) -> bool {
        self.count += likelihood;
        let hits = self.count > 1.0;
        if hits {
            self.count -= 1.0;
        }
        hits
    }
}

/// What changes at run time, beside the queues.
#[derive(Clone, Copy, Debug, Default)]
struct Variables {
    /// p'.
    p: f64,
    prevq: Duration,
    updated: Time,
    /// Bytes of cq's share that it has not used; above 0, it is cq's turn.
    credit: f64,
}

/// The two queues.
struct DualPi2 {
    parameters: Parameters,
    limit: Limit,
    variables: Variables,
    lq: Queue,
    cq: Queue,
}

impl DualPi2 {
    fn new(parameters: Parameters) -> DualPi2 {
        let limit = Limit { limit_packets: parameters.limit_packets, buffer_bytes: parameters.buffer_bytes };
        let (lq, cq) = (Queue::default(), Queue::default());
        DualPi2 { parameters, limit, variables: Variables::default(), lq, cq }
    }

    /// A.1, dualpi2_update, for every Tupdate until `now`.
    fn update(&mut self, now: Time) {
        let Parameters { target_s, tupdate_s, alpha, beta, .. } = self.parameters;
        while self.variables.updated + tupdate_s <= now {
            self.variables.updated += tupdate_s;
            let at = self.variables.updated;
            let curq = self.lq.packets.wait(at).max(self.cq.packets.wait(at));
            let [delay, target, before] = [curq, target_s, self.variables.prevq].map(|time| time.as_secs_f64());
            let p = self.variables.p + alpha * (delay - target) + beta * (delay - before);
            self.variables.p = p.clamp(0.0, 1.0);
            self.variables.prevq = curq;
        }
    }

    /// p', or 0 while no more than two packets' worth of bytes wait.
    fn p(&self) -> f64 {
        if self.backlog().bytes > 2 * self.parameters.max_packet_bytes {
            self.variables.p
        } else {
            0.0
        }
    }

    /// p_C.
    fn p_c(&self) -> f64 {
        self.p().powi(2)
    }

    /// p_CL.
    fn p_cl(&self) -> f64 {
        self.parameters.coupling * self.p()
    }

    /// A.1, laqm: p'_L of a packet that has waited for so long.
    fn laqm(&self, qdelay: Duration) -> f64 {
        let Parameters { min_threshold_s, range_s, .. } = self.parameters;
        if self.lq.packets.len() == 0 || qdelay <= min_threshold_s {
            return 0.0;
        }
        if qdelay >= min_threshold_s + range_s {
            return 1.0;
        }
        (qdelay - min_threshold_s).as_secs_f64() / range_s.as_secs_f64()
    }

    /// Whether lq is next; `None`: no packet waits.
    fn scheduler(&mut self) -> Option<bool> {
        let share = self.parameters.c_protection;
        match (self.lq.packets.peek(0), self.cq.packets.peek(0)) {
            (None, None) => None,
            (Some(_), None) => Some(true),
            (None, Some(_)) => Some(false),
            (Some(l4s), Some(classic)) => {
                let is_l4s = self.variables.credit <= 0.0;
                self.variables.credit +=
                    if is_l4s { share * f64::from(l4s.len()) } else { -(1.0 - share) * f64::from(classic.len()) };
                Some(is_l4s)
            }
        }
    }

    /// A.2: marks or drops an L4S packet, or returns it as it is.
    fn treat_l4s(&mut self, now: Time, mut packet: Packet, waited: Duration, events: &mut Events) -> Option<Packet> {
        let (p_c, p_cl) = (self.p_c(), self.p_cl());
        let is_overloaded = p_cl >= 1.0;
        if is_overloaded && self.lq.recur(p_c) {
            events.record(now, EventKind::DroppedEarly, &packet);
            return None;
        }
        // In overload every packet that is left is marked. What p_CL exceeds 1 by does not accumulate: it would mark
        // packets long after the overload.
        let is_hit = is_overloaded || self.lq.recur(self.laqm(waited).max(p_cl));
        if is_hit && packet.set_congestion_experienced() {
            events.record(now, EventKind::Marked, &packet);
        }
        Some(packet)
    }

    /// A.2: marks or drops a classic packet, or returns it as it is.
    fn treat_classic(&mut self, now: Time, mut packet: Packet, events: &mut Events) -> Option<Packet> {
        let p_c = self.p_c();
        if self.cq.recur(p_c) {
            let is_overloaded = p_c >= self.parameters.coupling.powi(-2);
            if is_overloaded || !packet.set_congestion_experienced() {
                events.record(now, EventKind::DroppedEarly, &packet);
                return None;
            }
            events.record(now, EventKind::Marked, &packet);
        }
        Some(packet)
    }
}

impl Policy for DualPi2 {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        self.update(now);
        let Backlog { packets, bytes } = self.backlog();
        if !self.limit.admits(packets, bytes, &packet) {
            events.record(now, EventKind::DroppedFull, &packet);
            return;
        }
        let is_l4s = match self.parameters.classify {
            Classify::L4sEct => packet.is_l4s(),
            Classify::AnyEct => packet.ecn() != Ecn::NotCapable,
        };
        let queue = if is_l4s { &mut self.lq } else { &mut self.cq };
        queue.packets.push(now, packet);
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        self.update(now);
        while let Some(is_l4s) = self.scheduler() {
            let queue = if is_l4s { &mut self.lq } else { &mut self.cq };
            let (packet, waited) = queue.packets.pop(now)?;
            let packet = if is_l4s {
                self.treat_l4s(now, packet, waited, events)
            } else {
                self.treat_classic(now, packet, events)
            };
            if packet.is_some() {
                return packet;
            }
        }
        None
    }

    fn backlog(&self) -> Backlog {
        [self.lq.packets.backlog(), self.cq.packets.backlog()].into_iter().sum()
    }

    fn peek(&self, place: usize) -> Option<&Packet> {
        match place.checked_sub(self.lq.packets.len()) {
            None => self.lq.packets.peek(place),
            Some(place) => self.cq.packets.peek(place),
        }
    }

    fn take(&mut self, place: usize, instead: Option<Packet>) -> Option<Packet> {
        match place.checked_sub(self.lq.packets.len()) {
            None => self.lq.packets.take(place, instead),
            Some(place) => self.cq.packets.take(place, instead),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;
    use backchannel_core::event::Event;
    use backchannel_core::packet::build::{data, Segment};

    fn dual_pi2() -> DualPi2 {
        DualPi2::new(Parameters::read(&CheckedOptions::check(&ENTRY, &Default::default()).expect("defaults")))
    }

    /// With every ECN-capable packet as L4S.
    fn of_any_ect() -> DualPi2 {
        let queue = dual_pi2();
        DualPi2::new(Parameters { classify: Classify::AnyEct, ..queue.parameters })
    }

    /// A packet of 1500 bytes with ECT(0).
    fn capable(id: u64) -> Packet {
        Segment { id, payload: 1460, ecn: true, ..Segment::default() }.packet()
    }

    /// Queues of so many packets each that arrive at once, with p'.
    fn filled(p: f64, l4s: u64, classic: u64) -> (DualPi2, Events) {
        let (mut queue, mut events) = (of_any_ect(), Events::default());
        (0..l4s).for_each(|id| queue.enqueue(Time::ZERO, capable(id), &mut events));
        (1000..1000 + classic).for_each(|id| queue.enqueue(Time::ZERO, data(id, 1460), &mut events));
        queue.variables.p = p;
        (queue, events)
    }

    /// Shares of the packets that leave, or are dropped, at once: marked, dropped.
    fn shares(queue: &mut DualPi2, events: &mut Events, packets: usize) -> [f64; 2] {
        let before = queue.backlog().packets;
        while before - queue.backlog().packets < packets {
            assert!(queue.dequeue(Time::ZERO, events).is_some());
        }
        [EventKind::Marked, EventKind::DroppedEarly].map(|kind| events.count(kind) as f64 / packets as f64)
    }

    #[test]
    fn the_base_probability_follows_the_slower_queue() {
        let (mut queue, _) = filled(0.1, 0, 3);
        queue.update(at(0.0159));
        assert_eq!(queue.variables.p, 0.1);
        queue.update(at(0.016));
        // The oldest packet has waited for 16 ms, and did not wait before.
        let first = 0.1 + 0.16 * 0.001 + 3.2 * 0.016;
        assert!((queue.variables.p - first).abs() < 1e-12, "{}", queue.variables.p);
        queue.update(at(0.032));
        let second = first + 0.16 * 0.017 + 3.2 * 0.016;
        assert!((queue.variables.p - second).abs() < 1e-12, "{}", queue.variables.p);
        // Both are empty: back by the whole change.
        while queue.dequeue(at(0.032), &mut Events::default()).is_some() {}
        queue.update(at(0.048));
        assert!((queue.variables.p - (second - 0.16 * 0.015 - 3.2 * 0.032)).abs() < 1e-12);
        queue.update(at(1.0));
        assert_eq!(queue.variables.p, 0.0);
    }

    #[test]
    fn the_classic_probability_is_the_square_and_the_coupled_one_k_times() {
        // Whether the sum is just above a whole number is a matter of rounding: one packet of 1000 more or less.
        for (l4s, classic, wanted) in [(0, 2000, [0.0, 0.04]), (2000, 0, [0.4, 0.0])] {
            let (mut queue, mut events) = filled(0.2, l4s, classic);
            let found = shares(&mut queue, &mut events, 1000);
            assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 0.0011), "{found:?}");
        }
    }

    #[test]
    fn l4s_packets_are_marked_by_a_ramp_of_their_own_wait() {
        let (queue, _) = filled(0.0, 3, 0);
        let ms = |ms: f64| Duration::from_secs_f64(ms * 1e-3);
        for (wait, probability) in [(0.0, 0.0), (0.8, 0.0), (0.9, 0.25), (1.0, 0.5), (1.2, 1.0), (9.0, 1.0)] {
            assert!((queue.laqm(ms(wait)) - probability).abs() < 1e-6, "{wait}");
        }
        let step = DualPi2 { parameters: Parameters { range_s: Duration::ZERO, ..queue.parameters }, ..queue };
        assert_eq!([0.8, 0.81].map(|wait| step.laqm(ms(wait))), [0.0, 1.0]);
        let (queue, _) = filled(0.0, 0, 3);
        assert_eq!(queue.laqm(ms(9.0)), 0.0, "no further packet waits");
    }

    #[test]
    fn l4s_packets_go_first_and_classic_ones_keep_their_share() {
        let (mut queue, mut events) = filled(0.0, 400, 400);
        let ids: Vec<_> =
            (0..300).filter_map(|_| queue.dequeue(Time::ZERO, &mut events)).map(|packet| packet.id).collect();
        let classic = ids.iter().filter(|id| **id >= 1000).count();
        assert_eq!((ids[0], classic), (0, 30), "a tenth of the bytes");
        queue.parameters.c_protection = 0.0;
        queue.variables.credit = 0.0;
        let ids: Vec<_> =
            (0..100).filter_map(|_| queue.dequeue(Time::ZERO, &mut events)).map(|packet| packet.id).collect();
        assert!(ids.iter().all(|id| *id < 1000));
    }

    #[test]
    fn overload_drops_l4s_packets_by_the_classic_probability_too() {
        // p_CL = 1 from p' = 1/k on, where p_C = 1/k^2.
        let (mut queue, mut events) = filled(0.49, 2000, 0);
        assert_eq!(shares(&mut queue, &mut events, 1000)[1], 0.0);
        let (mut queue, mut events) = filled(0.6, 2000, 0);
        let [marked, dropped] = shares(&mut queue, &mut events, 1000);
        assert!((dropped - 0.36).abs() < 0.002 && (marked - 0.64).abs() < 0.002, "{marked} {dropped}");
    }

    #[test]
    fn overload_drops_as_many_packets_of_both_queues() {
        let (mut queue, mut events) = filled(0.6, 1000, 1000);
        shares(&mut queue, &mut events, 1000);
        for (left, ids) in [(queue.lq.packets.len(), 0..1000), (queue.cq.packets.len(), 1000..2000)] {
            let is_dropped = |event: &&Event| event.kind == EventKind::DroppedEarly && ids.contains(&event.packet_id);
            let (dropped, served) = (events.list.iter().filter(is_dropped).count(), 1000 - left);
            assert!((dropped as f64 - 0.36 * served as f64).abs() < 2.0, "{dropped} of {served}");
        }
    }

    #[test]
    fn overload_marks_nothing_after_its_end() {
        let (mut queue, mut events) = filled(0.9, 2000, 0);
        shares(&mut queue, &mut events, 500);
        let before = events.count(EventKind::Marked);
        queue.variables.p = 0.0;
        shares(&mut queue, &mut events, 500);
        assert_eq!(events.count(EventKind::Marked), before);
    }

    #[test]
    fn classic_packets_that_are_ecn_capable_are_marked_until_overload() {
        for (p, expected) in [(0.49, [0.24, 0.0]), (0.5, [0.0, 0.25])] {
            let (mut queue, mut events) = (dual_pi2(), Events::default());
            // ECT(0) is not L4S.
            (0..2000).for_each(|id| queue.enqueue(Time::ZERO, capable(id), &mut events));
            assert_eq!(queue.lq.packets.len(), 0);
            queue.variables.p = p;
            let found = shares(&mut queue, &mut events, 1000);
            assert!(found.iter().zip(expected).all(|(found, wanted)| (found - wanted).abs() < 0.002), "{found:?}");
        }
    }

    #[test]
    fn ect_1_and_ce_are_l4s() {
        let (mut queue, mut events) = (dual_pi2(), Events::default());
        let mut marked = capable(1);
        marked.set_congestion_experienced();
        for packet in [marked, capable(2), data(3, 1460)] {
            queue.enqueue(Time::ZERO, packet, &mut events);
        }
        assert_eq!(queue.lq.packets.peek(0).map(|packet| packet.id), Some(1));
        assert_eq!((queue.lq.packets.len(), queue.cq.packets.len()), (1, 2));
    }

    #[test]
    fn with_two_packets_waiting_only_the_ramp_acts() {
        // Overload, but for what waits: 4500 bytes behind the first packet, then 3000.
        let (mut queue, mut events) = filled(1.0, 0, 4);
        let left: Vec<_> =
            std::iter::from_fn(|| queue.dequeue(Time::ZERO, &mut events)).map(|packet| packet.id).collect();
        assert_eq!((left, events.list.len()), (vec![1000, 1001, 1002, 1003], 0), "the sum is 1, and not above");
        let (mut queue, mut events) = filled(1.0, 0, 4);
        queue.cq.count = 1.0;
        let left: Vec<_> =
            std::iter::from_fn(|| queue.dequeue(Time::ZERO, &mut events)).map(|packet| packet.id).collect();
        assert_eq!((left, events.count(EventKind::DroppedEarly)), (vec![1001, 1002, 1003], 1));
        let (mut queue, mut events) = filled(1.0, 3, 0);
        queue.lq.count = 1.0;
        (0..2).for_each(|_| drop(queue.dequeue(at(0.001), &mut events)));
        // Half by the ramp, twice.
        assert_eq!(events.count(EventKind::Marked), 1);
    }
}
