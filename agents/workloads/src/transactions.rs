//! Transactions: requests and responses, one after the other on one connection.

use std::time::Duration;

use backchannel_core::options;
use backchannel_core::options::CheckedOptions;
use backchannel_core::registry::{Entry, ExchangeKind, When};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;
use backchannel_core::Error;

use crate::{Action, Context, Transaction, Workload};

options! {
    /// Options of the workload.
    struct Options {
        request_bytes: u64 = 100, [Bytes 1 to 1e9] "size of a request";
        response_bytes: u64 = 1000, [Bytes 1 to 1e9] "size of a response";
        think_s: f64 = 0.1, [Time 0 to 1e6]
            "mean time from a response to the next request, exponential; 0: none";
    }
}

pub(crate) static ENTRY: Entry = Entry::workload(
    "transactions",
    "requests and responses, one after the other on one connection; `from` asks, `to` answers",
    ExchangeKind::Transactions,
)
.source("RFC 6815 (TCP_RR of netperf)")
.random(When::With("think_s"))
.options(Options::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: Context<'_>) -> Result<Box<dyn Workload>, Error> {
    Ok(Box::new(Transactions { options: Options::read(checked), rng: context.rng, connected: false }))
}

#[derive(Debug)]
struct Transactions {
    options: Options,
    rng: RunRng,
    connected: bool,
}

impl Workload for Transactions {
    fn transaction(&self) -> Option<Transaction> {
        let Options { request_bytes, response_bytes, .. } = self.options;
        Some(Transaction { request: request_bytes, response: response_bytes })
    }

    fn on_response(&mut self, now: Time) -> Time {
        if self.options.think_s > 0.0 {
            now + Duration::from_secs_f64(rng::exponential(&mut self.rng, self.options.think_s))
        } else {
            now
        }
    }

    fn act(&mut self, now: Time) -> (Action, Option<Time>) {
        if std::mem::replace(&mut self.connected, true) {
            (Action::Write(self.options.request_bytes), None)
        } else {
            (Action::Connect { bytes: None, silent: true }, Some(now))
        }
    }
}
