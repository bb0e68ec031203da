//! The audit's measurements of faults that the simulator injects, and of healthy lines.

use std::path::PathBuf;

use backchannel_audit::{audit, DirectionAudit, Run};
use backchannel_links::{Fault, FaultKind, Registry};
use backchannel_simulator::{simulate, Input};
use serde_json::{json, Value};

const DURATION_S: f64 = 20.0;
/// Healthy runs of other kinds of lines.
const RUNS: u64 = 100;

/// Two hosts on a line of 10 Mbit/s and 10 ms with queues of 50 packets, and a download.
fn scenario(seed: u64) -> Value {
    let direction = json!({"rate_bps": 10_000_000, "delay_s": 0.01, "queue": {"name": "droptail", "options": {"limit_packets": 50}}});
    let stack = json!({"name": "newreno", "options": {}});
    let host = |name: &str| json!({"name": name, "kind": "host", "stack": stack});
    json!({
        "version": 1, "seed": seed, "duration_s": DURATION_S, "nodes": [host("a"), host("b")],
        "links": [{
            "name": "line", "kind": "point-to-point", "ends": ["a", "b"], "forward": direction, "reverse": direction,
            "options": {},
        }],
        "workload": [
            {"name": "down", "kind": "bulk", "from": "a", "to": "b", "start_s": 0.1, "port": 5001},
        ],
        "capture": {"snaplen": 128},
    })
}

fn nodes() -> Value {
    let node = |name: &str, end: u8| {
        let interface = json!({
            "name": format!("{name}-eth0"), "link": "line", "end": end, "address": format!("10.1.0.{}", end + 1),
        });
        json!({"interfaces": [interface], "routes": []})
    };
    json!({"a": node("a", 0), "b": node("b", 1)})
}

/// The scenario with jitter, which may let packets overtake each other.
fn with_jitter(seed: u64, jitter_s: f64, keep_order: bool) -> Value {
    let mut made = scenario(seed);
    made["duration_s"] = 8.0.into();
    made["links"][0]["forward"]["jitter_s"] = jitter_s.into();
    made["links"][0]["forward"]["keep_order"] = keep_order.into();
    made
}

/// Simulates the scenario and audits its forward direction against the limit `declared_packets` of its queue.
fn audited(
    name: &str,
    seed: u64,
    fault: Option<FaultKind>,
    lateness_seed: Option<u64>,
    declared_packets: u64,
) -> DirectionAudit {
    let built = scenario(seed);
    let mut declared = built.clone();
    declared["links"][0]["forward"]["queue"]["options"]["limit_packets"] = declared_packets.into();
    audited_as(name, &built, &declared, fault, lateness_seed)
}

/// Simulates one scenario and audits its forward direction against another.
fn audited_as(
    name: &str,
    built: &Value,
    declared: &Value,
    fault: Option<FaultKind>,
    lateness_seed: Option<u64>,
) -> DirectionAudit {
    let out: PathBuf = std::env::temp_dir().join(format!("backchannel-audit-{}-{name}", std::process::id()));
    let fault = fault.map(|kind| Fault { link: "line".into(), kind });
    let input = json!({"scenario": built, "nodes": nodes(), "fault": fault});
    let registry = Registry::builtin();
    let input: Input = serde_json::from_value(input).expect("an input");
    simulate(&registry, &input, &out).expect("a simulation");
    let run = json!({
        "scenario": declared, "nodes": nodes(), "t0_epoch_ns": 1_000_000_000_000_000_000i64,
        "duration_s": declared["duration_s"], "lateness_seed": lateness_seed,
    });
    let run: Run = serde_json::from_value(run).expect("a run");
    let all =
        audit(&run, &out.join("captures"), &out.join("telemetry/links.jsonl"), &registry.entries()).expect("an audit");
    std::fs::remove_dir_all(out).expect("the folder is there");
    all["line"]["forward"].clone()
}

fn faulty(name: &str, kind: FaultKind) -> DirectionAudit {
    audited(name, 1, Some(kind), Some(7), 50)
}

fn close(value: Option<f64>, expected: f64, within: f64) {
    assert!(value.is_some_and(|value| (value - expected).abs() <= within), "{value:?} is not {expected} ± {within}");
}

#[test]
fn an_exact_line_has_no_deviation() {
    let exact = audited("exact", 1, None, None, 50);
    assert_eq!(exact.swallowed_packets + exact.invented_packets + exact.reordered_packets + exact.changed_packets, 0);
    close(exact.rate_error, 0.0, 1e-6);
    assert!(exact.rate_measured_s > 10.0, "{exact:?}");
    assert_eq!(exact.least_excess_s, Some(0.0));
    close(exact.lateness_s.max, 0.0, 1e-6);
    assert!(exact.drops_checked > 5 && exact.drops_beyond_limit + exact.drops_before_limit == 0, "{exact:?}");
    assert_eq!(exact.unchecked.len(), 0);
}

#[test]
fn healthy_lines_with_a_late_driver_stay_within_the_limits() {
    for seed in 0..20 {
        let healthy = audited("healthy", seed, None, Some(seed), 50);
        close(healthy.rate_error, 0.0, 0.002);
        assert!((0.0..1e-4).contains(&healthy.least_excess_s.unwrap()), "{healthy:?}");
        assert_eq!(healthy.swallowed_packets + healthy.invented_packets + healthy.reordered_packets, 0);
        assert_eq!(healthy.drops_beyond_limit + healthy.drops_before_limit, 0, "{healthy:?}");
    }
}

#[test]
fn healthy_lines_of_other_rates_and_policies_stay_within_the_limits() {
    let policies = ["droptail", "red", "codel", "acks-first", "ack-filtering", "fq-drr"];
    let rates_bps = [28_800, 128_000, 1_000_000, 5_000_000];
    for seed in 0..RUNS {
        let number = seed as usize;
        let mut made = scenario(seed);
        made["duration_s"] = 8.0.into();
        let direction = &mut made["links"][0]["forward"];
        direction["rate_bps"] = rates_bps[number % 4].into();
        direction["queue"] =
            json!({"name": policies[number / 4 % 6], "options": {"limit_packets": 10 + 10 * (number % 5)}});
        if number.is_multiple_of(7) {
            direction["errors"] = json!([{"name": "uniform", "options": {"probability": 0.005, "effect": "lose"}}]);
        }
        made["links"][0]["reverse"] = made["links"][0]["forward"].clone();
        let healthy = audited_as("kinds", &made, &made, None, Some(seed));
        let wrong = healthy.swallowed_packets + healthy.invented_packets + healthy.reordered_packets;
        assert_eq!(wrong, 0, "{seed}: {healthy:?}");
        assert!(healthy.rate_error.is_none_or(|error| error.abs() < 0.005), "{seed}: {healthy:?}");
        assert!(healthy.least_excess_s.is_none_or(|least_s| (-1e-4..2e-4).contains(&least_s)), "{seed}: {healthy:?}");
        let wrong_drops = healthy.drops_beyond_limit.max(healthy.drops_before_limit);
        assert!(wrong_drops * 10 <= healthy.drops_checked, "{seed}: {healthy:?}");
    }
}

#[test]
fn healthy_lines_with_jitter_stay_within_the_limits() {
    for seed in 0..24 {
        let number = seed as usize;
        let mut made = with_jitter(seed, [0.0002, 0.003, 0.01][number % 3], number.is_multiple_of(2));
        made["links"][0]["reverse"] = made["links"][0]["forward"].clone();
        let direction = &mut made["links"][0]["forward"];
        direction["rate_bps"] = [128_000, 1_000_000, 5_000_000, 10_000_000][number / 3 % 4].into();
        match number / 6 % 4 {
            1 => direction["errors"] = json!([{"name": "uniform", "options": {"probability": 0.01, "effect": "lose"}}]),
            2 => {
                direction["errors"] = json!([{"name": "uniform", "options": {"probability": 0.01, "effect": "damage"}}])
            }
            3 => direction["queue"] = json!({"name": "fq-drr", "options": {"limit_packets": 30}}),
            _ => {}
        }
        let healthy = audited_as("jitter", &made, &made, None, Some(seed));
        let wrong = healthy.swallowed_packets + healthy.invented_packets + healthy.reordered_packets;
        assert_eq!(wrong + healthy.jitter_unexplained_packets, 0, "{seed}: {healthy:?}");
        assert!(healthy.rate_error.is_none_or(|error| error.abs() < 0.005), "{seed}: {healthy:?}");
        assert!(healthy.least_excess_s.is_none_or(|least_s| (-1e-4..2e-4).contains(&least_s)), "{seed}: {healthy:?}");
        assert!(healthy.lateness_s.max.is_some_and(|late_s| late_s < 0.03), "{seed}: {healthy:?}");
        assert_eq!(healthy.drops_beyond_limit + healthy.drops_before_limit, 0, "{seed}: {healthy:?}");
    }
}

#[test]
fn faults_of_a_line_with_jitter_show_as_those_of_any_other() {
    let made = with_jitter(1, 0.004, false);
    let faulty = |name: &str, kind: FaultKind| audited_as(name, &made, &made, Some(kind), Some(7));
    close(faulty("jitter-delay", FaultKind::DelayS(0.0003)).least_excess_s, 0.0003, 5e-5);
    close(faulty("jitter-short", FaultKind::DelayS(-0.0003)).least_excess_s, -0.0003, 5e-5);
    // TCP keeps a line busy whose packets do not overtake each other.
    let kept = with_jitter(1, 0.004, true);
    let slow = audited_as("jitter-slow", &kept, &kept, Some(FaultKind::RateFactor(0.99)), Some(7));
    close(slow.rate_error, -0.01, 0.002);
    let reordered = faulty("jitter-reorder", FaultKind::ReorderEvery(97));
    assert!(reordered.reordered_packets > 5, "{reordered:?}");
    let swallowed = faulty("jitter-swallow", FaultKind::SwallowEvery(97));
    assert!(swallowed.swallowed_packets > 5, "{swallowed:?}");
    let wider = faulty("jitter-wider", FaultKind::JitterS(0.001));
    assert!(wider.jitter_unexplained_packets * 10 > wider.left_packets, "{wider:?}");
    // A line that declares none, and has it all the same, reports what nothing explains to nobody.
    let declared = with_jitter(1, 0.0, false);
    let undeclared = audited_as("jitter-undeclared", &made, &declared, None, Some(7));
    assert!(undeclared.reordered_packets > 100 && undeclared.least_excess_s.unwrap() < -0.001, "{undeclared:?}");
}

#[test]
fn a_slow_and_a_fast_line_are_measured() {
    close(faulty("slow", FaultKind::RateFactor(0.994)).rate_error, -0.006, 0.001);
    close(faulty("fast", FaultKind::RateFactor(1.01)).rate_error, 0.01, 0.001);
}

#[test]
fn a_line_that_stands_still_is_late() {
    let stalled = faulty("stall", FaultKind::Stall { at_s: 8.0, length_s: 0.1 });
    close(stalled.lateness_s.max, 0.1, 0.03);
}

#[test]
fn wrong_framing_shows_as_bytes_of_each_packet() {
    close(faulty("framing", FaultKind::FramingBytes(18)).rate_error_bytes, 18.0, 4.0);
}

#[test]
fn another_delay_shows_in_the_least_transit_time() {
    close(faulty("delay", FaultKind::DelayS(0.0003)).least_excess_s, 0.0003, 5e-5);
    close(faulty("short", FaultKind::DelayS(-0.0003)).least_excess_s, -0.0003, 5e-5);
}

#[test]
fn a_queue_of_another_length_than_declared_shows_at_its_drops() {
    let longer = faulty("longer", FaultKind::QueuePackets(1));
    assert!(longer.drops_beyond_limit * 2 > longer.drops_checked && longer.drops_checked > 5, "{longer:?}");
    let shorter = audited("shorter", 1, None, Some(7), 51);
    assert!(shorter.drops_before_limit * 2 > shorter.drops_checked && shorter.drops_checked > 5, "{shorter:?}");
}

#[test]
fn lost_repeated_and_overtaken_packets_are_counted() {
    let swallowed = faulty("swallow", FaultKind::SwallowEvery(997));
    assert_eq!(swallowed.swallowed_packets, (swallowed.left_packets + swallowed.swallowed_packets) / 997);
    assert!(swallowed.swallowed_packets > 5, "{swallowed:?}");
    let duplicated = faulty("duplicate", FaultKind::DuplicateEvery(997));
    assert_eq!(duplicated.invented_packets, duplicated.left_packets / 997);
    let reordered = faulty("reorder", FaultKind::ReorderEvery(997));
    assert!(reordered.reordered_packets > 5, "{reordered:?}");
    assert_eq!(duplicated.swallowed_packets + reordered.swallowed_packets, 0);
}

#[test]
fn a_packet_that_its_policy_lets_wait_for_ever_is_not_swallowed() {
    let mut made = scenario(1);
    made["links"][0]["forward"] =
        json!({"rate_bps": 28_800, "delay_s": 0.01, "queue": {"name": "acks-first", "options": {"limit_packets": 10}}});
    // The acks of the download fill the slow line from the start, so the upload's packets never leave.
    made["workload"] = json!([
        {"name": "down", "kind": "bulk", "from": "b", "to": "a", "start_s": 0.0, "port": 5001},
        {"name": "up", "kind": "bulk", "from": "a", "to": "b", "start_s": 1.0, "port": 5002},
    ]);
    let starved = audited_as("starved", &made, &made, None, None);
    assert!(starved.entered_packets > starved.left_packets + 10, "{starved:?}");
    assert_eq!(starved.swallowed_packets, 0, "{starved:?}");
}
