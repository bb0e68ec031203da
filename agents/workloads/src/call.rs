//! One direction of a voice call: frames of a codec in RTP packets, at equal intervals.

use std::time::Duration;

use backchannel_core::options::CheckedOptions;
use backchannel_core::registry::{Entry, ExchangeKind};
use backchannel_core::Error;
use backchannel_core::{choice, options};

use crate::datagrams::{datagram_header_bytes, Datagrams, RTP_HEADER};
use crate::{Context, Workload};

choice! {
    /// How speech is coded (RFC 3551 4.5).
    enum Codec {
        /// Pulse code modulation.
        G711 = "g711",
        /// CS-ACELP.
        G729 = "g729",
    }
}

impl Codec {
    fn rate_bps(self) -> f64 {
        match self {
            Codec::G711 => 64_000.0,
            Codec::G729 => 8_000.0,
        }
    }
}

options! {
    /// Options of the workload. The jitter buffer is the metrics' (analysis/metrics/calls.py).
    struct Options {
        codec: Codec = "g711", [Choice] "64 kbit/s (g711) or 8 kbit/s (g729)";
        frame_s: f64 = 0.02, [Time 0.01 to 0.2] "speech in one packet (RFC 3551 4.2)";
        buffer_s: f64 = 0.06, [Time 0 to 10]
            "jitter buffer: each frame is played this long after the fastest frame's transit; a later one is lost";
    }
}

pub(crate) static ENTRY: Entry = Entry::workload(
    "call",
    "one direction of a voice call: RTP frames over UDP at equal intervals, played from a jitter buffer",
    ExchangeKind::Packets,
)
.source("RFC 3551 4.5; ITU-T G.107")
.options(Options::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: Context<'_>) -> Result<Box<dyn Workload>, Error> {
    let Options { codec, frame_s, .. } = Options::read(checked);
    let speech = (codec.rate_bps() * frame_s / 8.0).round() as u32;
    let packet_bytes = speech + RTP_HEADER + datagram_header_bytes(context.flow.ip);
    Ok(Box::new(Datagrams { every: Duration::from_secs_f64(frame_s), packet_bytes, is_icmp: false }))
}
