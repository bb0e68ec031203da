//! TLS 1.3 (RFC 8446, RFC 9001) by rustls, with ring's ciphers, such that the same seed gives the same bytes.
//!
//! What rustls draws, it draws from the generator of the connection (`session`), key shares of X25519 included. The
//! server signs with Ed25519, whose signatures draw nothing. Its certificate has a fixed key, which is in this file: a
//! testbed's, and it protects nothing.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backchannel_core::{Error, ResultExt};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::crypto::{ClientConfig, ServerConfig};
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret, SupportedKxGroup,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::sign::SigningKey;
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{KeyLog, NamedGroup, PeerMisbehaved, RootCertStore, SignatureScheme};
use x25519_dalek::{x25519, X25519_BASEPOINT_BYTES};

/// Name of the server in its certificate.
pub(crate) const SERVER_NAME: &str = "backchannel";
/// Name of the application protocol, which QUIC requires (RFC 9001 8.1).
const PROTOCOL: &[u8] = b"backchannel";
/// The private key of the server: a test key, known to everybody.
const TEST_KEY: [u8; 32] = *b"backchannel test key: no secret!";
/// An Ed25519 key in PKCS #8 (RFC 8410 7), up to its 32 bytes.
const PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The settings of both ends.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    client: rustls::ClientConfig,
    server: Arc<rustls::ServerConfig>,
}

impl Tls {
    /// `certificate_bytes`: of the server's certificate, up to which it is padded.
    ///
    /// # Errors
    /// The certificate is longer.
    pub(crate) fn new(certificate_bytes: usize) -> Result<Tls, Error> {
        let certificate = certificate(certificate_bytes)?;
        let provider = CryptoProvider { secure_random: &Drawn, kx_groups: vec![&Drawn], ..ring::default_provider() };
        let provider = Arc::new(provider);
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).expect("the certificate is well-formed");
        let mut client = rustls::ClientConfig::builder_with_details(provider.clone(), Arc::new(Fixed))
            .with_protocol_versions(&[&TLS13])
            .expect("ring has TLS 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.resumption = Resumption::disabled();
        let mut server = rustls::ServerConfig::builder_with_details(provider, Arc::new(Fixed))
            .with_protocol_versions(&[&TLS13])
            .expect("ring has TLS 1.3")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], private_key().into())
            .expect("the key is the certificate's");
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        // Nobody resumes a session.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Tls { client, server: Arc::new(server) })
    }

    /// The client's side of a connection; `keys` gets its secrets.
    pub(crate) fn client(&self, keys: Option<Arc<KeyFile>>) -> Arc<dyn ClientConfig> {
        let mut client = self.client.clone();
        if let Some(keys) = keys {
            client.key_log = keys;
        }
        Arc::new(QuicClientConfig::try_from(client).expect("ring has the suite of Initial packets"))
    }

    /// The server's side.
    pub(crate) fn server(&self) -> Arc<dyn ServerConfig> {
        Arc::new(QuicServerConfig::try_from(self.server.clone()).expect("ring has the suite of Initial packets"))
    }
}

/// Draws of the connection whose session computes, as randomness and as key exchange.
#[derive(Debug)]
struct Drawn;

impl SecureRandom for Drawn {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        crate::session::draw(bytes).then_some(()).ok_or(GetRandomFailed)
    }
}

impl SupportedKxGroup for Drawn {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, rustls::Error> {
        let mut secret = [0; 32];
        self.fill(&mut secret)?;
        Ok(Box::new(Exchange { secret, share: x25519(secret, X25519_BASEPOINT_BYTES) }))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

/// One end of a key exchange by X25519 (RFC 7748 6.1).
struct Exchange {
    secret: [u8; 32],
    share: [u8; 32],
}

impl ActiveKeyExchange for Exchange {
    fn complete(self: Box<Exchange>, peer: &[u8]) -> Result<SharedSecret, rustls::Error> {
        let shared = <[u8; 32]>::try_from(peer).ok().map(|peer| x25519(self.secret, peer));
        // All zeros: the peer's share is a point of small order.
        let shared = shared.filter(|shared| *shared != [0; 32]).ok_or(PeerMisbehaved::InvalidKeyShare)?;
        Ok(SharedSecret::from(&shared[..]))
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

/// The time of certificates: within the validity of the only one.
#[derive(Debug)]
struct Fixed;

impl TimeProvider for Fixed {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(946_684_800)))
    }
}

/// The secrets of one connection in NSS's format, which other programs read as `SSLKEYLOGFILE`.
#[derive(Debug)]
pub(crate) struct KeyFile(Mutex<(File, Option<std::io::Error>)>);

impl KeyFile {
    /// Creates the file.
    ///
    /// # Errors
    /// It cannot be created.
    pub(crate) fn create(path: &Path) -> Result<Arc<KeyFile>, Error> {
        let file = File::create(path).or_system(format_args!("cannot create {}", path.display()))?;
        Ok(Arc::new(KeyFile(Mutex::new((file, None)))))
    }

    /// # Errors
    /// A secret could not be written.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let failed = self.0.lock().expect("no thread panics with it").1.take();
        failed.map_or(Ok(()), Err).or_system("cannot write a key log")
    }
}

impl KeyLog for KeyFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let line = format!("{label} {} {}\n", hex(client_random), hex(secret));
        let mut keys = self.0.lock().expect("no thread panics with it");
        if let Err(error) = keys.0.write_all(line.as_bytes()) {
            keys.1.get_or_insert(error);
        }
    }
}

fn private_key() -> PrivatePkcs8KeyDer<'static> {
    [&PKCS8[..], &TEST_KEY].concat().into()
}

/// A self-signed certificate of Ed25519 (RFC 5280, RFC 8410) of so many bytes, or the next fewer that a certificate can
/// have. It is padded by a comment.
///
/// # Errors
/// It has more bytes without a comment.
fn certificate(bytes: usize) -> Result<CertificateDer<'static>, Error> {
    let key = ring::sign::any_eddsa_type(&private_key()).expect("the key is well-formed");
    let least = signed(key.as_ref(), 0).len();
    let comments = (0..=bytes.checked_sub(least).ok_or_else(|| {
        Error::from(format!("certificate_bytes: {bytes}, and with session: tls it is at least {least}"))
    })?)
        .rev();
    let mut padded = comments.map(|comment| signed(key.as_ref(), comment)).skip_while(|padded| padded.len() > bytes);
    Ok(padded.next().expect("without a comment it is short enough").into())
}

fn signed(key: &dyn SigningKey, comment: usize) -> Vec<u8> {
    const ED25519: [u8; 5] = [6, 3, 0x2b, 0x65, 0x70];
    const COMMON_NAME: [u8; 5] = [6, 3, 0x55, 4, 3];
    const SUBJECT_ALTERNATIVE_NAME: [u8; 5] = [6, 3, 0x55, 0x1d, 0x11];
    const NETSCAPE_COMMENT: [u8; 11] = [6, 9, 0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 1, 13];
    let algorithm = der(0x30, &[&ED25519]);
    let name = der(0x30, &[&der(0x31, &[&der(0x30, &[&COMMON_NAME, &der(0x0c, &[b"Backchannel test"])])])]);
    let validity = der(0x30, &[&der(0x17, &[b"700101000000Z"]), &der(0x18, &[b"99991231235959Z"])]);
    let public = key.public_key().expect("ring knows it");
    let alternative = der(4, &[&der(0x30, &[&der(0x82, &[SERVER_NAME.as_bytes()])])]);
    let padding = der(4, &[&der(0x16, &[&vec![b' '; comment]])]);
    let extensions = der(
        0x30,
        &[&der(0x30, &[&SUBJECT_ALTERNATIVE_NAME, &alternative]), &der(0x30, &[&NETSCAPE_COMMENT, &padding])],
    );
    let (version, serial) = (der(0xa0, &[&[2, 1, 2]]), [2, 1, 1]);
    let extensions = der(0xa3, &[&extensions]);
    let content = [&version[..], &serial, &algorithm, &name, &validity, &name, &public, &extensions];
    let content = der(0x30, &content);
    let signer = key.choose_scheme(&[SignatureScheme::ED25519]).expect("it is a key of Ed25519");
    let signature = signer.sign(&content).expect("ring signs with its key");
    der(0x30, &[&content, &algorithm, &der(3, &[&[0], &signature])])
}

/// A value of DER: its tag, its length, and the parts of its content.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|&&byte| byte == 0).count().min(length.len() - 1)..];
    let long = 0x80 | significant.len() as u8;
    let long = if content.len() < 0x80 { &[][..] } else { &[long] };
    [&[tag], long, significant, &content].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_has_the_bytes_that_it_is_asked_for_or_a_few_less() {
        let least = certificate(0).unwrap_err().to_string();
        let least: usize = least.rsplit(' ').next().unwrap().parse().unwrap();
        assert_eq!(certificate(least).unwrap().len(), least);
        for bytes in least..least + 600 {
            let length = certificate(bytes).unwrap().len();
            assert!(length <= bytes && length + 6 > bytes, "{length} of {bytes}");
        }
        assert_eq!(certificate(60_000).unwrap().len(), 60_000);
        assert!(certificate(least - 1).is_err());
    }

    #[test]
    fn a_key_exchange_agrees_and_refuses_a_point_of_small_order() {
        let mut draws = backchannel_core::rng::stream(1, "exchange");
        let start = || Drawn.start().unwrap();
        let (one, other) = crate::session::drawing(&mut draws, || (start(), start()));
        let (shares, other_share) = (one.pub_key().to_vec(), other.pub_key().to_vec());
        assert_ne!(shares, other_share);
        let (one, other) = (one.complete(&other_share).unwrap(), other.complete(&shares).unwrap());
        assert_eq!(one.secret_bytes(), other.secret_bytes());
        let small = crate::session::drawing(&mut draws, start).complete(&[0; 32]);
        assert!(small.is_err());
        assert!(Drawn.start().is_err(), "outside of a session nothing is random");
    }
}
