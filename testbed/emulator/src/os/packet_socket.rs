//! Packet sockets (packet(7)): whole frames of an existing interface.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use libc::c_int;
use rustix::net::{netdevice, sockopt, RecvFlags, SendFlags};
use socket2::{Domain, SockAddr, SockFilter, Socket, Type};

use super::socket_option;

/// Room in the kernel for frames that arrive while the program does not run, and that the interface does not accept yet.
const LINK_BUFFER_BYTES: usize = 1 << 25;
/// The same of a host, which keeps the default send buffer: it waits for a full interface as a kernel's TCP does.
const HOST_BUFFER_BYTES: usize = 1 << 24;

/// What a packet socket receives. None receives what it sends itself.
#[derive(Clone, Copy, Debug)]
pub enum Receive {
    /// Every frame, whatever its destination: the interface is promiscuous.
    Everything,
    /// TCP segments to this port over IPv4, with the time of arrival ([`PacketSocket::receive_stamped`]).
    TcpTo(u16),
}

/// A packet socket that does not block.
pub struct PacketSocket(Socket);

impl PacketSocket {
    /// Opens a socket on an interface of the current network namespace.
    ///
    /// # Errors
    /// `ENODEV`: there is no such interface. `EPERM`: CAP_NET_RAW is needed.
    pub fn open(interface: &str, receive: Receive) -> io::Result<PacketSocket> {
        // Protocol 0 receives nothing until the socket is bound, so no frame of another interface slips in.
        let socket = Socket::new_raw(Domain::PACKET, Type::RAW.nonblocking().cloexec(), None)?;
        let index = netdevice::name_to_index(&socket, interface)? as c_int;
        socket_option::set::<c_int>(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)?;
        let protocol = match receive {
            Receive::Everything => {
                sockopt::set_socket_recv_buffer_size_force(&socket, LINK_BUFFER_BYTES)?;
                sockopt::set_socket_send_buffer_size_force(&socket, LINK_BUFFER_BYTES)?;
                let promiscuous = libc::packet_mreq {
                    mr_ifindex: index,
                    mr_type: libc::PACKET_MR_PROMISC as u16,
                    mr_alen: 0,
                    mr_address: [0; 8],
                };
                socket_option::set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
                libc::ETH_P_ALL
            }
            Receive::TcpTo(port) => {
                sockopt::set_socket_recv_buffer_size_force(&socket, HOST_BUFFER_BYTES)?;
                socket_option::stamp_arrivals(&socket)?;
                socket.attach_filter(&tcp_port_filter(port))?;
                libc::ETH_P_IP
            }
        };
        socket.bind(&link_address(protocol as u16, index)?)?;
        Ok(PacketSocket(socket))
    }

    /// Receives a frame. Returns its length.
    ///
    /// # Errors
    /// `WouldBlock`: there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(&self.0, buffer, RecvFlags::empty())?.0)
    }

    /// Receives a frame and when it arrived, see [`socket_option::receive_stamped`].
    ///
    /// # Errors
    /// `WouldBlock`: there is none.
    pub fn receive_stamped(&self, buffer: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
        socket_option::receive_stamped(&self.0, buffer)
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// `WouldBlock` and `ENOBUFS`: the interface has no room.
    pub fn send(&self, frame: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.0, frame, SendFlags::empty())?)
    }

    /// Frames that the kernel dropped for lack of room since the previous call.
    pub(crate) fn take_drops(&self) -> io::Result<u64> {
        // SAFETY: PACKET_STATISTICS fills a tpacket_stats, two integers.
        let stats: libc::tpacket_stats =
            unsafe { socket_option::get(&self.0, libc::SOL_PACKET, libc::PACKET_STATISTICS)? };
        Ok(u64::from(stats.tp_drops))
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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

/// A filter (BPF) that accepts TCP segments to one port, of Ethernet frames with IPv4. On a host with many endpoints each
/// would otherwise wake up for the frames of all.
fn tcp_port_filter(port: u16) -> [SockFilter; 7] {
    const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const LOAD_IP_HEADER_LENGTH: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
    const LOAD_HALF_AFTER_IP_HEADER: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
    const EQUALS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, k: u32, jf: u8| SockFilter::new(code as u16, 0, jf, k);
    [
        step(LOAD_BYTE, 14 + 9, 0),
        step(EQUALS, libc::IPPROTO_TCP as u32, 4),
        step(LOAD_IP_HEADER_LENGTH, 14, 0),
        step(LOAD_HALF_AFTER_IP_HEADER, 14 + 2, 0),
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

    /// An Ethernet frame with the beginning of an IPv4 packet.
    fn frame(protocol: i32, header_bytes: usize, to_port: u16) -> Vec<u8> {
        let mut frame = vec![0; 14 + header_bytes + 20];
        frame[14] = 0x40 | (header_bytes / 4) as u8;
        frame[14 + 9] = protocol as u8;
        frame[14 + header_bytes + 2..][..2].copy_from_slice(&to_port.to_be_bytes());
        frame
    }

    #[test]
    fn the_filter_accepts_segments_to_its_port_after_headers_of_any_length() {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        let receiver = Socket::from(OwnedFd::from(receiver));
        receiver.attach_filter(&tcp_port_filter(5001)).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let accepted = |frame: &[u8]| {
            // A rejected frame fails to be sent, or is not received.
            let _ = sender.send(frame);
            rustix::net::recv(&receiver, &mut [0u8; 256][..], RecvFlags::empty()).ok().map(|(length, _)| length)
        };
        for header_bytes in [20, 24, 60] {
            let wanted = frame(libc::IPPROTO_TCP, header_bytes, 5001);
            assert_eq!(accepted(&wanted), Some(wanted.len()));
            assert_eq!(accepted(&frame(libc::IPPROTO_TCP, header_bytes, 5002)), None);
            assert_eq!(accepted(&frame(libc::IPPROTO_UDP, header_bytes, 5001)), None);
        }
        assert_eq!(accepted(&frame(libc::IPPROTO_TCP, 20, 5001)[..30]), None);
    }
}
