//! What happens to a mechanism: packets arrive, time passes, a line asks for the next packet.

use backchannel_core::ip::IpVersion;
use backchannel_core::packet::build::{udp, udp_over, Segment};
use backchannel_core::packet::TcpFlags;
use backchannel_core::rng;
use backchannel_core::Packet;

/// A step. Connections have numbers from 0.
#[derive(Clone, Debug)]
pub enum Step {
    /// A pure ack; `sack` selects one of [`SACKS`].
    Ack {
        /// Connection.
        flow: u16,
        /// Acknowledgment number.
        number: u32,
        /// Window field.
        window: u16,
        /// Whether it is ECN-capable.
        ecn: bool,
        /// Options.
        sack: usize,
    },
    /// A segment with data.
    Data {
        /// Connection.
        flow: u16,
        /// Bytes.
        payload: u32,
        /// Whether it is ECN-capable.
        ecn: bool,
    },
    /// The first segment of a connection.
    Syn {
        /// Connection.
        flow: u16,
    },
    /// A packet of UDP.
    Datagram,
    /// A packet passes in the other direction.
    Opposite {
        /// Bytes.
        payload: u32,
    },
    /// Time passes.
    Wait {
        /// Milliseconds.
        ms: u64,
    },
    /// The line is free.
    Dequeue,
}

/// Options of acks: none, and one SACK block, narrow or wide.
pub const SACKS: [&[u8]; 3] = [&[], &[1, 1, 5, 10, 0, 0, 0, 6, 0, 0, 0, 9], &[1, 1, 5, 10, 0, 0, 0, 4, 0, 0, 0, 12]];

/// The same behind 20 bytes that make a header of IPv4 as long as one of IPv6.
const PADDED_SACKS: [&[u8]; 3] = [PADDING, &padded::<32>(SACKS[1]), &padded::<32>(SACKS[2])];
const PADDING: &[u8] = &[1; 20];

const fn padded<const N: usize>(options: &[u8]) -> [u8; N] {
    let mut longer = [1; N];
    let mut at = 0;
    while at < options.len() {
        longer[N - options.len() + at] = options[at];
        at += 1;
    }
    longer
}

impl Step {
    /// The packet that arrives, with this id.
    pub fn packet(&self, id: u64) -> Option<Packet> {
        let base = Segment { id, ..Segment::default() };
        Some(match *self {
            Step::Ack { flow, number, window, ecn, sack } => {
                Segment { flow, ack: number, window, ecn, options: SACKS[sack], ..base }.packet()
            }
            Step::Data { flow, payload, ecn } => Segment { flow, payload, ecn, ..base }.packet(),
            Step::Syn { flow } => Segment { flow, flags: TcpFlags::SYN, ..base }.packet(),
            Step::Datagram => udp(id, 100),
            Step::Opposite { .. } | Step::Wait { .. } | Step::Dequeue => return None,
        })
    }

    /// The packet that arrives over a version of IP. Those of both versions are of equal length.
    pub fn packet_over(&self, ip: IpVersion, id: u64) -> Option<Packet> {
        let (options, more) = if ip == IpVersion::V4 { (PADDING, 20) } else { (&[][..], 0) };
        let base = Segment { id, ip, options, ..Segment::default() };
        Some(match *self {
            Step::Ack { flow, number, window, ecn, sack } => {
                let options = if ip == IpVersion::V4 { PADDED_SACKS[sack] } else { SACKS[sack] };
                Segment { flow, ack: number, window, ecn, options, ..base }.packet()
            }
            Step::Data { flow, payload, ecn } => Segment { flow, payload, ecn, ..base }.packet(),
            Step::Syn { flow } => Segment { flow, flags: TcpFlags::SYN, ..base }.packet(),
            Step::Datagram => udp_over(ip, id, 100 + more),
            Step::Opposite { .. } | Step::Wait { .. } | Step::Dequeue => return None,
        })
    }
}

/// `n` steps of a seed.
pub fn of_seed(seed: u64, n: usize) -> Vec<Step> {
    let mut rng = rng::stream(seed, "laws");
    let mut below = |n: usize| rng::below(&mut rng, n);
    let step = |_| match below(13) {
        0..=3 => Step::Ack {
            flow: below(3) as u16,
            number: 1 + below(11) as u32,
            window: 1 + below(2) as u16,
            ecn: below(2) == 1,
            sack: below(SACKS.len()),
        },
        4 | 5 => Step::Data { flow: below(3) as u16, payload: 1 + below(1499) as u32, ecn: below(2) == 1 },
        6 => Step::Syn { flow: below(3) as u16 },
        7 => Step::Datagram,
        8 => Step::Opposite { payload: below(1500) as u32 },
        9 => Step::Wait { ms: 1 + below(399) as u64 },
        _ => Step::Dequeue,
    };
    (0..n).map(step).collect()
}
