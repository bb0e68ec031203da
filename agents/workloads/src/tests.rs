//! What each workload sends, and when.

use backchannel_core::scenario::Flow;
use backchannel_core::time::Time;

use crate::{builtin, Action, Application, Transaction};

fn flow(json: &str) -> Flow {
    serde_json::from_str(json).unwrap()
}

fn actions(application: &mut Application, until: f64) -> Vec<(f64, Action)> {
    let (mut now, mut done) = (Time::ZERO, Vec::new());
    while now <= Time::from_seconds(until) {
        let (action, next) = application.act(now);
        done.push((now.nanos() as f64 / 1e9, action));
        let Some(next) = next else { break };
        now = next;
    }
    done
}

#[test]
fn cbr_sends_its_rate() {
    let of = flow(r#"{"name":"u","kind":"cbr","from":"a","to":"b","port":9,"options":{"rate_bps":448000}}"#);
    let sent = actions(&mut Application::new(&builtin(), &of, 1).unwrap(), 9.9999).len();
    // 210 bytes every 3.75 ms.
    assert_eq!(sent, 2667);
}

#[test]
fn on_off_writes_half_of_the_time() {
    let of = flow(r#"{"name":"o","kind":"on-off","from":"a","to":"b","port":9}"#);
    let done = actions(&mut Application::new(&builtin(), &of, 1).unwrap(), 2000.0);
    assert_eq!(done[0].1, Action::Connect { bytes: None, silent: true });
    let written: u64 = done.iter().map(|(_, action)| if let Action::Write(n) = action { *n } else { 0 }).sum();
    let rate = written as f64 * 8.0 / 2000.0;
    assert!((30e3..35e3).contains(&rate), "{rate}");
}

#[test]
fn an_established_connection_is_opened_before_its_start() {
    let of = flow(r#"{"name":"e","kind":"established","from":"a","to":"b","port":9,"start_s":5.5,"bytes":7}"#);
    let mut application = Application::new(&builtin(), &of, 1).unwrap();
    let first = application.first(Time::from_seconds(5.5));
    assert_eq!(first, Time::ZERO);
    let (action, next) = application.act(first);
    assert_eq!((action, next), (Action::Connect { bytes: None, silent: true }, Some(Time::from_seconds(5.5))));
    assert_eq!(application.act(Time::from_seconds(5.5)), (Action::Write(7), None));
    let late = r#"{"name":"e","kind":"established","from":"a","to":"b","port":9,"options":{"opened_s":1}}"#;
    assert!(Application::new(&builtin(), &flow(late), 1).unwrap_err().to_string().contains("after its start"));
}

#[test]
fn web_transfers_have_the_mean_distance_and_the_least_size_of_their_distribution() {
    let of = flow(r#"{"name":"w","kind":"web","from":"a","to":"b","port":9}"#);
    let done = actions(&mut Application::new(&builtin(), &of, 1).unwrap(), 3000.0);
    assert!((2800..3200).contains(&done.len()), "{}", done.len());
    let least = 30_000.0 * 0.3 / 1.3;
    for (_, action) in done {
        let Action::Connect { bytes: Some(bytes), silent: false } = action else { panic!("{action:?}") };
        assert!(bytes as f64 >= least);
    }
}

#[test]
fn a_fetch_asks_and_then_shares_its_bytes() {
    let of = flow(r#"{"name":"f","kind":"fetch","from":"a","to":"b","port":9,"bytes":40001}"#);
    let mut application = Application::new(&builtin(), &of, 1).unwrap();
    assert_eq!(application.act(Time::ZERO), (Action::Request(500), None));
    let shares: Vec<_> = actions(&mut application, 1.0).into_iter().map(|(_, action)| action).collect();
    let share = |bytes| Action::Connect { bytes: Some(bytes), silent: false };
    assert_eq!(shares, [share(10_000), share(10_000), share(10_000), share(10_001)]);
    let endless = flow(r#"{"name":"f","kind":"fetch","from":"a","to":"b","port":9}"#);
    assert!(Application::new(&builtin(), &endless, 1).unwrap_err().to_string().contains("needs a size"));
}

#[test]
fn an_unknown_workload_and_a_wrong_option_are_refused() {
    let why = Application::new(&builtin(), &flow(r#"{"name":"x","kind":"cbd","from":"a","to":"b","port":9}"#), 1)
        .unwrap_err()
        .to_string();
    assert!(why.contains("allowed: cbr, bulk, call"), "{why}");
    let why = Application::new(&builtin(), &flow(r#"{"name":"x","kind":"cbr","from":"a","to":"b","port":9}"#), 1)
        .unwrap_err()
        .to_string();
    assert!(why.contains("'rate_bps' must be given"), "{why}");
}

#[test]
fn a_call_sends_its_codecs_frames() {
    let call = |options: &str| {
        let json = format!(r#"{{"name":"c","kind":"call","from":"a","to":"b","port":9,"options":{options}}}"#);
        actions(&mut Application::new(&builtin(), &flow(&json), 1).unwrap(), 0.9999)
    };
    // RFC 3551: 160 bytes of PCM in 20 ms, 20 of G.729; 40 bytes of IP, UDP and RTP.
    let pcm = call("{}");
    assert_eq!((pcm.len(), pcm[1]), (50, (0.02, Action::Datagram { length: 200, frame: None })));
    let g729 = call(r#"{"codec":"g729","frame_s":0.04}"#);
    assert_eq!((g729.len(), g729[1]), (25, (0.04, Action::Datagram { length: 80, frame: None })));
}

#[test]
fn a_probe_is_echoed_and_a_call_is_not() {
    let of = |kind: &str| {
        let json = format!(r#"{{"name":"p","kind":"{kind}","from":"a","to":"b","port":9}}"#);
        Application::new(&builtin(), &flow(&json), 1).unwrap()
    };
    assert!(of("probe").is_echoed() && of("probe").is_datagrams() && of("call").is_datagrams());
    assert!(!of("call").is_echoed() && !of("web").is_datagrams());
    let icmp = r#"{"name":"p","kind":"probe","from":"a","to":"b","port":9,"options":{"protocol":"icmp"}}"#;
    let icmp = Application::new(&builtin(), &flow(icmp), 1).unwrap();
    assert!(icmp.is_icmp() && icmp.is_echoed() && icmp.is_datagrams() && !of("probe").is_icmp());
    let sent = actions(&mut of("probe"), 0.99);
    assert_eq!((sent.len(), sent[19]), (20, (0.95, Action::Datagram { length: 64, frame: None })));
}

#[test]
fn the_next_request_follows_the_response_and_the_thinking() {
    let of = |think: &str| {
        let options = format!(r#"{{"request_bytes":7,"response_bytes":9,"think_s":{think}}}"#);
        let json = format!(r#"{{"name":"t","kind":"transactions","from":"a","to":"b","port":9,"options":{options}}}"#);
        Application::new(&builtin(), &flow(&json), 1).unwrap()
    };
    let mut at_once = of("0");
    let (opened, next) = at_once.act(Time::ZERO);
    assert_eq!((opened, next), (Action::Connect { bytes: None, silent: true }, Some(Time::ZERO)));
    assert_eq!(at_once.act(Time::ZERO), (Action::Write(7), None));
    assert_eq!(at_once.transaction(), Some(Transaction { request: 7, response: 9 }));
    let at = Time::from_seconds(2.0);
    assert_eq!(at_once.on_response(at), at);
    let mut thinks = of("0.5");
    let waits: Vec<_> = (0..4000).map(|_| thinks.on_response(at).since(at).as_secs_f64()).collect();
    let mean = waits.iter().sum::<f64>() / 4000.0;
    assert!((0.47..0.53).contains(&mean), "{mean}");
}

#[test]
fn transfers_have_the_sizes_and_distances_that_are_asked_for() {
    let of = |options: &str| {
        let json = format!(r#"{{"name":"t","kind":"transfers","from":"a","to":"b","port":9,"options":{options}}}"#);
        actions(&mut Application::new(&builtin(), &flow(&json), 1).unwrap(), 2000.0)
    };
    let size = |action: &Action| match action {
        Action::Connect { bytes: Some(bytes), silent: false } => *bytes,
        other => panic!("{other:?}"),
    };
    let constant = of(r#"{"arrivals":"constant","sizes":"constant","mean_bytes":5000,"distance_s":2}"#);
    assert_eq!(constant.len(), 1001);
    assert!(constant.iter().all(|(at, action)| at % 2.0 == 0.0 && size(action) == 5000));
    let drawn = of(r#"{"sizes":"exponential","mean_bytes":5000}"#);
    assert!((1850..2150).contains(&drawn.len()), "{}", drawn.len());
    let mean = drawn.iter().map(|(_, action)| size(action)).sum::<u64>() as f64 / drawn.len() as f64;
    assert!((4600.0..5400.0).contains(&mean), "{mean}");
    // A third of an exponential distribution is longer than its mean; of Pareto's sizes none is below the least.
    let long = drawn.iter().filter(|(_, action)| size(action) > 5000).count() as f64 / drawn.len() as f64;
    assert!((0.33..0.41).contains(&long), "{long}");
    let least = (30_000.0f64 * 0.3 / 1.3).floor() as u64;
    assert!(of("{}").iter().all(|(_, action)| size(action) >= least));
}
