//! A file over one stream of QUIC, by quiche.
//!
//!     quiche-file server ADDRESS PORT     serves www/file, with test-cert.pem and test-key.pem
//!     quiche-file client ADDRESS PORT     fetches it, and prints its bytes
use std::error::Error;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use quiche::{Config, Connection, ConnectionId, RecvInfo};

/// The first stream that a client opens.
const STREAM: u64 = 0;
/// Largest packet, in bytes of UDP payload.
const PACKET: usize = 1350;
/// Credit of the stream and the connection, in bytes.
const CREDIT: u64 = 10_000_000;

fn config() -> Result<Config, Box<dyn Error>> {
    let mut config = Config::new(quiche::PROTOCOL_VERSION)?;
    config.set_application_protos(&[b"hq-interop"])?;
    config.set_max_idle_timeout(30_000);
    config.set_max_recv_udp_payload_size(PACKET);
    config.set_max_send_udp_payload_size(PACKET);
    config.set_initial_max_data(CREDIT);
    config.set_initial_max_stream_data_bidi_local(CREDIT);
    config.set_initial_max_stream_data_bidi_remote(CREDIT);
    config.set_initial_max_streams_bidi(1);
    Ok(config)
}

fn random_id() -> Result<ConnectionId<'static>, Box<dyn Error>> {
    let mut bytes = vec![0; quiche::MAX_CONN_ID_LEN];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(ConnectionId::from_vec(bytes))
}

/// Sends what the connection has to send, each packet at the time that its pacer gives.
fn flush(connection: &mut Connection, socket: &UdpSocket) -> Result<(), Box<dyn Error>> {
    let mut packet = [0; PACKET];
    loop {
        match connection.send(&mut packet) {
            Ok((size, info)) => {
                std::thread::sleep(info.at.saturating_duration_since(Instant::now()));
                socket.send_to(&packet[..size], info.to)?;
            }
            Err(quiche::Error::Done) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits for a packet up to the connection's next timeout. `None`: the timeout came first.
fn receive(
    socket: &UdpSocket,
    timeout: Option<Duration>,
    packet: &mut [u8],
) -> Result<Option<(usize, SocketAddr)>, Box<dyn Error>> {
    // A timeout of zero would wait for ever.
    socket.set_read_timeout(timeout.map(|time| time.max(Duration::from_micros(1))))?;
    match socket.recv_from(packet) {
        Ok(received) => Ok(Some(received)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Carries a connection until it is closed. `work` sees it after each packet and timeout. `first` is a packet that has
/// already arrived.
fn carry(
    connection: &mut Connection,
    socket: &UdpSocket,
    first: Option<(Vec<u8>, SocketAddr)>,
    mut work: impl FnMut(&mut Connection) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let to = socket.local_addr()?;
    if let Some((mut packet, from)) = first {
        connection.recv(&mut packet, RecvInfo { from, to })?;
    }
    let mut packet = [0; 65_535];
    while !connection.is_closed() {
        work(connection)?;
        flush(connection, socket)?;
        match receive(socket, connection.timeout(), &mut packet)? {
            // A packet that cannot be read is dropped.
            Some((size, from)) => drop(connection.recv(&mut packet[..size], RecvInfo { from, to })),
            None => connection.on_timeout(),
        }
    }
    Ok(())
}

fn listen(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let socket = UdpSocket::bind(address)?;
    let mut config = config()?;
    config.load_cert_chain_from_pem_file("test-cert.pem")?;
    config.load_priv_key_from_pem_file("test-key.pem")?;
    let file = std::fs::read("www/file")?;
    loop {
        let mut packet = vec![0; 65_535];
        let Some((size, peer)) = receive(&socket, None, &mut packet)? else { continue };
        packet.truncate(size);
        let header = quiche::Header::from_slice(&mut packet, quiche::MAX_CONN_ID_LEN)?;
        if header.ty != quiche::Type::Initial {
            continue;
        }
        let mut connection = quiche::accept(&random_id()?, None, address, peer, &mut config)?;
        let (mut asked, mut sent) = (false, 0);
        carry(&mut connection, &socket, Some((packet, peer)), |connection| {
            let mut request = [0; 1024];
            while let Ok((_, finished)) = connection.stream_recv(STREAM, &mut request) {
                asked |= finished;
            }
            while asked && sent < file.len() {
                match connection.stream_send(STREAM, &file[sent..], true) {
                    Ok(0) | Err(quiche::Error::Done) => break,
                    Ok(more) => sent += more,
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        })?;
    }
}

fn fetch(address: SocketAddr) -> Result<usize, Box<dyn Error>> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // The socket's own address has to be known before its first packet.
    socket.connect(address)?;
    let local = socket.local_addr()?;
    let mut config = config()?;
    config.verify_peer(false);
    let mut connection = quiche::connect(Some("server"), &random_id()?, local, address, &mut config)?;
    let (mut asked, mut size) = (false, 0);
    carry(&mut connection, &socket, None, |connection| {
        if connection.is_established() && !asked {
            connection.stream_send(STREAM, b"GET /file\r\n", true)?;
            asked = true;
        }
        let mut data = [0; 65_535];
        while let Ok((more, finished)) = connection.stream_recv(STREAM, &mut data) {
            size += more;
            if finished {
                connection.close(true, 0, b"")?;
            }
        }
        Ok(())
    })?;
    Ok(size)
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, role, address, port] = words.as_slice() else {
        return Err("usage: quiche-file server|client ADDRESS PORT".into());
    };
    let address = SocketAddr::new(address.parse()?, port.parse()?);
    if role == "server" {
        listen(address)
    } else {
        println!("{}", fetch(address)?);
        Ok(())
    }
}
