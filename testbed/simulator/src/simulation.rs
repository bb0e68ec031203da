//! The simulation: nodes, links and flows under one event queue.

mod flows;

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use backchannel_core::exchange;
use backchannel_core::ids::{ConnectionId, FlowId, LinkId, NodeId, Numbered};
use backchannel_core::packet::{Packet, TransportHeader};
use backchannel_core::pcap::VIRTUAL_EPOCH_NS;
use backchannel_core::scenario::Flow;
use backchannel_core::service::LinkService;
use backchannel_core::telemetry::{FlowTelemetry, Telemetry};
use backchannel_core::time::Time;
use backchannel_core::traits::{Delivery, Port};
use backchannel_core::transport::Transport;
use backchannel_core::{Error, ResultExt};
use backchannel_links::{AnyLink, Context, Registry};
use backchannel_workloads::flow::Sender;
use backchannel_workloads::Application;
use rustc_hash::FxHashMap;

use crate::connection::{flow_config, HostConnection, Role};
use crate::counters::{Counters, CountersFile};
use crate::event_queue::{Event, EventQueue};
use crate::flow::{destination, first_source_port, FlowKeyV4, FlowState};
use crate::input::Input;
use crate::node::{self, Attachment, Egress, NextHop, Node};
use crate::processing::{Processing, Stage};
use crate::report::{CaptureReport, DriverReport, FlowReport, FlowSideReport, SimulationReport};

/// Runs a scenario with the mechanisms of a registry, and writes `captures/INTERFACE.pcap`, `telemetry/links.jsonl`,
/// `telemetry/FLOW.jsonl`, `applications/FLOW.jsonl`, `counters.json` and, with captures of QUIC,
/// `qlog/FLOW-END-PORT-SIDE.sqlog` into a folder, as far as the scenario asks for them.
///
/// # Errors
/// The input does not fit together, or a file cannot be written.
pub fn simulate(registry: &Registry, input: &Input, out: &Path) -> Result<SimulationReport, Error> {
    for folder in ["captures", "telemetry"] {
        fs::create_dir_all(out.join(folder)).or_system(format_args!("cannot write into {}", out.display()))?;
    }
    let mut simulation = Simulation::new(registry, input, out)?;
    simulation.run()?;
    let (report, counters) = simulation.report()?;
    if let Some(counters) = counters {
        counters.write(&out.join("counters.json"))?;
    }
    Ok(report)
}

/// Runs a scenario that has counters and no captures or telemetry, and returns the report and the counters. No file is
/// written.
///
/// # Errors
/// As of [`simulate`], or the scenario asks for files.
pub fn simulate_in_memory(registry: &Registry, input: &Input) -> Result<(SimulationReport, CountersFile), Error> {
    let capture = &input.scenario.capture;
    if capture.at != ["none"] || capture.telemetry || capture.counters.is_none() {
        return Err("a simulation in memory has counters, and neither captures nor telemetry".to_owned().into());
    }
    // Nothing can be written below it: a mechanism that tried to would fail.
    let mut simulation = Simulation::new(registry, input, Path::new("/dev/null"))?;
    simulation.run()?;
    let (report, counters) = simulation.report()?;
    Ok((report, counters.expect("the scenario has counters")))
}

/// A link and what is attached to it.
struct SimulatedLink {
    service: LinkService<AnyLink>,
    /// Per end.
    attached: Vec<Attachment>,
    /// When it is in the event queue; [`Time::MAX`]: it is not.
    scheduled: Time,
}

impl SimulatedLink {
    /// Schedules the next event of the link, which has this id.
    #[inline(always)]
    fn schedule(&mut self, id: LinkId, now: Time, queue: &mut EventQueue) {
        if let Some(due) = self.service.next_event() {
            if due < self.scheduled {
                self.scheduled = due.max(now);
                queue.schedule(self.scheduled, Event::Link(id));
            }
        }
    }
}

struct Simulation<'a> {
    registry: &'a Registry,
    input: &'a Input,
    out: &'a Path,
    now: Time,
    queue: EventQueue,
    nodes: Numbered<NodeId, Node>,
    links: Numbered<LinkId, SimulatedLink>,
    flows: Numbered<FlowId, FlowState>,
    connections: Numbered<ConnectionId, HostConnection>,
    /// Connection by the flow that it sends.
    by_flow: FxHashMap<FlowKeyV4, ConnectionId>,
    /// Flow by the address and port at which it accepts connections.
    listening: FxHashMap<(Ipv4Addr, u16), FlowId>,
    /// Telemetry of the senders; empty: none is written.
    samples: Numbered<FlowId, FlowTelemetry>,
    telemetry: Option<Telemetry>,
    counters: Option<Counters>,
    /// Whether interfaces are captured, and whether they are or packets are counted.
    is_captured: bool,
    is_watched: bool,
    /// Whether a connection reacts to the full queue of its host's interface.
    heeds_full_interfaces: bool,
    /// Connections whose data wait for room in the queue of their host's interface, and its link.
    held: Vec<(LinkId, ConnectionId)>,
    /// What has come out of the link that is polled.
    deliveries: Vec<Delivery>,
    next_id: u64,
    /// Flow and exchange of each recorded UDP packet under way, by its id.
    datagrams: FxHashMap<u64, (FlowId, usize)>,
    /// Why the run cannot continue.
    failed: Option<Error>,
}

impl<'a> Simulation<'a> {
    fn new(registry: &'a Registry, input: &'a Input, out: &'a Path) -> Result<Simulation<'a>, Error> {
        let scenario = &input.scenario;
        let context = Context { seed: scenario.seed, registry: registry.clone() };
        let mut services = Vec::new();
        for spec in &scenario.links {
            let link = AnyLink::new(spec, &context, input.fault.as_ref())?;
            services.push(LinkService::new(&spec.name, link, spec.ends.len(), spec.rates_bps()));
        }
        let (nodes, attached) = node::build(input, out, &services)?;
        let links: Vec<_> = services.iter().map(|service| (service.name(), service.ends())).collect();
        let counters = scenario.capture.counters.as_ref();
        let counters = counters.map(|spec| Counters::new(spec, &links, scenario.workload.len()));
        let is_captured = nodes.iter().flat_map(|node| &node.interfaces).any(|interface| interface.capture.is_some());
        let telemetry = out.join("telemetry/links.jsonl").display().to_string();
        let mut simulation = Simulation {
            registry,
            input,
            out,
            now: Time::ZERO,
            queue: EventQueue::default(),
            nodes,
            links: services
                .into_iter()
                .zip(attached)
                .map(|(service, attached)| SimulatedLink { service, attached, scheduled: Time::MAX })
                .collect(),
            flows: Numbered::default(),
            connections: Numbered::default(),
            by_flow: FxHashMap::default(),
            listening: FxHashMap::default(),
            samples: Numbered::default(),
            telemetry: scenario.capture.telemetry.then(|| Telemetry::create(&telemetry)).transpose()?,
            is_captured,
            is_watched: is_captured || counters.is_some(),
            counters,
            heeds_full_interfaces: false,
            held: Vec::new(),
            deliveries: Vec::new(),
            next_id: 0,
            datagrams: FxHashMap::default(),
            failed: None,
        };
        let names = scenario.nodes.iter().map(|node| node.name.as_str());
        let nodes: FxHashMap<_, _> = names.zip(simulation.nodes.ids()).collect();
        for flow in &scenario.workload {
            simulation.add_flow(flow, &nodes)?;
        }
        Ok(simulation)
    }

    /// `nodes`: by name.
    fn add_flow(&mut self, flow: &Flow, nodes: &FxHashMap<&str, NodeId>) -> Result<(), Error> {
        let node = |name: &str| nodes.get(name).copied().ok_or_else(|| format!("unknown node '{name}'"));
        let (from, to) = (node(&flow.from)?, node(&flow.to)?);
        let application = Application::new(&self.registry.workloads, flow, self.input.scenario.seed)?;
        let first = application.first(flow.start());
        let is_requested = application.request_bytes().is_some();
        let is_echoed = application.is_echoed();
        let recorded = self.input.scenario.capture.telemetry;
        let id = self.flows.push(FlowState::new(Sender::new(application, flow, recorded), from, to));
        for node in [from, to] {
            flow_config(&self.registry.stacks, self.nodes[node].stack.as_ref(), flow)?;
        }
        // The sender of a requested flow accepts the request.
        for (node, name) in [(to, &flow.to), (from, &flow.from)].into_iter().take(1 + usize::from(is_requested)) {
            let address = self.nodes[node].addresses[0];
            if self.listening.insert((address, flow.port), id).is_some() {
                return Err(
                    format!("flow '{}': port {} of {name} is used by another flow", flow.name, flow.port).into()
                );
            }
        }
        if is_echoed {
            self.listening.insert((self.nodes[from].addresses[0], first_source_port(id)), id);
        }
        if self.input.scenario.capture.telemetry {
            let path = self.out.join("telemetry").join(format!("{}.jsonl", flow.name));
            self.samples.push(FlowTelemetry::create(&path)?);
        }
        self.queue.schedule(first, Event::Application(id));
        if let Some(stop_s) = flow.stop_s {
            self.queue.schedule(Time::from_seconds(stop_s), Event::StopFlow(id));
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), Error> {
        for link in self.links.ids() {
            self.links[link].schedule(link, self.now, &mut self.queue);
        }
        let end = self.input.scenario.end();
        while let Some((at, event)) = self.queue.pop(end) {
            self.now = at;
            match event {
                Event::Link(link) => self.on_link_event(link),
                Event::ConnectionTimer(number) => self.on_connection_timer(number),
                Event::Application(flow) => self.on_application(flow),
                Event::StopFlow(flow) => self.stop_flow(flow),
                Event::Sent(node) => self.on_processed(node, |stages| &mut stages.sent, Self::forward),
                Event::Received(node) => self.on_processed(node, |stages| &mut stages.received, Self::deliver),
            }
            if self.failed.is_some() {
                break;
            }
        }
        self.now = end;
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Ends the run after this event.
    fn fail(&mut self, why: Error) {
        self.failed.get_or_insert(why);
    }

    /// Sends a packet from a host, once the host has processed it.
    #[inline(always)]
    fn send(&mut self, node: NodeId, packet: Packet) {
        let Some(processing) = &mut self.nodes[node].processing else { return self.forward(node, packet) };
        let done = processing.sent.push(self.now, packet);
        self.queue.schedule(done, Event::Sent(node));
    }

    /// Passes the segment that a host has processed on.
    fn on_processed(
        &mut self,
        node: NodeId,
        stage: fn(&mut Processing) -> &mut Stage,
        next: fn(&mut Self, NodeId, Packet),
    ) {
        let packet = self.nodes[node].processing.as_mut().and_then(|processing| stage(processing).pop());
        if let Some(packet) = packet {
            next(self, node, packet);
        }
    }

    /// Puts a packet on the link towards its destination. Without a route it is discarded.
    #[inline]
    fn forward(&mut self, node: NodeId, packet: Packet) {
        let Some(destination) = destination(&packet) else { return };
        match self.nodes[node].next_hop(destination) {
            NextHop::Interface(egress) => self.transmit(node, egress, packet),
            NextHop::Local | NextHop::Unreachable => {}
        }
    }

    /// Puts a packet on a link.
    #[inline(always)]
    fn transmit(&mut self, node: NodeId, egress: Egress, packet: Packet) {
        let link = egress.link;
        if self.is_watched {
            self.nodes[node].interfaces[egress.interface as usize].capture(self.now, &packet);
            if let Some(counters) = &mut self.counters {
                counters.on_enter(link, egress.port, &packet);
            }
        }
        let sender = if self.heeds_full_interfaces { self.local_connection(node, &packet) } else { None };
        let simulated = &mut self.links[link];
        let refused = simulated.service.submit(self.now, egress.port, egress.to, packet, &mut self.telemetry);
        simulated.schedule(link, self.now, &mut self.queue);
        if self.is_watched && self.counters.is_some() {
            self.sample_queues(link);
        }
        if let (true, Some(number)) = (refused, sender) {
            self.connections[number].connection.on_full_interface(self.now);
        }
    }

    /// The connection of this host that sends a packet.
    #[cold]
    fn local_connection(&self, node: NodeId, packet: &Packet) -> Option<ConnectionId> {
        let flow = packet.flow().filter(|_| !self.nodes[node].forwards)?;
        self.by_flow.get(&FlowKeyV4::from(flow)).copied()
    }

    fn on_link_event(&mut self, link: LinkId) {
        let simulated = &mut self.links[link];
        if simulated.scheduled != self.now {
            return;
        }
        simulated.scheduled = Time::MAX;
        simulated.service.poll(self.now, &mut self.deliveries);
        simulated.service.record(self.now, &mut self.telemetry);
        simulated.schedule(link, self.now, &mut self.queue);
        if self.is_watched && self.counters.is_some() {
            self.sample_queues(link);
        }
        // Taken from the end, the last one first. Most of the time there is one.
        if self.deliveries.len() > 1 {
            self.deliveries.reverse();
        }
        while let Some(delivery) = self.deliveries.pop() {
            self.on_delivery(link, delivery);
        }
        if !self.held.is_empty() {
            self.release_held(link);
        }
    }

    /// Drives the connections whose data wait for room in front of this link. Those that find none are held again.
    #[cold]
    fn release_held(&mut self, link: LinkId) {
        let held = std::mem::take(&mut self.held);
        let (released, others) = held.into_iter().partition::<Vec<_>, _>(|(of, _)| *of == link);
        self.held = others;
        released.into_iter().for_each(|(_, number)| self.drive(number));
    }

    /// A packet leaves a link.
    #[inline(always)]
    fn on_delivery(&mut self, link: LinkId, delivery: Delivery) {
        let SimulatedLink { service, attached, .. } = &mut self.links[link];
        let entered_at = service.entered_at(&delivery);
        service.on_exact_delivery(entered_at);
        let (node, interface) = attached[usize::from(delivery.port)];
        if self.is_watched {
            if let Some(counters) = &mut self.counters {
                counters.on_leave(link, entered_at, self.now, &delivery.packet);
            }
            self.nodes[node].interfaces[interface].capture(self.now, &delivery.packet);
        }
        self.receive(node, delivery.packet);
    }

    /// Counts how many packets wait in front of a link.
    fn sample_queues(&mut self, link: LinkId) {
        if let Some(counters) = self.counters.as_mut().filter(|counters| counters.includes(link)) {
            let service = &self.links[link].service;
            for port in 0..service.ends() as Port {
                if let Some(backlog) = service.backlog(port) {
                    counters.on_queue_length(link, port, self.now, backlog.packets);
                }
            }
        }
    }

    /// A packet arrives at a node: forwards it, or delivers it once the host has processed it.
    fn receive(&mut self, node: NodeId, mut packet: Packet) {
        let Some(destination) = destination(&packet) else { return };
        let receiver = &mut self.nodes[node];
        match receiver.next_hop(destination) {
            NextHop::Local => match &mut receiver.processing {
                Some(processing) => {
                    let done = processing.received.push(self.now, packet);
                    self.queue.schedule(done, Event::Received(node));
                }
                None => self.deliver(node, packet),
            },
            NextHop::Interface(egress) if receiver.forwards && packet.lower_hop_limit() => {
                self.transmit(node, egress, packet)
            }
            NextHop::Interface(_) | NextHop::Unreachable => {}
        }
    }

    /// Hands a packet to its connection, or to the flow that it opens one for.
    #[inline(always)]
    fn deliver(&mut self, node: NodeId, packet: Packet) {
        let Some(flow) = packet.flow() else { return self.on_echo(node, &packet) };
        let own = FlowKeyV4::of_peer(flow);
        // Most hosts have one connection, and a comparison costs less than a look-up.
        let (latest, number) = self.nodes[node].latest_connection;
        let number = if latest == own { Some(number) } else { self.by_flow.get(&own).copied() };
        if let Some(number) = number {
            let host = &mut self.connections[number];
            if let (Role::Receiver, Some(counters)) = (host.role, &mut self.counters) {
                counters.on_segment(host.flow, &packet);
            }
            host.connection.on_packet(self.now, &packet);
            return self.drive(number);
        }
        self.deliver_to_flow(node, &packet);
    }

    /// Hands a packet without a connection to the flow that listens for it.
    #[inline(never)]
    fn deliver_to_flow(&mut self, node: NodeId, packet: &Packet) {
        let (Some(flow), Some(destination)) = (packet.flow(), destination(packet)) else { return };
        let Some(&number) = self.listening.get(&(destination, flow.dst_port)) else { return };
        let payload = match *packet.transport() {
            TransportHeader::Udp { payload } if self.flows[number].sender.application.is_datagrams() => payload,
            _ => return self.accept(number, node, flow, packet),
        };
        let id = packet.id;
        if node == self.flows[number].from {
            return self.on_returned(id);
        }
        self.on_payload(number, packet, payload);
        self.on_datagram(number, node, packet);
    }

    fn report(mut self) -> Result<(SimulationReport, Option<CountersFile>), Error> {
        let workload = &self.input.scenario.workload;
        self.telemetry.take().map_or(Ok(()), Telemetry::finish)?;
        let counters = self.counters.take().map(|counters| {
            let links: Vec<_> = self.links.iter().map(|link| link.service.name()).collect();
            let flows: Vec<_> = workload.iter().map(|flow| flow.name.as_str()).collect();
            counters.finish(self.now, &links, &flows)
        });
        std::mem::take(&mut self.samples).into_iter().try_for_each(FlowTelemetry::finish)?;
        self.connections.iter_mut().try_for_each(|host| host.connection.flush_log())?;
        for (flow, state) in workload.iter().zip(self.flows.iter()) {
            let Some(exchanges) = state.sender.exchanges() else { continue };
            let folder = self.out.join("applications");
            fs::create_dir_all(&folder).or_system(format_args!("cannot create {}", folder.display()))?;
            exchange::write_lines(&folder.join(format!("{}.jsonl", flow.name)), exchanges)?;
        }
        let links = self.links.iter_mut().map(|link| (link.service.name().to_owned(), link.service.report())).collect();
        let mut ends: Numbered<FlowId, Vec<&HostConnection>> = workload.iter().map(|_| Vec::new()).collect();
        self.connections.iter().for_each(|host| ends[host.flow].push(host));
        let flows = workload.iter().zip(self.flows.ids()).map(|(flow, id)| {
            let side = |role| self.side(id, role, &ends[id]);
            let (send, receive) = (side(Role::Sender), side(Role::Receiver));
            (flow.name.clone(), FlowReport { send, receive })
        });
        let report = SimulationReport {
            t0_epoch_ns: VIRTUAL_EPOCH_NS,
            flows: flows.collect(),
            driver: DriverReport { links, r#virtual: true, fault: self.input.fault.clone() },
            captures: finish_captures(self.nodes)?,
        };
        Ok((report, counters))
    }

    /// `connections`: those of the flow.
    fn side(&self, id: FlowId, role: Role, connections: &[&HostConnection]) -> FlowSideReport {
        let flow = &self.flows[id];
        if flow.sender.application.is_datagrams() {
            let sent = role == Role::Sender;
            let bytes = if sent { flow.datagram_bytes_sent } else { flow.datagram_bytes_received };
            return FlowSideReport::without_connections(bytes, if flow.stopped { "stopped" } else { "open" });
        }
        let ends = connections.iter().copied().filter(|host| host.role == role);
        FlowSideReport::of(&ends.collect::<Vec<_>>())
    }
}

fn finish_captures(nodes: Numbered<NodeId, Node>) -> Result<Vec<CaptureReport>, Error> {
    let mut reports = Vec::new();
    for node in nodes {
        for interface in node.interfaces {
            let Some(capture) = interface.capture else { continue };
            let packets = capture.packets();
            capture.finish().or_system(format_args!("cannot write the capture on {}", interface.name))?;
            reports.push(CaptureReport {
                node: node.name.clone(),
                path: format!("{}.pcap", interface.name),
                interface: interface.name,
                captured: packets,
                received: packets,
                dropped: 0,
            });
        }
    }
    Ok(reports)
}
