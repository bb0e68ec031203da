//! What surrounds a connection's cryptographic session, whichever it is: packets are shown to the log while they are in
//! the clear, and random numbers of a handshake come from the connection's own generator.

use std::any::Any;
use std::cell::Cell;
use std::sync::{Arc, Mutex};

use backchannel_core::rng::{self, RunRng};
use bytes::BytesMut;
use quinn_proto::crypto::{
    self, ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig,
    UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError};

use crate::qlog::PacketLog;

thread_local! {
    /// Generator of the session that computes.
    static DRAWS: Cell<Option<RunRng>> = const { Cell::new(None) };
}

/// Fills `bytes` from the generator of the session that computes. Returns whether one does: nothing else has randomness.
pub(crate) fn draw(bytes: &mut [u8]) -> bool {
    let mut draws = DRAWS.take();
    let is_there = draws.as_mut().map(|draws| rng::fill(draws, bytes)).is_some();
    DRAWS.set(draws);
    is_there
}

/// Lets `compute` draw from a session's generator.
pub(crate) fn drawing<T>(draws: &mut RunRng, compute: impl FnOnce() -> T) -> T {
    DRAWS.set(Some(draws.clone()));
    let result = compute();
    *draws = DRAWS.take().expect("whoever draws puts it back");
    result
}

/// Starts the session of one connection.
pub(crate) struct Starter<S: ?Sized> {
    pub(crate) inner: Arc<S>,
    pub(crate) draws: RunRng,
    /// Sees the packets of the connection.
    pub(crate) log: Option<Arc<Mutex<PacketLog>>>,
}

impl<S: ?Sized> Starter<S> {
    fn session<E>(
        &self,
        start: impl FnOnce() -> Result<Box<dyn crypto::Session>, E>,
    ) -> Result<Box<dyn crypto::Session>, E> {
        let (mut draws, log) = (self.draws.clone(), self.log.clone());
        let inner = drawing(&mut draws, start)?;
        Ok(Box::new(Session { inner, draws, log }))
    }
}

impl ClientConfig for Starter<dyn ClientConfig> {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn crypto::Session>, ConnectError> {
        self.session(|| self.inner.clone().start_session(version, server_name, params))
    }
}

impl ServerConfig for Starter<dyn ServerConfig> {
    fn initial_keys(&self, version: u32, dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.inner.initial_keys(version, dst_cid).map(|keys| shown(&self.log, keys))
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.inner.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, params: &TransportParameters) -> Box<dyn crypto::Session> {
        let started = self.session(|| Ok::<_, ConnectError>(self.inner.clone().start_session(version, params)));
        started.expect("a server's session starts")
    }
}

struct Session {
    inner: Box<dyn crypto::Session>,
    draws: RunRng,
    log: Option<Arc<Mutex<PacketLog>>>,
}

impl crypto::Session for Session {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        shown(&self.log, self.inner.initial_keys(dst_cid, side))
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        let inner = &mut self.inner;
        drawing(&mut self.draws, || inner.read_handshake(buf))
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let inner = &mut self.inner;
        drawing(&mut self.draws, || inner.write_handshake(buf)).map(|keys| shown(&self.log, keys))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.inner.next_1rtt_keys().map(|keys| shown_packets(&self.log, keys))
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

fn shown(log: &Option<Arc<Mutex<PacketLog>>>, keys: Keys) -> Keys {
    Keys { header: keys.header, packet: shown_packets(log, keys.packet) }
}

fn shown_packets(
    log: &Option<Arc<Mutex<PacketLog>>>,
    keys: KeyPair<Box<dyn PacketKey>>,
) -> KeyPair<Box<dyn PacketKey>> {
    let Some(log) = log else { return keys };
    let shown = |inner| Box::new(ShownKey { inner, log: log.clone() });
    KeyPair { local: shown(keys.local), remote: shown(keys.remote) }
}

/// Shows packets to the log before they are encrypted and after they are decrypted.
struct ShownKey {
    inner: Box<dyn PacketKey>,
    log: Arc<Mutex<PacketLog>>,
}

impl ShownKey {
    fn show(&self, is_sent: bool, number: u64, header: &[u8], payload: &[u8]) {
        self.log.lock().expect("no thread panics with it").packet(is_sent, number, header, payload);
    }
}

impl PacketKey for ShownKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let tag_at = buf.len() - self.tag_len();
        self.show(true, packet, &buf[..header_len], &buf[header_len..tag_at]);
        self.inner.encrypt(packet, buf, header_len);
    }

    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        self.inner.decrypt(packet, header, payload)?;
        self.show(false, packet, header, payload);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.inner.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}
