//! Laws of links.

use std::collections::BTreeMap;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::{Delivery, Link, Port, Time};

use crate::steps::Step;
use crate::{hold, Broken, CONSERVATION, DETERMINISM, MEMORY, ORDER, POLLING, TIME};

/// Polls after the last packet, at most.
const MOST_POLLS: usize = 100_000;
/// How late a driver polls in [`keeps_time`], in ns.
const LATE_NS: u64 = 37_000_000;

/// Port, ideal time and id of each delivery.
pub type Deliveries = Vec<(Port, Time, u64)>;

/// Every packet is delivered, waits or is reported; none arrives before it was sent or after the poll that returns it; a
/// second poll at the same time gives nothing; what it says to have carried it has carried. With `in_order`, packets of
/// each direction arrive in the order in which they were sent.
///
/// # Errors
/// The first violation.
pub fn carries(link: &mut dyn Link, steps: &[Step], in_order: bool) -> Result<Deliveries, Broken> {
    drive(link, steps, in_order, 0)
}

/// A driver that polls late gets the same deliveries with the same times: nothing that follows is delayed.
///
/// # Errors
/// It does not, or the link breaks another law.
pub fn keeps_time(build: &mut dyn FnMut() -> Box<dyn Link>, steps: &[Step]) -> Result<(), Broken> {
    // Between packets a late driver polls before it submits, so only the times after the last one are late.
    let sorted = |mut all: Deliveries| {
        all.sort();
        all
    };
    let punctual = sorted(drive(&mut *build(), steps, false, 0)?);
    let again = sorted(drive(&mut *build(), steps, false, 0)?);
    let at = punctual.iter().zip(&again).find(|(one, other)| one != other);
    hold!(DETERMINISM, punctual == again, "deliveries differ at {at:?}, or in number");
    let late = sorted(drive(&mut *build(), steps, false, LATE_NS)?);
    let at = punctual.iter().zip(&late).find(|(one, other)| one != other);
    hold!(TIME, punctual == late, "a driver that polls {} ms late gets other times: {at:?}", LATE_NS / 1_000_000);
    Ok(())
}

fn drive(link: &mut dyn Link, steps: &[Step], in_order: bool, late_ns: u64) -> Result<Deliveries, Broken> {
    let (mut events, mut now) = (Events::default(), Time::ZERO);
    let mut sent: BTreeMap<u64, (Port, Time)> = BTreeMap::new();
    let mut all = Vec::new();
    for (id, step) in (1..).zip(steps) {
        now = Time(now.nanos() + 100_000);
        let port = match step {
            Step::Wait { ms } => {
                now = Time(now.nanos() + ms * 1_000_000);
                continue;
            }
            Step::Dequeue => continue,
            Step::Opposite { .. } => 1,
            _ => 0,
        };
        poll_until(link, now, 0, &sent, &mut all, &mut events)?;
        let packet = step.packet(id).unwrap_or_else(|| backchannel_core::packet::build::data(id, 100));
        sent.insert(id, (port, now));
        link.submit(now, port, packet, &mut events);
    }
    poll_until(link, Time(now.nanos() + 1_000_000_000_000_000), late_ns, &sent, &mut all, &mut events)?;
    let mut ends: BTreeMap<u64, usize> = BTreeMap::new();
    for id in all
        .iter()
        .map(|(.., id)| *id)
        .chain(events.list.iter().filter(|event| is_end(event.kind)).map(|event| event.packet_id))
    {
        *ends.entry(id).or_default() += 1;
    }
    let waiting: usize = [0, 1].iter().filter_map(|&port| link.backlog(port)).map(|backlog| backlog.packets).sum();
    hold!(MEMORY, waiting == 0, "{waiting} packets wait, and nothing is due any more");
    let lost: Vec<_> = sent.keys().filter(|id| !ends.contains_key(id)).take(5).collect();
    hold!(CONSERVATION, lost.is_empty(), "packets {lost:?} were neither delivered nor reported");
    let twice: Vec<_> = ends.iter().filter(|(_, times)| **times > 1).take(5).collect();
    hold!(CONSERVATION, twice.is_empty(), "packets were delivered or reported more than once: {twice:?}");
    for port in [0, 1] {
        let arrived: Vec<_> = all.iter().filter(|(to, ..)| *to == port).map(|(.., id)| *id).collect();
        let is_ordered = arrived.windows(2).all(|pair| pair[0] < pair[1]);
        hold!(ORDER, !in_order || is_ordered, "packets arrived at end {port} in the order {arrived:?}");
    }
    Ok(all)
}

/// Whether a packet with such an event goes no further.
fn is_end(kind: EventKind) -> bool {
    use EventKind::*;
    matches!(kind, DroppedFull | DroppedEarly | Purged | Lost | Tossed)
}

fn poll_until(
    link: &mut dyn Link,
    until: Time,
    late_ns: u64,
    sent: &BTreeMap<u64, (Port, Time)>,
    all: &mut Deliveries,
    events: &mut Events,
) -> Result<(), Broken> {
    let mut out: Vec<Delivery> = Vec::new();
    for polls in 0.. {
        let Some(due) = link.next_event().filter(|due| *due <= until) else { return Ok(()) };
        hold!(TIME, polls < MOST_POLLS, "it asks to be polled without end: {due:?} is the {polls}th time");
        let now = Time(due.nanos() + late_ns);
        link.poll(now, &mut out, events);
        for Delivery { port, at, packet } in out.drain(..) {
            let (from, left) = sent.get(&packet.id).copied().unwrap_or((port, Time::ZERO));
            hold!(CONSERVATION, sent.contains_key(&packet.id), "packet {} was delivered and never sent", packet.id);
            hold!(CONSERVATION, from != port, "packet {} arrived at the end that it came from", packet.id);
            hold!(TIME, at >= left, "packet {} arrived at {at:?} and was sent at {left:?}", packet.id);
            hold!(TIME, at <= now, "a poll at {now:?} gave packet {}, which arrives at {at:?}", packet.id);
            all.push((port, at, packet.id));
        }
        let reported = events.list.len();
        link.poll(now, &mut out, events);
        let is_same = out.is_empty() && events.list.len() == reported;
        hold!(POLLING, late_ns > 0 || is_same, "a second poll at {now:?} gave {} packets more or an event", out.len());
        all.extend(out.drain(..).map(|Delivery { port, at, packet }| (port, at, packet.id)));
    }
    Ok(())
}
