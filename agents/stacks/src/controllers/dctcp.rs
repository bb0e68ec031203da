//! DCTCP (RFC 8257): a window falls in proportion to the share of data that were marked, once a round trip. It grows as
//! Reno's, and a loss halves it. The names are the RFC's.
//!
//! ```text
//! 3.3   DCTCP.Alpha = DCTCP.Alpha (1 - g) + g M        M: share of marked bytes of a window
//!       cwnd = cwnd (1 - DCTCP.Alpha / 2)
//! ```
//!
//! With a peer whose acks do not count marks (RFC 3168), a mark halves the window too.

use super::{AckSample, Growth, Window};

/// g of section 4.2.
const GAIN: f64 = 1.0 / 16.0;

/// The share of marked data, as a mean.
#[derive(Debug)]
pub struct Dctcp {
    /// DCTCP.Alpha.
    alpha: f64,
    /// DCTCP.BytesAcked and DCTCP.BytesMarked.
    acked: u64,
    marked: u64,
    /// Whether acks have told how much was marked.
    counts_marks: bool,
}

impl Default for Dctcp {
    fn default() -> Dctcp {
        Dctcp { alpha: 1.0, acked: 0, marked: 0, counts_marks: false }
    }
}

impl Growth for Dctcp {
    /// Steps 1 to 6 of section 3.3.
    fn may_grow(&mut self, ack: &AckSample) -> bool {
        self.acked += ack.delivered;
        self.marked += ack.marked;
        self.counts_marks |= ack.marked > 0;
        if ack.round_start && self.acked > 0 {
            let m = self.marked as f64 / self.acked as f64;
            self.alpha = self.alpha * (1.0 - GAIN) + GAIN * m;
            (self.acked, self.marked) = (0, 0);
        }
        true
    }

    fn marked(&mut self, window: &Window) -> f64 {
        if !self.counts_marks {
            return window.half_of(window.cwnd());
        }
        window.cwnd() * (1.0 - self.alpha / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{avoiding, lose, sample};
    use super::super::{AckSample, CongestionController, Loss, Signal};
    use super::*;
    use backchannel_core::time::Time;

    fn mark(control: &mut impl CongestionController) {
        control.on_loss(&Loss { now: Time::ZERO, signal: Signal::Mark, flight: 0, in_flight: 0 });
    }

    /// One window in ten acks, of which the first `marked` are marked.
    fn round(control: &mut impl CongestionController, marked: usize) {
        for number in 0..10 {
            let bytes = 1000 * u64::from(number < marked);
            control.on_ack(&AckSample { delivered: 1000, marked: bytes, round_start: number == 9, ..sample(1000) });
        }
    }

    #[test]
    fn a_tenth_of_marked_data_takes_a_twentieth_of_the_window() {
        let mut control = avoiding(100, &[], Dctcp::default());
        for _ in 0..200 {
            round(&mut control, 1);
        }
        let before = control.window();
        mark(&mut control);
        assert!((control.window() / before - 0.95).abs() < 0.001, "{}", control.window() / before);
    }

    #[test]
    fn marks_that_a_peer_does_not_count_halve_the_window_each_time() {
        let mut control = avoiding(100, &[], Dctcp::default());
        for _ in 0..3 {
            (0..20).for_each(|_| round(&mut control, 0));
            let before = control.window();
            mark(&mut control);
            assert_eq!(control.window() / before, 0.5);
        }
    }

    #[test]
    fn at_first_a_mark_halves_the_window_and_a_loss_always_does() {
        let mut control = avoiding(100, &[], Dctcp::default());
        mark(&mut control);
        assert_eq!(control.window(), 50_000.0);
        (0..200).for_each(|_| round(&mut control, 0));
        let before = control.window();
        lose(&mut control, before as u64);
        assert!((control.window() / before - 0.5).abs() < 0.001);
    }
}
