//! A wireless LAN of two stations that share one half-duplex medium (ton IV-A: 915 MHz WaveLAN, 2 Mbit/s).
//!
//! One packet is on the air at a time. When the medium becomes idle and both stations have a packet, each is next with
//! probability 1/2, which is the effect of CSMA/CA between two stations that hear each other. A packet takes its bits
//! at the raw rate and a fixed overhead for spacing, backoff, preamble and link header.
//!
//! The default overhead follows from the paper's TCP throughput of at most 1.5 Mbit/s between two neighbours. With
//! segments of 1400 bytes, timestamps and an ack for every third one (4.4BSD with timestamps), three segments and an
//! ack have 17.63 ms of bits. 33 600 bits at 1.5 Mbit/s take 22.4 ms, which leaves 1.192 ms per packet.

use backchannel_core::event::Events;
use backchannel_core::options;
use backchannel_core::options::CheckedOptions;
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Physical, Probing, When};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::scenario::LinkSpec;
use backchannel_core::time::{service_time, Time};
use backchannel_core::traits::{Backlog, Delivery, Link, Policy, Port, Usage};
use backchannel_core::Error;
use std::time::Duration;

use crate::medium::{shared_rate, Direction, Fields, Medium};
use crate::registry::Context;

options! {
    /// Options of the link.
    struct Parameters {
        overhead_s: Duration = 0.001_192, [Time 0 to 0.1]
            "airtime per packet in addition to its bits: spacing, backoff, preamble, link header";
    }
}

/// Spacing, backoff and preamble add up to half of a packet's time.
const PHYSICAL: Physical = Physical { radio: true, probing: Some(Probing { slack: 1.5, shared: true }) };

pub(crate) static ENTRY: Entry = Entry::link(
    "wavelan",
    "wireless LAN: a half-duplex medium that two stations share; both directions have its rate",
    PHYSICAL,
)
.source("ton IV-A")
.random(When::Always)
.options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, spec: &LinkSpec, context: &Context) -> Result<Box<dyn Link>, Error> {
    let directions = Direction::of_two_ends(spec, &Fields::FIXED)?;
    let rate_bps = shared_rate(spec, "both directions share one medium: set forward and reverse to the same rate")?;
    let station = |way: &Direction<'_>| way.build(|way| Medium::new(way, [Some(rate_bps); 2], context));
    Ok(Box::new(Wavelan {
        rate_bps,
        overhead: Parameters::read(checked).overhead_s,
        stations: [station(&directions[0])?, station(&directions[1])?],
        on_air: None,
        idle_since: Time::ZERO,
        rng: rng::stream(context.seed, &format!("{}/contention", spec.name)),
    }))
}

struct Wavelan {
    rate_bps: u64,
    overhead: Duration,
    /// The queue of each station, and the delay and errors of its packets.
    stations: [Medium; 2],
    /// The packet on the air: when it ends, its sender, the packet.
    on_air: Option<(Time, usize, Packet)>,
    /// When the medium last became idle without an eligible packet.
    idle_since: Time,
    rng: RunRng,
}

impl Wavelan {
    /// Advances the medium to `now`.
    fn advance(&mut self, now: Time, events: &mut Events) {
        while let Some(at) = self.next_contention().filter(|at| *at <= now) {
            if let Some((end, from, packet)) = self.on_air.take() {
                self.stations[from].send(end, packet);
            }
            self.contend(at, events);
        }
    }

    /// When the medium next becomes idle, or an idle medium gets a packet that a policy held back.
    fn next_contention(&self) -> Option<Time> {
        match &self.on_air {
            Some((end, _, _)) => Some(*end),
            None => {
                let ready = self.stations.iter().filter_map(|station| station.policy.next_time()).min();
                ready.map(|at| at.max(self.idle_since))
            }
        }
    }

    /// The medium is idle: chooses the next sender.
    fn contend(&mut self, now: Time, events: &mut Events) {
        let waiting =
            [0, 1].map(|station: usize| self.stations[station].policy.next_time().is_some_and(|at| at <= now));
        let first = match waiting {
            [false, false] => {
                self.idle_since = now;
                return;
            }
            [true, false] => 0,
            [false, true] => 1,
            [true, true] => usize::from(rng::uniform(&mut self.rng) < 0.5),
        };
        // If the first policy drops all its packets, the other station sends.
        for from in [first, 1 - first] {
            events.port = from as Port;
            if let Some(packet) = self.stations[from].policy.dequeue(now, events) {
                let time = service_time(u64::from(packet.len()) * 8, self.rate_bps) + self.overhead;
                let usage = &mut self.stations[from].usage;
                // The overhead counts as line bits, as framing does.
                usage.line_bits += (time.as_secs_f64() * self.rate_bps as f64).round() as u64;
                usage.busy += time;
                self.on_air = Some((now + time, from, packet));
                return;
            }
        }
        self.idle_since = now;
    }
}

impl Link for Wavelan {
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events) {
        self.advance(now, events);
        let from = usize::from(port);
        self.stations[1 - from].policy.on_opposite(now, &packet);
        events.port = port;
        self.stations[from].policy.enqueue(now, packet, events);
        if self.on_air.is_none() {
            self.contend(now, events);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let arrivals = self.stations.iter().map(Medium::next_delivery);
        arrivals.chain([self.next_contention()]).flatten().min()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events) {
        let first = out.len();
        self.advance(now, events);
        for (from, station) in self.stations.iter_mut().enumerate() {
            events.port = from as Port;
            station.poll(now, 1 - from as Port, out, events);
        }
        out[first..].sort_by_key(|delivery| delivery.at);
    }

    fn backlog(&self, port: Port) -> Option<Backlog> {
        Some(self.stations[usize::from(port)].policy.backlog())
    }

    fn peek(&self, port: Port, place: usize) -> Option<&Packet> {
        self.stations[usize::from(port)].policy.peek(place)
    }

    fn usage(&self, port: Port) -> Usage {
        self.stations[usize::from(port)].usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::drain_us;
    use backchannel_core::packet::build::data;
    use proptest::prelude::*;
    use serde_json::json;

    fn wavelan(overhead_s: f64, seed: u64) -> Box<dyn Link> {
        let direction = json!({"rate_bps": 2_000_000, "delay_s": 0.001, "queue": {"name": "droptail", "options": {"limit_packets": 100}}});
        let spec = serde_json::from_value(json!({
            "name": "air", "kind": "wavelan", "ends": ["base", "mobile"], "options": {"overhead_s": overhead_s},
            "forward": direction, "reverse": direction,
        }));
        crate::testing::build(&spec.expect("a link"), seed).expect("a good link")
    }

    /// (port, microseconds, id) of everything that comes out.
    fn drain(link: &mut dyn Link) -> Vec<(Port, u64, u64)> {
        drain_us(link, &mut Events::default())
    }

    #[test]
    fn a_packet_takes_its_bits_and_the_overhead_and_the_other_way_waits() {
        let (mut link, mut events) = (wavelan(0.001, 1), Events::default());
        // 1000 bytes at 2 Mbit/s: 4 ms, and 1 ms besides; then 1 ms of propagation.
        link.submit(Time::ZERO, 0, data(1, 960), &mut events);
        link.submit(Time::ZERO, 1, data(2, 960), &mut events);
        assert_eq!(drain(&mut *link), [(1, 6_000, 1), (0, 11_000, 2)]);
        // The millisecond of overhead counts as 2000 bits.
        let used = Usage { packets: 1, bytes: 1000, line_bits: 10_000, busy: Duration::from_millis(5), headers: None };
        assert_eq!((link.usage(0), link.usage(1)), (used, used));
        link.submit(Time(20_000_000), 0, data(3, 960), &mut events);
        drain(&mut *link);
        assert_eq!((link.usage(0).packets, link.usage(1).packets), (2, 1));
    }

    #[test]
    fn stations_with_packets_share_the_medium_evenly() {
        let (mut link, mut events) = (wavelan(0.0, 1), Events::default());
        for id in 0..200 {
            link.submit(Time::ZERO, (id % 2) as Port, data(id, 960), &mut events);
        }
        let first_half = drain(&mut *link).iter().take(100).filter(|one| one.0 == 1).count();
        // Five standard deviations of Binomial(100, 1/2).
        assert!((25..=75).contains(&first_half), "{first_half}");
    }

    #[test]
    fn unequal_rates_and_changes_are_refused_with_the_reason() {
        let base = json!({"rate_bps": 2_000_000, "queue": {"name": "droptail"}});
        let with = |reverse: serde_json::Value| {
            let spec =
                json!({"name": "air", "kind": "wavelan", "ends": ["a", "b"], "forward": base, "reverse": reverse});
            crate::testing::build(&serde_json::from_value(spec).unwrap(), 1).err().unwrap()
        };
        assert!(with(json!({"rate_bps": 1_000_000, "queue": {"name": "droptail"}}))
            .to_string()
            .contains("the same rate"));
        let changing =
            json!({"rate_bps": 2_000_000, "queue": {"name": "droptail"}, "schedule": [{"at_s": 1.0, "delay_s": 0.1}]});
        assert!(with(changing).to_string().contains("no changes over time"));
    }

    proptest! {
        /// Never two packets on the air at once, none lost, order kept within a direction.
        #[test]
        fn one_packet_at_a_time(arrivals in proptest::collection::vec((0u64..50_000, 0u16..2, 20u32..1400), 1..90), seed in 0u64..50) {
            let (mut link, mut events) = (wavelan(0.0005, seed), Events::default());
            let mut sorted = arrivals.clone();
            sorted.sort_unstable();
            for (id, (at, port, size)) in sorted.iter().enumerate() {
                link.submit(Time(at * 1000), *port, data(id as u64, *size), &mut events);
            }
            let out = drain(&mut *link);
            prop_assert_eq!(out.len(), sorted.len());
            let mut ends: Vec<(u64, u64)> = out
                .iter()
                .map(|(_, at, id)| {
                    let bits = u64::from(sorted[*id as usize].2 + 40) * 8;
                    (*at, bits / 2 + 500)
                })
                .collect();
            ends.sort_unstable();
            // Microseconds are rounded down, each by less than one.
            prop_assert!(ends.windows(2).all(|pair| pair[1].0 + 1 >= pair[0].0 + pair[1].1));
            for port in 0..2 {
                let ids: Vec<_> = out.iter().filter(|one| one.0 == port).map(|one| one.2).collect();
                prop_assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
            }
        }
    }
}
