//! The sending end of a workload of TCP connections.

use std::time::Duration;

use backchannel_core::exchange::SentLine;
use backchannel_core::scenario::Flow;
use backchannel_core::time::Time;
use backchannel_core::Error;
use backchannel_emulator::monotonic_ns;
use backchannel_workloads::flow::{self, on_answer, on_due, SendingEnd, Write};
use backchannel_workloads::Application;

use super::streams::Streams;
use super::{run_time, SendArgs};
use crate::reports::{self, LoadSendReport, Outcome, ReceiveEnd};
use crate::signals::{stopped, LONGEST_WAIT_NS};

/// Runs the application until it has ended, its time is over, or a signal arrives.
pub(super) fn send<S: Streams>(
    args: &SendArgs,
    flow: &Flow,
    application: Application,
    streams: S,
) -> Result<(), Error> {
    let due = Some(application.first(flow.start()));
    let state = flow::Sender::new(application, flow, true);
    let mut sender = Sender { args, state, due, streams, keys: Vec::new(), started_late: None };
    let outcome = sender.run()?;
    let lines = sender.state.exchanges().unwrap_or_default().iter().zip(&sender.keys);
    args.workload.record(lines.map(|(&exchange, &key)| SentLine { key, exchange }))?;
    let transport = sender.streams.report()?;
    reports::print(&LoadSendReport {
        bytes: sender.streams.tally().sent,
        outcome,
        started_late_s: sender.started_late.unwrap_or(Duration::ZERO).as_secs_f64(),
        transport,
    })
}

struct Sender<'a, S: Streams> {
    args: &'a SendArgs,
    state: flow::Sender<S::Id>,
    /// When the application acts next.
    due: Option<Time>,
    streams: S,
    /// Key of each exchange.
    keys: Vec<u64>,
    started_late: Option<Duration>,
}

impl<S: Streams> Sender<'_, S> {
    fn run(&mut self) -> Result<Outcome, Error> {
        let zero_ns = self.args.run_begins_ns;
        loop {
            let now_ns = monotonic_ns();
            if stopped() || now_ns >= self.args.stop_at_ns {
                let outcome = if self.streams.has_connected() { Outcome::Stopped } else { Outcome::NeverConnected };
                self.streams.abort()?;
                return Ok(outcome);
            }
            let now = Time(now_ns.saturating_sub(zero_ns));
            while let Some(at) = self.due.filter(|at| *at <= now) {
                self.due = None;
                self.started_late.get_or_insert_with(|| now.since(at));
                on_due(self, at, run_time(zero_ns))?;
            }
            if self.due.is_none() && self.streams.tally().opened > 0 && self.streams.is_empty() {
                return Ok(match self.streams.tally().end {
                    ReceiveEnd::Reset => Outcome::Reset,
                    ReceiveEnd::TimedOut => Outcome::TimedOut,
                    ReceiveEnd::Finished | ReceiveEnd::Stopped => Outcome::Completed,
                });
            }
            let due_ns = self.due.map_or(u64::MAX, |at| zero_ns + at.nanos());
            let until_ns = due_ns.min(self.args.stop_at_ns).min(now_ns + LONGEST_WAIT_NS);
            for progress in self.streams.wait(Some(until_ns))? {
                on_answer(self, run_time(zero_ns), progress.before, progress.received);
            }
            self.streams.drop_ended();
        }
    }
}

impl<S: Streams> SendingEnd for Sender<'_, S> {
    type Stream = S::Id;

    fn sender(&mut self) -> &mut flow::Sender<S::Id> {
        &mut self.state
    }

    fn schedule(&mut self, at: Time) {
        self.due = Some(at);
    }

    fn connect(&mut self, first: Write) -> Result<S::Id, Error> {
        let stream = self.streams.connect()?;
        self.streams.write(stream, first)?;
        Ok(stream)
    }

    fn write(&mut self, stream: S::Id, next: Write) -> Result<(), Error> {
        self.streams.write(stream, next)
    }

    fn begun(&mut self, stream: S::Id, exchange: usize) {
        let is_transfer = self.state.application.is_transfers();
        self.keys.push(if is_transfer { u64::from(self.streams.key(stream)) } else { exchange as u64 });
    }
}
