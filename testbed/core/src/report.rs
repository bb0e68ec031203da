//! A driver's report of one direction of a link: what it carried and, in real time, how late and how exactly.

use std::collections::BTreeMap;

use crate::event::{Event, EventKind, SenderState};
use crate::traits::Usage;
use serde_json::{json, Value};

/// Counts of one direction since the run began.
#[derive(Debug, Default)]
pub struct Direction {
    submitted: u64,
    delivered: u64,
    refused: u64,
    events: BTreeMap<&'static str, u64>,
    /// Nanoseconds between a packet's ideal departure and its write, saturating at 4.3 s.
    lateness: Vec<u32>,
    /// Ideal and real nanoseconds of the busy periods that were long enough to tell the rate.
    ideal_ns: u64,
    real_ns: u64,
    busy: Option<Busy>,
}

/// A period in which packets left back to back, between two of them that left on time: a stall of the machine at its
/// edge says nothing about the rate, and shows in the lateness.
#[derive(Debug, Clone, Copy)]
struct Busy {
    last_ideal_ns: u64,
    first_on_time: Option<(u64, u64)>,
    last_on_time: Option<(u64, u64)>,
}

/// How late a packet may be and still count as on time.
const ON_TIME_NS: u64 = 1_000_000;
/// A shorter busy period is no yardstick.
const YARDSTICK_NS: u64 = 250_000_000;

impl Busy {
    fn span(&self) -> (u64, u64) {
        match (self.first_on_time, self.last_on_time) {
            (Some(first), Some(last)) if last.0 - first.0 >= YARDSTICK_NS => (last.0 - first.0, last.1 - first.1),
            _ => (0, 0),
        }
    }
}

impl Direction {
    /// A packet has entered.
    pub fn submitted(&mut self) {
        self.submitted += 1;
    }

    /// A packet of `bytes` that should have left at `ideal_ns` was written at `real_ns`.
    pub fn delivered(&mut self, ideal_ns: u64, real_ns: u64, bytes: u32, rate_bps: Option<u64>, written: bool) {
        self.delivered += 1;
        self.refused += u64::from(!written);
        self.lateness.push(real_ns.saturating_sub(ideal_ns).min(u64::from(u32::MAX)) as u32);
        let Some(rate_bps) = rate_bps else { return };
        // Back to back: the gap is the packet's own time on the line, with room for framing.
        let longest = (u64::from(bytes) + 64) * 12_000_000_000 / rate_bps;
        if self.busy.is_none_or(|busy| ideal_ns.saturating_sub(busy.last_ideal_ns) > longest) {
            self.end_busy();
            self.busy = Some(Busy { last_ideal_ns: ideal_ns, first_on_time: None, last_on_time: None });
        }
        let Some(busy) = &mut self.busy else { return };
        busy.last_ideal_ns = ideal_ns;
        if real_ns.saturating_sub(ideal_ns) < ON_TIME_NS {
            busy.first_on_time.get_or_insert((ideal_ns, real_ns));
            busy.last_on_time = Some((ideal_ns, real_ns));
        }
    }

    /// A packet has come out on time, in virtual time.
    pub fn delivered_exactly(&mut self) {
        self.delivered += 1;
    }

    fn end_busy(&mut self) {
        if let Some(busy) = self.busy.take() {
            let (ideal_ns, real_ns) = busy.span();
            self.ideal_ns += ideal_ns;
            self.real_ns += real_ns;
        }
    }

    /// Something happened to a packet of this direction.
    pub fn happened(&mut self, event: &Event) {
        *self.events.entry(event.kind.name()).or_default() += 1;
    }

    /// Something happened to a sender in front of this direction; acks are not counted.
    pub fn told(&mut self, sender: &SenderState) {
        if sender.onto_link && sender.what != "ack" {
            *self.events.entry(sender.what).or_default() += 1;
        }
    }

    /// The report; `usage` is the link's own.
    pub fn json(&mut self, usage: Usage, rate_bps: Option<u64>) -> Value {
        self.lateness.sort_unstable();
        self.end_busy();
        let quantile = |q: f64| {
            let last = self.lateness.len().checked_sub(1)?;
            Some(f64::from(self.lateness[(last as f64 * q).round() as usize]) * 1e-9)
        };
        let rate_error = (self.real_ns > 0).then(|| self.ideal_ns as f64 / self.real_ns as f64 - 1.0);
        let mut report = json!({
            "rate_bps": rate_bps,
            "submitted_packets": self.submitted,
            "delivered_packets": self.delivered,
            "refused_by_interface": self.refused,
            "transmitted_packets": usage.packets,
            "transmitted_bytes": usage.bytes,
            "transmitted_wire_bytes": usage.line_bits / 8,
            "busy_s": usage.busy.as_secs_f64(),
            "rate_error": rate_error,
            "lateness_s": {"p50": quantile(0.5), "p99": quantile(0.99), "max": quantile(1.0)},
            "error_losses": self.events.get(EventKind::Lost.name()).copied().unwrap_or(0)
                + self.events.get(EventKind::Damaged.name()).copied().unwrap_or(0),
            "events": self.events,
        });
        if let Some(headers) = usage.headers {
            report["headers"] = json!(headers);
        }
        report
    }
}

/// `forward` from the first end, `reverse` from the second, `port-N` from further ends of a shared medium.
pub fn direction_name(port: usize) -> String {
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
        let mut constant = Direction::default();
        let mut growing = Direction::default();
        for i in 0..1000u64 {
            // 1500 bytes at 12 Mbit/s: one a millisecond.
            constant.delivered(i * 1_000_000, i * 1_000_000 + 50_000, 1500, rate, true);
            growing.delivered(i * 1_000_000, i * 1_000_900, 1500, rate, true);
        }
        let report = constant.json(Usage::default(), rate);
        assert_eq!(report["rate_error"], 0.0);
        assert_eq!(report["lateness_s"]["p99"], 5e-5);
        let error = growing.json(Usage::default(), rate)["rate_error"].as_f64().unwrap();
        assert!((error + 0.0009).abs() < 1e-5, "{error}");
    }

    #[test]
    fn a_stall_at_the_edge_shows_in_the_lateness_only() {
        let rate = Some(12_000_000);
        let mut direction = Direction::default();
        for i in 0..1000u64 {
            let stalled = if (980..1000).contains(&i) { 20_000_000 } else { 0 };
            direction.delivered(i * 1_000_000, i * 1_000_000 + stalled, 1500, rate, true);
        }
        let report = direction.json(Usage::default(), rate);
        assert_eq!(report["rate_error"], 0.0);
        assert_eq!(report["lateness_s"]["p99"], 0.02);
    }

    #[test]
    fn an_idle_gap_does_not_count() {
        let mut direction = Direction::default();
        direction.delivered(0, 0, 1500, Some(12_000_000), true);
        direction.delivered(1_000_000_000, 1_100_000_000, 1500, Some(12_000_000), true);
        assert!(direction.json(Usage::default(), None)["rate_error"].is_null());
    }
}
