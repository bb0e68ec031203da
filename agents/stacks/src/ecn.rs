//! Explicit congestion notification on one connection (RFC 3168 6.1), and what ack congestion control adds (asym 6.1):
//! acks are ECN-capable too, and the sender of data reports to the receiver when one of them was marked.

use backchannel_core::packet::{mark, Ecn as Field, TcpFlags};

use crate::config::EcnMode;
use crate::seq::Offset;
use crate::wire::Segment;

/// State of both halves.
#[derive(Clone, Copy, Debug)]
pub struct Ecn {
    mode: EcnMode,
    /// Both sides have agreed. Without that, nothing below is set.
    pub agreed: bool,
    /// Receiver: acks carry ECE until the peer sends CWR.
    echo: bool,
    /// Sender: the next data segment reports that an ack was marked.
    ack_marked: bool,
    /// Sender: the next new data segment carries CWR.
    reduced: bool,
    /// Sender: the window is not reduced again before everything below this offset is acknowledged.
    until: Offset,
}

impl Ecn {
    /// Before the handshake.
    pub fn new(mode: EcnMode) -> Ecn {
        Ecn { mode, agreed: false, echo: false, ack_marked: false, reduced: false, until: Offset::SYN }
    }

    /// Flags of this side's SYN, or of its SYN+ACK after [`Ecn::on_syn`] (RFC 3168 6.1.1).
    pub fn syn_flags(&self, answering: bool) -> u8 {
        match (self.mode, answering) {
            (EcnMode::Off, _) => 0,
            (_, false) => TcpFlags::ECE | TcpFlags::CWR,
            (_, true) => TcpFlags::ECE * u8::from(self.agreed),
        }
    }

    /// The peer's SYN or SYN+ACK arrives.
    pub fn on_syn(&mut self, syn: &Segment) {
        let wanted = if syn.has(TcpFlags::ACK) { TcpFlags::ECE } else { TcpFlags::ECE | TcpFlags::CWR };
        let both = TcpFlags::ECE | TcpFlags::CWR;
        self.agreed = self.mode != EcnMode::Off && syn.flags & both == wanted;
    }

    /// A segment arrives.
    pub fn on_segment(&mut self, segment: &Segment) {
        if !self.agreed {
            return;
        }
        if segment.has(TcpFlags::CWR) {
            self.echo = false;
        }
        if segment.ecn == Field::Experienced {
            let pure_ack = segment.space() == 0;
            *(if pure_ack { &mut self.ack_marked } else { &mut self.echo }) = true;
        }
    }

    /// Whether an ack of everything before `una` requests a smaller window, at most once for what was outstanding then.
    /// `max` is one beyond what was sent.
    pub fn requests_reduction(&mut self, segment: &Segment, una: Offset, max: Offset) -> bool {
        let requested = self.agreed && segment.has(TcpFlags::ECE) && una >= self.until;
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
}
