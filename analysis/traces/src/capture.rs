//! Capture files as a stream of frames: pcap (micro- and nanosecond, either byte order) and pcapng (several sections
//! and interfaces, options, name resolution), plain or compressed by gzip or zstd.
//!
//! A frame is lent from the reading buffer, never copied; memory does not grow with the file. Where a file is damaged,
//! reading goes on at the next place that looks like a record and is followed by another, and [`Capture::damage`] tells
//! offset and reason. Formats: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// Longest frame taken; a greater length means that the file is damaged there. It is what libpcap takes at most.
const MAX_RECORD: usize = 1 << 18;
/// Longest pcapng block that is looked into; longer ones that hold no packet are skipped.
const MAX_BLOCK: usize = 1 << 19;
/// Bytes asked of the file at a time: little enough to stay in the processor's cache.
const CHUNK: usize = 1 << 16;
/// How far to look for the next record after damage.
const SEARCH: u64 = 64 << 20;
/// Damages, interfaces and names that are kept; more are counted only.
const KEPT: usize = 100;
const MAX_INTERFACES: usize = 1 << 16;
const PCAPNG_SECTION: u32 = 0x0a0d_0d0a;
/// Times are kept this far from the ends of their type, so that no difference overflows.
const TIME_LIMIT_NS: i128 = 1 << 61;
const YEAR_S: i64 = 366 * 86_400;
const DAY_S: i64 = 86_400;

/// One captured frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Since the UNIX epoch, in nanoseconds.
    pub time_ns: i64,
    /// Link type of its interface (LINKTYPE_*).
    pub link_type: u16,
    /// Bytes the frame had on the wire.
    pub wire_len: u32,
    /// Bytes that were kept.
    pub data: &'a [u8],
}

/// A place where a file could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Byte of the uncompressed file.
    pub offset: u64,
    /// Bytes that were passed over.
    pub bytes: u64,
    /// What was wrong.
    pub reason: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} at byte {}", self.reason, self.offset)?;
        if self.bytes > 0 {
            write!(out, " ({} bytes passed over)", self.bytes)?;
        }
        Ok(())
    }
}

/// What a file says about itself beside its frames.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// "pcap", "pcap, nanoseconds", "pcapng", with " in gzip" or " in zstd".
    pub format: String,
    /// Machine, system and program that captured, and comments, as pcapng options say.
    pub remarks: Vec<String>,
    /// Names of its interfaces, where they have one.
    pub interfaces: Vec<String>,
    /// Addresses to names, from name resolution blocks.
    pub names: BTreeMap<String, Vec<String>>,
    /// Packets that the capturing system dropped by its own account.
    pub dropped: u64,
}

#[derive(Debug, Clone, Copy)]
struct Pcap {
    swapped: bool,
    /// Nanoseconds of a unit of the fraction, and how many of them make a second.
    unit_ns: u32,
    units: u32,
    link_type: u16,
    /// Bytes of a record's header: 24 in the format of a patched libpcap.
    header_len: usize,
    /// Greatest length that a record found by searching may have.
    snaplen: usize,
}

/// The header of a pcap record.
#[derive(Debug, Clone, Copy)]
struct Record {
    seconds: i64,
    /// Fraction of the second, in the file's unit.
    fraction: u32,
    /// Bytes captured.
    kept: usize,
    wire_len: u32,
}

/// What became of an irregular pcap record.
enum Irregular {
    /// It is read all the same.
    Accepted(Record),
    /// It was skipped as damage; reading goes on.
    Skipped,
    /// The file ends here.
    End,
}

enum Format {
    Pcap(Pcap),
    Pcapng { swapped: bool, interfaces: Vec<Interface> },
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link_type: u16,
    /// Nanoseconds a tick, when that is a whole number; else 0.
    tick_ns: u64,
    /// Ticks a second of its time stamps.
    ticks: u64,
    offset_s: i64,
    snaplen: u32,
    dropped: u64,
}

/// The frames of a capture, in file order.
pub struct Capture {
    source: Source,
    format: Format,
    about: About,
    damage: Vec<Damage>,
    damages: u64,
    last_s: Option<i64>,
    /// Time of the last frame of a pcapng file.
    last_ns: i64,
    over: bool,
}

/// The file behind a buffer.
struct Source {
    input: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the uncompressed file of `start`.
    offset: u64,
    failure: Option<String>,
}

impl Source {
    fn new(input: Box<dyn Read + Send>) -> Source {
        Source {
            input,
            buffer: vec![0; (MAX_BLOCK + CHUNK).next_power_of_two()],
            start: 0,
            end: 0,
            offset: 0,
            failure: None,
        }
    }

    fn have(&self) -> usize {
        self.end - self.start
    }

    /// Makes `n` bytes available if the file has them.
    #[inline]
    fn fill(&mut self, n: usize) -> bool {
        self.have() >= n || self.fill_more(n)
    }

    #[cold]
    fn fill_more(&mut self, n: usize) -> bool {
        debug_assert!(n <= self.buffer.len());
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        while self.end < n {
            let to = (self.end + CHUNK).min(self.buffer.len());
            match self.input.read(&mut self.buffer[self.end..to]) {
                Ok(0) => break,
                Ok(more) => self.end += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failure.get_or_insert_with(|| format!("reading failed: {error}"));
                    break;
                }
            }
        }
        self.end >= n
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The fields of the pcap record at the start, whose header is in the buffer.
    #[inline(always)]
    fn record(&self, pcap: Pcap) -> Record {
        let header: &[u8; 16] = self.buffer[self.start..].first_chunk().expect("the header is in the buffer");
        let field = |at: usize| word(&header[at..], pcap.swapped);
        Record { seconds: field(0).into(), fraction: field(4), kept: field(8) as usize, wire_len: field(12) }
    }

    #[inline]
    fn skip_buffered(&mut self, n: usize) {
        self.start += n;
        self.offset += n as u64;
    }

    /// Passes over more than the buffer holds; how much there was.
    fn skip(&mut self, mut n: u64) -> u64 {
        let wanted = n;
        while n > 0 && (self.have() > 0 || self.fill(1)) {
            let step = n.min(self.have() as u64);
            self.skip_buffered(step as usize);
            n -= step;
        }
        wanted - n
    }
}

impl Capture {
    /// Opens a file.
    ///
    /// # Errors
    /// A sentence: it cannot be opened, or is no capture.
    pub fn open(path: &Path) -> Result<Capture, String> {
        let in_file = |why: String| format!("{}: {why}", path.display());
        let mut file = File::open(path).map_err(|error| in_file(format!("cannot be opened: {error}")))?;
        let mut head = Vec::with_capacity(4);
        Read::by_ref(&mut file)
            .take(4)
            .read_to_end(&mut head)
            .map_err(|error| in_file(format!("cannot be read: {error}")))?;
        let compressed = match head[..] {
            [0x1f, 0x8b, ..] => " in gzip",
            [0x28, 0xb5, 0x2f, 0xfd] => " in zstd",
            _ => "",
        };
        let whole = io::Cursor::new(head).chain(file);
        let plain: Box<dyn Read + Send> = match compressed {
            " in gzip" => Box::new(flate2::read::MultiGzDecoder::new(BufReader::with_capacity(CHUNK, whole))),
            " in zstd" => {
                Box::new(zstd::Decoder::new(whole).map_err(|error| in_file(format!("is no zstd stream: {error}")))?)
            }
            _ => Box::new(whole),
        };
        let mut capture = Capture::new(plain).map_err(in_file)?;
        capture.about.format += compressed;
        Ok(capture)
    }

    /// Reads an uncompressed capture.
    ///
    /// # Errors
    /// It begins like no capture.
    pub fn new(input: Box<dyn Read + Send>) -> Result<Capture, String> {
        let mut source = Source::new(input);
        if !source.fill(4) {
            return Err(match source.failure {
                Some(why) => format!("is no capture: {why}"),
                None => "is no capture: it is shorter than a capture's header".into(),
            });
        }
        let magic = le32(source.bytes());
        let (swapped, unit_ns, header_len) = match magic {
            0xa1b2_c3d4 => (false, 1000, 16),
            0xa1b2_3c4d => (false, 1, 16),
            0xa1b2_cd34 => (false, 1000, 24),
            0xd4c3_b2a1 => (true, 1000, 16),
            0x4d3c_b2a1 => (true, 1, 16),
            0x34cd_b2a1 => (true, 1000, 24),
            PCAPNG_SECTION => {
                let format = Format::Pcapng { swapped: false, interfaces: Vec::new() };
                let mut capture = Capture::with(source, format, "pcapng");
                capture.section()?;
                return Ok(capture);
            }
            other => return Err(format!("is no capture: it begins with {other:08x}, neither pcap nor pcapng")),
        };
        if !source.fill(24) {
            return Err("is no capture: its header is cut off".into());
        }
        let snaplen = word(&source.bytes()[16..], swapped) as usize;
        let link_type = word(&source.bytes()[20..], swapped) as u16;
        source.skip_buffered(24);
        let snaplen = if (1..=MAX_RECORD).contains(&snaplen) { snaplen.max(64) } else { MAX_RECORD };
        let name = if unit_ns == 1 { "pcap, nanoseconds" } else { "pcap" };
        Ok(Capture::with(
            source,
            Format::Pcap(Pcap { swapped, unit_ns, units: 1_000_000_000 / unit_ns, link_type, header_len, snaplen }),
            name,
        ))
    }

    fn with(source: Source, format: Format, name: &str) -> Capture {
        let about = About { format: name.into(), ..About::default() };
        Capture { source, format, about, damage: Vec::new(), damages: 0, last_s: None, last_ns: 0, over: false }
    }

    /// What the file says about itself; complete once all frames are read.
    pub fn about(&self) -> About {
        let mut about = self.about.clone();
        if let Format::Pcapng { interfaces, .. } = &self.format {
            about.dropped += interfaces.iter().map(|interface| interface.dropped).sum::<u64>();
        }
        about
    }

    /// The first places that could not be read.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// How many places could not be read.
    pub fn damages(&self) -> u64 {
        self.damages
    }

    /// The next frame; `None` at the end.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "a frame is lent, which an Iterator cannot do")]
    pub fn next(&mut self) -> Option<Frame<'_>> {
        if self.over {
            return None;
        }
        match self.format {
            Format::Pcap(pcap) => self.next_pcap(pcap),
            Format::Pcapng { .. } => self.next_pcapng(),
        }
    }

    fn note(&mut self, offset: u64, bytes: u64, reason: impl Into<String>) {
        self.damages += 1;
        if self.damage.len() < KEPT {
            self.damage.push(Damage { offset, bytes, reason: reason.into() });
        }
    }

    /// Notes what is left of a file that ends too early, and ends.
    #[cold]
    fn end_early(&mut self, what: &str) {
        self.over = true;
        let (offset, left) = (self.source.offset, self.source.have() as u64);
        match self.source.failure.take() {
            Some(why) => self.note(offset, left, why),
            None if left > 0 => self.note(offset, left, format!("the file is cut off {what}")),
            None => {}
        }
    }

    /// Notes damage here and goes on where `plausible` holds; false when that is nowhere.
    #[cold]
    fn resynchronise(
        &mut self,
        reason: String,
        otherwise: Option<&str>,
        plausible: impl Fn(&mut Capture, usize) -> bool,
    ) -> bool {
        let from = self.source.offset;
        self.source.skip_buffered(1);
        let mut found = false;
        while self.source.offset - from < SEARCH {
            if !self.source.fill(MAX_BLOCK) && self.source.have() < 16 {
                break;
            }
            // Of what is in the buffer, all but the last block may be searched with what follows in sight.
            let whole = self.source.have() < MAX_BLOCK;
            let most = if whole { self.source.have() } else { CHUNK.min(self.source.have()) };
            match (0..most).find(|&at| plausible(self, at)) {
                Some(at) => {
                    self.source.skip_buffered(at);
                    found = true;
                    break;
                }
                None => self.source.skip_buffered(most),
            }
        }
        let bytes = self.source.offset - from;
        self.note(from, bytes, reason);
        if !found {
            self.over = true;
            let rest = self.source.skip(SEARCH);
            if let Some(last) = self.damage.last_mut().filter(|last| last.offset == from) {
                last.bytes += rest;
                match otherwise {
                    Some(otherwise) => last.reason = otherwise.into(),
                    None => last.reason += "; nothing after it looks like a capture",
                }
            }
        }
        found
    }

    // pcap ----------------------------------------------------------------------------------------------------

    /// The next record. Damage and the end of the file are handled out of line.
    #[inline(always)]
    fn next_pcap(&mut self, pcap: Pcap) -> Option<Frame<'_>> {
        let record = loop {
            if self.source.fill(pcap.header_len) {
                let record = self.source.record(pcap);
                let fits = record.kept <= MAX_RECORD && self.source.fill(pcap.header_len + record.kept);
                if fits && self.is_regular(pcap, record) {
                    self.last_s = Some(record.seconds);
                    break record;
                }
            }
            match self.irregular_pcap(pcap) {
                Irregular::Accepted(record) => break record,
                Irregular::Skipped => {}
                Irregular::End => return None,
            }
        };
        let at = self.source.start + pcap.header_len;
        self.source.skip_buffered(pcap.header_len + record.kept);
        let data = &self.source.buffer[at..at + record.kept];
        let time_ns = record.seconds * 1_000_000_000 + i64::from(record.fraction) * i64::from(pcap.unit_ns);
        Some(Frame { time_ns, link_type: pcap.link_type, wire_len: record.wire_len.max(record.kept as u32), data })
    }

    /// Whether the fields of a record are plausible after the record before it.
    #[inline(always)]
    fn is_regular(&self, pcap: Pcap, record: Record) -> bool {
        record.kept <= pcap.snaplen
            && record.kept <= record.wire_len as usize
            && record.fraction < pcap.units
            && self.last_s.is_none_or(|last| (record.seconds - last).abs() <= YEAR_S)
    }

    /// A record that is cut off or not plausible by itself. What follows decides whether it is accepted: a clock may jump, and
    /// the time of one record may be damaged.
    #[cold]
    fn irregular_pcap(&mut self, pcap: Pcap) -> Irregular {
        if !self.source.fill(pcap.header_len) {
            self.end_early("within a record's header");
            return Irregular::End;
        }
        let record = self.source.record(pcap);
        let before = self.last_s;
        let after = pcap.header_len + record.kept;
        let (reason, otherwise) = if record.kept > MAX_RECORD {
            (format!("a record of {} bytes is impossible", record.kept), None)
        } else if !self.source.fill(after) {
            if self.source.failure.is_some() {
                self.end_early("within a record");
                return Irregular::End;
            }
            ("a record's length is impossible".into(), Some("the file is cut off within a record"))
        } else if self.record_at(pcap, after, false, before) {
            // The next record continues the times before this one.
            return Irregular::Accepted(record);
        } else if self.record_at(pcap, after, false, Some(record.seconds)) {
            // The clock jumped.
            self.last_s = Some(record.seconds);
            return Irregular::Accepted(record);
        } else {
            ("a record's time or length is impossible, and so is what follows it".into(), None)
        };
        if self.resynchronise(reason, otherwise, |capture, at| capture.record_at(pcap, at, true, before)) {
            Irregular::Skipped
        } else {
            Irregular::End
        }
    }

    /// Whether a record of about this time may begin `at` bytes on, with another or the file's end after it when
    /// `chained`.
    fn record_at(&mut self, pcap: Pcap, at: usize, chained: bool, near_s: Option<i64>) -> bool {
        // A search has the whole block in sight; a look ahead may have to read on.
        if !chained && !self.source.fill(at + pcap.header_len) {
            return self.source.have() == at;
        }
        let Some(head) = self.source.bytes().get(at..at + pcap.header_len) else { return false };
        let [seconds, fraction, kept, wire_len] = [0, 4, 8, 12].map(|at| word(&head[at..], pcap.swapped));
        let fits = kept > 0
            && kept as usize <= pcap.snaplen
            && kept <= wire_len
            && wire_len as usize <= MAX_RECORD
            && fraction < pcap.units
            && near_s.is_none_or(|near| (i64::from(seconds) - near).abs() <= DAY_S);
        let after = at + pcap.header_len + kept as usize;
        fits && (!chained || self.source.have() == after || self.record_at(pcap, after, false, near_s))
    }

    // pcapng --------------------------------------------------------------------------------------------------

    fn next_pcapng(&mut self) -> Option<Frame<'_>> {
        loop {
            if !self.source.fill(12) {
                self.end_early("within a block");
                return None;
            }
            let kind = le32(self.source.bytes());
            if kind == PCAPNG_SECTION {
                let from = self.source.offset;
                if let Err(why) = self.section() {
                    if self.source.offset == from && !self.resynchronise_block(why) {
                        return None;
                    }
                }
                continue;
            }
            let Format::Pcapng { swapped, .. } = self.format else { return None };
            let kind = word(self.source.bytes(), swapped);
            let length = word(&self.source.bytes()[4..], swapped) as usize;
            // Names, journals, keys and what others define may be long; no block else is.
            let may_be_long = matches!(kind, 4 | 9 | 10 | 0x0bad | 0x4000_0bad) && length <= 1 << 28;
            if length < 12 || !length.is_multiple_of(4) || (length > MAX_BLOCK && !may_be_long) {
                if !self.resynchronise_block(format!("a block of {length} bytes cannot be")) {
                    return None;
                }
                continue;
            }
            if length > MAX_BLOCK {
                let from = self.source.offset;
                let passed = self.source.skip(length as u64);
                if passed < length as u64 {
                    self.over = true;
                    self.note(from, passed, "the file is cut off within a block");
                    return None;
                }
                continue;
            }
            if !self.source.fill(length) {
                if self.source.failure.is_some() {
                    self.end_early("within a block");
                    return None;
                }
                let reason = "a block's length cannot be".into();
                let cut = Some("the file is cut off within a block");
                if !self.resynchronise(reason, cut, |capture, at| capture.block_at(at)) {
                    return None;
                }
                continue;
            }
            if word(&self.source.bytes()[length - 4..], swapped) as usize != length {
                if !self.resynchronise_block(format!("a block of {length} bytes says another length at its end")) {
                    return None;
                }
                continue;
            }
            let (from, at) = (self.source.offset, self.source.start);
            self.source.skip_buffered(length);
            let body = at + 8..at + length - 4;
            let taken = match kind {
                1 => self.interface(body, swapped).map(|()| None),
                2 | 6 => self.packet(kind, body, swapped).map(Some),
                3 => self.simple(body, swapped).map(Some),
                4 => {
                    names(&self.source.buffer[body], swapped, &mut self.about.names);
                    Ok(None)
                }
                5 => self.statistics(body, swapped).map(|()| None),
                _ => Ok(None),
            };
            match taken {
                Ok(None) => {}
                Ok(Some((time_ns, link_type, wire_len, data))) => {
                    self.last_ns = time_ns;
                    let data = &self.source.buffer[data];
                    return Some(Frame { time_ns, link_type, wire_len, data });
                }
                // The block's own length is right: the next one follows it.
                Err(why) => self.note(from, length as u64, why),
            }
        }
    }

    fn resynchronise_block(&mut self, reason: String) -> bool {
        self.resynchronise(reason, None, |capture, at| capture.block_at(at))
    }

    fn block_at(&mut self, at: usize) -> bool {
        let Format::Pcapng { swapped, .. } = self.format else { return false };
        let Some(head) = self.source.bytes().get(at..at + 12) else { return false };
        let section = le32(head) == PCAPNG_SECTION;
        let swapped = if section { le32(&head[8..]) == 0x4d3c_2b1a } else { swapped };
        let (kind, length) = (word(head, swapped), word(&head[4..], swapped) as usize);
        // The least that a block of each kind can be.
        let least = match kind {
            _ if section => 28,
            1 => 20,
            2 | 6 => 32,
            3 => 16,
            5 => 24,
            _ => return false,
        };
        if !(least..=MAX_BLOCK).contains(&length) || length % 4 != 0 {
            return false;
        }
        let tail = self.source.bytes().get(at + length - 4..at + length);
        tail.is_some_and(|tail| word(tail, swapped) as usize == length)
    }

    /// A section header block, which sets the byte order of all that comes. Passes it only if it is good.
    fn section(&mut self) -> Result<(), String> {
        if !self.source.fill(28) {
            return Err("is no capture: its section header is cut off".into());
        }
        let swapped = match le32(&self.source.bytes()[8..]) {
            0x1a2b_3c4d => false,
            0x4d3c_2b1a => true,
            other => return Err(format!("is no capture: {other:08x} is no byte-order mark")),
        };
        let length = word(&self.source.bytes()[4..], swapped) as usize;
        if !(28..=MAX_BLOCK).contains(&length) || !length.is_multiple_of(4) {
            return Err(format!("is no capture: a section header of {length} bytes"));
        }
        if !self.source.fill(length) {
            return Err("is no capture: its section header is cut off".into());
        }
        let block = self.source.bytes()[24..length - 4].to_vec();
        self.source.skip_buffered(length);
        for (code, value) in options(&block, swapped) {
            let what = match code {
                1 => "comment",
                2 => "hardware",
                3 => "system",
                4 => "program",
                _ => continue,
            };
            if self.about.remarks.len() < KEPT {
                self.about.remarks.push(format!("{what}: {}", text(value)));
            }
        }
        if let Format::Pcapng { interfaces, .. } = &self.format {
            self.about.dropped += interfaces.iter().map(|interface| interface.dropped).sum::<u64>();
        }
        self.format = Format::Pcapng { swapped, interfaces: Vec::new() };
        Ok(())
    }

    /// Interface description block.
    fn interface(&mut self, body: std::ops::Range<usize>, swapped: bool) -> Result<(), String> {
        let block = &self.source.buffer[body];
        if block.len() < 8 {
            return Err("an interface description is too short".into());
        }
        let mut interface = Interface {
            link_type: half(block, swapped),
            tick_ns: 1000,
            ticks: 1_000_000,
            offset_s: 0,
            snaplen: word(&block[4..], swapped),
            dropped: 0,
        };
        let mut name = None;
        for (code, value) in options(&block[8..], swapped) {
            match (code, value) {
                (2, value) => name = Some(text(value)),
                // if_tsresol: a power of ten, or of two when the top bit is set.
                (9, [resolution, ..]) => {
                    let base: u64 = if resolution & 0x80 == 0 { 10 } else { 2 };
                    interface.ticks = base.checked_pow(u32::from(resolution & 0x7f)).ok_or_else(|| {
                        format!("an interface with a time resolution of {base}^-{}", resolution & 0x7f)
                    })?;
                    let whole = 1_000_000_000 % interface.ticks == 0;
                    interface.tick_ns = if whole { 1_000_000_000 / interface.ticks } else { 0 };
                }
                (14, value) if value.len() == 8 => {
                    let (a, b) = (word(value, swapped), word(&value[4..], swapped));
                    let (high, low) = if swapped { (a, b) } else { (b, a) };
                    interface.offset_s = (u64::from(high) << 32 | u64::from(low)) as i64;
                }
                _ => {}
            }
        }
        let Format::Pcapng { interfaces, .. } = &mut self.format else { return Ok(()) };
        if interfaces.len() == MAX_INTERFACES {
            return Err(format!("more than {MAX_INTERFACES} interfaces in one section"));
        }
        interfaces.push(interface);
        if let Some(name) = name.filter(|_| self.about.interfaces.len() < KEPT) {
            self.about.interfaces.push(name);
        }
        Ok(())
    }

    /// An enhanced packet block, or the packet block that came before it: time, link type, wire length, place of data.
    #[inline]
    fn packet(&mut self, kind: u32, body: std::ops::Range<usize>, swapped: bool) -> Result<Packet, String> {
        let Format::Pcapng { interfaces, .. } = &mut self.format else { return Err(String::new()) };
        let block = &self.source.buffer[body.clone()];
        if block.len() < 20 {
            return Err("a packet block is too short".into());
        }
        let [number, high, low, kept, wire_len] = [0, 4, 8, 12, 16].map(|at| word(&block[at..], swapped));
        // The older block has the interface in half a word, and drops in the other half.
        let number = if kind == 2 { u32::from(half(block, swapped)) } else { number };
        let interface = *interfaces
            .get(number as usize)
            .ok_or_else(|| format!("a packet of interface {number}, of which nothing was said"))?;
        let kept = kept as usize;
        if kept > MAX_RECORD || block.len() - 20 < kept {
            return Err(format!("a packet of {kept} bytes in a block of {}", block.len() + 12));
        }
        let ticks = u64::from(high) << 32 | u64::from(low);
        let time_ns = interface.time_ns(ticks);
        let data = body.start + 20..body.start + 20 + kept;
        Ok((time_ns, interface.link_type, wire_len.max(kept as u32), data))
    }

    /// A simple packet block: the first interface, and no time; it gets that of the packet before it.
    fn simple(&mut self, body: std::ops::Range<usize>, swapped: bool) -> Result<Packet, String> {
        let Format::Pcapng { interfaces, .. } = &self.format else { return Err(String::new()) };
        let block = &self.source.buffer[body.clone()];
        let (Some(interface), true) = (interfaces.first(), block.len() >= 4) else {
            return Err("a simple packet block without interface or length".into());
        };
        let wire_len = word(block, swapped);
        let limit = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
        let kept = (wire_len.min(limit) as usize).min(block.len() - 4);
        Ok((self.last_ns, interface.link_type, wire_len, body.start + 4..body.start + 4 + kept))
    }

    /// Interface statistics: what the system dropped, a running count.
    fn statistics(&mut self, body: std::ops::Range<usize>, swapped: bool) -> Result<(), String> {
        let block = &self.source.buffer[body];
        let Format::Pcapng { interfaces, .. } = &mut self.format else { return Ok(()) };
        if block.len() < 12 {
            return Err("interface statistics are too short".into());
        }
        let number = word(block, swapped);
        let interface =
            interfaces.get_mut(number as usize).ok_or_else(|| format!("statistics of interface {number}, unknown"))?;
        for (code, value) in options(&block[12..], swapped) {
            if code == 5 && value.len() == 8 {
                let (a, b) = (word(value, swapped), word(&value[4..], swapped));
                let (high, low) = if swapped { (a, b) } else { (b, a) };
                interface.dropped = u64::from(high) << 32 | u64::from(low);
            }
        }
        Ok(())
    }
}

type Packet = (i64, u16, u32, std::ops::Range<usize>);

impl Interface {
    #[inline]
    fn time_ns(&self, ticks: u64) -> i64 {
        if self.tick_ns != 0 && self.offset_s == 0 && ticks < (1 << 61) / self.tick_ns {
            return (ticks * self.tick_ns) as i64;
        }
        let ns = i128::from(ticks) * 1_000_000_000 / i128::from(self.ticks) + i128::from(self.offset_s) * 1_000_000_000;
        ns.clamp(-TIME_LIMIT_NS, TIME_LIMIT_NS) as i64
    }
}

/// Options of a block: code and value.
fn options(mut rest: &[u8], swapped: bool) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = rest.get(..4)?;
        let (code, length) = (half(head, swapped), usize::from(half(&head[2..], swapped)));
        let value = rest.get(4..4 + length)?;
        rest = rest.get(4 + length.next_multiple_of(4)..).unwrap_or(&[]);
        (code != 0).then_some((code, value))
    })
}

/// A name resolution block: records of an address and its names.
fn names(mut rest: &[u8], swapped: bool, into: &mut BTreeMap<String, Vec<String>>) {
    while let Some(head) = rest.get(..4) {
        let (kind, length) = (half(head, swapped), usize::from(half(&head[2..], swapped)));
        let Some(value) = rest.get(4..4 + length) else { return };
        rest = rest.get(4 + length.next_multiple_of(4)..).unwrap_or(&[]);
        let (address, words) = match (kind, value) {
            (1, [a, b, c, d, words @ ..]) => (std::net::Ipv4Addr::new(*a, *b, *c, *d).to_string(), words),
            (2, value) if value.len() > 16 => {
                let six = <[u8; 16]>::try_from(&value[..16]).expect("these are sixteen");
                (std::net::Ipv6Addr::from(six).to_string(), &value[16..])
            }
            (0, _) => return,
            _ => continue,
        };
        if into.len() >= KEPT * KEPT && !into.contains_key(&address) {
            return;
        }
        let known = into.entry(address).or_default();
        for name in words.split(|&byte| byte == 0).filter(|name| !name.is_empty()).take(8) {
            let name = text(name);
            if known.len() < 8 && !known.contains(&name) {
                known.push(name);
            }
        }
    }
}

/// A text option as something to show: at most 200 characters, none of them for control.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end.min(800)]).chars().filter(|c| !c.is_control()).take(200).collect()
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[inline]
fn word(bytes: &[u8], swapped: bool) -> u32 {
    let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    if swapped {
        value.swap_bytes()
    } else {
        value
    }
}

#[inline]
fn half(bytes: &[u8], swapped: bool) -> u16 {
    let value = u16::from_le_bytes([bytes[0], bytes[1]]);
    if swapped {
        value.swap_bytes()
    } else {
        value
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame that the test owns.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Owned {
        time_ns: i64,
        link_type: u16,
        wire_len: u32,
        data: Vec<u8>,
    }

    /// A nanosecond pcap of Ethernet frames.
    pub(crate) fn pcap(frames: &[(i64, Vec<u8>)], big: bool) -> Vec<u8> {
        let order = |word: u32| if big { word.to_be_bytes() } else { word.to_le_bytes() };
        let mut file: Vec<u8> = [order(0xa1b2_3c4d), [0; 4], [0; 4], [0; 4], order(262_144), order(1)].concat();
        file[4..8].copy_from_slice(&if big { [0, 2, 0, 4] } else { [2, 0, 4, 0] });
        for (time_ns, frame) in frames {
            let length = frame.len() as u32;
            for word in [(time_ns / 1_000_000_000) as u32, (time_ns % 1_000_000_000) as u32, length, length] {
                file.extend(order(word));
            }
            file.extend(frame);
        }
        file
    }

    fn block(kind: u32, body: &[u8], big: bool) -> Vec<u8> {
        let order = |word: u32| if big { word.to_be_bytes() } else { word.to_le_bytes() };
        let length = 12 + body.len().next_multiple_of(4) as u32;
        let mut all = [order(kind), order(length)].concat();
        all.extend(body);
        all.resize(length as usize - 4, 0);
        all.extend(order(length));
        all
    }

    fn words(words: &[u32], big: bool) -> Vec<u8> {
        words.iter().flat_map(|word| if big { word.to_be_bytes() } else { word.to_le_bytes() }).collect()
    }

    fn halves(halves: &[u16], big: bool) -> Vec<u8> {
        halves.iter().flat_map(|half| if big { half.to_be_bytes() } else { half.to_le_bytes() }).collect()
    }

    fn section(big: bool) -> Vec<u8> {
        let mut body = [words(&[0x1a2b_3c4d], big), halves(&[1, 0], big), vec![0xff; 8]].concat();
        body.extend([halves(&[4, 5], big), b"maker\0\0\0".to_vec()].concat());
        block(PCAPNG_SECTION, &body, big)
    }

    /// Ethernet, no snap length, named, 10^-resolution s.
    fn interface(resolution: u8, big: bool) -> Vec<u8> {
        let mut body = [halves(&[1, 0], big), words(&[0], big), halves(&[2, 4], big), b"eth0".to_vec()].concat();
        body.extend([halves(&[9, 1], big), vec![resolution, 0, 0, 0], vec![0; 4]].concat());
        block(1, &body, big)
    }

    fn enhanced(number: u32, ticks: u64, data: &[u8], big: bool) -> Vec<u8> {
        let length = data.len() as u32;
        let mut body = words(&[number, (ticks >> 32) as u32, ticks as u32, length, length], big);
        body.extend(data);
        block(6, &body, big)
    }

    fn pcapng(frames: &[(i64, Vec<u8>)], big: bool) -> Vec<u8> {
        let mut file = [section(big), interface(9, big)].concat();
        for (time_ns, frame) in frames {
            file.extend(enhanced(0, *time_ns as u64, frame, big));
        }
        file
    }

    fn read(bytes: Vec<u8>) -> Result<(Vec<Owned>, Capture), String> {
        let mut capture = Capture::new(Box::new(io::Cursor::new(bytes)))?;
        let mut all = Vec::new();
        while let Some(frame) = capture.next() {
            let data = frame.data.to_vec();
            all.push(Owned { time_ns: frame.time_ns, link_type: frame.link_type, wire_len: frame.wire_len, data });
        }
        Ok((all, capture))
    }

    fn frames() -> Vec<(i64, Vec<u8>)> {
        (0..40).map(|i| (1_700_000_000_123_456_789 + i * 1_000_003, vec![i as u8; 40 + i as usize])).collect()
    }

    fn pairs(read: &[Owned]) -> Vec<(i64, Vec<u8>)> {
        read.iter().map(|frame| (frame.time_ns, frame.data.clone())).collect()
    }

    #[test]
    fn every_format_and_byte_order_gives_the_same_frames() {
        for big in [false, true] {
            for file in [pcap(&frames(), big), pcapng(&frames(), big)] {
                let (all, capture) = read(file).unwrap();
                assert_eq!(pairs(&all), frames());
                assert_eq!(capture.damages(), 0);
            }
        }
    }

    #[test]
    fn a_big_endian_microsecond_file_is_read() {
        let mut file = words(&[0xa1b2_c3d4, 0x0002_0004, 0, 0, 96, 101, 7, 5, 1, 60], true);
        file.push(9);
        let (all, capture) = read(file).unwrap();
        assert_eq!(all, [Owned { time_ns: 7_000_005_000, link_type: 101, wire_len: 60, data: vec![9] }]);
        assert_eq!(capture.about().format, "pcap");
    }

    #[test]
    fn compressed_files_are_read_and_a_cut_one_up_to_its_cut() {
        let folder = std::env::temp_dir().join(format!("backchannel-capture-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let plain = pcap(&frames(), false);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut packed, &plain).unwrap();
        let gzip = packed.finish().unwrap();
        let zstd = zstd::encode_all(&plain[..], 1).unwrap();
        for (name, bytes, format) in [("gz", gzip, "gzip"), ("zst", zstd, "zstd")] {
            let path = folder.join(name);
            for cut in [0, 20] {
                std::fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
                let mut capture = match Capture::open(&path) {
                    Ok(capture) => capture,
                    Err(why) => {
                        // So short a file is one zstd block, of which nothing comes before all of it.
                        assert!(cut > 0 && why.contains("reading failed"), "{why}");
                        continue;
                    }
                };
                let mut count = 0;
                while capture.next().is_some() {
                    count += 1;
                }
                assert!(capture.about().format.ends_with(format));
                assert_eq!(capture.damages(), u64::from(cut > 0), "{name} {:?}", capture.damage());
                assert!(cut > 0 || count == 40);
            }
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn sections_and_interfaces_have_their_own_order_clock_and_names() {
        let mut offset = [halves(&[113, 0], false), words(&[0], false), halves(&[14, 8], false)].concat();
        offset.extend([words(&[5, 0], false), vec![0; 4]].concat());
        let resolution = |value: u8| {
            let mut body = [halves(&[1, 0], false), words(&[0], false), halves(&[9, 1], false)].concat();
            body.extend([value, 0, 0, 0, 0, 0, 0, 0]);
            block(1, &body, false)
        };
        let mut resolved = halves(&[1, 4 + 6], false);
        resolved.extend(*b"\x0a\0\0\x01host1\0\0\0");
        resolved.extend(vec![0; 4]);
        let mut statistics = words(&[0, 0, 0], false);
        statistics.extend([halves(&[5, 8], false), words(&[17, 0], false), vec![0; 4]].concat());
        let file = [
            section(false),
            interface(6, false),
            block(1, &offset, false),
            resolution(0x80 | 10),
            enhanced(0, 2_000_001, &[1], false),
            enhanced(1, 2_000_001, &[2], false),
            enhanced(2, 1536, &[3], false),
            enhanced(9, 1, &[4], false),
            block(4, &resolved, false),
            block(5, &statistics, false),
            block(0x0bad, &[1, 2, 3, 4], false),
            section(true),
            interface(9, true),
            enhanced(0, 77, &[5], true),
        ]
        .concat();
        let (all, capture) = read(file).unwrap();
        let told: Vec<_> = all.iter().map(|frame| (frame.time_ns, frame.link_type, frame.data[0])).collect();
        assert_eq!(told, [(2_000_001_000, 1, 1), (7_000_001_000, 113, 2), (1_500_000_000, 1, 3), (77, 1, 5)]);
        assert_eq!(capture.damages(), 1);
        assert!(capture.damage()[0].to_string().contains("interface 9"), "{}", capture.damage()[0]);
        let about = capture.about();
        assert_eq!(about.names["10.0.0.1"], ["host1"]);
        assert_eq!((about.dropped, &about.interfaces[..]), (17, &["eth0".to_string(), "eth0".into()][..]));
        assert_eq!(about.remarks, ["program: maker", "program: maker"]);
    }

    #[test]
    fn what_is_no_capture_is_refused() {
        assert!(read(b"hello world".to_vec()).err().unwrap().contains("is no capture"));
        assert!(read(vec![]).err().unwrap().contains("shorter"));
    }

    #[test]
    fn after_damage_reading_goes_on_at_the_next_record() {
        for big in [false, true] {
            for (file, ng) in [(pcap(&frames(), big), false), (pcapng(&frames(), big), true)] {
                // The length of the eleventh record becomes impossible.
                let at = if ng {
                    let before: usize = frames()[..10].iter().map(|(_, data)| enhanced(0, 0, data, big).len()).sum();
                    section(big).len() + interface(9, big).len() + before + 4
                } else {
                    24 + frames()[..10].iter().map(|(_, data)| 16 + data.len()).sum::<usize>() + 8
                };
                let mut damaged = file.clone();
                damaged[at..at + 4].copy_from_slice(&[0xff; 4]);
                let (all, capture) = read(damaged).unwrap();
                let mut expected = frames();
                expected.remove(10);
                assert_eq!(pairs(&all), expected);
                let place = if ng { at - 4 } else { at - 8 };
                assert_eq!((capture.damages(), capture.damage()[0].offset), (1, place as u64));
                assert!(capture.damage()[0].bytes > 40);
            }
        }
    }

    #[test]
    fn a_file_of_rubbish_after_its_header_ends_with_its_reason() {
        let mut file = pcap(&frames()[..2], false);
        file.extend(vec![0xee; 3 << 20]);
        let (all, capture) = read(file).unwrap();
        assert_eq!(all.len(), 2);
        assert!(capture.damage()[0].reason.contains("nothing after it"), "{}", capture.damage()[0]);
        assert_eq!(capture.damage()[0].bytes, 3 << 20);
    }

    proptest! {
        #[test]
        fn a_cut_file_gives_what_is_whole_and_says_where_it_ended(
            sizes in proptest::collection::vec(1usize..90, 1..8), cut in 0.0f64..1.0, ng: bool, big: bool,
        ) {
            let frames: Vec<_> = sizes.iter().enumerate().map(|(i, &n)| (i as i64 + 999, vec![0x77; n])).collect();
            let whole = if ng { pcapng(&frames, big) } else { pcap(&frames, big) };
            let n = (whole.len() as f64 * cut) as usize;
            if let Ok((all, capture)) = read(whole[..n].to_vec()) {
                prop_assert!(all.len() <= frames.len());
                for (frame, (_, data)) in all.iter().zip(&frames) {
                    prop_assert_eq!(&frame.data, data);
                }
                for damage in capture.damage() {
                    prop_assert!(damage.offset + damage.bytes == n as u64);
                }
            }
        }

        /// A record's length may be damaged to another that can be, which swallows what lies within; not more.
        #[test]
        fn any_bytes_overwritten_anywhere_cost_what_they_cover(
            at in 0.0f64..1.0, with in proptest::collection::vec(any::<u8>(), 1..30), ng: bool, big: bool,
        ) {
            let whole = if ng { pcapng(&frames(), big) } else { pcap(&frames(), big) };
            let first = if ng { section(big).len() + interface(9, big).len() } else { 24 };
            let mut damaged = whole.clone();
            let at = first + ((whole.len() - with.len() - first) as f64 * at) as usize;
            damaged[at..at + with.len()].copy_from_slice(&with);
            let (all, capture) = read(damaged).unwrap();
            let swallowed: usize = all.iter().filter(|frame| !frames().contains(&(frame.time_ns, frame.data.clone())))
                .map(|frame| frame.data.len()).sum();
            let passed: u64 = capture.damage().iter().map(|damage| damage.bytes).sum();
            let good: usize = frames().iter().filter(|frame| pairs(&all).contains(frame)).map(|(_, data)| data.len()).sum();
            let all_data: usize = frames().iter().map(|(_, data)| data.len()).sum();
            prop_assert!(good + swallowed + passed as usize + 100 >= all_data, "{good}: {:?}", capture.damage());
            // Wherever the length itself is impossible, all but the two records next to the damage are read.
            if swallowed == 0 {
                let count = frames().iter().filter(|frame| pairs(&all).contains(frame)).count();
                prop_assert!(count >= 36 || passed == 0, "{count} of 40: {:?}", capture.damage());
            }
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), ng: bool, big: bool) {
            let mut file = if ng { pcapng(&frames()[..2], big) } else { pcap(&frames()[..2], big) };
            file.append(&mut bytes);
            let _ = read(file);
        }
    }
}
