//! A point-to-point link. Each direction has a queue policy, serialisation at the line's rate, propagation delay (the
//! two stages of asym 8.1) and error models at the far end.
//!
//! Departures are computed on an ideal timeline: a packet that waited starts when its predecessor ended, however late
//! the driver polls. So the lateness of a real-time driver never accumulates.

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options;
use backchannel_core::options::CheckedOptions;
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Physical, Probing};
use backchannel_core::scenario::{Change, DirectionSpec, LinkSpec};
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Delivery, Link, Policy, Port, Usage};
use backchannel_core::Error;
use backchannel_policies::DropTail;

use crate::medium::{BuildPolicy, Direction, Fields};
use crate::registry::Context;
use crate::serial::DIRECTION;
use line::Line;

mod line;

options! {
    /// Options of the link.
    struct Parameters {
        framing_bytes: u64 = 0, [Bytes 0 to 1000] "framing overhead in bytes per packet on the link";
        one_way: bool = false, [Flag]
            "carry packets forward only, as wireless cable does; packets back take another link (asym 3.1)";
    }
}

const FIELDS: Fields = Fields { options: Some(&DIRECTION), ..Fields::ALL };

const PHYSICAL: Physical = Physical { radio: false, probing: Some(Probing { slack: 1.0, shared: false }) };

pub(crate) static ENTRY: Entry = Entry::link(
    "point-to-point",
    "a link with a rate, a propagation delay, a queue policy and error models per direction",
    PHYSICAL,
)
.source("asym 8.1")
.options(Parameters::PARAMS);

/// A link whose policies can be replaced by any other.
pub(crate) fn build(checked: &CheckedOptions<'_>, spec: &LinkSpec, context: &Context) -> Result<Box<dyn Link>, Error> {
    Ok(Box::new(with_any_policy(checked, spec, context)?))
}

/// Whether all queues of a link are droptail, as those of most links of a network.
pub(crate) fn has_droptail_alone(spec: &LinkSpec) -> bool {
    [&spec.forward, &spec.reverse].into_iter().flat_map(DirectionSpec::queues).all(|queue| queue.name == "droptail")
}

/// A link with droptail queues, which are called statically.
pub(crate) fn with_droptail(
    checked: &CheckedOptions<'_>,
    spec: &LinkSpec,
    context: &Context,
) -> Result<PointToPoint<DropTail>, Error> {
    PointToPoint::new(checked, spec, context, |queue, _| DropTail::from_options(&queue.options))
}

/// A link with queues of any policy.
pub(crate) fn with_any_policy(
    checked: &CheckedOptions<'_>,
    spec: &LinkSpec,
    context: &Context,
) -> Result<PointToPoint<Box<dyn Policy>>, Error> {
    PointToPoint::new(checked, spec, context, |queue, of_queue| of_queue.build(queue))
}

/// A link of two independent directions with policies of type `P`.
pub struct PointToPoint<P> {
    one_way: bool,
    lines: [Line<P>; 2],
}

impl<P: Policy> Link for PointToPoint<P> {
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events) {
        if self.one_way && port == 1 {
            events.port = port;
            events.record(now, EventKind::Lost, &packet);
            return;
        }
        let [forward, reverse] = &mut self.lines;
        let (line, opposite) = if port == 0 { (forward, reverse) } else { (reverse, forward) };
        events.port = 1 - port;
        opposite.on_opposite(now, &packet, events);
        events.port = port;
        line.submit(now, packet, events);
        self.update_rates(now);
    }

    #[inline(always)]
    fn next_event(&self) -> Option<Time> {
        let next = self.lines[0].wake_at.min(self.lines[1].wake_at);
        (next < Time::MAX).then_some(next)
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

    #[inline(always)]
    fn backlog(&self, port: Port) -> Option<Backlog> {
        let line = &self.lines[usize::from(port)];
        line.rate_bps.map(|_| line.medium.policy.backlog())
    }

    fn peek(&self, port: Port, place: usize) -> Option<&Packet> {
        self.lines[usize::from(port)].medium.policy.peek(place)
    }

    fn usage(&self, port: Port) -> Usage {
        self.lines[usize::from(port)].usage()
    }

    fn change(&mut self, now: Time, port: Port, change: &Change) -> Result<(), Error> {
        self.lines[usize::from(port)].change_at(now, change)
    }
}

impl<P: Policy> PointToPoint<P> {
    fn new(
        checked: &CheckedOptions<'_>,
        spec: &LinkSpec,
        context: &Context,
        policy: BuildPolicy<P>,
    ) -> Result<PointToPoint<P>, Error> {
        let Parameters { framing_bytes, one_way } = Parameters::read(checked);
        let [forward, reverse] = Direction::of_two_ends(spec, &FIELDS)?;
        let line = |here: &Direction<'_>, opposite: &Direction<'_>| {
            here.build(|here| Line::new(here, opposite.spec.rate_bps, framing_bytes, context, policy))
        };
        Ok(PointToPoint { one_way, lines: [line(&forward, &reverse)?, line(&reverse, &forward)?] })
    }

    /// After a scheduled change, informs each policy of both rates.
    #[inline]
    fn update_rates(&mut self, now: Time) {
        if self.lines[0].changed | self.lines[1].changed {
            self.inform_of_rates(now);
        }
    }

    #[cold]
    fn inform_of_rates(&mut self, now: Time) {
        let rates = [self.lines[0].rate_bps, self.lines[1].rate_bps];
        for (from, line) in self.lines.iter_mut().enumerate() {
            line.changed = false;
            line.medium.policy.on_rates(now, rates[from], rates[1 - from]);
            line.update_times();
        }
    }
}

#[cfg(test)]
mod tests;
