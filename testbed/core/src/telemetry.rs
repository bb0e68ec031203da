//! Telemetry: what happens in links and senders during a run, one JSON object a line. `telemetry/links.jsonl` has
//! [`QueueLine`], [`EventLine`], [`JitterLine`] and [`SenderLine`], and of links that the kernel shapes [`QueueLine`], [`CountLine`] and
//! [`ClassLine`], which agents write (agents/qdiscs.py); `telemetry/FLOW.jsonl` has [`FlowLine`]. `backchannel-node registry`
//! exports their columns and units.

mod numbers;

use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;

use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ResultExt};
use crate::event::{Event, EventKind, JitterSample, SenderSample, SenderState};
use crate::time::Time;
use crate::traits::Backlog;
use numbers::{push_integer, Number};

/// Least time between two [`QueueLine`]s of one queue, in nanoseconds.
const PERIOD_NS: u64 = 10_000_000;

/// Length of a queue. Written when it changed, at most every 10 ms per queue.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
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

/// Events of packets that a kernel's queueing discipline counted since its previous sample.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CountLine<'a> {
    /// Time of the sample since the start of the run.
    #[schemars(extend("unit" = "ns"))]
    pub t_ns: u64,
    /// Name of the link.
    pub link: &'a str,
    /// Direction in front of which the queue stands: `forward` or `reverse`.
    pub direction: &'a str,
    /// What happened.
    pub event: EventKind,
    /// To how many packets.
    #[schemars(extend("unit" = "packet"))]
    pub count: u64,
}

/// State of one class of a kernel's queueing discipline. Written when it changed, at most every 10 ms; a value that the discipline does
/// not have is absent.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClassLine<'a> {
    /// Time of the sample since the start of the run.
    #[schemars(extend("unit" = "ns"))]
    pub t_ns: u64,
    /// Name of the link.
    pub link: &'a str,
    /// Direction in front of which the queue stands: `forward` or `reverse`.
    pub direction: &'a str,
    /// `classic` and `l4s` of dualpi2, `tin-N` of cake, `all` where there are no classes.
    pub class: &'a str,
    /// Queueing delay: waiting time so far of the class's first packet (dualpi2), waiting time of the last packet sent (codel), as
    /// estimated (pie), moving average (cake).
    #[schemars(extend("unit" = "s"))]
    pub delay_s: Option<f64>,
    /// Probability with which an arriving packet is marked or dropped.
    #[schemars(extend("unit" = "1"))]
    pub probability: Option<f64>,
    /// Bytes waiting, without the packet in transmission.
    #[schemars(extend("unit" = "byte"))]
    pub waiting_bytes: Option<u64>,
    /// Packets that entered since the start of the run.
    #[schemars(extend("unit" = "packet"))]
    pub arrived_packets: Option<u64>,
    /// Packets dropped since the start of the run.
    #[schemars(extend("unit" = "packet"))]
    pub dropped_packets: Option<u64>,
    /// Packets marked since the start of the run.
    #[schemars(extend("unit" = "packet"))]
    pub marked_packets: Option<u64>,
    /// Packets among them that a threshold marked (dualpi2's step).
    #[schemars(extend("unit" = "packet"))]
    pub step_marked_packets: Option<u64>,
}

/// A packet that arrived over a line with jitter.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
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

/// A line of `telemetry/links.jsonl`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum LinkLine<'a> {
    /// What happened to a packet.
    #[serde(borrow)]
    Event(EventLine<'a>),
    /// A packet that crossed a line with jitter.
    Jitter(JitterLine<'a>),
    /// Any other line.
    Other(IgnoredAny),
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
    fn append_to(&self, text: &mut String, columns: &mut Columns) {
        text.push_str("{\"t_ns\":");
        push_integer(text, self.t_ns);
        text.push(',');
        self.sample.append_to(text, columns);
        text.push_str("}\n");
    }
}

/// The numbers of a sender's last sample. Most of them rarely change, and formatting one costs more than copying its text.
#[derive(Default)]
struct Columns {
    cwnd: Number,
    ssthresh: Number,
    rtt: Number,
    rto: Number,
}

impl SenderSample {
    fn append_to(&self, text: &mut String, columns: &mut Columns) {
        text.push_str("\"event\":\"");
        text.push_str(self.event.name());
        text.push_str("\",\"cwnd_segments\":");
        text.push_str(columns.cwnd.format(Some(self.cwnd_segments)));
        text.push_str(",\"ssthresh_segments\":");
        text.push_str(columns.ssthresh.format(self.ssthresh_segments));
        text.push_str(",\"outstanding_bytes\":");
        push_integer(text, self.outstanding_bytes);
        text.push_str(",\"rtt_s\":");
        text.push_str(columns.rtt.format(self.rtt_s));
        text.push_str(",\"rto_s\":");
        text.push_str(columns.rto.format(Some(self.rto_s)));
        text.push_str(",\"duplicate_acks\":");
        push_integer(text, u64::from(self.duplicate_acks));
        text.push_str(",\"burst_segments\":");
        push_integer(text, u64::from(self.burst_segments));
    }
}

impl fmt::Display for SenderSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.append_to(&mut text, &mut Columns::default());
        f.write_str(&text)
    }
}

/// The file `telemetry/links.jsonl`.
pub struct Telemetry {
    out: BufWriter<File>,
    failed: Option<String>,
}

/// A flow's lines are written to the file when they take this many bytes.
const FLOW_BYTES: usize = 1 << 15;

/// A file `telemetry/FLOW.jsonl`.
pub struct FlowTelemetry {
    file: File,
    lines: String,
    columns: Columns,
}

impl FlowTelemetry {
    /// Creates the file.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path) -> Result<FlowTelemetry, Error> {
        let file = File::create(path).or_system(format_args!("cannot write {}", path.display()))?;
        Ok(FlowTelemetry { file, lines: String::new(), columns: Columns::default() })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, line: &FlowLine) -> Result<(), Error> {
        line.append_to(&mut self.lines, &mut self.columns);
        if self.lines.len() < FLOW_BYTES {
            return Ok(());
        }
        self.flush()
    }

    /// Writes what is buffered to the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> Result<(), Error> {
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Error> {
        let written = self.file.write_all(self.lines.as_bytes());
        self.lines.clear();
        written.or_system("cannot write telemetry")
    }
}

/// What the last [`QueueLine`] of one queue reported.
#[derive(Debug)]
pub(crate) struct QueueWatch {
    /// Number of packets, if there were never more since; otherwise, and before the first line, more than any queue
    /// has. As long as the queue has that many, there is nothing to do.
    settled: usize,
    /// Greatest number of packets since then.
    max: usize,
    /// When the next line may be written.
    due_at: Time,
}

impl Default for QueueWatch {
    fn default() -> QueueWatch {
        QueueWatch { settled: usize::MAX, max: 0, due_at: Time::ZERO }
    }
}

impl QueueWatch {
    /// Reports the length of the queue. Returns the `max` of a line if one is due.
    #[inline(always)]
    pub(crate) fn update(&mut self, now: Time, packets: usize) -> Option<usize> {
        // Most queues do not change most of the time.
        if packets == self.settled {
            return None;
        }
        if packets > self.max {
            (self.settled, self.max) = (usize::MAX, packets);
        }
        if now < self.due_at {
            return None;
        }
        (self.settled, self.due_at) = (packets, Time(now.nanos() + PERIOD_NS));
        Some(std::mem::replace(&mut self.max, packets))
    }
}

impl Telemetry {
    /// Creates the file.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &str) -> Result<Telemetry, Error> {
        let file = File::create(path).or_system(format_args!("cannot write telemetry to {path}"))?;
        Ok(Telemetry { out: BufWriter::with_capacity(1 << 18, file), failed: None })
    }

    /// Writes what waits in front of a direction; `max` is what [`QueueWatch::update`] returned.
    #[cold]
    #[inline(never)]
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
    pub fn finish(mut self) -> Result<(), Error> {
        if let Err(error) = self.out.flush() {
            self.failed.get_or_insert(error.to_string());
        }
        self.failed.map_or(Ok(()), |why| Err(Error::System(format!("telemetry could not be written: {why}"))))
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

    #[test]
    fn lines_are_read_as_what_they_are() {
        let (t_ns, link, direction) = (7, "air", "forward");
        let event = EventLine { t_ns, link, direction, event: EventKind::DroppedFull, bytes: 40, pure_ack: true };
        let text = event.to_string();
        let read = serde_json::from_str(&text).unwrap();
        assert!(
            matches!(read, LinkLine::Event(EventLine { event: EventKind::DroppedFull, bytes: 40, .. })),
            "{read:?}"
        );
        let jitter = JitterLine { t_ns, link, direction, jitter_ns: -70, bytes: 40, checksum: 9, lost: true };
        let text = jitter.to_string();
        let read = serde_json::from_str(&text).unwrap();
        assert!(matches!(read, LinkLine::Jitter(JitterLine { jitter_ns: -70, lost: true, .. })), "{read:?}");
        let text = QueueLine { t_ns, link, direction, packets: 3, bytes: 4500, max: 5 }.to_string();
        assert!(matches!(serde_json::from_str(&text).unwrap(), LinkLine::Other(_)));
        assert!(serde_json::from_str::<LinkLine<'_>>("{").is_err());
    }

    fn text(line: &FlowLine) -> String {
        let mut text = String::new();
        line.append_to(&mut text, &mut Columns::default());
        text
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
        assert_eq!(watch.update(ms(12), 3), None);
        assert_eq!(watch.update(ms(22), 2), Some(3));
        assert_eq!(watch.update(ms(30), 2), None);
    }
}
