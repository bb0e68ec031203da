//! The named stacks of the papers: presets over the options.

use backchannel_core::registry::{Entry, Param, Preset, Random};

use super::{number, text, OFF, ON, OPTIONS};

/// The options with some defaults replaced, by name. A name that does not exist is an error of compilation.
const fn with<const N: usize>(changed: [(&str, Preset); N]) -> [Param; OPTIONS.len()] {
    let mut all = [OPTIONS[0]; OPTIONS.len()];
    let mut i = 0;
    while i < OPTIONS.len() {
        all[i] = OPTIONS[i];
        i += 1;
    }
    let mut n = 0;
    while n < N {
        let mut at = 0;
        while !same(all[at].name, changed[n].0) {
            at += 1;
        }
        all[at] = Param { default: changed[n].1, ..all[at] };
        n += 1;
    }
    all
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Declares the stacks: `name: summary, source { option: default, ... }`.
macro_rules! stacks {
    ($($name:literal: $summary:literal, $source:literal { $($option:ident: $default:expr),* $(,)? })*) => {
        static STACKS: &[Entry] = &[$(
            Entry {
                kind: "stack",
                name: $name,
                summary: $summary,
                source: $source,
    random: Random::Never,
                params: {
                    const PARAMS: [Param; OPTIONS.len()] = with([$((stringify!($option), $default)),*]);
                    &PARAMS
                },
            }
        ),*];
    };
}

/// Every named stack.
pub fn entries() -> &'static [Entry] {
    STACKS
}

stacks! {
    "tahoe": "fast retransmit, then slow start; BSD timers", "Jacobson 1988" {
        congestion: text("tahoe"),
    }
    "reno-bsd": "4.4BSD's Reno: 500 ms ticks, 200 ms delayed-ack heartbeat", "ton IV; asym 9" {}
    "reno-ns": "ns-2's Reno: 100 ms ticks", "asym 7" {
        timer: text("ns"),
    }
    "newreno": "recovery that continues after partial acks; BSD timers", "RFC 6582; ton III-A" {
        congestion: text("newreno"),
    }
    "sack": "selective acknowledgments with the pipe algorithm; BSD timers", "RFC 2018, 6675; ton III-A" {
        congestion: text("newreno"),
        sack: ON,
    }
    "sack-1996": "selective acknowledgments with the sender of 1996; BSD timers", "RFC 2018; ton III-A" {
        congestion: text("reno"),
        sack: ON,
        sack_sender: text("1996"),
    }
    "smart": "an ack names the segment that caused it; a gap is a loss at once; BSD timers", "ton III-A" {
        congestion: text("reno"),
        sack: ON,
        sack_sender: text("smart"),
    }
    "eln": "explicit loss notification, used at the third duplicate ack; BSD timers", "ton III-A" {
        eln: text("third-duplicate"),
    }
    "eln-rxmt": "explicit loss notification, used at the first duplicate ack; BSD timers", "ton III-A" {
        eln: text("first-duplicate"),
    }
    "sa": "sender adaptation: growth by segments, bursts of four, marked duplicates; ns-2 timers", "asym 6.3, 7" {
        counting: text("segments"),
        maxburst_segments: number(4.0),
        marked_duplicates: ON,
        ack_every_segments: number(1.0),
        timer: text("ns"),
    }
    "sa-bsd": "sender adaptation as implemented: figure 19, a 10 ms burst timer; BSD timers", "asym 8.3" {
        counting: text("half-segments"),
        maxburst_segments: number(4.0),
        burst_tick_s: number(0.01),
        timestamp_tick_s: number(1e-6),
        timer: text("bsd-exact"),
    }
    "acc": "ack congestion control by marked acks; ns-2 timers", "asym 6.1, 7" {
        ack_rule: text("acc-ecn"),
        max_delack_segments: number(25.0),
        min_acks_per_win: number(3.0),
        mark_after_segments: number(3.0),
        peerwin: ON,
        ecn: text("data-and-acks"),
        ack_heartbeat: OFF,
        timer: text("ns"),
    }
    "acc-sa": "ack congestion control by marked acks, with sender adaptation; ns-2 timers", "asym 6.1, 6.3, 7" {
        ack_rule: text("acc-ecn"),
        max_delack_segments: number(25.0),
        min_acks_per_win: number(3.0),
        mark_after_segments: number(3.0),
        peerwin: ON,
        ecn: text("data-and-acks"),
        ack_heartbeat: OFF,
        counting: text("segments"),
        maxburst_segments: number(4.0),
        marked_duplicates: ON,
        timer: text("ns"),
    }
    "acc-bsd": "ack congestion control by the sender's window, with sender adaptation; BSD timers", "asym 8, 9" {
        ack_rule: text("acc-peerwin"),
        peerwin: ON,
        counting: text("half-segments"),
        maxburst_segments: number(4.0),
        burst_tick_s: number(0.01),
        timestamp_tick_s: number(1e-6),
        timer: text("bsd-exact"),
    }
    "pulsed-ack": "a acks a round trip in congestion avoidance; ns-2 timers", "pulsed 3.2" {
        pulsed: ON,
        ack_rule: text("pulsed"),
        ack_heartbeat: OFF,
        timestamps: OFF,
        timer: text("ns"),
    }
    "modern": "CUBIC with SACK, limited transmit, byte counting, ten segments at the start, RFC 6298 timers",
    "RFC 9438, 6675, 3042, 6928, 6298" {
        congestion: text("cubic"),
        sack: ON,
        limited_transmit: ON,
        counting: text("bytes"),
        initial_window_segments: number(10.0),
        timer: text("modern"),
        ack_heartbeat: OFF,
    }
}
