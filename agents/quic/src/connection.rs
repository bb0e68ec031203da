//! One QUIC connection as a transport: quinn-proto's endpoint and connection, UDP packets, and the stream that carries
//! the application's data in both directions.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::vec::Drain;

use backchannel_core::datagram;
use backchannel_core::event::{SenderEvent, SenderSample};
use backchannel_core::packet::{Ecn, FlowKey, Packet, TransportHeader};
use backchannel_core::time::Time;
use backchannel_core::transport::{Chunk, End, Transport};
use backchannel_core::Error;
use backchannel_stacks::{Counts, Sample};
use bytes::{Bytes, BytesMut};
use quinn_proto::{
    ConnectionError, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, Endpoint, Event, ReadError, Side, StreamEvent,
    StreamId, VarInt,
};

use crate::clock::{instant, time};
use crate::config::MAX_ACK_DELAY;
use crate::content::Source;
use crate::observer::Observations;
use crate::qlog::PacketLog;
use crate::tls::KeyFile;

/// Application error codes: both sides had finished, and the application aborted.
const FINISHED: VarInt = VarInt::from_u32(0);
const ABORTED: VarInt = VarInt::from_u32(1);

/// A QUIC connection. Drive it through [`Transport`].
pub struct Connection {
    /// The flow of the packets that this side sends.
    flow: FlowKey,
    /// Bytes of UDP payload in the largest packet.
    mtu: u16,
    sends_ecn: bool,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    inner: quinn_proto::Connection,
    stream: Option<StreamId>,
    source: Source,
    /// Whether the stream's end was given to quinn-proto, and whether the peer has acknowledged it.
    end_sent: bool,
    end_acknowledged: bool,
    /// Data in order that the application has yet to take over.
    arrived: Vec<Chunk>,
    end_received: bool,
    end: Option<End>,
    /// Time of the last call, and when the next timer is due.
    now: Time,
    next_due: Option<Time>,
    /// UDP payload of packets that the endpoint sends by itself.
    responses: Vec<Vec<u8>>,
    /// A controller's pacing rate lets the next packet go then.
    release: Time,
    observations: Arc<Mutex<Observations>>,
    log: Option<Arc<Mutex<PacketLog>>>,
    keys: Option<Arc<KeyFile>>,
    /// Telemetry since it was last cleared; `None`: nobody reads it.
    samples: Option<Vec<Sample>>,
    /// What the last sample was taken from.
    sampled: Sampled,
    /// Packets sent at the instant of the last transmission.
    burst: (Time, u32),
    longest_burst: u32,
    timeouts: u64,
    /// Probe timeouts in a row, and the number of acks at which they began.
    probes: (u64, u64),
    refused: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sampled {
    acks: u64,
    losses: u64,
    marks: u64,
    timeouts: u64,
}

/// What a factory has made of a connection.
pub(crate) struct Parts {
    pub(crate) flow: FlowKey,
    pub(crate) mtu: u16,
    pub(crate) sends_ecn: bool,
    pub(crate) endpoint: Endpoint,
    pub(crate) handle: ConnectionHandle,
    pub(crate) inner: quinn_proto::Connection,
    pub(crate) source: Source,
    pub(crate) observations: Arc<Mutex<Observations>>,
    pub(crate) log: Option<Arc<Mutex<PacketLog>>>,
    pub(crate) keys: Option<Arc<KeyFile>>,
}

impl Connection {
    pub(crate) fn new(parts: Parts, now: Time) -> Connection {
        let Parts { flow, mtu, sends_ecn, endpoint, handle, inner, source, observations, log, keys } = parts;
        let mut connection = Connection {
            flow,
            mtu,
            sends_ecn,
            endpoint,
            handle,
            inner,
            stream: None,
            source,
            end_sent: false,
            end_acknowledged: false,
            arrived: Vec::new(),
            end_received: false,
            end: None,
            now,
            next_due: None,
            responses: Vec::new(),
            release: Time::ZERO,
            observations,
            log,
            keys,
            samples: Some(Vec::new()),
            sampled: Sampled::default(),
            burst: (Time::MAX, 0),
            longest_burst: 0,
            timeouts: 0,
            probes: (0, 0),
            refused: 0,
        };
        connection.process(now);
        connection
    }

    /// Bytes of UDP payload in the largest packet.
    pub fn mss(&self) -> f64 {
        f64::from(self.mtu)
    }

    /// The flow of the packets that this side sends.
    pub fn flow(&self) -> FlowKey {
        self.flow
    }

    /// Counts so far, of packets where TCP's are of segments. Retransmitted are the packets that were declared lost,
    /// whose frames are sent again in others; fast retransmits are the decreases of the window by loss.
    pub fn counts(&self) -> Counts {
        let stats = self.inner.stats();
        Counts {
            sent: stats.udp_tx.datagrams,
            received: stats.udp_rx.datagrams,
            retransmitted: stats.path.lost_packets,
            timeouts: self.timeouts,
            fast_retransmits: self.seen().losses,
            duplicate_acks: 0,
            spurious_recoveries: 0,
            refused: self.refused,
        }
    }

    /// The sender's telemetry since it was last cleared. Windows and what is outstanding are of UDP payload.
    pub fn samples(&self) -> &[Sample] {
        self.samples.as_deref().unwrap_or_default()
    }

    /// The sender takes no telemetry from now on, because nobody reads it.
    pub fn ignore_samples(&mut self) {
        self.samples = None;
    }

    /// Drops the telemetry so far.
    pub fn clear_samples(&mut self) {
        self.samples.iter_mut().for_each(Vec::clear);
    }

    /// Writes what is buffered of the connection's logs.
    ///
    /// # Errors
    /// A file cannot be written, now or before.
    pub fn flush_log(&mut self) -> Result<(), Error> {
        self.keys.as_ref().map_or(Ok(()), |keys| keys.check())?;
        self.log.as_ref().map_or(Ok(()), |log| log.lock().expect("no thread panics with it").flush())
    }

    fn seen(&self) -> Observations {
        *self.observations.lock().expect("no thread panics with it")
    }

    fn set_now(&mut self, now: Time) {
        self.now = now;
        if let Some(log) = &self.log {
            log.lock().expect("no thread panics with it").now = now;
        }
    }

    /// After every call: passes events on, and moves data between the stream and the application.
    fn process(&mut self, now: Time) {
        while let Some(event) = self.inner.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.inner.handle_event(event);
            }
        }
        while let Some(event) = self.inner.poll() {
            match event {
                Event::ConnectionLost { reason } => self.on_lost(&reason),
                Event::Stream(StreamEvent::Finished { .. }) => self.end_acknowledged = true,
                _ => {}
            }
        }
        if self.end.is_none() {
            self.open_stream();
            self.receive();
            self.send();
            if self.end_received && self.end_acknowledged {
                self.end = Some(End::Finished);
                // The other side has its end acknowledged with the close, or before.
                if self.inner.side() == Side::Client {
                    self.inner.close(instant(now), FINISHED, Bytes::new());
                }
            }
        }
        self.take_sample(now);
        self.find_next_timer(now);
    }

    fn find_next_timer(&mut self, now: Time) {
        let due = self.inner.poll_timeout().map(time);
        let of_quinn = due.filter(|_| !self.inner.is_drained());
        self.next_due = self.paced_until(now).into_iter().chain(of_quinn).min();
    }

    fn on_lost(&mut self, reason: &ConnectionError) {
        // What came before the close counts.
        self.receive();
        let end = match reason {
            ConnectionError::ApplicationClosed(close) if close.error_code == FINISHED && self.end_received => {
                End::Finished
            }
            // All data arrived in both directions, and every packet with the peer's close was lost.
            ConnectionError::TimedOut if self.end_received && self.end_sent && !self.source.has_unacknowledged() => {
                End::Finished
            }
            ConnectionError::TimedOut => End::TimedOut,
            _ => End::Reset,
        };
        self.end.get_or_insert(end);
    }

    /// The side that connected opens the stream once the peer's limits are known; the other side accepts it.
    fn open_stream(&mut self) {
        if self.stream.is_none() {
            let is_client = self.inner.side() == Side::Client;
            let mut streams = self.inner.streams();
            self.stream = if is_client { streams.open(Dir::Bi) } else { streams.accept(Dir::Bi) };
        }
    }

    fn receive(&mut self) {
        let Some(stream) = self.stream.filter(|_| !self.end_received) else { return };
        let mut receiving = self.inner.recv_stream(stream);
        let Ok(mut chunks) = receiving.read(true) else { return };
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => self.arrived.push(Chunk { bytes: chunk.bytes.to_vec(), zeros: 0 }),
                Ok(None) => {
                    self.end_received = true;
                    break;
                }
                Err(ReadError::Blocked | ReadError::Reset(_)) => break,
            }
        }
    }

    /// Hands data to quinn-proto, as far as it takes them.
    fn send(&mut self) {
        let Some(stream) = self.stream.filter(|_| !self.end_sent) else { return };
        let mut sending = self.inner.send_stream(stream);
        loop {
            let next = self.source.next();
            if next.is_empty() || sending.write_chunks(std::slice::from_mut(next)).is_err() {
                break;
            }
        }
        self.end_sent = self.source.is_exhausted() && sending.finish().is_ok();
    }

    /// Writes what has changed to the log.
    fn log_metrics(&self) {
        let Some(log) = &self.log else { return };
        let (path, seen) = (self.inner.stats().path, self.seen());
        let ssthresh = self.inner.congestion_state().metrics().ssthresh.filter(|ssthresh| *ssthresh != u64::MAX);
        let ms = |time: Duration| seen.rtt.map(|_| time.as_secs_f64() * 1e3);
        let mut log = log.lock().expect("no thread panics with it");
        log.lost(path.lost_packets);
        log.metrics(&[
            ("congestion_window", Some(path.cwnd as f64)),
            ("ssthresh", ssthresh.map(|ssthresh| ssthresh as f64)),
            ("bytes_in_flight", Some(seen.in_flight as f64)),
            ("smoothed_rtt", ms(path.rtt)),
            ("latest_rtt", seen.rtt.and_then(ms)),
            ("min_rtt", ms(path.min_rtt)),
            ("rtt_variance", ms(seen.rttvar)),
            ("pto_count", Some(if self.probes.1 == seen.acks { self.probes.0 as f64 } else { 0.0 })),
        ]);
    }

    fn take_sample(&mut self, now: Time) {
        self.log_metrics();
        let seen = self.seen();
        let Observations { acks, losses, marks, .. } = seen;
        let sampled = Sampled { acks, losses, marks, timeouts: self.timeouts };
        let before = std::mem::replace(&mut self.sampled, sampled);
        let Some(samples) = self.samples.as_mut().filter(|_| sampled != before) else { return };
        let event = if sampled.timeouts > before.timeouts {
            SenderEvent::Timeout
        } else if losses > before.losses {
            SenderEvent::FastRetransmit
        } else if marks > before.marks {
            SenderEvent::Mark
        } else {
            SenderEvent::Ack
        };
        let metrics = self.inner.congestion_state().metrics();
        samples.push(Sample {
            at: now,
            event,
            cwnd: metrics.congestion_window as f64,
            ssthresh: metrics.ssthresh.filter(|ssthresh| *ssthresh != u64::MAX).map(|ssthresh| ssthresh as f64),
            outstanding: seen.in_flight,
            rtt: seen.rtt,
            srtt: seen.rtt.map(|_| self.inner.rtt()),
            rto: seen.probe_timeout() + MAX_ACK_DELAY,
            duplicates: 0,
            burst: self.burst.1,
        });
    }

    /// Time at which a packet may leave at the controller's pacing rate; `None`: now.
    fn paced_until(&self, now: Time) -> Option<Time> {
        (now < self.release && self.source.has_unacknowledged()).then_some(self.release)
    }

    fn packet(&mut self, now: Time, payload: &[u8], ecn: Option<EcnCodepoint>) -> Packet {
        let ecn = match ecn.filter(|_| self.sends_ecn) {
            None => Ecn::NotCapable,
            Some(EcnCodepoint::Ce) => Ecn::Experienced,
            Some(EcnCodepoint::Ect0) => Ecn::Capable,
            Some(EcnCodepoint::Ect1) => Ecn::LowLatency,
        };
        self.burst = (now, if self.burst.0 == now { self.burst.1 + 1 } else { 1 });
        self.longest_burst = self.longest_burst.max(self.burst.1);
        datagram::udp(0, self.flow, ecn, payload, 0)
    }

    /// The longest run of packets that this side has sent at one instant.
    pub fn longest_burst(&self) -> u32 {
        self.longest_burst
    }
}

impl Transport for Connection {
    fn on_packet(&mut self, now: Time, packet: &Packet) {
        self.set_now(now);
        if !packet.checksum_ok() {
            self.refused += 1;
            return;
        }
        if self.inner.is_drained() {
            return;
        }
        let TransportHeader::Udp { payload } = *packet.transport() else { return };
        let mut data = BytesMut::with_capacity(payload as usize);
        data.extend_from_slice(packet.payload());
        data.resize(payload as usize, 0);
        let remote = (self.flow.dst, self.flow.dst_port).into();
        let mut response = Vec::new();
        match self.endpoint.handle(instant(now), remote, None, codepoint(packet.ecn()), data, &mut response) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => self.inner.handle_event(event),
            Some(DatagramEvent::Response(transmit)) => {
                response.truncate(transmit.size);
                self.responses.push(response);
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.endpoint.ignore(incoming),
            None => {}
        }
        self.process(now);
    }

    fn on_timer(&mut self, now: Time) {
        self.set_now(now);
        if self.inner.poll_timeout().is_some_and(|due| due <= instant(now)) {
            let (seen, lost) = (self.seen(), self.inner.stats().path.lost_packets);
            self.inner.handle_timeout(instant(now));
            // quinn-proto does not report probe timeouts. They are the timers of a packet in the network that expire
            // as late as this without a packet that is declared lost.
            let is_late = seen.last_sent.is_some_and(|sent| sent + seen.probe_timeout() <= instant(now));
            let is_waiting = self.inner.is_handshaking() || self.source.has_unacknowledged();
            let is_probe = is_late && is_waiting && seen.in_flight > 0 && !self.inner.is_closed();
            if is_probe && self.inner.stats().path.lost_packets == lost {
                self.timeouts += 1;
                let (count, acks) = self.probes;
                self.probes = (if acks == seen.acks { count + 1 } else { 1 }, seen.acks);
            }
        }
        self.process(now);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        self.set_now(now);
        if let Some(response) = self.responses.pop() {
            return Some(self.packet(now, &response, None));
        }
        let mut buffer = Vec::with_capacity(self.mtu.into());
        let is_released = self.paced_until(now).is_none();
        let transmit = is_released.then(|| self.inner.poll_transmit(instant(now), 1, &mut buffer)).flatten();
        let Some(transmit) = transmit else {
            self.find_next_timer(now);
            return None;
        };
        if let Some(rate) = self.inner.congestion_state().metrics().pacing_rate.filter(|rate| *rate > 0) {
            self.release = now + Duration::from_secs_f64(transmit.size as f64 * 8.0 / rate as f64);
        }
        Some(self.packet(now, &buffer[..transmit.size], transmit.ecn))
    }

    fn next_timeout(&self) -> Option<Time> {
        self.next_due
    }

    fn write(&mut self, bytes: u64) {
        self.source.extend(bytes);
        self.process(self.now);
    }

    fn finish(&mut self) {
        if self.source.finish() {
            self.process(self.now);
        }
    }

    fn abort(&mut self) {
        if self.end.is_none() {
            self.end = Some(End::Aborted);
            self.inner.close(instant(self.now), ABORTED, Bytes::new());
            self.process(self.now);
        }
    }

    fn read(&mut self) -> Drain<'_, Chunk> {
        self.arrived.drain(..)
    }

    fn peer_finished(&self) -> bool {
        self.end_received && self.arrived.is_empty()
    }

    fn end(&self) -> Option<End> {
        self.end
    }

    fn acknowledged(&self) -> u64 {
        self.source.acknowledged()
    }

    fn sample(&mut self, record: &mut dyn FnMut(Time, SenderSample)) {
        let mss = self.mss();
        self.samples().iter().for_each(|sample| record(sample.at, sample.in_segments(mss)));
        self.clear_samples();
    }
}

/// The mark of a packet that arrives.
pub(crate) fn codepoint(ecn: Ecn) -> Option<EcnCodepoint> {
    match ecn {
        Ecn::NotCapable => None,
        Ecn::Capable => Some(EcnCodepoint::Ect0),
        Ecn::LowLatency => Some(EcnCodepoint::Ect1),
        Ecn::Experienced => Some(EcnCodepoint::Ce),
    }
}
