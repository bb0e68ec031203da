//! Capture files as a stream of frames: pcap (microseconds or nanoseconds, either byte order) and pcapng (any number of
//! sections and interfaces, options, name resolution), plain or compressed by gzip or zstd.
//!
//! A frame is borrowed from the read buffer, so memory does not grow with the file. After damage, reading continues at
//! the next place that looks like a record and is followed by another. [`Capture::damage`] returns offset and reason.

mod pcap;
mod pcapng;
mod source;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use backchannel_core::{Error, ResultExt};
use pcap::Pcap;
use pcapng::Pcapng;
use source::{Endian, Source, CHUNK};

/// Longest frame, as in libpcap. A greater length means that the file is damaged.
const MAX_FRAME: usize = 1 << 18;

/// One captured frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Nanoseconds since the UNIX epoch.
    pub time_ns: i64,
    /// Link type of its interface (LINKTYPE_*).
    pub link_type: u16,
    /// Bytes on the wire.
    pub wire_len: u32,
    /// Bytes captured.
    pub data: &'a [u8],
}

/// A place where a file could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the uncompressed file, in bytes.
    pub offset: u64,
    /// Bytes that were skipped.
    pub bytes: u64,
    /// Why they were skipped.
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} at byte {}", self.reason, self.offset)?;
        if self.bytes > 0 {
            write!(out, " ({} bytes skipped)", self.bytes)?;
        }
        Ok(())
    }
}

/// What a file says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileInfo {
    /// "pcap", "pcap, nanoseconds" or "pcapng", followed by " in gzip" or " in zstd" if compressed.
    pub format: String,
    /// Comments, and the machine, system and program that captured, from pcapng options.
    pub remarks: Vec<String>,
    /// Names of interfaces that have one.
    pub interfaces: Vec<String>,
    /// Names of addresses, from name resolution blocks.
    pub names: BTreeMap<String, Vec<String>>,
    /// Packets that the capturing system reports as dropped.
    pub dropped: u64,
}

enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

/// The frames of a capture, in file order.
pub struct Capture {
    source: Source,
    format: Format,
    /// " in gzip", " in zstd" or nothing.
    compression: &'static str,
}

impl Capture {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be opened or read, or is not a capture file.
    pub fn open(path: &Path) -> Result<Capture, Error> {
        Capture::read(path).map_err(|error| error.within(path.display().to_string()))
    }

    fn read(path: &Path) -> Result<Capture, Error> {
        let mut file = File::open(path).or_system("cannot be opened")?;
        let mut head = Vec::with_capacity(4);
        Read::by_ref(&mut file).take(4).read_to_end(&mut head).or_system("cannot be read")?;
        let gzip = head.starts_with(&[0x1f, 0x8b]);
        let zstd = head == [0x28, 0xb5, 0x2f, 0xfd];
        let file_again = io::Cursor::new(head).chain(file);
        let (compression, plain): (_, Box<dyn Read + Send>) = if gzip {
            (" in gzip", Box::new(flate2::read::MultiGzDecoder::new(BufReader::with_capacity(CHUNK, file_again))))
        } else if zstd {
            let decoder = zstd::Decoder::new(file_again).or_malformed("is not a zstd stream")?;
            (" in zstd", Box::new(decoder))
        } else {
            ("", Box::new(file_again))
        };
        let capture = Capture::new(plain)?;
        Ok(Capture { compression, ..capture })
    }

    /// Reads an uncompressed capture.
    ///
    /// # Errors
    /// It is not a capture file, or its header is truncated.
    pub fn new(input: Box<dyn Read + Send>) -> Result<Capture, Error> {
        let mut source = Source::new(input);
        if !source.fill(4) {
            let why = source.failure().unwrap_or("truncated header");
            return Err(Error::Malformed(format!("is not a capture file: {why}")));
        }
        let magic = Endian::Little.u32(source.bytes(), 0);
        let format = if magic == pcapng::MAGIC {
            Format::Pcapng(Pcapng::open(&mut source)?)
        } else {
            let unknown = format!("is not a capture file: it begins with {magic:08x}, neither pcap nor pcapng");
            Format::Pcap(Pcap::open(magic, &mut source).ok_or(Error::Malformed(unknown))??)
        };
        Ok(Capture { source, format, compression: "" })
    }

    /// What the file says about itself. Complete once all frames are read.
    pub fn about(&self) -> FileInfo {
        let (format, about) = match &self.format {
            Format::Pcap(pcap) => (pcap.name(), FileInfo::default()),
            Format::Pcapng(pcapng) => ("pcapng", pcapng.about()),
        };
        FileInfo { format: format!("{format}{}", self.compression), ..about }
    }

    /// The first 100 places that could not be read.
    pub fn damage(&self) -> &[Damage] {
        self.source.damage()
    }

    /// Number of places that could not be read.
    pub fn damages(&self) -> u64 {
        self.source.damages()
    }

    /// The next frame, or `None` at the end.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "an Iterator cannot lend its items")]
    pub fn next(&mut self) -> Option<Frame<'_>> {
        if self.source.ended() {
            return None;
        }
        match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.source),
            Format::Pcapng(pcapng) => pcapng.next(&mut self.source),
        }
    }
}

#[cfg(test)]
mod tests;
