//! State of a flow during a simulation.

use std::net::IpAddr;

use backchannel_core::exchange::Exchanges;
use backchannel_core::packet::FlowKey;

use backchannel_workloads::Application;

/// Source port of the first connection of flow 0; that of flow N is N higher.
pub(crate) const FIRST_EPHEMERAL: u16 = 40_000;
/// Source port of the second connection of a flow; further ones count up from here.
const FIRST_FURTHER: u16 = 10_000;

/// A flow's application and what it has done.
pub(crate) struct FlowState {
    pub(crate) application: Application,
    /// Numbers of the sending and the receiving node.
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) stopped: bool,
    connections_opened: u32,
    /// Number of the connection that was opened last.
    pub(crate) latest_connection: Option<usize>,
    /// What the application experienced; `None`: it is not recorded.
    pub(crate) exchanges: Option<Exchanges>,
    /// UDP payload.
    pub(crate) datagram_bytes_sent: u64,
    pub(crate) datagram_bytes_received: u64,
}

impl FlowState {
    /// `recorded`: whether the run records exchanges.
    pub(crate) fn new(application: Application, from: usize, to: usize, recorded: bool) -> FlowState {
        let exchanges = (recorded && application.is_recorded()).then(Exchanges::default);
        FlowState {
            exchanges,
            application,
            from,
            to,
            stopped: false,
            connections_opened: 0,
            latest_connection: None,
            datagram_bytes_sent: 0,
            datagram_bytes_received: 0,
        }
    }

    /// Source port of the next connection of this flow, which has this number.
    pub(crate) fn next_source_port(&mut self, number: usize) -> u16 {
        let opened = self.connections_opened;
        self.connections_opened += 1;
        match opened {
            0 => FIRST_EPHEMERAL + number as u16,
            further => FIRST_FURTHER + (further % u32::from(FIRST_EPHEMERAL - FIRST_FURTHER)) as u16,
        }
    }
}

/// A [`FlowKey`] as one number, which hashes faster. Simulated networks are IPv4 only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FlowKeyV4(u128);

impl FlowKeyV4 {
    /// Not the key of any flow: ports and addresses take 96 bits.
    pub(crate) const NONE: FlowKeyV4 = FlowKeyV4(u128::MAX);
}

impl From<FlowKey> for FlowKeyV4 {
    fn from(flow: FlowKey) -> FlowKeyV4 {
        let address = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(u32::from(address)),
            IpAddr::V6(_) => 0,
        };
        let ports = u128::from(flow.src_port) << 16 | u128::from(flow.dst_port);
        FlowKeyV4(address(flow.src) << 64 | address(flow.dst) << 32 | ports)
    }
}
