//! A connection of a simulated host, TCP's or QUIC's, with the application's side of it: it reads everything at once.

use backchannel_core::ids::{FlowId, NodeId};
use backchannel_core::scenario::{Flow, Named, Options};
use backchannel_core::telemetry::{FlowLine, FlowTelemetry};
use backchannel_core::time::Time;
use backchannel_core::transport::Transport;
use backchannel_core::Error;
use backchannel_quic::{AnyConfig, AnyConnection, AnyStacks};
use backchannel_stacks::Sample;

/// What a connection does for its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Sends the flow's data.
    Sender,
    /// Receives the flow's data.
    Receiver,
    /// Sends a request against the flow's direction. It counts for nothing else.
    RequestSender,
    /// Receives such a request.
    RequestReceiver,
}

/// One end of a connection.
pub(crate) struct HostConnection {
    pub(crate) connection: AnyConnection,
    pub(crate) flow: FlowId,
    pub(crate) role: Role,
    pub(crate) node: NodeId,
    /// When its timer is in the event queue.
    pub(crate) scheduled: Option<Time>,
    /// Number of the exchange that it carries: its transfer's, or the latest transaction's.
    pub(crate) exchange: Option<usize>,
    /// Bytes that the application has read.
    pub(crate) received: u64,
    /// Whether all of them were zeros, as applications send.
    pub(crate) intact: bool,
    /// When the first and the last byte were read.
    pub(crate) first: Option<Time>,
    pub(crate) last: Option<Time>,
}

impl HostConnection {
    pub(crate) fn new(connection: AnyConnection, flow: FlowId, role: Role, node: NodeId) -> HostConnection {
        let (received, intact, first, last) = (0, true, None, None);
        let exchange = None;
        HostConnection { connection, flow, role, node, scheduled: None, exchange, received, intact, first, last }
    }

    /// The application reads what has arrived, and closes when its peer has.
    pub(crate) fn read(&mut self, now: Time) {
        for part in self.connection.read() {
            self.received += part.bytes.len() as u64 + part.zeros;
            self.intact &= part.bytes.iter().all(|&byte| byte == 0);
            self.first.get_or_insert(now);
            self.last = Some(now);
        }
        if self.connection.peer_finished() {
            self.connection.finish();
        }
    }

    /// Bytes of the flow that this end accounts for: acknowledged at the sender, read at the receiver.
    pub(crate) fn bytes(&self) -> u64 {
        match self.role {
            Role::Sender | Role::RequestSender => self.connection.acknowledged(),
            Role::Receiver | Role::RequestReceiver => self.received,
        }
    }
}

/// Configuration of one end of a flow: the stack of its host with the flow's own options.
///
/// # Errors
/// The node has no stack, or the options do not fit it.
pub(crate) fn flow_config(stacks: &AnyStacks, stack: Option<&Named>, flow: &Flow) -> Result<AnyConfig, Error> {
    let stack = stack.ok_or_else(|| format!("flow '{}' ends at a node without a stack", flow.name))?;
    let mut options: Options = stack.options.clone();
    let mut name = stack.name.as_str();
    for (key, value) in &flow.stack {
        if key == "name" {
            let flow_stack = value
                .as_str()
                .ok_or_else(|| format!("flow '{}': the name of its stack is {value}, not a text", flow.name))?;
            if flow_stack != name {
                options.clear();
            }
            name = flow_stack;
        } else {
            options.insert(key.clone(), value.clone());
        }
    }
    stacks
        .config(name, &options)
        .and_then(|config| config.fits(flow.ip).map(|()| config))
        .map_err(|error| error.within(format!("flow '{}'", flow.name)))
}

/// Writes samples of a sender with times since `start`; `mss` in bytes.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write_samples(file: &mut FlowTelemetry, samples: &[Sample], start: Time, mss: f64) -> Result<(), Error> {
    samples.iter().try_for_each(|sample| {
        let t_ns = sample.at.since(start).as_nanos() as u64;
        file.write(&FlowLine { t_ns, sample: sample.in_segments(mss) })
    })
}
