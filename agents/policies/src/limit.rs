//! How much may wait in one buffer: packets, as the papers count, and bytes beside them where a campaign says so.

use backchannel_core::packet::Packet;
use backchannel_core::registry::{Given, Param, Preset, Unit};

/// Packets that may wait.
pub(crate) const LIMIT: Param = Param::new(
    "limit_packets",
    Unit::Packets,
    Preset::Number(20.0),
    "packets that may wait; the one in transmission is not among them",
)
.at_least(1.0);

/// Bytes that may wait.
pub(crate) const BUFFER: Param = Param::new(
    "buffer_bytes",
    Unit::Bytes,
    Preset::Absent,
    "network-layer bytes that may wait, beside the limit in packets; absent: any number",
)
.at_least(1.0);

/// A bound on what waits. A number converts into a bound in packets only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Packets.
    pub packets: usize,
    /// Network-layer bytes; `None`: any number.
    pub bytes: Option<u64>,
}

impl Limit {
    /// From [`LIMIT`] and [`BUFFER`].
    pub(crate) fn of(given: &Given<'_>) -> Limit {
        let packets = given.count(LIMIT.name).expect("it has a default") as usize;
        Limit { packets, bytes: given.count(BUFFER.name) }
    }

    /// Whether `packet` may join this many packets and bytes.
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
    fn a_buffer_of_1040_bytes_takes_a_kilobyte_and_an_ack() {
        let limit = Limit { packets: 9, bytes: Some(1040) };
        assert!(limit.admits(0, 0, &data(1, 960)));
        assert!(limit.admits(1, 1000, &ack(2)));
        assert!(!limit.admits(1, 1000, &data(3, 1)));
        assert!(!limit.admits(9, 0, &ack(2)), "packets count as well");
    }
}
