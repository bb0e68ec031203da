//! Recovery by cumulative acks alone (RFC 5681 3.2, RFC 6582): duplicate acks inflate the window by what has left the
//! network. With 4.4BSD's Reno the first new ack ends it, whatever else was lost. With NewReno a partial ack shows the
//! next hole, which is retransmitted at once, and recovery ends when everything is acknowledged that was outstanding
//! when it began.

use super::NewAck;
use crate::config::{Algorithm, Config, FullAck};
use crate::congestion::Exit;

/// What a third duplicate ack begins, and what ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Everything is sent again in slow start: there is no fast recovery (Tahoe).
    GoBack,
    /// The first new ack ends it (Reno).
    FirstAck,
    /// An ack of everything that was outstanding ends it (NewReno).
    FullAck(FullAck),
}

#[derive(Clone, Debug)]
pub(super) struct Inflation {
    pub(super) rule: Rule,
    /// The window of fast recovery. Meaningless outside.
    pub(super) window: f64,
    /// The greatest window, which stands for a socket buffer.
    pub(super) limit: f64,
}

impl Inflation {
    pub(super) fn new(config: &Config, mss: u32) -> Inflation {
        let rule = match config.congestion {
            Algorithm::Tahoe => Rule::GoBack,
            Algorithm::Reno => Rule::FirstAck,
            _ => Rule::FullAck(config.full_ack),
        };
        Inflation { rule, window: 0.0, limit: f64::from(config.max_window_segments) * f64::from(mss) }
    }

    /// RFC 5681 3.2 step 3.
    pub(super) fn begin(&mut self, window: f64, departed: u32, mss: f64) {
        self.window = window + f64::from(departed) * mss;
    }

    /// Step 4.
    pub(super) fn on_duplicate_ack(&mut self, mss: f64) {
        self.window = (self.window + mss).min(self.limit);
    }

    /// Step 6, or RFC 6582 3.2 step 3: a partial ack deflates the window by what it acknowledges, plus one segment.
    /// Returns the window if recovery ends.
    pub(super) fn on_new_ack(&mut self, ack: &NewAck) -> Option<Exit> {
        match self.rule {
            Rule::FullAck(FullAck::Outstanding) if ack.full => Some(Exit::Outstanding(ack.flight)),
            Rule::FullAck(_) if !ack.full => {
                let acked = ack.acked as f64;
                let deflated = self.window - acked;
                self.window = (if acked >= ack.mss { deflated + ack.mss } else { deflated }).max(ack.mss);
                None
            }
            _ => Some(Exit::Threshold),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::stack_config;
    use serde_json::{json, Value};

    /// In recovery with a window of ten segments and the three that have left.
    fn recovering(stack: &str, options: &[(&str, Value)]) -> Inflation {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let mut inflation = Inflation::new(&stack_config(stack, &options).unwrap(), 1000);
        inflation.begin(10_000.0, 3, 1000.0);
        inflation
    }

    fn ack(acked: u64, full: bool, flight: u64) -> NewAck {
        NewAck { acked, full, flight, mss: 1000.0 }
    }

    #[test]
    fn reno_is_inflated_by_a_segment_a_duplicate_and_the_first_new_ack_ends_it() {
        let mut reno = recovering("reno-bsd", &[]);
        assert_eq!(reno.window, 13_000.0);
        reno.on_duplicate_ack(1000.0);
        assert_eq!(reno.window, 14_000.0);
        assert_eq!(reno.on_new_ack(&ack(3000, false, 8000)), Some(Exit::Threshold));
    }

    #[test]
    fn duplicates_do_not_inflate_the_window_beyond_the_greatest() {
        let mut reno = recovering("reno-bsd", &[("max_window_segments", json!(20))]);
        (0..19).for_each(|_| reno.on_duplicate_ack(1000.0));
        assert_eq!(reno.window, 20_000.0);
    }

    #[test]
    fn newreno_stays_after_a_partial_ack_and_leaves_without_a_burst_or_with_the_threshold() {
        let mut newreno = recovering("newreno", &[]);
        assert_eq!(newreno.on_new_ack(&ack(3000, false, 17_000)), None);
        assert_eq!(newreno.window, 11_000.0);
        assert_eq!(newreno.on_new_ack(&ack(400, false, 17_000)), None);
        assert_eq!(newreno.window, 10_600.0, "less than a segment adds none");
        assert_eq!(newreno.on_new_ack(&ack(16_600, true, 0)), Some(Exit::Outstanding(0)));
        let mut threshold = recovering("newreno", &[("full_ack", json!("threshold"))]);
        assert_eq!(threshold.on_new_ack(&ack(20_000, true, 0)), Some(Exit::Threshold));
    }
}
