//! The sending end of a workload of TCP connections.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::Duration;

use backchannel_core::exchange::{Exchanges, SentLine};
use backchannel_core::scenario::Flow;
use backchannel_core::time::Time;
use backchannel_emulator::monotonic_ns;
use backchannel_workloads::{Action, Application};

use super::streams::{self, Stream};
use super::{run_time, SendArgs};
use crate::reports::{self, LoadSendReport, Outcome, TcpInfoLine};
use crate::signals::{stopped, LONGEST_WAIT_NS};
use crate::socket::TcpSocket;

/// Least time between two lines of telemetry, in nanoseconds.
const PERIOD_NS: u64 = 50_000_000;

/// Runs the application until it has ended, its time is over, or a signal arrives.
pub(super) fn send(args: &SendArgs, flow: &Flow, application: Application) -> Result<(), String> {
    let listener = match application.request_bytes() {
        None => None,
        Some(_) => {
            let listener = TcpSocket::new(&args.workload.socket, args.listen)?;
            listener.listen(args.listen).map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
            Some(listener)
        }
    };
    let file =
        File::create(&args.telemetry).map_err(|error| format!("cannot write {}: {error}", args.telemetry.display()))?;
    let mut sender = Sender {
        args,
        flow,
        due: Some(application.first(flow.start())),
        application,
        listener,
        streams: Vec::new(),
        exchanges: Exchanges::default(),
        keys: Vec::new(),
        bytes: 0,
        started_late: None,
        telemetry: BufWriter::new(file),
        next_line_ns: 0,
    };
    let outcome = sender.run()?;
    sender.telemetry.flush().map_err(|error| format!("cannot write telemetry: {error}"))?;
    let lines = sender.exchanges.all().iter().zip(&sender.keys);
    args.workload.record(lines.map(|(&exchange, &key)| SentLine { key, exchange }))?;
    let started_late_s = sender.started_late.unwrap_or(Duration::ZERO).as_secs_f64();
    reports::print(&LoadSendReport { bytes: sender.bytes, outcome, started_late_s })
}

struct Sender<'a> {
    args: &'a SendArgs,
    flow: &'a Flow,
    application: Application,
    /// When the application acts next.
    due: Option<Time>,
    /// Accepts the request.
    listener: Option<TcpSocket>,
    streams: Vec<Stream>,
    exchanges: Exchanges,
    /// Key of each exchange.
    keys: Vec<u64>,
    /// Written by streams that are gone, and by all of them in the end.
    bytes: u64,
    started_late: Option<Duration>,
    telemetry: BufWriter<File>,
    next_line_ns: u64,
}

impl Sender<'_> {
    fn run(&mut self) -> Result<Outcome, String> {
        loop {
            if stopped() || monotonic_ns() >= self.args.stop_at_ns {
                for stream in self.streams.drain(..) {
                    stream.socket.reset_on_close();
                    self.bytes += stream.written;
                }
                return Ok(Outcome::Stopped);
            }
            while let Some(at) = self.due.filter(|at| *at <= run_time(self.args.run_begins_ns)) {
                self.act(at)?;
            }
            if self.is_complete() {
                return Ok(Outcome::Completed);
            }
            self.serve()?;
            self.sample()?;
        }
    }

    /// A flow with a size is complete once the receiver has closed every connection.
    fn is_complete(&self) -> bool {
        self.flow.bytes.is_some_and(|bytes| self.bytes >= bytes) && self.streams.is_empty()
    }

    fn act(&mut self, at: Time) -> Result<(), String> {
        self.started_late.get_or_insert_with(|| run_time(self.args.run_begins_ns).since(at));
        let (action, next) = self.application.act(at);
        self.due = next;
        match action {
            Action::Connect { bytes, silent } => self.connect(bytes, silent),
            Action::Write(bytes) => {
                let Some(stream) = self.streams.last_mut() else { return Ok(()) };
                if let Some(each) = self.application.transaction() {
                    let number = self.exchanges.begin(run_time(self.args.run_begins_ns), each.response);
                    self.keys.push(number as u64);
                }
                stream.left += bytes;
                // With a size, the last write ends the connection. A transaction's next one follows its response.
                let is_last = next.is_none() && self.application.transaction().is_none();
                stream.finishes = is_last && self.flow.bytes.is_some();
                stream.write().map_err(|error| format!("sending failed: {error}"))
            }
            // The receiving program sends the request.
            Action::Request(_) | Action::Datagram { .. } | Action::Pause => Ok(()),
        }
    }

    fn connect(&mut self, bytes: Option<u64>, silent: bool) -> Result<(), String> {
        let to = self.args.to;
        let failed = |error| format!("cannot connect to {to}: {error}");
        let socket = TcpSocket::new(&self.args.workload.socket, self.args.to)?;
        socket.connect(to).map_err(failed)?;
        let port = socket.local_port().map_err(failed)?;
        let mut stream = Stream::new(socket, port, false);
        if !silent {
            stream.left = bytes.unwrap_or(u64::MAX);
            stream.finishes = bytes.is_some();
        }
        if let Some(bytes) = bytes {
            stream.exchange = Some(self.exchanges.begin(run_time(self.args.run_begins_ns), bytes));
            self.keys.push(u64::from(port));
        }
        self.streams.push(stream);
        Ok(())
    }

    /// Waits until something is due or ready, and serves what is ready.
    fn serve(&mut self) -> Result<(), String> {
        let due_ns = self.due.map_or(u64::MAX, |at| self.args.run_begins_ns + at.nanos());
        let until_ns = due_ns.min(self.args.stop_at_ns).min(monotonic_ns() + LONGEST_WAIT_NS);
        let (accepts, ready) = streams::wait(self.listener.as_ref(), &self.streams, until_ns);
        for (number, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
            let stream = &mut self.streams[number];
            let before = stream.received;
            stream.serve().map_err(|error| format!("a connection to {} failed: {error}", self.args.to))?;
            let received = stream.received;
            self.on_received(before, received);
        }
        if accepts {
            if let Some(Ok(socket)) = self.listener.as_ref().map(TcpSocket::accept) {
                self.streams.push(Stream::new(socket, 0, true));
            }
        }
        self.drop_ended();
        Ok(())
    }

    fn on_received(&mut self, before: u64, received: u64) {
        let now = run_time(self.args.run_begins_ns);
        if let Some(each) = self.application.transaction() {
            for response in before / each.response..received / each.response {
                self.exchanges.complete(response as usize, now);
                self.due = Some(self.application.on_response(now));
            }
        }
        if self.application.request_bytes().is_some_and(|request| before < request && received >= request) {
            self.due = Some(now);
        }
    }

    fn drop_ended(&mut self) {
        let bytes = &mut self.bytes;
        self.streams.retain(|stream| {
            let done = stream.ended && stream.left == 0;
            if done {
                *bytes += stream.written;
            }
            !done
        });
    }

    fn sample(&mut self) -> Result<(), String> {
        let now_ns = monotonic_ns();
        if now_ns < self.next_line_ns {
            return Ok(());
        }
        self.next_line_ns = now_ns + PERIOD_NS;
        let Some(info) = self.streams.last().and_then(|stream| stream.socket.info()) else { return Ok(()) };
        let t_ns = run_time(self.args.run_begins_ns).since(self.flow.start()).as_nanos() as u64;
        serde_json::to_writer(&mut self.telemetry, &TcpInfoLine { t_ns, info })
            .map_err(std::io::Error::from)
            .and_then(|()| writeln!(self.telemetry))
            .map_err(|error| format!("cannot write telemetry: {error}"))
    }
}
