//! Proportional Rate Reduction (RFC 9937 6): the window of fast recovery, which follows what the network delivers down
//! to the slow-start threshold. The names are the RFC's.

/// What an ack shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrrAck {
    /// DeliveredData: bytes that it delivers, cumulatively or selectively.
    pub delivered: u64,
    /// SafeACK: it moves the cumulative ack and shows no further loss.
    pub safe: bool,
    /// inflight after it, in bytes.
    pub in_flight: u64,
    /// ssthresh in bytes.
    pub ssthresh: u64,
}

/// PRR of one recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prr {
    /// RecoverFS: bytes in the network when the recovery began, those delivered by that ack included.
    recover_fs: u64,
    /// prr_delivered and prr_out.
    delivered: u64,
    out: u64,
    /// The congestion window in bytes.
    pub window: u64,
    mss: u64,
}

impl Prr {
    /// Fast recovery begins with `recover_fs` bytes in the network, for segments of `mss` bytes.
    pub fn new(recover_fs: u64, mss: u64) -> Prr {
        Prr { recover_fs: recover_fs.max(1), delivered: 0, out: 0, window: 0, mss }
    }

    /// Fires on each ack, the one that began the recovery included.
    pub fn on_ack(&mut self, ack: &PrrAck) {
        let &PrrAck { delivered, safe, in_flight, ssthresh } = ack;
        self.delivered += delivered;
        let mut send = if in_flight > ssthresh {
            (u128::from(self.delivered) * u128::from(ssthresh)).div_ceil(u128::from(self.recover_fs)) as u64
        } else {
            (self.out + self.delivered.saturating_sub(self.out).max(delivered) + if safe { self.mss } else { 0 })
                .min(self.out + (ssthresh - in_flight))
        }
        .saturating_sub(self.out);
        if self.out == 0 {
            // The fast retransmit goes whatever the window.
            send = send.max(self.mss);
        }
        self.window = in_flight + send;
    }

    /// `bytes` are sent.
    pub fn on_transmit(&mut self, bytes: u64) {
        self.out += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;

    /// Sends what the window allows; returns the segments.
    fn send(prr: &mut Prr, in_flight: &mut u64) -> u64 {
        let mut segments = 0;
        while *in_flight + MSS <= prr.window {
            *in_flight += MSS;
            prr.on_transmit(MSS);
            segments += 1;
        }
        segments
    }

    /// One of 20 segments is lost, and the threshold is 10 (RFC 9937 7): half of the acks bring a segment, and the
    /// window ends at the threshold.
    #[test]
    fn one_segment_leaves_for_two_delivered_down_to_the_threshold() {
        let mut prr = Prr::new(20 * MSS, MSS);
        let mut in_flight = 19 * MSS;
        let mut sent = Vec::new();
        for _ in 0..19 {
            in_flight -= MSS;
            prr.on_ack(&PrrAck { delivered: MSS, safe: false, in_flight, ssthresh: 10 * MSS });
            sent.push(send(&mut prr, &mut in_flight));
        }
        // The second waits until half of the bytes make a whole segment.
        assert_eq!(sent[..8], [1, 0, 0, 1, 0, 1, 0, 1]);
        assert_eq!((sent.iter().sum::<u64>(), in_flight), (10, 10 * MSS));
    }

    /// Most of the window is lost: what is left is not let out at once, but grows by a segment an ack without news of
    /// loss.
    #[test]
    fn after_heavy_losses_the_window_grows_with_what_is_delivered() {
        let mut prr = Prr::new(20 * MSS, MSS);
        let mut in_flight = 3 * MSS;
        let mut sent = Vec::new();
        for safe in [false, true, true] {
            in_flight -= MSS;
            prr.on_ack(&PrrAck { delivered: MSS, safe, in_flight, ssthresh: 10 * MSS });
            sent.push(send(&mut prr, &mut in_flight));
        }
        assert_eq!(sent, [1, 2, 2]);
    }
}
