//! TCP Prague (draft-briscoe-iccrg-prague-congestion-control-04): a scalable sender for queues of low latency. As DCTCP it
//! reduces by half the share of marked data, once a round trip; what was not marked opens the window, in round trips
//! shorter than 25 ms by so much less that flows of any such round trip get equal rates.
//!
//! ```text
//! 2.4.2   alpha += g (M - alpha), once a virtual round trip
//! 2.4.3   cwnd += (rtt / rtt_virt)^2 (acked - marked) mss / cwnd      rtt_virt = max(rtt, 25 ms)
//! ```
//!
//! With a peer whose acks do not count marks (RFC 3168), a mark halves the window, as a loss does (RFC 9331 4.3).
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
    /// Whether acks have told how much was marked.
    counts_marks: bool,
}

impl Growth for Prague {
    fn may_grow(&mut self, ack: &AckSample) -> bool {
        self.acked += ack.delivered;
        self.marked += ack.marked;
        self.counts_marks |= ack.marked > 0;
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
        if !self.counts_marks {
            return window.half_of(window.cwnd());
        }
        let alpha = *self.alpha.get_or_insert(1.0);
        window.cwnd() * (1.0 - alpha / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{avoiding, sample};
    use super::super::{AckSample, CongestionController, Loss, Signal};
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

    /// What the second of two marks a second apart leaves of the window, if acks report so many bytes for each.
    fn left_by_a_second_mark(marked: u64) -> f64 {
        let mut control = avoiding(100, &[], Prague::default());
        let mut left = 0.0;
        for second in 0..2 {
            let now = Time::from_seconds(f64::from(second));
            control.on_ack(&AckSample { now, delivered: 1000, marked, ..sample(1000) });
            let before = control.window();
            control.on_loss(&Loss { now, signal: Signal::Mark, flight: 0, in_flight: 0 });
            left = control.window() / before;
            for ack in 1..9 {
                let now = Time::from_seconds(f64::from(second) + 0.1 * f64::from(ack));
                control.on_ack(&AckSample { now, delivered: 1000, ..sample(1000) });
            }
        }
        left
    }

    #[test]
    fn marks_that_a_peer_does_not_count_halve_the_window_each_time() {
        assert!((left_by_a_second_mark(0) - 0.5).abs() < 1e-9);
        // alpha has fallen for eight round trips or so.
        assert!(left_by_a_second_mark(1000) > 0.6);
    }
}
