//! The audit of emulated links: compares the captures at both ends of a link with what the scenario declares.
//!
//! [`audit`] takes a [`Run`] with its captures and telemetry, and returns a [`DirectionAudit`] for each direction of
//! each link. It pairs the packets that entered with those that left, computes the timeline that the declared rate,
//! delay and framing allow, and measures the deviation: lost, invented and reordered packets, rate, transit time,
//! lateness, and the queue at each drop. The run's verdict depends on it. docs/validity.md describes the checks and
//! their limits.
//!
//! The audit shares no code with the links, because an error in shared code would go unnoticed.
//!
//! A packet passes these files in order:
//!
//! 1. `records` reads the captures.
//! 2. `jitter` subtracts reported jitter from their times.
//! 3. `pairs` matches packets that entered with packets that left.
//! 4. `link_model` computes declared service times.
//! 5. `timeline` measures rate, transit and lateness.
//! 6. `queue` determines the occupancy at drops.
//!
//! A new mechanism needs no change here. The audit reads its properties from its registry entry, such as whether a
//! policy keeps the order of packets ([`Queueing`](backchannel_core::registry::Queueing)).

mod direction;
mod jitter;
pub mod lateness;
mod link_model;
mod mechanisms;
mod pairs;
mod queue;
mod records;
mod timeline;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use backchannel_core::plan::NodePlan;
use backchannel_core::registry::Entry;
use backchannel_core::report::direction_name;
use backchannel_core::scenario::{LinkSpec, Scenario};
use backchannel_core::telemetry::{EventLine, JitterLine, LinkLine};
use backchannel_core::{Error, ResultExt};
use serde::Deserialize;

pub use direction::DirectionAudit;
use direction::{Direction, Event, JitterEvent, Window};
use link_model::LinkModel;
use mechanisms::Mechanisms;
use records::{Ends, NoPackets, Unchecked};

/// A run whose captures are audited.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The scenario.
    pub scenario: Scenario,
    /// Interfaces and routes by name of the node.
    pub nodes: BTreeMap<String, NodePlan>,
    /// Start of the run in the captures' time stamps, in nanoseconds since the epoch.
    pub t0_epoch_ns: i64,
    /// Length of the run in seconds.
    pub duration_s: f64,
    /// Tests only: seed of the lateness that is added to the stamps of an exact run.
    #[serde(default)]
    pub lateness_seed: Option<u64>,
}

/// Audits of all links, by name of the link and the direction.
pub type Audit = BTreeMap<String, BTreeMap<String, DirectionAudit>>;

/// Audits every link of a run. `entries` are those of the mechanisms that its scenario may name.
///
/// # Errors
/// A capture or the telemetry cannot be read, or the run's parts do not fit together.
pub fn audit(run: &Run, captures: &Path, telemetry: &Path, entries: &[&'static Entry]) -> Result<Audit, Error> {
    let mechanisms = Mechanisms(entries);
    let window =
        Window { begin_ns: run.t0_epoch_ns, end_ns: run.t0_epoch_ns.saturating_add((run.duration_s * 1e9) as i64) };
    let telemetry = read_telemetry(telemetry, window.begin_ns)?;
    run.scenario
        .links
        .iter()
        .map(|link| Ok((link.name.clone(), audit_link(run, link, window, &telemetry, captures, mechanisms)?)))
        .collect()
}

/// What the links reported, in order of time.
#[derive(Default)]
struct Telemetry {
    events: Vec<Event>,
    jitter: Vec<JitterEvent>,
}

fn read_telemetry(path: &Path, begin_ns: i64) -> Result<Telemetry, Error> {
    let text = fs::read_to_string(path).or_system(path.display())?;
    let mut telemetry = Telemetry::default();
    for line in text.lines() {
        match serde_json::from_str(line).or_malformed(path.display())? {
            LinkLine::Event(EventLine { t_ns, link, direction, event: kind, bytes, pure_ack }) => {
                let (at_ns, link, direction) = (begin_ns + t_ns as i64, link.to_owned(), direction.to_owned());
                telemetry.events.push(Event { at_ns, link, direction, kind, bytes, pure_ack });
            }
            LinkLine::Jitter(JitterLine { t_ns, link, direction, jitter_ns, bytes, checksum, lost }) => {
                let (at_ns, link, direction) = (begin_ns + t_ns as i64, link.to_owned(), direction.to_owned());
                telemetry.jitter.push(JitterEvent { at_ns, link, direction, jitter_ns, bytes, checksum, lost });
            }
            LinkLine::Other(_) => {}
        }
    }
    Ok(telemetry)
}

fn audit_link(
    run: &Run,
    link: &LinkSpec,
    window: Window,
    telemetry: &Telemetry,
    captures: &Path,
    mechanisms: Mechanisms<'_>,
) -> Result<BTreeMap<String, DirectionAudit>, Error> {
    let directions = [(0, &link.forward), (1, &link.reverse)];
    let ends = link_model::why_not_audited(link)
        .map_or_else(|| both_ends(run, link, captures), |why| Err(NoPackets::Unchecked(why)));
    let [near, far] = match ends {
        Ok(mut ends) => {
            if let Some(seed) = run.lateness_seed {
                lateness::add(&mut ends, seed);
            }
            ends
        }
        Err(NoPackets::Failed(why)) => return Err(why),
        Err(NoPackets::Unchecked(why)) => {
            let unchecked = DirectionAudit { unchecked: [("all".into(), why.0)].into(), ..DirectionAudit::default() };
            return Ok(directions.map(|(port, _)| (direction_name(port), unchecked.clone())).into());
        }
    };
    let mut writes_ns: Vec<i64> = near.arriving.iter().chain(&far.arriving).map(|record| record.time_ns).collect();
    writes_ns.sort_unstable();
    Ok(directions
        .map(|(port, spec)| {
            let name = direction_name(port);
            let (entered, left) =
                if port == 0 { (&near.departing, &far.arriving) } else { (&far.departing, &near.arriving) };
            let of_this = |of_link: &str, direction: &str| of_link == link.name && direction == name;
            let Telemetry { events, jitter } = telemetry;
            let events: Vec<_> = events.iter().filter(|event| of_this(&event.link, &event.direction)).collect();
            let jitter: Vec<_> = jitter.iter().filter(|event| of_this(&event.link, &event.direction)).collect();
            let (events, jitter, writes_ns) = (&events, &jitter, &writes_ns);
            let direction = Direction { link, spec, mechanisms, window, entered, left, events, jitter, writes_ns };
            (name, audit_direction(&direction))
        })
        .into())
}

/// The captures at both ends of a link.
fn both_ends(run: &Run, link: &LinkSpec, captures: &Path) -> Result<[Ends; 2], NoPackets> {
    let mut both = Vec::new();
    for (end, node) in link.ends.iter().enumerate() {
        let plan = run.nodes.get(node).ok_or_else(|| Error::Unfit(format!("node '{node}' has no addresses")))?;
        let interface =
            plan.interfaces.iter().find(|interface| interface.link == link.name && usize::from(interface.end) == end);
        let missing = || Error::Unfit(format!("node '{node}' has no interface on link '{}'", link.name));
        let interface = interface.ok_or_else(missing)?;
        let path = captures.join(format!("{}.pcap", interface.name));
        if !path.exists() {
            return Err(NoPackets::Unchecked(Unchecked(format!("{} was not captured", interface.name))));
        }
        both.push(records::read(&path, plan, interface)?);
    }
    Ok(both.try_into().expect("the link has two ends"))
}

fn audit_direction(direction: &Direction<'_>) -> DirectionAudit {
    let model = LinkModel::declared(direction.link, direction.spec, direction.mechanisms);
    let pairs = pairs::pair(direction, model.as_ref().ok());
    let mut audit = pairs.counts(direction);
    match model {
        Err(why) => {
            for check in ["rate", "transit", "queue"] {
                audit.unchecked.insert(check.into(), why.0.clone());
            }
        }
        Ok(model) => {
            let timeline = timeline::measure(direction, &model, &pairs);
            timeline.report(&model, &mut audit);
            match queue::limit_packets(direction.link, direction.spec, &timeline) {
                Ok(limit) => queue::check(direction, limit, &pairs, &timeline, &mut audit),
                Err(why) => drop(audit.unchecked.insert("queue".into(), why.0)),
            }
        }
    }
    audit
}
