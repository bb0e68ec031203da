//! Random streams of packets over a line that loses nothing, and over one that does.

use super::*;
use crate::rfc1144::header::word;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::cell::Cell;

/// What a step of a stream does to its connection.
#[derive(Clone, Debug)]
enum Step {
    /// Data after data.
    Data(usize),
    /// The other end's data are acked.
    Ack(u16),
    /// Both: an echo.
    Echo(usize),
    Window(u16),
    Urgent(u16),
    UrgentWithoutFlag(u16),
    Again,
    Back(u16),
    Flags(u8),
    Reserved(u8),
    Timestamps(u8),
    Sack(u8),
    Tos(u8),
    Ttl(u8),
    IpOptions(u8),
    Fragment(u16),
    Jump(u32, u32),
}

fn any_step() -> impl Strategy<Value = Step> {
    use Step::*;
    prop_oneof![
        8 => prop_oneof![Just(0usize), Just(1), 1usize..300].prop_map(Data),
        8 => prop_oneof![0u16..600, any::<u16>()].prop_map(Ack),
        4 => (0usize..30).prop_map(Echo),
        3 => any::<u16>().prop_map(Window),
        2 => any::<u16>().prop_map(Urgent),
        1 => any::<u16>().prop_map(UrgentWithoutFlag),
        2 => Just(Again),
        2 => any::<u16>().prop_map(Back),
        2 => any::<u8>().prop_map(Flags),
        1 => (0u8..16).prop_map(Reserved),
        2 => any::<u8>().prop_map(Timestamps),
        1 => any::<u8>().prop_map(Sack),
        1 => any::<u8>().prop_map(Tos),
        1 => (0u8..4).prop_map(Ttl),
        1 => any::<u8>().prop_map(IpOptions),
        1 => prop_oneof![Just(0u16), Just(0x2000), any::<u16>()].prop_map(Fragment),
        1 => (any::<u32>(), any::<u32>()).prop_map(|(seq, ack)| Jump(seq, ack)),
    ]
}

type Choice = (u8, Step, bool, u16);

fn any_choice(connections: u8) -> impl Strategy<Value = Choice> {
    let id = prop_oneof![6 => Just(1u16), 1 => Just(0), 1 => 0u16..300, 1 => any::<u16>()];
    (0..connections, any_step(), any::<bool>(), id)
}

/// The packets of a stream.
fn stream(choices: &[Choice]) -> Vec<Sent> {
    let mut now: Vec<Sent> = (0..=255).map(Sent::new).collect();
    let mut all = Vec::new();
    for (connection, step, push, id) in choices {
        let state = &mut now[usize::from(*connection)];
        state.id = state.id.wrapping_add(*id);
        state.flags &= !(TcpFlags::PSH | TcpFlags::URG | TcpFlags::FIN | TcpFlags::RST | TcpFlags::SYN);
        state.flags |= TcpFlags::ACK | if *push { TcpFlags::PSH } else { 0 };
        state.fragment = 0x4000;
        let before = state.data.len() as u32;
        let pushes_on = |state: &mut Sent, bytes: usize| {
            state.seq = state.seq.wrapping_add(before);
            state.data = vec![bytes as u8; bytes];
        };
        match *step {
            Step::Data(bytes) => pushes_on(state, bytes),
            Step::Ack(bytes) => {
                pushes_on(state, 0);
                state.ack = state.ack.wrapping_add(bytes.into());
            }
            Step::Echo(bytes) => {
                state.ack = state.ack.wrapping_add(before);
                pushes_on(state, bytes);
            }
            Step::Window(window) => state.window = window,
            Step::Urgent(pointer) => (state.flags, state.urgent) = (state.flags | TcpFlags::URG, pointer),
            Step::UrgentWithoutFlag(pointer) => state.urgent = pointer,
            Step::Again => {}
            Step::Back(bytes) => state.seq = state.seq.wrapping_sub(bytes.into()),
            Step::Flags(flags) => state.flags = flags,
            Step::Reserved(bits) => state.reserved = bits,
            Step::Timestamps(time) => state.options = vec![1, 1, 8, 10, 0, 0, 0, time, 0, 0, 0, 1],
            Step::Sack(edge) => state.options = vec![1, 1, 5, 10, 0, 0, 1, edge, 0, 0, 2, 0],
            Step::Tos(tos) => state.tos = tos,
            Step::Ttl(ttl) => state.ttl = 60 + ttl,
            Step::IpOptions(words) => state.ip_options = vec![1; usize::from(words % 11) * 4],
            Step::Fragment(fragment) => state.fragment = fragment,
            Step::Jump(seq, ack) => (state.seq, state.ack) = (seq, ack),
        }
        all.push(state.clone());
    }
    all
}

proptest! {
    #[test]
    fn any_stream_round_trips(choices in vec(any_choice(6), 1..120), slots in 1usize..8, named: bool) {
        let (mut near, mut far) = (Compressor::new(slots), Decompressor::new(slots));
        if named {
            near = near.name_every_slot();
        }
        for sent in stream(&choices) {
            let bytes = sent.bytes();
            let line = near.compress(&bytes);
            prop_assert!(line.bytes.len() <= bytes.len());
            let came = far.decompress(line.kind, &line.bytes);
            prop_assert_eq!(came.as_ref(), Ok(&bytes));
        }
    }

    #[test]
    fn virtual_zeros_are_those_of_the_whole_packet(choices in vec(any_choice(3), 1..60), zeros in vec(0usize..50, 60)) {
        let (mut near, mut whole, mut far) = (Compressor::new(4), Compressor::new(4), Decompressor::new(4));
        for (sent, zeros) in stream(&choices).into_iter().zip(zeros) {
            let sent = Sent { data: [sent.data, vec![0; zeros]].concat(), ..sent };
            let bytes = sent.bytes();
            let (short, tail) = bytes.split_at(bytes.len() - zeros);
            let line = near.compress_with_zeros(short, zeros as u32);
            let expected = whole.compress(&bytes);
            prop_assert_eq!(line.kind, expected.kind);
            prop_assert_eq!([&line.bytes[..], tail].concat(), expected.bytes);
            prop_assert_eq!(far.decompress_with_zeros(line.kind, &line.bytes, zeros as u32), Ok(short.to_vec()));
        }
    }

    #[test]
    fn any_bytes_are_taken(lines in vec((0u8..3, vec(any::<u8>(), 0..80), 0u32..70_000), 1..40)) {
        let (mut near, mut far) = (Compressor::new(3), Decompressor::new(3));
        far.decompress(Kind::UncompressedTcp, &{
            let mut bytes = Sent::new(1).bytes();
            bytes[at::PROTOCOL] = 0;
            bytes
        }).unwrap();
        for (kind, bytes, zeros) in lines {
            let kind = [Kind::Ip, Kind::UncompressedTcp, Kind::CompressedTcp][usize::from(kind)];
            let _ = far.decompress_with_zeros(kind, &bytes, zeros);
            let _ = near.compress_with_zeros(&bytes, zeros);
        }
    }
}

/// Frames are lost, noticed or not. What is delivered is what was sent, in all that the TCP checksum covers, or has
/// a wrong one. (The rest of the IP header may be old: a lost UNCOMPRESSED_TCP takes a new time to live with it.) By
/// chance one wrong packet in 65,536 would pass: so the streams are fixed ones, not new ones in each run.
#[test]
fn what_a_line_with_losses_delivers_is_right_or_shows_it() {
    const CASES: usize = 400;
    let config = Config { cases: CASES as u32, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let loss = prop_oneof![10 => Just("none"), 1 => Just("unnoticed"), 1 => Just("noticed")];
    let counts = Cell::new([0; 4]);
    let count = |what: usize| {
        let mut now = counts.get();
        now[what] += 1;
        counts.set(now);
    };
    let run = |(choices, losses, slots): (Vec<Choice>, Vec<&str>, usize)| {
        let (mut near, mut far) = (Compressor::new(slots), Decompressor::new(slots));
        let mut was_wrong = false;
        for (sent, loss) in stream(&choices).into_iter().zip(losses) {
            let bytes = sent.bytes();
            let line = near.compress(&bytes);
            if loss != "none" {
                if loss == "noticed" {
                    far.line_error();
                }
                continue;
            }
            let Ok(came) = far.decompress(line.kind, &line.bytes) else {
                count(0);
                continue;
            };
            let ip = usize::from(came[0] & 0x0f) * 4;
            prop_assert_eq!(usize::from(word(&came, at::IP_LENGTH)), came.len());
            prop_assert_eq!(fold(ones_sum(&came[..ip])), 0xffff);
            let covered = |bytes: &[u8]| {
                let ip = usize::from(bytes[0] & 0x0f) * 4;
                [&bytes[at::ADDRESSES..20], &bytes[ip..]].concat()
            };
            let right = covered(&came) == covered(&bytes);
            prop_assert!(right || !Packet::from_bytes(0, came).checksum_ok(), "{:?}", sent);
            count(if !right { 1 } else { 2 + usize::from(was_wrong) });
            was_wrong = !right;
        }
        Ok(())
    };
    let streams = (vec(any_choice(4), 1..120), vec(loss, 120), 2usize..6);
    TestRunner::new_with_rng(config, rng).run(&streams, run).unwrap();
    // All of it happens: tossed, wrong, right, and right again after wrong.
    assert!(counts.get().into_iter().all(|count| count > CASES / 2), "{counts:?}");
}
