//! Metricom's packet radio: half-duplex radios in a chain, RTS/CTS polling and a window-1 link protocol (asym 5.1,
//! 7.2).
//!
//! ```text
//! gateway radio --- poletop --- poletop --- mobile      three hops; further mobiles attach to the last radio before them
//!   (end 0)         (inside)    (inside)    (end 1, 2, ...)
//! ```
//!
//! - A radio with a frame for a neighbour polls it with an RTS. An idle neighbour turns around and answers with a CTS,
//!   and the frame follows. Both are idle when the frame has ended. Its sender, which already transmits, polls for the
//!   next frame at once.
//! - A poll of a busy neighbour has no answer, and a busy radio cannot poll. Either way the attempt fails and is
//!   repeated after a random backoff that doubles with each failure. So a radio that has the air keeps it while its
//!   queue lasts, and packets in the other direction accumulate.
//! - Window 1: a frame is sent when the one before it to the same neighbour is known to have arrived. Link acks are
//!   piggybacked
//!   (7.2.1): each RTS and CTS carries the number of the last frame heard from its addressee. An RTS for a frame that
//!   arrived before is answered by a link ack instead of a CTS. Without piggybacking a link ack follows each frame, and
//!   both radios are busy until then.
//! - The fixed latency passes between the end of a frame and the delivery of its packet.
//!
//! The paper gives no sizes, timeouts or backoff. The defaults, and when a radio is idle, are those of its authors'
//! simulator (ns, `mac-multihop`). Differs from it in: a radio that transmits is busy.

mod mac;
mod radio;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Physical, When};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::scenario::LinkSpec;
use backchannel_core::time::{service_time, Time};
use backchannel_core::traits::{Backlog, Delivery, Link, Policy, Port, Usage};
use backchannel_core::Error;
use backchannel_core::{choice, options};

use crate::far_end::FarEnd;
use crate::jitter::delay;
use crate::medium::{shared_rate, Direction, Fields};
use crate::registry::Context;
use radio::{Mode, Neighbour, OutputQueue, Radio, Step};

choice! {
    /// When turnaround times are charged.
    enum Turnarounds {
        /// Once per exchange, before the CTS, as in ns.
        Handshake = "handshake",
        /// At each change of direction.
        EveryFrame = "every-frame",
    }
}

options! {
    /// Options of the link.
    struct Options {
        hops: usize = 1, [Count 1 to 10] "number of radio hops between gateway and mobile";
        transmit_receive_s: Duration = 0.011_125, [Time 0 to 10]
            "T_TR, the turnaround time from transmitting to receiving";
        receive_transmit_s: Duration = 0.013_25, [Time 0 to 10]
            "T_RT, the turnaround time from receiving to transmitting";
        poll_bytes: u64 = 40, [Bytes 1 to 1500] "size of an RTS and of a CTS";
        header_bytes: u64 = 16, [Bytes 1 to 1500] "size of a frame's header and of a link ack";
        backoff_s: Duration = 0.02, [Time 0 to 10]
            "base of the random backoff, which doubles with each failed poll and is reset by a CTS";
        piggyback: bool = true, [Flag]
            "carry link acks in the next RTS or CTS (asym 7.2.1); without it, a link ack follows each frame";
        ack_timeout_s: Duration = 1, [Time 0 to 10]
            "time after which a sender with no further frame for a neighbour polls it for a missing piggybacked link \
             ack";
        turnarounds: Turnarounds = "handshake", [Choice]
            "when turnaround times are charged: handshake, once per exchange, before the CTS, as in ns; every-frame, \
             at each change of direction";
        frame_loss: f64 = 0, [Fraction 0 to 0.9]
            "fraction of RTS, CTS, data frames and link acks that the air loses";
        retries: Option<u64> = ABSENT, [Count 0 to 1000]
            "retransmissions of a frame before it is dropped; absent: unlimited";
    }
}

pub(crate) static ENTRY: Entry = Entry::link(
    "ricochet",
    "packet radio: half-duplex hops with RTS/CTS polling and link acks; end 0 is the gateway, the others are mobiles",
    Physical { radio: true, probing: None },
)
.source("asym 5.1, 7.2, table 4")
.random(When::Always)
.options(Options::PARAMS);

const FIELDS: Fields =
    Fields { jitter: Err("has no jitter: its own protocol decides how long a packet takes"), ..Fields::FIXED };

/// Margin beyond the duration of a link ack before it counts as missing.
const ACK_MARGIN: Duration = Duration::from_millis(5);
/// Queues of a radio, by the direction of their packets.
const TO_MOBILE: usize = 0;
const TO_GATEWAY: usize = 1;

pub(crate) fn build(checked: &CheckedOptions<'_>, spec: &LinkSpec, context: &Context) -> Result<Box<dyn Link>, Error> {
    Ok(Box::new(Ricochet::new(checked, spec, context)?))
}

struct Ricochet {
    parameters: Parameters,
    /// Gateway, poletops, mobiles.
    radios: Vec<Radio>,
    /// Number of radios before the mobiles: gateway and poletops.
    relays: usize,
    /// Packets within the fixed latency, in order: radio, queue direction, packet.
    deliveries: VecDeque<(usize, usize, Packet)>,
    /// Error models, per port of delivery.
    far_ends: Vec<FarEnd>,
    usage: Vec<Usage>,
    event_queue: BinaryHeap<Reverse<(Time, u64, Step)>>,
    /// Number of scheduled steps; orders those of one time.
    steps: u64,
    rng: RunRng,
    #[cfg(test)]
    on_air: Vec<(usize, bool, Time, Time)>,
}

/// The options, and what follows from them and the rate.
struct Parameters {
    options: Options,
    rate_bps: u64,
    latency: Duration,
    poll: Duration,
    link_ack: Duration,
}

impl Parameters {
    /// Turnaround before an answer: the longer of the two.
    fn turnaround(&self) -> Duration {
        self.options.transmit_receive_s.max(self.options.receive_transmit_s)
    }

    /// Turnaround at other changes of direction.
    fn frame_turnaround(&self) -> Duration {
        if self.options.turnarounds == Turnarounds::EveryFrame {
            self.turnaround()
        } else {
            Duration::ZERO
        }
    }

    /// From the start of an RTS until it counts as unanswered: as in ns the turnaround and four times an RTS, or longer
    /// if a link ack is longer.
    fn answer_timeout(&self) -> Duration {
        self.turnaround() + 2 * self.poll + 2 * self.poll.max(self.link_ack)
    }
}

impl Ricochet {
    fn new(checked: &CheckedOptions<'_>, spec: &LinkSpec, context: &Context) -> Result<Ricochet, Error> {
        if spec.ends.len() < 2 {
            return Err("a ricochet link needs a gateway and at least one mobile".into());
        }
        let directions = Direction::both(spec, &FIELDS)?;
        let rate_bps = shared_rate(spec, "half-duplex radios have one rate: set forward and reverse to the same")?;
        if (spec.forward.delay_s - spec.reverse.delay_s).abs() > f64::EPSILON {
            return Err("a hop has one fixed latency: set forward and reverse to the same delay".into());
        }
        let options = Options::read(checked);
        if options.backoff_s.is_zero() {
            return Err(
                "backoff_s must be above 0, because two radios that never back off poll each other forever".into()
            );
        }
        if options.ack_timeout_s.is_zero() {
            return Err("ack_timeout_s must be above 0, because a link ack needs time to be piggybacked".into());
        }
        let relays = options.hops;
        let on_air = |bytes: u64| service_time(bytes * 8, rate_bps);
        let parameters = Parameters {
            rate_bps,
            latency: delay(spec.forward.delay_s)?,
            poll: on_air(options.poll_bytes),
            link_ack: on_air(options.header_bytes),
            options,
        };
        let mobiles = spec.ends.len() - 1;
        let output_queue = |queue: usize, radio: usize| {
            let policy = directions[queue].build(|way| {
                let label = format!("{}/radio-{radio}", way.label);
                context.of_queue(&label, [Some(rate_bps); 2]).build(&way.spec.queue)
            })?;
            Ok::<_, Error>(Some(OutputQueue {
                policy,
                frames: Vec::new(),
                polled: None,
                backoff: parameters.options.backoff_s,
                retry_at: None,
            }))
        };
        let mut radios = Vec::new();
        for radio in 0..relays + mobiles {
            let up = (radio > 0).then(|| (radio - 1).min(relays - 1));
            let down: Vec<usize> = match radio {
                last if last + 1 == relays => (relays..relays + mobiles).collect(),
                relay if relay < relays => vec![relay + 1],
                _ => Vec::new(),
            };
            let neighbours =
                up.iter().chain(&down).map(|radio| Neighbour { radio: *radio, sent: 0, heard: 0 }).collect();
            let to_mobile = if down.is_empty() { None } else { output_queue(TO_MOBILE, radio)? };
            let to_gateway = if up.is_some() { output_queue(TO_GATEWAY, radio)? } else { None };
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
            directions[usize::from(port == 0)].build(|way| {
                let label = if port == 0 { way.label.clone() } else { format!("{}-{port}", way.label) };
                FarEnd::new(Duration::ZERO, &way.spec.errors, context, &label)
            })
        };
        Ok(Ricochet {
            parameters,
            radios,
            relays,
            deliveries: VecDeque::new(),
            far_ends: (0..spec.ends.len()).map(far_end).collect::<Result<_, _>>()?,
            usage: vec![Usage::default(); spec.ends.len()],
            event_queue: BinaryHeap::new(),
            steps: 0,
            rng: rng::stream(context.seed, &format!("{}/radios", spec.name)),
            #[cfg(test)]
            on_air: Vec::new(),
        })
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
            events.record(now, EventKind::Lost, &packet);
            return;
        }
        let (radio, queue) = (self.radio_of(port), if port == 0 { TO_MOBILE } else { TO_GATEWAY });
        self.enqueue(now, radio, queue, packet, events);
    }

    fn next_event(&self) -> Option<Time> {
        let step = self.event_queue.peek().map(|Reverse((at, _, _))| *at);
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

    fn backlog(&self, port: Port) -> Option<Backlog> {
        let queue = if port == 0 { TO_MOBILE } else { TO_GATEWAY };
        self.radios[self.radio_of(port)].queues[queue].as_ref().map(|output| output.policy.backlog())
    }

    fn peek(&self, port: Port, place: usize) -> Option<&Packet> {
        let queue = if port == 0 { TO_MOBILE } else { TO_GATEWAY };
        self.radios[self.radio_of(port)].queues[queue].as_ref().and_then(|output| output.policy.peek(place))
    }

    fn usage(&self, port: Port) -> Usage {
        self.usage[usize::from(port)]
    }
}

#[cfg(test)]
mod tests;
