//! From captures to the tables of segments, SACK blocks and connections, and a summary.

mod connections;
mod datagrams;
mod parquet;
mod segments;
mod summary;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use backchannel_core::{Error, ResultExt};
use serde_json::{json, Value};

use self::datagrams::DatagramTable;
use self::parquet::Table;
use self::segments::SegmentTables;
use self::summary::Summary;
use crate::capture::{Capture, Frame};
use crate::connection::Connection;
use crate::datagram::Datagram;
use crate::decode::Decoder;
use crate::packet::{NoTcp, TcpPacket};
use crate::tracker::Tracker;

/// Rows of a row group. Bounds memory.
const ROWS: usize = 1 << 16;
/// Connections in a row group. Bounds memory.
const CONNECTIONS: usize = ROWS / 8;
/// Connections that are closed at a time at the end of a file. Bounds memory.
const CLOSED_AT_ONCE: usize = 1024;

/// A capture to read.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its name in the summary.
    pub label: String,
    /// The file.
    pub path: PathBuf,
    /// Added to all its times, to correct its clock.
    pub shift_ns: i64,
}

/// What to write, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Write the tables of segments and of SACK blocks as well as the one of connections.
    pub segments: bool,
    /// Write the table of packets of UDP and echoes of ICMP as well.
    pub datagrams: bool,
    /// Threads. As many files are read at a time; where there are twice as many threads as files, those left over
    /// encode tables.
    pub jobs: usize,
}

/// Reads captures and writes `segments.parquet`, `sacks.parquet`, `connections.parquet` and `summary.json` into `out`,
/// which is created if needed. A damaged capture is read as far as possible, and the summary lists the damage.
///
/// # Errors
/// A capture cannot be opened, or the tables cannot be written.
pub fn write_tables(inputs: &[Input], out: &Path, options: &Options) -> Result<(), Error> {
    if inputs.len() > usize::from(u16::MAX) {
        return Err(format!("{} captures are too many for one call", inputs.len()).into());
    }
    fs::create_dir_all(out).or_system(format_args!("cannot make {}", out.display()))?;
    let jobs = options.jobs.min(inputs.len());
    let threads = options.jobs / jobs.max(1);
    let (segments, datagrams) = (options.segments, options.datagrams);
    let mode = ReadMode { segments, datagrams, encoders: if threads > 1 { threads } else { 0 } };
    let files = if jobs > 1 { read_in_parallel(inputs, out, mode, jobs)? } else { read_in_turn(inputs, out, mode)? };
    let text = serde_json::to_string_pretty(&json!({"version": 2, "files": files})).expect("it is plain JSON");
    let path = out.join("summary.json");
    fs::write(&path, text + "\n").or_system(format_args!("cannot write {}", path.display()))
}

/// How each file is read.
#[derive(Clone, Copy)]
struct ReadMode {
    segments: bool,
    datagrams: bool,
    /// Threads that encode tables. Without any, the thread that reads does. A thread that reads the file ahead was
    /// tried: it gains nothing, because handing frames over costs as much as finding them.
    encoders: usize,
}

fn read_in_turn(inputs: &[Input], out: &Path, mode: ReadMode) -> Result<Vec<Value>, Error> {
    let mut tables = Tables::create(out, "", mode)?;
    let files = inputs.iter().enumerate().map(|(number, input)| read(number, input, &mut tables));
    // The first error is the one to tell, not that the tables are incomplete.
    let files = files.collect::<Result<_, _>>()?;
    tables.close()?;
    Ok(files)
}

/// Reads each file on a thread, to tables of its own, and joins these in order.
fn read_in_parallel(inputs: &[Input], out: &Path, mode: ReadMode, jobs: usize) -> Result<Vec<Value>, Error> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<Value, Error>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(input) = inputs.get(number) else { return };
                let result = Tables::create(out, &part(number), mode).and_then(|mut tables| {
                    let summary = read(number, input, &mut tables)?;
                    tables.close().map(|()| summary)
                });
                results.lock().expect("no thread panics with it").push((number, result));
            });
        }
    });
    let mut results = results.into_inner().expect("no thread panics with it");
    results.sort_by_key(|(number, _)| *number);
    let mut tables = Tables::create(out, "", ReadMode { encoders: 0, ..mode })?;
    let joined: Result<Vec<_>, _> = results
        .into_iter()
        .map(|(number, result)| result.and_then(|summary| tables.append(out, number).map(|()| summary)))
        .collect();
    for number in 0..inputs.len() {
        for name in NAMES {
            // Without segments or datagrams there are fewer parts, and after a failure perhaps none.
            let _ = fs::remove_file(path_of(out, name, &part(number)));
        }
    }
    let files = joined?;
    tables.close()?;
    Ok(files)
}

/// Reads one capture to the tables. Returns its entry in the summary.
fn read(number: usize, input: &Input, tables: &mut Tables) -> Result<Value, Error> {
    let mut capture = Capture::open(&input.path)?;
    let (mut tracker, mut decoder, mut summary) = (Tracker::default(), Decoder::default(), Summary::default());
    let (mut row, mut packet) = (0, TcpPacket::default());
    while let Some(frame) = capture.next() {
        let time_ns = frame.time_ns.saturating_add(input.shift_ns);
        let decoded = decoder.decode(&frame, &mut packet);
        summary.count(time_ns, frame.link_type, decoded);
        if let Err(why) = decoded {
            if why == NoTcp::OtherProtocol {
                tables.add_datagram(number, time_ns, &frame)?;
            }
            continue;
        }
        let segment = tracker.process(time_ns, &packet, row);
        if let Some(segments) = &mut tables.segments {
            segments.push(summary.packets, time_ns, &packet, &segment, &tracker.proved);
            if segments.full() {
                segments.write(number as i32)?;
            }
        }
        row += 1;
        tracker.proved.clear();
        if !tracker.finished.is_empty() {
            tables.add_connections(number, &mut tracker.finished, &mut summary)?;
        }
    }
    for place in tracker.remaining() {
        tracker.remove(place);
        if tracker.finished.len() == CLOSED_AT_ONCE {
            tables.add_connections(number, &mut tracker.finished, &mut summary)?;
        }
    }
    tables.add_connections(number, &mut tracker.finished, &mut summary)?;
    tables.end_file(number)?;
    Ok(summary.into_json(number, input, &capture, &decoder, &tracker))
}

const NAMES: [&str; 4] = ["segments", "sacks", "connections", "datagrams"];

fn path_of(out: &Path, name: &str, suffix: &str) -> PathBuf {
    out.join(format!("{name}.parquet{suffix}"))
}

/// Suffix of the tables that a thread writes for one capture.
fn part(number: usize) -> String {
    format!(".{number}.part")
}

/// The tables that are being written.
struct Tables {
    segments: Option<SegmentTables>,
    datagrams: Option<DatagramTable>,
    connections: Table,
    /// Connections that are not written yet.
    closed: Vec<Connection>,
}

impl Tables {
    fn create(out: &Path, suffix: &str, mode: ReadMode) -> Result<Tables, Error> {
        let [segments, sacks, connections, datagrams] = NAMES.map(|name| path_of(out, name, suffix));
        Ok(Tables {
            segments: mode.segments.then(|| SegmentTables::create(&segments, &sacks, mode.encoders)).transpose()?,
            datagrams: mode.datagrams.then(|| DatagramTable::create(&datagrams)).transpose()?,
            connections: Table::create(&connections, &connections::layout())?,
            closed: Vec::new(),
        })
    }

    #[cold]
    fn add_datagram(&mut self, file: usize, time_ns: i64, frame: &Frame) -> Result<(), Error> {
        let Some(table) = &mut self.datagrams else { return Ok(()) };
        Datagram::of(frame).map_or(Ok(()), |datagram| table.push(file as i32, time_ns, datagram))
    }

    #[cold]
    fn add_connections(&mut self, file: usize, from: &mut Vec<Connection>, to: &mut Summary) -> Result<(), Error> {
        for connection in from.drain(..) {
            to.add_connection(&connection);
            self.closed.push(connection);
            if self.closed.len() == CONNECTIONS {
                self.write_connections(file)?;
            }
        }
        Ok(())
    }

    fn write_connections(&mut self, file: usize) -> Result<(), Error> {
        connections::write(&mut self.connections, file as i32, &self.closed)?;
        self.closed.clear();
        Ok(())
    }

    fn end_file(&mut self, file: usize) -> Result<(), Error> {
        if let Some(segments) = &mut self.segments {
            segments.end_file(file as i32)?;
        }
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.end_file(file as i32)?;
        }
        if !self.closed.is_empty() {
            self.write_connections(file)?;
        }
        Ok(())
    }

    /// Copies what a thread wrote.
    fn append(&mut self, out: &Path, number: usize) -> Result<(), Error> {
        let append = |table: &mut Table, name| table.append(&path_of(out, name, &part(number)));
        let [segments_name, sacks_name, connections_name, datagrams_name] = NAMES;
        if let Some(segments) = &mut self.segments {
            let [segments, sacks] = segments.tables();
            append(segments, segments_name)?;
            append(sacks, sacks_name)?;
        }
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.append(&path_of(out, datagrams_name, &part(number)))?;
        }
        append(&mut self.connections, connections_name)
    }

    fn close(self) -> Result<(), Error> {
        if let Some(segments) = self.segments {
            segments.close()?;
        }
        if let Some(datagrams) = self.datagrams {
            datagrams.close()?;
        }
        self.connections.close()
    }
}

#[cfg(test)]
mod tests;
