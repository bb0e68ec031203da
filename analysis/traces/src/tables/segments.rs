//! `segments.parquet` and `sacks.parquet`: one row per segment, one per SACK block.

use std::path::Path;

use backchannel_core::Error;

use super::parquet::{Encoded, Layout, Table};
use super::ROWS;
use crate::class;
use crate::connection::Segment;
use crate::in_turn::InTurn;
use crate::packet::TcpPacket;

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

/// The two files, and the row groups that are not written yet.
///
/// There are two groups: the one that grows and the one before it, because a later segment may prove that a
/// retransmission was spurious.
pub(super) struct SegmentTables {
    segments: Table,
    sacks: Table,
    /// Row in the capture's table of the first segment in `before`.
    first_row: u64,
    before: Group,
    now: Group,
    /// Encode the groups that are to be written. None: this thread does.
    encoders: Option<InTurn<(i32, Group), EncodedBack>>,
    /// Empty groups, for reuse.
    spare: Vec<Group>,
}

/// The rows of a group as they will be in the files.
struct EncodedGroup {
    segments: Encoded,
    sacks: Option<Encoded>,
}

/// What a thread gives back: the group, for reuse, and its encoded rows.
type EncodedBack = (Group, Result<EncodedGroup, Error>);

impl SegmentTables {
    /// Creates the files, and `threads` that encode.
    pub(super) fn create(segments: &Path, sacks: &Path, threads: usize) -> Result<SegmentTables, Error> {
        let layouts = [SEGMENTS, SACKS].map(Layout::new);
        Ok(SegmentTables {
            segments: Table::create(segments, &layouts[0])?,
            sacks: Table::create(sacks, &layouts[1])?,
            first_row: 0,
            before: Group::default(),
            now: Group::default(),
            encoders: (threads > 0).then(|| {
                InTurn::new(threads, move |(file, group): (i32, Group)| {
                    let encoded = group.encode(file, &layouts[0], &layouts[1]);
                    (group, encoded)
                })
            }),
            spare: Vec::new(),
        })
    }

    pub(super) fn tables(&mut self) -> [&mut Table; 2] {
        [&mut self.segments, &mut self.sacks]
    }

    /// Appends a segment, and marks the rows that it proved spurious.
    #[inline]
    pub(super) fn push(&mut self, frame: u64, time_ns: i64, packet: &TcpPacket, segment: &Segment, proved: &[u64]) {
        self.now.push(frame, time_ns, packet, segment);
        for &row in proved {
            self.mark_spurious(row);
        }
    }

    /// Marks a retransmission as spurious, if its row is not written yet.
    #[cold]
    fn mark_spurious(&mut self, row: u64) {
        let Some(index) = row.checked_sub(self.first_row) else { return };
        if let Some(class) = self.before.class.iter_mut().chain(&mut self.now.class).nth(index as usize) {
            *class |= class::SPURIOUS as i32;
        }
    }

    #[inline]
    pub(super) fn full(&self) -> bool {
        self.now.class.len() == ROWS
    }

    /// Writes the older of the two groups.
    #[cold]
    pub(super) fn write(&mut self, file: i32) -> Result<(), Error> {
        self.first_row += self.before.class.len() as u64;
        let now = std::mem::replace(&mut self.now, self.spare.pop().unwrap_or_default());
        let group = std::mem::replace(&mut self.before, now);
        if group.class.is_empty() {
            self.spare.push(group);
            return Ok(());
        }
        let Some(encoders) = &mut self.encoders else {
            let encoded = group.encode(file, self.segments.layout(), self.sacks.layout());
            return self.write_encoded(group, encoded);
        };
        let oldest = if encoders.has_room() { None } else { encoders.take() };
        encoders.send((file, group));
        oldest.map_or(Ok(()), |(group, encoded)| self.write_encoded(group, encoded))
    }

    fn write_encoded(&mut self, mut group: Group, encoded: Result<EncodedGroup, Error>) -> Result<(), Error> {
        group.clear();
        self.spare.push(group);
        let encoded = encoded?;
        self.segments.write(encoded.segments)?;
        encoded.sacks.map_or(Ok(()), |sacks| self.sacks.write(sacks))
    }

    /// Writes the last rows of a capture.
    pub(super) fn end_file(&mut self, file: i32) -> Result<(), Error> {
        self.write(file)?;
        self.write(file)?;
        while let Some((group, encoded)) = self.encoders.as_mut().and_then(InTurn::take) {
            self.write_encoded(group, encoded)?;
        }
        self.first_row = 0;
        Ok(())
    }

    pub(super) fn close(self) -> Result<(), Error> {
        self.segments.close()?;
        self.sacks.close()
    }
}

/// Rows of a row group, one vector per column.
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

impl Group {
    #[inline]
    fn push(&mut self, frame: u64, time_ns: i64, packet: &TcpPacket, segment: &Segment) {
        self.frame.push(frame as i64);
        self.time_ns.push(time_ns);
        self.conn.push(segment.connection as i32);
        self.dir.push(i32::from(segment.direction));
        self.ip_len.push(packet.ip_len as i32);
        self.payload.push(packet.payload as i32);
        self.seq.push(segment.seq);
        self.ack.push(segment.ack);
        self.window.push(segment.window);
        self.flags.push(i32::from(packet.flags));
        self.class.push(segment.class as i32);
        if let Some(rtt_ns) = segment.rtt_ns {
            self.rtt_ns.push(rtt_ns);
        }
        self.has_rtt.push(i16::from(segment.rtt_ns.is_some()));
        self.in_order.push(segment.in_order);
        if segment.class & class::SACK != 0 {
            self.push_sacks(frame, time_ns, packet, segment);
        }
    }

    #[cold]
    fn push_sacks(&mut self, frame: u64, time_ns: i64, packet: &TcpPacket, segment: &Segment) {
        // Edges lie within a window of the ack, so they are unwrapped relative to it.
        let unwrap = |edge: u32| segment.ack + i64::from(edge.wrapping_sub(packet.ack) as i32);
        let blocks = &packet.sacks[..usize::from(packet.sack_blocks)];
        self.sacks.extend(blocks.iter().enumerate().map(|(block, &(left, right))| SackRow {
            frame: frame as i64,
            time_ns,
            conn: segment.connection as i32,
            dir: i32::from(segment.direction),
            ack: segment.ack,
            block: block as i32,
            left: unwrap(left),
            right: unwrap(right),
        }));
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

    fn encode(&self, file: i32, segments: &Layout, sacks: &Layout) -> Result<EncodedGroup, Error> {
        let mut group = segments.row_group();
        group.int32(&vec![file; self.class.len()])?;
        group.int64(&self.time_ns)?;
        for column in [&self.conn, &self.dir, &self.ip_len, &self.payload] {
            group.int32(column)?;
        }
        for column in [&self.seq, &self.ack, &self.window] {
            group.int64(column)?;
        }
        for column in [&self.flags, &self.class] {
            group.int32(column)?;
        }
        group.optional_int64(&self.rtt_ns, &self.has_rtt)?;
        group.int64(&self.in_order)?;
        group.int64(&self.frame)?;
        let sacks = if self.sacks.is_empty() { None } else { Some(self.encode_sacks(file, sacks)?) };
        Ok(EncodedGroup { segments: group.finish(), sacks })
    }

    fn encode_sacks(&self, file: i32, layout: &Layout) -> Result<Encoded, Error> {
        let mut group = layout.row_group();
        let integers = |of: fn(&SackRow) -> i32| self.sacks.iter().map(of).collect::<Vec<_>>();
        let longs = |of: fn(&SackRow) -> i64| self.sacks.iter().map(of).collect::<Vec<_>>();
        group.int32(&vec![file; self.sacks.len()])?;
        group.int64(&longs(|row| row.frame))?;
        group.int64(&longs(|row| row.time_ns))?;
        group.int32(&integers(|row| row.conn))?;
        group.int32(&integers(|row| row.dir))?;
        group.int64(&longs(|row| row.ack))?;
        group.int32(&integers(|row| row.block))?;
        group.int64(&longs(|row| row.left))?;
        group.int64(&longs(|row| row.right))?;
        Ok(group.finish())
    }
}
