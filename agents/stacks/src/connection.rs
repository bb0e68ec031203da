//! One TCP connection: the state machine of RFC 9293 over a sender and a receiver. It has no clock, socket or
//! randomness of its own.
//!
//! `opening.rs` opens it, `input.rs` takes segments, `output.rs` builds them; `sender.rs` and `receiver.rs` hold the
//! two halves, `timers.rs` the timers, `controllers/` congestion control, `extensions/` what single papers add.

use std::sync::Arc;
use std::vec::Drain;

use backchannel_core::event::SenderSample;
use backchannel_core::ip::IpVersion;
use backchannel_core::packet::{FlowKey, Packet};
use backchannel_core::time::Time;
use backchannel_core::transport::{Chunk, End, Transport};

use crate::challenge::ChallengeAcks;
use crate::config::Config;
use crate::ecn::Ecn;
use crate::extensions::{Extension, Extensions};
use crate::handshake::Handshake;
use crate::receiver::Receiver;
use crate::sender::{Context, Sender};
use crate::seq::{Offset, SeqNumber};
use crate::source::Source;
use crate::telemetry::{Counts, Sample};
use crate::timers::{Timer, TimerTable};
use crate::timestamps::Timestamps;

/// States of RFC 9293 3.3.2; LISTEN is the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // They are the RFC's names.
pub enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

impl State {
    /// Whether the connection is being opened.
    pub(crate) fn is_opening(self) -> bool {
        matches!(self, State::SynSent | State::SynReceived)
    }
}

/// Retransmissions of a segment before the connection is given up: BSD's TCP_MAXRXTSHIFT.
const MAX_RETRANSMISSIONS: u32 = 12;

/// A TCP connection. Drive it through [`Transport`].
pub struct Connection {
    pub(crate) config: Arc<Config>,
    /// The flow of the segments that this side sends.
    pub(crate) flow: FlowKey,
    /// Bytes of data in a segment without TCP options.
    pub(crate) largest_payload: u32,
    pub(crate) state: State,
    /// Set in TIME-WAIT and CLOSED, and only there.
    pub(crate) end: Option<End>,
    pub(crate) handshake: Handshake,
    pub(crate) timers: TimerTable,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) ecn: Ecn,
    pub(crate) timestamps: Timestamps,
    pub(crate) extensions: Extensions,
    pub(crate) challenges: ChallengeAcks,
    /// Whether the application reads what arrives.
    reading: bool,
    /// Whether data wait for room in the queue of the host's interface.
    pub(crate) data_held: bool,
    /// A reset must go, after the connection was aborted.
    pub(crate) reset_due: bool,
    /// What an ack is due for before the data that arrived last (RFC 8257 3.2).
    pub(crate) early_ack: Option<Offset>,
    /// A reset that answers a segment of another connection.
    pub(crate) stray_reset: Option<Packet>,
    /// Number of the last packet sent.
    pub(crate) last_packet: u64,
    /// Counts of this side without those of the sender.
    pub(crate) counts: Counts,
    /// Data in order that the application has yet to take over with [`Connection::read`].
    arrived: Vec<Chunk>,
}

impl Connection {
    pub(crate) fn new(config: Arc<Config>, flow: FlowKey, initial: SeqNumber, source: Source) -> Connection {
        let largest_payload = config.largest_payload(IpVersion::of(flow.src));
        Connection {
            flow,
            largest_payload,
            state: State::SynSent,
            end: None,
            handshake: Handshake::new(&config),
            timers: TimerTable::default(),
            reading: !source.relays(),
            data_held: false,
            sender: Sender::new(&config, largest_payload, initial, source),
            receiver: Receiver::new(&config),
            ecn: Ecn::new(&config),
            timestamps: Timestamps::new(config.timestamp_tick_s),
            extensions: Extensions::new(&config).for_segments_of(largest_payload),
            challenges: ChallengeAcks::default(),
            reset_due: false,
            early_ack: None,
            stray_reset: None,
            last_packet: 0,
            counts: Counts::default(),
            arrived: Vec::new(),
            config,
        }
    }

    /// The state of RFC 9293.
    pub fn state(&self) -> State {
        self.state
    }

    /// Bytes of data in a full segment.
    pub fn mss(&self) -> f64 {
        f64::from(self.sender.mss)
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        let Counts { sent, received, refused, .. } = self.counts;
        Counts { sent, received, refused, ..self.sender.counts }
    }

    /// The sender's telemetry since it was last cleared.
    pub fn samples(&self) -> &[Sample] {
        self.sender.samples.as_deref().unwrap_or_default()
    }

    /// The sender takes no telemetry from now on, because nobody reads it.
    pub fn ignore_samples(&mut self) {
        self.sender.samples = None;
    }

    /// Drops the telemetry so far.
    pub fn clear_samples(&mut self) {
        if let Some(samples) = &mut self.sender.samples {
            samples.clear();
        }
    }

    /// The full queue of the host's own interface dropped a packet of this side (4.4BSD: ENOBUFS, then tcp_quench).
    pub fn on_full_interface(&mut self, now: Time) {
        if self.sender.era.quench {
            self.sender.on_quench(now);
        }
    }

    /// Whether [`Connection::on_full_interface`] has an effect.
    pub fn heeds_full_interface(&self) -> bool {
        self.sender.era.quench
    }

    /// The flow of the segments that this side sends.
    pub fn flow(&self) -> FlowKey {
        self.flow
    }

    /// Segments of data that may wait in the queue of the host's own interface; `None`: any number.
    pub fn backpressure_segments(&self) -> Option<u32> {
        self.config.backpressure_segments
    }

    /// Whether data wait in the host, because as many as may do wait in the queue of its interface. Acks do not wait.
    pub fn hold_data(&mut self, held: bool) {
        self.data_held = held;
    }

    /// Whether the application reads what arrives; while it does not, the window closes.
    pub fn set_reading(&mut self, reading: bool) {
        let closed = self.receiver.window_size() < u64::from(self.sender.mss);
        self.reading = reading;
        if reading {
            self.deliver();
            self.receiver.ack_now |= closed;
        }
    }

    /// Passes what is in order to the application, if it reads.
    #[inline(always)]
    pub(crate) fn deliver(&mut self) {
        if self.reading {
            self.before_reading();
            self.receiver.read_into(&mut self.arrived);
            self.acknowledge_room();
        }
    }

    /// The window that an ack sent now offers: the room, as far as its field holds it.
    #[inline]
    pub(crate) fn window_to_offer(&self) -> u64 {
        (self.receiver.window_size() >> self.handshake.window_shift).min(65_535) << self.handshake.window_shift
    }

    /// For an application that relays ([`Source::relay`]): data that have arrived in order since the last call. They
    /// keep their room in the receive buffer, and so in the window offered, until [`Connection::release`].
    pub fn read_and_hold(&mut self) -> Vec<Chunk> {
        self.receiver.read_and_hold()
    }

    /// Frees the room of `bytes` that were held. The peer gets a window update when it is worth it, as in 4.4BSD.
    pub fn release(&mut self, bytes: u64) {
        self.receiver.release(bytes);
        self.receiver.ack_now |= self.window_update_is_due();
    }

    /// A relaying application passes on what another connection holds for it.
    pub fn relay(&mut self, chunk: Chunk) {
        self.sender.source.push(chunk);
    }

    /// Bytes of the receive buffer in use, and bytes that a relay keeps until its peer acknowledges them.
    pub fn in_use(&self) -> (u64, u64) {
        (self.receiver.in_use(), self.sender.source.kept())
    }

    /// The longest run of segments that this side has sent at one instant.
    pub fn longest_burst(&self) -> u32 {
        self.sender.pacer.longest
    }

    /// Segments that one ack of this side stands for now.
    pub fn segments_per_ack(&self) -> u32 {
        self.extensions.segments_per_ack().unwrap_or(self.config.ack_every_segments)
    }

    pub(crate) fn close(&mut self, end: End) {
        self.state = State::Closed;
        self.end.get_or_insert(end);
        self.receiver.on_ack_sent(0, &mut self.timers);
        self.timers.stop_all();
    }

    pub(crate) fn enter_time_wait(&mut self, now: Time) {
        self.state = State::TimeWait;
        self.end = Some(End::Finished);
        self.timers.stop(Timer::LossDetection);
        self.timers.stop(Timer::Retransmission);
        self.timers.stop(Timer::Persist);
        self.timers.set(Timer::TimeWait, now + self.config.time_wait_s);
    }

    /// Whether the connection is past the handshake and the state allows data, or the copy of a FIN, to be sent.
    pub(crate) fn can_send_data(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait | State::FinWait1 | State::Closing | State::LastAck)
    }

    fn on_retransmission_timer(&mut self, now: Time) {
        if self.state.is_opening() {
            if !self.handshake.retry() {
                self.close(End::TimedOut);
                return;
            }
            self.sender.rtt.backoff += 1;
        } else if self.sender.una < self.sender.max {
            if self.sender.rtt.backoff >= MAX_RETRANSMISSIONS {
                self.close(End::TimedOut);
                return;
            }
            let Connection { sender, timers, ecn, extensions, .. } = self;
            sender.on_retransmission_timeout(&mut Context { now, timers, ecn, extensions });
        }
    }
}

impl Transport for Connection {
    #[inline]
    fn on_packet(&mut self, now: Time, packet: &Packet) {
        self.take_packet(now, packet);
    }

    fn on_timer(&mut self, now: Time) {
        for timer in Timer::ALL {
            if !self.timers.expire(timer, now) {
                continue;
            }
            match timer {
                Timer::LossDetection => {
                    let Connection { sender, timers, ecn, extensions, .. } = self;
                    sender.on_loss_detection_timer(&mut Context { now, timers, ecn, extensions });
                }
                Timer::Retransmission => self.on_retransmission_timer(now),
                Timer::Persist => self.sender.probe.due = true,
                Timer::DelayedAck => self.receiver.ack_now = true,
                // The next segment may go; `poll_transmit` follows.
                Timer::Pacing => {}
                Timer::TimeWait => self.close(End::Finished),
            }
        }
    }

    #[inline(always)]
    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        self.next_packet(now)
    }

    #[inline]
    fn next_timeout(&self) -> Option<Time> {
        self.timers.next_timeout()
    }

    fn write(&mut self, bytes: u64) {
        self.sender.source.extend(bytes);
    }

    fn finish(&mut self) {
        self.sender.source.finish(self.sender.max.data_bytes());
    }

    fn abort(&mut self) {
        if self.state != State::Closed {
            self.reset_due = !matches!(self.state, State::SynSent | State::TimeWait);
            self.close(End::Aborted);
        }
    }

    #[inline]
    fn read(&mut self) -> Drain<'_, Chunk> {
        self.arrived.drain(..)
    }

    fn peer_finished(&self) -> bool {
        self.receiver.finished && self.receiver.window.unread == 0
    }

    fn end(&self) -> Option<End> {
        self.end
    }

    fn acknowledged(&self) -> u64 {
        self.sender.acknowledged()
    }

    fn sample(&mut self, record: &mut dyn FnMut(Time, SenderSample)) {
        let mss = self.mss();
        self.samples().iter().for_each(|sample| record(sample.at, sample.in_segments(mss)));
        self.clear_samples();
    }
}
