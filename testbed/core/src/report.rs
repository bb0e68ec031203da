//! Reports of the drivers: what each direction of a link carried and, in real time, how late packets left and how exact
//! the rate was. `backchannel-node registry` exports these types as JSON Schema.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::event::{Event, EventCounts, EventKind, SenderEvent, SenderState};
use crate::service_rate::ServiceRate;
use crate::time::Time;
use crate::traits::{Backlog, Headers, Port, Usage};

/// Reports of all directions of one link: `forward`, `reverse`, `port-N`.
pub type LinkReport = BTreeMap<String, DirectionReport>;

/// One direction of a link over a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DirectionReport {
    /// Declared rate. Null for a line that only delays and, in real time, where a schedule changes the rate.
    #[schemars(extend("unit" = "bit/s"))]
    pub rate_bps: Option<u64>,
    /// Packets that entered the link.
    #[schemars(extend("unit" = "packet"))]
    pub submitted_packets: u64,
    /// Packets that came out.
    #[schemars(extend("unit" = "packet"))]
    pub delivered_packets: u64,
    /// Delivered packets that the interface did not accept, because it was down or full.
    #[schemars(extend("unit" = "packet"))]
    pub refused_by_interface: u64,
    /// Packets that the line serialised.
    #[schemars(extend("unit" = "packet"))]
    pub transmitted_packets: u64,
    /// Network-layer bytes of those packets.
    #[schemars(extend("unit" = "byte"))]
    pub transmitted_bytes: u64,
    /// Bytes of those packets on the line, framing included.
    #[schemars(extend("unit" = "byte"))]
    pub transmitted_wire_bytes: u64,
    /// Time the line was busy.
    #[schemars(extend("unit" = "s"))]
    pub busy_s: f64,
    /// How well the driver kept the link's timeline: achieved rate over declared rate, minus 1, of the second of a busy period
    /// that deviates most. Of all busy periods together if none lasts 1 s; null if they last less than 0.25 s.
    #[schemars(extend("unit" = "1"))]
    pub rate_error: Option<f64>,
    /// How long after their ideal time packets were written. Null in virtual time.
    pub lateness_s: Lateness,
    /// Packets lost or damaged by error models.
    #[schemars(extend("unit" = "packet"))]
    pub error_losses: u64,
    /// Number of events of each kind. Acks of senders inside the network are not counted.
    pub events: EventCounts,
    /// Header compression, where the line uses RFC 1144.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<Headers>,
    /// Real time only: frames that the kernel dropped before the emulator read them. Null when the interface is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("unit" = "packet"))]
    pub lost_before_the_link: Option<Option<u64>>,
}

/// A direction while it runs: counters since the start of the run, and its queue now.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DirectionStatus {
    /// Packets that entered.
    #[schemars(extend("unit" = "packet"))]
    pub submitted_packets: u64,
    /// Packets that left.
    #[schemars(extend("unit" = "packet"))]
    pub delivered_packets: u64,
    /// Network-layer bytes that the line serialised.
    #[schemars(extend("unit" = "B"))]
    pub transmitted_bytes: u64,
    /// Packets that wait.
    #[schemars(extend("unit" = "packet"))]
    pub queue_packets: u64,
    /// Bytes that wait.
    #[schemars(extend("unit" = "B"))]
    pub queue_bytes: u64,
    /// Number of events of each kind.
    pub events: EventCounts,
}

/// Quantiles of lateness in seconds. Null without a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Lateness {
    /// Median.
    #[schemars(extend("unit" = "s"))]
    pub p50: Option<f64>,
    /// 99th percentile.
    #[schemars(extend("unit" = "s"))]
    pub p99: Option<f64>,
    /// Maximum.
    #[schemars(extend("unit" = "s"))]
    pub max: Option<f64>,
}

/// What the driver counts of one direction since the start of the run.
#[derive(Debug, Default)]
pub struct DirectionStats {
    submitted: u64,
    delivered: u64,
    refused: u64,
    events: EventCounts,
    /// Nanoseconds between a packet's ideal departure and its write, saturating at 4.3 s.
    lateness_ns: Vec<u32>,
    rate: ServiceRate,
    /// Ideal departure of the last packet of the current busy period.
    last_ideal: Option<Time>,
    /// The record has ended: packets are counted, and no lateness is kept.
    is_closed: bool,
}

impl DirectionStats {
    /// Counts a packet that entered.
    pub fn on_submit(&mut self) {
        self.submitted += 1;
    }

    /// Counts a packet delivered in virtual time, which is never late.
    pub fn on_exact_delivery(&mut self) {
        self.delivered += 1;
    }

    /// Counts a packet of `bytes` that should have left at `ideal` and was written at `real`. `accepted`: whether the
    /// interface took it.
    pub fn on_delivery(&mut self, ideal: Time, real: Time, bytes: u32, rate_bps: Option<u64>, accepted: bool) {
        self.delivered += 1;
        self.refused += u64::from(!accepted);
        if self.is_closed {
            return;
        }
        let late_ns = real.nanos().saturating_sub(ideal.nanos());
        self.lateness_ns.push(late_ns.min(u64::from(u32::MAX)) as u32);
        let Some(rate_bps) = rate_bps else { return };
        // Back to back: the gap is at most the packet's own time on the line, with 64 bytes and half again for framing.
        let longest_gap_ns = (u64::from(bytes) + 64) * 12_000_000_000 / rate_bps;
        if self.last_ideal.is_some_and(|last| ideal.nanos().saturating_sub(last.nanos()) > longest_gap_ns) {
            self.rate.end_period();
        }
        self.last_ideal = Some(ideal);
        self.rate.on_departure(ideal.nanos() as i64, real.nanos() as i64);
    }

    /// Keeps no lateness and no rate from now on, so that a link can go on for days.
    pub fn close(&mut self) {
        *self = DirectionStats {
            submitted: self.submitted,
            delivered: self.delivered,
            refused: self.refused,
            events: std::mem::take(&mut self.events),
            is_closed: true,
            ..DirectionStats::default()
        };
    }

    /// The counters so far.
    pub fn so_far(&self, usage: Usage, backlog: Option<Backlog>) -> DirectionStatus {
        let queue = backlog.unwrap_or_default();
        DirectionStatus {
            submitted_packets: self.submitted,
            delivered_packets: self.delivered,
            transmitted_bytes: usage.bytes,
            queue_packets: queue.packets as u64,
            queue_bytes: queue.bytes,
            events: self.events.clone(),
        }
    }

    /// Counts an event of a packet of this direction.
    pub fn on_event(&mut self, event: &Event) {
        *self.events.entry(event.kind.name()).or_default() += 1;
    }

    /// Counts an event of a sender in front of this direction, except acks.
    pub fn on_sender(&mut self, state: &SenderState) {
        if state.onto_link && state.sample.event != SenderEvent::Ack {
            *self.events.entry(state.sample.event.name()).or_default() += 1;
        }
    }

    /// The report, with the link's own account of this direction.
    pub fn report(&mut self, usage: Usage, rate_bps: Option<u64>) -> DirectionReport {
        self.rate.end_period();
        let count = |kind: EventKind| self.events.get(kind.name()).copied().unwrap_or(0);
        DirectionReport {
            rate_bps,
            submitted_packets: self.submitted,
            delivered_packets: self.delivered,
            refused_by_interface: self.refused,
            transmitted_packets: usage.packets,
            transmitted_bytes: usage.bytes,
            transmitted_wire_bytes: usage.line_bits / 8,
            busy_s: usage.busy.as_secs_f64(),
            rate_error: self.rate.error(),
            error_losses: count(EventKind::Lost) + count(EventKind::Damaged),
            events: self.events.clone(),
            headers: usage.headers,
            lost_before_the_link: None,
            lateness_s: self.lateness(),
        }
    }

    fn lateness(&mut self) -> Lateness {
        self.lateness_ns.sort_unstable();
        let quantile = |q: f64| {
            let last = self.lateness_ns.len().checked_sub(1)?;
            Some(f64::from(self.lateness_ns[(last as f64 * q).round() as usize]) * 1e-9)
        };
        Lateness { p50: quantile(0.5), p99: quantile(0.99), max: quantile(1.0) }
    }
}

/// Name of the direction that enters at a link end: `forward` at the first, `reverse` at the second, `port-N` at further
/// ends of a shared medium.
pub fn direction_name(port: Port) -> String {
    match port {
        0 => "forward".into(),
        1 => "reverse".into(),
        more => format!("port-{more}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_lateness_is_no_rate_error_and_a_growing_one_is() {
        let rate = Some(12_000_000);
        let mut constant = DirectionStats::default();
        let mut growing = DirectionStats::default();
        for i in 0..10_000u64 {
            // 1500 bytes at 12 Mbit/s: one a millisecond.
            constant.on_delivery(Time(i * 1_000_000), Time(i * 1_000_000 + 50_000), 1500, rate, true);
            growing.on_delivery(Time(i * 1_000_000), Time(i * 1_006_000), 1500, rate, true);
        }
        let report = constant.report(Usage::default(), rate);
        assert_eq!(report.rate_error, Some(0.0));
        assert_eq!(report.lateness_s.p99, Some(5e-5));
        let error = growing.report(Usage::default(), rate).rate_error.unwrap();
        assert!((error + 0.006 / 1.006).abs() < 1e-6, "{error}");
    }

    #[test]
    fn an_idle_gap_does_not_count() {
        let mut direction = DirectionStats::default();
        direction.on_delivery(Time(0), Time(0), 1500, Some(12_000_000), true);
        direction.on_delivery(Time(1_000_000_000), Time(1_100_000_000), 1500, Some(12_000_000), true);
        assert!(direction.report(Usage::default(), None).rate_error.is_none());
    }
}
