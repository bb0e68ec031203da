//! Explicit congestion notification on one connection (RFC 3168 6.1), and what ack congestion control adds (asym 6.1): acks
//! are sent as ECN-capable too, and the sender of data tells the receiver when one of them came marked.

use backchannel_core::packet::{Ecn as Field, TcpFlags};

use crate::wire::Segment;

/// What a host wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnMode {
    /// No ECN.
    Off,
    /// RFC 3168: data only.
    Data,
    /// Acks as well.
    DataAndAcks,
}

/// State of both halves.
#[derive(Clone, Copy, Debug)]
pub struct Ecn {
    mode: EcnMode,
    /// Both sides have agreed.
    pub agreed: bool,
    /// Acks carry ECE until the peer says CWR.
    echo: bool,
    /// The next data segment tells that an ack came marked.
    ack_marked: bool,
    /// The next new data segment says CWR.
    reduced: bool,
    /// The window is not cut again before this offset is acknowledged.
    until: u64,
}

impl Ecn {
    /// Before the handshake.
    pub fn new(mode: EcnMode) -> Ecn {
        Ecn { mode, agreed: false, echo: false, ack_marked: false, reduced: false, until: 0 }
    }

    /// Flags of this side's SYN, or of its SYN+ACK once the peer's SYN was learnt (RFC 3168 6.1.1).
    pub fn syn_flags(&self, answering: bool) -> u8 {
        match (self.mode, answering) {
            (EcnMode::Off, _) => 0,
            (_, false) => TcpFlags::ECE | TcpFlags::CWR,
            (_, true) => TcpFlags::ECE * u8::from(self.agreed),
        }
    }

    /// The peer's SYN or SYN+ACK.
    pub fn learn(&mut self, syn: &Segment) {
        let wanted = if syn.has(TcpFlags::ACK) { TcpFlags::ECE } else { TcpFlags::ECE | TcpFlags::CWR };
        let both = TcpFlags::ECE | TcpFlags::CWR;
        self.agreed = self.mode != EcnMode::Off && syn.flags & both == wanted;
    }

    /// A segment comes; `pure_ack`: it carries no data.
    pub fn hear(&mut self, segment: &Segment, pure_ack: bool) {
        if !self.agreed {
            return;
        }
        if segment.has(TcpFlags::CWR) {
            self.echo = false;
        }
        if segment.ecn == Field::Experienced {
            *(if pure_ack { &mut self.ack_marked } else { &mut self.echo }) = true;
        }
    }

    /// Whether an ack of `una` asks for a smaller window; at most once for what was outstanding then.
    pub fn reduce(&mut self, segment: &Segment, una: u64, max: u64) -> bool {
        let asked = self.agreed && segment.has(TcpFlags::ECE) && una >= self.until;
        if asked {
            (self.until, self.reduced) = (max, true);
        }
        asked
    }

    /// The window was cut for a loss: no second cut for marks of the same window, and the peer is told.
    pub fn cut(&mut self, max: u64) {
        self.until = max;
        self.reduced = self.agreed;
    }

    /// Completes a segment that goes: flags, marks, and the ECN field. `fresh`: it carries data never sent before.
    pub fn dress(&mut self, segment: &mut Segment, fresh: bool) {
        if !self.agreed {
            return;
        }
        if self.echo {
            segment.flags |= TcpFlags::ECE;
        }
        if segment.payload > 0 {
            if std::mem::take(&mut self.ack_marked) {
                segment.marks |= backchannel_core::packet::mark::ACK_CONGESTION;
            }
            if fresh && std::mem::take(&mut self.reduced) {
                segment.flags |= TcpFlags::CWR;
            }
        }
        // RFC 3168 6.1.5: no retransmission is sent as capable.
        if fresh || (segment.payload == 0 && self.mode == EcnMode::DataAndAcks) {
            segment.ecn = Field::Capable;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(mode: EcnMode) -> Ecn {
        Ecn { agreed: true, ..Ecn::new(mode) }
    }

    #[test]
    fn a_marked_data_segment_is_echoed_until_cwr() {
        let mut ecn = agreed(EcnMode::Data);
        let ack = |ecn: &mut Ecn| {
            let mut ack = Segment { flags: TcpFlags::ACK, ..Segment::default() };
            ecn.dress(&mut ack, false);
            ack
        };
        ecn.hear(&Segment { payload: 100, ecn: Field::Experienced, ..Segment::default() }, false);
        assert!(ack(&mut ecn).has(TcpFlags::ECE) && ack(&mut ecn).has(TcpFlags::ECE));
        assert_eq!(ack(&mut ecn).ecn, Field::NotCapable, "RFC 3168 sends pure acks as not capable");
        ecn.hear(&Segment { payload: 100, flags: TcpFlags::CWR, ..Segment::default() }, false);
        assert!(!ack(&mut ecn).has(TcpFlags::ECE));
    }

    #[test]
    fn the_window_is_cut_once_for_what_was_outstanding_and_the_peer_is_told() {
        let mut ecn = agreed(EcnMode::Data);
        let echo = Segment { flags: TcpFlags::ACK | TcpFlags::ECE, ..Segment::default() };
        assert!(ecn.reduce(&echo, 1000, 9000));
        assert!(!ecn.reduce(&echo, 5000, 12_000));
        assert!(ecn.reduce(&echo, 9000, 15_000));
        let mut again = Segment { payload: 10, ..Segment::default() };
        ecn.dress(&mut again, false);
        assert!(!again.has(TcpFlags::CWR) && again.ecn == Field::NotCapable, "not on a retransmission");
        let mut fresh = Segment { payload: 10, ..Segment::default() };
        ecn.dress(&mut fresh, true);
        assert!(fresh.has(TcpFlags::CWR) && fresh.ecn == Field::Capable);
    }

    #[test]
    fn a_marked_ack_is_told_on_the_next_data_segment_only() {
        let mut ecn = agreed(EcnMode::DataAndAcks);
        ecn.hear(&Segment { ecn: Field::Experienced, ..Segment::default() }, true);
        let marks = [0, 1].map(|_| {
            let mut data = Segment { payload: 10, ..Segment::default() };
            ecn.dress(&mut data, true);
            data.marks
        });
        assert_eq!(marks, [backchannel_core::packet::mark::ACK_CONGESTION, 0]);
    }
}
