//! The declared link: how long each packet takes, and what of it can be computed from headers.

use backchannel_core::scenario::{DirectionSpec, LinkSpec, Options};

use backchannel_core::ip::IpVersion;
use backchannel_core::registry::Disorder;

use crate::mechanisms::Mechanisms;
use crate::records::{Record, Unchecked};

/// Bytes that header compression saves per TCP header (asym 4.2.1): 40 become 6.
const CSLIP_SAVES: u32 = 34;

/// Why no check of a link is possible.
pub(crate) fn why_not_audited(link: &LinkSpec) -> Option<Unchecked> {
    let why = if link.ends.len() != 2 {
        "several stations share the medium"
    } else if !link.middleboxes.is_empty() {
        "its middlebox creates and absorbs packets"
    } else if link.kind == "kernel" {
        "a kernel shapes it and reports no drops"
    } else {
        return None;
    };
    Some(Unchecked(why.into()))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Compression {
    None,
    Sizes,
    AckSizes,
}

/// One direction of a point-to-point link.
#[derive(Clone, Debug)]
pub(crate) struct LinkModel {
    /// `None`: the link only delays.
    pub(crate) rate_bps: Option<u64>,
    pub(crate) delay_ns: i64,
    framing_bytes: u32,
    compression: Compression,
    bits_per_byte: u64,
    free_options: bool,
    /// Packets leave in the order in which they entered.
    pub(crate) is_fifo: bool,
}

/// What the size of a packet on the link depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) bytes: u32,
    pub(crate) compressible: bool,
    pub(crate) compressible_ack: bool,
    pub(crate) options_bytes: u32,
}

impl From<&Record> for Size {
    fn from(record: &Record) -> Size {
        let (tcp, is_v4) = (record.tcp, record.key.ip() == IpVersion::V4);
        Size {
            bytes: record.bytes,
            // RFC 1144 compresses headers of IPv4 only.
            compressible: is_v4 && tcp.is_some_and(|tcp| !tcp.opens_or_closes),
            compressible_ack: is_v4 && tcp.is_some_and(|tcp| tcp.pure_ack),
            options_bytes: tcp.map_or(0, |tcp| tcp.options_bytes),
        }
    }
}

fn text<'a>(options: &'a Options, name: &str) -> &'a str {
    options.get(name).and_then(|value| value.as_str()).unwrap_or("none")
}

fn number(options: &Options, name: &str, default: f64) -> f64 {
    options.get(name).and_then(|value| value.as_f64()).unwrap_or(default)
}

fn flag(options: &Options, name: &str) -> bool {
    options.get(name).and_then(|value| value.as_bool()).unwrap_or(false)
}

impl LinkModel {
    /// The direction as declared. The error says why its service times cannot be computed.
    pub(crate) fn declared(
        link: &LinkSpec,
        spec: &DirectionSpec,
        mechanisms: Mechanisms<'_>,
    ) -> Result<LinkModel, Unchecked> {
        if link.kind != "point-to-point" {
            return Err(Unchecked(format!("the service time of a link of kind {} is not computed", link.kind)));
        }
        if !spec.schedule.is_empty() {
            return Err(Unchecked("a schedule changes the link".into()));
        }
        if let Some(model) = spec.errors.iter().find(|model| mechanisms.disorder(model) != Disorder::None) {
            return Err(Unchecked(format!("the error model {} changes the order of packets", model.name)));
        }
        let framing = text(&spec.options, "framing");
        if framing != "none" {
            return Err(Unchecked(format!("the escapes of {framing} depend on bytes that are not captured")));
        }
        let compression = match text(&spec.options, "header_compression") {
            "none" => Compression::None,
            "cslip" => Compression::Sizes,
            "cslip-acks" => Compression::AckSizes,
            other => return Err(Unchecked(format!("the sizes of headers compressed by {other} are not computed"))),
        };
        let free_options = flag(&spec.options, "free_options");
        if !spec.errors.is_empty() && (free_options || compression == Compression::Sizes) {
            return Err(Unchecked("the size on the link of a packet that an error model lost is unknown".into()));
        }
        if mechanisms.holds_back(&spec.queue) {
            return Err(Unchecked("the queue holds packets back while the link is idle".into()));
        }
        Ok(LinkModel {
            rate_bps: spec.rate_bps,
            delay_ns: (spec.delay_s * 1e9).round() as i64,
            framing_bytes: number(&link.options, "framing_bytes", 0.0) as u32,
            compression,
            bits_per_byte: number(&spec.options, "bits_per_byte", 8.0) as u64,
            free_options,
            is_fifo: mechanisms.keeps_order(&spec.queue),
        })
    }

    /// Time of a packet on the link in nanoseconds.
    pub(crate) fn service_ns(&self, size: Size) -> i64 {
        let Some(rate_bps) = self.rate_bps else { return 0 };
        let mut bytes = size.bytes + self.framing_bytes;
        let compressed = match self.compression {
            Compression::None => false,
            Compression::Sizes => size.compressible,
            Compression::AckSizes => size.compressible_ack,
        };
        if compressed {
            bytes -= CSLIP_SAVES;
        }
        // A packet that compression of acks leaves alone is sent with its options.
        if self.free_options && (self.compression != Compression::AckSizes || size.compressible_ack) {
            bytes -= size.options_bytes;
        }
        let bits = u128::from(bytes) * u128::from(self.bits_per_byte);
        (bits * 1_000_000_000).div_ceil(u128::from(rate_bps)) as i64
    }
}
