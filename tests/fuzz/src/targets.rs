//! What is fed with mutated bytes. A target fails by a panic, or by breaking one of its assertions.

use std::io::Cursor;

use backchannel_core::packet::{Ecn, FlowKey, Packet, Tcp, TcpFlags, TcpOverIpv4};
use backchannel_core::transport::Transport;
use backchannel_core::Time;
use backchannel_links::rfc1144::{Decompressor, Kind};
use backchannel_links::Registry;
use backchannel_stacks::config::{entries, stack_config};
use backchannel_stacks::{Connection, Content, Source};
use backchannel_traces::{Capture, Decoder, Frame, TcpPacket, Tracker};

/// A parser or state machine.
pub struct Target {
    /// Name of the target and of its folder in the corpus.
    pub name: &'static str,
    /// What it reads.
    pub about: &'static str,
    /// Takes one input.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 5] = [
    Target { name: "capture", about: "capture files: pcap, pcapng, headers, connections", run: capture },
    Target { name: "frame", about: "one frame of any link type", run: frame },
    Target { name: "decompressor", about: "frames of RFC 1144", run: decompressor },
    Target { name: "endpoint", about: "segments for an endpoint of any stack", run: endpoint },
    Target { name: "emulator", about: "requests of the emulator, and the links that they describe", run: emulator },
];

fn capture(bytes: &[u8]) {
    let Ok(mut capture) = Capture::new(Box::new(Cursor::new(bytes.to_vec()))) else { return };
    let (mut decoder, mut tracker, mut packet) = (Decoder::default(), Tracker::default(), TcpPacket::default());
    let mut row = 0;
    while let Some(frame) = capture.next() {
        assert!(frame.data.len() <= bytes.len(), "a frame is no longer than its file");
        if decoder.decode(&frame, &mut packet).is_ok() {
            tracker.process(frame.time_ns, &packet, row);
            row += 1;
        }
        assert!(row <= bytes.len() as u64, "no more packets than bytes");
    }
    for index in tracker.remaining() {
        tracker.remove(index);
    }
    assert_eq!(tracker.finished.len() as u64, tracker.count);
    capture.about();
}

/// The first two bytes are the link type, and two more the length on the wire.
fn frame(bytes: &[u8]) {
    let Some((head, data)) = bytes.split_at_checked(4) else { return };
    let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let frame = Frame { time_ns: 0, link_type: number(0), wire_len: u32::from(number(2)), data };
    let (mut decoder, mut packet) = (Decoder::default(), TcpPacket::default());
    for time_ns in [0, 1] {
        if decoder.decode(&Frame { time_ns, ..frame }, &mut packet).is_ok() {
            Tracker::default().process(time_ns, &packet, 0);
        }
    }
}

/// Frames one after the other, each a byte for its kind and one for its length. Of kind 3 is a line error.
fn decompressor(mut bytes: &[u8]) {
    let mut decompressor = Decompressor::new(16);
    while let [kind, length, rest @ ..] = bytes {
        let (frame, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        bytes = rest;
        let kind = match kind % 4 {
            0 => Kind::Ip,
            1 => Kind::UncompressedTcp,
            2 => Kind::CompressedTcp,
            _ => {
                decompressor.line_error();
                continue;
            }
        };
        if let Ok(packet) = decompressor.decompress(kind, frame) {
            assert!(packet.len() <= frame.len() + 120, "headers have at most 120 bytes");
        }
    }
}

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];
/// Initial sequence numbers, just before they wrap.
const INITIAL: u32 = 0xffff_f000;
/// Packets that one step may send: more than the largest window has segments.
const MOST_PACKETS: usize = 100_000;
/// Bytes of one step.
const STEP: usize = 16;

/// The first byte chooses a stack. Each 16 further bytes are a step: a segment whose numbers lie about what the
/// endpoint expects, or time that passes.
fn endpoint(bytes: &[u8]) {
    let Some((&choice, steps)) = bytes.split_first() else { return };
    let stacks = entries();
    let entry = &stacks[usize::from(choice) % stacks.len()];
    let config = stack_config(entry.name, &Default::default()).expect("a stack with its defaults");
    let flow = FlowKey { src: CLIENT.into(), dst: SERVER.into(), src_port: 4000, dst_port: 80 };
    let source = Source::new(Content::Zeros, Some(300_000));
    let mut client = Connection::connect(config, flow, INITIAL, source);
    let mut now = Time::ZERO;
    // What a peer would send next: its own number, and what it has seen of the endpoint's.
    let (mut own, mut seen) = (INITIAL, INITIAL);
    for (number, step) in steps.chunks_exact(STEP).enumerate() {
        let word = |at: usize| u16::from_be_bytes([step[at], step[at + 1]]);
        now = Time(now.nanos() + u64::from(word(0)) * 100_000);
        if client.next_timeout().is_some_and(|at| at <= now) {
            client.on_timer(now);
        }
        let (flags, payload) = (TcpFlags(step[2]), u32::from(step[3]) * 6);
        let near = |base: u32, offset: u16| base.wrapping_add_signed(i32::from(offset as i16));
        let options = &step[8..8 + [0, 4, 8][usize::from(step[3] % 3)]];
        let tcp = Tcp {
            seq: near(own, word(4)),
            ack: near(seen, word(6)),
            flags,
            window: u16::from_le_bytes([step[1], step[0]]),
            payload,
            header: (20 + options.len()) as u8,
            sack_blocks: 0,
            marks: 0,
            urgent: 0,
        };
        let (src, dst) = ((SERVER.into(), 80), (CLIENT.into(), 4000));
        let segment = TcpOverIpv4 { src, dst, tcp, ecn: Ecn::NotCapable, identification: 0, options, data: &[] };
        // Read from bytes, as from a wire.
        client.on_packet(now, &Packet::from_bytes(number as u64, segment.packet(0).to_vec()));
        if word(4) == 0 {
            own = own.wrapping_add(payload + u32::from(flags.0 & 3 != 0));
        }
        for sent in 0.. {
            let Some(packet) = client.poll_transmit(now) else { break };
            assert!(sent < MOST_PACKETS, "{} sends without end", entry.name);
            if let Some(tcp) = packet.tcp() {
                seen = tcp.seq.wrapping_add(tcp.payload + u32::from(tcp.flags.0 & 3 != 0));
            }
        }
        assert!(client.acknowledged() <= 300_000, "{} bytes are acknowledged", client.acknowledged());
        client.read().for_each(drop);
        client.clear_samples();
    }
}

fn emulator(bytes: &[u8]) {
    for line in bytes.split(|&byte| byte == b'\n') {
        let _ = backchannel_emulator::check_request(&Registry::builtin(), line);
    }
}
