//! TCP as a transport among others: it makes the connections of one program.

use std::sync::Arc;

use backchannel_core::packet::{FlowKey, Packet};
use backchannel_core::time::Time;
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

    fn connect(&mut self, _now: Time, flow: FlowKey) -> Connection {
        Connection::connect(self.config.clone(), flow, self.next_initial(), Source::written(self.content))
    }

    fn accept(&mut self, _now: Time, flow: FlowKey, packet: &Packet) -> Option<Connection> {
        Connection::accept(self.config.clone(), flow, self.next_initial(), Source::written(self.content), packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::stack_config;
    use crate::wire::Segment;
    use backchannel_core::packet::TcpFlags;
    use backchannel_core::scenario::Options;
    use backchannel_core::transport::{Connections, Transport};

    fn connections(listening: Option<u16>) -> Connections<Tcp> {
        Connections::new(Tcp::new(stack_config("modern", &Options::new()).unwrap(), Content::Pattern(1), 9), listening)
    }

    #[test]
    fn packets_find_their_connections_and_closed_ones_go() {
        let flow = |src_port| FlowKey { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), src_port, dst_port: 80 };
        let (mut clients, mut server) = (connections(None), connections(Some(80)));
        for port in 1..=3 {
            let client = clients.connect(Time::ZERO, flow(port));
            client.write(u64::from(port) * 1000);
            client.finish();
        }
        let (mut now, mut received) = (Time::ZERO, [0; 3]);
        // Until the clients leave TIME-WAIT.
        for _ in 0..500 {
            for (from, to) in [(0, 1), (1, 0)] {
                let ends = &mut [&mut clients, &mut server];
                let mut packets = Vec::new();
                for (_, connection) in ends[from].iter_mut() {
                    packets.extend(std::iter::from_fn(|| connection.poll_transmit(now)));
                }
                now = Time(now.nanos() + 500_000_000);
                for packet in &packets {
                    let (flow, is_new) = ends[to].on_packet(now, packet).expect("every packet has a connection");
                    assert_eq!(flow, packet.flow().unwrap().reversed());
                    assert!(to == 1 || !is_new);
                }
                for (_, connection) in
                    ends[to].iter_mut().filter(|(_, it)| it.next_timeout().is_some_and(|at| at <= now))
                {
                    connection.on_timer(now);
                }
            }
            for (flow, connection) in server.iter_mut() {
                received[usize::from(flow.dst_port) - 1] += connection.read().map(|chunk| chunk.len()).sum::<u64>();
                if connection.peer_finished() {
                    connection.finish();
                }
            }
            for (_, connection) in [clients.remove_closed(), server.remove_closed()].into_iter().flatten() {
                assert_eq!(connection.counts().retransmitted, 0);
            }
        }
        assert_eq!(received, [1000, 2000, 3000]);
        assert_eq!((clients.iter_mut().count(), server.iter_mut().count()), (0, 0));
        assert_eq!((clients.next_timeout(), server.next_timeout()), (None, None));
    }

    #[test]
    fn only_a_syn_to_the_port_opens_a_connection() {
        let flow = FlowKey { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), src_port: 4000, dst_port: 80 };
        for (flags, port, opened) in [(TcpFlags::SYN, 80, 1), (TcpFlags::SYN, 81, 0), (TcpFlags::ACK, 80, 0)] {
            let mut server = connections(Some(port));
            let packet = Segment { flags, ..Segment::default() }.packet(1, flow, &[]);
            assert_eq!(server.on_packet(Time::ZERO, &packet), (opened == 1).then_some((flow.reversed(), true)));
            assert_eq!(server.iter_mut().count(), opened);
        }
    }
}
