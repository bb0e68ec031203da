//! The far end of one direction: propagation delay, then error models (asym 8.1's second stage; ton IV-A).

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::packet::Packet;
use backchannel_core::rng;
use backchannel_core::scenario::{Change, DirectionSpec, Named};
use backchannel_core::time::Time;
use backchannel_core::traits::{Delivery, Port};
use backchannel_core::Error;

use crate::errors::{ErrorModel, ErrorModels, Outcome};
use crate::jitter::{self, delay, Jitter};
use crate::registry::Context;

/// What makes packets again of the forms in which a line sends them.
pub trait Decoder {
    /// The form of a packet on the line.
    type Form: Clone;

    /// Whether damaged packets are detected and dropped.
    fn detects_corruption(&self) -> bool;

    /// A packet was lost or damaged.
    fn miss(&mut self);

    /// The packet that comes out, possibly with a wrong header. `Err` with the packet as sent if it is tossed.
    fn receive(&mut self, packet: Packet, form: Option<Self::Form>) -> Result<Packet, Packet>;
}

/// The decoder of a link that sends packets as they are, which has none.
pub enum Unchanged {}

impl Decoder for Unchanged {
    type Form = Infallible;

    fn detects_corruption(&self) -> bool {
        match *self {}
    }

    fn miss(&mut self) {
        match *self {}
    }

    fn receive(&mut self, _: Packet, _: Option<Infallible>) -> Result<Packet, Packet> {
        match *self {}
    }
}

/// Packets in flight to one end of a link.
pub(crate) struct FarEnd<D: Decoder = Unchanged> {
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
    in_flight: VecDeque<(Time, InFlightPacket<D::Form>)>,
    /// Arrival of the first of them; [`Time::MAX`]: there is none.
    first_arrival: Time,
    /// Arrival of the last one. A line without jitter keeps order, even if its delay becomes shorter.
    last_arrival: Time,
    /// Packets that an error model holds back, by time of delivery.
    held: BTreeMap<(Time, u64), InFlightPacket<D::Form>>,
    /// `None`: packets arrive as they were sent.
    decoder: Option<Box<D>>,
}

/// A packet as it was sent.
#[derive(Clone)]
pub(crate) struct InFlightPacket<F> {
    pub(crate) packet: Packet,
    /// What most packets do not have, so that they take less room.
    extra: Option<Box<InFlightState<F>>>,
}

#[derive(Clone)]
struct InFlightState<F> {
    /// Its form on the line; `None`: the packet itself.
    form: Option<F>,
    /// How much longer than the declared delay it takes, in nanoseconds; `None` if the line had no jitter when it was
    /// sent.
    jitter_ns: Option<i64>,
}

impl<F> InFlightPacket<F> {
    /// A packet that takes the declared delay.
    #[inline(always)]
    pub(crate) fn new(packet: Packet, form: Option<F>) -> InFlightPacket<F> {
        let extra = form.map(|form| Box::new(InFlightState { form: Some(form), jitter_ns: None }));
        InFlightPacket { packet, extra }
    }

    #[inline(always)]
    fn jitter_ns(&self) -> Option<i64> {
        self.extra.as_ref()?.jitter_ns
    }
}

impl<D: Decoder> FarEnd<D> {
    /// No packet is in flight. `label` names the direction's random streams.
    pub(crate) fn new(delay: Duration, errors: &[Named], context: &Context, label: &str) -> Result<FarEnd<D>, Error> {
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
            in_flight: VecDeque::new(),
            first_arrival: Time::MAX,
            last_arrival: Time::ZERO,
            held: BTreeMap::new(),
            decoder: None,
        };
        end.set_errors(Time::ZERO, errors)?;
        Ok(end)
    }

    /// That of a direction, with its jitter. `label` names the direction's random streams.
    ///
    /// # Errors
    /// The delay, the jitter or an error model is invalid.
    pub(crate) fn of_direction(spec: &DirectionSpec, context: &Context, label: &str) -> Result<FarEnd<D>, Error> {
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
        if let Some((end, in_flight)) = sending {
            self.last_arrival = self.in_flight.back().map_or(Time::ZERO, |(at, _)| *at);
            self.first_arrival = self.arrival_of_first();
            self.fly(end, in_flight);
        }
    }

    /// Checks the delay and the jitter after each change that is still to come.
    ///
    /// # Errors
    /// Those of [`jitter::check`].
    pub(crate) fn check_schedule<'a>(&self, schedule: impl IntoIterator<Item = &'a Change>) -> Result<(), Error> {
        let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
        let jitter_ns = self.jitter.as_ref().map_or(0, |jitter| jitter.most_ns());
        jitter::check_schedule(seconds(self.delay_ns), seconds(jitter_ns), schedule)
    }

    /// The packet that was sent last. With jitter, others may arrive after it.
    fn take_newest(&mut self) -> Option<InFlightPacket<D::Form>> {
        let Some(jitter) = &self.jitter else { return self.in_flight.pop_back().map(|(_, in_flight)| in_flight) };
        let newest = self.in_flight.iter().rposition(|(at, _)| *at == jitter.newest_arrival)?;
        self.in_flight.remove(newest).map(|(_, in_flight)| in_flight)
    }

    #[inline(always)]
    fn arrival_of_first(&self) -> Time {
        self.in_flight.front().map_or(Time::MAX, |(at, _)| *at)
    }

    /// What comes out of the line goes through this, if there is one.
    pub(crate) fn set_decoder(&mut self, decoder: Option<Box<D>>) {
        self.decoder = decoder;
    }

    /// The same, to look at.
    pub(crate) fn decoder(&self) -> Option<&D> {
        self.decoder.as_deref()
    }

    /// Other error models judge packets that arrive from `from` on. Those before are judged by the present ones,
    /// however late they are polled.
    pub(crate) fn set_errors(&mut self, from: Time, named: &[Named]) -> Result<(), Error> {
        self.replacements.push_back((from, self.error_models(named)?));
        self.changes += 1;
        Ok(())
    }

    /// Builds error models without installing them, so that a schedule is validated before the run.
    pub(crate) fn error_models(&self, named: &[Named]) -> Result<Vec<Box<dyn ErrorModel>>, Error> {
        let set = if self.changes == 0 { "errors".to_owned() } else { format!("errors-{}", self.changes) };
        let stream = |number: usize| rng::stream(self.seed, &format!("{}/{set}/{number}", self.label));
        let build = |(number, model): (usize, &Named)| {
            let (checked, build) = self.models.checked(&model.name, &model.options)?;
            build(&checked, stream(number))
        };
        named.iter().enumerate().map(build).collect()
    }

    /// A packet's last bit leaves the near end at `from`.
    #[inline(always)]
    pub(crate) fn fly(&mut self, from: Time, in_flight: InFlightPacket<D::Form>) {
        if self.jitter.is_some() {
            return self.fly_with_jitter(from, in_flight);
        }
        let arrives = Time(from.nanos().saturating_add(self.delay_ns)).max(self.last_arrival);
        self.first_arrival = self.first_arrival.min(arrives);
        self.last_arrival = arrives;
        self.in_flight.push_back((arrives, in_flight));
    }

    #[cold]
    fn fly_with_jitter(&mut self, from: Time, mut in_flight: InFlightPacket<D::Form>) {
        let Some(jitter) = &mut self.jitter else { return };
        let nominal = Time(from.nanos().saturating_add(self.delay_ns));
        let arrives = jitter.arrival(nominal, self.last_arrival);
        let extra = in_flight.extra.get_or_insert_with(|| Box::new(InFlightState { form: None, jitter_ns: None }));
        extra.jitter_ns = Some(arrives.nanos() as i64 - nominal.nanos() as i64);
        self.first_arrival = self.first_arrival.min(arrives);
        self.last_arrival = self.last_arrival.max(arrives);
        let place = self.in_flight.partition_point(|(at, _)| *at <= arrives);
        self.in_flight.insert(place, (arrives, in_flight));
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
            let Some((at, in_flight)) = self.in_flight.pop_front() else { break };
            self.first_arrival = self.arrival_of_first();
            if !self.replacements.is_empty() {
                self.replace_errors(at);
            }
            if let Some(jitter_ns) = in_flight.jitter_ns() {
                events.record_jitter(at, jitter_ns, &in_flight.packet);
            }
            if self.errors.is_empty() && self.decoder.is_none() {
                out.push(Delivery { port: to, at, packet: in_flight.packet });
            } else {
                self.apply_errors(at, to, in_flight, out, events);
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
            let ((at, _), in_flight) = entry.remove_entry();
            self.deliver(at, to, in_flight, false, out, events);
        }
    }

    /// The error models decide about a packet whose last bit arrives at `at`.
    fn apply_errors(
        &mut self,
        at: Time,
        to: Port,
        in_flight: InFlightPacket<D::Form>,
        out: &mut Vec<Delivery>,
        events: &mut Events,
    ) {
        let packet = &in_flight.packet;
        let outcome =
            self.errors.iter_mut().map(|model| model.apply(at, packet)).find(|outcome| *outcome != Outcome::Intact);
        match outcome.unwrap_or(Outcome::Intact) {
            Outcome::Intact => self.deliver(at, to, in_flight, false, out, events),
            // The framing discards a frame that fails its check.
            Outcome::Damaged if self.decoder.as_ref().is_some_and(|decoder| decoder.detects_corruption()) => {
                self.lose(at, &in_flight, events);
            }
            Outcome::Lost => self.lose(at, &in_flight, events),
            Outcome::Damaged => {
                events.record(at, EventKind::Damaged, packet);
                self.deliver(at, to, in_flight, true, out, events);
            }
            Outcome::Late(by) => {
                events.record(at, EventKind::Reordered, packet);
                self.held.insert((at + by, packet.id), in_flight);
            }
            Outcome::Twice => {
                events.record(at, EventKind::Duplicated, packet);
                self.deliver(at, to, in_flight.clone(), false, out, events);
                self.deliver(at, to, in_flight, false, out, events);
            }
        }
    }

    fn lose(&mut self, at: Time, in_flight: &InFlightPacket<D::Form>, events: &mut Events) {
        events.record(at, EventKind::Lost, &in_flight.packet);
        if let (Some(sample), Some(_)) = (events.jitter.last_mut(), in_flight.jitter_ns()) {
            sample.lost = true;
        }
        if let Some(decoder) = &mut self.decoder {
            decoder.miss();
        }
    }

    /// A packet, damaged or not, reaches the end of the line.
    fn deliver(
        &mut self,
        at: Time,
        port: Port,
        in_flight: InFlightPacket<D::Form>,
        damaged: bool,
        out: &mut Vec<Delivery>,
        events: &mut Events,
    ) {
        let mut packet = match &mut self.decoder {
            Some(decoder) => match decoder.receive(in_flight.packet, in_flight.extra.and_then(|extra| extra.form)) {
                Ok(packet) => packet,
                Err(packet) => return events.record(at, EventKind::Tossed, &packet),
            },
            None => in_flight.packet,
        };
        // Without a transport checksum the receiver cannot detect damage, so the packet counts as lost.
        if !damaged || packet.damage_checksum() {
            out.push(Delivery { port, at, packet });
        }
    }
}
