//! SACK blocks of a TCP header (RFC 2018 3).

use super::Packet;

/// The blocks in these TCP options, as on the wire. An option that is cut off or malformed ends the list of options.
pub(super) fn blocks(mut options: &[u8]) -> &[[u8; 8]] {
    loop {
        match options {
            [] | [0, ..] => return &[],
            [1, rest @ ..] => options = rest,
            [kind, length, ..] if *length >= 2 && usize::from(*length) <= options.len() => {
                let (option, rest) = options.split_at(usize::from(*length));
                if *kind == 5 {
                    return option[2..].as_chunks().0;
                }
                options = rest;
            }
            _ => return &[],
        }
    }
}

impl Packet {
    /// The SACK blocks of a TCP segment, the most recent first: the first sequence number of each, and the one behind
    /// its last.
    pub fn sack_blocks(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        blocks(self.tcp_options()).iter().map(|[a, b, c, d, e, f, g, h]| {
            (u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_behind_other_options_and_whole_or_not_at_all() {
        let mut options = vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 5, 18];
        for number in [3000u32, 4000, 1000, 2000] {
            options.extend(number.to_be_bytes());
        }
        let block =
            |start: u32, end: u32| -> [u8; 8] { [start.to_be_bytes(), end.to_be_bytes()].concat().try_into().unwrap() };
        assert_eq!(blocks(&options), [block(3000, 4000), block(1000, 2000)]);
        assert!(blocks(&options[..31]).is_empty(), "cut off");
        assert!(blocks(&[8, 0, 5]).is_empty(), "an option without a length");
        assert!(blocks(&[[0].as_slice(), &options].concat()).is_empty(), "behind the end of the list");
        assert!(blocks(&[[0, 2].as_slice(), &options].concat()).is_empty(), "the end of the list has no length");
    }
}
