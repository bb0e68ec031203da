//! Explicit congestion notification on one connection, and how acks report marks: RFC 3168 6.1; what ack congestion
//! control adds (asym 6.1): acks are ECN-capable too, and the sender of data reports to the receiver when one of them
//! was marked; DCTCP's acks (RFC 8257 3.2), which tell of each segment; and Accurate ECN's counter of packets (RFC 9768
//! 3.2.2). Its option, which counts bytes, is in `accurate_option.rs`.
//!
//! Without the option, an ack for more than seven packets may hide eight marks, and the least number is taken.

use backchannel_core::packet::{mark, Ecn as Field, TcpFlags};

use crate::accurate_option::ByteCounts;
use crate::config::{Config, EcnMode};
use crate::seq::{Offset, SeqNumber};
use crate::wire::{Segment, MOST_OPTIONS};

/// The flags CWR and ECE, by which a SYN offers ECN (RFC 3168 6.1.1).
const BOTH: u8 = TcpFlags::ECE | TcpFlags::CWR;
/// What the counters of Accurate ECN begin with (RFC 9768 3.2.1).
const FIRST_COUNT: u32 = 5;

/// State of both halves.
#[derive(Clone, Copy, Debug)]
pub struct Ecn {
    mode: EcnMode,
    /// The field of packets that can be marked.
    capable: Field,
    /// Both sides have agreed. Without that, nothing below is set.
    pub agreed: bool,
    /// Receiver: acks carry ECE until the peer sends CWR; DCTCP: the last data segment was marked.
    echo: bool,
    /// Sender: the next data segment reports that an ack was marked.
    ack_marked: bool,
    /// Sender: the next new data segment carries CWR.
    reduced: bool,
    /// Sender: the window is not reduced again before everything below this offset is acknowledged.
    until: Offset,
    accurate: Accurate,
}

/// Counters of Accurate ECN.
#[derive(Clone, Copy, Debug)]
struct Accurate {
    /// The ACE field of the segment that ends the handshake: what the SYN+ACK carried.
    handshake: Option<u8>,
    /// r.cep: packets that arrived marked. s.cep: packets of ours that the peer has counted.
    received: u32,
    counted: u32,
    /// Of those, the ones that no ack of new data has reported yet.
    news: u32,
    /// The same in bytes, where the option counts them.
    news_bytes: u32,
    /// Whether the last ack of new data reported any.
    has_news: bool,
    /// Counts of the option, if this side has it.
    bytes: Option<ByteCounts>,
    /// The highest ack: older ones have older counts.
    newest_ack: Option<SeqNumber>,
}

impl Ecn {
    /// Before the handshake.
    pub fn new(config: &Config) -> Ecn {
        Ecn {
            mode: config.ecn,
            capable: if config.low_latency { Field::LowLatency } else { Field::Capable },
            agreed: false,
            echo: false,
            ack_marked: false,
            reduced: false,
            until: Offset::SYN,
            accurate: Accurate {
                handshake: None,
                received: FIRST_COUNT,
                counted: FIRST_COUNT,
                news: 0,
                news_bytes: 0,
                bytes: config.ecn_option.then(ByteCounts::default),
                has_news: false,
                newest_ack: None,
            },
        }
    }

    /// Sets flags of this side's SYN, or of its SYN+ACK after [`Ecn::on_syn`] (RFC 3168 6.1.1, RFC 9768 3.1).
    pub fn on_transmit_syn(&mut self, syn: &mut Segment, answering: bool) {
        match (self.mode, answering) {
            (EcnMode::Off, _) => {}
            (EcnMode::Accurate, false) => set_ace(syn, 0b111),
            (EcnMode::Accurate, true) if self.agreed => {
                set_ace(syn, self.accurate.handshake.unwrap_or_default());
                syn.accurate = self.accurate.bytes.as_mut().and_then(ByteCounts::on_transmit_answer);
            }
            (_, false) => syn.flags |= BOTH,
            (_, true) => syn.flags |= TcpFlags::ECE * u8::from(self.agreed),
        }
    }

    /// The peer's SYN or SYN+ACK arrives. A peer without Accurate ECN makes the connection one of RFC 3168.
    pub fn on_syn(&mut self, syn: &Segment) {
        let answer = syn.has(TcpFlags::ACK);
        if self.mode == EcnMode::Accurate {
            let agreed = if answer { matches!(ace(syn), 0b010 | 0b011 | 0b100 | 0b110) } else { ace(syn) == 0b111 };
            if agreed {
                self.agreed = true;
                self.accurate.handshake = Some(handshake_code(syn.ecn));
                if answer {
                    self.accurate.bytes.iter_mut().for_each(|bytes| bytes.on_answer(syn.accurate));
                }
                return;
            }
            self.mode = EcnMode::Data;
        }
        let wanted = if answer { TcpFlags::ECE } else { BOTH };
        self.agreed = self.mode != EcnMode::Off && syn.flags & BOTH == wanted;
    }

    /// Whether a segment ends a run of data segments that were marked, or were not: DCTCP's receiver then acknowledges
    /// those before it at once (RFC 8257 3.2).
    pub fn ends_run(&self, segment: &Segment) -> bool {
        let decides = self.mode == EcnMode::Dctcp && self.agreed && segment.payload > 0;
        decides && (segment.ecn == Field::Experienced) != self.echo
    }

    /// A segment arrives, other than a SYN. Returns whether it is acknowledged at once.
    #[inline]
    pub fn on_segment(&mut self, segment: &Segment) -> bool {
        if !self.agreed {
            return false;
        }
        let marked = segment.ecn == Field::Experienced;
        match self.mode {
            EcnMode::Accurate => {
                self.accurate.received += u32::from(marked);
                self.accurate.on_ack(segment);
                let counts = self.accurate.bytes.as_mut().filter(|_| segment.payload > 0);
                return counts.is_some_and(|counts| counts.on_data(segment.ecn, segment.payload));
            }
            EcnMode::Dctcp => {
                if segment.payload > 0 {
                    self.echo = marked;
                }
                return false;
            }
            _ => {}
        }
        if segment.has(TcpFlags::CWR) {
            self.echo = false;
        }
        if marked {
            let pure_ack = segment.space() == 0;
            *(if pure_ack { &mut self.ack_marked } else { &mut self.echo }) = true;
        }
        false
    }

    /// Bytes of an ack's options that SACK blocks leave to the option of Accurate ECN.
    #[inline]
    pub fn reserved_option_bytes(&self) -> u32 {
        self.accurate.bytes.as_ref().filter(|_| self.sends_option()).map_or(0, ByteCounts::reserved)
    }

    fn sends_option(&self) -> bool {
        self.agreed && self.mode == EcnMode::Accurate
    }

    /// Adds that option to a segment that has its other ones, an ack alone or one with `data`.
    #[inline(always)]
    pub fn add_option(&mut self, segment: &mut Segment, data: bool) {
        if self.sends_option() {
            if let Some(bytes) = &mut self.accurate.bytes {
                let room = MOST_OPTIONS - segment.option_bytes() - segment.sack_bytes();
                segment.accurate = bytes.on_transmit(data, room);
            }
        }
    }

    /// Of `delivered` bytes, those that an ack reports as marked, where acks report that: of segments of `mss` bytes.
    pub fn marked_bytes(&mut self, segment: &Segment, delivered: u64, mss: u32) -> u64 {
        match self.mode {
            _ if !self.agreed => 0,
            EcnMode::Accurate => {
                let estimate = std::mem::take(&mut self.accurate.news) * mss;
                self.accurate.bytes.iter_mut().for_each(|bytes| bytes.on_estimate(estimate));
                let marked = estimate + std::mem::take(&mut self.accurate.news_bytes);
                self.accurate.has_news = marked > 0;
                u64::from(marked).min(delivered)
            }
            EcnMode::Dctcp if segment.has(TcpFlags::ECE) => delivered,
            _ => 0,
        }
    }

    /// Whether an ack of everything before `una` requests a smaller window, at most once for what was outstanding then.
    /// `max` is one beyond what was sent.
    pub fn requests_reduction(&mut self, segment: &Segment, una: Offset, max: Offset) -> bool {
        let marked = match self.mode {
            EcnMode::Accurate => std::mem::take(&mut self.accurate.has_news),
            _ => segment.has(TcpFlags::ECE),
        };
        let requested = self.agreed && marked && una >= self.until;
        if requested {
            (self.until, self.reduced) = (max, true);
        }
        requested
    }

    /// A loss has reduced the window: marks of the same window do not reduce it again, and CWR tells the peer.
    pub fn on_reduction(&mut self, max: Offset) {
        self.until = max;
        self.reduced = self.agreed;
    }

    /// Sets flags, marks and the ECN field of an outgoing segment. `fresh`: it carries data never sent before.
    pub fn on_transmit(&mut self, segment: &mut Segment, fresh: bool) {
        if !self.agreed {
            return;
        }
        if self.mode == EcnMode::Accurate {
            let count = self.accurate.received as u8 & 0b111;
            set_ace(segment, self.accurate.handshake.take().unwrap_or(count));
            segment.ecn = self.capable;
            return;
        }
        if self.echo {
            segment.flags |= TcpFlags::ECE;
        }
        if segment.payload > 0 {
            if std::mem::take(&mut self.ack_marked) {
                segment.marks |= mark::ACK_CONGESTION;
            }
            if fresh && std::mem::take(&mut self.reduced) {
                segment.flags |= TcpFlags::CWR;
            }
        }
        // RFC 3168 6.1.5: a retransmission is not capable.
        if fresh || (segment.payload == 0 && self.mode == EcnMode::DataAndAcks) {
            segment.ecn = self.capable;
        }
    }

    /// Sets flags of an ack for what came before a change of marks.
    pub fn on_transmit_early(&self, segment: &mut Segment) {
        if !self.echo {
            segment.flags |= TcpFlags::ECE;
        }
    }

    /// The handshake is over at the side that accepted: what it told of the SYN is not repeated.
    pub fn on_accepted(&mut self) {
        self.accurate.handshake = None;
    }
}

impl Accurate {
    /// The peer's count, of which an ack has the last three bits.
    fn on_ack(&mut self, segment: &Segment) {
        if self.newest_ack.is_some_and(|newest| segment.ack < newest) {
            return;
        }
        let marked_bytes = self.bytes.as_mut().and_then(|bytes| bytes.on_ack(segment.accurate));
        self.news_bytes += marked_bytes.unwrap_or_default();
        // The first ack of a client tells of the SYN+ACK instead (RFC 9768 3.2.2.1).
        let is_first = self.newest_ack.replace(segment.ack).is_none();
        if is_first && (0b010..=0b100).contains(&ace(segment)) {
            return;
        }
        let news = (u32::from(ace(segment)) + 8 - self.counted % 8) % 8;
        self.counted += news;
        // Where the option counts bytes, acks that were marked count for nothing.
        self.news += if marked_bytes.is_some() { 0 } else { news };
    }
}

/// The ACE field (RFC 9768 3.2.2): AE, CWR, ECE.
fn ace(segment: &Segment) -> u8 {
    let bit = |set: bool, place: u8| u8::from(set) << place;
    bit(segment.marks & mark::ACCURATE_ECN != 0, 2)
        | bit(segment.has(TcpFlags::CWR), 1)
        | bit(segment.has(TcpFlags::ECE), 0)
}

fn set_ace(segment: &mut Segment, value: u8) {
    let flag = |place: u8, flag: u8| if value >> place & 1 == 1 { flag } else { 0 };
    segment.marks |= flag(2, mark::ACCURATE_ECN);
    segment.flags |= flag(1, TcpFlags::CWR) | flag(0, TcpFlags::ECE);
}

/// How the handshake reports the ECN field of a SYN or SYN+ACK (RFC 9768 3.1.1, table 2; 3.2.2.1, table 3).
fn handshake_code(field: Field) -> u8 {
    match field {
        Field::NotCapable => 0b010,
        Field::LowLatency => 0b011,
        Field::Capable => 0b100,
        Field::Experienced => 0b110,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(mode: EcnMode) -> Ecn {
        let name = match mode {
            EcnMode::Data => "data",
            EcnMode::DataAndAcks => "data-and-acks",
            EcnMode::Dctcp => "dctcp",
            _ => "accurate",
        };
        let options = [("ecn".to_owned(), serde_json::json!(name))].into();
        Ecn { agreed: true, ..Ecn::new(&crate::config::stack_config("newreno", &options).unwrap()) }
    }

    #[test]
    fn a_marked_data_segment_is_echoed_until_cwr() {
        let mut ecn = agreed(EcnMode::Data);
        let ack = |ecn: &mut Ecn| {
            let mut ack = Segment { flags: TcpFlags::ACK, ..Segment::default() };
            ecn.on_transmit(&mut ack, false);
            ack
        };
        ecn.on_segment(&Segment { payload: 100, ecn: Field::Experienced, ..Segment::default() });
        assert!(ack(&mut ecn).has(TcpFlags::ECE) && ack(&mut ecn).has(TcpFlags::ECE));
        assert_eq!(ack(&mut ecn).ecn, Field::NotCapable, "RFC 3168 sends pure acks as not capable");
        ecn.on_segment(&Segment { payload: 100, flags: TcpFlags::CWR, ..Segment::default() });
        assert!(!ack(&mut ecn).has(TcpFlags::ECE));
    }

    #[test]
    fn the_window_is_reduced_once_for_what_was_outstanding_and_cwr_follows() {
        let mut ecn = agreed(EcnMode::Data);
        let echo = Segment { flags: TcpFlags::ACK | TcpFlags::ECE, ..Segment::default() };
        assert!(ecn.requests_reduction(&echo, Offset(1000), Offset(9000)));
        assert!(!ecn.requests_reduction(&echo, Offset(5000), Offset(12_000)));
        assert!(ecn.requests_reduction(&echo, Offset(9000), Offset(15_000)));
        let mut again = Segment { payload: 10, ..Segment::default() };
        ecn.on_transmit(&mut again, false);
        assert!(!again.has(TcpFlags::CWR) && again.ecn == Field::NotCapable, "not on a retransmission");
        let mut fresh = Segment { payload: 10, ..Segment::default() };
        ecn.on_transmit(&mut fresh, true);
        assert!(fresh.has(TcpFlags::CWR) && fresh.ecn == Field::Capable);
    }

    #[test]
    fn a_marked_ack_is_reported_on_the_next_data_segment_only() {
        let mut ecn = agreed(EcnMode::DataAndAcks);
        ecn.on_segment(&Segment { ecn: Field::Experienced, ..Segment::default() });
        let marks = [0, 1].map(|_| {
            let mut data = Segment { payload: 10, ..Segment::default() };
            ecn.on_transmit(&mut data, true);
            data.marks
        });
        assert_eq!(marks, [mark::ACK_CONGESTION, 0]);
    }

    /// A SYN or SYN+ACK of `ecn` as its peer reads it.
    fn syn(ecn: &mut Ecn, answering: bool) -> Segment {
        let flags = TcpFlags::SYN | if answering { TcpFlags::ACK } else { 0 };
        let mut syn = Segment { flags, ..Segment::default() };
        ecn.on_transmit_syn(&mut syn, answering);
        syn
    }

    fn fresh(mode: EcnMode) -> Ecn {
        Ecn { agreed: false, ..agreed(mode) }
    }

    #[test]
    fn accurate_ecn_is_agreed_and_a_peer_of_rfc_3168_makes_it_that() {
        let (mut client, mut server) = (fresh(EcnMode::Accurate), fresh(EcnMode::Accurate));
        server.on_syn(&syn(&mut client, false));
        client.on_syn(&syn(&mut server, true));
        assert!(client.agreed && server.agreed && client.mode == EcnMode::Accurate);
        for (ours, theirs) in [(EcnMode::Accurate, EcnMode::Data), (EcnMode::Data, EcnMode::Accurate)] {
            let (mut client, mut server) = (fresh(ours), fresh(theirs));
            server.on_syn(&syn(&mut client, false));
            client.on_syn(&syn(&mut server, true));
            assert_eq!((client.mode, client.agreed, server.agreed), (EcnMode::Data, true, true));
        }
    }

    #[test]
    fn accurate_ecn_counts_marks_modulo_eight_and_old_acks_report_nothing() {
        let (mut sender, mut receiver) = (agreed(EcnMode::Accurate), agreed(EcnMode::Accurate));
        let marked = Segment { payload: 1000, ecn: Field::Experienced, ..Segment::default() };
        let mut ack = |marks: u32, number: u32| {
            (0..marks).for_each(|_| assert!(!receiver.on_segment(&marked)));
            let mut ack = Segment { flags: TcpFlags::ACK, ack: SeqNumber(number), ..Segment::default() };
            receiver.on_transmit(&mut ack, false);
            ack
        };
        let acks = [ack(0, 1000), ack(3, 4000), ack(7, 11_000), ack(0, 12_000)];
        let reported = acks.map(|ack| {
            sender.on_segment(&ack);
            let bytes = sender.marked_bytes(&ack, 7000, 1000);
            (bytes, sender.requests_reduction(&ack, Offset(12_000), Offset(20_000)))
        });
        assert_eq!(reported, [(0, false), (3000, true), (7000, false), (0, false)]);
        sender.on_segment(&acks[1]);
        assert_eq!(sender.marked_bytes(&acks[1], 1000, 1000), 0);
    }

    /// Five marks take the counter from 5 to 2, which in a first ack would tell of the SYN+ACK.
    #[test]
    fn only_the_first_ack_tells_of_the_handshake() {
        let mut sender = agreed(EcnMode::Accurate);
        let reported = [0b010, 5, 0b010].map(|value| {
            let mut ack = Segment { flags: TcpFlags::ACK, ..Segment::default() };
            set_ace(&mut ack, value);
            sender.on_segment(&ack);
            sender.marked_bytes(&ack, 10_000, 1000)
        });
        assert_eq!(reported, [0, 0, 5000]);
    }

    #[test]
    fn a_run_of_marks_ends_where_dctcp_acknowledges_early() {
        let mut receiver = agreed(EcnMode::Dctcp);
        let data = |ecn| Segment { payload: 1000, ecn, ..Segment::default() };
        let echoes = [Field::Capable, Field::Experienced, Field::Experienced, Field::Capable].map(|ecn| {
            let ends = receiver.ends_run(&data(ecn));
            receiver.on_segment(&data(ecn));
            let mut ack = Segment { flags: TcpFlags::ACK, ..Segment::default() };
            receiver.on_transmit(&mut ack, false);
            (ends, ack.has(TcpFlags::ECE))
        });
        assert_eq!(echoes, [(false, false), (true, true), (false, true), (true, false)]);
    }
}
