//! The link-layer family at the base station (ton III-B): LL, LL-SMART, LL-TCP-AWARE (snoop), LL-SMART-TCP-AWARE.
//!
//! The box keeps the data that it sent towards the mobile host until a TCP ack says that they have arrived, and sends again
//! itself what the wireless hop lost. It learns of a loss as TCP does: from duplicate acks, or from a timer.
//!
//! - All: on the second duplicate ack the segment that they ask for is sent again, once; so is the oldest one when nothing
//!   was acknowledged for srtt + 4 rttvar of the wireless hop, 200 ms at least. A segment comes out of order: no scheme
//!   here holds back what follows. The timer does not back off ("several times before a typical TCP Reno transmitter would
//!   time out"), and goes on for what the source has sent again.
//! - TCP-AWARE: duplicate acks for what the box takes care of do not reach the sender. It counts how many are still to come
//!   (one for each segment sent after the lost one); when they have come and the ack has not moved, its own retransmission
//!   was lost too. A new ack that stops short of what had been sent by then tells of a further loss in the same burst: that
//!   segment is sent again at once.
//! - SMART: the ack's first SACK block names the segment that caused it. Whatever the box sent before that one, and is not
//!   acknowledged, is lost, at the first duplicate ack; it is sent again unless that was done within the last round trip.
//!
//! Soft state: what is not in the cache is the source's affair; duplicate acks for that, and for what the source has sent again,
//! pass. Where the paper is silent, as ns-2's snoop.cc: 100 packets, 10 retransmissions of one, gain 1/8, the first
//! duplicate ack passes.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::packet::{FlowKey, Packet, Tcp, TcpFlags};
use backchannel_core::registry::{Entry, Given, Param, Preset, Unit};
use backchannel_core::time::Time;
use backchannel_core::traits::{Middlebox, Side};

const CACHE: Param =
    Param::new("cache_packets", Unit::Packets, Preset::Number(100.0), "packets kept of each connection")
        .range(1.0, 1e5);
const LEAST_TIMEOUT: Param =
    Param::new("timeout_min_s", Unit::Time, Preset::Number(0.2), "least local timeout (ton III-B: 200 ms)")
        .range(0.001, 10.0);
const RETRIES: Param =
    Param::new("retries", Unit::Count, Preset::Number(10.0), "retransmissions of one packet").range(1.0, 1000.0);
const PARAMS: &[Param] = &[CACHE, LEAST_TIMEOUT, RETRIES];

const fn entry(name: &'static str, summary: &'static str) -> Entry {
    Entry { kind: "middlebox", name, summary, source: "ton III-B", params: PARAMS }
}

pub(crate) static LL: Entry = entry("ll", "local retransmission by the base station; duplicate acks reach the sender");
pub(crate) static LL_SMART: Entry = entry("ll-smart", "the same, told of losses by selective acks");
pub(crate) static LL_TCP_AWARE: Entry =
    entry("ll-tcp-aware", "local retransmission that keeps duplicate acks from the sender (snoop)");
pub(crate) static LL_SMART_TCP_AWARE: Entry =
    entry("ll-smart-tcp-aware", "selective acks and no duplicate acks to the sender");

pub(crate) fn ll(given: &Given<'_>) -> Box<dyn Middlebox> {
    LinkLayer::boxed(given, false, false)
}

pub(crate) fn ll_smart(given: &Given<'_>) -> Box<dyn Middlebox> {
    LinkLayer::boxed(given, true, false)
}

pub(crate) fn ll_tcp_aware(given: &Given<'_>) -> Box<dyn Middlebox> {
    LinkLayer::boxed(given, false, true)
}

pub(crate) fn ll_smart_tcp_aware(given: &Given<'_>) -> Box<dyn Middlebox> {
    LinkLayer::boxed(given, true, true)
}

/// The duplicate ack at which a loss is believed: one may be a packet overtaken.
const BELIEVED: u32 = 2;

#[derive(Clone, Copy)]
struct Settings {
    smart: bool,
    aware: bool,
    cache: usize,
    least: Duration,
    retries: u32,
}

struct LinkLayer {
    settings: Settings,
    /// By the direction of the data.
    flows: HashMap<FlowKey, Flow>,
}

/// One connection's data towards the mobile host.
struct Flow {
    /// In the order of sequence numbers.
    cache: VecDeque<Cached>,
    acked: Option<u32>,
    window: u16,
    duplicates: u32,
    /// Local recovery of the segment at `acked`: duplicate acks that its successors will still cause.
    expected: u32,
    /// Above what had been sent when recovery began: a new ack below it tells of a further loss.
    recover: Option<u32>,
    srtt_s: f64,
    rttvar_s: f64,
    sampled: bool,
    /// When the oldest cached packet is overdue.
    deadline: Option<Time>,
}

struct Cached {
    seq: u32,
    end: u32,
    packet: Packet,
    sent: Time,
    tries: u32,
    /// The source sent it again: its recovery is the source's affair.
    by_source: bool,
    /// A selective ack has named it.
    arrived: bool,
}

fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl LinkLayer {
    fn boxed(given: &Given<'_>, smart: bool, aware: bool) -> Box<dyn Middlebox> {
        let seconds = given.number("timeout_min_s").expect("it has a default");
        let settings = Settings {
            smart,
            aware,
            cache: given.count("cache_packets").expect("it has a default") as usize,
            least: Duration::from_secs_f64(seconds),
            retries: given.count("retries").expect("it has a default") as u32,
        };
        Box::new(LinkLayer { settings, flows: HashMap::new() })
    }
}

impl Middlebox for LinkLayer {
    fn process(&mut self, now: Time, from: Side, packet: Packet, out: &mut Vec<(Side, Packet)>, events: &mut Events) {
        // A damaged ack says nothing that can be relied on; the sender's TCP will drop it.
        let readable = packet.checksum_ok();
        let (Some(&tcp), Some(flow)) = (packet.tcp().filter(|_| readable), packet.flow()) else {
            out.push((from.other(), packet));
            return;
        };
        match from {
            Side::A => {
                if tcp.payload > 0 {
                    let settings = self.settings;
                    self.flows.entry(flow).or_insert_with(Flow::new).sent(now, &settings, tcp, &packet);
                }
                out.push((Side::B, packet));
            }
            Side::B => {
                if tcp.flags.any(TcpFlags::RST | TcpFlags::SYN) {
                    self.flows.remove(&flow.reversed());
                }
                let pass = match self.flows.get_mut(&flow.reversed()) {
                    Some(state) if tcp.flags.has(TcpFlags::ACK) => {
                        let block = if self.settings.smart { first_block(packet.tcp_options()) } else { None };
                        state.acknowledged(now, &self.settings, tcp, block, out, events)
                    }
                    _ => true,
                };
                if pass {
                    out.push((Side::A, packet));
                } else {
                    events.note(now, EventKind::Purged, &packet);
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
        // Not in the map's order, which differs from run to run.
        due.sort_by_key(|(key, _)| **key);
        for (_, flow) in due {
            flow.overdue(now, &self.settings, out, events);
        }
    }
}

impl Flow {
    fn new() -> Flow {
        Flow {
            cache: VecDeque::new(),
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

    fn timeout(&self, settings: &Settings) -> Duration {
        let estimate = Duration::from_secs_f64(if self.sampled { self.srtt_s + 4.0 * self.rttvar_s } else { 0.25 });
        estimate.max(settings.least)
    }

    /// Data on their way to the mobile host.
    fn sent(&mut self, now: Time, settings: &Settings, tcp: Tcp, packet: &Packet) {
        let end = tcp.seq.wrapping_add(tcp.payload);
        if self.acked.is_some_and(|acked| !before(acked, end)) {
            return;
        }
        if let Some(known) = self.cache.iter_mut().find(|cached| cached.seq == tcp.seq) {
            // From the source again: what was known of it here is void, and its duplicate acks are not held back.
            *known = Cached { by_source: true, sent: now, tries: 0, ..cached(now, tcp, end, packet) };
            self.expected = 0;
            self.deadline = Some(now + self.timeout(settings));
            return;
        }
        if self.cache.len() >= settings.cache {
            return;
        }
        let place = self.cache.iter().position(|cached| before(tcp.seq, cached.seq)).unwrap_or(self.cache.len());
        self.cache.insert(place, cached(now, tcp, end, packet));
        if self.deadline.is_none() {
            self.deadline = Some(now + self.timeout(settings));
        }
    }

    /// An ack from the mobile host; whether it may go on to the sender.
    fn acknowledged(
        &mut self,
        now: Time,
        settings: &Settings,
        tcp: Tcp,
        block: Option<(u32, u32)>,
        out: &mut Vec<(Side, Packet)>,
        events: &mut Events,
    ) -> bool {
        if self.acked.is_some_and(|acked| before(tcp.ack, acked)) {
            return true;
        }
        if self.acked != Some(tcp.ack) {
            self.moved(now, settings, tcp.ack, out, events);
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
            // The source's affair: it never came here, or the source has taken over.
            _ => return true,
        }
        if let Some(block) = block {
            self.send_holes(now, settings, block, out, events);
            return !settings.aware;
        }
        if self.recover.is_none() {
            if self.duplicates < BELIEVED {
                return true;
            }
            self.recover(now, settings, out, events);
        } else {
            self.expected = self.expected.saturating_sub(1);
            if self.expected == 0 {
                // All that was sent after it has arrived, and it has not: its retransmission was lost as well.
                self.recover(now, settings, out, events);
            }
        }
        !settings.aware
    }

    /// The ack has moved to `ack`.
    fn moved(&mut self, now: Time, settings: &Settings, ack: u32, out: &mut Vec<(Side, Packet)>, events: &mut Events) {
        let mut sample = None;
        while self.cache.front().is_some_and(|cached| !before(ack, cached.end)) {
            let done = self.cache.pop_front().expect("it has a front");
            // Karn: of what was sent once only.
            sample = (done.tries == 0 && !done.by_source).then(|| (now - done.sent).as_secs_f64());
        }
        if let Some(rtt_s) = sample {
            self.sample(rtt_s);
        }
        self.acked = Some(ack);
        self.duplicates = 0;
        self.deadline = (!self.cache.is_empty()).then(|| now + self.timeout(settings));
        match self.recover {
            // A burst: the next one is lost too, and was sent before this recovery began.
            Some(recover) if before(ack, recover) && !settings.smart => {
                if self.cache.front().is_some_and(|next| next.seq == ack && !next.by_source) {
                    self.recover(now, settings, out, events);
                }
            }
            _ => self.recover = None,
        }
    }

    /// Sends the oldest packet again, and reckons how many duplicate acks that leaves to come.
    fn recover(&mut self, now: Time, settings: &Settings, out: &mut Vec<(Side, Packet)>, events: &mut Events) {
        let newest = self.cache.back().expect("there is an oldest").end;
        self.recover.get_or_insert(newest);
        // One for each packet that was sent after the lost one, and has not caused its own yet.
        self.expected = (self.cache.len() as u32).saturating_sub(self.duplicates).max(1);
        self.send_again(now, settings, 0, out, events);
    }

    /// SMART: what was sent before the block that has just arrived, and has not arrived itself, is lost.
    fn send_holes(
        &mut self,
        now: Time,
        settings: &Settings,
        block: (u32, u32),
        out: &mut Vec<(Side, Packet)>,
        events: &mut Events,
    ) {
        let round_trip = Duration::from_secs_f64(self.srtt_s.max(0.001));
        for number in 0..self.cache.len() {
            let cached = &mut self.cache[number];
            if !before(cached.seq, block.0) {
                cached.arrived |= before(cached.seq, block.1);
                continue;
            }
            let lately = cached.tries > 0 && now < cached.sent + round_trip;
            if !lately && !cached.by_source && !cached.arrived {
                self.send_again(now, settings, number, out, events);
            }
        }
    }

    fn send_again(
        &mut self,
        now: Time,
        settings: &Settings,
        number: usize,
        out: &mut Vec<(Side, Packet)>,
        events: &mut Events,
    ) {
        let cached = &mut self.cache[number];
        if cached.tries >= settings.retries {
            // It gives up: the source's own recovery must do.
            cached.by_source = true;
            return;
        }
        cached.tries += 1;
        cached.sent = now;
        events.note(now, EventKind::LinkRetransmit, &cached.packet);
        out.push((Side::B, cached.packet.clone()));
        self.deadline = Some(now + self.timeout(settings));
    }

    /// Nothing was acknowledged for a timeout.
    fn overdue(&mut self, now: Time, settings: &Settings, out: &mut Vec<(Side, Packet)>, events: &mut Events) {
        self.deadline = None;
        if !self.cache.is_empty() {
            self.recover(now, settings, out, events);
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
    Cached { seq: tcp.seq, end, packet: packet.clone(), sent: now, tries: 0, by_source: false, arrived: false }
}

/// The first SACK block: that of the segment which caused the ack.
fn first_block(mut options: &[u8]) -> Option<(u32, u32)> {
    loop {
        match options {
            [1, rest @ ..] => options = rest,
            [5, length, a, b, c, d, e, f, g, h, ..] if *length >= 10 => {
                return Some((u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h])));
            }
            [kind, length, ..] if *kind != 0 && *length >= 2 && usize::from(*length) <= options.len() => {
                options = &options[usize::from(*length)..];
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests;
