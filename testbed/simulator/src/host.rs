//! A connection of a simulated host and what its application does with it.

use std::io::Write;

use backchannel_core::scenario::{Flow, Named, Options};
use backchannel_core::time::Time;
use backchannel_stacks::config::{stack_config, Config};
use backchannel_stacks::{Connection, Counts, End, Sample};
use serde_json::{json, Value};

/// One end of a flow's connection.
pub(crate) struct Live {
    pub(crate) connection: Connection,
    pub(crate) flow: usize,
    pub(crate) sender: bool,
    /// Whether it carries a request, against the flow's direction: it counts for nothing else.
    pub(crate) is_request: bool,
    /// Node it lives on.
    pub(crate) node: usize,
    /// When its timer is in the event queue.
    pub(crate) armed: Option<Time>,
    pub(crate) received: u64,
    /// Whether every byte that arrived was what bulk flows send: a zero.
    pub(crate) intact: bool,
    pub(crate) first: Option<Time>,
    pub(crate) last: Option<Time>,
}

impl Live {
    pub(crate) fn new(connection: Connection, flow: usize, sender: bool, node: usize) -> Live {
        let (received, intact, first, last) = (0, true, None, None);
        Live { connection, flow, sender, is_request: false, node, armed: None, received, intact, first, last }
    }

    pub(crate) fn of_request(self) -> Live {
        Live { is_request: true, ..self }
    }

    /// The application takes what has arrived, and finishes when its peer has.
    pub(crate) fn take_arrived(&mut self, now: Time) {
        for part in self.connection.read() {
            self.received += part.bytes.len() as u64 + part.zeros;
            self.intact &= part.bytes.iter().all(|&byte| byte == 0);
            self.first.get_or_insert(now);
            self.last = Some(now);
        }
        if self.connection.peer_finished() {
            self.connection.finish();
        }
    }

    /// The report of this end.
    pub(crate) fn report(&self) -> Value {
        let Counts { sent, received, retransmitted, timeouts, fast_retransmits, duplicate_acks, refused } =
            self.connection.counts();
        json!({
            "bytes": if self.sender { self.connection.acknowledged() } else { self.received },
            "payload_ok": self.intact,
            "end": match self.connection.end() {
                None => "open",
                Some(End::Finished) => "finished",
                Some(End::Reset) => "reset",
                Some(End::TimedOut) => "timed out",
                Some(End::Aborted) => "stopped",
            },
            "segments_sent": sent,
            "segments_received": received,
            "segments_refused": refused,
            "retransmitted": retransmitted,
            "coarse_timeouts": timeouts,
            "fast_retransmits": fast_retransmits,
            "duplicate_acks": duplicate_acks,
            "first_s": self.first.map(Time::seconds),
            "last_s": self.last.map(Time::seconds),
        })
    }
}

/// The report of one side of a flow with several connections: sums.
pub(crate) fn report_together<'a>(ends: impl Iterator<Item = &'a Live>) -> Value {
    let (mut connections, mut finished, mut intact, mut bytes) = (0, 0, true, 0);
    let mut sum = Counts::default();
    for live in ends {
        let counts = live.connection.counts();
        connections += 1;
        finished += u64::from(live.connection.end() == Some(End::Finished));
        intact &= live.intact;
        bytes += if live.sender { live.connection.acknowledged() } else { live.received };
        sum.sent += counts.sent;
        sum.received += counts.received;
        sum.retransmitted += counts.retransmitted;
        sum.timeouts += counts.timeouts;
        sum.fast_retransmits += counts.fast_retransmits;
    }
    json!({
        "bytes": bytes,
        "payload_ok": intact,
        "end": format!("{finished} of {connections} connections finished"),
        "segments_sent": sum.sent,
        "segments_received": sum.received,
        "retransmitted": sum.retransmitted,
        "coarse_timeouts": sum.timeouts,
        "fast_retransmits": sum.fast_retransmits,
    })
}

/// The settings of one end of a flow: its host's stack, with the flow's own options.
pub(crate) fn settings(stack: Option<&Named>, flow: &Flow) -> Result<Config, String> {
    let stack = stack.ok_or_else(|| format!("flow '{}' ends at a node without a stack", flow.name))?;
    let mut options: Options = stack.options.clone();
    let mut name = stack.name.as_str();
    for (key, value) in &flow.stack {
        if key == "name" {
            let own = value.as_str().ok_or_else(|| format!("flow '{}': its stack's name is no text", flow.name))?;
            if own != name {
                options.clear();
            }
            name = own;
        } else {
            options.insert(key.clone(), value.clone());
        }
    }
    stack_config(name, &options).map_err(|why| format!("flow '{}': {why}", flow.name))
}

/// Writes samples as JSON lines with times from the flow's start, as the kernel's senders have them; windows in segments.
///
/// # Errors
/// Of writing.
pub fn write_samples(out: &mut impl Write, samples: &[Sample], start: Time, mss: f64) -> std::io::Result<()> {
    for sample in samples {
        // By hand: there is one a segment, and a tree of values costs more than the segment itself.
        let or_null = |value: Option<f64>| value.map_or_else(|| "null".to_owned(), |value| value.to_string());
        writeln!(
            out,
            "{{\"t_ns\":{},\"event\":\"{}\",\"cwnd_segments\":{},\"ssthresh_segments\":{},\"outstanding_bytes\":{},\"rtt_s\":{},\"rto_s\":{},\"duplicate_acks\":{},\"burst_segments\":{}}}",
            sample.at.since(start).as_nanos(),
            sample.event.name(),
            sample.cwnd / mss,
            or_null((sample.ssthresh < 1e8).then_some(sample.ssthresh / mss)),
            sample.outstanding,
            or_null(sample.srtt.map(|srtt| srtt.as_secs_f64())),
            sample.rto.as_secs_f64(),
            sample.duplicates,
            sample.burst,
        )?;
    }
    Ok(())
}
