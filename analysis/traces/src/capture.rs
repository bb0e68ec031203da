//! Capture files as a stream of records: pcap (micro- and nanosecond, either byte order) and pcapng (several sections
//! and interfaces), plain or compressed by gzip or zstd.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// Longest record taken; a greater length means that the file is damaged there.
const MAX_RECORD: usize = 1 << 18;
const PCAPNG_SECTION: u32 = 0x0a0d_0d0a;

/// One captured frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Since the UNIX epoch, in nanoseconds.
    pub time_ns: i64,
    /// Link type of its interface (LINKTYPE_*).
    pub link_type: u16,
    /// Bytes the frame had on the wire.
    pub wire_len: u32,
    /// Bytes that were kept.
    pub data: Vec<u8>,
}

enum Format {
    Pcap { swapped: bool, nanos: bool, link_type: u16 },
    Pcapng { swapped: bool, interfaces: Vec<Interface> },
}

#[derive(Clone, Copy)]
struct Interface {
    link_type: u16,
    /// Ticks a second of its time stamps.
    ticks: u64,
    snaplen: u32,
}

/// The records of a capture, in file order.
pub struct Records {
    input: Box<dyn Read + Send>,
    format: Format,
    /// Bytes read so far, of the uncompressed file.
    offset: u64,
    /// Why reading ended before the end of the file, if it did.
    pub trouble: Option<String>,
}

impl Records {
    /// Opens a file.
    ///
    /// # Errors
    /// A sentence: it cannot be opened, or is no capture.
    pub fn open(path: &Path) -> Result<Records, String> {
        let in_file = |why: String| format!("{}: {why}", path.display());
        let file = File::open(path).map_err(|error| in_file(format!("cannot be opened: {error}")))?;
        let mut input = BufReader::with_capacity(1 << 20, file);
        let mut head = [0; 4];
        let n = fill(&mut input, &mut head).map_err(|error| in_file(format!("cannot be read: {error}")))?;
        let whole = io::Cursor::new(head[..n].to_vec()).chain(input);
        let plain: Box<dyn Read + Send> = match head {
            [0x1f, 0x8b, ..] => Box::new(BufReader::with_capacity(1 << 18, flate2::read::MultiGzDecoder::new(whole))),
            [0x28, 0xb5, 0x2f, 0xfd] => Box::new(BufReader::with_capacity(
                1 << 18,
                zstd::Decoder::new(whole).map_err(|error| in_file(format!("is no zstd stream: {error}")))?,
            )),
            _ => Box::new(whole),
        };
        Records::new(plain).map_err(in_file)
    }

    /// Reads an uncompressed capture.
    ///
    /// # Errors
    /// It begins like no capture.
    pub fn new(mut input: Box<dyn Read + Send>) -> Result<Records, String> {
        let mut magic = [0; 4];
        let n = fill(&mut input, &mut magic).map_err(|error| format!("cannot be read: {error}"))?;
        if n < 4 {
            return Err("is no capture: it is shorter than a capture's header".into());
        }
        let little = u32::from_le_bytes(magic);
        let (swapped, nanos) = match little {
            0xa1b2_c3d4 => (false, false),
            0xa1b2_3c4d => (false, true),
            0xd4c3_b2a1 => (true, false),
            0x4d3c_b2a1 => (true, true),
            PCAPNG_SECTION => {
                let format = Format::Pcapng { swapped: false, interfaces: Vec::new() };
                let mut records = Records { input, format, offset: 4, trouble: None };
                records.section()?;
                return Ok(records);
            }
            other => return Err(format!("is no capture: it begins with {other:08x}, neither pcap nor pcapng")),
        };
        let mut rest = [0; 20];
        if fill(&mut input, &mut rest).map_err(|error| format!("cannot be read: {error}"))? < 20 {
            return Err("is no capture: its header is cut off".into());
        }
        let link_type = word(&rest[16..], swapped) as u16;
        Ok(Records { input, format: Format::Pcap { swapped, nanos, link_type }, offset: 24, trouble: None })
    }

    /// What follows the type of a section header block, which sets the byte order of all that comes.
    fn section(&mut self) -> Result<(), String> {
        let mut head = [0; 8];
        if !self.take(&mut head) {
            return Err("is no capture: its section header is cut off".into());
        }
        let swapped = match u32::from_le_bytes([head[4], head[5], head[6], head[7]]) {
            0x1a2b_3c4d => false,
            0x4d3c_2b1a => true,
            other => return Err(format!("is no capture: {other:08x} is no byte-order mark")),
        };
        let length = word(&head, swapped) as usize;
        if !(28..=MAX_RECORD).contains(&length) || length % 4 != 0 {
            return Err(format!("is no capture: a section header of {length} bytes"));
        }
        let mut rest = vec![0; length - 12];
        if !self.take(&mut rest) {
            return Err("is no capture: its section header is cut off".into());
        }
        self.format = Format::Pcapng { swapped, interfaces: Vec::new() };
        Ok(())
    }

    /// Fills the buffer; false at the end of the file.
    fn take(&mut self, buffer: &mut [u8]) -> bool {
        match fill(&mut self.input, buffer) {
            Ok(n) => {
                self.offset += n as u64;
                if n > 0 && n < buffer.len() {
                    self.stop("the file is cut off");
                }
                n == buffer.len()
            }
            Err(error) => {
                self.stop(&format!("reading failed: {error}"));
                false
            }
        }
    }

    fn stop(&mut self, why: &str) {
        let offset = self.offset;
        self.trouble.get_or_insert_with(|| format!("{why} at byte {offset}"));
    }

    fn next_pcap(&mut self, swapped: bool, nanos: bool, link_type: u16) -> Option<Record> {
        let mut head = [0; 16];
        if !self.take(&mut head) {
            return None;
        }
        let [seconds, fraction, kept, wire_len] = [0, 4, 8, 12].map(|at| word(&head[at..], swapped));
        if kept as usize > MAX_RECORD {
            self.stop(&format!("a record of {kept} bytes cannot be"));
            return None;
        }
        let mut data = vec![0; kept as usize];
        if kept > 0 && !self.take(&mut data) {
            self.stop("the file is cut off");
            return None;
        }
        let time_ns = i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * if nanos { 1 } else { 1000 };
        Some(Record { time_ns, link_type, wire_len, data })
    }

    fn next_pcapng(&mut self) -> Option<Record> {
        loop {
            let mut kind = [0; 4];
            if !self.take(&mut kind) {
                return None;
            }
            if u32::from_le_bytes(kind) == PCAPNG_SECTION {
                if let Err(why) = self.section() {
                    self.stop(&why);
                    return None;
                }
                continue;
            }
            let Format::Pcapng { swapped, .. } = self.format else { return None };
            let mut length = [0; 4];
            if !self.take(&mut length) {
                return None;
            }
            let length = word(&length, swapped) as usize;
            if !(12..=MAX_RECORD).contains(&length) || length % 4 != 0 {
                self.stop(&format!("a block of {length} bytes cannot be"));
                return None;
            }
            let mut block = vec![0; length - 8];
            if !self.take(&mut block) {
                self.stop("the file is cut off");
                return None;
            }
            block.truncate(length - 12);
            match word(&kind, swapped) {
                1 => self.interface(&block, swapped),
                6 => {
                    if let Some(record) = self.enhanced(&block, swapped) {
                        return Some(record);
                    }
                }
                3 => {
                    if let Some(record) = self.simple(&block, swapped) {
                        return Some(record);
                    }
                }
                _ => {}
            }
        }
    }

    /// Interface description block.
    fn interface(&mut self, block: &[u8], swapped: bool) {
        if block.len() < 8 {
            self.stop("an interface description is too short");
            return;
        }
        let link_type = half(block, swapped);
        let snaplen = word(&block[4..], swapped);
        let mut ticks = 1_000_000;
        let mut at = 8;
        while at + 4 <= block.len() {
            let (code, length) = (half(&block[at..], swapped), usize::from(half(&block[at + 2..], swapped)));
            let Some(value) = block.get(at + 4..at + 4 + length) else { break };
            // if_tsresol: a power of ten, or of two when the top bit is set.
            if let (9, [resolution, ..]) = (code, value) {
                let exponent = u32::from(resolution & 0x7f);
                let base: u64 = if resolution & 0x80 == 0 { 10 } else { 2 };
                ticks = base.checked_pow(exponent).unwrap_or(1_000_000);
            }
            if code == 0 {
                break;
            }
            at += 4 + length.next_multiple_of(4);
        }
        if let Format::Pcapng { interfaces, .. } = &mut self.format {
            interfaces.push(Interface { link_type, ticks, snaplen });
        }
    }

    fn enhanced(&mut self, block: &[u8], swapped: bool) -> Option<Record> {
        let Format::Pcapng { interfaces, .. } = &self.format else { return None };
        if block.len() < 20 {
            self.stop("a packet block is too short");
            return None;
        }
        let [number, high, low, kept, wire_len] = [0, 4, 8, 12, 16].map(|at| word(&block[at..], swapped));
        let (Some(interface), Some(data)) =
            (interfaces.get(number as usize).copied(), block.get(20..20 + kept as usize))
        else {
            self.stop("a packet block does not fit its interface or length");
            return None;
        };
        let ticks = u128::from(high) << 32 | u128::from(low);
        let time_ns = (ticks * 1_000_000_000 / u128::from(interface.ticks)) as i64;
        Some(Record { time_ns, link_type: interface.link_type, wire_len, data: data.to_vec() })
    }

    /// A simple packet block: the first interface, and no time.
    fn simple(&mut self, block: &[u8], swapped: bool) -> Option<Record> {
        let Format::Pcapng { interfaces, .. } = &self.format else { return None };
        let (Some(interface), true) = (interfaces.first().copied(), block.len() >= 4) else {
            self.stop("a simple packet block without interface or length");
            return None;
        };
        let wire_len = word(block, swapped);
        let limit = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
        let kept = (wire_len.min(limit) as usize).min(block.len() - 4);
        Some(Record { time_ns: 0, link_type: interface.link_type, wire_len, data: block[4..4 + kept].to_vec() })
    }
}

impl Iterator for Records {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.trouble.is_some() {
            return None;
        }
        match self.format {
            Format::Pcap { swapped, nanos, link_type } => self.next_pcap(swapped, nanos, link_type),
            Format::Pcapng { .. } => self.next_pcapng(),
        }
    }
}

/// Reads until the buffer is full or the input ends; how much it was.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match input.read(&mut buffer[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(n)
}

fn word(bytes: &[u8], swapped: bool) -> u32 {
    let four = [bytes[0], bytes[1], bytes[2], bytes[3]];
    if swapped {
        u32::from_be_bytes(four)
    } else {
        u32::from_le_bytes(four)
    }
}

fn half(bytes: &[u8], swapped: bool) -> u16 {
    let two = [bytes[0], bytes[1]];
    if swapped {
        u16::from_be_bytes(two)
    } else {
        u16::from_le_bytes(two)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A little-endian nanosecond pcap of Ethernet frames.
    pub(crate) fn pcap(frames: &[(i64, Vec<u8>)]) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [0xa1b2_3c4du32, 0x0004_0002, 0, 0, 262_144, 1] {
            file.extend(word.to_le_bytes());
        }
        for (time_ns, frame) in frames {
            let words = [
                (time_ns / 1_000_000_000) as u32,
                (time_ns % 1_000_000_000) as u32,
                frame.len() as u32,
                frame.len() as u32,
            ];
            file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            file.extend(frame);
        }
        file
    }

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = 12 + body.len().next_multiple_of(4) as u32;
        let mut all = [kind.to_le_bytes(), length.to_le_bytes()].concat();
        all.extend(body);
        all.resize(length as usize - 4, 0);
        all.extend(length.to_le_bytes());
        all
    }

    fn pcapng(frames: &[(i64, Vec<u8>)]) -> Vec<u8> {
        let mut section = 0x1a2b_3c4du32.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0]);
        section.extend([0xff; 8]);
        let mut file = block(PCAPNG_SECTION, &section);
        // Ethernet, no snap length, nanoseconds.
        file.extend(block(1, &[1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]));
        file.extend(block(5, &[0; 12]));
        for (time_ns, frame) in frames {
            let words = [0, (time_ns >> 32) as u32, *time_ns as u32, frame.len() as u32, frame.len() as u32];
            let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            body.extend(frame);
            file.extend(block(6, &body));
        }
        file
    }

    fn read(bytes: Vec<u8>) -> Result<(Vec<Record>, Option<String>), String> {
        let mut records = Records::new(Box::new(io::Cursor::new(bytes)))?;
        let all: Vec<_> = records.by_ref().collect();
        Ok((all, records.trouble))
    }

    #[test]
    fn both_formats_give_the_same_records() {
        let frames = vec![(1_700_000_000_123_456_789, vec![1, 2, 3]), (1_700_000_001_000_000_001, vec![4; 61])];
        let (from_pcap, trouble) = read(pcap(&frames)).unwrap();
        assert_eq!(trouble, None);
        assert_eq!(from_pcap.iter().map(|record| (record.time_ns, record.data.clone())).collect::<Vec<_>>(), frames);
        assert_eq!(read(pcapng(&frames)).unwrap(), (from_pcap, None));
    }

    #[test]
    fn a_big_endian_microsecond_file_is_read() {
        let mut file: Vec<u8> =
            [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 96, 101].iter().flat_map(|word| word.to_be_bytes()).collect();
        file.extend([7u32, 5, 1, 60].iter().flat_map(|word| word.to_be_bytes()));
        file.push(9);
        let (records, _) = read(file).unwrap();
        assert_eq!(records, [Record { time_ns: 7_000_005_000, link_type: 101, wire_len: 60, data: vec![9] }]);
    }

    #[test]
    fn what_is_no_capture_is_refused() {
        assert!(read(b"hello world".to_vec()).unwrap_err().contains("is no capture"));
        assert!(read(vec![]).unwrap_err().contains("shorter"));
    }

    proptest! {
        #[test]
        fn a_cut_file_gives_what_is_whole_and_says_where_it_ended(sizes in proptest::collection::vec(0usize..90, 1..8), cut in 0.0f64..1.0, ng: bool) {
            let frames: Vec<_> = sizes.iter().enumerate().map(|(i, &n)| (i as i64, vec![i as u8; n])).collect();
            let whole = if ng { pcapng(&frames) } else { pcap(&frames) };
            let n = (whole.len() as f64 * cut) as usize;
            if let Ok((records, trouble)) = read(whole[..n].to_vec()) {
                prop_assert!(records.len() <= frames.len());
                for (record, frame) in records.iter().zip(&frames) {
                    prop_assert_eq!(&record.data, &frame.1);
                }
                if let Some(trouble) = trouble {
                    prop_assert!(trouble.contains("at byte"));
                }
            }
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), ng: bool) {
            let mut file = if ng { pcapng(&[]) } else { pcap(&[]) };
            file.append(&mut bytes);
            let _ = read(file);
        }
    }
}
