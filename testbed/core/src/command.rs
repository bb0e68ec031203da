//! Programs of a flow of kind `command`: what runs on its two hosts, with which files, and what is read from the output.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A program on each host of a flow. Words and environment variables may contain the placeholders `{client}` and `{server}`,
/// which are addresses, `{port}` and `{seed}`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandSpec {
    /// Host of the client; the server runs on the other one.
    pub client_at: FlowEnd,
    /// Program and arguments of the client, which starts with the flow.
    pub client: Vec<String>,
    /// What the client talks to. Absent: nothing is started on the other host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerSpec>,
    /// Environment variables of both programs.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Texts by file name, in the working folders of both programs. A text that starts with `#!` is executable.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Values that are read from the output, by name.
    #[serde(default)]
    pub metrics: BTreeMap<String, OutputMetric>,
    /// Most that each program may write to each of its two outputs. One that writes more is ended.
    pub output_bytes: u64,
}

/// An end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FlowEnd {
    /// The host that sends most data.
    From,
    /// The host that receives it.
    To,
}

/// A program that runs before the flow starts and until it has ended.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// Program and arguments. It stays in the foreground.
    pub run: Vec<String>,
    /// What shows that it serves.
    pub ready: Ready,
    /// With `line`: text that a line of its output contains once it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// Longest time until it serves, in seconds.
    pub within_s: f64,
}

/// What shows that a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ready {
    /// A TCP socket listens on the flow's port.
    Tcp,
    /// A UDP socket has the flow's port.
    Udp,
    /// A line of its output contains a text.
    Line,
    /// It was started.
    Started,
}

/// A value in the output of a program: at a path of its JSON, or the group of a pattern's last match.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputMetric {
    /// Names and indices with dots between, such as `end.streams.0.udp.jitter_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<String>,
    /// Regular expression with one group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Where the value is.
    pub of: Stream,
    /// What it is: rate, time, bytes, packets, segments, fraction, number or count.
    pub unit: String,
    /// Its unit in the SI unit: the value is multiplied by it.
    pub scale: f64,
}

/// An output of a flow's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Stream {
    /// Standard output of the client.
    Client,
    /// Standard error of the client.
    ClientErrors,
    /// Standard output of the server.
    Server,
    /// Standard error of the server.
    ServerErrors,
}
