//! A workload: it opens a connection at equal intervals and sends as many bytes on each.

use std::time::Duration;

use backchannel_node::core::options;
use backchannel_node::core::options::CheckedOptions;
use backchannel_node::core::registry::{Entry, ExchangeKind};
use backchannel_node::core::{Error, Time};
use backchannel_node::workloads::{Action, Context, Workload};
use backchannel_node::Registry;

/// Adds what this crate has to a node. The launcher calls it.
pub fn register(registry: Registry) -> Registry {
    registry.workload(&ENTRY, build)
}

// The options that a campaign may set: name, type, default, unit with the least and the greatest value, help.
options! {
    /// Options of the workload.
    #[derive(Copy)]
    struct Parameters {
        interval_s: Duration = 1, [Time 0.001 to 1e6] "time between two connections";
        transfer_bytes: u64 = 100_000, [Bytes 1 to 1e9] "bytes of each";
    }
}

// `Transfers`: each connection is a transfer, whose completion is recorded.
static ENTRY: Entry = Entry::workload("my-crate", "equal transfers at equal intervals", ExchangeKind::Transfers)
    .source("a sentence, or a paper's section")
    .options(Parameters::PARAMS);

// Draw random numbers from `Context::rng` only, so that a run can be repeated.
fn build(checked: &CheckedOptions<'_>, _: Context<'_>) -> Result<Box<dyn Workload>, Error> {
    Ok(Box::new(MyCrate(Parameters::read(checked))))
}

#[derive(Debug)]
struct MyCrate(Parameters);

impl Workload for MyCrate {
    /// What it does now, and when it acts next.
    fn act(&mut self, now: Time) -> (Action, Option<Time>) {
        let action = Action::Connect { bytes: Some(self.0.transfer_bytes), silent: false };
        (action, Some(now + self.0.interval_s))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_connects_at_its_intervals() {
        let options = [("interval_s".to_owned(), json!(2.0)), ("transfer_bytes".to_owned(), json!(5000))].into();
        let mut workload = MyCrate(Parameters::read(&CheckedOptions::check(&ENTRY, &options).expect("good options")));
        let (action, next) = workload.act(Time::from_seconds(1.0));
        assert_eq!(action, Action::Connect { bytes: Some(5000), silent: false });
        assert_eq!(next, Some(Time::from_seconds(3.0)));
    }
}
