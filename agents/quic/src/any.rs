//! The transports of hosts by the names of their stacks: TCP of the research stack, and QUIC.

use std::path::PathBuf;
use std::sync::Arc;
use std::vec::Drain;

use backchannel_core::event::SenderSample;
use backchannel_core::ip::IpVersion;
use backchannel_core::options::Param;
use backchannel_core::packet::{FlowKey, Packet};
use backchannel_core::registry::Entry;
use backchannel_core::scenario::Options;
use backchannel_core::time::Time;
use backchannel_core::transport::{Chunk, End, Factory, Transport};
use backchannel_core::Error;
use backchannel_stacks::config::{with_controller, BuildController, Config as TcpConfig, Stacks};
use backchannel_stacks::{Content, Counts, Sample, Tcp};

use crate::config::{Config, ENTRY, NAME};
use crate::{Connection, Quic};

/// The stacks that a scenario can name.
#[derive(Clone, Debug)]
pub struct AnyStacks {
    tcp: Stacks,
    quic: &'static Entry,
}

impl AnyStacks {
    /// The stacks of TCP with the controllers of their crate, and QUIC.
    pub fn builtin() -> AnyStacks {
        AnyStacks { tcp: Stacks::builtin(), quic: &ENTRY }
    }

    /// The stacks of TCP.
    pub fn tcp(&self) -> &Stacks {
        &self.tcp
    }

    /// Adds a congestion controller, as a choice of the option `congestion` of every stack, which also has its options.
    ///
    /// # Panics
    /// There is one of that name, or an option of the name of one of its options.
    pub fn add_controller(&mut self, name: &'static str, params: &'static [Param], build: BuildController) {
        self.tcp.add_controller(name, params, build);
        self.quic = Box::leak(Box::new(with_controller(self.quic, name, params)));
    }

    /// The registry entries.
    pub fn entries(&self) -> impl Iterator<Item = &'static Entry> {
        self.tcp.entries().iter().chain([self.quic])
    }

    /// The settings of a named stack with a campaign's options.
    ///
    /// # Errors
    /// There is no such stack, an option is unknown or out of range, or two options exclude each other.
    pub fn config(&self, name: &str, options: &Options) -> Result<AnyConfig, Error> {
        if name == NAME {
            return Config::of(self.quic, &self.tcp, options).map(|config| AnyConfig::Quic(Arc::new(config)));
        }
        let is_known = self.entries().any(|entry| entry.name == name);
        if !is_known {
            return Err(Error::unknown("research stack", name, self.entries().map(|entry| entry.name)));
        }
        self.tcp.config(name, options).map(|config| AnyConfig::Tcp(Arc::new(config)))
    }
}

/// The settings of a stack.
#[derive(Clone, Debug)]
pub enum AnyConfig {
    /// Of TCP.
    Tcp(Arc<TcpConfig>),
    /// Of QUIC.
    Quic(Arc<Config>),
}

impl AnyConfig {
    /// Checks that the largest packet has room for data beside the headers of this version.
    ///
    /// # Errors
    /// It has not.
    pub fn fits(&self, ip: IpVersion) -> Result<(), Error> {
        match self {
            AnyConfig::Tcp(config) => config.fits(ip),
            // The least `packet_bytes` has room over either.
            AnyConfig::Quic(_) => Ok(()),
        }
    }
}

/// Makes the connections of one program.
#[derive(Debug)]
pub enum AnyFactory {
    /// Of TCP.
    Tcp(Tcp),
    /// Of QUIC.
    Quic(Quic),
}

impl AnyFactory {
    /// `initial`: of TCP the initial sequence number of the first connection, of QUIC the seed of what is random.
    pub fn new(config: AnyConfig, content: Content, initial: u32) -> AnyFactory {
        match config {
            AnyConfig::Tcp(config) => AnyFactory::Tcp(Tcp::new(config, content, initial)),
            AnyConfig::Quic(config) => AnyFactory::Quic(Quic::new(config, content, initial.into())),
        }
    }

    /// The same, with qlog files of its QUIC connections. See [`Quic::logging`].
    pub fn logging(self, prefix: PathBuf) -> AnyFactory {
        match self {
            AnyFactory::Tcp(_) => self,
            AnyFactory::Quic(quic) => AnyFactory::Quic(quic.logging(prefix)),
        }
    }

    /// Names of the qlog files that were created since the last call.
    ///
    /// # Errors
    /// One could not be created.
    pub fn take_logs(&mut self) -> Result<Vec<String>, Error> {
        match self {
            AnyFactory::Tcp(_) => Ok(Vec::new()),
            AnyFactory::Quic(quic) => quic.take_logs(),
        }
    }
}

impl Factory for AnyFactory {
    type Connection = AnyConnection;

    fn connect(&mut self, now: Time, flow: FlowKey) -> AnyConnection {
        match self {
            AnyFactory::Tcp(tcp) => AnyConnection::Tcp(tcp.connect(now, flow)),
            AnyFactory::Quic(quic) => AnyConnection::Quic(Box::new(quic.connect(now, flow))),
        }
    }

    fn accept(&mut self, now: Time, flow: FlowKey, packet: &Packet) -> Option<AnyConnection> {
        match self {
            AnyFactory::Tcp(tcp) => tcp.accept(now, flow, packet).map(AnyConnection::Tcp),
            AnyFactory::Quic(quic) => quic.accept(now, flow, packet).map(|it| AnyConnection::Quic(Box::new(it))),
        }
    }
}

/// A connection of a host.
#[allow(clippy::large_enum_variant)] // Most connections are TCP's, which another pointer would slow down.
pub enum AnyConnection {
    /// Of TCP.
    Tcp(backchannel_stacks::Connection),
    /// Of QUIC.
    Quic(Box<Connection>),
}

/// Calls a method of whichever connection it is.
macro_rules! each {
    ($connection:expr, $inner:ident => $call:expr) => {
        match $connection {
            AnyConnection::Tcp($inner) => $call,
            AnyConnection::Quic($inner) => $call,
        }
    };
}

impl AnyConnection {
    /// Bytes of data in a full segment, or of UDP payload in a full packet.
    pub fn mss(&self) -> f64 {
        each!(self, inner => inner.mss())
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        each!(self, inner => inner.counts())
    }

    /// The sender's telemetry since it was last cleared.
    #[inline]
    pub fn samples(&self) -> &[Sample] {
        each!(self, inner => inner.samples())
    }

    /// The sender takes no telemetry from now on, because nobody reads it.
    pub fn ignore_samples(&mut self) {
        each!(self, inner => inner.ignore_samples());
    }

    /// Drops the telemetry so far.
    #[inline]
    pub fn clear_samples(&mut self) {
        each!(self, inner => inner.clear_samples());
    }

    /// The full queue of the host's own interface dropped a packet of this side (4.4BSD: ENOBUFS, then tcp_quench).
    pub fn on_full_interface(&mut self, now: Time) {
        if let AnyConnection::Tcp(tcp) = self {
            tcp.on_full_interface(now);
        }
    }

    /// Whether [`AnyConnection::on_full_interface`] has an effect.
    pub fn heeds_full_interface(&self) -> bool {
        matches!(self, AnyConnection::Tcp(tcp) if tcp.heeds_full_interface())
    }

    /// The flow of the packets that this side sends.
    pub fn flow(&self) -> FlowKey {
        each!(self, inner => inner.flow())
    }

    /// Segments of data that may wait in the queue of the host's own interface; `None`: any number.
    pub fn backpressure_segments(&self) -> Option<u32> {
        match self {
            AnyConnection::Tcp(tcp) => tcp.backpressure_segments(),
            AnyConnection::Quic(_) => None,
        }
    }

    /// Whether data wait in the host, because as many as may do wait in the queue of its interface.
    pub fn hold_data(&mut self, held: bool) {
        if let AnyConnection::Tcp(tcp) = self {
            tcp.hold_data(held);
        }
    }

    /// Whether it is TCP.
    #[inline]
    pub fn is_tcp(&self) -> bool {
        matches!(self, AnyConnection::Tcp(_))
    }

    /// Writes what is buffered of a connection's log.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush_log(&mut self) -> Result<(), Error> {
        match self {
            AnyConnection::Tcp(_) => Ok(()),
            AnyConnection::Quic(quic) => quic.flush_log(),
        }
    }
}

impl Transport for AnyConnection {
    #[inline]
    fn on_packet(&mut self, now: Time, packet: &Packet) {
        each!(self, inner => inner.on_packet(now, packet));
    }

    #[inline]
    fn on_timer(&mut self, now: Time) {
        each!(self, inner => inner.on_timer(now));
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        each!(self, inner => inner.poll_transmit(now))
    }

    #[inline]
    fn next_timeout(&self) -> Option<Time> {
        each!(self, inner => inner.next_timeout())
    }

    fn write(&mut self, bytes: u64) {
        each!(self, inner => inner.write(bytes));
    }

    fn finish(&mut self) {
        each!(self, inner => inner.finish());
    }

    fn abort(&mut self) {
        each!(self, inner => inner.abort());
    }

    #[inline]
    fn read(&mut self) -> Drain<'_, Chunk> {
        each!(self, inner => inner.read())
    }

    #[inline]
    fn peer_finished(&self) -> bool {
        each!(self, inner => inner.peer_finished())
    }

    fn end(&self) -> Option<End> {
        each!(self, inner => inner.end())
    }

    fn acknowledged(&self) -> u64 {
        each!(self, inner => inner.acknowledged())
    }

    fn sample(&mut self, record: &mut dyn FnMut(Time, SenderSample)) {
        each!(self, inner => inner.sample(record));
    }
}
