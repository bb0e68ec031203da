//! The MAC protocol: polls, frames, link acks and backoff.

use std::cmp::Reverse;
use std::time::Duration;

use backchannel_core::event::{EventKind, Events};
use backchannel_core::packet::Packet;
use backchannel_core::rng;
use backchannel_core::time::{service_time, Time};
use backchannel_core::traits::Port;

use super::radio::{Frame, Mode, OutputQueue, Step};
use super::{Ricochet, ACK_MARGIN, TO_GATEWAY, TO_MOBILE};
use crate::far_end::InFlightPacket;

impl Ricochet {
    pub(super) fn radio_of(&self, port: Port) -> usize {
        match port {
            0 => 0,
            mobile => self.relays + usize::from(mobile) - 1,
        }
    }

    /// The next radio on a packet's way.
    fn next_radio(&self, radio: usize, queue: usize, packet: &Packet) -> usize {
        match queue {
            TO_GATEWAY => (radio - 1).min(self.relays - 1),
            _ if radio + 1 == self.relays => self.radio_of(packet.to_port()),
            _ => radio + 1,
        }
    }

    /// The port for which a radio's transmissions towards the gateway count.
    fn port_of(&self, radio: usize) -> Port {
        (radio + 1).saturating_sub(self.relays).max(1) as Port
    }

    fn queue_mut(&mut self, radio: usize, queue: usize) -> &mut OutputQueue {
        self.radios[radio].queues[queue].as_mut().expect("the radio has a queue in this direction")
    }

    fn schedule(&mut self, when: Time, step: Step) {
        self.steps += 1;
        self.event_queue.push(Reverse((when, self.steps, step)));
    }

    fn set_mode(&mut self, radio: usize, mode: Mode) -> u64 {
        let radio = &mut self.radios[radio];
        radio.mode = mode;
        radio.epoch += 1;
        radio.epoch
    }

    fn is_lost(&mut self) -> bool {
        self.parameters.options.frame_loss > 0.0 && rng::uniform(&mut self.rng) < self.parameters.options.frame_loss
    }

    /// Marks a radio as transmitting.
    fn record_transmission(&mut self, radio: usize, from: Time, to: Time) {
        self.radios[radio].hears_from = to + self.parameters.frame_turnaround();
        #[cfg(test)]
        self.on_air.push((radio, true, from, to));
        #[cfg(not(test))]
        let _ = from;
    }

    /// Marks a radio as having received something of this length.
    fn record_reception(&mut self, radio: usize, length: Duration, to: Time) {
        let radio_ = &mut self.radios[radio];
        radio_.sends_from = to + self.parameters.frame_turnaround();
        radio_.hears_from = radio_.hears_from.max(to);
        #[cfg(test)]
        self.on_air.push((radio, false, Time(to.0 - length.as_nanos() as u64), to));
        #[cfg(not(test))]
        let _ = length;
    }

    /// Enqueues a packet at a radio.
    pub(super) fn enqueue(&mut self, now: Time, radio: usize, queue: usize, packet: Packet, events: &mut Events) {
        events.port = packet.from_port();
        if let Some(other) = &mut self.radios[radio].queues[1 - queue] {
            other.policy.on_opposite(now, &packet);
        }
        self.queue_mut(radio, queue).policy.enqueue(now, packet, events);
        self.start_exchange(now, radio, queue, events);
    }

    /// Starts the next exchange of a queue that polls nobody: for a frame to retransmit or a link ack that is due,
    /// otherwise for the next packet of its policy.
    fn start_exchange(&mut self, now: Time, radio: usize, queue: usize, events: &mut Events) {
        let Some(output) = &self.radios[radio].queues[queue] else { return };
        if output.polled.is_some() {
            return;
        }
        let unsent = output.frames.iter().find(|frame| frame.due.is_none_or(|due| due <= now)).map(|frame| frame.to);
        let peer = match unsent {
            Some(peer) => peer,
            None => {
                match output.policy.next_time() {
                    None => return,
                    Some(at) if at > now => {
                        // One retry is enough, however many packets arrive meanwhile.
                        if output.retry_at != Some(at) {
                            self.queue_mut(radio, queue).retry_at = Some(at);
                            self.schedule(at, Step::PolicyRetry { radio, queue });
                        }
                        return;
                    }
                    Some(_) => {}
                }
                events.port = if queue == TO_MOBILE { 0 } else { self.port_of(radio) };
                let Some(packet) = self.queue_mut(radio, queue).policy.dequeue(now, events) else { return };
                let to = self.next_radio(radio, queue, &packet);
                let neighbour = self.radios[radio].neighbour(to);
                neighbour.sent += 1;
                let frame = Frame { packet, to, number: neighbour.sent, transmissions: 0, due: None };
                self.queue_mut(radio, queue).frames.push(frame);
                to
            }
        };
        self.queue_mut(radio, queue).polled = Some(peer);
        self.attempt(now, radio, queue, events);
    }

    /// Sends the RTS. A busy radio cannot, and backs off as if the RTS had no answer.
    fn attempt(&mut self, now: Time, radio: usize, queue: usize, events: &mut Events) {
        let output = self.queue_mut(radio, queue);
        let peer = output.polled.expect("the queue polls a neighbour");
        let Some(number) = output.frames.iter().rev().find(|frame| frame.to == peer).map(|frame| frame.number) else {
            // Meanwhile the peer has acknowledged it.
            output.polled = None;
            self.start_exchange(now, radio, queue, events);
            return;
        };
        if self.radios[radio].mode != Mode::Idle {
            self.back_off(now + self.parameters.answer_timeout(), radio, queue);
        } else if self.radios[radio].sends_from > now {
            self.schedule(self.radios[radio].sends_from, Step::Attempt { radio, queue });
        } else {
            let epoch = self.set_mode(radio, Mode::Polling { queue, peer });
            let end = now + self.parameters.poll;
            self.record_transmission(radio, now, end);
            self.schedule(end, Step::RtsEnds { from: radio, to: peer, number, epoch, since: now });
            self.schedule(now + self.parameters.answer_timeout(), Step::Timeout { radio, epoch });
        }
    }

    fn back_off(&mut self, from: Time, radio: usize, queue: usize) {
        let draw = rng::uniform(&mut self.rng);
        let base = self.parameters.options.backoff_s;
        let output = self.queue_mut(radio, queue);
        output.backoff *= 2;
        let until = from + output.backoff.mul_f64(1.0 + draw) + 2 * base;
        self.schedule(until, Step::Attempt { radio, queue });
    }

    fn dispatch(&mut self, now: Time, step: Step, events: &mut Events) {
        match step {
            Step::RtsEnds { from, to, number, epoch, since } => self.on_rts(now, (from, to), number, epoch, since),
            Step::CtsEnds { from, to, epoch } => self.on_cts(now, from, to, epoch, events),
            Step::FrameBegins { from, to, epoch } => self.start_frame(now, from, to, epoch, events),
            Step::FrameEnds { from, to, epoch, heard } => self.on_frame_end(now, (from, to), epoch, heard, events),
            Step::Delivery => self.deliver(now, events),
            Step::AckBegins { from, to, epoch } => {
                if self.radios[from].epoch == epoch {
                    let end = now + self.parameters.link_ack;
                    self.record_transmission(from, now, end);
                    self.schedule(end, Step::AckEnds { from, to, epoch });
                }
            }
            Step::AckEnds { from, to, epoch } => self.on_link_ack(now, from, to, epoch, events),
            Step::Timeout { radio, epoch } => {
                if self.radios[radio].epoch == epoch {
                    self.on_timeout(now, radio, events);
                }
            }
            Step::Attempt { radio, queue } => self.attempt(now, radio, queue, events),
            Step::PolicyRetry { radio, queue } => {
                self.queue_mut(radio, queue).retry_at = None;
                self.start_exchange(now, radio, queue, events);
            }
            Step::AckDue { radio, queue } => self.start_exchange(now, radio, queue, events),
        }
    }

    /// The end of an RTS. An idle radio answers: with a link ack if it already has the frames that the RTS is for, else
    /// with a CTS.
    fn on_rts(&mut self, now: Time, (from, to): (usize, usize), number: u64, epoch: u64, since: Time) {
        let (lost, radio) = (self.is_lost(), &self.radios[to]);
        if lost || self.radios[from].epoch != epoch || radio.mode != Mode::Idle || radio.hears_from > since {
            return;
        }
        self.record_reception(to, self.parameters.poll, now);
        self.on_piggybacked_ack(to, from);
        let duplicate = self.radios[to].heard(from) >= number;
        let parameters = &self.parameters;
        let begins = now + parameters.turnaround();
        let ends = begins + if duplicate { parameters.link_ack } else { parameters.poll };
        let patience = parameters.frame_turnaround() + parameters.turnaround();
        let answering = self.set_mode(to, Mode::Answering { peer: from });
        self.record_transmission(to, begins, ends);
        if duplicate {
            self.schedule(ends, Step::AckEnds { from: to, to: from, epoch: answering });
        } else {
            self.schedule(ends, Step::CtsEnds { from: to, to: from, epoch });
            // The epoch changes when the frame starts.
            self.schedule(ends + patience, Step::Timeout { radio: to, epoch: answering });
        }
    }

    /// A radio has heard another, and with it the number of the last frame that arrived there.
    fn on_piggybacked_ack(&mut self, radio: usize, from: usize) {
        let heard = self.radios[from].heard(radio);
        let queue = if from > radio { TO_MOBILE } else { TO_GATEWAY };
        self.queue_mut(radio, queue).frames.retain(|frame| frame.to != from || frame.number > heard);
    }

    /// The end of a CTS. The frame to send is the first that did not arrive, new or not.
    fn on_cts(&mut self, now: Time, from: usize, to: usize, epoch: u64, events: &mut Events) {
        let lost = self.is_lost();
        let Mode::Polling { queue, peer } = self.radios[to].mode else { return };
        if lost || self.radios[to].epoch != epoch {
            return;
        }
        self.record_reception(to, self.parameters.poll, now);
        self.on_piggybacked_ack(to, from);
        let (backoff, retries) = (self.parameters.options.backoff_s, self.parameters.options.retries);
        let output = self.queue_mut(to, queue);
        output.backoff = backoff;
        output.frames.retain(|frame| {
            let exhausted = frame.to == peer && retries.is_some_and(|most| frame.transmissions > most);
            if exhausted {
                events.port = frame.packet.from_port();
                events.record(now, EventKind::Lost, &frame.packet);
            }
            !exhausted
        });
        if output.first_for(peer).is_none() {
            output.polled = None;
            self.set_mode(to, Mode::Idle);
            self.start_exchange(now, to, queue, events);
            return;
        }
        let epoch = self.set_mode(to, Mode::Sending { queue, peer });
        self.schedule(self.radios[to].sends_from, Step::FrameBegins { from: to, to: from, epoch });
    }

    fn start_frame(&mut self, now: Time, from: usize, to: usize, epoch: u64, events: &mut Events) {
        let Mode::Sending { queue, peer } = self.radios[from].mode else { return };
        if self.radios[from].epoch != epoch {
            return;
        }
        let (header_bytes, rate_bps) = (self.parameters.options.header_bytes, self.parameters.rate_bps);
        let frame = self.queue_mut(from, queue).frames.iter_mut().find(|frame| frame.to == peer);
        let frame = frame.expect("the CTS requests a frame");
        frame.transmissions += 1;
        let (bytes, port) = (u64::from(frame.packet.len()), frame.packet.from_port());
        let is_first = frame.transmissions == 1;
        if !is_first {
            events.port = port;
            events.record(now, EventKind::LinkRetransmit, &frame.packet);
        }
        let bits = (bytes + header_bytes) * 8;
        let time = service_time(bits, rate_bps);
        // Only the first radio's transmissions count; relays repeat them.
        if from == self.radio_of(port) {
            let usage = &mut self.usage[usize::from(port)];
            usage.line_bits += bits;
            usage.busy += time;
            usage.packets += u64::from(is_first);
            usage.bytes += if is_first { bytes } else { 0 };
        }
        let end = now + time;
        self.record_transmission(from, now, end);
        let heard = !self.is_lost() && self.radios[to].mode == (Mode::Answering { peer: from });
        if heard {
            // The timeout for the start of the frame is void now.
            self.set_mode(to, Mode::Answering { peer: from });
        }
        self.schedule(end, Step::FrameEnds { from, to, epoch, heard });
    }

    /// The end of a frame. With piggybacking both radios are idle now, and its sender polls first.
    fn on_frame_end(&mut self, now: Time, (from, to): (usize, usize), epoch: u64, heard: bool, events: &mut Events) {
        let Mode::Sending { queue, peer } = self.radios[from].mode else { return };
        if self.radios[from].epoch != epoch {
            return;
        }
        let output = self.radios[from].queues[queue].as_ref().expect("the radio sends from this queue");
        let frame = output.first_for(peer).expect("the frame was sent");
        let (number, length) = (frame.number, u64::from(frame.packet.len()) + self.parameters.options.header_bytes);
        if heard {
            let is_new = self.radios[to].heard(from) < number;
            let packet = is_new.then(|| frame.packet.clone());
            self.record_reception(to, service_time(length * 8, self.parameters.rate_bps), now);
            self.radios[to].neighbour(from).heard = number;
            if let Some(packet) = packet {
                let way = if from < to { TO_MOBILE } else { TO_GATEWAY };
                self.deliveries.push_back((to, way, packet));
                self.schedule(now + self.parameters.latency, Step::Delivery);
            }
        }
        if self.parameters.options.piggyback {
            if heard {
                self.set_mode(to, Mode::Idle);
            }
            self.set_mode(from, Mode::Idle);
            self.finish_exchange(now + self.parameters.options.ack_timeout_s, now, from, queue, events);
        } else {
            let sender = self.set_mode(from, Mode::AwaitingAck { queue, peer });
            let patience = self.parameters.frame_turnaround() + self.parameters.link_ack + ACK_MARGIN;
            self.schedule(now + patience, Step::Timeout { radio: from, epoch: sender });
            if heard {
                let epoch = self.radios[to].epoch;
                self.schedule(self.radios[to].sends_from, Step::AckBegins { from: to, to: from, epoch });
            }
        }
    }

    /// Ends an exchange. The frame's link ack is polled for at `due` if it is missing then.
    fn finish_exchange(&mut self, due: Time, now: Time, radio: usize, queue: usize, events: &mut Events) {
        let output = self.queue_mut(radio, queue);
        let peer = output.polled.take().expect("it polled somebody");
        if let Some(frame) = output.frames.iter_mut().find(|frame| frame.to == peer) {
            frame.due = Some(due);
            self.schedule(due, Step::AckDue { radio, queue });
        }
        self.start_exchange(now, radio, queue, events);
    }

    /// The end of a link ack, after a frame or instead of a CTS. Both radios are idle now.
    fn on_link_ack(&mut self, now: Time, from: usize, to: usize, epoch: u64, events: &mut Events) {
        if self.radios[from].epoch != epoch {
            return;
        }
        let lost = self.is_lost();
        self.set_mode(from, Mode::Idle);
        let queue = match self.radios[to].mode {
            Mode::AwaitingAck { queue, peer } | Mode::Polling { queue, peer } if peer == from && !lost => queue,
            _ => return,
        };
        self.record_reception(to, self.parameters.link_ack, now);
        self.on_piggybacked_ack(to, from);
        self.set_mode(to, Mode::Idle);
        let backoff = self.parameters.options.backoff_s;
        let output = self.queue_mut(to, queue);
        output.backoff = backoff;
        output.polled = None;
        self.start_exchange(now, to, queue, events);
    }

    /// Delivers a packet at the radio where it arrived: to the node, or to the queue of the next hop.
    fn deliver(&mut self, now: Time, events: &mut Events) {
        let (radio, way, packet) = self.deliveries.pop_front().expect("each delivery step has a packet");
        // A packet between two mobiles turns around at the last relay.
        let onward = if packet.to_port() == 0 { TO_GATEWAY } else { TO_MOBILE };
        if radio >= self.relays || (radio == 0 && onward == TO_GATEWAY) {
            let port = if radio == 0 { 0 } else { radio - self.relays + 1 };
            self.far_ends[port].fly(now, InFlightPacket::new(packet, None));
        } else {
            self.enqueue(now, radio, if radio + 1 == self.relays { onward } else { way }, packet, events);
        }
    }

    /// The expected answer did not arrive.
    fn on_timeout(&mut self, now: Time, radio: usize, events: &mut Events) {
        let mode = self.radios[radio].mode;
        self.set_mode(radio, Mode::Idle);
        match mode {
            Mode::Polling { queue, .. } => self.back_off(now, radio, queue),
            Mode::AwaitingAck { queue, .. } => self.finish_exchange(now, now, radio, queue, events),
            Mode::Idle | Mode::Sending { .. } | Mode::Answering { .. } => {}
        }
    }

    pub(super) fn advance(&mut self, now: Time, events: &mut Events) {
        while self.event_queue.peek().is_some_and(|Reverse((at, _, _))| *at <= now) {
            let Reverse((at, _, step)) = self.event_queue.pop().expect("the queue has a front");
            self.dispatch(at, step, events);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::radios;
    use super::*;
    use serde_json::json;

    #[test]
    fn steps_of_one_instant_keep_the_order_in_which_they_were_scheduled() {
        let mut link = radios(1, json!({}), 1);
        let steps = [Step::Delivery, Step::AckDue { radio: 1, queue: 1 }, Step::Attempt { radio: 0, queue: 0 }];
        let in_turn = [steps[2], steps[0], steps[1], steps[0]];
        in_turn.iter().for_each(|step| link.schedule(Time(7), *step));
        let popped: Vec<_> = std::iter::from_fn(|| link.event_queue.pop()).map(|Reverse((_, _, step))| step).collect();
        assert_eq!(popped, in_turn);
    }
}
