//! The values of options that are choices. They lie below the mechanisms that they choose.

use backchannel_core::choice;

choice! {
    /// Congestion control, and recovery without selective acks.
    pub enum Algorithm {
        /// Fast retransmit, then slow start.
        Tahoe = "tahoe",
        /// Fast recovery that the first new ack ends (4.4BSD).
        Reno = "reno",
        /// Fast recovery that continues after partial acks (RFC 6582).
        NewReno = "newreno",
        /// NewReno's recovery with a cubic window (RFC 9438).
        Cubic = "cubic",
        /// DCTCP (RFC 8257): a decrease in proportion to the share of marked data.
        Dctcp = "dctcp",
        /// TCP Prague (draft-briscoe-iccrg-prague-congestion-control-04).
        Prague = "prague",
        /// Vegas (Brakmo and Peterson 1995).
        Vegas = "vegas",
        /// LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus-01).
        LedbatPlusPlus = "ledbat++",
        /// BBRv3 (draft-ietf-ccwg-bbr, August 2026).
        Bbr = "bbr",
        /// The first version of BBR (draft-cardwell-iccrg-bbr-congestion-control-00; Linux tcp_bbr.c).
        Bbr1 = "bbr1",
        .. Added
    }
}

choice! {
    /// How the window grows with acks.
    pub enum Counting {
        /// One increase an ack, however much it acknowledges (the papers' senders).
        Acks = "acks",
        /// As 4.4BSD's tcp_input: in avoidance an eighth of a segment more with each ack (RFC 2525 2.6), a window that
        /// equals its threshold still doubles, the ack that ends a recovery opens the window as any other, and
        /// thresholds are whole segments.
        Bsd = "bsd",
        /// By bytes acknowledged, in slow start at most two segments an ack (RFC 3465).
        Bytes = "bytes",
        /// An ack for s segments is s increases (asym 6.3, simulated).
        Segments = "segments",
        /// Half an increase a segment acknowledged: what a receiver that acks every second one would give (asym 8.3,
        /// figure 19): n = acked / (2 mss), in reals, since the printed integer division would freeze a window that is
        /// acknowledged segment by segment.
        HalfSegments = "half-segments",
    }
}

choice! {
    /// How slow start ends.
    pub enum SlowStart {
        /// With the first loss (RFC 5681 3.1).
        Standard = "standard",
        /// When round trips grow, or acks arrive back to back for half of one (HyStart, Ha and Rhee 2011, as in Linux).
        HyStart = "hystart",
        /// When round trips grow, by way of conservative slow start (HyStart++, RFC 9406).
        HyStartPlusPlus = "hystart++";
        absent: Standard
    }
}

choice! {
    /// How CUBIC's window grows.
    #[derive(Default)]
    pub enum CubicGrowth {
        /// RFC 9438.
        #[default]
        Rfc9438 = "rfc9438",
        /// Linux's tcp_cubic.c.
        Linux = "linux";
        absent: Rfc9438
    }
}

choice! {
    /// The window after a full ack (RFC 6582 3.2 step 3).
    pub enum FullAck {
        /// Option 1: what is outstanding and one segment, at most the threshold. Avoids a burst.
        Outstanding = "outstanding",
        /// Option 2: the threshold.
        Threshold = "threshold",
    }
}

choice! {
    /// How a sender uses selective acknowledgments.
    pub enum SackSender {
        /// RFC 6675: three segments' worth above a hole make it lost; the pipe follows from the scoreboard.
        Rfc6675 = "rfc6675",
        /// The sender of 1996 (Fall and Floyd's sack1, which ton cites): after the third duplicate ack every hole below
        /// the highest block is missing; what is sent raises the pipe, what duplicates report as gone lowers it.
        Sack1996 = "1996",
        /// RFC 8985: a segment is lost if one that was sent a quarter of a round trip later, or three segments later
        /// without reordering, is acknowledged.
        Rack = "rack",
        /// SMART as in ton III-A: a hole is lost at once; a segment is retransmitted unless that happened within the
        /// last round trip.
        Smart = "smart",
        /// Not at all: the blocks are for a base station on the path (ton III-B).
        Ignored = "ignored",
    }
}

choice! {
    /// What a timeout in fast recovery halves, where duplicate acks have inflated the window.
    pub enum TimeoutDecrease {
        /// What is outstanding (RFC 5681 3.1, equation 4), the segments included that duplicate acks let go.
        Outstanding = "outstanding",
        /// The window that recovery began with, as in ns-2.
        Window = "window",
    }
}

choice! {
    /// The timers of a stack, as an option names them.
    pub enum TimerKind {
        /// 4.4BSD's: 500 ms ticks.
        Bsd = "bsd",
        /// 4.4BSD's, from exact round trips (asym 8.3).
        BsdExact = "bsd-exact",
        /// ns-2's: 100 ms ticks.
        Ns = "ns",
        /// Those of ns in July 1997 (`tcp.cc`).
        Ns1997 = "ns-1997",
        /// RFC 6298.
        Modern = "modern",
        /// The same with a least value of what is added to the smoothed round trip, as in Linux.
        Linux = "linux",
    }
}

choice! {
    /// Which segments are ECN-capable.
    pub enum EcnMode {
        /// None: the connection does not offer ECN.
        Off = "off",
        /// New data (RFC 3168).
        Data = "data",
        /// Acks as well.
        DataAndAcks = "data-and-acks",
        /// New data, and each ack tells whether the data that it acknowledges were marked (DCTCP's, RFC 8257 3.2).
        Dctcp = "dctcp",
        /// Every packet but the SYN, and acks count the packets that were marked (Accurate ECN, RFC 9768, without its
        /// option).
        Accurate = "accurate",
    }
}

choice! {
    /// When the sender acts on the mark.
    pub enum LossNotificationMode {
        /// Never, and the receiver does not send it.
        Off = "off",
        /// At the third duplicate ack (E2E-ELN).
        ThirdDuplicate = "third-duplicate",
        /// At the first duplicate ack with the mark (E2E-ELN-RXMT).
        FirstDuplicate = "first-duplicate",
    }
}

choice! {
    /// After how many segments a receiver acknowledges. Out-of-order data, the filling of a gap, old data and a FIN are
    /// acknowledged at once by every rule (RFC 5681 4.2), or fast retransmit and the end of a transfer would break.
    pub enum AckRule {
        /// Every so many: 1, 2 (RFC 1122 4.2.3.2), or any fixed d.
        Every = "every",
        /// Ack congestion control with marks (asym 6.1).
        AccEcn = "acc-ecn",
        /// Ack congestion control with preset limits (asym 8.2).
        AccPeerwin = "acc-peerwin",
        /// By an estimate of the sender's window (ACE, aq 6).
        Ace = "ace",
        /// Pulsed ACK (pulsed 3.2.3).
        Pulsed = "pulsed",
        /// As the sender requests (draft-ietf-tcpm-ack-rate-request).
        Requested = "requested",
    }
}
