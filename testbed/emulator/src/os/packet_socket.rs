//! Packet sockets (packet(7)): whole frames of an existing interface. Frames of interfaces without a link-layer header
//! get one (`link_layer`).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use backchannel_core::ip::IpVersion;
use libc::c_int;
use rustix::net::{netdevice, sockopt, RecvFlags, SendFlags};
use socket2::{Domain, SockAddr, SockFilter, Socket, Type};

use super::arrivals::{self, Batch};
use super::interface::queued_bytes;
use super::link_layer::LinkLayer;
use super::socket_option;

/// Room in the kernel for frames that arrive while the program does not run, and that the interface does not accept
/// yet.
const LINK_BUFFER_BYTES: usize = 1 << 25;
/// The same of a host, which keeps the default send buffer: it waits for a full interface as a kernel's TCP does.
const HOST_BUFFER_BYTES: usize = 1 << 24;

/// What a packet socket receives. None receives what it sends itself.
#[derive(Clone, Copy, Debug)]
pub enum Receive {
    /// Every frame, whatever its destination: the interface is promiscuous.
    Everything,
    /// TCP segments or UDP packets from or to this port over one version of IP, with the time of arrival
    /// ([`PacketSocket::receive_batch`]). Over IPv6 those behind extension headers are not received.
    PortOf(IpVersion, Protocol, u16),
}

/// A protocol with ports.
#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    /// TCP.
    Tcp = libc::IPPROTO_TCP as isize,
    /// UDP.
    Udp = libc::IPPROTO_UDP as isize,
}

/// A packet socket that does not block.
pub struct PacketSocket {
    socket: Socket,
    layer: LinkLayer,
    index: c_int,
}

impl PacketSocket {
    /// Opens a socket on an interface of the current network namespace.
    ///
    /// # Errors
    /// `ENODEV`: there is no such interface. `EPERM`: CAP_NET_RAW is needed. `Unsupported`: see [`LinkLayer::of`].
    pub fn open(interface: &str, receive: Receive) -> io::Result<PacketSocket> {
        let layer = LinkLayer::of(interface)?;
        // Some drivers have room for a header that their packets do not have. A datagram socket sees the packets of all
        // alike.
        let kind = match layer {
            LinkLayer::Ethernet => Type::RAW,
            LinkLayer::Bare => Type::DGRAM,
        };
        // Protocol 0 receives nothing until the socket is bound, so no frame of another interface slips in.
        let socket = Socket::new_raw(Domain::PACKET, kind.nonblocking().cloexec(), None)?;
        let index = netdevice::name_to_index(&socket, interface)? as c_int;
        socket_option::set::<c_int>(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)?;
        let protocol = match receive {
            Receive::Everything => {
                socket_option::set_receive_buffer(&socket, LINK_BUFFER_BYTES)?;
                socket_option::set_send_buffer(&socket, LINK_BUFFER_BYTES)?;
                let promiscuous = libc::packet_mreq {
                    mr_ifindex: index,
                    mr_type: libc::PACKET_MR_PROMISC as u16,
                    mr_alen: 0,
                    mr_address: [0; 8],
                };
                socket_option::set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
                libc::ETH_P_ALL
            }
            Receive::PortOf(ip, protocol, port) => {
                socket_option::set_receive_buffer(&socket, HOST_BUFFER_BYTES)?;
                arrivals::stamp_arrivals(&socket)?;
                match ip {
                    IpVersion::V4 => {
                        socket.attach_filter(&port_filter(layer, protocol, port))?;
                        libc::ETH_P_IP
                    }
                    IpVersion::V6 => {
                        socket.attach_filter(&port_filter_v6(layer, protocol, port))?;
                        libc::ETH_P_IPV6
                    }
                }
            }
        };
        socket.bind(&link_address(protocol as u16, index)?)?;
        Ok(PacketSocket { socket, layer, index })
    }

    /// Link layer of the interface.
    pub fn link_layer(&self) -> LinkLayer {
        self.layer
    }

    /// Receives a frame. Returns its length.
    ///
    /// # Errors
    /// `WouldBlock`: there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = self.layer.room(buffer).ok_or(io::ErrorKind::InvalidInput)?;
        let (length, _) = rustix::net::recv(&self.socket, room, RecvFlags::empty())?;
        Ok(self.layer.complete(buffer, length))
    }

    /// Receives as many frames as there are and fit, and returns how many, see `Batch::receive`.
    ///
    /// # Errors
    /// `WouldBlock`: there is none.
    pub fn receive_batch(&self, batch: &mut Batch) -> io::Result<usize> {
        batch.receive(&self.socket, self.layer)
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// `WouldBlock` and `ENOBUFS`: the interface has no room. `InvalidInput`: it carries no such packets. `EMSGSIZE`:
    /// longer than the interface's MTU.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let part = self.layer.part_sent(frame).ok_or(io::ErrorKind::InvalidInput)?;
        let sent = match self.layer {
            LinkLayer::Ethernet => rustix::net::send(&self.socket, part, SendFlags::empty())?,
            // PPP and tunnels choose their own header by the protocol.
            LinkLayer::Bare => {
                let protocol = u16::from_be_bytes([frame[12], frame[13]]);
                self.socket.send_to(part, &link_address(protocol, self.index)?)?
            }
        };
        if sent == part.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// After `ENOBUFS`: limits the socket's share of the interface's queue to what of it waits there now, so that the
    /// socket is full (`WouldBlock`) before the queue is. False if nothing waits: others fill the queue.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn yield_to_queue(&self) -> io::Result<bool> {
        let queued = queued_bytes(&self.socket)?;
        // The kernel doubles the size of a buffer that it is given, and accepts a frame while less than that is queued.
        sockopt::set_socket_send_buffer_size(&self.socket, queued / 2)?;
        Ok(queued > 0)
    }

    /// Frames that the kernel dropped for lack of room since the previous call.
    pub(crate) fn take_drops(&self) -> io::Result<u64> {
        // SAFETY: PACKET_STATISTICS fills a tpacket_stats, two integers.
        let stats: libc::tpacket_stats =
            unsafe { socket_option::get(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)? };
        Ok(u64::from(stats.tp_drops))
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Address of an interface for a protocol.
fn link_address(protocol: u16, index: c_int) -> io::Result<SockAddr> {
    // SAFETY: a sockaddr_ll of zeros is valid, fits the storage, and its length is returned.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            let address = storage.cast::<MaybeUninit<libc::sockaddr_ll>>();
            (*address).write(libc::sockaddr_ll {
                sll_family: libc::AF_PACKET as u16,
                sll_protocol: protocol.to_be(),
                sll_ifindex: index,
                ..std::mem::zeroed()
            });
            *length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })?
    };
    Ok(address)
}

/// Instructions of BPF.
mod bpf {
    pub(super) const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    pub(super) const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    pub(super) const LOAD_IP_HEADER_LENGTH: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
    pub(super) const LOAD_HALF_AFTER_IP_HEADER: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
    pub(super) const EQUALS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    pub(super) const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
}

/// An instruction with its operand; a comparison that fails skips `jf` instructions.
fn step(code: u32, k: u32, jf: u8) -> SockFilter {
    SockFilter::new(code as u16, 0, jf, k)
}

/// A filter that accepts packets of a protocol from or to one port over IPv4. On a host with many programs each would otherwise wake up
/// for the frames of all. The socket's protocol is IPv4's, so other packets do not come here.
fn port_filter(layer: LinkLayer, protocol: Protocol, port: u16) -> [SockFilter; 9] {
    use bpf::{EQUALS, LOAD_BYTE, LOAD_HALF_AFTER_IP_HEADER, LOAD_IP_HEADER_LENGTH, RETURN};
    let ip = layer.header_len() as u32;
    [
        step(LOAD_BYTE, ip + 9, 0),
        step(EQUALS, protocol as u32, 6),
        step(LOAD_IP_HEADER_LENGTH, ip, 0),
        step(LOAD_HALF_AFTER_IP_HEADER, ip, 0),
        SockFilter::new(EQUALS as u16, 2, 0, u32::from(port)),
        step(LOAD_HALF_AFTER_IP_HEADER, ip + 2, 0),
        step(EQUALS, u32::from(port), 1),
        step(RETURN, u32::MAX, 0),
        step(RETURN, 0, 0),
    ]
}

/// The same over IPv6.
fn port_filter_v6(layer: LinkLayer, protocol: Protocol, port: u16) -> [SockFilter; 8] {
    use bpf::{EQUALS, LOAD_BYTE, LOAD_HALF, RETURN};
    let ip = layer.header_len() as u32;
    [
        step(LOAD_BYTE, ip + 6, 0),
        step(EQUALS, protocol as u32, 5),
        step(LOAD_HALF, ip + IpVersion::V6.header_bytes(), 0),
        SockFilter::new(EQUALS as u16, 2, 0, u32::from(port)),
        step(LOAD_HALF, ip + IpVersion::V6.header_bytes() + 2, 0),
        step(EQUALS, u32::from(port), 1),
        step(RETURN, u32::MAX, 0),
        step(RETURN, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::os::link_layer::ETHERNET_HEADER;

    /// An Ethernet frame with the beginning of an IPv4 packet.
    fn frame(protocol: i32, header_bytes: usize, ports: [u16; 2]) -> Vec<u8> {
        let mut frame = vec![0; 14 + header_bytes + 20];
        frame[14] = 0x40 | (header_bytes / 4) as u8;
        frame[14 + 9] = protocol as u8;
        frame[14 + header_bytes..][..4].copy_from_slice(&ports.map(u16::to_be_bytes).concat());
        frame
    }

    #[test]
    fn the_filter_accepts_segments_of_its_port_after_headers_of_any_length() {
        for layer in [LinkLayer::Ethernet, LinkLayer::Bare] {
            for protocols in [[Protocol::Tcp, Protocol::Udp], [Protocol::Udp, Protocol::Tcp]] {
                accepts_segments_of_its_port(layer, protocols.map(|protocol| protocol as i32), protocols[0]);
            }
        }
    }

    /// Of two protocols the filter is for the first.
    fn accepts_segments_of_its_port(layer: LinkLayer, [ours, other]: [i32; 2], protocol: Protocol) {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        let receiver = Socket::from(OwnedFd::from(receiver));
        receiver.attach_filter(&port_filter(layer, protocol, 5001)).unwrap();
        let accepted = |frame: &[u8]| accepted(layer, &sender, &receiver, frame);
        for header_bytes in [20, 24, 60] {
            for ports in [[9, 5001], [5001, 9]] {
                let wanted = frame(ours, header_bytes, ports);
                assert_eq!(accepted(&wanted), Some(wanted.len() - ETHERNET_HEADER + layer.header_len()));
                assert_eq!(accepted(&frame(other, header_bytes, ports)), None);
            }
            assert_eq!(accepted(&frame(ours, header_bytes, [5000, 5002])), None);
        }
        assert_eq!(accepted(&frame(ours, 20, [9, 5001])[..30]), None);
    }

    /// Length of what comes through the filter of a socket.
    fn accepted(layer: LinkLayer, sender: &UnixDatagram, receiver: &Socket, frame: &[u8]) -> Option<usize> {
        receiver.set_nonblocking(true).unwrap();
        // A rejected frame fails to be sent, or is not received.
        let _ = sender.send(&frame[ETHERNET_HEADER - layer.header_len()..]);
        rustix::net::recv(receiver, &mut [0u8; 256][..], RecvFlags::empty()).ok().map(|(length, _)| length)
    }

    #[test]
    fn the_filter_of_ipv6_accepts_segments_of_its_port() {
        for layer in [LinkLayer::Ethernet, LinkLayer::Bare] {
            let (sender, receiver) = UnixDatagram::pair().unwrap();
            let receiver = Socket::from(OwnedFd::from(receiver));
            receiver.attach_filter(&port_filter_v6(layer, Protocol::Tcp, 5001)).unwrap();
            let accepted = |protocol: i32, ports: [u16; 2], length: usize| {
                let mut frame = [0; 14 + 40 + 20];
                frame[14] = 0x60;
                frame[14 + 6] = protocol as u8;
                frame[14 + 40..][..4].copy_from_slice(&ports.map(u16::to_be_bytes).concat());
                accepted(layer, &sender, &receiver, &frame[..length])
            };
            for ports in [[9, 5001], [5001, 9]] {
                assert_eq!(accepted(libc::IPPROTO_TCP, ports, 74), Some(60 + layer.header_len()));
                assert_eq!(accepted(libc::IPPROTO_UDP, ports, 74), None);
            }
            assert_eq!(accepted(libc::IPPROTO_TCP, [5000, 5002], 74), None);
            assert_eq!(accepted(libc::IPPROTO_TCP, [9, 5001], 57), None);
        }
    }
}
