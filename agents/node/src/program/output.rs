//! An output of a program: a pipe that is copied to a file up to a limit.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use backchannel_core::{Error, ResultExt};
use rustix::io::ioctl_fionbio;

/// Longest line that is repeated in a message, in bytes.
const LONGEST_LINE: usize = 300;
/// What is looked through for a line.
const RECENT: usize = 64 << 10;

pub(super) struct Output {
    file: File,
    pipe: Option<File>,
    fd: Option<OwnedFd>,
    limit: u64,
    /// Bytes that were written, kept or not.
    pub(super) total: u64,
    recent: Vec<u8>,
}

impl Output {
    pub(super) fn create(path: &Path, limit: u64) -> Result<Output, Error> {
        let file = File::create(path).or_system(format_args!("cannot write {}", path.display()))?;
        Ok(Output { file, pipe: None, fd: None, limit, total: 0, recent: Vec::new() })
    }

    pub(super) fn read_from(&mut self, pipe: Option<OwnedFd>) -> Result<(), Error> {
        let what = "cannot read the program's output";
        let pipe = pipe.expect("the program was started with pipes");
        ioctl_fionbio(&pipe, true).map_err(std::io::Error::from).or_system(what)?;
        self.fd = Some(pipe.try_clone().or_system(what)?);
        self.pipe = Some(File::from(pipe));
        Ok(())
    }

    /// What becomes readable; `None` once all of its writers are gone.
    pub(super) fn fd(&self) -> Option<&OwnedFd> {
        self.fd.as_ref()
    }

    /// Copies what is there, at most what is still kept and a little more.
    pub(super) fn take(&mut self) {
        let mut buffer = [0; 16 << 10];
        while !self.is_over() {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut buffer) {
                Ok(0) => {
                    self.pipe = None;
                    self.fd = None;
                }
                Ok(length) => self.keep(&buffer[..length]),
                // Nothing is there now.
                Err(_) => return,
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = self.limit.saturating_sub(self.total).min(bytes.len() as u64) as usize;
        // A full disk cuts the file; the report has the true size.
        let _ = self.file.write_all(&bytes[..room]);
        self.total += bytes.len() as u64;
        self.recent.extend_from_slice(bytes);
        if self.recent.len() > 2 * RECENT {
            self.recent.drain(..self.recent.len() - RECENT);
        }
    }

    /// Whether more was written than is kept.
    pub(super) fn is_over(&self) -> bool {
        self.total > self.limit
    }

    /// Whether a line among the latest 64 KiB contains a text.
    pub(super) fn has(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.recent).contains(text)
    }

    /// The last line with words.
    pub(super) fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.recent);
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.chars().take(LONGEST_LINE).collect())
    }
}
