//! `receive`: the receiving end of `send`. It accepts one connection and compares every byte with the seed's stream.

use std::net::SocketAddr;

use backchannel_emulator::monotonic_ns;
use backchannel_emulator::os::wait::Readiness;

use crate::payload::Payload;
use crate::reports::{self, ReceiveEnd, ReceiveReport};
use crate::signals::{stop_on_signals, stopped, LONGEST_WAIT_NS};
use crate::socket::{self, is_transient, TcpSocket};

/// Arguments of `receive`.
#[derive(clap::Args)]
pub struct Args {
    /// Where to listen, as ADDRESS:PORT
    #[arg(long)]
    listen: SocketAddr,
    /// Seed of the byte stream, the same as the sender's
    #[arg(long)]
    seed: u64,
    #[command(flatten)]
    socket: socket::Options,
}

/// Receives until the end of the stream or a signal, and prints the report.
pub fn run(args: &Args) -> Result<(), String> {
    stop_on_signals();
    let listener = TcpSocket::new(&args.socket, args.listen)?;
    listener.listen(args.listen).map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
    eprintln!("ready on {}", args.listen);
    let mut check = Check::new(args.seed);
    let connection = wait_for_connection(&listener)?;
    if let Some(connection) = &connection {
        check.read_all(connection);
    }
    reports::print(&check.report(connection.is_some()))
}

fn wait_for_connection(listener: &TcpSocket) -> Result<Option<TcpSocket>, String> {
    while !stopped() {
        if !listener.wait(Readiness::Readable, LONGEST_WAIT_NS) {
            continue;
        }
        match listener.accept() {
            Ok(connection) => return Ok(Some(connection)),
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(format!("cannot accept a connection: {error}")),
        }
    }
    Ok(None)
}

/// Bytes that are hashed at a time: the hash of many takes a fraction of the time of one segment after another.
const HASHED_BYTES: usize = 65_536;

/// Compares what arrives with what should arrive.
pub(crate) struct Check {
    expected: Payload,
    intact: bool,
    hash: blake3::Hasher,
    /// What has arrived and is not in the hash yet.
    unhashed: Vec<u8>,
    bytes: u64,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    /// How the connection ended, for the report.
    pub(crate) end: ReceiveEnd,
}

impl Check {
    pub(crate) fn new(seed: u64) -> Check {
        Check {
            expected: Payload::new(seed),
            intact: true,
            hash: blake3::Hasher::new(),
            unhashed: Vec::with_capacity(2 * HASHED_BYTES),
            bytes: 0,
            first_ns: None,
            last_ns: None,
            end: ReceiveEnd::Stopped,
        }
    }

    fn read_all(&mut self, connection: &TcpSocket) {
        let mut buffer = vec![0; 65_536];
        while !stopped() {
            // One read takes all that has arrived, so a wait costs less than a read that finds nothing.
            if !connection.wait(Readiness::Readable, LONGEST_WAIT_NS) {
                continue;
            }
            match connection.read(&mut buffer) {
                Ok(0) => {
                    self.end = ReceiveEnd::Finished;
                    return;
                }
                Ok(n) => self.check(&buffer[..n]),
                Err(error) if is_transient(&error) => {}
                Err(_) => {
                    self.end = ReceiveEnd::Reset;
                    return;
                }
            }
        }
        connection.reset_on_close();
    }

    /// The next bytes of the stream.
    pub(crate) fn check(&mut self, mut bytes: &[u8]) {
        let now = monotonic_ns();
        self.first_ns.get_or_insert(now);
        self.last_ns = Some(now);
        self.bytes += bytes.len() as u64;
        self.unhashed.extend_from_slice(bytes);
        if self.unhashed.len() >= HASHED_BYTES {
            self.hash.update(&self.unhashed);
            self.unhashed.clear();
        }
        while !bytes.is_empty() {
            let expected = self.expected.peek();
            let n = expected.len().min(bytes.len());
            self.intact &= bytes[..n] == expected[..n];
            self.expected.advance(n);
            bytes = &bytes[n..];
        }
    }

    /// The report. `connected`: whether there was a connection.
    pub(crate) fn report(&self, connected: bool) -> ReceiveReport {
        ReceiveReport {
            bytes: self.bytes,
            blake3: self.hash.clone().update(&self.unhashed).finalize().to_hex().to_string(),
            payload_ok: self.intact,
            connected,
            end: self.end,
            first_monotonic_ns: self.first_ns,
            last_monotonic_ns: self.last_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_stacks::{Content, Source};

    #[test]
    fn the_hash_is_that_of_all_bytes_however_they_arrive() {
        let stream = Source::new(Content::Pattern(3), None).bytes(0, 200_000);
        for length in [0, 1000, HASHED_BYTES, stream.len()] {
            let mut check = Check::new(3);
            stream[..length].chunks(1448).for_each(|part| check.check(part));
            let report = check.report(true);
            assert_eq!(report.blake3, blake3::hash(&stream[..length]).to_hex().to_string());
            assert!(report.payload_ok);
        }
    }

    #[test]
    fn a_single_wrong_byte_is_detected() {
        let mut good = Payload::new(3);
        let stream = good.peek()[..1000].to_vec();
        let mut check = Check::new(3);
        check.check(&stream[..400]);
        check.check(&stream[400..]);
        assert!(check.report(true).payload_ok);

        let mut bad = stream.clone();
        bad[700] ^= 1;
        let mut check = Check::new(3);
        check.check(&bad);
        assert!(!check.report(true).payload_ok);
    }
}
