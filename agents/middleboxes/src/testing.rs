//! What the tests of several boxes share.

use backchannel_core::packet::Packet;
use backchannel_core::scenario::Options;
use backchannel_core::traits::Middlebox;
use backchannel_stacks::config::Stacks;

use crate::{builtin, Context};

/// A middlebox of this crate.
pub(crate) fn build(name: &str, options: &Options) -> Box<dyn Middlebox> {
    let (stacks, middleboxes) = (Stacks::builtin(), builtin());
    let (checked, build) = middleboxes.checked(name, options).unwrap();
    build(&checked, &Context { stacks: &stacks }).unwrap()
}

/// The same segment in the opposite direction: addresses and ports change places, and the checksums stay right.
pub(crate) fn back(packet: &Packet) -> Packet {
    let mut bytes = packet.bytes().to_vec();
    // Start and length of the source address; the destination follows, and then the ports.
    let (at, length) = if bytes[0] >> 4 == 4 { (12, 4) } else { (8, 16) };
    for place in at..at + length {
        bytes.swap(place, place + length);
    }
    let ports = at + 2 * length;
    bytes.swap(ports, ports + 2);
    bytes.swap(ports + 1, ports + 3);
    Packet::from_bytes(packet.id, bytes)
}
