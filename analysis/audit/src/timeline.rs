//! The timeline of a link: when each packet could leave at the earliest, when it left, and the rate between departures.

use backchannel_core::event::EventKind;
use backchannel_core::ip::IpVersion;
use backchannel_core::report::Lateness;
use backchannel_core::service_rate::ServiceRate;
use rustc_hash::FxHashSet;

use crate::direction::{Direction, DirectionAudit};
use crate::link_model::{LinkModel, Size};
use crate::pairs::Pairs;

/// A driver that writes a packet has by then read every packet that was sent to it this much earlier.
const READ_WITHIN_NS: i64 = 2_000_000;
/// Fewest packets whose least transit time is compared with the delay.
const LEAST_TRANSITS: usize = 20;
/// Shorter busy periods do not tell the lateness of their packets from the time of their first.
const LEAST_CHAIN: usize = 4;

/// A packet that the link served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Number of the packet that entered; `None` if an error model lost it.
    pub(crate) origin: Option<usize>,
    /// When it entered, or no later than this. `None`: unknown.
    pub(crate) entered_ns: Option<i64>,
    left_ns: i64,
    /// Its place among the others.
    place_ns: i64,
    pub(crate) service_ns: i64,
}

/// Measurements of one direction.
pub(crate) struct Timeline {
    pub(crate) slots: Vec<Slot>,
    /// When the link began to serve each slot, at the latest.
    pub(crate) starts_ns: Vec<i64>,
    rate: ServiceRate,
    /// Number and total service time of the slots by which the rate was measured.
    busy: (u32, i64),
    least_excess_ns: i64,
    late_ns: Vec<i64>,
}

/// Measures one direction.
pub(crate) fn measure(direction: &Direction<'_>, model: &LinkModel, pairs: &Pairs) -> Timeline {
    let slots = slots(direction, model, pairs);
    let mut timeline = Timeline {
        starts_ns: Vec::with_capacity(slots.len()),
        rate: ServiceRate::default(),
        busy: (0, 0),
        least_excess_ns: i64::MAX,
        late_ns: Vec::with_capacity(slots.len()),
        slots,
    };
    let earliest_ns = timeline.earliest_departures(model);
    let mut begin = 0;
    for end in 1..=timeline.slots.len() {
        let goes_on = end < timeline.slots.len()
            && model.rate_bps.is_some()
            && timeline.is_certainly_queued(end, earliest_ns[end - 1], direction.writes_ns);
        if !goes_on {
            timeline.add_chain(begin, end, model);
            begin = end;
        }
    }
    timeline
}

/// Every packet that the link served, in order. Those that an error model lost at its end used the link too.
fn slots(direction: &Direction<'_>, model: &LinkModel, pairs: &Pairs) -> Vec<Slot> {
    let begin_ns = direction.window.begin_ns;
    let delivered = pairs.pairs.iter().map(|&(out, origin)| Slot {
        origin: Some(origin),
        entered_ns: Some(direction.entered[origin].time_ns.max(begin_ns)),
        left_ns: pairs.without_jitter.left_ns[out],
        place_ns: pairs.without_jitter.place_ns[out],
        service_ns: model.service_ns(Size::from(&direction.entered[origin])),
    });
    // Events do not tell the version of IP, but acks of both seldom have one length.
    let of_ipv6 = direction.entered.iter().filter(|record| record.key.ip() == IpVersion::V6);
    let of_ipv6: FxHashSet<u32> = of_ipv6.map(|record| record.bytes).collect();
    let lost = direction.events.iter().enumerate().filter(|(_, event)| event.kind == EventKind::Lost).map(
        |(number, event)| {
            let compressible_ack = event.pure_ack && !of_ipv6.contains(&event.bytes);
            let size = Size { bytes: event.bytes, compressible: false, compressible_ack, options_bytes: 0 };
            let left_ns = pairs.without_jitter.lost_ns.get(&number).copied().unwrap_or(event.at_ns);
            Slot { origin: None, entered_ns: None, left_ns, place_ns: left_ns, service_ns: model.service_ns(size) }
        },
    );
    let mut slots: Vec<Slot> = delivered.chain(lost).collect();
    slots.sort_by_key(|slot| slot.place_ns);
    if model.is_fifo {
        let mut next = None;
        for slot in slots.iter_mut().rev() {
            slot.entered_ns = slot.entered_ns.or(next);
            next = slot.entered_ns;
        }
    }
    slots
}

impl Timeline {
    /// When each slot could leave the link at the earliest, delay excluded. Updates the least excess.
    fn earliest_departures(&mut self, model: &LinkModel) -> Vec<i64> {
        let mut free_ns = i64::MIN / 2;
        let mut earliest_ns = Vec::with_capacity(self.slots.len());
        for slot in &self.slots {
            if let (Some(entered_ns), true) = (slot.entered_ns, slot.origin.is_some()) {
                free_ns = free_ns.max(entered_ns) + slot.service_ns;
                self.least_excess_ns = self.least_excess_ns.min(slot.left_ns - model.delay_ns - free_ns);
            } else {
                free_ns += slot.service_ns;
            }
            earliest_ns.push(free_ns);
        }
        earliest_ns
    }

    /// Whether a slot's packet was in the queue when the slot before it ended, at the earliest at `ends_ns`. The driver
    /// must have read the packet: it has written another one since.
    fn is_certainly_queued(&self, slot: usize, ends_ns: i64, writes_ns: &[i64]) -> bool {
        let written = writes_ns.partition_point(|&at| at <= ends_ns);
        let last_write_ns = written.checked_sub(1).map(|last| writes_ns[last]);
        self.slots[slot]
            .entered_ns
            .zip(last_write_ns)
            .is_some_and(|(entered_ns, last_write_ns)| entered_ns + READ_WITHIN_NS <= last_write_ns)
    }

    /// Slots `begin..end` left back to back.
    fn add_chain(&mut self, begin: usize, end: usize, model: &LinkModel) {
        let chain = &self.slots[begin..end];
        let mut served_ns = 0;
        let mut offsets = Vec::with_capacity(chain.len());
        for slot in chain {
            served_ns += slot.service_ns;
            offsets.push(slot.left_ns - model.delay_ns - served_ns);
        }
        let observed = || chain.iter().zip(&offsets).filter(|(slot, _)| slot.origin.is_some());
        let base_ns = if observed().count() >= LEAST_CHAIN {
            self.busy = (self.busy.0 + chain.len() as u32, self.busy.1 + served_ns);
            let mut served_ns = 0;
            for slot in chain {
                served_ns += slot.service_ns;
                if slot.origin.is_some() {
                    self.rate.on_departure(served_ns, slot.left_ns);
                }
            }
            self.rate.end_period();
            observed().map(|(_, offset)| *offset).min().expect("it has packets")
        } else {
            // The link was idle, or its predecessor's end is as uncertain as this start.
            let before = begin
                .checked_sub(1)
                .filter(|_| model.rate_bps.is_some())
                .map(|before| self.slots[before].left_ns - model.delay_ns);
            chain[0].entered_ns.into_iter().chain(before).max().map_or(offsets[0], |start| start.min(offsets[0]))
        };
        let mut start_ns = base_ns;
        for (slot, offset) in chain.iter().zip(&offsets) {
            self.starts_ns.push(start_ns);
            start_ns += slot.service_ns;
            if slot.origin.is_some() {
                self.late_ns.push(offset - base_ns);
            }
        }
    }

    /// Mean service time of a packet in nanoseconds.
    pub(crate) fn mean_service_ns(&self) -> i64 {
        let total: i64 = self.slots.iter().map(|slot| slot.service_ns).sum();
        total.checked_div(self.slots.len() as i64).unwrap_or(0)
    }

    /// Writes the measurements into the audit.
    pub(crate) fn report(&self, model: &LinkModel, audit: &mut DirectionAudit) {
        let seconds = |ns: i64| ns as f64 * 1e-9;
        audit.rate_error = self.rate.error();
        audit.rate_measured_s = seconds(self.rate.measured_ns());
        match (model.rate_bps, audit.rate_error) {
            (None, _) => drop(audit.unchecked.insert("rate".into(), "the link only delays".into())),
            (_, None) => drop(audit.unchecked.insert("rate".into(), "the link was busy for less than 0.25 s".into())),
            (Some(rate_bps), Some(error)) => {
                let packet_bytes = seconds(self.busy.1) / f64::from(self.busy.0) * rate_bps as f64 / 8.0;
                audit.rate_error_bytes = Some(packet_bytes * (1.0 / (1.0 + error) - 1.0));
            }
        }
        let mut late_ns = self.late_ns.clone();
        late_ns.sort_unstable();
        if late_ns.len() >= LEAST_TRANSITS {
            audit.least_excess_s = Some(seconds(self.least_excess_ns));
        } else {
            audit.unchecked.insert("transit".into(), format!("fewer than {LEAST_TRANSITS} packets left"));
        }
        let quantile = |q: f64| {
            let last = late_ns.len().checked_sub(1)?;
            Some(seconds(late_ns[(last as f64 * q).round() as usize]))
        };
        audit.lateness_s = Lateness { p50: quantile(0.5), p99: quantile(0.99), max: quantile(1.0) };
    }
}
