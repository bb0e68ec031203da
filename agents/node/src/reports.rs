//! Reports of the traffic programs, one JSON object each on standard output. `backchannel-node registry` exports their schemas.

use std::io::{ErrorKind, Write};

use backchannel_core::report::Lateness;
use backchannel_core::{Error, ResultExt};
use schemars::JsonSchema;
use serde::Serialize;

/// Report of `load send`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LoadSendReport {
    /// Bytes of data over all connections or packets: those that the kernel accepted for sending, or that the research
    /// stack's peer acknowledged.
    #[schemars(extend("unit" = "byte"))]
    pub bytes: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Time between the requested and the actual start.
    #[schemars(extend("unit" = "s"))]
    pub started_late_s: f64,
    #[serde(flatten)]
    pub transport: TransportReport,
}

/// Report of `load receive`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LoadReceiveReport {
    /// Bytes of data that arrived.
    #[schemars(extend("unit" = "byte"))]
    pub bytes: u64,
    /// Whether every byte of a connection is the sender's.
    pub payload_ok: bool,
    /// A workload of connections.
    #[serde(flatten)]
    pub streams: Option<StreamsReport>,
    #[serde(flatten)]
    pub transport: TransportReport,
}

/// Connections of a receiving program.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StreamsReport {
    /// Whether there was a connection.
    pub connected: bool,
    /// How the connection ended that ended last.
    pub end: ReceiveEnd,
    /// A single connection: BLAKE3 hash of the bytes that arrived, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
    /// Arrival of the first byte on CLOCK_MONOTONIC. Null without a byte.
    #[schemars(extend("unit" = "ns"))]
    pub first_monotonic_ns: Option<u64>,
    /// Arrival of the last byte on CLOCK_MONOTONIC. Null without a byte.
    #[schemars(extend("unit" = "ns"))]
    pub last_monotonic_ns: Option<u64>,
}

/// What the TCP of a program reports of itself.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct TransportReport {
    /// The kernel's TCP, a single connection: BLAKE3 hash of the bytes that were sent, in hexadecimal.
    #[serde(rename = "blake3", skip_serializing_if = "Option::is_none")]
    pub sent_blake3: Option<String>,
    /// The kernel's TCP: the connection that ended last, at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_info: Option<TcpInfo>,
    /// QUIC: names of the qlog files, one a connection.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub qlogs: Vec<String>,
    /// The research stack.
    #[serde(flatten)]
    pub stack: Option<StackReport>,
}

/// What the connections of the research stack counted, and how promptly it worked.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StackReport {
    /// Segments sent, retransmissions included.
    #[schemars(extend("unit" = "segment"))]
    pub segments_sent: u64,
    /// Segments received.
    #[schemars(extend("unit" = "segment"))]
    pub segments_received: u64,
    /// Received segments that were not accepted.
    #[schemars(extend("unit" = "segment"))]
    pub segments_refused: u64,
    /// Data segments sent again.
    #[schemars(extend("unit" = "segment"))]
    pub retransmitted: u64,
    /// Expiries of the retransmission timer.
    #[schemars(extend("unit" = "1"))]
    pub coarse_timeouts: u64,
    /// Retransmissions that duplicate acks caused.
    #[schemars(extend("unit" = "1"))]
    pub fast_retransmits: u64,
    /// Duplicate acks received.
    #[schemars(extend("unit" = "1"))]
    pub duplicate_acks: u64,
    /// How late segments and timers were handled.
    pub lateness_s: Lateness,
    /// CPU time of the process.
    #[schemars(extend("unit" = "s"))]
    pub cpu_s: f64,
}

/// How a sending program ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The receiver has every byte.
    Completed,
    /// The time was over, or a signal arrived.
    Stopped,
    /// Stopped before there was a connection.
    NeverConnected,
    /// The peer reset the connection.
    Reset,
    /// Retransmissions stayed unanswered.
    TimedOut,
}

/// How the connection of a receiving program ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub enum ReceiveEnd {
    /// Every byte was read and the connection closed.
    #[serde(rename = "finished")]
    Finished,
    /// A signal arrived first.
    #[serde(rename = "stopped")]
    Stopped,
    /// The peer reset the connection.
    #[serde(rename = "reset")]
    Reset,
    /// Retransmissions stayed unanswered.
    #[serde(rename = "timed out")]
    TimedOut,
}

/// The kernel's view of a connection: parts of `tcp_info` in SI units.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TcpInfo {
    /// Congestion window.
    #[schemars(extend("unit" = "segment"))]
    pub cwnd_segments: u32,
    /// Slow-start threshold. Null until a loss sets it.
    #[schemars(extend("unit" = "segment"))]
    pub ssthresh_segments: Option<u32>,
    /// Smoothed round-trip time.
    #[schemars(extend("unit" = "s"))]
    pub rtt_s: f64,
    /// Variation of the round-trip time.
    #[schemars(extend("unit" = "s"))]
    pub rttvar_s: f64,
    /// Retransmission timeout.
    #[schemars(extend("unit" = "s"))]
    pub rto_s: f64,
    /// Maximum segment size for sending.
    #[schemars(extend("unit" = "byte"))]
    pub mss_bytes: u32,
    /// Segments sent and not acknowledged.
    #[schemars(extend("unit" = "segment"))]
    pub unacked_segments: u32,
    /// Segments that the kernel considers lost.
    #[schemars(extend("unit" = "segment"))]
    pub lost_segments: u32,
    /// Segments retransmitted since the start.
    #[schemars(extend("unit" = "segment"))]
    pub retransmitted_segments: u32,
    /// State of congestion avoidance, `TCP_CA_*` in linux/tcp.h.
    #[schemars(extend("unit" = "1"))]
    pub ca_state: u8,
    /// Consecutive expiries of the retransmission timer.
    #[schemars(extend("unit" = "1"))]
    pub backoff: u8,
}

/// A line of a kernel flow's telemetry.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TcpInfoLine {
    /// Time since the start of the flow.
    #[schemars(extend("unit" = "ns"))]
    pub t_ns: u64,
    #[serde(flatten)]
    pub info: TcpInfo,
}

/// Report of `program`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProgramReport {
    /// Why it ended.
    pub ended: Ended,
    /// Its exit status. Null after a signal.
    #[schemars(extend("unit" = "1"))]
    pub exit_status: Option<i32>,
    /// Number of the signal that ended it. Null if it exited, or never started.
    #[schemars(extend("unit" = "1"))]
    pub signal: Option<i32>,
    /// Time between the requested and the actual start.
    #[schemars(extend("unit" = "s"))]
    pub started_late_s: f64,
    /// Start on CLOCK_MONOTONIC. Null if it never started.
    #[schemars(extend("unit" = "ns"))]
    pub started_monotonic_ns: Option<u64>,
    /// End on CLOCK_MONOTONIC.
    #[schemars(extend("unit" = "ns"))]
    pub ended_monotonic_ns: u64,
    /// What it wrote to its standard output, kept or not.
    #[schemars(extend("unit" = "byte"))]
    pub output_bytes: u64,
    /// What it wrote to its standard error.
    #[schemars(extend("unit" = "byte"))]
    pub error_bytes: u64,
    /// Processes that it had left in the background, which were ended.
    #[schemars(extend("unit" = "1"))]
    pub left_behind: u32,
}

/// Why a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// By itself.
    Itself,
    /// It was asked to: the flow's stop time was reached, the run ended, or its client had ended.
    Stopped,
    /// It wrote more than is kept.
    Flooded,
}

/// Report of `probe send`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProbeSendReport {
    /// Probes sent.
    #[schemars(extend("unit" = "packet"))]
    pub sent: u32,
}

/// Report of `probe receive`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProbeReceiveReport {
    /// Probes that arrived, in the order of arrival.
    pub packets: Vec<Arrival>,
}

/// A probe at the receiver.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Arrival {
    /// Number of the probe, from 0.
    pub seq: u64,
    /// CLOCK_REALTIME of the sender.
    #[schemars(extend("unit" = "ns"))]
    pub sent_ns: u64,
    /// CLOCK_REALTIME of the receiving kernel.
    #[schemars(extend("unit" = "ns"))]
    pub received_ns: u64,
}

/// Prints a report as one line.
pub(crate) fn print(report: &impl Serialize) -> Result<(), Error> {
    print_line(&serde_json::to_string(report).or_system("cannot write the report")?)
}

/// Prints a document that people read, too.
pub(crate) fn print_pretty(document: &impl Serialize) -> Result<(), Error> {
    print_line(&serde_json::to_string_pretty(document).or_system("cannot write the document")?)
}

fn print_line(text: &str) -> Result<(), Error> {
    write_line(&mut std::io::stdout(), text)
}

fn write_line(out: &mut impl Write, text: &str) -> Result<(), Error> {
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        // A reader that ends early, such as `head`, has what it wants.
        Err(why) if why.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.or_system("cannot write to standard output"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_ended_is_no_error_and_a_full_disk_is() {
        assert!(write_line(&mut Failing(ErrorKind::BrokenPipe), "{}").is_ok());
        let full = write_line(&mut Failing(ErrorKind::StorageFull), "{}").unwrap_err();
        assert!(full.to_string().starts_with("cannot write to standard output: "), "{full}");
        let mut written = Vec::new();
        write_line(&mut written, "{}").unwrap();
        assert_eq!(written, b"{}\n");
    }
}
