//! The uplink: the station's requests, the head end's grants, and the bursts.

use std::collections::VecDeque;
use std::time::Duration;

use backchannel_core::event::Events;
use backchannel_core::packet::Packet;
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::{service_time, Time};
use backchannel_core::traits::Policy;
use backchannel_core::Error;

use super::cycle::Part;
use super::Options;
use crate::medium::Medium;

/// A request that the head end has, or will have when its grant can start.
struct BandwidthRequest {
    /// Earliest start of its grant.
    ready_at: Time,
    /// Bytes that are not granted yet.
    bytes: u64,
    /// Sent at an opportunity, and none of it is granted yet.
    counts: bool,
}

/// A request that waits for an opportunity.
#[derive(Clone, Copy)]
struct Attempt {
    at: Time,
    /// Collisions before it.
    collisions: u32,
}

pub(super) struct Uplink {
    pub(super) medium: Medium,
    part: Part,
    options: Options,
    /// Time between two opportunities.
    interval_ns: u64,
    rate_bps: u64,
    channel_rate_bps: u64,
    /// The packet that the last burst split, and its bytes that are left.
    partial: Option<(Packet, u64)>,
    requests: VecDeque<BandwidthRequest>,
    /// Bytes that are requested and not granted yet.
    requested_bytes: u64,
    /// Requests that count towards the limit.
    waiting_requests: u64,
    attempt: Option<Attempt>,
    /// The first opportunity that is not used.
    next_opportunity: u64,
    /// The first cycle whose burst is not made.
    next_cycle: u64,
    /// When the last burst ends.
    sent_until: Time,
    /// The latest time to which it was advanced.
    clock: Time,
    rng: RunRng,
}

impl Uplink {
    pub(super) fn new(
        medium: Medium,
        part: Part,
        rate_bps: u64,
        options: Options,
        seed: u64,
        label: &str,
    ) -> Result<Uplink, Error> {
        let least = part.rate_within(rate_bps);
        let channel_rate_bps = options.channel_rate_bps.unwrap_or(least);
        if channel_rate_bps < least {
            return Err(format!(
                "channel_rate_bps must be at least {least}, because a cycle's bytes at {rate_bps} bit/s must fit in the \
                 uplink's part of it"
            )
            .into());
        }
        // Rounded down to whole bytes, some cycles have less than others.
        let room = part.bytes(0, rate_bps);
        if room == 0 {
            return Err("cycle_s is too short: the uplink's rate carries less than a byte in a cycle".into());
        }
        if options.unsolicited_bytes > room {
            return Err(
                format!("unsolicited_bytes must be at most {room}, what the uplink's rate carries in a cycle").into()
            );
        }
        if options.backoff_end < options.backoff_start {
            return Err("backoff_end must be at least backoff_start".into());
        }
        Ok(Uplink {
            medium,
            part,
            interval_ns: options.request_interval_s.map_or(part.cycle_ns, |interval| interval.as_nanos() as u64),
            rate_bps,
            channel_rate_bps,
            partial: None,
            requests: VecDeque::new(),
            requested_bytes: 0,
            waiting_requests: 0,
            attempt: None,
            next_opportunity: 0,
            next_cycle: 0,
            sent_until: Time::ZERO,
            clock: Time::ZERO,
            rng: rng::stream(seed, &format!("{label}/requests")),
            options,
        })
    }

    /// Makes the requests and bursts that are due by `now`.
    pub(super) fn advance(&mut self, now: Time, events: &mut Events) {
        loop {
            let burst = self.next_burst().map(|cycle| self.part.start(cycle));
            let attempt = self.attempt.map(|attempt| attempt.at);
            // A burst comes first, because its own request makes another one needless.
            match (burst, attempt) {
                (Some(burst), attempt) if burst <= now && attempt.is_none_or(|attempt| burst <= attempt) => {
                    self.send_burst(burst, events);
                }
                (_, Some(attempt)) if attempt <= now => self.request(),
                _ => break,
            }
        }
        self.clock = self.clock.max(now);
    }

    pub(super) fn next_event(&self) -> Option<Time> {
        let burst = self.next_burst().map(|cycle| self.part.start(cycle));
        let attempt = self.attempt.map(|attempt| attempt.at);
        [burst, attempt, self.medium.next_delivery()].into_iter().flatten().min()
    }

    /// Bytes that wait and are neither requested nor granted.
    fn need_bytes(&self) -> u64 {
        let waiting = self.medium.policy.backlog();
        let partial = self.partial.as_ref().map_or(0, |(_, left)| *left);
        let all = waiting.bytes + waiting.packets as u64 * self.options.framing_bytes + partial;
        all.saturating_sub(self.requested_bytes)
    }

    /// Earliest time at which a burst has something to send; `None`: nothing waits.
    fn ready_at(&self) -> Option<Time> {
        self.partial.as_ref().map_or_else(|| self.medium.policy.next_time(), |_| Some(Time::ZERO))
    }

    /// The next cycle with a burst.
    fn next_burst(&self) -> Option<u64> {
        let requested = self.requests.front().map(|request| request.ready_at);
        let is_unsolicited = self.options.unsolicited_bytes > 0;
        let unsolicited = is_unsolicited.then(|| self.ready_at()).flatten().map(|ready| ready.max(self.clock));
        let earliest = [requested, unsolicited].into_iter().flatten().min()?;
        Some(self.part.cycle_from(earliest).max(self.next_cycle))
    }

    /// Chooses the opportunity for a request, if one is needed and may be sent.
    pub(super) fn plan_request(&mut self, now: Time) {
        if self.attempt.is_some() || self.is_request_needless() {
            return;
        }
        if let Some(ready) = self.ready_at() {
            self.attempt = Some(self.opportunity(now.max(ready), 0));
        }
    }

    fn is_request_needless(&self) -> bool {
        self.need_bytes() == 0 || self.options.requests.is_some_and(|limit| self.waiting_requests >= limit)
    }

    /// An unused opportunity at `at` or later, after the backoff that follows this many collisions.
    fn opportunity(&mut self, at: Time, collisions: u32) -> Attempt {
        let since = at.nanos().saturating_sub(self.part.from_ns);
        let mut number = since.div_ceil(self.interval_ns).max(self.next_opportunity);
        if self.options.collision > 0.0 {
            let power = (self.options.backoff_start + collisions).min(self.options.backoff_end);
            number += rng::below(&mut self.rng, 1 << power) as u64;
        }
        Attempt { at: Time(number * self.interval_ns + self.part.from_ns), collisions }
    }

    /// The opportunity has come.
    fn request(&mut self) {
        let Some(Attempt { at, collisions }) = self.attempt.take() else { return };
        if self.is_request_needless() {
            return;
        }
        self.next_opportunity = (at.nanos() - self.part.from_ns) / self.interval_ns + 1;
        if self.options.collision > 0.0 && rng::uniform(&mut self.rng) < self.options.collision {
            // The station notices when the grants have no grant for it.
            let noticed = self.part.start(self.part.cycle_from(at + self.options.grant_delay_s));
            self.attempt = Some(self.opportunity(noticed, collisions + 1));
            return;
        }
        let bytes = self.options.first_grant_bytes.unwrap_or_else(|| self.need_bytes());
        self.add_request(at, bytes, true);
        self.plan_request(at);
    }

    fn add_request(&mut self, at: Time, bytes: u64, counts: bool) {
        self.requests.push_back(BandwidthRequest { ready_at: at + self.options.grant_delay_s, bytes, counts });
        self.requested_bytes += bytes;
        self.waiting_requests += u64::from(counts);
    }

    /// The grants of a cycle start: sends what they have room for, and a request for the rest.
    fn send_burst(&mut self, at: Time, events: &mut Events) {
        let cycle = self.part.cycle_from(at);
        self.next_cycle = cycle + 1;
        let granted_bytes = self.granted_bytes(at, self.part.bytes(cycle, self.rate_bps));
        let start = at.max(self.sent_until);
        let mut sent = 0;
        while sent < granted_bytes {
            let Some((packet, bytes)) = self.partial.take().or_else(|| self.next_packet(at, events)) else { break };
            let taken = bytes.min(granted_bytes - sent);
            sent += taken;
            if taken < bytes {
                self.partial = Some((packet, bytes - taken));
            } else {
                self.medium.send(start + self.burst_time(sent), packet);
            }
        }
        self.sent_until = start + self.burst_time(sent);
        self.medium.usage.line_bits += sent * 8;
        self.medium.usage.busy += self.burst_time(sent);
        let need = self.need_bytes();
        if self.options.piggyback && sent > 0 && need > 0 {
            self.add_request(at, need, false);
        }
        self.plan_request(at);
    }

    /// Grants of a cycle that has room for this many bytes.
    fn granted_bytes(&mut self, at: Time, room: u64) -> u64 {
        let mut granted = self.options.unsolicited_bytes.min(room);
        while let Some(request) = self.requests.front_mut().filter(|request| request.ready_at <= at) {
            if std::mem::take(&mut request.counts) {
                self.waiting_requests -= 1;
            }
            let bytes = request.bytes.min(room - granted);
            granted += bytes;
            self.requested_bytes -= bytes;
            request.bytes -= bytes;
            if request.bytes > 0 {
                break;
            }
            self.requests.pop_front();
        }
        granted
    }

    fn next_packet(&mut self, at: Time, events: &mut Events) -> Option<(Packet, u64)> {
        let packet = self.medium.policy.dequeue(at, events)?;
        let bytes = u64::from(packet.len()) + self.options.framing_bytes;
        Some((packet, bytes))
    }

    fn burst_time(&self, bytes: u64) -> Duration {
        service_time(bytes * 8, self.channel_rate_bps)
    }
}
