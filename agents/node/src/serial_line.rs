//! `serial-line`: compresses the packets of a capture by RFC 1144, writes a capture of PPP that Wireshark reads, and
//! reports sizes. Every packet passes compressor, framing and decompressor, and must come out unchanged.

use std::path::PathBuf;

use backchannel_core::pcap::{LinkType, PcapWriter};
use backchannel_core::traits::Headers;
use backchannel_core::{Error, ResultExt};
use backchannel_links::framing::{ppp, slip, Framing};
use backchannel_links::rfc1144::{Compressed, Compressor, Decompressor, Kind, MOST_SLOTS};
use backchannel_traces::{network_layer, Capture, Frame};
use serde::Serialize;

use crate::reports;

/// Arguments of `serial-line`.
#[derive(clap::Args)]
pub struct Args {
    /// Capture to read, pcap or pcapng
    capture: PathBuf,
    /// Capture of PPP to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Number of connections that both ends remember
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=MOST_SLOTS as i64))]
    slots: u16,
    /// Send the connection's slot with every packet
    #[arg(long)]
    name_every_slot: bool,
}

/// One direction of the line.
struct Direction {
    near: Compressor,
    far: Decompressor,
    report: Report,
}

/// What is printed.
#[derive(Serialize)]
struct Summary {
    from_the_lower_address: Report,
    from_the_higher_address: Report,
    /// Frames without an IPv4 packet.
    other_frames: u64,
    /// What is wrong with the capture file.
    damage: Vec<String>,
}

#[derive(Default, Serialize)]
struct Report {
    packets: u64,
    headers: Headers,
    /// Bytes of the packets, uncompressed.
    bytes: u64,
    /// Bytes of the packets, compressed.
    compressed_bytes: u64,
    /// Compressed and framed, on a line that is never idle.
    slip_bytes: u64,
    ppp_bytes: u64,
    ppp_without_accm_bytes: u64,
}

/// Reads the capture, writes the PPP capture and prints a report as JSON.
pub fn run(args: &Args) -> Result<(), Error> {
    let slots = usize::from(args.slots);
    let direction = || {
        let near = Compressor::new(slots);
        let near = if args.name_every_slot { near.name_every_slot() } else { near };
        Direction { near, far: Decompressor::new(slots), report: Report::default() }
    };
    let mut directions = [direction(), direction()];
    let mut capture = Capture::open(&args.capture)?;
    let writing = format!("cannot write {}", args.out.display());
    let mut out = PcapWriter::create(&args.out, LinkType::PppWithDirection, 1 << 18).or_system(&writing)?;
    let (mut others, mut number) = (0u64, 0u64);
    while let Some(record) = capture.next() {
        number += 1;
        let Some(packet) = ipv4_packet(&record) else {
            others += 1;
            continue;
        };
        let sent = is_from_the_lower(&packet);
        let compressed = directions[usize::from(!sent)]
            .cross(&packet)
            .map_err(|why| why.within(format!("{}: packet {number}", args.capture.display())))?;
        let protocol = ppp::protocol(&compressed).to_be_bytes();
        let frame = [&[u8::from(sent), 0xff, 0x03], &protocol[..], &compressed.bytes].concat();
        out.write(record.time_ns, &frame, 0);
    }
    out.finish().or_system(&writing)?;
    let [from_lower, from_higher] = directions.map(|direction| direction.report);
    let summary = Summary {
        from_the_lower_address: from_lower,
        from_the_higher_address: from_higher,
        other_frames: others,
        damage: capture.damage().iter().map(ToString::to_string).collect(),
    };
    reports::print_pretty(&summary)
}

/// The IPv4 packet of a frame, without Ethernet's padding and with zeros for what the snap length cut off.
fn ipv4_packet(frame: &Frame<'_>) -> Option<Vec<u8>> {
    let bytes = network_layer(frame)?;
    let length = match bytes {
        [first, _, high, low, ..] if first >> 4 == 4 && bytes.len() >= 20 => u16::from_be_bytes([*high, *low]),
        _ => return None,
    };
    let mut packet = bytes.to_vec();
    packet.resize(usize::from(length).max(20), 0);
    Some(packet)
}

/// A line has two ends and a capture may have many hosts: the lower address of a packet is one end.
fn is_from_the_lower(packet: &[u8]) -> bool {
    packet[12..16] < packet[16..20]
}

impl Direction {
    /// Sends a packet across, in both framings.
    fn cross(&mut self, packet: &[u8]) -> Result<Compressed, Error> {
        let compressed = self.near.compress(packet);
        let report = &mut self.report;
        report.packets += 1;
        *match compressed.kind {
            Kind::CompressedTcp => &mut report.headers.compressed,
            Kind::UncompressedTcp => &mut report.headers.uncompressed,
            Kind::Ip => &mut report.headers.unmodified,
        } += 1;
        report.bytes += packet.len() as u64;
        report.compressed_bytes += compressed.bytes.len() as u64;
        let frame = |accm| Framing::Ppp { accm }.encode(&compressed, false);
        let (slipped, mapped, bare) = (Framing::Slip.encode(&compressed, false), frame(ppp::DEFAULT_ACCM), frame(0));
        report.slip_bytes += slipped.len() as u64;
        report.ppp_bytes += mapped.len() as u64;
        report.ppp_without_accm_bytes += bare.len() as u64;
        let out_of_slip = slip::unescape(&slipped[..slipped.len() - 1]).map(slip::untyped);
        let out_of_ppp = ppp::decode(&mapped[..mapped.len() - 1], ppp::DEFAULT_ACCM);
        let same = out_of_slip.as_ref() == Ok(&compressed)
            && out_of_ppp.is_ok_and(|(protocol, bytes)| ppp::packet(protocol, bytes).as_ref() == Some(&compressed));
        if !same || self.far.decompress(compressed.kind, &compressed.bytes).as_deref() != Ok(packet) {
            return Err("internal error: a packet changed; please report it".into());
        }
        Ok(compressed)
    }
}
