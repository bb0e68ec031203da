//! Telemetry: what happens in links and senders during a run, one JSON object a line. `telemetry/links.jsonl` has
//! [`QueueLine`], [`EventLine`], [`JitterLine`] and [`SenderLine`]; `telemetry/FLOW.jsonl` has [`FlowLine`]. `backchannel-node registry`
//! exports their columns and units.

use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Serialize;

use crate::event::{Event, EventKind, JitterSample, SenderSample, SenderState};
use crate::time::Time;
use crate::traits::Backlog;

/// Least time between two [`QueueLine`]s of one queue, in nanoseconds.
const PERIOD_NS: u64 = 10_000_000;

/// Length of a queue. Written when it changed, at most every 10 ms per queue.
#[derive(Debug, Serialize, JsonSchema)]
pub struct QueueLine<'a> {
    /// Time since the start of the run.
    #[schemars(extend("unit" = "ns"))]
    pub t_ns: u64,
    /// Name of the link.
    pub link: &'a str,
    /// Direction in front of which the queue stands: `forward`, `reverse` or `port-N`.
    pub direction: &'a str,
    /// Packets waiting.
    #[schemars(extend("unit" = "packet"))]
    pub packets: usize,
    /// Network-layer bytes waiting.
    #[schemars(extend("unit" = "byte"))]
    pub bytes: u64,
    /// Greatest number of packets since the previous line.
    #[schemars(extend("unit" = "packet"))]
    pub max: usize,
}

/// An event of one packet.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventLine<'a> {
    /// Time since the start of the run.
    #[schemars(extend("unit" = "ns"))]
    pub t_ns: u64,
    /// Name of the link.
    pub link: &'a str,
    /// Direction in which the packet entered: `forward`, `reverse` or `port-N`.
    pub direction: &'a str,
    /// What happened.
    pub event: EventKind,
    /// Network-layer length of the packet.
    #[schemars(extend("unit" = "byte"))]
    pub bytes: u32,
    /// Whether the packet was a pure ack.
    pub pure_ack: bool,
}

/// A packet that arrived over a line with jitter.
#[derive(Debug, Serialize, JsonSchema)]
pub struct JitterLine<'a> {
    /// Arrival of its last bit, as time since the start of the run.
    #[schemars(extend("unit" = "ns"))]
    pub t_ns: u64,
    /// Name of the link.
    pub link: &'a str,
    /// Direction in which the packet entered: `forward`, `reverse` or `port-N`.
    pub direction: &'a str,
    /// Its delay minus the declared one.
    #[schemars(extend("unit" = "ns"))]
    pub jitter_ns: i64,
    /// Network-layer length of the packet.
    #[schemars(extend("unit" = "byte"))]
    pub bytes: u32,
    /// Checksum of its transport header.
    #[schemars(extend("unit" = "1"))]
    pub checksum: u16,
    /// Whether an error model lost it.
    pub lost: bool,
}

/// A sample of a TCP sender inside the network.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SenderLine<'a> {
    /// Time since the start of the run.
    #[schemars(extend("unit" = "ns"))]
    pub t_ns: u64,
    /// Name of the link.
    pub link: &'a str,
    /// Direction of the link end at which the sender runs: `forward`, `reverse` or `port-N`.
    pub direction: &'a str,
    /// Name of the part of the split connection.
    pub part: &'a str,
    /// Sending host, as ADDRESS:PORT.
    pub from: SocketAddr,
    /// Receiving host, as ADDRESS:PORT.
    pub to: SocketAddr,
    /// State of the sender.
    #[serde(flatten)]
    pub sample: SenderSample,
}

/// A sample of a host's sender.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FlowLine {
    /// Time since the start of the flow.
    #[schemars(extend("unit" = "ns"))]
    pub t_ns: u64,
    /// State of the sender.
    #[serde(flatten)]
    pub sample: SenderSample,
}

// Formatted by hand because serde_json writes whole floats as `1.0` and existing files have `1`.

impl fmt::Display for QueueLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QueueLine { t_ns, link, direction, packets, bytes, max } = self;
        write!(
            f,
            "{{\"t_ns\":{t_ns},\"link\":\"{link}\",\"direction\":\"{direction}\",\"packets\":{packets},\"bytes\":{bytes},\"max\":{max}}}"
        )
    }
}

impl fmt::Display for EventLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EventLine { t_ns, link, direction, event, bytes, pure_ack } = self;
        let event = event.name();
        write!(
            f,
            "{{\"t_ns\":{t_ns},\"link\":\"{link}\",\"direction\":\"{direction}\",\"event\":\"{event}\",\"bytes\":{bytes},\"pure_ack\":{pure_ack}}}"
        )
    }
}

impl fmt::Display for JitterLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JitterLine { t_ns, link, direction, jitter_ns, bytes, checksum, lost } = self;
        write!(
            f,
            "{{\"t_ns\":{t_ns},\"link\":\"{link}\",\"direction\":\"{direction}\",\"jitter_ns\":{jitter_ns},\"bytes\":{bytes},\"checksum\":{checksum},\"lost\":{lost}}}"
        )
    }
}

impl fmt::Display for SenderLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SenderLine { t_ns, link, direction, part, from, to, sample } = self;
        write!(
            f,
            "{{\"t_ns\":{t_ns},\"link\":\"{link}\",\"direction\":\"{direction}\",\"part\":\"{part}\",\"from\":\"{from}\",\"to\":\"{to}\",{sample}}}"
        )
    }
}

impl FlowLine {
    /// Appends the line and its end to `text`.
    pub fn append_to(&self, text: &mut String) {
        text.push_str("{\"t_ns\":");
        push_integer(text, self.t_ns);
        text.push(',');
        self.sample.append_to(text);
        text.push_str("}\n");
    }
}

impl SenderSample {
    fn append_to(&self, text: &mut String) {
        text.push_str("\"event\":\"");
        text.push_str(self.event.name());
        text.push_str("\",\"cwnd_segments\":");
        push_number(text, Some(self.cwnd_segments));
        text.push_str(",\"ssthresh_segments\":");
        push_number(text, self.ssthresh_segments);
        text.push_str(",\"outstanding_bytes\":");
        push_integer(text, self.outstanding_bytes);
        text.push_str(",\"rtt_s\":");
        push_number(text, self.rtt_s);
        text.push_str(",\"rto_s\":");
        push_number(text, Some(self.rto_s));
        text.push_str(",\"duplicate_acks\":");
        push_integer(text, u64::from(self.duplicate_acks));
        text.push_str(",\"burst_segments\":");
        push_integer(text, u64::from(self.burst_segments));
    }
}

impl fmt::Display for SenderSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.append_to(&mut text);
        f.write_str(&text)
    }
}

fn push_integer(text: &mut String, value: u64) {
    text.push_str(itoa::Buffer::new().format(value));
}

/// Appends a number as `Display` writes it: the shortest digits that read back as the number, without an exponent and
/// without a fraction if it is whole.
fn push_number(text: &mut String, value: Option<f64>) {
    match value {
        None => text.push_str("null"),
        // In this range zmij writes no exponent.
        Some(value) if value == 0.0 || (1e-4..1e15).contains(&value.abs()) => {
            let mut buffer = zmij::Buffer::new();
            let digits = buffer.format_finite(value);
            let digits = digits.strip_suffix(".0").unwrap_or(digits);
            let decimals = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
            // A number with one binary place more lies halfway between two shortest forms, and zmij may take the other.
            if binary_places(value) == decimals as i64 + 1 {
                text.push_str(&value.to_string());
            } else {
                text.push_str(digits);
            }
        }
        Some(value) => text.push_str(&value.to_string()),
    }
}

/// Binary places after the point of a normal number, which are also the decimal places of its exact value. Negative if
/// it is a multiple of a power of two above one.
fn binary_places(value: f64) -> i64 {
    let bits = value.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let fraction = bits & ((1 << 52) - 1);
    52 - exponent - i64::from(fraction.trailing_zeros().min(52))
}

/// The file `telemetry/links.jsonl`.
pub struct Telemetry {
    out: BufWriter<File>,
    failed: Option<String>,
}

/// What the last [`QueueLine`] of one queue reported.
#[derive(Debug, Default)]
pub(crate) struct QueueWatch {
    /// Time and number of packets.
    last: Option<(Time, usize)>,
    /// Greatest number of packets since then.
    max: usize,
}

impl QueueWatch {
    /// Reports the length of the queue. Returns the `max` of a line if one is due.
    #[inline]
    pub(crate) fn update(&mut self, now: Time, packets: usize) -> Option<usize> {
        self.max = self.max.max(packets);
        if let Some((at, last)) = self.last {
            let changed = packets != last || self.max != last;
            if !changed || now.nanos() < at.nanos() + PERIOD_NS {
                return None;
            }
        }
        self.last = Some((now, packets));
        Some(std::mem::replace(&mut self.max, packets))
    }
}

impl Telemetry {
    /// Creates the file.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &str) -> Result<Telemetry, String> {
        let file = File::create(path).map_err(|error| format!("cannot write telemetry to {path}: {error}"))?;
        Ok(Telemetry { out: BufWriter::with_capacity(1 << 18, file), failed: None })
    }

    /// Writes what waits in front of a direction; `max` is what [`QueueWatch::update`] returned.
    pub(crate) fn queue(&mut self, now: Time, link: &str, direction: &str, backlog: Backlog, max: usize) {
        let Backlog { packets, bytes } = backlog;
        self.write(QueueLine { t_ns: now.nanos(), link, direction, packets, bytes, max });
    }

    pub(crate) fn event(&mut self, link: &str, direction: &str, event: &Event) {
        let (t_ns, bytes, pure_ack) = (event.at.nanos(), event.len, event.pure_ack);
        self.write(EventLine { t_ns, link, direction, event: event.kind, bytes, pure_ack });
    }

    pub(crate) fn jitter(&mut self, link: &str, direction: &str, sample: &JitterSample) {
        let JitterSample { at, jitter_ns, len: bytes, checksum, lost, .. } = *sample;
        self.write(JitterLine { t_ns: at.nanos(), link, direction, jitter_ns, bytes, checksum, lost });
    }

    pub(crate) fn sender(&mut self, link: &str, direction: &str, state: &SenderState) {
        let SenderState { at, flow, part, sample, .. } = *state;
        let (from, to) = (SocketAddr::new(flow.src, flow.src_port), SocketAddr::new(flow.dst, flow.dst_port));
        self.write(SenderLine { t_ns: at.nanos(), link, direction, part, from, to, sample });
    }

    /// Flushes the file.
    ///
    /// # Errors
    /// Any write so far failed.
    pub fn finish(mut self) -> Result<(), String> {
        if let Err(error) = self.out.flush() {
            self.failed.get_or_insert(error.to_string());
        }
        self.failed.map_or(Ok(()), |why| Err(format!("telemetry could not be written: {why}")))
    }

    fn write(&mut self, line: impl fmt::Display) {
        if let Err(error) = writeln!(self.out, "{line}") {
            self.failed.get_or_insert(error.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SenderEvent;
    use proptest::prelude::*;
    use serde_json::Value;

    const SAMPLE: SenderSample = SenderSample {
        event: SenderEvent::Timeout,
        cwnd_segments: 1.5,
        ssthresh_segments: None,
        outstanding_bytes: 2800,
        rtt_s: Some(0.25),
        rto_s: 1.5,
        duplicate_acks: 2,
        burst_segments: 1,
    };

    /// The line as text must have the fields and values of the exported type.
    fn assert_same(line: &(impl Serialize + fmt::Display)) {
        let parsed: Value = serde_json::from_str(&line.to_string()).unwrap();
        assert_eq!(parsed, serde_json::to_value(line).unwrap());
    }

    #[test]
    fn lines_have_the_fields_of_their_types() {
        let (t_ns, link, direction) = (1_500_000_000, "air", "forward");
        assert_same(&QueueLine { t_ns, link, direction, packets: 3, bytes: 4500, max: 5 });
        assert_same(&EventLine { t_ns, link, direction, event: EventKind::Purged, bytes: 40, pure_ack: true });
        assert_same(&JitterLine { t_ns, link, direction, jitter_ns: -70, bytes: 40, checksum: 65_535, lost: true });
        let (from, to) = ("10.0.0.1:4000".parse().unwrap(), "10.0.0.2:5001".parse().unwrap());
        assert_same(&SenderLine { t_ns, link, direction, part: "wireless", from, to, sample: SAMPLE });
        let line = FlowLine { t_ns, sample: SAMPLE };
        let parsed: Value = serde_json::from_str(&text(&line)).unwrap();
        assert_eq!(parsed, serde_json::to_value(&line).unwrap());
    }

    fn text(line: &FlowLine) -> String {
        let mut text = String::new();
        line.append_to(&mut text);
        text
    }

    proptest! {
        #[test]
        fn numbers_are_written_as_display_writes_them(bits: u64, scaled in -1e4f64..1e4, whole in -1000i32..1000,
            places in 0i32..60) {
            let dyadic = f64::from(whole) + (scaled * 2f64.powi(places)).round() / 2f64.powi(places);
            for value in [f64::from_bits(bits), scaled, scaled * 1e-5, scaled * 1e14, f64::from(whole), dyadic] {
                let mut text = String::new();
                push_number(&mut text, Some(value));
                prop_assert_eq!(text, value.to_string());
            }
        }
    }

    #[test]
    fn numbers_between_two_shortest_forms_are_written_as_display_writes_them() {
        for places in 1..52 {
            for numerator in [1u64, 3, 5, 7, (1 << 51) + 1, (1 << 52) + 1, 7_238_907_361_832_922, 9_007_199_254_740_991]
            {
                let value = numerator as f64 / 2f64.powi(places);
                let mut text = String::new();
                push_number(&mut text, Some(value));
                assert_eq!(text, value.to_string());
            }
        }
    }

    #[test]
    fn whole_floats_have_no_fraction() {
        let line = FlowLine { t_ns: 7, sample: SenderSample { cwnd_segments: 1.0, ..SAMPLE } };
        assert_eq!(
            text(&line),
            r#"{"t_ns":7,"event":"coarse_timeout","cwnd_segments":1,"ssthresh_segments":null,"outstanding_bytes":2800,"rtt_s":0.25,"rto_s":1.5,"duplicate_acks":2,"burst_segments":1}
"#
        );
    }

    #[test]
    fn a_queue_line_is_due_after_a_change_and_a_period() {
        let mut watch = QueueWatch::default();
        let ms = |ms: u64| Time(ms * 1_000_000);
        assert_eq!(watch.update(ms(0), 0), Some(0));
        assert_eq!(watch.update(ms(1), 4), None);
        assert_eq!(watch.update(ms(11), 2), Some(4));
        assert_eq!(watch.update(ms(30), 2), None);
    }
}
