//! Captures: nanosecond pcap of raw IP packets, as tcpdump would write them on each interface.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use backchannel_core::packet::Packet;
use backchannel_core::time::Time;

/// Epoch second of a run's zero in captures: 2001-09-09 01:46:40 UTC, for virtual time has no date.
pub(crate) const EPOCH_S: u64 = 1_000_000_000;
const LINKTYPE_RAW: u32 = 101;

/// One capture file.
pub(crate) struct Capture {
    out: BufWriter<File>,
    snaplen: u32,
    pub(crate) packets: u64,
}

impl Capture {
    pub(crate) fn create(path: &Path, snaplen: u32) -> io::Result<Capture> {
        let mut out = BufWriter::with_capacity(1 << 16, File::create(path)?);
        for word in [0xa1b2_3c4d, 0x0004_0002, 0, 0, snaplen, LINKTYPE_RAW] {
            out.write_all(&u32::to_le_bytes(word))?;
        }
        Ok(Capture { out, snaplen, packets: 0 })
    }

    pub(crate) fn take(&mut self, now: Time, packet: &Packet) -> io::Result<()> {
        self.packets += 1;
        let kept = packet.len().min(self.snaplen);
        let seconds = EPOCH_S + now.nanos() / 1_000_000_000;
        for word in [seconds as u32, (now.nanos() % 1_000_000_000) as u32, kept, packet.len()] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        let given = packet.bytes();
        let given = &given[..given.len().min(kept as usize)];
        self.out.write_all(given)?;
        const ZEROS: [u8; 256] = [0; 256];
        let mut left = kept as usize - given.len();
        while left > 0 {
            let part = left.min(ZEROS.len());
            self.out.write_all(&ZEROS[..part])?;
            left -= part;
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}
