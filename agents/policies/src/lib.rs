//! Queue policies: the queueing disciplines in front of a link. A policy decides which packet waits, is sent next, is
//! marked, dropped or purged. The trait is [`Policy`](backchannel_core::traits::Policy).
//!
//! - First in, first out: [`DropTail`] and [`DropFront`], with a capacity of [`Limit`].
//! - Active queue management: [`Red`] and [`CoDel`].
//! - Of today's routers: `fq-codel`, `pie`, `docsis-pie`, `dual-pi2`, `cake`.
//! - For acks on slow reverse links: [`AckFiltering`], [`AcksFirst`].
//! - Scheduling between acks and data, or between flows: [`Cbq5050`], [`Acq`], [`AsymmetricQueueing`],
//!   [`FairQueueing`].
//!
//! Policies compose. One with the option `child` decides, and its child holds the packets: an ack filter over CoDel is
//! a campaign's choice and needs no code. [`Context::build`] builds a child.
//!
//! # Add a policy
//!
//! Write one file with its options, its entry, a [`Build`] function and the trait, and add a line to [`builtin`].
//! Drivers, the validator and `./backchannel list` read that table. Another crate calls `Registry::policy` instead.
//! Report every packet that does not leave, because tests check that in = out + dropped + purged + queued.
//! docs/policies.md describes each policy and the steps.

pub mod ack_filter;
mod acks_first;
pub mod acq;
mod afvq;
pub mod aq;
mod cake;
mod cbq5050;
mod classes;
mod cobalt;
pub mod codel;
mod context;
mod docsis_pie;
mod drop_front;
mod droptail;
mod dual_pi2;
mod fifo;
mod fq_codel;
mod fq_drr;
mod limit;
mod meter;
mod pie;
pub mod red;
mod stamped;
#[cfg(test)]
mod testing;

use backchannel_core::registry::Table;

pub use ack_filter::AckFiltering;
pub use acks_first::AcksFirst;
pub use acq::Acq;
pub use aq::AsymmetricQueueing;
pub use cbq5050::Cbq5050;
pub use codel::CoDel;
use context::Child;
pub use context::{Build, Context, Policies};
pub use drop_front::DropFront;
pub use droptail::DropTail;
pub use fq_drr::FairQueueing;
pub use limit::Limit;
pub use red::Red;

/// The policies of this crate.
pub fn builtin() -> Policies {
    Table::<Build>::new(
        "queue policy",
        &[
            (&droptail::ENTRY, droptail::build),
            (&ack_filter::ENTRY, ack_filter::build),
            (&acks_first::ENTRY, acks_first::build),
            (&ack_filter::ENTRY_ACKS_FIRST, ack_filter::over_acks_first),
            (&drop_front::ENTRY, drop_front::build),
            (&red::ENTRY, red::build),
            (&cbq5050::ENTRY, cbq5050::build),
            (&fq_drr::ENTRY, fq_drr::build),
            (&aq::ENTRY, aq::build),
            (&acq::ENTRY, acq::build),
            (&afvq::ENTRY, afvq::build),
            (&codel::ENTRY, codel::build),
            (&fq_codel::ENTRY, fq_codel::build),
            (&pie::ENTRY, pie::build),
            (&docsis_pie::ENTRY, docsis_pie::build),
            (&dual_pi2::ENTRY, dual_pi2::build),
            (&cake::ENTRY, cake::build),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::event::{EventKind, Events};
    use backchannel_core::ip::IpVersion;
    use backchannel_core::options::{Preset, Unit};
    use backchannel_core::packet::build::data;
    use backchannel_core::registry::{Entry, Kind, Queueing};
    use backchannel_core::scenario::Named;
    use backchannel_core::scenario::Options;
    use backchannel_core::time::Time;
    use backchannel_core::traits::Policy;
    use backchannel_core::Error;
    use backchannel_laws as laws;
    use backchannel_laws::steps::{Step, SACKS};
    use proptest::prelude::*;
    use serde_json::json;

    fn context() -> Context {
        Context { rate_bps: Some(28_800), opposite_rate_bps: Some(10_000_000), ..crate::testing::context() }
    }

    fn build(name: &str, options: &Options, context: &Context) -> Result<Box<dyn Policy>, Error> {
        context.build(&Named { name: name.into(), options: options.clone() })
    }

    #[test]
    fn unknown_policies_and_options_are_rejected_with_what_is_allowed() {
        let error = build("drop-tale", &Options::new(), &context()).err().expect("refused");
        assert!(error.to_string().contains("'drop-tale'") && error.to_string().contains("droptail"), "{error}");
        let options = Options::from([("limit".into(), json!(3))]);
        let error = build("droptail", &options, &context()).err().expect("refused");
        assert!(
            error.to_string().contains("unknown option 'limit'") && error.to_string().contains("limit_packets"),
            "{error}"
        );
    }

    #[test]
    fn the_default_limit_is_for_policies_that_hold_the_packets_themselves() {
        let child = json!({"name": "droptail", "options": {"limit_packets": 100}});
        let within = [
            ("ack-filtering", json!({ "child": child })),
            ("fq-drr", json!({ "child": child })),
            ("acks-first", json!({"acks": child, "others": child})),
        ];
        for (name, options) in within {
            let mut options: Options = serde_json::from_value(options).expect("an object");
            for limit in [None, Some(30)] {
                options.extend(limit.map(|limit| ("limit_packets".to_owned(), json!(limit))));
                let mut policy = build(name, &options, &context()).unwrap_or_else(|why| panic!("{name}: {why}"));
                (0..150).for_each(|id| policy.enqueue(Time::ZERO, data(id, 100), &mut Events::default()));
                assert_eq!(policy.backlog().packets, limit.unwrap_or(100), "{name}");
            }
        }
    }

    #[test]
    fn a_policy_within_another_has_streams_and_errors_of_its_own() {
        static LOST: Entry = Entry::policy("lost", "says where it is", Queueing::FIFO);
        let policies = Policies::new("policy", &[(&LOST, |_, context| Err(context.label.as_str().into()))]);
        let context = Context { policies, ..context() };
        let lost = Named { name: "lost".into(), options: Options::new() };
        let error = context.child("acks", &Some(lost)).err().expect("refused");
        assert_eq!(error.to_string(), "acks: test/acks");
    }

    /// The rows of one policy in the table of options of docs/policies.md.
    fn rows(entry: &'static Entry) -> impl Iterator<Item = String> {
        entry.params.iter().map(|param| {
            let text = |value: serde_json::Value| value.as_str().map_or(value.to_string(), str::to_owned);
            let unit = text(serde_json::to_value(param.unit).expect("a unit is a word"));
            let default = match param.default {
                Preset::Number(number) => number.to_string(),
                Preset::Flag(flag) => flag.to_string(),
                Preset::Text(choice) => choice.to_owned(),
                Preset::Absent => "-".to_owned(),
                Preset::Required(_) => "required".to_owned(),
            };
            let allowed = match (param.min, param.max) {
                _ if !param.choices.is_empty() => param.choices.join(", "),
                (Some(min), Some(max)) => format!("{min} to {max}"),
                (Some(min), None) => format!("at least {min}"),
                (None, Some(max)) => format!("at most {max}"),
                (None, None) if param.unit == Unit::Fraction => "0 to 1".to_owned(),
                (None, None) => String::new(),
            };
            let (policy, name, help) = (entry.name, param.name, param.help);
            format!("| `{policy}` | `{name}` | {unit} | {default} | {allowed} | {help} |\n")
        })
    }

    #[test]
    fn docs_policies_md_lists_every_policy_and_option() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policies.md");
        let docs = std::fs::read_to_string(path).expect("docs/policies.md can be read");
        let begin = docs.find("<!-- options").and_then(|at| Some(at + docs[at..].find('\n')? + 1)).expect("a mark");
        let end = docs.find("<!-- end of options").expect("a mark");
        let mut table =
            "| policy | option | unit | default | allowed | meaning |\n|---|---|---|---|---|---|\n".to_owned();
        table.extend(builtin().entries().flat_map(rows));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            let updated = format!("{}{table}{}", &docs[..begin], &docs[end..]);
            std::fs::write(path, updated).expect("docs/policies.md can be written");
        } else {
            assert!(docs[begin..end] == table, "docs/policies.md is out of step: UPDATE_DOCS=1 writes\n{table}");
        }
        for entry in builtin().entries() {
            assert!(
                docs.contains(&format!("| `{}` | {} |", entry.name, entry.source.split(" (").next().unwrap_or(""))),
                "docs/policies.md: the first table has no row for {} with its source {}",
                entry.name,
                entry.source
            );
        }
    }

    /// Every policy with its defaults, and every option that changes what happens to a packet.
    fn variants() -> Vec<(&'static str, Options)> {
        let policies = builtin();
        let defaults = policies.entries().map(|entry| (entry.name, json!({})));
        let others = [
            ("droptail", json!({"buffer_bytes": 3000})),
            ("drop-from-front", json!({"buffer_bytes": 3000})),
            ("acks-first", json!({"buffer_bytes": 3000})),
            ("acks-first", json!({"acks": {"name": "ack-filtering"}, "others": {"name": "codel"}})),
            ("ack-filtering", json!({"child": {"name": "red", "options": {"weight": 0.5, "action": "drop"}}})),
            ("ack-filtering", json!({"child": {"name": "fq-drr"}, "replace_head": true, "buffer_bytes": 3000})),
            ("ack-filtering", json!({"child": {"name": "codel", "options": {"target_s": 1e-6, "interval_s": 1e-6}}})),
            ("ack-filtering", json!({"buffer_bytes": 3000, "replace_head": true})),
            ("ack-filtering", json!({"fraction": 0.4, "random": true})),
            ("ack-filtering", json!({"by_fullness": true, "mark_dupacks_after": 2})),
            ("ack-filtering", json!({"allowed_acks": 3})),
            ("ack-filtering", json!({"filter_sack": true})),
            ("ack-filtering-acks-first", json!({"filter_sack": true, "buffer_bytes": 3000})),
            ("red", json!({"weight": 1.0, "victim": "tail", "action": "drop"})),
            ("red", json!({"weight": 0.5, "gentle": true, "candidates": "data", "acks_first": true})),
            ("red", json!({"weight": 0.5, "not_capable": "drop", "buffer_bytes": 3000})),
            ("red", json!({"weight": 0.5, "above_max": "drop"})),
            ("red", json!({"weight": 0.5, "child": {"name": "ack-filtering", "options": {"limit_packets": 4}}})),
            ("red", json!({"weight": 0.5, "above_max": "drop", "gentle": true, "victim": "tail"})),
            ("cbq-5050", json!({"filter": true, "ack_share": 0.0})),
            ("cbq-5050", json!({"filter": true, "allowed_acks": 2})),
            ("cbq-5050", json!({"filter": true, "bounded": true})),
            ("cbq-5050", json!({"bounded": true, "rate_bps": 10_000_000, "ack_share": 0.0})),
            (
                "cbq-5050",
                json!({
                    "acks": {"name": "ack-filtering", "options": {"limit_packets": 2}},
                    "data": {"name": "red", "options": {"limit_packets": 2}},
                }),
            ),
            ("fq-drr", json!({"quantum_bytes": 40, "buffer_bytes": 3000})),
            ("fq-drr", json!({"child": {"name": "codel", "options": {"target_s": 1e-6, "interval_s": 1e-6}}})),
            ("fq-drr", json!({"quantum_bytes": 40, "child": {"name": "red", "options": {"acks_first": true}}})),
            ("aq", json!({"classify": "pure-ack", "period_s": 0.001, "uplink_bps": 1_000_000})),
            ("aq", json!({"infeasible": "only-acks"})),
            ("acq", json!({"filter": true, "period_s": 0.01, "gamma": 1000})),
            ("acq", json!({"bounded": true, "period_s": 0.01, "gamma": 1000})),
            ("afvq", json!({"ack_limit_packets": 1, "data": {"name": "codel", "options": {"limit_packets": 2}}})),
            ("afvq", json!({"acks": {"name": "ack-filtering"}})),
            ("fq-codel", json!({"quantum_bytes": 40, "buffer_bytes": 3000})),
            ("fq-codel", json!({"target_s": 1e-6, "interval_s": 1e-6, "max_packet_bytes": 1, "ecn": false})),
            ("pie", json!({"target_s": 1e-6, "max_burst_s": 0, "mean_packet_bytes": 1, "alpha": 100, "ecn": true})),
            ("fq-drr", json!({"child": {"name": "pie", "options": {"target_s": 1e-6, "max_burst_s": 0, "beta": 100}}})),
            ("docsis-pie", json!({"rate_bps": 1000, "target_s": 1e-6, "buffer_bytes": 3000})),
            // With any-ect a flow whose packets are not all ECN-capable is in both queues, which reorders it.
            ("dual-pi2", json!({"target_s": 1e-6, "alpha": 1000, "max_packet_bytes": 1})),
            ("codel", json!({"target_s": 1e-6, "interval_s": 1e-6, "ecn": true})),
            ("cake", json!({"rate_bps": 1_000_000, "overhead_bytes": 14, "mpu_bytes": 64, "buffer_bytes": 3000})),
            (
                "cake",
                json!({"rate_bps": 1e9, "framing": "atm", "target_s": 1e-6, "rtt_s": 1e-6, "isolation": "dual-src"}),
            ),
            ("cake", json!({"target_s": 1e-6, "rtt_s": 1e-6, "ecn": false, "isolation": "flows", "framing": "ptm"})),
            ("ack-filtering", json!({"filter_sack": true, "child": {"name": "cake"}})),
        ];
        let read = |(name, options)| (name, serde_json::from_value(options).expect("an object"));
        defaults.chain(others).map(read).collect()
    }

    /// What the entry of a policy says of its queue.
    fn queueing(name: &str) -> Queueing {
        match builtin().entries().find(|entry| entry.name == name).map(|entry| entry.kind) {
            Some(Kind::Policy(queueing)) => queueing,
            other => panic!("{name} is not a policy: {other:?}"),
        }
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u16..3, 1u32..12, 1u16..3, any::<bool>(), 0..SACKS.len())
                .prop_map(|(flow, number, window, ecn, sack)| Step::Ack { flow, number, window, ecn, sack }),
            2 => (0u16..3, 1u32..1500, any::<bool>()).prop_map(|(flow, payload, ecn)| Step::Data { flow, payload, ecn }),
            1 => (0u16..3).prop_map(|flow| Step::Syn { flow }),
            1 => Just(Step::Datagram),
            1 => (0u32..1500).prop_map(|payload| Step::Opposite { payload }),
            1 => (1u64..400).prop_map(|ms| Step::Wait { ms }),
            3 => Just(Step::Dequeue),
        ]
    }

    fn treatment((name, options): &(&str, Options), ip: IpVersion, steps: &[Step]) -> laws::policy::Treatment {
        let context = Context { rate_bps: Some(500_000), ..context() };
        let mut policy = build(name, options, &context).unwrap_or_else(|why| panic!("{name}: {why}"));
        laws::policy::treatment(&mut *policy, ip, steps)
    }

    proptest! {
        /// Policies treat the packets of IPv6 as those of IPv4, whatever they look at in headers.
        #[test]
        fn every_policy_treats_both_versions_of_ip_alike(
            steps in proptest::collection::vec(step(), 1..200),
            limit in 2u64..12,
        ) {
            for (name, mut options) in variants() {
                options.insert("limit_packets".into(), json!(limit));
                let variant = (name, options);
                let over = |ip| treatment(&variant, ip, &steps);
                prop_assert_eq!(over(IpVersion::V6), over(IpVersion::V4), "{:?}", &variant);
            }
        }

        /// Every policy of the table (laws of `testbed/laws`).
        #[test]
        fn every_policy_accounts_for_every_packet(steps in proptest::collection::vec(step(), 1..200), limit in 2u64..12) {
            for (name, mut options) in variants() {
                options.insert("limit_packets".into(), json!(limit));
                // Wide enough for AQ's equation 11.
                let mut policy = build(name, &options, &Context { rate_bps: Some(500_000), ..context() })
                    .map_err(|why| TestCaseError::fail(format!("{name}: {why}")))?;
                let queueing = queueing(name);
                let claims = laws::policy::Claims {
                    limit_packets: Some(queueing.queues * limit),
                    limit_bytes: options.get("buffer_bytes").and_then(serde_json::Value::as_u64).unwrap_or(u64::MAX),
                    lends: !laws::policy::applies(queueing.holds_back, &options),
                    // A policy within may have an order of its own.
                    is_fifo: !options.values().any(serde_json::Value::is_object)
                        && !laws::policy::applies(queueing.reorders, &options),
                };
                laws::policy::accounts(&mut *policy, &steps, &claims)
                    .map_err(|broken| TestCaseError::fail(format!("{name}: {broken}")))?;
            }
        }

        /// What a filter may never do, whatever comes: the greatest acknowledgment number of each connection that has
        /// come is never purged, and in the default filter no number disappears altogether but for a greater one.
        #[test]
        fn no_filter_purges_the_newest_ack(steps in proptest::collection::vec(step(), 1..200)) {
            for (name, mut options) in variants() {
                options.insert("limit_packets".into(), json!(1000));
                let mut policy = build(name, &options, &Context { rate_bps: Some(500_000), ..context() })
                    .map_err(|why| TestCaseError::fail(format!("{name}: {why}")))?;
                let mut greatest = std::collections::BTreeMap::new();
                let mut acks = std::collections::BTreeMap::new();
                for (number, step) in steps.iter().enumerate() {
                    let mut events = Events::default();
                    let Step::Ack { flow, number: ack, .. } = *step else { continue };
                    let most: &mut u32 = greatest.entry(flow).or_insert(ack);
                    *most = ack.max(*most);
                    acks.insert(number as u64, (flow, ack));
                    policy.enqueue(Time::ZERO, step.packet(number as u64).expect("an ack"), &mut events);
                    for event in events.list.iter().filter(|event| event.kind == EventKind::Purged) {
                        let (purged_flow, purged) = acks[&event.packet_id];
                        prop_assert_eq!(purged_flow, flow, "{} purged of another connection", name);
                        prop_assert!(purged <= ack, "{} purged a newer ack", name);
                        prop_assert!(purged < greatest[&flow] || purged == ack, "{} purged the newest", name);
                    }
                }
            }
        }
    }
}
