//! The receiving end.

use backchannel_core::packet::TcpFlags;

use super::header::{at, bit, decode, long, put_long, put_word, word, Header, TCP};
use super::{Kind, Tossed, MOST_SLOTS};

/// Restores the packets of one direction.
pub struct Decompressor {
    slots: Vec<Option<Box<Header>>>,
    /// Slot of the last packet that named one; `None` while packets without a slot are tossed.
    last: Option<usize>,
}

impl Decompressor {
    /// Has this many slots, at least as many as the other end.
    ///
    /// # Panics
    /// For fewer than 1 or more than [`MOST_SLOTS`].
    pub fn new(slots: usize) -> Decompressor {
        assert!((1..=MOST_SLOTS).contains(&slots), "{slots} slots: there are 1 to {MOST_SLOTS}");
        Decompressor { slots: vec![None; slots], last: None }
    }

    /// The framing detected a lost or damaged frame. Packets that do not name a slot are tossed from now on, because
    /// they may belong to another connection (4.1).
    pub fn line_error(&mut self) {
        self.last = None;
    }

    /// Whether packets that do not name a slot are tossed.
    pub fn tosses(&self) -> bool {
        self.last.is_none()
    }

    /// Restores the IP packet.
    ///
    /// # Errors
    /// Why it was tossed. An inconsistent packet counts as a line error.
    pub fn decompress(&mut self, kind: Kind, bytes: &[u8]) -> Result<Vec<u8>, Tossed> {
        self.decompress_with_zeros(kind, bytes, 0)
    }

    /// The same for a packet whose `bytes` are followed by `zeros` bytes of value 0, as is the result.
    ///
    /// # Errors
    /// As [`Decompressor::decompress`].
    pub fn decompress_with_zeros(&mut self, kind: Kind, bytes: &[u8], zeros: u32) -> Result<Vec<u8>, Tossed> {
        let packet = match kind {
            Kind::Ip => return Ok(bytes.to_vec()),
            Kind::UncompressedTcp => self.set_slot(bytes),
            Kind::CompressedTcp => self.unpack(bytes, zeros),
        };
        if packet.is_err() {
            self.line_error();
        }
        packet
    }

    fn set_slot(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Tossed> {
        let mut header = Header::read(bytes).ok_or(Tossed::Malformed)?;
        let slot = usize::from(header.ip()[at::PROTOCOL]);
        header.bytes[at::PROTOCOL] = TCP;
        *self.slots.get_mut(slot).ok_or(Tossed::NoSuchSlot)? = Some(Box::new(header));
        self.last = Some(slot);
        let mut packet = bytes.to_vec();
        packet[at::PROTOCOL] = TCP;
        Ok(packet)
    }

    fn unpack(&mut self, bytes: &[u8], zeros: u32) -> Result<Vec<u8>, Tossed> {
        let (&mask, mut rest) = bytes.split_first().ok_or(Tossed::Malformed)?;
        if mask & bit::C != 0 {
            let (&slot, after) = rest.split_first().ok_or(Tossed::Malformed)?;
            rest = after;
            self.last = Some(usize::from(slot));
        }
        let slot = self.last.ok_or(Tossed::SlotUnknown)?;
        let header = self.slots.get_mut(slot).and_then(Option::as_mut).ok_or(Tossed::NoSuchSlot)?;
        // A packet that ends too early must not change the slot.
        let mut next = **header;
        let data = apply(&mut next, mask, rest).ok_or(Tossed::Malformed)?;
        let total = u16::try_from(next.len() + data.len() + zeros as usize).map_err(|_| Tossed::Malformed)?;
        put_word(&mut next.bytes, at::IP_LENGTH, total);
        let checksum = next.ip_checksum();
        put_word(&mut next.bytes, at::IP_CHECKSUM, checksum);
        **header = next;
        Ok([&next.bytes[..next.len()], data].concat())
    }
}

/// Applies a mask and its deltas to the last header (3.2.4). Returns the data. Does not set IP length and checksum.
fn apply<'a>(header: &mut Header, mask: u8, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (checksum, mut rest) = bytes.split_first_chunk::<2>()?;
    let data_before = header.data();
    let id = word(header.ip(), at::IP_ID);
    let tcp = header.tcp_mut();
    put_word(tcp, at::TCP_CHECKSUM, u16::from_be_bytes(*checksum));
    tcp[at::FLAGS] &= !(TcpFlags::PSH | TcpFlags::URG);
    if mask & bit::P != 0 {
        tcp[at::FLAGS] |= TcpFlags::PSH;
    }
    let (seq, ack) = (long(tcp, at::SEQ), long(tcp, at::ACK));
    match mask & bit::DATA_ONE_WAY {
        bit::DATA_ONE_WAY => put_long(tcp, at::SEQ, seq.wrapping_add(data_before)),
        bit::ECHO => {
            put_long(tcp, at::SEQ, seq.wrapping_add(data_before));
            put_long(tcp, at::ACK, ack.wrapping_add(data_before));
        }
        fields => {
            if fields & bit::U != 0 {
                tcp[at::FLAGS] |= TcpFlags::URG;
                put_word(tcp, at::URGENT, decode(&mut rest)?);
            }
            if fields & bit::W != 0 {
                let window = word(tcp, at::WINDOW).wrapping_add(decode(&mut rest)?);
                put_word(tcp, at::WINDOW, window);
            }
            if fields & bit::A != 0 {
                put_long(tcp, at::ACK, ack.wrapping_add(decode(&mut rest)?.into()));
            }
            if fields & bit::S != 0 {
                put_long(tcp, at::SEQ, seq.wrapping_add(decode(&mut rest)?.into()));
            }
        }
    }
    let step = if mask & bit::I != 0 { decode(&mut rest)? } else { 1 };
    put_word(&mut header.bytes, at::IP_ID, id.wrapping_add(step));
    Some(rest)
}
