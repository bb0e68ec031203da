//! On/off traffic of ns: an application that writes at a rate, with exponential periods and pauses.

use std::time::Duration;

use backchannel_core::options;
use backchannel_core::options::CheckedOptions;
use backchannel_core::registry::{Entry, ExchangeKind, When};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::{service_time, Time};
use backchannel_core::Error;

use crate::{Action, Context, Workload};

options! {
    /// Options of the workload.
    struct Options {
        on_s: f64 = 0.5, [Time 1e-6 to 1e6] "mean length of a writing period (ns)";
        off_s: f64 = 0.5, [Time 1e-6 to 1e6] "mean length of a pause (ns)";
        rate_bps: f64 = 64_000, [Rate 1] "rate of writing (ns)";
        write_bytes: u64 = 210, [Bytes 1 to 1e6] "size of one write (ns)";
    }
}

pub(crate) static ENTRY: Entry = Entry::workload(
    "on-off",
    "one connection; the application writes at a rate, with exponential pauses",
    ExchangeKind::None,
)
.source("acq 3.4")
.random(When::Always)
.options(Options::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: Context<'_>) -> Result<Box<dyn Workload>, Error> {
    let options = Options::read(checked);
    let every = service_time(options.write_bytes * 8, options.rate_bps as u64);
    Ok(Box::new(OnOff { options, every, rng: context.rng, until: None, connected: false }))
}

#[derive(Debug)]
struct OnOff {
    options: Options,
    /// Time between two writes.
    every: Duration,
    rng: RunRng,
    /// End of the writing period.
    until: Option<Time>,
    connected: bool,
}

impl OnOff {
    fn draw(&mut self, mean_s: f64) -> Duration {
        Duration::from_secs_f64(rng::exponential(&mut self.rng, mean_s))
    }
}

impl Workload for OnOff {
    fn act(&mut self, now: Time) -> (Action, Option<Time>) {
        if !std::mem::replace(&mut self.connected, true) {
            return (Action::Connect { bytes: None, silent: true }, Some(now));
        }
        let until = self.until.unwrap_or_else(|| now + self.draw(self.options.on_s));
        if now < until {
            self.until = Some(until);
            return (Action::Write(self.options.write_bytes), Some(now + self.every));
        }
        self.until = None;
        (Action::Pause, Some(now + self.draw(self.options.off_s)))
    }
}
