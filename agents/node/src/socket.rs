//! TCP sockets with the options that a run sets, signals, and the kernel's own view of a connection.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{json, Value};

/// Options of a flow's sockets.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Congestion control of the connection, as the kernel names it
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Size of the send buffer (the kernel reserves as much again for itself)
    #[arg(long, value_name = "BYTES")]
    send_buffer_bytes: Option<u32>,
    /// Size of the receive buffer, which bounds the window
    #[arg(long, value_name = "BYTES")]
    receive_buffer_bytes: Option<u32>,
    /// Maximum segment size
    #[arg(long, value_name = "BYTES")]
    mss_bytes: Option<u32>,
}

/// A TCP socket that does not block.
pub struct Socket(OwnedFd);

impl Socket {
    /// A socket with these options.
    pub fn new(options: &Options) -> Result<Socket, String> {
        // SAFETY: plain call; the result is checked before it is owned.
        let fd =
            unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(format!("cannot make a socket: {}", io::Error::last_os_error()));
        }
        // SAFETY: fresh and ours.
        let socket = Socket(unsafe { OwnedFd::from_raw_fd(fd) });
        if let Some(name) = &options.congestion {
            socket.set(libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes()).map_err(|error| {
                let known =
                    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
                format!("this kernel does not give us congestion control '{name}' ({error}); it has: {}", known.trim())
            })?;
        }
        let sizes = [
            ("send buffer", libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, options.send_buffer_bytes),
            ("receive buffer", libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, options.receive_buffer_bytes),
            ("maximum segment size", libc::IPPROTO_TCP, libc::TCP_MAXSEG, options.mss_bytes),
        ];
        for (what, level, name, value) in sizes {
            if let Some(value) = value {
                let set = socket.set(level, name, &(value as libc::c_int).to_ne_bytes());
                set.map_err(|error| format!("cannot set the {what} to {value} bytes: {error}"))?;
            }
        }
        Ok(socket)
    }

    /// Begins to connect; [`Socket::wait`] for writing tells when it is done.
    pub fn connect(&self, to: SocketAddrV4) -> io::Result<()> {
        let address = sockaddr(to);
        // SAFETY: a valid address of the length given.
        match unsafe { libc::connect(self.fd(), (&raw const address).cast(), size_of_val(&address) as u32) } {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Listens.
    pub fn listen(&self, at: SocketAddrV4) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32.to_ne_bytes())?;
        let address = sockaddr(at);
        // SAFETY: a valid address of the length given; plain listen.
        unsafe {
            check(libc::bind(self.fd(), (&raw const address).cast(), size_of_val(&address) as u32))?;
            check(libc::listen(self.fd(), 128))
        }
    }

    /// The next connection.
    pub fn accept(&self) -> io::Result<Socket> {
        // SAFETY: nobody asks for the peer's address; the result is checked before it is owned.
        unsafe {
            let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            let fd = libc::accept4(self.fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags);
            check(fd)?;
            Ok(Socket(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Writes what fits.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: a valid slice.
        let n = unsafe { libc::send(self.fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// Reads what is there; 0 at the end.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: a valid slice.
        let n = unsafe { libc::recv(self.fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// Says that no more will be written.
    pub fn finish_writing(&self) -> io::Result<()> {
        // SAFETY: plain call.
        check(unsafe { libc::shutdown(self.fd(), libc::SHUT_WR) })
    }

    /// Has the close reset the connection, so that nothing of it stays on the line after the run.
    pub fn reset_on_close(&self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let bytes = [linger.l_onoff.to_ne_bytes(), linger.l_linger.to_ne_bytes()].concat();
        // A connection that is gone already needs no reset.
        let _ = self.set(libc::SOL_SOCKET, libc::SO_LINGER, &bytes);
    }

    /// The pending error of the connection, if there is one.
    pub fn error(&self) -> Option<io::Error> {
        let (mut error, mut length) = (0i32, 4);
        // SAFETY: room for an int and its length.
        unsafe { libc::getsockopt(self.fd(), libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut error).cast(), &mut length) };
        (error != 0).then(|| io::Error::from_raw_os_error(error))
    }

    /// Waits until the socket is readable or writable as asked, at most until `until_ns` (CLOCK_MONOTONIC).
    pub fn wait(&self, events: libc::c_short, until_ns: Option<u64>) -> bool {
        let now = backchannel_emulator::monotonic_ns();
        let left = until_ns.map(|until| until.saturating_sub(now));
        let timeout =
            left.map(|ns| libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 });
        let mut watch = libc::pollfd { fd: self.fd(), events, revents: 0 };
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: one valid pollfd, a valid timeout or none.
        unsafe { libc::ppoll(&mut watch, 1, timeout, std::ptr::null()) > 0 }
    }

    /// The kernel's tcp_info, in SI units.
    pub fn info(&self) -> Value {
        // SAFETY: an all-zero tcp_info is a valid one.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut length = size_of_val(&info) as u32;
        // SAFETY: room for a tcp_info and its length.
        let got = unsafe {
            libc::getsockopt(self.fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &mut length)
        };
        if got != 0 {
            return Value::Null;
        }
        json!({
            "cwnd_segments": info.tcpi_snd_cwnd,
            // The kernel's "infinite" start value.
            "ssthresh_segments": (info.tcpi_snd_ssthresh < 0x7fff_ffff).then_some(info.tcpi_snd_ssthresh),
            "rtt_s": f64::from(info.tcpi_rtt) * 1e-6,
            "rttvar_s": f64::from(info.tcpi_rttvar) * 1e-6,
            "rto_s": f64::from(info.tcpi_rto) * 1e-6,
            "mss_bytes": info.tcpi_snd_mss,
            "unacked_segments": info.tcpi_unacked,
            "lost_segments": info.tcpi_lost,
            "retransmitted_segments": info.tcpi_total_retrans,
            "ca_state": info.tcpi_ca_state,
            "backoff": info.tcpi_backoff,
        })
    }

    fn set(&self, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
        // SAFETY: a valid slice.
        check(unsafe { libc::setsockopt(self.fd(), level, name, value.as_ptr().cast(), value.len() as u32) })
    }

    fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

fn sockaddr(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn note_stop(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// Has SIGTERM and SIGINT end the program with its report.
pub fn stop_on_signals() {
    // SAFETY: a handler that only stores to an atomic; no SA_RESTART, so that waits return.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = note_stop as *const () as usize;
        libc::sigaction(libc::SIGTERM, &action, std::ptr::null_mut());
        libc::sigaction(libc::SIGINT, &action, std::ptr::null_mut());
    }
}

/// Whether the program was told to stop.
pub fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Has the kernel stamp each packet that comes, by CLOCK_REALTIME.
pub fn stamp_arrivals(fd: &impl AsRawFd) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Has the kernel pass on the TCP segments to one port alone, of Ethernet frames with IPv4: where a host has many
/// endpoints, each would wake up for the frames of all.
pub fn only_tcp_port(fd: &impl AsRawFd, port: u16) -> io::Result<()> {
    const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const LOAD_IP_HEADER_LENGTH: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
    const LOAD_HALF_BEHIND_IT: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
    const EQUALS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut steps = [
        step(LOAD_BYTE, 14 + 9, 0),
        step(EQUALS, libc::IPPROTO_TCP as u32, 4),
        step(LOAD_IP_HEADER_LENGTH, 14, 0),
        step(LOAD_HALF_BEHIND_IT, 14 + 2, 0),
        step(EQUALS, u32::from(port), 1),
        step(RETURN, u32::MAX, 0),
        step(RETURN, 0, 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let length = size_of_val(&program) as u32;
    // SAFETY: a program of the length given, which the kernel copies.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, (&raw const program).cast(), length)
    })
}

/// Sets a socket's option that is an int.
pub fn set_int(fd: &impl AsRawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: an int of the length given.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), 4) })
}

/// As recv(2): bytes received, and when the kernel had them, in nanoseconds of CLOCK_REALTIME, where it stamps arrivals.
pub fn receive_stamped(fd: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // Words, for the alignment that control messages need.
    let mut control = [0u64; 16];
    // SAFETY: an all-zero msghdr is valid; the pointers it then gets outlive the calls; the kernel filled the control
    // buffer, and the macros walk within its length.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let n = libc::recvmsg(fd.as_raw_fd(), &raw mut message, 0);
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(one) = header.as_ref() {
            if (one.cmsg_level, one.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
                let stamp = libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned();
                return Ok((n as usize, Some(stamp.tv_sec as u64 * 1_000_000_000 + stamp.tv_nsec as u64)));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
        Ok((n as usize, None))
    }
}

/// CLOCK_REALTIME, in nanoseconds.
pub fn realtime_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as u64)
}

/// Sleeps until this instant of CLOCK_MONOTONIC, or until told to stop.
pub fn sleep_until(at_ns: u64) {
    let until = libc::timespec { tv_sec: (at_ns / 1_000_000_000) as i64, tv_nsec: (at_ns % 1_000_000_000) as i64 };
    while !stopped() && backchannel_emulator::monotonic_ns() < at_ns {
        // SAFETY: a valid timespec.
        unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &until, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
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
    fn segments_to_a_port_are_passed_on_whatever_the_header() {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        only_tcp_port(&receiver, 5001).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let passed = |frame: &[u8]| {
            // A frame that is not wanted is refused where it is sent, or is not there to be read.
            let _ = sender.send(frame);
            receiver.recv(&mut [0; 256]).ok()
        };
        for header_bytes in [20, 24, 60] {
            let wanted = frame(libc::IPPROTO_TCP, header_bytes, 5001);
            assert_eq!(passed(&wanted), Some(wanted.len()));
            assert_eq!(passed(&frame(libc::IPPROTO_TCP, header_bytes, 5002)), None);
            assert_eq!(passed(&frame(libc::IPPROTO_UDP, header_bytes, 5001)), None);
        }
        assert_eq!(passed(&frame(libc::IPPROTO_TCP, 20, 5001)[..30]), None);
    }
}
