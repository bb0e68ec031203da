//! The capacity of a buffer: in packets, as the papers count, and optionally in bytes as well.

use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::Packet;

options! {
    /// A buffer's capacity. A number converts into a capacity in packets only.
    #[derive(Copy, PartialEq, Eq)]
    pub struct Limit {
        limit_packets: usize = 20, [Packets 1] "capacity in packets, without the one in transmission";
        buffer_bytes: Option<u64> = ABSENT, [Bytes 1]
            "capacity in bytes of the network layer, in addition to limit_packets; absent: unlimited";
    }
}

impl Limit {
    /// No limit, for a queue that another policy limits.
    pub(crate) const NONE: Limit = Limit { limit_packets: usize::MAX, buffer_bytes: None };

    /// That of a policy with a child, which has a limit of its own: the default of `limit_packets` is for those without.
    pub(crate) fn of_parent(self, checked: &CheckedOptions<'_>, has_child: bool) -> Limit {
        let is_default = has_child && !checked.is_set("limit_packets");
        Limit { limit_packets: if is_default { usize::MAX } else { self.limit_packets }, ..self }
    }

    /// Whether `packet` fits beside this many packets and bytes.
    pub fn admits(self, packets: usize, bytes: u64, packet: &Packet) -> bool {
        packets < self.limit_packets && self.buffer_bytes.is_none_or(|most| bytes + u64::from(packet.len()) <= most)
    }
}

impl From<usize> for Limit {
    fn from(packets: usize) -> Limit {
        Limit { limit_packets: packets, buffer_bytes: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::{ack, data};

    #[test]
    fn a_buffer_of_1040_bytes_holds_a_kilobyte_and_an_ack() {
        let limit = Limit { limit_packets: 9, buffer_bytes: Some(1040) };
        assert!(limit.admits(0, 0, &data(1, 960)));
        assert!(limit.admits(1, 1000, &ack(2)));
        assert!(!limit.admits(1, 1000, &data(3, 1)));
        assert!(!limit.admits(9, 0, &ack(2)), "the packet limit applies as well");
    }
}
