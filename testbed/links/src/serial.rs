//! The two ends of a serial line: framing and header compression of one direction.
//!
//! PPP detects lost and damaged frames by its check sequence, and the decompressor then tosses packets that do not name
//! a slot (RFC 1144 4.1). SLIP detects nothing: the decompressor continues with a state that has missed a delta, and
//! headers are wrong (which the TCP checksum shows) until a packet is sent whole.

use backchannel_core::packet::{Packet, TcpFlags};
use backchannel_core::registry::{Entry, When};
use backchannel_core::scenario::LinkSpec;
use backchannel_core::traits::Headers;
use backchannel_core::Error;
use backchannel_core::{choice, options};

use crate::far_end::{Decoder, InFlightPacket};
use crate::framing::{ppp, Framing};
use crate::rfc1144::{Compressed, Compressor, Decompressor, Kind, MOST_SLOTS};

choice! {
    /// How TCP/IP headers are compressed.
    pub(crate) enum HeaderCompression {
        /// Not at all.
        None = "none",
        /// The papers' sizes.
        Sizes = "cslip",
        /// The same for pure acks only, as in the papers' simulator.
        AckSizes = "cslip-acks",
        /// The compressor of RFC 1144.
        Rfc1144 = "rfc1144",
    }
}

choice! {
    /// How packets are framed.
    pub(crate) enum FramingKind {
        /// Not at all.
        None = "none",
        /// RFC 1055.
        Slip = "slip",
        /// RFC 1662.
        Ppp = "ppp",
    }
}

options! {
    /// Options of one direction.
    pub(crate) struct Parameters {
        header_compression: HeaderCompression = "none", [Choice]
            "TCP/IP header compression: rfc1144, real compressor and decompressor; cslip, only the papers' sizes, 34 \
             bytes less per TCP packet (headers of 40 bytes become 6, of 52 become 18); cslip-acks, the same for pure \
             acks only, as in the simulator of asym (1 KB takes 280 ms, 7.1.3)";
        slots: usize = 16, [Count 1 to MOST_SLOTS]
            "rfc1144: number of connections whose last header both ends remember";
        name_every_slot: bool = false, [Flag]
            "rfc1144: send the slot in every packet, one byte more, so that no packet is tossed after an error (RFC \
             1332, 4)";
        framing: FramingKind = "none", [Choice]
            "framing on the link, escapes included; ppp detects and drops damaged frames, slip does not";
        accm: u32 = ppp::DEFAULT_ACCM as f64, [Count 0 to (ppp::DEFAULT_ACCM)]
            "ppp: bit n escapes byte n, which then takes two bytes; most peers negotiate 0 (RFC 1662, 7.1)";
        bits_per_byte: u64 = 8, [Count 8 to 10]
            "bits per byte on the link: 8, or 10 on an asynchronous line with a start and a stop bit";
        free_options: bool = false, [Flag]
            "do not count TCP options in the time on the link, as in the papers' simulator; not with rfc1144";
        device_buffer_bytes: u64 = 0, [Bytes 0 to 1e9]
            "size of the modem's transmit buffer between queue and link, 0 for none; policies cannot reach packets in \
             it; a Courier V.34 has 3.25 KiB (asym 8)";
        clock_tick_s: f64 = 0, [Time 0 to 1]
            "time between two interrupts of the clock of a host that emulates the link, 0 for a clock of any \
             resolution: transmissions and delays are whole numbers of ticks, 10 ms under BSDI (asym 8.1); in \
             simulation";
    }
}

pub(crate) static DIRECTION: Entry =
    Entry::direction("point-to-point", "options of one direction of a point-to-point link")
        .source("asym 4.2.1, 7.1; RFC 1144, 1055, 1332, 1662")
        .random(When::With("framing"))
        .options(Parameters::PARAMS);

/// Name of the option for the clock of a host that emulates the line.
const CLOCK_TICK: &str = "clock_tick_s";

/// What a line cannot do on real packets; `None` if it can do all.
///
/// The audit of captures knows lines that send at their rate.
pub fn simulated_only(spec: &LinkSpec) -> Option<String> {
    let has_clock = [&spec.forward, &spec.reverse].iter().any(|way| way.options.contains_key(CLOCK_TICK));
    has_clock.then(|| format!("link '{}': {CLOCK_TICK} is for simulation only", spec.name))
}

/// Bytes saved per TCP header by the papers' sizes (asym 4.2.1): 40 become 6.
const CSLIP_SAVES: u64 = 34;

/// Header compression of a direction.
enum Compression {
    None,
    /// The papers' sizes.
    Sizes,
    /// The same for pure acks only, as in the papers' simulator.
    AckSizes,
    /// The compressor of RFC 1144.
    Rfc1144(Box<Compressor>),
}

/// The near end of a direction.
pub(crate) struct Transmitter {
    compression: Compression,
    framing: Framing,
    bits_per_byte: u64,
    /// Further bytes per packet.
    extra_bytes: u64,
    /// TCP options take no time on the line.
    free_options: bool,
    headers: Headers,
}

/// A packet in flight on a serial line.
pub(crate) type SentPacket = InFlightPacket<Compressed>;

/// Near and far end of a direction.
pub(crate) type Ends = (Option<Box<Transmitter>>, Option<Box<Receiver>>);

/// Both ends of a direction with `extra_bytes` per packet. `None` for an end that leaves packets unchanged.
pub(crate) fn ends(parameters: &Parameters, extra_bytes: u64) -> Result<Ends, Error> {
    let Parameters { slots, bits_per_byte, free_options, .. } = *parameters;
    if bits_per_byte == 9 {
        return Err("bits_per_byte must be 8 (synchronous line) or 10 (start and stop bit), not 9".into());
    }
    let framing = match parameters.framing {
        FramingKind::Slip => Framing::Slip,
        FramingKind::Ppp => Framing::Ppp { accm: parameters.accm },
        FramingKind::None => Framing::None,
    };
    let rfc1144 = parameters.header_compression == HeaderCompression::Rfc1144;
    if free_options && rfc1144 {
        return Err("free_options and rfc1144 exclude each other, because rfc1144 counts a packet's true bytes".into());
    }
    let compression = match parameters.header_compression {
        HeaderCompression::None => Compression::None,
        HeaderCompression::Sizes => Compression::Sizes,
        HeaderCompression::AckSizes => Compression::AckSizes,
        HeaderCompression::Rfc1144 => {
            let compressor = Compressor::new(slots);
            let named = parameters.name_every_slot;
            Compression::Rfc1144(Box::new(if named { compressor.name_every_slot() } else { compressor }))
        }
    };
    let decompressor = rfc1144.then(|| Decompressor::new(slots));
    let detects_corruption = framing.detects_corruption();
    let receives = decompressor.is_some() || detects_corruption;
    let receiver = Box::new(Receiver { decompressor, detects_corruption, tossed: 0, wrong: 0 });
    let plain =
        matches!(compression, Compression::None) && framing == Framing::None && bits_per_byte == 8 && !free_options;
    let headers = Headers::default();
    let transmitter = Box::new(Transmitter { compression, framing, bits_per_byte, extra_bytes, free_options, headers });
    Ok(((!plain).then_some(transmitter), receives.then_some(receiver)))
}

impl Transmitter {
    /// The bits of a packet on the line, and its form in flight; `idle` if the line was idle until now.
    pub(crate) fn put(&mut self, packet: Packet, idle: bool) -> (u64, SentPacket) {
        let (bytes, compressed) = match &mut self.compression {
            Compression::Rfc1144(compressor) => {
                let compressed = compressor.compress_with_zeros(packet.bytes(), packet.zeros());
                *match compressed.kind {
                    Kind::CompressedTcp => &mut self.headers.compressed,
                    Kind::UncompressedTcp => &mut self.headers.uncompressed,
                    Kind::Ip => &mut self.headers.unmodified,
                } += 1;
                (self.framing.encoded_len(&compressed, packet.zeros(), idle), Some(compressed))
            }
            Compression::None => (framed(self.framing, &packet, idle), None),
            Compression::Sizes => {
                let plain = TcpFlags::SYN | TcpFlags::FIN | TcpFlags::RST;
                // RFC 1144 does not compress segments that open or close a connection.
                let fits = is_ipv4(&packet) && packet.tcp().is_some_and(|tcp| !tcp.flags.any(plain));
                (framed(self.framing, &packet, idle) - if fits { CSLIP_SAVES } else { 0 }, None)
            }
            Compression::AckSizes => {
                let saved = if packet.is_pure_ack() && is_ipv4(&packet) { CSLIP_SAVES } else { 0 };
                (framed(self.framing, &packet, idle) - saved, None)
            }
        };
        // Packets that are not compressed here keep their options.
        let is_compressed = packet.is_pure_ack() && is_ipv4(&packet);
        let is_uncompressed = matches!(self.compression, Compression::AckSizes) && !is_compressed;
        let free = if self.free_options && !is_uncompressed { packet.tcp_options().len() as u64 } else { 0 };
        ((bytes + self.extra_bytes - free) * self.bits_per_byte, InFlightPacket::new(packet, compressed))
    }

    /// Header counts of both ends; `None` without a compressor.
    pub(crate) fn headers(&self, receiver: Option<&Receiver>) -> Option<Headers> {
        matches!(self.compression, Compression::Rfc1144(_)).then(|| Headers {
            tossed: receiver.map_or(0, |receiver| receiver.tossed),
            wrong: receiver.map_or(0, |receiver| receiver.wrong),
            ..self.headers
        })
    }
}

/// RFC 1144 compresses headers of IPv4 only.
fn is_ipv4(packet: &Packet) -> bool {
    packet.bytes().first().is_some_and(|first| first >> 4 == 4)
}

/// Bytes of a packet whose header is not compressed.
fn framed(framing: Framing, packet: &Packet, idle: bool) -> u64 {
    match framing {
        Framing::None => u64::from(packet.len()),
        _ => {
            let uncompressed = Compressed { kind: Kind::Ip, bytes: packet.bytes().to_vec() };
            framing.encoded_len(&uncompressed, packet.zeros(), idle)
        }
    }
}

/// The far end of a direction.
pub(crate) struct Receiver {
    decompressor: Option<Decompressor>,
    detects_corruption: bool,
    tossed: u64,
    wrong: u64,
}

impl Decoder for Receiver {
    type Form = Compressed;

    fn detects_corruption(&self) -> bool {
        self.detects_corruption
    }

    fn miss(&mut self) {
        match &mut self.decompressor {
            Some(decompressor) if self.detects_corruption => decompressor.line_error(),
            _ => {}
        }
    }

    fn receive(&mut self, packet: Packet, form: Option<Compressed>) -> Result<Packet, Packet> {
        let (Some(decompressor), Some(compressed)) = (&mut self.decompressor, form) else { return Ok(packet) };
        match decompressor.decompress_with_zeros(compressed.kind, &compressed.bytes, packet.zeros()) {
            Ok(bytes) if bytes == packet.bytes() => Ok(packet),
            Ok(bytes) => {
                self.wrong += 1;
                let mut wrong = Packet::with_zeros(packet.id, bytes, packet.zeros());
                if let Some(header) = packet.link_header() {
                    wrong.set_link_header(header);
                }
                Ok(wrong)
            }
            Err(_) => {
                self.tossed += 1;
                Err(packet)
            }
        }
    }
}
