//! When a server serves: seen in the kernel's tables of sockets, or in its output, without sending it anything.

use std::fs;

use backchannel_core::command::Ready;
use backchannel_core::Error;

use super::output::Output;

/// State of a listening socket in /proc/net/tcp (TCP_LISTEN in net/tcp_states.h), and of a bound UDP socket.
const LISTENING: &str = "0A";
const BOUND: &str = "07";

pub(super) enum Condition<'a> {
    Socket { tables: [&'static str; 2], state: &'static str, port: u16, name: &'static str },
    Line(&'a str),
    Started,
}

/// Reads `--ready`.
pub(super) fn parse(text: &str) -> Result<Ready, Error> {
    serde_json::from_value(text.into()).map_err(|_| "it is tcp, udp, line or started".into())
}

impl<'a> Condition<'a> {
    pub(super) fn new(ready: Ready, port: Option<u16>, line: Option<&'a str>) -> Result<Condition<'a>, Error> {
        let port = || port.ok_or("--ready needs --port");
        Ok(match ready {
            Ready::Tcp => {
                let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
                Condition::Socket { tables, state: LISTENING, port: port()?, name: "TCP" }
            }
            Ready::Udp => {
                let tables = ["/proc/self/net/udp", "/proc/self/net/udp6"];
                Condition::Socket { tables, state: BOUND, port: port()?, name: "UDP" }
            }
            Ready::Line => Condition::Line(line.ok_or("--ready line needs --line")?),
            Ready::Started => Condition::Started,
        })
    }

    pub(super) fn holds(&self, output: &Output, errors: &Output) -> bool {
        match self {
            Condition::Socket { tables, state, port, .. } => {
                tables.iter().any(|table| has_socket(&fs::read_to_string(table).unwrap_or_default(), state, *port))
            }
            Condition::Line(text) => output.has(text) || errors.has(text),
            Condition::Started => true,
        }
    }

    /// What is missing, for a message.
    pub(super) fn lack(&self) -> String {
        match self {
            Condition::Socket { port, name, .. } => format!("it has no {name} socket on port {port}"),
            Condition::Line(text) => format!("no line of its output contains '{text}'"),
            Condition::Started => "it was not started".to_owned(),
        }
    }
}

/// Whether a table of sockets has one of this state on a port.
fn has_socket(table: &str, state: &str, port: u16) -> bool {
    let end = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, _, found) = (fields.next(), fields.next(), fields.next());
        local.is_some_and(|local| local.ends_with(&end)) && found == Some(state)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_found_by_state_and_port() {
        let table = "  sl  local_address rem_address   st tx_queue\n\
             0: 0100007F:1389 00000000:0000 0A 00000000:00000000\n\
             1: 0100007F:138A 0100007F:1389 01 00000000:00000000\n";
        assert!(has_socket(table, LISTENING, 5001));
        assert!(!has_socket(table, LISTENING, 5002));
        assert!(!has_socket(table, BOUND, 5001));
    }
}
