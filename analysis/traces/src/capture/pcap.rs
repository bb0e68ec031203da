//! pcap files (draft-ietf-opsawg-pcap), with a search for the next record after damage.

use backchannel_core::Error;

use super::source::{Endian, Source};
use super::{Frame, MAX_FRAME};

const YEAR_S: i64 = 366 * 86_400;
const DAY_S: i64 = 86_400;
/// Magic number, nanoseconds per unit of a fraction, bytes of a record's header (24: a patched libpcap).
const FORMATS: [(u32, u32, usize); 3] = [(0xa1b2_c3d4, 1000, 16), (0xa1b2_3c4d, 1, 16), (0xa1b2_cd34, 1000, 24)];

/// State of a pcap file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pcap {
    endian: Endian,
    /// Nanoseconds per unit of a timestamp's fraction, and units per second.
    unit_ns: u32,
    units_per_s: u32,
    link_type: u16,
    header_len: usize,
    /// Greatest plausible length of a record.
    snaplen: usize,
    /// Time of the last record.
    last_s: Option<i64>,
}

/// The header of a record.
#[derive(Debug, Clone, Copy)]
struct Record {
    seconds: i64,
    /// Fraction of the second, in the file's unit.
    fraction: u32,
    captured_len: usize,
    wire_len: u32,
}

impl Pcap {
    /// Reads the file header, which begins with `magic`. `None` if that belongs to another format.
    pub(super) fn open(magic: u32, source: &mut Source) -> Option<Result<Pcap, Error>> {
        let (endian, unit_ns, header_len) = FORMATS.iter().find_map(|&(number, unit_ns, header_len)| match magic {
            _ if magic == number => Some((Endian::Little, unit_ns, header_len)),
            _ if magic == number.swap_bytes() => Some((Endian::Big, unit_ns, header_len)),
            _ => None,
        })?;
        if !source.fill(24) {
            return Some(Err(Error::Malformed("is not a capture file: truncated header".into())));
        }
        let snaplen = endian.u32(source.bytes(), 16) as usize;
        let link_type = endian.u32(source.bytes(), 20) as u16;
        source.take(24);
        let snaplen = if (1..=MAX_FRAME).contains(&snaplen) { snaplen.max(64) } else { MAX_FRAME };
        let units_per_s = 1_000_000_000 / unit_ns;
        Some(Ok(Pcap { endian, unit_ns, units_per_s, link_type, header_len, snaplen, last_s: None }))
    }

    /// Name of the format.
    pub(super) fn name(&self) -> &'static str {
        if self.unit_ns == 1 {
            "pcap, nanoseconds"
        } else {
            "pcap"
        }
    }

    /// The next frame. Damage and the end of the file are handled out of line.
    #[inline(always)]
    pub(super) fn next<'a>(&mut self, source: &'a mut Source) -> Option<Frame<'a>> {
        let record = loop {
            if source.fill(self.header_len) {
                let record = self.record(source.bytes());
                let fits = record.captured_len <= MAX_FRAME && source.fill(self.header_len + record.captured_len);
                if fits && self.is_plausible(record, self.last_s, YEAR_S) {
                    self.last_s = Some(record.seconds);
                    break record;
                }
            }
            if let Some(record) = self.irregular_record(source) {
                break record;
            }
            if source.ended() {
                return None;
            }
        };
        source.take(self.header_len);
        let data = source.take(record.captured_len);
        Some(Frame {
            time_ns: record.seconds * 1_000_000_000 + i64::from(record.fraction) * i64::from(self.unit_ns),
            link_type: self.link_type,
            wire_len: record.wire_len.max(record.captured_len as u32),
            data: source.slice(data),
        })
    }

    /// The fields of a record's header.
    #[inline(always)]
    fn record(&self, bytes: &[u8]) -> Record {
        let header: &[u8; 16] = bytes.first_chunk().expect("the header is in the buffer");
        let field = |at| self.endian.u32(header, at);
        Record { seconds: field(0).into(), fraction: field(4), captured_len: field(8) as usize, wire_len: field(12) }
    }

    /// Whether the fields contradict neither each other nor a time nearby.
    #[inline(always)]
    fn is_plausible(&self, record: Record, near_s: Option<i64>, tolerance_s: i64) -> bool {
        record.captured_len <= self.snaplen
            && record.captured_len <= record.wire_len as usize
            && record.fraction < self.units_per_s
            && near_s.is_none_or(|near_s| (record.seconds - near_s).abs() <= tolerance_s)
    }

    /// A record that is cut off or implausible by itself. What follows decides whether it is accepted, because a clock
    /// may jump and the time of one record may be damaged. Otherwise the source is at the next record, or has ended.
    #[cold]
    fn irregular_record(&mut self, source: &mut Source) -> Option<Record> {
        if !source.fill(self.header_len) {
            source.end_within("a record's header");
            return None;
        }
        let record = self.record(source.bytes());
        let (pcap, before) = (*self, self.last_s);
        let after = self.header_len + record.captured_len;
        let (reason, if_none) = if record.captured_len > MAX_FRAME {
            (format!("invalid record length {}", record.captured_len), None)
        } else if !source.fill(after) {
            if source.failure().is_some() {
                source.end_within("a record");
                return None;
            }
            ("invalid record length".into(), Some("the file is cut off within a record"))
        } else if pcap.record_follows(source, after, before) {
            // The next record continues the times before this one.
            return Some(record);
        } else if pcap.record_follows(source, after, Some(record.seconds)) {
            // The clock jumped.
            self.last_s = Some(record.seconds);
            return Some(record);
        } else {
            ("invalid time or length of a record and of the records after it".into(), None)
        };
        source.resynchronise(reason, if_none, |source, at| {
            pcap.record_at(source.bytes(), at, before)
                .is_some_and(|end| source.buffered() == end || pcap.record_follows(source, end, before))
        });
        None
    }

    /// Whether a record near a time, or the end of the file, is `at` bytes ahead.
    fn record_follows(&self, source: &mut Source, at: usize, near_s: Option<i64>) -> bool {
        if source.fill(at + self.header_len) {
            self.record_at(source.bytes(), at, near_s).is_some()
        } else {
            source.buffered() == at
        }
    }

    /// Where a record that begins at `at` ends, if its header is plausible near a time.
    fn record_at(&self, bytes: &[u8], at: usize, near_s: Option<i64>) -> Option<usize> {
        let record = self.record(bytes.get(at..at + self.header_len)?);
        let plausible = record.captured_len > 0
            && record.wire_len as usize <= MAX_FRAME
            && self.is_plausible(record, near_s, DAY_S);
        plausible.then_some(at + self.header_len + record.captured_len)
    }
}
