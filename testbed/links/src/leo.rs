//! A satellite in low orbit: a line whose path changes every 15 s.
//!
//! A scheduler of the whole constellation assigns a satellite to each terminal for an epoch of 15 s (Tanveer et al.,
//! "Making Sense of Constellations", CoNEXT Companion 2023; Huston, "A transport protocol's view of Starlink", 2024). At
//! each boundary delay and rate jump, and packets are lost for a moment. Between boundaries the line is point-to-point,
//! with all of its fields; its `changes` are what this kind draws from the run's seed:
//!
//! - the delay of both directions, by the same amount, because the path is the same;
//! - the rate of each direction;
//! - and for `outage`, that every packet is lost which arrives then.
//!
//! The first boundary lies anywhere in the first epoch. Draws do not depend on traffic.

use std::time::Duration;

use backchannel_core::event::Events;
use backchannel_core::options;
use backchannel_core::options::CheckedOptions;
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Physical, When};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::scenario::{Change, DirectionSpec, LinkSpec, Named};
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Delivery, Link, Port, Usage};
use backchannel_core::Error;
use serde_json::json;

use crate::jitter::delay;
use crate::medium::{Direction, Fields};
use crate::point_to_point;
use crate::registry::Context;
use crate::serial::DIRECTION;

options! {
    /// Options of the link.
    struct Options {
        epoch_s: Duration = 15, [Time 0.1 to 3600] "time between two changes of the path";
        delay_spread_s: Duration = 0.01, [Time 0 to 1]
            "each epoch's delay is drawn uniformly within this of the delay, which it must not exceed";
        rate_spread: f64 = 0.3, [Fraction 0 to 0.95]
            "each epoch's rate is drawn uniformly within this share of the rate";
        outage_s: Duration = 0.05, [Time 0 to 10]
            "time at the start of each epoch in which every packet that arrives is lost";
    }
}

pub(crate) static ENTRY: Entry = Entry::link(
    "leo",
    "a low-orbit satellite: a link whose delay and rate change every 15 s, with a short outage",
    Physical { radio: true, probing: None },
)
.source("Tanveer et al. 2023; Huston 2024")
.random(When::Always)
.options(Options::PARAMS);

const FIELDS: Fields = Fields {
    changes: Err("draws its changes from the seed; remove 'changes'"),
    options: Some(&DIRECTION),
    ..Fields::ALL
};

pub(crate) fn build(checked: &CheckedOptions<'_>, spec: &LinkSpec, context: &Context) -> Result<Box<dyn Link>, Error> {
    let options = Options::read(checked);
    if options.outage_s >= options.epoch_s {
        return Err("outage_s must be below epoch_s".into());
    }
    let directions = Direction::of_two_ends(spec, &FIELDS)?;
    for direction in &directions {
        direction.build(|direction| check(direction.spec, &options))?;
    }
    let line = LinkSpec { options: Default::default(), ..spec.clone() };
    let line_options = CheckedOptions::check(&point_to_point::ENTRY, &line.options)?;
    let mut rng = rng::stream(context.seed, &format!("{}/epochs", spec.name));
    let first = options.epoch_s.mul_f64(rng::uniform(&mut rng));
    Ok(Box::new(Leo {
        line: point_to_point::build(&line_options, &line, context)?,
        declared: [spec.forward.clone(), spec.reverse.clone()],
        options,
        next_epoch: Time::ZERO + first,
        rng,
    }))
}

fn check(direction: &DirectionSpec, options: &Options) -> Result<(), Error> {
    if direction.rate_bps.is_none() {
        return Err("a leo link needs a rate".into());
    }
    // In whole nanoseconds: 30 ms are 20 and 10 ms.
    if delay(direction.delay_s)? < delay(direction.jitter_s)? + options.delay_spread_s {
        return Err(format!(
            "the delay of {} s must be at least delay_spread_s and the jitter together, because an epoch's delay is drawn \
             within {} s of it",
            direction.delay_s,
            options.delay_spread_s.as_secs_f64()
        )
        .into());
    }
    Ok(())
}

struct Leo {
    line: Box<dyn Link>,
    /// The directions at the start of the run.
    declared: [DirectionSpec; 2],
    options: Options,
    /// The next boundary that the line does not have yet.
    next_epoch: Time,
    rng: RunRng,
}

impl Leo {
    /// Gives the line the boundaries up to `now`. It takes them at their times, however late this is.
    fn add_epochs(&mut self, now: Time) {
        while self.next_epoch <= now {
            let at = self.next_epoch;
            self.next_epoch = at + self.options.epoch_s;
            let [delay_s, forward, reverse] = [0; 3].map(|_| 2.0 * rng::uniform(&mut self.rng) - 1.0);
            let delay_s = delay_s * self.options.delay_spread_s.as_secs_f64();
            for (port, drawn) in [(0, forward), (1, reverse)] {
                let declared = &self.declared[usize::from(port)];
                let rate_bps = declared.rate_bps.map(|rate| {
                    let drawn = rate as f64 * (1.0 + drawn * self.options.rate_spread);
                    (drawn.round() as u64).max(1)
                });
                let mut change = Change {
                    at_s: 0.0,
                    rate_bps,
                    // At the bound itself, the sum may be a rounding error below the jitter.
                    delay_s: Some((declared.delay_s + delay_s).max(declared.jitter_s)),
                    jitter_s: None,
                    errors: None,
                    queue: None,
                };
                let has_outage = !self.options.outage_s.is_zero();
                let outage = Named { name: "uniform".into(), options: [("probability".into(), json!(1))].into() };
                change.errors = has_outage.then(|| vec![outage]);
                self.line.change(at, port, &change).expect("every epoch within the spreads is possible");
                if has_outage {
                    // A policy that learns of a rate may begin anew, even if it had that rate before.
                    let over =
                        Change { rate_bps: None, delay_s: None, errors: Some(declared.errors.clone()), ..change };
                    self.line.change(at + self.options.outage_s, port, &over).expect("the link was built with them");
                }
            }
        }
    }
}

impl Link for Leo {
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events) {
        self.add_epochs(now);
        self.line.submit(now, port, packet, events);
    }

    fn next_event(&self) -> Option<Time> {
        // An idle line learns of a boundary when the next packet comes. A busy one might deliver earlier because of it.
        self.line.next_event().map(|at| at.min(self.next_epoch))
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events) {
        self.add_epochs(now);
        self.line.poll(now, out, events);
    }

    fn backlog(&self, port: Port) -> Option<Backlog> {
        self.line.backlog(port)
    }

    fn peek(&self, port: Port, place: usize) -> Option<&Packet> {
        self.line.peek(port, place)
    }

    fn usage(&self, port: Port) -> Usage {
        self.line.usage(port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::event::EventKind;
    use backchannel_core::packet::build::data;
    use serde_json::Value;
    use std::sync::{Arc, Mutex};

    const RATE_BPS: f64 = 8e6;

    fn build_link(options: &Value, seed: u64) -> Result<Box<dyn Link>, Error> {
        let way = json!({
            "rate_bps": RATE_BPS as u64, "delay_s": 0.02, "queue": {"name": "droptail", "options": {"limit_packets": 1000}},
        });
        let spec = json!({
            "name": "sky", "kind": "leo", "ends": ["a", "b"], "options": options, "forward": way, "reverse": way,
        });
        crate::testing::build(&serde_json::from_value(spec).unwrap(), seed)
    }

    /// Sends a packet of 1000 bytes every `every_ms` ms in both directions: (port, sent, arrives) of each, in s, and the
    /// number of losses.
    fn carried(options: &Value, seed: u64, seconds: u64, every_ms: u64) -> (Vec<(Port, f64, f64)>, usize) {
        let (mut link, mut events, mut out) = (build_link(options, seed).unwrap(), Events::default(), Vec::new());
        let mut sent = Vec::new();
        for at in (0..seconds * 1000).step_by(every_ms as usize).map(|ms| Time(ms * 1_000_000)) {
            while let Some(due) = link.next_event().filter(|due| *due <= at) {
                link.poll(due, &mut out, &mut events);
            }
            for port in 0..2 {
                link.submit(at, port, data(sent.len() as u64, 960), &mut events);
                sent.push(at);
            }
        }
        while let Some(due) = link.next_event() {
            link.poll(due, &mut out, &mut events);
        }
        let lost = events.count(EventKind::Lost);
        let of =
            |delivery: Delivery| (delivery.port, sent[delivery.packet.id as usize].seconds(), delivery.at.seconds());
        (out.into_iter().map(of).collect(), lost)
    }

    /// Without outage and with a rate that stays, a packet takes 1 ms and the delay of its epoch.
    #[test]
    fn the_delay_is_drawn_anew_at_each_boundary_and_is_that_of_both_directions() {
        let options = json!({"epoch_s": 1, "outage_s": 0, "rate_spread": 0, "delay_spread_s": 0.01});
        let (all, lost) = carried(&options, 3, 60, 20);
        assert_eq!(lost, 0);
        let delays_us = |port: Port| -> Vec<(f64, i64)> {
            let of_port = all.iter().filter(|(to, ..)| *to == port);
            of_port.map(|(_, sent, arrives)| (*sent, ((arrives - sent - 0.001) * 1e6).round() as i64)).collect()
        };
        let (there, back) = (delays_us(1), delays_us(0));
        assert_eq!(there, back);
        let changes: Vec<f64> = there.windows(2).filter(|pair| pair[0].1 != pair[1].1).map(|pair| pair[1].0).collect();
        assert_eq!(changes.len(), 60);
        assert!(changes.windows(2).all(|pair| (pair[1] - pair[0] - 1.0).abs() < 0.021), "{changes:?}");
        let drawn: Vec<i64> = there.iter().map(|(_, delay)| *delay).collect();
        assert!(drawn.iter().all(|delay| (10_000..=30_000).contains(delay)));
        let spread = drawn.iter().max().unwrap() - drawn.iter().min().unwrap();
        // 60 uniform draws span all but a thirtieth of 20 ms on average.
        assert!(spread > 17_000, "{spread}");
        assert_ne!(carried(&options, 4, 60, 20).0, all, "another seed draws others");
    }

    /// A packet of 1000 bytes takes 1 ms at the declared rate.
    #[test]
    fn each_direction_draws_a_rate_of_its_own_within_the_spread() {
        let options = json!({"epoch_s": 1, "outage_s": 0, "rate_spread": 0.5, "delay_spread_s": 0});
        let (all, _) = carried(&options, 3, 60, 20);
        let times = |port: Port| -> Vec<f64> {
            all.iter().filter(|(to, ..)| *to == port).map(|(_, sent, arrives)| arrives - sent - 0.02).collect()
        };
        let (there, back) = (times(1), times(0));
        assert_ne!(there, back);
        for times in [there, back] {
            let rates: Vec<f64> = times.iter().map(|time| 8000.0 / time / RATE_BPS).collect();
            assert!(rates.iter().all(|rate| (0.499..=1.501).contains(rate)));
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            // Five standard deviations of the mean of 60 uniform draws.
            assert!((mean - 1.0).abs() < 5.0 * 0.5 / (3.0f64 * 60.0).sqrt(), "{mean}");
        }
    }

    /// A packet takes 100 ms of the line at 80 kbit/s, so most are sent across a boundary, which may shorten their delay.
    #[test]
    fn a_link_asks_for_its_poll_in_time_although_a_boundary_brings_a_delivery_forward() {
        let way = json!({"rate_bps": 80_000, "delay_s": 0.02, "queue": {"name": "droptail"}});
        let options = json!({"epoch_s": 0.13, "delay_spread_s": 0.02, "rate_spread": 0, "outage_s": 0});
        let spec = json!({
            "name": "sky", "kind": "leo", "ends": ["a", "b"], "options": options, "forward": way, "reverse": way,
        });
        let mut link = crate::testing::build(&serde_json::from_value(spec).unwrap(), 1).unwrap();
        let (mut events, mut out) = (Events::default(), Vec::new());
        for id in 0..100 {
            link.submit(Time(id * 200_000_000), 0, data(id, 960), &mut events);
            while let Some(due) = link.next_event() {
                link.poll(due, &mut out, &mut events);
                assert!(out.drain(..).all(|delivery| delivery.at == due), "packet {id}");
            }
        }
    }

    #[test]
    fn what_arrives_in_the_outage_is_lost_and_nothing_else() {
        let options = json!({"epoch_s": 1, "outage_s": 0.1, "rate_spread": 0, "delay_spread_s": 0});
        let (all, lost) = carried(&options, 3, 60, 20);
        // Five packets of each direction and epoch; the last epoch may be cut.
        assert!((590..=600).contains(&lost), "{lost}");
        assert_eq!(all.len() + lost, 6000);
        let arrivals: Vec<f64> = all.iter().filter(|(to, ..)| *to == 1).map(|(.., arrives)| *arrives).collect();
        let gaps: Vec<f64> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 0.021).collect();
        assert!((59..=60).contains(&gaps.len()) && gaps.iter().all(|gap| (gap - 0.12).abs() < 1e-6), "{gaps:?}");
    }

    /// Notes its changes.
    struct Spy(Arc<Mutex<Vec<(Time, Change)>>>);

    impl Link for Spy {
        fn submit(&mut self, _: Time, _: Port, _: Packet, _: &mut Events) {}
        fn next_event(&self) -> Option<Time> {
            None
        }
        fn poll(&mut self, _: Time, _: &mut Vec<Delivery>, _: &mut Events) {}
        fn backlog(&self, _: Port) -> Option<Backlog> {
            None
        }
        fn usage(&self, _: Port) -> Usage {
            Usage::default()
        }
        fn change(&mut self, now: Time, _: Port, change: &Change) -> Result<(), Error> {
            self.0.lock().expect("one thread").push((now, change.clone()));
            Ok(())
        }
    }

    #[test]
    fn the_end_of_an_outage_changes_nothing_but_the_errors() {
        let direction: DirectionSpec = serde_json::from_value(json!({
            "rate_bps": RATE_BPS as u64, "delay_s": 0.02, "queue": {"name": "droptail"},
        }))
        .expect("a direction");
        let seen = Arc::default();
        let mut link = Leo {
            line: Box::new(Spy(Arc::clone(&seen))),
            declared: [direction.clone(), direction],
            options: Options::read(&CheckedOptions::check(&ENTRY, &Default::default()).expect("defaults")),
            next_epoch: Time::from_seconds(5.0),
            rng: rng::stream(1, "test"),
        };
        link.add_epochs(Time::from_seconds(6.0));
        let changes = seen.lock().expect("one thread");
        let [(begins, begun), (ends, ended), ..] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!((*begins, *ends), (Time::from_seconds(5.0), Time::from_seconds(5.05)));
        assert!(begun.rate_bps.is_some() && begun.delay_s.is_some() && begun.errors.is_some());
        assert_eq!((ended.rate_bps, ended.delay_s), (None, None));
        assert_eq!(ended.errors.as_ref().map(Vec::len), Some(0));
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        for (options, words) in [
            (json!({"outage_s": 1, "epoch_s": 0.5}), "outage_s must be below epoch_s"),
            (json!({"delay_spread_s": 0.021}), "forward: the delay of 0.02 s must be at least delay_spread_s"),
        ] {
            let why = build_link(&options, 1).err().unwrap().to_string();
            assert!(why.contains(words), "{why}");
        }
    }

    /// In binary fractions of a second, 30 ms less 20 ms are below 10 ms.
    #[test]
    fn a_delay_of_just_the_jitter_and_the_spread_is_enough() {
        let way = |jitter_s: f64| json!({"rate_bps": 8_000_000, "delay_s": 0.03, "jitter_s": jitter_s, "queue": {"name": "droptail"}});
        let build = |jitter_s: f64| {
            let spec = json!({
                "name": "sky", "kind": "leo", "ends": ["a", "b"], "options": {"delay_spread_s": 0.01},
                "forward": way(jitter_s), "reverse": way(jitter_s),
            });
            crate::testing::build(&serde_json::from_value(spec).unwrap(), 1).err().map(|why| why.to_string())
        };
        assert_eq!(build(0.02), None);
        assert!(build(0.021).is_some());
    }
}
