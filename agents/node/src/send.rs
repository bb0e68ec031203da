//! `send`: a bulk transfer over one TCP connection of the kernel.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use backchannel_emulator::os::process::Priority;
use backchannel_emulator::os::wait::Readiness;
use backchannel_emulator::{become_realtime, leave_realtime, monotonic_ns};

use crate::payload::Payload;
use crate::reports::{self, Outcome, SendReport, TcpInfoLine};
use crate::signals::{sleep_until, stop_on_signals, stopped, LONGEST_WAIT_NS};
use crate::socket::{self, is_transient, TcpSocket};
use crate::transfer::Transfer;

/// Least time between two lines of telemetry, in nanoseconds.
const PERIOD_NS: u64 = 50_000_000;

/// Arguments of `send`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    transfer: Transfer,
    /// File for the kernel's tcp_info every 50 ms, as JSON lines
    #[arg(long, value_name = "FILE")]
    telemetry: Option<PathBuf>,
    #[command(flatten)]
    socket: socket::Options,
}

/// Sends and prints the report.
pub fn run(args: &Args) -> Result<(), String> {
    stop_on_signals();
    let mut telemetry = args.telemetry.as_deref().map(|path| {
        File::create(path).map(BufWriter::new).map_err(|error| format!("cannot write {}: {error}", path.display()))
    });
    let mut telemetry = telemetry.take().transpose()?;
    let socket = TcpSocket::new(&args.socket, args.transfer.to)?;
    let mut started_late = Duration::ZERO;
    if let Some(at) = args.transfer.start_at_ns {
        // A transfer that starts late ends late, so no other program may have the CPU at that moment.
        become_realtime(Priority::Host);
        sleep_until(at);
        started_late = Duration::from_nanos(monotonic_ns().saturating_sub(at));
        leave_realtime();
    }
    let mut sender =
        Sender { args, socket, payload: Payload::new(args.transfer.seed), hash: blake3::Hasher::new(), sent: 0 };
    let outcome = sender.send(&mut telemetry);
    let report = sender.report(started_late, outcome?);
    if let Some(mut file) = telemetry {
        file.flush().map_err(|error| format!("cannot write telemetry: {error}"))?;
    }
    reports::print(&report)
}

struct Sender<'a> {
    args: &'a Args,
    socket: TcpSocket,
    payload: Payload,
    hash: blake3::Hasher,
    sent: u64,
}

impl Sender<'_> {
    fn send(&mut self, telemetry: &mut Option<BufWriter<File>>) -> Result<Outcome, String> {
        let to = self.args.transfer.to;
        if !self.is_over(monotonic_ns()) {
            self.socket.connect(to).map_err(|error| format!("cannot connect to {to}: {error}"))?;
        }
        let mut connected = false;
        let mut next_line_ns = monotonic_ns();
        loop {
            // Read once for each wait: in virtual time it is a system call of 15 us.
            let now = monotonic_ns();
            if self.is_over(now) {
                self.socket.reset_on_close();
                return Ok(if connected { Outcome::Stopped } else { Outcome::NeverConnected });
            }
            if telemetry.is_some() && now >= next_line_ns {
                self.sample(now, telemetry)?;
                next_line_ns = now + PERIOD_NS;
            }
            let done = self.args.transfer.bytes.is_some_and(|bytes| self.sent >= bytes);
            let line_ns = if telemetry.is_some() { next_line_ns } else { u64::MAX };
            let until = self.args.transfer.stop_at_ns.unwrap_or(u64::MAX).min(line_ns).min(now + LONGEST_WAIT_NS);
            if !self.socket.wait(if done { Readiness::Readable } else { Readiness::Writable }, until - now) {
                continue;
            }
            if !connected {
                if let Some(error) = self.socket.error() {
                    return Err(format!("cannot connect to {to}: {error}"));
                }
                connected = true;
            }
            if done {
                // The receiver closes once it has read everything.
                match self.socket.read(&mut [0; 64]) {
                    Ok(0) => return Ok(Outcome::Completed),
                    Err(error) if !is_transient(&error) => {
                        return Err(format!("the receiver closed the connection early: {error}"))
                    }
                    _ => continue,
                }
            }
            self.write()?;
        }
    }

    fn write(&mut self) -> Result<(), String> {
        let mut part = self.payload.peek();
        if let Some(bytes) = self.args.transfer.bytes {
            let left = (bytes - self.sent).min(part.len() as u64) as usize;
            part = &part[..left];
        }
        match self.socket.write(part) {
            Ok(n) => {
                self.hash.update(&part[..n]);
                self.payload.advance(n);
                self.sent += n as u64;
                if self.args.transfer.bytes == Some(self.sent) {
                    self.socket.finish_writing().map_err(|error| format!("cannot finish: {error}"))?;
                }
                Ok(())
            }
            Err(error) if is_transient(&error) => Ok(()),
            Err(error) => Err(format!("sending failed after {} bytes: {error}", self.sent)),
        }
    }

    fn is_over(&self, now_ns: u64) -> bool {
        stopped() || self.args.transfer.stop_at_ns.is_some_and(|at| now_ns >= at)
    }

    fn sample(&self, now_ns: u64, telemetry: &mut Option<BufWriter<File>>) -> Result<(), String> {
        let Some(file) = telemetry else { return Ok(()) };
        let Some(info) = self.socket.info() else { return Ok(()) };
        let t_ns = now_ns.saturating_sub(self.args.transfer.start_at_ns.unwrap_or(0));
        serde_json::to_writer(&mut *file, &TcpInfoLine { t_ns, info })
            .map_err(std::io::Error::from)
            .and_then(|()| writeln!(file))
            .map_err(|error| format!("cannot write telemetry: {error}"))
    }

    fn report(&self, started_late: Duration, outcome: Outcome) -> SendReport {
        SendReport {
            bytes: self.sent,
            blake3: self.hash.finalize().to_hex().to_string(),
            outcome,
            started_late_s: started_late.as_secs_f64(),
            tcp_info: self.socket.info(),
        }
    }
}
