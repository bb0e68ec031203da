//! A network interface as a TCP outside the kernel uses it: IPv4 packets to and from one address.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use backchannel_core::packet::{FlowKey, Packet};
use backchannel_emulator::os::packet_socket::{PacketSocket, Receive};
use backchannel_emulator::os::process::Priority;
use backchannel_emulator::os::wait::{wait_for, Readiness};
use backchannel_emulator::{become_realtime, leave_realtime, monotonic_ns, parse_mac};
use rustix::io::Errno;

use crate::promptness::{ClassControl, LatenessHistogram};
use crate::socket::is_transient;

const ETHERNET_HEADER: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// Pause before the next attempt to send when the device has no room.
const NO_ROOM: Duration = Duration::from_micros(20);

/// Interfaces and hardware addresses of a host.
#[derive(clap::Args)]
pub struct Attachment {
    /// Interface that it sends and receives on, in this network namespace
    #[arg(long)]
    interface: String,
    /// Further interfaces that it receives on, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    also_hear: Vec<String>,
    /// Hardware address of the host
    #[arg(long)]
    mac: String,
    /// Hardware address of the next hop
    #[arg(long)]
    next_hop_mac: String,
}

/// The interface.
pub struct HostInterface {
    socket: PacketSocket,
    /// Of a host with several interfaces, those that it only receives on: the way back may be another (asym 3.1).
    receive_only: Vec<PacketSocket>,
    header: [u8; ETHERNET_HEADER],
    address: Ipv4Addr,
    buffer: Vec<u8>,
    next_id: u64,
    class: ClassControl,
    /// The flow that it receives; nothing is accepted before it is known.
    pub peer: Option<FlowKey>,
    /// When the kernel received the frame that was read last, by CLOCK_REALTIME.
    pub arrived_ns: Option<u64>,
    /// How late segments and timers were handled.
    pub lateness: LatenessHistogram,
}

impl HostInterface {
    /// Opens the interfaces for one end of a flow.
    ///
    /// # Errors
    /// An interface does not exist, or the kernel refuses packet sockets.
    pub fn open(attachment: &Attachment, local: SocketAddrV4) -> Result<HostInterface, String> {
        let mut header = [0; ETHERNET_HEADER];
        header[..6].copy_from_slice(&parse_mac(&attachment.next_hop_mac)?);
        header[6..12].copy_from_slice(&parse_mac(&attachment.mac)?);
        header[12..].copy_from_slice(&ETHERTYPE_IPV4);
        let open = |name: &String| {
            PacketSocket::open(name, Receive::TcpTo(local.port()))
                .map_err(|error| format!("cannot open a packet socket on {name}: {error}"))
        };
        let socket = open(&attachment.interface)?;
        let receive_only = attachment.also_hear.iter().map(open).collect::<Result<_, _>>()?;
        // If the kernel refuses, the reported lateness shows it.
        become_realtime(Priority::Host);
        Ok(HostInterface {
            socket,
            receive_only,
            header,
            address: *local.ip(),
            buffer: vec![0; 65_536 + ETHERNET_HEADER],
            next_id: 0,
            class: ClassControl::realtime(monotonic_ns()),
            peer: None,
            arrived_ns: None,
            lateness: LatenessHistogram::new(),
        })
    }

    /// The next IPv4 packet to the host's address; `None` if there is none.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn read(&mut self) -> Result<Option<Packet>, String> {
        for socket in std::iter::once(&self.socket).chain(&self.receive_only) {
            loop {
                let (length, arrived_ns) = match socket.receive_stamped(&mut self.buffer) {
                    Ok(received) => received,
                    Err(error) if is_transient(&error) => break,
                    Err(error) => return Err(format!("the interface is gone: {error}")),
                };
                let Some(ip) = self.buffer[..length].get(ETHERNET_HEADER..).filter(|ip| ip.len() >= 20) else {
                    continue;
                };
                if ip[16..20] != self.address.octets() {
                    continue;
                }
                // A short frame may be padded. The header states where the packet ends.
                let length = usize::from(u16::from_be_bytes([ip[2], ip[3]])).min(ip.len());
                self.next_id += 1;
                self.arrived_ns = arrived_ns;
                return Ok(Some(Packet::from_bytes(self.next_id, ip[..length].to_vec())));
            }
        }
        Ok(None)
    }

    /// Sends a packet to the next hop. Waits while the interface is full, as a kernel's TCP does.
    ///
    /// # Errors
    /// The interface is down or gone.
    pub fn send(&self, packet: &Packet) -> Result<(), String> {
        let mut frame = self.header.to_vec();
        frame.extend(packet.to_vec());
        loop {
            let Err(error) = self.socket.send(&frame) else { return Ok(()) };
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => _ = wait_for([&self.socket], Readiness::Writable, None),
                _ if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => std::thread::sleep(NO_ROOM),
                _ => return Err(format!("sending failed: {error}")),
            }
        }
    }

    /// Waits for a frame from one instant of CLOCK_MONOTONIC, which is now, at most until another. Returns now.
    pub fn wait(&mut self, from_ns: u64, until_ns: u64) -> u64 {
        let sockets = std::iter::once(&self.socket).chain(&self.receive_only);
        wait_for(sockets, Readiness::Readable, Some(until_ns.saturating_sub(from_ns)));
        let now_ns = monotonic_ns();
        match self.class.on_wait(from_ns, now_ns) {
            Some(true) => _ = become_realtime(Priority::Host),
            Some(false) => leave_realtime(),
            None => {}
        }
        now_ns
    }
}
