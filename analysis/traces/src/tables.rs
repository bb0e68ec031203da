//! The tables: every segment, every connection, and a summary.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use serde_json::{json, Value};

use crate::capture::Records;
use crate::connection::{Connection, Segment, Tracker};
use crate::decode::{decode, TcpPacket};

/// Rows of a row group; bounds memory.
const ROWS: usize = 1 << 16;

const SEGMENTS: &str = "message segments {
    required int32 file (integer(16,false));
    required int64 time_ns;
    required int32 conn (integer(32,false));
    required int32 dir (integer(8,false));
    required int32 ip_len (integer(32,false));
    required int32 payload (integer(32,false));
    required int64 seq;
    required int64 ack;
    required int64 window;
    required int32 flags (integer(8,false));
    required int32 class (integer(16,false));
    optional int64 rtt_ns;
    required int64 in_order;
}";

const CONNECTIONS: &str = "message connections {
    required int32 file (integer(16,false));
    required int32 conn (integer(32,false));
    required binary client (utf8);
    required int32 client_port (integer(16,false));
    required binary server (utf8);
    required int32 server_port (integer(16,false));
    required int64 first_ns;
    required int64 last_ns;
    required int32 handshake;
    required int64 client_packets;
    required int64 client_ip_bytes;
    required int64 client_payload_bytes;
    required int64 client_unique_bytes;
    required int64 client_retransmissions;
    required int64 client_duplicate_acks;
    required int64 server_packets;
    required int64 server_ip_bytes;
    required int64 server_payload_bytes;
    required int64 server_unique_bytes;
    required int64 server_retransmissions;
    required int64 server_duplicate_acks;
}";

/// Reads captures, each with its label, and writes `segments.parquet`, `connections.parquet` and `summary.json` into a
/// folder, which is made if need be.
///
/// # Errors
/// A sentence: a capture cannot be opened, or the tables cannot be written. A capture that is damaged further on is read
/// up to there, and the summary says so.
pub fn write_tables(captures: &[(String, PathBuf)], out: &Path) -> Result<(), String> {
    if captures.len() > usize::from(u16::MAX) {
        return Err(format!("{} captures are too many for one call", captures.len()));
    }
    fs::create_dir_all(out).map_err(|error| format!("cannot make {}: {error}", out.display()))?;
    let mut segments = Table::create(&out.join("segments.parquet"), SEGMENTS)?;
    let mut connections = Table::create(&out.join("connections.parquet"), CONNECTIONS)?;
    let mut rows = SegmentRows::default();
    let mut summary = Vec::new();
    for (number, (label, path)) in captures.iter().enumerate() {
        let mut records = Records::open(path)?;
        let mut tracker = Tracker::default();
        let (mut packets, mut other, mut times) = (0u64, 0u64, None);
        for record in records.by_ref() {
            packets += 1;
            let (first, last) = times.unwrap_or((record.time_ns, record.time_ns));
            times = Some((record.time_ns.min(first), record.time_ns.max(last)));
            let Some(packet) = decode(&record) else {
                other += 1;
                continue;
            };
            let segment = tracker.take(record.time_ns, &packet);
            rows.push(number as i32, record.time_ns, &packet, &segment);
            if rows.len() == ROWS {
                rows.write(&mut segments)?;
            }
        }
        write_connections(&mut connections, number as i32, &tracker.connections)?;
        summary.push(json!({
            "file": number,
            "label": label,
            "packets": packets,
            "not_tcp": other,
            "connections": tracker.connections.iter().map(describe).collect::<Vec<_>>(),
            "first_ns": times.map(|(first, _)| first),
            "last_ns": times.map(|(_, last)| last),
            "trouble": records.trouble,
        }));
    }
    rows.write(&mut segments)?;
    segments.finish()?;
    connections.finish()?;
    let text = serde_json::to_string_pretty(&json!({"version": 1, "files": summary})).expect("it is plain JSON");
    let path = out.join("summary.json");
    fs::write(&path, text + "\n").map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn describe(connection: &Connection) -> Value {
    let end = |(address, port)| format!("{address}:{port}");
    let counts = |counts: &crate::connection::Counts| {
        json!({
            "packets": counts.packets,
            "ip_bytes": counts.ip_bytes,
            "payload_bytes": counts.payload_bytes,
            "unique_bytes": counts.unique_bytes,
            "retransmissions": counts.retransmissions,
            "fast_retransmissions": counts.fast_retransmissions,
            "out_of_order": counts.out_of_order,
            "duplicate_acks": counts.duplicate_acks,
            "mss": counts.mss,
            "window_scale": counts.window_scale,
            "sack_permitted": counts.sack_permitted,
            "timestamps": counts.timestamps,
        })
    };
    json!({
        "conn": connection.number,
        "client": end(connection.client),
        "server": end(connection.server),
        "first_ns": connection.first_ns,
        "last_ns": connection.last_ns,
        "handshake": connection.handshake,
        "from_client": counts(&connection.counts[0]),
        "from_server": counts(&connection.counts[1]),
    })
}

/// Segments on their way to the file, one vector a column.
#[derive(Default)]
struct SegmentRows {
    file: Vec<i32>,
    time_ns: Vec<i64>,
    conn: Vec<i32>,
    dir: Vec<i32>,
    ip_len: Vec<i32>,
    payload: Vec<i32>,
    seq: Vec<i64>,
    ack: Vec<i64>,
    window: Vec<i64>,
    flags: Vec<i32>,
    class: Vec<i32>,
    rtt_ns: Vec<i64>,
    has_rtt: Vec<i16>,
    in_order: Vec<i64>,
}

impl SegmentRows {
    fn len(&self) -> usize {
        self.file.len()
    }

    fn push(&mut self, file: i32, time_ns: i64, packet: &TcpPacket, segment: &Segment) {
        self.file.push(file);
        self.time_ns.push(time_ns);
        self.conn.push(segment.connection as i32);
        self.dir.push(i32::from(segment.direction));
        self.ip_len.push(packet.ip_len as i32);
        self.payload.push(packet.payload as i32);
        self.seq.push(segment.seq);
        self.ack.push(segment.ack);
        self.window.push(segment.window);
        self.flags.push(i32::from(packet.flags));
        self.class.push(i32::from(segment.class));
        self.rtt_ns.extend(segment.rtt_ns);
        self.has_rtt.push(i16::from(segment.rtt_ns.is_some()));
        self.in_order.push(segment.in_order);
    }

    fn write(&mut self, table: &mut Table) -> Result<(), String> {
        if self.len() == 0 {
            return Ok(());
        }
        let mut group = table.group()?;
        int32(&mut group, &self.file)?;
        int64(&mut group, &self.time_ns, None)?;
        for column in [&self.conn, &self.dir, &self.ip_len, &self.payload] {
            int32(&mut group, column)?;
        }
        for column in [&self.seq, &self.ack, &self.window] {
            int64(&mut group, column, None)?;
        }
        for column in [&self.flags, &self.class] {
            int32(&mut group, column)?;
        }
        int64(&mut group, &self.rtt_ns, Some(&self.has_rtt))?;
        int64(&mut group, &self.in_order, None)?;
        group.close().map_err(unwritable)?;
        *self = SegmentRows::default();
        Ok(())
    }
}

fn write_connections(table: &mut Table, file: i32, connections: &[Connection]) -> Result<(), String> {
    if connections.is_empty() {
        return Ok(());
    }
    let mut group = table.group()?;
    let integers = |of: &dyn Fn(&Connection) -> i32| connections.iter().map(of).collect::<Vec<_>>();
    let longs = |of: &dyn Fn(&Connection) -> i64| connections.iter().map(of).collect::<Vec<_>>();
    let texts = |of: &dyn Fn(&Connection) -> String| {
        connections.iter().map(|connection| ByteArray::from(of(connection).into_bytes())).collect::<Vec<_>>()
    };
    int32(&mut group, &vec![file; connections.len()])?;
    int32(&mut group, &integers(&|connection| connection.number as i32))?;
    text(&mut group, &texts(&|connection| connection.client.0.to_string()))?;
    int32(&mut group, &integers(&|connection| i32::from(connection.client.1)))?;
    text(&mut group, &texts(&|connection| connection.server.0.to_string()))?;
    int32(&mut group, &integers(&|connection| i32::from(connection.server.1)))?;
    int64(&mut group, &longs(&|connection| connection.first_ns), None)?;
    int64(&mut group, &longs(&|connection| connection.last_ns), None)?;
    int32(&mut group, &integers(&|connection| i32::from(connection.handshake)))?;
    for side in 0..2 {
        int64(&mut group, &longs(&|connection| connection.counts[side].packets as i64), None)?;
        int64(&mut group, &longs(&|connection| connection.counts[side].ip_bytes as i64), None)?;
        int64(&mut group, &longs(&|connection| connection.counts[side].payload_bytes as i64), None)?;
        int64(&mut group, &longs(&|connection| connection.counts[side].unique_bytes), None)?;
        int64(&mut group, &longs(&|connection| connection.counts[side].retransmissions as i64), None)?;
        int64(&mut group, &longs(&|connection| connection.counts[side].duplicate_acks as i64), None)?;
    }
    group.close().map(|_| ()).map_err(unwritable)
}

/// A Parquet file under way.
struct Table(SerializedFileWriter<File>);

impl Table {
    fn create(path: &Path, schema: &str) -> Result<Table, String> {
        let file = File::create(path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        let schema = Arc::new(parse_message_type(schema).expect("our own schema is right"));
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).expect("a level that exists")))
            .build();
        SerializedFileWriter::new(file, schema, Arc::new(properties)).map(Table).map_err(unwritable)
    }

    fn group(&mut self) -> Result<SerializedRowGroupWriter<'_, File>, String> {
        self.0.next_row_group().map_err(unwritable)
    }

    fn finish(self) -> Result<(), String> {
        self.0.close().map(|_| ()).map_err(unwritable)
    }
}

fn int32(group: &mut SerializedRowGroupWriter<'_, File>, values: &[i32]) -> Result<(), String> {
    let mut column = group.next_column().map_err(unwritable)?.expect("the schema has this column");
    column.typed::<Int32Type>().write_batch(values, None, None).map_err(unwritable)?;
    column.close().map_err(unwritable)
}

fn int64(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[i64],
    present: Option<&[i16]>,
) -> Result<(), String> {
    let mut column = group.next_column().map_err(unwritable)?.expect("the schema has this column");
    column.typed::<Int64Type>().write_batch(values, present, None).map_err(unwritable)?;
    column.close().map_err(unwritable)
}

fn text(group: &mut SerializedRowGroupWriter<'_, File>, values: &[ByteArray]) -> Result<(), String> {
    let mut column = group.next_column().map_err(unwritable)?.expect("the schema has this column");
    column.typed::<ByteArrayType>().write_batch(values, None, None).map_err(unwritable)?;
    column.close().map_err(unwritable)
}

fn unwritable(error: parquet::errors::ParquetError) -> String {
    format!("cannot write a table: {error}")
}
