//! What a stack is made of: its parts and their parameters, and the named stacks of the papers as data.

use std::time::Duration;

use backchannel_core::registry::{Entry, Given, Param, Preset, Unit};
use backchannel_core::scenario::Options;

use crate::congestion::{Counting, Variant};
use crate::receive::AckPolicy;
use crate::rtt::{Clock, RtoConfig};

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
    /// Selective acknowledgments, offered and used.
    pub sack: bool,
    /// Timestamps, offered and used.
    pub timestamps: bool,
    /// Window scaling, offered and used.
    pub window_scaling: bool,
    /// Receive buffer in bytes.
    pub receive_buffer: u64,
    /// When to acknowledge.
    pub ack: AckPolicy,
    /// The retransmission timeout.
    pub rto: RtoConfig,
    /// How long TIME-WAIT lasts.
    pub time_wait: Duration,
}

const fn param(name: &'static str, unit: Unit, default: Preset, help: &'static str) -> Param {
    Param::new(name, unit, default, help)
}

const PACKET: Param =
    param("packet_bytes", Unit::Bytes, Preset::Number(1500.0), "largest packet, headers and options included")
        .range(88.0, 65_535.0);
const COUNTING: Param =
    param("counting", Unit::Choice, Preset::Text("acks"), "growth by acks, or by bytes acknowledged (RFC 3465)")
        .of(&["acks", "bytes"]);
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
const RTO_MIN: Param = param(
    "rto_min_s",
    Unit::Time,
    Preset::Absent,
    "least retransmission timeout; absent: the timer's own (bsd 1 s, ns 200 ms, modern 1 s)",
)
.range(0.0, 60.0);

/// Names of the parameters, in the order in which people read them; the presets differ from stack to stack.
macro_rules! stack {
    ($name:ident, $text:literal, $summary:literal, $source:literal, [$($changed:expr),*]) => {
        static $name: Entry = Entry {
            kind: "stack",
            name: $text,
            summary: $summary,
            source: $source,
            params: {
                const PARAMS: [Param; 16] = with([$($changed),*]);
                &PARAMS
            },
        };
    };
}

/// Every parameter of every stack, before a stack's own presets.
const ALL: [Param; 16] = [
    PACKET,
    COUNTING,
    INITIAL,
    SSTHRESH,
    MAX_WINDOW,
    LIMITED,
    SACK,
    TIMESTAMPS,
    SCALING,
    BUFFER,
    ACK_EVERY,
    ACK_DELAY,
    ACK_HEARTBEAT,
    TIMER,
    RTO_MIN,
    VARIANT,
];
const VARIANT: Param = param("congestion", Unit::Choice, Preset::Text("reno"), "congestion control and recovery")
    .of(&["tahoe", "reno", "newreno", "cubic"]);

/// The parameters with some presets replaced. (index, preset) pairs, since names cannot be compared at compile time.
const fn with<const N: usize>(changed: [(usize, Preset); N]) -> [Param; 16] {
    let mut all = ALL;
    let mut i = 0;
    while i < N {
        all[changed[i].0] = Param { default: changed[i].1, ..all[changed[i].0] };
        i += 1;
    }
    all
}

const I_COUNTING: usize = 1;
const I_INITIAL: usize = 2;
const I_LIMITED: usize = 5;
const I_SACK: usize = 6;
const I_ACK_HEARTBEAT: usize = 12;
const I_TIMER: usize = 13;
const I_VARIANT: usize = 15;

stack!(
    TAHOE,
    "tahoe",
    "fast retransmit, then slow start; BSD timers",
    "Jacobson 1988",
    [(I_VARIANT, Preset::Text("tahoe"))]
);
stack!(RENO_BSD, "reno-bsd", "4.4BSD's Reno: 500 ms ticks, 200 ms delayed-ack heartbeat", "ton IV; asym 9", []);
stack!(RENO_NS, "reno-ns", "ns-2's Reno: 100 ms ticks", "asym 7", [(I_TIMER, Preset::Text("ns"))]);
stack!(
    NEWRENO,
    "newreno",
    "recovery that partial acks do not end; BSD timers",
    "RFC 6582; ton III-A",
    [(I_VARIANT, Preset::Text("newreno"))]
);
stack!(
    SACK_,
    "sack",
    "selective acknowledgments with the pipe algorithm; BSD timers",
    "RFC 2018, 6675; ton III-A",
    [(I_VARIANT, Preset::Text("newreno")), (I_SACK, Preset::Flag(true))]
);
stack!(
    MODERN,
    "modern",
    "CUBIC with SACK, limited transmit, byte counting, ten segments at the start, RFC 6298 timers",
    "RFC 9438, 6675, 3042, 6928, 6298",
    [
        (I_VARIANT, Preset::Text("cubic")),
        (I_SACK, Preset::Flag(true)),
        (I_LIMITED, Preset::Flag(true)),
        (I_COUNTING, Preset::Text("bytes")),
        (I_INITIAL, Preset::Number(10.0)),
        (I_TIMER, Preset::Text("modern")),
        (I_ACK_HEARTBEAT, Preset::Flag(false))
    ]
);

/// Every named stack.
pub fn entries() -> Vec<&'static Entry> {
    vec![&TAHOE, &RENO_BSD, &RENO_NS, &NEWRENO, &SACK_, &MODERN]
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
    let (tick, initial, min, max) = match given.text("timer") {
        Some("bsd") => (Clock::Ticks(Duration::from_millis(500)), 6.0, 1.0, 64.0),
        Some("ns") => (Clock::Ticks(Duration::from_millis(100)), 6.0, 0.2, 64.0),
        _ => (Clock::Smooth(Duration::from_millis(1)), 1.0, 1.0, 60.0),
    };
    let variant = match given.text("congestion") {
        Some("tahoe") => Variant::Tahoe,
        Some("newreno") => Variant::NewReno,
        Some("cubic") => Variant::Cubic,
        _ => Variant::Reno,
    };
    if given.flag("sack") && variant == Variant::Tahoe {
        return Err(format!("stack {name}: sack does not go with congestion tahoe, which sends everything again"));
    }
    Ok(Config {
        packet_bytes: count("packet_bytes") as u32,
        variant,
        counting: if given.text("counting") == Some("bytes") { Counting::Bytes { limit: 2 } } else { Counting::Acks },
        initial_window: count("initial_window_segments") as u32,
        initial_ssthresh: given.count("initial_ssthresh_segments").map(|n| n as u32),
        max_window: count("max_window_segments") as u32,
        duplicate_threshold: 3,
        limited_transmit: given.flag("limited_transmit"),
        sack: given.flag("sack"),
        timestamps: given.flag("timestamps"),
        window_scaling: given.flag("window_scaling"),
        receive_buffer: count("receive_buffer_bytes"),
        ack: AckPolicy {
            every: count("ack_every_segments") as u32,
            delay: seconds("ack_delay_s").expect("it has a default"),
            heartbeat: given.flag("ack_heartbeat"),
        },
        rto: RtoConfig {
            clock: tick,
            initial: Duration::from_secs_f64(initial),
            min: seconds("rto_min_s").unwrap_or(Duration::from_secs_f64(min)),
            max: Duration::from_secs_f64(max),
        },
        time_wait: Duration::from_secs(60),
    })
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
        assert_eq!(ALL[I_VARIANT].name, "congestion");
        assert_eq!(ALL[I_TIMER].name, "timer");
        assert_eq!(ALL[I_ACK_HEARTBEAT].name, "ack_heartbeat");
        assert_eq!(ALL[I_SACK].name, "sack");
        assert_eq!(ALL[I_LIMITED].name, "limited_transmit");
    }

    #[test]
    fn options_override_and_bad_ones_are_refused() {
        let options = Options::from([("ack_every_segments".into(), json!(1)), ("rto_min_s".into(), json!(0.5))]);
        let config_ = config("reno-bsd", &options).unwrap();
        assert_eq!((config_.ack.every, config_.rto.min), (1, Duration::from_millis(500)));
        let refused = |options| config("tahoe", &options).unwrap_err();
        assert!(refused(Options::from([("sack".into(), json!(true))])).contains("does not go with"));
        assert!(refused(Options::from([("ack_delay_s".into(), json!(0.7))])).contains("ack_delay_s"));
        assert!(config("vegas", &Options::new()).unwrap_err().contains("reno-bsd"));
    }
}
