//! What happens in the links during a run, as JSON lines: queue lengths when they change (at most one line per queue
//! and period, with the greatest length since the last), every drop, purge and mark, and the state of senders that stand in
//! the network.

use std::fs::File;
use std::io::{BufWriter, Write};

use crate::event::{Event, SenderState};
use crate::report::direction_name;

/// Least time between two length lines of one queue, in nanoseconds.
const PERIOD_NS: u64 = 10_000_000;

/// The file.
pub struct Telemetry {
    out: BufWriter<File>,
    failed: Option<String>,
}

/// What was last said of one queue.
#[derive(Debug, Default)]
pub struct Watch {
    said_at: Option<u64>,
    said: usize,
    greatest: usize,
}

impl Telemetry {
    /// Makes the file.
    ///
    /// # Errors
    /// A sentence.
    pub fn create(path: &str) -> Result<Telemetry, String> {
        let file = File::create(path).map_err(|error| format!("cannot write telemetry to {path}: {error}"))?;
        Ok(Telemetry { out: BufWriter::with_capacity(1 << 18, file), failed: None })
    }

    /// Notes the length of a queue if it is time to.
    pub fn queue(&mut self, watch: &mut Watch, at_ns: u64, link: &str, port: usize, packets: usize, bytes: u64) {
        watch.greatest = watch.greatest.max(packets);
        let due = watch.said_at.is_none_or(|said| at_ns >= said + PERIOD_NS);
        if !due || (packets == watch.said && watch.greatest == watch.said && watch.said_at.is_some()) {
            return;
        }
        let (greatest, direction) = (watch.greatest, direction_name(port));
        let line = format!(
            "{{\"t_ns\":{at_ns},\"link\":\"{link}\",\"direction\":\"{direction}\",\"packets\":{packets},\"bytes\":{bytes},\"max\":{greatest}}}\n"
        );
        self.write(&line);
        *watch = Watch { said_at: Some(at_ns), said: packets, greatest: packets };
    }

    /// Notes an event.
    pub fn event(&mut self, link: &str, direction: &str, event: &Event) {
        let line = format!(
            "{{\"t_ns\":{},\"link\":\"{link}\",\"direction\":\"{direction}\",\"event\":\"{}\",\"bytes\":{},\"pure_ack\":{}}}\n",
            event.at.nanos(),
            event.kind.name(),
            event.len,
            event.pure_ack
        );
        self.write(&line);
    }

    /// Notes the state of a sender in the network: the fields of a host's sender, its connection and which part of it it is.
    pub fn sender(&mut self, link: &str, direction: &str, sender: &SenderState) {
        let or_null = |value: Option<f64>| value.map_or_else(|| "null".to_owned(), |value| value.to_string());
        let SenderState { flow, part, what, cwnd_segments, outstanding_bytes, rto_s, .. } = sender;
        let line = format!(
            "{{\"t_ns\":{},\"link\":\"{link}\",\"direction\":\"{direction}\",\"part\":\"{part}\",\"from\":\"{}:{}\",\"to\":\"{}:{}\",\
             \"event\":\"{what}\",\"cwnd_segments\":{cwnd_segments},\"ssthresh_segments\":{},\
             \"outstanding_bytes\":{outstanding_bytes},\"rtt_s\":{},\"rto_s\":{rto_s},\"duplicate_acks\":{},\
             \"burst_segments\":{}}}\n",
            sender.at.nanos(),
            flow.src,
            flow.src_port,
            flow.dst,
            flow.dst_port,
            or_null(sender.ssthresh_segments),
            or_null(sender.rtt_s),
            sender.duplicate_acks,
            sender.burst_segments,
        );
        self.write(&line);
    }

    /// Flushes it.
    ///
    /// # Errors
    /// Of any write so far.
    pub fn finish(mut self) -> Result<(), String> {
        if let Err(error) = self.out.flush() {
            self.failed.get_or_insert(error.to_string());
        }
        self.failed.map_or(Ok(()), |why| Err(format!("telemetry could not be written: {why}")))
    }

    fn write(&mut self, line: &str) {
        if let Err(error) = self.out.write_all(line.as_bytes()) {
            self.failed.get_or_insert(error.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::FlowKey;
    use crate::time::Time;

    #[test]
    fn a_sender_in_the_network_is_one_line_of_json() {
        let path = std::env::temp_dir().join(format!("backchannel-telemetry-{}.jsonl", std::process::id()));
        let mut telemetry = Telemetry::create(&path.display().to_string()).unwrap();
        let sender = SenderState {
            at: Time(1_500_000_000),
            what: "coarse_timeout",
            flow: FlowKey { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), src_port: 4000, dst_port: 5001 },
            part: "wireless",
            onto_link: true,
            cwnd_segments: 1.0,
            ssthresh_segments: None,
            outstanding_bytes: 2800,
            rtt_s: Some(0.25),
            rto_s: 1.5,
            duplicate_acks: 2,
            burst_segments: 1,
            port: 0,
        };
        telemetry.sender("air", "forward", &sender);
        telemetry.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            line,
            serde_json::json!({
                "t_ns": 1_500_000_000u64, "link": "air", "direction": "forward", "part": "wireless",
                "from": "10.0.0.1:4000", "to": "10.0.0.2:5001", "event": "coarse_timeout", "cwnd_segments": 1,
                "ssthresh_segments": null, "outstanding_bytes": 2800, "rtt_s": 0.25, "rto_s": 1.5,
                "duplicate_acks": 2, "burst_segments": 1,
            })
        );
    }
}
