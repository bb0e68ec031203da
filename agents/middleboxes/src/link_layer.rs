//! The link-layer family at the base station (ton III-B): LL, LL-SMART, LL-TCP-AWARE (snoop), LL-SMART-TCP-AWARE.
//!
//! The base station caches data sent towards the mobile host until a TCP ack covers it, and retransmits what the
//! wireless hop lost. It detects losses as TCP does, by duplicate acks or by a timer.
//!
//! - All schemes: the second duplicate ack triggers one retransmission of the segment that it asks for. So does the
//!   timer, for the oldest segment, after srtt + 4 rttvar of the wireless hop and at least 200 ms without an ack. An
//!   ack that covers a retransmitted segment gives no sample (Karn, the paper's reference 16). Retransmissions arrive
//!   out of order, because no scheme holds later segments back. The timer does not back off ("several times before a
//!   typical TCP Reno transmitter would time out"), and continues for segments that the source retransmitted.
//! - TCP-AWARE: duplicate acks for cached segments are suppressed. Their expected number is one per segment sent after
//!   the lost one. If that many arrive and the ack has not advanced, the retransmission was lost too. A new ack below
//!   the recovery point shows a further loss of the same burst, which is retransmitted at once.
//! - SMART: the first SACK block of an ack names the segment that caused it. Unacknowledged segments sent before that
//!   one are lost, at the first duplicate ack. They are retransmitted unless that was done within the last round trip,
//!   srtt + 4 rttvar as for the timer: a retransmission waits behind what the queue holds.
//!
//! All state is soft. Duplicate acks for segments outside the cache, and for those that the source retransmitted, pass.
//! Where the paper is silent, values are those of ns-2's snoop.cc: 100 packets, 10 retransmissions of one, gain 1/8,
//! the first duplicate ack passes.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options;
use backchannel_core::options::CheckedOptions;
use backchannel_core::packet::{FlowKey, Packet, Tcp, TcpFlags};
use backchannel_core::registry::Entry;
use backchannel_core::time::Time;
use backchannel_core::traits::{Middlebox, Side};
use backchannel_core::Error;

use crate::Context;

options! {
    /// Options of all four.
    struct Options {
        cache_packets: usize = 100, [Packets 1 to 1e5] "capacity of the cache in packets per connection";
        timeout_min_s: Duration = 0.2, [Time 0.001 to 10]
            "lower bound of the local retransmission timeout (ton III-B: 200 ms)";
        retries: u32 = 10, [Count 1 to 1000] "local retransmissions of a packet before it is left to the source";
    }
}

const fn entry(name: &'static str, summary: &'static str) -> Entry {
    Entry::middlebox(name, summary).source("ton III-B").options(Options::PARAMS)
}

pub(crate) static LL: Entry = entry("ll", "local retransmission at the base station; duplicate acks reach the sender");
pub(crate) static LL_SMART: Entry =
    entry("ll-smart", "local retransmission triggered by SACK blocks; duplicate acks reach the sender");
pub(crate) static LL_TCP_AWARE: Entry =
    entry("ll-tcp-aware", "local retransmission that suppresses duplicate acks (snoop)");
pub(crate) static LL_SMART_TCP_AWARE: Entry =
    entry("ll-smart-tcp-aware", "local retransmission triggered by SACK blocks that suppresses duplicate acks");

/// Builds the scheme that reads SACK blocks if `SMART` and suppresses duplicate acks if `AWARE`.
pub(crate) fn build<const SMART: bool, const AWARE: bool>(
    checked: &CheckedOptions<'_>,
    _: &Context<'_>,
) -> Result<Box<dyn Middlebox>, Error> {
    let parameters = Parameters { smart: SMART, aware: AWARE, options: Options::read(checked) };
    Ok(Box::new(LinkLayer { parameters, flows: HashMap::new() }))
}

/// Duplicate acks that indicate a loss; one may be reordering.
const DUPLICATE_THRESHOLD: u32 = 2;

#[derive(Clone)]
struct Parameters {
    smart: bool,
    aware: bool,
    options: Options,
}

struct LinkLayer {
    parameters: Parameters,
    /// By the direction of the data.
    flows: HashMap<FlowKey, Transfer>,
}

/// One connection's data towards the mobile host.
struct Transfer {
    /// In the order of sequence numbers.
    cache: VecDeque<Cached>,
    /// The latest segments that were retransmitted here, and not yet by the source.
    repaired: VecDeque<u32>,
    acked: Option<u32>,
    window: u16,
    duplicates: u32,
    /// During recovery of the segment at `acked`: duplicate acks that later segments will still cause.
    expected: u32,
    /// Recovery point, the end of the data sent when recovery started. A new ack below it shows a further loss.
    recover: Option<u32>,
    srtt_s: f64,
    rttvar_s: f64,
    sampled: bool,
    /// Expiry of the retransmission timer.
    deadline: Option<Time>,
}

struct Cached {
    seq: u32,
    end: u32,
    packet: Packet,
    sent: Time,
    retransmissions: u32,
    /// The source retransmitted it and so recovers it.
    by_source: bool,
    /// A SACK block has covered it.
    arrived: bool,
}

fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Middlebox for LinkLayer {
    fn process(&mut self, now: Time, from: Side, packet: Packet, out: &mut Vec<(Side, Packet)>, events: &mut Events) {
        // A damaged ack is unreliable, and the sender's TCP drops it.
        let readable = packet.checksum_ok();
        let (Some(&tcp), Some(flow)) = (packet.tcp().filter(|_| readable), packet.flow()) else {
            out.push((from.other(), packet));
            return;
        };
        match from {
            Side::A => {
                if tcp.payload > 0 {
                    let state = self.flows.entry(flow).or_insert_with(Transfer::new);
                    state.sent(now, &self.parameters, tcp, &packet, events);
                }
                out.push((Side::B, packet));
            }
            Side::B => {
                if tcp.flags.any(TcpFlags::RST | TcpFlags::SYN) {
                    self.flows.remove(&flow.reversed());
                }
                let pass = match self.flows.get_mut(&flow.reversed()) {
                    Some(state) if tcp.flags.has(TcpFlags::ACK) => {
                        let block = if self.parameters.smart { packet.sack_blocks().next() } else { None };
                        state.acknowledged(now, &self.parameters, tcp, block, out, events)
                    }
                    _ => true,
                };
                if pass {
                    out.push((Side::A, packet));
                } else {
                    events.record(now, EventKind::Purged, &packet);
                }
            }
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.flows.values().filter_map(|flow| flow.deadline).min()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<(Side, Packet)>, events: &mut Events) {
        let mut due: Vec<_> =
            self.flows.iter_mut().filter(|(_, flow)| flow.deadline.is_some_and(|at| at <= now)).collect();
        // The order of the map differs from run to run.
        due.sort_by_key(|(key, _)| **key);
        for (_, flow) in due {
            flow.on_timer(now, &self.parameters, out, events);
        }
    }
}

impl Transfer {
    fn new() -> Transfer {
        Transfer {
            cache: VecDeque::new(),
            repaired: VecDeque::new(),
            acked: None,
            window: 0,
            duplicates: 0,
            expected: 0,
            recover: None,
            srtt_s: 0.0,
            rttvar_s: 0.0,
            sampled: false,
            deadline: None,
        }
    }

    fn timeout(&self, parameters: &Parameters) -> Duration {
        self.round_trip().max(parameters.options.timeout_min_s)
    }

    /// The longest that a round trip of the wireless hop should take.
    fn round_trip(&self) -> Duration {
        Duration::from_secs_f64(if self.sampled { self.srtt_s + 4.0 * self.rttvar_s } else { 0.25 })
    }

    /// Data on the way to the mobile host.
    fn sent(&mut self, now: Time, parameters: &Parameters, tcp: Tcp, packet: &Packet, events: &mut Events) {
        let end = tcp.seq.wrapping_add(tcp.payload);
        if let Some(place) = self.repaired.iter().position(|&seq| seq == tcp.seq) {
            self.repaired.remove(place);
            events.record(now, EventKind::SourceRetransmit, packet);
        }
        if self.acked.is_some_and(|acked| !before(acked, end)) {
            return;
        }
        if let Some(known) = self.cache.iter_mut().find(|cached| cached.seq == tcp.seq) {
            // A retransmission by the source: its state here is void, and its duplicate acks pass.
            *known = Cached { by_source: true, ..cached(now, tcp, end, packet) };
            self.expected = 0;
            self.deadline = Some(now + self.timeout(parameters));
            return;
        }
        if self.cache.len() >= parameters.options.cache_packets {
            return;
        }
        let place = self.cache.iter().position(|cached| before(tcp.seq, cached.seq)).unwrap_or(self.cache.len());
        self.cache.insert(place, cached(now, tcp, end, packet));
        if self.deadline.is_none() {
            self.deadline = Some(now + self.timeout(parameters));
        }
    }

    /// An ack from the mobile host. Returns whether it is forwarded to the sender.
    fn acknowledged(
        &mut self,
        now: Time,
        parameters: &Parameters,
        tcp: Tcp,
        block: Option<(u32, u32)>,
        out: &mut Vec<(Side, Packet)>,
        events: &mut Events,
    ) -> bool {
        if self.acked.is_some_and(|acked| before(tcp.ack, acked)) {
            return true;
        }
        if self.acked != Some(tcp.ack) {
            self.advance(now, parameters, tcp.ack, out, events);
            self.window = tcp.window;
            return true;
        }
        let duplicate = tcp.payload == 0 && tcp.window == self.window && !tcp.flags.has(TcpFlags::FIN);
        self.window = tcp.window;
        if !duplicate {
            return true;
        }
        self.duplicates += 1;
        match self.cache.front() {
            Some(lost) if lost.seq == tcp.ack && !lost.by_source => {}
            // Not cached, or recovered by the source.
            _ => return true,
        }
        if let Some(block) = block {
            self.send_holes(now, parameters, block, out, events);
            return !parameters.aware;
        }
        if self.recover.is_none() {
            if self.duplicates < DUPLICATE_THRESHOLD {
                return true;
            }
            self.recover(now, parameters, out, events);
        } else {
            self.expected = self.expected.saturating_sub(1);
            if self.expected == 0 {
                // All later segments have arrived, so the retransmission was lost as well.
                self.recover(now, parameters, out, events);
            }
        }
        !parameters.aware
    }

    /// The ack has advanced to `ack`.
    fn advance(
        &mut self,
        now: Time,
        parameters: &Parameters,
        ack: u32,
        out: &mut Vec<(Side, Packet)>,
        events: &mut Events,
    ) {
        let mut sample = None;
        // What waited behind a retransmitted segment measures the recovery, not the hop.
        let mut ambiguous = false;
        while self.cache.front().is_some_and(|cached| !before(ack, cached.end)) {
            let done = self.cache.pop_front().expect("it has a front");
            ambiguous |= done.retransmissions > 0 || done.by_source;
            sample = Some((now - done.sent).as_secs_f64());
        }
        if let Some(rtt_s) = sample.filter(|_| !ambiguous) {
            self.sample(rtt_s);
        }
        self.acked = Some(ack);
        self.duplicates = 0;
        self.deadline = (!self.cache.is_empty()).then(|| now + self.timeout(parameters));
        match self.recover {
            // A burst: the next segment was sent before this recovery started, and is lost too.
            Some(recover) if parameters.aware && !parameters.smart && before(ack, recover) => {
                if self.cache.front().is_some_and(|next| next.seq == ack && !next.by_source) {
                    self.recover(now, parameters, out, events);
                }
            }
            _ => self.recover = None,
        }
    }

    /// Retransmits the oldest packet and updates the number of expected duplicate acks.
    fn recover(&mut self, now: Time, parameters: &Parameters, out: &mut Vec<(Side, Packet)>, events: &mut Events) {
        let newest = self.cache.back().expect("the cache is not empty").end;
        self.recover.get_or_insert(newest);
        // One per packet that was sent after the lost one and has not caused its own yet.
        self.expected = (self.cache.len() as u32).saturating_sub(self.duplicates).max(1);
        self.retransmit(now, parameters, 0, out, events);
    }

    /// SMART: segments sent before the newly arrived block, and not arrived themselves, are lost.
    fn send_holes(
        &mut self,
        now: Time,
        parameters: &Parameters,
        block: (u32, u32),
        out: &mut Vec<(Side, Packet)>,
        events: &mut Events,
    ) {
        let round_trip = self.round_trip();
        for number in 0..self.cache.len() {
            let cached = &mut self.cache[number];
            if !before(cached.seq, block.0) {
                cached.arrived |= before(cached.seq, block.1);
                continue;
            }
            let recently = cached.retransmissions > 0 && now < cached.sent + round_trip;
            if !recently && !cached.by_source && !cached.arrived {
                self.retransmit(now, parameters, number, out, events);
            }
        }
    }

    fn retransmit(
        &mut self,
        now: Time,
        parameters: &Parameters,
        number: usize,
        out: &mut Vec<(Side, Packet)>,
        events: &mut Events,
    ) {
        let cached = &mut self.cache[number];
        if cached.retransmissions >= parameters.options.retries {
            // Left to the source's own recovery.
            cached.by_source = true;
            return;
        }
        cached.retransmissions += 1;
        cached.sent = now;
        if cached.retransmissions == 1 {
            if self.repaired.len() == parameters.options.cache_packets {
                self.repaired.pop_front();
            }
            self.repaired.push_back(cached.seq);
        }
        events.record(now, EventKind::LinkRetransmit, &cached.packet);
        out.push((Side::B, cached.packet.clone()));
        self.deadline = Some(now + self.timeout(parameters));
    }

    /// The retransmission timer has expired.
    fn on_timer(&mut self, now: Time, parameters: &Parameters, out: &mut Vec<(Side, Packet)>, events: &mut Events) {
        self.deadline = None;
        if !self.cache.is_empty() {
            self.recover(now, parameters, out, events);
        }
    }

    fn sample(&mut self, rtt_s: f64) {
        if self.sampled {
            let error = rtt_s - self.srtt_s;
            self.srtt_s += error / 8.0;
            self.rttvar_s += (error.abs() - self.rttvar_s) / 4.0;
        } else {
            self.srtt_s = rtt_s;
            self.rttvar_s = rtt_s / 2.0;
            self.sampled = true;
        }
    }
}

fn cached(now: Time, tcp: Tcp, end: u32, packet: &Packet) -> Cached {
    Cached {
        seq: tcp.seq,
        end,
        packet: packet.clone(),
        sent: now,
        retransmissions: 0,
        by_source: false,
        arrived: false,
    }
}

#[cfg(test)]
mod tests;
