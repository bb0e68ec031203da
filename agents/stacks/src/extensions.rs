//! What single papers add to a connection: new header fields, rules for acks, answers to losses.
//!
//! An extension is one file below `extensions/` and one line of the registry in this file. Extensions hold their own
//! state; the connection calls them at the points that [`Extension`] lists.

mod ack_congestion;
mod cwnd_estimate;
mod loss_notification;
mod peer_window;
mod pulsed_ack;
mod rate_request;
mod retransmit_request;

use std::time::Duration;

use backchannel_core::time::Time;

use crate::config::Config;
use crate::seq::Offset;
use crate::wire::Segment;

/// The state of a connection that an outgoing segment may report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    /// Whether the segment carries data.
    pub data: bool,
    /// The congestion window in bytes.
    pub cwnd: f64,
    /// Bytes of data in a full segment.
    pub mss: f64,
    /// Whether the sender is in slow start.
    pub in_slow_start: bool,
    /// Bytes in the send buffer: unacknowledged, or not yet sent.
    pub buffered: u64,
    /// The next byte expected from the peer.
    pub next: Offset,
    /// Segments that arrived out of order since the last one in order.
    pub out_of_order: u32,
}

impl Outgoing {
    /// The congestion window in segments.
    pub fn segments(&self) -> f64 {
        self.cwnd / self.mss
    }
}

/// What extensions conclude from a duplicate ack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DuplicateHints {
    /// The segment at the cumulative ack was corrupted, not lost to congestion.
    pub corrupted: bool,
    /// The duplicate stands for the third one: retransmit now.
    pub retransmit_now: bool,
}

/// The points of a connection at which papers add something. Each does nothing by default.
pub(crate) trait Extension {
    /// Whether the options of the connection ask for the extension. If they ask for none, no other method is called.
    fn is_enabled(&self) -> bool;

    /// Bytes of the options that the extension puts on every data segment. They are taken off the segment size.
    fn data_option_bytes(&self) -> u32 {
        0
    }

    /// Fires when a segment is built, SYN and RST excepted. May set options and marks of `segment`.
    fn on_transmit(&mut self, segment: &mut Segment, outgoing: &Outgoing) {
        let _ = (segment, outgoing);
    }

    /// Fires on each acceptable segment with data, before its data are taken. `rtt`: the time since the ack was sent
    /// whose timestamp the segment echoes.
    fn on_data(&mut self, now: Time, segment: &Segment, rtt: Option<Duration>) {
        let _ = (now, segment, rtt);
    }

    /// Fires on each segment with a wrong checksum and a readable header. It covers `start` to `end`; `next` is
    /// expected.
    fn on_damaged(&mut self, start: Offset, end: Offset, next: Offset) {
        let _ = (start, end, next);
    }

    /// Segments that one ack stands for now; `None` leaves that to the others.
    fn segments_per_ack(&self) -> Option<u32> {
        None
    }

    /// Fires on each duplicate ack outside fast recovery. May set `hints`.
    fn on_duplicate_ack(&mut self, segment: &Segment, hints: &mut DuplicateHints) {
        let _ = (segment, hints);
    }

    /// Fires when the segment at the cumulative ack is retransmitted because it was corrupted.
    fn on_repair(&mut self) {}

    /// Whether a corrupted segment is being retransmitted.
    fn is_repairing(&self) -> bool {
        false
    }

    /// Fires on the first new ack in fast recovery. `true`: it ends the repair of a corrupted segment.
    fn ends_repair(&mut self) -> bool {
        false
    }

    /// Bytes by which a new ack opens the window in congestion avoidance; `None` leaves that to the controller.
    fn window_increase(&self, segment: &Segment, mss: u32) -> Option<f64> {
        let _ = (segment, mss);
        None
    }

    /// Fires on each retransmission timeout.
    fn on_timeout(&mut self) {}
}

/// The registry: file, type, one line an extension. All are called in this order, statically.
macro_rules! extensions {
    ($($file:ident::$name:ident,)*) => {
        /// The extensions of one connection; those that its options do not ask for do nothing.
        #[derive(Clone, Debug)]
        pub(crate) struct Extensions {
            /// Whether any is enabled: connections without extensions do not call each.
            any: bool,
            $($file: $file::$name),*
        }

        impl Extensions {
            pub fn new(config: &Config) -> Extensions {
                let mut extensions = Extensions { any: false, $($file: $file::$name::new(config)),* };
                extensions.any = false $(|| extensions.$file.is_enabled())*;
                extensions
            }
        }

        impl Extensions {
            /// For segments with at most so many bytes of data.
            pub fn for_segments_of(mut self, bytes: u32) -> Extensions {
                self.peer_window.set_segment(bytes);
                self
            }
        }

        impl Extension for Extensions {
            fn is_enabled(&self) -> bool {
                self.any
            }

            fn data_option_bytes(&self) -> u32 {
                if self.any { 0 $(+ self.$file.data_option_bytes())* } else { 0 }
            }

            fn on_transmit(&mut self, segment: &mut Segment, outgoing: &Outgoing) {
                if self.any {
                    $(self.$file.on_transmit(segment, outgoing);)*
                }
            }

            fn on_data(&mut self, now: Time, segment: &Segment, rtt: Option<Duration>) {
                if self.any {
                    $(self.$file.on_data(now, segment, rtt);)*
                }
            }

            fn on_damaged(&mut self, start: Offset, end: Offset, next: Offset) {
                if self.any {
                    $(self.$file.on_damaged(start, end, next);)*
                }
            }

            fn segments_per_ack(&self) -> Option<u32> {
                if self.any { None $(.or_else(|| self.$file.segments_per_ack()))* } else { None }
            }

            fn on_duplicate_ack(&mut self, segment: &Segment, hints: &mut DuplicateHints) {
                if self.any {
                    $(self.$file.on_duplicate_ack(segment, hints);)*
                }
            }

            fn on_repair(&mut self) {
                $(self.$file.on_repair();)*
            }

            fn is_repairing(&self) -> bool {
                false $(|| self.$file.is_repairing())*
            }

            fn ends_repair(&mut self) -> bool {
                false $(|| self.$file.ends_repair())*
            }

            #[inline]
            fn window_increase(&self, segment: &Segment, mss: u32) -> Option<f64> {
                if self.any { None $(.or_else(|| self.$file.window_increase(segment, mss)))* } else { None }
            }

            fn on_timeout(&mut self) {
                if self.any {
                    $(self.$file.on_timeout();)*
                }
            }
        }
    };
}

extensions! {
    ack_congestion::AckCongestion,
    peer_window::PeerWindow,
    cwnd_estimate::CwndEstimate,
    pulsed_ack::PulsedAck,
    rate_request::RateRequest,
    retransmit_request::RetransmitRequest,
    loss_notification::LossNotification,
}
