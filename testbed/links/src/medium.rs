//! What every direction of a link has, whatever its kind: a queue, a far end, and a count of what it has carried. A link
//! kind adds how its transmitter serves the queue.

use backchannel_core::event::Events;
use backchannel_core::options::CheckedOptions;
use backchannel_core::packet::Packet;
use backchannel_core::registry::Entry;
use backchannel_core::scenario::{DirectionSpec, LinkSpec, Named};
use backchannel_core::time::Time;
use backchannel_core::traits::{Delivery, Policy, Port, Usage};
use backchannel_core::Error;
use backchannel_policies::Context as QueueContext;

use crate::far_end::{Decoder, FarEnd, InFlightPacket, Unchanged};
use crate::registry::Context;

/// Which fields of a direction a link kind has, beside the queue, the delay and the error models that all have. An `Err`
/// says why it has not: "a KIND link ...".
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    /// `rate_bps`.
    pub rate: Result<(), &'static str>,
    /// `jitter_s` and `keep_order`.
    pub jitter: Result<(), &'static str>,
    /// `schedule`.
    pub changes: Result<(), &'static str>,
    /// The entry of its options; `None`: it has no options.
    pub options: Option<&'static Entry>,
}

impl Fields {
    /// All fields, and no options.
    pub const ALL: Fields = Fields { rate: Ok(()), jitter: Ok(()), changes: Ok(()), options: None };
    /// The same without changes during the run.
    pub const FIXED: Fields = Fields { changes: Err("has no changes over time"), ..Fields::ALL };

    /// Checks a direction of a link of this kind. Returns its options.
    fn check<'a>(&self, kind: &str, spec: &'a DirectionSpec) -> Result<Option<CheckedOptions<'a>>, Error> {
        let uses = [
            (self.rate, spec.rate_bps.is_some()),
            (self.changes, !spec.schedule.is_empty()),
            (self.jitter, spec.jitter_s != 0.0 || spec.keep_order),
        ];
        for (field, is_used) in uses {
            if let (Err(why), true) = (field, is_used) {
                return Err(format!("a {kind} link {why}").into());
            }
        }
        match (self.options, spec.options.keys().next()) {
            (Some(entry), _) => CheckedOptions::check(entry, &spec.options).map(Some),
            (None, Some(option)) => Err(format!("a {kind} link has no option '{option}'").into()),
            (None, None) => Ok(None),
        }
    }
}

/// One direction of a link that is built.
pub struct Direction<'a> {
    /// `forward` or `reverse`.
    pub name: &'static str,
    /// Its label, which names its random streams.
    pub label: String,
    /// As specified.
    pub spec: &'a DirectionSpec,
    /// Its options, if links of the kind have any.
    pub options: Option<CheckedOptions<'a>>,
}

impl<'a> Direction<'a> {
    /// Checks the forward and the reverse direction of a link.
    ///
    /// # Errors
    /// A direction has a field that links of this kind do not have.
    pub fn both(spec: &'a LinkSpec, fields: &Fields) -> Result<[Direction<'a>; 2], Error> {
        let direction = |name: &'static str, direction| {
            let options = fields.check(&spec.kind, direction).map_err(|error| error.within(name))?;
            Ok::<_, Error>(Direction { name, label: format!("{}/{name}", spec.name), spec: direction, options })
        };
        Ok([direction("forward", &spec.forward)?, direction("reverse", &spec.reverse)?])
    }

    /// The same for a link that has two ends.
    ///
    /// # Errors
    /// It has not, or those of [`Direction::both`].
    pub fn of_two_ends(spec: &'a LinkSpec, fields: &Fields) -> Result<[Direction<'a>; 2], Error> {
        match spec.ends.len() {
            2 => Direction::both(spec, fields),
            ends => Err(format!("a {} link has two ends, not {ends}", spec.kind).into()),
        }
    }

    /// Builds a part of the direction. An error names the direction.
    ///
    /// # Errors
    /// That of `build`.
    pub fn build<T>(&self, build: impl FnOnce(&Direction<'a>) -> Result<T, Error>) -> Result<T, Error> {
        build(self).map_err(|error| error.within(self.name))
    }
}

/// The rate of a medium that both directions share.
///
/// # Errors
/// It has none, or two, which `shares` explains.
pub fn shared_rate(spec: &LinkSpec, shares: &str) -> Result<u64, Error> {
    check_rate(spec.forward.rate_bps)?;
    let rate_bps = spec.forward.rate_bps.ok_or_else(|| format!("a {} link needs a rate", spec.kind))?;
    match spec.reverse.rate_bps {
        Some(reverse) if reverse == rate_bps => Ok(rate_bps),
        _ => Err(shares.into()),
    }
}

pub(crate) fn check_rate(rate_bps: Option<u64>) -> Result<(), Error> {
    match rate_bps {
        Some(0) => Err("a rate of 0 bit/s carries nothing; leave it out for a link without a rate".into()),
        _ => Ok(()),
    }
}

/// Builds the policy of a queue.
pub(crate) type BuildPolicy<P> = fn(&Named, &QueueContext) -> Result<P, Error>;

/// One direction: the queue in front of it, and the packets that it carries to the far end.
pub struct Medium<P = Box<dyn Policy>, D: Decoder = Unchanged> {
    /// The queue.
    pub policy: P,
    pub(crate) far_end: FarEnd<D>,
    /// What it has carried.
    pub usage: Usage,
}

impl Medium {
    /// That of a direction whose rates in bit/s, its own and the opposite one, are these.
    ///
    /// # Errors
    /// The queue, the delay, the jitter or an error model is invalid.
    pub fn new(direction: &Direction<'_>, rates_bps: [Option<u64>; 2], context: &Context) -> Result<Medium, Error> {
        let of_queue = context.of_queue(&direction.label, rates_bps);
        Medium::with(direction, of_queue.build(&direction.spec.queue)?, context)
    }

    /// A packet leaves at `at` and is counted.
    pub fn send(&mut self, at: Time, packet: Packet) {
        self.usage.packets += 1;
        self.usage.bytes += u64::from(packet.len());
        self.far_end.fly(at, InFlightPacket::new(packet, None));
    }
}

impl<P: Policy, D: Decoder> Medium<P, D> {
    pub(crate) fn with(direction: &Direction<'_>, policy: P, context: &Context) -> Result<Medium<P, D>, Error> {
        let far_end = FarEnd::of_direction(direction.spec, context, &direction.label)?;
        Ok(Medium { policy, far_end, usage: Usage::default() })
    }

    /// Time of the next delivery; `None` if no packet is in flight.
    pub fn next_delivery(&self) -> Option<Time> {
        self.far_end.next_event()
    }

    /// Delivers what is due by `now` to the end `to`.
    pub fn poll(&mut self, now: Time, to: Port, out: &mut Vec<Delivery>, events: &mut Events) {
        self.far_end.poll(now, to, out, events);
    }
}
