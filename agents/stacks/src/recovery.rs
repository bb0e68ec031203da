//! Loss recovery of the sender: duplicate acks, fast recovery, and what was outstanding at the last loss. How a sender
//! recovers is one file below `recovery/`, which the handshake chooses for the whole connection: by cumulative acks
//! ([`Inflation`]), by selective ones ([`Selective`]), or by time (`rack.rs`, with `loss_detection.rs`).

pub(crate) mod by_time;
mod inflation;
mod pipe;
pub(crate) mod prr;
pub(crate) mod rack;
mod sack_1996;
mod smart;

use std::time::Duration;

use backchannel_core::time::Time;

use crate::config::{Config, SackSender};
use crate::congestion::Exit;
use crate::scoreboard::Scoreboard;
use crate::seq::Offset;
use inflation::{Inflation, Rule};
use prr::Prr;

/// Duplicate acks that mean a loss (RFC 5681 3.2).
pub const DUPLICATE_THRESHOLD: u32 = 3;

/// A segment to send: its first byte and its length.
pub type Piece = (Offset, u64);

/// What is outstanding.
#[derive(Clone, Copy, Debug)]
pub struct Outstanding {
    /// SND.UNA.
    pub una: Offset,
    /// One beyond everything ever sent.
    pub max: Offset,
    /// Bytes in a full segment.
    pub mss: u64,
}

/// A new ack in fast recovery.
#[derive(Clone, Copy, Debug)]
pub struct NewAck {
    /// Bytes that it acknowledges.
    pub acked: u64,
    /// Whether it acknowledges everything that was sent before the loss was detected.
    pub full: bool,
    /// Bytes outstanding after it.
    pub flight: u64,
    /// Bytes in a full segment.
    pub mss: f64,
}

/// What the choice of the next segment depends on.
pub struct Choice<'a> {
    /// What the peer holds.
    pub scoreboard: &'a Scoreboard,
    pub outstanding: Outstanding,
    /// The congestion window in bytes.
    pub cwnd: u64,
    pub now: Time,
    /// The stack's own estimate of the round trip: 4.4BSD knows it in ticks alone.
    pub rtt: Duration,
}

/// A way to recover with selective acks. The congestion window stays at the threshold meanwhile.
pub trait Selective: Send {
    /// Whether a loss shows at this many duplicate acks, other than three.
    fn shows_loss(&self, scoreboard: &Scoreboard, outstanding: &Outstanding, duplicates: u32) -> bool {
        let _ = (scoreboard, outstanding, duplicates);
        false
    }

    /// Fires on each ack that does not move back; `selective`: it carries blocks.
    fn on_ack(&mut self, selective: bool) {
        let _ = selective;
    }

    /// Fires when fast recovery begins, at this many duplicate acks.
    fn begin(&mut self, outstanding: &Outstanding, duplicates: u32);

    /// Fires on each duplicate ack in recovery that reports anything new.
    fn on_duplicate_ack(&mut self, mss: u64) {
        let _ = mss;
    }

    /// Fires on each new ack in recovery that does not end it.
    fn on_partial_ack(&mut self, mss: u64) {
        let _ = mss;
    }

    /// Fires on each data segment, in recovery or not. `end` is one beyond it and its FIN; `again`: it was sent before.
    fn on_transmit(&mut self, now: Time, piece: Piece, end: Offset, again: bool);

    /// Fires on each timeout: what the peer held may be gone (RFC 2018 8).
    fn on_timeout(&mut self) {}

    /// The next segment in recovery; `fresh` is the next one of new data, if the peer's window lets it go.
    fn next(&self, choice: &Choice, fresh: &dyn Fn() -> Option<Piece>) -> Option<Piece>;
}

/// State of loss recovery.
pub struct Recovery {
    /// With selective acks: what decides on the next segment.
    pub selective: Option<Box<dyn Selective>>,
    /// Without.
    inflation: Inflation,
    /// Whether losses are detected by time: then neither of the two decides.
    pub by_time: bool,
    /// By time, in fast recovery: the window, if PRR decides on it.
    pub prr: Option<Prr>,
    /// In fast recovery: where it ends, one beyond what was outstanding when it began. `None` outside.
    end: Option<Offset>,
    /// recover of RFC 6582: one beyond what was outstanding at the last loss, detected by duplicates or by the timer.
    /// It never falls.
    recover: Offset,
    /// The last loss was detected by the timer.
    timed_out: bool,
    /// Duplicate acks since the last new ack.
    pub duplicates: u32,
    /// Partial acks of this recovery, without selective acks: each brings a retransmission. 0 outside.
    partial_acks: u32,
    /// The segment at the cumulative ack goes next, whatever the window.
    pub resend: bool,
    /// What the peer holds above the cumulative ack.
    pub scoreboard: Scoreboard,
}

impl Recovery {
    /// For a connection of segments of `mss` bytes; `sack`: both sides have agreed on selective acks.
    pub fn new(config: &Config, mss: u32, sack: bool) -> Recovery {
        let selective: Option<Box<dyn Selective>> = match config.sack_sender {
            SackSender::Rfc6675 => Some(Box::<pipe::Pipe>::default()),
            SackSender::Sack1996 => Some(Box::<sack_1996::Sack1996>::default()),
            SackSender::Smart => Some(Box::<smart::Smart>::default()),
            SackSender::Rack | SackSender::Ignored => None,
        };
        Recovery {
            selective: selective.filter(|_| sack),
            inflation: Inflation::new(config, mss),
            by_time: sack && config.sack_sender == SackSender::Rack,
            prr: None,
            end: None,
            recover: Offset::default(),
            timed_out: false,
            duplicates: 0,
            partial_acks: 0,
            resend: false,
            scoreboard: Scoreboard::default(),
        }
    }

    /// Whether the third duplicate ack makes the sender go back to the loss, without fast recovery.
    pub fn goes_back(&self) -> bool {
        self.selective.is_none() && self.inflation.rule == Rule::GoBack
    }

    /// Where fast recovery ends; `None` outside.
    pub fn end(&self) -> Option<Offset> {
        self.end
    }

    /// Whether the sender is in fast recovery.
    pub fn is_active(&self) -> bool {
        self.end.is_some()
    }

    /// The window of fast recovery, where the controller does not decide on it: duplicate acks inflate it, or PRR
    /// reduces it.
    #[inline]
    pub fn window(&self) -> Option<f64> {
        if self.end.is_none() || self.selective.is_some() {
            return None;
        }
        if self.by_time {
            return self.prr.map(|prr| prr.window as f64);
        }
        Some(self.inflation.window)
    }

    /// Bounds the window of fast recovery.
    pub fn bound_inflated(&mut self, bytes: f64) {
        self.inflation.window = self.inflation.window.min(bytes);
    }

    /// A window of `cwnd` outside recovery with so many segments more, within the greatest window.
    pub fn with_departed(&self, cwnd: f64, segments: u32, mss: f64) -> f64 {
        (cwnd + f64::from(segments) * mss).min(self.inflation.limit.max(cwnd))
    }

    /// Partial acks of this recovery, without selective acks.
    pub fn partial_acks(&self) -> u32 {
        self.partial_acks
    }

    /// Whether selective acks show a loss, at other than three duplicates.
    pub fn shows_loss(&self, outstanding: &Outstanding) -> bool {
        let selective = self.selective.as_ref();
        selective.is_some_and(|selective| selective.shows_loss(&self.scoreboard, outstanding, self.duplicates))
    }

    /// Whether duplicates concern what was outstanding at the last loss, which has been dealt with. RFC 6675 5.1: until
    /// everything sent before it is acknowledged. RFC 6582 3.2 step 2: until more than that is, because what a timeout
    /// sends again brings duplicates of the very ack that covers all of it. Tahoe and Reno have no such rule; what
    /// implementations did is a matter of their era, which `ignores` asks with whether the timer found that loss.
    pub fn is_old_loss(&self, una: Offset, ignores: impl FnOnce(bool) -> bool) -> bool {
        if self.selective.is_some() {
            return una < self.recover;
        }
        let checks = matches!(self.inflation.rule, Rule::FullAck(_)) || ignores(self.timed_out);
        checks && una <= self.recover
    }

    /// Duplicate acks have shown a loss, with everything before `max` sent.
    pub fn on_loss(&mut self, max: Offset) {
        (self.recover, self.timed_out) = (max, false);
    }

    /// Fast recovery begins, and the first segment is retransmitted. `window` is the controller's, and `departed`
    /// segments have left the network.
    pub fn begin(&mut self, outstanding: &Outstanding, window: f64, departed: u32) {
        self.end = Some(outstanding.max);
        self.resend = true;
        match &mut self.selective {
            Some(selective) => selective.begin(outstanding, self.duplicates),
            None => self.inflation.begin(window, departed, outstanding.mss as f64),
        }
    }

    /// Fast recovery begins where losses are detected by time, with `prr` if that decides on the window.
    pub fn begin_by_time(&mut self, max: Offset, prr: Option<Prr>) {
        self.on_loss(max);
        (self.end, self.prr) = (Some(max), prr);
    }

    /// A duplicate ack in fast recovery.
    pub fn on_duplicate_ack(&mut self, mss: u32, newly_sacked: bool) {
        match &mut self.selective {
            Some(selective) if newly_sacked => selective.on_duplicate_ack(u64::from(mss)),
            Some(_) => {}
            None => self.inflation.on_duplicate_ack(f64::from(mss)),
        }
    }

    /// A new ack in fast recovery. Returns the window if that ends it.
    pub fn on_new_ack(&mut self, ack: &NewAck) -> Option<Exit> {
        match &mut self.selective {
            Some(_) if ack.full => Some(Exit::Threshold),
            Some(selective) => {
                selective.on_partial_ack(ack.mss as u64);
                None
            }
            None => {
                let exit = self.inflation.on_new_ack(ack);
                self.resend = exit.is_none();
                self.partial_acks += u32::from(exit.is_none());
                exit
            }
        }
    }

    /// Fast recovery ends.
    pub fn leave(&mut self) {
        (self.end, self.prr) = (None, None);
        self.partial_acks = 0;
    }

    /// The retransmission timer has expired where losses are detected by time, with everything before `max` sent.
    pub fn begin_timeout(&mut self, max: Offset) {
        self.leave();
        self.recover = max;
        self.timed_out = true;
        self.duplicates = 0;
        self.resend = false;
    }

    /// The retransmission timer has expired, with everything before `max` sent.
    pub fn on_timeout(&mut self, max: Offset) {
        self.begin_timeout(max);
        self.scoreboard.clear();
        self.selective.iter_mut().for_each(|selective| selective.on_timeout());
    }
}
