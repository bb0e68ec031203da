//! Metricom's packet radio: half-duplex radios in a chain, RTS/CTS polling and a window-1 link protocol (asym 5.1, 7.2).
//!
//! ```text
//! gateway radio --- poletop --- poletop --- mobile      three hops; further mobiles hang on the last radio before them
//!   (end 0)         (inside)    (inside)    (end 1, 2, ...)
//! ```
//!
//! A radio that has a frame for a neighbour polls it with an RTS. A neighbour that is not engaged turns around and answers
//! with a CTS, and the frame follows. Both are free when the frame has ended: its sender, which is already transmitting,
//! polls for the next one at once. A poll that finds its peer engaged has no answer, and a radio that is itself engaged
//! cannot poll: either way the attempt has failed, and is made again after a random time that doubles with each failure.
//! So whoever has the air keeps it while its queue lasts, and what the other side has to say gathers in its queue.
//!
//! Window 1: a frame is not sent before the one that went to the same neighbour is known to have arrived. Link acks ride
//! in what the neighbour says next (7.2.1): each RTS and CTS tells the number of the last frame heard from its addressee.
//! An RTS for a frame that is there already is answered by a link ack in place of the CTS. Without piggybacking a link ack
//! follows each frame, and both radios are engaged until then.
//!
//! The fixed latency lies above all this: it passes between a frame's end and the packet's coming out of the radio.
//!
//! Sizes, timeouts and backoff are not in the paper; the defaults, and when a radio is free, are those of its authors'
//! simulator (ns: `mac-multihop`). There a radio is free, too, while it transmits; here it is not.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
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
        Param::new("poll_bytes", Unit::Bytes, Preset::Number(40.0), "size of RTS and CTS").range(1.0, 1500.0),
        Param::new("header_bytes", Unit::Bytes, Preset::Number(16.0), "a frame's header, and the size of a link ack")
            .range(1.0, 1500.0),
        milliseconds("backoff_s", 20.0, "base of the backoff: doubled with each failure, back to this with a CTS"),
        Param::new(
            "piggyback",
            Unit::Flag,
            Preset::Flag(true),
            "link acks ride in what is said next; without it, each frame has one of its own",
        ),
        milliseconds(
            "ack_timeout_s",
            1000.0,
            "how long a sender with nothing more for a neighbour waits for a link ack that rides, before it asks for it",
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

/// Beyond what a link ack needs, before it counts as missing.
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
    /// Packets that have arrived at a radio and come out of it after the fixed latency, in that order.
    arrived: VecDeque<(usize, usize, Packet)>,
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
    piggyback: bool,
    ack_timeout: Duration,
    every_frame_turns: bool,
    frame_loss: f64,
    retries: Option<u64>,
}

impl Settings {
    /// Before an answer: whichever of the two needs longer to change over.
    fn turnaround(&self) -> Duration {
        self.t_tr.max(self.t_rt)
    }

    /// Between what a radio hears and what it says beside the answer to an RTS, and the other way round.
    fn changing_over(&self) -> Duration {
        if self.every_frame_turns {
            self.turnaround()
        } else {
            Duration::ZERO
        }
    }

    /// From the begin of an RTS until it counts as unanswered: ns's turnaround and four times an RTS, for as long as no
    /// answer is longer than that.
    fn patience(&self) -> Duration {
        self.turnaround() + 2 * self.poll + 2 * self.poll.max(self.link_ack)
    }
}

struct Radio {
    queues: [Option<Waiting>; 2],
    mode: Mode,
    /// Counts changes of mode: what was arranged in an earlier one is void.
    epoch: u64,
    /// From when on it can hear what begins then.
    hears_from: Time,
    /// From when on it can send.
    sends_from: Time,
    neighbours: Vec<Neighbour>,
}

struct Neighbour {
    radio: usize,
    /// The number of the last frame for it, and of the last one heard from it. Numbers where the protocol has bits: with
    /// a limit of retries a bit would take a new frame for the one that was given up.
    sent: u64,
    heard: u64,
}

impl Radio {
    fn neighbour(&mut self, radio: usize) -> &mut Neighbour {
        self.neighbours.iter_mut().find(|one| one.radio == radio).expect("they are neighbours")
    }

    fn heard(&self, from: usize) -> u64 {
        self.neighbours.iter().find(|one| one.radio == from).expect("they are neighbours").heard
    }
}

/// A queue of a radio and the frames that have left it and are not known to have arrived: per neighbour one that was sent,
/// and one that is next.
struct Waiting {
    policy: Box<dyn Policy>,
    frames: Vec<Frame>,
    /// The neighbour that is polled, or will be after a backoff.
    polled: Option<usize>,
    backoff: Duration,
    /// When its policy, which holds back what waits, is asked again.
    asks_at: Option<Time>,
}

impl Waiting {
    fn first_for(&self, peer: usize) -> Option<&Frame> {
        self.frames.iter().find(|frame| frame.to == peer)
    }
}

struct Frame {
    packet: Packet,
    to: usize,
    number: u64,
    transmissions: u64,
    /// When its link ack is asked for, once it was sent.
    due: Option<Time>,
}

/// What a radio is at: engaged, unless idle. An idle radio hears, in backoff too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Idle,
    /// It has sent an RTS for this queue.
    Polling {
        queue: usize,
        peer: usize,
    },
    /// Its frame is on the air, or is about to be.
    Sending {
        queue: usize,
        peer: usize,
    },
    /// Its frame has gone out; until the link ack is there or given up. Only where link acks do not ride.
    Awaiting {
        queue: usize,
        peer: usize,
    },
    /// It answers a poll: CTS, the frame, the link ack if that does not ride.
    Answering {
        peer: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// An RTS for frames up to a number has been on the air since the instant given.
    RtsEnds {
        from: usize,
        to: usize,
        number: u64,
        epoch: u64,
        since: Time,
    },
    CtsEnds {
        from: usize,
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
    /// The fixed latency is over for the packet that arrived first.
    ComesOut,
    AckBegins {
        from: usize,
        to: usize,
        epoch: u64,
    },
    /// A link ack after a frame, or in place of a CTS.
    AckEnds {
        from: usize,
        to: usize,
        epoch: u64,
    },
    /// No CTS, no frame or no link ack came.
    GiveUp {
        radio: usize,
        epoch: u64,
    },
    /// The polled neighbour is polled again: a backoff is over, or the radio has turned round.
    Attempt {
        radio: usize,
        queue: usize,
    },
    /// A policy that held packets back may have one now.
    Asks {
        radio: usize,
        queue: usize,
    },
    /// A link ack is due.
    Due {
        radio: usize,
        queue: usize,
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
            piggyback: given.flag("piggyback"),
            ack_timeout: time("ack_timeout_s"),
            every_frame_turns: given.text("turnarounds") == Some("every-frame"),
            frame_loss: given.number("frame_loss").expect("it has a default"),
            retries: given.count("retries"),
        };
        if settings.backoff.is_zero() {
            return Err("backoff_s: two radios that never back off poll each other for ever".into());
        }
        if settings.ack_timeout.is_zero() {
            return Err("ack_timeout_s: without a wait a sender would ask for each link ack before it can ride".into());
        }
        let chain = bytes("hops") as usize;
        let mobiles = spec.ends.len() - 1;
        let waiting = |direction: &DirectionSpec, way: &str, radio: usize| {
            let label = format!("{}/{way}/radio-{radio}", spec.name);
            let context = Context { seed, label, rate_bps: Some(rate_bps), opposite_rate_bps: Some(rate_bps) };
            let policy = backchannel_policies::build(&direction.queue.name, &direction.queue.options, &context)
                .map_err(|why| format!("{way}: {why}"))?;
            Ok::<_, String>(Some(Waiting {
                policy,
                frames: Vec::new(),
                polled: None,
                backoff: settings.backoff,
                asks_at: None,
            }))
        };
        let mut radios = Vec::new();
        for radio in 0..chain + mobiles {
            let up = (radio > 0).then(|| (radio - 1).min(chain - 1));
            let down: Vec<usize> = match radio {
                last if last + 1 == chain => (chain..chain + mobiles).collect(),
                relay if relay < chain => vec![relay + 1],
                _ => Vec::new(),
            };
            let neighbours =
                up.iter().chain(&down).map(|radio| Neighbour { radio: *radio, sent: 0, heard: 0 }).collect();
            let to_mobile = if down.is_empty() { None } else { waiting(&spec.forward, "forward", radio)? };
            let to_gateway = if up.is_some() { waiting(&spec.reverse, "reverse", radio)? } else { None };
            radios.push(Radio {
                queues: [to_mobile, to_gateway],
                mode: Mode::Idle,
                epoch: 0,
                hears_from: Time::ZERO,
                sends_from: Time::ZERO,
                neighbours,
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
            arrived: VecDeque::new(),
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

    /// The port that counts what a mobile's radio, or a poletop's, sends towards the gateway.
    fn port_of(&self, radio: usize) -> Port {
        (radio + 1).saturating_sub(self.chain).max(1) as Port
    }

    fn waiting(&mut self, radio: usize, queue: usize) -> &mut Waiting {
        self.radios[radio].queues[queue].as_mut().expect("frames go where radios are")
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
        let radio_ = &mut self.radios[radio];
        radio_.sends_from = to + self.settings.changing_over();
        radio_.hears_from = radio_.hears_from.max(to);
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
        self.waiting(radio, queue).policy.enqueue(now, packet, events);
        self.serve(now, radio, queue, events);
    }

    /// A queue that polls nobody looks for what it has to send: a link ack that is due is asked for, then comes what is to
    /// be sent anew, then what waits.
    fn serve(&mut self, now: Time, radio: usize, queue: usize, events: &mut Events) {
        let Some(waiting) = &self.radios[radio].queues[queue] else { return };
        if waiting.polled.is_some() {
            return;
        }
        let left = waiting.frames.iter().find(|frame| frame.due.is_none_or(|due| due <= now)).map(|frame| frame.to);
        let peer = match left {
            Some(peer) => peer,
            None => {
                match waiting.policy.next_time() {
                    None => return,
                    Some(at) if at > now => {
                        // One question is enough, however many packets arrive meanwhile.
                        if waiting.asks_at != Some(at) {
                            self.waiting(radio, queue).asks_at = Some(at);
                            self.at(at, Step::Asks { radio, queue });
                        }
                        return;
                    }
                    Some(_) => {}
                }
                events.port = if queue == TO_MOBILE { 0 } else { self.port_of(radio) };
                let Some(packet) = self.waiting(radio, queue).policy.dequeue(now, events) else { return };
                let to = self.next_radio(radio, queue, &packet);
                let neighbour = self.radios[radio].neighbour(to);
                neighbour.sent += 1;
                let frame = Frame { packet, to, number: neighbour.sent, transmissions: 0, due: None };
                self.waiting(radio, queue).frames.push(frame);
                to
            }
        };
        self.waiting(radio, queue).polled = Some(peer);
        self.attempt(now, radio, queue, events);
    }

    /// The RTS. A radio that is engaged cannot send it, and waits as one would that had no answer.
    fn attempt(&mut self, now: Time, radio: usize, queue: usize, events: &mut Events) {
        let waiting = self.waiting(radio, queue);
        let peer = waiting.polled.expect("it polls somebody");
        let Some(number) = waiting.frames.iter().rev().find(|frame| frame.to == peer).map(|frame| frame.number) else {
            // Meanwhile the peer has said that it has it.
            waiting.polled = None;
            self.serve(now, radio, queue, events);
            return;
        };
        if self.radios[radio].mode != Mode::Idle {
            self.back_off(now + self.settings.patience(), radio, queue);
        } else if self.radios[radio].sends_from > now {
            self.at(self.radios[radio].sends_from, Step::Attempt { radio, queue });
        } else {
            let epoch = self.enter(radio, Mode::Polling { queue, peer });
            let end = now + self.settings.poll;
            self.transmits(radio, now, end);
            self.at(end, Step::RtsEnds { from: radio, to: peer, number, epoch, since: now });
            self.at(now + self.settings.patience(), Step::GiveUp { radio, epoch });
        }
    }

    fn back_off(&mut self, from: Time, radio: usize, queue: usize) {
        let draw = rng::uniform(&mut self.rng);
        let base = self.settings.backoff;
        let waiting = self.waiting(radio, queue);
        waiting.backoff *= 2;
        let until = from + waiting.backoff.mul_f64(1.0 + draw) + 2 * base;
        self.at(until, Step::Attempt { radio, queue });
    }

    fn take(&mut self, now: Time, step: Step, events: &mut Events) {
        match step {
            Step::RtsEnds { from, to, number, epoch, since } => self.rts(now, (from, to), number, epoch, since),
            Step::CtsEnds { from, to, epoch } => self.cts(now, from, to, epoch, events),
            Step::FrameBegins { from, to, epoch } => self.begin_frame(now, from, to, epoch, events),
            Step::FrameEnds { from, to, epoch, heard } => self.end_frame(now, (from, to), epoch, heard, events),
            Step::ComesOut => self.come_out(now, events),
            Step::AckBegins { from, to, epoch } => {
                if self.radios[from].epoch == epoch {
                    let end = now + self.settings.link_ack;
                    self.transmits(from, now, end);
                    self.at(end, Step::AckEnds { from, to, epoch });
                }
            }
            Step::AckEnds { from, to, epoch } => self.link_ack(now, from, to, epoch, events),
            Step::GiveUp { radio, epoch } => {
                if self.radios[radio].epoch == epoch {
                    self.give_up(now, radio, events);
                }
            }
            Step::Attempt { radio, queue } => self.attempt(now, radio, queue, events),
            Step::Asks { radio, queue } => {
                self.waiting(radio, queue).asks_at = None;
                self.serve(now, radio, queue, events);
            }
            Step::Due { radio, queue } => self.serve(now, radio, queue, events),
        }
    }

    /// An RTS has been sent. A radio that is not engaged answers it: with a link ack if it has all that the RTS is for.
    fn rts(&mut self, now: Time, (from, to): (usize, usize), number: u64, epoch: u64, since: Time) {
        let (lost, radio) = (self.is_lost(), &self.radios[to]);
        if lost || self.radios[from].epoch != epoch || radio.mode != Mode::Idle || radio.hears_from > since {
            return;
        }
        self.receives(to, self.settings.poll, now);
        self.learn(to, from);
        let has_it = self.radios[to].heard(from) >= number;
        let settings = &self.settings;
        let begins = now + settings.turnaround();
        let ends = begins + if has_it { settings.link_ack } else { settings.poll };
        let patience = settings.changing_over() + settings.turnaround();
        let own = self.enter(to, Mode::Answering { peer: from });
        self.transmits(to, begins, ends);
        if has_it {
            self.at(ends, Step::AckEnds { from: to, to: from, epoch: own });
        } else {
            self.at(ends, Step::CtsEnds { from: to, to: from, epoch });
            // When the frame begins, the epoch changes.
            self.at(ends + patience, Step::GiveUp { radio: to, epoch: own });
        }
    }

    /// A radio has heard another, and with it what that one has heard of its frames.
    fn learn(&mut self, radio: usize, from: usize) {
        let heard = self.radios[from].heard(radio);
        let queue = if from > radio { TO_MOBILE } else { TO_GATEWAY };
        self.waiting(radio, queue).frames.retain(|frame| frame.to != from || frame.number > heard);
    }

    /// A CTS has been sent. The frame that it asks for is the first that its sender has not heard, be it new or not.
    fn cts(&mut self, now: Time, from: usize, to: usize, epoch: u64, events: &mut Events) {
        let lost = self.is_lost();
        let Mode::Polling { queue, peer } = self.radios[to].mode else { return };
        if lost || self.radios[to].epoch != epoch {
            return;
        }
        self.receives(to, self.settings.poll, now);
        self.learn(to, from);
        let (backoff, retries) = (self.settings.backoff, self.settings.retries);
        let waiting = self.waiting(to, queue);
        waiting.backoff = backoff;
        waiting.frames.retain(|frame| {
            let is_given_up = frame.to == peer && retries.is_some_and(|most| frame.transmissions > most);
            if is_given_up {
                events.port = frame.packet.from_port();
                events.note(now, EventKind::Lost, &frame.packet);
            }
            !is_given_up
        });
        if waiting.first_for(peer).is_none() {
            waiting.polled = None;
            self.enter(to, Mode::Idle);
            self.serve(now, to, queue, events);
            return;
        }
        let epoch = self.enter(to, Mode::Sending { queue, peer });
        self.at(self.radios[to].sends_from, Step::FrameBegins { from: to, to: from, epoch });
    }

    fn begin_frame(&mut self, now: Time, from: usize, to: usize, epoch: u64, events: &mut Events) {
        let Mode::Sending { queue, peer } = self.radios[from].mode else { return };
        if self.radios[from].epoch != epoch {
            return;
        }
        let (header_bytes, rate_bps) = (self.settings.header_bytes, self.settings.rate_bps);
        let frame = self.waiting(from, queue).frames.iter_mut().find(|frame| frame.to == peer);
        let frame = frame.expect("the CTS was for a frame that the peer has not");
        frame.transmissions += 1;
        let (bytes, port) = (u64::from(frame.packet.len()), frame.packet.from_port());
        let is_first = frame.transmissions == 1;
        if !is_first {
            events.port = port;
            events.note(now, EventKind::LinkRetransmit, &frame.packet);
        }
        let bits = (bytes + header_bytes) * 8;
        let time = service_time(bits, rate_bps);
        // Relays repeat what the first radio has sent: it alone counts.
        if from == self.radio_of(port) {
            let usage = &mut self.usage[usize::from(port)];
            usage.line_bits += bits;
            usage.busy += time;
            usage.packets += u64::from(is_first);
            usage.bytes += if is_first { bytes } else { 0 };
        }
        let end = now + time;
        self.transmits(from, now, end);
        let heard = !self.is_lost() && self.radios[to].mode == (Mode::Answering { peer: from });
        if heard {
            // It no longer waits for the frame to begin.
            self.enter(to, Mode::Answering { peer: from });
        }
        self.at(end, Step::FrameEnds { from, to, epoch, heard });
    }

    /// The frame has ended. Where link acks ride both are free, and its sender is first to poll.
    fn end_frame(&mut self, now: Time, (from, to): (usize, usize), epoch: u64, heard: bool, events: &mut Events) {
        let Mode::Sending { queue, peer } = self.radios[from].mode else { return };
        if self.radios[from].epoch != epoch {
            return;
        }
        let waiting = self.radios[from].queues[queue].as_ref().expect("it sends from it");
        let frame = waiting.first_for(peer).expect("it was sent");
        let (number, length) = (frame.number, u64::from(frame.packet.len()) + self.settings.header_bytes);
        if heard {
            let is_new = self.radios[to].heard(from) < number;
            let packet = is_new.then(|| frame.packet.clone());
            self.receives(to, service_time(length * 8, self.settings.rate_bps), now);
            self.radios[to].neighbour(from).heard = number;
            if let Some(packet) = packet {
                let way = if from < to { TO_MOBILE } else { TO_GATEWAY };
                self.arrived.push_back((to, way, packet));
                self.at(now + self.settings.latency, Step::ComesOut);
            }
        }
        if self.settings.piggyback {
            if heard {
                self.enter(to, Mode::Idle);
            }
            self.enter(from, Mode::Idle);
            self.rest(now + self.settings.ack_timeout, now, from, queue, events);
        } else {
            let sender = self.enter(from, Mode::Awaiting { queue, peer });
            let patience = self.settings.changing_over() + self.settings.link_ack + ACK_MARGIN;
            self.at(now + patience, Step::GiveUp { radio: from, epoch: sender });
            if heard {
                let epoch = self.radios[to].epoch;
                self.at(self.radios[to].sends_from, Step::AckBegins { from: to, to: from, epoch });
            }
        }
    }

    /// A queue has done what it polled for: the frame's link ack is asked for at an instant, if it has not come by then.
    fn rest(&mut self, due: Time, now: Time, radio: usize, queue: usize, events: &mut Events) {
        let waiting = self.waiting(radio, queue);
        let peer = waiting.polled.take().expect("it polled somebody");
        if let Some(frame) = waiting.frames.iter_mut().find(|frame| frame.to == peer && frame.transmissions > 0) {
            frame.due = Some(due);
            self.at(due, Step::Due { radio, queue });
        }
        self.serve(now, radio, queue, events);
    }

    /// A link ack has been sent, after a frame or in place of a CTS; with it both are free.
    fn link_ack(&mut self, now: Time, from: usize, to: usize, epoch: u64, events: &mut Events) {
        if self.radios[from].epoch != epoch {
            return;
        }
        let lost = self.is_lost();
        self.enter(from, Mode::Idle);
        let queue = match self.radios[to].mode {
            Mode::Awaiting { queue, peer } | Mode::Polling { queue, peer } if peer == from && !lost => queue,
            _ => return,
        };
        self.receives(to, self.settings.link_ack, now);
        self.learn(to, from);
        self.enter(to, Mode::Idle);
        let backoff = self.settings.backoff;
        let waiting = self.waiting(to, queue);
        waiting.backoff = backoff;
        waiting.polled = None;
        self.serve(now, to, queue, events);
    }

    /// A packet comes out of the radio that it arrived at, and goes on.
    fn come_out(&mut self, now: Time, events: &mut Events) {
        let (radio, way, packet) = self.arrived.pop_front().expect("one for each step");
        // A mobile's packet for another mobile turns round at the radio that both hang on.
        let onward = if packet.to_port() == 0 { TO_GATEWAY } else { TO_MOBILE };
        if radio >= self.chain || (radio == 0 && onward == TO_GATEWAY) {
            let port = if radio == 0 { 0 } else { radio - self.chain + 1 };
            self.far_ends[port].fly(now, packet);
        } else {
            self.enqueue(now, radio, if radio + 1 == self.chain { onward } else { way }, packet, events);
        }
    }

    /// What was expected has not come.
    fn give_up(&mut self, now: Time, radio: usize, events: &mut Events) {
        let mode = self.radios[radio].mode;
        self.enter(radio, Mode::Idle);
        match mode {
            Mode::Polling { queue, .. } => self.back_off(now, radio, queue),
            Mode::Awaiting { queue, .. } => self.rest(now, now, radio, queue, events),
            Mode::Idle | Mode::Sending { .. } | Mode::Answering { .. } => {}
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

    fn drain_until(link: &mut Ricochet, at_us: u64) {
        while let Some(at) = link.next_event().filter(|at| at.nanos() <= at_us * 1000) {
            link.poll(at, &mut Vec::new(), &mut Events::default());
        }
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

    /// (begin, end) in microseconds of what a radio sent.
    fn sent_by(link: &Ricochet, radio: usize) -> Vec<(u64, u64)> {
        let sent = link.on_air.iter().filter(|one| one.0 == radio && one.1);
        sent.map(|one| (one.2.nanos() / 1000, one.3.nanos() / 1000)).collect()
    }

    /// The rules by hand: RTS 3.2 ms, turnaround 13.25, CTS 3.2, frame of 1016 bytes 81.28; then the next RTS at once, and
    /// the packet comes out after 10 ms. An ack of 40 bytes takes 4.48 in place of 81.28. The last frame's link ack is
    /// asked for after a second.
    #[test]
    fn golden_exchange_of_data_frames_and_of_acks() {
        let mut link = radios(1, json!({}), 1);
        submit(&mut link, 0, 0, 1, data(1, 960));
        submit(&mut link, 0, 0, 1, data(2, 960));
        let (out, events) = drain(&mut link);
        assert_eq!(out, [(1, 110_930, 1), (1, 110_930 + 100_930, 2)]);
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
        let asked = 1_201_860;
        assert_eq!(sent_by(&link, 0).last(), Some(&(asked, asked + 3_200)));
        assert_eq!(sent_by(&link, 1).last(), Some(&(asked + 16_450, asked + 16_450 + 1_280)));
        assert!(events.list.is_empty(), "asking is no retransmission");
        let mut link = radios(1, json!({}), 1);
        submit(&mut link, 0, 1, 0, ack(1));
        submit(&mut link, 0, 1, 0, ack(2));
        assert_eq!(drain(&mut link).0, [(0, 34_130, 1), (0, 34_130 + 24_130, 2)]);
    }

    #[test]
    fn golden_exchange_when_every_change_takes_its_time() {
        let times = |piggyback: bool| {
            let mut link = radios(1, json!({"turnarounds": "every-frame", "piggyback": piggyback}), 1);
            submit(&mut link, 0, 0, 1, data(1, 960));
            submit(&mut link, 0, 0, 1, data(2, 960));
            drain(&mut link).0
        };
        // 13.25 ms more before the frame; none before the next RTS, for the radio transmits already.
        let cycle = 3_200 + 13_250 + 3_200 + 13_250 + 81_280;
        assert_eq!(times(true), [(1, cycle + 10_000, 1), (1, 2 * cycle + 10_000, 2)]);
        // A link ack of its own takes two changes more.
        let explicit = cycle + 13_250 + 1_280 + 13_250;
        assert_eq!(times(false), [(1, cycle + 10_000, 1), (1, explicit + cycle + 10_000, 2)]);
    }

    #[test]
    fn link_acks_ride_or_follow_each_frame() {
        let run = |piggyback: bool| {
            let mut link = radios(1, json!({"piggyback": piggyback}), 3);
            for id in 0..5 {
                submit(&mut link, 0, 0, 1, data(id, 960));
            }
            let (out, events) = drain(&mut link);
            assert!(events.list.is_empty());
            let acks = sent_by(&link, 1).iter().filter(|(begin, end)| end - begin == 1_280).count();
            (out.last().unwrap().1, acks)
        };
        // The one that is asked for, and five.
        assert_eq!(run(true), (10_000 + 5 * 100_930, 1));
        assert_eq!(run(false), (10_000 + 5 * 100_930 + 4 * 1_280, 5));
    }

    /// Between frames the sender polls at once, and a radio that finds itself engaged waits for a random time: acks gather
    /// while data last. This is what an ack filter lives on (7.2.2).
    #[test]
    fn who_has_the_air_keeps_it_and_the_other_side_gathers() {
        let mut link = radios(1, json!({}), 3);
        for id in 0..5 {
            submit(&mut link, 0, 0, 1, data(id, 960));
        }
        let (mut out, mut events) = (Vec::new(), Events::default());
        for id in 10u32..14 {
            let at = 110_930 + 100_930 * u64::from(id - 10);
            link.poll(Time(at * 1000), &mut out, &mut events);
            submit(&mut link, at, 1, 0, ack(id));
        }
        assert_eq!(link.policy(1).unwrap().len_packets(), 3, "one is about to be polled for");
        let ids: Vec<_> =
            out.iter().map(|one| one.packet.id).chain(drain(&mut link).0.iter().map(|one| one.2)).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 10, 11, 12, 13]);
        let first = sent_by(&link, 1).into_iter().find(|(_, end)| *end > 5 * 100_930).unwrap().0;
        // Attempts from 110.93 ms on: patience 26.05, then 40 to 80 and 40; each failure doubles the 40 to 80.
        assert!(first >= 110_930 + 2 * 26_050 + 80_000 + 120_000, "{first}");
    }

    /// The mobile's RTS tells the gateway that its frame is there: nobody asks.
    #[test]
    fn a_link_ack_rides_in_an_rts() {
        let mut link = radios(1, json!({}), 3);
        submit(&mut link, 0, 0, 1, data(1, 960));
        drain_until(&mut link, 200_000);
        submit(&mut link, 200_000, 1, 0, ack(2));
        drain(&mut link);
        // RTS and frame of the data; the CTS for the ack; the answer when the mobile asks in turn.
        let lengths: Vec<_> = sent_by(&link, 0).iter().map(|(begin, end)| end - begin).collect();
        assert_eq!(lengths, [3_200, 81_280, 3_200, 1_280]);
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
        // Given up is what the neighbour says that it has not heard.
        assert!(events.count(EventKind::Lost) > 0);
        assert_eq!(out.len() + events.count(EventKind::Lost), 10);
        assert_eq!(events.count(EventKind::LinkRetransmit), 0);
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
        assert!(refuse(|spec| spec["options"] = json!({"ack_timeout_s": 0.0})).contains("without a wait"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// A radio never does two things at once, sending or receiving, nor before it has changed over where that is asked
        /// for; no packet is lost or doubled while retries are unlimited; order holds between each pair of ends; in the end
        /// every radio is idle and knows that its frames have arrived.
        #[test]
        fn half_duplex_and_complete(
            arrivals in proptest::collection::vec((0u64..3_000_000, 0u16..4, 0u16..4, 20u32..1400), 1..40),
            hops in 1u64..4, piggyback: bool, every: bool, lossy: bool, ack_timeout_ms in 1u64..2000, seed in 0u64..1000,
        ) {
            let options = json!({
                "hops": hops, "piggyback": piggyback, "frame_loss": if lossy { 0.2 } else { 0.0 },
                "turnarounds": if every { "every-frame" } else { "handshake" }, "ack_timeout_s": ack_timeout_ms as f64 / 1e3,
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
            for radio in &link.radios {
                prop_assert_eq!(radio.mode, Mode::Idle);
                prop_assert!(radio.queues.iter().flatten().all(|one| one.frames.is_empty() && one.polled.is_none()));
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
