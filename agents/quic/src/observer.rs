//! What a connection's congestion controller sees, for telemetry: quinn-proto shows acks, losses and marks to nobody
//! else.

use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;

/// What has been seen of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observations {
    /// Bytes of UDP payload in the network after the last ack, and those sent since.
    pub(crate) in_flight: u64,
    /// When the last packet was sent.
    pub(crate) last_sent: Option<Instant>,
    /// Round trip of the newest packet that the last ack acknowledged; `None` before the first.
    pub(crate) rtt: Option<Duration>,
    /// Smoothed round trip and its variation (RFC 9002 5.3), without the peer's ack delay, which a controller does not
    /// see.
    srtt: Duration,
    pub(crate) rttvar: Duration,
    /// Acks of new packets, decreases by loss, and decreases by marks.
    pub(crate) acks: u64,
    pub(crate) losses: u64,
    pub(crate) marks: u64,
}

impl Observations {
    pub(crate) fn new(initial_rtt: Duration) -> Arc<Mutex<Observations>> {
        let (srtt, rttvar) = (initial_rtt, initial_rtt / 2);
        let (in_flight, last_sent, rtt, acks, losses, marks) = (0, None, None, 0, 0, 0);
        Arc::new(Mutex::new(Observations { in_flight, last_sent, rtt, srtt, rttvar, acks, losses, marks }))
    }

    /// The probe timeout without the peer's ack delay (RFC 9002 6.2.1).
    pub(crate) fn probe_timeout(&self) -> Duration {
        self.srtt + (4 * self.rttvar).max(Duration::from_millis(1))
    }

    fn on_sample(&mut self, rtt: Duration) {
        (self.srtt, self.rttvar) = match self.rtt {
            None => (rtt, rtt / 2),
            Some(_) => ((7 * self.srtt + rtt) / 8, (3 * self.rttvar + self.srtt.abs_diff(rtt)) / 4),
        };
        self.rtt = Some(rtt);
    }
}

/// Wraps the controllers that another factory builds.
pub(crate) struct ObserverFactory {
    pub(crate) inner: Arc<dyn ControllerFactory + Send + Sync>,
    pub(crate) observations: Arc<Mutex<Observations>>,
}

impl ControllerFactory for ObserverFactory {
    fn build(self: Arc<ObserverFactory>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = self.inner.clone().build(now, current_mtu);
        Box::new(Observer { inner, newest: None, observations: self.observations.clone() })
    }
}

/// Passes every call on.
struct Observer {
    inner: Box<dyn Controller>,
    /// When the newest packet was sent that the current ack acknowledges.
    newest: Option<Instant>,
    observations: Arc<Mutex<Observations>>,
}

impl Observer {
    fn observe(&mut self, observe: impl FnOnce(&mut Observations)) {
        observe(&mut self.observations.lock().expect("no thread panics with it"));
    }
}

impl Controller for Observer {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.observe(|seen| {
            seen.in_flight += bytes;
            seen.last_sent = Some(now);
        });
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.newest = self.newest.max(Some(sent));
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest_packet_num_acked: Option<u64>) {
        let newest = self.newest.take();
        self.observe(|seen| {
            seen.in_flight = in_flight;
            if let Some(sent) = newest {
                seen.acks += 1;
                seen.on_sample(now - sent);
            }
        });
        self.inner.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent_congestion: bool, lost_bytes: u64) {
        let before = self.inner.window();
        self.inner.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
        let decreases = u64::from(self.inner.window() < before);
        self.observe(|seen| {
            seen.in_flight = seen.in_flight.saturating_sub(lost_bytes);
            *(if lost_bytes > 0 { &mut seen.losses } else { &mut seen.marks }) += decreases;
        });
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let (inner, observations) = (self.inner.clone_box(), self.observations.clone());
        Box::new(Observer { inner, newest: self.newest, observations })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Observer>) -> Box<dyn Any> {
        self.inner.into_any()
    }
}
