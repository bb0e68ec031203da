//! QUIC as a transport among others: it makes the connections of one program.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backchannel_core::ip::IpVersion;
use backchannel_core::packet::{FlowKey, Packet};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;
use backchannel_core::transport::{Factory, Transport};
use backchannel_core::Error;
use backchannel_stacks::{pattern, Content};
use bytes::BytesMut;
use quinn_proto::crypto::{ClientConfig as ClientCrypto, ServerConfig as ServerCrypto};
use quinn_proto::{
    ClientConfig, ConnectionHandle, ConnectionId, ConnectionIdGenerator, DatagramEvent, Endpoint, EndpointConfig,
    NoneTokenStore, ServerConfig, Side, TransportConfig, ValidationTokenConfig,
};

use crate::clock::instant;
use crate::config::Config;
use crate::connection::{codepoint, Connection, Parts};
use crate::content::Source;
use crate::null_crypto::{FixedKey, NullCrypto};
use crate::observer::Observations;
use crate::qlog::PacketLog;
use crate::session::Starter;
use crate::tls::{KeyFile, SERVER_NAME};

/// Bytes of a connection id.
const ID_BYTES: usize = 8;

/// Connections with one configuration, whose applications write bytes of one kind.
#[derive(Debug)]
pub struct Quic {
    config: Arc<Config>,
    content: Content,
    seed: u64,
    /// Connections that were opened and accepted.
    opened: u64,
    /// Prefix of the names of qlog files; `None`: there are none.
    log: Option<PathBuf>,
    /// Names of those files that were created since they were last asked for, and why one was not.
    logs: Vec<String>,
    failed: Option<Error>,
}

impl Quic {
    /// Connection ids and what else is random derive from `seed`, the ports and the number of the connection.
    pub fn new(config: impl Into<Arc<Config>>, content: Content, seed: u64) -> Quic {
        Quic { config: config.into(), content, seed, opened: 0, log: None, logs: Vec::new(), failed: None }
    }

    /// The same, with a qlog file for each connection: `PREFIX-PORT-client.sqlog` or `-server.sqlog`, with the port of
    /// the side that connected.
    pub fn logging(self, prefix: PathBuf) -> Quic {
        Quic { log: Some(prefix), ..self }
    }

    /// Names of the qlog files that were created since the last call.
    ///
    /// # Errors
    /// One could not be created.
    pub fn take_logs(&mut self) -> Result<Vec<String>, Error> {
        self.failed.take().map_or(Ok(std::mem::take(&mut self.logs)), Err)
    }

    fn open_log(&mut self, side: Side, flow: FlowKey) -> Option<Arc<Mutex<PacketLog>>> {
        let (port, name) = match side {
            Side::Client => (flow.src_port, "client"),
            Side::Server => (flow.dst_port, "server"),
        };
        let prefix = self.log.as_ref()?;
        let name = format!("{}-{port}-{name}.sqlog", prefix.file_name().unwrap_or_default().display());
        let log = PacketLog::create(&prefix.with_file_name(&name), side);
        self.logs.push(name);
        log.map_err(|error| self.failed = Some(error)).ok()
    }

    /// The key log of the client's side of a connection, beside its qlog file; servers have the same secrets.
    fn open_keys(&mut self, side: Side, flow: FlowKey) -> Option<Arc<KeyFile>> {
        let prefix = self.log.as_ref().filter(|_| side.is_client() && self.config.tls.is_some())?;
        let name = format!("{}-{}-client.keys", prefix.file_name().unwrap_or_default().display(), flow.src_port);
        let keys = KeyFile::create(&prefix.with_file_name(&name));
        self.logs.push(name);
        keys.map_err(|error| self.failed = Some(error)).ok()
    }

    /// A connection of either side. `open` makes it at an endpoint.
    fn open(
        &mut self,
        now: Time,
        flow: FlowKey,
        side: Side,
        open: impl FnOnce(&mut Endpoint, TransportConfig, Crypto) -> Option<(ConnectionHandle, quinn_proto::Connection)>,
    ) -> Option<Connection> {
        self.opened += 1;
        let ports = u64::from(flow.src_port) << 16 | u64::from(flow.dst_port);
        let seed = self.seed ^ (self.opened << 32 | ports);
        let ip = IpVersion::of(flow.src);
        let mtu = self.config.largest_payload(ip);
        let mut settings = EndpointConfig::new(Arc::new(FixedKey));
        settings.rng_seed(Some(*pattern(seed, 0, 32).first_chunk().expect("it has 32 bytes")));
        settings.cid_generator(move || Box::new(Ids { seed, made: 4 }));
        settings.max_udp_payload_size(mtu).expect("packets have at least 1248 bytes");
        let mut endpoint = Endpoint::new(Arc::new(settings), None, false, None);
        let log = self.open_log(side, flow);
        if let Some(log) = &log {
            log.lock().expect("no thread panics with it").now = now;
        }
        let observations = Observations::new(self.config.initial_rtt_s);
        let transport = self.config.transport(ip, &observations);
        let keys = self.open_keys(side, flow);
        let draws = rng::stream(seed, if side.is_client() { "tls client" } else { "tls server" });
        let crypto = Crypto { config: self.config.clone(), draws, log: log.clone(), keys: keys.clone() };
        let (handle, inner) = open(&mut endpoint, transport, crypto)?;
        let (sends_ecn, source) = (self.config.ecn, Source::new(self.content));
        Some(Connection::new(
            Parts { flow, mtu, sends_ecn, endpoint, handle, inner, source, observations, log, keys },
            now,
        ))
    }
}

/// What a connection's session is started with.
struct Crypto {
    config: Arc<Config>,
    draws: RunRng,
    log: Option<Arc<Mutex<PacketLog>>>,
    keys: Option<Arc<KeyFile>>,
}

impl Crypto {
    fn null(&self) -> Arc<NullCrypto> {
        Arc::new(NullCrypto { certificate_bytes: self.config.certificate_bytes })
    }

    fn client(self) -> Arc<Starter<dyn ClientCrypto>> {
        let inner = match &self.config.tls {
            Some(tls) => tls.client(self.keys.clone()),
            None => self.null(),
        };
        Arc::new(Starter { inner, draws: self.draws, log: self.log })
    }

    fn server(self) -> Arc<Starter<dyn ServerCrypto>> {
        let inner = match &self.config.tls {
            Some(tls) => tls.server(),
            None => self.null(),
        };
        Arc::new(Starter { inner, draws: self.draws, log: self.log })
    }
}

impl Factory for Quic {
    type Connection = Connection;

    fn connect(&mut self, now: Time, flow: FlowKey) -> Connection {
        let first_id = ConnectionId::new(&pattern(self.seed ^ u64::from(flow.src_port), self.opened, ID_BYTES as u64));
        let connection = self.open(now, flow, Side::Client, |endpoint, transport, crypto| {
            let mut client = ClientConfig::new(crypto.client());
            client.transport_config(Arc::new(transport)).token_store(Arc::new(NoneTokenStore));
            client.initial_dst_cid_provider(Arc::new(move || first_id));
            endpoint.connect(instant(now), client, (flow.dst, flow.dst_port).into(), SERVER_NAME).ok()
        });
        connection.expect("a new endpoint has ids left, and the name and the address are valid")
    }

    fn accept(&mut self, now: Time, flow: FlowKey, packet: &Packet) -> Option<Connection> {
        if !packet.checksum_ok() {
            return None;
        }
        let ecn = codepoint(packet.ecn());
        let data = BytesMut::from(packet.payload());
        let mut connection = self.open(now, flow, Side::Server, |endpoint, transport, crypto| {
            let mut server = ServerConfig::new(crypto.server(), Arc::new(FixedKey));
            // Tokens would be for a client's next connection, and no client has one.
            let mut tokens = ValidationTokenConfig::default();
            tokens.sent(0);
            server.transport_config(Arc::new(transport)).validation_token_config(tokens);
            endpoint.set_server_config(Some(Arc::new(server)));
            let (remote, mut answer) = ((flow.dst, flow.dst_port).into(), Vec::new());
            let event = endpoint.handle(instant(now), remote, None, ecn, data, &mut answer);
            let Some(DatagramEvent::NewConnection(incoming)) = event else { return None };
            endpoint.accept(incoming, instant(now), &mut answer, None).ok()
        })?;
        connection.on_timer(now);
        Some(connection)
    }
}

/// Connection ids that follow from a seed.
struct Ids {
    seed: u64,
    made: u64,
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        self.made += 1;
        ConnectionId::new(&pattern(self.seed, self.made * ID_BYTES as u64, ID_BYTES as u64))
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}
