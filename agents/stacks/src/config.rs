//! The options of a stack. The named stacks (`config/stacks.rs`) are presets over the same options.

mod choices;
mod eras;
mod stacks;

use std::time::Duration;

use backchannel_core::ip::IpVersion;
use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, Param, ABSENT};
use backchannel_core::registry::Entry;
use backchannel_core::scenario::Options;
use backchannel_core::Error;

use crate::congestion::CongestionController;
use crate::wire::{MOST_OPTIONS, TCP_HEADER};

use eras::EraName;

pub use choices::{
    AckRule, Algorithm, Counting, CubicGrowth, EcnMode, FullAck, LossNotificationMode, SackSender, SlowStart,
    TimeoutDecrease, TimerKind,
};
pub use stacks::{entries, StackName};

/// Constructor of a controller of another crate, for segments of so many bytes of data. Without selective acks such a
/// connection recovers as NewReno.
pub type BuildController = fn(&Config, mss: u32) -> Box<dyn CongestionController>;

options! {
    /// The settings of a connection: every option, by its name.
    pub struct Config {
        congestion: Algorithm = "reno", [Choice] "congestion control and recovery";
        era: EraName = ABSENT, [Choice]
            "sets the options by which an implementation differs from the RFCs, but for those that are set beside it: \
             4.4bsd; ns-1997: ns of July to October 1997; ns-2: since October 2004; absent: sets none";
        packet_bytes: u32 = 1500, [Bytes 88 to 65_535] "largest packet, headers and options included";
        counting: Counting = "acks", [Choice]
            "what the window grows by: acks; bsd: acks, as in 4.4BSD (RFC 2525 2.6); bytes (RFC 3465); segments (asym \
             6.3); half-segments (asym fig 19)";
        initial_window_segments: u32 = 1, [Segments 1 to 1000] "initial congestion window";
        initial_ssthresh_segments: Option<u32> = ABSENT, [Segments 2]
            "initial slow-start threshold; absent: max_window_segments";
        max_window_segments: u32 = 1e6, [Segments 1] "greatest congestion window";
        slow_start: SlowStart = ABSENT, [Choice]
            "how slow start ends: standard, or absent: with the first loss; when round trips grow or acks form a train (hystart: as in \
             Linux); when round trips grow, by degrees (hystart++: RFC 9406)";
        cubic_growth: CubicGrowth = ABSENT, [Choice]
            "cubic: how the window grows: rfc9438, or absent: as in RFC 9438; linux: as in Linux, by 9/17 of a segment a \
             round trip where Reno would grow by one, and by a twentieth of the window at least before a first decrease";
        pacing: bool = ABSENT, [Flag]
            "segments are spaced at twice the window a round trip in slow start, 1.2 times it later, as Linux paces \
             for controllers without a rate of their own";
        limited_transmit: bool = false, [Flag] "send new data on the first two duplicate acks (RFC 3042)";
        successive_fast_retransmits: bool = true, [Flag]
            "tahoe, reno: duplicates of what was outstanding at the last loss count as a new loss, as in 4.4BSD; \
             false: they do not, as in ns-2's Tahoe (bugFix_; RFC 2582 5)";
        successive_after_recovery: bool = ABSENT, [Flag]
            "with successive_fast_retransmits: false, reno: duplicates of what was outstanding at the last loss count \
             as a new loss if a fast retransmit dealt with it, and do not after a timeout, as in ns-2's Reno (bugFix_)";
        reno_of_1997: bool = ABSENT, [Flag]
            "reno: the ack that ends recovery opens the window as any does, and three duplicates that count as no loss \
             let three segments go, and each further one another, as in ns of 1997 (tcp-reno.cc)";
        timeout_halves: TimeoutDecrease = "outstanding", [Choice]
            "what a timeout in fast recovery halves: the bytes outstanding (RFC 5681 equation 4), or the window \
             without what duplicate acks have added, as in ns-2 (RenoTcpAgent::timeout)";
        whole_threshold: bool = ABSENT, [Flag]
            "the slow-start threshold after a loss is rounded down to whole segments, as in ns-2 (ssthresh_)";
        full_ack: FullAck = "outstanding", [Choice]
            "newreno's window after recovery: the bytes outstanding plus a segment, at most the threshold; or the \
             threshold, as in ns-2 (RFC 6582 3.2 step 3, options 1 and 2)";
        timing_in_recovery: bool = ABSENT, [Flag]
            "a segment first sent in fast recovery is timed although partial acks send earlier ones again, as in ns-2";
        quench: bool = ABSENT, [Flag]
            "in simulation: a packet that the full queue of the host's own interface drops sets the window to one \
             segment, as 4.4BSD's tcp_quench on ENOBUFS";
        backpressure_segments: Option<u32> = ABSENT, [Segments 1]
            "in simulation: segments of data that may wait in the queue of the host's own interface; the others wait in \
             the host, and none is dropped there (connection-level backpressure of Kalampoukas et al., asym 2); absent: \
             no limit";
        header_prediction: bool = false, [Flag]
            "new acks do not end fast recovery while the window exceeds the peer's, as in 4.4BSD (RFC 2525 2.8)";
        sack: bool = false, [Flag] "selective acknowledgments (RFC 2018, 6675)";
        sack_sender: SackSender = "rfc6675", [Choice]
            "how the sender uses selective acks: RFC 6675; Fall and Floyd's sender of 1996; rack: loss detection by \
             time (RFC 8985); SMART (ton III-A); ignored, when they are for a base station";
        tail_loss_probe: bool = ABSENT, [Flag]
            "rack: after two round trips without an ack the last segment, or a new one, goes as a probe (RFC 8985 7)";
        prr: bool = ABSENT, [Flag] "rack: proportional rate reduction is the window of fast recovery (RFC 9937)";
        f_rto: bool = ABSENT, [Flag]
            "rack: a timeout is undone if acks of segments follow that were not sent again (RFC 5682)";
        dsack: bool = ABSENT, [Flag]
            "acks report segments that arrived twice (RFC 2883), and a sender with rack undoes a recovery whose \
             retransmissions all did";
        sack_compression: bool = ABSENT, [Flag]
            "from the fourth segment out of order on, one ack stands for those of a millisecond or of 44 segments, as \
             in Linux; not while quick_acks last";
        eln: LossNotificationMode = "off", [Choice]
            "explicit loss notification: retransmit without shrinking the window at the third duplicate ack, or the \
             first (ton III-A)";
        marked_duplicates: bool = false, [Flag] "one duplicate ack with the fast-retransmit mark is enough (asym 6.3)";
        maxburst_segments: Option<u32> = ABSENT, [Segments 1 to 1000]
            "most segments sent back to back; absent: no limit";
        burst_tick_s: Duration = 0, [Time 0 to 1] "granularity of the burst timer (10 ms on BSDI); 0: exact";
        burst_by_first_rtt: bool = ABSENT, [Flag]
            "bursts are spaced by the first round trip instead of the mean, as in the authors' simulator, where the \
             gain of 1/8 is an integer division (tcp-asym.cc from August 1997 on)";
        peerwin: bool = false, [Flag] "data carry the sender's window, the peerwin option (asym 8.2)";
        pulsed: bool = false, [Flag] "data carry the pulsed flag and window (pulsed 3.2.2)";
        pulse_in_header: bool = ABSENT, [Flag]
            "the fields of Pulsed ACK are in the header and take no bytes (pulsed 3.2.1; acks of 40 bytes, 4.1); \
             absent: an option";
        requested_acks_per_window: Option<u32> = ABSENT, [Count 1 to 255]
            "data request the ack rate that gives so many acks a window (draft-ietf-tcpm-ack-rate-request); absent: no \
             request";
        ecn: EcnMode = "off", [Choice]
            "congestion marks: on data (RFC 3168); on acks as well (asym 6.1); dctcp: acks tell whether what they \
             acknowledge was marked (RFC 8257); accurate: they count marks (RFC 9768)";
        ecn_option: bool = ABSENT, [Flag]
            "accurate: acks also count the bytes of data that arrived marked, in the option of Accurate ECN, if both \
             ends have it (RFC 9768 3.2.3)";
        low_latency: bool = ABSENT, [Flag] "packets that can be marked carry ECT(1), for a queue of low latency (RFC 9331)";
        abe: bool = ABSENT, [Flag]
            "a mark leaves more of the window than a loss: 0.8 of Reno's, 0.85 of CUBIC's (ABE, RFC 8511)";
        timestamps: bool = true, [Flag] "timestamp option (RFC 7323)";
        timestamp_tick_s: Duration = 0.001, [Time 1e-6 to 1]
            "tick of the timestamp option (RFC 7323: 1 ms to 1 s; asym 8.3: 1 us)";
        window_scaling: bool = true, [Flag] "window scale option (RFC 7323)";
        receive_buffer_bytes: u64 = 1_048_576, [Bytes 536 to 1e9] "receive buffer, which bounds the window offered";
        ack_rule: AckRule = "every", [Choice]
            "when to acknowledge: every d segments; acc-ecn (asym 6.1); acc-peerwin (asym 8.2); ace: by an estimate of \
             the sender's window (aq 6); pulsed (pulsed 3.2.3); requested: as the sender requests \
             (draft-ietf-tcpm-ack-rate-request)";
        ack_every_segments: u32 = 2, [Segments 1 to 1000] "every: segments an ack stands for (d)";
        quick_acks_segments: Option<u32> = ABSENT, [Segments 1 to 1e6]
            "so many segments in order at the start of a connection are acknowledged one by one, as Linux does while its \
             window grows; absent: none";
        acks_by_space: bool = ABSENT, [Flag]
            "4.4BSD's receiver: an ack goes when the application has read d segments with their options, or half of \
             the buffer (asym 8.2; tcp_output), so that with timestamps a d of 2 makes every third segment; what fills \
             a gap is acknowledged before it is read; absent: when d segments have arrived";
        max_delack_segments: u32 = 8, [Segments 1 to 1000] "acc, ace: most segments an ack stands for";
        min_acks_per_win: u32 = 5, [Count 1 to 1000]
            "acc, ace: fewest acks a window brings (asym 8.2; acc-ecn: 3 in the ns of 1997, 2 in ns-2.35)";
        pulses_per_window: u32 = 5, [Count 1 to 255] "pulsed: acks a round trip (a)";
        mark_after_segments: u32 = 0, [Segments 0 to 1000]
            "after so many segments out of order, duplicate acks request a retransmission at once (asym 6.1); 0: never";
        ack_delay_s: Duration = 0.2, [Time 0 to 0.5] "longest delay of an ack (RFC 1122: at most 500 ms)";
        ack_heartbeat: bool = true, [Flag] "delays end at multiples of ack_delay, as in 4.4BSD";
        timer: TimerKind = "bsd", [Choice]
            "retransmission timer: bsd: 500 ms ticks; bsd-exact: the same from exact round trips (asym 8.3); ns: 100 \
             ms ticks; ns-1997: those of ns in July 1997 (tcp.cc); modern: RFC 6298; linux: the same, at least \
             rto_min above the smoothed round trip";
        timer_tick_s: Option<Duration> = ABSENT, [Time 0.0001 to 1]
            "granularity of the timer; absent: the timer's default (bsd, bsd-exact 500 ms; ns, ns-1997 100 ms; modern, \
             linux 1 ms); ns-2 has 10 ms since 2.27";
        rto_min_s: Option<Duration> = ABSENT, [Time 0 to 60]
            "least retransmission timeout; absent: the timer's default (bsd, bsd-exact, modern 1 s; ns, ns-1997, linux \
             200 ms)";
        handshake_sample: bool = true, [Flag]
            "the handshake gives the first round-trip sample; false: the first data wait for the initial timeout, as \
             in ns-2's one-way TCP, which has no handshake";
        time_wait_s: Duration = 60, [Time 0 to 240] "length of TIME-WAIT (twice the segment lifetime)";
        + /// The controller that `congestion` names, if another crate added it.
          added_controller: Option<BuildController> = None;
        + /// The options that it added to the stacks, as far as the campaign sets them. See [`Config::added`].
          added_options: Options = Options::new();
    }
}

/// Every option, before a stack's presets.
const OPTIONS: &[Param] = Config::PARAMS;

/// Bytes of data that a packet has room for, whatever its options.
const LEAST_DATA: u32 = 8;

/// Every option with the default that named stacks start from.
pub fn options() -> &'static [Param] {
    OPTIONS
}

/// Least `packet_bytes` with which a stack can send data over this version: both headers, the longest options and some
/// data.
pub const fn least_packet_bytes(ip: IpVersion) -> u32 {
    ip.header_bytes() + TCP_HEADER + MOST_OPTIONS + LEAST_DATA
}

impl Config {
    /// Bytes of data in a segment without TCP options.
    pub fn largest_payload(&self, ip: IpVersion) -> u32 {
        self.packet_bytes - ip.header_bytes() - TCP_HEADER
    }

    /// The options that the added controller declares as `params`, validated.
    pub fn added(&self, params: &'static [Param]) -> CheckedOptions<'_> {
        CheckedOptions::validated(CONGESTION, params, &self.added_options)
    }

    /// Checks that the largest packet has room for data beside the headers of this version.
    ///
    /// # Errors
    /// It has not.
    pub fn fits(&self, ip: IpVersion) -> Result<(), Error> {
        let least = least_packet_bytes(ip);
        if self.packet_bytes < least {
            let (version, bytes) = (u8::from(ip), self.packet_bytes);
            return Err(format!("packet_bytes is {bytes}, and must be at least {least} over IPv{version}").into());
        }
        Ok(())
    }
}

/// The named stacks, and the congestion controllers that their option `congestion` can name beside this crate's.
#[derive(Clone, Debug)]
pub struct Stacks {
    entries: &'static [Entry],
    added: Vec<(&'static str, BuildController)>,
    added_params: Vec<Param>,
}

impl Stacks {
    /// The stacks of the papers with the controllers of this crate.
    pub fn builtin() -> Stacks {
        Stacks { entries: entries(), added: Vec::new(), added_params: Vec::new() }
    }

    /// Adds a congestion controller and its options. Entries live as long as the program, so those with one choice more
    /// do too.
    ///
    /// # Panics
    /// There is one of that name, or an option of the name of one of its options.
    pub fn add_controller(&mut self, name: &'static str, params: &'static [Param], build: BuildController) {
        let with_controller = |entry: &Entry| with_controller(entry, name, params);
        self.entries = self.entries.iter().map(with_controller).collect::<Vec<_>>().leak();
        self.added.push((name, build));
        self.added_params.extend(params);
    }

    /// The options that added controllers have.
    pub fn added_params(&self) -> &[Param] {
        &self.added_params
    }

    /// The registry entries.
    pub fn entries(&self) -> &'static [Entry] {
        self.entries
    }

    /// The settings of a named stack with a campaign's options.
    ///
    /// # Errors
    /// There is no such stack, an option is unknown or out of range, or two options exclude each other.
    pub fn config(&self, name: &str, options: &Options) -> Result<Config, Error> {
        let entry = self.entries.iter().find(|entry| entry.name == name);
        let names = || self.entries.iter().map(|entry| entry.name);
        let entry = entry.ok_or_else(|| Error::unknown("research stack", name, names()))?;
        let options = eras::expanded(entry, options)?;
        let checked = CheckedOptions::check(entry, &options)?;
        let added = self.added.iter().find(|(name, _)| checked.text(CONGESTION) == Some(name));
        let is_added = |name: &String| self.added_params.iter().any(|param| param.name == name);
        let added_options = options.iter().filter(|(name, _)| is_added(name));
        let config = Config {
            added_controller: added.map(|(_, build)| *build),
            added_options: added_options.map(|(name, value)| (name.clone(), value.clone())).collect(),
            ..Config::read(&checked)
        };
        match contradiction(&config) {
            Some(reason) => Err(format!("stack {name}: {reason}").into()),
            None => Ok(config),
        }
    }
}

/// A stack's entry with one more choice of `congestion`, and the options of that controller.
///
/// # Panics
/// The stack has that choice, or one of these options.
pub fn with_controller(entry: &Entry, name: &'static str, params: &'static [Param]) -> Entry {
    let with_choice = |param: &Param| match param.name {
        CONGESTION => {
            assert!(!param.choices.contains(&name), "duplicate congestion controller '{name}'");
            param.of([param.choices, &[name]].concat().leak())
        }
        of_stacks => {
            let is_new = params.iter().all(|param| param.name != of_stacks);
            assert!(is_new, "stacks have an option {of_stacks}: the controller {name} needs another name for its own");
            *param
        }
    };
    let params: Vec<_> = entry.params.iter().map(with_choice).chain(params.iter().copied()).collect();
    Entry { params: params.leak(), ..*entry }
}

/// Name of the option for the congestion controller.
pub const CONGESTION: &str = "congestion";

/// The settings of a stack with the controllers of this crate. See [`Stacks::config`].
///
/// # Errors
/// Those of [`Stacks::config`].
pub fn stack_config(name: &str, options: &Options) -> Result<Config, Error> {
    Stacks::builtin().config(name, options)
}

/// The reason why a combination of options has no meaning.
fn contradiction(config: &Config) -> Option<&'static str> {
    let eln = config.eln != LossNotificationMode::Off;
    let acc_ecn = config.ack_rule == AckRule::AccEcn;
    let rules = [
        (
            config.sack && config.congestion == Algorithm::Tahoe,
            "sack excludes congestion tahoe, which retransmits everything",
        ),
        (
            !config.sack && !matches!(config.sack_sender, SackSender::Rfc6675 | SackSender::Rack),
            "sack_sender needs sack: without it there are no selective acks to use",
        ),
        (
            (config.tail_loss_probe || config.prr || config.f_rto) && config.sack_sender != SackSender::Rack,
            "tail_loss_probe, prr and f_rto need sack_sender rack, which keeps a record of each segment",
        ),
        (
            config.marked_duplicates && config.sack && config.sack_sender == SackSender::Rack,
            "marked_duplicates excludes sack_sender rack, which ignores duplicates",
        ),
        (
            config.low_latency && config.ecn == EcnMode::Off,
            "low_latency needs ecn: without it no packet can be marked",
        ),
        (
            config.ecn_option && config.ecn != EcnMode::Accurate,
            "ecn_option needs ecn accurate: it is the option of Accurate ECN",
        ),
        (
            config.congestion == Algorithm::Prague && config.ecn != EcnMode::Accurate,
            "congestion prague needs ecn accurate: it counts marks",
        ),
        (
            config.congestion == Algorithm::Dctcp && !matches!(config.ecn, EcnMode::Dctcp | EcnMode::Accurate),
            "congestion dctcp needs ecn dctcp or accurate: it counts marks",
        ),
        (
            config.successive_after_recovery && config.successive_fast_retransmits,
            "successive_after_recovery needs successive_fast_retransmits: false, without which duplicates count after \
             every loss",
        ),
        (
            config.successive_after_recovery && (config.sack || config.congestion != Algorithm::Reno),
            "successive_after_recovery is a rule of congestion reno without sack: others ignore duplicates after every \
             loss",
        ),
        (
            config.reno_of_1997 && (config.sack || config.congestion != Algorithm::Reno),
            "reno_of_1997 is a rule of congestion reno without sack",
        ),
        (
            config.burst_by_first_rtt && config.maxburst_segments.is_none(),
            "burst_by_first_rtt needs maxburst: without a limit no burst waits",
        ),
        (
            eln && (config.sack || config.congestion != Algorithm::Reno),
            "eln is an addition to congestion reno without sack (ton III-A): what others do with the mark is not \
             defined",
        ),
        (
            acc_ecn && config.ecn != EcnMode::DataAndAcks,
            "ack_rule acc-ecn needs ecn data-and-acks: it reacts to marked acks",
        ),
        (
            acc_ecn && !config.timestamps,
            "ack_rule acc-ecn needs timestamps: it measures the round trip by echoed ones (asym 6.1)",
        ),
        (
            config.ack_rule == AckRule::Ace && !config.timestamps,
            "ack_rule ace needs timestamps: it measures the round trip by echoed ones",
        ),
        (
            config.pulsed
                && !matches!(config.congestion, Algorithm::Tahoe | Algorithm::Reno | Algorithm::NewReno),
            "pulsed needs congestion tahoe, reno or newreno: its increase of 1/a replaces Reno's",
        ),
    ];
    rules.into_iter().find(|(broken, _)| *broken).map(|(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtt::{Clock, RtoConfig};
    use backchannel_core::options::Unit;
    use serde_json::json;

    #[test]
    fn every_named_stack_can_be_built_and_has_its_presets() {
        for entry in entries() {
            stack_config(entry.name, &Options::new()).unwrap_or_else(|why| panic!("{}: {why}", entry.name));
        }
        let sack = stack_config("sack", &Options::new()).unwrap();
        assert!(sack.sack && sack.congestion == Algorithm::NewReno);
        assert_eq!(stack_config("modern", &Options::new()).unwrap().initial_window_segments, 10);
    }

    #[test]
    fn options_have_the_ranges_and_choices_of_their_declaration() {
        let option = |name: &str| OPTIONS.iter().find(|option| option.name == name).unwrap();
        assert_eq!((option("packet_bytes").min, option("packet_bytes").max), (Some(88.0), Some(65_535.0)));
        assert_eq!(
            (option("initial_ssthresh_segments").min, option("initial_ssthresh_segments").max),
            (Some(2.0), None)
        );
        assert_eq!((option("sack").min, option("sack").max), (None, None));
        assert_eq!(option("congestion").choices[..4], ["tahoe", "reno", "newreno", "cubic"]);
        for option in OPTIONS {
            assert_eq!(option.choices.is_empty(), option.unit != Unit::Choice, "{}", option.name);
        }
    }

    #[test]
    fn rules_of_1997_are_rejected_where_they_change_nothing() {
        let with = |stack: &str, option: &str| stack_config(stack, &Options::from([(option.into(), json!(true))]));
        for (stack, option, error) in [
            ("newreno", "reno_of_1997", "a rule of congestion reno"),
            ("sack-1996", "reno_of_1997", "a rule of congestion reno"),
            ("reno-ns", "burst_by_first_rtt", "needs maxburst"),
        ] {
            assert!(with(stack, option).unwrap_err().to_string().contains(error), "{stack}");
        }
        assert!(with("reno-ns", "reno_of_1997").unwrap().reno_of_1997);
        assert!(with("sa", "burst_by_first_rtt").unwrap().burst_by_first_rtt);
    }

    #[test]
    fn successive_after_recovery_is_rejected_where_it_changes_nothing() {
        let with = |stack: &str, successive: bool, sack: bool| {
            let options = Options::from([
                ("successive_fast_retransmits".into(), json!(successive)),
                ("successive_after_recovery".into(), json!(true)),
                ("sack".into(), json!(sack)),
            ]);
            stack_config(stack, &options)
        };
        for stack in ["reno-bsd", "reno-ns", "sa", "acc-sa", "pulsed-ack"] {
            assert!(with(stack, false, false).unwrap().successive_after_recovery, "{stack}");
        }
        let rejected = |stack, successive, sack| with(stack, successive, sack).unwrap_err().to_string();
        assert!(rejected("reno-ns", true, false).contains("needs successive_fast_retransmits: false"));
        for (stack, sack) in [("newreno", false), ("modern", true), ("tahoe", false), ("reno-ns", true)] {
            assert!(rejected(stack, false, sack).contains("congestion reno without sack"), "{stack}");
        }
        let alone = Options::from([("successive_after_recovery".into(), json!(false))]);
        assert!(stack_config("newreno", &alone).is_ok());
    }

    #[test]
    fn a_packet_has_room_for_data_over_both_versions() {
        let config =
            |bytes: u32| stack_config("reno-bsd", &Options::from([("packet_bytes".into(), json!(bytes))])).unwrap();
        assert_eq!(config(1500).largest_payload(IpVersion::V4), 1460);
        assert_eq!(config(1500).largest_payload(IpVersion::V6), 1440);
        assert!(config(88).fits(IpVersion::V4).is_ok() && config(108).fits(IpVersion::V6).is_ok());
        let rejected = config(107).fits(IpVersion::V6).unwrap_err().to_string();
        assert_eq!(rejected, "packet_bytes is 107, and must be at least 108 over IPv6");
    }

    #[test]
    fn the_tick_of_a_timer_is_an_option_of_each_kind() {
        let clock = |timer: &str, tick: Option<f64>| {
            let mut options = Options::from([("timer".into(), json!(timer))]);
            options.extend(tick.map(|tick| ("timer_tick_s".into(), json!(tick))));
            RtoConfig::new(&stack_config("reno-ns", &options).unwrap()).clock
        };
        assert_eq!(clock("ns", None), Clock::Ns(Duration::from_millis(100)));
        assert_eq!(clock("ns", Some(0.01)), Clock::Ns(Duration::from_millis(10)));
        assert_eq!(clock("bsd", Some(0.2)), Clock::Ticks(Duration::from_millis(200)));
        assert_eq!(clock("modern", Some(0.004)), Clock::Smooth(Duration::from_millis(4)));
        let rejected =
            stack_config("reno-ns", &Options::from([("timer_tick_s".into(), json!(2.0))])).unwrap_err().to_string();
        assert!(rejected.contains("timer_tick"), "{rejected}");
    }

    #[test]
    fn options_override_and_bad_ones_are_rejected() {
        let options = Options::from([("ack_every_segments".into(), json!(1)), ("rto_min_s".into(), json!(0.5))]);
        let config = stack_config("reno-bsd", &options).unwrap();
        assert_eq!((config.ack_every_segments, RtoConfig::new(&config).min), (1, Duration::from_millis(500)));
        let rejected = |options| stack_config("tahoe", &options).unwrap_err().to_string();
        assert!(rejected(Options::from([("sack".into(), json!(true))])).contains("sack excludes"));
        assert!(rejected(Options::from([("eln".into(), json!("first-duplicate"))])).contains("not defined"));
        assert!(rejected(Options::from([("sack_sender".into(), json!("smart"))])).contains("needs sack"));
        assert!(rejected(Options::from([("ack_rule".into(), json!("acc-ecn"))])).contains("marked acks"));
        let ace = Options::from([("ack_rule".into(), json!("ace")), ("timestamps".into(), json!(false))]);
        assert!(rejected(ace).contains("ace needs timestamps"));
        assert!(rejected(Options::from([("ack_delay_s".into(), json!(0.7))])).contains("ack_delay_s"));
        assert!(rejected(Options::from([("prr".into(), json!(true))])).contains("need sack_sender rack"));
        assert!(rejected(Options::from([("low_latency".into(), json!(true))])).contains("low_latency needs ecn"));
        let modern = |option: &str, value| stack_config("modern", &Options::from([(option.into(), value)]));
        assert!(modern("sack", json!(false)).is_ok());
        for (option, value, reason) in [
            ("congestion", json!("prague"), "needs ecn accurate"),
            ("ecn_option", json!(true), "needs ecn accurate"),
            ("congestion", json!("dctcp"), "needs ecn dctcp or accurate"),
            ("marked_duplicates", json!(true), "excludes sack_sender rack"),
            ("pulsed", json!(true), "newreno: its increase"),
        ] {
            assert!(modern(option, value).unwrap_err().to_string().contains(reason), "{option}");
        }
        assert!(stack_config("veno", &Options::new()).unwrap_err().to_string().contains("reno-bsd"));
    }
}
