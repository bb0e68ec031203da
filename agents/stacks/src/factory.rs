//! TCP as a transport among others: it makes the connections of one program.

use std::sync::Arc;

use backchannel_core::packet::{FlowKey, Packet};
use backchannel_core::transport::Factory;

use crate::config::Config;
use crate::connection::Connection;
use crate::source::{Content, Source};

/// How far apart the initial sequence numbers of a program's connections are: BSD's TCP_ISSINCR / 2.
const INITIAL_STEP: u32 = 64_000;

/// Connections with one configuration, whose applications write bytes of one kind.
#[derive(Debug)]
pub struct Tcp {
    config: Arc<Config>,
    content: Content,
    /// Initial sequence number of the next connection.
    initial: u32,
}

impl Tcp {
    /// `initial`: initial sequence number of the first connection.
    pub fn new(config: impl Into<Arc<Config>>, content: Content, initial: u32) -> Tcp {
        Tcp { config: config.into(), content, initial }
    }

    fn next_initial(&mut self) -> u32 {
        let next = self.initial.wrapping_add(INITIAL_STEP);
        std::mem::replace(&mut self.initial, next)
    }
}

impl Factory for Tcp {
    type Connection = Connection;

    fn connect(&mut self, flow: FlowKey) -> Connection {
        Connection::connect(self.config.clone(), flow, self.next_initial(), Source::written(self.content))
    }

    fn accept(&mut self, flow: FlowKey, packet: &Packet) -> Option<Connection> {
        Connection::accept(self.config.clone(), flow, self.next_initial(), Source::written(self.content), packet)
    }
}
