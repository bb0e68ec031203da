//! The capacity of a buffer: in packets, as the papers count, and optionally in bytes as well.

use backchannel_core::packet::Packet;
use backchannel_core::registry::{CheckedOptions, Param, Preset, Unit};

/// Capacity in packets.
pub(crate) const LIMIT: Param = Param::new(
    "limit_packets",
    Unit::Packets,
    Preset::Number(20.0),
    "capacity in packets, without the one in transmission",
)
.at_least(1.0);

/// Capacity in bytes.
pub(crate) const BUFFER: Param = Param::new(
    "buffer_bytes",
    Unit::Bytes,
    Preset::Absent,
    "capacity in bytes of the network layer, in addition to limit_packets; absent: unlimited",
)
.at_least(1.0);

/// A buffer's capacity. A number converts into a capacity in packets only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Packets.
    pub packets: usize,
    /// Bytes of the network layer; `None`: unlimited.
    pub bytes: Option<u64>,
}

impl Limit {
    /// From [`LIMIT`] and [`BUFFER`].
    pub(crate) fn of(checked: &CheckedOptions<'_>) -> Limit {
        let packets = checked.count(LIMIT.name).expect("it has a default") as usize;
        Limit { packets, bytes: checked.count(BUFFER.name) }
    }

    /// Whether `packet` fits beside this many packets and bytes.
    pub fn admits(self, packets: usize, bytes: u64, packet: &Packet) -> bool {
        packets < self.packets && self.bytes.is_none_or(|most| bytes + u64::from(packet.len()) <= most)
    }
}

impl From<usize> for Limit {
    fn from(packets: usize) -> Limit {
        Limit { packets, bytes: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::{ack, data};

    #[test]
    fn a_buffer_of_1040_bytes_holds_a_kilobyte_and_an_ack() {
        let limit = Limit { packets: 9, bytes: Some(1040) };
        assert!(limit.admits(0, 0, &data(1, 960)));
        assert!(limit.admits(1, 1000, &ack(2)));
        assert!(!limit.admits(1, 1000, &data(3, 1)));
        assert!(!limit.admits(9, 0, &ack(2)), "the packet limit applies as well");
    }
}
