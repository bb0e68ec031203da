//! One TCP connection: the state machine of RFC 9293 around the parts in this crate. It has no clock, socket or randomness
//! of its own.
//!
//! Numbers inside are stream offsets that never wrap: the SYN is 0, the first byte 1, the FIN follows the last byte.

use std::time::Duration;

use backchannel_core::packet::{FlowKey, Packet, TcpFlags};
use backchannel_core::time::Time;
use backchannel_core::traits::Endpoint;

use crate::config::Config;
use crate::congestion::{OnLoss, OnNewAck, Variant, Window};
use crate::receive::{Arrived, Receiver};
use crate::rtt::Rto;
use crate::scoreboard::Scoreboard;
use crate::source::Source;
use crate::wire::{Segment, IP_HEADER, SACK_BLOCKS, TCP_HEADER, TIMESTAMP_OPTION};

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

/// What happened, for telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The window grew or shrank with an ack.
    Ack,
    /// A fast retransmit.
    FastRetransmit,
    /// A coarse timeout.
    Timeout,
}

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
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Duplicate acks in a row.
    pub duplicates: u32,
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
/// Ticks of the timestamp option.
const TIMESTAMP_NS: u64 = 1_000_000;

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
    ts_recent: u32,
    time_wait_until: Option<Time>,
    reset_due: bool,

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
        let own_scale = (0..14).find(|shift| config.receive_buffer >> shift <= 65_535).unwrap_or(14);
        Connection {
            window: make_window(&config, mss),
            rto: Rto::new(config.rto),
            receiver: Receiver::new(config.ack, config.receive_buffer),
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
            retransmit_at: None,
            persist_at: None,
            persists: 0,
            probe: false,
            probed: 0,
            syns: 0,
            syn_due: false,
            reading: true,
            peer_finished: false,
            ts_recent: 0,
            time_wait_until: None,
            reset_due: false,
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

    /// Samples of the sender's state since the last call.
    pub fn take_samples(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.samples)
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
        self.source.finish();
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
        let options = if self.timestamps { TIMESTAMP_OPTION } else { 0 };
        self.mss = told.min(self.config.packet_bytes - IP_HEADER - TCP_HEADER) - options;
        self.window = make_window(&self.config, self.mss);
        // A SYN's window is never scaled.
        self.edge = self.una.max(1) + u64::from(syn.window);
        self.largest_window = u64::from(syn.window);
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
    fn next_data(&mut self) -> Option<(u64, u64)> {
        if !self.can_send_data() {
            return None;
        }
        let mss = u64::from(self.mss);
        if self.resend {
            let length = (self.data_end().saturating_sub(self.una)).min(mss).min(self.board.room(self.una));
            return Some((self.una, length));
        }
        if self.sack && self.recovery.is_some() {
            let pipe = self.board.pipe(self.una, self.max, mss);
            if pipe + mss > self.window.cwnd as u64 {
                return None;
            }
            if let Some(lost) = self.board.next_lost(self.una, self.max, mss) {
                return Some(lost);
            }
            return self.fresh(self.nxt, u64::MAX);
        }
        self.nxt = self.board.skip_held(self.nxt);
        let mut cwnd = self.window.cwnd as u64;
        if self.config.limited_transmit && self.recovery.is_none() {
            // RFC 3042: up to two segments beyond the window, one a duplicate ack.
            cwnd += u64::from(self.duplicates.min(2)) * mss;
        }
        self.fresh(self.nxt, self.una + cwnd)
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
        let whole = length == mss || length == left || length == self.board.room(at);
        (length > 0 && (whole || 2 * length >= self.largest_window)).then_some((at, length))
    }

    fn transmit_data(&mut self, now: Time, at: u64, length: u64) -> Packet {
        let end = at + length;
        let last = end == self.data_end() && self.source.finished();
        let finish = last && (self.edge > end || length == 0);
        let mut segment = self.header(now);
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
        if again {
            self.counts.retransmitted += 1;
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
    fn header(&mut self, now: Time) -> Segment {
        // Only SACK blocks change with room: three beside timestamps, four alone would be possible.
        let sack = if self.sack { self.receiver.sack_blocks(SACK_BLOCKS) } else { Vec::new() };
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
            timestamps: self.timestamps.then(|| (timestamp(now), self.ts_recent)),
            sack: sack.into_iter().map(|(start, end)| (wrap(start), wrap(end))).collect(),
            ..Segment::default()
        };
        self.receiver.acknowledged(scaled << self.own_scale);
        segment
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
            timestamps: offer(self.config.timestamps, self.timestamps).then(|| (timestamp(now), self.ts_recent)),
            ..Segment::default()
        };
        if answering {
            segment.flags |= TcpFlags::ACK;
            segment.ack = self.irs.wrapping_add(1);
        }
        self.receiver.acknowledged(u64::from(segment.window));
        self.packet(&segment, &[])
    }

    fn packet(&mut self, segment: &Segment, data: &[u8]) -> Packet {
        self.counts.sent += 1;
        self.next_id += 1;
        segment.packet(self.next_id, self.flow, data)
    }

    // Receiving ------------------------------------------------------------------------------------------------

    fn segment_in_syn_sent(&mut self, now: Time, segment: &Segment) {
        // RFC 9293 3.10.7.3.
        let acks = segment.has(TcpFlags::ACK);
        if acks && segment.ack != self.iss.wrapping_add(1) {
            self.counts.refused += 1;
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
            self.sample_rtt(now, segment, 1);
            self.receiver.ack_now = true;
        } else {
            // Simultaneous open.
            self.state = State::SynReceived;
            self.syn_due = true;
        }
    }

    fn segment_in_connection(&mut self, now: Time, segment: &Segment, packet: &Packet) {
        let seq = offset(self.receiver.next, segment.seq, self.irs);
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
            // RFC 5961 3.2: only a reset at the very next byte is believed.
            if seq == self.receiver.next as i64 {
                self.close(End::Reset);
            } else {
                self.refuse();
            }
            return;
        }
        if segment.has(TcpFlags::SYN) && !(self.state == State::SynReceived && seq == 0) {
            self.refuse();
            return;
        }
        if !segment.has(TcpFlags::ACK) {
            return;
        }
        let ack = offset(self.una, segment.ack, self.iss);
        if ack > self.max.max(self.probed) as i64 {
            self.refuse();
            return;
        }
        if let (true, Some((value, _))) = (self.timestamps, segment.timestamps) {
            if seq <= self.receiver.next as i64 {
                self.ts_recent = value;
            }
        }
        if self.state == State::SynReceived {
            if ack < 1 {
                return;
            }
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
        let news = self.sack && {
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
            if self.edge > self.nxt {
                self.persist_at = None;
                self.persists = 0;
            }
        }
        if ack > self.una {
            self.new_ack(now, segment, ack);
        } else if self.max > self.una
            && (news
                || (segment.payload == 0 && same_window && !TcpFlags(segment.flags).any(TcpFlags::SYN | TcpFlags::FIN)))
        {
            self.duplicate_ack(now);
        }
    }

    fn new_ack(&mut self, now: Time, segment: &Segment, ack: u64) {
        let acked = ack - self.una;
        self.sample_rtt(now, segment, ack);
        self.una = ack;
        self.nxt = self.nxt.max(ack);
        self.max = self.max.max(ack);
        self.resend = false;
        let outstanding = self.flight();
        let mut restart = true;
        match self.recovery {
            Some(recover) if self.sack => {
                if ack >= recover {
                    self.leave_recovery();
                    self.window.cwnd = self.window.ssthresh;
                }
            }
            Some(recover) => match self.window.on_recovery_ack(acked, ack >= recover, outstanding) {
                OnNewAck::Leave => self.leave_recovery(),
                OnNewAck::ResendAndStay => {
                    self.resend = true;
                    self.partial_acks += 1;
                    // RFC 6582 3.2, the impatient variant: the timer is not restarted after the first partial ack.
                    restart = self.partial_acks == 1;
                }
            },
            None => {
                let srtt_s = self.rto.srtt().unwrap_or_default().as_secs_f64();
                self.window.on_ack(acked, now, srtt_s);
            }
        }
        self.duplicates = 0;
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

    fn duplicate_ack(&mut self, now: Time) {
        self.duplicates += 1;
        self.counts.duplicate_acks += 1;
        if self.recovery.is_some() {
            if !self.sack {
                self.window.on_duplicate();
            }
            return;
        }
        let enough = self.duplicates == self.config.duplicate_threshold
            || (self.sack
                && self.duplicates < self.config.duplicate_threshold
                && self.board.is_lost(self.una, u64::from(self.mss)));
        // RFC 6582 3.2 step 2, RFC 6675 5 (2): duplicates of what was outstanding at the last loss are no news. 4.4BSD does
        // not look.
        let careful = self.sack || matches!(self.config.variant, Variant::NewReno | Variant::Cubic);
        if !enough || (careful && self.una < self.recover) {
            return;
        }
        let flight = self.flight().min(self.window.cwnd.max(f64::from(self.mss)) as u64);
        self.recover = self.max;
        self.counts.fast_retransmits += 1;
        self.timed = None;
        match self.window.on_loss(flight, now) {
            OnLoss::Recover => {
                self.recovery = Some(self.max);
                self.resend = true;
                if self.sack {
                    self.window.cwnd = self.window.ssthresh;
                    self.board.high_rxt = self.una;
                }
            }
            OnLoss::GoBack => self.nxt = self.una,
        }
        self.retransmit_at = Some(self.rto.deadline(now));
        self.note(now, Happening::FastRetransmit);
    }

    fn sample_rtt(&mut self, now: Time, segment: &Segment, ack: u64) {
        match (self.timestamps, segment.timestamps) {
            (true, Some((_, echo))) if echo != 0 => {
                let passed = u64::from(timestamp(now).wrapping_sub(echo)) * TIMESTAMP_NS;
                self.rto.sample(Time(now.nanos().saturating_sub(passed)), now);
            }
            _ => {
                if let Some((_, sent)) = self.timed.filter(|&(end, _)| end <= ack) {
                    self.rto.sample(sent, now);
                    self.timed = None;
                }
            }
        }
    }

    fn take_data(&mut self, now: Time, segment: &Segment, packet: &Packet, seq: i64) {
        if segment.payload > 0 && !self.peer_finished {
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
        let fin_at = seq + i64::from(segment.payload);
        if segment.has(TcpFlags::FIN) && !self.peer_finished {
            if fin_at == self.receiver.next as i64 {
                self.peer_finished = true;
                self.take_fin(now);
            }
            self.receiver.ack_now = true;
        } else if segment.has(TcpFlags::FIN) {
            self.receiver.ack_now = true;
            if self.state == State::TimeWait {
                self.enter_time_wait(now);
            }
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
        let first = self.rto.backoff == 0;
        let flight = self.flight().min(self.window.cwnd.max(f64::from(self.mss)) as u64);
        self.window.on_timeout(flight, now, first);
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
            let wait = self.rto.rto().saturating_mul(1 << self.persists.min(6)).min(self.config.rto.max);
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
        let mut segment = self.header(now);
        segment.seq = self.iss.wrapping_add(self.nxt as u32);
        segment.payload = 1;
        // An ack of it must be taken, but it is not waited for: the persist timer sends it again.
        self.probed = self.nxt + 1;
        let data = self.source.bytes(self.nxt - 1, 1);
        self.packet(&segment, &data)
    }

    fn note(&mut self, at: Time, what: Happening) {
        self.samples.push(Sample {
            at,
            what,
            cwnd: self.window.cwnd,
            ssthresh: self.window.ssthresh,
            outstanding: self.flight(),
            srtt: self.rto.srtt(),
            rto: self.rto.rto(),
            duplicates: self.duplicates,
        });
    }
}

impl Endpoint for Connection {
    fn on_segment(&mut self, now: Time, packet: &Packet) {
        let Some(segment) = Segment::read(packet) else {
            self.counts.refused += 1;
            return;
        };
        self.counts.received += 1;
        match self.state {
            State::Closed => {}
            State::SynSent => self.segment_in_syn_sent(now, &segment),
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
        if due(self.time_wait_until) {
            self.close(End::Finished);
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        if self.reset_due {
            self.reset_due = false;
            let mut segment = self.header(now);
            segment.flags |= TcpFlags::RST;
            self.receiver.acknowledged(0);
            return Some(self.packet(&segment, &[]));
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
        if let Some((at, length)) = self.next_data() {
            return Some(self.transmit_data(now, at, length));
        }
        if self.probe {
            return Some(self.window_probe(now));
        }
        self.mind_closed_window(now);
        if self.receiver.ack_now {
            let segment = self.header(now);
            return Some(self.packet(&segment, &[]));
        }
        None
    }

    fn next_timeout(&self) -> Option<Time> {
        [self.retransmit_at, self.persist_at, self.receiver.ack_at, self.time_wait_until].into_iter().flatten().min()
    }
}

fn make_window(config: &Config, mss: u32) -> Window {
    let limit = f64::from(config.max_window) * f64::from(mss);
    let ssthresh = config.initial_ssthresh.map_or(limit, |segments| f64::from(segments) * f64::from(mss));
    Window::new(config.variant, config.counting, mss, config.initial_window, ssthresh, limit)
}

/// The stream offset of a number on the wire that lies near `near`; negative ones lie before the stream.
fn offset(near: u64, number: u32, first: u32) -> i64 {
    near as i64 + i64::from(number.wrapping_sub(first.wrapping_add(near as u32)) as i32)
}

/// The timestamp option's value at an instant; never 0, which would mean "none".
fn timestamp(now: Time) -> u32 {
    (now.nanos() / TIMESTAMP_NS) as u32 + 1
}
