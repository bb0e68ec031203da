//! What happens in the links during a run, as JSON lines: queue lengths when they change (at most one line per queue
//! and period, with the greatest length since the last), and every drop, purge and mark.

use std::fs::File;
use std::io::{BufWriter, Write};

use crate::event::Event;
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
