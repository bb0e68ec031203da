//! A file over one stream of QUIC, by s2n-quic.
//!
//!     s2n-quic-file server ADDRESS PORT     serves www/file, with test-cert.pem and test-key.pem
//!     s2n-quic-file client ADDRESS PORT     fetches it, and prints its bytes
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;

use s2n_quic::client::Connect;
use s2n_quic::provider::tls::rustls;
use s2n_quic::stream::BidirectionalStream;
use s2n_quic::{Client, Server};

type Failure = Box<dyn Error + Send + Sync>;

const CERTIFICATE: &str = "test-cert.pem";
const PROTOCOL: [&[u8]; 1] = [b"hq-interop"];

async fn answer(mut stream: BidirectionalStream) -> Result<(), Failure> {
    while stream.receive().await?.is_some() {}
    stream.send(std::fs::read("www/file")?.into()).await?;
    stream.close().await?;
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<(), Failure> {
    let tls = rustls::Server::builder()
        .with_certificate(Path::new(CERTIFICATE), Path::new("test-key.pem"))?
        .with_application_protocols(PROTOCOL.iter())?
        .build()?;
    let mut server = Server::builder().with_tls(tls)?.with_io(address)?.start()?;
    while let Some(mut connection) = server.accept().await {
        while let Ok(Some(stream)) = connection.accept_bidirectional_stream().await {
            answer(stream).await?;
        }
    }
    Ok(())
}

async fn fetch(address: SocketAddr) -> Result<usize, Failure> {
    let tls = rustls::Client::builder()
        .with_certificate(Path::new(CERTIFICATE))?
        .with_application_protocols(PROTOCOL.iter())?
        .build()?;
    let client = Client::builder().with_tls(tls)?.with_io("0.0.0.0:0")?.start()?;
    let mut connection = client.connect(Connect::new(address).with_server_name("server")).await?;
    let mut stream = connection.open_bidirectional_stream().await?;
    stream.send("GET /file\r\n".into()).await?;
    stream.finish()?;
    let mut size = 0;
    while let Some(chunk) = stream.receive().await? {
        size += chunk.len();
    }
    Ok(size)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().collect();
    let [_, role, address, port] = words.as_slice() else {
        return Err("usage: s2n-quic-file server|client ADDRESS PORT".into());
    };
    let address = SocketAddr::new(address.parse()?, port.parse()?);
    if role == "server" {
        listen(address).await
    } else {
        println!("{}", fetch(address).await?);
        Ok(())
    }
}
