//! What an application of a flow experienced, one JSON object a line in `applications/FLOW.jsonl`: packets, finite transfers
//! or transactions, in the order in which they were begun. `backchannel-node registry` exports the columns.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::error::Error;
use crate::time::Time;

/// A packet, a transfer or a transaction. Times count from the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Exchange {
    /// Number in the flow, from 0.
    #[schemars(extend("unit" = "1"))]
    pub seq: u64,
    /// Number of the video frame that the packet is part of, from 0. Absent for other packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("unit" = "1"))]
    pub frame: Option<u64>,
    /// Length of the packet with its headers, size of the transfer, or size of the response.
    #[schemars(extend("unit" = "byte"))]
    pub bytes: u64,
    /// When the application sent the packet, began the transfer or asked.
    #[schemars(extend("unit" = "ns"))]
    pub sent_ns: u64,
    /// When the packet, the transfer's last byte or the request's last byte reached the receiver. Null: never.
    #[schemars(extend("unit" = "ns"))]
    pub arrived_ns: Option<u64>,
    /// When the returned packet or the response's last byte reached the sender. Null: never, or none was due.
    #[schemars(extend("unit" = "ns"))]
    pub returned_ns: Option<u64>,
}

/// What the receiving program of a flow recorded on real packets, until the controller joins it with the sender's
/// exchanges by `key`: the packet's or request's number, or the source port of the transfer's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ArrivalLine {
    /// What the sender's line with the same key says was sent.
    #[schemars(extend("unit" = "1"))]
    pub key: u64,
    /// When its last byte arrived, since the start of the run.
    #[schemars(extend("unit" = "ns"))]
    pub arrived_ns: u64,
}

/// What the sending program of a flow recorded, see [`ArrivalLine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SentLine {
    /// Joins the receiver's line.
    #[schemars(extend("unit" = "1"))]
    pub key: u64,
    /// Without the arrival.
    #[serde(flatten)]
    pub exchange: Exchange,
}

/// The exchanges of a flow.
#[derive(Clone, Debug, Default)]
pub struct Exchanges(Vec<Exchange>);

impl Exchanges {
    /// Adds an exchange that begins now; its number.
    pub fn begin(&mut self, now: Time, bytes: u64) -> usize {
        self.begin_packet(now, bytes, None)
    }

    /// Adds a packet, which may be part of a frame, that is sent now; its number.
    pub fn begin_packet(&mut self, now: Time, bytes: u64, frame: Option<u64>) -> usize {
        let (seq, sent_ns) = (self.0.len() as u64, now.nanos());
        self.0.push(Exchange { seq, frame, bytes, sent_ns, arrived_ns: None, returned_ns: None });
        seq as usize
    }

    /// It has arrived. Later copies change nothing.
    pub fn arrive(&mut self, number: usize, now: Time) {
        if let Some(exchange) = self.0.get_mut(number) {
            exchange.arrived_ns.get_or_insert(now.nanos());
        }
    }

    /// Its answer has arrived. Later copies change nothing.
    pub fn complete(&mut self, number: usize, now: Time) {
        if let Some(exchange) = self.0.get_mut(number) {
            exchange.returned_ns.get_or_insert(now.nanos());
        }
    }

    /// In the order of their numbers.
    pub fn all(&self) -> &[Exchange] {
        &self.0
    }
}

/// Writes lines to a file.
///
/// # Errors
/// The file cannot be written; the message names it.
pub fn write_lines<T: Serialize>(path: &Path, lines: impl IntoIterator<Item = T>) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::System(format!("cannot write {}: {error}", path.display()));
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    for line in lines {
        serde_json::to_writer(&mut file, &line).map_err(|error| failed(error.into()))?;
        file.write_all(b"\n").map_err(failed)?;
    }
    file.flush().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_keeps_its_first_arrival() {
        let mut exchanges = Exchanges::default();
        assert_eq!([exchanges.begin(Time(5), 64), exchanges.begin(Time(6), 65)], [0, 1]);
        exchanges.arrive(1, Time(9));
        exchanges.arrive(1, Time(12));
        exchanges.complete(0, Time(20));
        exchanges.complete(0, Time(21));
        exchanges.arrive(7, Time(30));
        let [first, second] = exchanges.all() else { panic!() };
        assert_eq!((first.arrived_ns, first.returned_ns), (None, Some(20)));
        assert_eq!((second.seq, second.bytes, second.sent_ns, second.arrived_ns), (1, 65, 6, Some(9)));
    }
}
