//! The rate at which a line served its busy periods, from when packets should have left and when they did.
//!
//! Every packet counts, late ones too. A driver that is not scheduled for a moment writes packets late and then catches
//! up, so the least lateness of each block of packets is compared with that of later blocks. It is constant on a line
//! that keeps its rate, and it grows or falls on a line that does not.

/// Least length of a block of packets. It exceeds the longest stall of a valid run, so a block holds a packet that is
/// not late.
const BLOCK_NS: i64 = 100_000_000;
/// Least number of packets in a block.
const BLOCK_PACKETS: u32 = 4;
/// Length of the windows whose rates are compared.
const WINDOW_NS: i64 = 1_000_000_000;
/// Busy periods that are shorter in total do not measure the rate.
const LEAST_TOTAL_NS: i64 = 250_000_000;

/// Measures the rate over the busy periods of one direction of a line.
#[derive(Debug, Default)]
pub struct ServiceRate {
    blocks: Vec<Block>,
    current: Option<Block>,
    /// Scheduled and observed length of all finished periods.
    scheduled_ns: i64,
    observed_ns: i64,
    /// The greatest deviation of a window.
    worst_window: Option<f64>,
}

/// Consecutive packets of a busy period.
#[derive(Clone, Copy, Debug)]
struct Block {
    begins_ns: i64,
    packets: u32,
    /// The least late packet: its scheduled departure and its lateness.
    scheduled_ns: i64,
    late_ns: i64,
}

impl Block {
    fn is_full(&self, scheduled_ns: i64) -> bool {
        self.packets >= BLOCK_PACKETS && scheduled_ns - self.begins_ns >= BLOCK_NS
    }

    fn add(&mut self, other: Block) {
        self.packets += other.packets;
        if other.late_ns < self.late_ns {
            (self.scheduled_ns, self.late_ns) = (other.scheduled_ns, other.late_ns);
        }
    }

    /// Scheduled and observed time from this block to a later one, in nanoseconds.
    fn span_to(&self, later: &Block) -> (i64, i64) {
        let scheduled_ns = later.scheduled_ns - self.scheduled_ns;
        (scheduled_ns, scheduled_ns + later.late_ns - self.late_ns)
    }
}

/// Achieved over declared rate, minus 1.
fn error((scheduled_ns, observed_ns): (i64, i64)) -> Option<f64> {
    (scheduled_ns > 0 && observed_ns > 0).then(|| scheduled_ns as f64 / observed_ns as f64 - 1.0)
}

impl ServiceRate {
    /// The next packet of a busy period. `scheduled_ns`: departure at the declared rate, from any zero that is common
    /// to the period; `observed_ns`: departure as seen.
    pub fn on_departure(&mut self, scheduled_ns: i64, observed_ns: i64) {
        let late_ns = observed_ns - scheduled_ns;
        let packet = Block { begins_ns: scheduled_ns, packets: 1, scheduled_ns, late_ns };
        match &mut self.current {
            Some(block) if !block.is_full(scheduled_ns) => block.add(packet),
            full => self.blocks.extend(full.replace(packet)),
        }
    }

    /// The busy period has ended.
    pub fn end_period(&mut self) {
        if let Some(rest) = self.current.take() {
            match self.blocks.last_mut() {
                Some(last) => last.add(rest),
                None => self.blocks.push(rest),
            }
        }
        if let [first, .., last] = self.blocks[..] {
            let (scheduled_ns, observed_ns) = first.span_to(&last);
            self.scheduled_ns += scheduled_ns;
            self.observed_ns += observed_ns;
        }
        let mut end = 0;
        for (start, block) in self.blocks.iter().enumerate() {
            end = end.max(start);
            while end < self.blocks.len() && block.span_to(&self.blocks[end]).0 < WINDOW_NS {
                end += 1;
            }
            let Some(deviation) = self.blocks.get(end).and_then(|last| error(block.span_to(last))) else { break };
            if self.worst_window.is_none_or(|worst| deviation.abs() > worst.abs()) {
                self.worst_window = Some(deviation);
            }
        }
        self.blocks.clear();
    }

    /// Time over which the finished periods measured the rate, in nanoseconds.
    pub fn measured_ns(&self) -> i64 {
        self.scheduled_ns
    }

    /// Achieved over declared rate, minus 1: of the window of 1 s that deviates most. Of all periods together, if none
    /// holds such a window. `None` if they are shorter than 0.25 s.
    pub fn error(&self) -> Option<f64> {
        let total = (self.scheduled_ns, self.observed_ns);
        self.worst_window.or_else(|| error(total).filter(|_| total.0 >= LEAST_TOTAL_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One busy period of a packet a millisecond, each with this lateness in microseconds.
    fn measured(packets: i64, late_us: impl Fn(i64) -> i64) -> ServiceRate {
        let mut rate = ServiceRate::default();
        for i in 0..packets {
            rate.on_departure(i * 1_000_000, i * 1_000_000 + late_us(i) * 1000);
        }
        rate.end_period();
        rate
    }

    #[test]
    fn a_line_that_is_slow_or_fast_is_measured_however_late_its_packets_become() {
        // After 20 s, the slow line is 120 ms late and the fast one 200 ms early.
        let slow = measured(20_000, |i| 6 * i).error().unwrap();
        assert!((slow + 0.006 / 1.006).abs() < 1e-6, "{slow}");
        let fast = measured(20_000, |i| -10 * i).error().unwrap();
        assert!((fast - 0.01 / 0.99).abs() < 1e-4, "{fast}");
    }

    #[test]
    fn a_stall_that_is_made_up_for_is_no_rate_error() {
        let stalled = |i: i64| if (600..650).contains(&i) || i >= 1970 { 50_000 } else { 30 };
        assert_eq!(measured(2000, stalled).error(), Some(0.0));
    }

    #[test]
    fn a_pause_of_the_line_that_is_not_made_up_for_is_one() {
        let paused = measured(20_000, |i| if i >= 9000 { 6_000 } else { 0 }).error().unwrap();
        assert!((paused + 0.006).abs() < 5e-4, "{paused}");
    }

    #[test]
    fn short_periods_are_measured_together_and_too_few_not_at_all() {
        let mut rate = ServiceRate::default();
        for period in 0..10 {
            assert_eq!(rate.error().is_some(), period >= 3, "{period}");
            for i in 0..250 {
                rate.on_departure(i * 1_000_000, period * 1_000_000_000 + i * 1_010_000);
            }
            rate.end_period();
        }
        let error = rate.error().unwrap();
        assert!((error + 0.01 / 1.01).abs() < 1e-6, "{error}");
        assert_eq!(measured(1, |_| 0).error(), None);
    }
}
