//! Flows and their connections: what applications do, and what connections do after each event.

use backchannel_core::icmp::Echo;
use backchannel_core::ids::{ConnectionId, FlowId, Id, NodeId};
use backchannel_core::packet::{FlowKey, Packet};
use backchannel_core::rng;
use backchannel_core::scenario::Flow;
use backchannel_core::traits::Endpoint;
use backchannel_stacks::{Connection, Content, Source};
use backchannel_workloads::Action;

use super::Simulation;
use crate::connection::{flow_config, write_samples, HostConnection, Role};
use crate::datagram::{datagram, echo, headers_of};
use crate::event_queue::Event;
use crate::flow::{destination, first_source_port, FlowKeyV4, FlowState};

impl<'a> Simulation<'a> {
    /// A flow as specified.
    fn spec(&self, flow: FlowId) -> &'a Flow {
        &self.input.scenario.workload[flow.place()]
    }

    pub(super) fn on_application(&mut self, number: FlowId) {
        let flow = &mut self.flows[number];
        if flow.stopped {
            return;
        }
        let (action, next) = flow.application.act(self.now);
        if let Some(next) = next {
            self.queue.schedule(next, Event::Application(number));
        }
        match action {
            Action::Pause => {}
            Action::Connect { bytes, silent } => self.connect(number, bytes, silent),
            Action::Request(bytes) => self.request(number, bytes),
            Action::Write(bytes) => {
                if let Some(connection) = flow.latest_connection {
                    if let (Some(each), Some(exchanges)) = (flow.application.transaction(), &mut flow.exchanges) {
                        self.connections[connection].exchange = Some(exchanges.begin(self.now, each.response));
                    }
                    self.connections[connection].connection.send_more(bytes);
                    self.drive(connection);
                }
            }
            Action::Datagram { length, frame } => {
                let (from, to) = (flow.from, flow.to);
                let key = self.key(number, (from, first_source_port(number)), to);
                let flow = &mut self.flows[number];
                let sequence = flow.datagrams_sent as u16;
                flow.datagrams_sent += 1;
                flow.datagram_bytes_sent += u64::from(length - headers_of(key));
                self.next_id += 1;
                if let Some(exchanges) = &mut flow.exchanges {
                    let exchange = exchanges.begin_packet(self.now, u64::from(length), frame);
                    self.datagrams.insert(self.next_id, (number, exchange));
                }
                let packet = if flow.application.is_icmp() {
                    // Ports tell the flows of a pair of hosts apart, and identifiers those of ICMP.
                    echo(self.next_id, key, Echo { is_reply: false, identifier: key.dst_port, sequence }, length)
                } else {
                    datagram(self.next_id, key, length)
                };
                self.send(from, packet);
            }
        }
    }

    /// A UDP packet arrives at the receiver of a flow, which returns it if the flow is echoed.
    pub(super) fn on_datagram(&mut self, number: FlowId, node: NodeId, packet: &Packet) {
        let returned = self.arrive(number, packet.id);
        let Some(key) = packet.flow().filter(|_| self.flows[number].application.is_echoed()) else { return };
        let answer = datagram(returned, key.reversed(), packet.len());
        self.send(node, answer);
    }

    /// An ICMP echo arrives at a node, which answers a request of a flow, or was waiting for the reply.
    #[cold]
    pub(super) fn on_echo(&mut self, node: NodeId, packet: &Packet) {
        let (Some(header), Some(destination)) = (packet.echo(), destination(packet)) else { return };
        if header.is_reply {
            return self.on_returned(packet.id);
        }
        let Some(&number) = self.listening.get(&(destination, header.identifier)) else { return };
        let (from, to) = (self.flows[number].from, self.flows[number].to);
        let key = self.key(number, (from, first_source_port(number)), to);
        let payload = packet.len() - headers_of(key);
        self.on_payload(number, packet, payload);
        let answered = self.arrive(number, packet.id);
        let reply = echo(answered, key.reversed(), Echo { is_reply: true, ..header }, packet.len());
        self.send(node, reply);
    }

    /// Data of a packet without a connection arrive at the receiver of a flow.
    pub(super) fn on_payload(&mut self, number: FlowId, packet: &Packet, payload: u32) {
        self.flows[number].datagram_bytes_received += u64::from(payload);
        if let Some(counters) = &mut self.counters {
            counters.on_arrival(number, packet.len(), payload);
            counters.on_read(number, self.now, u64::from(payload));
        }
    }

    /// Records the arrival of a packet at the receiver; the id of the packet that returns it.
    fn arrive(&mut self, number: FlowId, id: u64) -> u64 {
        let exchange = self.datagrams.remove(&id);
        if let (Some((_, exchange)), Some(exchanges)) = (exchange, &mut self.flows[number].exchanges) {
            exchanges.arrive(exchange, self.now);
        }
        if !self.flows[number].application.is_echoed() {
            return 0;
        }
        self.next_id += 1;
        if let Some(exchange) = exchange {
            self.datagrams.insert(self.next_id, exchange);
        }
        self.next_id
    }

    /// A packet that the receiver of a flow returned arrives at the sender.
    pub(super) fn on_returned(&mut self, id: u64) {
        let Some((flow, exchange)) = self.datagrams.remove(&id) else { return };
        if let Some(exchanges) = &mut self.flows[flow].exchanges {
            exchanges.complete(exchange, self.now);
        }
    }

    /// Opens a connection of a flow. A silent one carries what [`Action::Write`] adds.
    fn connect(&mut self, number: FlowId, bytes: Option<u64>, silent: bool) {
        let flow = &mut self.flows[number];
        let src_port = flow.next_source_port(number);
        let opened = self.connections.next_id();
        flow.latest_connection = Some(opened);
        let exchange = match (bytes, &mut flow.exchanges) {
            (Some(bytes), Some(exchanges)) => Some(exchanges.begin(self.now, bytes)),
            _ => None,
        };
        let (from, to) = (flow.from, flow.to);
        let source = if silent { Source::silent() } else { Source::new(Content::Zeros, bytes) };
        self.open(number, Role::Sender, (from, src_port), to, source, "client");
        if let Some(host) = self.connections.find(opened) {
            host.exchange = exchange;
        }
    }

    /// The receiver opens a connection to the flow's port at the sender and sends its request.
    fn request(&mut self, number: FlowId, bytes: u64) {
        let FlowState { from, to, .. } = self.flows[number];
        let source = Source::new(Content::Zeros, Some(bytes));
        self.open(number, Role::RequestSender, (to, first_source_port(number)), from, source, "request")
    }

    /// Addresses and ports of what a node sends from a port for a flow to another node.
    fn key(&self, number: FlowId, (from, src_port): (NodeId, u16), to: NodeId) -> FlowKey {
        let flow = self.spec(number);
        let address = |node: NodeId| flow.ip.address(self.nodes[node].addresses[0]);
        FlowKey { src: address(from), dst: address(to), src_port, dst_port: flow.port }
    }

    fn open(
        &mut self,
        number: FlowId,
        role: Role,
        (from, src_port): (NodeId, u16),
        to: NodeId,
        source: Source,
        isn_label: &str,
    ) {
        let flow = self.spec(number);
        let key = self.key(number, (from, src_port), to);
        let config = match flow_config(&self.registry.stacks, self.nodes[from].stack.as_ref(), flow) {
            Ok(config) => config,
            Err(why) => return self.fail(why),
        };
        let connection = Connection::connect(config, key, self.initial_sequence_number(number, isn_label), source);
        self.add_connection(HostConnection::new(connection, number, role, from), key)
    }

    fn initial_sequence_number(&self, flow: FlowId, side: &str) -> u32 {
        let mut stream = rng::stream(self.input.scenario.seed, &format!("isn/{}/{side}", flow.place()));
        (rng::uniform(&mut stream) * f64::from(u32::MAX)) as u32
    }

    fn add_connection(&mut self, mut connection: HostConnection, key: FlowKey) {
        let node = connection.node;
        if self.counters.is_none() && self.samples.is_empty() {
            connection.connection.ignore_samples();
        }
        self.heeds_full_interfaces |= connection.connection.heeds_full_interface();
        let number = self.connections.push(connection);
        let key = FlowKeyV4::from(key);
        self.nodes[node].latest_connection = (key, number);
        self.by_flow.insert(key, number);
        self.drive(number)
    }

    /// Accepts a connection at the port of a flow.
    pub(super) fn accept(&mut self, number: FlowId, node: NodeId, flow: FlowKey, packet: &Packet) {
        let config = match flow_config(&self.registry.stacks, self.nodes[node].stack.as_ref(), self.spec(number)) {
            Ok(config) => config,
            Err(why) => return self.fail(why),
        };
        let isn = self.initial_sequence_number(number, "server");
        let Some(connection) = Connection::accept(config, flow.reversed(), isn, Source::silent(), packet) else {
            return;
        };
        let role = if node == self.flows[number].from { Role::RequestReceiver } else { Role::Receiver };
        let mut host = HostConnection::new(connection, number, role, node);
        host.exchange = self.by_flow.get(&FlowKeyV4::from(flow)).and_then(|peer| self.connections[*peer].exchange);
        self.add_connection(host, flow.reversed())
    }

    pub(super) fn on_connection_timer(&mut self, number: ConnectionId) {
        let now = self.now;
        let host = &mut self.connections[number];
        if host.scheduled != Some(now) {
            return;
        }
        host.scheduled = None;
        if host.connection.next_timeout().is_some_and(|due| due <= now) {
            host.connection.on_timer(now);
        }
        self.drive(number)
    }

    pub(super) fn stop_flow(&mut self, flow: FlowId) {
        self.flows[flow].stopped = true;
        for number in self.connections.ids() {
            let host = &mut self.connections[number];
            if host.flow == flow && matches!(host.role, Role::Sender | Role::RequestSender) {
                host.connection.abort();
                self.drive(number);
            }
        }
    }

    /// The receiver has read something, `before` bytes after what it had: its transfer may be whole, or requests, which
    /// it answers.
    fn on_received(&mut self, number: ConnectionId, before: u64) {
        let host = &mut self.connections[number];
        let flow = &mut self.flows[host.flow];
        if let Some(each) = flow.application.transaction() {
            let whole = (host.received / each.request) as usize;
            for request in (before / each.request) as usize..whole {
                host.connection.send_more(each.response);
                if let Some(exchanges) = &mut flow.exchanges {
                    exchanges.arrive(request, self.now);
                }
            }
        } else if let (Some(exchange), Some(exchanges)) = (host.exchange, &mut flow.exchanges) {
            if host.received >= exchanges.all()[exchange].bytes {
                exchanges.arrive(exchange, self.now);
            }
        }
    }

    /// The sender has read something: once a response is whole, its application continues.
    fn on_responded(&mut self, number: ConnectionId, before: u64) {
        let host = &self.connections[number];
        let flow = &mut self.flows[host.flow];
        let Some(each) = flow.application.transaction() else { return };
        for response in before / each.response..host.received / each.response {
            if let Some(exchanges) = &mut flow.exchanges {
                exchanges.complete(response as usize, self.now);
            }
            let next = flow.application.on_response(self.now);
            self.queue.schedule(next, Event::Application(host.flow));
        }
    }

    /// After every call of a connection: reads and transmits all there is, records samples, schedules its timer.
    pub(super) fn drive(&mut self, number: ConnectionId) {
        let now = self.now;
        let host = &mut self.connections[number];
        let before = host.received;
        host.read(now);
        let (flow, role, node, received) = (host.flow, host.role, host.node, host.received);
        match role {
            Role::Receiver => {
                if let Some(counters) = &mut self.counters {
                    counters.on_read(flow, now, received - before);
                }
                if received > before {
                    self.on_received(number, before);
                }
            }
            Role::Sender if received > before => self.on_responded(number, before),
            Role::Sender => {}
            Role::RequestReceiver => {
                let request = self.flows[flow].application.request_bytes();
                if request.is_some_and(|request| before < request && received >= request) {
                    self.queue.schedule(now, Event::Application(flow));
                }
            }
            Role::RequestSender => {}
        }
        while let Some(mut packet) = self.connections[number].connection.poll_transmit(now) {
            self.next_id += 1;
            packet.id = self.next_id;
            self.send(node, packet);
        }
        let input = self.input;
        let host = &mut self.connections[number];
        let samples = host.connection.samples();
        if !samples.is_empty() {
            if role == Role::Sender {
                let mss = host.connection.mss();
                if let Some(counters) = &mut self.counters {
                    counters.on_samples(flow, samples, mss);
                }
                if let Some(file) = self.samples.find(flow) {
                    let start = input.scenario.workload[flow.place()].start();
                    if let Err(why) = write_samples(file, samples, start, mss) {
                        self.failed.get_or_insert(why);
                    }
                }
            }
            host.connection.clear_samples();
        }
        if let Some(due) = host.connection.next_timeout() {
            if host.scheduled.is_none_or(|scheduled| due < scheduled) {
                host.scheduled = Some(due.max(now));
                self.queue.schedule(due.max(now), Event::ConnectionTimer(number));
            }
        }
    }
}
