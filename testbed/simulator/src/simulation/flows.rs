//! Flows and their connections: what applications do, and what connections do after each event.

use backchannel_core::datagram::{datagram, echo, headers_of};
use backchannel_core::icmp::Echo;
use backchannel_core::ids::{ConnectionId, FlowId, Id, NodeId};
use backchannel_core::packet::{FlowKey, Packet};
use backchannel_core::rng;
use backchannel_core::scenario::Flow;
use backchannel_core::time::Time;
use backchannel_core::transport::{Factory, Transport};
use backchannel_core::Error;
use backchannel_quic::{AnyConfig, AnyConnection, AnyFactory};
use backchannel_stacks::Content;
use backchannel_workloads::flow::{on_answer, on_data, on_due, ReceivingEnd, Sender, SendingEnd, Write};
use backchannel_workloads::Application;

use super::Simulation;
use crate::connection::{flow_config, write_samples, HostConnection, Role};
use crate::event_queue::Event;
use crate::flow::{destination, first_source_port, v4, FlowKeyV4, FlowState, FURTHER_PORTS};
use crate::node::NextHop;

impl<'a> Simulation<'a> {
    /// A flow as specified.
    fn spec(&self, flow: FlowId) -> &'a Flow {
        &self.input.scenario.workload[flow.place()]
    }

    pub(super) fn on_application(&mut self, number: FlowId) {
        if self.flows[number].stopped {
            return;
        }
        let now = self.now;
        if let Err(why) = on_due(&mut FlowDriver { simulation: self, number }, now, now) {
            self.fail(why);
        }
    }

    /// A UDP packet arrives at the receiver of a flow, which returns it if the flow is echoed.
    pub(super) fn on_datagram(&mut self, number: FlowId, node: NodeId, packet: &Packet) {
        let returned = self.arrive(number, packet.id);
        let Some(key) = packet.flow().filter(|_| self.flows[number].sender.application.is_echoed()) else { return };
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
        if let Some((_, exchange)) = exchange {
            self.flows[number].sender.arrive(exchange, self.now);
        }
        if !self.flows[number].sender.application.is_echoed() {
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
        self.flows[flow].sender.complete(exchange, self.now);
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
        first: Write,
        isn_label: &str,
    ) -> Result<ConnectionId, Error> {
        let flow = self.spec(number);
        let key = self.key(number, (from, src_port), to);
        let config = flow_config(&self.registry.stacks, self.nodes[from].stack.as_ref(), flow)?;
        let initial = self.initial_sequence_number(number, isn_label);
        let mut factory = self.factory(number, from, config, initial);
        let mut connection = factory.connect(self.now, key);
        factory.take_logs()?;
        write(&mut connection, first);
        Ok(self.add_connection(HostConnection::new(connection, number, role, from), key))
    }

    /// Makes one connection of a flow at a node; `initial` is its initial sequence number, or the seed of QUIC.
    fn factory(&self, flow: FlowId, node: NodeId, config: AnyConfig, initial: u32) -> AnyFactory {
        let factory = AnyFactory::new(config, Content::Zeros, initial);
        if !self.is_captured {
            return factory;
        }
        let end = if node == self.flows[flow].from { "sender" } else { "receiver" };
        factory.logging(self.out.join("qlog").join(format!("{}-{end}", self.spec(flow).name)))
    }

    fn initial_sequence_number(&self, flow: FlowId, side: &str) -> u32 {
        let mut stream = rng::stream(self.input.scenario.seed, &format!("isn/{}/{side}", flow.place()));
        (rng::uniform(&mut stream) * f64::from(u32::MAX)) as u32
    }

    fn add_connection(&mut self, mut connection: HostConnection, key: FlowKey) -> ConnectionId {
        let node = connection.node;
        if self.counters.is_none() && self.samples.is_empty() {
            connection.connection.ignore_samples();
        }
        self.heeds_full_interfaces |= connection.connection.heeds_full_interface();
        let number = self.connections.push(connection);
        let reversed = key.reversed();
        let key = FlowKeyV4::from(key);
        self.nodes[node].latest_connection = (key, number);
        if self.by_flow.insert(key, number).is_some() {
            self.forget(FlowKeyV4::from(reversed));
        }
        self.drive(number);
        number
    }

    /// The connection that sends this flow is over, and its ports have a new one: the peer accepts that.
    #[cold]
    fn forget(&mut self, key: FlowKeyV4) {
        let Some(number) = self.by_flow.remove(&key) else { return };
        let latest = &mut self.nodes[self.connections[number].node].latest_connection;
        if latest.0 == key {
            latest.0 = FlowKeyV4::NONE;
        }
    }

    /// Whether a connection that sends this flow is still open.
    fn is_open(&self, key: FlowKey) -> bool {
        let number = self.by_flow.get(&FlowKeyV4::from(key));
        number.is_some_and(|number| self.connections[*number].connection.end().is_none())
    }

    /// Accepts a connection at the port of a flow.
    pub(super) fn accept(&mut self, number: FlowId, node: NodeId, flow: FlowKey, packet: &Packet) {
        let config = match flow_config(&self.registry.stacks, self.nodes[node].stack.as_ref(), self.spec(number)) {
            Ok(config) => config,
            Err(why) => return self.fail(why),
        };
        let isn = self.initial_sequence_number(number, "server");
        let mut factory = self.factory(number, node, config, isn);
        let accepted = factory.accept(self.now, flow.reversed(), packet);
        if let Err(why) = factory.take_logs() {
            self.fail(why);
        }
        let Some(connection) = accepted else { return };
        let role = if node == self.flows[number].from { Role::RequestReceiver } else { Role::Receiver };
        let mut host = HostConnection::new(connection, number, role, node);
        host.exchange = self.by_flow.get(&FlowKeyV4::from(flow)).and_then(|peer| self.connections[*peer].exchange);
        self.add_connection(host, flow.reversed());
    }

    pub(super) fn on_connection_timer(&mut self, number: ConnectionId) {
        let now = self.now;
        let host = &mut self.connections[number];
        if host.scheduled != now {
            return;
        }
        host.scheduled = Time::MAX;
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

    /// After every call of a connection: reads and transmits all there is, records samples, schedules its timer.
    pub(super) fn drive(&mut self, number: ConnectionId) {
        let now = self.now;
        let host = &mut self.connections[number];
        let before = host.received;
        host.read(now);
        let (flow, role, node, received) = (host.flow, host.role, host.node, host.received);
        let backpressure = host.connection.backpressure_segments();
        match role {
            Role::Receiver => {
                if let Some(counters) = &mut self.counters {
                    counters.on_read(flow, now, received - before);
                    if !host.connection.is_tcp() {
                        counters.on_stream_data(flow, received - before);
                    }
                }
                if received > before && self.flows[flow].sender.heeds_data() {
                    // A transfer's size is known here, so its end need not show it.
                    on_data(&mut FlowDriver { simulation: self, number: flow }, number, before, received, false);
                }
            }
            Role::Sender | Role::RequestReceiver if received > before => {
                on_answer(&mut FlowDriver { simulation: self, number: flow }, now, before, received);
            }
            Role::Sender | Role::RequestReceiver | Role::RequestSender => {}
        }
        loop {
            if let Some(most) = backpressure {
                self.apply_backpressure(number, most as usize);
            }
            let Some(mut packet) = self.connections[number].connection.poll_transmit(now) else { break };
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
            if due < host.scheduled {
                host.scheduled = due.max(now);
                self.queue.schedule(host.scheduled, Event::ConnectionTimer(number));
            }
        }
    }
}

impl Simulation<'_> {
    /// Holds the data of a connection while `most` segments of it wait in its host or in the queue of the interface that
    /// they leave by: the connection-level backpressure of Kalampoukas, Varma and Ramakrishnan 1998 (asym 2).
    #[cold]
    fn apply_backpressure(&mut self, number: ConnectionId, most: usize) {
        let host = &self.connections[number];
        let (node, flow) = (host.node, host.connection.flow());
        let Some(NextHop::Interface(egress)) = v4(flow.dst).map(|peer| self.nodes[node].next_hop(peer)) else { return };
        let is_own_data =
            |packet: &&Packet| packet.flow() == Some(flow) && packet.tcp().is_some_and(|tcp| tcp.payload > 0);
        let service = &self.links[egress.link].service;
        let in_queue = (0..).map_while(|place| service.peek(egress.port, place));
        let in_host = self.nodes[node].processing.iter().flat_map(|processing| processing.sent.packets());
        let is_held = in_queue.chain(in_host).filter(is_own_data).take(most).count() == most;
        self.connections[number].connection.hold_data(is_held);
        if is_held && !self.held.contains(&(egress.link, number)) {
            self.held.push((egress.link, number));
        }
    }
}

fn write(connection: &mut AnyConnection, next: Write) {
    connection.write(next.bytes);
    if next.finishes {
        connection.finish();
    }
}

/// A flow of a simulation, which has both of its ends.
struct FlowDriver<'s, 'a> {
    simulation: &'s mut Simulation<'a>,
    number: FlowId,
}

impl FlowDriver<'_, '_> {
    fn flow(&mut self) -> &mut FlowState {
        &mut self.simulation.flows[self.number]
    }

    /// Source port of the next connection. After many the ports come again, but not those of open connections.
    fn free_port(&mut self) -> Result<u16, Error> {
        let number = self.number;
        for _ in 0..FURTHER_PORTS {
            let flow = self.flow();
            let (port, from, to) = (flow.next_source_port(number), flow.from, flow.to);
            let key = self.simulation.key(number, (from, port), to);
            if !self.simulation.is_open(key) {
                return Ok(port);
            }
        }
        let name = &self.simulation.spec(number).name;
        Err(format!("flow '{name}': {FURTHER_PORTS} connections are open at the same time, and no port is left").into())
    }
}

impl SendingEnd for FlowDriver<'_, '_> {
    type Stream = ConnectionId;

    fn sender(&mut self) -> &mut Sender<ConnectionId> {
        &mut self.flow().sender
    }

    fn schedule(&mut self, at: Time) {
        self.simulation.queue.schedule(at, Event::Application(self.number));
    }

    fn connect(&mut self, first: Write) -> Result<ConnectionId, Error> {
        let (number, src_port) = (self.number, self.free_port()?);
        let &mut FlowState { from, to, .. } = self.flow();
        self.simulation.open(number, Role::Sender, (from, src_port), to, first, "client")
    }

    /// A connection that was opened without data stays open after the last write, as in ns.
    fn write(&mut self, stream: ConnectionId, next: Write) -> Result<(), Error> {
        self.simulation.connections[stream].connection.write(next.bytes);
        self.simulation.drive(stream);
        Ok(())
    }

    fn begun(&mut self, stream: ConnectionId, exchange: usize) {
        self.simulation.connections[stream].exchange = Some(exchange);
    }

    /// The receiver opens a connection to the flow's port at the sender.
    fn request(&mut self, bytes: u64) -> Result<(), Error> {
        let number = self.number;
        let &mut FlowState { from, to, .. } = self.flow();
        let (port, write) = (first_source_port(number), Write { bytes, finishes: true });
        self.simulation.open(number, Role::RequestSender, (to, port), from, write, "request").map(drop)
    }

    fn packet(&mut self, number: u64, length: u32) -> Result<(), Error> {
        let &mut FlowState { from, to, .. } = self.flow();
        let key = self.simulation.key(self.number, (from, first_source_port(self.number)), to);
        let flow = self.flow();
        flow.datagram_bytes_sent += u64::from(length - headers_of(key));
        let (is_icmp, recorded) = (flow.sender.application.is_icmp(), flow.sender.exchanges().is_some());
        let simulation = &mut *self.simulation;
        simulation.next_id += 1;
        let id = simulation.next_id;
        if recorded {
            simulation.datagrams.insert(id, (self.number, number as usize));
        }
        let packet = if is_icmp {
            // Ports tell the flows of a pair of hosts apart, and identifiers those of ICMP.
            echo(id, key, Echo { is_reply: false, identifier: key.dst_port, sequence: number as u16 }, length)
        } else {
            datagram(id, key, length)
        };
        simulation.send(from, packet);
        Ok(())
    }
}

impl ReceivingEnd for FlowDriver<'_, '_> {
    type Stream = ConnectionId;

    fn application(&self) -> &Application {
        &self.simulation.flows[self.number].sender.application
    }

    /// The response is sent with what the connection has to send after the data that it read.
    fn respond(&mut self, stream: ConnectionId, bytes: u64) {
        self.simulation.connections[stream].connection.write(bytes);
    }

    fn transfer_bytes(&self, stream: ConnectionId) -> Option<u64> {
        let exchanges = self.simulation.flows[self.number].sender.exchanges()?;
        Some(exchanges[self.simulation.connections[stream].exchange?].bytes)
    }

    fn arrived(&mut self, stream: ConnectionId, request: Option<u64>) {
        let exchange = request.map_or(self.simulation.connections[stream].exchange, |request| Some(request as usize));
        if let Some(exchange) = exchange {
            let now = self.simulation.now;
            self.flow().sender.arrive(exchange, now);
        }
    }
}
