//! The SYNs of a connection, and what both sides agree on by them.

use crate::config::Config;

/// SYNs that are sent before the connection is given up.
const MAX_SYNS: u32 = 6;

/// The SYN, and what the SYNs agree on.
pub(crate) struct Handshake {
    /// A SYN must go.
    syn_due: bool,
    /// SYNs sent.
    syns: u32,
    /// Shift of our window field (RFC 7323 2); 0 unless both sides offer scaling.
    pub window_shift: u8,
    /// Whether both sides offer selective acks.
    pub sack: bool,
}

impl Handshake {
    /// Before the first SYN; offers the smallest shift that can express the whole buffer.
    pub fn new(config: &Config) -> Handshake {
        let window_shift = (0..14).find(|shift| config.receive_buffer_bytes >> shift <= 65_535).unwrap_or(14);
        Handshake { syn_due: false, syns: 0, window_shift, sack: false }
    }

    /// The SYN was not answered in time. Returns whether another one goes.
    pub fn retry(&mut self) -> bool {
        self.syn_due = self.syns < MAX_SYNS;
        self.syn_due
    }

    /// The SYN goes, again.
    pub fn request_syn(&mut self) {
        self.syn_due = true;
    }

    /// The SYN goes.
    pub fn on_syn_sent(&mut self) {
        self.syn_due = false;
        self.syns += 1;
    }

    /// Whether a SYN must go now.
    pub fn syn_due(&self) -> bool {
        self.syn_due
    }
}
