//! The receiving end of a workload of TCP connections.

use backchannel_core::scenario::Flow;
use backchannel_core::Error;
use backchannel_workloads::flow::{on_data, request_at_start, ReceivingEnd, Write};
use backchannel_workloads::Application;

use super::streams::{Progress, Streams};
use super::{wait_for_run_start, Arrivals, ReceiveArgs};
use crate::reports::{self, LoadReceiveReport, ReceiveEnd};
use crate::signals::{sleep_until, stopped};

/// Receives until a signal arrives, or until the flow's size has.
pub(super) fn receive<S: Streams>(
    args: &ReceiveArgs,
    flow: &Flow,
    application: &Application,
    streams: S,
) -> Result<(), Error> {
    eprintln!("ready on {}", args.listen);
    let mut receiver = Receiver { application, streams, arrivals: Arrivals::default() };
    receiver.start(args, flow)?;
    while !stopped() && !receiver.is_complete(flow) {
        for progress in receiver.streams.wait(None)? {
            on_data(&mut receiver, progress, progress.before, progress.received, progress.ended);
        }
        receiver.streams.drop_ended();
    }
    receiver.streams.abort()?;
    receiver.arrivals.write(args)?;
    let transport = receiver.streams.report()?;
    let tally = receiver.streams.tally();
    let (bytes, payload_ok, streams) = (tally.received, tally.intact, Some(tally.report()));
    reports::print(&LoadReceiveReport { bytes, payload_ok, streams, transport })
}

struct Receiver<'a, S> {
    application: &'a Application,
    streams: S,
    arrivals: Arrivals,
}

impl<S: Streams> Receiver<'_, S> {
    /// Waits for the start of the run, if anything depends on it, and sends the request when the flow starts.
    fn start(&mut self, args: &ReceiveArgs, flow: &Flow) -> Result<(), Error> {
        let request = request_at_start(self.application);
        if !S::NEEDS_START && request.is_none() {
            return Ok(());
        }
        let Some(zero_ns) = wait_for_run_start(args.run_begins_file.as_deref())? else { return Ok(()) };
        self.streams.on_start(zero_ns);
        let Some(request) = request else { return Ok(()) };
        sleep_until(zero_ns + flow.start().nanos());
        if stopped() {
            return Ok(());
        }
        let stream = self.streams.connect()?;
        self.streams.write(stream, request)
    }

    /// Whether the flow's size has arrived, or what is missing will not.
    fn is_complete(&self, flow: &Flow) -> bool {
        let tally = self.streams.tally();
        let is_over = |bytes| tally.received >= bytes || matches!(tally.end, ReceiveEnd::Reset | ReceiveEnd::TimedOut);
        self.streams.is_empty() && flow.bytes.is_some_and(is_over)
    }
}

impl<S: Streams> ReceivingEnd for Receiver<'_, S> {
    type Stream = Progress<S::Id>;

    fn application(&self) -> &Application {
        self.application
    }

    fn respond(&mut self, stream: Progress<S::Id>, bytes: u64) {
        // A connection that fails now is found to have ended.
        let _ = self.streams.write(stream.id, Write { bytes, finishes: false });
    }

    fn transfer_bytes(&self, _: Progress<S::Id>) -> Option<u64> {
        None
    }

    fn arrived(&mut self, stream: Progress<S::Id>, request: Option<u64>) {
        self.arrivals.add(request.unwrap_or_else(|| u64::from(self.streams.key(stream.id))), stream.last_ns);
    }
}
