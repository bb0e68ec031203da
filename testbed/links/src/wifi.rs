//! A wireless LAN of today: 802.11's EDCA with aggregation and block acks (IEEE 802.11-2020, 10.23.2, 10.12, 10.25).
//!
//! ```text
//! air:  [AIFS][backoff][preamble | MPDU MPDU MPDU][SIFS][block ack][AIFS][backoff]...
//! ```
//!
//! - The access point is at end 0, a station at end 1, and further stations that always have a packet compete with them
//!   (`contenders`). One transmission is on the air at a time; two that start in the same slot collide.
//! - *EDCA.* A station draws a backoff from 0 to its contention window. When the medium has been idle for its AIFS, it
//!   does one of two things at each slot boundary: with a backoff of 0 it sends, otherwise it counts down by one. So it
//!   counts down once for each busy period too, as Bianchi's analysis assumes (IEEE JSAC 18(3), 2000; Tinnirello and
//!   Bianchi, "Rethinking the IEEE 802.11e EDCA performance modeling methodology", 2010). The window doubles with each
//!   failure. A station whose queue runs empty counts down nevertheless, and sends at once if its backoff is over.
//! - *A-MPDU.* What waits is sent together, within limits of packets, bytes and time. Each packet is lost or arrives on
//!   its own. The block ack names those that arrived. The others are sent again, at the head of the next A-MPDU, up to
//!   `retries` times. The receiver delivers in order: it holds back what follows a missing packet.
//! - With a limit of one packet it is the basic access of the standard, with an ack for each packet.
//!
//! Not modelled: RTS and CTS, hidden stations, propagation within the LAN, capture, rate adaptation, and OFDMA.

mod airtime;
mod contention;
mod station;

use std::time::Duration;

use backchannel_core::event::Events;
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Physical, When};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::scenario::LinkSpec;
use backchannel_core::time::Time;
use backchannel_core::traits::{Backlog, Delivery, Link, Policy, Port, Usage};
use backchannel_core::Error;
use backchannel_core::{choice, options};

use crate::medium::{shared_rate, Direction, Fields, Medium};
use crate::registry::Context;
use airtime::Airtime;
use contention::{Access, Contention};
use station::{Ppdu, Station};

choice! {
    /// Access category, which sets the defaults of EDCA's parameters.
    enum Category {
        /// AC_BK.
        Background = "background",
        /// AC_BE.
        BestEffort = "best-effort",
        /// AC_VI.
        Video = "video",
        /// AC_VO.
        Voice = "voice",
    }
}

choice! {
    /// Access category of contenders.
    enum Contender {
        /// EDCA's parameters of the ends.
        Same = "same",
        /// AC_BK.
        Background = "background",
        /// AC_BE.
        BestEffort = "best-effort",
        /// AC_VI.
        Video = "video",
        /// AC_VO.
        Voice = "voice",
    }
}

options! {
    /// Options of the link.
    struct Options {
        category: Category = "best-effort", [Choice]
            "access category of both ends: sets AIFSN, contention window and TXOP limit (802.11-2020, table 9-155)";
        aifsn: Option<u64> = ABSENT, [Count 1 to 15]
            "slots after SIFS before the backoff; absent: of the category (7, 3, 2, 2)";
        cw_min: Option<u64> = ABSENT, [Count 1 to 32767]
            "least contention window; absent: of the category (15, 15, 7, 3)";
        cw_max: Option<u64> = ABSENT, [Count 1 to 32767]
            "greatest contention window; absent: of the category (1023, 1023, 15, 7)";
        txop_s: Option<Duration> = ABSENT, [Time 0 to 0.01]
            "TXOP limit, within which a station sends again without contention; 0: one transmission; absent: of the category \
             (2.528, 2.528, 4.096, 2.08 ms)";
        slot_s: Duration = 9e-6, [Time 1e-6 to 1e-3] "slot time";
        sifs_s: Duration = 16e-6, [Time 0 to 1e-3] "short interframe space";
        preamble_s: Duration = 44e-6, [Time 0 to 1e-3]
            "preamble and headers of the PHY: 40 us for 802.11n, 44 for 802.11ac, 50.4 for 802.11ax, of two streams";
        symbol_s: Duration = 4e-6, [Time 0 to 1e-3]
            "OFDM symbol with its guard interval, to which a transmission is rounded up: 4 us, or 13.6 for 802.11ax; 0: not \
             rounded";
        ack_s: Duration = 28e-6, [Time 0 to 0.01] "an ack on the air: 28 us at 24 Mbit/s";
        block_ack_s: Duration = 32e-6, [Time 0 to 0.01] "a block ack on the air: 32 us at 24 Mbit/s";
        header_bytes: u64 = 38, [Bytes 0 to 1000]
            "bytes of a packet on the air beside it: QoS header 26, check sequence 4, LLC and SNAP 8";
        aggregate_packets: usize = 64, [Count 1 to 1024]
            "most packets in an A-MPDU, and the window of the block ack; 1: no aggregation, and an ack for each packet";
        ampdu_bytes: u64 = 1_048_575, [Bytes 1 to 1e7]
            "most bytes of an A-MPDU: 65,535 for 802.11n, 1,048,575 for 802.11ac, 6,500,631 for 802.11ax";
        ppdu_s: Duration = 0.005_484, [Time 1e-4 to 0.01] "longest transmission (aPPDUMaxTime)";
        loss: f64 = 0, [Fraction 0 to 0.95] "probability that the air loses a packet of a transmission";
        retries: u64 = 7, [Count 0 to 1000] "times that a packet is sent again before it is dropped";
        eifs: bool = true, [Flag]
            "after a collision the medium stays unused for the time of a SIFS and an ack more, as with EIFS and ack timeouts";
        contenders: usize = 0, [Count 0 to 200] "further stations on the air that always have a packet";
        contender_category: Contender = "same", [Choice]
            "access category of contenders; same: the parameters of the ends";
        contender_bytes: u64 = 1500, [Bytes 1 to 65_535] "length of their packets";
        contender_ampdu: usize = 1, [Count 1 to 1024] "packets in each of their transmissions";
    }
}

pub(crate) static ENTRY: Entry = Entry::link(
    "wifi",
    "wireless LAN of today: a half-duplex medium with EDCA, A-MPDUs and block acks, shared with further stations",
    Physical { radio: true, probing: None },
)
.source("IEEE 802.11-2020, 10.23.2; Bianchi 2000")
.random(When::Always)
.options(Options::PARAMS);

impl Category {
    /// Its parameters of EDCA (802.11-2020, table 9-155, for OFDM).
    fn access(self, retries: u64) -> Access {
        let (aifsn, cw_min, cw_max) = match self {
            Category::Background => (7, 15, 1023),
            Category::BestEffort => (3, 15, 1023),
            Category::Video => (2, 7, 15),
            Category::Voice => (2, 3, 7),
        };
        Access { aifsn, cw_min, cw_max, retries }
    }

    fn txop(self) -> Duration {
        Duration::from_micros(match self {
            Category::Background | Category::BestEffort => 2528,
            Category::Video => 4096,
            Category::Voice => 2080,
        })
    }
}

impl Options {
    /// EDCA's parameters of both ends: those of their category where none are set.
    fn access(&self) -> Access {
        let of_category = self.category.access(self.retries);
        Access {
            aifsn: self.aifsn.unwrap_or(of_category.aifsn),
            cw_min: self.cw_min.unwrap_or(of_category.cw_min),
            cw_max: self.cw_max.unwrap_or(of_category.cw_max),
            ..of_category
        }
    }

    /// The same of a contender: the ends' own, or those of another category.
    fn contender_access(&self) -> Access {
        match self.contender_category {
            Contender::Same => self.access(),
            Contender::Background => Category::Background.access(self.retries),
            Contender::BestEffort => Category::BestEffort.access(self.retries),
            Contender::Video => Category::Video.access(self.retries),
            Contender::Voice => Category::Voice.access(self.retries),
        }
    }

    fn txop(&self) -> Duration {
        self.txop_s.unwrap_or(self.category.txop())
    }
}

pub(crate) fn build(checked: &CheckedOptions<'_>, spec: &LinkSpec, context: &Context) -> Result<Box<dyn Link>, Error> {
    Ok(Box::new(Wifi::new(checked, spec, context)?))
}

/// A transmission, or several that collide.
struct OnAir {
    /// When the last bit of the longest leaves.
    end: Time,
    /// What the two ends send.
    ppdus: [Option<Ppdu>; 2],
    collides: bool,
    /// End of the transmitter's TXOP.
    txop_end: Time,
}

struct Wifi {
    options: Options,
    air: Airtime,
    /// Access point and station.
    stations: [Station; 2],
    /// Both, and the contenders behind them.
    contention: Contention,
    on_air: Option<OnAir>,
    /// The next transmission of a TXOP: when, of which end, until when it lasts.
    txop: Option<(Time, usize, Time)>,
    rng: RunRng,
    losses: RunRng,
}

impl Wifi {
    fn new(checked: &CheckedOptions<'_>, spec: &LinkSpec, context: &Context) -> Result<Wifi, Error> {
        let directions = Direction::of_two_ends(spec, &Fields::FIXED)?;
        let rate_bps = shared_rate(spec, "both directions share one medium: set forward and reverse to the same rate")?;
        let options = Options::read(checked);
        let access = options.access();
        if access.cw_max < access.cw_min {
            return Err("cw_max must be at least cw_min".into());
        }
        let air = Airtime::new(&options, rate_bps)?;
        let station =
            |way: &Direction<'_>| way.build(|way| Ok(Station::new(Medium::new(way, [Some(rate_bps); 2], context)?)));
        let mut rng = rng::stream(context.seed, &format!("{}/contention", spec.name));
        let contenders = vec![options.contender_access(); options.contenders];
        let contention = Contention::new(&[access; 2], &contenders, options.slot_s, options.sifs_s, &mut rng);
        Ok(Wifi {
            stations: [station(&directions[0])?, station(&directions[1])?],
            contention,
            on_air: None,
            txop: None,
            losses: rng::stream(context.seed, &format!("{}/losses", spec.name)),
            rng,
            air,
            options,
        })
    }

    /// Advances the medium to `now`.
    fn advance(&mut self, now: Time, events: &mut Events) {
        while let Some(at) = self.next_step().filter(|at| *at <= now) {
            if let Some(on_air) = self.on_air.take() {
                self.finish(on_air, events);
            } else if let Some((at, from, end)) = self.txop.take() {
                self.continue_txop(at, from, end, events);
            } else {
                self.start(at, events);
            }
        }
    }

    /// When the transmission ends, or the next one starts.
    fn next_step(&self) -> Option<Time> {
        if let Some(on_air) = &self.on_air {
            return Some(on_air.end);
        }
        let in_txop = self.txop.as_ref().map(|(at, ..)| *at);
        in_txop.or_else(|| self.contention.next_start(&self.ready_times()))
    }

    /// Since when each end has something to send.
    fn ready_times(&self) -> [Option<Time>; 2] {
        self.stations.each_ref().map(Station::ready_at)
    }

    /// A backoff is over at `at`.
    fn start(&mut self, at: Time, events: &mut Events) {
        let mut sending = self.contention.winners(at, &self.ready_times());
        let txop = self.options.txop();
        let mut ppdus = [None, None];
        for from in sending.iter().copied().filter(|winner| *winner < 2) {
            ppdus[from] = self.build_ppdu(at, from, txop, events);
        }
        // An end has nothing to send if its policy dropped all that waited.
        sending.retain(|winner| ppdus.get(*winner).is_none_or(Option::is_some));
        let of_ends = ppdus.iter().flatten().map(|ppdu| ppdu.airtime);
        let of_contenders = sending.iter().filter(|winner| **winner >= 2).map(|_| self.air.contender());
        let Some(longest) = of_ends.chain(of_contenders).max() else { return };
        let collides = sending.len() > 1;
        self.contention.begin(at, sending);
        self.on_air = Some(OnAir { end: at + longest, ppdus, collides, txop_end: at + txop });
    }

    /// What an end sends at `at`, within `room` if that is not 0; `None`: nothing.
    fn build_ppdu(&mut self, at: Time, from: usize, room: Duration, events: &mut Events) -> Option<Ppdu> {
        events.port = from as Port;
        let longest = self.options.ppdu_s;
        let limit = if room.is_zero() { longest } else { longest.min(room.saturating_sub(self.air.answer())) };
        let ppdu = self.stations[from].build(at, &self.air, limit, events)?;
        let usage = &mut self.stations[from].medium.usage;
        usage.busy += ppdu.airtime;
        usage.line_bits += ppdu.bytes * 8;
        Some(ppdu)
    }

    /// The transmission ends: outcomes, and when the medium is idle again.
    fn finish(&mut self, on_air: OnAir, events: &mut Events) {
        let OnAir { end, ppdus, collides, txop_end } = on_air;
        let mut winner = None;
        for (from, ppdu) in ppdus.into_iter().enumerate() {
            let Some(ppdu) = ppdu else { continue };
            events.port = from as Port;
            let loss = if collides { 1.0 } else { self.options.loss };
            let arrived = self.stations[from].finish(end, &ppdu, loss, self.options.retries, &mut self.losses, events);
            if arrived {
                winner = Some(from);
            }
        }
        let is_of_contender = !collides && self.contention.has_contender_on_air();
        let idle = match winner.is_some() || is_of_contender {
            true => end + self.air.answer(),
            false if self.options.eifs => end + self.air.ack_timeout(),
            false => end,
        };
        let Some(from) = winner else { return self.contention.end(idle, is_of_contender, &mut self.rng) };
        let next = idle + self.options.sifs_s;
        if next < txop_end {
            self.txop = Some((next, from, txop_end));
        } else {
            self.contention.end(idle, true, &mut self.rng);
        }
    }

    /// A further transmission without contention, if what waits fits.
    fn continue_txop(&mut self, at: Time, from: usize, txop_end: Time, events: &mut Events) {
        let fits =
            self.stations[from].fits(at, &self.air, txop_end.since(at).saturating_sub(self.air.answer()), events);
        let ppdu = if fits { self.build_ppdu(at, from, txop_end.since(at), events) } else { None };
        match ppdu {
            Some(ppdu) => {
                let end = at + ppdu.airtime;
                let mut ppdus = [None, None];
                ppdus[from] = Some(ppdu);
                self.on_air = Some(OnAir { end, ppdus, collides: false, txop_end });
            }
            // The medium has been idle since the last answer.
            None => self.contention.end(Time(at.nanos() - self.options.sifs_s.as_nanos() as u64), true, &mut self.rng),
        }
    }
}

impl Link for Wifi {
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events) {
        self.advance(now, events);
        let from = usize::from(port);
        self.stations[1 - from].medium.policy.on_opposite(now, &packet);
        events.port = port;
        let was_empty = self.stations[from].ready_at().is_none();
        self.stations[from].medium.policy.enqueue(now, packet, events);
        if was_empty && self.stations[from].ready_at().is_some() {
            self.stations[from].ready_since = now;
            let is_busy = self.on_air.is_some() || self.txop.is_some();
            self.contention.on_arrival(now, from, is_busy, &mut self.rng);
        }
        self.advance(now, events);
    }

    fn next_event(&self) -> Option<Time> {
        let arrivals = self.stations.iter().map(|station| station.medium.next_delivery());
        // What contenders do alone is made up for when a packet comes.
        let concerns_ends = self.ready_times().iter().any(Option::is_some);
        arrivals.chain([self.next_step().filter(|_| concerns_ends)]).flatten().min()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events) {
        let first = out.len();
        self.advance(now, events);
        for (from, station) in self.stations.iter_mut().enumerate() {
            events.port = from as Port;
            station.medium.poll(now, 1 - from as Port, out, events);
        }
        out[first..].sort_by_key(|delivery| delivery.at);
    }

    fn backlog(&self, port: Port) -> Option<Backlog> {
        Some(self.stations[usize::from(port)].medium.policy.backlog())
    }

    fn peek(&self, port: Port, place: usize) -> Option<&Packet> {
        self.stations[usize::from(port)].medium.policy.peek(place)
    }

    fn usage(&self, port: Port) -> Usage {
        self.stations[usize::from(port)].medium.usage
    }
}

#[cfg(test)]
mod tests;
