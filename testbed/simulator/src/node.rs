//! Nodes of a simulation: interfaces, addresses and routes.

use std::net::Ipv4Addr;
use std::path::Path;

use backchannel_core::ids::{ConnectionId, Id, LinkId, NodeId, Numbered};
use backchannel_core::packet::Packet;
use backchannel_core::pcap::{LinkType, PcapWriter, VIRTUAL_EPOCH_NS};
use backchannel_core::plan::{parse_subnet, NodePlan};
use backchannel_core::scenario::{Named, NodeKind};
use backchannel_core::service::LinkService;
use backchannel_core::time::Time;
use backchannel_core::traits::Port;
use backchannel_core::{Error, ResultExt};
use backchannel_links::AnyLink;
use rustc_hash::FxHashMap;

use crate::flow::FlowKeyV4;
use crate::input::Input;
use crate::processing::Processing;

/// A host or router.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) forwards: bool,
    pub(crate) stack: Option<Named>,
    /// Absent: the host takes no time.
    pub(crate) processing: Option<Processing>,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) addresses: Vec<Ipv4Addr>,
    /// Longest prefix first.
    routes: Vec<Route>,
    /// Results of [`Node::next_hop`], so that the cost of a packet does not grow with the number of hosts.
    next_hops: NextHops,
    /// The connection of the host that was opened last: the flow that it sends, and its number.
    pub(crate) latest_connection: (FlowKeyV4, ConnectionId),
}

/// A table of next hops by address, with open addressing: half of its places at least are empty.
#[derive(Default)]
struct NextHops {
    /// A power of two.
    places: Vec<Option<(u32, NextHop)>>,
    /// Bits of a hash that do not count.
    shift: u32,
    known: usize,
}

impl NextHops {
    #[inline]
    fn get(&self, address: u32) -> Option<NextHop> {
        let mask = self.places.len().checked_sub(1)?;
        let mut place = self.hash(address);
        while let Some((known, hop)) = self.places[place] {
            if known == address {
                return Some(hop);
            }
            place = (place + 1) & mask;
        }
        None
    }

    /// Adds an address that is not in the table.
    fn insert(&mut self, address: u32, hop: NextHop) {
        if 2 * (self.known + 1) > self.places.len() {
            let larger = (2 * self.places.len()).max(4);
            let shift = u32::BITS - larger.ilog2();
            let old = std::mem::replace(self, NextHops { places: vec![None; larger], shift, known: 0 });
            old.places.into_iter().flatten().for_each(|(address, hop)| self.insert(address, hop));
        }
        let mask = self.places.len() - 1;
        let mut place = self.hash(address);
        while self.places[place].is_some() {
            place = (place + 1) & mask;
        }
        self.places[place] = Some((address, hop));
        self.known += 1;
    }

    /// Multiplication by 2^32 over the golden ratio spreads numbers in a row evenly over the highest bits.
    fn hash(&self, address: u32) -> usize {
        (address.wrapping_mul(0x9e37_79b9) >> self.shift) as usize
    }
}

struct Route {
    subnet: u32,
    prefix_length: u32,
    /// Number of the node's interface.
    interface: u32,
    /// End of the link at which the next hop is. `None`: the destination itself is on the link.
    via: Option<Port>,
}

impl Route {
    fn matches(&self, address: u32) -> bool {
        self.prefix_length == 0 || (self.subnet ^ address) >> (32 - self.prefix_length) == 0
    }
}

/// Where a node sends packets for an address.
#[derive(Clone, Copy)]
pub(crate) enum NextHop {
    /// The address is the node's own.
    Local,
    /// Through an interface.
    Interface(Egress),
    /// There is no route.
    Unreachable,
}

/// The way of a packet out of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Egress {
    /// Number of the node's interface.
    pub(crate) interface: u32,
    pub(crate) link: LinkId,
    /// End of the link at which the packet enters.
    pub(crate) port: Port,
    /// End of the link at which the next hop is.
    pub(crate) to: Port,
}

/// A node's end of a link.
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) link: LinkId,
    pub(crate) port: Port,
    pub(crate) capture: Option<PcapWriter>,
}

impl Interface {
    /// Captures a packet that passes.
    #[inline]
    pub(crate) fn capture(&mut self, now: Time, packet: &Packet) {
        if let Some(capture) = &mut self.capture {
            capture.write(VIRTUAL_EPOCH_NS + now.nanos() as i64, packet.bytes(), packet.zeros());
        }
    }
}

impl Node {
    #[inline]
    pub(crate) fn next_hop(&mut self, destination: Ipv4Addr) -> NextHop {
        let address = u32::from(destination);
        if let Some(known) = self.next_hops.get(address) {
            return known;
        }
        self.find_next_hop(destination, address)
    }

    /// The same for an address that comes for the first time.
    fn find_next_hop(&mut self, destination: Ipv4Addr, address: u32) -> NextHop {
        let hop = if self.addresses.contains(&destination) {
            NextHop::Local
        } else {
            let route = self.routes.iter().find(|route| route.matches(address));
            route.map_or(NextHop::Unreachable, |route| {
                let Interface { link, port, .. } = self.interfaces[route.interface as usize];
                let to = route.via.unwrap_or_else(|| end_of(destination));
                NextHop::Interface(Egress { interface: route.interface, link, port, to })
            })
        };
        self.next_hops.insert(address, hop);
        hop
    }
}

/// End of its link at which an address is (testbed/addressing.py).
fn end_of(address: Ipv4Addr) -> Port {
    Port::from(address.octets()[3].saturating_sub(1))
}

/// Node and interface number at one end of a link.
pub(crate) type Attachment = (NodeId, usize);
/// The nodes of a run.
pub(crate) type Nodes = Numbered<NodeId, Node>;

/// Builds the nodes and, per link, what is attached to each of its ends.
///
/// # Errors
/// Nodes, interfaces and links do not fit together, or a capture cannot be created.
pub(crate) fn build(
    input: &Input,
    out: &Path,
    links: &[LinkService<AnyLink>],
) -> Result<(Nodes, Vec<Vec<Attachment>>), Error> {
    let mut attached: Numbered<LinkId, Vec<Option<Attachment>>> =
        links.iter().map(|link| vec![None; link.ends()]).collect();
    let by_name: FxHashMap<_, _> = links.iter().map(|link| link.name()).zip((0..).map(LinkId::new)).collect();
    let mut nodes = Numbered::default();
    for spec in &input.scenario.nodes {
        let plan = input.nodes.get(&spec.name).ok_or_else(|| format!("node '{}' has no addresses", spec.name))?;
        let mut node = Node {
            name: spec.name.clone(),
            forwards: spec.kind != NodeKind::Host,
            stack: spec.stack.clone(),
            processing: Processing::of(spec, input.scenario.seed)?,
            interfaces: Vec::new(),
            addresses: Vec::new(),
            routes: Vec::new(),
            next_hops: NextHops::default(),
            latest_connection: (FlowKeyV4::NONE, ConnectionId::new(0)),
        };
        for (place, interface) in plan.interfaces.iter().enumerate() {
            let link = *by_name.get(interface.link.as_str()).ok_or_else(|| {
                format!("interface {} is on link '{}', which does not exist", interface.name, interface.link)
            })?;
            let end = attached[link].get_mut(usize::from(interface.end));
            *end.ok_or_else(|| format!("link '{}' has no end {}", interface.link, interface.end))? =
                Some((nodes.next_id(), place));
            let path = out.join("captures").join(format!("{}.pcap", interface.name));
            let capture = &input.scenario.capture;
            let capture = capture
                .includes(&spec.name, &interface.link)
                .then(|| PcapWriter::create(&path, LinkType::Raw, capture.snaplen))
                .transpose()
                .or_system(format_args!("cannot write {}", path.display()))?;
            node.interfaces.push(Interface { name: interface.name.clone(), link, port: interface.end, capture });
            node.addresses.push(interface.address);
            let subnet = u32::from(interface.address) & !0xff;
            node.routes.push(Route { subnet, prefix_length: 24, interface: place as u32, via: None });
        }
        add_routes(&mut node, plan)?;
        nodes.push(node);
    }
    let attached = attached.into_iter().zip(links).map(|(ends, link)| {
        let ends: Option<Vec<_>> = ends.into_iter().collect();
        ends.ok_or_else(|| format!("link '{}' has an end without a node", link.name()))
    });
    Ok((nodes, attached.collect::<Result<_, _>>()?))
}

fn add_routes(node: &mut Node, plan: &NodePlan) -> Result<(), Error> {
    for route in &plan.routes {
        let (subnet, prefix_length) = parse_subnet(&route.subnet)?;
        let interface = plan.interfaces.iter().position(|interface| interface.name == route.interface);
        let interface = interface.ok_or_else(|| {
            format!("a route of {} names interface {}, which the node does not have", node.name, route.interface)
        })?;
        node.routes.push(Route { subnet, prefix_length, interface: interface as u32, via: Some(end_of(route.via)) });
    }
    // Stable: among equal prefixes the connected subnet comes first.
    node.routes.sort_by_key(|route| std::cmp::Reverse(route.prefix_length));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_address_is_found_and_no_other() {
        let mut table = NextHops::default();
        assert!(table.get(0).is_none());
        let address = |number: u32| 0x0a00_0001 + (number << 8);
        let egress = |number: u32| Egress { interface: number, link: LinkId::new(2 * number as usize), port: 0, to: 1 };
        for number in 0..1000 {
            table.insert(address(number), NextHop::Interface(egress(number)));
        }
        for number in 0..1000 {
            assert!(matches!(table.get(address(number)), Some(NextHop::Interface(found)) if found == egress(number)));
        }
        assert!(table.get(address(1000)).is_none() && table.get(0).is_none());
    }
}
