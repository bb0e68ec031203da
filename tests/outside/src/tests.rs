//! Simulations with the mechanisms of this crate.

use std::path::Path;

use backchannel_node::core::scenario::Named;
use backchannel_node::simulator::{simulate, Input};
use serde_json::{json, Value};

use crate::registry;

/// A transfer of 200 kB from a to b within 60 s over a line of 2 Mbit/s and 20 ms.
fn scenario() -> Value {
    let direction = json!({"rate_bps": 2_000_000, "delay_s": 0.02, "queue": {"name": "droptail"}});
    let host = |name: &str| json!({"name": name, "kind": "host", "stack": {"name": "newreno"}});
    json!({
        "version": 1, "seed": 1, "duration_s": 60.0, "nodes": [host("a"), host("b")],
        "links": [{
            "name": "line", "kind": "point-to-point", "ends": ["a", "b"], "forward": direction, "reverse": direction,
        }],
        "workload": [{"name": "down", "kind": "bulk", "from": "a", "to": "b", "port": 5001, "bytes": 200_000}],
        "capture": {"snaplen": 96, "at": ["none"]},
    })
}

/// The report of a scenario.
fn report(name: &str, scenario: Value) -> Value {
    simulated(name, scenario, |_| ()).0
}

/// The report of a scenario, and what `read` takes from the folder of its files.
fn simulated<T>(name: &str, scenario: Value, read: impl FnOnce(&Path) -> T) -> (Value, T) {
    let interface = |node: &str, end: u8| {
        json!({"interfaces": [{"name": node, "link": "line", "end": end, "address": format!("10.1.0.{}", end + 1)}],
               "routes": []})
    };
    let input = json!({"scenario": scenario, "nodes": {"a": interface("a", 0), "b": interface("b", 1)}});
    let input: Input = serde_json::from_value(input).expect("an input");
    let out = std::env::temp_dir().join(format!("backchannel-outside-{}-{name}", std::process::id()));
    let report = simulate(&registry(), &input, &out).expect("a simulation");
    let files = read(&out);
    std::fs::remove_dir_all(out).expect("the folder is there");
    (serde_json::to_value(report).expect("a report"), files)
}

/// When packets of at least 1000 bytes passed a's interface, in milliseconds since the first.
fn data_ms(out: &Path) -> Vec<f64> {
    let capture = std::fs::read(out.join("captures/a.pcap")).expect("a capture");
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().expect("four bytes")) as usize;
    // A header of 24 bytes, then records: seconds, nanoseconds, bytes kept, bytes of the packet.
    let next = |at: &usize| Some(at + 16 + word(at + 8)).filter(|&next| next < capture.len());
    let data = std::iter::successors(Some(24), next).filter(|&at| word(at + 12) >= 1000);
    let times: Vec<_> = data.map(|at| word(at) as f64 * 1e3 + word(at + 4) as f64 * 1e-6).collect();
    times.iter().map(|at| at - times[0]).collect()
}

/// Times between neighbours in the second half of a transfer, in order of length.
fn gaps(times: &[f64]) -> Vec<f64> {
    let mut gaps: Vec<_> = times[times.len() / 2..].windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_by(f64::total_cmp);
    gaps
}

/// What the receiver of the flow has read in bytes.
fn received(report: &Value) -> u64 {
    report["flows"]["down"]["receive"]["bytes"].as_u64().unwrap_or_else(|| panic!("{report:#}"))
}

/// Events of the direction that enters at a or at b.
fn events(report: &Value, direction: &str, kind: &str) -> u64 {
    report["driver"]["links"]["line"][direction]["events"][kind].as_u64().unwrap_or(0)
}

#[test]
fn a_policy_drops_what_it_says_and_holds_another_policy() {
    let mut scenario = scenario();
    scenario["links"][0]["forward"]["queue"] = json!({"name": "drop-nth", "options": {"every_packets": 20}});
    let report = report("policy", scenario);
    assert_eq!(received(&report), 200_000);
    assert!(events(&report, "forward", "dropped_early") >= 6, "{report:#}");
}

#[test]
fn a_policy_is_the_child_of_one_and_the_parent_of_another() {
    let mut scenario = scenario();
    let child = json!({"name": "drop-nth", "options": {"every_packets": 20, "child": {"name": "codel"}}});
    scenario["links"][0]["forward"]["queue"] = json!({"name": "ack-filtering", "options": {"child": child}});
    let report = report("child", scenario);
    assert_eq!(received(&report), 200_000);
    assert!(events(&report, "forward", "dropped_early") >= 6, "{report:#}");
}

#[test]
fn a_controller_is_a_choice_of_every_stack() {
    let config = registry().stacks.tcp().config("modern", &[("congestion".into(), "fixed-window".into())].into());
    assert!(config.expect("allowed").added_controller.is_some());
    let mut fixed = scenario();
    for node in [0, 1] {
        fixed["nodes"][node]["stack"]["options"] =
            json!({"congestion": "fixed-window", "initial_ssthresh_segments": 2});
    }
    // 20 segments and their acks fit the queue of 20, so nothing is lost, as it is in slow start of 200 kB.
    let (fixed, newreno) = (report("controller", fixed), report("newreno", scenario()));
    assert_eq!((received(&fixed), received(&newreno)), (200_000, 200_000));
    assert_eq!(events(&fixed, "forward", "dropped_full"), 0);
    assert!(events(&newreno, "forward", "dropped_full") > 0);
}

/// Packets of 1500 bytes take 6 ms on the line.
#[test]
fn a_controller_paces_at_the_delivery_rate_that_it_samples() {
    let transfer = |congestion: &str| {
        let mut scenario = scenario();
        scenario["workload"][0]["bytes"] = 2_000_000.into();
        scenario["capture"]["at"] = json!(["a:line"]);
        scenario["nodes"][0]["stack"]["options"] = json!({"congestion": congestion, "sack": true});
        scenario["nodes"][1]["stack"]["options"] = json!({"sack": true});
        let (report, (times, window)) = simulated(&format!("paced-{congestion}"), scenario, |out| {
            let telemetry = std::fs::read_to_string(out.join("telemetry/down.jsonl")).expect("telemetry");
            let samples = telemetry.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            (data_ms(out), samples.filter_map(|sample| sample["cwnd_segments"].as_f64()).next_back().expect("samples"))
        });
        assert_eq!(received(&report), 2_000_000, "{congestion}");
        (times, window, events(&report, "forward", "dropped_full"))
    };
    let (times, window, dropped) = transfer("delivery-rate");
    let paced = gaps(&times);
    // The window is twice the sampled rate times the least round trip: 40 ms of delay, 6 ms for a packet, 0.2 ms for
    // its ack.
    let rate = window / 2.0 / 46.2;
    assert!((rate * 6.0 - 1.0).abs() < 0.05, "{rate} segments a ms");
    assert!(paced[0] > 5.4 && paced[paced.len() - 1] < 6.6, "{} to {} ms", paced[0], paced[paced.len() - 1]);
    let total = times[times.len() - 1];
    assert!(total < 1.1 * 6.0 * times.len() as f64, "{} packets in {total} ms", times.len());
    let (times, _, dropped_by_newreno) = transfer("newreno");
    assert!(gaps(&times)[0] < 0.1, "without a rate, an ack for two segments lets two go at once");
    assert!(dropped < dropped_by_newreno, "{dropped} of {dropped_by_newreno}");
}

#[test]
fn a_link_carries_in_its_own_way() {
    let mut scenario = scenario();
    let direction = json!({"delay_s": 0.1, "queue": {"name": "drop-nth", "options": {"every_packets": 1000}}});
    scenario["links"][0] = json!({
        "name": "line", "kind": "pigeon", "ends": ["a", "b"], "forward": direction, "reverse": direction,
        "options": {"interval_s": 1.0, "load_packets": 15},
    });
    let read = received(&report("link", scenario));
    // 60 pigeons carry 15 packets each at most.
    assert!(read > 20_000 && read <= 60 * 15 * 1500, "{read}");
}

#[test]
fn an_error_model_loses_what_it_says() {
    let mut scenario = scenario();
    scenario["links"][0]["forward"]["errors"] = json!([{"name": "sunset", "options": {"at_s": 0.5}}]);
    let report = report("errors", scenario);
    assert!(received(&report) < 200_000 && events(&report, "forward", "lost") > 0, "{report:#}");
}

#[test]
fn a_middlebox_treats_every_packet() {
    let mut scenario = scenario();
    // A window of one segment would wait for an ack that does not pass.
    for node in [0, 1] {
        scenario["nodes"][node]["stack"]["name"] = "modern".into();
    }
    scenario["links"][0]["middleboxes"] = json!([{"name": "thin-acks", "end": 1}]);
    let report = report("middlebox", scenario);
    assert_eq!(received(&report), 200_000);
    assert!(events(&report, "reverse", "purged") > 30, "{report:#}");
}

#[test]
fn a_workload_sends_when_it_says() {
    let mut scenario = scenario();
    scenario["duration_s"] = 19.9.into();
    let options = json!({"interval_s": 5.0});
    scenario["workload"][0] =
        json!({"name": "down", "kind": "steps", "from": "a", "to": "b", "port": 5001, "options": options});
    // At 0, 5, 10 and 15 s.
    assert_eq!(received(&report("workload", scenario)), 10_000 + 20_000 + 30_000 + 40_000);
}

#[test]
fn a_name_that_nothing_has_is_reported_with_those_that_exist() {
    let named = |name: &str| Named { name: name.into(), options: Default::default() };
    let registry = registry();
    let policy = |name: &str| registry.policies.checked(&named(name).name, &Default::default()).err();
    assert_eq!(policy("drop-nth"), None);
    assert!(policy("drop-mth")
        .is_some_and(|why| why.to_string().contains("drop-nth") && why.to_string().contains("droptail")));
}

#[test]
#[should_panic(expected = "duplicate queue policy 'droptail'")]
fn a_name_that_exists_is_not_taken_twice() {
    use backchannel_node::core::registry::{Entry, Queueing};
    static SECOND: Entry = Entry::policy("droptail", "another", Queueing::FIFO);
    let _ = registry().policy(&SECOND, crate::drop_nth::build);
}
