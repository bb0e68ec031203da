//! Reads the capture of one interface: the packets that depart into the link and those that arrive from it.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use backchannel_core::ip::{ipv4_of, IpVersion};
use backchannel_core::plan::{parse_subnet, Interface, NodePlan};
use backchannel_core::Error;
use backchannel_traces::{network_layer, Capture};

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    ip: IpVersion,
    /// Source and destination; those of IPv4 are mapped (RFC 4291 2.5.5.2).
    addresses: [u128; 2],
    protocol: u8,
    /// Identification, flags and fragment offset; under IPv6 the flow label.
    fragment: [u8; 4],
    bytes: u32,
    /// Start of the transport header without its checksum: ports; of TCP, sequence and acknowledgement number.
    transport: [u8; 12],
}

impl Key {
    /// Version of IP, addresses, protocol and ports.
    pub(crate) fn flow(&self) -> (IpVersion, [u128; 2], u8, [u8; 4]) {
        let [a, b, c, d, ..] = self.transport;
        let ports = if matches!(self.protocol, TCP | UDP) { [a, b, c, d] } else { [0; 4] };
        (self.ip, self.addresses, self.protocol, ports)
    }

    /// Version of IP.
    pub(crate) fn ip(&self) -> IpVersion {
        self.ip
    }
}

/// What the size of a TCP packet on a link depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tcp {
    pub(crate) pure_ack: bool,
    pub(crate) has_data: bool,
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

/// Why a check cannot be made although the run is fine.
pub(crate) struct Unchecked(pub(crate) String);

/// Why there are no packets to audit.
pub(crate) enum NoPackets {
    /// The run is fine, and the captures do not suffice.
    Unchecked(Unchecked),
    /// A file cannot be read, or the run's parts do not fit together.
    Failed(Error),
}

impl From<Error> for NoPackets {
    fn from(why: Error) -> NoPackets {
        NoPackets::Failed(why)
    }
}

/// Reads a capture.
pub(crate) fn read(path: &Path, node: &NodePlan, interface: &Interface) -> Result<Ends, NoPackets> {
    let routes = Routes::new(node)?;
    let (mut ends, mut is_cut) = (Ends::default(), false);
    let mut capture = Capture::open(path)?;
    while let Some(frame) = capture.next() {
        let (time_ns, packet) = (frame.time_ns, network_layer(&frame).unwrap_or_default());
        let record = match packet.first().map(|byte| byte >> 4) {
            Some(4) => record(time_ns, packet),
            Some(6) if !is_foreign(packet) => record_v6(time_ns, packet),
            _ => continue,
        };
        let Some(record) = record else {
            is_cut = true;
            continue;
        };
        if routes.leads_to(place_of(record.key.addresses[1].into()), &interface.name) {
            ends.departing.push(record);
        } else {
            ends.arriving.push(record);
        }
    }
    if is_cut {
        let why = format!("the capture on {} cuts packets before the end of their headers", interface.name);
        return Err(NoPackets::Unchecked(Unchecked(why)));
    }
    // Stamps of one direction are in order, but a reader of several rings may interleave them.
    ends.departing.sort_by_key(|record| record.time_ns);
    ends.arriving.sort_by_key(|record| record.time_ns);
    Ok(ends)
}

fn record(time_ns: i64, packet: &[u8]) -> Option<Record> {
    let ip_header = usize::from(packet[0] & 15) * 4;
    let bytes = u32::from(be16(packet, 2)?);
    let key = Key {
        ip: IpVersion::V4,
        addresses: [mapped(packet.get(12..)?)?, mapped(packet.get(16..)?)?],
        protocol: *packet.get(9)?,
        fragment: packet.get(4..8)?.try_into().ok()?,
        bytes,
        transport: [0; 12],
    };
    // A later fragment has no transport header.
    if u16::from_be_bytes([key.fragment[2], key.fragment[3]]) & 0x1fff != 0 {
        return Some(Record { time_ns, bytes, key, checksum: 0, tcp: None });
    }
    transport_record(time_ns, packet, ip_header, key)
}

/// The same of a packet of IPv6. Hosts of a testbed send neither extension headers nor fragments.
fn record_v6(time_ns: i64, packet: &[u8]) -> Option<Record> {
    let header: &[u8; 40] = packet.first_chunk()?;
    let [src, dst] = addresses(header);
    let key = Key {
        ip: IpVersion::V6,
        addresses: [src.into(), dst.into()],
        protocol: header[6],
        fragment: [0, header[1] & 0x0f, header[2], header[3]],
        bytes: u32::from(be16(packet, 4)?) + IpVersion::V6.header_bytes(),
        transport: [0; 12],
    };
    transport_record(time_ns, packet, header.len(), key)
}

/// Whether a packet of IPv6 concerns its link alone, such as a report of group memberships.
fn is_foreign(packet: &[u8]) -> bool {
    let Some(header) = packet.first_chunk() else { return false };
    addresses(header).into_iter().any(|address| address.is_multicast() || address.is_unicast_link_local())
}

fn addresses(header: &[u8; 40]) -> [Ipv6Addr; 2] {
    [8, 24].map(|at| Ipv6Addr::from(*header[at..].first_chunk::<16>().expect("the header has 40 bytes")))
}

/// The address of IPv4 at the start of these bytes, mapped.
fn mapped(bytes: &[u8]) -> Option<u128> {
    bytes.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets).to_ipv6_mapped().into())
}

/// The address of IPv4 to which the same routes lead as to this one. Routes over IPv6 are those over IPv4, and an
/// address that no interface of the testbed has is one of its subnet's, or outside.
fn place_of(address: Ipv6Addr) -> Ipv4Addr {
    let in_subnet = || {
        let [first, second, third, fourth, ..] = address.segments();
        let [a, b, c, _] = ipv4_of(Ipv6Addr::from([first, second, third, fourth, 0, 0, 0, 0]))?.octets();
        Some(Ipv4Addr::new(a, b, c, 255))
    };
    address.to_ipv4_mapped().or_else(|| ipv4_of(address)).or_else(in_subnet).unwrap_or(Ipv4Addr::BROADCAST)
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

fn transport_record(time_ns: i64, packet: &[u8], ip_header: usize, mut key: Key) -> Option<Record> {
    let Key { bytes, protocol, .. } = key;
    let transport = packet.get(ip_header..)?;
    let (identified, checksum_at) = match protocol {
        TCP => (0..12, 16),
        UDP => (0..6, 6),
        _ => (4..8, 2),
    };
    let part = transport.get(identified)?;
    key.transport[..part.len()].copy_from_slice(part);
    let checksum = be16(packet, ip_header + checksum_at)?;
    let tcp = if protocol == TCP {
        let header = u32::from(transport[12] >> 4) * 4;
        let (flags, has_data) = (transport[13], bytes > ip_header as u32 + header);
        let opens_or_closes = flags & 0b111 != 0;
        let pure_ack = flags & 0x10 != 0 && !opens_or_closes && !has_data;
        Some(Tcp { pure_ack, has_data, opens_or_closes, options_bytes: header.saturating_sub(20) })
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
    fn new(node: &NodePlan) -> Result<Routes, Error> {
        let connected = node
            .interfaces
            .iter()
            .map(|interface| Ok((u32::from(interface.address) & !0xff, 24, interface.name.clone())));
        let routed = node.routes.iter().map(|route| {
            let (subnet, length) = parse_subnet(&route.subnet)?;
            Ok((subnet, length, route.interface.clone()))
        });
        let mut subnets = connected.chain(routed).collect::<Result<Vec<_>, Error>>()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::Segment;

    #[test]
    fn a_packet_of_ipv6_is_recorded_by_the_interfaces_it_is_between() {
        let segment = Segment { ip: IpVersion::V6, payload: 7, ..Segment::default() };
        let bytes = segment.packet().to_vec();
        let record = record_v6(5, &bytes).unwrap();
        let ends = [1, 2].map(|host| u128::from(backchannel_core::ip::ipv6_of(Ipv4Addr::new(10, 0, 0, host))));
        assert_eq!((record.bytes, record.key.addresses), (67, ends));
        assert_eq!(record.key.transport[..8], bytes[40..48]);
        assert_eq!(record.checksum, u16::from_be_bytes([bytes[56], bytes[57]]));
        assert!(!record.tcp.unwrap().pure_ack && !is_foreign(&bytes));
        let ack = record_v6(5, &Segment { payload: 0, ..segment }.packet().to_vec()).unwrap();
        assert!(ack.tcp.unwrap().pure_ack);
        assert!(record_v6(5, &bytes[..50]).is_none(), "cut");
        let mut report = bytes;
        report[24..40].copy_from_slice(&"ff02::16".parse::<Ipv6Addr>().unwrap().octets());
        assert!(is_foreign(&report));
    }

    #[test]
    fn an_address_outside_has_the_way_of_its_subnet_or_of_the_rest() {
        let place = |address: &str| place_of(address.parse().unwrap()).to_string();
        assert_eq!(place("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(place("2001:db8:a01::2"), "10.1.0.2");
        assert_eq!(place("2001:db8:c0a8:4d:1c2:ff:fe03:405"), "192.168.77.255");
        assert_eq!(place("2600::7"), "255.255.255.255");
    }

    #[test]
    fn a_mark_of_congestion_changes_no_key() {
        for ip in [IpVersion::V4, IpVersion::V6] {
            let mut packet = Segment { ip, ecn: true, ..Segment::default() }.packet();
            let key =
                |bytes: &[u8]| if ip == IpVersion::V4 { record(0, bytes) } else { record_v6(0, bytes) }.unwrap().key;
            let before = key(packet.bytes());
            assert!(packet.set_congestion_experienced());
            assert_eq!(key(packet.bytes()), before);
        }
    }
}
