//! Reads the capture of one interface: the packets that depart into the link and those that arrive from it.

use std::net::Ipv4Addr;
use std::path::Path;

use backchannel_core::pcap::for_each_ip_packet;
use backchannel_core::plan::{parse_subnet, Interface, NodePlan};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// One captured packet.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) time_ns: i64,
    /// Network-layer length in bytes.
    pub(crate) bytes: u32,
    pub(crate) key: Key,
    pub(crate) checksum: u16,
    pub(crate) tcp: Option<Tcp>,
}

/// What identifies a packet at both ends of a link. Policies and error models change none of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    addresses: [u8; 8],
    protocol: u8,
    /// Identification, flags and fragment offset.
    fragment: [u8; 4],
    bytes: u32,
    /// Start of the transport header without its checksum: ports; of TCP, sequence and acknowledgement number.
    transport: [u8; 12],
}

impl Key {
    /// Addresses, protocol and ports.
    pub(crate) fn flow(&self) -> ([u8; 8], u8, [u8; 4]) {
        let [a, b, c, d, ..] = self.transport;
        (self.addresses, self.protocol, if matches!(self.protocol, TCP | UDP) { [a, b, c, d] } else { [0; 4] })
    }
}

/// What the size of a TCP packet on a line depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tcp {
    pub(crate) pure_ack: bool,
    /// SYN, FIN or RST: never compressed.
    pub(crate) opens_or_closes: bool,
    pub(crate) options_bytes: u32,
}

/// The packets of one interface, each list in order of time.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub(crate) departing: Vec<Record>,
    pub(crate) arriving: Vec<Record>,
}

/// Reads a capture. The inner error says why it does not suffice.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read(path: &Path, node: &NodePlan, interface: &Interface) -> Result<Result<Ends, String>, String> {
    let routes = Routes::new(node)?;
    let (mut ends, mut is_cut) = (Ends::default(), false);
    for_each_ip_packet(path, |time_ns, packet| {
        if packet.first().is_none_or(|byte| byte >> 4 != 4) {
            return;
        }
        let Some(record) = record(time_ns, packet) else {
            is_cut = true;
            return;
        };
        let [.., a, b, c, d] = record.key.addresses;
        if routes.leads_to(Ipv4Addr::new(a, b, c, d), &interface.name) {
            ends.departing.push(record);
        } else {
            ends.arriving.push(record);
        }
    })?;
    if is_cut {
        return Ok(Err(format!("the capture on {} cuts packets before the end of their headers", interface.name)));
    }
    // Stamps of one direction are in order, but a reader of several rings may interleave them.
    ends.departing.sort_by_key(|record| record.time_ns);
    ends.arriving.sort_by_key(|record| record.time_ns);
    Ok(Ok(ends))
}

fn record(time_ns: i64, packet: &[u8]) -> Option<Record> {
    let be16 = |at: usize| packet.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let ip_header = usize::from(packet[0] & 15) * 4;
    let bytes = u32::from(be16(2)?);
    let protocol = *packet.get(9)?;
    let mut key = Key {
        addresses: packet.get(12..20)?.try_into().ok()?,
        protocol,
        fragment: packet.get(4..8)?.try_into().ok()?,
        bytes,
        transport: [0; 12],
    };
    // A later fragment has no transport header.
    if u16::from_be_bytes([key.fragment[2], key.fragment[3]]) & 0x1fff != 0 {
        return Some(Record { time_ns, bytes, key, checksum: 0, tcp: None });
    }
    let transport = packet.get(ip_header..)?;
    let (identified, checksum_at) = match protocol {
        TCP => (0..12, 16),
        UDP => (0..6, 6),
        _ => (4..8, 2),
    };
    let part = transport.get(identified)?;
    key.transport[..part.len()].copy_from_slice(part);
    let checksum = be16(ip_header + checksum_at)?;
    let tcp = if protocol == TCP {
        let header = u32::from(transport[12] >> 4) * 4;
        let (flags, has_data) = (transport[13], bytes > ip_header as u32 + header);
        let opens_or_closes = flags & 0b111 != 0;
        let pure_ack = flags & 0x10 != 0 && !opens_or_closes && !has_data;
        Some(Tcp { pure_ack, opens_or_closes, options_bytes: header.saturating_sub(20) })
    } else {
        None
    };
    Some(Record { time_ns, bytes, key, checksum, tcp })
}

/// Where a node sends packets.
struct Routes {
    addresses: Vec<Ipv4Addr>,
    /// Subnet, length of its prefix, interface; the longest prefix first.
    subnets: Vec<(u32, u32, String)>,
}

impl Routes {
    fn new(node: &NodePlan) -> Result<Routes, String> {
        let connected = node
            .interfaces
            .iter()
            .map(|interface| Ok((u32::from(interface.address) & !0xff, 24, interface.name.clone())));
        let routed = node.routes.iter().map(|route| {
            let (subnet, length) = parse_subnet(&route.subnet)?;
            Ok((subnet, length, route.interface.clone()))
        });
        let mut subnets = connected.chain(routed).collect::<Result<Vec<_>, String>>()?;
        subnets.sort_by_key(|(_, length, _)| std::cmp::Reverse(*length));
        Ok(Routes { addresses: node.interfaces.iter().map(|interface| interface.address).collect(), subnets })
    }

    /// Whether the node sends packets for this address to this interface.
    fn leads_to(&self, address: Ipv4Addr, interface: &str) -> bool {
        let bits = u32::from(address);
        let matches = |subnet: u32, length: u32| length == 0 || (subnet ^ bits) >> (32 - length) == 0;
        !self.addresses.contains(&address)
            && self
                .subnets
                .iter()
                .find(|(subnet, length, _)| matches(*subnet, *length))
                .is_some_and(|(_, _, name)| name == interface)
    }
}
