//! `connections.parquet`: one row per connection.

use std::net::IpAddr;

use backchannel_core::Error;
use parquet::data_type::ByteArray;

use super::parquet::{Layout, Table};
use crate::connection::Connection;
use crate::counts::Counts;

const COLUMNS: &str = "message connections {
    required int32 file (integer(16,false));
    required int32 conn (integer(32,false));
    required binary client (utf8);
    required int32 client_port (integer(16,false));
    required binary server (utf8);
    required int32 server_port (integer(16,false));
    required int64 first_ns;
    required int64 last_ns;
    required int32 handshake;";

/// Name and value of a column that each side has.
type SideColumn = (&'static str, fn(&Counts) -> i64);

/// The columns that each side has, prefixed with `client_` and `server_` in the table.
pub(super) const SIDE_COLUMNS: &[SideColumn] = &[
    ("packets", |counts| counts.packets as i64),
    ("ip_bytes", |counts| counts.ip_bytes as i64),
    ("payload_bytes", |counts| counts.payload_bytes as i64),
    ("unique_bytes", |counts| counts.unique_bytes),
    ("retransmissions", |counts| counts.retransmissions as i64),
    ("duplicate_acks", |counts| counts.duplicate_acks as i64),
    ("data_packets", |counts| counts.data_packets as i64),
    ("acked_bytes", |counts| counts.acked_bytes),
    ("retransmitted_bytes", |counts| counts.retransmitted_bytes as i64),
    ("fast_retransmissions", |counts| counts.fast_retransmissions as i64),
    ("timeout_retransmissions", |counts| counts.timeout_retransmissions as i64),
    ("timeouts", |counts| counts.timeouts as i64),
    ("spurious_retransmissions", |counts| counts.spurious() as i64),
    ("out_of_order", |counts| counts.out_of_order as i64),
    ("pure_acks", |counts| counts.pure_acks as i64),
    ("window_updates", |counts| counts.window_updates as i64),
    ("zero_windows", |counts| counts.zero_windows as i64),
    ("keep_alives", |counts| counts.keep_alives as i64),
    ("probes", |counts| counts.probes as i64),
    ("sacks", |counts| counts.sacks as i64),
    ("dsacks", |counts| counts.dsacks as i64),
    ("ce_marks", |counts| counts.ce_marks as i64),
    ("ece", |counts| counts.ece as i64),
    ("bad_checksums", |counts| counts.bad_checksums as i64),
    ("super_packets", |counts| counts.super_packets as i64),
    ("lost_in_capture_bytes", |counts| counts.lost_in_capture_bytes),
    ("rtt_samples", |counts| counts.round_trips.count as i64),
    ("rtt_min_ns", |counts| counts.round_trips.min_ns),
    ("rtt_mean_ns", |counts| mean_ns(counts)),
    ("rtt_max_ns", |counts| counts.round_trips.max_ns),
    ("rtt_sd_ns", |counts| sd_ns(counts)),
    ("fin", |counts| i64::from(counts.fin)),
    ("rst", |counts| i64::from(counts.rst)),
    // -1 if it was not captured or not offered.
    ("isn", |counts| counts.isn.map_or(-1, i64::from)),
    ("zero", |counts| counts.base.map_or(-1, i64::from)),
    ("mss", |counts| counts.mss.map_or(-1, i64::from)),
    ("window_scale", |counts| counts.window_scale.map_or(-1, i64::from)),
];

/// Mean round-trip time, in ns.
fn mean_ns(counts: &Counts) -> i64 {
    counts.round_trips.sum_ns / (counts.round_trips.count as i64).max(1)
}

/// Sample standard deviation of the round-trip time, in ns.
fn sd_ns(counts: &Counts) -> i64 {
    let (n, mean_s) = (counts.round_trips.count as f64, mean_ns(counts) as f64 * 1e-9);
    if n < 2.0 {
        return 0;
    }
    ((counts.round_trips.squares_s2 - n * mean_s * mean_s).max(0.0) / (n - 1.0)).sqrt().mul_add(1e9, 0.5) as i64
}

pub(super) fn layout() -> Layout {
    let side = |side: &str| -> String {
        SIDE_COLUMNS.iter().map(|(name, _)| format!(" required int64 {side}_{name};")).collect()
    };
    Layout::new(&format!("{COLUMNS}{}{} }}", side("client"), side("server")))
}

/// Writes a row group.
pub(super) fn write(table: &mut Table, file: i32, connections: &[Connection]) -> Result<(), Error> {
    let layout = table.layout().clone();
    let mut group = layout.row_group();
    group.int32(&vec![file; connections.len()])?;
    group.int32(&column(connections, |connection| connection.number as i32))?;
    for end in [|connection: &Connection| connection.client, |connection: &Connection| connection.server] {
        group.text(&column(connections, |connection| {
            ByteArray::from(IpAddr::from(end(connection).0).to_string().into_bytes())
        }))?;
        group.int32(&column(connections, |connection| end(connection).1.into()))?;
    }
    group.int64(&column(connections, |connection| connection.first_ns))?;
    group.int64(&column(connections, |connection| connection.last_ns))?;
    group.int32(&column(connections, |connection| connection.handshake.into()))?;
    for side in 0..2 {
        for (_, value) in SIDE_COLUMNS {
            group.int64(&column(connections, |connection| value(&connection.counts[side])))?;
        }
    }
    table.write(group.finish())
}

fn column<T>(connections: &[Connection], value: impl Fn(&Connection) -> T) -> Vec<T> {
    connections.iter().map(value).collect()
}
