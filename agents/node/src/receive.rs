//! `receive`: the other end of `send`: takes one connection and holds every byte against the seed's stream.

use std::net::SocketAddrV4;

use backchannel_emulator::monotonic_ns;
use serde_json::{json, Value};

use crate::payload::Payload;
use crate::send::is_transient;
use crate::socket::{self, stopped, Socket};

/// Arguments of `receive`.
#[derive(clap::Args)]
pub struct Args {
    /// Where to listen, as ADDRESS:PORT
    #[arg(long)]
    listen: SocketAddrV4,
    /// Seed of the byte stream that must come
    #[arg(long)]
    seed: u64,
    #[command(flatten)]
    socket: socket::Options,
}

/// Receives, and prints the report: at the end of the stream, or when told to stop.
pub fn run(args: &Args) -> Result<(), String> {
    socket::stop_on_signals();
    let listener = Socket::new(&args.socket)?;
    listener.listen(args.listen).map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
    eprintln!("ready on {}", args.listen);
    let mut check = Check::new(args.seed);
    let connection = wait_for_connection(&listener)?;
    if let Some(connection) = &connection {
        check.read_all(connection);
    }
    println!("{}", check.report(connection.is_some()));
    Ok(())
}

fn wait_for_connection(listener: &Socket) -> Result<Option<Socket>, String> {
    while !stopped() {
        // A signal that comes between the check and the wait is seen after the timeout.
        if !listener.wait(libc::POLLIN, Some(monotonic_ns() + 200_000_000)) {
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

/// What came, and what should have come.
pub(crate) struct Check {
    expected: Payload,
    hash: blake3::Hasher,
    expected_hash: blake3::Hasher,
    bytes: u64,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    /// How the connection ended.
    pub(crate) end: &'static str,
}

impl Check {
    pub(crate) fn new(seed: u64) -> Check {
        Check {
            expected: Payload::new(seed),
            hash: blake3::Hasher::new(),
            expected_hash: blake3::Hasher::new(),
            bytes: 0,
            first_ns: None,
            last_ns: None,
            end: "stopped",
        }
    }

    fn read_all(&mut self, connection: &Socket) {
        let mut buffer = vec![0; 65_536];
        while !stopped() {
            match connection.read(&mut buffer) {
                Ok(0) => {
                    self.end = "finished";
                    return;
                }
                Ok(n) => self.take(&buffer[..n]),
                Err(error) if is_transient(&error) => {
                    connection.wait(libc::POLLIN, Some(monotonic_ns() + 200_000_000));
                }
                Err(_) => {
                    self.end = "reset";
                    return;
                }
            }
        }
        connection.reset_on_close();
    }

    pub(crate) fn take(&mut self, mut bytes: &[u8]) {
        let now = monotonic_ns();
        self.first_ns.get_or_insert(now);
        self.last_ns = Some(now);
        self.bytes += bytes.len() as u64;
        self.hash.update(bytes);
        while !bytes.is_empty() {
            let expected = self.expected.peek();
            let n = expected.len().min(bytes.len());
            self.expected_hash.update(&expected[..n]);
            self.expected.advance(n);
            bytes = &bytes[n..];
        }
    }

    pub(crate) fn report(&self, connected: bool) -> Value {
        json!({
            "bytes": self.bytes,
            "blake3": self.hash.finalize().to_hex().as_str(),
            "payload_ok": self.hash.finalize() == self.expected_hash.finalize(),
            "connected": connected,
            "end": self.end,
            "first_monotonic_ns": self.first_ns,
            "last_monotonic_ns": self.last_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_byte_is_seen() {
        let mut good = Payload::new(3);
        let stream = good.peek()[..1000].to_vec();
        let mut check = Check::new(3);
        check.take(&stream[..400]);
        check.take(&stream[400..]);
        assert_eq!(check.report(true)["payload_ok"], true);

        let mut bad = stream.clone();
        bad[700] ^= 1;
        let mut check = Check::new(3);
        check.take(&bad);
        assert_eq!(check.report(true)["payload_ok"], false);
    }
}
