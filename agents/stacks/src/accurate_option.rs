//! The option of Accurate ECN (RFC 9768 3.2.3): acks count the bytes of data that arrived with each ECN field, so that
//! nothing hides in the three bits of the packet counter. The names are the RFC's.
//!
//! ```text
//! AccECN0   172 | length | EE0B | ECEB | EE1B      AccECN1   174 | length | EE1B | ECEB | EE0B
//! ```
//!
//! Each field has 24 bits. Fields at the end may be absent, which leaves 8, 5 or 2 bytes of 11.
//!
//! - The SYN+ACK carries it, but not if it is sent again, and the first ack of the client (3.2.3.2.1, 3.2.3.2.2).
//! - A half that does not find it there neither reads nor sends it, as in Linux (3.2.3.2.3).
//! - Counters that begin with zero were cleared on the way and are not read (3.2.3.2.4).
//! - All acks alone carry it, and data that follow a change of counters (3.2.3.3). A change of the ECN field is
//!   acknowledged at once.
//!
//! Differs from the source: bytes are not compared with the packet counter (3.2.3.2.5), and acks that seem to be lost
//! because they carry it do not end it.

use backchannel_core::packet::Ecn as Field;

/// Option kinds (RFC 9768 8).
const ACCECN0: u8 = 172;
const ACCECN1: u8 = 174;
/// Bytes of a field.
const FIELD: usize = 3;
/// The bits of a field.
const MASK: u32 = 0xff_ffff;
/// Bytes that the two fields take which an ack with many SACK blocks has room for.
const TWO_FIELDS: u32 = 8;
/// Segments of the client that carry the option whatever they are: one may be lost.
const FIRST_SEGMENTS: u8 = 2;

/// The option on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccurateOption {
    /// Whether it is AccECN1.
    pub is_order_1: bool,
    /// Its fields in its order.
    pub fields: [u32; 3],
    /// How many of them it has.
    pub count: u8,
}

impl AccurateOption {
    /// Of an option's kind and value; `None`: it is another, or malformed.
    pub fn read(kind: u8, value: &[u8]) -> Option<AccurateOption> {
        let is_whole = value.len() <= 3 * FIELD && value.len().is_multiple_of(FIELD);
        if !matches!(kind, ACCECN0 | ACCECN1) || !is_whole {
            return None;
        }
        let mut option = AccurateOption { is_order_1: kind == ACCECN1, ..AccurateOption::default() };
        for bytes in value.chunks_exact(FIELD) {
            option.fields[usize::from(option.count)] = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
            option.count += 1;
        }
        Some(option)
    }

    /// Hands its bytes to `push`, without padding.
    pub fn write(&self, mut push: impl FnMut(&[u8])) {
        let count = usize::from(self.count);
        push(&[if self.is_order_1 { ACCECN1 } else { ACCECN0 }, (2 + FIELD * count) as u8]);
        self.fields[..count].iter().for_each(|field| push(&field.to_be_bytes()[1..]));
    }

    /// Bytes that it takes, padding included.
    pub fn bytes(&self) -> u32 {
        (2 + FIELD as u32 * u32::from(self.count)).next_multiple_of(4)
    }

    /// Whether a field that begins with 1 is zero (3.2.3.2.4).
    fn is_cleared(&self) -> bool {
        (0..usize::from(self.count)).any(|at| at != 1 && self.fields[at] == 0)
    }
}

/// Bytes by ECN field. Only the last 24 bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counters {
    e0b: u32,
    ceb: u32,
    e1b: u32,
}

impl Counters {
    /// RFC 9768 3.2.1.
    const FIRST: Counters = Counters { e0b: 1, ceb: 0, e1b: 1 };

    /// In the order of an option.
    fn ordered(&mut self, is_order_1: bool) -> [&mut u32; 3] {
        if is_order_1 {
            [&mut self.e1b, &mut self.ceb, &mut self.e0b]
        } else {
            [&mut self.e0b, &mut self.ceb, &mut self.e1b]
        }
    }
}

/// The counters of one connection.
#[derive(Clone, Copy, Debug)]
pub struct ByteCounts {
    /// r.e0b, r.ceb, r.e1b: what arrived.
    received: Counters,
    /// The same when the last option was sent.
    reported: Counters,
    /// s.e0b, s.ceb, s.e1b: what the peer has counted.
    counted: Counters,
    /// The ECN field of the last data.
    last: Option<Field>,
    /// Whether the peer's options are read; `None`: none has come.
    reads: Option<bool>,
    /// Whether options are sent.
    sends: bool,
    /// Whether the SYN+ACK has been sent.
    answered: bool,
    /// Further segments that carry the option whatever they are.
    owed: u8,
}

impl Default for ByteCounts {
    fn default() -> ByteCounts {
        ByteCounts {
            received: Counters::FIRST,
            reported: Counters::FIRST,
            counted: Counters::FIRST,
            last: None,
            reads: None,
            sends: true,
            answered: false,
            owed: 0,
        }
    }
}

impl ByteCounts {
    /// The option of our SYN+ACK. Sent again it has none (3.2.3.2.2).
    pub fn on_transmit_answer(&mut self) -> Option<AccurateOption> {
        let again = std::mem::replace(&mut self.answered, true);
        (!again).then(|| self.option(3))
    }

    /// The SYN+ACK arrives, with this option.
    pub fn on_answer(&mut self, option: Option<AccurateOption>) {
        self.owed = FIRST_SEGMENTS;
        self.find(option);
    }

    /// What the peer sends first decides (3.2.3.2.3, 3.2.3.2.4).
    fn find(&mut self, option: Option<AccurateOption>) {
        self.reads = Some(option.is_some_and(|option| !option.is_cleared()));
        self.sends = option.is_some();
    }

    /// `bytes` of data arrive with this ECN field. Returns whether it differs from the last one's, which is acknowledged
    /// at once (3.2.3.3).
    pub fn on_data(&mut self, field: Field, bytes: u32) -> bool {
        let counter = match field {
            Field::NotCapable => None,
            Field::Capable => Some(&mut self.received.e0b),
            Field::LowLatency => Some(&mut self.received.e1b),
            Field::Experienced => Some(&mut self.received.ceb),
        };
        if let Some(counter) = counter {
            *counter = counter.wrapping_add(bytes);
        }
        self.last.replace(field).is_some_and(|last| last != field)
    }

    /// Whether the next segment has something to report.
    fn is_due(&self) -> bool {
        self.sends && (self.received != self.reported || self.owed > 0)
    }

    /// Bytes of options that SACK blocks leave free: an option that is due goes before the third block.
    pub fn reserved(&self) -> u32 {
        if self.is_due() {
            TWO_FIELDS
        } else {
            0
        }
    }

    /// The option of a segment, alone an ack or with `data`, that has room for `room` bytes of it. It has all fields, or
    /// as many as fit if those that changed are among them (3.2.3.3).
    pub fn on_transmit(&mut self, data: bool, room: u32) -> Option<AccurateOption> {
        if !self.sends || (data && !self.is_due()) {
            return None;
        }
        let option = (0..=3).rev().map(|count| self.option(count)).find(|option| option.bytes() <= room)?;
        let (mut received, mut reported) = (self.received, self.reported);
        let fields = received.ordered(option.is_order_1).into_iter().zip(reported.ordered(option.is_order_1));
        let has_changed = fields.skip(usize::from(option.count)).any(|(now, before)| now != before);
        if has_changed {
            return None;
        }
        self.reported = self.received;
        self.owed = self.owed.saturating_sub(1);
        Some(option)
    }

    /// An option of `count` fields. That of the low-latency service comes first where it has counted.
    fn option(&self, count: u8) -> AccurateOption {
        let is_order_1 = self.received.e1b != Counters::FIRST.e1b;
        let mut received = self.received;
        let fields = received.ordered(is_order_1).map(|counter| *counter & MASK);
        let mut option = AccurateOption { is_order_1, count, ..AccurateOption::default() };
        option.fields[..usize::from(count)].copy_from_slice(&fields[..usize::from(count)]);
        option
    }

    /// An ack arrives that is not older than others. Returns the bytes that it reports as marked; `None`: it reports
    /// none, and the packet counter has to do.
    pub fn on_ack(&mut self, option: Option<AccurateOption>) -> Option<u32> {
        if self.reads.is_none() {
            self.find(option);
        }
        let option = option.filter(|option| self.reads == Some(true) && option.count >= 2)?;
        let mut marked = 0;
        let counters = self.counted.ordered(option.is_order_1).into_iter().enumerate();
        for (at, counter) in counters.take(usize::from(option.count)) {
            // The least movement of 24 bits. Backwards: an estimate was too high, which later bytes make up for.
            let delta = ((option.fields[at].wrapping_sub(*counter) << 8).cast_signed() >> 8).max(0).cast_unsigned();
            *counter = counter.wrapping_add(delta);
            if at == 1 {
                marked = delta;
            }
        }
        Some(marked)
    }

    /// An ack without the option reported about so many marked bytes by its packet counter.
    pub fn on_estimate(&mut self, bytes: u32) {
        self.counted.ceb = self.counted.ceb.wrapping_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sender and receiver whose options are read.
    fn pair() -> (ByteCounts, ByteCounts) {
        let (mut sender, mut receiver) = (ByteCounts::default(), ByteCounts::default());
        sender.on_answer(receiver.on_transmit_answer());
        receiver.on_ack(sender.on_transmit(false, 12));
        (sender, receiver)
    }

    #[test]
    fn a_syn_ack_that_is_sent_again_has_none_and_a_client_that_finds_none_sends_none() {
        let mut server = ByteCounts::default();
        let first = server.on_transmit_answer();
        assert_eq!(first, Some(AccurateOption { is_order_1: false, fields: [1, 0, 1], count: 3 }));
        assert_eq!(server.on_transmit_answer(), None);
        let (mut found, mut missed) = (ByteCounts::default(), ByteCounts::default());
        found.on_answer(first);
        missed.on_answer(None);
        assert_eq!(found.on_transmit(true, 12), first);
        assert_eq!((missed.on_transmit(false, 12), missed.on_ack(first)), (None, None));
    }

    #[test]
    fn cleared_counters_are_not_read() {
        let mut client = ByteCounts::default();
        client.on_answer(Some(AccurateOption { is_order_1: false, fields: [0, 0, 0], count: 3 }));
        let marked = AccurateOption { is_order_1: false, fields: [1, 5000, 1], count: 3 };
        assert_eq!(client.on_ack(Some(marked)), None);
    }

    #[test]
    fn a_change_of_the_field_is_acknowledged_at_once() {
        let mut receiver = ByteCounts::default();
        let fields = [Field::Capable, Field::Capable, Field::Experienced, Field::Experienced, Field::Capable];
        assert_eq!(fields.map(|field| receiver.on_data(field, 1000)), [false, false, true, false, true]);
    }

    /// 8 bytes beside two SACK blocks and timestamps hold two fields, 4 none.
    #[test]
    fn what_changed_comes_first_and_is_never_left_out() {
        let (_, mut receiver) = pair();
        receiver.on_data(Field::LowLatency, 700);
        receiver.on_data(Field::Experienced, 300);
        assert_eq!(receiver.reserved(), 8);
        assert_eq!(receiver.on_transmit(false, 4), None);
        let short = AccurateOption { is_order_1: true, fields: [701, 300, 0], count: 2 };
        assert_eq!(receiver.on_transmit(false, 8), Some(short));
        assert_eq!((receiver.reserved(), receiver.on_transmit(true, 12)), (0, None), "data report changes only");
        receiver.on_data(Field::Capable, 50);
        assert_eq!(receiver.on_transmit(false, 8), None, "e0b is the third");
        assert_eq!(receiver.on_transmit(true, 12).map(|option| option.fields), Some([701, 300, 51]));
    }

    #[test]
    fn what_an_estimate_by_packets_had_too_much_is_made_up_for() {
        let (mut sender, mut receiver) = pair();
        receiver.on_data(Field::Experienced, 3000);
        sender.on_estimate(4000);
        assert_eq!(sender.on_ack(receiver.on_transmit(false, 12)), Some(0));
        receiver.on_data(Field::Experienced, 1500);
        assert_eq!(sender.on_ack(receiver.on_transmit(false, 12)), Some(500));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(is_order_1: bool, fields: [u32; 3], count in 0u8..=3) {
            let mut option = AccurateOption { is_order_1, count, ..AccurateOption::default() };
            (0..usize::from(count)).for_each(|at| option.fields[at] = fields[at] & MASK);
            let mut bytes = Vec::new();
            option.write(|part| bytes.extend_from_slice(part));
            prop_assert_eq!(usize::from(bytes[1]), bytes.len());
            prop_assert_eq!(bytes.len().next_multiple_of(4) as u32, option.bytes());
            prop_assert_eq!(AccurateOption::read(bytes[0], &bytes[2..]), Some(option));
            prop_assert_eq!(AccurateOption::read(173, &bytes[2..]), None);
        }

        /// Marked bytes add up whatever the counters' wraps.
        #[test]
        fn marked_bytes_are_counted_beyond_24_bits(
            arrivals in proptest::collection::vec((0usize..4, 1u32..3_000_000), 1..60),
        ) {
            let (mut sender, mut receiver) = pair();
            let (mut marked, mut reported) = (0u64, 0u64);
            for (field, bytes) in arrivals {
                let field = [Field::NotCapable, Field::Capable, Field::LowLatency, Field::Experienced][field];
                receiver.on_data(field, bytes);
                marked += if field == Field::Experienced { u64::from(bytes) } else { 0 };
                reported += u64::from(sender.on_ack(receiver.on_transmit(false, 12)).unwrap_or_default());
            }
            prop_assert_eq!(reported, marked);
        }
    }
}
