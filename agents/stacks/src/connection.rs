//! One TCP connection: the state machine of RFC 9293 around the parts in this crate. It has no clock, socket or randomness
//! of its own.
//!
//! Numbers inside are stream offsets that never wrap: the SYN is 0, the first byte 1, the FIN follows the last byte.

use std::time::Duration;

use backchannel_core::event::SenderSample;
use backchannel_core::packet::{mark, FlowKey, Packet, TcpFlags};
use backchannel_core::time::Time;
use backchannel_core::traits::Endpoint;

use crate::ack::{rate_request, Heard};
use crate::burst::Burst;
use crate::config::Config;
use crate::congestion::{OnLoss, OnNewAck, TimeoutHalves, Variant, Window};
use crate::ecn::Ecn;
use crate::eln::Eln;
use crate::receive::{Arrived, Receiver};
use crate::reset::reset_for;
use crate::rtt::{Clock, Rto};
use crate::scoreboard::{Reading, Scoreboard};
use crate::source::Source;
use crate::wire::{
    Pulse, Segment, IP_HEADER, MOST_OPTIONS, PEERWIN_OPTION, PULSE_OPTION, REQUEST_OPTION, TCP_HEADER, TIMESTAMP_OPTION,
};

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

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both sides had finished.
    Finished,
    /// The peer reset it.
    Reset,
    /// Nothing came back after this side's last retransmission.
    TimedOut,
    /// This side gave it up.
    Aborted,
}

pub use backchannel_core::event::SenderEvent as Happening;

/// State of the sender after something happened.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// What.
    pub what: Happening,
    /// Congestion window in bytes.
    pub cwnd: f64,
    /// Slow-start threshold in bytes.
    pub ssthresh: f64,
    /// Bytes outstanding.
    pub outstanding: u64,
    /// The last round-trip time measured, exactly, not in the timer's ticks.
    pub rtt: Option<Duration>,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Duplicate acks in a row.
    pub duplicates: u32,
    /// Segments of the last burst: those sent at one instant.
    pub burst: u32,
}

impl Sample {
    /// The sample in the quantities of telemetry; `mss` in bytes.
    pub fn in_segments(&self, mss: f64) -> SenderSample {
        SenderSample {
            event: self.what,
            cwnd_segments: self.cwnd / mss,
            // The initial "infinite" threshold is not one.
            ssthresh_segments: (self.ssthresh < 1e8).then_some(self.ssthresh / mss),
            outstanding_bytes: self.outstanding,
            rtt_s: self.srtt.map(|srtt| srtt.as_secs_f64()),
            rto_s: self.rto.as_secs_f64(),
            duplicate_acks: self.duplicates,
            burst_segments: self.burst,
        }
    }
}

/// Counts of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments sent, with data or not.
    pub sent: u64,
    /// Segments taken.
    pub received: u64,
    /// Data segments sent again.
    pub retransmitted: u64,
    /// Coarse timeouts.
    pub timeouts: u64,
    /// Fast retransmits.
    pub fast_retransmits: u64,
    /// Duplicate acks taken.
    pub duplicate_acks: u64,
    /// Segments that were malformed, damaged or outside the window.
    pub refused: u64,
}

/// BSD's TCP_MAXRXTSHIFT.
const MAX_RETRANSMISSIONS: u32 = 12;
const MAX_SYNS: u32 = 6;

/// See the module.
pub struct Connection {
    config: Config,
    flow: FlowKey,
    state: State,
    end: Option<End>,
    iss: u32,
    irs: u32,
    next_id: u64,

    source: Source,
    mss: u32,
    una: u64,
    nxt: u64,
    max: u64,
    /// Right edge of the peer's window, and the segment that told it.
    edge: u64,
    edge_seq: u64,
    edge_ack: u64,
    largest_window: u64,
    /// The window of the last segment that told it, and whether the one before told the same.
    offered: u64,
    offer_stands: bool,
    peer_scale: u8,
    own_scale: u8,
    timestamps: bool,
    sack: bool,
    window: Window,
    rto: Rto,
    board: Scoreboard,
    duplicates: u32,
    recovery: Option<u64>,
    /// Everything sent before the last loss was seen (RFC 6582's recover).
    recover: u64,
    partial_acks: u32,
    resend: bool,
    timed: Option<(u64, Time)>,
    /// The last round trip, and its average with gain 1/8, both exact: for the burst timer, not for the RTO.
    rtt: Option<Duration>,
    exact_srtt: Option<Duration>,
    burst: Burst,
    ecn: Ecn,
    /// SMART: the last event was an ack that told something.
    smart_ack: bool,
    /// When data last went.
    sent_at: Time,
    /// When a segment last came.
    heard_at: Time,
    retransmit_at: Option<Time>,
    persist_at: Option<Time>,
    persists: u32,
    probe: bool,
    /// One beyond the last window probe's byte.
    probed: u64,
    syns: u32,
    syn_due: bool,

    receiver: Receiver,
    reading: bool,
    peer_finished: bool,
    /// Offset of the peer's FIN, once it came.
    peer_fin: Option<u64>,
    ts_recent: u32,
    time_wait_until: Option<Time>,
    reset_due: bool,
    /// An answer that is no part of the connection.
    stray: Option<Packet>,

    counts: Counts,
    samples: Vec<Sample>,
    arrived: Vec<Arrived>,
}

impl Connection {
    /// Opens a connection to `flow.dst`; its SYN is the first thing to transmit.
    pub fn connect(config: Config, flow: FlowKey, iss: u32, source: Source) -> Connection {
        let mut connection = Connection::new(config, flow, iss, source);
        connection.syn_due = true;
        connection
    }

    /// Answers a SYN that came to `flow.src`; `None` when the segment is no SYN that one can answer.
    pub fn accept(config: Config, flow: FlowKey, iss: u32, source: Source, syn: &Packet) -> Option<Connection> {
        let segment = Segment::read(syn)?;
        if !segment.has(TcpFlags::SYN) || TcpFlags(segment.flags).any(TcpFlags::ACK | TcpFlags::RST | TcpFlags::FIN) {
            return None;
        }
        let mut connection = Connection::new(config, flow, iss, source);
        connection.state = State::SynReceived;
        connection.learn_syn(&segment);
        connection.counts.received = 1;
        connection.syn_due = true;
        Some(connection)
    }

    fn new(config: Config, flow: FlowKey, iss: u32, source: Source) -> Connection {
        let mss = config.packet_bytes - IP_HEADER - TCP_HEADER;
        // The smallest shift that can tell the whole buffer.
        let reading = !source.relays();
        let own_scale = (0..14).find(|shift| config.receive_buffer >> shift <= 65_535).unwrap_or(14);
        Connection {
            window: make_window(&config, mss),
            rto: Rto::new(config.rto),
            receiver: Receiver::new(config.ack, config.receive_buffer, mss),
            burst: Burst::new(config.burst),
            ecn: Ecn::new(config.ecn),
            config,
            flow,
            state: State::SynSent,
            end: None,
            iss,
            irs: 0,
            next_id: 0,
            source,
            mss,
            una: 0,
            nxt: 0,
            max: 0,
            edge: 1,
            edge_seq: 0,
            edge_ack: 0,
            largest_window: 0,
            offered: 0,
            offer_stands: false,
            peer_scale: 0,
            own_scale,
            timestamps: false,
            sack: false,
            board: Scoreboard::default(),
            duplicates: 0,
            recovery: None,
            recover: 0,
            partial_acks: 0,
            resend: false,
            timed: None,
            rtt: None,
            exact_srtt: None,
            smart_ack: false,
            sent_at: Time::ZERO,
            heard_at: Time::ZERO,
            retransmit_at: None,
            persist_at: None,
            persists: 0,
            probe: false,
            probed: 0,
            syns: 0,
            syn_due: false,
            reading,
            peer_finished: false,
            peer_fin: None,
            ts_recent: 0,
            time_wait_until: None,
            reset_due: false,
            stray: None,
            counts: Counts::default(),
            samples: Vec::new(),
            arrived: Vec::new(),
        }
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it is closed, once it is.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Bytes of data in a full segment.
    pub fn mss(&self) -> f64 {
        self.window.mss
    }

    /// Its counts.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes of this side's data that the peer has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.una.saturating_sub(1).min(self.source.end().unwrap_or(u64::MAX))
    }

    /// Whether the peer has finished sending and all of it was taken.
    pub fn peer_finished(&self) -> bool {
        self.peer_finished && self.receiver.unread() == 0
    }

    /// Whether this sender makes use of selective acks.
    fn reads_sack(&self) -> bool {
        self.sack && self.config.reading != Reading::Ignored
    }

    /// Samples of the sender's state since they were last forgotten.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Makes room for new ones.
    pub fn forget_samples(&mut self) {
        self.samples.clear();
    }

    /// Data that have arrived in order since the last call.
    pub fn read(&mut self) -> Vec<Arrived> {
        std::mem::take(&mut self.arrived)
    }

    /// Whether the application takes what arrives; when it does not, the window closes.
    pub fn set_reading(&mut self, reading: bool) {
        let closed = self.receiver.window() < u64::from(self.mss);
        self.reading = reading;
        if reading {
            self.arrived.extend(self.receiver.read());
            self.receiver.ack_now |= closed;
        }
    }

    /// The application has no more to send than it has said so far.
    pub fn finish(&mut self) {
        self.source.finish(self.max.saturating_sub(1));
    }

    /// The application has `bytes` more to send (of a source that has an end but was not finished).
    pub fn give(&mut self, bytes: u64) {
        self.source.give(bytes);
    }

    /// For an application that relays ([`Source::relay`]): data that have arrived in order since the last call. They go on
    /// taking room in the receive buffer, and so in the window that is offered, until they are given back.
    pub fn lend(&mut self) -> Vec<Arrived> {
        self.receiver.lend()
    }

    /// The room of `bytes` that were lent is free again. The peer is told when that is worth a segment, after 4.4BSD: when
    /// the window moves by as much as an ack stands for (two segments, or d: asym 8.2), or by half of the buffer
    /// (RFC 9293 3.8.6.2.2).
    pub fn give_back(&mut self, bytes: u64) {
        let moved = self.receiver.give_back(bytes);
        let worth = u64::from(self.receiver.acker.d() * self.mss).min(self.receiver.buffer() / 2);
        self.receiver.ack_now |= moved >= worth && !self.peer_finished;
    }

    /// A relaying application passes on what another connection has lent it.
    pub fn hand_over(&mut self, piece: Arrived) {
        self.source.hand_over(piece);
    }

    /// Bytes of the receive buffer in use, and bytes that a relay keeps for its peer.
    pub fn in_use(&self) -> (u64, u64) {
        (self.receiver.in_use(), self.source.kept())
    }

    /// The longest run of segments that this side has sent at one instant.
    pub fn longest_burst(&self) -> u32 {
        self.burst.longest
    }

    /// Segments that one ack of this side stands for, now.
    pub fn ack_factor(&self) -> u32 {
        self.receiver.acker.d()
    }

    /// The application ends at once; the peer is reset.
    pub fn abort(&mut self) {
        if self.state != State::Closed {
            self.reset_due = !matches!(self.state, State::SynSent | State::TimeWait);
            self.close(End::Aborted);
        }
    }

    fn close(&mut self, end: End) {
        self.state = State::Closed;
        self.end.get_or_insert(end);
        (self.retransmit_at, self.persist_at, self.time_wait_until) = (None, None, None);
        self.receiver.acknowledged(0);
    }

    fn learn_syn(&mut self, syn: &Segment) {
        self.irs = syn.seq;
        self.receiver.next = 1;
        if let (Some(shift), true) = (syn.window_scale, self.config.window_scaling) {
            self.peer_scale = shift;
        } else {
            self.own_scale = 0;
        }
        self.timestamps = self.config.timestamps && syn.timestamps.is_some();
        self.sack = self.config.sack && syn.sack_permitted;
        self.ts_recent = syn.timestamps.map_or(0, |(value, _)| value);
        // RFC 9293 3.7.1: 536 where the peer does not say; options are taken off what fits.
        let told = u32::from(syn.mss.unwrap_or(536)).max(64);
        let options = self.fixed_options();
        self.ecn.learn(syn);
        self.mss = told.min(self.config.packet_bytes - IP_HEADER - TCP_HEADER) - options;
        self.window = make_window(&self.config, self.mss);
        // A SYN's window is never scaled.
        self.edge = self.una.max(1) + u64::from(syn.window);
        self.largest_window = u64::from(syn.window);
    }

    /// Bytes of the options that every data segment carries.
    fn fixed_options(&self) -> u32 {
        [
            (self.timestamps, TIMESTAMP_OPTION),
            (self.config.tells_window, PEERWIN_OPTION),
            (self.config.pulsed, PULSE_OPTION),
            (self.config.asks.is_some(), REQUEST_OPTION),
        ]
        .into_iter()
        .map(|(there, bytes)| if there { bytes } else { 0 })
        .sum()
    }

    // Sending --------------------------------------------------------------------------------------------------

    /// One beyond the last byte there is to send.
    fn data_end(&self) -> u64 {
        self.source.given() + 1
    }

    /// Bytes outstanding.
    fn flight(&self) -> u64 {
        self.max.max(self.nxt) - self.una
    }

    fn can_send_data(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait | State::FinWait1 | State::Closing | State::LastAck)
    }

    /// Where the next data segment begins and how long it is; `None` when none may go.
    fn next_data(&mut self, now: Time) -> Option<(u64, u64)> {
        if !self.can_send_data() {
            return None;
        }
        let mss = u64::from(self.mss);
        if self.resend {
            let length = (self.data_end().saturating_sub(self.una)).min(mss).min(self.board.room(self.una));
            return Some((self.una, length));
        }
        // RFC 5681 4.1 counts from the last data sent; 4.4BSD's t_idle from the last segment that came, so that one which opens
        // a closed window finds no idle sender (ton figure 11).
        let since = if matches!(self.config.rto.clock, Clock::Ticks(_)) { self.heard_at } else { self.sent_at };
        if self.una >= self.max && self.max > 1 && now - since > self.rto.rto() {
            self.window.on_idle(f64::from(self.config.initial_window) * self.window.mss);
        }
        let next = self.next_in_window(now, mss)?;
        let segments = self.window.cwnd / self.window.mss;
        self.burst.may_send(now, segments, self.exact_srtt).then_some(next)
    }

    /// The same without the limit on bursts.
    fn next_in_window(&mut self, now: Time, mss: u64) -> Option<(u64, u64)> {
        if self.reads_sack() && self.recovery.is_some() {
            return self.next_in_sack_recovery(now, mss);
        }
        self.nxt = self.board.skip_held(self.nxt);
        let mut cwnd = self.window.cwnd as u64;
        if self.config.limited_transmit && self.recovery.is_none() {
            // RFC 3042: up to two segments beyond the window, one a duplicate ack.
            cwnd += u64::from(self.duplicates.min(2)) * mss;
        }
        self.fresh(self.nxt, self.una + cwnd)
    }

    fn next_in_sack_recovery(&mut self, now: Time, mss: u64) -> Option<(u64, u64)> {
        let cwnd = self.window.cwnd as u64;
        match self.config.reading {
            Reading::Rfc6675 => {
                // Step (C) and NextSeg's rules (1) to (3).
                if self.board.pipe(self.una, self.max, mss) + mss > cwnd {
                    return None;
                }
                let lost = self.board.next_lost(self.una, self.max, mss);
                lost.or_else(|| self.fresh(self.nxt, u64::MAX)).or_else(|| self.board.next_missing(self.una, mss))
            }
            Reading::Sack1996 => {
                if self.board.counted + mss as i64 > cwnd as i64 {
                    return None;
                }
                self.board.next_missing(self.una, mss).or_else(|| self.fresh(self.nxt, u64::MAX))
            }
            // It recovers as if there were none, and does not come here.
            Reading::Ignored => None,
            Reading::Smart => {
                // A missing segment goes when an ack tells of it, whatever the window: it has left the network.
                // The stack's own estimate: 4.4BSD knows a round trip in ticks alone.
                let rtt = self.rto.srtt().unwrap_or_else(|| self.rto.rto()).max(Duration::from_millis(1));
                if let (true, Some(lost)) = (self.smart_ack, self.board.next_smart(self.una, mss, now, rtt)) {
                    return Some(lost);
                }
                let pipe = self.board.smart_pipe(self.una, self.max, mss);
                if pipe + mss > cwnd {
                    return None;
                }
                self.fresh(self.nxt, u64::MAX)
            }
        }
    }

    /// A segment from `at` on that ends before `limit` and the peer's window.
    fn fresh(&self, at: u64, limit: u64) -> Option<(u64, u64)> {
        let mss = u64::from(self.mss);
        let left = self.data_end().saturating_sub(at);
        let room = limit.min(self.edge).saturating_sub(at);
        let length = left.min(mss).min(room).min(self.board.room(at));
        if left == 0 {
            // The FIN needs no room in the congestion window.
            return (self.source.finished() && at == self.data_end()).then_some((at, 0));
        }
        // The sender's side of silly window avoidance (RFC 9293 3.8.6.2.1): a full segment, the last of the data, the
        // rest of a hole, or half of the greatest window the peer ever offered.
        // What is left of a relay's data is not their last: it waits for more while something is outstanding (3.7.4, Nagle),
        // unless it goes again.
        let waits = self.source.relays() && !self.source.finished() && self.una < self.max && at >= self.max;
        let last = length == left && !waits;
        let whole = length == mss || last || length == self.board.room(at);
        (length > 0 && (whole || 2 * length >= self.largest_window)).then_some((at, length))
    }

    fn transmit_data(&mut self, now: Time, at: u64, length: u64) -> Packet {
        let mut segment = self.header(now, true);
        // Selective acks take room from the data of a full segment.
        let room = self.config.packet_bytes - IP_HEADER - TCP_HEADER - self.fixed_options() - sack_bytes(&segment);
        let length = length.min(u64::from(room));
        let end = at + length;
        let last = end == self.data_end() && self.source.finished();
        let finish = last && (self.edge > end || length == 0);
        segment.seq = self.iss.wrapping_add(at as u32);
        segment.payload = length as u32;
        if end == self.data_end() {
            segment.flags |= TcpFlags::PSH;
        }
        let end = end + u64::from(finish);
        if finish {
            segment.flags |= TcpFlags::FIN;
            self.state = match self.state {
                State::Established => State::FinWait1,
                State::CloseWait => State::LastAck,
                other => other,
            };
        }
        let again = at < self.max;
        self.burst.sent(now);
        self.sent_at = now;
        self.board.counted += length as i64;
        self.ecn.dress(&mut segment, !again && length > 0);
        if again {
            self.counts.retransmitted += 1;
            self.board.note_resent(at, now);
            self.board.high_rxt = self.board.high_rxt.max(end);
            // Karn: the timed segment may be among those that go twice.
            self.timed = self.timed.filter(|&(timed, _)| timed <= at);
        } else if self.timed.is_none() {
            self.timed = Some((end, now));
        }
        if self.resend {
            self.resend = false;
            self.nxt = self.nxt.max(end);
        } else if at == self.nxt {
            self.nxt = end;
        }
        self.max = self.max.max(end);
        self.persist_at = None;
        if self.retransmit_at.is_none() {
            self.retransmit_at = Some(self.rto.deadline(now));
        }
        let data = self.source.bytes(at - 1, length);
        self.packet(&segment, &data)
    }

    /// A header with the current ack, window and options.
    fn header(&mut self, now: Time, data: bool) -> Segment {
        let pulse = if data { self.config.pulsed.then(|| self.pulse()) } else { None };
        let pulse = match (pulse, self.receiver.acker.pulse_reply()) {
            // Data that answer data say both.
            (Some(own), Some(reply)) => Some(Pulse { a: reply.a, ..own }),
            (own, reply) => own.or(reply),
        };
        let peer_window = (data && self.config.tells_window).then(|| self.told_window());
        let request = self.config.asks.filter(|_| data).map(|acks| self.ask(acks));
        let taken = [
            (self.timestamps, TIMESTAMP_OPTION),
            (peer_window.is_some(), PEERWIN_OPTION),
            (pulse.is_some(), PULSE_OPTION),
            (request.is_some(), REQUEST_OPTION),
        ];
        let taken: u32 = taken.into_iter().map(|(there, bytes)| if there { bytes } else { 0 }).sum();
        // RFC 2018: as many blocks as fit; no more than three, as in the paper.
        let most = ((MOST_OPTIONS - taken - 4) / 8).min(3) as usize;
        let sack = match (self.sack, self.config.reading) {
            (false, _) => Vec::new(),
            (true, Reading::Smart) => self.receiver.smart_block().into_iter().collect(),
            (true, _) => self.receiver.sack_blocks(most),
        };
        let mut marks = 0;
        if self.config.eln != Eln::Off && self.receiver.corrupted.explains(self.receiver.next) {
            marks |= mark::ELN;
        }
        if !data && self.receiver.asks_at_once() {
            marks |= mark::FAST_RETRANSMIT;
        }
        let wrap = |offset: u64| self.irs.wrapping_add(offset as u32);
        let acked = self.receiver.next + u64::from(self.peer_finished);
        let scaled = (self.receiver.window() >> self.own_scale).min(65_535);
        let segment = Segment {
            // Behind everything sent: after a timeout, nxt is back at data that the peer may well have, and an ack that
            // began there would be refused as old.
            seq: self.iss.wrapping_add(self.max.max(self.nxt) as u32),
            ack: wrap(acked),
            flags: TcpFlags::ACK,
            window: scaled as u16,
            timestamps: self.timestamps.then(|| (self.timestamp(now), self.ts_recent)),
            peer_window,
            pulse,
            request,
            marks,
            sack: sack.into_iter().map(|(start, end)| (wrap(start), wrap(end))).collect(),
            ..Segment::default()
        };
        self.receiver.acknowledged(scaled << self.own_scale);
        segment
    }

    /// The pulsed flag and the window in packets (pulsed 3.2.2).
    fn pulse(&self) -> Pulse {
        let w = (self.window.cwnd / self.window.mss).min(65_535.0) as u16;
        Pulse { on: !self.window.in_slow_start(), w, a: 0 }
    }

    /// The ack rate that suits the window.
    fn ask(&self, acks_per_window: u32) -> u8 {
        rate_request::ask(self.window.cwnd / self.window.mss, self.window.in_slow_start(), acks_per_window)
    }

    /// min(cwnd, bytes in the send buffer) / mss, for the peerwin option (asym 8.2).
    fn told_window(&self) -> u16 {
        let buffered = self.data_end().saturating_sub(self.una) as f64;
        (self.window.cwnd.min(buffered) / self.window.mss).min(65_535.0) as u16
    }

    /// The timestamp option's value at an instant; never 0, which would mean "none". It wraps.
    fn timestamp(&self, now: Time) -> u32 {
        ((now.nanos() / self.config.timestamp_tick.as_nanos() as u64) as u32).max(1)
    }

    fn syn(&mut self, now: Time) -> Packet {
        self.syn_due = false;
        self.syns += 1;
        self.nxt = 1;
        self.max = self.max.max(1);
        self.retransmit_at = Some(self.rto.deadline(now));
        let answering = self.state == State::SynReceived;
        let offer = |own: bool, peer: bool| own && (!answering || peer);
        let mut segment = Segment {
            seq: self.iss,
            flags: TcpFlags::SYN,
            window: self.receiver.window().min(65_535) as u16,
            mss: Some((self.config.packet_bytes - IP_HEADER - TCP_HEADER).min(65_495) as u16),
            window_scale: (self.config.window_scaling && (!answering || self.own_scale > 0 || self.peer_scale > 0))
                .then_some(self.own_scale),
            sack_permitted: offer(self.config.sack, self.sack),
            timestamps: offer(self.config.timestamps, self.timestamps).then(|| (self.timestamp(now), self.ts_recent)),
            ..Segment::default()
        };
        if answering {
            segment.flags |= TcpFlags::ACK;
            segment.ack = self.irs.wrapping_add(1);
        }
        segment.flags |= self.ecn.syn_flags(answering);
        self.receiver.acknowledged(u64::from(segment.window));
        self.packet(&segment, &[])
    }

    fn packet(&mut self, segment: &Segment, data: &[u8]) -> Packet {
        self.counts.sent += 1;
        self.next_id += 1;
        segment.packet(self.next_id, self.flow, data)
    }

    // Receiving ------------------------------------------------------------------------------------------------

    /// RFC 9293 3.10.7.3 and 3.10.7.4: an ack of what was never sent, while a connection is being opened.
    fn answer_with_reset(&mut self, packet: &Packet) {
        self.counts.refused += 1;
        self.next_id += 1;
        self.stray = reset_for(self.next_id, packet);
    }

    fn segment_in_syn_sent(&mut self, now: Time, segment: &Segment, packet: &Packet) {
        // RFC 9293 3.10.7.3.
        let acks = segment.has(TcpFlags::ACK);
        if acks && segment.ack != self.iss.wrapping_add(1) {
            self.answer_with_reset(packet);
            return;
        }
        if segment.has(TcpFlags::RST) {
            if acks {
                self.close(End::Reset);
            }
            return;
        }
        if !segment.has(TcpFlags::SYN) {
            return;
        }
        self.learn_syn(segment);
        if acks {
            self.una = 1;
            self.edge = 1 + u64::from(segment.window);
            self.state = State::Established;
            self.retransmit_at = None;
            self.rto.backoff = 0;
            if self.config.handshake_sample {
                self.sample_rtt(now, segment, 1);
            }
            self.receiver.ack_now = true;
        } else {
            // Simultaneous open.
            self.state = State::SynReceived;
            self.syn_due = true;
        }
    }

    fn segment_in_connection(&mut self, now: Time, segment: &Segment, packet: &Packet) {
        let mut seq = offset(self.receiver.next, segment.seq, self.irs);
        let mut trimmed = segment.clone();
        if self.state == State::SynReceived && segment.has(TcpFlags::SYN) && seq == 0 {
            if !segment.has(TcpFlags::ACK) {
                // The peer has not seen our SYN+ACK.
                self.syn_due = true;
                return;
            }
            // Simultaneous open (RFC 9293 3.5, figure 7): its SYN is known; the rest of it stands.
            trimmed.flags &= !TcpFlags::SYN;
            seq = 1;
        }
        let segment = &trimmed;
        if let (true, Some((value, _))) = (self.timestamps, segment.timestamps) {
            // RFC 7323 5.3: an old duplicate of an earlier incarnation of its number.
            if (value.wrapping_sub(self.ts_recent) as i32) < 0 && !segment.has(TcpFlags::RST) {
                self.refuse();
                return;
            }
        }
        if !self.acceptable(seq, segment) {
            self.counts.refused += 1;
            if !segment.has(TcpFlags::RST) {
                self.receiver.ack_now = true;
            }
            return;
        }
        if segment.has(TcpFlags::RST) {
            // RFC 5961 3.2: only a reset at the very next number, behind the FIN if there was one, is believed.
            if seq == self.receiver.next as i64 + i64::from(self.peer_finished) {
                self.close(End::Reset);
            } else {
                self.refuse();
            }
            return;
        }
        if segment.has(TcpFlags::SYN) {
            // RFC 5961 4.2: a challenge.
            self.refuse();
            return;
        }
        if !segment.has(TcpFlags::ACK) {
            return;
        }
        let ack = offset(self.una, segment.ack, self.iss);
        if ack > self.max.max(self.probed) as i64 || (self.state == State::SynReceived && ack < 1) {
            if self.state == State::SynReceived {
                self.answer_with_reset(packet);
            } else {
                self.refuse();
            }
            return;
        }
        if let (true, Some((value, _))) = (self.timestamps, segment.timestamps) {
            // RFC 7323 4.3: of several segments that one ack stands for, the first is echoed.
            if seq <= self.receiver.last_acked as i64 {
                self.ts_recent = value;
            }
        }
        if self.state == State::SynReceived {
            self.state = State::Established;
            self.retransmit_at = None;
            self.rto.backoff = 0;
        }
        self.take_ack(now, segment, seq.max(0) as u64, ack);
        if self.state == State::Closed {
            return;
        }
        self.take_data(now, segment, packet, seq);
    }

    fn refuse(&mut self) {
        self.counts.refused += 1;
        self.receiver.ack_now = true;
    }

    /// RFC 9293 3.10.7.4, table 6, on offsets.
    fn acceptable(&self, seq: i64, segment: &Segment) -> bool {
        let (next, window) = (self.receiver.next as i64 + i64::from(self.peer_finished), self.receiver.window() as i64);
        let length = i64::from(segment.space());
        match (length, window) {
            (0, 0) => seq == next,
            (0, _) => (next..next + window).contains(&seq),
            // Nothing fits, but its ack is still of use (RFC 9293 3.8.6.1: a sender probes a closed window).
            (_, 0) => seq == next,
            _ => seq < next + window && seq + length > next,
        }
    }

    fn take_ack(&mut self, now: Time, segment: &Segment, seq: u64, ack: i64) {
        let window = u64::from(segment.window) << self.peer_scale;
        let news = self.reads_sack() && {
            let una = self.una;
            let iss = self.iss;
            let blocks = segment.sack.iter().filter_map(|&(start, end)| {
                let (start, end) = (offset(una, start, iss), offset(una, end, iss));
                (0 <= start && start < end && end <= self.max as i64).then_some((start as u64, end as u64))
            });
            self.board.update(una.max(ack.max(0) as u64), blocks.collect::<Vec<_>>().into_iter())
        };
        if ack < self.una as i64 {
            return;
        }
        let ack = ack as u64;
        let same_window = ack + window == self.edge;
        if self.edge_seq < seq || (self.edge_seq == seq && self.edge_ack <= ack) {
            self.edge = ack + window;
            (self.edge_seq, self.edge_ack) = (seq, ack);
            self.largest_window = self.largest_window.max(window);
            self.offer_stands = window == self.offered;
            self.offered = window;
            if self.edge > self.nxt {
                self.persist_at = None;
                self.persists = 0;
            }
        }
        self.smart_ack = !segment.sack.is_empty();
        if ack > self.una {
            self.new_ack(now, segment, ack);
        } else if self.max > self.una
            && (news
                || (segment.payload == 0 && same_window && !TcpFlags(segment.flags).any(TcpFlags::SYN | TcpFlags::FIN)))
        {
            self.duplicate_ack(now, segment, news);
        }
        if self.ecn.reduce(segment, self.una, self.max) && self.recovery.is_none() {
            self.window.on_mark(now);
            self.note(now, Happening::Mark);
        }
    }

    fn new_ack(&mut self, now: Time, segment: &Segment, ack: u64) {
        let acked = ack - self.una;
        let predicted = self.predicts(segment);
        self.sample_rtt(now, segment, ack);
        self.una = ack;
        self.nxt = self.nxt.max(ack);
        self.max = self.max.max(ack);
        self.resend = false;
        if self.source.relays() {
            self.source.forget_before(self.acknowledged());
        }
        let outstanding = self.flight();
        let mut restart = true;
        let srtt_s = self.rto.srtt().unwrap_or_default().as_secs_f64();
        match self.recovery {
            _ if predicted => {}
            // What was corrupted is repaired; another gap shows in the duplicates that follow.
            Some(_) if self.window.on_repaired() => {
                self.leave_recovery();
                self.window.on_rest_of_ack(acked, now, srtt_s);
            }
            Some(recover) if self.reads_sack() => {
                if ack >= recover {
                    self.leave_recovery();
                    self.window.cwnd = self.window.ssthresh;
                    self.window.on_rest_of_ack(acked, now, srtt_s);
                } else {
                    // Fall and Floyd: a partial ack stands for two packets that left, the original and its copy.
                    self.board.counted -= 2 * i64::from(self.mss);
                }
            }
            Some(recover) => match self.window.on_recovery_ack(acked, ack >= recover, outstanding) {
                OnNewAck::Leave => {
                    self.leave_recovery();
                    self.window.on_rest_of_ack(acked, now, srtt_s);
                }
                OnNewAck::ResendAndStay => {
                    self.resend = true;
                    self.partial_acks += 1;
                    // RFC 6582 3.2, the impatient variant: the timer is not restarted after the first partial ack.
                    restart = self.partial_acks == 1;
                }
            },
            None if self.is_pulsed(segment) => {
                self.window.on_pulsed_ack(segment.pulse.map_or(1, |pulse| pulse.a));
            }
            None => self.window.on_ack(acked, now, srtt_s),
        }
        if !predicted {
            self.duplicates = 0;
        }
        if self.una >= self.max {
            self.retransmit_at = None;
        } else if restart {
            self.retransmit_at = Some(self.rto.deadline(now));
        }
        self.note(now, Happening::Ack);
        if self.source.finished() && self.una == self.data_end() + 1 {
            self.fin_acknowledged(now);
        }
    }

    /// Whether 4.4BSD's header prediction takes a new ack (RFC 2525 2.8): it looks whether anything goes again just now, whether
    /// the window offered stands, and whether the congestion window would hold anything back, but not whether that window is
    /// inflated. Fast recovery then does not end: the window stays inflated, duplicates are counted on from where they were.
    /// A corrupted segment's repair ends all the same: loss notification looks at every ack.
    fn predicts(&self, segment: &Segment) -> bool {
        self.config.header_prediction
            && segment.payload == 0
            && self.nxt == self.max
            && self.offer_stands
            && self.window.cwnd >= self.offered as f64
            && !self.window.repairs()
    }

    /// Whether an ack stands for cwnd/a packets (pulsed 3.2.2); one without the option is Reno's.
    fn is_pulsed(&self, segment: &Segment) -> bool {
        self.config.pulsed && !self.window.in_slow_start() && segment.pulse.is_some_and(|pulse| pulse.on && pulse.a > 0)
    }

    fn leave_recovery(&mut self) {
        self.recovery = None;
        self.partial_acks = 0;
    }

    fn fin_acknowledged(&mut self, now: Time) {
        match self.state {
            State::FinWait1 => self.state = State::FinWait2,
            State::Closing => self.enter_time_wait(now),
            State::LastAck => self.close(End::Finished),
            _ => {}
        }
    }

    fn duplicate_ack(&mut self, now: Time, segment: &Segment, news: bool) {
        self.duplicates += 1;
        self.counts.duplicate_acks += 1;
        let mss = u64::from(self.mss);
        if self.recovery.is_some() {
            if !self.reads_sack() {
                self.window.on_duplicate();
            } else if news {
                self.board.counted -= mss as i64;
            }
            return;
        }
        let corrupted = self.config.eln != Eln::Off && segment.marks & mark::ELN != 0;
        let threshold = self.config.duplicate_threshold;
        let enough = self.duplicates == threshold
            || (corrupted && self.config.eln == Eln::FirstDuplicate)
            || (self.config.marked_duplicates && segment.marks & mark::FAST_RETRANSMIT != 0)
            || (self.reads_sack()
                && match self.config.reading {
                    Reading::Rfc6675 => self.duplicates < threshold && self.board.is_lost(self.una, mss),
                    Reading::Sack1996 | Reading::Ignored => false,
                    Reading::Smart => !self.board.is_empty(),
                });
        if !enough {
            return;
        }
        if corrupted {
            self.recovery = Some(self.max);
            self.resend = true;
            self.timed = None;
            self.window.on_corruption(self.duplicates);
            self.counts.fast_retransmits += 1;
            self.retransmit_at = Some(self.rto.deadline(now));
            self.note(now, Happening::CorruptionRetransmit);
            return;
        }
        // Duplicates of what was outstanding at the last loss are no news. RFC 6675 5.1: until everything sent before it is
        // acknowledged. RFC 6582 3.2 step 2: until more than that is, for what a timeout sends again brings duplicates of the
        // very ack that covers all of it. 4.4BSD does not look, ns-2's Tahoe and Reno do.
        let stale = match self.config.variant {
            _ if self.reads_sack() => self.una < self.recover,
            Variant::NewReno | Variant::Cubic => self.una <= self.recover,
            Variant::Tahoe | Variant::Reno => !self.config.successive_fast_retransmits && self.una <= self.recover,
        };
        if stale {
            return;
        }
        let flight = self.flight().min(self.window.cwnd.max(f64::from(self.mss)) as u64);
        self.recover = self.max;
        self.counts.fast_retransmits += 1;
        self.timed = None;
        self.ecn.cut(self.max);
        match self.window.on_loss(flight, now) {
            OnLoss::Recover => {
                self.recovery = Some(self.max);
                self.resend = true;
                if self.reads_sack() {
                    self.window.cwnd = self.window.ssthresh;
                    self.board.high_rxt = self.una;
                    self.board.counted = self.flight() as i64 - i64::from(self.duplicates) * i64::from(self.mss);
                }
            }
            OnLoss::GoBack => self.nxt = self.una,
        }
        self.retransmit_at = Some(self.rto.deadline(now));
        self.note(now, Happening::FastRetransmit);
    }

    fn sample_rtt(&mut self, now: Time, segment: &Segment, ack: u64) {
        let sent = match (self.timestamps, segment.timestamps) {
            (true, Some((_, echo))) if echo != 0 => Some(Time(now.nanos().saturating_sub(self.since_echo(now, echo)))),
            _ => {
                let sent = self.timed.filter(|&(end, _)| end <= ack).map(|(_, sent)| sent);
                self.timed = self.timed.filter(|_| sent.is_none());
                sent
            }
        };
        let Some(sent) = sent else { return };
        self.rto.sample(sent, now);
        let rtt = now - sent;
        self.rtt = Some(rtt);
        self.exact_srtt = Some(self.exact_srtt.map_or(rtt, |srtt| (srtt * 7 + rtt) / 8));
    }

    /// Nanoseconds since an echoed timestamp of ours was sent.
    fn since_echo(&self, now: Time, echo: u32) -> u64 {
        u64::from(self.timestamp(now).wrapping_sub(echo)).saturating_mul(self.config.timestamp_tick.as_nanos() as u64)
    }

    fn take_data(&mut self, now: Time, segment: &Segment, packet: &Packet, seq: i64) {
        if segment.payload > 0 && !self.peer_finished {
            let rtt = match (self.timestamps, segment.timestamps) {
                (true, Some((_, echo))) if echo != 0 => Some(Duration::from_nanos(self.since_echo(now, echo))),
                _ => None,
            };
            let congested = segment.marks & mark::ACK_CONGESTION != 0;
            let (peer_window, pulse, request) = (segment.peer_window, segment.pulse, segment.request);
            let heard = Heard { congested, peer_window, pulse, request, rtt };
            self.receiver.acker.hear(now, heard);
            let given = packet.payload().to_vec();
            let zeros = u64::from(segment.payload) - given.len() as u64;
            let mut data = Arrived { bytes: given, zeros };
            // A SYN's own number comes before its data; data before the first byte cannot be.
            let start = seq + i64::from(segment.has(TcpFlags::SYN));
            if start >= 1 {
                self.receiver.take(now, start as u64, std::mem::take(&mut data));
            } else {
                self.receiver.ack_now = true;
            }
            if self.reading {
                self.arrived.extend(self.receiver.read());
            }
        }
        if segment.has(TcpFlags::FIN) {
            self.receiver.ack_now = true;
            let at = seq + i64::from(segment.payload);
            if at >= 1 {
                self.peer_fin.get_or_insert(at as u64);
            }
            if self.state == State::TimeWait {
                self.enter_time_wait(now);
            }
        }
        // A FIN that came before the data in front of it waits for them.
        if !self.peer_finished && self.peer_fin == Some(self.receiver.next) {
            self.peer_finished = true;
            self.receiver.ack_now = true;
            self.take_fin(now);
        }
    }

    fn take_fin(&mut self, now: Time) {
        match self.state {
            State::Established | State::SynReceived => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }

    fn enter_time_wait(&mut self, now: Time) {
        self.state = State::TimeWait;
        self.end = Some(End::Finished);
        (self.retransmit_at, self.persist_at) = (None, None);
        self.time_wait_until = Some(now + self.config.time_wait);
    }

    // Timers ---------------------------------------------------------------------------------------------------

    fn on_retransmission_timer(&mut self, now: Time) {
        self.retransmit_at = None;
        if matches!(self.state, State::SynSent | State::SynReceived) {
            if self.syns >= MAX_SYNS {
                self.close(End::TimedOut);
                return;
            }
            self.rto.backoff += 1;
            self.syn_due = true;
            return;
        }
        if self.una >= self.max {
            return;
        }
        if self.rto.backoff >= MAX_RETRANSMISSIONS {
            self.close(End::TimedOut);
            return;
        }
        // RFC 5681 3.1 keeps the threshold when a segment times out again; 4.4BSD and ns-2 take half of the one segment that
        // the window then is.
        let first = self.rto.backoff == 0 || !matches!(self.config.rto.clock, Clock::Smooth(_));
        // What duplicate acks added to the window lies above the threshold that recovery began with.
        let inflated = self.recovery.is_some() && self.config.timeout_halves == TimeoutHalves::Window;
        let window = if inflated { self.window.cwnd.min(self.window.ssthresh) } else { self.window.cwnd };
        let flight = self.flight().min(window.max(f64::from(self.mss)) as u64);
        self.window.on_timeout(flight, now, first);
        self.ecn.cut(self.max);
        self.smart_ack = false;
        self.counts.timeouts += 1;
        self.rto.backoff += 1;
        self.recover = self.max;
        self.leave_recovery();
        self.board.clear();
        self.duplicates = 0;
        self.timed = None;
        self.resend = false;
        self.nxt = self.una;
        self.note(now, Happening::Timeout);
    }

    /// Sets the persist timer when the peer's window, closed or too small for a whole segment, is all that holds data
    /// back (RFC 9293 3.8.6.1; the override timeout of 3.8.6.2.1).
    fn mind_closed_window(&mut self, now: Time) {
        let waiting =
            self.can_send_data() && self.data_end() > self.nxt && self.una >= self.nxt && self.retransmit_at.is_none();
        if waiting && self.persist_at.is_none() && !self.probe {
            let wait = self.rto.persist(self.persists);
            self.persist_at = Some(now + wait);
        }
    }

    fn window_probe(&mut self, now: Time) -> Packet {
        self.probe = false;
        self.persists += 1;
        let room =
            self.edge.saturating_sub(self.nxt).min(self.data_end().saturating_sub(self.nxt)).min(u64::from(self.mss));
        if room > 0 {
            return self.transmit_data(now, self.nxt, room);
        }
        let mut segment = self.header(now, true);
        segment.seq = self.iss.wrapping_add(self.nxt as u32);
        segment.payload = 1;
        // An ack of it must be taken, but it is not waited for: the persist timer sends it again.
        self.probed = self.nxt + 1;
        let data = self.source.bytes(self.nxt - 1, 1);
        self.packet(&segment, &data)
    }

    /// ELN: the receiver is told which segments were corrupted (ton III-A).
    fn note_corruption(&mut self, packet: &Packet) {
        if self.config.eln == Eln::Off || !self.receiving() {
            return;
        }
        if let Some(segment) = Segment::read_damaged(packet) {
            let next = self.receiver.next;
            let start = offset(next, segment.seq, self.irs);
            if start >= 1 {
                self.receiver.corrupted.note(start as u64, start as u64 + u64::from(segment.payload), next);
            }
        }
    }

    fn receiving(&self) -> bool {
        !matches!(self.state, State::SynSent | State::Closed)
    }

    fn note(&mut self, at: Time, what: Happening) {
        self.samples.push(Sample {
            at,
            what,
            cwnd: self.window.cwnd,
            ssthresh: self.window.ssthresh,
            outstanding: self.flight(),
            rtt: self.rtt,
            srtt: self.rto.srtt(),
            rto: self.rto.rto(),
            duplicates: self.duplicates,
            burst: self.burst.last(),
        });
    }
}

impl Endpoint for Connection {
    fn on_segment(&mut self, now: Time, packet: &Packet) {
        let Some(segment) = Segment::read(packet) else {
            self.counts.refused += 1;
            self.note_corruption(packet);
            return;
        };
        self.counts.received += 1;
        self.heard_at = now;
        let pure_ack = segment.space() == 0;
        self.ecn.hear(&segment, pure_ack);
        match self.state {
            State::Closed => {}
            State::SynSent => self.segment_in_syn_sent(now, &segment, packet),
            _ => self.segment_in_connection(now, &segment, packet),
        }
    }

    fn on_timer(&mut self, now: Time) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if due(self.retransmit_at) {
            self.on_retransmission_timer(now);
        }
        if due(self.persist_at) {
            self.persist_at = None;
            self.probe = true;
        }
        if due(self.receiver.ack_at) {
            self.receiver.ack_now = true;
        }
        if due(self.burst.until) {
            self.burst.until = None;
        }
        if due(self.time_wait_until) {
            self.close(End::Finished);
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        if self.reset_due {
            self.reset_due = false;
            let mut segment = self.header(now, false);
            segment.flags |= TcpFlags::RST;
            self.receiver.acknowledged(0);
            return Some(self.packet(&segment, &[]));
        }
        if let Some(stray) = self.stray.take() {
            return Some(stray);
        }
        if self.state == State::Closed {
            return None;
        }
        if self.syn_due {
            return Some(self.syn(now));
        }
        if matches!(self.state, State::SynSent | State::SynReceived) {
            return None;
        }
        if let Some((at, length)) = self.next_data(now) {
            return Some(self.transmit_data(now, at, length));
        }
        if self.probe {
            return Some(self.window_probe(now));
        }
        self.mind_closed_window(now);
        if self.receiver.ack_now {
            let mut segment = self.header(now, false);
            self.ecn.dress(&mut segment, false);
            return Some(self.packet(&segment, &[]));
        }
        None
    }

    fn next_timeout(&self) -> Option<Time> {
        let timers =
            [self.retransmit_at, self.persist_at, self.receiver.ack_at, self.time_wait_until, self.burst.until];
        if self.state == State::Closed {
            return None;
        }
        timers.into_iter().flatten().min()
    }
}

fn make_window(config: &Config, mss: u32) -> Window {
    let limit = f64::from(config.max_window) * f64::from(mss);
    let ssthresh = config.initial_ssthresh.map_or(limit, |segments| f64::from(segments) * f64::from(mss));
    let window = Window::new(config.variant, config.counting, mss, config.initial_window, ssthresh, limit);
    window.leaving(config.full_ack)
}

/// The stream offset of a number on the wire that lies near `near`; negative ones lie before the stream.
fn offset(near: u64, number: u32, first: u32) -> i64 {
    near as i64 + i64::from(number.wrapping_sub(first.wrapping_add(near as u32)) as i32)
}

/// Bytes that the selective acks of a segment take, padding included.
fn sack_bytes(segment: &Segment) -> u32 {
    if segment.sack.is_empty() {
        0
    } else {
        4 + 8 * segment.sack.len() as u32
    }
}
