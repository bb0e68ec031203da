//! `laws`: holds a mechanism to the laws of its kind (`testbed/laws`), and shows what it does to a standard set of
//! arrivals. `./backchannel check` makes a page of the answer.

use std::collections::BTreeMap;

use backchannel_core::event::EventKind;
use backchannel_core::registry::{Entry, Kind};
use backchannel_core::rng;
use backchannel_core::scenario::{Flow, LinkSpec, Named, Options};
use backchannel_core::traits::{Link, Middlebox, Policy, Side};
use backchannel_core::{Error, ResultExt, Time};
use backchannel_laws::steps::{self, Step};
use backchannel_laws::{link, middlebox, policy, Broken};
use backchannel_laws::{CONSERVATION, DETERMINISM, IP, MEMORY, ORDER, POLLING, TIME};
use backchannel_links::{Context, Registry};
use backchannel_simulator::Input;
use backchannel_workloads::{Action, Workload};
use serde::Serialize;
use serde_json::{json, Value};

use crate::reports;

/// Sequences of steps, and the length of each.
const CASES: u64 = 200;
const STEPS: usize = 200;
/// Rate of the line in the standard set for policies, in bit/s.
const LINE_BPS: f64 = 10e6;
/// Share of a clean link that a controller must use.
const LEAST_SHARE: f64 = 0.5;
/// Law of controllers.
const THROUGHPUT: &str = "throughput of the standard set";

/// Arguments of `laws`.
#[derive(clap::Args)]
pub struct Args {
    /// Kind of the mechanism: policy, controller, link, middlebox or workload
    #[arg(long)]
    kind: String,
    /// Its name
    #[arg(long)]
    name: String,
    /// Its options as JSON
    #[arg(long, default_value = "{}")]
    options: String,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Report {
    /// Cases in which each law was tried, and its first violation.
    laws: Vec<Law>,
    /// What it does to the standard set.
    table: Table,
}

#[derive(Debug, Serialize)]
struct Law {
    law: &'static str,
    cases: u64,
    broken: Option<String>,
}

#[derive(Debug, Serialize)]
struct Table {
    title: String,
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// Prints the report.
pub fn run(registry: &Registry, args: &Args) -> Result<(), Error> {
    let options: Options = serde_json::from_str(&args.options).or_malformed("--options is not a JSON object")?;
    let named = Named { name: args.name.clone(), options };
    let report = match args.kind.as_str() {
        "policy" => of_policy(registry, &named)?,
        "middlebox" => of_middlebox(registry, &named)?,
        "link" => of_link(registry, &named)?,
        "controller" => of_controller(registry, &named, &PATHS)?,
        "workload" => of_workload(registry, &named)?,
        kind => return Err(format!("mechanisms of kind '{kind}' have no laws").into()),
    };
    reports::print(&report)
}

/// The first violation of each law.
struct Court {
    broken: BTreeMap<&'static str, String>,
}

impl Court {
    fn new() -> Court {
        Court { broken: BTreeMap::new() }
    }

    fn hear(&mut self, result: Result<(), Broken>) {
        if let Err(Broken { law, what }) = result {
            self.broken.entry(law).or_insert(what);
        }
    }

    /// The standard set, as far as it can be shown: a mechanism whose times are wrong may ask to be polled without end.
    fn patterns(&self) -> Vec<(&'static str, Vec<(Time, Step)>)> {
        if self.broken.contains_key(TIME) {
            Vec::new()
        } else {
            patterns()
        }
    }

    fn laws(mut self, cases: u64, laws: &[&'static str]) -> Vec<Law> {
        laws.iter().map(|&law| Law { law, cases, broken: self.broken.remove(law) }).collect()
    }
}

fn entry(registry: &Registry, name: &str, is_kind: fn(&Kind) -> bool) -> Option<&'static Entry> {
    registry.entries().into_iter().find(|entry| entry.name == name && is_kind(&entry.kind))
}

// Policies ------------------------------------------------------------------------------------------------------------

fn of_policy(registry: &Registry, named: &Named) -> Result<Report, Error> {
    let context = |seed| backchannel_policies::Context {
        seed,
        label: "laws".into(),
        rate_bps: Some(LINE_BPS as u64),
        opposite_rate_bps: Some(LINE_BPS as u64),
        policies: registry.policies.clone(),
    };
    let build = |named: &Named| context(1).build(named);
    build(named)?;
    let queueing = match entry(registry, &named.name, |kind| matches!(kind, Kind::Policy(_))).map(|entry| entry.kind) {
        Some(Kind::Policy(queueing)) => queueing,
        _ => {
            return Err(Error::unknown(
                "queue policy",
                &named.name,
                registry.policies.entries().map(|entry| entry.name),
            ))
        }
    };
    let has = |option: &str| {
        registry
            .policies
            .entries()
            .any(|entry| entry.name == named.name && entry.params.iter().any(|param| param.name == option))
    };
    let mut court = Court::new();
    for seed in 0..CASES {
        let (steps, limit) = (steps::of_seed(seed, STEPS), 2 + seed % 10);
        let mut named = named.clone();
        let sets_limit = has("limit_packets") && !named.options.contains_key("limit_packets");
        if sets_limit {
            named.options.insert("limit_packets".into(), limit.into());
        }
        let of_options = named.options.get("limit_packets").and_then(Value::as_u64);
        let claims = policy::Claims {
            limit_packets: of_options.map(|limit| queueing.queues * limit),
            limit_bytes: named.options.get("buffer_bytes").and_then(Value::as_u64).unwrap_or(u64::MAX),
            lends: !policy::applies(queueing.holds_back, &named.options),
            is_fifo: !policy::applies(queueing.reorders, &named.options),
        };
        court.hear(policy::accounts(&mut *build(&named)?, &steps, &claims));
        court.hear(policy::repeats(&mut || build(&named).expect("it was built before"), &steps));
    }
    court.hear(policy::is_bounded(&mut *build(named)?));
    let mut rows = Vec::new();
    for (pattern, arrivals) in court.patterns() {
        for (label, named) in
            [(&*named.name, named), ("droptail", &Named { name: "droptail".into(), options: Options::new() })]
        {
            rows.push(row_of_policy(pattern, label, &mut *build(named)?, &arrivals));
        }
    }
    let columns = vec![
        "arrivals",
        "policy",
        "packets",
        "left",
        "dropped",
        "purged",
        "marked",
        "mean wait",
        "95 % wait",
        "longest queue",
    ];
    let title = format!("A line of {} Mbit/s", LINE_BPS / 1e6);
    let laws = court.laws(CASES, &[CONSERVATION, ORDER, TIME, POLLING, MEMORY, DETERMINISM, IP]);
    Ok(Report { laws, table: Table { title, columns, rows } })
}

/// The standard set of arrivals: a packet of 1500 bytes takes 1.2 ms.
fn patterns() -> Vec<(&'static str, Vec<(Time, Step)>)> {
    let data = |flow: u16, ecn: bool| Step::Data { flow, payload: 1460, ecn };
    let every = |gap_ms: f64, n: usize, step: &dyn Fn(usize) -> Step| {
        (0..n).map(|number| (Time::from_seconds(number as f64 * gap_ms * 1e-3), step(number))).collect::<Vec<_>>()
    };
    let ack = |number: usize| Step::Ack { flow: 0, number: 1 + number as u32, window: 1, ecn: false, sack: 0 };
    vec![
        ("a burst of 100 packets", every(0.0, 100, &|_| data(0, false))),
        ("80 % of the rate", every(1.5, 1000, &|_| data(0, false))),
        ("120 % of the rate", every(1.0, 1000, &|_| data(0, false))),
        ("120 %, ECN-capable", every(1.0, 1000, &|_| data(0, true))),
        ("120 %, one of three flows sends most", every(1.0, 1000, &|number| data([0, 0, 1, 0, 2][number % 5], false))),
        (
            "data and acks in turn, 125 %",
            every(0.5, 2000, &|number| if number % 2 == 0 { data(1, false) } else { ack(number / 2) }),
        ),
        (
            "acks alone, in bursts of 50",
            (0..20)
                .flat_map(|burst| {
                    (0..50).map(move |number| {
                        (
                            Time::from_seconds(f64::from(burst) * 0.01),
                            Step::Ack {
                                flow: 0,
                                number: (burst * 50 + number) as u32 + 1,
                                window: 1,
                                ecn: false,
                                sack: 0,
                            },
                        )
                    })
                })
                .collect(),
        ),
    ]
}

fn row_of_policy(pattern: &str, label: &str, policy: &mut dyn Policy, arrivals: &[(Time, Step)]) -> Vec<String> {
    let mut served = policy::serve(policy, LINE_BPS, arrivals);
    served.waits_s.sort_by(f64::total_cmp);
    let count = |kinds: &[EventKind]| served.events.iter().filter(|kind| kinds.contains(kind)).count().to_string();
    let waits = &served.waits_s;
    let mean = waits.iter().sum::<f64>() / waits.len().max(1) as f64;
    let most = waits.get((waits.len() * 95 / 100).min(waits.len().saturating_sub(1))).copied().unwrap_or_default();
    vec![
        pattern.into(),
        label.into(),
        served.arrived.to_string(),
        waits.len().to_string(),
        count(&[EventKind::DroppedFull, EventKind::DroppedEarly]),
        count(&[EventKind::Purged]),
        count(&[EventKind::Marked, EventKind::MarkedDupack]),
        milliseconds(mean),
        milliseconds(most),
        served.longest_packets.to_string(),
    ]
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1} ms", seconds * 1e3)
}

// Middleboxes ---------------------------------------------------------------------------------------------------------

fn of_middlebox(registry: &Registry, named: &Named) -> Result<Report, Error> {
    let build = || -> Result<Box<dyn Middlebox>, Error> {
        let (checked, build) = registry.middleboxes.checked(&named.name, &named.options)?;
        build(&checked, &backchannel_middleboxes::Context { stacks: registry.stacks.tcp() })
    };
    build()?;
    let mut court = Court::new();
    for seed in 0..CASES {
        court.hear(middlebox::repeats(&mut || build().expect("it was built before"), &steps::of_seed(seed, STEPS)));
    }
    let mut rows = Vec::new();
    for (pattern, arrivals) in court.patterns() {
        let (mut middlebox, mut out, mut events) = (build()?, Vec::new(), Default::default());
        let (mut came, mut waits): (Vec<Time>, Vec<f64>) = (Vec::new(), Vec::new());
        let mut sides = [0, 0];
        let mut take = |now: Time, out: &mut Vec<(Side, backchannel_core::Packet)>, came: &[Time]| {
            for (side, packet) in out.drain(..) {
                sides[usize::from(side == Side::B)] += 1;
                waits.extend(came.get(packet.id as usize).map(|at| now.seconds() - at.seconds()));
            }
        };
        for (id, (at, step)) in arrivals.iter().enumerate() {
            while let Some(due) = middlebox.next_event().filter(|due| due <= at) {
                middlebox.poll(due, &mut out, &mut events);
                take(due, &mut out, &came);
            }
            came.push(*at);
            middlebox.process(
                *at,
                Side::A,
                step.packet(id as u64).expect("patterns are packets"),
                &mut out,
                &mut events,
            );
            take(*at, &mut out, &came);
        }
        let end = Time::from_seconds(1e3);
        while let Some(due) = middlebox.next_event().filter(|due| *due <= end) {
            middlebox.poll(due, &mut out, &mut events);
            take(due, &mut out, &came);
        }
        let mean = waits.iter().sum::<f64>() / waits.len().max(1) as f64;
        let numbers = [came.len(), sides[1], sides[0], events.list.len()].map(|number| number.to_string());
        rows.push([pattern.to_owned()].into_iter().chain(numbers).chain([milliseconds(mean)]).collect());
    }
    let columns = vec!["arrivals from side A", "packets", "to side B", "back to side A", "events", "mean time inside"];
    let laws = court.laws(CASES, &[CONSERVATION, TIME, POLLING, DETERMINISM]);
    Ok(Report { laws, table: Table { title: "Packets from side A".into(), columns, rows } })
}

// Links ---------------------------------------------------------------------------------------------------------------

fn of_link(registry: &Registry, named: &Named) -> Result<Report, Error> {
    let spec = |rate: Option<f64>| -> LinkSpec {
        let mut direction =
            json!({"delay_s": 0.02, "queue": {"name": "droptail", "options": {"limit_packets": 100_000}}});
        if let Some(rate) = rate {
            direction["rate_bps"] = (rate as u64).into();
        }
        let spec = json!({
            "name": "line", "kind": named.name, "ends": ["a", "b"], "forward": direction, "reverse": direction,
            "options": named.options,
        });
        serde_json::from_value(spec).expect("a link")
    };
    let context = Context { seed: 1, registry: registry.clone() };
    // A kind may have a rate of its own.
    let rate = if backchannel_links::build(&spec(Some(LINE_BPS)), &context).is_ok() { Some(LINE_BPS) } else { None };
    let build = || backchannel_links::build(&spec(rate), &context);
    build()?;
    let mut court = Court::new();
    for seed in 0..CASES {
        let steps = steps::of_seed(seed, STEPS);
        court.hear(link::carries(&mut *build()?, &steps, true).map(drop));
        court.hear(link::keeps_time(&mut || build().expect("it was built before"), &steps));
    }
    let mut rows = Vec::new();
    for (pattern, arrivals) in court.patterns() {
        let mut link = build()?;
        let (mut out, mut events) = (Vec::new(), Default::default());
        for (id, (at, step)) in arrivals.iter().enumerate() {
            poll(&mut *link, *at, &mut out, &mut events);
            link.submit(*at, 0, step.packet(id as u64).expect("patterns are packets"), &mut events);
        }
        poll(&mut *link, Time::from_seconds(1e5), &mut out, &mut events);
        let delay = |delivery: &backchannel_core::Delivery| {
            delivery.at.seconds() - arrivals[delivery.packet.id as usize].0.seconds()
        };
        let mean = out.iter().map(delay).sum::<f64>() / out.len().max(1) as f64;
        let last = out.iter().map(|delivery| delivery.at.seconds()).fold(0.0, f64::max);
        let bits: f64 = out.iter().map(|delivery| f64::from(delivery.packet.len()) * 8.0).sum();
        rows.push(vec![
            pattern.into(),
            arrivals.len().to_string(),
            out.len().to_string(),
            milliseconds(mean),
            milliseconds(last),
            format!("{:.2} Mbit/s", bits / last.max(1e-9) / 1e6),
        ]);
    }
    let columns = vec!["arrivals", "packets", "delivered", "mean delay", "last delivery", "mean rate"];
    let title = match rate {
        Some(rate) => format!("{} Mbit/s and 20 ms, a queue without end", rate / 1e6),
        None => "20 ms, a queue without end".into(),
    };
    let laws = court.laws(CASES, &[CONSERVATION, ORDER, TIME, POLLING, MEMORY, DETERMINISM]);
    Ok(Report { laws, table: Table { title, columns, rows } })
}

fn poll(
    link: &mut dyn Link,
    until: Time,
    out: &mut Vec<backchannel_core::Delivery>,
    events: &mut backchannel_core::event::Events,
) {
    while let Some(due) = link.next_event().filter(|due| *due <= until) {
        link.poll(due, out, events);
    }
}

// Controllers ---------------------------------------------------------------------------------------------------------

/// Label, rate in bit/s, delay in s, queue in packets, and share of lost packets.
type OnePath = (&'static str, f64, f64, u64, f64);

const PATHS: [OnePath; 5] = [
    ("1 Mbit/s, 100 ms", 1e6, 0.05, 10, 0.0),
    ("10 Mbit/s, 40 ms", 10e6, 0.02, 35, 0.0),
    ("10 Mbit/s, 40 ms, a queue of a tenth", 10e6, 0.02, 4, 0.0),
    ("100 Mbit/s, 20 ms", 100e6, 0.01, 170, 0.0),
    ("10 Mbit/s, 40 ms, 1 % lost", 10e6, 0.02, 35, 0.01),
];
const DURATION_S: f64 = 20.0;

fn of_controller(registry: &Registry, named: &Named, paths: &[OnePath]) -> Result<Report, Error> {
    let mut court = Court::new();
    let mut rows = Vec::new();
    for path in paths {
        let others = ["newreno", "cubic"].map(|name| Named { name: name.into(), options: Options::new() });
        for controller in [named].into_iter().chain(&others) {
            let (share, dropped, text) = transfer(registry, controller, path)?;
            if std::ptr::eq(controller, named) {
                let again = transfer(registry, controller, path)?.2;
                let repeats = if text == again { Ok(()) } else { Err(broken(DETERMINISM, path.0, "two runs differ")) };
                court.hear(repeats);
                if path.4 == 0.0 && share < LEAST_SHARE {
                    let what = format!("it used {:.0} % of the link in {DURATION_S} s", share * 100.0);
                    court.hear(Err(broken(THROUGHPUT, path.0, &what)));
                }
            }
            rows.push(vec![
                path.0.into(),
                controller.name.clone(),
                format!("{:.2} Mbit/s", share * path.1 / 1e6),
                format!("{:.0} %", share * 100.0),
                dropped.to_string(),
            ]);
        }
    }
    let columns = vec!["path", "controller", "throughput", "of the link", "dropped by the queue"];
    let title = format!("A transfer of {DURATION_S} s with the stack modern");
    let laws = court.laws(paths.len() as u64, &[THROUGHPUT, DETERMINISM]);
    Ok(Report { laws, table: Table { title, columns, rows } })
}

fn broken(law: &'static str, place: &str, what: &str) -> Broken {
    Broken { law, what: format!("{place}: {what}") }
}

/// Share of the link that data used, packets that its queue dropped, and the whole report.
fn transfer(registry: &Registry, named: &Named, path: &OnePath) -> Result<(f64, u64, String), Error> {
    let (_, rate, delay_s, limit, loss) = *path;
    let mut options = named.options.clone();
    options.insert("congestion".into(), named.name.clone().into());
    let direction = |errors: Value| {
        json!({
            "rate_bps": rate as u64, "delay_s": delay_s, "errors": errors,
            "queue": {"name": "droptail", "options": {"limit_packets": limit}},
        })
    };
    let host = |name: &str| json!({"name": name, "kind": "host", "stack": {"name": "modern", "options": options}});
    let errors = if loss > 0.0 { json!([{"name": "uniform", "options": {"probability": loss}}]) } else { json!([]) };
    let interface = |node: &str, end: u8| {
        json!({
            "interfaces": [{"name": node, "link": "line", "end": end, "address": format!("10.1.0.{}", end + 1)}],
            "routes": [],
        })
    };
    let input = json!({
        "scenario": {
            "version": 1, "seed": 1, "duration_s": DURATION_S, "nodes": [host("a"), host("b")],
            "links": [{
                "name": "line", "kind": "point-to-point", "ends": ["a", "b"],
                "forward": direction(errors), "reverse": direction(json!([])),
            }],
            "workload": [{"name": "down", "kind": "bulk", "from": "a", "to": "b", "port": 5001}],
            "capture": {"snaplen": 96, "at": ["none"], "telemetry": false},
        },
        "nodes": {"a": interface("a", 0), "b": interface("b", 1)},
    });
    let input: Input = serde_json::from_value(input).or_malformed("invalid scenario")?;
    let out = tempfile::tempdir().or_system("cannot make a temporary folder")?;
    let report = backchannel_simulator::simulate(registry, &input, out.path())?;
    out.close().or_system("cannot remove a temporary folder")?;
    let report = serde_json::to_value(report).or_malformed("a report")?;
    let bytes = report["flows"]["down"]["receive"]["bytes"].as_f64().unwrap_or_default();
    let dropped = report["driver"]["links"]["line"]["forward"]["events"]["dropped_full"].as_u64().unwrap_or_default();
    Ok((bytes * 8.0 / rate / DURATION_S, dropped, report.to_string()))
}

// Workloads -----------------------------------------------------------------------------------------------------------

/// Actions that are looked at, and those at one time that are too many.
const ACTIONS: usize = 2000;
const MOST_AT_ONCE: usize = 1000;

fn of_workload(registry: &Registry, named: &Named) -> Result<Report, Error> {
    let flow = json!({
        "name": "flow", "kind": named.name, "from": "a", "to": "b", "port": 5001, "options": named.options,
    });
    let flow: Flow = serde_json::from_value(flow).or_malformed("a flow")?;
    let build = |seed: u64| -> Result<Box<dyn Workload>, Error> {
        let (checked, build) = registry.workloads.checked(&named.name, &named.options)?;
        build(&checked, backchannel_workloads::Context { flow: &flow, rng: rng::stream(seed, "flow") })
    };
    let mut court = Court::new();
    for seed in 0..CASES {
        let (first, second) = (acts(&mut *build(seed)?), acts(&mut *build(seed)?));
        if first != second {
            court.hear(Err(broken(DETERMINISM, "one seed", "two workloads act differently")));
        }
        let back = first.windows(2).find(|pair| pair[1].0 < pair[0].0);
        if let Some([before, after]) = back {
            court.hear(Err(broken(TIME, "act", &format!("at {:?} it wants to act at {:?}", before.0, after.0))));
        }
        let crowded = first.windows(MOST_AT_ONCE).find(|window| window[0].0 == window[MOST_AT_ONCE - 1].0);
        if let Some(window) = crowded {
            let what = format!("{MOST_AT_ONCE} actions at {:?}: time does not pass", window[0].0);
            court.hear(Err(broken(TIME, "act", &what)));
        }
    }
    let first = acts(&mut *build(1)?).into_iter().take(12);
    let rows = first.map(|(at, action)| vec![format!("{:.3} s", at.seconds()), format!("{action:?}")]).collect();
    let table = Table { title: "The first actions".into(), columns: vec!["time", "action"], rows };
    Ok(Report { laws: court.laws(CASES, &[TIME, DETERMINISM]), table })
}

fn acts(workload: &mut dyn Workload) -> Vec<(Time, Action)> {
    let mut due = Some(workload.first(Time::ZERO));
    let mut all = Vec::new();
    while let Some(now) = due.filter(|_| all.len() < ACTIONS) {
        let (action, next) = workload.act(now);
        // A response comes at once.
        let after = matches!(action, Action::Request(_) | Action::Write(_)).then(|| workload.on_response(now));
        all.push((now, action));
        due = next.or(after.filter(|_| workload.transaction().is_some()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(kind: &str, name: &str, options: Value) -> Report {
        let named = Named { name: name.into(), options: serde_json::from_value(options).expect("an object") };
        let registry = Registry::builtin();
        let report = match kind {
            "policy" => of_policy(&registry, &named),
            "middlebox" => of_middlebox(&registry, &named),
            "link" => of_link(&registry, &named),
            // The others carry eleven times as many bytes; `check` tries all.
            "controller" => of_controller(&registry, &named, &PATHS[..2]),
            _ => of_workload(&registry, &named),
        };
        report.unwrap_or_else(|why| panic!("{name}: {why}"))
    }

    fn broken(report: &Report) -> Vec<(&str, &str)> {
        report.laws.iter().filter_map(|law| Some((law.law, law.broken.as_deref()?))).collect()
    }

    #[test]
    fn mechanisms_of_this_software_keep_the_laws() {
        for (kind, name, options) in [
            ("policy", "droptail", json!({})),
            ("policy", "codel", json!({})),
            ("policy", "fq-codel", json!({})),
            ("policy", "ack-filtering", json!({})),
            ("middlebox", "ll-tcp-aware", json!({})),
            ("link", "point-to-point", json!({})),
            ("controller", "newreno", json!({})),
            ("workload", "web", json!({})),
        ] {
            let report = report(kind, name, options);
            assert_eq!(broken(&report), [], "{name}");
            assert!(report.table.rows.iter().all(|row| row.len() == report.table.columns.len()), "{name}");
        }
    }

    #[test]
    fn the_standard_set_shows_what_a_policy_does() {
        let report = report("policy", "droptail", json!({"limit_packets": 20}));
        let burst = &report.table.rows[0];
        // 20 wait, and each takes 1.2 ms of the line.
        assert_eq!(burst[2..], ["100", "20", "80", "0", "0", "11.4 ms", "22.8 ms", "20"]);
    }

    #[test]
    fn a_controller_that_does_not_use_the_link_breaks_the_law() {
        let report = report("controller", "reno", json!({"max_window_segments": 2}));
        assert_eq!(broken(&report)[0].0, THROUGHPUT);
    }
}
