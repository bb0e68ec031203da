//! A device that queues inside itself: a modem's transmit buffer, between the queue that a policy manages and the line
//! (asym 8: packets waited on the modem's board, where neither filter nor priority reaches them).
//!
//! The host hands over one packet at a time, byte by byte, and far faster than the line. The modem stops it when the
//! buffer is nine tenths full and lets it go on when it is half empty, as a Courier V.34's manual has it of its 3.25 KB
//! ("Transmit Data Flow Control"). What of a packet the modem has not taken stays in the host's output; the next leaves
//! the policy when the host has none.

use std::collections::VecDeque;
use std::time::Duration;

use backchannel_core::time::{service_time, Time};

use crate::far_end::Flying;

/// Shares of the buffer at which the modem stops the host and lets it go on, in hundredths.
const STOP: u64 = 90;
const RESUME: u64 = 50;

/// A packet in the device.
pub(crate) struct Taken {
    /// What it takes of the line, at the rate at which it was taken.
    pub(crate) time: Duration,
    pub(crate) bits: u64,
    pub(crate) flying: Flying,
}

/// The buffer and what it holds. Bytes are counted as time on the line: what is held is the time until it has left.
pub(crate) struct Device {
    bits: u64,
    /// What waits for the line.
    waiting: VecDeque<Taken>,
    /// When the last bit of all that was taken leaves.
    empty_at: Time,
    /// Where the modem has stopped the host: until when.
    stopped_until: Option<Time>,
    /// What of the last packet the host still had when it was stopped.
    rest: Duration,
}

impl Device {
    pub(crate) fn new(bytes: u64) -> Device {
        Device {
            bits: bytes * 8,
            waiting: VecDeque::new(),
            empty_at: Time::ZERO,
            stopped_until: None,
            rest: Duration::ZERO,
        }
    }

    /// Whether the next packet may come from the policy.
    pub(crate) fn has_room(&self) -> bool {
        self.stopped_until.is_none()
    }

    /// When that is to be looked at again; `None` where it has room.
    pub(crate) fn stopped_until(&self) -> Option<Time> {
        self.stopped_until
    }

    /// A packet of so many bits on the line comes from the policy.
    pub(crate) fn take(&mut self, now: Time, bits: u64, flying: Flying, rate_bps: u64) {
        let time = service_time(bits, rate_bps);
        self.waiting.push_back(Taken { time, bits, flying });
        self.empty_at = self.empty_at.max(now) + time;
        let (held, full) = (self.empty_at - now, service_time(self.bits * STOP / 100, rate_bps));
        if held >= full {
            self.rest = held - full;
            self.stopped_until = Some(now + self.swing(rate_bps));
        }
    }

    /// The modem lets the host go on, at the instant it was stopped until.
    pub(crate) fn resume(&mut self, rate_bps: u64) {
        let Some(now) = self.stopped_until.take() else { return };
        let swing = self.swing(rate_bps);
        if self.rest > swing {
            // A packet longer than that fills the buffer again, and its end still waits.
            self.rest -= swing;
            self.stopped_until = Some(now + swing);
        }
    }

    /// The next packet for the line.
    pub(crate) fn next(&mut self) -> Option<Taken> {
        self.waiting.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The line's time from stopping the host to letting it go on.
    fn swing(&self, rate_bps: u64) -> Duration {
        service_time(self.bits * (STOP - RESUME) / 100, rate_bps)
    }
}
