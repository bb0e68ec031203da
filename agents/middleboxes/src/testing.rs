//! What the tests of several boxes share.

use backchannel_core::packet::Packet;

/// The same segment in the opposite direction: addresses and ports change places, and the checksums stay right.
pub(crate) fn back(packet: &Packet) -> Packet {
    let mut bytes = packet.bytes().to_vec();
    for (one, other) in [(12, 16), (13, 17), (14, 18), (15, 19), (20, 22), (21, 23)] {
        bytes.swap(one, other);
    }
    Packet::from_bytes(packet.id, bytes)
}
