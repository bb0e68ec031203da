//! A point-to-point link. Each direction has a queue policy, serialisation at the line's rate, propagation delay (the two stages of
//! asym 8.1) and error models at the far end.
//!
//! Departures are computed on an ideal timeline: a packet that waited starts when its predecessor ended, however late the driver
//! polls. So the lateness of a real-time driver never accumulates.

use std::collections::VecDeque;
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Given, Param, Preset, Random, Unit};
use backchannel_core::scenario::{Change, DirectionSpec, LinkSpec};
use backchannel_core::time::{service_time, Time};
use backchannel_core::traits::{Delivery, Link, Policy, Port, Usage};
use backchannel_policies::Context;

use crate::device::{Device, Taken};
use crate::far_end::{FarEnd, Flying};
use crate::serial::{self, Transmitter, DIRECTION};

pub(crate) static ENTRY: Entry = Entry {
    kind: "link",
    name: "point-to-point",
    summary: "a line with a rate, a propagation delay, a queue policy and error models per direction",
    source: "asym 8.1",
    random: Random::Never,
    params: &[
        Param::new(
            "framing_bytes",
            Unit::Bytes,
            Preset::Number(0.0),
            "framing overhead in bytes per packet on the line",
        )
        .range(0.0, 1000.0),
        Param::new(
            "one_way",
            Unit::Flag,
            Preset::Flag(false),
            "carry packets forward only, as wireless cable does; packets back take another link (asym 3.1)",
        ),
    ],
};

pub(crate) fn build(given: &Given<'_>, spec: &LinkSpec, seed: u64) -> Result<Box<dyn Link>, String> {
    Ok(Box::new(PointToPoint::new(given, spec, seed)?))
}

/// A link of two independent directions.
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
        self.update_rates(now);
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
        self.update_rates(now);
        if out.len() - first > 1 {
            out[first..].sort_by_key(|delivery| delivery.at);
        }
    }

    fn policy(&self, port: Port) -> Option<&dyn Policy> {
        let line = &self.lines[usize::from(port)];
        line.rate_bps.map(|_| &*line.policy)
    }

    fn usage(&self, port: Port) -> Usage {
        self.lines[usize::from(port)].usage()
    }
}

impl PointToPoint {
    fn new(given: &Given<'_>, spec: &LinkSpec, seed: u64) -> Result<PointToPoint, String> {
        if spec.ends.len() != 2 {
            return Err(format!("a point-to-point link has two ends, not {}", spec.ends.len()));
        }
        let framing = given.count("framing_bytes").unwrap_or(0);
        let line = |name: &str, here: &DirectionSpec, opposite: &DirectionSpec| {
            Line::new(&format!("{}/{name}", spec.name), here, opposite, framing, seed)
                .map_err(|why| format!("{name}: {why}"))
        };
        Ok(PointToPoint {
            one_way: given.flag("one_way"),
            lines: [line("forward", &spec.forward, &spec.reverse)?, line("reverse", &spec.reverse, &spec.forward)?],
        })
    }

    /// After a scheduled change, informs each policy of both rates.
    fn update_rates(&mut self, now: Time) {
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
    /// `None` if packets are sent unchanged.
    transmitter: Option<Box<Transmitter>>,
    policy: Box<dyn Policy>,
    /// The modem's buffer behind the policy, if any.
    device: Option<Box<Device>>,
    schedule: VecDeque<Change>,
    /// The rate has changed since the policies were informed.
    changed: bool,
    /// The packet in transmission and when its last bit leaves.
    sending: Option<(Time, Flying)>,
    /// When the policy last had no packet to send. Packets that it held back are not sent before.
    idle_since: Time,
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
        let mut far_end = FarEnd::new(delay(spec.delay_s)?, &spec.errors, seed, label)?;
        let (transmitter, receiver) = serial::ends(&given, framing)?;
        let device =
            given.count("device_buffer_bytes").filter(|bytes| *bytes > 0).map(|bytes| Box::new(Device::new(bytes)));
        if device.is_some() && spec.rate_bps.is_none() {
            return Err("device_buffer_bytes needs a line with a rate".into());
        }
        far_end.set_receiver(receiver);
        // Invalid changes are rejected now, not in the middle of the run.
        for change in &spec.schedule {
            check_rate(change.rate_bps)?;
            change.delay_s.map(delay).transpose()?;
            change.errors.as_deref().map(|errors| far_end.error_models(errors)).transpose()?;
        }
        Ok(Line {
            rate_bps: spec.rate_bps,
            framing,
            transmitter,
            policy: backchannel_policies::build(&spec.queue.name, &spec.queue.options, &context)?,
            device,
            schedule: spec.schedule.iter().cloned().collect(),
            changed: false,
            sending: None,
            idle_since: Time::ZERO,
            far_end,
            usage: Usage::default(),
        })
    }

    fn submit(&mut self, now: Time, packet: Packet, events: &mut Events) {
        self.advance(now, events);
        if self.rate_bps.is_none() {
            self.usage.packets += 1;
            self.usage.bytes += u64::from(packet.len());
            let (bits, flying) = self.put(packet, true);
            self.usage.line_bits += bits;
            self.far_end.fly_compressed(now, flying);
            return;
        }
        self.policy.enqueue(now, packet, events);
        if self.device.is_some() {
            self.fill_device(now, events);
        } else if self.sending.is_none() {
            self.send_next(now, true, events);
        }
    }

    fn on_opposite(&mut self, now: Time, packet: &Packet, events: &mut Events) {
        // Events of this direction before `now` come first.
        self.advance(now, events);
        self.policy.on_opposite(now, packet);
    }

    /// The end of a transmission is an event only if another packet waits. Otherwise the next call, at the latest its arrival,
    /// finds that it has ended. That saves every second event of a line without a queue.
    fn next_event(&self) -> Option<Time> {
        let mut next = self.far_end.next_event().unwrap_or(Time::MAX);
        if let Some((end, _)) = &self.sending {
            let waiting = match &self.device {
                None => self.policy.len_packets() > 0,
                Some(device) => !device.is_empty(),
            };
            if waiting {
                next = next.min(*end);
            } else if self.far_end.is_clear() {
                next = next.min(*end + self.far_end.delay);
            }
        }
        if self.policy.len_packets() > 0 {
            next = next.min(self.policy_poll_at());
        }
        if let Some(change) = self.schedule.front() {
            next = next.min(Time::from_seconds(change.at_s));
        }
        (next < Time::MAX).then_some(next)
    }

    /// When to poll the policy next, other than at the end of a transmission; [`Time::MAX`]: not before a packet arrives.
    fn policy_poll_at(&self) -> Time {
        let held = || {
            let ready = self.rate_bps.and_then(|_| self.policy.next_time());
            ready.map_or(Time::MAX, |ready| ready.max(self.idle_since))
        };
        match &self.device {
            Some(device) => device.stopped_until().unwrap_or_else(held),
            None if self.sending.is_none() => held(),
            None => Time::MAX,
        }
    }

    fn poll(&mut self, now: Time, to: Port, out: &mut Vec<Delivery>, events: &mut Events) {
        self.advance(now, events);
        self.far_end.poll(now, to, out, events);
    }

    /// Advances transmitter and schedule to `now`.
    fn advance(&mut self, now: Time, events: &mut Events) {
        loop {
            let change = self.schedule.front().map_or(Time::MAX, |change| Time::from_seconds(change.at_s));
            let end = self.sending.as_ref().map_or(Time::MAX, |(end, _)| *end);
            let poll_at = self.policy_poll_at();
            let next = end.min(poll_at);
            if change <= next && change <= now && change < Time::MAX {
                self.change();
            } else if next > now || next == Time::MAX {
                return;
            } else if poll_at <= end {
                match &mut self.device {
                    Some(device) => {
                        device.resume(self.rate_bps.unwrap_or(u64::MAX));
                        self.fill_device(poll_at, events);
                    }
                    // The policy may release a packet that it held back.
                    None => self.send_next(poll_at, true, events),
                }
            } else if let Some((end, flying)) = self.sending.take() {
                self.usage.packets += 1;
                self.usage.bytes += u64::from(flying.packet.len());
                self.far_end.fly_compressed(end, flying);
                self.send_next(end, false, events);
            }
        }
    }

    fn usage(&self) -> Usage {
        let headers = self.transmitter.as_ref().and_then(|near| near.headers(self.far_end.receiver()));
        Usage { headers, ..self.usage }
    }

    /// The bits of a packet on the line, and its form in flight; `idle` if the line was idle until now.
    #[inline]
    fn put(&mut self, packet: Packet, idle: bool) -> (u64, Flying) {
        match &mut self.transmitter {
            None => ((u64::from(packet.len()) + self.framing) * 8, Flying { packet, compressed: None }),
            Some(transmitter) => transmitter.put(packet, idle),
        }
    }

    /// Sends the next packet, if one waits; `idle` if the line was idle until now.
    fn send_next(&mut self, now: Time, idle: bool, events: &mut Events) {
        let Some(rate_bps) = self.rate_bps else { return };
        if let Some(device) = &mut self.device {
            if let Some(Taken { time, bits, flying }) = device.next() {
                self.send(now, time, bits, flying);
            }
        } else if let Some(packet) = self.policy.dequeue(now, events) {
            let (bits, flying) = self.put(packet, idle);
            self.send(now, service_time(bits, rate_bps), bits, flying);
        } else {
            self.idle_since = now;
        }
    }

    fn send(&mut self, now: Time, time: Duration, bits: u64, flying: Flying) {
        self.usage.line_bits += bits;
        self.usage.busy += time;
        self.sending = Some((now + time, flying));
    }

    /// Fills the modem's buffer from the policy.
    fn fill_device(&mut self, now: Time, events: &mut Events) {
        let Some(rate_bps) = self.rate_bps else { return };
        while self.device.as_ref().is_some_and(|device| device.has_room()) {
            let Some(packet) = self.policy.dequeue(now, events) else {
                self.idle_since = now;
                break;
            };
            let (bits, flying) = self.put(packet, self.sending.is_none());
            self.device.as_mut().expect("the device has room").take(now, bits, flying, rate_bps);
            if self.sending.is_none() {
                self.send_next(now, false, events);
            }
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
            self.far_end
                .set_errors(Time::from_seconds(change.at_s), &errors)
                .expect("they were built once, when the link was");
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
mod tests;
