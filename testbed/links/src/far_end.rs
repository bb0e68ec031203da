//! The far end of one direction: propagation delay, then error models (asym 8.1's second stage; ton IV-A).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::packet::Packet;
use backchannel_core::rng;
use backchannel_core::scenario::{Change, DirectionSpec, Named};
use backchannel_core::time::Time;
use backchannel_core::traits::{Delivery, Port};

use crate::errors::{ErrorModel, ErrorModels, Fate};
use crate::jitter::{self, Jitter};
use crate::point_to_point::delay;
use crate::rfc1144::Compressed;
use crate::serial::Receiver;
use crate::Context;

/// Packets in flight to one end of a link.
pub(crate) struct FarEnd {
    delay_ns: u64,
    /// `None`: every packet takes the delay.
    jitter: Option<Box<Jitter>>,
    errors: Vec<Box<dyn ErrorModel>>,
    /// Error models that replace these, and since when.
    replacements: VecDeque<(Time, Vec<Box<dyn ErrorModel>>)>,
    /// Jitter does not let packets overtake each other.
    keeps_order: bool,
    /// The error models that exist, for changes.
    models: ErrorModels,
    /// Seed and label of its random streams.
    seed: u64,
    label: String,
    /// Number of replacements of the error models. Each set draws from streams of its own.
    changes: u64,
    /// Packets in flight or in transmission, and the arrival of their last bits, in order.
    flying: VecDeque<(Time, InFlightPacket)>,
    /// Arrival of the first of them; [`Time::MAX`]: there is none.
    first_arrival: Time,
    /// Arrival of the last one. A line without jitter keeps order, even if its delay becomes shorter.
    last_arrival: Time,
    /// Packets that an error model holds back, by time of delivery.
    held: BTreeMap<(Time, u64), InFlightPacket>,
    /// The far end of a serial line; `None` if packets are neither framed nor compressed.
    receiver: Option<Box<Receiver>>,
}

/// A packet as it was sent.
#[derive(Clone)]
pub(crate) struct InFlightPacket {
    pub(crate) packet: Packet,
    /// What most packets do not have, so that they take less room.
    extra: Option<Box<InFlightState>>,
}

/// What compression and jitter know of a packet in flight.
#[derive(Clone, Default)]
struct InFlightState {
    /// Its form on the line, if its header is compressed.
    compressed: Option<Compressed>,
    /// How much longer than the declared delay it takes, in nanoseconds; `None` if the line had no jitter when it was
    /// sent.
    jitter_ns: Option<i64>,
}

impl InFlightPacket {
    /// A packet that takes the declared delay.
    #[inline(always)]
    pub(crate) fn new(packet: Packet, compressed: Option<Compressed>) -> InFlightPacket {
        let extra =
            compressed.map(|compressed| Box::new(InFlightState { compressed: Some(compressed), jitter_ns: None }));
        InFlightPacket { packet, extra }
    }

    /// The packet and, if its header is compressed, its form on the line.
    pub(crate) fn apart(self) -> (Packet, Option<Compressed>) {
        (self.packet, self.extra.and_then(|extra| extra.compressed))
    }

    #[inline(always)]
    fn jitter_ns(&self) -> Option<i64> {
        self.extra.as_ref()?.jitter_ns
    }
}

impl FarEnd {
    /// No packet is in flight. `label` names the direction's random streams.
    pub(crate) fn new(delay: Duration, errors: &[Named], context: &Context, label: &str) -> Result<FarEnd, String> {
        let mut end = FarEnd {
            delay_ns: delay.as_nanos() as u64,
            jitter: None,
            errors: Vec::new(),
            replacements: VecDeque::new(),
            keeps_order: false,
            models: context.registry.error_models.clone(),
            seed: context.seed,
            label: label.to_owned(),
            changes: 0,
            flying: VecDeque::new(),
            first_arrival: Time::MAX,
            last_arrival: Time::ZERO,
            held: BTreeMap::new(),
            receiver: None,
        };
        end.set_errors(Time::ZERO, errors)?;
        Ok(end)
    }

    /// That of a direction, with its jitter. `label` names the direction's random streams.
    ///
    /// # Errors
    /// The delay, the jitter or an error model is invalid.
    pub(crate) fn of_direction(spec: &DirectionSpec, context: &Context, label: &str) -> Result<FarEnd, String> {
        jitter::check_schedule(spec.delay_s, spec.jitter_s, &spec.schedule)?;
        let mut end = FarEnd::new(delay(spec.delay_s)?, &spec.errors, context, label)?;
        end.keeps_order = spec.keep_order;
        if spec.jitter_s > 0.0 {
            end.set_jitter(delay(spec.jitter_s)?);
        }
        Ok(end)
    }

    /// Packets that are sent from now on have another jitter.
    fn set_jitter(&mut self, most: Duration) {
        let jitter = self.jitter.get_or_insert_with(|| Box::new(Jitter::new(self.seed, &self.label, self.keeps_order)));
        jitter.set_most(most);
    }

    /// Changes delay and jitter, if they are given. A packet whose last bit leaves at `sending_until` is the newest in
    /// flight; it has the new delay.
    pub(crate) fn set_delay(&mut self, delay: Option<Duration>, jitter: Option<Duration>, sending_until: Option<Time>) {
        let sending = sending_until.and_then(|end| Some((end, self.take_newest()?)));
        self.delay_ns = delay.map_or(self.delay_ns, |delay| delay.as_nanos() as u64);
        if let Some(most) = jitter {
            self.set_jitter(most);
        }
        if let Some((end, flying)) = sending {
            self.last_arrival = self.flying.back().map_or(Time::ZERO, |(at, _)| *at);
            self.first_arrival = self.arrival_of_first();
            self.fly_compressed(end, flying);
        }
    }

    /// Checks the delay and the jitter after each change that is still to come.
    ///
    /// # Errors
    /// Those of [`jitter::check`].
    pub(crate) fn check_schedule<'a>(&self, schedule: impl IntoIterator<Item = &'a Change>) -> Result<(), String> {
        let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
        let jitter_ns = self.jitter.as_ref().map_or(0, |jitter| jitter.most_ns());
        jitter::check_schedule(seconds(self.delay_ns), seconds(jitter_ns), schedule)
    }

    /// The packet that was sent last. With jitter, others may arrive after it.
    fn take_newest(&mut self) -> Option<InFlightPacket> {
        let Some(jitter) = &self.jitter else { return self.flying.pop_back().map(|(_, flying)| flying) };
        let newest = self.flying.iter().rposition(|(at, _)| *at == jitter.newest_arrival)?;
        self.flying.remove(newest).map(|(_, flying)| flying)
    }

    #[inline(always)]
    fn arrival_of_first(&self) -> Time {
        self.flying.front().map_or(Time::MAX, |(at, _)| *at)
    }

    /// What comes out of the line goes through this, if there is one.
    pub(crate) fn set_receiver(&mut self, receiver: Option<Box<Receiver>>) {
        self.receiver = receiver;
    }

    /// The same, to look at.
    pub(crate) fn receiver(&self) -> Option<&Receiver> {
        self.receiver.as_deref()
    }

    /// Other error models judge packets that arrive from `from` on. Those before are judged by the present ones,
    /// however late they are polled.
    pub(crate) fn set_errors(&mut self, from: Time, named: &[Named]) -> Result<(), String> {
        self.replacements.push_back((from, self.error_models(named)?));
        self.changes += 1;
        Ok(())
    }

    /// Builds error models without installing them, so that a schedule is validated before the run.
    pub(crate) fn error_models(&self, named: &[Named]) -> Result<Vec<Box<dyn ErrorModel>>, String> {
        let set = if self.changes == 0 { "errors".to_owned() } else { format!("errors-{}", self.changes) };
        let stream = |number: usize| rng::stream(self.seed, &format!("{}/{set}/{number}", self.label));
        let build = |(number, model): (usize, &Named)| {
            let (checked, build) = self.models.checked(&model.name, &model.options)?;
            build(&checked, stream(number))
        };
        named.iter().enumerate().map(build).collect()
    }

    /// A packet's last bit leaves the near end at `from`.
    pub(crate) fn fly(&mut self, from: Time, packet: Packet) {
        self.fly_compressed(from, InFlightPacket::new(packet, None));
    }

    /// The same for a packet in its form on the line.
    #[inline(always)]
    pub(crate) fn fly_compressed(&mut self, from: Time, flying: InFlightPacket) {
        if self.jitter.is_some() {
            return self.fly_with_jitter(from, flying);
        }
        let arrives = Time(from.nanos().saturating_add(self.delay_ns)).max(self.last_arrival);
        self.first_arrival = self.first_arrival.min(arrives);
        self.last_arrival = arrives;
        self.flying.push_back((arrives, flying));
    }

    #[cold]
    fn fly_with_jitter(&mut self, from: Time, mut flying: InFlightPacket) {
        let Some(jitter) = &mut self.jitter else { return };
        let nominal = Time(from.nanos().saturating_add(self.delay_ns));
        let arrives = jitter.arrival(nominal, self.last_arrival);
        flying.extra.get_or_insert_default().jitter_ns = Some(arrives.nanos() as i64 - nominal.nanos() as i64);
        self.first_arrival = self.first_arrival.min(arrives);
        self.last_arrival = self.last_arrival.max(arrives);
        let place = self.flying.partition_point(|(at, _)| *at <= arrives);
        self.flying.insert(place, (arrives, flying));
    }

    /// Time of the next delivery; `None` if no packet is in flight.
    pub(crate) fn next_event(&self) -> Option<Time> {
        Some(self.next_delivery()).filter(|at| *at < Time::MAX)
    }

    /// Time of the next delivery; [`Time::MAX`] if no packet is in flight.
    #[inline]
    pub(crate) fn next_delivery(&self) -> Time {
        self.held.first_key_value().map_or(self.first_arrival, |((held, _), _)| self.first_arrival.min(*held))
    }

    /// Delivers everything that is due by `now`.
    #[inline(always)]
    pub(crate) fn poll(&mut self, now: Time, to: Port, out: &mut Vec<Delivery>, events: &mut Events) {
        while self.first_arrival <= now {
            let Some((at, flying)) = self.flying.pop_front() else { break };
            self.first_arrival = self.arrival_of_first();
            if !self.replacements.is_empty() {
                self.replace_errors(at);
            }
            if let Some(jitter_ns) = flying.jitter_ns() {
                events.record_jitter(at, jitter_ns, &flying.packet);
            }
            if self.errors.is_empty() && self.receiver.is_none() {
                out.push(Delivery { port: to, at, packet: flying.packet });
            } else {
                self.apply_errors(at, to, flying, out, events);
            }
        }
        if !self.held.is_empty() {
            self.release(now, to, out, events);
        }
    }

    /// Installs the error models that judge packets which arrive at `at`.
    #[cold]
    fn replace_errors(&mut self, at: Time) {
        while self.replacements.front().is_some_and(|(from, _)| *from <= at) {
            self.errors = self.replacements.pop_front().expect("it has a front").1;
        }
    }

    /// Delivers what error models held back until `now`.
    fn release(&mut self, now: Time, to: Port, out: &mut Vec<Delivery>, events: &mut Events) {
        while let Some(entry) = self.held.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, _), flying) = entry.remove_entry();
            self.deliver(at, to, flying, false, out, events);
        }
    }

    /// The error models decide about a packet whose last bit arrives at `at`.
    fn apply_errors(
        &mut self,
        at: Time,
        to: Port,
        flying: InFlightPacket,
        out: &mut Vec<Delivery>,
        events: &mut Events,
    ) {
        let packet = &flying.packet;
        let fate = self.errors.iter_mut().map(|model| model.apply(at, packet)).find(|fate| *fate != Fate::Intact);
        match fate.unwrap_or(Fate::Intact) {
            Fate::Intact => self.deliver(at, to, flying, false, out, events),
            // The framing discards a frame that fails its check.
            Fate::Damaged if self.receiver.as_ref().is_some_and(|receiver| receiver.detects_corruption()) => {
                self.lose(at, &flying, events);
            }
            Fate::Lost => self.lose(at, &flying, events),
            Fate::Damaged => {
                events.record(at, EventKind::Damaged, packet);
                self.deliver(at, to, flying, true, out, events);
            }
            Fate::Late(by) => {
                events.record(at, EventKind::Reordered, packet);
                self.held.insert((at + by, packet.id), flying);
            }
            Fate::Twice => {
                events.record(at, EventKind::Duplicated, packet);
                self.deliver(at, to, flying.clone(), false, out, events);
                self.deliver(at, to, flying, false, out, events);
            }
        }
    }

    fn lose(&mut self, at: Time, flying: &InFlightPacket, events: &mut Events) {
        events.record(at, EventKind::Lost, &flying.packet);
        if let (Some(sample), Some(_)) = (events.jitter.last_mut(), flying.jitter_ns()) {
            sample.lost = true;
        }
        if let Some(receiver) = &mut self.receiver {
            receiver.miss();
        }
    }

    /// A packet, damaged or not, reaches the end of the line.
    fn deliver(
        &mut self,
        at: Time,
        port: Port,
        flying: InFlightPacket,
        damaged: bool,
        out: &mut Vec<Delivery>,
        events: &mut Events,
    ) {
        let mut packet = match &mut self.receiver {
            Some(receiver) => match receiver.receive(flying) {
                Ok(packet) => packet,
                Err(packet) => return events.record(at, EventKind::Tossed, &packet),
            },
            None => flying.packet,
        };
        // Without a transport checksum the receiver cannot detect damage, so the packet counts as lost.
        if !damaged || packet.damage_checksum() {
            out.push(Delivery { port, at, packet });
        }
    }
}
