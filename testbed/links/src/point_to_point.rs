//! A point-to-point line, each direction on its own: a queue policy, then serialisation at the line's rate, then
//! propagation delay (asym 8.1's two stages), then error models at the far end.
//!
//! Departures lie on an ideal timeline: a packet that waited starts at the instant its predecessor ended, however late
//! anybody looked, so that errors of a real-time driver never add up.

use std::collections::VecDeque;
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::packet::{Packet, TcpFlags};
use backchannel_core::registry::{Entry, Given, Param, Preset, Unit};
use backchannel_core::scenario::{Change, DirectionSpec, LinkSpec};
use backchannel_core::time::{service_time, Time};
use backchannel_core::traits::{Delivery, Link, Policy, Port, Usage};
use backchannel_policies::Context;

use crate::far_end::FarEnd;

pub(crate) static ENTRY: Entry = Entry {
    kind: "link",
    name: "point-to-point",
    summary: "a line: per direction a rate, a propagation delay, a queue policy and error models",
    source: "asym 8.1",
    params: &[
        Param::new(
            "framing_bytes",
            Unit::Bytes,
            Preset::Number(0.0),
            "bytes on the line for each packet beside the packet itself",
        )
        .range(0.0, 1000.0),
        Param::new(
            "one_way",
            Unit::Flag,
            Preset::Flag(false),
            "forward alone, as wireless cable: what goes back takes another link (asym 3.1)",
        ),
    ],
};

/// Options of one direction.
pub(crate) static DIRECTION: Entry = Entry {
    kind: "direction",
    name: "point-to-point",
    summary: "options of one direction of a point-to-point line",
    source: "asym 4.2.1, 7.1; RFC 1144",
    params: &[Param::new(
        "header_compression",
        Unit::Choice,
        Preset::Text("none"),
        "cslip: 40 bytes of TCP and IP header take 6 on the line, 52 take 18 (options are not compressed)",
    )
    .of(&["none", "cslip"])],
};

/// What RFC 1144 saves on each TCP header, by the papers' sizes (asym 4.2.1): 40 bytes become 6.
const CSLIP_SAVES: u64 = 34;

pub(crate) fn build(given: &Given<'_>, spec: &LinkSpec, seed: u64) -> Result<Box<dyn Link>, String> {
    if spec.ends.len() != 2 {
        return Err(format!("a point-to-point link has two ends, not {}", spec.ends.len()));
    }
    let framing = given.count("framing_bytes").unwrap_or(0);
    let line = |name: &str, here: &DirectionSpec, opposite: &DirectionSpec| {
        Line::new(&format!("{}/{name}", spec.name), here, opposite, framing, seed)
            .map_err(|why| format!("{name}: {why}"))
    };
    Ok(Box::new(PointToPoint {
        one_way: given.flag("one_way"),
        lines: [line("forward", &spec.forward, &spec.reverse)?, line("reverse", &spec.reverse, &spec.forward)?],
    }))
}

/// See the module.
pub struct PointToPoint {
    one_way: bool,
    lines: [Line; 2],
}

impl Link for PointToPoint {
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events) {
        if self.one_way && port == 1 {
            events.port = port;
            events.note(now, EventKind::Lost, &packet);
            return;
        }
        events.port = 1 - port;
        self.lines[usize::from(1 - port)].on_opposite(now, &packet, events);
        events.port = port;
        self.lines[usize::from(port)].submit(now, packet, events);
        self.tell_rates(now);
    }

    fn next_event(&self) -> Option<Time> {
        match (self.lines[0].next_event(), self.lines[1].next_event()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events) {
        let first = out.len();
        for (from, line) in self.lines.iter_mut().enumerate() {
            events.port = from as Port;
            line.poll(now, 1 - from as Port, out, events);
        }
        self.tell_rates(now);
        if out.len() - first > 1 {
            out[first..].sort_by_key(|delivery| delivery.at);
        }
    }

    fn policy(&self, port: Port) -> Option<&dyn Policy> {
        let line = &self.lines[usize::from(port)];
        line.rate_bps.map(|_| &*line.policy)
    }

    fn usage(&self, port: Port) -> Usage {
        self.lines[usize::from(port)].usage
    }
}

impl PointToPoint {
    /// After a scheduled change each queue hears of both rates.
    fn tell_rates(&mut self, now: Time) {
        if self.lines.iter_mut().any(|line| std::mem::take(&mut line.changed)) {
            let rates = [self.lines[0].rate_bps, self.lines[1].rate_bps];
            for (from, line) in self.lines.iter_mut().enumerate() {
                line.policy.on_rates(now, rates[from], rates[1 - from]);
            }
        }
    }
}

/// One direction.
struct Line {
    rate_bps: Option<u64>,
    framing: u64,
    compressing: bool,
    policy: Box<dyn Policy>,
    schedule: VecDeque<Change>,
    /// Its rate has, since the queues last heard of it.
    changed: bool,
    /// The packet in transmission and when its last bit leaves.
    sending: Option<(Time, Packet)>,
    far_end: FarEnd,
    usage: Usage,
}

impl Line {
    fn new(
        label: &str,
        spec: &DirectionSpec,
        opposite: &DirectionSpec,
        framing: u64,
        seed: u64,
    ) -> Result<Line, String> {
        check_rate(spec.rate_bps)?;
        let given = Given::check(&DIRECTION, &spec.options)?;
        let context =
            Context { seed, label: label.to_owned(), rate_bps: spec.rate_bps, opposite_rate_bps: opposite.rate_bps };
        for pair in spec.schedule.windows(2) {
            if pair[1].at_s < pair[0].at_s {
                return Err(format!(
                    "its changes are not in order of time: {} s follows {} s",
                    pair[1].at_s, pair[0].at_s
                ));
            }
        }
        let far_end = FarEnd::new(delay(spec.delay_s)?, &spec.errors, seed, label)?;
        // What a change asks for is refused now, not in the middle of a run.
        for change in &spec.schedule {
            check_rate(change.rate_bps)?;
            change.delay_s.map(delay).transpose()?;
            change.errors.as_deref().map(|errors| far_end.error_models(errors)).transpose()?;
        }
        Ok(Line {
            rate_bps: spec.rate_bps,
            framing,
            compressing: given.text("header_compression") == Some("cslip"),
            policy: backchannel_policies::build(&spec.queue.name, &spec.queue.options, &context)?,
            schedule: spec.schedule.iter().cloned().collect(),
            changed: false,
            sending: None,
            far_end,
            usage: Usage::default(),
        })
    }

    fn submit(&mut self, now: Time, packet: Packet, events: &mut Events) {
        self.advance(now, events);
        if self.rate_bps.is_none() {
            self.usage.packets += 1;
            self.usage.bytes += u64::from(packet.len());
            self.usage.line_bits += self.line_bits(&packet);
            self.far_end.fly(now, packet);
            return;
        }
        self.policy.enqueue(now, packet, events);
        if self.sending.is_none() {
            self.send_next(now, events);
        }
    }

    fn on_opposite(&mut self, now: Time, packet: &Packet, events: &mut Events) {
        // What it sees follows what its own queue did before.
        self.advance(now, events);
        self.policy.on_opposite(now, packet);
    }

    /// The end of a transmission is an event only where another packet waits for it: else whatever comes next, its
    /// arrival at the latest, finds that it has ended. That saves every second event of a line without a queue.
    fn next_event(&self) -> Option<Time> {
        let mut next = self.far_end.next_event().unwrap_or(Time::MAX);
        if let Some((end, _)) = &self.sending {
            if self.policy.len_packets() > 0 {
                next = next.min(*end);
            } else if self.far_end.is_clear() {
                next = next.min(*end + self.far_end.delay);
            }
        }
        if let Some(change) = self.schedule.front() {
            next = next.min(Time::from_seconds(change.at_s));
        }
        (next < Time::MAX).then_some(next)
    }

    fn poll(&mut self, now: Time, to: Port, out: &mut Vec<Delivery>, events: &mut Events) {
        self.advance(now, events);
        self.far_end.poll(now, to, out, events);
    }

    /// Lets the transmitter and the schedule work up to `now`.
    fn advance(&mut self, now: Time, events: &mut Events) {
        loop {
            let change = self.schedule.front().map_or(Time::MAX, |change| Time::from_seconds(change.at_s));
            let end = self.sending.as_ref().map_or(Time::MAX, |(end, _)| *end);
            if change <= end && change <= now && change < Time::MAX {
                self.change();
            } else if end <= now && end < Time::MAX {
                let (end, packet) = self.sending.take().expect("its end was seen");
                self.usage.packets += 1;
                self.usage.bytes += u64::from(packet.len());
                self.far_end.fly(end, packet);
                self.send_next(end, events);
            } else {
                return;
            }
        }
    }

    /// Bits that a packet takes on the line. Sizes only: the state of a real decompressor, which a loss puts out of step,
    /// is not modelled, as in the papers.
    fn line_bits(&self, packet: &Packet) -> u64 {
        let plain = TcpFlags::SYN | TcpFlags::FIN | TcpFlags::RST;
        let saved = match packet.tcp() {
            // RFC 1144 sends the segments that open or close a connection as they are.
            Some(tcp) if self.compressing && !tcp.flags.any(plain) => CSLIP_SAVES,
            _ => 0,
        };
        (u64::from(packet.len()) - saved + self.framing) * 8
    }

    fn send_next(&mut self, now: Time, events: &mut Events) {
        let Some(rate_bps) = self.rate_bps else { return };
        if let Some(packet) = self.policy.dequeue(now, events) {
            let bits = self.line_bits(&packet);
            let time = service_time(bits, rate_bps);
            self.usage.line_bits += bits;
            self.usage.busy += time;
            self.sending = Some((now + time, packet));
        }
    }

    fn change(&mut self) {
        let Some(change) = self.schedule.pop_front() else { return };
        if let Some(rate_bps) = change.rate_bps {
            self.rate_bps = Some(rate_bps);
            self.changed = true;
        }
        if let Some(delay_s) = change.delay_s {
            self.far_end.delay = Duration::from_secs_f64(delay_s);
        }
        if let Some(errors) = change.errors {
            self.far_end.set_errors(&errors).expect("they were built once, when the link was");
        }
    }
}

pub(crate) fn check_rate(rate_bps: Option<u64>) -> Result<(), String> {
    match rate_bps {
        Some(0) => Err("a rate of 0 bit/s carries nothing; leave it out for a line without a rate".into()),
        _ => Ok(()),
    }
}

pub(crate) fn delay(seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("a delay of {seconds} s is not possible"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::{ack, data, Segment};
    use proptest::prelude::*;
    use serde_json::json;

    fn spec(forward: serde_json::Value) -> LinkSpec {
        let reverse = json!({"rate_bps": 28_800, "delay_s": 0.05, "queue": {"name": "droptail", "options": {"limit_packets": 10}}});
        serde_json::from_value(json!({
            "name": "line", "kind": "point-to-point", "ends": ["a", "b"], "forward": forward, "reverse": reverse,
        }))
        .expect("a link")
    }

    fn ten_megabit(extra: serde_json::Value) -> LinkSpec {
        let mut forward = json!({"rate_bps": 10_000_000, "delay_s": 0.005, "queue": {"name": "droptail"}});
        forward.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        spec(forward)
    }

    /// Polls until nothing is left; (port, ns, id) of each delivery.
    fn drain(link: &mut dyn Link, events: &mut Events) -> Vec<(Port, u64, u64)> {
        let mut all = Vec::new();
        while let Some(at) = link.next_event() {
            let mut out = Vec::new();
            link.poll(at, &mut out, events);
            all.extend(out.into_iter().map(|delivery| (delivery.port, delivery.at.nanos(), delivery.packet.id)));
        }
        all
    }

    #[test]
    fn a_packet_that_is_held_back_is_overtaken_and_a_duplicate_follows_at_once() {
        let errors = |name, options| json!({"errors": [{"name": name, "options": options}]});
        let orders = |extra: serde_json::Value| {
            let mut link = crate::build(&ten_megabit(extra), 3).unwrap();
            let mut events = Events::default();
            for id in 0..200 {
                link.submit(Time(id * 1_000_000), 0, data(id, 960), &mut events);
            }
            (drain(&mut *link, &mut events), events)
        };
        let (plain, _) = orders(json!({}));
        let (reordered, events) = orders(errors("reorder", json!({"probability": 0.2, "delay_s": 0.01})));
        let held = events.count(EventKind::Reordered);
        assert!((20..60).contains(&held), "{held}");
        assert!(reordered.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        assert!(reordered.windows(2).any(|pair| pair[0].2 > pair[1].2));
        let on_time = reordered.iter().filter(|one| plain.contains(one)).count();
        assert_eq!(on_time, 200 - held);
        let (doubled, events) = orders(errors("duplicate", json!({"probability": 0.2})));
        assert_eq!(doubled.len(), 200 + events.count(EventKind::Duplicated));
        assert!(doubled.len() > 220);
    }

    #[test]
    fn packets_come_out_after_their_bits_and_the_delay() {
        let mut link = crate::build(&ten_megabit(json!({})), 1).unwrap();
        let mut events = Events::default();
        link.submit(Time::ZERO, 0, data(1, 960), &mut events);
        link.submit(Time::ZERO, 0, data(2, 960), &mut events);
        link.submit(Time::ZERO, 1, ack(9), &mut events);
        // 8000 bits at 10 Mbit/s are 0.8 ms; 320 bits at 28.8 kbit/s are 11.111 ms.
        assert_eq!(drain(&mut *link, &mut events), [(1, 5_800_000, 1), (1, 6_600_000, 2), (0, 61_111_112, 9)]);
        assert_eq!(
            link.usage(0),
            Usage { packets: 2, bytes: 2000, line_bits: 16_000, busy: Duration::from_micros(1600) }
        );
    }

    #[test]
    fn a_late_look_does_not_shift_what_follows() {
        let mut link = crate::build(&ten_megabit(json!({})), 1).unwrap();
        let (mut events, mut out) = (Events::default(), Vec::new());
        for id in 0..10 {
            link.submit(Time::ZERO, 0, data(id, 960), &mut events);
        }
        link.poll(Time(9_000_000), &mut out, &mut events);
        assert_eq!(out.len(), 5);
        let rest = drain(&mut *link, &mut events);
        assert_eq!(rest.last(), Some(&(1, 13_000_000, 9)));
    }

    #[test]
    fn framing_takes_time_and_a_line_without_rate_only_delays() {
        let mut framed = ten_megabit(json!({}));
        framed.options.insert("framing_bytes".into(), json!(250));
        let mut link = crate::build(&framed, 1).unwrap();
        let mut events = Events::default();
        link.submit(Time::ZERO, 0, data(1, 960), &mut events);
        assert_eq!(drain(&mut *link, &mut events), [(1, 6_000_000, 1)]);

        let mut link = crate::build(&spec(json!({"delay_s": 0.02, "queue": {"name": "droptail"}})), 1).unwrap();
        link.submit(Time::ZERO, 0, data(1, 960), &mut events);
        link.submit(Time(5), 0, data(2, 960), &mut events);
        assert_eq!(drain(&mut *link, &mut events), [(1, 20_000_000, 1), (1, 20_000_005, 2)]);
    }

    #[test]
    fn a_one_way_line_takes_nothing_at_its_far_end() {
        let mut one_way = ten_megabit(json!({}));
        one_way.options.insert("one_way".into(), json!(true));
        let mut link = crate::build(&one_way, 1).unwrap();
        let mut events = Events::default();
        link.submit(Time::ZERO, 1, ack(1), &mut events);
        assert_eq!(events.count(EventKind::Lost), 1);
        link.submit(Time::ZERO, 0, data(2, 960), &mut events);
        assert_eq!(drain(&mut *link, &mut events).len(), 1);
    }

    #[test]
    fn compressed_headers_take_six_bytes_and_a_syn_all_of_its() {
        let reverse =
            json!({"rate_bps": 28_800, "queue": {"name": "droptail"}, "options": {"header_compression": "cslip"}});
        let mut link = crate::build(&spec(reverse), 1).unwrap();
        let mut events = Events::default();
        // 40 bytes of ack, 1000 of data, 40 of SYN.
        for packet in [ack(1), data(2, 960), Segment { id: 3, flags: TcpFlags::SYN, ..Segment::default() }.packet()] {
            link.submit(Time::ZERO, 0, packet, &mut events);
        }
        drain(&mut *link, &mut events);
        assert_eq!(link.usage(0).line_bits, (6 + 966 + 40) * 8);
        let bad = json!({"queue": {"name": "droptail"}, "options": {"header_compression": "vj"}});
        assert!(crate::build(&spec(bad), 1).err().expect("refused").contains("header_compression"));
    }

    #[test]
    fn a_change_acts_from_the_next_packet_on_and_keeps_order() {
        let schedule = json!({"schedule": [{"at_s": 0.0004, "rate_bps": 1_000_000, "delay_s": 0.001}]});
        let mut link = crate::build(&ten_megabit(schedule), 1).unwrap();
        let mut events = Events::default();
        link.submit(Time::ZERO, 0, data(1, 960), &mut events);
        link.submit(Time::ZERO, 0, data(2, 85), &mut events);
        // The first keeps 0.8 ms; the second takes 1 ms at the new rate.
        assert_eq!(drain(&mut *link, &mut events), [(1, 1_800_000, 1), (1, 2_800_000, 2)]);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_place() {
        let refused = |spec: &LinkSpec| crate::build(spec, 1).err().expect("refused");
        assert_eq!(
            refused(&ten_megabit(json!({"rate_bps": 0}))),
            "link 'line': forward: a rate of 0 bit/s carries nothing; leave it out for a line without a rate"
        );
        assert!(refused(&ten_megabit(json!({"delay_s": -1.0}))).contains("a delay of -1 s is not possible"));
        assert!(refused(&ten_megabit(json!({"errors": [{"name": "gremlins"}]}))).contains("'gremlins'"));
        let later = json!({"schedule": [{"at_s": 1.0, "errors": [{"name": "uniform"}]}]});
        assert!(refused(&ten_megabit(later)).contains("'probability' must be given"));
    }

    proptest! {
        /// Whatever is submitted when: nothing vanishes unsaid, order holds, no packet beats the line's rate.
        #[test]
        fn a_line_conserves_orders_and_paces(gaps in proptest::collection::vec((0u64..2_000_000, 1u32..1460), 1..120), loss in 0.0f64..0.5) {
            let extra = json!({"errors": [{"name": "uniform", "options": {"probability": loss}}]});
            let mut link = crate::build(&ten_megabit(extra), 7).unwrap();
            let (mut events, mut out, mut now) = (Events::default(), Vec::new(), 0);
            for (id, (gap, payload)) in gaps.iter().enumerate() {
                now += gap;
                link.submit(Time(now), 0, data(id as u64, *payload), &mut events);
                link.poll(Time(now), &mut out, &mut events);
            }
            while let Some(at) = link.next_event() {
                link.poll(at, &mut out, &mut events);
            }
            prop_assert_eq!(gaps.len(), out.len() + events.list.len());
            for pair in out.windows(2) {
                prop_assert!(pair[0].packet.id < pair[1].packet.id);
                let least = service_time(u64::from(pair[1].packet.len()) * 8, 10_000_000);
                prop_assert!(pair[1].at - pair[0].at >= least);
            }
        }
    }
}
