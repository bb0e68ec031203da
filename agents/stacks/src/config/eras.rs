//! What makes an era: presets over the options, as named stacks are. The option `era` sets all of them, and options that
//! a campaign sets beside it go first. `era.rs` has the rules behind them.

use backchannel_core::options::Preset::{Flag, Number, Text};
use backchannel_core::options::{CheckedOptions, OptionValue, Preset};
use backchannel_core::registry::Entry;
use backchannel_core::scenario::Options;
use backchannel_core::Error;
use serde_json::Value;

use self::Only::{Always, Bursts, Reno};

/// The eras with their options.
const ERAS: [(&str, &[Setting]); 3] = [("4.4bsd", BSD_4_4), ("ns-1997", NS_1997), ("ns-2", NS_2)];

/// The name of an era, as an option; `None`: single options alone say what differs from the RFCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EraName(Option<&'static str>);

impl OptionValue for EraName {
    const CHOICES: &'static [&'static str] = &[ERAS[0].0, ERAS[1].0, ERAS[2].0];

    fn read(checked: &CheckedOptions<'_>, name: &'static str) -> EraName {
        let set = checked.text(name);
        EraName(EraName::CHOICES.iter().copied().find(|era| Some(*era) == set))
    }
}

/// An option of an era.
type Setting = (&'static str, Preset, Only);

/// Where an option of an era has a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Only {
    Always,
    /// With congestion reno without selective acks.
    Reno,
    /// With a limit on bursts.
    Bursts,
}

/// The options of a stack with those of its era.
///
/// # Errors
/// See [`CheckedOptions::check`].
pub(super) fn expanded(entry: &Entry, options: &Options) -> Result<Options, Error> {
    let checked = CheckedOptions::check(entry, options)?;
    let EraName(era) = EraName::read(&checked, "era");
    let Some((_, settings)) = ERAS.iter().find(|(name, _)| Some(*name) == era) else { return Ok(options.clone()) };
    let applies = |only: Only| match only {
        Always => true,
        Reno => checked.text("congestion") == Some("reno") && !checked.flag("sack"),
        Bursts => checked.number("maxburst_segments").is_some(),
    };
    let mut all: Options = settings
        .iter()
        .filter(|(.., only)| applies(*only))
        .map(|(name, value, _)| ((*name).to_owned(), json(value)))
        .collect();
    all.extend(options.clone());
    Ok(all)
}

fn json(value: &Preset) -> Value {
    match *value {
        Preset::Number(number) => number.into(),
        Preset::Flag(flag) => flag.into(),
        Preset::Text(text) => text.into(),
        Preset::Absent | Preset::Required(_) => unreachable!("an era sets its options"),
    }
}

const BSD_4_4: &[Setting] = &[
    ("counting", Text("bsd"), Always),
    ("header_prediction", Flag(true), Always),
    ("acks_by_space", Flag(true), Always),
    ("quench", Flag(true), Always),
    ("successive_fast_retransmits", Flag(true), Always),
    ("timer", Text("bsd"), Always),
    ("ack_heartbeat", Flag(true), Always),
];

const NS_1997: &[Setting] = &[
    ("timer", Text("ns-1997"), Always),
    ("whole_threshold", Flag(true), Always),
    ("reno_of_1997", Flag(true), Reno),
    ("successive_fast_retransmits", Flag(false), Always),
    ("successive_after_recovery", Flag(true), Reno),
    ("timeout_halves", Text("window"), Always),
    ("burst_by_first_rtt", Flag(true), Bursts),
    ("handshake_sample", Flag(false), Always),
    ("ack_heartbeat", Flag(false), Always),
];

const NS_2: &[Setting] = &[
    ("initial_window_segments", Number(2.0), Always),
    ("limited_transmit", Flag(true), Always),
    ("timer", Text("ns"), Always),
    ("timer_tick_s", Number(0.01), Always),
    ("rto_min_s", Number(0.2), Always),
    ("whole_threshold", Flag(true), Always),
    ("successive_fast_retransmits", Flag(false), Always),
    ("successive_after_recovery", Flag(true), Reno),
    ("timeout_halves", Text("window"), Always),
    ("full_ack", Text("threshold"), Always),
    ("timing_in_recovery", Flag(true), Always),
    ("ack_heartbeat", Flag(false), Always),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{entries, stack_config, Config};

    /// A configuration without the name of its era, as text.
    fn config(stack: &str, options: Value) -> String {
        let options = serde_json::from_value(options).unwrap();
        let config = stack_config(stack, &options).unwrap_or_else(|why| panic!("{why}"));
        format!("{:?}", Config { era: EraName(None), ..config })
    }

    #[test]
    fn every_stack_can_be_of_every_era() {
        for entry in entries() {
            for era in EraName::CHOICES {
                config(entry.name, json!({"era": era}));
            }
        }
    }

    /// Those of asym's, ton's and ns2's campaigns.
    #[test]
    fn an_era_is_the_options_that_campaigns_set_one_by_one() {
        let ns_1997 = json!({
            "successive_fast_retransmits": false, "successive_after_recovery": true, "timer": "ns-1997",
            "whole_threshold": true, "reno_of_1997": true, "timeout_halves": "window", "handshake_sample": false,
            "ack_heartbeat": false,
        });
        assert_eq!(config("reno-ns", json!({"era": "ns-1997"})), config("reno-ns", ns_1997.clone()));
        assert_eq!(config("reno-ns-1997", json!({})), config("reno-bsd", ns_1997.clone()));
        let mut bursts = ns_1997;
        bursts["burst_by_first_rtt"] = true.into();
        assert_eq!(config("sa", json!({"era": "ns-1997"})), config("sa", bursts));
        let bsd = json!({"counting": "bsd", "header_prediction": true, "acks_by_space": true, "quench": true});
        assert_eq!(config("reno-4.4bsd", json!({})), config("reno-bsd", bsd));
        let ns_2 = json!({
            "initial_window_segments": 2, "limited_transmit": true, "timer": "ns", "timer_tick_s": 0.01,
            "rto_min_s": 0.2, "whole_threshold": true, "successive_fast_retransmits": false,
            "timeout_halves": "window", "full_ack": "threshold", "timing_in_recovery": true, "ack_heartbeat": false,
        });
        assert_eq!(config("newreno-ns-2", json!({})), config("newreno", ns_2));
    }

    #[test]
    fn an_option_beside_it_goes_first_and_the_stack_s_own_does_not() {
        let of_1997 = |timer: &str| config("sa", json!({"era": "ns-1997", "timer": timer}));
        assert_eq!(of_1997("ns-1997"), config("sa", json!({"era": "ns-1997"})));
        assert_ne!(of_1997("ns"), of_1997("ns-1997"));
    }
}
