//! A network interface as a TCP or QUIC outside the kernel uses it: IP packets to and from one address.

use std::io;
use std::net::{IpAddr, SocketAddr};

use backchannel_core::ip::IpVersion;
use backchannel_core::packet::Packet;
use backchannel_core::{Error, ResultExt};
use backchannel_emulator::os::arrivals::{Batch, BATCH};
use backchannel_emulator::os::link_layer::{ETHERNET_HEADER, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use backchannel_emulator::os::packet_socket::{PacketSocket, Protocol, Receive};
use backchannel_emulator::os::process::Priority;
use backchannel_emulator::os::wait::{wait_for, wait_for_input_or_room, Readiness};
use backchannel_emulator::{become_realtime, leave_realtime, monotonic_ns, parse_mac};
use rustix::io::Errno;

use crate::promptness::{ClassControl, LatenessHistogram};
use crate::socket::is_transient;

/// First and longest pause before the next attempt to send while others fill the interface's queue, in nanoseconds.
const PAUSE_NS: (u64, u64) = (1_000_000, 32_000_000);

/// Interfaces and hardware addresses of a host.
#[derive(clap::Args)]
pub struct Attachment {
    /// Interface that it sends and receives on, in this network namespace
    #[arg(long, required = false, requires = "stack")]
    interface: String,
    /// Further interfaces that it receives on, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "stack")]
    also_hear: Vec<String>,
    /// Hardware address of the host; unused where the interface has no link-layer header
    #[arg(long, required = false, requires = "stack")]
    mac: String,
    /// Hardware address of the next hop; unused where the interface has no link-layer header
    #[arg(long, required = false, requires = "stack")]
    next_hop_mac: String,
}

/// What a frame waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Obstacle {
    /// Room in the socket, which the kernel reports.
    Socket,
    /// The queue of the interface, which others fill: the next attempt, by CLOCK_MONOTONIC, and the pause after it.
    Others { retry_ns: u64, pause_ns: u64 },
}

/// The interface.
pub struct HostInterface {
    socket: PacketSocket,
    /// Of a host with several interfaces, those that it only receives on: the way back may be another (asym 3.1).
    receive_only: Vec<PacketSocket>,
    header: [u8; ETHERNET_HEADER],
    address: IpAddr,
    /// The frame that is sent next.
    frame: Vec<u8>,
    /// Why it has not been sent yet; `None`: nothing waits.
    waiting: Option<Obstacle>,
    /// Frames that one of the sockets has received.
    batch: Batch,
    /// Which socket receives next, counted over all.
    turn: usize,
    next_id: u64,
    class: ClassControl,
    /// When the kernel received the frame that was read last, by CLOCK_REALTIME.
    pub arrived_ns: Option<u64>,
    /// How late segments and timers were handled.
    pub lateness: LatenessHistogram,
}

/// Length of a packet, if it goes to this address. A short frame may be padded: the header states where the packet
/// ends.
fn length_of_packet_to(address: IpAddr, packet: &[u8]) -> Option<usize> {
    let header_bytes = IpVersion::of(address).header_bytes() as usize;
    let header = packet.get(..header_bytes)?;
    let word = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
    let (is_ours, length) = match address {
        IpAddr::V4(address) => (header[16..20] == address.octets(), word(2)),
        IpAddr::V6(address) => (header[24..40] == address.octets(), word(4) + header_bytes),
    };
    is_ours.then_some(length.min(packet.len()))
}

impl HostInterface {
    /// Opens the interfaces for one end of a flow, whose port is that of `local`.
    ///
    /// # Errors
    /// An interface does not exist, or the kernel refuses packet sockets.
    pub fn open(attachment: &Attachment, protocol: Protocol, local: SocketAddr) -> Result<HostInterface, Error> {
        let mut header = [0; ETHERNET_HEADER];
        header[..6].copy_from_slice(&parse_mac(&attachment.next_hop_mac)?);
        header[6..12].copy_from_slice(&parse_mac(&attachment.mac)?);
        let ip = IpVersion::of(local.ip());
        header[12..].copy_from_slice(match ip {
            IpVersion::V4 => &ETHERTYPE_IPV4,
            IpVersion::V6 => &ETHERTYPE_IPV6,
        });
        let open = |name: &String| {
            PacketSocket::open(name, Receive::PortOf(ip, protocol, local.port()))
                .or_system(format_args!("cannot open a packet socket on {name}"))
        };
        let socket = open(&attachment.interface)?;
        let receive_only = attachment.also_hear.iter().map(open).collect::<Result<_, _>>()?;
        // If the kernel refuses, the reported lateness shows it.
        become_realtime(Priority::Host);
        Ok(HostInterface {
            socket,
            receive_only,
            header,
            address: local.ip(),
            frame: Vec::with_capacity(2048),
            waiting: None,
            batch: Batch::new(65_536 + ETHERNET_HEADER),
            turn: 0,
            next_id: 0,
            class: ClassControl::realtime(monotonic_ns()),
            arrived_ns: None,
            lateness: LatenessHistogram::new(),
        })
    }

    /// The next IP packet to the host's address; `None` if there is none.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn read(&mut self) -> Result<Option<Packet>, Error> {
        loop {
            if self.batch.is_empty() && !self.receive()? {
                return Ok(None);
            }
            let Some((frame, arrived_ns)) = self.batch.take() else { continue };
            let Some(ip) = frame.get(ETHERNET_HEADER..) else { continue };
            let Some(length) = length_of_packet_to(self.address, ip) else { continue };
            self.next_id += 1;
            self.arrived_ns = arrived_ns;
            return Ok(Some(Packet::from_bytes(self.next_id, ip[..length].to_vec())));
        }
    }

    /// Receives a batch of the next socket that has frames. False once each has been asked and emptied.
    fn receive(&mut self) -> Result<bool, Error> {
        while let Some(socket) = std::iter::once(&self.socket).chain(&self.receive_only).nth(self.turn) {
            let count = match socket.receive_batch(&mut self.batch) {
                Ok(count) => count,
                Err(error) if is_transient(&error) => 0,
                Err(error) => return Err(Error::System(format!("the interface is gone: {error}"))),
            };
            if count < BATCH {
                self.turn += 1;
            }
            if count > 0 {
                return Ok(true);
            }
        }
        self.turn = 0;
        Ok(false)
    }

    /// Sends a packet to the next hop. While the interface is full, the packet waits, as in a kernel's TCP: send the
    /// next one when [`HostInterface::has_room`].
    ///
    /// # Errors
    /// The interface is down or gone, or the packet is longer than its MTU.
    pub fn send(&mut self, packet: &Packet) -> Result<(), Error> {
        self.frame.clear();
        self.frame.extend_from_slice(&self.header);
        self.frame.extend(packet.to_vec());
        self.attempt()
    }

    /// Whether a packet can be sent now. Sends the one that waits, if it can.
    ///
    /// # Errors
    /// As [`HostInterface::send`].
    pub fn has_room(&mut self) -> Result<bool, Error> {
        match self.waiting {
            None => {}
            Some(Obstacle::Others { retry_ns, .. }) if monotonic_ns() < retry_ns => {}
            Some(_) => self.attempt()?,
        }
        Ok(self.waiting.is_none())
    }

    /// Drops the packet that waits, if there is one.
    pub fn discard_waiting(&mut self) {
        self.waiting = None;
    }

    fn attempt(&mut self) -> Result<(), Error> {
        loop {
            let Err(error) = self.socket.send(&self.frame) else {
                self.waiting = None;
                return Ok(());
            };
            self.waiting = match (error.kind(), Errno::from_io_error(&error)) {
                (io::ErrorKind::Interrupted, _) => continue,
                (io::ErrorKind::WouldBlock, _) => Some(Obstacle::Socket),
                (_, Some(Errno::NOBUFS)) => Some(self.full_queue()?),
                (_, Some(Errno::MSGSIZE)) => {
                    let length = self.frame.len() - ETHERNET_HEADER;
                    return Err(Error::Unfit(format!(
                        "a packet of {length} bytes is longer than the interface's MTU; set the stack's \
                         'packet_bytes' to at most the MTU"
                    )));
                }
                _ => return Err(Error::System(format!("sending failed: {error}"))),
            };
            return Ok(());
        }
    }

    /// The queue of the interface has dropped the frame. Each further attempt would count as a drop too.
    fn full_queue(&self) -> Result<Obstacle, Error> {
        let shares = self.socket.yield_to_queue().or_system("cannot wait for the interface")?;
        if shares {
            return Ok(Obstacle::Socket);
        }
        let (first_ns, longest_ns) = PAUSE_NS;
        let pause_ns = match self.waiting {
            Some(Obstacle::Others { pause_ns, .. }) => (pause_ns * 2).min(longest_ns),
            _ => first_ns,
        };
        Ok(Obstacle::Others { retry_ns: monotonic_ns() + pause_ns, pause_ns })
    }

    /// Waits for a frame, or for room for the one that waits, from one instant of CLOCK_MONOTONIC, which is now, at
    /// most until another. Returns now. Does not wait while frames are left that were received with others.
    pub fn wait(&mut self, from_ns: u64, until_ns: u64) -> u64 {
        let until_ns = if self.batch.is_empty() { until_ns } else { from_ns };
        let sockets = std::iter::once(&self.socket).chain(&self.receive_only);
        let most_ns = |until_ns: u64| until_ns.saturating_sub(from_ns);
        match self.waiting {
            None => _ = wait_for(sockets, Readiness::Readable, Some(most_ns(until_ns))),
            Some(Obstacle::Socket) => wait_for_input_or_room(sockets, &self.socket, most_ns(until_ns)),
            Some(Obstacle::Others { retry_ns, .. }) => {
                _ = wait_for(sockets, Readiness::Readable, Some(most_ns(until_ns.min(retry_ns))));
            }
        }
        let now_ns = monotonic_ns();
        match self.class.on_wait(from_ns, now_ns) {
            Some(true) => _ = become_realtime(Priority::Host),
            Some(false) => leave_realtime(),
            None => {}
        }
        now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::Segment;

    #[test]
    fn packets_to_the_address_are_accepted_without_padding() {
        for ip in [IpVersion::V4, IpVersion::V6] {
            let bytes = Segment { ip, payload: 3, ..Segment::default() }.packet().to_vec();
            let padded = [&bytes[..], &[0; 9]].concat();
            let to = |last: u8| length_of_packet_to(ip.address([10, 0, 0, last].into()), &padded);
            assert_eq!((to(2), to(1)), (Some(bytes.len()), None));
            assert_eq!(length_of_packet_to(ip.address([10, 0, 0, 2].into()), &bytes[..19]), None);
        }
    }
}
