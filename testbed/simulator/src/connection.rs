//! A connection of a simulated host, TCP's or QUIC's, with the application's side of it: it reads everything at once.

use backchannel_core::ids::{FlowId, NodeId};
use backchannel_core::scenario::{Flow, Named, Options};
use backchannel_core::telemetry::{FlowLine, FlowTelemetry};
use backchannel_core::time::Time;
use backchannel_core::transport::Transport;
use backchannel_core::Error;
use backchannel_quic::{AnyConfig, AnyConnection, AnyStacks};
use backchannel_stacks::Sample;
use serde_json::Value;

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
    /// When its timer is in the event queue; [`Time::MAX`]: it is not.
    pub(crate) scheduled: Time,
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
        let scheduled = Time::MAX;
        HostConnection { connection, flow, role, node, scheduled, exchange, received, intact, first, last }
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
    let own = match flow.stack.get("name") {
        None => &stack.name,
        Some(Value::String(name)) => name,
        Some(other) => return Err(format!("flow '{}': the name of its stack is {other}, not a text", flow.name).into()),
    };
    // Options of another stack mean nothing to this one.
    let of_host = stack.options.iter().filter(|_| *own == stack.name);
    let of_flow = flow.stack.iter().filter(|(key, _)| *key != "name");
    let options: Options = of_host.chain(of_flow).map(|(key, value)| (key.clone(), value.clone())).collect();
    stacks
        .config(own, &options)
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn configured(host: serde_json::Value, of_flow: serde_json::Value) -> Result<String, Error> {
        let flow = json!({
            "name": "bulk", "kind": "bulk", "from": "a", "to": "b", "port": 5001, "start_s": 0, "stack": of_flow
        });
        let flow: Flow = serde_json::from_value(flow).unwrap();
        let host: Named = serde_json::from_value(host).unwrap();
        flow_config(&AnyStacks::builtin(), Some(&host), &flow).map(|config| format!("{config:?}"))
    }

    #[test]
    fn a_flow_has_its_own_options_whatever_their_place_beside_the_name() {
        let flow = json!({"ack_every_segments": 7, "name": "sack", "window_scaling": false});
        let alone = configured(json!({"name": "sack"}), flow.clone()).unwrap();
        assert!(alone.contains("ack_every_segments: 7") && alone.contains("window_scaling: false"), "{alone}");
        assert_eq!(configured(json!({"name": "newreno", "options": {"dsack": true}}), flow).unwrap(), alone);
        let host = json!({"name": "newreno", "options": {"ack_every_segments": 5}});
        let of_host = configured(host, json!({"window_scaling": false})).unwrap();
        assert!(of_host.contains("ack_every_segments: 5") && of_host.contains("window_scaling: false"), "{of_host}");
    }

    #[test]
    fn a_name_is_a_text() {
        let error = configured(json!({"name": "sack"}), json!({"name": 7})).unwrap_err().to_string();
        assert!(error.contains("flow 'bulk': the name of its stack is 7, not a text"), "{error}");
    }
}
