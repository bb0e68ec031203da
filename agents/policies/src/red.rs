//! RED, the gateway of ack congestion control (asym 6.1; Floyd and Jacobson 1993, figure 2).
//!
//! The average queue length decides whether an arriving packet is marked (ECN) or, where marking is off, dropped early:
//!
//! - avg := (1 − w)·avg + w·q at each arrival; after an idle time in which m typical packets could have been sent,
//!   avg := (1 − w)^m·avg;
//! - min <= avg < max: p_b = max_p·(avg − min)/(max − min), p_a = p_b/(1 − count·p_b), count the packets since the last
//!   mark, so that marks are spread evenly;
//! - avg >= max: every packet is marked, and only a full queue drops; so a SYN, which is never ECN-capable, passes. The gentle
//!   variant (Floyd 2000) lets p_b rise from max_p to 1 between max and 2·max instead. With `above_max: drop` the queue counts
//!   as full from there on, as in ns and RFC 2481 (RFC 3168, 7): marks are for the time before it.
//!
//! Acks are candidates like data (asym 6.1), or are left alone, which disables ack congestion control (7.1.3). A full
//! queue drops what arrives (ACC-D) or a random packet that waits (ACC-R, better with lossy streams, 7.1.1 B). Defaults
//! are the thresholds of the paper's simulator.

use backchannel_core::event::{EventKind, Events};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Given, Param, Preset, Unit};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::{service_time, Time};
use backchannel_core::traits::Policy;

use crate::fifo::Fifo;
use crate::limit::{Limit, BUFFER, LIMIT};
use crate::Context;

pub(crate) static ENTRY: Entry = Entry {
    kind: "policy",
    name: "red",
    summary: "random early detection: marks (ECN) or drops by the average queue length, acks too",
    source: "asym 6.1, 7.1.1, 7.1.3; Floyd and Jacobson 1993",
    params: &[
        LIMIT,
        BUFFER,
        Param::new("min_fraction", Unit::Fraction, Preset::Number(0.15), "min threshold, of limit_packets (asym, ns)"),
        Param::new("max_fraction", Unit::Fraction, Preset::Number(0.6), "max threshold, of limit_packets (asym, ns)"),
        Param::new("weight", Unit::Fraction, Preset::Number(0.01), "w of the moving average (asym, ns)"),
        Param::new("max_p", Unit::Fraction, Preset::Number(0.1), "p_b when the average reaches max (asym, ns)"),
        Param::new("gentle", Unit::Flag, Preset::Flag(false), "p_b rises to 1 between max and twice max (Floyd 2000)"),
        Param::new("action", Unit::Choice, Preset::Text("mark"), "mark: set Congestion Experienced; drop: drop early")
            .of(&["mark", "drop"]),
        Param::new(
            "not_capable",
            Unit::Choice,
            Preset::Text("pass"),
            "what happens to a packet chosen for a mark that is not ECN-capable; pass: only a full queue drops (asym 6.1); \
             drop: RFC 3168, 7",
        )
        .of(&["pass", "drop"]),
        Param::new(
            "above_max",
            Unit::Choice,
            Preset::Text("mark"),
            "what marking does when the average has reached max (twice max if gentle); mark: mark all (Floyd and Jacobson 1993); \
             drop: what a full queue does, if anything waits (ns; RFC 3168, 7)",
        )
        .of(&["mark", "drop"]),
        Param::new(
            "victim",
            Unit::Choice,
            Preset::Text("random"),
            "what a full queue drops; tail: what arrives (ACC-D); random: a packet that waits (ACC-R)",
        )
        .of(&["tail", "random"]),
        Param::new(
            "candidates",
            Unit::Choice,
            Preset::Text("all"),
            "which packets are marked or dropped early; data: pure acks are left alone (asym 7.1.3)",
        )
        .of(&["all", "data"]),
        Param::new("acks_first", Unit::Flag, Preset::Flag(false), "pure acks go before everything else (asym 6.5)"),
        Param::new(
            "typical_packet_bytes",
            Unit::Bytes,
            Preset::Number(500.0),
            "size whose transmission time measures how long the queue was idle",
        )
        .at_least(1.0),
    ],
};

pub(crate) fn build(given: &Given<'_>, context: &Context) -> Result<Box<dyn Policy>, String> {
    let number = |name| given.number(name).expect("it has a default");
    let limit = Limit::of(given);
    let settings = Settings {
        limit,
        min: number("min_fraction") * limit.packets as f64,
        max: number("max_fraction") * limit.packets as f64,
        weight: number("weight"),
        max_p: number("max_p"),
        gentle: given.flag("gentle"),
        marking: given.text("action") == Some("mark"),
        sparing_incapable: given.text("not_capable") == Some("pass"),
        full_above_max: given.text("above_max") == Some("drop"),
        random_victim: given.text("victim") == Some("random"),
        sparing_acks: given.text("candidates") == Some("data"),
        acks_first: given.flag("acks_first"),
        typical_s: context.rate_bps.map(|rate| typical_s(number("typical_packet_bytes") as u64, rate)),
        typical_bytes: number("typical_packet_bytes") as u64,
    };
    if settings.min >= settings.max {
        return Err("policy red: min_fraction must be below max_fraction".into());
    }
    Ok(Box::new(Red::new(settings, rng::stream(context.seed, &format!("{}/red", context.label)))))
}

fn typical_s(bytes: u64, rate_bps: u64) -> f64 {
    service_time(bytes * 8, rate_bps).as_secs_f64()
}

/// What RED is told. Thresholds in packets.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What may wait.
    pub limit: Limit,
    /// Average below which nothing is marked.
    pub min: f64,
    /// Average from which everything is marked.
    pub max: f64,
    /// Of the newest sample in the average.
    pub weight: f64,
    /// p_b at `max`.
    pub max_p: f64,
    /// p_b goes on rising up to twice `max`.
    pub gentle: bool,
    /// Mark instead of dropping early.
    pub marking: bool,
    /// Let a packet that cannot be marked pass instead of dropping it.
    pub sparing_incapable: bool,
    /// The queue counts as full when the average has reached the end of the ramp.
    pub full_above_max: bool,
    /// A full queue drops a random packet that waits instead of the one that arrives.
    pub random_victim: bool,
    /// Leave pure acks alone.
    pub sparing_acks: bool,
    /// Pure acks go first.
    pub acks_first: bool,
    /// Seconds that a typical packet takes on the line; `None`: the line has no rate.
    pub typical_s: Option<f64>,
    /// Bytes of it.
    pub typical_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Red {
    settings: Settings,
    average: f64,
    /// Candidates since the last mark; `None`: the average was below min (count = −1).
    count: Option<u32>,
    /// Since when the queue has been empty.
    idle_since: Option<Time>,
    rng: RunRng,
    /// Pure acks, where they go first.
    acks: Fifo,
    others: Fifo,
}

impl Red {
    /// An empty queue that draws from `rng`.
    pub fn new(settings: Settings, rng: RunRng) -> Red {
        Red {
            settings,
            average: 0.0,
            count: None,
            idle_since: Some(Time::ZERO),
            rng,
            acks: Fifo::default(),
            others: Fifo::default(),
        }
    }

    /// The average queue length, in packets.
    pub fn average(&self) -> f64 {
        self.average
    }

    fn update_average(&mut self, now: Time) {
        let w = self.settings.weight;
        match (self.idle_since, self.settings.typical_s) {
            (Some(since), Some(typical_s)) => {
                let m = now.since(since).as_secs_f64() / typical_s;
                self.average *= (1.0 - w).powf(m);
            }
            _ => self.average = (1.0 - w) * self.average + w * self.len_packets() as f64,
        }
    }

    /// Whether the arriving packet is to be marked.
    fn chosen(&mut self) -> bool {
        let Settings { min, max, max_p, gentle, .. } = self.settings;
        let avg = self.average;
        let p_b = if avg < min {
            self.count = None;
            return false;
        } else if avg < max {
            max_p * (avg - min) / (max - min)
        } else if gentle && avg < 2.0 * max {
            max_p + (1.0 - max_p) * (avg - max) / max
        } else {
            1.0
        };
        let count = self.count.map_or(0, |count| count + 1);
        self.count = Some(count);
        let spread = 1.0 - f64::from(count) * p_b;
        let p_a = if spread > p_b { p_b / spread } else { 1.0 };
        // No draw where there is no chance.
        let chosen = p_a >= 1.0 || rng::uniform(&mut self.rng) < p_a;
        if chosen {
            self.count = Some(0);
        }
        chosen
    }

    /// Whether the queue counts as full by its average. One that is empty has no packet to spare, whatever it was.
    fn full_by_average(&self) -> bool {
        let Settings { max, gentle, full_above_max, .. } = self.settings;
        full_above_max && self.len_packets() > 0 && self.average >= if gentle { 2.0 * max } else { max }
    }

    /// Drops a random packet of those that wait.
    fn drop_random(&mut self, now: Time, events: &mut Events) {
        let waiting = self.len_packets();
        let index = rng::below(&mut self.rng, waiting);
        let victim = match index.checked_sub(self.acks.len()) {
            None => self.acks.take(index),
            Some(index) => self.others.take(index),
        };
        events.note(now, EventKind::DroppedFull, &victim.expect("the index is below the length"));
    }

    fn admits(&self, packet: &Packet) -> bool {
        self.settings.limit.admits(self.len_packets(), self.len_bytes(), packet)
    }
}

impl Policy for Red {
    fn enqueue(&mut self, now: Time, mut packet: Packet, events: &mut Events) {
        self.update_average(now);
        let candidate = !(self.settings.sparing_acks && packet.is_pure_ack());
        let full = candidate && self.full_by_average();
        let chosen = candidate && self.chosen();
        let hopeless = !self.settings.limit.admits(0, 0, &packet);
        if hopeless || (!self.settings.random_victim && (full || !self.admits(&packet))) {
            events.note(now, EventKind::DroppedFull, &packet);
            return;
        }
        if full {
            self.drop_random(now, events);
        } else if chosen {
            if self.settings.marking && packet.set_congestion_experienced() {
                events.note(now, EventKind::Marked, &packet);
            } else if !self.settings.marking || !self.settings.sparing_incapable {
                events.note(now, EventKind::DroppedEarly, &packet);
                return;
            }
        }
        while !self.admits(&packet) {
            self.drop_random(now, events);
        }
        self.idle_since = None;
        if self.settings.acks_first && packet.is_pure_ack() {
            self.acks.push(packet);
        } else {
            self.others.push(packet);
        }
    }

    fn dequeue(&mut self, now: Time, _: &mut Events) -> Option<Packet> {
        let packet = self.acks.pop().or_else(|| self.others.pop())?;
        if self.len_packets() == 0 {
            self.idle_since = Some(now);
        }
        Some(packet)
    }

    fn on_rates(&mut self, _: Time, own_bps: Option<u64>, _: Option<u64>) {
        self.settings.typical_s = own_bps.map(|bps| typical_s(self.settings.typical_bytes, bps));
    }

    fn peek(&self) -> Option<&Packet> {
        self.acks.front().or_else(|| self.others.front())
    }

    fn len_packets(&self) -> usize {
        self.acks.len() + self.others.len()
    }

    fn len_bytes(&self) -> u64 {
        self.acks.bytes() + self.others.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, drain, kinds};
    use backchannel_core::packet::build::Segment;
    use backchannel_core::packet::Ecn;

    /// Thresholds of asym's case B queue of 10; an average that follows the queue at once unless a test says otherwise.
    const CASE_B: Settings = Settings {
        limit: Limit { packets: 10, bytes: None },
        min: 1.5,
        max: 6.0,
        weight: 1.0,
        max_p: 0.1,
        gentle: false,
        marking: true,
        sparing_incapable: false,
        full_above_max: false,
        random_victim: false,
        sparing_acks: false,
        acks_first: false,
        typical_s: Some(0.1),
        typical_bytes: 1000,
    };

    fn red(settings: Settings) -> (Red, Events) {
        (Red::new(settings, rng::stream(1, "test")), Events::default())
    }

    fn capable(id: u64, payload: u32) -> Packet {
        Segment { id, payload, ecn: true, ..Segment::default() }.packet()
    }

    #[test]
    fn the_average_follows_the_equation_and_decays_when_idle() {
        let (mut queue, mut events) = red(Settings { weight: 0.5, ..CASE_B });
        for id in 1..=3 {
            queue.enqueue(Time::ZERO, capable(id, 960), &mut events);
        }
        // Samples 0, 1, 2: 0, then 0.5·0 + 0.5·1, then 0.5·0.5 + 0.5·2.
        assert!((queue.average() - 1.25).abs() < 1e-12);
        while queue.dequeue(at(1.0), &mut events).is_some() {}
        queue.enqueue(at(1.2), capable(4, 960), &mut events);
        assert!((queue.average() - 1.25 / 4.0).abs() < 1e-12, "two typical packets passed: {}", queue.average());
    }

    #[test]
    fn from_max_on_every_packet_is_marked_and_none_below_min() {
        let (mut queue, mut events) = red(Settings { max_p: 0.0, ..CASE_B });
        for id in 1..=9 {
            queue.enqueue(Time::ZERO, capable(id, if id % 2 == 0 { 0 } else { 960 }), &mut events);
        }
        // The queue holds 6 when the seventh arrives; acks are marked like data.
        assert_eq!(kinds(&events), [7, 8, 9].map(|id| (id, EventKind::Marked)));
        let experienced: Vec<_> = std::iter::from_fn(|| queue.dequeue(Time::ZERO, &mut events))
            .filter(|packet| packet.ecn() == Ecn::Experienced)
            .map(|packet| packet.id)
            .collect();
        assert_eq!(experienced, [7, 8, 9]);
    }

    #[test]
    fn with_drop_from_max_on_the_queue_counts_as_full_and_nothing_is_marked() {
        for (random_victim, waiting) in [(false, vec![1, 2, 3, 4, 5, 6]), (true, vec![])] {
            let (mut queue, mut events) = red(Settings { max_p: 0.0, full_above_max: true, random_victim, ..CASE_B });
            for id in 1..=9 {
                queue.enqueue(Time::ZERO, capable(id, 960), &mut events);
            }
            // Six wait when the seventh arrives: each that comes costs one, and the queue stays as long as it is.
            assert!(events.list.iter().all(|event| event.kind == EventKind::DroppedFull));
            assert_eq!((events.count(EventKind::DroppedFull), queue.len_packets()), (3, 6));
            if random_victim {
                assert!(drain(&mut queue, &mut events).contains(&9), "the newest comes in, another goes");
            } else {
                assert_eq!(drain(&mut queue, &mut events), waiting);
            }
            // Empty, though the average has not heard of it yet.
            queue.average = 8.0;
            queue.idle_since = None;
            queue.settings.weight = 0.0;
            queue.enqueue(Time::ZERO, capable(10, 960), &mut events);
            assert_eq!(drain(&mut queue, &mut events), [10]);
        }
    }

    #[test]
    fn between_the_thresholds_marks_are_spread_uniformly() {
        // avg stays at 3.75, halfway: p_b = 0.05. Figure 2 counts a packet before it weighs it, so that the first after a
        // mark has p_b/(1 - p_b): distances are uniform on 1..=19, one less than the 1/p_b of the paper's section 7.
        let (mut queue, _) = red(CASE_B);
        queue.average = 3.75;
        let (mut gaps, mut gap) = (Vec::new(), 0u32);
        queue.count = Some(0);
        while gaps.len() < 4000 {
            gap += 1;
            if queue.chosen() {
                gaps.push(gap);
                gap = 0;
            }
        }
        let mean = f64::from(gaps.iter().sum::<u32>()) / gaps.len() as f64;
        assert!((mean - 10.0).abs() < 0.4, "{mean}");
        assert!(gaps.iter().all(|gap| (1..=19).contains(gap)));
        for reached in 1..=19 {
            let share = gaps.iter().filter(|gap| **gap == reached).count() as f64 / gaps.len() as f64;
            assert!((share - 1.0 / 19.0).abs() < 0.02, "{reached}: {share}");
        }
    }

    #[test]
    fn gentle_rises_from_max_p_to_one() {
        let share = |average: f64| {
            let (mut queue, _) = red(Settings { gentle: true, ..CASE_B });
            let mut marks = 0;
            for _ in 0..2000 {
                queue.average = average;
                queue.count = None;
                marks += u32::from(queue.chosen());
            }
            f64::from(marks) / 2000.0
        };
        assert!((share(6.0) - 0.1).abs() < 0.03);
        assert!((share(9.0) - 0.55).abs() < 0.05);
        assert_eq!(share(12.0), 1.0);
    }

    #[test]
    fn what_cannot_be_marked_is_dropped_or_passes() {
        let plain = || Segment { id: 9, payload: 960, ..Segment::default() }.packet();
        for (sparing_incapable, expected) in [(false, vec![(9, EventKind::DroppedEarly)]), (true, vec![])] {
            let (mut queue, mut events) = red(Settings { sparing_incapable, max_p: 0.0, ..CASE_B });
            for id in 1..=6 {
                queue.enqueue(Time::ZERO, capable(id, 960), &mut events);
            }
            queue.enqueue(Time::ZERO, plain(), &mut events);
            assert_eq!(kinds(&events), expected);
        }
    }

    #[test]
    fn with_data_only_acks_are_left_alone() {
        let (mut queue, mut events) = red(Settings { sparing_acks: true, marking: false, max_p: 0.0, ..CASE_B });
        for id in 1..=8 {
            queue.enqueue(Time::ZERO, capable(id, 0), &mut events);
        }
        queue.enqueue(Time::ZERO, capable(9, 960), &mut events);
        assert_eq!(kinds(&events), [(9, EventKind::DroppedEarly)]);
    }

    #[test]
    fn a_full_queue_drops_the_tail_or_a_random_packet() {
        let never = Settings { min: 100.0, max: 200.0, limit: 3.into(), ..CASE_B };
        let (mut queue, mut events) = red(never);
        for id in 1..=4 {
            queue.enqueue(Time::ZERO, capable(id, 0), &mut events);
        }
        assert_eq!(kinds(&events), [(4, EventKind::DroppedFull)]);

        let (mut queue, mut events) = red(Settings { random_victim: true, ..never });
        for id in 1..=303 {
            queue.enqueue(Time::ZERO, capable(id, 0), &mut events);
        }
        assert_eq!(events.count(EventKind::DroppedFull), 300);
        assert_eq!(queue.len_packets(), 3);
        let longest_stay = events.list.windows(2).filter(|pair| pair[0].packet_id > pair[1].packet_id).count();
        assert!(longest_stay > 50, "victims are not drawn from the whole queue: {longest_stay}");
        assert_eq!(queue.peek().map(|packet| packet.id), Some(drain(&mut queue, &mut events)[0]));
    }

    #[test]
    fn with_acks_first_a_marked_ack_still_overtakes() {
        let (mut queue, mut events) = red(Settings { acks_first: true, ..CASE_B });
        for (id, payload) in [(1, 960), (2, 960), (3, 0)] {
            queue.enqueue(Time::ZERO, capable(id, payload), &mut events);
        }
        assert_eq!(drain(&mut queue, &mut events), [3, 1, 2]);
    }
}
