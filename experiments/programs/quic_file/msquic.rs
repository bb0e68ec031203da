//! A file over one stream of QUIC, by MsQuic.
//!
//!     msquic-file server ADDRESS PORT     serves www/file, with test-cert.pem and test-key.pem
//!     msquic-file client ADDRESS PORT     fetches it, and prints its bytes
use std::error::Error;
use std::net::SocketAddr;
use std::ptr::null;
use std::sync::mpsc::channel;

use msquic::{
    Addr, BufferRef, CertificateFile, Configuration, Connection, ConnectionEvent, ConnectionRef, Credential,
    CredentialConfig, CredentialFlags, Listener, ListenerEvent, Registration, RegistrationConfig, SendFlags, Settings,
    Status, Stream, StreamEvent, StreamOpenFlags, StreamRef, StreamStartFlags,
};

/// What the client's callbacks tell is read by `fetch`, which drops the stream and the connection first.
const OUTLIVES: &str = "the receiver is there";

/// What MsQuic sends has to live until it is sent: here until the process ends.
type Outgoing = &'static [BufferRef];

fn outgoing(bytes: Vec<u8>) -> Outgoing {
    Box::leak(Box::new([BufferRef::from(&*bytes.leak())]))
}

/// Sends all that a stream will carry.
fn send(stream: &Stream, bytes: Outgoing) -> Result<(), Status> {
    // SAFETY: the bytes live for ever.
    unsafe { stream.send(bytes, SendFlags::FIN, null()) }
}

fn serve_stream(stream: &StreamRef, event: StreamEvent, file: Outgoing) -> Result<(), Status> {
    match event {
        StreamEvent::PeerSendShutdown => send(stream, file)?,
        // SAFETY: MsQuic has given us this handle with the stream, and it is the stream's last event.
        StreamEvent::ShutdownComplete { .. } => drop(unsafe { Stream::from_raw(stream.as_raw()) }),
        _ => {}
    }
    Ok(())
}

fn serve_connection(connection: &ConnectionRef, event: ConnectionEvent, file: Outgoing) -> Result<(), Status> {
    match event {
        ConnectionEvent::PeerStreamStarted { stream, .. } => {
            stream
                .set_callback_handler(move |stream: StreamRef, event: StreamEvent| serve_stream(&stream, event, file));
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

fn listen(registration: &Registration, protocol: &[BufferRef], address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let certificate = CertificateFile::new("test-key.pem".to_owned(), "test-cert.pem".to_owned());
    let credentials = CredentialConfig::new().set_credential(Credential::CertificateFile(certificate));
    let configuration = configuration(registration, protocol, credentials)?;
    let file = outgoing(std::fs::read("www/file")?);
    let listener = Listener::open(registration, move |_, event| {
        if let ListenerEvent::NewConnection { connection, .. } = event {
            connection.set_callback_handler(move |connection: ConnectionRef, event: ConnectionEvent| {
                serve_connection(&connection, event, file)
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

fn fetch(registration: &Registration, protocol: &[BufferRef], address: SocketAddr) -> Result<usize, Box<dyn Error>> {
    let credentials = CredentialConfig::new_client().set_credential_flags(CredentialFlags::NO_CERTIFICATE_VALIDATION);
    let configuration = configuration(registration, protocol, credentials)?;
    let (tell, told) = channel();
    let tell_size = tell.clone();
    let connection = Connection::open(registration, move |_: ConnectionRef, event: ConnectionEvent| {
        match event {
            ConnectionEvent::Connected { .. } => tell.send(Ok(0)).expect(OUTLIVES),
            ConnectionEvent::ShutdownInitiatedByTransport { status, .. } => tell.send(Err(status)).expect(OUTLIVES),
            _ => {}
        }
        Ok(())
    })?;
    connection.start(&configuration, &address.ip().to_string(), address.port())?;
    told.recv()??;
    let mut size = 0;
    let stream = Stream::open(&connection, StreamOpenFlags::NONE, move |_: StreamRef, event: StreamEvent| {
        match event {
            StreamEvent::Receive { buffers, .. } => {
                size += buffers.iter().map(|part| part.as_bytes().len()).sum::<usize>();
            }
            StreamEvent::PeerSendShutdown => tell_size.send(Ok(size)).expect(OUTLIVES),
            _ => {}
        }
        Ok(())
    })?;
    stream.start(StreamStartFlags::NONE)?;
    send(&stream, outgoing(b"GET /file\r\n".to_vec()))?;
    Ok(told.recv()??)
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
        listen(&registration, &protocol, address)
    } else {
        println!("{}", fetch(&registration, &protocol, address)?);
        Ok(())
    }
}
