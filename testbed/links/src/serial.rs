//! A serial line's two ends: what a direction's options make of a packet on its way onto the line and off it.
//!
//! The far end learns of a lost or damaged frame where the framing tells: PPP's check sequence does, and the
//! decompressor then tosses what names no slot (RFC 1144 4.1). SLIP tells nothing: the decompressor goes on with a state
//! that has missed a delta, and the TCP checksum shows the receiver that headers are wrong, until a packet comes whole.

use backchannel_core::packet::{Packet, TcpFlags};
use backchannel_core::registry::{Entry, Given, Param, Preset, Unit};
use backchannel_core::traits::Headers;

use crate::far_end::Flying;
use crate::framing::{ppp, Framing};
use crate::rfc1144::{Compressed, Compressor, Decompressor, Kind, MOST_SLOTS};

/// Options of one direction.
pub(crate) static DIRECTION: Entry = Entry {
    kind: "direction",
    name: "point-to-point",
    summary: "options of one direction of a point-to-point line",
    source: "asym 4.2.1, 7.1; RFC 1144, 1055, 1332, 1662",
    params: &[
        Param::new(
            "header_compression",
            Unit::Choice,
            Preset::Text("none"),
            "rfc1144: compressor and decompressor; cslip: the papers' sizes without state, 34 bytes less for each TCP \
             packet (40 bytes of header take 6, 52 take 18); cslip-acks: for pure acks alone, and data at their whole length, as \
             in the asymmetry paper's simulator (1 KB takes 280 ms, 7.1.3)",
        )
        .of(&["none", "cslip", "cslip-acks", "rfc1144"]),
        Param::new("slots", Unit::Count, Preset::Number(16.0), "rfc1144: connections that both ends remember")
            .range(1.0, MOST_SLOTS as f64),
        Param::new(
            "name_every_slot",
            Unit::Flag,
            Preset::Flag(false),
            "rfc1144: a byte more in each packet, and no tossing after an error (RFC 1332 section 4)",
        ),
        Param::new(
            "framing",
            Unit::Choice,
            Preset::Text("none"),
            "what stands around a packet, escapes included; ppp notices damaged frames and drops them, slip does not",
        )
        .of(&["none", "slip", "ppp"]),
        Param::new(
            "accm",
            Unit::Count,
            Preset::Number(ppp::DEFAULT_ACCM as f64),
            "ppp: bit n set: byte n takes two bytes; 0xffffffff until peers agree, most on 0 (RFC 1662 section 7.1)",
        )
        .range(0.0, ppp::DEFAULT_ACCM as f64),
        Param::new(
            "bits_per_byte",
            Unit::Count,
            Preset::Number(8.0),
            "bits that a byte takes on the line: 8, or 10 where each has a start and a stop bit",
        )
        .range(8.0, 10.0),
        Param::new(
            "free_options",
            Unit::Flag,
            Preset::Flag(false),
            "TCP options take no time on the line, as in the papers' simulator, whose packets carry them for nothing",
        ),
        Param::new(
            "device_buffer_bytes",
            Unit::Bytes,
            Preset::Number(0.0),
            "transmit buffer of the line's device, behind the queue and out of its reach: the queue waits from nine tenths full to \
             half empty; a Courier V.34 modem's has 3.25 KiB (asym 8)",
        )
        .range(0.0, 1e9),
    ],
};

/// What RFC 1144 saves on each TCP header, by the papers' sizes (asym 4.2.1): 40 bytes become 6.
const CSLIP_SAVES: u64 = 34;

/// How headers are compressed.
enum Compression {
    None,
    /// The papers' sizes.
    Sizes,
    /// The same for pure acks alone: to the papers' simulator a packet of data is as long as it is.
    AckSizes,
    /// The thing itself.
    Rfc1144(Box<Compressor>),
}

/// The near end of a direction.
pub(crate) struct Transmitter {
    compression: Compression,
    framing: Framing,
    bits_per_byte: u64,
    /// Bytes that go with each packet besides.
    more: u64,
    /// TCP options take no time.
    free_options: bool,
    headers: Headers,
}

/// Near and far end of a direction.
pub(crate) type Ends = (Option<Box<Transmitter>>, Option<Box<Receiver>>);

/// Both ends of a direction, on which `more` bytes go with each packet; none where nothing is done to a packet.
pub(crate) fn ends(given: &Given<'_>, more: u64) -> Result<Ends, String> {
    let whole = |name| given.count(name).expect("it has a default");
    let bits_per_byte = whole("bits_per_byte");
    if bits_per_byte == 9 {
        return Err("bits_per_byte is 8 (a synchronous line) or 10 (a start and a stop bit), not 9".into());
    }
    let framing = match given.text("framing") {
        Some("slip") => Framing::Slip,
        Some("ppp") => Framing::Ppp { accm: whole("accm") as u32 },
        _ => Framing::None,
    };
    let slots = whole("slots") as usize;
    let compressing = given.text("header_compression") == Some("rfc1144");
    let free_options = given.flag("free_options");
    if free_options && compressing {
        return Err("free_options does not go with rfc1144, which counts a packet's true bytes".into());
    }
    let compression = match given.text("header_compression") {
        Some("cslip") => Compression::Sizes,
        Some("cslip-acks") => Compression::AckSizes,
        Some("rfc1144") => {
            let compressor = Compressor::new(slots);
            let named = given.flag("name_every_slot");
            Compression::Rfc1144(Box::new(if named { compressor.name_every_slot() } else { compressor }))
        }
        _ => Compression::None,
    };
    let decompressor = compressing.then(|| Decompressor::new(slots));
    let receives = decompressor.is_some() || framing.notices_damage();
    let receiver = Box::new(Receiver { decompressor, notices_damage: framing.notices_damage(), tossed: 0, wrong: 0 });
    let plain =
        matches!(compression, Compression::None) && framing == Framing::None && bits_per_byte == 8 && !free_options;
    let headers = Headers::default();
    let transmitter = Box::new(Transmitter { compression, framing, bits_per_byte, more, free_options, headers });
    Ok(((!plain).then_some(transmitter), receives.then_some(receiver)))
}

impl Transmitter {
    /// The bits that a packet takes on the line, and what flies; `idle` where nothing was on the line until now.
    pub(crate) fn put(&mut self, packet: Packet, idle: bool) -> (u64, Flying) {
        let (bytes, compressed) = match &mut self.compression {
            Compression::Rfc1144(compressor) => {
                let compressed = compressor.compress_with_zeros(packet.bytes(), packet.zeros());
                *match compressed.kind {
                    Kind::CompressedTcp => &mut self.headers.compressed,
                    Kind::UncompressedTcp => &mut self.headers.uncompressed,
                    Kind::Ip => &mut self.headers.as_they_are,
                } += 1;
                (self.framing.encoded_len(&compressed, packet.zeros(), idle), Some(Box::new(compressed)))
            }
            Compression::None => (framed(self.framing, &packet, idle), None),
            Compression::Sizes => {
                let plain = TcpFlags::SYN | TcpFlags::FIN | TcpFlags::RST;
                // RFC 1144 sends the segments that open or close a connection as they are.
                let fits = packet.tcp().is_some_and(|tcp| !tcp.flags.any(plain));
                (framed(self.framing, &packet, idle) - if fits { CSLIP_SAVES } else { 0 }, None)
            }
            Compression::AckSizes => {
                let saved = if packet.is_pure_ack() { CSLIP_SAVES } else { 0 };
                (framed(self.framing, &packet, idle) - saved, None)
            }
        };
        // Where data have their whole length, options are part of it.
        let whole = matches!(self.compression, Compression::AckSizes) && !packet.is_pure_ack();
        let free = if self.free_options && !whole { packet.tcp_options().len() as u64 } else { 0 };
        ((bytes + self.more - free) * self.bits_per_byte, Flying { packet, compressed })
    }

    /// What became of headers, as both ends count them; `None` where there is no compressor.
    pub(crate) fn headers(&self, receiver: Option<&Receiver>) -> Option<Headers> {
        matches!(self.compression, Compression::Rfc1144(_)).then(|| Headers {
            tossed: receiver.map_or(0, |receiver| receiver.tossed),
            wrong: receiver.map_or(0, |receiver| receiver.wrong),
            ..self.headers
        })
    }
}

/// Bytes of a packet whose header is not compressed.
fn framed(framing: Framing, packet: &Packet, idle: bool) -> u64 {
    match framing {
        Framing::None => u64::from(packet.len()),
        _ => {
            let whole = Compressed { kind: Kind::Ip, bytes: packet.bytes().to_vec() };
            framing.encoded_len(&whole, packet.zeros(), idle)
        }
    }
}

/// The far end of a direction.
pub(crate) struct Receiver {
    decompressor: Option<Decompressor>,
    notices_damage: bool,
    tossed: u64,
    wrong: u64,
}

impl Receiver {
    /// Whether a damaged frame is dropped here.
    pub(crate) fn notices_damage(&self) -> bool {
        self.notices_damage
    }

    /// A frame did not arrive, or not whole.
    pub(crate) fn miss(&mut self) {
        match &mut self.decompressor {
            Some(decompressor) if self.notices_damage => decompressor.line_error(),
            _ => {}
        }
    }

    /// What a frame holds; the packet as it was sent where that cannot be told.
    pub(crate) fn receive(&mut self, flying: Flying) -> Result<Packet, Packet> {
        let Flying { packet, compressed } = flying;
        let (Some(decompressor), Some(compressed)) = (&mut self.decompressor, compressed) else { return Ok(packet) };
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
