//! `summary.json`: what each capture is, what of it could not be read, and its first connections.

use std::net::IpAddr;

use serde_json::{json, Map, Value};

use super::connections::SIDE_COLUMNS;
use super::Input;
use crate::capture::Capture;
use crate::connection::Connection;
use crate::counts::Counts;
use crate::decode::Decoder;
use crate::packet::{Address, NoTcp};
use crate::tracker::Tracker;

/// Connections that the summary of a capture lists. The table has all.
const MAX_CONNECTIONS: usize = 1000;

/// What is counted of one capture.
pub(super) struct Summary {
    /// Frames so far.
    pub(super) packets: u64,
    not_tcp: u64,
    unreadable: u64,
    first_ns: i64,
    last_ns: i64,
    /// The link type of the last frame first.
    link_types: Vec<LinkType>,
    connections: Vec<(u32, Value)>,
}

struct LinkType {
    number: u16,
    packets: u64,
    /// Supported by the decoder.
    known: bool,
}

impl Default for Summary {
    fn default() -> Summary {
        Summary {
            packets: 0,
            not_tcp: 0,
            unreadable: 0,
            first_ns: i64::MAX,
            last_ns: i64::MIN,
            link_types: Vec::new(),
            connections: Vec::new(),
        }
    }
}

impl Summary {
    /// Counts a frame.
    #[inline(always)]
    pub(super) fn count(&mut self, time_ns: i64, link_type: u16, decoded: Result<(), NoTcp>) {
        self.packets += 1;
        self.first_ns = self.first_ns.min(time_ns);
        self.last_ns = self.last_ns.max(time_ns);
        match self.link_types.first_mut() {
            Some(first) if first.number == link_type => first.packets += 1,
            _ => self.count_link_type(link_type, decoded != Err(NoTcp::UnknownLinkType)),
        }
        if let Err(why) = decoded {
            self.not_tcp += 1;
            self.unreadable += u64::from(why == NoTcp::Truncated);
        }
    }

    #[cold]
    fn count_link_type(&mut self, number: u16, known: bool) {
        let index = self.link_types.iter().position(|link_type| link_type.number == number).unwrap_or_else(|| {
            self.link_types.push(LinkType { number, packets: 0, known });
            self.link_types.len() - 1
        });
        self.link_types[index].packets += 1;
        self.link_types.swap(0, index);
    }

    /// Describes a connection that has ended.
    pub(super) fn add_connection(&mut self, connection: &Connection) {
        if self.connections.len() < MAX_CONNECTIONS {
            self.connections.push((connection.number, describe(connection)));
        }
    }

    /// The capture's entry in `summary.json`.
    pub(super) fn into_json(
        mut self,
        number: usize,
        input: &Input,
        capture: &Capture,
        decoder: &Decoder,
        tracker: &Tracker,
    ) -> Value {
        self.connections.sort_by_key(|(number, _)| *number);
        let connections: Vec<_> = self.connections.into_iter().map(|(_, connection)| connection).collect();
        let about = capture.about();
        let damage = capture
            .damage()
            .iter()
            .map(|damage| json!({"offset": damage.offset, "bytes": damage.bytes, "reason": damage.reason}));
        let link_types = self.link_types.iter().map(
            |link_type| json!({"link_type": link_type.number, "packets": link_type.packets, "known": link_type.known}),
        );
        json!({
            "file": number,
            "label": input.label,
            "format": about.format,
            "shift_ns": input.shift_ns,
            "packets": self.packets,
            "not_tcp": self.not_tcp,
            "unreadable": self.unreadable,
            "unfinished_fragments": decoder.unfinished(),
            "dropped_by_capture": about.dropped,
            "link_types": link_types.collect::<Vec<_>>(),
            "interfaces": about.interfaces,
            "remarks": about.remarks,
            "names": about.names,
            "connections_total": tracker.count,
            "connections_given_up": tracker.given_up,
            "connections": connections,
            "first_ns": (self.packets > 0).then_some(self.first_ns),
            "last_ns": (self.packets > 0).then_some(self.last_ns),
            "trouble": capture.damage().first().map(ToString::to_string),
            "damages": capture.damages(),
            "damage": damage.collect::<Vec<_>>(),
        })
    }
}

fn describe(connection: &Connection) -> Value {
    json!({
        "conn": connection.number,
        "client": endpoint(connection.client),
        "server": endpoint(connection.server),
        "first_ns": connection.first_ns,
        "last_ns": connection.last_ns,
        "handshake": connection.handshake,
        "from_client": describe_side(&connection.counts[0]),
        "from_server": describe_side(&connection.counts[1]),
    })
}

fn endpoint((address, port): (Address, u16)) -> String {
    match IpAddr::from(address) {
        IpAddr::V4(address) => format!("{address}:{port}"),
        IpAddr::V6(address) => format!("[{address}]:{port}"),
    }
}

fn describe_side(counts: &Counts) -> Value {
    let mut side: Map<String, Value> =
        SIDE_COLUMNS.iter().map(|(name, value)| ((*name).to_owned(), value(counts).into())).collect();
    // These have a type of their own here, where the table has a number.
    side.extend(
        [
            ("isn", json!(counts.isn)),
            ("mss", json!(counts.mss)),
            ("window_scale", json!(counts.window_scale)),
            ("sack_permitted", json!(counts.sack_permitted)),
            ("timestamps", json!(counts.timestamps)),
            ("fin", json!(counts.fin)),
            ("rst", json!(counts.rst)),
            (
                "spurious",
                json!({
                    "by_ack": counts.spurious_by_ack,
                    "by_timestamp": counts.spurious_by_timestamp,
                    "by_dsack": counts.spurious_by_dsack,
                }),
            ),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    Value::Object(side)
}
