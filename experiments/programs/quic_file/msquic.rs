//! A file over one stream of QUIC, by MsQuic.
//!
//!     msquic-file server ADDRESS PORT     serves www/file, with test-cert.pem and test-key.pem
//!     msquic-file client ADDRESS PORT     fetches it, and prints its bytes
use std::error::Error;
use std::ffi::c_void;
use std::net::SocketAddr;
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;

use msquic::{
    Addr, BufferRef, CertificateFile, Configuration, Connection, ConnectionEvent, ConnectionRef,
    ConnectionShutdownFlags, Credential, CredentialConfig, CredentialFlags, Listener, ListenerEvent, Registration,
    RegistrationConfig, SendFlags, Settings, Status, Stream, StreamEvent, StreamOpenFlags, StreamRef, StreamStartFlags,
};

/// Bytes that MsQuic sends, and its reference to them, which have to live until they are sent.
struct Outgoing {
    _bytes: Vec<u8>,
    buffers: [BufferRef; 1],
}

/// Sends all that a stream will carry.
fn send(stream: &StreamRef, bytes: Vec<u8>) -> Result<(), Status> {
    let buffers = [BufferRef::from(bytes.as_slice())];
    let outgoing = Box::into_raw(Box::new(Outgoing { _bytes: bytes, buffers }));
    // SAFETY: `sent` frees what was sent when MsQuic is done with it.
    unsafe { stream.send(&(*outgoing).buffers, SendFlags::FIN, outgoing as *const c_void) }
}

/// Frees what was sent.
fn sent(context: *const c_void) {
    // SAFETY: `send` gave it to MsQuic, which returns it once.
    drop(unsafe { Box::from_raw(context as *mut Outgoing) });
}

fn serve_stream(stream: &StreamRef, event: StreamEvent) -> Result<(), Status> {
    match event {
        StreamEvent::PeerSendShutdown => send(stream, std::fs::read("www/file").expect("www/file can be read"))?,
        StreamEvent::SendComplete { client_context, .. } => sent(client_context),
        // SAFETY: MsQuic has given us this handle with the stream, and it is the stream's last event.
        StreamEvent::ShutdownComplete { .. } => drop(unsafe { Stream::from_raw(stream.as_raw()) }),
        _ => {}
    }
    Ok(())
}

fn serve_connection(connection: &ConnectionRef, event: ConnectionEvent) -> Result<(), Status> {
    match event {
        ConnectionEvent::PeerStreamStarted { stream, .. } => {
            stream.set_callback_handler(|stream: StreamRef, event: StreamEvent| serve_stream(&stream, event));
        }
        // SAFETY: MsQuic has given us this handle with the connection, and it is the connection's last event.
        ConnectionEvent::ShutdownComplete { .. } => drop(unsafe { Connection::from_raw(connection.as_raw()) }),
        _ => {}
    }
    Ok(())
}

fn configuration(
    registration: &Registration,
    protocol: &[BufferRef],
    credentials: CredentialConfig,
) -> Result<Configuration, Status> {
    let settings = Settings::new().set_PeerBidiStreamCount(1).set_IdleTimeoutMs(30_000);
    let configuration = Configuration::open(registration, protocol, Some(&settings))?;
    configuration.load_credential(&credentials)?;
    Ok(configuration)
}

fn listen(registration: &Registration, protocol: &[BufferRef], address: SocketAddr) -> Result<(), Status> {
    let certificate = CertificateFile::new("test-key.pem".to_owned(), "test-cert.pem".to_owned());
    let credentials = CredentialConfig::new().set_credential(Credential::CertificateFile(certificate));
    let configuration = Arc::new(configuration(registration, protocol, credentials)?);
    let listener = Listener::open(registration, move |_, event| {
        if let ListenerEvent::NewConnection { connection, .. } = event {
            connection.set_callback_handler(|connection: ConnectionRef, event: ConnectionEvent| {
                serve_connection(&connection, event)
            });
            connection.set_configuration(&configuration)?;
        }
        Ok(())
    })?;
    listener.start(protocol, Some(&Addr::from(address)))?;
    loop {
        std::thread::park();
    }
}

/// Opens the stream of a connection that has been established.
fn ask(connection: &ConnectionRef, done: Sender<usize>) -> Result<(), Status> {
    let mut size = 0;
    let stream = Stream::open(connection, StreamOpenFlags::NONE, move |stream: StreamRef, event: StreamEvent| {
        match event {
            StreamEvent::Receive { buffers, .. } => {
                size += buffers.iter().map(|part| part.as_bytes().len()).sum::<usize>()
            }
            StreamEvent::SendComplete { client_context, .. } => sent(client_context),
            StreamEvent::PeerSendShutdown => done.send(size).expect("main waits"),
            // SAFETY: `ask` has left the handle to this closure, and it is the stream's last event.
            StreamEvent::ShutdownComplete { .. } => drop(unsafe { Stream::from_raw(stream.as_raw()) }),
            _ => {}
        }
        Ok(())
    })?;
    stream.start(StreamStartFlags::NONE)?;
    send(&stream, b"GET /file\r\n".to_vec())?;
    // SAFETY: the closure above closes it.
    unsafe { stream.into_raw() };
    Ok(())
}

fn fetch(registration: &Registration, protocol: &[BufferRef], address: SocketAddr) -> Result<usize, Box<dyn Error>> {
    let credentials = CredentialConfig::new_client().set_credential_flags(CredentialFlags::NO_CERTIFICATE_VALIDATION);
    let configuration = configuration(registration, protocol, credentials)?;
    let (done, finished) = channel();
    let connection =
        Connection::open(registration, move |connection: ConnectionRef, event: ConnectionEvent| match event {
            ConnectionEvent::Connected { .. } => ask(&connection, done.clone()),
            _ => Ok(()),
        })?;
    connection.start(&configuration, &address.ip().to_string(), address.port())?;
    let size = finished.recv()?;
    connection.shutdown(ConnectionShutdownFlags::NONE, 0);
    Ok(size)
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, role, address, port] = words.as_slice() else {
        return Err("usage: msquic-file server|client ADDRESS PORT".into());
    };
    let address = SocketAddr::new(address.parse()?, port.parse()?);
    let registration = Registration::new(&RegistrationConfig::default())?;
    let protocol = [BufferRef::from("hq-interop")];
    if role == "server" {
        Ok(listen(&registration, &protocol, address)?)
    } else {
        println!("{}", fetch(&registration, &protocol, address)?);
        Ok(())
    }
}
