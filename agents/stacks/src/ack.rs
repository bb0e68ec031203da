//! When data are acknowledged: one rule a file, and what they share, the timer of delayed acks.
//!
//! A rule only says after how many segments an ack is due. Out-of-order data, the filling of a gap, old data and a FIN are
//! acknowledged at once whatever the rule (RFC 5681 4.2), or fast retransmit and the end of a transfer would break.

pub mod acc_ecn;
pub mod acc_peerwin;
pub mod pulsed;
pub mod rate_request;

use std::time::Duration;

use backchannel_core::time::Time;

use crate::wire::Pulse;
use acc_ecn::AccEcn;
use acc_peerwin::AccPeerwin;

/// After how many segments an ack is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckRule {
    /// Every so many: 1, 2 (RFC 1122 4.2.3.2), or any fixed d.
    Every(u32),
    /// Ack congestion control with marks (asym 6.1).
    AccEcn {
        /// Greatest d, in segments.
        most: u32,
    },
    /// Ack congestion control with preset limits (asym 8.2).
    AccPeerwin {
        /// `max_delack`, in segments.
        most: u32,
        /// `min_acks_per_win`.
        acks_per_window: u32,
    },
    /// Pulsed ACK (pulsed 3.2.3) with this many acks a round trip.
    Pulsed {
        /// The paper's a.
        a: u32,
    },
    /// As the sender asks (draft-ietf-tcpm-ack-rate-request).
    Requested,
}

/// When data are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPolicy {
    /// After how many segments.
    pub rule: AckRule,
    /// Longest delay of an ack.
    pub delay: Duration,
    /// Whether delays end at multiples of `delay` (BSD's 200 ms heartbeat), not `delay` after the segment.
    pub heartbeat: bool,
    /// After this many out-of-order segments in a row, further duplicate acks ask for a retransmission at once
    /// (asym 6.1); 0: never.
    pub mark_after: u32,
}

impl AckPolicy {
    /// When the ack of a segment that comes `now` must go.
    pub fn deadline(&self, now: Time) -> Time {
        if self.heartbeat {
            let tick = (self.delay.as_nanos() as u64).max(1);
            Time((now.nanos() / tick + 1) * tick)
        } else {
            now + self.delay
        }
    }
}

/// What a data segment says beside its data.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    /// The sender saw a mark on an ack of ours.
    pub congested: bool,
    /// The sender's window in segments (the peerwin option).
    pub peer_window: Option<u16>,
    /// The Pulsed ACK option.
    pub pulse: Option<Pulse>,
    /// The ack-rate request: an ack every so many segments.
    pub request: Option<u8>,
    /// Time since we sent what the segment's timestamp echoes.
    pub rtt: Option<Duration>,
}

/// The rule's state on one connection.
#[derive(Clone, Debug)]
pub struct Acker {
    rule: AckRule,
    ecn: AccEcn,
    window: AccPeerwin,
    pulse: Option<Pulse>,
    request: Option<u8>,
    rcvbuf_segments: u32,
}

impl Acker {
    /// Before the first segment; `rcvbuf_segments` is the receive buffer over the segment size.
    pub fn new(rule: AckRule, rcvbuf_segments: u32) -> Acker {
        let most = if let AckRule::AccEcn { most } = rule { most } else { 1 };
        Acker {
            rule,
            ecn: AccEcn::new(most),
            window: AccPeerwin::default(),
            pulse: None,
            request: None,
            rcvbuf_segments,
        }
    }

    /// A data segment comes; it has yet to be counted.
    pub fn hear(&mut self, now: Time, heard: Heard) {
        self.pulse = heard.pulse;
        self.request = heard.request.or(self.request);
        if let Some(window) = heard.peer_window {
            self.window.peerwin = Some(u32::from(window));
        }
        if matches!(self.rule, AckRule::AccEcn { .. }) {
            self.ecn.hear(now, heard.congested, heard.rtt);
        }
    }

    /// Segments that one ack stands for, now.
    pub fn d(&self) -> u32 {
        match self.rule {
            AckRule::Every(d) => d,
            AckRule::AccEcn { .. } => self.ecn.d(self.window.peerwin),
            AckRule::AccPeerwin { most, acks_per_window } => {
                self.window.delack(most, acks_per_window, self.rcvbuf_segments)
            }
            AckRule::Pulsed { a } => pulsed::every(self.pulse, a),
            AckRule::Requested => rate_request::every(self.request),
        }
    }

    /// The Pulsed ACK option of an ack: it copies the flag and tells a. `None`: the peer has not shown that it knows it.
    pub fn pulse_reply(&self) -> Option<Pulse> {
        match (self.rule, self.pulse) {
            (AckRule::Pulsed { a }, Some(pulse)) => Some(Pulse { a: a as u8, ..pulse }),
            _ => None,
        }
    }
}
