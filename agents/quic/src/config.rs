//! The options of the stack `quic`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backchannel_core::ip::IpVersion;
use backchannel_core::options::{CheckedOptions, OptionValue, ABSENT};
use backchannel_core::registry::{Entry, When};
use backchannel_core::scenario::Options;
use backchannel_core::Error;
use backchannel_core::{choice, options};
use backchannel_stacks::config::{Algorithm, Config as TcpConfig, Stacks, CONGESTION};
use quinn_proto::congestion::{ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::{AckFrequencyConfig, IdleTimeout, TransportConfig, VarInt};

use crate::bridge::BridgeFactory;
use crate::observer::{Observations, ObserverFactory};
use crate::tls::Tls;

/// Name of the stack.
pub const NAME: &str = "quic";

/// Bytes of a UDP header.
const UDP_HEADER: u32 = 8;
/// Ack-eliciting packets after which a receiver answers by itself (RFC 9000 13.2.2).
const PACKETS_PER_ACK: u32 = 2;
/// `max_ack_delay` of RFC 9000 18.2, which quinn-proto has.
pub(crate) const MAX_ACK_DELAY: Duration = Duration::from_millis(25);
/// Longest packet: quinn-proto gives the length in a long header two bytes, which hold 14 bits of it (RFC 9000 16).
const MOST_PACKET: u32 = 1 << 14;
/// Bytes that a sender keeps until they are acknowledged, at least.
const SEND_WINDOW: u64 = 8 << 20;

options! {
    /// The settings of a connection: every option, by its name.
    pub struct Config {
        congestion: ControllerName = "cubic", [Choice]
            "congestion control: cubic, newreno: quinn-proto's own; tcp-cubic, reno and the others: those of this \
             software's TCP";
        packet_bytes: u32 = 1500, [Bytes 1248 to MOST_PACKET]
            "largest packet, headers of IP and UDP included; the path's MTU is not discovered";
        initial_window_segments: u32 = 10, [Segments 1 to 1000]
            "initial congestion window, in largest packets without headers of IP and UDP (RFC 9002 7.2)";
        initial_rtt_s: Duration = 0.333, [Time 0.001 to 10]
            "round-trip time before the first sample, which makes the first timeout (RFC 9002 6.2.2)";
        ecn: bool = true, [Flag] "packets are ECN-capable until validation fails (RFC 9000 13.4.2)";
        ack_every_segments: u32 = 2, [Segments 1 to 1000]
            "ack-eliciting packets an ack stands for; other than 2: the data's sender requests it by ACK_FREQUENCY \
             (draft-ietf-quic-ack-frequency-04)";
        ack_delay_s: Option<Duration> = ABSENT, [Time 0.001 to 10]
            "longest delay of an ack, requested by ACK_FREQUENCY and at most the larger of 25 ms and the round-trip \
             time; absent: 25 ms, the default of RFC 9000 18.2";
        receive_buffer_bytes: u64 = 1_048_576, [Bytes 1200 to 1e9]
            "receive buffer, which bounds the credit of the stream and of the connection";
        idle_timeout_s: Duration = 30, [Time 1 to 3600]
            "time without a packet after which a connection ends (RFC 9000 10.1)";
        certificate_bytes: usize = 2000, [Bytes 0 to 60_000] "certificates in the server's handshake";
        session: SessionKind = ABSENT, [Choice]
            "plain, or absent: handshake and packets have the sizes of TLS 1.3 and are not encrypted; tls: TLS 1.3 \
             with keys that follow from the run's seed, and a key log beside the captures (RFC 9001)";
        + /// The controller of TCP that `congestion` names.
          tcp_controller: Option<Arc<TcpConfig>> = None;
        + /// Both ends' settings of TLS.
          tls: Option<Tls> = None;
    }
}

choice! {
    /// What protects packets.
    pub enum SessionKind {
        /// Nothing.
        Plain = "plain",
        /// TLS 1.3.
        Tls = "tls";
        absent: Plain
    }
}

/// The value of the option `congestion`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerName(String);

/// Controllers of quinn-proto. Its BBR draws from a global generator.
const OF_QUINN: [&str; 2] = ["cubic", "newreno"];
/// CUBIC of this software's TCP.
const TCP_CUBIC: &str = "tcp-cubic";
/// Those of TCP; Tahoe and NewReno differ from Reno in recovery alone, which is QUIC's here.
const OF_TCP: &[&str] = <Algorithm as OptionValue>::CHOICES;
/// DCTCP and Prague count marks, which quinn-proto does not tell a controller.
const LEFT_OUT: [&str; 4] = ["tahoe", "newreno", "dctcp", "prague"];
const CHOICES: [&str; OF_TCP.len() - LEFT_OUT.len() + 2] = choices();

const fn choices() -> [&'static str; OF_TCP.len() - LEFT_OUT.len() + 2] {
    let mut all = [""; OF_TCP.len() - LEFT_OUT.len() + 2];
    (all[0], all[1]) = (OF_QUINN[0], OF_QUINN[1]);
    let (mut from, mut to) = (0, 2);
    while from < OF_TCP.len() {
        let name = OF_TCP[from];
        if !is_left_out(name) {
            all[to] = if is(name, "cubic") { TCP_CUBIC } else { name };
            to += 1;
        }
        from += 1;
    }
    all
}

const fn is_left_out(name: &str) -> bool {
    let mut at = 0;
    while at < LEFT_OUT.len() {
        if is(name, LEFT_OUT[at]) {
            return true;
        }
        at += 1;
    }
    false
}

const fn is(name: &str, other: &str) -> bool {
    let (name, other) = (name.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < name.len() && at < other.len() && name[at] == other[at] {
        at += 1;
    }
    at == name.len() && at == other.len()
}

impl OptionValue for ControllerName {
    const CHOICES: &'static [&'static str] = &CHOICES;

    fn read(checked: &CheckedOptions<'_>, name: &'static str) -> ControllerName {
        ControllerName(checked.text(name).expect("it has a default").to_owned())
    }
}

/// The stack's registry entry.
pub(crate) static ENTRY: Entry = Entry::quic_stack(NAME, "QUIC over UDP by quinn-proto, one stream a connection")
    .source("RFC 9000, 9002")
    // Connection ids, of which packets have the bytes.
    .random(When::Always)
    .options(Config::PARAMS);

impl Config {
    /// Reads a campaign's options; `entry` is that of the stack, and `tcp` has the controllers of TCP.
    ///
    /// # Errors
    /// An option is unknown or out of range.
    pub(crate) fn of(entry: &Entry, tcp: &Stacks, options: &Options) -> Result<Config, Error> {
        let mut config = Config::read(&CheckedOptions::check(entry, options)?);
        let name = config.congestion.0.as_str();
        if !OF_QUINN.contains(&name) {
            let name = if name == TCP_CUBIC { "cubic" } else { name };
            let of_tcp = [
                (CONGESTION.to_owned(), name.into()),
                ("initial_window_segments".to_owned(), config.initial_window_segments.into()),
            ];
            let is_added = |name: &String| tcp.added_params().iter().any(|param| param.name == name);
            let added = options.iter().filter(|(name, _)| is_added(name));
            let of_tcp = of_tcp.into_iter().chain(added.map(|(name, value)| (name.clone(), value.clone())));
            config.tcp_controller = Some(Arc::new(tcp.config("modern", &of_tcp.collect())?));
        }
        if config.session == SessionKind::Tls {
            config.tls = Some(Tls::new(config.certificate_bytes)?);
        }
        Ok(config)
    }

    /// Bytes of UDP payload in the largest packet.
    pub(crate) fn largest_payload(&self, ip: IpVersion) -> u16 {
        (self.packet_bytes - ip.header_bytes() - UDP_HEADER) as u16
    }

    fn controllers(&self, mtu: u16) -> Arc<dyn ControllerFactory + Send + Sync> {
        let initial_window = u64::from(self.initial_window_segments) * u64::from(mtu);
        match &self.tcp_controller {
            Some(config) => Arc::new(BridgeFactory(config.clone())),
            None if self.congestion.0 == OF_QUINN[0] => {
                let mut cubic = CubicConfig::default();
                cubic.initial_window(initial_window);
                Arc::new(cubic)
            }
            None => {
                let mut new_reno = NewRenoConfig::default();
                new_reno.initial_window(initial_window);
                Arc::new(new_reno)
            }
        }
    }

    /// The settings of quinn-proto for a connection.
    pub(crate) fn transport(&self, ip: IpVersion, observations: &Arc<Mutex<Observations>>) -> TransportConfig {
        let mtu = self.largest_payload(ip);
        let window = VarInt::from_u64(self.receive_buffer_bytes).expect("it is at most 1e9");
        let idle = IdleTimeout::try_from(self.idle_timeout_s).expect("it is at most an hour");
        let controllers = ObserverFactory { inner: self.controllers(mtu), observations: observations.clone() };
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(1u8.into())
            .max_concurrent_uni_streams(0u8.into())
            .max_idle_timeout(Some(idle))
            .stream_receive_window(window)
            .receive_window(window)
            .send_window(SEND_WINDOW.max(2 * self.receive_buffer_bytes))
            .initial_rtt(self.initial_rtt_s)
            // The path is the experiment's: probes of its MTU would be packets that no campaign asked for.
            .initial_mtu(mtu)
            .min_mtu(mtu)
            .mtu_discovery_config(None)
            .datagram_receive_buffer_size(None)
            .enable_segmentation_offload(false)
            .congestion_controller_factory(Arc::new(controllers));
        if self.ack_every_segments != PACKETS_PER_ACK || self.ack_delay_s.is_some() {
            let mut frequency = AckFrequencyConfig::default();
            // So many are received without an ack.
            frequency.ack_eliciting_threshold((self.ack_every_segments - 1).into()).max_ack_delay(self.ack_delay_s);
            transport.ack_frequency_config(Some(frequency));
        }
        transport
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(options: serde_json::Value) -> Result<Config, Error> {
        Config::of(&ENTRY, &Stacks::builtin(), &serde_json::from_value(options).unwrap())
    }

    #[test]
    fn a_controller_is_quinns_or_that_of_tcp_with_the_same_initial_window() {
        assert!(CHOICES.iter().all(|name| !name.is_empty()), "{CHOICES:?}");
        for name in CHOICES {
            let config = config(json!({"congestion": name, "initial_window_segments": 7})).unwrap();
            assert_eq!(config.tcp_controller.is_none(), OF_QUINN.contains(&name), "{name}");
            let controller = config.controllers(1000).build(crate::clock::base_instant(), 1000);
            assert_eq!((controller.window(), controller.initial_window()), (7000, 7000), "{name}");
        }
    }

    #[test]
    fn errors_state_what_is_allowed() {
        for (options, words) in [
            (json!({"congestion": "prague"}), "not one of cubic, newreno, reno, tcp-cubic, vegas, ledbat++, bbr, bbr1"),
            (
                json!({"session": "tls", "certificate_bytes": 100}),
                "certificate_bytes: 100, and with session: tls it is",
            ),
            (json!({"packet_bytes": 1200}), "1200 is not between 1248 and 16384"),
            (json!({"sack": true}), "stack quic: unknown option 'sack'; allowed: congestion, packet_bytes"),
        ] {
            let why = config(options).unwrap_err().to_string();
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn the_largest_packet_has_room_for_the_headers_of_either_version_of_ip() {
        let config = config(json!({"packet_bytes": 1248})).unwrap();
        assert_eq!([IpVersion::V4, IpVersion::V6].map(|ip| config.largest_payload(ip)), [1220, 1200]);
    }
}
