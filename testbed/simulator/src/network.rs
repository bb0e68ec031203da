//! Nodes, links and flows in virtual time.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use backchannel_core::event::Events;
use backchannel_core::packet::{FlowKey, Packet, Transport};
use backchannel_core::report::{direction_name, Direction};
use backchannel_core::rng;
use backchannel_core::scenario::{Flow, Named, NodeKind};
use backchannel_core::telemetry::{Telemetry, Watch};
use backchannel_core::time::Time;
use backchannel_core::traits::{Delivery, Endpoint, Link, Port};
use backchannel_stacks::{Connection, Content, Source};
use rustc_hash::FxHashMap;
use serde_json::{json, Map, Value};

use crate::capture::{Capture, EPOCH_S};
use crate::counters::Counters;
use crate::host::{report_together, settings, write_samples, Live};
use crate::input::{parse_subnet, Input};
use crate::queue::{Queue, What};
use crate::workload::{datagram, Action, Application};

const FIRST_EPHEMERAL: u16 = 40_000;
/// Ports of a flow's connections after its first.
const FIRST_FURTHER: u16 = 10_000;

/// Runs a scenario and writes `captures/INTERFACE.pcap`, `telemetry/links.jsonl` and `telemetry/FLOW.jsonl` into a folder.
/// Returns the run's report, in the form of the emulated backend's.
///
/// # Errors
/// A sentence: the input does not fit together, or a file cannot be written.
pub fn simulate(input: &Input, out: &Path) -> Result<Value, String> {
    let mut network = Network::new(input, out)?;
    network.run()?;
    network.report()
}

struct Node {
    name: String,
    forwards: bool,
    stack: Option<Named>,
    interfaces: Vec<Wire>,
    addresses: Vec<Ipv4Addr>,
    /// (subnet, prefix length, interface, next hop's end of the link), longest prefix first; no end: the destination's own.
    routes: Vec<(u32, u32, usize, Option<Port>)>,
    /// Where packets to an address go: what the two lists above say, remembered. The cost of a packet must not grow with
    /// the number of hosts.
    hops: FxHashMap<u32, Hop>,
}

/// A flow's addresses and ports as one number: the simulator's networks have version 4 alone.
fn short(flow: FlowKey) -> u128 {
    let address = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(_) => 0,
    };
    address(flow.src) << 64 | address(flow.dst) << 32 | u128::from(flow.src_port) << 16 | u128::from(flow.dst_port)
}

/// The end of its link that an address stands at (testbed/addressing.py).
fn end_of(address: Ipv4Addr) -> Port {
    Port::from(address.octets()[3].saturating_sub(1))
}

/// What a node does with a packet.
#[derive(Clone, Copy)]
enum Hop {
    /// It is the node's own.
    Here,
    /// It leaves by this interface, for the node at this end of its link.
    Interface(usize, Port),
    /// There is no route.
    Nowhere,
}

impl Node {
    fn hop(&mut self, destination: Ipv4Addr) -> Hop {
        let address = u32::from(destination);
        if let Some(&known) = self.hops.get(&address) {
            return known;
        }
        let fits = |(subnet, length): (u32, u32)| length == 0 || (subnet ^ address) >> (32 - length) == 0;
        let hop = if self.addresses.contains(&destination) {
            Hop::Here
        } else {
            let route = self.routes.iter().find(|&&(subnet, length, ..)| fits((subnet, length)));
            route.map_or(Hop::Nowhere, |&(_, _, interface, to)| {
                Hop::Interface(interface, to.unwrap_or_else(|| end_of(destination)))
            })
        };
        self.hops.insert(address, hop);
        hop
    }
}

/// A node's end of a link.
struct Wire {
    name: String,
    link: usize,
    port: Port,
    capture: Option<Capture>,
}

struct Line {
    name: String,
    link: Box<dyn Link>,
    rates: [Option<u64>; 2],
    /// Per port: (node, interface).
    ends: Vec<(usize, usize)>,
    directions: Vec<Direction>,
    watches: Vec<Watch>,
    armed: Option<Time>,
}

/// A flow's application and what it has done.
struct Talker {
    application: Application,
    from: usize,
    to: usize,
    stopped: bool,
    /// Connections opened.
    opened: u32,
    /// The last of them, if there is one.
    live: Option<usize>,
    /// Bytes of data in datagrams: sent, arrived.
    datagrams: [u64; 2],
}

struct Network<'a> {
    input: &'a Input,
    out: &'a Path,
    now: Time,
    queue: Queue,
    nodes: Vec<Node>,
    lines: Vec<Line>,
    live: Vec<Live>,
    /// Per flow.
    applications: Vec<Talker>,
    by_flow: FxHashMap<u128, usize>,
    /// (address, port) to flow, for connections that are to be answered.
    listening: FxHashMap<(Ipv4Addr, u16), usize>,
    /// Per flow: its telemetry.
    samples: Vec<BufWriter<File>>,
    telemetry: Option<Telemetry>,
    counters: Option<Counters>,
    events: Events,
    deliveries: Vec<Delivery>,
    next_id: u64,
}

impl<'a> Network<'a> {
    fn new(input: &'a Input, out: &'a Path) -> Result<Network<'a>, String> {
        let unwritable = |error: std::io::Error| format!("cannot write into {}: {error}", out.display());
        for folder in ["captures", "telemetry"] {
            fs::create_dir_all(out.join(folder)).map_err(unwritable)?;
        }
        let mut lines = Vec::new();
        for spec in &input.scenario.links {
            lines.push(Line {
                name: spec.name.clone(),
                link: backchannel_links::build(spec, input.scenario.seed)?,
                rates: [spec.forward.rate_bps, spec.reverse.rate_bps],
                ends: vec![(usize::MAX, 0); spec.ends.len()],
                directions: spec.ends.iter().map(|_| Direction::default()).collect(),
                watches: spec.ends.iter().map(|_| Watch::default()).collect(),
                armed: None,
            });
        }
        let nodes = make_nodes(input, out, &mut lines)?;
        let telemetry = out.join("telemetry/links.jsonl");
        let mut network = Network {
            input,
            out,
            now: Time::ZERO,
            queue: Queue::default(),
            nodes,
            lines,
            live: Vec::new(),
            applications: Vec::new(),
            by_flow: FxHashMap::default(),
            listening: FxHashMap::default(),
            samples: Vec::new(),
            telemetry: match input.scenario.capture.telemetry {
                true => Some(Telemetry::create(&telemetry.display().to_string())?),
                false => None,
            },
            counters: None,
            events: Events::default(),
            deliveries: Vec::new(),
            next_id: 0,
        };
        for (number, flow) in input.scenario.workload.iter().enumerate() {
            network.add_flow(number, flow)?;
        }
        let links: Vec<_> = network.lines.iter().map(|line| (line.name.as_str(), line.ends.len())).collect();
        network.counters = input
            .scenario
            .capture
            .counters
            .as_ref()
            .map(|spec| Counters::new(spec, &links, input.scenario.workload.len()));
        Ok(network)
    }

    fn add_flow(&mut self, number: usize, flow: &Flow) -> Result<(), String> {
        let (from, to) = (self.node(&flow.from)?, self.node(&flow.to)?);
        let application = Application::of(flow, self.input.scenario.seed)?;
        let first = application.first(Time::from_seconds(flow.start_s));
        let is_asked_for = application.request_bytes().is_some();
        self.applications.push(Talker {
            application,
            from,
            to,
            stopped: false,
            opened: 0,
            live: None,
            datagrams: [0, 0],
        });
        for node in [from, to] {
            settings(self.nodes[node].stack.as_ref(), flow)?;
        }
        for (node, name) in [(to, &flow.to), (from, &flow.from)].into_iter().take(1 + usize::from(is_asked_for)) {
            let address = self.nodes[node].addresses[0];
            if self.listening.insert((address, flow.port), number).is_some() {
                return Err(format!("flow '{}': port {} of {name} is taken", flow.name, flow.port));
            }
        }
        if self.input.scenario.capture.telemetry {
            let path = self.out.join("telemetry").join(format!("{}.jsonl", flow.name));
            let file = File::create(&path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            self.samples.push(BufWriter::new(file));
        }
        self.queue.push(first, What::Turn(number as u32));
        if let Some(stop_s) = flow.stop_s {
            self.queue.push(Time::from_seconds(stop_s), What::Stop(number as u32));
        }
        Ok(())
    }

    fn node(&self, name: &str) -> Result<usize, String> {
        self.nodes.iter().position(|node| node.name == name).ok_or_else(|| format!("there is no node '{name}'"))
    }

    fn run(&mut self) -> Result<(), String> {
        for line in 0..self.lines.len() {
            self.arm_line(line);
        }
        let end = Time::from_seconds(self.input.scenario.duration_s);
        while let Some((at, what)) = self.queue.pop(end) {
            self.now = at;
            match what {
                What::Link(line) => {
                    let line = line as usize;
                    if self.lines[line].armed == Some(at) {
                        self.lines[line].armed = None;
                        self.poll_line(line)?;
                    }
                }
                What::Connection(number) => {
                    let number = number as usize;
                    if self.live[number].armed == Some(at) {
                        self.live[number].armed = None;
                        if self.live[number].connection.next_timeout().is_some_and(|due| due <= at) {
                            self.live[number].connection.on_timer(at);
                        }
                        self.serve(number)?;
                    }
                }
                What::Turn(flow) => self.turn(flow as usize)?,
                What::Stop(flow) => {
                    self.applications[flow as usize].stopped = true;
                    for number in 0..self.live.len() {
                        if self.live[number].flow == flow as usize && self.live[number].sender {
                            self.live[number].connection.abort();
                            self.serve(number)?;
                        }
                    }
                }
            }
        }
        self.now = end;
        Ok(())
    }

    /// It is an application's turn.
    fn turn(&mut self, number: usize) -> Result<(), String> {
        let talker = &mut self.applications[number];
        if talker.stopped {
            return Ok(());
        }
        let (action, next) = talker.application.turn(self.now);
        if let Some(next) = next {
            self.queue.push(next, What::Turn(number as u32));
        }
        match action {
            Action::Pause => Ok(()),
            Action::Connect { bytes, silent } => self.connect(number, bytes, silent),
            Action::Ask(bytes) => self.ask(number, bytes),
            Action::Write(bytes) => match self.applications[number].live {
                Some(live) => {
                    self.live[live].connection.send_more(bytes);
                    self.serve(live)
                }
                None => Ok(()),
            },
            Action::Datagram(length) => {
                talker.datagrams[0] += u64::from(length) - 28;
                let (from, to, port) = (talker.from, talker.to, self.input.scenario.workload[number].port);
                let own = (self.nodes[from].addresses[0], FIRST_EPHEMERAL + number as u16);
                self.next_id += 1;
                let packet = datagram(self.next_id, own, (self.nodes[to].addresses[0], port), length);
                self.send(from, packet)
            }
        }
    }

    fn connect(&mut self, number: usize, bytes: Option<u64>, silent: bool) -> Result<(), String> {
        let flow = &self.input.scenario.workload[number];
        let talker = &mut self.applications[number];
        let (from, to) = (talker.from, talker.to);
        let src_port = match talker.opened {
            0 => FIRST_EPHEMERAL + number as u16,
            more => FIRST_FURTHER + (more % u32::from(FIRST_EPHEMERAL - FIRST_FURTHER)) as u16,
        };
        talker.opened += 1;
        talker.live = Some(self.live.len());
        let key = FlowKey {
            src: self.nodes[from].addresses[0].into(),
            dst: self.nodes[to].addresses[0].into(),
            src_port,
            dst_port: flow.port,
        };
        let config = settings(self.nodes[from].stack.as_ref(), flow)?;
        let source = if silent { Source::silent() } else { Source::new(Content::Zeros, bytes) };
        let connection = Connection::connect(config, key, self.isn(number, "client"), source);
        self.enter(Live::new(connection, number, true, from), key)
    }

    /// The receiver's request, to the flow's port at the sender.
    fn ask(&mut self, number: usize, bytes: u64) -> Result<(), String> {
        let flow = &self.input.scenario.workload[number];
        let (from, to) = (self.applications[number].to, self.applications[number].from);
        let key = FlowKey {
            src: self.nodes[from].addresses[0].into(),
            dst: self.nodes[to].addresses[0].into(),
            src_port: FIRST_EPHEMERAL + number as u16,
            dst_port: flow.port,
        };
        let config = settings(self.nodes[from].stack.as_ref(), flow)?;
        let source = Source::new(Content::Zeros, Some(bytes));
        let connection = Connection::connect(config, key, self.isn(number, "request"), source);
        self.enter(Live::new(connection, number, true, from).of_request(), key)
    }

    fn isn(&self, flow: usize, side: &str) -> u32 {
        let mut stream = rng::stream(self.input.scenario.seed, &format!("isn/{flow}/{side}"));
        (rng::uniform(&mut stream) * f64::from(u32::MAX)) as u32
    }

    fn enter(&mut self, live: Live, key: FlowKey) -> Result<(), String> {
        let number = self.live.len();
        self.live.push(live);
        self.by_flow.insert(short(key), number);
        self.serve(number)
    }

    /// Lets a connection say what it has to say, and sees to its timer.
    fn serve(&mut self, number: usize) -> Result<(), String> {
        let now = self.now;
        let before = self.live[number].received;
        self.live[number].take_arrived(now);
        let Live { flow, sender, is_request, received, .. } = self.live[number];
        if is_request {
            let asked =
                self.applications[flow].application.request_bytes().is_some_and(|all| before < all && received >= all);
            if asked && !sender {
                self.queue.push(now, What::Turn(flow as u32));
            }
        } else if let Some(counters) = &mut self.counters {
            counters.delivered(flow, now, received - before);
        }
        while let Some(mut packet) = self.live[number].connection.poll_transmit(now) {
            self.next_id += 1;
            packet.id = self.next_id;
            self.send(self.live[number].node, packet)?;
        }
        let live = &mut self.live[number];
        let samples = live.connection.samples();
        if !samples.is_empty() {
            let is_sender = live.sender && !live.is_request;
            if let (true, Some(counters)) = (is_sender, &mut self.counters) {
                counters.sender(live.flow, samples, live.connection.mss());
            }
            if is_sender && !self.samples.is_empty() {
                let flow = &self.input.scenario.workload[live.flow];
                let (start, mss) = (Time::from_seconds(flow.start_s), live.connection.mss());
                write_samples(&mut self.samples[live.flow], samples, start, mss)
                    .map_err(|error| format!("cannot write telemetry: {error}"))?;
            }
            live.connection.clear_samples();
        }
        if let Some(due) = live.connection.next_timeout() {
            if live.armed.is_none_or(|armed| due < armed) {
                live.armed = Some(due.max(now));
                self.queue.push(due.max(now), What::Connection(number as u32));
            }
        }
        Ok(())
    }

    /// Sends a packet from a node towards its destination; without a route it is gone.
    fn send(&mut self, node: usize, packet: Packet) -> Result<(), String> {
        let Some(IpAddr::V4(destination)) = packet.flow().map(|flow| flow.dst) else { return Ok(()) };
        match self.nodes[node].hop(destination) {
            Hop::Interface(interface, to) => self.send_by(node, (interface, to), packet),
            Hop::Here | Hop::Nowhere => Ok(()),
        }
    }

    fn send_by(&mut self, node: usize, (interface, to): (usize, Port), mut packet: Packet) -> Result<(), String> {
        let wire = &mut self.nodes[node].interfaces[interface];
        capture(wire, self.now, &packet)?;
        let (line, port) = (wire.link, wire.port);
        if self.lines[line].ends.len() > 2 {
            packet.set_ports(port, to);
        }
        self.lines[line].directions[usize::from(port)].submitted();
        if let Some(counters) = &mut self.counters {
            counters.entered(line, usize::from(port), &packet);
        }
        self.lines[line].link.submit(self.now, port, packet, &mut self.events);
        self.after_line(line);
        Ok(())
    }

    fn poll_line(&mut self, line: usize) -> Result<(), String> {
        let mut deliveries = std::mem::take(&mut self.deliveries);
        self.lines[line].link.poll(self.now, &mut deliveries, &mut self.events);
        self.after_line(line);
        for delivery in deliveries.drain(..) {
            let port = usize::from(delivery.port);
            let ends = &mut self.lines[line];
            // On a link with two ends, what comes out of one went in at the other.
            let from = if ends.ends.len() == 2 { 1 - port } else { usize::from(delivery.packet.from_port()) };
            ends.directions[from].delivered_exactly();
            let (node, interface) = ends.ends[port];
            if let Some(counters) = &mut self.counters {
                counters.passed(line, from, self.now, &delivery.packet);
            }
            capture(&mut self.nodes[node].interfaces[interface], self.now, &delivery.packet)?;
            self.arrive(node, delivery.packet)?;
        }
        self.deliveries = deliveries;
        Ok(())
    }

    /// What the link noted, its queues, and when it has something to do again.
    fn after_line(&mut self, line: usize) {
        let Line { name, link, directions, watches, .. } = &mut self.lines[line];
        for event in self.events.list.drain(..) {
            directions[usize::from(event.port)].happened(&event);
            if let Some(telemetry) = &mut self.telemetry {
                telemetry.event(name, &direction_name(usize::from(event.port)), &event);
            }
        }
        for sender in self.events.senders.drain(..) {
            directions[usize::from(sender.port)].told(&sender);
            if let Some(telemetry) = &mut self.telemetry {
                telemetry.sender(name, &direction_name(usize::from(sender.port)), &sender);
            }
        }
        if let Some(telemetry) = &mut self.telemetry {
            for (port, watch) in watches.iter_mut().enumerate() {
                if let Some(policy) = link.policy(port as Port) {
                    let (packets, bytes) = (policy.len_packets(), policy.len_bytes());
                    telemetry.queue(watch, self.now.nanos(), name, port, packets, bytes);
                }
            }
        }
        if let Some(counters) = self.counters.as_mut().filter(|counters| counters.watches(line)) {
            for port in 0..watches.len() {
                if let Some(policy) = link.policy(port as Port) {
                    counters.queue(line, port, self.now, policy.len_packets());
                }
            }
        }
        self.arm_line(line);
    }

    fn arm_line(&mut self, line: usize) {
        let of_line = &mut self.lines[line];
        if let Some(due) = of_line.link.next_event() {
            let due = due.max(self.now);
            if of_line.armed.is_none_or(|armed| due < armed) {
                of_line.armed = Some(due);
                self.queue.push(due, What::Link(line as u32));
            }
        }
    }

    fn arrive(&mut self, node: usize, mut packet: Packet) -> Result<(), String> {
        let Some(flow) = packet.flow() else { return Ok(()) };
        let IpAddr::V4(destination) = flow.dst else { return Ok(()) };
        match self.nodes[node].hop(destination) {
            Hop::Here => {}
            Hop::Interface(interface, to) if self.nodes[node].forwards => {
                return if packet.lower_hop_limit() { self.send_by(node, (interface, to), packet) } else { Ok(()) };
            }
            Hop::Interface(..) | Hop::Nowhere => return Ok(()),
        }
        if let Some(&number) = self.by_flow.get(&short(flow.reversed())) {
            let is_receiver = !self.live[number].sender && !self.live[number].is_request;
            if let (true, Some(counters)) = (is_receiver, &mut self.counters) {
                counters.arrived(self.live[number].flow, &packet);
            }
            self.live[number].connection.on_segment(self.now, &packet);
            return self.serve(number);
        }
        let Some(&number) = self.listening.get(&(destination, flow.dst_port)) else { return Ok(()) };
        if let Transport::Udp { payload } = *packet.transport() {
            self.applications[number].datagrams[1] += u64::from(payload);
            if let Some(counters) = &mut self.counters {
                counters.arrived(number, &packet);
                counters.delivered(number, self.now, u64::from(payload));
            }
            return Ok(());
        }
        let config = settings(self.nodes[node].stack.as_ref(), &self.input.scenario.workload[number])?;
        let isn = self.isn(number, "server");
        match Connection::accept(config, flow.reversed(), isn, Source::silent(), &packet) {
            Some(connection) => {
                let live = Live::new(connection, number, false, node);
                let is_request = node == self.applications[number].from;
                self.enter(if is_request { live.of_request() } else { live }, flow.reversed())
            }
            None => Ok(()),
        }
    }

    fn report(mut self) -> Result<Value, String> {
        self.telemetry.take().map_or(Ok(()), Telemetry::finish)?;
        if let Some(counters) = self.counters.take() {
            let links: Vec<_> = self.lines.iter().map(|line| line.name.as_str()).collect();
            let flows: Vec<_> = self.input.scenario.workload.iter().map(|flow| flow.name.as_str()).collect();
            counters.write(self.now, &links, &flows, &self.out.join("counters.json"))?;
        }
        for mut file in self.samples {
            file.flush().map_err(|error| format!("cannot write telemetry: {error}"))?;
        }
        let mut links = Map::new();
        for line in &mut self.lines {
            let mut directions = Map::new();
            for port in 0..line.directions.len() {
                let (usage, rate) = (line.link.usage(port as Port), line.rates[port.min(1)]);
                directions.insert(direction_name(port), line.directions[port].json(usage, rate));
            }
            links.insert(line.name.clone(), directions.into());
        }
        let mut flows = Map::new();
        for (number, flow) in self.input.scenario.workload.iter().enumerate() {
            let talker = &self.applications[number];
            let side = |sender: bool| {
                if talker.application.is_datagrams() {
                    let bytes = talker.datagrams[usize::from(!sender)];
                    return json!({"bytes": bytes, "payload_ok": true, "end": if talker.stopped { "stopped" } else { "open" }});
                }
                let mut ends =
                    self.live.iter().filter(|live| live.flow == number && live.sender == sender && !live.is_request);
                match (ends.next(), ends.next()) {
                    (None, _) => json!({"bytes": 0, "payload_ok": true, "end": "never connected"}),
                    (Some(one), None) => one.report(),
                    (Some(one), Some(other)) => report_together([one, other].into_iter().chain(ends)),
                }
            };
            flows.insert(flow.name.clone(), json!({"send": side(true), "receive": side(false)}));
        }
        let mut captures = Vec::new();
        for node in self.nodes {
            for wire in node.interfaces {
                let Some(capture) = wire.capture else { continue };
                let packets = capture.packets;
                capture.finish().map_err(|error| format!("cannot write the capture on {}: {error}", wire.name))?;
                captures.push(json!({
                    "node": node.name, "interface": wire.name, "path": format!("{}.pcap", wire.name),
                    "captured": packets, "received": packets, "dropped": 0,
                }));
            }
        }
        Ok(json!({
            "t0_epoch_ns": EPOCH_S * 1_000_000_000,
            "driver": {"links": links, "virtual": true},
            "captures": captures,
            "flows": flows,
        }))
    }
}

#[inline]
fn capture(wire: &mut Wire, now: Time, packet: &Packet) -> Result<(), String> {
    match &mut wire.capture {
        None => Ok(()),
        Some(capture) => {
            capture.take(now, packet).map_err(|error| format!("cannot write the capture on {}: {error}", wire.name))
        }
    }
}

fn make_nodes(input: &Input, out: &Path, lines: &mut [Line]) -> Result<Vec<Node>, String> {
    let mut nodes = Vec::new();
    for (number, spec) in input.scenario.nodes.iter().enumerate() {
        let plan = input.nodes.get(&spec.name).ok_or_else(|| format!("node '{}' has no addresses", spec.name))?;
        let mut node = Node {
            name: spec.name.clone(),
            forwards: spec.kind != NodeKind::Host,
            stack: spec.stack.clone(),
            interfaces: Vec::new(),
            addresses: Vec::new(),
            routes: Vec::new(),
            hops: FxHashMap::default(),
        };
        for (place, interface) in plan.interfaces.iter().enumerate() {
            let link = lines.iter().position(|line| line.name == interface.link);
            let link = link.ok_or_else(|| {
                format!("interface {} is on link '{}', which does not exist", interface.name, interface.link)
            })?;
            let end = lines[link].ends.get_mut(usize::from(interface.end));
            *end.ok_or_else(|| format!("link '{}' has no end {}", interface.link, interface.end))? = (number, place);
            let at = &input.scenario.capture.at;
            let wanted = at.is_empty() || at.contains(&format!("{}:{}", spec.name, interface.link));
            let path = out.join("captures").join(format!("{}.pcap", interface.name));
            let capture = wanted.then(|| Capture::create(&path, input.scenario.capture.snaplen)).transpose();
            node.interfaces.push(Wire {
                name: interface.name.clone(),
                link,
                port: interface.end,
                capture: capture.map_err(|error| format!("cannot write {}: {error}", path.display()))?,
            });
            node.addresses.push(interface.address);
            node.routes.push((u32::from(interface.address) & !0xff, 24, place, None));
        }
        for route in &plan.routes {
            let (subnet, length) = parse_subnet(&route.subnet)?;
            let interface = plan.interfaces.iter().position(|one| one.name == route.interface);
            let interface = interface
                .ok_or_else(|| format!("a route of {} names {}, which it has not", spec.name, route.interface))?;
            node.routes.push((subnet, length, interface, Some(end_of(route.via))));
        }
        node.routes.sort_by_key(|&(_, length, ..)| std::cmp::Reverse(length));
        nodes.push(node);
    }
    if let Some(line) = lines.iter().find(|line| line.ends.iter().any(|&(node, _)| node == usize::MAX)) {
        return Err(format!("link '{}' has an end without a node", line.name));
    }
    Ok(nodes)
}
