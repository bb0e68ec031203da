//! State of a flow during a simulation.

use std::net::{IpAddr, Ipv4Addr};

use backchannel_core::ids::{ConnectionId, FlowId, Id, NodeId};
use backchannel_core::ip::ipv4_of;
use backchannel_core::packet::{FlowKey, Packet};

use backchannel_workloads::flow::Sender;

/// Source port of the first connection of flow 0; that of flow N is N higher.
const FIRST_EPHEMERAL: u16 = 40_000;
/// Source port of the second connection of a flow; further ones count up from here.
const FIRST_FURTHER: u16 = 10_000;
/// Number of these ports, after which they come again.
pub(crate) const FURTHER_PORTS: u16 = FIRST_EPHEMERAL - FIRST_FURTHER;

/// Source port of the first connection of a flow, and of its packets without a connection.
pub(crate) fn first_source_port(flow: FlowId) -> u16 {
    FIRST_EPHEMERAL + flow.place() as u16
}

/// IPv4 address of the interface to which a packet is addressed, over either version of IP; `None` if there is none.
#[inline(always)]
pub(crate) fn destination(packet: &Packet) -> Option<Ipv4Addr> {
    match packet.destination_v4() {
        // By value: a reference to the packet would keep it in memory.
        None => packet.destination().and_then(v4),
        address => address,
    }
}

/// IPv4 address of the interface that has an address; `None` if no interface has it.
#[cold]
#[inline(never)]
pub(crate) fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(address) => ipv4_of(address),
    }
}

/// A flow and what it has done.
pub(crate) struct FlowState {
    /// Its sending end.
    pub(crate) sender: Sender<ConnectionId>,
    /// The sending and the receiving node.
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) stopped: bool,
    connections_opened: u32,
    /// Payload of packets without a connection.
    pub(crate) datagram_bytes_sent: u64,
    pub(crate) datagram_bytes_received: u64,
}

impl FlowState {
    pub(crate) fn new(sender: Sender<ConnectionId>, from: NodeId, to: NodeId) -> FlowState {
        FlowState {
            sender,
            from,
            to,
            stopped: false,
            connections_opened: 0,
            datagram_bytes_sent: 0,
            datagram_bytes_received: 0,
        }
    }

    /// Source port of the next connection of this flow, which has this id.
    pub(crate) fn next_source_port(&mut self, flow: FlowId) -> u16 {
        let opened = self.connections_opened;
        self.connections_opened += 1;
        match opened {
            0 => first_source_port(flow),
            further => FIRST_FURTHER + (further % u32::from(FURTHER_PORTS)) as u16,
        }
    }
}

/// A [`FlowKey`] as one number, which hashes faster: ports, the nodes' IPv4 addresses, and whether the flow uses IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FlowKeyV4(u128);

impl FlowKeyV4 {
    /// Not the key of any flow, which takes 97 bits.
    pub(crate) const NONE: FlowKeyV4 = FlowKeyV4(u128::MAX);
}

impl From<FlowKey> for FlowKeyV4 {
    fn from(flow: FlowKey) -> FlowKeyV4 {
        FlowKeyV4::of_peer(flow.reversed())
    }
}

impl FlowKeyV4 {
    /// That of the opposite direction.
    #[inline(always)]
    pub(crate) fn of_peer(flow: FlowKey) -> FlowKeyV4 {
        match (flow.src, flow.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => FlowKeyV4::of(dst, src, (flow.dst_port, flow.src_port)),
            _ => FlowKeyV4::over_ipv6(flow.reversed()),
        }
    }

    #[inline(always)]
    fn of(src: Ipv4Addr, dst: Ipv4Addr, ports: (u16, u16)) -> FlowKeyV4 {
        let address = |address: Ipv4Addr| u128::from(u32::from(address));
        let ports = u128::from(ports.0) << 16 | u128::from(ports.1);
        FlowKeyV4(address(src) << 64 | address(dst) << 32 | ports)
    }

    #[cold]
    #[inline(never)]
    fn over_ipv6(flow: FlowKey) -> FlowKeyV4 {
        let (Some(src), Some(dst)) = (v4(flow.src), v4(flow.dst)) else { return FlowKeyV4::NONE };
        FlowKeyV4(1 << 96 | FlowKeyV4::of(src, dst, (flow.src_port, flow.dst_port)).0)
    }
}
