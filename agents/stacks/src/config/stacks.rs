//! The named stacks of the papers: presets over the options.

use backchannel_core::options::{with_defaults, CheckedOptions, DefaultOf, OptionValue, Param, Preset};
use backchannel_core::registry::{Entry, When};

use super::OPTIONS;

/// Declares the stacks: `name: summary, source { ..PRESETS, option: default, ... }`.
macro_rules! stacks {
    ($($name:literal: $summary:literal, $source:literal {
        $(..$base:ident,)? $($option:ident: $default:expr),* $(,)?
    })*) => {
        /// Their names.
        const NAMES: &[&str] = &[$($name),*];

        static STACKS: &[Entry] = &[$(
            // BBR draws the times between its probes.
            Entry::stack($name, $summary).source($source).random(When::Is("congestion", "bbr")).options({
                const BASES: &[&[(&str, Preset)]] = &[$($base,)? &[]];
                const PARAMS: &[Param] = &with_defaults::<{ OPTIONS.len() }>(
                    &with_defaults::<{ OPTIONS.len() }>(OPTIONS, BASES[0]),
                    &[$((stringify!($option), DefaultOf($default).preset())),*],
                );
                PARAMS
            })
        ),*];
    };
}

/// What Linux does whatever its congestion control. 130: see docs/senders.md.
const MODERN: &[(&str, Preset)] = &[
    ("limited_transmit", Preset::Flag(true)),
    ("sack", Preset::Flag(true)),
    ("sack_sender", Preset::Text("rack")),
    ("tail_loss_probe", Preset::Flag(true)),
    ("prr", Preset::Flag(true)),
    ("f_rto", Preset::Flag(true)),
    ("dsack", Preset::Flag(true)),
    ("sack_compression", Preset::Flag(true)),
    ("counting", Preset::Text("bytes")),
    ("initial_window_segments", Preset::Number(10.0)),
    ("timer", Preset::Text("linux")),
    ("ack_delay_s", Preset::Number(0.04)),
    ("quick_acks_segments", Preset::Number(130.0)),
    ("ack_heartbeat", Preset::Flag(false)),
];

/// The name of a stack, as an option of another mechanism.
#[derive(Clone, Copy, Debug)]
pub struct StackName(pub &'static str);

impl OptionValue for StackName {
    const CHOICES: &'static [&'static str] = NAMES;

    fn read(checked: &CheckedOptions<'_>, name: &'static str) -> StackName {
        let found = NAMES.iter().find(|stack| checked.text(name) == Some(stack));
        StackName(found.expect("it was validated"))
    }
}

/// Every named stack.
pub fn entries() -> &'static [Entry] {
    STACKS
}

stacks! {
    "tahoe": "fast retransmit, then slow start; BSD timers", "Jacobson 1988" {
        congestion: "tahoe",
    }
    "reno-bsd": "4.4BSD's Reno: 500 ms ticks, 200 ms delayed-ack heartbeat", "ton IV; asym 9" {}
    "reno-ns": "ns-2's Reno: 100 ms ticks", "asym 7" {
        timer: "ns",
    }
    "reno-4.4bsd": "4.4BSD's Reno with what it did beside the RFCs", "ton IV; asym 9; RFC 2525" {
        era: "4.4bsd",
    }
    "reno-ns-1997": "Reno of the ns of 1997", "asym 7" {
        era: "ns-1997",
    }
    "newreno": "recovery that continues after partial acks; BSD timers", "RFC 6582; ton III-A" {
        congestion: "newreno",
    }
    "newreno-ns-2": "NewReno of ns-2 since October 2004", "aq" {
        congestion: "newreno",
        era: "ns-2",
    }
    "sack": "selective acknowledgments with the pipe algorithm; BSD timers", "RFC 2018, 6675; ton III-A" {
        congestion: "newreno",
        sack: true,
    }
    "sack-1996": "selective acknowledgments with the sender of 1996; BSD timers", "RFC 2018; ton III-A" {
        congestion: "reno",
        sack: true,
        sack_sender: "1996",
    }
    "smart": "an ack names the segment that caused it; a gap is a loss at once; BSD timers", "ton III-A" {
        congestion: "reno",
        sack: true,
        sack_sender: "smart",
    }
    "eln": "explicit loss notification, used at the third duplicate ack; BSD timers", "ton III-A" {
        eln: "third-duplicate",
    }
    "eln-rxmt": "explicit loss notification, used at the first duplicate ack; BSD timers", "ton III-A" {
        eln: "first-duplicate",
    }
    "sa": "sender adaptation: growth by segments, bursts of four, marked duplicates; ns-2 timers", "asym 6.3, 7" {
        counting: "segments",
        maxburst_segments: 4,
        marked_duplicates: true,
        ack_every_segments: 1,
        timer: "ns",
    }
    "sa-bsd": "sender adaptation as implemented: figure 19, a 10 ms burst timer; BSD timers", "asym 8.3" {
        counting: "half-segments",
        maxburst_segments: 4,
        burst_tick_s: 0.01,
        timestamp_tick_s: 1e-6,
        timer: "bsd-exact",
    }
    "acc": "ack congestion control by marked acks; ns-2 timers", "asym 6.1, 7" {
        ack_rule: "acc-ecn",
        max_delack_segments: 25,
        min_acks_per_win: 3,
        mark_after_segments: 3,
        peerwin: true,
        ecn: "data-and-acks",
        ack_heartbeat: false,
        timer: "ns",
    }
    "acc-sa": "ack congestion control by marked acks, with sender adaptation; ns-2 timers", "asym 6.1, 6.3, 7" {
        ack_rule: "acc-ecn",
        max_delack_segments: 25,
        min_acks_per_win: 3,
        mark_after_segments: 3,
        peerwin: true,
        ecn: "data-and-acks",
        ack_heartbeat: false,
        counting: "segments",
        maxburst_segments: 4,
        marked_duplicates: true,
        timer: "ns",
    }
    "acc-bsd": "ack congestion control by the sender's window, with sender adaptation; BSD timers", "asym 8, 9" {
        ack_rule: "acc-peerwin",
        peerwin: true,
        counting: "half-segments",
        maxburst_segments: 4,
        burst_tick_s: 0.01,
        timestamp_tick_s: 1e-6,
        timer: "bsd-exact",
    }
    "ace": "acks by an estimate of the sender's window; BSD timers", "aq 6; Ming-Chit, Jinsong, Wang 2000" {
        ack_rule: "ace",
        ack_heartbeat: false,
    }
    "pulsed-ack": "a acks a round trip in congestion avoidance; ns-2 timers", "pulsed 3.2" {
        pulsed: true,
        ack_rule: "pulsed",
        ack_heartbeat: false,
        timestamps: false,
        timer: "ns",
    }
    "cubic-sack": "CUBIC with SACK, limited transmit, byte counting, ten segments at the start, RFC 6298 timers",
    "RFC 9438, 6675, 3042, 6928, 6298" {
        congestion: "cubic",
        sack: true,
        limited_transmit: true,
        counting: "bytes",
        initial_window_segments: 10,
        timer: "modern",
        ack_heartbeat: false,
    }
    "modern": "CUBIC as Linux runs it: loss detection by time, tail loss probes, PRR, F-RTO, HyStart",
    "RFC 9438, 8985, 9937, 5682, 2883, 6928, 6298" {
        ..MODERN,
        congestion: "cubic",
        cubic_growth: "linux",
        slow_start: "hystart",
    }
    "modern-bbr": "BBRv3 on the rest of modern", "draft-ietf-ccwg-bbr" {
        ..MODERN,
        congestion: "bbr",
    }
    "modern-dctcp": "DCTCP on the rest of modern", "RFC 8257" {
        ..MODERN,
        congestion: "dctcp",
        ecn: "dctcp",
    }
    "modern-prague": "TCP Prague: Accurate ECN, ECT(1), paced", "draft-briscoe-iccrg-prague-congestion-control; RFC 9768, 9331" {
        ..MODERN,
        congestion: "prague",
        ecn: "accurate",
        low_latency: true,
        pacing: true,
    }
    "modern-vegas": "Vegas on the rest of modern", "Brakmo and Peterson 1995" {
        ..MODERN,
        congestion: "vegas",
    }
    "modern-ledbat++": "LEDBAT++ on the rest of modern", "draft-irtf-iccrg-ledbat-plus-plus" {
        ..MODERN,
        congestion: "ledbat++",
    }
}
