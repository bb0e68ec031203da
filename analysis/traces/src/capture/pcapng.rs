//! pcapng files (draft-ietf-opsawg-pcapng), with a search for the next block after damage.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use backchannel_core::Error;

use super::source::{Endian, Source, MAX_BLOCK};
use super::{FileInfo, Frame, MAX_FRAME};

/// Block types.
mod block_type {
    pub(super) const SECTION: u32 = 0x0a0d_0d0a;
    pub(super) const INTERFACE: u32 = 1;
    /// The packet block that the enhanced one replaced.
    pub(super) const OLD_PACKET: u32 = 2;
    pub(super) const SIMPLE_PACKET: u32 = 3;
    pub(super) const NAMES: u32 = 4;
    pub(super) const STATISTICS: u32 = 5;
    pub(super) const PACKET: u32 = 6;
    pub(super) const JOURNAL: u32 = 9;
    pub(super) const SECRETS: u32 = 10;
    pub(super) const CUSTOM: u32 = 0x0bad;
    pub(super) const CUSTOM_NOT_COPIED: u32 = 0x4000_0bad;
}

/// Magic number of pcapng: the type of its first block, a palindrome.
pub(super) const MAGIC: u32 = block_type::SECTION;
/// Longest block of any type.
const MAX_SKIPPED_BLOCK: usize = 1 << 28;
const MAX_INTERFACES: usize = 1 << 16;
/// Remarks, and names of interfaces, that are kept.
const MAX_TEXTS: usize = 100;
/// Addresses with names, and names per address, that are kept.
const MAX_ADDRESSES: usize = 10_000;
const MAX_NAMES: usize = 8;
/// Times are clamped to this distance from zero, so that no difference overflows.
const MAX_TIME_NS: i128 = 1 << 61;

/// State of a pcapng file.
pub(super) struct Pcapng {
    /// Byte order of the current section.
    endian: Endian,
    /// Interfaces of the current section.
    interfaces: Vec<Interface>,
    /// Time of the last packet.
    last_ns: i64,
    about: FileInfo,
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link_type: u16,
    /// Nanoseconds per tick if that is a whole number, else 0.
    tick_ns: u64,
    ticks_per_s: u64,
    offset_s: i64,
    snaplen: u32,
    /// Packets that the capturing system dropped.
    dropped: u64,
}

/// A packet of a block. `data` is relative to the block's body.
struct Packet {
    time_ns: i64,
    link_type: u16,
    wire_len: u32,
    data: Range<usize>,
}

/// What is at the source's position.
enum Next {
    /// A complete block of this type and length.
    Block(u32, usize),
    /// A block that is too long for the buffer and holds no packet.
    LongBlock(usize),
    /// The file ends within a block.
    End,
    /// No block can be read: the reason, and a better one if no other block follows.
    Damage(String, Option<&'static str>),
}

impl Pcapng {
    /// Reads the first section header.
    pub(super) fn open(source: &mut Source) -> Result<Pcapng, Error> {
        let mut pcapng =
            Pcapng { endian: Endian::Little, interfaces: Vec::new(), last_ns: 0, about: FileInfo::default() };
        pcapng.section(source)?;
        Ok(pcapng)
    }

    /// What the blocks so far say about the file, without its format.
    pub(super) fn about(&self) -> FileInfo {
        FileInfo { dropped: self.about.dropped + self.dropped_in_section(), ..self.about.clone() }
    }

    fn dropped_in_section(&self) -> u64 {
        self.interfaces.iter().map(|interface| interface.dropped).sum()
    }

    /// The next frame.
    pub(super) fn next<'a>(&mut self, source: &'a mut Source) -> Option<Frame<'a>> {
        while !source.ended() {
            let (kind, length) = match self.peek(source) {
                Next::Block(block_type::SECTION, _) => {
                    if let Err(reason) = self.section(source) {
                        self.resynchronise(source, reason.to_string(), None);
                    }
                    continue;
                }
                Next::Block(kind, length) => (kind, length),
                Next::LongBlock(length) => {
                    source.skip_block(length);
                    continue;
                }
                Next::End => {
                    source.end_within("a block");
                    return None;
                }
                Next::Damage(reason, if_none) => {
                    self.resynchronise(source, reason, if_none);
                    continue;
                }
            };
            let block = source.take(length);
            let body = block.start + 8..block.end - 4;
            match self.read_block(kind, source.slice(body.clone())) {
                Ok(None) => {}
                Ok(Some(Packet { time_ns, link_type, wire_len, data })) => {
                    self.last_ns = time_ns;
                    let data = source.slice(body.start + data.start..body.start + data.end);
                    return Some(Frame { time_ns, link_type, wire_len, data });
                }
                // The block's length is right: the next block follows it.
                Err(reason) => source.log_consumed(length, reason.to_string()),
            }
        }
        None
    }

    #[inline]
    fn peek(&self, source: &mut Source) -> Next {
        if !source.fill(12) {
            return Next::End;
        }
        let kind = self.endian.u32(source.bytes(), 0);
        if kind == block_type::SECTION {
            return Next::Block(kind, 0);
        }
        let length = self.endian.u32(source.bytes(), 4) as usize;
        if length < 12 || !length.is_multiple_of(4) || (length > MAX_BLOCK && !may_be_long(kind, length)) {
            return Next::Damage(format!("invalid block length {length}"), None);
        }
        if length > MAX_BLOCK {
            return Next::LongBlock(length);
        }
        if !source.fill(length) {
            return match source.failure() {
                Some(_) => Next::End,
                None => Next::Damage("invalid block length".into(), Some("the file is cut off within a block")),
            };
        }
        if self.endian.u32(source.bytes(), length - 4) as usize != length {
            return Next::Damage(format!("the lengths at start ({length} bytes) and end of a block differ"), None);
        }
        Next::Block(kind, length)
    }

    #[cold]
    fn resynchronise(&self, source: &mut Source, reason: String, if_none: Option<&str>) {
        let endian = self.endian;
        source.resynchronise(reason, if_none, |source, at| block_at(endian, source.bytes(), at));
    }

    #[inline]
    fn read_block(&mut self, kind: u32, body: &[u8]) -> Result<Option<Packet>, Error> {
        match kind {
            block_type::PACKET | block_type::OLD_PACKET => self.packet(kind, body).map(Some),
            block_type::SIMPLE_PACKET => self.simple_packet(body).map(Some),
            block_type::INTERFACE => self.interface(body).map(|()| None),
            block_type::STATISTICS => self.statistics(body).map(|()| None),
            block_type::NAMES => {
                read_names(body, self.endian, &mut self.about.names);
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// A section header block, which sets the byte order of what follows. Consumes it only if it is valid.
    fn section(&mut self, source: &mut Source) -> Result<(), Error> {
        if !source.fill(28) {
            return Err(Error::Malformed("is not a capture file: truncated section header".into()));
        }
        let endian = match Endian::Little.u32(source.bytes(), 8) {
            0x1a2b_3c4d => Endian::Little,
            0x4d3c_2b1a => Endian::Big,
            other => {
                return Err(Error::Malformed(format!("is not a capture file: invalid byte-order mark {other:08x}")));
            }
        };
        let length = endian.u32(source.bytes(), 4) as usize;
        if !(28..=MAX_BLOCK).contains(&length) || !length.is_multiple_of(4) {
            return Err(Error::Malformed(format!("is not a capture file: invalid section header length {length}")));
        }
        if !source.fill(length) {
            return Err(Error::Malformed("is not a capture file: truncated section header".into()));
        }
        let block = source.take(length);
        for (code, value) in options(source.slice(block.start + 24..block.end - 4), endian) {
            let what = match code {
                1 => "comment",
                2 => "hardware",
                3 => "system",
                4 => "program",
                _ => continue,
            };
            if self.about.remarks.len() < MAX_TEXTS {
                self.about.remarks.push(format!("{what}: {}", text(value)));
            }
        }
        self.about.dropped += self.dropped_in_section();
        self.interfaces.clear();
        self.endian = endian;
        Ok(())
    }

    fn interface(&mut self, body: &[u8]) -> Result<(), Error> {
        if body.len() < 8 {
            return Err(Error::Malformed("an interface description is too short".into()));
        }
        let mut interface = Interface {
            link_type: self.endian.u16(body, 0),
            tick_ns: 1000,
            ticks_per_s: 1_000_000,
            offset_s: 0,
            snaplen: self.endian.u32(body, 4),
            dropped: 0,
        };
        let mut name = None;
        for (code, value) in options(&body[8..], self.endian) {
            match (code, value) {
                (2, value) => name = Some(text(value)),
                // if_tsresol: a power of ten, or of two if the top bit is set.
                (9, [resolution, ..]) => {
                    let (base, exponent) = (if resolution & 0x80 == 0 { 10u64 } else { 2 }, resolution & 0x7f);
                    interface.ticks_per_s = base.checked_pow(u32::from(exponent)).ok_or_else(|| {
                        Error::Malformed(format!("an interface with a time resolution of {base}^-{exponent}"))
                    })?;
                    let divides_a_second = 1_000_000_000 % interface.ticks_per_s == 0;
                    interface.tick_ns = if divides_a_second { 1_000_000_000 / interface.ticks_per_s } else { 0 };
                }
                // if_tsoffset
                (14, value) => {
                    if let Ok(value) = value.try_into() {
                        interface.offset_s = self.endian.u64(value) as i64;
                    }
                }
                _ => {}
            }
        }
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(Error::Malformed(format!("more than {MAX_INTERFACES} interfaces in one section")));
        }
        self.interfaces.push(interface);
        if let Some(name) = name.filter(|_| self.about.interfaces.len() < MAX_TEXTS) {
            self.about.interfaces.push(name);
        }
        Ok(())
    }

    /// An enhanced packet block, or an old packet block.
    #[inline]
    fn packet(&self, kind: u32, body: &[u8]) -> Result<Packet, Error> {
        if body.len() < 20 {
            return Err(Error::Malformed("a packet block is too short".into()));
        }
        let [number, high, low, captured_len, wire_len] = [0, 4, 8, 12, 16].map(|at| self.endian.u32(body, at));
        // The old block has the interface in two bytes, and a count of drops in the other two.
        let number = if kind == block_type::OLD_PACKET { self.endian.u16(body, 0).into() } else { number };
        let interface = self
            .interfaces
            .get(number as usize)
            .ok_or_else(|| Error::Malformed(format!("a packet of interface {number}, which is not described")))?;
        let length = captured_len as usize;
        if length > MAX_FRAME || body.len() - 20 < length {
            return Err(Error::Malformed(format!("a packet of {length} bytes in a block of {}", body.len() + 12)));
        }
        let time_ns = interface.time_ns(u64::from(high) << 32 | u64::from(low));
        let wire_len = wire_len.max(captured_len);
        Ok(Packet { time_ns, link_type: interface.link_type, wire_len, data: 20..20 + length })
    }

    /// A simple packet block. It belongs to the first interface and has no time, so it gets that of the packet before
    /// it.
    fn simple_packet(&self, body: &[u8]) -> Result<Packet, Error> {
        let (Some(interface), true) = (self.interfaces.first(), body.len() >= 4) else {
            return Err(Error::Malformed("a simple packet block without interface or length".into()));
        };
        let wire_len = self.endian.u32(body, 0);
        let limit = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
        let length = (wire_len.min(limit) as usize).min(body.len() - 4);
        Ok(Packet { time_ns: self.last_ns, link_type: interface.link_type, wire_len, data: 4..4 + length })
    }

    /// Interface statistics. isb_ifdrop counts from the start of the capture.
    fn statistics(&mut self, body: &[u8]) -> Result<(), Error> {
        if body.len() < 12 {
            return Err(Error::Malformed("interface statistics are too short".into()));
        }
        let number = self.endian.u32(body, 0);
        let interface = self
            .interfaces
            .get_mut(number as usize)
            .ok_or_else(|| Error::Malformed(format!("statistics of interface {number}, which is not described")))?;
        for (code, value) in options(&body[12..], self.endian) {
            if let (5, Ok(value)) = (code, value.try_into()) {
                interface.dropped = self.endian.u64(value);
            }
        }
        Ok(())
    }
}

impl Interface {
    /// Nanoseconds since the UNIX epoch of a timestamp.
    #[inline]
    fn time_ns(&self, ticks: u64) -> i64 {
        if self.tick_ns != 0 && self.offset_s == 0 && ticks < (1 << 61) / self.tick_ns {
            return (ticks * self.tick_ns) as i64;
        }
        let since_offset_ns = i128::from(ticks) * 1_000_000_000 / i128::from(self.ticks_per_s);
        let ns = since_offset_ns + i128::from(self.offset_s) * 1_000_000_000;
        ns.clamp(-MAX_TIME_NS, MAX_TIME_NS) as i64
    }
}

/// Whether a block of this type may be longer than the buffer.
fn may_be_long(kind: u32, length: usize) -> bool {
    use block_type::{CUSTOM, CUSTOM_NOT_COPIED, JOURNAL, NAMES, SECRETS};
    matches!(kind, NAMES | JOURNAL | SECRETS | CUSTOM | CUSTOM_NOT_COPIED) && length <= MAX_SKIPPED_BLOCK
}

/// Whether a complete block of a known type begins at `at`.
fn block_at(endian: Endian, bytes: &[u8], at: usize) -> bool {
    let Some(head) = bytes.get(at..at + 12) else { return false };
    let section = endian.u32(head, 0) == block_type::SECTION;
    let endian = match section {
        true if Endian::Little.u32(head, 8) == 0x4d3c_2b1a => Endian::Big,
        true => Endian::Little,
        false => endian,
    };
    let (kind, length) = (endian.u32(head, 0), endian.u32(head, 4) as usize);
    let minimum = match kind {
        block_type::SECTION => 28,
        block_type::INTERFACE => 20,
        block_type::PACKET | block_type::OLD_PACKET => 32,
        block_type::SIMPLE_PACKET => 16,
        block_type::STATISTICS => 24,
        _ => return false,
    };
    let possible = (minimum..=MAX_BLOCK).contains(&length) && length.is_multiple_of(4);
    possible && bytes.get(at + length - 4..at + length).is_some_and(|end| endian.u32(end, 0) as usize == length)
}

/// Code and value of each option of a block, or of each record of a name resolution block.
fn options(mut rest: &[u8], endian: Endian) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = rest.get(..4)?;
        let (code, length) = (endian.u16(head, 0), usize::from(endian.u16(head, 2)));
        let value = rest.get(4..4 + length)?;
        rest = rest.get(4 + length.next_multiple_of(4)..).unwrap_or(&[]);
        (code != 0).then_some((code, value))
    })
}

/// A name resolution block: records of an address and its names.
fn read_names(body: &[u8], endian: Endian, names: &mut BTreeMap<String, Vec<String>>) {
    for (code, value) in options(body, endian) {
        let (address, texts) = match (code, value.first_chunk::<4>(), value.split_first_chunk::<16>()) {
            (1, Some(&address), _) => (IpAddr::V4(Ipv4Addr::from(address)), &value[4..]),
            (2, _, Some((&address, texts))) => (IpAddr::V6(Ipv6Addr::from(address)), texts),
            _ => continue,
        };
        let address = address.to_string();
        if names.len() >= MAX_ADDRESSES && !names.contains_key(&address) {
            return;
        }
        let known = names.entry(address).or_default();
        for name in texts.split(|&byte| byte == 0).filter(|name| !name.is_empty()).take(MAX_NAMES) {
            let name = text(name);
            if known.len() < MAX_NAMES && !known.contains(&name) {
                known.push(name);
            }
        }
    }
}

/// A text for display: at most 200 characters, without control characters.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end.min(800)]).chars().filter(|c| !c.is_control()).take(200).collect()
}
