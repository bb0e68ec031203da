//! One direction of a point-to-point link.
//!
//! A line computes the time of its next step and of its next event once, after a change, because drivers and the other
//! direction ask for them several times per event.

use std::collections::VecDeque;
use std::time::Duration;

use backchannel_core::event::Events;
use backchannel_core::packet::Packet;
use backchannel_core::scenario::{Change, DirectionSpec, Named};
use backchannel_core::time::{service_time_ns, Time};
use backchannel_core::traits::{Delivery, Policy, Port, Usage};
use backchannel_core::Error;
use backchannel_policies::Context as QueueContext;

use crate::clock::Clock;
use crate::device::{Device, Taken};
use crate::jitter::delay;
use crate::medium::{check_rate, BuildPolicy, Direction, Medium};
use crate::registry::Context;
use crate::serial::{self, Receiver, SentPacket, Transmitter};

/// What [`Line::advance`] has done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Advanced {
    Nothing,
    /// A transmission has ended, and the line is idle.
    ToIdle,
    /// Steps after which `wake_at` may be another.
    BySteps,
}

/// One direction of a point-to-point link.
pub(super) struct Line<P> {
    pub(super) rate_bps: Option<u64>,
    framing: u64,
    /// `None` if packets are sent unchanged.
    transmitter: Option<Box<Transmitter>>,
    /// The queue, the far end, and the usage without the time that the line was busy.
    pub(super) medium: Medium<P, Receiver>,
    /// Builds the policies of changes.
    build: BuildPolicy<P>,
    context: QueueContext,
    /// Policies that replaced another one.
    replaced: u32,
    /// The modem's buffer behind the policy, if any.
    device: Option<Box<Device>>,
    /// Of a host that emulates the line; `None`: one of any resolution.
    clock: Option<Clock>,
    schedule: VecDeque<Change>,
    /// When the schedule's next change is due.
    change_at: Time,
    /// The rate has changed since the policies were informed.
    pub(super) changed: bool,
    /// When the last bit of the packet in transmission leaves; [`Time::MAX`]: the line is idle. The packet itself is
    /// the last one in flight.
    sending_until: Time,
    /// Its network-layer length.
    sending_bytes: u32,
    /// Bits of the packet sent last and the time that they took at the present rate: most packets of a direction have
    /// one length.
    last_service: (u64, u64),
    /// When the policy last had no packet to send. Packets that it held back are not sent before.
    idle_since: Time,
    busy_ns: u64,
    /// When [`Line::advance`] has something to do; [`Time::MAX`]: not before a packet arrives.
    advance_at: Time,
    /// When [`Line::poll`] is next due; [`Time::MAX`]: not before a packet arrives.
    pub(super) wake_at: Time,
}

impl<P: Policy> Line<P> {
    pub(super) fn new(
        direction: &Direction<'_>,
        opposite_rate_bps: Option<u64>,
        framing: u64,
        context: &Context,
        build: BuildPolicy<P>,
    ) -> Result<Line<P>, Error> {
        let spec = direction.spec;
        check_rate(spec.rate_bps)?;
        let parameters = serial::Parameters::read(direction.options.as_ref().expect("a serial line has options"));
        for pair in spec.schedule.windows(2) {
            if pair[1].at_s < pair[0].at_s {
                return Err(format!(
                    "its changes are not in order of time: {} s follows {} s",
                    pair[1].at_s, pair[0].at_s
                )
                .into());
            }
        }
        let of_queue = context.of_queue(&direction.label, [spec.rate_bps, opposite_rate_bps]);
        let mut medium = Medium::with(direction, build(&spec.queue, &of_queue)?, context)?;
        let (transmitter, receiver) = serial::ends(&parameters, framing)?;
        let buffer_bytes = parameters.device_buffer_bytes;
        let device = (buffer_bytes > 0).then(|| Box::new(Device::new(buffer_bytes)));
        if device.is_some() && spec.rate_bps.is_none() {
            return Err("device_buffer_bytes needs a link with a rate".into());
        }
        let clock = Clock::new(parameters.clock_tick_s);
        if let Some(clock) = clock {
            check_clock(spec, device.is_some())?;
            medium.far_end.set_delay(Some(rounded(clock, delay(spec.delay_s)?)), None, None);
        }
        medium.far_end.set_decoder(receiver);
        // Invalid changes are rejected now, not in the middle of the run.
        for change in &spec.schedule {
            check_rate(change.rate_bps)?;
            change.errors.as_deref().map(|errors| medium.far_end.error_models(errors)).transpose()?;
        }
        check_queues(build, &of_queue, spec.rate_bps, &spec.schedule)?;
        Ok(Line {
            rate_bps: spec.rate_bps,
            framing,
            transmitter,
            medium,
            build,
            context: of_queue,
            replaced: 0,
            device,
            clock,
            schedule: spec.schedule.iter().cloned().collect(),
            change_at: next_change(&spec.schedule),
            changed: false,
            sending_until: Time::MAX,
            sending_bytes: 0,
            last_service: (0, 0),
            idle_since: Time::ZERO,
            busy_ns: 0,
            advance_at: next_change(&spec.schedule),
            wake_at: next_change(&spec.schedule),
        })
    }

    pub(super) fn submit(&mut self, now: Time, packet: Packet, events: &mut Events) {
        self.advance(now, events);
        if self.rate_bps.is_none() {
            self.medium.usage.packets += 1;
            self.medium.usage.bytes += u64::from(packet.len());
            let (bits, in_flight) = self.put(packet, true);
            self.medium.usage.line_bits += bits;
            self.medium.far_end.fly(now, in_flight);
        } else if self.is_idle() && self.device.is_none() {
            let next = self.medium.policy.pass(now, packet, events);
            self.send_packet(now, next, true);
        } else {
            self.medium.policy.enqueue(now, packet, events);
            if self.device.is_some() {
                self.fill_device(now, events);
            }
        }
        self.update_times();
    }

    pub(super) fn on_opposite(&mut self, now: Time, packet: &Packet, events: &mut Events) {
        // Events of this direction before `now` come first. The end of a transmission behind which nothing waits
        // changes neither time.
        let may_send = self.advance(now, events) == Advanced::BySteps;
        self.medium.policy.on_opposite(now, packet);
        // It may have changed when the policy releases what it holds back.
        if may_send || self.medium.policy.len_packets() > 0 {
            self.update_times();
        }
    }

    /// Updates `advance_at` and `wake_at`. Called after every change of state.
    ///
    /// The end of a transmission is an event only if another packet waits. Otherwise the next call, at the latest its
    /// arrival, finds that it has ended. That saves every second event of a line without a queue.
    #[inline(always)]
    pub(super) fn update_times(&mut self) {
        let mut advance_at = self.change_at.min(self.sending_until);
        let mut wake_at = self.medium.far_end.next_delivery().min(self.change_at);
        let queued = self.medium.policy.len_packets() > 0;
        if queued || self.device.is_some() {
            let poll_at = self.policy_poll_at();
            advance_at = advance_at.min(poll_at);
            if queued {
                wake_at = wake_at.min(poll_at);
            }
            if self.device.as_ref().map_or(queued, |device| !device.is_empty()) {
                wake_at = wake_at.min(self.sending_until);
            }
        }
        self.advance_at = advance_at;
        self.wake_at = wake_at;
    }

    #[inline]
    fn is_idle(&self) -> bool {
        self.sending_until == Time::MAX
    }

    /// When to poll the policy next, other than at the end of a transmission; [`Time::MAX`]: not before a packet
    /// arrives.
    fn policy_poll_at(&self) -> Time {
        let held = || {
            let ready = self.rate_bps.and_then(|_| self.medium.policy.next_time());
            ready.map_or(Time::MAX, |ready| ready.max(self.idle_since))
        };
        match &self.device {
            Some(device) => device.stopped_until().unwrap_or_else(held),
            None if self.is_idle() => held(),
            None => Time::MAX,
        }
    }

    #[inline(always)]
    pub(super) fn poll(&mut self, now: Time, to: Port, out: &mut Vec<Delivery>, events: &mut Events) {
        if self.advance_at.min(self.wake_at) > now {
            return;
        }
        self.advance(now, events);
        self.medium.far_end.poll(now, to, out, events);
        self.update_times();
    }

    /// Advances transmitter and schedule to `now`.
    #[inline(always)]
    fn advance(&mut self, now: Time, events: &mut Events) -> Advanced {
        if self.advance_at > now {
            return Advanced::Nothing;
        }
        if self.change_at > now && self.device.is_none() && self.medium.policy.len_packets() == 0 {
            // A transmission has ended, and nothing waits: the only step. The policy may record that its queue is
            // empty.
            self.end_transmission();
            let next = self.medium.policy.dequeue(self.advance_at, events);
            debug_assert!(next.is_none());
            (self.idle_since, self.advance_at) = (self.advance_at, self.change_at);
            return Advanced::ToIdle;
        }
        self.take_steps(now, events);
        Advanced::BySteps
    }

    #[inline(never)]
    fn take_steps(&mut self, now: Time, events: &mut Events) {
        while self.advance_at <= now && self.advance_at < Time::MAX {
            self.step(self.advance_at, events);
            self.advance_at = self.next_step();
        }
    }

    /// When the transmitter or the schedule does something next.
    #[inline(always)]
    fn next_step(&self) -> Time {
        self.change_at.min(self.sending_until).min(self.policy_poll_at())
    }

    /// The next step of transmitter or schedule.
    #[inline(always)]
    fn step(&mut self, now: Time, events: &mut Events) {
        if self.change_at <= now {
            self.change(now, events);
        } else if self.policy_poll_at() <= self.sending_until {
            match &mut self.device {
                Some(device) => {
                    device.resume(self.rate_bps.unwrap_or(u64::MAX));
                    self.fill_device(now, events);
                }
                // The policy may release a packet that it held back.
                None => self.send_next(now, true, events),
            }
        } else {
            self.end_transmission();
            self.send_next(now, false, events);
        }
    }

    #[inline(always)]
    fn end_transmission(&mut self) {
        self.sending_until = Time::MAX;
        self.medium.usage.packets += 1;
        self.medium.usage.bytes += u64::from(self.sending_bytes);
    }

    pub(super) fn usage(&self) -> Usage {
        let headers = self.transmitter.as_ref().and_then(|near| near.headers(self.medium.far_end.decoder()));
        Usage { headers, busy: Duration::from_nanos(self.busy_ns), ..self.medium.usage }
    }

    /// The bits of a packet on the line, and its form in flight; `idle` if the line was idle until now.
    #[inline(always)]
    fn put(&mut self, packet: Packet, idle: bool) -> (u64, SentPacket) {
        match &mut self.transmitter {
            None => ((u64::from(packet.len()) + self.framing) * 8, SentPacket::new(packet, None)),
            Some(transmitter) => transmitter.put(packet, idle),
        }
    }

    /// Sends the next packet, if one waits; `idle` if the line was idle until now.
    #[inline(always)]
    fn send_next(&mut self, now: Time, idle: bool, events: &mut Events) {
        if self.device.is_some() {
            self.send_from_device(now);
        } else if self.rate_bps.is_some() {
            let next = self.medium.policy.dequeue(now, events);
            self.send_packet(now, next, idle);
        }
    }

    /// Sends what the policy has released; without it the line is idle.
    #[inline(always)]
    fn send_packet(&mut self, now: Time, packet: Option<Packet>, idle: bool) {
        match (packet, self.rate_bps) {
            (Some(packet), Some(rate_bps)) => {
                let (bits, in_flight) = self.put(packet, idle);
                if bits != self.last_service.0 {
                    self.last_service = (bits, service_time_ns(bits, rate_bps));
                }
                self.send(now, self.last_service.1, bits, in_flight);
            }
            _ => self.idle_since = now,
        }
    }

    fn send_from_device(&mut self, now: Time) {
        if let Some(Taken { time_ns, bits, in_flight }) = self.device.as_mut().and_then(|device| device.next()) {
            self.send(now, time_ns, bits, in_flight);
        }
    }

    #[inline(always)]
    fn send(&mut self, now: Time, time_ns: u64, bits: u64, in_flight: SentPacket) {
        self.medium.usage.line_bits += bits;
        self.sending_until = match self.clock {
            None => Time(now.nanos().saturating_add(time_ns)),
            Some(clock) => clock.expiry(now, time_ns),
        };
        self.busy_ns += self.sending_until.nanos() - now.nanos();
        self.sending_bytes = in_flight.packet.len();
        self.medium.far_end.fly(self.sending_until, in_flight);
    }

    /// Fills the modem's buffer from the policy.
    fn fill_device(&mut self, now: Time, events: &mut Events) {
        let Some(rate_bps) = self.rate_bps else { return };
        while self.device.as_ref().is_some_and(|device| device.has_room()) {
            let Some(packet) = self.medium.policy.dequeue(now, events) else {
                self.idle_since = now;
                break;
            };
            let (bits, in_flight) = self.put(packet, self.is_idle());
            self.device.as_mut().expect("the device has room").take(now, bits, in_flight, rate_bps);
            if self.is_idle() {
                self.send_next(now, false, events);
            }
        }
    }

    /// Adds a change at `now` to the schedule, behind those that are due.
    pub(super) fn change_at(&mut self, now: Time, change: &Change) -> Result<(), Error> {
        check_rate(change.rate_bps)?;
        change.errors.as_deref().map(|errors| self.medium.far_end.error_models(errors)).transpose()?;
        if change.rate_bps.is_some() && self.rate_bps.is_none() {
            return Err("a link that started without a rate cannot get one while it runs".into());
        }
        let at_s = now.seconds();
        let place = self.schedule.iter().take_while(|due| due.at_s <= at_s).count();
        self.schedule.insert(place, Change { at_s, ..change.clone() });
        let delays = self.medium.far_end.check_schedule(&self.schedule);
        let queues = || check_queues(self.build, &self.context, self.rate_bps, &self.schedule);
        if let Err(why) = delays.and_then(|()| queues()) {
            self.schedule.remove(place);
            return Err(why);
        }
        self.change_at = next_change(self.schedule.make_contiguous());
        self.update_times();
        Ok(())
    }

    /// Replaces the policy. What waits moves to the new one in the order in which the old one sends it.
    fn replace_policy(&mut self, now: Time, queue: &Named, events: &mut Events) {
        self.replaced += 1;
        let label = format!("{}/queue-{}", self.context.label, self.replaced);
        let context = QueueContext { label, rate_bps: self.rate_bps, ..self.context.clone() };
        let mut policy =
            (self.build)(queue, &context).expect("it was built once with this rate, when the change was made");
        std::mem::swap(&mut self.medium.policy, &mut policy);
        let mut at = now;
        // A policy that holds packets back releases them later.
        while let Some(ready) = policy.next_time().filter(|_| policy.len_packets() > 0) {
            at = at.max(ready);
            if let Some(packet) = policy.dequeue(at, events) {
                self.medium.policy.enqueue(now, packet, events);
            }
        }
        // What it would never send, as of a class without a share, comes last.
        while let Some(packet) = policy.take(0, None) {
            self.medium.policy.enqueue(now, packet, events);
        }
        self.changed = true;
        if self.is_idle() && self.device.is_none() {
            self.send_next(now, true, events);
        }
    }

    fn change(&mut self, now: Time, events: &mut Events) {
        let Some(change) = self.schedule.pop_front() else { return };
        self.change_at = next_change(self.schedule.make_contiguous());
        if let Some(rate_bps) = change.rate_bps {
            self.rate_bps = Some(rate_bps);
            self.last_service = (0, 0);
            self.changed = true;
        }
        if change.delay_s.is_some() || change.jitter_s.is_some() {
            let sending_until = (!self.is_idle()).then_some(self.sending_until);
            let [delay, jitter] = [change.delay_s, change.jitter_s].map(|s| s.map(Duration::from_secs_f64));
            let delay = delay.map(|delay| self.clock.map_or(delay, |clock| rounded(clock, delay)));
            self.medium.far_end.set_delay(delay, jitter, sending_until);
        }
        if let Some(errors) = change.errors {
            self.medium
                .far_end
                .set_errors(Time::from_seconds(change.at_s), &errors)
                .expect("they were built once, when the link was");
        }
        if let Some(queue) = change.queue {
            self.replace_policy(now, &queue, events);
        }
    }
}

/// Refuses what a host's emulation of a line does not have.
fn check_clock(spec: &DirectionSpec, has_device: bool) -> Result<(), Error> {
    let has_jitter = spec.jitter_s > 0.0 || spec.schedule.iter().any(|change| change.jitter_s.is_some());
    match () {
        () if spec.rate_bps.is_none() => Err("clock_tick_s needs a link with a rate".into()),
        () if has_device => {
            Err("clock_tick_s (of an emulating host) and device_buffer_bytes (of a modem) exclude each other".into())
        }
        () if has_jitter => Err("a link with a clock_tick_s has no jitter of its own".into()),
        () => Ok(()),
    }
}

fn rounded(clock: Clock, delay: Duration) -> Duration {
    Duration::from_nanos(clock.rounded_ns(delay.as_nanos() as u64))
}

/// Builds the policies of changes, each with the rate of its time, as [`Line::replace_policy`] will.
fn check_queues<'a, P>(
    build: BuildPolicy<P>,
    context: &QueueContext,
    mut rate_bps: Option<u64>,
    schedule: impl IntoIterator<Item = &'a Change>,
) -> Result<(), Error> {
    for change in schedule {
        rate_bps = change.rate_bps.or(rate_bps);
        if let Some(queue) = &change.queue {
            let context = QueueContext { rate_bps, ..context.clone() };
            build(queue, &context).map_err(|why| format!("at {} s: {why}", change.at_s))?;
        }
    }
    Ok(())
}

fn next_change(schedule: &[Change]) -> Time {
    schedule.first().map_or(Time::MAX, |change| Time::from_seconds(change.at_s))
}
