//! A cryptographic session that does not encrypt. Handshake and packets have the sizes of TLS 1.3 and of its AEADs, the
//! transport parameters are carried, and everything else is in the clear. It draws no random numbers, so that a
//! connection is the same in every run, and it protects nothing: it is for testbeds.
//!
//! The handshake is that of RFC 9001 4.1 in its messages: ClientHello, ServerHello, the server's flight up to its
//! Finished, and the client's Finished.

use std::any::Any;
use std::sync::Arc;

use bytes::BytesMut;
use quinn_proto::crypto::{
    AeadKey, ClientConfig, CryptoError, ExportKeyingMaterialError, HandshakeTokenKey, HeaderKey, HmacKey, KeyPair,
    Keys, PacketKey, ServerConfig, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode};

/// Stands for the tag of an AEAD (RFC 9001 5.3), and shows a packet of another sender.
const TAG: [u8; 16] = *b"null-session-tag";

/// Bytes of the messages, headers of 4 bytes included, without the transport parameters: those of TLS 1.3 with X25519,
/// one certificate with an ECDSA signature, and SHA-256.
const CLIENT_HELLO: usize = 240;
const SERVER_HELLO: usize = 90;
const SERVER_FLIGHT: usize = 150;
const FINISHED: usize = 36;
const HEADER: usize = 4;

/// The session's parameters: both ends of a connection have the same.
pub(crate) struct NullCrypto {
    /// Bytes of the server's certificates.
    pub(crate) certificate_bytes: usize,
}

fn keys() -> Keys {
    Keys {
        header: KeyPair { local: Box::new(NullKey), remote: Box::new(NullKey) },
        packet: KeyPair { local: Box::new(NullKey), remote: Box::new(NullKey) },
    }
}

impl NullCrypto {
    fn session(self: Arc<NullCrypto>, side: Side, params: &TransportParameters) -> Box<dyn Session> {
        let mut parameters = Vec::new();
        params.write(&mut parameters);
        let next = if side.is_client() { Step::SendHello } else { Step::AwaitHello };
        Box::new(NullSession { crypto: self, side, parameters, next, read: Vec::new(), peer: None })
    }
}

impl ClientConfig for NullCrypto {
    fn start_session(
        self: Arc<NullCrypto>,
        _version: u32,
        _server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        Ok(self.session(Side::Client, params))
    }
}

impl ServerConfig for NullCrypto {
    fn initial_keys(&self, _version: u32, _dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        Ok(keys())
    }

    fn retry_tag(&self, _version: u32, _orig_dst_cid: &ConnectionId, _packet: &[u8]) -> [u8; 16] {
        TAG
    }

    fn start_session(self: Arc<NullCrypto>, _version: u32, params: &TransportParameters) -> Box<dyn Session> {
        self.session(Side::Server, params)
    }
}

/// What an end of the handshake does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The client sends its ClientHello.
    SendHello,
    /// Waits for the peer's Hello.
    AwaitHello,
    /// The server sends its ServerHello; the client has received it. Handshake keys follow.
    HaveHello,
    /// The client waits for the server's flight.
    AwaitFlight,
    /// The server sends its flight; the client has received it and sends its Finished. 1-RTT keys follow.
    HaveFlight,
    /// The server waits for the client's Finished.
    AwaitFinished,
    /// The handshake is complete.
    Done,
}

struct NullSession {
    crypto: Arc<NullCrypto>,
    side: Side,
    /// This side's transport parameters.
    parameters: Vec<u8>,
    next: Step,
    /// What has arrived of the peer's current message.
    read: Vec<u8>,
    /// The peer's transport parameters.
    peer: Option<TransportParameters>,
}

impl NullSession {
    /// Appends a message of so many bytes that carries `body`: its length, that of its body, the body, and padding.
    fn message(&self, out: &mut Vec<u8>, bytes: usize, body: &[u8]) {
        let (start, length) = (out.len(), bytes + body.len());
        out.extend((length as u16).to_be_bytes());
        out.extend((body.len() as u16).to_be_bytes());
        out.extend(body);
        out.resize(start + length, 0);
    }

    /// The body of the peer's message, once all of it has arrived.
    fn arrived(&mut self) -> Result<Option<Vec<u8>>, TransportError> {
        let Some(header) = self.read.first_chunk::<HEADER>() else { return Ok(None) };
        let number = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
        let (length, body) = (number(0), number(2));
        if length < HEADER + body {
            return Err(malformed("a handshake message shorter than its body"));
        }
        if self.read.len() < length {
            return Ok(None);
        }
        let message: Vec<u8> = self.read.drain(..length).collect();
        Ok(Some(message[HEADER..HEADER + body].to_vec()))
    }

    /// The peer's transport parameters have arrived.
    fn take_parameters(&mut self, body: &[u8]) -> Result<bool, TransportError> {
        self.peer = Some(TransportParameters::read(self.side, &mut &body[..])?);
        Ok(true)
    }
}

fn malformed(reason: &str) -> TransportError {
    TransportError { code: TransportErrorCode::PROTOCOL_VIOLATION, frame: None, reason: reason.to_owned() }
}

impl Session for NullSession {
    fn initial_keys(&self, _dst_cid: &ConnectionId, _side: Side) -> Keys {
        keys()
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.next != Step::Done
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.read.extend(buf);
        let mut has_parameters = false;
        while let Some(body) = self.arrived()? {
            self.next = match self.next {
                Step::AwaitHello => {
                    if self.side.is_server() {
                        has_parameters |= self.take_parameters(&body)?;
                    }
                    Step::HaveHello
                }
                Step::AwaitFlight => {
                    has_parameters |= self.take_parameters(&body)?;
                    Step::HaveFlight
                }
                Step::AwaitFinished => Step::Done,
                _ => return Err(malformed("a handshake message out of turn")),
            };
        }
        Ok(has_parameters)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        Ok(self.peer)
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        match (self.next, self.side) {
            (Step::SendHello, _) => {
                self.message(buf, CLIENT_HELLO, &self.parameters);
                self.next = Step::AwaitHello;
                None
            }
            (Step::HaveHello, Side::Client) => {
                self.next = Step::AwaitFlight;
                Some(keys())
            }
            (Step::HaveHello, Side::Server) => {
                self.message(buf, SERVER_HELLO, &[]);
                self.next = Step::HaveFlight;
                Some(keys())
            }
            (Step::HaveFlight, Side::Client) => {
                self.message(buf, FINISHED, &[]);
                self.next = Step::Done;
                Some(keys())
            }
            (Step::HaveFlight, Side::Server) => {
                self.message(buf, SERVER_FLIGHT + self.crypto.certificate_bytes, &self.parameters);
                self.next = Step::AwaitFinished;
                Some(keys())
            }
            (Step::AwaitHello | Step::AwaitFlight | Step::AwaitFinished | Step::Done, _) => None,
        }
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        Some(keys().packet)
    }

    fn is_valid_retry(&self, _orig_dst_cid: &ConnectionId, _header: &[u8], payload: &[u8]) -> bool {
        payload.ends_with(&TAG)
    }

    fn export_keying_material(
        &self,
        _output: &mut [u8],
        _label: &[u8],
        _context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

/// Adds and removes the tag.
struct NullKey;

impl PacketKey for NullKey {
    fn encrypt(&self, _packet: u64, buf: &mut [u8], _header_len: usize) {
        let tag_at = buf.len() - TAG.len();
        buf[tag_at..].copy_from_slice(&TAG);
    }

    fn decrypt(&self, _packet: u64, _header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        if !payload.ends_with(&TAG) {
            return Err(CryptoError);
        }
        payload.truncate(payload.len() - TAG.len());
        Ok(())
    }

    fn tag_len(&self) -> usize {
        TAG.len()
    }

    /// No key wears out, so keys are never updated.
    fn confidentiality_limit(&self) -> u64 {
        u64::MAX
    }

    fn integrity_limit(&self) -> u64 {
        u64::MAX
    }
}

impl HeaderKey for NullKey {
    fn decrypt(&self, _pn_offset: usize, _packet: &mut [u8]) {}

    fn encrypt(&self, _pn_offset: usize, _packet: &mut [u8]) {}

    fn sample_size(&self) -> usize {
        16
    }
}

/// Stateless resets and address tokens need keys. Both are fixed.
pub(crate) struct FixedKey;

impl HmacKey for FixedKey {
    /// FNV-1a, from as many offsets as the signature has words: tokens of different connections differ.
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        for (word, number) in signature_out.chunks_mut(8).zip(0u64..) {
            let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            let hash = data.iter().fold(0xcbf2_9ce4_8422_2325 ^ number, fold);
            word.copy_from_slice(&hash.to_be_bytes()[..word.len()]);
        }
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let mut expected = vec![0; self.signature_len()];
        self.sign(data, &mut expected);
        (expected == signature).then_some(()).ok_or(CryptoError)
    }
}

impl HandshakeTokenKey for FixedKey {
    fn aead_from_hkdf(&self, _random_bytes: &[u8]) -> Box<dyn AeadKey> {
        Box::new(FixedKey)
    }
}

impl AeadKey for FixedKey {
    fn seal(&self, data: &mut Vec<u8>, _additional_data: &[u8]) -> Result<(), CryptoError> {
        data.extend(TAG);
        Ok(())
    }

    fn open<'a>(&self, data: &'a mut [u8], _additional_data: &[u8]) -> Result<&'a mut [u8], CryptoError> {
        let length = data.len().checked_sub(TAG.len()).filter(|&at| data[at..] == TAG).ok_or(CryptoError)?;
        Ok(&mut data[..length])
    }
}
