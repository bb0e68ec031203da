//! The fidelity report of one direction: what it carried, how late, how exactly.

use std::collections::BTreeMap;

use backchannel_core::event::{Event, EventKind};
use backchannel_core::traits::Usage;
use serde_json::{json, Value};

/// Counts of one direction since the run began.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    submitted: u64,
    delivered: u64,
    refused: u64,
    events: BTreeMap<&'static str, u64>,
    /// Nanoseconds between a packet's ideal departure and its write, saturating at 4.3 s.
    lateness: Vec<u32>,
    /// Ideal and real nanoseconds between packets that left back to back.
    ideal_ns: u64,
    real_ns: i64,
    last: Option<(u64, u64)>,
}

impl Direction {
    pub(crate) fn submitted(&mut self) {
        self.submitted += 1;
    }

    /// A packet of `bytes` that should have left at `ideal_ns` was written at `real_ns`.
    pub(crate) fn delivered(&mut self, ideal_ns: u64, real_ns: u64, bytes: u32, rate_bps: Option<u64>, written: bool) {
        self.delivered += 1;
        self.refused += u64::from(!written);
        self.lateness.push(real_ns.saturating_sub(ideal_ns).min(u64::from(u32::MAX)) as u32);
        if let (Some((last_ideal, last_real)), Some(rate_bps)) = (self.last, rate_bps) {
            // Back to back: the gap is the packet's own time on the line, with room for framing.
            let gap = ideal_ns.saturating_sub(last_ideal);
            if gap <= (u64::from(bytes) + 64) * 12_000_000_000 / rate_bps {
                self.ideal_ns += gap;
                self.real_ns += real_ns as i64 - last_real as i64;
            }
        }
        self.last = Some((ideal_ns, real_ns));
    }

    pub(crate) fn happened(&mut self, event: &Event) {
        *self.events.entry(event.kind.name()).or_default() += 1;
    }

    /// The report; `usage` is the link's own.
    pub(crate) fn json(&mut self, usage: Usage, rate_bps: Option<u64>) -> Value {
        self.lateness.sort_unstable();
        let quantile = |q: f64| {
            let last = self.lateness.len().checked_sub(1)?;
            Some(f64::from(self.lateness[(last as f64 * q).round() as usize]) * 1e-9)
        };
        let rate_error = (self.real_ns > 0).then(|| self.ideal_ns as f64 / self.real_ns as f64 - 1.0);
        json!({
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
        })
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
            growing.delivered(i * 1_000_000, i * 1_010_000, 1500, rate, true);
        }
        let report = constant.json(Usage::default(), rate);
        assert_eq!(report["rate_error"], 0.0);
        assert_eq!(report["lateness_s"]["p99"], 5e-5);
        let error = growing.json(Usage::default(), rate)["rate_error"].as_f64().unwrap();
        assert!((error + 0.0099).abs() < 1e-4, "{error}");
    }

    #[test]
    fn an_idle_gap_does_not_count() {
        let mut direction = Direction::default();
        direction.delivered(0, 0, 1500, Some(12_000_000), true);
        direction.delivered(1_000_000_000, 1_100_000_000, 1500, Some(12_000_000), true);
        assert!(direction.json(Usage::default(), None)["rate_error"].is_null());
    }
}
