//! The qlog file of one connection: JSON text sequences of draft-ietf-quic-qlog-main-schema, with the events of
//! draft-ietf-quic-qlog-quic-events under the names that version 0.3 of the format gives them.
//!
//! The session shows packets while they are in the clear, so each has its frames: acknowledged ranges, ack delays, ranges of
//! streams. quinn-proto's own log has none, and makes all JSON of a program keep its order. What a controller sees and
//! the connection's counts are the rest.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use backchannel_core::time::Time;
use backchannel_core::{Error, ResultExt};
use quinn_proto::Side;
use serde_json::{json, Map, Value};

/// Record separator of RFC 7464.
const SEPARATOR: u8 = 0x1e;
/// The ack delay exponent of RFC 9000 18.2, which quinn-proto keeps.
const ACK_DELAY_EXPONENT: u32 = 3;
/// Bytes of a packet's tag.
const TAG: usize = 16;

/// The log of one connection.
pub(crate) struct PacketLog {
    file: BufWriter<File>,
    /// Time of the next records.
    pub(crate) now: Time,
    /// The metrics that were logged last.
    metrics: Map<String, Value>,
    /// Packets that are logged as lost.
    lost: u64,
    failed: Option<std::io::Error>,
}

impl PacketLog {
    /// Creates the file.
    ///
    /// # Errors
    /// It cannot be created.
    pub(crate) fn create(path: &Path, side: Side) -> Result<Arc<Mutex<PacketLog>>, Error> {
        let folder = path.parent().unwrap_or(Path::new(""));
        std::fs::create_dir_all(folder).or_system(format_args!("cannot create {}", folder.display()))?;
        let file = File::create(path).or_system(format_args!("cannot create {}", path.display()))?;
        let (file, now, metrics, lost, failed) = (BufWriter::new(file), Time::ZERO, Map::new(), 0, None);
        let mut log = PacketLog { file, now, metrics, lost, failed };
        let vantage_point = if side.is_client() { "client" } else { "server" };
        let trace = json!({
            "vantage_point": {"type": vantage_point},
            "common_fields": {"time_format": "relative", "reference_time": 0},
        });
        log.record(&json!({"qlog_version": "0.3", "qlog_format": "JSON-SEQ", "trace": trace}));
        Ok(Arc::new(Mutex::new(log)))
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// The file cannot be written, now or before.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.failed.take().map_or_else(|| self.file.flush(), Err).or_system("cannot write a qlog file")
    }

    fn record(&mut self, record: &Value) {
        let written = self.file.write_all(&[SEPARATOR]).and_then(|()| writeln!(self.file, "{record}"));
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
    }

    /// Times are in ms since the start of the run.
    fn event(&mut self, name: &str, data: Value) {
        let time = self.now.nanos() as f64 / 1e6;
        self.record(&json!({"time": time, "name": name, "data": data}));
    }

    /// A packet is sent or received: its header and its frames, without the tag.
    pub(crate) fn packet(&mut self, is_sent: bool, number: u64, header: &[u8], payload: &[u8]) {
        let name = if is_sent { "transport:packet_sent" } else { "transport:packet_received" };
        let length = header.len() + payload.len() + TAG;
        let header = json!({"packet_type": packet_type(header), "packet_number": number, "length": length});
        self.event(name, json!({"header": header, "frames": Reader(payload).frames()}));
    }

    /// So many packets have been declared lost so far. quinn-proto does not show which they are.
    pub(crate) fn lost(&mut self, packets: u64) {
        for _ in self.lost..packets {
            self.event("recovery:packet_lost", json!({"header": {"packet_type": "1RTT"}}));
        }
        self.lost = packets;
    }

    /// The metrics of recovery, of which those are logged that have changed.
    pub(crate) fn metrics(&mut self, metrics: &[(&str, Option<f64>)]) {
        let mut changed = Map::new();
        for (name, value) in metrics {
            let Some(value) = value.map(Value::from) else { continue };
            if self.metrics.get(*name) != Some(&value) {
                changed.insert((*name).to_owned(), value.clone());
                self.metrics.insert((*name).to_owned(), value);
            }
        }
        if !changed.is_empty() {
            self.event("recovery:metrics_updated", changed.into());
        }
    }
}

/// Type of a packet by the first byte of its header (RFC 9000 17.2, 17.3).
fn packet_type(header: &[u8]) -> &'static str {
    match header.first() {
        Some(first) if first & 0x80 == 0 => "1RTT",
        Some(first) => ["initial", "0RTT", "handshake", "retry"][usize::from(first >> 4 & 3)],
        None => "unknown",
    }
}

/// Reads frames (RFC 9000 19).
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// The frames as qlog has them, up to one that is malformed or unknown.
    fn frames(mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        while !self.0.is_empty() {
            let Some(frame) = self.frame() else { break };
            frames.push(frame);
        }
        frames
    }

    fn bytes(&mut self, count: u64) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    /// A variable-length integer (RFC 9000 16).
    fn number(&mut self) -> Option<u64> {
        let length = 1 << (self.0.first()? >> 6);
        let all = self.bytes(length)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Some(all & (u64::MAX >> (66 - 8 * length)))
    }

    /// Bytes that follow their length; only the length counts.
    fn counted(&mut self) -> Option<u64> {
        let length = self.number()?;
        self.bytes(length)?;
        Some(length)
    }

    fn frame(&mut self) -> Option<Value> {
        Some(match self.number()? {
            0x00 => {
                let padding = self.0.iter().take_while(|&&byte| byte == 0).count() as u64;
                self.bytes(padding)?;
                json!({"frame_type": "padding", "payload_length": padding + 1})
            }
            0x01 => json!({"frame_type": "ping"}),
            kind @ (0x02 | 0x03) => self.ack(kind == 0x03)?,
            0x04 => {
                json!({"frame_type": "reset_stream", "stream_id": self.number()?, "error_code": self.number()?,
                       "final_size": self.number()?})
            }
            0x05 => {
                json!({"frame_type": "stop_sending", "stream_id": self.number()?, "error_code": self.number()?})
            }
            0x06 => json!({"frame_type": "crypto", "offset": self.number()?, "length": self.counted()?}),
            0x07 => json!({"frame_type": "new_token", "length": self.counted()?}),
            kind @ 0x08..=0x0f => {
                let stream_id = self.number()?;
                let offset = if kind & 4 == 0 { 0 } else { self.number()? };
                let rest = self.0.len() as u64;
                let length = if kind & 2 == 0 { self.bytes(rest).map(|_| rest)? } else { self.counted()? };
                json!({"frame_type": "stream", "stream_id": stream_id, "offset": offset, "length": length,
                       "fin": kind & 1 == 1})
            }
            0x10 => json!({"frame_type": "max_data", "maximum": self.number()?}),
            0x11 => json!({"frame_type": "max_stream_data", "stream_id": self.number()?, "maximum": self.number()?}),
            kind @ (0x12 | 0x13) => {
                json!({"frame_type": "max_streams", "stream_type": direction(kind), "maximum": self.number()?})
            }
            0x14 => json!({"frame_type": "data_blocked", "limit": self.number()?}),
            0x15 => json!({"frame_type": "stream_data_blocked", "stream_id": self.number()?, "limit": self.number()?}),
            kind @ (0x16 | 0x17) => {
                json!({"frame_type": "streams_blocked", "stream_type": direction(kind), "limit": self.number()?})
            }
            0x18 => {
                let (sequence_number, retire_prior_to) = (self.number()?, self.number()?);
                let length = self.bytes(1)?[0];
                self.bytes(u64::from(length) + 16)?;
                json!({"frame_type": "new_connection_id", "sequence_number": sequence_number,
                       "retire_prior_to": retire_prior_to, "connection_id_length": length})
            }
            0x19 => json!({"frame_type": "retire_connection_id", "sequence_number": self.number()?}),
            kind @ (0x1a | 0x1b) => {
                self.bytes(8)?;
                json!({"frame_type": if kind == 0x1a { "path_challenge" } else { "path_response" }})
            }
            kind @ (0x1c | 0x1d) => {
                let error_code = self.number()?;
                if kind == 0x1c {
                    self.number()?;
                }
                self.counted()?;
                let space = if kind == 0x1c { "transport" } else { "application" };
                json!({"frame_type": "connection_close", "error_space": space, "error_code": error_code})
            }
            0x1e => json!({"frame_type": "handshake_done"}),
            // draft-ietf-quic-ack-frequency-04.
            0x1f => json!({"frame_type": "immediate_ack"}),
            0xaf => {
                json!({"frame_type": "ack_frequency", "sequence_number": self.number()?,
                       "ack_eliciting_threshold": self.number()?, "requested_max_ack_delay": self.number()?,
                       "reordering_threshold": self.number()?})
            }
            _ => return None,
        })
    }

    /// ACK (RFC 9000 19.3); delays are in ms.
    fn ack(&mut self, has_ecn: bool) -> Option<Value> {
        let (mut largest, delay, ranges) = (self.number()?, self.number()?, self.number()?);
        let mut smallest = largest.checked_sub(self.number()?)?;
        let mut acked_ranges = vec![json!([smallest, largest])];
        for _ in 0..ranges {
            largest = smallest.checked_sub(self.number()? + 2)?;
            smallest = largest.checked_sub(self.number()?)?;
            acked_ranges.push(json!([smallest, largest]));
        }
        let ack_delay = (delay << ACK_DELAY_EXPONENT) as f64 / 1e3;
        let mut frame = json!({"frame_type": "ack", "ack_delay": ack_delay, "acked_ranges": acked_ranges});
        if has_ecn {
            for name in ["ect0", "ect1", "ce"] {
                frame[name] = self.number()?.into();
            }
        }
        Some(frame)
    }
}

fn direction(kind: u64) -> &'static str {
    if kind & 1 == 0 {
        "bidirectional"
    } else {
        "unidirectional"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_standards_examples() {
        // RFC 9000 A.1.
        for (bytes, number) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            assert_eq!(Reader(bytes).number(), Some(number));
            assert_eq!(Reader(&bytes[..bytes.len() - 1]).number(), None);
        }
    }

    #[test]
    fn frames_are_read_one_after_another_until_one_that_is_cut() {
        // ACK of 10, and of 5 to 7, 400 us late, with 4 marks of ECT(0); STREAM 0 from 2 on with a length; PADDING.
        let payload = [3, 10, 50, 1, 0, 1, 2, 4, 0, 0, 0x0e, 0, 2, 3, 9, 9, 9, 0, 0];
        let frames = Reader(&payload).frames();
        assert_eq!(
            frames,
            [
                json!({"frame_type": "ack", "ack_delay": 0.4, "acked_ranges": [[10, 10], [5, 7]], "ect0": 4, "ect1": 0,
                       "ce": 0}),
                json!({"frame_type": "stream", "stream_id": 0, "offset": 2, "length": 3, "fin": false}),
                json!({"frame_type": "padding", "payload_length": 2}),
            ]
        );
        assert_eq!(Reader(&payload[..15]).frames().len(), 1, "the stream is cut");
        assert_eq!(Reader(&[0x08, 4, 1, 2, 3]).frames()[0]["length"], 3, "without a length it ends with the packet");
    }
}
