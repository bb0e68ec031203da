//! What implementations did beside the RFCs, and papers were measured with: 4.4BSD, ns of 1997, ns-2 of 2004. The sender asks
//! its [`Era`] where the sources differ, and knows none of the options. `config/eras.rs` has those that make an era.
//!
//! The rules of ns are one file each below `era/`. Those of 4.4BSD, which look at a whole connection, are in
//! `bsd_4_4.rs`.

mod ns_1997;
mod ns_2;

use crate::config::{Config, TimeoutDecrease, TimerKind};

/// The rules of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Era {
    // 4.4BSD
    pub header_prediction: bool,
    pub acks_by_space: bool,
    pub quench: bool,
    // ns of 1997
    reno_of_1997: bool,
    timer_of_1997: bool,
    burst_by_first_rtt: bool,
    // ns-2
    successive: bool,
    successive_after_recovery: bool,
    timeout_halves: TimeoutDecrease,
    timing_in_recovery: bool,
}

impl Era {
    pub fn new(config: &Config) -> Era {
        Era {
            header_prediction: config.header_prediction,
            acks_by_space: config.acks_by_space,
            quench: config.quench,
            reno_of_1997: config.reno_of_1997,
            timer_of_1997: config.timer == TimerKind::Ns1997,
            burst_by_first_rtt: config.burst_by_first_rtt,
            successive: config.successive_fast_retransmits,
            successive_after_recovery: config.successive_after_recovery,
            timeout_halves: config.timeout_halves,
            timing_in_recovery: config.timing_in_recovery,
        }
    }
}
