//! TCP Prague (draft-briscoe-iccrg-prague-congestion-control-04): a scalable sender for queues of low latency. As DCTCP it
//! reduces by half the share of marked data, once a round trip; what was not marked opens the window, in round trips
//! shorter than 25 ms by so much less that flows of any such round trip get equal rates.
//!
//! ```text
//! 2.4.2   alpha += g (M - alpha), once a virtual round trip
//! 2.4.3   cwnd += (rtt / rtt_virt)^2 (acked - marked) mss / cwnd      rtt_virt = max(rtt, 25 ms)
//! ```
//!
//! Differs from the source: a loss halves the window as Reno's, which 2.4.4 allows, and no classic queue is detected.

use backchannel_core::time::Time;

use super::{AckSample, Growth, Window};

/// g of 2.4.2.
const GAIN: f64 = 1.0 / 16.0;
/// RTT_virt_min of 2.4.4 in seconds.
const RTT_VIRT_MIN_S: f64 = 0.025;

/// The share of marked data, as a mean over virtual round trips.
#[derive(Debug, Default)]
pub struct Prague {
    /// alpha; `None` before the first mark, which counts as one of all data.
    alpha: Option<f64>,
    acked: u64,
    marked: u64,
    updated_at: Time,
}

impl Growth for Prague {
    fn may_grow(&mut self, ack: &AckSample) -> bool {
        self.acked += ack.delivered;
        self.marked += ack.marked;
        if (ack.now - self.updated_at).as_secs_f64() >= ack.srtt_s.max(RTT_VIRT_MIN_S) && self.acked > 0 {
            let m = self.marked as f64 / self.acked as f64;
            if let Some(alpha) = &mut self.alpha {
                *alpha += GAIN * (m - *alpha);
            }
            (self.acked, self.marked, self.updated_at) = (0, 0, ack.now);
        }
        true
    }

    fn grown(&mut self, window: &Window, ack: &AckSample) -> f64 {
        let share = (ack.srtt_s / ack.srtt_s.max(RTT_VIRT_MIN_S)).powi(2);
        let unmarked = ack.acked.saturating_sub(ack.marked) as f64;
        window.cwnd() + share * unmarked * window.mss() / window.cwnd()
    }

    fn marked(&mut self, window: &Window) -> f64 {
        let alpha = *self.alpha.get_or_insert(1.0);
        window.cwnd() * (1.0 - alpha / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{avoiding, sample};
    use super::super::{AckSample, CongestionController};
    use super::*;

    /// A window of acks over this round trip. Returns the bytes by which it has grown.
    fn grown_in_a_round_trip(srtt_s: f64, marked: u64) -> f64 {
        let mut control = avoiding(100, &[], Prague::default());
        for _ in 0..100 {
            control.on_ack(&AckSample { srtt_s, marked, ..sample(1000) });
        }
        control.window() - 100_000.0
    }

    #[test]
    fn rates_grow_alike_below_25_ms_and_by_a_segment_a_round_trip_above() {
        assert!((grown_in_a_round_trip(0.1, 0) - 1000.0).abs() < 10.0);
        // A fifth of the round trip: a 25th of a segment a round trip, which is a fifth a second.
        assert!((grown_in_a_round_trip(0.005, 0) - 40.0).abs() < 1.0);
        assert_eq!(grown_in_a_round_trip(0.1, 1000), 0.0, "what was marked opens no window");
    }
}
