//! The timestamp option of one connection (RFC 7323).

use std::time::Duration;

use backchannel_core::time::Time;

use crate::wire::Segment;

/// This side's clock and the peer's last value.
#[derive(Clone, Copy, Debug)]
pub struct Timestamps {
    /// Whether both sides have agreed on the option. Without that, no segment but the SYN carries it.
    pub agreed: bool,
    tick: Duration,
    /// TS.Recent: the value to echo. Once agreed, it never moves back (in wrapping order).
    recent: u32,
}

impl Timestamps {
    /// Before the handshake, with a clock of this tick.
    pub fn new(tick: Duration) -> Timestamps {
        Timestamps { agreed: false, tick, recent: 0 }
    }

    /// The peer's SYN arrives; `offered`: whether this side offers the option.
    pub fn on_syn(&mut self, syn: &Segment, offered: bool) {
        self.agreed = offered && syn.timestamps.is_some();
        self.recent = syn.timestamps.map_or(0, |(value, _)| value);
    }

    /// The option of a segment that is sent now: value and echo. The value is never 0, because an echoed 0 means
    /// "none".
    #[inline]
    pub fn option(&self, now: Time) -> (u32, u32) {
        (self.value(now), self.recent)
    }

    fn value(&self, now: Time) -> u32 {
        ((now.nanos() / self.tick.as_nanos() as u64) as u32).max(1)
    }

    /// How long ago the segment was sent whose timestamp `segment` echoes.
    pub fn since_echo(&self, now: Time, segment: &Segment) -> Option<Duration> {
        let (_, echo) = segment.timestamps.filter(|&(_, echo)| self.agreed && echo != 0)?;
        let ticks = u64::from(self.value(now).wrapping_sub(echo));
        Some(Duration::from_nanos(ticks.saturating_mul(self.tick.as_nanos() as u64)))
    }

    /// PAWS (RFC 7323 5.3): whether the segment is an old duplicate, from before its number wrapped.
    pub fn is_old(&self, segment: &Segment) -> bool {
        let value = segment.timestamps.filter(|_| self.agreed).map(|(value, _)| value);
        value.is_some_and(|value| (value.wrapping_sub(self.recent) as i32) < 0)
    }

    /// Takes the value of an acceptable segment to echo (RFC 7323 4.3). The caller passes those that begin at or before
    /// the last ack sent: of several segments that one ack stands for, the first is echoed.
    pub fn on_segment(&mut self, segment: &Segment) {
        if let (true, Some((value, _))) = (self.agreed, segment.timestamps) {
            self.recent = value;
        }
    }
}
