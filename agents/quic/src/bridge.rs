//! The congestion controllers of TCP under quinn-proto: a [`Controller`] whose calls become those of a
//! [`CongestionController`].
//!
//! Recovery is QUIC's (RFC 9002 7.3.2): a loss or a mark of a packet that was sent after the last decrease decreases
//! the window, and recovery ends with the ack of such a packet. Packets take the place of segments, and UDP payload that
//! of data.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use backchannel_core::time::Time;
use backchannel_stacks::config::Config;
use backchannel_stacks::controllers::{
    AckSample, CongestionControl, CongestionController, Exit, Loss, Lost, RateSample, Sent, Signal,
};
use backchannel_stacks::SeqNumber;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;

use crate::clock::time;

/// Builds the controller that a configuration of TCP names.
pub(crate) struct BridgeFactory(pub(crate) Arc<Config>);

impl ControllerFactory for BridgeFactory {
    fn build(self: Arc<BridgeFactory>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        // What it draws follows from when the connection began.
        let seed = SeqNumber(time(now).nanos() as u32);
        let control = CongestionControl::new(&self.0, current_mtu.into(), seed);
        let initial_window = control.window() as u64;
        let state = State {
            rate: control.uses_rate_samples().then(Rate::default),
            control,
            mtu: current_mtu,
            in_flight: 0,
            acked: 0,
            newest: Time::ZERO,
            srtt_s: 0.0,
            decreased: None,
            recovery: None,
            round_end: Time::ZERO,
            last_sent: Time::ZERO,
            lost: 0,
            reported_lost: 0,
            is_app_limited: false,
        };
        Box::new(Bridge { state: Arc::new(Mutex::new(state)), initial_window })
    }
}

/// A path that continues another one ([`Controller::clone_box`]) continues its controller.
struct Bridge {
    state: Arc<Mutex<State>>,
    initial_window: u64,
}

struct State {
    control: CongestionControl,
    mtu: u16,
    /// Bytes in the network after the last ack, and those sent since.
    in_flight: u64,
    /// Bytes that the current ack acknowledges, and when the newest packet of them was sent.
    acked: u64,
    newest: Time,
    srtt_s: f64,
    /// When the window was decreased last; `None` after a packet was acknowledged that was sent later.
    decreased: Option<Time>,
    /// How the recovery that this began ends; `None`: it was for a mark.
    recovery: Option<Exit>,
    /// The round trip ends with the ack of a packet that was sent after this.
    round_end: Time,
    last_sent: Time,
    /// Bytes lost so far, and those of them that an ack has reported.
    lost: u64,
    reported_lost: u64,
    is_app_limited: bool,
    rate: Option<Rate>,
}

impl State {
    fn on_ack(&mut self, now: Time, sent: Time, bytes: u64, srtt: Duration) {
        self.acked += bytes;
        self.newest = self.newest.max(sent);
        self.srtt_s = srtt.as_secs_f64();
        if let Some(rate) = &mut self.rate {
            rate.on_delivered(now, sent, bytes);
        }
    }

    fn on_end_acks(&mut self, now: Time, in_flight: u64, app_limited: bool) {
        self.in_flight = in_flight;
        let (acked, newest) = (std::mem::take(&mut self.acked), self.newest);
        self.is_app_limited = app_limited;
        if acked == 0 {
            return;
        }
        let round_start = newest > self.round_end;
        if round_start {
            self.round_end = self.last_sent;
        }
        let is_app_limited = app_limited || self.control.limits_samples();
        let sample = AckSample {
            now,
            acked,
            srtt_s: self.srtt_s,
            window_limited: !app_limited,
            // The window grows in slow start after persistent congestion, as after a timeout.
            in_recovery: self.recovery == Some(Exit::Threshold),
            increase: None,
            rate: self.rate.as_mut().and_then(|rate| rate.sample(now, is_app_limited, self.lost)),
            rtt: Some(now - newest),
            round_start,
            in_flight,
            delivered: acked,
            lost: self.lost - std::mem::replace(&mut self.reported_lost, self.lost),
            // quinn-proto does not tell how many were marked.
            marked: 0,
        };
        self.control.on_ack(&sample);
        if self.decreased.is_some_and(|decreased| newest > decreased) {
            self.decreased = None;
            if let Some(exit) = self.recovery.take() {
                self.control.on_recovery_end(&sample, exit);
            }
        }
    }

    fn on_congestion_event(&mut self, now: Time, sent: Time, is_persistent: bool, lost_bytes: u64) {
        let (signal, recovery) = match lost_bytes {
            _ if is_persistent => (Signal::Timeout { again: false }, Some(Exit::Unchanged)),
            0 => (Signal::Mark, None),
            _ => (Signal::Duplicates, Some(Exit::Threshold)),
        };
        let flight = self.in_flight;
        self.in_flight = flight.saturating_sub(lost_bytes);
        self.lost += lost_bytes;
        let record = self.rate.as_ref().and_then(|rate| rate.records.get(&sent)).filter(|_| lost_bytes > 0);
        if let Some(&Record { tx_in_flight, lost, is_app_limited, .. }) = record {
            let lost = Lost { bytes: lost_bytes, tx_in_flight, lost: self.lost - lost, is_app_limited };
            self.control.on_lost(now, &lost);
        }
        if is_persistent || self.decreased.is_none_or(|decreased| sent > decreased) {
            self.control.on_loss(&Loss { now, signal, flight, in_flight: self.in_flight });
            (self.decreased, self.recovery) = (Some(now), recovery);
        }
    }
}

impl Bridge {
    fn with<R>(&self, call: impl FnOnce(&mut State) -> R) -> R {
        call(&mut self.state.lock().expect("no thread panics with it"))
    }
}

impl Controller for Bridge {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last_packet_number: u64) {
        self.with(|state| {
            let (now, outstanding) = (time(now), state.in_flight);
            let State { is_app_limited, srtt_s, lost, .. } = *state;
            state.control.on_sent(&Sent { now, bytes, outstanding, is_app_limited, srtt_s });
            state.in_flight += bytes;
            if let Some(rate) = &mut state.rate {
                rate.on_sent(now, outstanding, state.in_flight, lost);
            }
            state.last_sent = now;
        });
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, _app_limited: bool, rtt: &RttEstimator) {
        self.with(|state| state.on_ack(time(now), time(sent), bytes, rtt.get()));
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, _largest: Option<u64>) {
        self.with(|state| state.on_end_acks(time(now), in_flight, app_limited));
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent_congestion: bool, lost_bytes: u64) {
        self.with(|state| state.on_congestion_event(time(now), time(sent), is_persistent_congestion, lost_bytes));
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.with(|state| state.mtu = new_mtu);
    }

    /// At least two packets (RFC 9002 7.2): quinn-proto sends nothing into a window of one.
    fn window(&self) -> u64 {
        self.with(|state| (state.control.window() as u64).max(2 * u64::from(state.mtu)))
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        self.with(|state| {
            metrics.ssthresh = state.control.ssthresh().map(|ssthresh| ssthresh as u64);
            metrics.pacing_rate = state.control.pacing_rate().map(|rate| (rate * 8.0) as u64);
        });
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Bridge { state: self.state.clone(), initial_window: self.initial_window })
    }

    fn initial_window(&self) -> u64 {
        self.initial_window
    }

    fn into_any(self: Box<Bridge>) -> Box<dyn Any> {
        self
    }
}

/// How long the record of an instant at which packets were sent is kept.
const KEPT: Duration = Duration::from_secs(30);

/// Delivery rates (draft-ietf-ccwg-bbr 4.1), with a record for each instant at which packets were sent: quinn-proto
/// shows a controller when an acknowledged packet was sent, and not which one it was.
#[derive(Debug, Default)]
struct Rate {
    records: BTreeMap<Time, Record>,
    /// C.delivered, C.delivered_time, C.first_sent_time.
    delivered: u64,
    delivered_time: Time,
    first_sent_time: Time,
    is_app_limited: bool,
    /// When the newest packet was sent that the current ack acknowledges, with its record.
    newest: Option<(Time, Record)>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    delivered: u64,
    delivered_time: Time,
    first_sent_time: Time,
    is_app_limited: bool,
    /// Bytes in the network with the first packet of the instant, and bytes lost until then.
    tx_in_flight: u64,
    lost: u64,
}

impl Rate {
    fn on_sent(&mut self, now: Time, outstanding: u64, tx_in_flight: u64, lost: u64) {
        if outstanding == 0 {
            (self.first_sent_time, self.delivered_time) = (now, now);
        }
        let Rate { delivered, delivered_time, first_sent_time, is_app_limited, .. } = *self;
        let record = Record { delivered, delivered_time, first_sent_time, is_app_limited, tx_in_flight, lost };
        self.records.entry(now).or_insert(record);
    }

    fn on_delivered(&mut self, now: Time, sent: Time, bytes: u64) {
        self.delivered += bytes;
        self.delivered_time = now;
        if let Some(record) = self.records.get(&sent) {
            if self.newest.is_none_or(|(newest, _)| newest < sent) {
                self.newest = Some((sent, *record));
                self.first_sent_time = sent;
            }
        }
    }

    fn sample(&mut self, now: Time, is_app_limited: bool, lost: u64) -> Option<RateSample> {
        self.is_app_limited = is_app_limited;
        while self.records.first_key_value().is_some_and(|(sent, _)| *sent + KEPT < now) {
            self.records.pop_first();
        }
        let (sent, record) = self.newest.take()?;
        let interval = (sent - record.first_sent_time).max(now - record.delivered_time);
        let delivered = self.delivered - record.delivered;
        (interval > Duration::ZERO).then(|| RateSample {
            delivery_rate: delivered as f64 / interval.as_secs_f64(),
            interval,
            delivered,
            prior_delivered: record.delivered,
            total_delivered: self.delivered,
            tx_in_flight: record.tx_in_flight,
            lost: lost - record.lost,
            is_app_limited: record.is_app_limited,
            rtt: Some(now - sent),
        })
    }
}

#[cfg(test)]
mod tests {
    use backchannel_core::scenario::Options;
    use backchannel_stacks::config::stack_config;

    use super::*;
    use crate::clock::base_instant;

    fn ms(ms: u64) -> Instant {
        base_instant() + Duration::from_millis(ms)
    }

    /// Packets sent at 0 ms are lost for so long that one window is left, and one that was sent later is acknowledged.
    fn after_persistent_congestion(congestion: &str) -> u64 {
        let options = Options::from([("congestion".to_owned(), congestion.into())]);
        let config = Arc::new(stack_config("modern", &options).unwrap());
        let bridge = Arc::new(BridgeFactory(config)).build(ms(0), 1000).into_any();
        let mut bridge = bridge.downcast::<Bridge>().expect("the factory builds bridges");
        (0..10).for_each(|number| bridge.on_sent(ms(0), 1000, number));
        bridge.on_congestion_event(ms(900), ms(0), true, 10_000);
        bridge.on_sent(ms(1000), 1000, 10);
        bridge.with(|state| state.on_ack(time(ms(1040)), time(ms(1000)), 1000, Duration::from_millis(40)));
        bridge.on_end_acks(ms(1040), 0, false, Some(10));
        bridge.window()
    }

    /// BBR has its window back when the recovery ends. Reno's starts slowly from one packet.
    #[test]
    fn the_recovery_of_persistent_congestion_ends_with_an_ack_of_what_was_sent_after_it() {
        assert_eq!(["bbr", "bbr1"].map(|name| after_persistent_congestion(name) >= 10_000), [true; 2]);
        assert_eq!(after_persistent_congestion("reno"), 2000);
    }
}
