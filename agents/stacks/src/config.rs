//! What a stack is made of: its parts and their parameters, and the named stacks of the papers as data.

use std::time::Duration;

use backchannel_core::registry::{Entry, Given, Param, Preset, Unit};
use backchannel_core::scenario::Options;

use crate::ack::{AckPolicy, AckRule};
use crate::burst::BurstLimit;
use crate::congestion::{Counting, FullAck, TimeoutHalves, Variant};
use crate::ecn::EcnMode;
use crate::eln::Eln;
use crate::rtt::{Clock, RtoConfig};
use crate::scoreboard::Reading;

/// Every setting of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest packet sent, in bytes, IP and TCP headers and options included.
    pub packet_bytes: u32,
    /// Congestion control.
    pub variant: Variant,
    /// How the window grows.
    pub counting: Counting,
    /// Initial window in segments.
    pub initial_window: u32,
    /// Initial slow-start threshold in segments; `None`: as large as the window may become.
    pub initial_ssthresh: Option<u32>,
    /// Greatest congestion window in segments.
    pub max_window: u32,
    /// Duplicate acks that mean a loss.
    pub duplicate_threshold: u32,
    /// New data on the first two duplicate acks (RFC 3042).
    pub limited_transmit: bool,
    /// Duplicates of what was outstanding at the last loss may start another recovery.
    pub successive_fast_retransmits: bool,
    /// What a timeout in fast recovery halves.
    pub timeout_halves: TimeoutHalves,
    /// The window that NewReno's recovery leaves behind.
    pub full_ack: FullAck,
    /// Selective acknowledgments, offered and used.
    pub sack: bool,
    /// New acks may pass by the end of fast recovery (RFC 2525 2.8).
    pub header_prediction: bool,
    /// How this side's sender reads them; a SMART receiver also writes them its way.
    pub reading: Reading,
    /// Explicit loss notification.
    pub eln: Eln,
    /// A duplicate ack with the fast-retransmit mark stands for the threshold (asym 6.3).
    pub marked_duplicates: bool,
    /// Limit on bursts (asym 6.3, 8.3).
    pub burst: Option<BurstLimit>,
    /// Data carry the sender's window (asym 8.2).
    pub tells_window: bool,
    /// Data carry the Pulsed ACK option (pulsed 3.2.2).
    pub pulsed: bool,
    /// Data ask for so many acks a window (draft-ietf-tcpm-ack-rate-request).
    pub asks: Option<u32>,
    /// Explicit congestion notification.
    pub ecn: EcnMode,
    /// Timestamps, offered and used.
    pub timestamps: bool,
    /// Window scaling, offered and used.
    pub window_scaling: bool,
    /// Receive buffer in bytes.
    pub receive_buffer: u64,
    /// When to acknowledge.
    pub ack: AckPolicy,
    /// The handshake gives the first round-trip sample.
    pub handshake_sample: bool,
    /// The retransmission timeout.
    pub rto: RtoConfig,
    /// A tick of the timestamp option.
    pub timestamp_tick: Duration,
    /// How long TIME-WAIT lasts.
    pub time_wait: Duration,
}

const fn param(name: &'static str, unit: Unit, default: Preset, help: &'static str) -> Param {
    Param::new(name, unit, default, help)
}

const PACKET: Param =
    param("packet_bytes", Unit::Bytes, Preset::Number(1500.0), "largest packet, headers and options included")
        .range(88.0, 65_535.0);
const COUNTING: Param = param(
    "counting",
    Unit::Choice,
    Preset::Text("acks"),
    "growth by acks; acks-and-eighth, as 4.4BSD's (RFC 2525 2.6); bytes (RFC 3465); segments (asym 6.3); half-segments (asym \
     fig 19)",
)
.of(&["acks", "acks-and-eighth", "bytes", "segments", "half-segments"]);
const INITIAL: Param =
    param("initial_window_segments", Unit::Segments, Preset::Number(1.0), "congestion window at the start")
        .range(1.0, 1000.0);
const SSTHRESH: Param = param(
    "initial_ssthresh_segments",
    Unit::Segments,
    Preset::Absent,
    "slow-start threshold at the start; absent: none",
)
.at_least(2.0);
const MAX_WINDOW: Param =
    param("max_window_segments", Unit::Segments, Preset::Number(1e6), "greatest congestion window").at_least(1.0);
const LIMITED: Param =
    param("limited_transmit", Unit::Flag, Preset::Flag(false), "new data on the first two duplicate acks (RFC 3042)");
const SUCCESSIVE: Param = param(
    "successive_fast_retransmits",
    Unit::Flag,
    Preset::Flag(true),
    "tahoe, reno: duplicates of what was outstanding at the last loss count as a new one, as in 4.4BSD; false: they do not, as \
     in ns-2 (bugFix_; RFC 2582 5)",
);
const TIMEOUT_HALVES: Param = param(
    "timeout_halves",
    Unit::Choice,
    Preset::Text("outstanding"),
    "in fast recovery: what is outstanding (RFC 5681 equation 4), or the window without what duplicate acks have added, as in ns-2 \
     (RenoTcpAgent::timeout)",
)
.of(&["outstanding", "window"]);
const FULL_ACK: Param = param(
    "full_ack",
    Unit::Choice,
    Preset::Text("outstanding"),
    "newreno's window after recovery: what is outstanding and a segment, at most the threshold; or the threshold, as in ns-2 \
     (RFC 6582 3.2 step 3, options 1 and 2)",
)
.of(&["outstanding", "threshold"]);
const SACK: Param = param("sack", Unit::Flag, Preset::Flag(false), "selective acknowledgments (RFC 2018, 6675)");
const TIMESTAMPS: Param = param("timestamps", Unit::Flag, Preset::Flag(true), "timestamp option (RFC 7323)");
const SCALING: Param = param("window_scaling", Unit::Flag, Preset::Flag(true), "window scale option (RFC 7323)");
const BUFFER: Param =
    param("receive_buffer_bytes", Unit::Bytes, Preset::Number(1_048_576.0), "bounds the window offered")
        .range(536.0, 1e9);
const ACK_EVERY: Param =
    param("ack_every_segments", Unit::Segments, Preset::Number(2.0), "an ack every so many segments (d)")
        .range(1.0, 1000.0);
const ACK_DELAY: Param =
    param("ack_delay_s", Unit::Time, Preset::Number(0.2), "longest delay of an ack (RFC 1122: at most 500 ms)")
        .range(0.0, 0.5);
const ACK_HEARTBEAT: Param =
    param("ack_heartbeat", Unit::Flag, Preset::Flag(true), "delays end at multiples of ack_delay, as in 4.4BSD");
const TIMER: Param =
    param("timer", Unit::Choice, Preset::Text("bsd"), "bsd: 500 ms ticks; ns: 100 ms ticks; modern: RFC 6298")
        .of(&["bsd", "ns", "modern"]);
const TIMER_TICK: Param = param(
    "timer_tick_s",
    Unit::Time,
    Preset::Absent,
    "granularity of the timer; absent: its own (bsd 500 ms, ns 100 ms, modern 1 ms); ns-2 has 10 ms since 2.27",
)
.range(0.0001, 1.0);
const RTO_MIN: Param = param(
    "rto_min_s",
    Unit::Time,
    Preset::Absent,
    "least retransmission timeout; absent: the timer's own (bsd 1 s, ns 200 ms, modern 1 s)",
)
.range(0.0, 60.0);

const HANDSHAKE_SAMPLE: Param = param(
    "handshake_sample",
    Unit::Flag,
    Preset::Flag(true),
    "the handshake gives the first round-trip sample; off, the first data wait for the initial timeout, as in ns-2's one-way \
     TCP, which has no handshake",
);

const PREDICTION: Param = param(
    "header_prediction",
    Unit::Flag,
    Preset::Flag(false),
    "new acks pass by the end of fast recovery while the window exceeds the peer's, as in 4.4BSD (RFC 2525 2.8)",
);
const READING: Param = param(
    "sack_sender",
    Unit::Choice,
    Preset::Text("rfc6675"),
    "what the sender makes of selective acks: RFC 6675; Fall and Floyd's sender of 1996; SMART (ton III-A); nothing, when they are for a base station",
)
.of(&["rfc6675", "1996", "smart", "ignored"]);
const ELN: Param = param(
    "eln",
    Unit::Choice,
    Preset::Text("off"),
    "explicit loss notification: retransmit without shrinking at the third duplicate ack, or the first (ton III-A)",
)
.of(&["off", "third-duplicate", "first-duplicate"]);
const MARKED: Param = param(
    "marked_duplicates",
    Unit::Flag,
    Preset::Flag(false),
    "one duplicate ack with the fast-retransmit mark is enough (asym 6.3)",
);
const MAXBURST: Param =
    param("maxburst_segments", Unit::Segments, Preset::Absent, "segments sent back to back at most; absent: no limit")
        .range(1.0, 1000.0);
const BURST_TICK: Param =
    param("burst_tick_s", Unit::Time, Preset::Number(0.0), "granularity of the burst timer (10 ms on BSDI); 0: exact")
        .range(0.0, 1.0);
const TELLS_WINDOW: Param =
    param("peerwin", Unit::Flag, Preset::Flag(false), "data tell the sender's window, the peerwin option (asym 8.2)");
const PULSED: Param =
    param("pulsed", Unit::Flag, Preset::Flag(false), "data carry the pulsed flag and window (pulsed 3.2.2)");
const ASKS: Param = param(
    "asks_acks_per_win",
    Unit::Count,
    Preset::Absent,
    "data ask for an ack rate that gives so many acks a window (draft-ietf-tcpm-ack-rate-request); absent: they do not ask",
)
.range(1.0, 255.0);
const ECN: Param = param(
    "ecn",
    Unit::Choice,
    Preset::Text("off"),
    "congestion marks: on data (RFC 3168), or on acks as well (asym 6.1)",
)
.of(&["off", "data", "data-and-acks"]);
const ACK_RULE: Param = param(
    "ack_rule",
    Unit::Choice,
    Preset::Text("every"),
    "every d segments; acc-ecn (asym 6.1); acc-peerwin (asym 8.2); pulsed (pulsed 3.2.3); requested: as the sender asks (draft-ietf-tcpm-ack-rate-request)",
)
.of(&["every", "acc-ecn", "acc-peerwin", "pulsed", "requested"]);
const MAX_DELACK: Param =
    param("max_delack_segments", Unit::Segments, Preset::Number(8.0), "acc: segments that one ack stands for at most")
        .range(1.0, 1000.0);
const MIN_ACKS: Param =
    param("min_acks_per_win", Unit::Count, Preset::Number(5.0), "acc-peerwin: acks that a window brings at least")
        .range(1.0, 1000.0);
const PULSES: Param =
    param("pulses_per_window", Unit::Count, Preset::Number(5.0), "pulsed: acks a round trip (a)").range(1.0, 255.0);
const MARK_AFTER: Param = param(
    "mark_after_segments",
    Unit::Segments,
    Preset::Number(0.0),
    "after so many segments out of order, duplicate acks ask for a retransmission at once (asym 6.1); 0: never",
)
.range(0.0, 1000.0);
const TIMESTAMP_TICK: Param = param(
    "timestamp_tick_s",
    Unit::Time,
    Preset::Number(0.001),
    "tick of the timestamp option (RFC 7323: 1 ms to 1 s; asym 8.3: 1 us)",
)
.range(1e-6, 1.0);
const TIME_WAIT: Param =
    param("time_wait_s", Unit::Time, Preset::Number(60.0), "how long TIME-WAIT lasts (twice the segment lifetime)")
        .range(0.0, 240.0);
const VARIANT: Param = param("congestion", Unit::Choice, Preset::Text("reno"), "congestion control and recovery")
    .of(&["tahoe", "reno", "newreno", "cubic"]);

/// Every parameter of every stack, before a stack's own presets, in the order in which people read them.
const ALL: [Param; 37] = [
    VARIANT,
    PACKET,
    COUNTING,
    INITIAL,
    SSTHRESH,
    MAX_WINDOW,
    LIMITED,
    SUCCESSIVE,
    TIMEOUT_HALVES,
    FULL_ACK,
    PREDICTION,
    SACK,
    READING,
    ELN,
    MARKED,
    MAXBURST,
    BURST_TICK,
    TELLS_WINDOW,
    PULSED,
    ASKS,
    ECN,
    TIMESTAMPS,
    TIMESTAMP_TICK,
    SCALING,
    BUFFER,
    ACK_RULE,
    ACK_EVERY,
    MAX_DELACK,
    MIN_ACKS,
    PULSES,
    MARK_AFTER,
    ACK_DELAY,
    ACK_HEARTBEAT,
    TIMER,
    TIMER_TICK,
    RTO_MIN,
    HANDSHAKE_SAMPLE,
];

/// [`ALL`] and [`TIME_WAIT`].
const COUNT: usize = ALL.len() + 1;

/// The parameters with some presets replaced, by name. A name that does not exist is an error of compilation.
const fn with<const N: usize>(changed: [(&str, Preset); N]) -> [Param; COUNT] {
    let mut all = [TIME_WAIT; COUNT];
    let mut i = 0;
    while i < ALL.len() {
        all[i] = ALL[i];
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

/// A named stack: its presets where they differ from [`ALL`].
macro_rules! stack {
    ($name:ident, $text:literal, $summary:literal, $source:literal, { $($param:ident: $preset:expr),* $(,)? }) => {
        static $name: Entry = Entry {
            kind: "stack",
            name: $text,
            summary: $summary,
            source: $source,
            params: {
                const PARAMS: [Param; COUNT] = with([$((stringify!($param), $preset)),*]);
                &PARAMS
            },
        };
    };
}

const ON: Preset = Preset::Flag(true);
const OFF: Preset = Preset::Flag(false);
const fn text(choice: &'static str) -> Preset {
    Preset::Text(choice)
}
const fn number(n: f64) -> Preset {
    Preset::Number(n)
}

stack!(TAHOE, "tahoe", "fast retransmit, then slow start; BSD timers", "Jacobson 1988", { congestion: text("tahoe") });
stack!(RENO_BSD, "reno-bsd", "4.4BSD's Reno: 500 ms ticks, 200 ms delayed-ack heartbeat", "ton IV; asym 9", {});
stack!(RENO_NS, "reno-ns", "ns-2's Reno: 100 ms ticks", "asym 7", { timer: text("ns") });
stack!(NEWRENO, "newreno", "recovery that partial acks do not end; BSD timers", "RFC 6582; ton III-A", {
    congestion: text("newreno"),
});
stack!(SACK_, "sack", "selective acknowledgments with the pipe algorithm; BSD timers", "RFC 2018, 6675; ton III-A", {
    congestion: text("newreno"),
    sack: ON,
});
stack!(SACK_1996, "sack-1996", "selective acknowledgments with the sender of 1996; BSD timers", "RFC 2018; ton III-A", {
    congestion: text("reno"),
    sack: ON,
    sack_sender: text("1996"),
});
stack!(SMART, "smart", "an ack names the segment that caused it; a gap is a loss at once; BSD timers", "ton III-A", {
    congestion: text("reno"),
    sack: ON,
    sack_sender: text("smart"),
});
stack!(ELN_, "eln", "explicit loss notification, acted on at the third duplicate ack; BSD timers", "ton III-A", {
    eln: text("third-duplicate"),
});
stack!(ELN_RXMT, "eln-rxmt", "explicit loss notification, acted on at the first duplicate ack; BSD timers", "ton III-A", {
    eln: text("first-duplicate"),
});
stack!(SA, "sa", "sender adaptation: growth by segments, bursts of four, marked duplicates; ns-2 timers", "asym 6.3, 7", {
    counting: text("segments"),
    maxburst_segments: number(4.0),
    marked_duplicates: ON,
    ack_every_segments: number(1.0),
    timer: text("ns"),
});
stack!(SA_BSD, "sa-bsd", "sender adaptation as implemented: figure 19, a 10 ms burst timer; BSD timers", "asym 8.3", {
    counting: text("half-segments"),
    maxburst_segments: number(4.0),
    burst_tick_s: number(0.01),
    timestamp_tick_s: number(1e-6),
});
stack!(ACC, "acc", "ack congestion control by marked acks; ns-2 timers", "asym 6.1, 7", {
    ack_rule: text("acc-ecn"),
    max_delack_segments: number(25.0),
    mark_after_segments: number(3.0),
    peerwin: ON,
    ecn: text("data-and-acks"),
    ack_heartbeat: OFF,
    timer: text("ns"),
});
stack!(ACC_SA, "acc-sa", "ack congestion control by marked acks, with sender adaptation; ns-2 timers", "asym 6.1, 6.3, 7", {
    ack_rule: text("acc-ecn"),
    max_delack_segments: number(25.0),
    mark_after_segments: number(3.0),
    peerwin: ON,
    ecn: text("data-and-acks"),
    ack_heartbeat: OFF,
    counting: text("segments"),
    maxburst_segments: number(4.0),
    marked_duplicates: ON,
    timer: text("ns"),
});
stack!(ACC_BSD, "acc-bsd", "ack congestion control by the sender's window, with sender adaptation; BSD timers", "asym 8, 9", {
    ack_rule: text("acc-peerwin"),
    peerwin: ON,
    counting: text("half-segments"),
    maxburst_segments: number(4.0),
    burst_tick_s: number(0.01),
    timestamp_tick_s: number(1e-6),
});
stack!(PULSED_ACK, "pulsed-ack", "a acks a round trip in congestion avoidance; ns-2 timers", "pulsed 3.2", {
    pulsed: ON,
    ack_rule: text("pulsed"),
    ack_heartbeat: OFF,
    timestamps: OFF,
    timer: text("ns"),
});
stack!(
    MODERN,
    "modern",
    "CUBIC with SACK, limited transmit, byte counting, ten segments at the start, RFC 6298 timers",
    "RFC 9438, 6675, 3042, 6928, 6298",
    {
        congestion: text("cubic"),
        sack: ON,
        limited_transmit: ON,
        counting: text("bytes"),
        initial_window_segments: number(10.0),
        timer: text("modern"),
        ack_heartbeat: OFF,
    }
);

/// Every named stack.
pub fn entries() -> Vec<&'static Entry> {
    vec![
        &TAHOE,
        &RENO_BSD,
        &RENO_NS,
        &NEWRENO,
        &SACK_,
        &SACK_1996,
        &SMART,
        &ELN_,
        &ELN_RXMT,
        &SA,
        &SA_BSD,
        &ACC,
        &ACC_SA,
        &ACC_BSD,
        &PULSED_ACK,
        &MODERN,
    ]
}

/// The settings of a named stack with a campaign's own options.
///
/// # Errors
/// A sentence: there is no such stack, an option does not fit, or two do not go together.
pub fn config(name: &str, options: &Options) -> Result<Config, String> {
    let entry = entries().into_iter().find(|entry| entry.name == name).ok_or_else(|| {
        let known: Vec<_> = entries().iter().map(|entry| entry.name).collect();
        format!("there is no research stack '{name}'; there are: {}", known.join(", "))
    })?;
    let given = Given::check(entry, options)?;
    let seconds = |name: &str| given.number(name).map(Duration::from_secs_f64);
    let count = |name: &str| given.count(name).expect("it has a default");
    let choice = |name: &str| given.text(name).expect("it has a default");
    let tick = |own_s: f64| seconds("timer_tick_s").unwrap_or(Duration::from_secs_f64(own_s));
    let (clock, initial, min, max) = match choice("timer") {
        "bsd" => (Clock::Ticks(tick(0.5)), 6.0, 1.0, 64.0),
        "ns" => (Clock::Ns(tick(0.1)), 6.0, 0.2, 64.0),
        _ => (Clock::Smooth(tick(0.001)), 1.0, 1.0, 60.0),
    };
    let config = Config {
        packet_bytes: count("packet_bytes") as u32,
        variant: match choice("congestion") {
            "tahoe" => Variant::Tahoe,
            "newreno" => Variant::NewReno,
            "cubic" => Variant::Cubic,
            _ => Variant::Reno,
        },
        counting: match choice("counting") {
            "acks-and-eighth" => Counting::AcksAndEighth,
            "bytes" => Counting::Bytes { limit: 2 },
            "segments" => Counting::Segments,
            "half-segments" => Counting::HalfSegments,
            _ => Counting::Acks,
        },
        initial_window: count("initial_window_segments") as u32,
        initial_ssthresh: given.count("initial_ssthresh_segments").map(|n| n as u32),
        max_window: count("max_window_segments") as u32,
        duplicate_threshold: 3,
        limited_transmit: given.flag("limited_transmit"),
        successive_fast_retransmits: given.flag("successive_fast_retransmits"),
        timeout_halves: match choice("timeout_halves") {
            "window" => TimeoutHalves::Window,
            _ => TimeoutHalves::Outstanding,
        },
        full_ack: match choice("full_ack") {
            "threshold" => FullAck::Threshold,
            _ => FullAck::Outstanding,
        },
        sack: given.flag("sack"),
        header_prediction: given.flag("header_prediction"),
        reading: match choice("sack_sender") {
            "1996" => Reading::Sack1996,
            "smart" => Reading::Smart,
            "ignored" => Reading::Ignored,
            _ => Reading::Rfc6675,
        },
        eln: match choice("eln") {
            "third-duplicate" => Eln::ThirdDuplicate,
            "first-duplicate" => Eln::FirstDuplicate,
            _ => Eln::Off,
        },
        marked_duplicates: given.flag("marked_duplicates"),
        burst: given
            .count("maxburst_segments")
            .map(|most| BurstLimit { most: most as u32, tick: seconds("burst_tick_s").expect("it has a default") }),
        tells_window: given.flag("peerwin"),
        pulsed: given.flag("pulsed"),
        asks: given.count("asks_acks_per_win").map(|n| n as u32),
        ecn: match choice("ecn") {
            "data" => EcnMode::Data,
            "data-and-acks" => EcnMode::DataAndAcks,
            _ => EcnMode::Off,
        },
        timestamps: given.flag("timestamps"),
        window_scaling: given.flag("window_scaling"),
        receive_buffer: count("receive_buffer_bytes"),
        ack: AckPolicy {
            rule: match choice("ack_rule") {
                "acc-ecn" => AckRule::AccEcn { most: count("max_delack_segments") as u32 },
                "acc-peerwin" => AckRule::AccPeerwin {
                    most: count("max_delack_segments") as u32,
                    acks_per_window: count("min_acks_per_win") as u32,
                },
                "pulsed" => AckRule::Pulsed { a: count("pulses_per_window") as u32 },
                "requested" => AckRule::Requested,
                _ => AckRule::Every(count("ack_every_segments") as u32),
            },
            delay: seconds("ack_delay_s").expect("it has a default"),
            heartbeat: given.flag("ack_heartbeat"),
            mark_after: count("mark_after_segments") as u32,
        },
        handshake_sample: given.flag("handshake_sample"),
        rto: RtoConfig {
            clock,
            initial: Duration::from_secs_f64(initial),
            min: seconds("rto_min_s").unwrap_or(Duration::from_secs_f64(min)),
            max: Duration::from_secs_f64(max),
        },
        timestamp_tick: seconds("timestamp_tick_s").expect("it has a default"),
        time_wait: seconds("time_wait_s").expect("it has a default"),
    };
    refuse_what_does_not_combine(name, &config)?;
    Ok(config)
}

/// Combinations that mean nothing, each with its reason.
fn refuse_what_does_not_combine(name: &str, config: &Config) -> Result<(), String> {
    let rules = [
        (
            config.sack && config.variant == Variant::Tahoe,
            "sack does not go with congestion tahoe, which sends everything again",
        ),
        (
            !config.sack && config.reading != Reading::Rfc6675,
            "sack_sender needs sack: without it there are no selective acks to read",
        ),
        (
            config.eln != Eln::Off && (config.sack || config.variant != Variant::Reno),
            "eln is an addition to congestion reno without sack (ton III-A): what others do with the mark is not defined",
        ),
        (
            matches!(config.ack.rule, AckRule::AccEcn { .. }) && config.ecn != EcnMode::DataAndAcks,
            "ack_rule acc-ecn needs ecn data-and-acks: it acts on marked acks",
        ),
        (
            matches!(config.ack.rule, AckRule::AccEcn { .. }) && !config.timestamps,
            "ack_rule acc-ecn needs timestamps: it knows the round trip from echoed ones (asym 6.1)",
        ),
        (
            config.pulsed && config.variant == Variant::Cubic,
            "pulsed does not go with congestion cubic: its increase of 1/a replaces Reno's",
        ),
    ];
    match rules.into_iter().find(|(broken, _)| *broken) {
        Some((_, why)) => Err(format!("stack {name}: {why}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_named_stack_can_be_built_and_has_its_presets() {
        for entry in entries() {
            config(entry.name, &Options::new()).unwrap_or_else(|why| panic!("{}: {why}", entry.name));
        }
        let sack = config("sack", &Options::new()).unwrap();
        assert!(sack.sack && sack.variant == Variant::NewReno);
        assert_eq!(config("modern", &Options::new()).unwrap().initial_window, 10);
    }

    #[test]
    fn the_tick_of_a_timer_is_an_option_of_each_kind() {
        let clock = |timer: &str, tick: Option<f64>| {
            let mut options = Options::from([("timer".into(), json!(timer))]);
            options.extend(tick.map(|tick| ("timer_tick_s".into(), json!(tick))));
            config("reno-ns", &options).unwrap().rto.clock
        };
        assert_eq!(clock("ns", None), Clock::Ns(Duration::from_millis(100)));
        assert_eq!(clock("ns", Some(0.01)), Clock::Ns(Duration::from_millis(10)));
        assert_eq!(clock("bsd", Some(0.2)), Clock::Ticks(Duration::from_millis(200)));
        assert_eq!(clock("modern", Some(0.004)), Clock::Smooth(Duration::from_millis(4)));
        let refused = config("reno-ns", &Options::from([("timer_tick_s".into(), json!(2.0))])).unwrap_err();
        assert!(refused.contains("timer_tick"), "{refused}");
    }

    #[test]
    fn options_override_and_bad_ones_are_refused() {
        let options = Options::from([("ack_every_segments".into(), json!(1)), ("rto_min_s".into(), json!(0.5))]);
        let config_ = config("reno-bsd", &options).unwrap();
        assert_eq!((config_.ack.rule, config_.rto.min), (AckRule::Every(1), Duration::from_millis(500)));
        let refused = |options| config("tahoe", &options).unwrap_err();
        assert!(refused(Options::from([("sack".into(), json!(true))])).contains("does not go with"));
        assert!(refused(Options::from([("eln".into(), json!("first-duplicate"))])).contains("not defined"));
        assert!(refused(Options::from([("sack_sender".into(), json!("smart"))])).contains("needs sack"));
        assert!(refused(Options::from([("ack_rule".into(), json!("acc-ecn"))])).contains("marked acks"));
        assert!(refused(Options::from([("ack_delay_s".into(), json!(0.7))])).contains("ack_delay_s"));
        assert!(config("vegas", &Options::new()).unwrap_err().contains("reno-bsd"));
    }
}
