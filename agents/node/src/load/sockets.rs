//! Connections over the kernel's TCP, all served by one loop.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::net::SocketAddr;
use std::path::Path;

use backchannel_core::{Error, ResultExt};
use backchannel_emulator::os::process::Priority;
use backchannel_emulator::{become_realtime, leave_realtime, monotonic_ns};
use backchannel_workloads::flow::Write;
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::streams::{Progress, Streams, Tally};
use crate::payload::{Check, Payload, StreamHash};
use crate::reports::{ReceiveEnd, TcpInfo, TcpInfoLine, TransportReport};
use crate::signals::LONGEST_WAIT_NS;
use crate::socket::{is_transient, Options, TcpSocket};

/// Least time between two lines of telemetry, in nanoseconds.
const PERIOD_NS: u64 = 50_000_000;
/// Most calls in a row that read or write one connection. The caller checks clocks and signals between them, however
/// fast the peer is.
const BATCH: usize = 16;

/// The sockets of one end of a flow.
pub(super) struct Sockets<'a> {
    options: &'a Options,
    peer: SocketAddr,
    listener: Option<TcpSocket>,
    streams: Vec<Stream>,
    tally: Tally,
    /// At the sender, which also fails if a connection does.
    telemetry: Option<TcpInfoFile>,
    /// Whether the program is in the real-time class, which it leaves when it opens a connection.
    is_realtime: bool,
    /// Of the connection that ended last.
    last_info: Option<TcpInfo>,
    /// Of what was sent on the first connection.
    sent_hash: Option<String>,
    /// Whether every connection that sent had the flow's congestion control to its end.
    kept: Result<(), Error>,
}

impl<'a> Sockets<'a> {
    /// `listens`: where it accepts connections.
    pub(super) fn open(
        options: &'a Options,
        peer: SocketAddr,
        listens: Option<SocketAddr>,
        seed: u64,
    ) -> Result<Sockets<'a>, Error> {
        let listener = listens.map(|at| {
            let listener = TcpSocket::new(options, at)?;
            listener.listen(at).or_system(format_args!("cannot listen on {at}"))?;
            Ok::<_, Error>(listener)
        });
        Ok(Sockets {
            options,
            peer,
            listener: listener.transpose()?,
            streams: Vec::new(),
            tally: Tally::new(seed),
            telemetry: None,
            is_realtime: false,
            last_info: None,
            sent_hash: None,
            kept: Ok(()),
        })
    }

    /// For the sending end: tcp_info of the latest connection goes to a file, with times since `start_ns`.
    pub(super) fn recording(mut self, file: &Path, start_ns: u64) -> Result<Sockets<'a>, Error> {
        self.telemetry = Some(TcpInfoFile::create(file, start_ns)?);
        // A transfer that starts late ends late, so no other program may have the CPU at that moment.
        self.is_realtime = true;
        become_realtime(Priority::Host);
        Ok(self)
    }

    fn add(&mut self, socket: TcpSocket, port: u16, connected: bool) -> SocketId {
        let id = SocketId { number: self.tally.opened, port };
        let check = self.tally.open();
        let payload = Payload::new(self.tally.seed);
        let hash = (!connected && id.number == 0).then(StreamHash::default);
        let (left, finishes, finished, written, end) = (0, false, false, 0, None);
        let stream = Stream { id, socket, payload, hash, left, finishes, finished, connected, written, check, end };
        self.streams.push(stream);
        id
    }

    /// How long to wait now: not past an instant, nor past the next line of telemetry.
    fn longest_wait_ns(&mut self, until_ns: Option<u64>) -> Result<u64, Error> {
        if until_ns.is_none() && self.telemetry.is_none() {
            // In virtual time reading the clock takes as long as reading a connection.
            return Ok(LONGEST_WAIT_NS);
        }
        let now_ns = monotonic_ns();
        let line_ns = self.telemetry.as_mut().filter(|_| !self.streams.is_empty()).map_or(Ok(u64::MAX), |file| {
            file.sample(now_ns, self.streams.last().and_then(|stream| stream.socket.info()))
        })?;
        Ok(until_ns.unwrap_or(now_ns + LONGEST_WAIT_NS).min(line_ns).saturating_sub(now_ns))
    }

    /// Why a connection of the sender failed.
    fn failure(peer: SocketAddr, stream: &Stream, error: &io::Error) -> Error {
        Error::System(if stream.connected {
            format!("a connection to {peer} failed after {} bytes: {error}", stream.written)
        } else {
            format!("cannot connect to {peer}: {error}")
        })
    }

    fn remove(&mut self, stream: Stream) {
        if let Some(hash) = &stream.hash {
            self.sent_hash = Some(hash.hex());
        }
        self.last_info = stream.socket.info();
        if self.kept.is_ok() && stream.written > 0 {
            self.kept = stream.socket.keeps(self.options);
        }
        self.tally.add(stream.check, stream.written, stream.end.unwrap_or(ReceiveEnd::Stopped));
    }
}

impl Streams for Sockets<'_> {
    type Id = SocketId;
    const NEEDS_START: bool = false;

    fn connect(&mut self) -> Result<SocketId, Error> {
        let what = format!("cannot connect to {}", self.peer);
        let socket = TcpSocket::new(self.options, self.peer)?;
        socket.connect(self.peer).or_system(&what)?;
        let port = socket.local_port().or_system(&what)?;
        if std::mem::take(&mut self.is_realtime) {
            leave_realtime();
        }
        Ok(self.add(socket, port, false))
    }

    fn write(&mut self, id: SocketId, next: Write) -> Result<(), Error> {
        let Some(stream) = self.streams.iter_mut().rev().find(|stream| stream.id == id) else { return Ok(()) };
        stream.left += next.bytes;
        stream.finishes |= next.finishes;
        match stream.write() {
            Err(error) if self.telemetry.is_some() => Err(Self::failure(self.peer, stream, &error)),
            Err(_) => {
                stream.fail();
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn key(&self, id: SocketId) -> u16 {
        id.port
    }

    fn wait(&mut self, until_ns: Option<u64>) -> Result<Vec<Progress<SocketId>>, Error> {
        let wait_ns = self.longest_wait_ns(until_ns)?;
        let (accepts, ready) = wait(self.listener.as_ref(), &self.streams, wait_ns);
        let mut progress = Vec::new();
        for (stream, ready) in self.streams.iter_mut().zip(ready).filter(|(_, ready)| !ready.is_empty()) {
            let before = stream.check.bytes;
            match stream.serve(ready) {
                Err(error) if self.telemetry.is_some() => return Err(Self::failure(self.peer, stream, &error)),
                // The sender resets what its stop time interrupts.
                Err(_) => stream.fail(),
                Ok(()) => {}
            }
            let ended = stream.end == Some(ReceiveEnd::Finished);
            progress.extend(Progress::since(before, stream.id, &stream.check, ended));
        }
        while let Some(Ok(socket)) = self.listener.as_ref().filter(|_| accepts).map(TcpSocket::accept) {
            let port = socket.peer_port().unwrap_or(0);
            self.add(socket, port, true);
        }
        Ok(progress)
    }

    fn drop_ended(&mut self) {
        while let Some(number) = self.streams.iter().position(|stream| stream.end.is_some() && stream.left == 0) {
            let stream = self.streams.remove(number);
            self.remove(stream);
        }
    }

    fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    fn has_connected(&mut self) -> bool {
        self.last_info.is_some() || self.streams.iter().any(|stream| stream.connected)
    }

    fn abort(&mut self) -> Result<(), Error> {
        for stream in std::mem::take(&mut self.streams) {
            stream.socket.reset_on_close();
            self.remove(stream);
        }
        Ok(())
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn report(&mut self) -> Result<TransportReport, Error> {
        std::mem::replace(&mut self.kept, Ok(()))?;
        let Some(file) = self.telemetry.take() else { return Ok(TransportReport::default()) };
        file.finish()?;
        let sent_blake3 = self.sent_hash.take().filter(|_| self.tally.opened == 1);
        Ok(TransportReport { sent_blake3, tcp_info: self.last_info.take(), ..TransportReport::default() })
    }
}

/// A connection of this program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SocketId {
    number: u64,
    /// At the end that opened it.
    port: u16,
}

/// One end of a connection.
struct Stream {
    id: SocketId,
    socket: TcpSocket,
    payload: Payload,
    /// Of what was written; `None`: not wanted.
    hash: Option<StreamHash>,
    /// Bytes to write.
    left: u64,
    /// Whether it closes its direction after these.
    finishes: bool,
    finished: bool,
    connected: bool,
    written: u64,
    check: Check,
    /// How the peer's direction ended.
    end: Option<ReceiveEnd>,
}

impl Stream {
    fn interest(&self) -> PollFlags {
        let mut flags = if self.end.is_none() { PollFlags::IN } else { PollFlags::empty() };
        if self.left > 0 || !self.connected {
            flags |= PollFlags::OUT;
        }
        flags
    }

    fn fail(&mut self) {
        self.end = Some(ReceiveEnd::Reset);
        self.left = 0;
    }

    /// Reads and writes what is possible now.
    ///
    /// # Errors
    /// The connection failed.
    fn serve(&mut self, ready: PollFlags) -> io::Result<()> {
        if !self.connected {
            if let Some(error) = self.socket.error() {
                return Err(error);
            }
            self.connected = true;
        }
        // In virtual time a call that finds nothing takes as long as one that does.
        if ready != PollFlags::OUT {
            self.read()?;
        }
        self.write()
    }

    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; 65_536];
        for _ in 0..BATCH {
            match self.socket.read(&mut buffer) {
                Ok(0) => {
                    self.end.get_or_insert(ReceiveEnd::Finished);
                    break;
                }
                Ok(n) => {
                    self.check.check(&buffer[..n]);
                    if n < buffer.len() {
                        break;
                    }
                }
                Err(error) if is_transient(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes what fits into the kernel's buffer.
    fn write(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            if !self.connected || self.left == 0 {
                break;
            }
            let part = self.payload.peek();
            let part = &part[..self.left.min(part.len() as u64) as usize];
            match self.socket.write(part) {
                Ok(n) => {
                    if let Some(hash) = &mut self.hash {
                        hash.update(&part[..n]);
                    }
                    self.payload.advance(n);
                    self.left -= n as u64;
                    self.written += n as u64;
                }
                Err(error) if is_transient(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if self.connected && self.finishes && self.left == 0 && !self.finished {
            self.finished = true;
            self.socket.finish_writing()?;
        }
        Ok(())
    }
}

/// Telemetry of the sender.
struct TcpInfoFile {
    file: BufWriter<File>,
    /// Start of the flow, on CLOCK_MONOTONIC.
    start_ns: u64,
    next_line_ns: u64,
}

impl TcpInfoFile {
    fn create(path: &Path, start_ns: u64) -> Result<TcpInfoFile, Error> {
        let file = File::create(path).or_system(format_args!("cannot write {}", path.display()))?;
        Ok(TcpInfoFile { file: BufWriter::new(file), start_ns, next_line_ns: 0 })
    }

    /// Adds a line, if one is due. Returns when the next one is.
    fn sample(&mut self, now_ns: u64, info: Option<TcpInfo>) -> Result<u64, Error> {
        if now_ns >= self.next_line_ns {
            self.next_line_ns = now_ns + PERIOD_NS;
            if let Some(info) = info {
                let t_ns = now_ns.saturating_sub(self.start_ns);
                serde_json::to_writer(&mut self.file, &TcpInfoLine { t_ns, info })
                    .map_err(io::Error::from)
                    .and_then(|()| writeln!(self.file))
                    .or_system("cannot write telemetry")?;
            }
        }
        Ok(self.next_line_ns)
    }

    fn finish(mut self) -> Result<(), Error> {
        self.file.flush().or_system("cannot write telemetry")
    }
}

/// Waits until the listener or a stream is ready, at most for a time in nanoseconds. Returns whether there is a
/// connection to accept, and for each stream what it is ready for.
fn wait(listener: Option<&TcpSocket>, streams: &[Stream], wait_ns: u64) -> (bool, Vec<PollFlags>) {
    let mut fds: Vec<PollFd<'_>> =
        streams.iter().map(|stream| PollFd::new(&stream.socket, stream.interest())).collect();
    fds.extend(listener.map(|listener| PollFd::new(listener, PollFlags::IN)));
    let timeout = Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as i64 };
    if poll(&mut fds, Some(&timeout)).is_err() {
        return (false, Vec::new());
    }
    let mut ready: Vec<_> = fds.iter().map(PollFd::revents).collect();
    let accepts = listener.is_some() && ready.pop().is_some_and(|flags| !flags.is_empty());
    (accepts, ready)
}
