//! Requests to network interfaces (netdevice(7), rtnetlink(7)).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use socket2::{Domain, Socket, Type};

const TUNSETIFF: libc::Ioctl = 0x4004_54ca_u32 as libc::Ioctl;

type Value = libc::__c_anonymous_ifr_ifru;

/// Sends a request with an interface's name and a value. Returns the value that the kernel leaves.
fn request(fd: impl AsFd, code: libc::Ioctl, name: &str, value: Value) -> io::Result<Value> {
    let mut request = libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru: value };
    // The last byte stays NUL.
    for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: every request used here takes an ifreq, which is valid for the call.
    match unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), code, &mut request) } {
        0 => Ok(request.ifr_ifru),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bytes of a socket's frames, with the kernel's records, that no driver has sent yet.
pub(crate) fn queued_bytes(socket: impl AsFd) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ, which is TIOCOUTQ, writes one integer.
    match unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &mut bytes) } {
        0 => Ok(usize::try_from(bytes).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A socket of the current network namespace to send requests with.
fn control_socket() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::DGRAM.cloexec(), None)
}

/// Makes an open `/dev/net/tun` a TAP interface with this name (`IFF_TAP`), or a TUN for bare packets (`IFF_TUN`), without
/// packet information.
pub(crate) fn create_tap(tun: impl AsFd, name: &str, kind: libc::c_int) -> io::Result<()> {
    request(tun, TUNSETIFF, name, Value { ifru_flags: (kind | libc::IFF_NO_PI) as i16 }).map(drop)
}

/// Hardware type of an interface (linux/if_arp.h).
pub(crate) fn hardware_type(name: &str) -> io::Result<u16> {
    let value = Value { ifru_ifindex: 0 };
    let value = request(control_socket()?, libc::SIOCGIFHWADDR as libc::Ioctl, name, value)?;
    // SAFETY: SIOCGIFHWADDR fills in the hardware address; every bit pattern of a sockaddr is valid.
    Ok(unsafe { value.ifru_hwaddr.sa_family })
}

/// Sets the length of an interface's transmit queue in packets.
///
/// By rtnetlink(7), because the ioctl SIOCSIFTXQLEN needs rights in the first user namespace. This needs them in that of
/// the network namespace only.
pub(crate) fn set_queue_length(name: &str, packets: u32) -> io::Result<()> {
    let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW.cloexec(), Some(libc::NETLINK_ROUTE.into()))?;
    socket.send(&queue_length_request(name, packets))?;
    let mut answer = [MaybeUninit::uninit(); 512];
    let length = socket.recv(&mut answer)?;
    // SAFETY: the kernel has written this many bytes.
    let answer: Vec<u8> = answer[..length].iter().map(|byte| unsafe { byte.assume_init() }).collect();
    // The kernel acknowledges with an error message: nlmsghdr, then the negative error number, which is 0 without one.
    match answer.get(NLMSG_HEADER..NLMSG_HEADER + 4).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Bytes of `struct nlmsghdr`, and of `struct ifinfomsg` after it.
const NLMSG_HEADER: usize = 16;
const IFINFOMSG: usize = 16;

/// RTM_SETLINK for the interface with this name.
fn queue_length_request(name: &str, packets: u32) -> Vec<u8> {
    // An `ifinfomsg` of zeros: the attribute names the interface.
    let mut body = vec![0; IFINFOMSG];
    for (kind, value) in
        [(libc::IFLA_IFNAME, [name.as_bytes(), b"\0"].concat()), (libc::IFLA_TXQLEN, packets.to_ne_bytes().to_vec())]
    {
        body.extend(((4 + value.len()) as u16).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let mut message = ((NLMSG_HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend(libc::RTM_SETLINK.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]); // number and sender: one request on a socket of its own
    message.extend(body);
    message
}

/// Sets an interface's hardware address.
pub(crate) fn set_mac(name: &str, mac: [u8; 6]) -> io::Result<()> {
    let mut sa_data = [0; 14];
    for (to, from) in sa_data.iter_mut().zip(mac) {
        *to = from as libc::c_char;
    }
    let address = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data };
    request(control_socket()?, libc::SIOCSIFHWADDR as libc::Ioctl, name, Value { ifru_hwaddr: address }).map(drop)
}

/// Sets an interface up.
///
/// # Errors
/// The kernel refuses.
pub fn set_up(name: &str) -> io::Result<()> {
    let flags = Value { ifru_flags: (libc::IFF_UP | libc::IFF_RUNNING) as i16 };
    request(control_socket()?, libc::SIOCSIFFLAGS as libc::Ioctl, name, flags).map(drop)
}
