//! Requests and answers of the emulator, one JSON object per line (docs/emulator-protocol.md).

use std::collections::BTreeMap;

use backchannel_core::report::{DirectionStatus, LinkReport};
use backchannel_core::scenario::{Change, LinkSpec};
use backchannel_core::{Error, ResultExt};
use backchannel_links::{Context, Fault, Registry};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::emulated_link::service;
use crate::pulse::Stalls;

/// A request.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Creates or takes over the interfaces of a link and joins them.
    AddLink {
        name: String,
        spec: LinkSpec,
        #[serde(default)]
        seed: u64,
        ends: Vec<EndSpec>,
    },
    /// Removes a link and its interfaces.
    RemoveLink { name: String },
    /// Replaces parameters and policies of a link.
    Configure {
        name: String,
        spec: LinkSpec,
        #[serde(default)]
        seed: u64,
    },
    /// Starts a run.
    Start(Start),
    /// Ends the run.
    Stop {
        /// The links go on after the report, without telemetry.
        #[serde(default)]
        keep: bool,
    },
    /// Changes one direction of a link now. `at_s` of the change is ignored.
    Change { name: String, direction: Direction, change: Change },
    /// The directions of every link as they are now.
    Status {},
}

/// A direction of a link with two ends.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Direction {
    Forward,
    Reverse,
}

/// Reads one request, and builds the link that it describes, without serving it.
///
/// # Errors
/// What the emulator would answer.
pub fn check_request(registry: &Registry, line: &[u8]) -> Result<(), Error> {
    match read_request(line)? {
        Request::AddLink { spec, seed, .. } | Request::Configure { spec, seed, .. } => {
            service(&spec, &Context { seed, registry: registry.clone() }, None).map(drop)
        }
        Request::RemoveLink { .. }
        | Request::Start(_)
        | Request::Stop { .. }
        | Request::Change { .. }
        | Request::Status {} => Ok(()),
    }
}

/// Reads one line.
pub(crate) fn read_request(line: &[u8]) -> Result<Request, Error> {
    serde_json::from_slice(line).or_malformed("invalid request")
}

/// An interface at one end of a link.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndSpec {
    /// Process whose network namespace it is in. Absent: this process.
    #[serde(default)]
    pub(crate) pid: Option<u32>,
    pub(crate) ifname: String,
    #[serde(default)]
    pub(crate) mac: Option<String>,
    /// The interface exists and is taken over. Otherwise a TAP is created.
    #[serde(default)]
    pub(crate) attach: bool,
}

/// When a run starts and what it writes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Start {
    /// Seconds until time zero.
    #[serde(default)]
    pub(crate) lead_s: f64,
    /// Time zero itself, for emulators on several machines that start together.
    #[serde(default)]
    pub(crate) at_monotonic_ns: Option<u64>,
    /// File for telemetry.
    #[serde(default)]
    pub(crate) telemetry: Option<String>,
}

/// Report of a run, in the answer to `stop`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EmulationReport {
    /// Directions of each link, by name of the link.
    pub links: BTreeMap<String, LinkReport>,
    /// Whether the emulator ran in the real-time scheduling class.
    pub realtime: bool,
    /// Times at which the emulator itself did not run.
    pub stalls: Stalls,
    /// Tests of the guards only: the fault that was injected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// An answer. Every answer has `ok`.
#[derive(Default, Serialize)]
pub(crate) struct Answer {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Outcome>,
}

/// What a request results in.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Outcome {
    /// Of `start`: time zero of the run on CLOCK_MONOTONIC, in nanoseconds.
    Started(u64),
    /// Of `change`: when it took place, in seconds since time zero.
    Changed(f64),
    /// Of `status`: directions by name, by link.
    Status(BTreeMap<String, BTreeMap<String, DirectionStatus>>),
    /// Of `stop`.
    Stopped(EmulationReport),
}

impl Answer {
    pub(crate) fn done() -> Answer {
        Answer { ok: true, ..Answer::default() }
    }

    pub(crate) fn failed(error: &Error) -> Answer {
        Answer { error: Some(error.to_string()), ..Answer::default() }
    }

    pub(crate) fn with(result: Outcome) -> Answer {
        Answer { result: Some(result), ..Answer::done() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_rejected() {
        let parse = |text: &str| serde_json::from_str::<Request>(text).map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(parse(r#"{"op": "start", "lead_s": 0.5}"#), Ok(()));
        assert_eq!(parse(r#"{"op": "stop"}"#), Ok(()));
        assert!(parse(r#"{"op": "start", "lead": 0.5}"#).unwrap_err().contains("lead"));
        assert!(parse(r#"{"op": "stop", "now": true}"#).unwrap_err().contains("now"));
        assert_eq!(parse(r#"{"op": "stop", "keep": true}"#), Ok(()));
        let change = |way| format!(r#"{{"op": "change", "name": "l", "direction": "{way}", "change": {{"at_s": 0}}}}"#);
        assert_eq!(parse(&change("reverse")), Ok(()));
        assert!(parse(&change("sideways")).unwrap_err().contains("sideways"));
    }

    #[test]
    fn answers_have_only_what_applies() {
        let text = |answer: Answer| serde_json::to_string(&answer).unwrap();
        assert_eq!(text(Answer::done()), r#"{"ok":true}"#);
        assert_eq!(text(Answer::failed(&"no".into())), r#"{"ok":false,"error":"no"}"#);
        assert_eq!(text(Answer::with(Outcome::Started(7))), r#"{"ok":true,"result":7}"#);
    }
}
