//! Metricom's packet radio: half-duplex radios in a chain, RTS/CTS polling and a window-1 link protocol (asym 5.1, 7.2).
//!
//! ```text
//! gateway radio --- poletop --- poletop --- mobile      three hops; further mobiles hang on the last radio before them
//!   (end 0)         (inside)    (inside)    (end 1, 2, ...)
//! ```
//!
//! A radio that has a frame for a neighbour polls it with an RTS. A neighbour that is not engaged turns around and answers
//! with a CTS, and the frame follows. One that is engaged says nothing, or NACK-CTS, and the poller backs off for a random
//! time. Each frame is acknowledged by the neighbour before the next one goes (window 1): with a frame of its own, or, where
//! a frame for the sender waits already, in that frame's header (7.2.1). Frames that were not acknowledged go again.
//!
//! Sizes, timeouts and backoff are not in the paper; the defaults are those of its authors' simulator (ns: `mac-multihop`).
//! Fixed latency is charged to data frames and link acks, not to RTS and CTS.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Given, Param, Preset, Unit};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::scenario::{DirectionSpec, LinkSpec};
use backchannel_core::time::{service_time, Time};
use backchannel_core::traits::{Delivery, Link, Policy, Port, Usage};
use backchannel_policies::Context;

use crate::far_end::FarEnd;
use crate::point_to_point::{check_rate, delay};

const fn milliseconds(name: &'static str, preset_ms: f64, help: &'static str) -> Param {
    Param::new(name, Unit::Time, Preset::Number(preset_ms / 1000.0), help).range(0.0, 10.0)
}

pub(crate) static ENTRY: Entry = Entry {
    kind: "link",
    name: "ricochet",
    summary:
        "packet radio: half-duplex hops with RTS/CTS polling and link acks; end 0 is the gateway, the others mobiles",
    source: "asym 5.1, 7.2, table 4",
    params: &[
        Param::new("hops", Unit::Count, Preset::Number(1.0), "radio hops between gateway and mobile").range(1.0, 10.0),
        milliseconds("transmit_receive_s", 11.125, "T_TR: from transmitting to receiving"),
        milliseconds("receive_transmit_s", 13.25, "T_RT: from receiving to transmitting"),
        Param::new("poll_bytes", Unit::Bytes, Preset::Number(40.0), "size of RTS, CTS and NACK-CTS").range(1.0, 1500.0),
        Param::new("header_bytes", Unit::Bytes, Preset::Number(16.0), "a frame's header, and the size of a link ack")
            .range(1.0, 1500.0),
        milliseconds("backoff_s", 20.0, "base of the backoff: doubled with each failure, back to this with a CTS"),
        Param::new(
            "nack_cts",
            Unit::Flag,
            Preset::Flag(false),
            "an engaged radio that hears an RTS and can answer says so",
        ),
        Param::new(
            "piggyback",
            Unit::Flag,
            Preset::Flag(true),
            "link acks ride in frames that wait for the same radio",
        ),
        Param::new(
            "turnarounds",
            Unit::Choice,
            Preset::Text("handshake"),
            "handshake: one for each exchange, before the CTS, as in ns; every-frame: whenever a radio changes over",
        )
        .of(&["handshake", "every-frame"]),
        Param::new(
            "frame_loss",
            Unit::Fraction,
            Preset::Number(0.0),
            "share of frames of each kind that the air loses",
        )
        .range(0.0, 0.9),
        Param::new(
            "retries",
            Unit::Count,
            Preset::Absent,
            "transmissions of a frame after the first; without it, no limit",
        )
        .range(0.0, 1000.0),
    ],
};

/// Beyond what a link ack needs, before a frame counts as lost.
const ACK_MARGIN: Duration = Duration::from_millis(5);
/// Queues of a radio, by the way their packets go.
const TO_MOBILE: usize = 0;
const TO_GATEWAY: usize = 1;

pub(crate) fn build(given: &Given<'_>, spec: &LinkSpec, seed: u64) -> Result<Box<dyn Link>, String> {
    Ok(Box::new(Ricochet::new(given, spec, seed)?))
}

struct Ricochet {
    settings: Settings,
    /// Gateway, poletops, mobiles.
    radios: Vec<Radio>,
    /// Radios before the mobiles.
    chain: usize,
    /// Last bits on their way out, per port that they come out of.
    far_ends: Vec<FarEnd>,
    usage: Vec<Usage>,
    agenda: BinaryHeap<Reverse<(Time, u64, Step)>>,
    steps: u64,
    rng: RunRng,
    #[cfg(test)]
    on_air: Vec<(usize, bool, Time, Time)>,
}

struct Settings {
    rate_bps: u64,
    latency: Duration,
    poll: Duration,
    link_ack: Duration,
    header_bytes: u64,
    t_tr: Duration,
    t_rt: Duration,
    backoff: Duration,
    nack_cts: bool,
    piggyback: bool,
    every_frame_turns: bool,
    frame_loss: f64,
    retries: Option<u64>,
}

impl Settings {
    /// Before an answer: whichever of the two needs longer to change over.
    fn turnaround(&self) -> Duration {
        self.t_tr.max(self.t_rt)
    }

    /// Between what a radio hears and what it says beside the CTS, and the other way round.
    fn changing_over(&self) -> Duration {
        if self.every_frame_turns {
            self.turnaround()
        } else {
            Duration::ZERO
        }
    }
}

struct Radio {
    queues: [Option<Waiting>; 2],
    mode: Mode,
    /// Counts changes of mode: what was arranged in an earlier one is void.
    epoch: u64,
    /// From when on it can hear.
    hears_from: Time,
    /// From when on it can send.
    sends_from: Time,
    /// The frame that is to be acknowledged: queue and radio.
    awaits: Option<(usize, usize)>,
    /// Whom it owes a link ack.
    owes: Option<usize>,
    /// The queue that is served next.
    turn: usize,
    /// Per neighbour: the number of the last frame from there. A number where the protocol has a bit: with a limit of
    /// retries a bit would take a new frame for the one that was given up.
    heard: Vec<(usize, u64)>,
}

impl Radio {
    /// Whether it does nothing but wait for this neighbour's link ack.
    fn awaits_ack_of(&self, by: usize) -> bool {
        matches!(self.mode, Mode::Awaiting { peer, .. } if peer == by)
    }
}

/// A queue of a radio and the frame that has left it and is not acknowledged.
struct Waiting {
    policy: Box<dyn Policy>,
    head: Option<Head>,
    backoff: Duration,
    not_before: Time,
    /// Frames so far, per radio that they may go to.
    numbers: Vec<(usize, u64)>,
}

struct Head {
    packet: Packet,
    to: usize,
    number: u64,
    transmissions: u64,
}

/// What a radio is at. Idle radios, those in backoff among them, and those that wait for a link ack hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Idle,
    /// It has sent an RTS for the head of this queue.
    Polling {
        queue: usize,
        peer: usize,
    },
    /// Its frame is on the air.
    Sending {
        queue: usize,
        peer: usize,
    },
    /// Its frame has gone out at that instant; until the link ack is there or given up.
    Awaiting {
        peer: usize,
        since: Time,
    },
    /// It has answered a poll: CTS, the frame, the link ack.
    Answering {
        peer: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// An RTS has been on the air since the instant given.
    RtsEnds {
        from: usize,
        to: usize,
        epoch: u64,
        since: Time,
    },
    CtsEnds {
        from: usize,
        to: usize,
        epoch: u64,
    },
    NackEnds {
        to: usize,
        epoch: u64,
    },
    FrameBegins {
        from: usize,
        to: usize,
        epoch: u64,
    },
    FrameEnds {
        from: usize,
        to: usize,
        epoch: u64,
        heard: bool,
    },
    FrameIsThrough {
        from: usize,
        to: usize,
        number: u64,
        carries_ack: bool,
        epoch: u64,
    },
    AckBegins {
        from: usize,
        to: usize,
        epoch: u64,
    },
    AckEnds {
        from: usize,
        to: usize,
        epoch: u64,
        heard: bool,
    },
    AckIsThrough {
        to: usize,
        by: usize,
    },
    /// No CTS, no frame or no link ack came.
    GiveUp {
        radio: usize,
        epoch: u64,
    },
    /// A backoff is over.
    Wake {
        radio: usize,
    },
}

impl Ricochet {
    fn new(given: &Given<'_>, spec: &LinkSpec, seed: u64) -> Result<Ricochet, String> {
        if spec.ends.len() < 2 {
            return Err("a ricochet link has a gateway and at least one mobile".into());
        }
        check_rate(spec.forward.rate_bps)?;
        let rate_bps = spec.forward.rate_bps.ok_or("a radio has a rate")?;
        if spec.reverse.rate_bps != Some(rate_bps) {
            return Err("half-duplex radios have one rate: give forward and reverse the same".into());
        }
        if (spec.forward.delay_s - spec.reverse.delay_s).abs() > f64::EPSILON {
            return Err("a hop's fixed latency is the same both ways: give forward and reverse the same delay".into());
        }
        for (name, direction) in [("forward", &spec.forward), ("reverse", &spec.reverse)] {
            if !direction.schedule.is_empty() {
                return Err(format!("{name}: a ricochet link has no changes over time"));
            }
            if let Some(option) = direction.options.keys().next() {
                return Err(format!("{name}: a ricochet link has no option '{option}'"));
            }
        }
        let time = |name: &str| Duration::from_secs_f64(given.number(name).expect("it has a default"));
        let bytes = |name: &str| given.count(name).expect("it has a default");
        let on_air = |bytes: u64| service_time(bytes * 8, rate_bps);
        let settings = Settings {
            rate_bps,
            latency: delay(spec.forward.delay_s)?,
            poll: on_air(bytes("poll_bytes")),
            link_ack: on_air(bytes("header_bytes")),
            header_bytes: bytes("header_bytes"),
            t_tr: time("transmit_receive_s"),
            t_rt: time("receive_transmit_s"),
            backoff: time("backoff_s"),
            nack_cts: given.flag("nack_cts"),
            piggyback: given.flag("piggyback"),
            every_frame_turns: given.text("turnarounds") == Some("every-frame"),
            frame_loss: given.number("frame_loss").expect("it has a default"),
            retries: given.count("retries"),
        };
        if settings.backoff.is_zero() {
            return Err("backoff_s: two radios that never back off poll each other for ever".into());
        }
        let chain = bytes("hops") as usize;
        let mobiles = spec.ends.len() - 1;
        let waiting = |direction: &DirectionSpec, way: &str, radio: usize, peers: Vec<usize>| {
            let label = format!("{}/{way}/radio-{radio}", spec.name);
            let context = Context { seed, label, rate_bps: Some(rate_bps), opposite_rate_bps: Some(rate_bps) };
            let policy = backchannel_policies::build(&direction.queue.name, &direction.queue.options, &context)
                .map_err(|why| format!("{way}: {why}"))?;
            let numbers = peers.into_iter().map(|peer| (peer, 0)).collect();
            let (backoff, not_before) = (settings.backoff, Time::ZERO);
            Ok::<_, String>(Some(Waiting { policy, head: None, backoff, not_before, numbers }))
        };
        let mut radios = Vec::new();
        for radio in 0..chain + mobiles {
            let up = (radio > 0).then(|| (radio - 1).min(chain - 1));
            let down: Vec<usize> = match radio {
                last if last + 1 == chain => (chain..chain + mobiles).collect(),
                relay if relay < chain => vec![relay + 1],
                _ => Vec::new(),
            };
            let heard = up.iter().chain(&down).map(|peer| (*peer, 0)).collect();
            let to_mobile = if down.is_empty() { None } else { waiting(&spec.forward, "forward", radio, down)? };
            let to_gateway = match up {
                Some(up) => waiting(&spec.reverse, "reverse", radio, vec![up])?,
                None => None,
            };
            radios.push(Radio {
                queues: [to_mobile, to_gateway],
                mode: Mode::Idle,
                epoch: 0,
                hears_from: Time::ZERO,
                sends_from: Time::ZERO,
                awaits: None,
                owes: None,
                turn: TO_MOBILE,
                heard,
            });
        }
        let far_end = |port: usize| {
            let (way, direction) = if port == 0 {
                ("reverse".to_owned(), &spec.reverse)
            } else {
                (format!("forward-{port}"), &spec.forward)
            };
            FarEnd::new(Duration::ZERO, &direction.errors, seed, &format!("{}/{way}", spec.name))
                .map_err(|why| format!("{}: {why}", if port == 0 { "reverse" } else { "forward" }))
        };
        Ok(Ricochet {
            settings,
            radios,
            chain,
            far_ends: (0..spec.ends.len()).map(far_end).collect::<Result<_, _>>()?,
            usage: vec![Usage::default(); spec.ends.len()],
            agenda: BinaryHeap::new(),
            steps: 0,
            rng: rng::stream(seed, &format!("{}/radios", spec.name)),
            #[cfg(test)]
            on_air: Vec::new(),
        })
    }

    fn radio_of(&self, port: Port) -> usize {
        match port {
            0 => 0,
            mobile => self.chain + usize::from(mobile) - 1,
        }
    }

    /// The neighbour of a radio through which a packet goes on.
    fn next_radio(&self, radio: usize, queue: usize, packet: &Packet) -> usize {
        match queue {
            TO_GATEWAY => (radio - 1).min(self.chain - 1),
            _ if radio + 1 == self.chain => self.radio_of(packet.to_port()),
            _ => radio + 1,
        }
    }

    fn at(&mut self, when: Time, step: Step) {
        self.steps += 1;
        self.agenda.push(Reverse((when, self.steps, step)));
    }

    fn enter(&mut self, radio: usize, mode: Mode) -> u64 {
        let radio = &mut self.radios[radio];
        radio.mode = mode;
        radio.epoch += 1;
        radio.epoch
    }

    fn is_lost(&mut self) -> bool {
        self.settings.frame_loss > 0.0 && rng::uniform(&mut self.rng) < self.settings.frame_loss
    }

    /// A radio sends from one instant to another.
    fn transmits(&mut self, radio: usize, from: Time, to: Time) {
        self.radios[radio].hears_from = to + self.settings.changing_over();
        #[cfg(test)]
        self.on_air.push((radio, true, from, to));
        #[cfg(not(test))]
        let _ = from;
    }

    /// A radio has heard something of this length.
    fn receives(&mut self, radio: usize, length: Duration, to: Time) {
        self.radios[radio].sends_from = to + self.settings.changing_over();
        #[cfg(test)]
        self.on_air.push((radio, false, Time(to.0 - length.as_nanos() as u64), to));
        #[cfg(not(test))]
        let _ = length;
    }

    /// A packet joins the queue of a radio.
    fn enqueue(&mut self, now: Time, radio: usize, queue: usize, packet: Packet, events: &mut Events) {
        events.port = packet.from_port();
        if let Some(other) = &mut self.radios[radio].queues[1 - queue] {
            other.policy.on_opposite(now, &packet);
        }
        let waiting = self.radios[radio].queues[queue].as_mut().expect("a packet goes where radios are");
        waiting.policy.enqueue(now, packet, events);
        self.try_to_send(now, radio, events);
    }

    /// An idle radio polls for the frame whose turn it is.
    fn try_to_send(&mut self, now: Time, radio: usize, events: &mut Events) {
        if self.radios[radio].mode != Mode::Idle {
            return;
        }
        let first = self.radios[radio].turn;
        let ready = self.radios[radio].sends_from;
        let mut later: Option<Time> = None;
        for queue in [first, 1 - first] {
            let Some(waiting) = &mut self.radios[radio].queues[queue] else { continue };
            let Some(held) = waiting.head.as_ref().map_or_else(|| waiting.policy.next_time(), |_| Some(Time::ZERO))
            else {
                continue;
            };
            let earliest = waiting.not_before.max(ready).max(held);
            if earliest > now {
                later = Some(later.map_or(earliest, |at| at.min(earliest)));
                continue;
            }
            if waiting.head.is_none() {
                events.port = if queue == TO_MOBILE { 0 } else { self.port_of(radio) };
                let waiting = self.radios[radio].queues[queue].as_mut().expect("it was there");
                let Some(packet) = waiting.policy.dequeue(now, events) else { continue };
                let to = self.next_radio(radio, queue, &packet);
                let waiting = self.radios[radio].queues[queue].as_mut().expect("it was there");
                let number = waiting.numbers.iter_mut().find(|(peer, _)| *peer == to).expect("it goes to a neighbour");
                number.1 += 1;
                waiting.head = Some(Head { packet, to, number: number.1, transmissions: 0 });
            }
            let peer =
                self.radios[radio].queues[queue].as_ref().and_then(|one| one.head.as_ref()).expect("just put").to;
            self.radios[radio].turn = 1 - queue;
            let epoch = self.enter(radio, Mode::Polling { queue, peer });
            let end = now + self.settings.poll;
            self.transmits(radio, now, end);
            self.at(end, Step::RtsEnds { from: radio, to: peer, epoch, since: now });
            let patience = self.settings.turnaround() + 4 * self.settings.poll;
            self.at(now + patience, Step::GiveUp { radio, epoch });
            return;
        }
        if let Some(at) = later {
            self.at(at, Step::Wake { radio });
        }
    }

    /// The port that counts what a mobile's radio, or a poletop's, sends towards the gateway.
    fn port_of(&self, radio: usize) -> Port {
        (radio + 1).saturating_sub(self.chain).max(1) as Port
    }

    fn take(&mut self, now: Time, step: Step, events: &mut Events) {
        match step {
            Step::RtsEnds { from, to, epoch, since } => self.rts(now, from, to, epoch, since),
            Step::CtsEnds { from, to, epoch } => {
                let lost = self.is_lost();
                let Mode::Polling { queue, peer } = self.radios[to].mode else { return };
                if lost || self.radios[to].epoch != epoch || peer != from {
                    return;
                }
                self.receives(to, self.settings.poll, now);
                let epoch = self.enter(to, Mode::Sending { queue, peer });
                let waiting = self.radios[to].queues[queue].as_mut().expect("it polled for it");
                waiting.backoff = self.settings.backoff;
                self.at(self.radios[to].sends_from, Step::FrameBegins { from: to, to: from, epoch });
            }
            Step::NackEnds { to, epoch } => {
                if !self.is_lost() && self.radios[to].epoch == epoch {
                    self.receives(to, self.settings.poll, now);
                    self.give_up(now, to, events);
                }
            }
            Step::FrameBegins { from, to, epoch } => self.begin_frame(now, from, to, epoch),
            Step::FrameEnds { from, to, epoch, heard } => self.end_frame(now, (from, to), epoch, heard),
            Step::FrameIsThrough { from, to, number, carries_ack, epoch } => {
                self.frame(now, (from, to), number, carries_ack, epoch, events);
            }
            Step::AckBegins { from, to, epoch } => {
                if self.radios[from].epoch == epoch {
                    let (heard, end) = (!self.is_lost(), now + self.settings.link_ack);
                    self.transmits(from, now, end);
                    self.at(end, Step::AckEnds { from, to, epoch, heard });
                }
            }
            Step::AckEnds { from, to, epoch, heard } => {
                if heard && self.radios[to].awaits_ack_of(from) {
                    self.receives(to, self.settings.link_ack, now);
                    self.at(now + self.settings.latency, Step::AckIsThrough { to, by: from });
                }
                if self.radios[from].epoch == epoch {
                    self.stop_answering(now, from, events);
                }
            }
            Step::AckIsThrough { to, by } => self.acknowledged(now, to, by, events),
            Step::GiveUp { radio, epoch } => {
                if self.radios[radio].epoch == epoch {
                    self.give_up(now, radio, events);
                }
            }
            Step::Wake { radio } => self.try_to_send(now, radio, events),
        }
    }

    /// An RTS has been sent. A radio that is not engaged answers it; so does the one that its sender keeps waiting for a
    /// link ack, since that ack may come in the frame.
    fn rts(&mut self, now: Time, from: usize, to: usize, epoch: u64, since: Time) {
        let (lost, settings, radio) = (self.is_lost(), &self.settings, &self.radios[to]);
        if lost || self.radios[from].epoch != epoch || radio.hears_from > since {
            return;
        }
        let begins = now + settings.turnaround();
        let ends = begins + settings.poll;
        if radio.mode == Mode::Idle || radio.awaits_ack_of(from) {
            let patience = settings.changing_over() + settings.turnaround();
            self.receives(to, self.settings.poll, now);
            let own = self.enter(to, Mode::Answering { peer: from });
            self.transmits(to, begins, ends);
            self.at(ends, Step::CtsEnds { from: to, to: from, epoch });
            // When the frame begins, the epoch changes.
            self.at(ends + patience, Step::GiveUp { radio: to, epoch: own });
        } else if let (true, Mode::Awaiting { since, .. }) = (settings.nack_cts, radio.mode) {
            // It waits for somebody else's link ack, which comes after the fixed latency at the earliest: it may speak if
            // it hears again by then.
            if ends + settings.changing_over() <= since + settings.latency {
                self.receives(to, self.settings.poll, now);
                self.transmits(to, begins, ends);
                self.at(ends, Step::NackEnds { to: from, epoch });
            }
        }
    }

    fn begin_frame(&mut self, now: Time, from: usize, to: usize, epoch: u64) {
        let Mode::Sending { queue, .. } = self.radios[from].mode else { return };
        if self.radios[from].epoch != epoch {
            return;
        }
        let settings = &self.settings;
        let head =
            self.radios[from].queues[queue].as_mut().and_then(|one| one.head.as_mut()).expect("it polled for it");
        head.transmissions += 1;
        let bits = (u64::from(head.packet.len()) + settings.header_bytes) * 8;
        let time = service_time(bits, settings.rate_bps);
        let (port, end) = (usize::from(head.packet.from_port()), now + time);
        // Relays repeat what the first radio has sent: it alone counts.
        if from == self.radio_of(port as Port) {
            self.usage[port].line_bits += bits;
            self.usage[port].busy += time;
        }
        self.transmits(from, now, end);
        let heard = !self.is_lost() && self.radios[to].mode == (Mode::Answering { peer: from });
        if heard {
            // It no longer waits for the frame to begin.
            self.enter(to, Mode::Answering { peer: from });
        }
        self.at(end, Step::FrameEnds { from, to, epoch, heard });
    }

    fn end_frame(&mut self, now: Time, (from, to): (usize, usize), epoch: u64, heard: bool) {
        let Mode::Sending { queue, peer } = self.radios[from].mode else { return };
        if self.radios[from].epoch != epoch {
            return;
        }
        let head = self.radios[from].queues[queue].as_ref().and_then(|one| one.head.as_ref()).expect("it is sent");
        let (number, length) = (head.number, u64::from(head.packet.len()) + self.settings.header_bytes);
        let carries_ack = self.radios[from].owes.take_if(|owed| *owed == to).is_some();
        self.radios[from].awaits = Some((queue, peer));
        let sender = self.enter(from, Mode::Awaiting { peer, since: now });
        let settings = &self.settings;
        let patience =
            2 * settings.latency.max(settings.changing_over()) + settings.link_ack + settings.t_tr + settings.t_rt;
        self.at(now + patience + ACK_MARGIN, Step::GiveUp { radio: from, epoch: sender });
        if !heard {
            return;
        }
        self.receives(to, service_time(length * 8, self.settings.rate_bps), now);
        let epoch = self.radios[to].epoch;
        let through = Step::FrameIsThrough { from, to, number, carries_ack, epoch };
        self.at(now + self.settings.latency, through);
    }

    /// A frame is through: it is passed on, unless it came before, and acknowledged.
    fn frame(
        &mut self,
        now: Time,
        (from, to): (usize, usize),
        number: u64,
        carries_ack: bool,
        epoch: u64,
        events: &mut Events,
    ) {
        if carries_ack {
            self.acknowledged(now, to, from, events);
        }
        let last = self.radios[to].heard.iter_mut().find(|(peer, _)| *peer == from).expect("they are neighbours");
        let is_new = last.1 != number;
        last.1 = number;
        let way = if from < to { TO_MOBILE } else { TO_GATEWAY };
        // The packet stays with its sender until the link ack is there; a copy goes on.
        let head = self.radios[from].queues[way].as_ref().and_then(|one| one.head.as_ref());
        let packet = head.filter(|head| is_new && head.number == number).map(|head| head.packet.clone());
        if self.radios[to].epoch == epoch {
            if self.settings.piggyback && self.has_frame_for(now, to, from) {
                self.radios[to].owes = Some(from);
                self.radios[to].turn = 1 - way;
                self.enter(to, Mode::Idle);
            } else {
                let begins = now.max(self.radios[to].sends_from);
                self.at(begins, Step::AckBegins { from: to, to: from, epoch });
            }
        }
        if let Some(packet) = packet {
            // A mobile's packet for another mobile turns round at the radio that both hang on.
            let onward = if packet.to_port() == 0 { TO_GATEWAY } else { TO_MOBILE };
            if to >= self.chain || (to == 0 && onward == TO_GATEWAY) {
                let port = if to == 0 { 0 } else { to - self.chain + 1 };
                self.far_ends[port].fly(now, packet);
            } else {
                self.enqueue(now, to, if to + 1 == self.chain { onward } else { way }, packet, events);
            }
        }
        self.try_to_send(now, to, events);
    }

    /// Whether a frame for a neighbour waits, and is not held back by a backoff.
    fn has_frame_for(&self, now: Time, radio: usize, peer: usize) -> bool {
        let queue = if peer < radio { TO_GATEWAY } else { TO_MOBILE };
        let Some(waiting) = &self.radios[radio].queues[queue] else { return false };
        if waiting.not_before > now {
            return false;
        }
        match (&waiting.head, waiting.numbers.len()) {
            (Some(head), _) => head.to == peer,
            (None, 1) => waiting.policy.next_time().is_some_and(|at| at <= now),
            (None, _) => {
                waiting.policy.next_time().is_some_and(|at| at <= now)
                    && waiting.policy.peek().is_some_and(|packet| self.next_radio(radio, queue, packet) == peer)
            }
        }
    }

    fn acknowledged(&mut self, now: Time, radio: usize, by: usize, events: &mut Events) {
        let Some((queue, _)) = self.radios[radio].awaits.take_if(|(_, peer)| *peer == by) else { return };
        let waiting = self.radios[radio].queues[queue].as_mut().expect("it sent from it");
        let head = waiting.head.take().expect("it was to be acknowledged");
        if radio == self.radio_of(head.packet.from_port()) {
            let usage = &mut self.usage[usize::from(head.packet.from_port())];
            usage.packets += 1;
            usage.bytes += u64::from(head.packet.len());
        }
        if self.radios[radio].awaits_ack_of(by) {
            self.enter(radio, Mode::Idle);
            self.try_to_send(now, radio, events);
        }
    }

    /// The end of an answer: the radio is free, unless its own frame went unacknowledged meanwhile.
    fn stop_answering(&mut self, now: Time, radio: usize, events: &mut Events) {
        match self.radios[radio].awaits {
            Some(_) => self.give_up(now, radio, events),
            None => {
                self.enter(radio, Mode::Idle);
                self.try_to_send(now, radio, events);
            }
        }
    }

    /// What was expected has not come.
    fn give_up(&mut self, now: Time, radio: usize, events: &mut Events) {
        let failed = match self.radios[radio].mode {
            Mode::Polling { queue, .. } => Some(queue),
            Mode::Idle | Mode::Sending { .. } => return,
            Mode::Answering { .. } | Mode::Awaiting { .. } => self.radios[radio].awaits.take().map(|(queue, _)| {
                self.unacknowledged(now, radio, queue, events);
                queue
            }),
        };
        self.enter(radio, Mode::Idle);
        if let Some(queue) = failed {
            let draw = rng::uniform(&mut self.rng);
            let base = self.settings.backoff;
            let waiting = self.radios[radio].queues[queue].as_mut().expect("it has a frame");
            waiting.backoff *= 2;
            waiting.not_before = now + waiting.backoff.mul_f64(1.0 + draw) + 2 * base;
        }
        self.try_to_send(now, radio, events);
    }

    fn unacknowledged(&mut self, now: Time, radio: usize, queue: usize, events: &mut Events) {
        let waiting = self.radios[radio].queues[queue].as_mut().expect("it sent from it");
        let head = waiting.head.as_ref().expect("it is kept until it is acknowledged");
        events.port = head.packet.from_port();
        if self.settings.retries.is_some_and(|most| head.transmissions > most) {
            events.note(now, EventKind::Lost, &head.packet);
            waiting.head = None;
        } else {
            events.note(now, EventKind::LinkRetransmit, &head.packet);
        }
    }

    fn advance(&mut self, now: Time, events: &mut Events) {
        while self.agenda.peek().is_some_and(|Reverse((at, _, _))| *at <= now) {
            let Reverse((at, _, step)) = self.agenda.pop().expect("it was seen");
            self.take(at, step, events);
        }
    }
}

impl Link for Ricochet {
    fn submit(&mut self, now: Time, port: Port, mut packet: Packet, events: &mut Events) {
        self.advance(now, events);
        let to = match (port, self.far_ends.len()) {
            (0, 2) => 1,
            (_, 2) => 0,
            _ => packet.to_port(),
        };
        packet.set_ports(port, to);
        if to == port || usize::from(to) >= self.far_ends.len() {
            events.port = port;
            events.note(now, EventKind::Lost, &packet);
            return;
        }
        let (radio, queue) = (self.radio_of(port), if port == 0 { TO_MOBILE } else { TO_GATEWAY });
        self.enqueue(now, radio, queue, packet, events);
    }

    fn next_event(&self) -> Option<Time> {
        let step = self.agenda.peek().map(|Reverse((at, _, _))| *at);
        self.far_ends.iter().map(FarEnd::next_event).chain([step]).flatten().min()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events) {
        let first = out.len();
        self.advance(now, events);
        for (port, far_end) in self.far_ends.iter_mut().enumerate() {
            events.port = Port::from(port == 0);
            far_end.poll(now, port as Port, out, events);
        }
        out[first..].sort_by_key(|delivery| delivery.at);
    }

    fn policy(&self, port: Port) -> Option<&dyn Policy> {
        let queue = if port == 0 { TO_MOBILE } else { TO_GATEWAY };
        self.radios[self.radio_of(port)].queues[queue].as_ref().map(|waiting| &*waiting.policy)
    }

    fn usage(&self, port: Port) -> Usage {
        self.usage[usize::from(port)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::{ack, data};
    use proptest::prelude::*;
    use serde_json::{json, Value};

    fn radios(mobiles: usize, options: Value, seed: u64) -> Ricochet {
        let direction = json!({
            "rate_bps": 100_000, "delay_s": 0.01, "queue": {"name": "droptail", "options": {"limit_packets": 10}},
        });
        let ends: Vec<_> = (0..=mobiles).map(|end| format!("n{end}")).collect();
        let spec = json!({
            "name": "air", "kind": "ricochet", "ends": ends, "options": options,
            "forward": direction, "reverse": direction,
        });
        let spec: LinkSpec = serde_json::from_value(spec).expect("a link");
        Ricochet::new(&Given::check(&ENTRY, &spec.options).expect("good options"), &spec, seed).expect("a good link")
    }

    fn submit(link: &mut Ricochet, at_us: u64, from: Port, to: Port, mut packet: Packet) -> Events {
        let mut events = Events::default();
        packet.set_ports(from, to);
        link.submit(Time(at_us * 1000), from, packet, &mut events);
        events
    }

    /// (port, microseconds, id) of everything that comes out, and what happened.
    fn drain(link: &mut Ricochet) -> (Vec<(Port, u64, u64)>, Events) {
        let (mut all, mut events) = (Vec::new(), Events::default());
        while let Some(at) = link.next_event() {
            let mut out = Vec::new();
            link.poll(at, &mut out, &mut events);
            all.extend(out.into_iter().map(|one| (one.port, one.at.nanos() / 1000, one.packet.id)));
        }
        (all, events)
    }

    /// The rules on one packet each, by hand: RTS 3.2 ms, turnaround 13.25, CTS 3.2, frame of 1016 bytes 81.28,
    /// latency 10; then the link ack, 1.28 and 10. An ack of 40 bytes takes 4.48 in place of 81.28.
    #[test]
    fn golden_exchange_of_a_data_frame_and_of_an_ack() {
        let mut link = radios(1, json!({}), 1);
        submit(&mut link, 0, 0, 1, data(1, 960));
        submit(&mut link, 0, 0, 1, data(2, 960));
        let (out, _) = drain(&mut link);
        assert_eq!(out, [(1, 110_930, 1), (1, 110_930 + 122_210, 2)]);
        let ms = |t: f64| Time((t * 1e6).round() as u64);
        assert_eq!(
            link.on_air[..5],
            [
                (0, true, ms(0.0), ms(3.2)),
                (1, false, ms(0.0), ms(3.2)),
                (1, true, ms(16.45), ms(19.65)),
                (0, false, ms(16.45), ms(19.65)),
                (0, true, ms(19.65), ms(100.93)),
            ]
        );
        let mut link = radios(1, json!({}), 1);
        submit(&mut link, 0, 1, 0, ack(1));
        submit(&mut link, 0, 1, 0, ack(2));
        assert_eq!(drain(&mut link).0, [(0, 34_130, 1), (0, 34_130 + 45_410, 2)]);
    }

    #[test]
    fn golden_exchange_when_every_change_takes_its_time() {
        let mut link = radios(1, json!({"turnarounds": "every-frame"}), 1);
        submit(&mut link, 0, 0, 1, data(1, 960));
        submit(&mut link, 0, 0, 1, data(2, 960));
        // 13.25 ms more before the frame, before the link ack (instead of the latency) and before the next RTS.
        let first = 3_200 + 13_250 + 3_200 + 13_250 + 81_280 + 10_000;
        let cycle = first - 10_000 + 13_250 + 1_280 + 13_250;
        assert_eq!(drain(&mut link).0, [(1, first, 1), (1, first + cycle, 2)]);
    }

    #[test]
    fn a_link_ack_rides_in_a_frame_that_waits() {
        let last = |piggyback: bool| {
            let mut link = radios(1, json!({"piggyback": piggyback}), 3);
            submit(&mut link, 0, 0, 1, data(1, 960));
            submit(&mut link, 50_000, 1, 0, ack(2));
            let (out, events) = drain(&mut link);
            assert_eq!(out.len(), 2);
            assert!(events.list.is_empty());
            (out, link.on_air.iter().filter(|one| one.1 && one.3.since(one.2) == link.settings.link_ack).count())
        };
        let (with, acks_with) = last(true);
        let (without, acks_without) = last(false);
        assert_eq!((acks_with, acks_without), (1, 2));
        // The mobile polls when it has the frame: its own is there a whole ack's exchange later, without one before it.
        assert_eq!(with, [(1, 110_930, 1), (0, 110_930 + 34_130, 2)]);
        assert!(without[1].1 > with[1].1);
    }

    #[test]
    fn a_poletop_that_is_engaged_does_not_answer_and_the_poller_backs_off() {
        let mut link = radios(2, json!({}), 5);
        submit(&mut link, 0, 1, 0, data(1, 960));
        submit(&mut link, 30_000, 2, 0, data(2, 960));
        let (out, _) = drain(&mut link);
        let polls: Vec<_> =
            link.on_air.iter().filter(|one| one.0 == 2 && one.1).map(|one| one.2.nanos() / 1000).collect();
        assert_eq!(polls[0], 30_000);
        // Patience 26.05 ms; then 40 to 80 ms, and 40.
        assert!((136_050..=176_050).contains(&polls[1]), "{polls:?}");
        assert_eq!(out.iter().map(|one| one.2).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_busy_radio_with_time_for_it_says_nack_cts() {
        for (nack, after) in [(true, 2_600), (false, 4_200)] {
            let quick =
                json!({"transmit_receive_s": 0.001, "receive_transmit_s": 0.001, "poll_bytes": 10, "nack_cts": nack});
            let mut link = radios(2, quick, 5);
            submit(&mut link, 0, 0, 1, data(3, 960));
            // 0.8 + 1 + 0.8 + 81.28: its frame has gone out at 83.88 ms.
            submit(&mut link, 84_000, 2, 0, data(2, 960));
            drain(&mut link);
            let polls: Vec<_> =
                link.on_air.iter().filter(|one| one.0 == 2 && one.1).map(|one| one.2.nanos() / 1000).collect();
            let waited = polls[1] - polls[0];
            assert!((80_000 + after..=120_000 + after).contains(&waited), "{nack} {waited}");
        }
    }

    #[test]
    fn hops_share_their_radios() {
        let time = |hops: u64| {
            let mut link = radios(1, json!({"hops": hops}), 7);
            for id in 0..10 {
                submit(&mut link, 0, 0, 1, data(id, 960));
            }
            let (out, _) = drain(&mut link);
            assert_eq!(out.iter().map(|one| one.2).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
            out.last().unwrap().1
        };
        let [one, two, three] = [1, 2, 3].map(time);
        // A frame holds both radios of a hop, so that two hops halve the rate at best and contention costs more.
        assert!(two > 2 * one && three > two, "{one} {two} {three}");
    }

    #[test]
    fn a_mobile_reaches_another_through_the_radio_between_them() {
        let mut link = radios(2, json!({"hops": 2}), 1);
        submit(&mut link, 0, 1, 2, data(1, 960));
        let (out, _) = drain(&mut link);
        assert_eq!((out[0].0, out[0].2, out.len()), (2, 1, 1));
    }

    #[test]
    fn lost_frames_go_again_and_are_given_up_where_there_is_a_limit() {
        let mut link = radios(1, json!({"frame_loss": 0.3}), 2);
        for id in 0..10 {
            submit(&mut link, 0, 0, 1, data(id, 960));
        }
        let (out, events) = drain(&mut link);
        assert_eq!(out.iter().map(|one| one.2).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        assert!(events.count(EventKind::LinkRetransmit) > 0);

        let mut link = radios(1, json!({"frame_loss": 0.6, "retries": 0}), 2);
        for id in 0..10 {
            submit(&mut link, 0, 0, 1, data(id, 960));
        }
        let (out, events) = drain(&mut link);
        // A frame whose ack was lost is given up though it has arrived.
        assert!(events.count(EventKind::Lost) > 0 && out.len() + events.count(EventKind::Lost) >= 10);
        assert!(out.windows(2).all(|pair| pair[0].2 < pair[1].2));
    }

    #[test]
    fn what_radios_cannot_do_is_refused_with_the_reason() {
        let refuse = |change: fn(&mut Value)| {
            let direction = json!({"rate_bps": 100_000, "delay_s": 0.01, "queue": {"name": "droptail"}});
            let mut spec = json!({"name": "air", "kind": "ricochet", "ends": ["a", "b"], "forward": direction, "reverse": direction});
            change(&mut spec);
            crate::build(&serde_json::from_value(spec).unwrap(), 1).err().unwrap()
        };
        assert!(refuse(|spec| spec["reverse"]["rate_bps"] = json!(5)).contains("one rate"));
        assert!(refuse(|spec| spec["reverse"]["delay_s"] = json!(5.0)).contains("the same delay"));
        assert!(refuse(|spec| spec["ends"] = json!(["a"])).contains("at least one mobile"));
        assert!(refuse(|spec| spec["options"] = json!({"hops": 0})).contains("hops"));
        assert!(refuse(|spec| spec["options"] = json!({"backoff_s": 0.0})).contains("never back off"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// A radio never sends and receives at once, nor before it has changed over where that is asked for; no packet is
        /// lost or doubled while retries are unlimited; order holds between each pair of ends.
        #[test]
        fn half_duplex_and_complete(
            arrivals in proptest::collection::vec((0u64..3_000_000, 0u16..4, 0u16..4, 20u32..1400), 1..40),
            hops in 1u64..4, nack: bool, piggyback: bool, every: bool, lossy: bool, seed in 0u64..1000,
        ) {
            let options = json!({
                "hops": hops, "nack_cts": nack, "piggyback": piggyback, "frame_loss": if lossy { 0.2 } else { 0.0 },
                "turnarounds": if every { "every-frame" } else { "handshake" },
            });
            let mut link = radios(3, options, seed);
            let mut sorted: Vec<_> = arrivals.into_iter().filter(|(_, from, to, _)| from != to).collect();
            sorted.sort_unstable();
            let mut dropped = 0;
            let mut out = Vec::new();
            let mut events = Events::default();
            for (id, (at, from, to, size)) in sorted.iter().enumerate() {
                while let Some(due) = link.next_event().filter(|due| due.nanos() <= at * 1000) {
                    link.poll(due, &mut out, &mut events);
                }
                dropped += submit(&mut link, *at, *from, *to, data(id as u64, *size)).count(EventKind::DroppedFull);
            }
            while let Some(due) = link.next_event() {
                link.poll(due, &mut out, &mut events);
            }
            prop_assert_eq!(out.len() + dropped + events.count(EventKind::DroppedFull), sorted.len());
            for from in 0..4 {
                for to in 0..4 {
                    let ids: Vec<_> = out
                        .iter()
                        .filter(|one| one.port == to && one.packet.from_port() == from)
                        .map(|one| one.packet.id)
                        .collect();
                    prop_assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
                }
            }
            for radio in 0..link.radios.len() {
                let mut air: Vec<_> =
                    link.on_air.iter().filter(|one| one.0 == radio).map(|one| (one.2, one.3, one.1)).collect();
                air.sort_unstable();
                for pair in air.windows(2) {
                    let ((_, end, sent), (begin, _, sends)) = (pair[0], pair[1]);
                    prop_assert!(begin >= end, "radio {} {:?}", radio, pair);
                    let needs = match (sent, sends) {
                        (true, false) if every => link.settings.t_tr,
                        (false, true) if every => link.settings.t_rt,
                        _ => Duration::ZERO,
                    };
                    prop_assert!(begin.since(end) >= needs, "radio {} {:?}", radio, pair);
                }
            }
        }
    }
}
