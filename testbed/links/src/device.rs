//! A modem's transmit buffer, between the queue of a policy and the line. Packets in it are out of reach of ack filters
//! and priorities (asym 8).
//!
//! The host hands over one packet at a time, byte by byte, and far faster than the line. The modem stops the host when
//! the buffer is nine tenths full and resumes it when the buffer is half empty, as the manual of the U.S. Robotics
//! Courier V.34 says of its 3.25 KB ("Transmit Data Flow Control"). The rest of a packet stays in the host's output.
//! The next packet leaves the policy when the host has none.

use std::collections::VecDeque;
use std::time::Duration;

use backchannel_core::time::{service_time, Time};

use crate::serial::SentPacket;

/// Fill levels at which the modem stops and resumes the host, in percent.
const STOP: u64 = 90;
const RESUME: u64 = 50;

/// A packet in the buffer.
pub(crate) struct Taken {
    /// Its time on the line, at the rate when it entered.
    pub(crate) time_ns: u64,
    pub(crate) bits: u64,
    pub(crate) in_flight: SentPacket,
}

/// The buffer. Its fill level is counted as time on the line: the time until it is empty.
pub(crate) struct Device {
    bits: u64,
    /// Packets that wait for the line.
    waiting: VecDeque<Taken>,
    /// When the last bit of the last packet leaves.
    empty_at: Time,
    /// Until when the modem has stopped the host.
    stopped_until: Option<Time>,
    /// The part of the last packet that the host still had when it was stopped, as time on the line.
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

    /// The next packet can leave the policy.
    pub(crate) fn has_room(&self) -> bool {
        self.stopped_until.is_none()
    }

    /// When to check again; `None` if the buffer has room.
    pub(crate) fn stopped_until(&self) -> Option<Time> {
        self.stopped_until
    }

    /// Takes a packet of `bits` bits on the line from the policy.
    pub(crate) fn take(&mut self, now: Time, bits: u64, in_flight: SentPacket, rate_bps: u64) {
        let time = service_time(bits, rate_bps);
        self.waiting.push_back(Taken { time_ns: time.as_nanos() as u64, bits, in_flight });
        self.empty_at = self.empty_at.max(now) + time;
        let (held, full) = (self.empty_at - now, service_time(self.bits * STOP / 100, rate_bps));
        if held >= full {
            self.rest = held - full;
            self.stopped_until = Some(now + self.hysteresis(rate_bps));
        }
    }

    /// The modem resumes the host, at [`Device::stopped_until`].
    pub(crate) fn resume(&mut self, rate_bps: u64) {
        let Some(now) = self.stopped_until.take() else { return };
        let hysteresis = self.hysteresis(rate_bps);
        if self.rest > hysteresis {
            // A longer packet fills the buffer again, and its end still waits.
            self.rest -= hysteresis;
            self.stopped_until = Some(now + hysteresis);
        }
    }

    /// The next packet for the line.
    pub(crate) fn next(&mut self) -> Option<Taken> {
        self.waiting.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The line's time between stopping and resuming the host.
    fn hysteresis(&self, rate_bps: u64) -> Duration {
        service_time(self.bits * (STOP - RESUME) / 100, rate_bps)
    }
}
