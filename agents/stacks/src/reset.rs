//! The answer to a segment that belongs to no connection (RFC 9293 3.10.7.1), and to an unacceptable ack while one is
//! being opened (3.10.7.3, 3.10.7.4).

use backchannel_core::packet::{Packet, TcpFlags};

use crate::wire::Segment;

/// The reset that answers `packet`; `None` when that is not TCP, damaged, or a reset itself.
pub fn reset_for(id: u64, packet: &Packet) -> Option<Packet> {
    let segment = Segment::read(packet)?;
    if segment.has(TcpFlags::RST) {
        return None;
    }
    let answer = if segment.has(TcpFlags::ACK) {
        Segment { seq: segment.ack, flags: TcpFlags::RST, ..Segment::default() }
    } else {
        let ack = segment.seq + segment.space();
        Segment { ack, flags: TcpFlags::RST | TcpFlags::ACK, ..Segment::default() }
    };
    Some(answer.packet(id, packet.flow()?.reversed(), &[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seq::SeqNumber;
    use backchannel_core::packet::FlowKey;

    #[test]
    fn an_ack_is_answered_at_its_number_and_a_syn_behind_it() {
        let flow = FlowKey { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), src_port: 1, dst_port: 2 };
        let answer = |segment: Segment| reset_for(1, &segment.packet(1, flow, &[])).map(|p| Segment::read(&p).unwrap());
        let ack = answer(Segment { seq: SeqNumber(7), ack: SeqNumber(99), flags: TcpFlags::ACK, ..Segment::default() })
            .unwrap();
        assert_eq!((ack.seq, ack.flags), (SeqNumber(99), TcpFlags::RST));
        let syn = answer(Segment { seq: SeqNumber(7), flags: TcpFlags::SYN, ..Segment::default() }).unwrap();
        assert_eq!((syn.seq.0, syn.ack.0, syn.flags), (0, 8, TcpFlags::RST | TcpFlags::ACK));
        assert_eq!(answer(Segment { flags: TcpFlags::RST, ..Segment::default() }), None);
    }
}
