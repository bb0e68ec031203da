//! Each law catches a mechanism that breaks it, and passes one that does not.

use std::collections::VecDeque;
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::traits::{Backlog, Usage};
use backchannel_core::{Delivery, Link, Middlebox, Packet, Policy, Port, Side, Time};

use crate::policy::Claims;
use crate::{link, middlebox, policy, steps, Broken};
use crate::{CONSERVATION, DETERMINISM, IP, MEMORY, ORDER, POLLING, TIME};

/// What a mechanism does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    Nothing,
    LosesSilently,
    DropsTwice,
    PurgesData,
    Reorders,
    GrowsBeyondLimit,
    MiscountsBytes,
    AnnouncesTooEarly,
    ReportsAgain,
    DependsOnInstance(u64),
    TreatsIpv6Otherwise,
}

/// A queue of ten packets with a fault.
struct Queue {
    wrong: Wrong,
    packets: VecDeque<Packet>,
    arrived: u64,
}

fn queue(wrong: Wrong) -> Queue {
    Queue { wrong, packets: VecDeque::new(), arrived: 0 }
}

impl Policy for Queue {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        self.arrived += 1;
        let limit = if self.wrong == Wrong::GrowsBeyondLimit { 50_000 } else { 10 };
        let is_ipv6 = packet.bytes()[0] >> 4 == 6;
        let drops = match self.wrong {
            Wrong::DependsOnInstance(number) => self.arrived.is_multiple_of(5 + number),
            Wrong::TreatsIpv6Otherwise => is_ipv6,
            _ => false,
        };
        if self.packets.len() < limit && !drops {
            self.packets.push_back(packet);
        } else if self.wrong == Wrong::PurgesData {
            events.record(now, EventKind::Purged, &packet);
        } else if self.wrong != Wrong::LosesSilently {
            events.record(now, EventKind::DroppedFull, &packet);
            if self.wrong == Wrong::DropsTwice {
                events.record(now, EventKind::DroppedEarly, &packet);
            }
        }
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        if self.packets.is_empty() && self.wrong == Wrong::ReportsAgain {
            events.record(now, EventKind::Marked, &backchannel_core::packet::build::data(1, 1));
        }
        match self.wrong {
            Wrong::Reorders => self.packets.pop_back(),
            _ => self.packets.pop_front(),
        }
    }

    fn next_time(&self) -> Option<Time> {
        let waits = !self.packets.is_empty() || self.wrong == Wrong::AnnouncesTooEarly;
        waits.then_some(Time::ZERO)
    }

    fn backlog(&self) -> Backlog {
        let bytes = self.packets.iter().map(|packet| u64::from(packet.len())).sum();
        Backlog { packets: self.packets.len(), bytes: if self.wrong == Wrong::MiscountsBytes { 1 } else { bytes } }
    }

    fn peek(&self, place: usize) -> Option<&Packet> {
        self.packets.get(place)
    }

    fn take(&mut self, place: usize, _: Option<Packet>) -> Option<Packet> {
        self.packets.remove(place)
    }
}

fn law(result: Result<(), Broken>) -> Option<&'static str> {
    result.err().map(|broken| broken.law)
}

#[test]
fn each_law_of_policies_catches_its_fault() {
    let claims = Claims { limit_packets: Some(10), limit_bytes: u64::MAX, lends: true, is_fifo: true };
    let first = |wrong| {
        let broken = |seed| law(policy::accounts(&mut queue(wrong), &steps::of_seed(seed, 200), &claims));
        (0..50).find_map(broken)
    };
    for (wrong, law) in [
        (Wrong::Nothing, None),
        (Wrong::LosesSilently, Some(CONSERVATION)),
        (Wrong::DropsTwice, Some(CONSERVATION)),
        (Wrong::PurgesData, Some(CONSERVATION)),
        (Wrong::Reorders, Some(ORDER)),
        (Wrong::GrowsBeyondLimit, Some(MEMORY)),
        (Wrong::MiscountsBytes, Some(MEMORY)),
        (Wrong::AnnouncesTooEarly, Some(TIME)),
        (Wrong::ReportsAgain, Some(POLLING)),
    ] {
        assert_eq!(first(wrong), law, "{wrong:?}");
    }
}

#[test]
fn policies_that_differ_from_run_to_run_or_by_the_version_of_ip_are_caught() {
    let steps = steps::of_seed(1, 200);
    let mut built = 0;
    let mut build = |wrong: fn(u64) -> Wrong| {
        built += 1;
        Box::new(queue(wrong(built))) as Box<dyn Policy>
    };
    assert_eq!(law(policy::repeats(&mut || build(|_| Wrong::Nothing), &steps)), None);
    assert_eq!(law(policy::repeats(&mut || build(Wrong::DependsOnInstance), &steps)), Some(DETERMINISM));
    assert_eq!(law(policy::repeats(&mut || build(|_| Wrong::TreatsIpv6Otherwise), &steps)), Some(IP));
}

#[test]
fn a_policy_without_a_bound_is_caught() {
    assert_eq!(law(policy::is_bounded(&mut queue(Wrong::GrowsBeyondLimit))), Some(MEMORY));
    assert_eq!(law(policy::is_bounded(&mut queue(Wrong::Nothing))), None);
}

#[test]
fn a_line_serves_a_policy_at_its_rate() {
    let data = steps::Step::Data { flow: 0, payload: 1210, ecn: false };
    // Packets of 1250 bytes take 10 ms at 1 Mbit/s; one comes each 5 ms.
    let arrivals: Vec<_> =
        (0..40).map(|number| (Time::from_seconds(f64::from(number) * 0.005), data.clone())).collect();
    let served = policy::serve(&mut queue(Wrong::Nothing), 1e6, &arrivals);
    assert_eq!((served.arrived, served.longest_packets), (40, 10));
    assert_eq!(served.waits_s.len() + served.events.len(), 40);
    let waits: Vec<_> = served.waits_s.iter().take(4).map(|wait| (wait * 1e3).round()).collect();
    assert_eq!(waits, [0.0, 5.0, 10.0, 15.0]);
}

/// A middlebox or a link of 10 ms with a fault.
struct Delay {
    wrong: LateWrong,
    held: VecDeque<(Time, Side, Packet)>,
    usage: [Usage; 2],
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum LateWrong {
    Nothing,
    Loses,
    ForgetsOne,
    WakesInThePast,
    NeverSleeps,
    GivesPiecemeal,
    Invents,
    ArrivesBeforeItLeft,
    SlipsWhenLate,
    Reorders,
    DeliversBack,
}

fn delay(wrong: LateWrong) -> Delay {
    Delay { wrong, held: VecDeque::new(), usage: [Usage::default(); 2] }
}

impl Delay {
    fn hold(&mut self, now: Time, to: Side, packet: Packet) {
        let at = now + Duration::from_millis(10);
        let entry = (at, to, packet);
        match self.wrong {
            LateWrong::Loses if entry.2.id.is_multiple_of(7) => {}
            LateWrong::Reorders if !self.held.is_empty() => {
                let place = self.held.len() - 1;
                let due = self.held[place].0;
                self.held.insert(place, (due, entry.1, entry.2));
            }
            _ => self.held.push_back(entry),
        }
    }

    fn due(&self) -> Option<Time> {
        match self.wrong {
            LateWrong::WakesInThePast if self.held.len() > 3 => Some(Time::ZERO),
            LateWrong::NeverSleeps => Some(self.held.front().map_or(Time::ZERO, |(at, ..)| *at)),
            LateWrong::ForgetsOne if self.held.len() == 1 => None,
            _ => self.held.front().map(|(at, ..)| *at),
        }
    }

    fn ready(&mut self, now: Time) -> Vec<(Time, Side, Packet)> {
        let most = if self.wrong == LateWrong::GivesPiecemeal { 1 } else { usize::MAX };
        let mut ready = Vec::new();
        while ready.len() < most && self.held.front().is_some_and(|(at, ..)| *at <= now) {
            ready.extend(self.held.pop_front());
        }
        if self.wrong == LateWrong::SlipsWhenLate {
            ready.iter_mut().for_each(|(at, ..)| *at = now);
        }
        ready
    }
}

impl Middlebox for Delay {
    fn process(&mut self, now: Time, from: Side, packet: Packet, _: &mut Vec<(Side, Packet)>, _: &mut Events) {
        self.hold(now, from.other(), packet);
    }

    fn next_event(&self) -> Option<Time> {
        self.due()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<(Side, Packet)>, _: &mut Events) {
        out.extend(self.ready(now).into_iter().map(|(_, to, packet)| (to, packet)));
    }
}

#[test]
fn each_law_of_middleboxes_catches_its_fault() {
    let first = |wrong| {
        (0..50).find_map(|seed| law(middlebox::passes(&mut delay(wrong), &steps::of_seed(seed, 200)).map(drop)))
    };
    for (wrong, law) in [
        (LateWrong::Nothing, None),
        (LateWrong::Loses, Some(CONSERVATION)),
        (LateWrong::ForgetsOne, Some(TIME)),
        (LateWrong::WakesInThePast, Some(TIME)),
        (LateWrong::NeverSleeps, Some(TIME)),
        (LateWrong::GivesPiecemeal, Some(POLLING)),
    ] {
        assert_eq!(first(wrong), law, "{wrong:?}");
    }
    let mut built = 0;
    let mut build = || {
        built += 1;
        Box::new(delay(if built % 2 == 0 { LateWrong::Reorders } else { LateWrong::Nothing })) as Box<dyn Middlebox>
    };
    assert_eq!(law(middlebox::repeats(&mut build, &steps::of_seed(1, 200))), Some(DETERMINISM));
}

/// The same as a link.
struct DelayLink(Delay);

impl Link for DelayLink {
    fn submit(&mut self, now: Time, port: Port, packet: Packet, _: &mut Events) {
        // Several are due at once.
        let tick = if self.0.wrong == LateWrong::GivesPiecemeal { 10_000_000 } else { 1 };
        self.0.hold(Time(now.nanos() / tick * tick), if port == 0 { Side::B } else { Side::A }, packet);
    }

    fn next_event(&self) -> Option<Time> {
        self.0.due()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, _: &mut Events) {
        let wrong = self.0.wrong;
        for (mut at, to, mut packet) in self.0.ready(now) {
            if wrong == LateWrong::ArrivesBeforeItLeft {
                at = Time(at.nanos().saturating_sub(11_000_000));
            }
            if wrong == LateWrong::Invents {
                packet.id += 1000;
            }
            let is_b = (to == Side::B) != (wrong == LateWrong::DeliversBack);
            out.push(Delivery { port: Port::from(is_b), at, packet });
        }
    }

    fn backlog(&self, port: Port) -> Option<Backlog> {
        let is_held = self.0.wrong == LateWrong::ForgetsOne && port == 0;
        Some(Backlog { packets: if is_held { self.0.held.len() } else { 0 }, bytes: 0 })
    }

    fn usage(&self, port: Port) -> Usage {
        self.0.usage[usize::from(port)]
    }
}

#[test]
fn each_law_of_links_catches_its_fault() {
    let first = |wrong| {
        (0..50).find_map(|seed| {
            law(link::carries(&mut DelayLink(delay(wrong)), &steps::of_seed(seed, 200), true).map(drop))
        })
    };
    for (wrong, law) in [
        (LateWrong::Nothing, None),
        (LateWrong::Loses, Some(CONSERVATION)),
        (LateWrong::Invents, Some(CONSERVATION)),
        (LateWrong::DeliversBack, Some(CONSERVATION)),
        (LateWrong::ForgetsOne, Some(MEMORY)),
        (LateWrong::NeverSleeps, Some(TIME)),
        (LateWrong::ArrivesBeforeItLeft, Some(TIME)),
        (LateWrong::Reorders, Some(ORDER)),
        (LateWrong::GivesPiecemeal, Some(POLLING)),
    ] {
        assert_eq!(first(wrong), law, "{wrong:?}");
    }
    let times = |wrong| {
        (0..50).find_map(|seed| {
            let mut build = || Box::new(DelayLink(delay(wrong))) as Box<dyn Link>;
            law(link::keeps_time(&mut build, &steps::of_seed(seed, 200)))
        })
    };
    assert_eq!(times(LateWrong::Nothing), None);
    assert_eq!(times(LateWrong::SlipsWhenLate), Some(TIME));
}
