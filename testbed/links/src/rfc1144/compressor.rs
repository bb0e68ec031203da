//! The sending end.

use backchannel_core::packet::TcpFlags;

use super::header::{at, bit, encode, long, word, Header, TCP};
use super::{Compressed, Kind, MOST_SLOTS};

/// Compresses the packets of one direction.
pub struct Compressor {
    /// Slots in use and their numbers, the most recently used first.
    recent: Vec<(u8, Header)>,
    slots: usize,
    /// Slot of the last packet.
    last: Option<u8>,
    elide_slot: bool,
}

impl Compressor {
    /// Remembers the last header of this many connections, 1 to [`MOST_SLOTS`].
    ///
    /// # Panics
    /// For another number.
    pub fn new(slots: usize) -> Compressor {
        assert!((1..=MOST_SLOTS).contains(&slots), "{slots} slots: there are 1 to {MOST_SLOTS}");
        Compressor { recent: Vec::with_capacity(slots), slots, last: None, elide_slot: true }
    }

    /// Names the slot in every packet, as a PPP peer may ask for (RFC 1332 section 4, Comp-Slot-Id 0): a byte more,
    /// and a lost frame no longer makes the far end toss what follows.
    pub fn name_every_slot(mut self) -> Compressor {
        self.elide_slot = false;
        self
    }

    /// Compresses an IP packet.
    pub fn compress(&mut self, ip_packet: &[u8]) -> Compressed {
        self.compress_with_zeros(ip_packet, 0)
    }

    /// The same for a packet whose `bytes` are followed by `zeros` bytes of value 0, as is the result.
    pub fn compress_with_zeros(&mut self, bytes: &[u8], zeros: u32) -> Compressed {
        let Some(header) = compressible(bytes, zeros) else {
            return Compressed { kind: Kind::Ip, bytes: bytes.to_vec() };
        };
        let connection = header.connection();
        let known = self.recent.iter().position(|(_, before)| before.connection() == connection);
        let (slot, packed) = match known {
            Some(place) => {
                let (slot, before) = self.recent.remove(place);
                (slot, pack(&header, &before))
            }
            None if self.recent.len() < self.slots => (self.recent.len() as u8, None),
            None => (self.recent.pop().expect("there is at least one slot").0, None),
        };
        self.recent.insert(0, (slot, header));
        let same = self.last.replace(slot) == Some(slot);
        let data = &bytes[header.len()..];
        let Some((mut mask, deltas)) = packed else {
            let mut bytes = bytes.to_vec();
            bytes[at::PROTOCOL] = slot;
            return Compressed { kind: Kind::UncompressedTcp, bytes };
        };
        let mut packet = Vec::with_capacity(4 + deltas.len() + data.len());
        packet.push(0);
        if !(same && self.elide_slot) {
            mask |= bit::C;
            packet.push(slot);
        }
        packet[0] = mask;
        packet.extend(&header.tcp()[at::TCP_CHECKSUM..at::URGENT]);
        packet.extend(deltas);
        packet.extend(data);
        Compressed { kind: Kind::CompressedTcp, bytes: packet }
    }
}

/// The header of a packet that can be compressed or set a slot (3.2.3): an unfragmented TCP segment of an open
/// connection.
fn compressible(bytes: &[u8], zeros: u32) -> Option<Header> {
    const MORE_FRAGMENTS_AND_OFFSET: u16 = 0x3fff;
    let header = Header::read(bytes)?;
    let flags = header.flags();
    let fits = header.ip()[at::PROTOCOL] == TCP
        && word(header.ip(), at::FRAGMENT) & MORE_FRAGMENTS_AND_OFFSET == 0
        && flags.has(TcpFlags::ACK)
        && !flags.any(TcpFlags::SYN | TcpFlags::FIN | TcpFlags::RST);
    // The far end recomputes both.
    let recomputable =
        header.total() == bytes.len() + zeros as usize && header.ip_checksum() == word(header.ip(), at::IP_CHECKSUM);
    (fits && recomputable).then_some(header)
}

/// Mask (without C) and deltas from `before` to `now`; `None` if the packet must be sent whole (3.2.3).
fn pack(now: &Header, before: &Header) -> Option<(u8, Vec<u8>)> {
    if !now.differs_in_deltas_only(before) {
        return None;
    }
    let (tcp, old) = (now.tcp(), before.tcp());
    let (mut mask, mut deltas) = (0, Vec::with_capacity(16));
    if now.flags().has(TcpFlags::URG) {
        encode(&mut deltas, word(tcp, at::URGENT));
        mask |= bit::U;
    } else if word(tcp, at::URGENT) != word(old, at::URGENT) {
        // Legal, but the encoding has no way to express it.
        return None;
    }
    let window = word(tcp, at::WINDOW).wrapping_sub(word(old, at::WINDOW));
    let ack = u16::try_from(long(tcp, at::ACK).wrapping_sub(long(old, at::ACK))).ok()?;
    let seq = u16::try_from(long(tcp, at::SEQ).wrapping_sub(long(old, at::SEQ))).ok()?;
    for (delta, bit) in [(window, bit::W), (ack, bit::A), (seq, bit::S)] {
        if delta != 0 {
            encode(&mut deltas, delta);
            mask |= bit;
        }
    }
    let data_before = before.data();
    match mask {
        // Data after an ack is new. Otherwise this is a retransmission, a repeated ack or a probe, perhaps sent because
        // the far end is out of step. Sent whole, it resynchronises the far end (4.2).
        0 if data_before == 0 && now.data() > 0 => {}
        0 | bit::ECHO | bit::DATA_ONE_WAY => return None,
        both if both == bit::S | bit::A && seq == ack && u32::from(seq) == data_before => {
            (mask, deltas) = (bit::ECHO, Vec::new());
        }
        bit::S if u32::from(seq) == data_before => (mask, deltas) = (bit::DATA_ONE_WAY, Vec::new()),
        _ => {}
    }
    let id = word(now.ip(), at::IP_ID).wrapping_sub(word(before.ip(), at::IP_ID));
    if id != 1 {
        encode(&mut deltas, id);
        mask |= bit::I;
    }
    if now.flags().has(TcpFlags::PSH) {
        mask |= bit::P;
    }
    Some((mask, deltas))
}
