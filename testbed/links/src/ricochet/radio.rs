//! Radios, their queues and frames, and the steps of the protocol.

use std::time::Duration;

use backchannel_core::packet::Packet;
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;

pub(super) struct Radio {
    pub(super) queues: [Option<OutputQueue>; 2],
    pub(super) mode: Mode,
    /// Counts changes of mode. Steps that were scheduled in an earlier mode are void.
    pub(super) epoch: u64,
    /// Earliest start of a transmission that it can receive.
    pub(super) hears_from: Time,
    /// Earliest time at which it can transmit.
    pub(super) sends_from: Time,
    pub(super) neighbours: Vec<Neighbour>,
}

pub(super) struct Neighbour {
    pub(super) radio: usize,
    /// Number of the last frame sent to it, and of the last one heard from it. The protocol has one bit; with a limit
    /// of retries, a bit would mistake a new frame for the dropped one.
    pub(super) sent: u64,
    pub(super) heard: u64,
}

impl Radio {
    pub(super) fn neighbour(&mut self, radio: usize) -> &mut Neighbour {
        self.neighbours.iter_mut().find(|neighbour| neighbour.radio == radio).expect("the radios are neighbours")
    }

    pub(super) fn heard(&self, from: usize) -> u64 {
        self.neighbours.iter().find(|neighbour| neighbour.radio == from).expect("the radios are neighbours").heard
    }
}

/// A queue of a radio, and the frames that have left it and are not known to have arrived: per neighbour the one that
/// was sent and the next one.
pub(super) struct OutputQueue {
    pub(super) policy: Box<dyn Policy>,
    pub(super) frames: Vec<Frame>,
    /// The neighbour that is polled now or after a backoff.
    pub(super) polled: Option<usize>,
    pub(super) backoff: Duration,
    /// When a policy that holds packets back is polled again.
    pub(super) retry_at: Option<Time>,
}

impl OutputQueue {
    pub(super) fn first_for(&self, peer: usize) -> Option<&Frame> {
        self.frames.iter().find(|frame| frame.to == peer)
    }
}

pub(super) struct Frame {
    pub(super) packet: Packet,
    pub(super) to: usize,
    pub(super) number: u64,
    pub(super) transmissions: u64,
    /// When a missing link ack is polled for, once the frame was sent.
    pub(super) due: Option<Time>,
}

/// State of a radio. Every state but `Idle` is busy. An idle radio receives, also during a backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Idle,
    /// It has sent an RTS for this queue.
    Polling {
        queue: usize,
        peer: usize,
    },
    /// Its frame is on the air, or will be after the turnaround.
    Sending {
        queue: usize,
        peer: usize,
    },
    /// Its frame was sent and the link ack is missing. Only without piggybacking.
    AwaitingAck {
        queue: usize,
        peer: usize,
    },
    /// It answers a poll: CTS, reception of the frame, link ack without piggybacking.
    Answering {
        peer: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// An RTS for frames up to `number`, on the air since `since`.
    RtsEnds {
        from: usize,
        to: usize,
        number: u64,
        epoch: u64,
        since: Time,
    },
    CtsEnds {
        from: usize,
        to: usize,
        epoch: u64,
    },
    FrameBegins {
        from: usize,
        to: usize,
        epoch: u64,
    },
    FrameEnds {
        from: usize,
        to: usize,
        epoch: u64,
        heard: bool,
    },
    /// The fixed latency of the oldest packet is over.
    Delivery,
    AckBegins {
        from: usize,
        to: usize,
        epoch: u64,
    },
    /// A link ack after a frame or instead of a CTS.
    AckEnds {
        from: usize,
        to: usize,
        epoch: u64,
    },
    /// The CTS, frame or link ack did not arrive.
    Timeout {
        radio: usize,
        epoch: u64,
    },
    /// Poll the neighbour (again) after a backoff or a turnaround.
    Attempt {
        radio: usize,
        queue: usize,
    },
    /// A policy that held packets back may have one now.
    PolicyRetry {
        radio: usize,
        queue: usize,
    },
    /// Poll for a missing link ack.
    AckDue {
        radio: usize,
        queue: usize,
    },
}
