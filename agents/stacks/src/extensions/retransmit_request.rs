//! The fast-retransmit mark (asym 6.1, 6.3): a receiver that sends few acks asks for a retransmission at once, and a
//! sender with sender adaptation retransmits at the first duplicate ack that carries the mark.

use backchannel_core::packet::mark;

use super::{DuplicateHints, Extension, Outgoing};
use crate::config::Config;
use crate::wire::Segment;

/// Both halves.
#[derive(Clone, Debug)]
pub(super) struct RetransmitRequest {
    /// Segments out of order after which duplicate acks carry the mark; 0: never.
    mark_after: u32,
    /// Whether one marked duplicate ack is enough.
    obeys: bool,
}

impl RetransmitRequest {
    pub(super) fn new(config: &Config) -> RetransmitRequest {
        RetransmitRequest { mark_after: config.mark_after_segments, obeys: config.marked_duplicates }
    }
}

impl Extension for RetransmitRequest {
    fn is_enabled(&self) -> bool {
        self.mark_after > 0 || self.obeys
    }

    /// So many duplicates have not brought the retransmission.
    fn on_transmit(&mut self, segment: &mut Segment, outgoing: &Outgoing) {
        if !outgoing.data && self.mark_after > 0 && outgoing.out_of_order > self.mark_after {
            segment.marks |= mark::FAST_RETRANSMIT;
        }
    }

    fn on_duplicate_ack(&mut self, segment: &Segment, hints: &mut DuplicateHints) {
        hints.retransmit_now |= self.obeys && segment.marks & mark::FAST_RETRANSMIT != 0;
    }
}
