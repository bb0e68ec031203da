//! 4.4BSD (Net/3): `tcp_input`, `tcp_output`, `tcp_quench`; RFC 2525 lists its bugs. ton and asym measured on BSD/OS, which
//! has this TCP. Its growth is [`crate::config::Counting::Bsd`], its timer `bsd` of `rtt.rs`.

use crate::connection::Connection;
use crate::sender::Sender;
use crate::wire::Segment;

impl Sender {
    /// Whether header prediction takes a new ack (RFC 2525 2.8): it checks that nothing is being sent again, that the
    /// window offered stands, and that the congestion window would hold nothing back, but not whether that window is
    /// inflated. Fast recovery then does not end: the window stays inflated, and duplicates are counted on from where
    /// they were. The repair of a corrupted segment ends all the same: loss notification looks at every ack.
    #[inline]
    pub fn predicts(&self, segment: &Segment, is_repairing: impl FnOnce() -> bool) -> bool {
        self.era.header_prediction
            && segment.payload == 0
            && self.nxt == self.max
            && self.window.offer_stands
            && self.cwnd() >= self.window.offered as f64
            && !is_repairing()
    }
}

/// The receiver acknowledges when the application has read (`tcp_output`: the window would move by two segments).
impl Connection {
    /// The application reads after an ack that is due at once has gone, and another one then offers the room.
    pub(crate) fn before_reading(&mut self) {
        if self.sender.era.acks_by_space && self.receiver.ack_now {
            self.receiver.defer_room();
        }
    }

    /// With acks by space, one is due for the room that the application has made.
    #[inline]
    pub(crate) fn acknowledge_room(&mut self) {
        self.receiver.ack_now |= self.sender.era.acks_by_space && self.window_update_is_due();
    }

    /// Whether the window would move by as much as an ack stands for (two segments, or d: asym 8.2), or by half of the
    /// buffer (RFC 9293 3.8.6.2.2). A segment counts with its options where acks go by space.
    pub(crate) fn window_update_is_due(&self) -> bool {
        let options = if self.sender.era.acks_by_space { self.data_option_bytes() } else { 0 };
        let worth =
            u64::from(self.segments_per_ack() * (self.sender.mss + options)).min(self.receiver.window.buffer / 2);
        self.receiver.window.movement(self.receiver.next, self.window_to_offer()) >= worth && !self.receiver.finished
    }
}
