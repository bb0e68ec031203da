//! TCP sockets of the kernel that do not block, with the options of a flow, and the kernel's own view of a connection.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use backchannel_core::ip::IpVersion;
use backchannel_core::{Error, ResultExt};
use backchannel_emulator::os::socket_option;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::{Domain, Socket, Type};

use crate::reports::TcpInfo;

/// Options of a flow's sockets.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Congestion control of the connection, by the kernel's name, such as cubic; without it, the kernel's default
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Size of the send buffer in bytes; the kernel reserves twice as much. Without it, the kernel tunes the size
    #[arg(long, value_name = "BYTES")]
    send_buffer_bytes: Option<u32>,
    /// Size of the receive buffer in bytes, which limits the window. Without it, the kernel tunes the size
    #[arg(long, value_name = "BYTES")]
    receive_buffer_bytes: Option<u32>,
    /// Maximum segment size in bytes; without it, from the interface's MTU
    #[arg(long, value_name = "BYTES")]
    mss_bytes: Option<u32>,
}

/// A TCP socket.
pub struct TcpSocket(Socket);

impl TcpSocket {
    /// A socket with these options, to use with an address of the same version of IP as `address`.
    ///
    /// # Errors
    /// The kernel refuses an option.
    pub fn new(options: &Options, address: SocketAddr) -> Result<TcpSocket, Error> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)
            .or_system("cannot create a socket")?;
        if let Some(name) = &options.congestion {
            socket.set_tcp_congestion(name.as_bytes()).map_err(|error| {
                let known =
                    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
                let known = known.trim();
                Error::Unfit(format!("the kernel refuses congestion control '{name}' ({error}); it has: {known}"))
            })?;
            require_congestion(&socket, name)?;
        }
        let cannot_set = |what, bytes| format!("cannot set the {what} to {bytes} bytes");
        // Another buffer would be another experiment.
        let exactly = |what, bytes: u32, has: io::Result<usize>, limit| {
            let has = has.or_system(cannot_set(what, bytes))?;
            let cannot = || format!("{}: without root, {limit} allows {has}", cannot_set(what, bytes));
            (has >= bytes as usize).then_some(()).ok_or_else(|| Error::Unfit(cannot()))
        };
        if let Some(bytes) = options.send_buffer_bytes {
            let has = socket_option::set_send_buffer(&socket, bytes as usize);
            exactly("send buffer", bytes, has, "net.core.wmem_max")?;
        }
        if let Some(bytes) = options.receive_buffer_bytes {
            let has = socket_option::set_receive_buffer(&socket, bytes as usize);
            exactly("receive buffer", bytes, has, "net.core.rmem_max")?;
        }
        if let Some(bytes) = options.mss_bytes {
            socket.set_tcp_mss(bytes).or_system(cannot_set("maximum segment size", bytes))?;
        }
        Ok(TcpSocket(socket))
    }

    /// Starts to connect. The socket becomes writable when that is done, see [`TcpSocket::error`].
    pub fn connect(&self, to: SocketAddr) -> io::Result<()> {
        match self.0.connect(&to.into()) {
            Err(error) if Errno::from_io_error(&error) != Some(Errno::INPROGRESS) => Err(error),
            _ => Ok(()),
        }
    }

    /// Listens.
    pub fn listen(&self, at: SocketAddr) -> io::Result<()> {
        self.0.set_reuse_address(true)?;
        self.0.bind(&at.into())?;
        self.0.listen(128)
    }

    /// The next connection.
    pub fn accept(&self) -> io::Result<TcpSocket> {
        let (connection, _) = self.0.accept()?;
        connection.set_nonblocking(true)?;
        Ok(TcpSocket(connection))
    }

    /// Port at this end.
    pub fn local_port(&self) -> io::Result<u16> {
        Ok(self.0.local_addr()?.as_socket().map_or(0, |address| address.port()))
    }

    /// Port at the other end.
    pub fn peer_port(&self) -> io::Result<u16> {
        Ok(self.0.peer_addr()?.as_socket().map_or(0, |address| address.port()))
    }

    /// Writes what fits into the send buffer.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    /// Reads what has arrived; 0 at the end of the stream.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(&self.0, buffer, RecvFlags::empty())?.0)
    }

    /// Closes the sending direction.
    pub fn finish_writing(&self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)
    }

    /// Makes closing reset the connection, so that none of its packets are in the network after the run.
    pub fn reset_on_close(&self) {
        // Fails for a connection that is gone already, which needs no reset.
        let _ = self.0.set_linger(Some(Duration::ZERO));
    }

    /// Removes and returns the pending error of the connection.
    pub fn error(&self) -> Option<io::Error> {
        self.0.take_error().ok().flatten()
    }

    /// Whether the connection still has the congestion control that its options name. Some take another one on the way:
    /// DCTCP becomes Reno where the peer refuses ECN.
    ///
    /// # Errors
    /// It has another one.
    pub fn keeps(&self, options: &Options) -> Result<(), Error> {
        options.congestion.as_deref().map_or(Ok(()), |name| require_congestion(&self.0, name))
    }

    /// The kernel's tcp_info in SI units; `None` if there is none.
    pub fn info(&self) -> Option<TcpInfo> {
        // SAFETY: TCP_INFO fills a tcp_info, which is all integers.
        let info = unsafe { socket_option::get::<libc::tcp_info>(&self.0, libc::IPPROTO_TCP, libc::TCP_INFO) };
        let info = info.ok()?;
        Some(TcpInfo {
            cwnd_segments: info.tcpi_snd_cwnd,
            // The kernel's initial value stands for infinity.
            ssthresh_segments: (info.tcpi_snd_ssthresh < 0x7fff_ffff).then_some(info.tcpi_snd_ssthresh),
            rtt_s: f64::from(info.tcpi_rtt) * 1e-6,
            rttvar_s: f64::from(info.tcpi_rttvar) * 1e-6,
            rto_s: f64::from(info.tcpi_rto) * 1e-6,
            mss_bytes: info.tcpi_snd_mss,
            unacked_segments: info.tcpi_unacked,
            lost_segments: info.tcpi_lost,
            retransmitted_segments: info.tcpi_total_retrans,
            ca_state: info.tcpi_ca_state,
            backoff: info.tcpi_backoff,
        })
    }
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A kernel that takes another congestion control without a word makes all algorithms look alike.
fn require_congestion(socket: &Socket, name: &str) -> Result<(), Error> {
    let used = socket.tcp_congestion().or_system("cannot read the congestion control of a socket")?;
    let used = String::from_utf8_lossy(&used);
    match used.trim_end_matches('\0') {
        used if used == name => Ok(()),
        used => Err(Error::Unfit(format!("the kernel uses congestion control '{used}' instead of '{name}'"))),
    }
}

/// Any free port at any address of the same version of IP as the other end.
pub fn any_port_towards(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Bytes of IP and UDP headers in front of the payload of a packet to this address.
pub fn udp_headers(to: SocketAddr) -> usize {
    IpVersion::of(to.ip()).header_bytes() as usize + 8
}

/// Whether a call that failed should just be repeated.
pub fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
