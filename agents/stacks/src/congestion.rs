//! Congestion control: the window and what changes it. One variant is one file beside this one; what they share (slow
//! start, congestion avoidance, the reaction to a timeout) stands here.

mod cubic;
mod newreno;
mod pulsed;
mod reno;
mod tahoe;

use backchannel_core::time::Time;

/// How the window grows with acks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// One increase an ack, however much it acknowledges (the papers' senders).
    Acks,
    /// The same, and in avoidance an eighth of a segment more with each ack, as 4.4BSD's tcp_input has it: what RFC 2525
    /// (2.6, "extra additive constant in congestion avoidance") calls a defect was in the BSD of the measurements' day.
    AcksAndEighth,
    /// By bytes acknowledged: in slow start at most `limit` segments an ack (RFC 3465), unlimited for a large one.
    Bytes {
        /// L of RFC 3465, in segments.
        limit: u32,
    },
    /// An ack for s segments is s increases (asym 6.3, simulated).
    Segments,
    /// Half an increase a segment acknowledged: what a receiver that acks every second one would give (asym 8.3,
    /// figure 19): n = acked / (2 mss), in reals, since the printed integer division would freeze a window that is
    /// acknowledged segment by segment.
    HalfSegments,
}

/// Which variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Fast retransmit, then slow start.
    Tahoe,
    /// Fast recovery that the first new ack ends (4.4BSD).
    Reno,
    /// Fast recovery that partial acks do not end (RFC 6582).
    NewReno,
    /// NewReno's recovery with the cubic window (RFC 9438).
    Cubic,
}

/// The window when everything is acknowledged that was outstanding when NewReno's recovery began (RFC 6582 3.2 step 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullAck {
    /// Option 1: what is outstanding and one segment, at most the threshold: no burst.
    Outstanding,
    /// Option 2: the threshold.
    Threshold,
}

/// What a timeout in fast recovery halves, where duplicate acks have inflated the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutHalves {
    /// What is outstanding (RFC 5681 3.1, equation 4), the segments that duplicate acks let go included.
    Outstanding,
    /// The window that recovery began with, as in ns-2.
    Window,
}

/// What a sender does after three duplicate acks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// Resend one segment and go on in fast recovery.
    Recover,
    /// Resend everything from the loss on (Tahoe).
    GoBack,
}

/// What a new ack during fast recovery means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnNewAck {
    /// Recovery is over.
    Leave,
    /// A partial ack: resend the next hole and stay.
    ResendAndStay,
}

/// The window of one connection, in bytes.
#[derive(Clone, Debug)]
pub struct Window {
    variant: Variant,
    counting: Counting,
    full_ack: FullAck,
    /// Sender's maximum segment size.
    pub mss: f64,
    /// Congestion window.
    pub cwnd: f64,
    /// Slow-start threshold.
    pub ssthresh: f64,
    /// Greatest window that slow start and avoidance reach.
    limit: f64,
    /// The window to return to when a corrupted segment is repaired.
    intact: Option<f64>,
    cubic: cubic::State,
}

impl Window {
    /// A window of `initial` segments.
    pub fn new(variant: Variant, counting: Counting, mss: u32, initial: u32, ssthresh: f64, limit: f64) -> Window {
        let mss = f64::from(mss);
        Window {
            variant,
            counting,
            full_ack: FullAck::Outstanding,
            mss,
            cwnd: mss * f64::from(initial),
            ssthresh,
            limit,
            intact: None,
            cubic: cubic::State::default(),
        }
    }

    /// The same, which leaves NewReno's recovery this way.
    pub fn leaving(self, full_ack: FullAck) -> Window {
        Window { full_ack, ..self }
    }

    /// Whether the window doubles each round trip.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// A new ack outside recovery: slow start or congestion avoidance (RFC 5681 3.1).
    ///
    /// Args: bytes it acknowledges, the time, the smoothed round trip in s.
    pub fn on_ack(&mut self, acked: u64, now: Time, srtt_s: f64) {
        if self.counting == Counting::Segments {
            // One by one: each increase sees the window that the one before left, and slow start ends where it would.
            for _ in 1..(acked as f64 / self.mss).round() as u64 {
                self.increase(acked, now, srtt_s);
            }
        }
        self.increase(acked, now, srtt_s);
        self.cwnd = self.cwnd.min(self.limit);
    }

    /// One increase; those of [`Counting`] that look at the bytes have one an ack.
    fn increase(&mut self, acked: u64, now: Time, srtt_s: f64) {
        if self.in_slow_start() {
            self.cwnd += match self.counting {
                Counting::Acks | Counting::AcksAndEighth | Counting::Segments => self.mss,
                Counting::Bytes { limit } => (acked as f64).min(f64::from(limit) * self.mss),
                Counting::HalfSegments => acked as f64 / 2.0,
            };
        } else if self.variant == Variant::Cubic {
            cubic::on_ack(self, acked, now, srtt_s);
        } else {
            self.cwnd += match self.counting {
                Counting::Acks | Counting::Segments => self.mss * self.mss / self.cwnd,
                Counting::AcksAndEighth => self.mss * self.mss / self.cwnd + self.mss / 8.0,
                Counting::Bytes { .. } => acked as f64 * self.mss / self.cwnd,
                Counting::HalfSegments => acked as f64 / (2.0 * self.mss) * self.mss * self.mss / self.cwnd,
            };
        }
    }

    /// The ack that ended recovery acknowledges `acked` bytes. A sender that counts segments grows its window as if an ack had
    /// come for each of them (asym 6.3, and figure 19, where acked does not ask what came before): the first one ends recovery, the
    /// others open the window. One that counts acks has had its one.
    pub fn on_rest_of_ack(&mut self, acked: u64, now: Time, srtt_s: f64) {
        let rest = (acked as f64 - self.mss).max(0.0) as u64;
        if matches!(self.counting, Counting::Segments | Counting::HalfSegments) && rest as f64 >= self.mss {
            self.on_ack(rest, now, srtt_s);
        }
    }

    /// A new ack with the pulsed flag, which says how many acks a round trip has (pulsed 3.2.2).
    pub fn on_pulsed_ack(&mut self, a: u8) {
        pulsed::on_ack(self, a);
        self.cwnd = self.cwnd.min(self.limit);
    }

    /// The loss was corruption (ton III-A, explicit loss notification): the threshold stays, and the window is as before
    /// once the loss is repaired. Until then each of the `duplicates`, and each that follows, lets one segment go.
    pub fn on_corruption(&mut self, duplicates: u32) {
        self.intact = Some(self.cwnd);
        self.cwnd += f64::from(duplicates) * self.mss;
    }

    /// The first new ack after [`Window::on_corruption`]: whether there was one.
    pub fn on_repaired(&mut self) -> bool {
        let intact = self.intact.take();
        self.cwnd = intact.unwrap_or(self.cwnd);
        intact.is_some()
    }

    /// Whether a corrupted segment is being repaired.
    pub fn repairs(&self) -> bool {
        self.intact.is_some()
    }

    /// A congestion mark was echoed (RFC 3168 6.1.2): the window is halved, with nothing to send again. It is the window that
    /// counts, not what is outstanding: the ack that tells of the mark has just taken its segments off that. The least
    /// window is one segment, where the least threshold is two.
    pub fn on_mark(&mut self, now: Time) {
        let reduced = self.reduced(self.cwnd, now);
        self.ssthresh = reduced.max(2.0 * self.mss);
        self.cwnd = reduced.max(self.mss);
    }

    /// Nothing was sent for a retransmission timeout (RFC 5681 4.1): the window is no longer known to fit.
    pub fn on_idle(&mut self, initial: f64) {
        self.cwnd = self.cwnd.min(initial);
    }

    /// Three duplicate acks have come, with `flight` bytes outstanding.
    pub fn on_loss(&mut self, flight: u64, now: Time) -> OnLoss {
        self.shrink(flight, now);
        match self.variant {
            Variant::Tahoe => tahoe::on_loss(self),
            _ => reno::on_loss(self),
        }
    }

    /// One more duplicate ack in fast recovery: a segment has left the network. The greatest window holds here too: it stands
    /// for a socket buffer.
    pub fn on_duplicate(&mut self) {
        reno::on_duplicate(self);
        self.cwnd = self.cwnd.min(self.limit);
    }

    /// A new ack in fast recovery that acknowledges `acked` bytes; `whole`: everything sent before the loss was seen.
    /// `flight` is what is outstanding after it.
    pub fn on_recovery_ack(&mut self, acked: u64, whole: bool, flight: u64) -> OnNewAck {
        match self.variant {
            Variant::Tahoe | Variant::Reno => reno::on_recovery_ack(self),
            Variant::NewReno | Variant::Cubic => newreno::on_recovery_ack(self, acked, whole, flight),
        }
    }

    /// The retransmission timer has fired (RFC 5681 3.1, equation 4).
    pub fn on_timeout(&mut self, flight: u64, now: Time, first: bool) {
        self.intact = None;
        if first {
            self.shrink(flight, now);
        }
        self.cwnd = self.mss;
    }

    /// Halves the threshold, or what the variant does instead.
    fn shrink(&mut self, flight: u64, now: Time) {
        self.ssthresh = self.reduced(flight as f64, now).max(2.0 * self.mss);
    }

    /// What the variant leaves of `bytes` after a sign of congestion.
    fn reduced(&mut self, bytes: f64, now: Time) -> f64 {
        match self.variant {
            Variant::Cubic => cubic::on_loss(self, now),
            _ => bytes / 2.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn avoiding(counting: Counting, segments: u32) -> Window {
        Window::new(Variant::Reno, counting, 1000, segments, 1.0, 1e12)
    }

    #[test]
    fn an_ack_for_four_segments_grows_by_one_four_two_or_two_increases() {
        let growth = |counting| {
            let mut window = Window::new(Variant::Reno, counting, 1000, 1, 1e12, 1e12);
            window.on_ack(4000, Time::ZERO, 0.1);
            window.cwnd - 1000.0
        };
        assert_eq!(growth(Counting::Acks), 1000.0);
        assert_eq!(growth(Counting::AcksAndEighth), 1000.0);
        assert_eq!(growth(Counting::Segments), 4000.0);
        assert_eq!(growth(Counting::Bytes { limit: 2 }), 2000.0);
        assert_eq!(growth(Counting::HalfSegments), 2000.0);
    }

    #[test]
    fn a_window_acknowledged_in_any_portions_grows_by_one_segment_a_round_trip() {
        for (counting, acks, expected) in [
            (Counting::Acks, 100, 1.0),
            (Counting::AcksAndEighth, 8, 1.08),
            (Counting::Segments, 10, 1.0),
            (Counting::HalfSegments, 100, 0.5),
        ] {
            let mut window = avoiding(counting, 100);
            for _ in 0..acks {
                window.on_ack(100_000 / acks, Time::ZERO, 0.1);
            }
            let grown = window.cwnd / 1000.0 - 100.0;
            assert!((grown - expected).abs() < 0.01, "{counting:?} {grown}");
        }
    }

    #[test]
    fn of_an_ack_for_many_segments_those_beyond_the_threshold_no_longer_double_the_window() {
        let mut window = Window::new(Variant::Reno, Counting::Segments, 1000, 8, 10_000.0, 1e12);
        window.on_ack(6000, Time::ZERO, 0.1);
        // Two increases of slow start, from 8 to 10, and four of avoidance.
        assert!((10_390.0..10_400.0).contains(&window.cwnd), "{}", window.cwnd);
    }

    #[test]
    fn a_mark_halves_the_window_down_to_one_segment_and_the_threshold_to_two() {
        let mut window = Window::new(Variant::Reno, Counting::Acks, 1000, 6, 1.0, 1e12);
        for (cwnd, ssthresh) in [(3000.0, 3000.0), (1500.0, 2000.0), (1000.0, 2000.0)] {
            window.on_mark(Time::ZERO);
            assert_eq!((window.cwnd, window.ssthresh), (cwnd, ssthresh));
        }
        let mut cubic = Window::new(Variant::Cubic, Counting::Acks, 1000, 20, 1.0, 1e12);
        cubic.on_mark(Time::ZERO);
        assert_eq!(cubic.cwnd, 14_000.0, "CUBIC keeps seven tenths");
    }

    #[test]
    fn duplicates_do_not_inflate_the_window_beyond_the_greatest() {
        let mut window = Window::new(Variant::Reno, Counting::Acks, 1000, 20, 1e12, 20_000.0);
        window.on_loss(20_000, Time::ZERO);
        for _ in 0..19 {
            window.on_duplicate();
        }
        assert_eq!(window.cwnd, 20_000.0);
    }

    #[test]
    fn corruption_leaves_window_and_threshold_as_they_were() {
        let mut window = avoiding(Counting::Acks, 20);
        let before = (window.cwnd, window.ssthresh);
        window.on_corruption(1);
        window.on_duplicate();
        assert_eq!(window.cwnd, before.0 + 2000.0, "one new segment a duplicate");
        assert!(window.on_repaired());
        assert_eq!((window.cwnd, window.ssthresh), before);
        assert!(!window.on_repaired());
    }
}
