//! Writes captures of a run: pcap with nanosecond time stamps. analysis/traces reads captures.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Start of a run in virtual time, in nanoseconds since the epoch: 2001-09-09 01:46:40 UTC.
pub const VIRTUAL_EPOCH_NS: i64 = 1_000_000_000_000_000_000;

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Major 2, minor 4, as two little-endian 16-bit words.
const VERSION: u32 = 0x0004_0002;

/// What the frames of a capture are (<https://www.tcpdump.org/linktypes.html>).
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum LinkType {
    /// Bare IPv4 or IPv6 packets.
    Raw = 101,
    /// PPP behind a byte with the direction: 1 sent, 0 received.
    PppWithDirection = 204,
}

/// The buffer is written to the file when it holds this many bytes.
const BUFFER_BYTES: usize = 1 << 16;

/// One capture file.
pub struct PcapWriter {
    file: File,
    buffer: Vec<u8>,
    /// The first error of the file. Nothing is written after it.
    failed: Option<io::Error>,
    snaplen: u32,
    packets: u64,
}

impl PcapWriter {
    /// Creates the file and its header.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path, link_type: LinkType, snaplen: u32) -> io::Result<PcapWriter> {
        let file = File::create(path)?;
        let mut buffer = Vec::with_capacity(BUFFER_BYTES + (1 << 12));
        for word in [MAGIC_NANOSECONDS, VERSION, 0, 0, snaplen, link_type as u32] {
            buffer.extend_from_slice(&word.to_le_bytes());
        }
        Ok(PcapWriter { file, buffer, failed: None, snaplen, packets: 0 })
    }

    /// Adds a frame of `bytes` and then `zeros` bytes of value 0, captured at `epoch_ns`. [`PcapWriter::finish`]
    /// reports errors of the file.
    pub fn write(&mut self, epoch_ns: i64, bytes: &[u8], zeros: u32) {
        self.packets += 1;
        let length = bytes.len() as u32 + zeros;
        let kept = length.min(self.snaplen);
        let (seconds, nanos) = (epoch_ns.div_euclid(1_000_000_000), epoch_ns.rem_euclid(1_000_000_000));
        let mut header = [0; 16];
        for (place, word) in header.chunks_exact_mut(4).zip([seconds as u32, nanos as u32, kept, length]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.buffer.extend_from_slice(&header);
        let end = self.buffer.len() + kept as usize;
        self.buffer.extend_from_slice(&bytes[..bytes.len().min(kept as usize)]);
        self.buffer.resize(end, 0);
        if end >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Frames written so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Writes what is buffered to the file.
    ///
    /// # Errors
    /// The file could not be written, now or before.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush();
        self.failed.map_or(Ok(()), Err)
    }

    fn flush(&mut self) {
        if self.failed.is_none() {
            self.failed = self.file.write_all(&self.buffer).err();
        }
        self.buffer.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_cut_at_the_snap_length_and_keeps_its_length() {
        let path = std::env::temp_dir().join(format!("backchannel-pcap-{}.pcap", std::process::id()));
        let mut pcap = PcapWriter::create(&path, LinkType::Raw, 6).unwrap();
        pcap.write(5_000_000_007, &[1, 2, 3, 4], 1000);
        assert_eq!(pcap.packets(), 1);
        pcap.finish().unwrap();
        let file = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let words: Vec<u32> = file[24..40].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words, [5, 7, 6, 1004]);
        assert_eq!(file[40..], [1, 2, 3, 4, 0, 0]);
    }
}
