//! Split connections at the base station (ton III-C): SPLIT and SPLIT-SMART, after I-TCP.
//!
//! A connection becomes two, each with its own TCP: the wired part between the host on side A and the base station, and
//! the wireless part between the base station and the host on side B. Towards each host the base station uses the other
//! host's address, port and initial sequence number, and offers no more options than the other host did.
//!
//! Data that arrives on one part is sent on the other from the same buffer ("passing the pointers to the same buffer
//! between the two TCP connections"). It occupies the buffer until the second host has acknowledged it. The free space
//! is the window offered to the first host. If the wireless part stalls, the buffer fills and the wired part's window
//! closes (ton IV-D). The paper's bound is 64 kbytes; here each direction has its own buffer. The wireless part's socket
//! may have a send buffer of its own.
//!
//! - A SYN opens the other part first and is answered when that part is established. A refusal is forwarded. (The paper
//!   is silent.)
//! - A FIN follows the last byte of the buffer. The first host's FIN is acknowledged on arrival, like its data: acks
//!   mean "reached the base station".
//! - A reset, or a part that gives up retransmitting, resets the other part.
//!
//! Only TCP is split. Other packets pass, and so do segments of connections whose SYN was not seen.

use std::collections::BTreeMap;
use std::time::Duration;

use backchannel_core::event::{EventKind, Events, SenderState};
use backchannel_core::ip::IpVersion;
use backchannel_core::options;
use backchannel_core::options::{with_defaults, CheckedOptions, Param, Preset, ABSENT};
use backchannel_core::packet::{FlowKey, Packet, TcpFlags};
use backchannel_core::registry::Entry;
use backchannel_core::scenario::Options;
use backchannel_core::time::Time;
use backchannel_core::traits::{Middlebox, Side};
use backchannel_core::transport::{End, Transport};
use backchannel_core::Error;
use backchannel_stacks::config::{Config, Counting, StackName, Stacks};
use backchannel_stacks::wire::{Segment, TCP_HEADER};
use backchannel_stacks::{reset_for, Connection, Sample, Source, State};

use crate::Context;

options! {
    /// Options of the middlebox.
    struct Parameters {
        buffer_bytes: u64 = 65_536, [Bytes 4096 to 1e8]
            "capacity of the buffer between the parts, per direction (ton IV-D: 64 kbytes)";
        send_buffer_bytes: Option<u64> = ABSENT, [Bytes 512 to 1e8]
            "send buffer of the wireless part's socket, of which whole segments bound its window; absent: no bound";
        wired: StackName = "reno-bsd", [Choice] "research stack of the wired part, on the node's side";
        wireless: StackName = "reno-bsd", [Choice] "research stack of the wireless part, on the link";
        counting: Counting = "acks", [Choice] "how acks open the windows of both parts, as the option of stacks";
        acks_by_space: bool = false, [Flag]
            "both parts acknowledge what has been passed on, as 4.4BSD what has been read, and as the option of stacks";
        header_prediction: bool = false, [Flag]
            "4.4BSD's header prediction in both parts: new acks do not end fast recovery while the congestion window \
             exceeds the peer's window (RFC 2525, 2.8)";
    }
}

pub(crate) static SPLIT: Entry =
    Entry::middlebox("split", "split connection: two TCP connections joined at the base station")
        .source("ton III-C")
        .options(Parameters::PARAMS);

pub(crate) static SPLIT_SMART: Entry =
    Entry::middlebox("split-smart", "split connection with SMART on the wireless part").source("ton III-C").options({
        const PARAMS: &[Param] =
            &with_defaults::<{ Parameters::PARAMS.len() }>(Parameters::PARAMS, &[("wireless", Preset::Text("smart"))]);
        PARAMS
    });

pub(crate) fn build(checked: &CheckedOptions<'_>, context: &Context<'_>) -> Result<Box<dyn Middlebox>, Error> {
    Ok(Box::new(SplitConnection::new(&Parameters::read(checked), context.stacks)?))
}

/// How long a closed pair still answers its hosts, like TIME-WAIT.
const LINGER: Duration = Duration::from_secs(60);

struct SplitConnection {
    /// Of the parts on side A and side B.
    configs: [Part; 2],
    /// By the direction from side A to side B. In order, so that timers of one instant fire alike in every run.
    pairs: BTreeMap<FlowKey, Pair>,
    made: u64,
}

/// The TCP of one part.
struct Part {
    config: Config,
    send_buffer_bytes: Option<u64>,
}

/// A split connection.
struct Pair {
    /// Side of the host that opened it.
    opener: Side,
    /// The base station's ends towards the hosts on side A and B.
    hosts: [HostSide; 2],
    /// When both parts had closed.
    over: Option<Time>,
}

/// The end towards one host, with the address of the other.
#[derive(Default)]
struct HostSide {
    /// The part to this host. The opener's is made when the other one is established.
    part: Option<Connection>,
    /// The host's own SYN.
    syn: Option<Packet>,
    /// Link header for packets to this host, if the driver needs one.
    link_header: Option<[u8; 14]>,
    /// Bytes that the other host acknowledged and that were released in this part's buffer.
    given_back: u64,
}

fn number(side: Side) -> usize {
    match side {
        Side::A => 0,
        Side::B => 1,
    }
}

impl SplitConnection {
    fn new(parameters: &Parameters, stacks: &Stacks) -> Result<SplitConnection, Error> {
        let part = |stack: StackName, send_buffer_bytes| {
            stacks.config(stack.0, &Options::new()).map(|config| Part {
                config: Config {
                    receive_buffer_bytes: parameters.buffer_bytes,
                    counting: parameters.counting,
                    acks_by_space: parameters.acks_by_space,
                    header_prediction: parameters.header_prediction,
                    ..config
                },
                send_buffer_bytes,
            })
        };
        let configs = [part(parameters.wired, None)?, part(parameters.wireless, parameters.send_buffer_bytes)?];
        Ok(SplitConnection { configs, pairs: BTreeMap::new(), made: 0 })
    }

    /// A SYN of a new connection: opens the part to the other host.
    fn open(&mut self, now: Time, opener: Side, key: FlowKey, syn: &Packet) {
        self.pairs.retain(|_, pair| pair.over.is_none_or(|over| now < over + LINGER));
        let Some(segment) = Segment::read(syn) else { return };
        let flow = if opener == Side::A { key } else { key.reversed() };
        let config = bounded(&self.configs[number(opener.other())], &segment, IpVersion::of(key.src));
        let mut hosts = [HostSide::default(), HostSide::default()];
        hosts[number(opener.other())].part = Some(Connection::connect(config, flow, segment.seq, Source::relay()));
        hosts[number(opener)].syn = Some(syn.clone());
        self.pairs.insert(key, Pair { opener, hosts, over: None });
    }
}

/// A part offers no more than the host whose address it uses.
fn bounded(Part { config, send_buffer_bytes }: &Part, syn: &Segment, ip: IpVersion) -> Config {
    let headers = ip.header_bytes() + TCP_HEADER;
    let peer_packet_bytes = syn.mss.map_or(config.packet_bytes, |mss| u32::from(mss).max(64) + headers);
    let packet_bytes = config.packet_bytes.min(peer_packet_bytes);
    let whole_segments = |bytes: u64| u32::try_from(bytes / u64::from(packet_bytes - headers)).unwrap_or(u32::MAX);
    Config {
        packet_bytes,
        timestamps: config.timestamps && syn.timestamps.is_some(),
        window_scaling: config.window_scaling && syn.window_scale.is_some(),
        max_window_segments: send_buffer_bytes.map_or(config.max_window_segments, |bytes| whole_segments(bytes).max(1)),
        ..config.clone()
    }
}

impl Pair {
    fn ended(&self) -> bool {
        self.hosts.iter().all(|host| host.part.as_ref().is_none_or(|part| part.end().is_some()))
    }

    /// A segment of the host on side `from`. Returns a reset for a closed part.
    fn take(&mut self, now: Time, from: Side, packet: &Packet) -> Option<Packet> {
        if let Some(header) = packet.link_header() {
            self.hosts[number(from.other())].link_header = Some(header);
        }
        let host = &mut self.hosts[number(from)];
        // A host that waits for the answer to its SYN sends nothing else.
        let part = host.part.as_mut()?;
        match part.state() {
            State::Closed => return reset_for(0, packet),
            State::SynSent if packet.tcp().is_some_and(|tcp| tcp.flags.has(TcpFlags::SYN)) => {
                host.syn = Some(packet.clone());
            }
            _ => {}
        }
        part.on_packet(now, packet);
        None
    }

    /// Answers the opener's SYN once the part to the other host is established or refused.
    fn answer(&mut self, configs: &[Part; 2]) -> Option<Packet> {
        let (opener, other) = (number(self.opener), number(self.opener.other()));
        let state = self.hosts[other].part.as_ref()?.state();
        if self.hosts[opener].part.is_some() || matches!(state, State::SynSent | State::SynReceived) {
            return None;
        }
        let syn = self.hosts[opener].syn.take()?;
        let answer = self.hosts[other].syn.as_ref().and_then(Segment::read);
        match (answer, self.hosts[other].part.as_ref()?.end()) {
            // Refused.
            (_, Some(End::Reset)) => reset_for(0, &syn),
            (Some(answer), _) => {
                let flow = syn.flow()?.reversed();
                let config = bounded(&configs[opener], &answer, IpVersion::of(flow.src));
                self.hosts[opener].part = Connection::accept(config, flow, answer.seq, Source::relay(), &syn);
                None
            }
            // The other host does not answer, so neither does the base station.
            (None, _) => None,
        }
    }

    /// Moves data, FIN and resets between the parts.
    fn relay(&mut self) {
        let [a, b] = &mut self.hosts;
        for (here, there) in [(0, 1), (1, 0)] {
            let (from, to) = if here < there { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
            let (Some(part), Some(other)) = (&mut from.part, &mut to.part) else { continue };
            for piece in part.read_and_hold() {
                other.relay(piece);
            }
            if part.peer_finished() {
                other.finish();
            }
            let freed = other.acknowledged() - from.given_back;
            if freed > 0 {
                from.given_back += freed;
                part.release(freed);
            }
            if matches!(part.end(), Some(End::Reset | End::TimedOut)) {
                other.abort();
            }
        }
    }

    /// Sends what is due to the host on this side, and reports the part's samples.
    fn transmit(
        &mut self,
        now: Time,
        key: FlowKey,
        to: Side,
        made: &mut u64,
        out: &mut Vec<(Side, Packet)>,
        events: &mut Events,
    ) {
        let Some(part) = &mut self.hosts[number(to)].part else { return };
        let mut again = part.counts().retransmitted;
        let first = out.len();
        while let Some(packet) = part.poll_transmit(now) {
            let retransmitted = part.counts().retransmitted;
            if retransmitted > std::mem::replace(&mut again, retransmitted) && to == Side::B {
                events.record(now, EventKind::LinkRetransmit, &packet);
            }
            out.push((to, packet));
        }
        let (mss, port) = (part.mss(), events.port);
        events.senders.extend(part.samples().iter().map(|sample| sender_state(sample, key, to, mss, port)));
        part.clear_samples();
        for (_, packet) in &mut out[first..] {
            self.dress(to, made, packet);
        }
    }

    /// Sets the id and link header of a packet to this side.
    fn dress(&self, to: Side, made: &mut u64, packet: &mut Packet) {
        *made += 1;
        packet.id = *made;
        // Packets to a host follow packets for it, so the header is known.
        if let Some(header) = self.hosts[number(to)].link_header {
            packet.set_link_header(header);
        }
    }

    /// Advances both parts after a segment or a timer.
    fn work(
        &mut self,
        now: Time,
        key: FlowKey,
        configs: &[Part; 2],
        made: &mut u64,
        out: &mut Vec<(Side, Packet)>,
        events: &mut Events,
    ) {
        if let Some(mut refusal) = self.answer(configs) {
            self.dress(self.opener, made, &mut refusal);
            out.push((self.opener, refusal));
        }
        self.relay();
        self.transmit(now, key, Side::A, made, out, events);
        self.transmit(now, key, Side::B, made, out, events);
        if self.over.is_none() && self.ended() {
            self.over = Some(now);
        }
    }
}

/// A part's sender, which sends to the host on side `to` of the connection that runs from side A to side B as `key`.
fn sender_state(sample: &Sample, key: FlowKey, to: Side, mss: f64, port: u16) -> SenderState {
    SenderState {
        at: sample.at,
        flow: if to == Side::B { key } else { key.reversed() },
        part: if to == Side::B { "wireless" } else { "wired" },
        onto_link: to == Side::B,
        sample: sample.in_segments(mss),
        port,
    }
}

impl Middlebox for SplitConnection {
    fn process(&mut self, now: Time, from: Side, packet: Packet, out: &mut Vec<(Side, Packet)>, events: &mut Events) {
        let (Some(&tcp), Some(flow)) = (packet.tcp(), packet.flow()) else {
            out.push((from.other(), packet));
            return;
        };
        let key = if from == Side::A { flow } else { flow.reversed() };
        let opens = tcp.flags.has(TcpFlags::SYN) && !tcp.flags.any(TcpFlags::ACK | TcpFlags::RST | TcpFlags::FIN);
        if opens && packet.checksum_ok() && self.pairs.get(&key).is_none_or(Pair::ended) {
            self.open(now, from, key, &packet);
        }
        let Some(pair) = self.pairs.get_mut(&key) else {
            out.push((from.other(), packet));
            return;
        };
        if let Some(mut answer) = pair.take(now, from, &packet) {
            pair.dress(from, &mut self.made, &mut answer);
            out.push((from, answer));
        }
        pair.work(now, key, &self.configs, &mut self.made, out, events);
    }

    fn next_event(&self) -> Option<Time> {
        let parts = self.pairs.values().flat_map(|pair| &pair.hosts).filter_map(|host| host.part.as_ref());
        parts.filter_map(Transport::next_timeout).min()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<(Side, Packet)>, events: &mut Events) {
        for (&key, pair) in &mut self.pairs {
            let parts = pair.hosts.iter_mut().filter_map(|host| host.part.as_mut());
            let mut fired = false;
            for part in parts.filter(|part| part.next_timeout().is_some_and(|due| due <= now)) {
                part.on_timer(now);
                fired = true;
            }
            if fired {
                pair.work(now, key, &self.configs, &mut self.made, out, events);
            }
        }
    }
}

#[cfg(test)]
mod tests;
