//! An access line whose uplink waits for grants: a cable modem (DOCSIS), an optical line (GPON), a mobile (5G NR).
//!
//! ```text
//! station (end 1):   packet .. request ................. burst ......... burst
//! head end (end 0):            '-- grant_delay --'  grants of a cycle    of the next
//! cycles:          |                 |                 |                 |
//! ```
//!
//! - The *station* is at end 1, so `reverse` is the uplink. It may request at opportunities, one every
//!   `request_interval`. A request asks for what waits and is neither requested nor granted yet.
//! - The *head end* grants once a `cycle`, in the order of the requests, and no more than the uplink's rate carries in a
//!   cycle. A grant starts `grant_delay` after its request at the earliest.
//! - The station builds its *burst* when a grant starts, and sends it at the channel's rate. Packets are split over
//!   bursts. Each burst carries a request of its own for the rest (`piggyback`), so a busy station never waits for an
//!   opportunity, and several grants are in flight. What a policy drops after it was requested is a part of a grant
//!   that stays empty.
//! - The downlink (`forward`) needs no grant. With a TDD pattern each direction sends in its part of the cycle, faster
//!   than its rate, which is the mean.
//!
//! The same model with other numbers is DOCSIS (cycle: MAP interval; opportunities: contention regions), GPON (cycle:
//! frame of 125 us; opportunities: the DBA cycle's reports) and 5G NR (cycle: period of the TDD pattern; opportunities:
//! scheduling requests). docs/links.md has the numbers with their sources.
//!
//! An idle uplink's delay has a closed form, which the tests derive. In a cycle T with opportunities every P, where one
//! is a multiple of the other, and a grant delay G, a packet waits a mean of P/2 for its opportunity, G, and until the
//! cycle after that.

mod cycle;
mod downlink;
mod uplink;

use std::time::Duration;

use backchannel_core::event::Events;
use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Physical, When};
use backchannel_core::scenario::LinkSpec;
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Delivery, Link, Policy, Port, Usage};
use backchannel_core::Error;

use crate::medium::{check_rate, Direction, Fields, Medium};
use crate::registry::Context;
use cycle::Part;
use downlink::Downlink;
use uplink::Uplink;

options! {
    /// Options of the link.
    struct Options {
        cycle_s: Duration = 0.002, [Time 1e-6 to 1]
            "time between two rounds of grants: the MAP interval (DOCSIS), the frame (GPON), the period of the TDD \
             pattern (5G)";
        request_interval_s: Option<Duration> = ABSENT, [Time 1e-6 to 10]
            "time between two opportunities for a request; a multiple or a whole part of the cycle; absent: the cycle";
        grant_delay_s: Duration = 0.002, [Time 0 to 1]
            "least time from a request to the start of its grant: MAP advance, DBA processing, K2 and what the head end \
             needs";
        channel_rate_bps: Option<u64> = ABSENT, [Rate 1]
            "rate at which a burst is sent, of the channel that stations share; absent: the lowest that the uplink's rate \
             needs";
        uplink_s: Option<Duration> = ABSENT, [Time 1e-6 to 1]
            "length of the uplink's part at the end of each cycle (TDD); absent: both directions send at all times";
        guard_s: Duration = 0, [Time 0 to 1] "time before the uplink's part in which neither direction sends (TDD)";
        piggyback: bool = true, [Flag] "each burst carries a request for what waits then";
        requests: Option<u64> = ABSENT, [Count 1 to 1000]
            "requests, apart from piggybacked ones, that may wait for their grants at the same time; absent: any number";
        first_grant_bytes: Option<u64> = ABSENT, [Bytes 1 to 1e6]
            "grant for a request at an opportunity, which does not say how much waits, as a 5G scheduling request; \
             piggybacked requests say it; absent: all do";
        unsolicited_bytes: u64 = 0, [Bytes 0 to 1e6]
            "grant of every cycle without a request, within the uplink's rate: proactive grants (DOCSIS), fixed bandwidth \
             (GPON), a configured grant (5G)";
        collision: f64 = 0, [Fraction 0 to 0.95]
            "probability that a request at an opportunity collides with another station's; 0: opportunities are the \
             station's own";
        backoff_start: u32 = 2, [Count 0 to 15]
            "with collisions: a request waits up to 2 to the power of this opportunities; doubles with each collision";
        backoff_end: u32 = 8, [Count 0 to 15] "with collisions: greatest such power";
        framing_bytes: u64 = 0, [Bytes 0 to 1000] "framing overhead in bytes per packet, in both directions";
    }
}

/// A packet's time depends on the requests before it, so trains of packets do not measure the rate.
const PHYSICAL: Physical = Physical { radio: false, probing: None };

pub(crate) static ENTRY: Entry = Entry::link(
    "grant",
    "an access link whose uplink (reverse) waits for grants, as of DOCSIS, GPON and 5G; the downlink does not",
    PHYSICAL,
)
.source("DOCSIS MULPI; ITU-T G.984.3; 3GPP TS 38.321")
.random(When::With("collision"))
.options(Options::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, spec: &LinkSpec, context: &Context) -> Result<Box<dyn Link>, Error> {
    let [forward, reverse] = Direction::of_two_ends(spec, &Fields::FIXED)?;
    let options = Options::read(checked);
    let rates = [rate(&forward)?, rate(&reverse)?];
    let (up, down) = parts(&options)?;
    let medium = |way: &Direction<'_>, rates: [u64; 2]| way.build(|way| Medium::new(way, rates.map(Some), context));
    let downlink = Downlink::new(medium(&forward, rates)?, down, rates[0], options.framing_bytes);
    let of_uplink = medium(&reverse, [rates[1], rates[0]])?;
    let uplink = reverse.build(|way| Uplink::new(of_uplink, up, rates[1], options, context.seed, &way.label))?;
    Ok(Box::new(Grant { downlink, uplink }))
}

fn rate(direction: &Direction<'_>) -> Result<u64, Error> {
    check_rate(direction.spec.rate_bps)
        .and_then(|()| direction.spec.rate_bps.ok_or_else(|| "a grant link needs a rate in both directions".into()))
        .map_err(|error| error.within(direction.name))
}

/// The uplink's and the downlink's part of a cycle.
fn parts(options: &Options) -> Result<(Part, Part), Error> {
    let cycle = options.cycle_s.as_nanos() as u64;
    let guard = options.guard_s.as_nanos() as u64;
    let interval = options.request_interval_s.map_or(cycle, |interval| interval.as_nanos() as u64);
    if !interval.is_multiple_of(cycle) && !cycle.is_multiple_of(interval) {
        return Err("request_interval_s must be a multiple of cycle_s or a whole part of it".into());
    }
    let Some(uplink) = options.uplink_s else {
        if guard > 0 {
            return Err("guard_s needs uplink_s: without a TDD pattern both directions send at all times".into());
        }
        return Ok((Part::whole(cycle), Part::whole(cycle)));
    };
    let uplink = uplink.as_nanos() as u64;
    if uplink + guard >= cycle {
        return Err("uplink_s and guard_s must leave a part of cycle_s to the downlink".into());
    }
    if interval < cycle {
        return Err(
            "with uplink_s, request_interval_s must be at least cycle_s: a station requests in its own part".into()
        );
    }
    let up = Part { cycle_ns: cycle, from_ns: cycle - uplink, length_ns: uplink };
    Ok((up, Part { cycle_ns: cycle, from_ns: 0, length_ns: cycle - uplink - guard }))
}

struct Grant {
    downlink: Downlink,
    uplink: Uplink,
}

impl Grant {
    /// Advances both directions to `now`.
    fn advance(&mut self, now: Time, events: &mut Events) {
        events.port = 0;
        self.downlink.advance(now, events);
        events.port = 1;
        self.uplink.advance(now, events);
    }

    fn medium(&self, port: Port) -> &Medium {
        if port == 0 {
            &self.downlink.medium
        } else {
            &self.uplink.medium
        }
    }
}

impl Link for Grant {
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events) {
        self.advance(now, events);
        let (own, opposite) = match port {
            0 => (&mut self.downlink.medium, &mut self.uplink.medium),
            _ => (&mut self.uplink.medium, &mut self.downlink.medium),
        };
        opposite.policy.on_opposite(now, &packet);
        events.port = port;
        own.policy.enqueue(now, packet, events);
        self.uplink.plan_request(now);
        self.advance(now, events);
    }

    fn next_event(&self) -> Option<Time> {
        [self.downlink.next_event(), self.uplink.next_event()].into_iter().flatten().min()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events) {
        let first = out.len();
        self.advance(now, events);
        events.port = 0;
        self.downlink.medium.poll(now, 1, out, events);
        events.port = 1;
        self.uplink.medium.poll(now, 0, out, events);
        out[first..].sort_by_key(|delivery| delivery.at);
    }

    fn backlog(&self, port: Port) -> Option<Backlog> {
        Some(self.medium(port).policy.backlog())
    }

    fn peek(&self, port: Port, place: usize) -> Option<&Packet> {
        self.medium(port).policy.peek(place)
    }

    fn usage(&self, port: Port) -> Usage {
        self.medium(port).usage
    }
}

#[cfg(test)]
mod tests;
