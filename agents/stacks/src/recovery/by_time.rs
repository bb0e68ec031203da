//! The state of loss detection by time: RACK (`rack.rs`), tail loss probes, F-RTO, and what would undo a recovery.
//! `loss_detection.rs` has the rules.

use backchannel_core::time::Time;

use super::rack::Rack;
use crate::config::Config;
use crate::seq::Offset;
use crate::window_use::WindowUse;

/// The state of one connection.
pub(crate) struct LossDetection {
    pub rack: Rack,
    pub has_probes: bool,
    pub has_prr: bool,
    pub has_f_rto: bool,
    /// What the timer is for: a probe, or to look for losses.
    pub timer_is_probe: bool,
    /// A probe goes next.
    pub probe_due: bool,
    /// TLP.end_seq and TLP.is_retrans: the probe under way.
    pub probe: Option<(Offset, bool)>,
    /// Recovery has just begun: the first retransmission goes whatever the window (RFC 6675 5, step 4.3).
    pub retransmit_due: bool,
    /// In timeout recovery: one beyond what was outstanding at the timeout.
    pub timeout_end: Option<Offset>,
    pub f_rto: Option<ForwardRto>,
    /// Segments sent again in the last recovery that have not been reported as duplicates; `None`: it was undone.
    pub unreported: Option<u32>,
    /// Whether the window may grow.
    pub window_use: WindowUse,
}

/// F-RTO after the first timeout of a segment (RFC 5682).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardRto {
    pub timed_out_at: Time,
    /// The first ack has come: so many new segments may go before others are sent again.
    pub new_segments: Option<u32>,
}

impl LossDetection {
    pub fn new(config: &Config) -> LossDetection {
        LossDetection {
            rack: Rack::default(),
            has_probes: config.tail_loss_probe,
            has_prr: config.prr,
            has_f_rto: config.f_rto,
            timer_is_probe: false,
            probe_due: false,
            probe: None,
            retransmit_due: false,
            timeout_end: None,
            f_rto: None,
            unreported: None,
            window_use: WindowUse::default(),
        }
    }
}
