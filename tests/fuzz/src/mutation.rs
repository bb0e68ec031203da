//! Inputs by seeded mutation: the same seed, number and corpus give the same bytes on every machine.

use backchannel_core::rng::{below, stream, RunRng};

/// Bytes of an input at most.
const MOST_BYTES: usize = 1 << 16;
/// Numbers at which lengths, counters and sequence spaces turn.
const EDGES: [u32; 14] =
    [0, 1, 2, 20, 40, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];

/// Input `number` of a seed.
pub fn input(seed: u64, number: u64, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut rng = stream(seed, &format!("fuzz {number}"));
    let mut bytes = match corpus.len() {
        0 => Vec::new(),
        known => corpus[below(&mut rng, known)].clone(),
    };
    for _ in 0..1 << below(&mut rng, 6) {
        mutate(&mut rng, &mut bytes, corpus);
        bytes.truncate(MOST_BYTES);
    }
    bytes
}

fn mutate(rng: &mut RunRng, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = below(rng, bytes.len() + 1);
    let to = at + below(rng, (bytes.len() - at).min(64) + 1);
    match below(rng, 9) {
        0 if at < bytes.len() => bytes[at] ^= 1 << below(rng, 8),
        1 if at < bytes.len() => bytes[at] = below(rng, 256) as u8,
        2 | 3 => overwrite(rng, bytes, at),
        4 => drop(bytes.drain(at..to)),
        5 => {
            let copy = bytes[at..to].to_vec();
            bytes.splice(at..at, copy);
        }
        6 => {
            let new: Vec<u8> = (0..=below(rng, 16)).map(|_| below(rng, 256) as u8).collect();
            bytes.splice(at..at, new);
        }
        7 => bytes.truncate(at),
        _ if !corpus.is_empty() => {
            let other = &corpus[below(rng, corpus.len())];
            let from = below(rng, other.len() + 1);
            let end = from + below(rng, (other.len() - from).min(256) + 1);
            bytes.splice(at..to, other[from..end].iter().copied());
        }
        _ => {}
    }
}

/// Writes a number of 1, 2 or 4 bytes at which something turns, in either order.
fn overwrite(rng: &mut RunRng, bytes: &mut [u8], at: usize) {
    let value = EDGES[below(rng, EDGES.len())];
    let mut number = if below(rng, 2) == 0 { value.to_le_bytes().to_vec() } else { value.to_be_bytes().to_vec() };
    let width = [1, 2, 4][below(rng, 3)];
    if value <= 0xffff && number[0] == 0 && width < 4 {
        number.rotate_left(4 - width);
    }
    for (to, from) in bytes[at..].iter_mut().zip(&number[..width]) {
        *to = *from;
    }
}
