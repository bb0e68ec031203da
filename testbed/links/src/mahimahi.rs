//! A link that follows a recorded trace of delivery opportunities (Netravali et al., "Mahimahi: Accurate
//! Record-and-Replay for HTTP", 2015; mm-link(1)).
//!
//! Each line of a trace is a millisecond at which the link can deliver 1504 bytes. Equal lines are separate
//! opportunities. A packet leaves with the opportunity that carries its last byte. The rest of an opportunity goes to
//! the next packet, or is wasted if none waits. After its last line the trace repeats. Each packet counts 4 bytes more,
//! the header of mm-link's tunnel.

use std::time::Duration;

use backchannel_core::event::Events;
use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, ABSENT, REQUIRED};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Physical};
use backchannel_core::scenario::LinkSpec;
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Delivery, Link, Policy, Port, Usage};
use backchannel_core::Error;

use crate::medium::{Direction, Fields, Medium};
use crate::registry::Context;

pub(crate) static ENTRY: Entry = Entry::link(
    "mahimahi",
    "a link that replays a recorded trace of delivery opportunities per direction, with delay and error models",
    Physical { radio: false, probing: None },
)
.source("mm-link(1)");

options! {
    /// Options of one direction.
    struct Parameters {
        trace: String = REQUIRED, [File]
            "file of delivery opportunities: one millisecond per line, in order, each good for 1504 bytes";
        offset_s: Option<f64> = ABSENT, [Time 0]
            "instant of the trace at which the run starts, in whole milliseconds; absent: at its start";
    }
}

pub(crate) static DIRECTION: Entry = Entry::direction("mahimahi", "options of one direction of a mahimahi link")
    .source("mm-link(1)")
    .options(Parameters::PARAMS);

const FIELDS: Fields = Fields {
    rate: Err("takes its rate from the trace; remove 'rate'"),
    changes: Err("changes with its trace; remove 'changes'"),
    options: Some(&DIRECTION),
    ..Fields::ALL
};

/// Capacity of an opportunity, and overhead of a packet.
const OPPORTUNITY_BYTES: u64 = 1504;
const TUNNEL_HEADER_BYTES: u64 = 4;

pub(crate) fn build(_: &CheckedOptions<'_>, spec: &LinkSpec, context: &Context) -> Result<Box<dyn Link>, Error> {
    let [forward, reverse] = Direction::of_two_ends(spec, &FIELDS)?;
    let traces = [forward.build(trace)?, reverse.build(trace)?];
    let means = traces.each_ref().map(|trace| Some(trace.mean_bps()));
    let [of_forward, of_reverse] = traces;
    let way = |way: &Direction<'_>, trace, rates| {
        Ok::<_, Error>(Way::new(way.build(|way| Medium::new(way, rates, context))?, trace))
    };
    let ways = [way(&forward, of_forward, means)?, way(&reverse, of_reverse, [means[1], means[0]])?];
    Ok(Box::new(Mahimahi { ways }))
}

fn trace(direction: &Direction<'_>) -> Result<Trace, Error> {
    let parameters = Parameters::read(direction.options.as_ref().expect("a mahimahi link has options"));
    let offset_ms = parameters.offset_s.map_or(0, |seconds| (seconds * 1e3).round() as u64);
    Ok(Trace::parse(&parameters.trace)?.starting_at(offset_ms))
}

struct Trace {
    /// In milliseconds, in order, not after the period.
    opportunities: Vec<u64>,
    period_ms: u64,
}

impl Trace {
    fn parse(text: &str) -> Result<Trace, Error> {
        let mut all: Vec<u64> = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let at = line.trim().parse::<u64>().ok().filter(|ms| *ms < 1 << 40);
            let at =
                at.ok_or_else(|| format!("trace: line {}: '{line}' is not a number of milliseconds", number + 1))?;
            if all.last().is_some_and(|last| at < *last) {
                return Err(format!("trace: line {}: {at} ms is before the line above it", number + 1).into());
            }
            all.push(at);
        }
        match all.last() {
            None => Err("trace: it is empty".into()),
            Some(0) => Err("trace: it ends at 0 ms, so its period would be 0".into()),
            Some(&period_ms) => Ok(Trace { opportunities: all, period_ms }),
        }
    }

    /// The trace from `offset_ms` on.
    fn starting_at(mut self, offset_ms: u64) -> Trace {
        let (period, offset) = (self.period_ms, offset_ms % self.period_ms);
        if offset > 0 {
            for at in &mut self.opportunities {
                *at = (*at + period - offset - 1) % period + 1;
            }
            self.opportunities.sort_unstable();
        }
        self
    }

    fn mean_bps(&self) -> u64 {
        (self.opportunities.len() as u64 * OPPORTUNITY_BYTES * 8 * 1000 / self.period_ms).max(1)
    }

    /// Time of an opportunity, numbered through all repetitions.
    fn at(&self, number: u64) -> Time {
        let length = self.opportunities.len() as u64;
        let (round, place) = (number / length, (number % length) as usize);
        Time((round * self.period_ms + self.opportunities[place]).saturating_mul(1_000_000))
    }

    /// The first opportunity later than `now`.
    fn after(&self, now: Time) -> u64 {
        let period = self.period_ms;
        let ms = now.nanos() / 1_000_000;
        // The last opportunity of a round falls on the first millisecond of the next, so start a round earlier.
        let round = (ms / period).saturating_sub(1);
        let mut number = round * self.opportunities.len() as u64;
        let within = ms - round * period;
        number += self.opportunities.partition_point(|at| *at <= within) as u64;
        while self.at(number) <= now {
            number += 1;
        }
        number
    }
}

struct Mahimahi {
    ways: [Way; 2],
}

/// A direction.
struct Way {
    trace: Trace,
    medium: Medium,
    /// Number of the next opportunity.
    next: u64,
    /// The packet in transmission and its bytes left.
    partial: Option<(Packet, u64)>,
    /// Mean time between opportunities.
    spacing: Duration,
}

impl Way {
    fn new(medium: Medium, trace: Trace) -> Way {
        let spacing = Duration::from_millis(trace.period_ms) / trace.opportunities.len() as u32;
        Way { trace, medium, next: 0, partial: None, spacing }
    }

    /// Earliest time at which an opportunity can be used; `None` if nothing waits.
    fn ready_at(&self) -> Option<Time> {
        self.partial.as_ref().map_or_else(|| self.medium.policy.next_time(), |_| Some(Time::ZERO))
    }

    fn advance(&mut self, now: Time, events: &mut Events) {
        while let Some(ready) = self.ready_at() {
            if self.trace.at(self.next) < ready {
                // Opportunities pass unused while the policy holds packets back.
                self.next = self.trace.after(Time(ready.nanos() - 1));
            }
            if self.trace.at(self.next) > now {
                return;
            }
            let at = self.trace.at(self.next);
            self.next += 1;
            let mut left = OPPORTUNITY_BYTES;
            while left > 0 {
                let Some((packet, bytes)) = self.partial.take().or_else(|| {
                    let packet = self.medium.policy.dequeue(at, events)?;
                    let bytes = u64::from(packet.len()) + TUNNEL_HEADER_BYTES;
                    Some((packet, bytes))
                }) else {
                    break;
                };
                let taken = bytes.min(left);
                left -= taken;
                self.medium.usage.line_bits += taken * 8;
                if taken < bytes {
                    self.partial = Some((packet, bytes - taken));
                } else {
                    self.medium.send(at, packet);
                }
            }
            self.medium.usage.busy += self.spacing;
        }
        if self.trace.at(self.next) <= now {
            self.next = self.trace.after(now);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let opportunity = self.ready_at().map(|ready| ready.max(self.trace.at(self.next)));
        [opportunity, self.medium.next_delivery()].into_iter().flatten().min()
    }
}

impl Link for Mahimahi {
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events) {
        for (from, way) in self.ways.iter_mut().enumerate() {
            events.port = from as Port;
            way.advance(now, events);
        }
        self.ways[usize::from(1 - port)].medium.policy.on_opposite(now, &packet);
        events.port = port;
        self.ways[usize::from(port)].medium.policy.enqueue(now, packet, events);
    }

    fn next_event(&self) -> Option<Time> {
        self.ways.iter().filter_map(Way::next_event).min()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events) {
        let first = out.len();
        for (from, way) in self.ways.iter_mut().enumerate() {
            events.port = from as Port;
            way.advance(now, events);
            way.medium.poll(now, 1 - from as Port, out, events);
        }
        out[first..].sort_by_key(|delivery| delivery.at);
    }

    fn backlog(&self, port: Port) -> Option<Backlog> {
        Some(self.ways[usize::from(port)].medium.policy.backlog())
    }

    fn peek(&self, port: Port, place: usize) -> Option<&Packet> {
        self.ways[usize::from(port)].medium.policy.peek(place)
    }

    fn usage(&self, port: Port) -> Usage {
        self.ways[usize::from(port)].medium.usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::drain_us;
    use backchannel_core::packet::build::data;
    use backchannel_core::traits::Backlog;
    use proptest::prelude::*;
    use serde_json::json;

    fn link(trace: &str) -> Result<Box<dyn Link>, Error> {
        link_from(trace, 0.0)
    }

    fn link_from(trace: &str, offset_s: f64) -> Result<Box<dyn Link>, Error> {
        let options = json!({"trace": trace, "offset_s": offset_s});
        let queue = json!({"name": "droptail", "options": {"limit_packets": 1000}});
        let way = json!({"delay_s": 0.0, "queue": queue, "options": options});
        let spec = json!({"name": "lte", "kind": "mahimahi", "ends": ["a", "b"], "forward": way, "reverse": way});
        crate::testing::build(&serde_json::from_value(spec).unwrap(), 1)
    }

    /// Microseconds and id of everything that comes out.
    fn drain(link: &mut dyn Link) -> Vec<(u64, u64)> {
        drain_us(link, &mut Events::default()).into_iter().map(|(_, us, id)| (us, id)).collect()
    }

    #[test]
    fn golden_trace_of_opportunities() {
        let mut link = link("1\n3\n3\n10\n").unwrap();
        let mut events = Events::default();
        // 1000 bytes cost 1004: the first opportunity has 500 left for the second, 1500 - 500 and so on.
        for id in 1..=4 {
            link.submit(Time::ZERO, 0, data(id, 960), &mut events);
        }
        assert_eq!(drain(&mut *link), [(1_000, 1), (3_000, 2), (3_000, 3), (3_000, 4)]);
        // Three opportunities, on average 2.5 ms apart.
        let used = Usage {
            packets: 4,
            bytes: 4000,
            line_bits: 4 * 1004 * 8,
            busy: Duration::from_micros(7500),
            headers: None,
        };
        assert_eq!((link.usage(0), link.usage(1)), (used, Usage::default()));
        // At 4 ms the next is at 10, then at 11: the trace begins again.
        link.submit(Time(4_000_000), 0, data(5, 1460), &mut events);
        link.submit(Time(4_000_000), 0, data(6, 1460), &mut events);
        assert_eq!(drain(&mut *link), [(10_000, 5), (11_000, 6)]);
        // Opportunities at which nothing waits are wasted, those of this instant too.
        link.submit(Time(13_000_000), 0, data(7, 1460), &mut events);
        assert_eq!(drain(&mut *link), [(20_000, 7)]);
    }

    /// A policy's own rate is its direction's mean, the opposite rate that of the other trace: 12.032 and 0.24064
    /// Mbit/s.
    #[test]
    fn each_direction_has_its_own_traces_mean_rate() {
        let (fast, slow) = ("1\n", "50\n");
        let build = |forward: &str, reverse: &str, aq: &str| {
            let way = |name: &str, trace: &str| {
                let queue = json!({"name": if aq == name { "aq" } else { "droptail" }});
                json!({"delay_s": 0.0, "queue": queue, "options": {"trace": trace}})
            };
            let (forward, reverse) = (way("forward", forward), way("reverse", reverse));
            let spec =
                json!({"name": "lte", "kind": "mahimahi", "ends": ["a", "b"], "forward": forward, "reverse": reverse});
            crate::testing::build(&serde_json::from_value(spec).unwrap(), 1)
        };
        // Equation 11 does not hold on a direction 50 times slower than the other. The message has both rates.
        let rates = "the uplink's 240640 bit/s over the downlink's 12032000 bit/s";
        for (forward, reverse, slower) in [(fast, slow, "reverse"), (slow, fast, "forward")] {
            let why = build(forward, reverse, slower).err().expect("equation 11 does not hold");
            assert!(
                why.to_string().contains(&format!("{slower}: policy aq")) && why.to_string().contains(rates),
                "{why}"
            );
            let faster = if slower == "reverse" { "forward" } else { "reverse" };
            assert!(build(forward, reverse, faster).is_ok());
        }
    }

    /// Holds all packets back until one instant.
    struct Held(Time, Vec<Packet>);

    impl Policy for Held {
        fn enqueue(&mut self, _: Time, packet: Packet, _: &mut Events) {
            self.1.insert(0, packet);
        }
        fn dequeue(&mut self, now: Time, _: &mut Events) -> Option<Packet> {
            (now >= self.0).then(|| self.1.pop()).flatten()
        }
        fn next_time(&self) -> Option<Time> {
            (!self.1.is_empty()).then_some(self.0)
        }
        fn backlog(&self) -> Backlog {
            Backlog { packets: self.1.len(), bytes: self.1.iter().map(|packet| u64::from(packet.len())).sum() }
        }
        fn peek(&self, _: usize) -> Option<&Packet> {
            None
        }
        fn take(&mut self, _: usize, _: Option<Packet>) -> Option<Packet> {
            None
        }
    }

    #[test]
    fn each_opportunity_of_the_instant_at_which_packets_are_released_is_used_once() {
        let way = json!({"delay_s": 0.0, "queue": {"name": "droptail"}});
        let spec = serde_json::from_value(way).unwrap();
        let of_lte = Direction { name: "forward", label: "lte".into(), spec: &spec, options: None };
        let medium = Medium::new(&of_lte, [Some(1); 2], &crate::testing::context(1)).unwrap();
        let mut way = Way::new(medium, Trace::parse("1\n3\n3\n5\n").unwrap());
        // Each fills an opportunity.
        let packets = (1..=3).rev().map(|id| data(id, 1460)).collect();
        way.medium.policy = Box::new(Held(Time(3_000_000), packets));
        let (mut events, mut out) = (Events::default(), Vec::new());
        for ms in [1, 3, 5] {
            way.advance(Time(ms * 1_000_000), &mut events);
            way.medium.poll(Time(ms * 1_000_000), 1, &mut out, &mut events);
        }
        let delivered: Vec<_> = out.iter().map(|one| (one.at.nanos() / 1_000_000, one.packet.id)).collect();
        assert_eq!(delivered, [(3, 1), (3, 2), (5, 3)]);
    }

    #[test]
    fn a_run_can_start_within_the_trace_or_after_whole_rounds_of_it() {
        for offset_s in [0.004, 0.014] {
            let mut link = link_from("1\n3\n3\n10\n", offset_s).unwrap();
            let mut events = Events::default();
            for id in 1..=4 {
                link.submit(Time::ZERO, 0, data(id, 1460), &mut events);
            }
            assert_eq!(drain(&mut *link), [(6_000, 1), (7_000, 2), (9_000, 3), (9_000, 4)]);
        }
    }

    #[test]
    fn invalid_traces_are_rejected_with_their_line() {
        assert!(link("1\nx\n").err().unwrap().to_string().contains("line 2"));
        assert!(link("5\n3\n").err().unwrap().to_string().contains("before the line above"));
        assert!(link("").err().unwrap().to_string().contains("it is empty"));
        assert!(link("0\n0\n").err().unwrap().to_string().contains("period would be 0"));
        let most = (1u64 << 40) - 1;
        assert!(link(&most.to_string()).is_ok());
        assert!(link(&(most + 1).to_string()).err().unwrap().to_string().contains("line 1"));
    }

    proptest! {
        /// No opportunity carries more than it can, and nothing is lost, doubled or overtaken.
        #[test]
        fn never_more_than_the_trace_allows(
            steps in proptest::collection::vec(0u64..20, 1..30),
            arrivals in proptest::collection::vec((0u64..400_000, 20u32..1400), 1..60),
        ) {
            let mut at = 0;
            let lines: Vec<u64> = steps.iter().map(|step| { at += step; at }).collect();
            prop_assume!(at > 0);
            let text: Vec<String> = lines.iter().map(u64::to_string).collect();
            let mut link = link(&text.join("\n")).unwrap();
            let mut events = Events::default();
            let mut sorted = arrivals;
            sorted.sort_unstable();
            for (id, (at_us, size)) in sorted.iter().enumerate() {
                link.submit(Time(at_us * 1000), 0, data(id as u64, *size), &mut events);
            }
            let out = drain(&mut *link);
            prop_assert_eq!(out.len(), sorted.len());
            prop_assert!(out.windows(2).all(|pair| pair[0].1 < pair[1].1));
            let trace = Trace::parse(&text.join("\n")).unwrap();
            let (mut bytes, mut number) = (0, 0);
            for (at_us, id) in out {
                bytes += u64::from(sorted[id as usize].1) + 44;
                while trace.at(number) <= Time(at_us * 1000) {
                    number += 1;
                }
                prop_assert!(bytes <= number * OPPORTUNITY_BYTES);
            }
        }
    }
}
