//! Laws of middleboxes.

use std::collections::BTreeSet;

use backchannel_core::event::Events;
use backchannel_core::packet::build::Segment;
use backchannel_core::{Middlebox, Side, Time};

use crate::steps::Step;
use crate::{hold, Broken, CONSERVATION, DETERMINISM, POLLING, TIME};

/// Times that are polled after the last packet, at most.
const MOST_POLLS: usize = 100_000;

/// What leaves a middlebox: time, side and id of each packet, and the number of events.
pub type Treatment = (Vec<(Time, Side, u64)>, usize);

/// Every packet passes or is reported; the box wakes at the times that it announces; a second poll at the same time
/// gives nothing.
///
/// # Errors
/// The first violation.
pub fn passes(middlebox: &mut dyn Middlebox, steps: &[Step]) -> Result<Treatment, Broken> {
    let (mut events, mut out, mut left) = (Events::default(), Vec::new(), Vec::new());
    let (mut now, mut entered) = (Time::ZERO, BTreeSet::new());
    for (id, step) in (1..).zip(steps) {
        match step {
            Step::Wait { ms } => {
                let until = Time(now.nanos() + ms * 1_000_000);
                poll_until(middlebox, now, until, &mut left, &mut events)?;
                now = until;
            }
            // From the other side: what the peer would send.
            Step::Opposite { payload } => {
                let packet = Segment { id, payload: *payload, ..Segment::default() }.packet();
                entered.insert(id);
                middlebox.process(now, Side::B, packet, &mut out, &mut events);
            }
            Step::Dequeue => {}
            _ => {
                let packet = step.packet(id).expect("the other steps have no packet");
                entered.insert(id);
                middlebox.process(now, Side::A, packet, &mut out, &mut events);
            }
        }
        left.extend(out.drain(..).map(|(side, packet)| (now, side, packet.id)));
    }
    poll_until(middlebox, now, Time::from_seconds(1e5), &mut left, &mut events)?;
    let gone: BTreeSet<_> =
        left.iter().map(|(.., id)| *id).chain(events.list.iter().map(|event| event.packet_id)).collect();
    let lost: Vec<_> = entered.difference(&gone).take(5).collect();
    hold!(CONSERVATION, lost.is_empty(), "packets {lost:?} neither passed nor are reported");
    Ok((left, events.list.len()))
}

/// Polls a box at each time that it announces, up to a time.
fn poll_until(
    middlebox: &mut dyn Middlebox,
    since: Time,
    until: Time,
    left: &mut Vec<(Time, Side, u64)>,
    events: &mut Events,
) -> Result<(), Broken> {
    let mut out = Vec::new();
    let mut last = since;
    for polls in 0.. {
        let Some(due) = middlebox.next_event().filter(|due| *due <= until) else { return Ok(()) };
        hold!(TIME, due >= last, "next_event is {due:?}, and it is {last:?} already");
        hold!(TIME, polls < MOST_POLLS, "it asks to be polled without end: {due:?} is the {polls}th time");
        middlebox.poll(due, &mut out, events);
        left.extend(out.drain(..).map(|(side, packet)| (due, side, packet.id)));
        let reported = events.list.len();
        middlebox.poll(due, &mut out, events);
        let is_same = out.is_empty() && events.list.len() == reported;
        hold!(POLLING, is_same, "a second poll at {due:?} gave {} packets more or an event", out.len());
        last = due;
    }
    Ok(())
}

/// Two boxes do the same with the same packets.
///
/// # Errors
/// They do not, or one breaks another law.
pub fn repeats(build: &mut dyn FnMut() -> Box<dyn Middlebox>, steps: &[Step]) -> Result<(), Broken> {
    let (first, second) = (passes(&mut *build(), steps)?, passes(&mut *build(), steps)?);
    let at = first.0.iter().zip(&second.0).find(|(one, other)| one != other);
    hold!(DETERMINISM, first == second, "what left differs at {at:?}, or in number");
    Ok(())
}
