//! What passed, in bins of equal length: for each direction of a link the bytes that came out of it and the packets that
//! waited before it, for each flow what arrived and the sender's window. A long or fast run that keeps no captures is measured
//! by these (analysis/counters.py).

use std::fs;
use std::path::Path;

use backchannel_core::packet::{Packet, Transport};
use backchannel_core::report::direction_name;
use backchannel_core::scenario::Counters as Spec;
use backchannel_core::time::Time;
use backchannel_stacks::{Sample, SenderEvent};
use rustc_hash::FxHashMap;
use serde_json::{json, Map, Value};

/// The integral of a step function over time, bin by bin.
#[derive(Debug, Default)]
struct Level {
    bins: Vec<f64>,
    value: f64,
    since: Time,
}

impl Level {
    fn set(&mut self, now: Time, value: f64, every: u64) {
        let (mut from, to) = (self.since.nanos(), now.nanos());
        if self.value != 0.0 {
            while from < to {
                let bin = from / every;
                let until = ((bin + 1) * every).min(to);
                *at(&mut self.bins, bin) += self.value * (until - from) as f64 * 1e-9;
                from = until;
            }
        }
        (self.since, self.value) = (now, value);
    }

    /// Means over the bins.
    fn means(&self, lengths_s: &[f64]) -> Vec<f64> {
        lengths_s
            .iter()
            .enumerate()
            .map(|(bin, length_s)| self.bins.get(bin).copied().unwrap_or(0.0) / length_s)
            .collect()
    }
}

fn at<T: Default + Clone>(bins: &mut Vec<T>, bin: u64) -> &mut T {
    let bin = bin as usize;
    if bins.len() <= bin {
        bins.resize(bin + 1, T::default());
    }
    &mut bins[bin]
}

/// Network-layer bytes by what they are, and the queue.
#[derive(Debug, Default)]
struct Direction {
    data: Vec<u64>,
    acks: Vec<u64>,
    other: Vec<u64>,
    queue: Level,
    data_packets: u64,
    data_payload: u64,
    /// Pure acks, and their bytes.
    ack_packets: u64,
    ack_packets_bytes: u64,
    /// Pure acks on their way through: packet number to place among those that entered.
    acks_inside: FxHashMap<u64, u64>,
    acks_entered: u64,
    /// Place after that of the last one that came out, and the most in a row that did not.
    acks_through: u64,
    longest_lost_run: u64,
}

#[derive(Debug, Default)]
struct Flow {
    delivered: Vec<u64>,
    /// When the last of it came.
    last: Time,
    timeouts: Vec<u64>,
    window: Level,
    /// Round trips that the sender measured: how many, their sum in seconds and that of their squares.
    round_trips: u64,
    round_trips_s: f64,
    round_trips_squared_s2: f64,
    /// Data packets that reached the receiver, whole and their payload.
    packet_bytes: u64,
    payload_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Counters {
    every: u64,
    /// Per link, if it is counted: its directions.
    lines: Vec<Option<Vec<Direction>>>,
    flows: Vec<Flow>,
}

impl Counters {
    /// `links`: name and number of ends of each. Counted are those that `spec` names, or all.
    pub(crate) fn new(spec: &Spec, links: &[(&str, usize)], flows: usize) -> Counters {
        let counted = |name: &str| spec.at.is_empty() || spec.at.iter().any(|one| one == name);
        let directions = |ends: usize| (0..ends).map(|_| Direction::default()).collect();
        Counters {
            every: Time::from_seconds(spec.every_s).nanos().max(1),
            lines: links.iter().map(|&(name, ends)| counted(name).then(|| directions(ends))).collect(),
            flows: (0..flows).map(|_| Flow::default()).collect(),
        }
    }

    /// A packet came out of a link that it had entered at `port`.
    pub(crate) fn passed(&mut self, line: usize, port: usize, now: Time, packet: &Packet) {
        let Some(directions) = &mut self.lines[line] else { return };
        let direction = &mut directions[port];
        if let Some(place) = direction.acks_inside.remove(&packet.id) {
            let lost = place.saturating_sub(direction.acks_through);
            direction.longest_lost_run = direction.longest_lost_run.max(lost);
            direction.acks_through = direction.acks_through.max(place + 1);
        }
        let bins = match packet.transport() {
            Transport::Tcp(tcp) if tcp.payload > 0 => {
                direction.data_packets += 1;
                direction.data_payload += u64::from(tcp.payload);
                &mut direction.data
            }
            Transport::Tcp(_) => {
                if packet.is_pure_ack() {
                    direction.ack_packets += 1;
                    direction.ack_packets_bytes += u64::from(packet.len());
                }
                &mut direction.acks
            }
            Transport::Udp { .. } | Transport::Other => &mut direction.other,
        };
        *at(bins, now.nanos() / self.every) += u64::from(packet.len());
    }

    /// A packet enters a link at `port`.
    pub(crate) fn entered(&mut self, line: usize, port: usize, packet: &Packet) {
        if let Some(directions) = &mut self.lines[line] {
            if packet.is_pure_ack() {
                let direction = &mut directions[port];
                direction.acks_inside.insert(packet.id, direction.acks_entered);
                direction.acks_entered += 1;
            }
        }
    }

    /// Whether a link is counted.
    pub(crate) fn watches(&self, line: usize) -> bool {
        self.lines[line].is_some()
    }

    /// So many packets wait before `port` from now on.
    pub(crate) fn queue(&mut self, line: usize, port: usize, now: Time, packets: usize) {
        if let Some(directions) = &mut self.lines[line] {
            directions[port].queue.set(now, packets as f64, self.every);
        }
    }

    /// A packet of a flow reached its receiver's host.
    pub(crate) fn arrived(&mut self, flow: usize, packet: &Packet) {
        let (Transport::Tcp(backchannel_core::packet::Tcp { payload, .. }) | Transport::Udp { payload }) =
            packet.transport()
        else {
            return;
        };
        if *payload > 0 {
            self.flows[flow].packet_bytes += u64::from(packet.len());
            self.flows[flow].payload_bytes += u64::from(*payload);
        }
    }

    /// The receiving application got `bytes` more.
    pub(crate) fn delivered(&mut self, flow: usize, now: Time, bytes: u64) {
        if bytes > 0 {
            *at(&mut self.flows[flow].delivered, now.nanos() / self.every) += bytes;
            self.flows[flow].last = now;
        }
    }

    /// What a sender tells of itself; `mss` in bytes. Of a flow with several connections at once, whoever spoke last counts.
    pub(crate) fn sender(&mut self, flow: usize, samples: &[Sample], mss: f64) {
        let of_flow = &mut self.flows[flow];
        for sample in samples {
            of_flow.window.set(sample.at, sample.cwnd / mss, self.every);
            if let (SenderEvent::Ack, Some(rtt)) = (sample.event, sample.rtt) {
                of_flow.round_trips += 1;
                of_flow.round_trips_s += rtt.as_secs_f64();
                of_flow.round_trips_squared_s2 += rtt.as_secs_f64().powi(2);
            }
            if sample.event == SenderEvent::Timeout {
                *at(&mut of_flow.timeouts, sample.at.nanos() / self.every) += 1;
            }
        }
    }

    /// Closes the bins at the run's end and writes them.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn write(mut self, end: Time, links: &[&str], flows: &[&str], path: &Path) -> Result<(), String> {
        let bins = end.nanos().div_ceil(self.every).max(1);
        let start = |bin: u64| bin * self.every;
        let lengths: Vec<f64> =
            (0..bins).map(|bin| (start(bin + 1).min(end.nanos()) - start(bin)).max(1) as f64 * 1e-9).collect();
        let padded =
            |bins: &[u64]| -> Vec<u64> { (0..lengths.len()).map(|bin| bins.get(bin).copied().unwrap_or(0)).collect() };
        let (mut by_link, mut by_flow) = (Map::new(), Map::new());
        for (name, directions) in links.iter().zip(&mut self.lines) {
            let Some(directions) = directions else { continue };
            let mut of_link = Map::new();
            for (port, direction) in directions.iter_mut().enumerate() {
                direction.queue.set(end, 0.0, self.every);
                let value: Value = json!({
                    "data_bytes": padded(&direction.data),
                    "ack_bytes": padded(&direction.acks),
                    "other_bytes": padded(&direction.other),
                    "queue_packets": direction.queue.means(&lengths),
                    "data_packets": direction.data_packets,
                    "data_payload_bytes": direction.data_payload,
                    "ack_packets": direction.ack_packets,
                    "ack_packets_bytes": direction.ack_packets_bytes,
                    "longest_lost_run_of_acks": direction.longest_lost_run,
                });
                of_link.insert(direction_name(port), value);
            }
            by_link.insert((*name).to_owned(), of_link.into());
        }
        for (name, flow) in flows.iter().zip(&mut self.flows) {
            flow.window.set(end, 0.0, self.every);
            by_flow.insert(
                (*name).to_owned(),
                json!({
                    "delivered_bytes": padded(&flow.delivered),
                    "last_s": flow.last.seconds(),
                    "coarse_timeouts": padded(&flow.timeouts),
                    "cwnd_segments": flow.window.means(&lengths),
                    "round_trips": flow.round_trips,
                    "round_trips_s": flow.round_trips_s,
                    "round_trips_squared_s2": flow.round_trips_squared_s2,
                    "packet_bytes": flow.packet_bytes,
                    "payload_bytes": flow.payload_bytes,
                }),
            );
        }
        let whole =
            json!({"every_s": self.every as f64 * 1e-9, "end_s": end.seconds(), "links": by_link, "flows": by_flow});
        fs::write(path, whole.to_string()).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::{ack, data, udp};

    #[test]
    fn a_level_that_spans_bins_counts_in_each_by_its_time() {
        let mut level = Level::default();
        level.set(Time(500_000_000), 4.0, 1_000_000_000);
        level.set(Time(2_250_000_000), 0.0, 1_000_000_000);
        assert_eq!(level.bins, [2.0, 4.0, 1.0]);
        assert_eq!(level.means(&[1.0, 1.0, 0.5, 1.0]), [2.0, 4.0, 2.0, 0.0]);
    }

    #[test]
    fn acks_that_never_come_out_are_counted_in_runs() {
        let spec = Spec { every_s: 1.0, at: Vec::new() };
        let mut counters = Counters::new(&spec, &[("a", 2)], 1);
        let acks: Vec<Packet> = (1..=6).map(ack).collect();
        for ack in &acks {
            counters.entered(0, 1, ack);
        }
        for through in [0, 3, 5] {
            counters.passed(0, 1, Time(10), &acks[through]);
        }
        assert_eq!(counters.lines[0].as_ref().unwrap()[1].longest_lost_run, 2);
    }

    #[test]
    fn packets_are_told_apart_and_the_last_bin_may_be_shorter() {
        let spec = Spec { every_s: 1.0, at: vec!["a".into()] };
        let mut counters = Counters::new(&spec, &[("a", 2), ("b", 2)], 1);
        counters.passed(0, 0, Time(100), &data(1, 960));
        counters.passed(0, 0, Time(1_100_000_000), &ack(7));
        counters.passed(0, 1, Time(1_100_000_000), &udp(3, 100));
        counters.passed(1, 0, Time(5), &data(2, 960));
        counters.delivered(0, Time(1_000_000_000), 960);
        let path = std::env::temp_dir().join(format!("backchannel-counters-{}.json", std::process::id()));
        counters.write(Time(1_500_000_000), &["a", "b"], &["f"], &path).unwrap();
        let written: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(written["links"]["a"]["forward"]["data_bytes"], json!([1000, 0]));
        assert_eq!(written["links"]["a"]["forward"]["ack_bytes"], json!([0, 40]));
        assert_eq!(written["links"]["a"]["reverse"]["other_bytes"], json!([0, 128]));
        assert!(written["links"].get("b").is_none());
        assert_eq!(written["flows"]["f"]["delivered_bytes"], json!([0, 960]));
    }
}
