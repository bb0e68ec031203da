//! Congestion control: the window and what changes it. One variant is one file beside this one; what they share (slow
//! start, congestion avoidance, the reaction to a timeout) stands here.

mod cubic;
mod newreno;
mod reno;
mod tahoe;

use backchannel_core::time::Time;

/// How the window grows with acks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// One increase an ack, however much it acknowledges (the papers' senders).
    Acks,
    /// By bytes acknowledged: in slow start at most `limit` segments an ack (RFC 3465), unlimited for a large one.
    Bytes {
        /// L of RFC 3465, in segments.
        limit: u32,
    },
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
    /// Sender's maximum segment size.
    pub mss: f64,
    /// Congestion window.
    pub cwnd: f64,
    /// Slow-start threshold.
    pub ssthresh: f64,
    /// Greatest window that slow start and avoidance reach.
    limit: f64,
    cubic: cubic::State,
}

impl Window {
    /// A window of `initial` segments.
    pub fn new(variant: Variant, counting: Counting, mss: u32, initial: u32, ssthresh: f64, limit: f64) -> Window {
        let mss = f64::from(mss);
        Window {
            variant,
            counting,
            mss,
            cwnd: mss * f64::from(initial),
            ssthresh,
            limit,
            cubic: cubic::State::default(),
        }
    }

    /// Whether the window doubles each round trip.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// A new ack outside recovery: slow start or congestion avoidance (RFC 5681 3.1).
    ///
    /// Args: bytes it acknowledges, the time, the smoothed round trip in s.
    pub fn on_ack(&mut self, acked: u64, now: Time, srtt_s: f64) {
        if self.in_slow_start() {
            self.cwnd += match self.counting {
                Counting::Acks => self.mss,
                Counting::Bytes { limit } => (acked as f64).min(f64::from(limit) * self.mss),
            };
        } else if self.variant == Variant::Cubic {
            cubic::on_ack(self, acked, now, srtt_s);
        } else {
            self.cwnd += match self.counting {
                Counting::Acks => self.mss * self.mss / self.cwnd,
                Counting::Bytes { .. } => acked as f64 * self.mss / self.cwnd,
            };
        }
        self.cwnd = self.cwnd.min(self.limit);
    }

    /// Three duplicate acks have come, with `flight` bytes outstanding.
    pub fn on_loss(&mut self, flight: u64, now: Time) -> OnLoss {
        self.shrink(flight, now);
        match self.variant {
            Variant::Tahoe => tahoe::on_loss(self),
            _ => reno::on_loss(self),
        }
    }

    /// One more duplicate ack in fast recovery: a segment has left the network.
    pub fn on_duplicate(&mut self) {
        reno::on_duplicate(self);
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
        if first {
            self.shrink(flight, now);
        }
        self.cwnd = self.mss;
    }

    /// Halves the threshold, or what the variant does instead.
    fn shrink(&mut self, flight: u64, now: Time) {
        self.ssthresh = match self.variant {
            Variant::Cubic => cubic::on_loss(self, now),
            _ => flight as f64 / 2.0,
        }
        .max(2.0 * self.mss);
    }
}
