//! Counters in bins of equal length, for runs that are too long or too fast for captures: per direction of a link the bytes
//! delivered and the queue length, per flow the bytes read and the sender's window. They are the second source of the
//! metrics in analysis.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use backchannel_core::event::SenderEvent;
use backchannel_core::ids::{FlowId, LinkId, Numbered};
use backchannel_core::packet::{Packet, Tcp, TransportHeader};
use backchannel_core::report::direction_name;
use backchannel_core::scenario::Counters as Spec;
use backchannel_core::time::Time;
use backchannel_core::traits::Port;
use backchannel_core::{Error, ResultExt};
use backchannel_stacks::Sample;
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::Serialize;

/// A step function over time, integrated bin by bin.
#[derive(Debug, Default)]
struct StepFunction {
    bins: Vec<f64>,
    value: f64,
    since: Time,
}

impl StepFunction {
    fn set(&mut self, now: Time, value: f64, bin_ns: u64) {
        let (mut from, to) = (self.since.nanos(), now.nanos());
        if self.value != 0.0 {
            while from < to {
                let bin = from / bin_ns;
                let until = ((bin + 1) * bin_ns).min(to);
                *at(&mut self.bins, bin) += self.value * (until - from) as f64 * 1e-9;
                from = until;
            }
        }
        (self.since, self.value) = (now, value);
    }

    /// Means over the bins, which have these lengths.
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

/// Counters of one direction of a link. Bins hold network-layer bytes.
#[derive(Debug, Default)]
struct Direction {
    data: Vec<u64>,
    acks: Vec<u64>,
    other: Vec<u64>,
    queue: StepFunction,
    data_packets: u64,
    data_payload: u64,
    /// Pure acks.
    ack_packets: u64,
    ack_packets_bytes: u64,
    /// Pure acks in the link: packet id to position among all that entered.
    acks_inside: FxHashMap<u64, u64>,
    acks_entered: u64,
    /// Position after that of the last ack that left, and the most in a row that did not leave.
    acks_left: u64,
    longest_lost_run: u64,
}

#[derive(Debug, Default)]
struct FlowTally {
    delivered: Vec<u64>,
    /// When the last byte was read.
    last: Time,
    timeouts: Vec<u64>,
    window: StepFunction,
    /// Round trips that the sender measured: number, sum, sum of squares.
    round_trips: u64,
    round_trips_s: f64,
    round_trips_squared_s2: f64,
    /// Data packets that reached the receiver's host: network-layer bytes, and payload.
    packet_bytes: u64,
    payload_bytes: u64,
}

/// The counters of a run.
#[derive(Debug)]
pub(crate) struct Counters {
    bin_ns: u64,
    /// Per link its directions; `None` for a link that is not counted.
    links: Numbered<LinkId, Option<Vec<Direction>>>,
    flows: Numbered<FlowId, FlowTally>,
}

impl Counters {
    /// `links`: name and number of ends of each. `spec` selects those to count.
    pub(crate) fn new(spec: &Spec, links: &[(&str, usize)], flows: usize) -> Counters {
        let counted = |name: &str| spec.at.is_empty() || spec.at.iter().any(|selected| selected == name);
        let directions = |ends: usize| (0..ends).map(|_| Direction::default()).collect();
        Counters {
            bin_ns: Time::from_seconds(spec.every_s).nanos().max(1),
            links: links.iter().map(|&(name, ends)| counted(name).then(|| directions(ends))).collect(),
            flows: (0..flows).map(|_| FlowTally::default()).collect(),
        }
    }

    /// A packet leaves a link that it entered at `port`.
    pub(crate) fn on_leave(&mut self, link: LinkId, port: Port, now: Time, packet: &Packet) {
        let Some(directions) = &mut self.links[link] else { return };
        let direction = &mut directions[usize::from(port)];
        if let Some(position) = direction.acks_inside.remove(&packet.id) {
            let lost = position.saturating_sub(direction.acks_left);
            direction.longest_lost_run = direction.longest_lost_run.max(lost);
            direction.acks_left = direction.acks_left.max(position + 1);
        }
        let bins = match packet.transport() {
            TransportHeader::Tcp(tcp) if tcp.payload > 0 => {
                direction.data_packets += 1;
                direction.data_payload += u64::from(tcp.payload);
                &mut direction.data
            }
            TransportHeader::Tcp(_) => {
                if packet.is_pure_ack() {
                    direction.ack_packets += 1;
                    direction.ack_packets_bytes += u64::from(packet.len());
                }
                &mut direction.acks
            }
            TransportHeader::Udp { .. } | TransportHeader::Other => &mut direction.other,
        };
        *at(bins, now.nanos() / self.bin_ns) += u64::from(packet.len());
    }

    /// A packet enters a link at `port`.
    pub(crate) fn on_enter(&mut self, link: LinkId, port: Port, packet: &Packet) {
        if let Some(directions) = &mut self.links[link] {
            if packet.is_pure_ack() {
                let direction = &mut directions[usize::from(port)];
                direction.acks_inside.insert(packet.id, direction.acks_entered);
                direction.acks_entered += 1;
            }
        }
    }

    /// Whether a link is counted.
    pub(crate) fn includes(&self, link: LinkId) -> bool {
        self.links[link].is_some()
    }

    /// From `now` on this many packets wait in front of `port`.
    pub(crate) fn on_queue_length(&mut self, link: LinkId, port: Port, now: Time, packets: usize) {
        if let Some(directions) = &mut self.links[link] {
            directions[usize::from(port)].queue.set(now, packets as f64, self.bin_ns);
        }
    }

    /// A packet of a flow reaches its receiver's host.
    pub(crate) fn on_segment(&mut self, flow: FlowId, packet: &Packet) {
        match packet.transport() {
            TransportHeader::Tcp(Tcp { payload, .. }) => self.on_arrival(flow, packet.len(), *payload),
            // What a packet of QUIC carries of a stream is known when it is read ([`Counters::on_stream_data`]).
            TransportHeader::Udp { .. } => self.flows[flow].packet_bytes += u64::from(packet.len()),
            TransportHeader::Other => {}
        }
    }

    /// The receiving application reads `bytes` of a stream of QUIC.
    pub(crate) fn on_stream_data(&mut self, flow: FlowId, bytes: u64) {
        self.flows[flow].payload_bytes += bytes;
    }

    /// A packet of `length` bytes with `payload` bytes of data arrives at the receiver of a flow.
    pub(crate) fn on_arrival(&mut self, flow: FlowId, length: u32, payload: u32) {
        if payload > 0 {
            self.flows[flow].packet_bytes += u64::from(length);
            self.flows[flow].payload_bytes += u64::from(payload);
        }
    }

    /// The receiving application reads `bytes`.
    pub(crate) fn on_read(&mut self, flow: FlowId, now: Time, bytes: u64) {
        if bytes > 0 {
            *at(&mut self.flows[flow].delivered, now.nanos() / self.bin_ns) += bytes;
            self.flows[flow].last = now;
        }
    }

    /// Samples of a sender; `mss` in bytes. If a flow has several connections at once, the latest sample counts.
    pub(crate) fn on_samples(&mut self, flow: FlowId, samples: &[Sample], mss: f64) {
        let of_flow = &mut self.flows[flow];
        for sample in samples {
            of_flow.window.set(sample.at, sample.cwnd / mss, self.bin_ns);
            if let (SenderEvent::Ack, Some(rtt)) = (sample.event, sample.rtt) {
                of_flow.round_trips += 1;
                of_flow.round_trips_s += rtt.as_secs_f64();
                of_flow.round_trips_squared_s2 += rtt.as_secs_f64().powi(2);
            }
            if sample.event == SenderEvent::Timeout {
                *at(&mut of_flow.timeouts, sample.at.nanos() / self.bin_ns) += 1;
            }
        }
    }

    /// Closes the bins at the end of the run.
    pub(crate) fn finish(mut self, end: Time, links: &[&str], flows: &[&str]) -> CountersFile {
        let bins = end.nanos().div_ceil(self.bin_ns).max(1);
        let start = |bin: u64| bin * self.bin_ns;
        let lengths: Vec<f64> =
            (0..bins).map(|bin| (start(bin + 1).min(end.nanos()) - start(bin)).max(1) as f64 * 1e-9).collect();
        let mut file = CountersFile {
            every_s: self.bin_ns as f64 * 1e-9,
            end_s: end.seconds(),
            links: BTreeMap::new(),
            flows: BTreeMap::new(),
        };
        for (name, directions) in links.iter().zip(self.links.iter_mut()) {
            let Some(directions) = directions else { continue };
            for direction in &mut *directions {
                direction.queue.set(end, 0.0, self.bin_ns);
            }
            let counters = directions.iter().enumerate();
            let counters = counters.map(|(port, of)| (direction_name(port as Port), of.counters(&lengths)));
            file.links.insert((*name).to_owned(), counters.collect());
        }
        for (name, flow) in flows.iter().zip(self.flows.iter_mut()) {
            flow.window.set(end, 0.0, self.bin_ns);
            file.flows.insert((*name).to_owned(), flow.counters(&lengths));
        }
        file
    }
}

impl CountersFile {
    /// Writes `counters.json`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_value(self).expect("numbers and texts are JSON").to_string();
        fs::write(path, text).or_system(format_args!("cannot write {}", path.display()))
    }
}

/// Adds zeros for the bins after the last one used.
fn padded(bins: &[u64], lengths_s: &[f64]) -> Vec<u64> {
    (0..lengths_s.len()).map(|bin| bins.get(bin).copied().unwrap_or(0)).collect()
}

impl Direction {
    fn counters(&self, lengths_s: &[f64]) -> DirectionCounters {
        DirectionCounters {
            data_bytes: padded(&self.data, lengths_s),
            ack_bytes: padded(&self.acks, lengths_s),
            other_bytes: padded(&self.other, lengths_s),
            queue_packets: self.queue.means(lengths_s),
            data_packets: self.data_packets,
            data_payload_bytes: self.data_payload,
            ack_packets: self.ack_packets,
            ack_packets_bytes: self.ack_packets_bytes,
            longest_lost_run_of_acks: self.longest_lost_run,
        }
    }
}

impl FlowTally {
    fn counters(&self, lengths_s: &[f64]) -> FlowCounters {
        FlowCounters {
            delivered_bytes: padded(&self.delivered, lengths_s),
            last_s: self.last.seconds(),
            coarse_timeouts: padded(&self.timeouts, lengths_s),
            cwnd_segments: self.window.means(lengths_s),
            round_trips: self.round_trips,
            round_trips_s: self.round_trips_s,
            round_trips_squared_s2: self.round_trips_squared_s2,
            packet_bytes: self.packet_bytes,
            payload_bytes: self.payload_bytes,
        }
    }
}

/// The file `counters.json`. Arrays have one value per bin.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CountersFile {
    /// Length of a bin.
    #[schemars(extend("unit" = "s"))]
    pub every_s: f64,
    /// End of the run, and of the last bin, which may be shorter.
    #[schemars(extend("unit" = "s"))]
    pub end_s: f64,
    /// Directions of each counted link, by name of the link.
    pub links: BTreeMap<String, BTreeMap<String, DirectionCounters>>,
    /// Flows by name.
    pub flows: BTreeMap<String, FlowCounters>,
}

/// Counters of one direction of a link. Bytes and packets are those of the network layer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DirectionCounters {
    /// TCP packets with data delivered, per bin.
    #[schemars(extend("unit" = "byte"))]
    pub data_bytes: Vec<u64>,
    /// TCP packets without data delivered, per bin.
    #[schemars(extend("unit" = "byte"))]
    pub ack_bytes: Vec<u64>,
    /// All other packets delivered, per bin.
    #[schemars(extend("unit" = "byte"))]
    pub other_bytes: Vec<u64>,
    /// Mean queue length, per bin.
    #[schemars(extend("unit" = "packet"))]
    pub queue_packets: Vec<f64>,
    /// TCP packets with data delivered.
    #[schemars(extend("unit" = "packet"))]
    pub data_packets: u64,
    /// Their payload.
    #[schemars(extend("unit" = "byte"))]
    pub data_payload_bytes: u64,
    /// Pure acks delivered.
    #[schemars(extend("unit" = "packet"))]
    pub ack_packets: u64,
    /// Their network-layer bytes.
    #[schemars(extend("unit" = "byte"))]
    pub ack_packets_bytes: u64,
    /// Most pure acks in a row that entered and did not leave.
    #[schemars(extend("unit" = "packet"))]
    pub longest_lost_run_of_acks: u64,
}

/// Counters of one flow.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FlowCounters {
    /// Payload that the receiving application read, per bin.
    #[schemars(extend("unit" = "byte"))]
    pub delivered_bytes: Vec<u64>,
    /// When the last byte was read, since the start of the run; 0 without a byte.
    #[schemars(extend("unit" = "s"))]
    pub last_s: f64,
    /// Expirations of the sender's retransmission timer, per bin.
    pub coarse_timeouts: Vec<u64>,
    /// Mean congestion window, per bin.
    #[schemars(extend("unit" = "segment"))]
    pub cwnd_segments: Vec<f64>,
    /// Round trips that the sender measured.
    pub round_trips: u64,
    /// Their sum.
    #[schemars(extend("unit" = "s"))]
    pub round_trips_s: f64,
    /// Sum of their squares.
    #[schemars(extend("unit" = "s^2"))]
    pub round_trips_squared_s2: f64,
    /// Data packets that reached the receiver's host, headers included.
    #[schemars(extend("unit" = "byte"))]
    pub packet_bytes: u64,
    /// Their payload.
    #[schemars(extend("unit" = "byte"))]
    pub payload_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::ids::Id;
    use backchannel_core::packet::build::{ack, data, udp};
    use serde_json::{json, Value};

    #[test]
    fn a_level_that_spans_bins_counts_in_each_by_its_time() {
        let mut level = StepFunction::default();
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
            counters.on_enter(LinkId::new(0), 1, ack);
        }
        for through in [0, 3, 5] {
            counters.on_leave(LinkId::new(0), 1, Time(10), &acks[through]);
        }
        assert_eq!(counters.links[LinkId::new(0)].as_ref().unwrap()[1].longest_lost_run, 2);
    }

    #[test]
    fn packets_are_told_apart_and_the_last_bin_may_be_shorter() {
        let spec = Spec { every_s: 1.0, at: vec!["a".into()] };
        let mut counters = Counters::new(&spec, &[("a", 2), ("b", 2)], 1);
        counters.on_leave(LinkId::new(0), 0, Time(100), &data(1, 960));
        counters.on_leave(LinkId::new(0), 0, Time(1_100_000_000), &ack(7));
        counters.on_leave(LinkId::new(0), 1, Time(1_100_000_000), &udp(3, 100));
        counters.on_leave(LinkId::new(1), 0, Time(5), &data(2, 960));
        counters.on_read(FlowId::new(0), Time(1_000_000_000), 960);
        let path = std::env::temp_dir().join(format!("backchannel-counters-{}.json", std::process::id()));
        counters.finish(Time(1_500_000_000), &["a", "b"], &["f"]).write(&path).unwrap();
        let written: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(written["links"]["a"]["forward"]["data_bytes"], json!([1000, 0]));
        assert_eq!(written["links"]["a"]["forward"]["ack_bytes"], json!([0, 40]));
        assert_eq!(written["links"]["a"]["reverse"]["other_bytes"], json!([0, 128]));
        assert!(written["links"].get("b").is_none());
        assert_eq!(written["flows"]["f"]["delivered_bytes"], json!([0, 960]));
    }
}
