//! The tables: every segment, every SACK block, every connection, and a summary.

use std::fs::{self, File};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use serde_json::{json, Value};

use crate::capture::Capture;
use crate::class;
use crate::connection::{Connection, Segment};
use crate::counts::Counts;
use crate::decode::{Decoder, NoTcp, TcpPacket};
use crate::tracker::Tracker;

/// Rows of a row group; bounds memory.
const ROWS: usize = 1 << 16;
/// Connections that the summary lists; the table has all.
const LISTED: usize = 1000;
/// Connections that are handed over at a time at the end of a file; bounds memory.
const AT_A_TIME: usize = 1024;

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
    required int32 class (integer(32,false));
    optional int64 rtt_ns;
    required int64 in_order;
    required int64 frame;
}";

const SACKS: &str = "message sacks {
    required int32 file (integer(16,false));
    required int64 frame;
    required int64 time_ns;
    required int32 conn (integer(32,false));
    required int32 dir (integer(8,false));
    required int64 ack;
    required int32 block (integer(8,false));
    required int64 left;
    required int64 right;
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
    required int32 handshake;";

/// A column of the connections' table that each side has: its name and its value.
type SideColumn = (&'static str, fn(&Counts) -> i64);

const SIDE_COLUMNS: &[SideColumn] = &[
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
    // -1: it was not seen, or not offered.
    ("isn", |counts| counts.isn.map_or(-1, i64::from)),
    ("zero", |counts| counts.base.map_or(-1, i64::from)),
    ("mss", |counts| counts.mss.map_or(-1, i64::from)),
    ("window_scale", |counts| counts.window_scale.map_or(-1, i64::from)),
];

fn mean_ns(counts: &Counts) -> i64 {
    counts.round_trips.sum_ns / (counts.round_trips.count as i64).max(1)
}

/// Sample standard deviation.
fn sd_ns(counts: &Counts) -> i64 {
    let (n, mean_s) = (counts.round_trips.count as f64, mean_ns(counts) as f64 * 1e-9);
    if n < 2.0 {
        return 0;
    }
    ((counts.round_trips.squares_s2 - n * mean_s * mean_s).max(0.0) / (n - 1.0)).sqrt().mul_add(1e9, 0.5) as i64
}

/// A capture to read.
#[derive(Debug, Clone)]
pub struct Input {
    /// What its rows in the summary are called.
    pub label: String,
    /// The file.
    pub path: PathBuf,
    /// Added to all its times: how far its clock is behind.
    pub shift_ns: i64,
}

/// What to write, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether to write the tables of segments and of SACK blocks, or of connections alone.
    pub segments: bool,
    /// Files read at a time.
    pub jobs: usize,
}

/// Reads captures and writes `segments.parquet`, `sacks.parquet`, `connections.parquet` and `summary.json` into a folder,
/// which is made if need be.
///
/// # Errors
/// A sentence: a capture cannot be opened, or the tables cannot be written. What is damaged further on is read as far as
/// it can be, and the summary says what was not.
pub fn write_tables(inputs: &[Input], out: &Path, options: &Options) -> Result<(), String> {
    if inputs.len() > usize::from(u16::MAX) {
        return Err(format!("{} captures are too many for one call", inputs.len()));
    }
    fs::create_dir_all(out).map_err(|error| format!("cannot make {}: {error}", out.display()))?;
    let jobs = options.jobs.min(inputs.len());
    let files =
        if jobs > 1 { read_side_by_side(inputs, out, options, jobs)? } else { read_in_turn(inputs, out, options)? };
    let text = serde_json::to_string_pretty(&json!({"version": 2, "files": files})).expect("it is plain JSON");
    let path = out.join("summary.json");
    fs::write(&path, text + "\n").map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn read_in_turn(inputs: &[Input], out: &Path, options: &Options) -> Result<Vec<Value>, String> {
    let mut tables = Tables::create(out, "", options)?;
    let files = inputs.iter().enumerate().map(|(number, input)| read(number, input, &mut tables)).collect();
    tables.finish()?;
    files
}

/// Each file on a thread of its own, to tables of its own, which are then joined in order.
fn read_side_by_side(inputs: &[Input], out: &Path, options: &Options, jobs: usize) -> Result<Vec<Value>, String> {
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<(usize, Result<Value, String>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(input) = inputs.get(number) else { return };
                let done = Tables::create(out, &format!(".{number}.part"), options).and_then(|mut tables| {
                    let summary = read(number, input, &mut tables)?;
                    tables.finish().map(|()| summary)
                });
                found.lock().expect("no thread panics with it").push((number, done));
            });
        }
    });
    let mut found = found.into_inner().expect("no thread panics with it");
    found.sort_by_key(|(number, _)| *number);
    let mut tables = Tables::create(out, "", options)?;
    let joined = found
        .into_iter()
        .map(|(number, summary)| summary.and_then(|summary| tables.append(out, number).map(|()| summary)));
    let joined: Result<Vec<_>, _> = joined.collect();
    for number in 0..inputs.len() {
        for name in NAMES {
            // They are of no use after a failure either.
            let _ = fs::remove_file(out.join(format!("{name}.parquet.{number}.part")));
        }
    }
    let files = joined?;
    tables.finish()?;
    Ok(files)
}

/// Reads one capture to the tables; what the summary says of it.
fn read(number: usize, input: &Input, tables: &mut Tables) -> Result<Value, String> {
    let mut capture = Capture::open(&input.path)?;
    let (mut tracker, mut decoder) = (Tracker::default(), Decoder::default());
    let mut listed = Vec::new();
    let (mut packets, mut not_tcp, mut unreadable) = (0u64, 0u64, 0u64);
    let (mut first_ns, mut last_ns) = (i64::MAX, i64::MIN);
    let mut link_types: Vec<(u16, u64, bool)> = Vec::new();
    let (mut row, mut packet) = (0, TcpPacket::default());
    while let Some(frame) = capture.next() {
        packets += 1;
        let time_ns = frame.time_ns + input.shift_ns;
        first_ns = first_ns.min(time_ns);
        last_ns = last_ns.max(time_ns);
        let decoded = decoder.decode(&frame, &mut packet);
        match link_types.first_mut() {
            Some((link_type, count, _)) if *link_type == frame.link_type => *count += 1,
            _ => note_link_type(&mut link_types, frame.link_type, decoded != Err(NoTcp::UnknownLinkType)),
        }
        if let Err(why) = decoded {
            unreadable += u64::from(why == NoTcp::Truncated);
            not_tcp += 1;
            continue;
        }
        match &mut tables.rows {
            None => {
                tracker.process(time_ns, &packet, row);
            }
            Some(rows) => {
                let segment = tracker.process(time_ns, &packet, row);
                rows.push(packets, time_ns, &packet, &segment, &tracker.proved);
                if rows.full() {
                    tables.write_segments(number)?;
                }
            }
        }
        row += 1;
        tracker.proved.clear();
        if !tracker.finished.is_empty() {
            tables.take_connections(number, &mut tracker.finished, &mut listed)?;
        }
    }
    for place in tracker.remaining() {
        tracker.remove(place);
        if tracker.finished.len() == AT_A_TIME {
            tables.take_connections(number, &mut tracker.finished, &mut listed)?;
        }
    }
    tables.take_connections(number, &mut tracker.finished, &mut listed)?;
    tables.end_file(number)?;
    listed.sort_by_key(|connection: &Value| connection["conn"].as_u64());
    let about = capture.about();
    let damage: Vec<_> = capture
        .damage()
        .iter()
        .map(|one| json!({"offset": one.offset, "bytes": one.bytes, "reason": one.reason}))
        .collect();
    let link_types: Vec<_> = link_types
        .iter()
        .map(|(number, packets, known)| json!({"link_type": number, "packets": packets, "known": known}))
        .collect();
    Ok(json!({
        "file": number,
        "label": input.label,
        "format": about.format,
        "shift_ns": input.shift_ns,
        "packets": packets,
        "not_tcp": not_tcp,
        "unreadable": unreadable,
        "unfinished_fragments": decoder.unfinished(),
        "dropped_by_capture": about.dropped,
        "link_types": link_types,
        "interfaces": about.interfaces,
        "remarks": about.remarks,
        "names": about.names,
        "connections_total": tracker.count,
        "connections_given_up": tracker.given_up,
        "connections": listed,
        "first_ns": (packets > 0).then_some(first_ns),
        "last_ns": (packets > 0).then_some(last_ns),
        "trouble": capture.damage().first().map(ToString::to_string),
        "damages": capture.damages(),
        "damage": damage,
    }))
}

#[cold]
fn note_link_type(link_types: &mut Vec<(u16, u64, bool)>, link_type: u16, known: bool) {
    match link_types.iter().position(|(there, ..)| *there == link_type) {
        Some(place) => {
            link_types[place].1 += 1;
            link_types.swap(0, place);
        }
        None => {
            link_types.push((link_type, 1, known));
            let last = link_types.len() - 1;
            link_types.swap(0, last);
        }
    }
}

fn describe(connection: &Connection) -> Value {
    let end = |(address, port)| match IpAddr::from(address) {
        IpAddr::V4(four) => format!("{four}:{port}"),
        IpAddr::V6(six) => format!("[{six}]:{port}"),
    };
    let counts = |counts: &Counts| {
        let mut object: serde_json::Map<String, Value> =
            SIDE_COLUMNS.iter().map(|(name, value)| ((*name).to_owned(), value(counts).into())).collect();
        object.insert("isn".into(), counts.isn.into());
        object.insert("mss".into(), counts.mss.into());
        object.insert("window_scale".into(), counts.window_scale.into());
        object.insert("sack_permitted".into(), counts.sack_permitted.into());
        object.insert("timestamps".into(), counts.timestamps.into());
        object.insert("fin".into(), counts.fin.into());
        object.insert("rst".into(), counts.rst.into());
        object.insert(
            "spurious".into(),
            json!({
                "by_ack": counts.spurious_by_ack,
                "by_timestamp": counts.spurious_by_timestamp,
                "by_dsack": counts.spurious_by_dsack,
            }),
        );
        Value::Object(object)
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

const NAMES: [&str; 3] = ["segments", "sacks", "connections"];

/// The tables under way.
struct Tables {
    segments: Option<Table>,
    sacks: Option<Table>,
    connections: Table,
    rows: Option<Rows>,
    closed: Vec<Connection>,
}

impl Tables {
    fn create(out: &Path, ending: &str, options: &Options) -> Result<Tables, String> {
        let path = |name: &str| out.join(format!("{name}.parquet{ending}"));
        let sides = |side: &str| {
            let columns = SIDE_COLUMNS.iter().map(|(name, _)| format!("required int64 {side}_{name};"));
            columns.collect::<Vec<_>>().join(" ")
        };
        let schema = format!("{CONNECTIONS} {} {} }}", sides("client"), sides("server"));
        let table = |name: &str, schema: &str| options.segments.then(|| Table::create(&path(name), schema)).transpose();
        Ok(Tables {
            segments: table("segments", SEGMENTS)?,
            sacks: table("sacks", SACKS)?,
            connections: Table::create(&path("connections"), &schema)?,
            rows: options.segments.then(Rows::default),
            closed: Vec::new(),
        })
    }

    #[cold]
    fn take_connections(&mut self, file: usize, from: &mut Vec<Connection>, to: &mut Vec<Value>) -> Result<(), String> {
        for connection in from.drain(..) {
            if to.len() < LISTED {
                to.push(describe(&connection));
            }
            self.closed.push(connection);
            if self.closed.len() == ROWS / 8 {
                write_connections(&mut self.connections, file as i32, &self.closed)?;
                self.closed.clear();
            }
        }
        Ok(())
    }

    /// Writes the older half of the rows.
    #[cold]
    fn write_segments(&mut self, file: usize) -> Result<(), String> {
        if let (Some(rows), Some(segments), Some(sacks)) = (&mut self.rows, &mut self.segments, &mut self.sacks) {
            rows.write(file as i32, segments, sacks)?;
        }
        Ok(())
    }

    fn end_file(&mut self, file: usize) -> Result<(), String> {
        self.write_segments(file)?;
        self.write_segments(file)?;
        if let Some(rows) = &mut self.rows {
            rows.first = 0;
        }
        if !self.closed.is_empty() {
            write_connections(&mut self.connections, file as i32, &self.closed)?;
            self.closed.clear();
        }
        Ok(())
    }

    /// Takes over what a thread wrote.
    fn append(&mut self, out: &Path, number: usize) -> Result<(), String> {
        let tables = [self.segments.as_mut(), self.sacks.as_mut(), Some(&mut self.connections)];
        for (name, table) in NAMES.iter().zip(tables) {
            if let Some(table) = table {
                table.append(&out.join(format!("{name}.parquet.{number}.part")))?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<(), String> {
        for table in [self.segments, self.sacks, Some(self.connections)].into_iter().flatten() {
            table.finish()?;
        }
        Ok(())
    }
}

/// Segments on their way to the file, one vector a column.
#[derive(Default)]
struct Group {
    frame: Vec<i64>,
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
    sacks: Vec<SackRow>,
}

struct SackRow {
    frame: i64,
    time_ns: i64,
    conn: i32,
    dir: i32,
    ack: i64,
    block: i32,
    left: i64,
    right: i64,
}

/// Two row groups: the one that grows, and the one before it, in which a retransmission may still be found spurious.
#[derive(Default)]
struct Rows {
    /// Row of the first that is kept.
    first: u64,
    before: Group,
    now: Group,
}

impl Rows {
    #[inline]
    fn push(&mut self, frame: u64, time_ns: i64, packet: &TcpPacket, segment: &Segment, proven: &[u64]) {
        let group = &mut self.now;
        group.frame.push(frame as i64);
        group.time_ns.push(time_ns);
        group.conn.push(segment.connection as i32);
        group.dir.push(i32::from(segment.direction));
        group.ip_len.push(packet.ip_len as i32);
        group.payload.push(packet.payload as i32);
        group.seq.push(segment.seq);
        group.ack.push(segment.ack);
        group.window.push(segment.window);
        group.flags.push(i32::from(packet.flags));
        group.class.push(segment.class as i32);
        if let Some(rtt_ns) = segment.rtt_ns {
            group.rtt_ns.push(rtt_ns);
        }
        group.has_rtt.push(i16::from(segment.rtt_ns.is_some()));
        group.in_order.push(segment.in_order);
        if segment.class & class::SACK != 0 {
            group.push_sacks(frame, time_ns, packet, segment);
        }
        for &row in proven {
            self.prove(row);
        }
    }

    /// Marks a retransmission as spurious, if its row was not written yet.
    #[cold]
    fn prove(&mut self, row: u64) {
        let Some(at) = row.checked_sub(self.first) else { return };
        let at = at as usize;
        let before = self.before.class.len();
        let cell = if at < before { self.before.class.get_mut(at) } else { self.now.class.get_mut(at - before) };
        if let Some(cell) = cell {
            *cell |= class::SPURIOUS as i32;
        }
    }

    #[inline]
    fn full(&self) -> bool {
        self.now.class.len() == ROWS
    }

    fn write(&mut self, file: i32, segments: &mut Table, sacks: &mut Table) -> Result<(), String> {
        self.first += self.before.class.len() as u64;
        self.before.write(file, segments, sacks)?;
        self.before.clear();
        std::mem::swap(&mut self.before, &mut self.now);
        Ok(())
    }
}

impl Group {
    #[cold]
    fn push_sacks(&mut self, frame: u64, time_ns: i64, packet: &TcpPacket, segment: &Segment) {
        for block in 0..usize::from(packet.sack_blocks) {
            let (left, right) = packet.sacks[block];
            // Edges lie within a window of the ack: as it is unwrapped, so are they.
            let near = |edge: u32| segment.ack + i64::from(edge.wrapping_sub(packet.ack) as i32);
            self.sacks.push(SackRow {
                frame: frame as i64,
                time_ns,
                conn: segment.connection as i32,
                dir: i32::from(segment.direction),
                ack: segment.ack,
                block: block as i32,
                left: near(left),
                right: near(right),
            });
        }
    }

    fn clear(&mut self) {
        let Group { frame, time_ns, conn, dir, ip_len, payload, seq, ack, window, flags, class, rtt_ns, .. } = self;
        for column in [frame, time_ns, seq, ack, window, rtt_ns, &mut self.in_order] {
            column.clear();
        }
        for column in [conn, dir, ip_len, payload, flags, class] {
            column.clear();
        }
        self.has_rtt.clear();
        self.sacks.clear();
    }

    fn write(&self, file: i32, segments: &mut Table, sacks: &mut Table) -> Result<(), String> {
        if self.class.is_empty() {
            return Ok(());
        }
        let mut group = segments.group()?;
        int32(&mut group, &vec![file; self.class.len()])?;
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
        int64(&mut group, &self.frame, None)?;
        group.close().map_err(unwritable)?;
        if self.sacks.is_empty() {
            return Ok(());
        }
        let mut group = sacks.group()?;
        let integers = |of: fn(&SackRow) -> i32| self.sacks.iter().map(of).collect::<Vec<_>>();
        let longs = |of: fn(&SackRow) -> i64| self.sacks.iter().map(of).collect::<Vec<_>>();
        int32(&mut group, &vec![file; self.sacks.len()])?;
        int64(&mut group, &longs(|row| row.frame), None)?;
        int64(&mut group, &longs(|row| row.time_ns), None)?;
        int32(&mut group, &integers(|row| row.conn))?;
        int32(&mut group, &integers(|row| row.dir))?;
        int64(&mut group, &longs(|row| row.ack), None)?;
        int32(&mut group, &integers(|row| row.block))?;
        int64(&mut group, &longs(|row| row.left), None)?;
        int64(&mut group, &longs(|row| row.right), None)?;
        group.close().map(|_| ()).map_err(unwritable)
    }
}

fn write_connections(table: &mut Table, file: i32, connections: &[Connection]) -> Result<(), String> {
    let mut group = table.group()?;
    let integers = |of: &dyn Fn(&Connection) -> i32| connections.iter().map(of).collect::<Vec<_>>();
    let longs = |of: &dyn Fn(&Connection) -> i64| connections.iter().map(of).collect::<Vec<_>>();
    let addresses = |of: &dyn Fn(&Connection) -> IpAddr| {
        connections.iter().map(|one| ByteArray::from(of(one).to_string().into_bytes())).collect::<Vec<_>>()
    };
    int32(&mut group, &vec![file; connections.len()])?;
    int32(&mut group, &integers(&|connection| connection.number as i32))?;
    text(&mut group, &addresses(&|connection| connection.client.0.into()))?;
    int32(&mut group, &integers(&|connection| i32::from(connection.client.1)))?;
    text(&mut group, &addresses(&|connection| connection.server.0.into()))?;
    int32(&mut group, &integers(&|connection| i32::from(connection.server.1)))?;
    int64(&mut group, &longs(&|connection| connection.first_ns), None)?;
    int64(&mut group, &longs(&|connection| connection.last_ns), None)?;
    int32(&mut group, &integers(&|connection| i32::from(connection.handshake)))?;
    for side in 0..2 {
        for (_, value) in SIDE_COLUMNS {
            int64(&mut group, &longs(&|connection| value(&connection.counts[side])), None)?;
        }
    }
    group.close().map(|_| ()).map_err(unwritable)
}

/// A Parquet file under way.
struct Table(SerializedFileWriter<File>);

impl Table {
    fn create(path: &Path, schema: &str) -> Result<Table, String> {
        let file = File::create(path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        let schema = Arc::new(parse_message_type(schema).expect("our own schema is right"));
        let mut properties = WriterProperties::builder()
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).expect("a level that exists")));
        // Numbers that grow: their differences are small.
        for name in ["time_ns", "seq", "ack", "in_order", "frame", "rtt_ns", "left", "right"] {
            let column = ColumnPath::from(name);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
        SerializedFileWriter::new(file, schema, Arc::new(properties.build())).map(Table).map_err(unwritable)
    }

    fn group(&mut self) -> Result<SerializedRowGroupWriter<'_, File>, String> {
        self.0.next_row_group().map_err(unwritable)
    }

    /// Takes over every row group of another file, as it is.
    fn append(&mut self, path: &Path) -> Result<(), String> {
        let unreadable = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
        let file = File::open(path).map_err(|error| unreadable(&error))?;
        let reader = SerializedFileReader::new(file).map_err(|error| unreadable(&error))?;
        let file = File::open(path).map_err(|error| unreadable(&error))?;
        for from in reader.metadata().row_groups() {
            let mut group = self.group()?;
            for column in from.columns() {
                let closed = ColumnCloseResult {
                    bytes_written: column.compressed_size() as u64,
                    rows_written: from.num_rows() as u64,
                    metadata: column.clone(),
                    bloom_filter: None,
                    column_index: None,
                    offset_index: None,
                };
                group.append_column(&file, closed).map_err(unwritable)?;
            }
            group.close().map_err(unwritable)?;
        }
        Ok(())
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
