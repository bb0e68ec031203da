//! The TCP connections of a program, all served by one loop.

use std::io;

use backchannel_emulator::monotonic_ns;
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::socket::{is_transient, TcpSocket};

/// What workloads send. It is a multiple of no header, so a wrong offset does not show; a byte that is no zero does.
static ZEROS: [u8; 65_536] = [0; 65_536];

/// One end of a connection.
pub(super) struct Stream {
    pub(super) socket: TcpSocket,
    /// Joins both ends' records: the port of the end that connected.
    pub(super) port: u16,
    /// Bytes to write.
    pub(super) left: u64,
    /// Whether it closes its direction after these.
    pub(super) finishes: bool,
    finished: bool,
    pub(super) connected: bool,
    pub(super) written: u64,
    pub(super) received: u64,
    /// Whether everything received was zeros.
    pub(super) intact: bool,
    /// When the last byte was read, on CLOCK_MONOTONIC.
    pub(super) last_ns: u64,
    /// Whether the peer has closed its direction.
    pub(super) ended: bool,
    /// Number of the exchange that it carries.
    pub(super) exchange: Option<usize>,
}

impl Stream {
    pub(super) fn new(socket: TcpSocket, port: u16, connected: bool) -> Stream {
        Stream {
            socket,
            port,
            left: 0,
            finishes: false,
            finished: false,
            connected,
            written: 0,
            received: 0,
            intact: true,
            last_ns: 0,
            ended: false,
            exchange: None,
        }
    }

    fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::IN;
        if self.left > 0 || !self.connected {
            flags |= PollFlags::OUT;
        }
        flags
    }

    /// Reads and writes what is possible now.
    ///
    /// # Errors
    /// The connection failed.
    pub(super) fn serve(&mut self) -> io::Result<()> {
        if !self.connected {
            if let Some(error) = self.socket.error() {
                return Err(error);
            }
            self.connected = true;
        }
        self.read()?;
        self.write()
    }

    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; 65_536];
        while !self.ended {
            match self.socket.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    self.received += n as u64;
                    self.intact &= buffer[..n] == ZEROS[..n];
                    self.last_ns = monotonic_ns();
                }
                Err(error) if is_transient(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes what fits into the kernel's buffer.
    pub(super) fn write(&mut self) -> io::Result<()> {
        while self.connected && self.left > 0 {
            let part = self.left.min(ZEROS.len() as u64) as usize;
            match self.socket.write(&ZEROS[..part]) {
                Ok(n) => {
                    self.left -= n as u64;
                    self.written += n as u64;
                }
                Err(error) if is_transient(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if self.connected && self.finishes && !self.finished {
            self.finished = true;
            self.socket.finish_writing()?;
        }
        Ok(())
    }
}

/// Waits until the listener or a stream is ready, at most until an instant of CLOCK_MONOTONIC. Returns whether there is
/// a connection to accept, and for each stream whether it is to be served.
pub(super) fn wait(listener: Option<&TcpSocket>, streams: &[Stream], until_ns: u64) -> (bool, Vec<bool>) {
    let mut fds: Vec<PollFd<'_>> =
        streams.iter().map(|stream| PollFd::new(&stream.socket, stream.interest())).collect();
    fds.extend(listener.map(|listener| PollFd::new(listener, PollFlags::IN)));
    let wait_ns = until_ns.saturating_sub(monotonic_ns());
    let timeout = Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as i64 };
    if poll(&mut fds, Some(&timeout)).is_err() {
        return (false, vec![false; streams.len()]);
    }
    let mut ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
    let accepts = listener.is_some() && ready.pop() == Some(true);
    (accepts, ready)
}
