//! The application of a flow.

use std::time::Duration;

use backchannel_core::ip::IpVersion;
use backchannel_core::registry::CheckedOptions;
use backchannel_core::rng::{self, RunRng};
use backchannel_core::scenario::Flow;
use backchannel_core::time::{service_time, Time};

use crate::entries::WORKLOADS;
use crate::video::Video;

/// More bytes than any run can carry.
const ENDLESS: u64 = 1 << 60;

/// What an application does next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Open a connection.
    Connect {
        /// To send before it closes; `None`: it sends without end.
        bytes: Option<u64>,
        /// It sends only what [`Action::Write`] adds.
        silent: bool,
    },
    /// The receiver sends a request of this many bytes.
    Request(u64),
    /// Write this many bytes to the latest connection.
    Write(u64),
    /// Send a packet without a connection.
    Datagram {
        /// Headers included.
        length: u32,
        /// Number of the video frame that it is part of, from 0.
        frame: Option<u64>,
    },
    /// Nothing.
    Pause,
}

/// A request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Bytes from the sender to the receiver.
    pub request: u64,
    /// Bytes back.
    pub response: u64,
}

/// Distribution of sizes or times.
#[derive(Clone, Copy, Debug)]
enum Law {
    Constant,
    Exponential,
    Pareto { shape: f64 },
}

impl Law {
    fn named(name: Option<&str>, shape: f64) -> Law {
        match name {
            Some("exponential") => Law::Exponential,
            Some("pareto") => Law::Pareto { shape },
            _ => Law::Constant,
        }
    }

    fn draw(self, rng: &mut RunRng, mean: f64) -> f64 {
        match self {
            Law::Constant => mean,
            Law::Exponential => rng::exponential(rng, mean),
            Law::Pareto { shape } => rng::pareto(rng, mean, shape),
        }
    }
}

/// The application of one flow.
#[derive(Debug)]
pub struct Application(Kind);

#[derive(Debug)]
enum Kind {
    Bulk {
        bytes: Option<u64>,
    },
    /// `cbr`, `probe` and `call`.
    Datagrams {
        every: Duration,
        packet_bytes: u32,
        echoed: bool,
        icmp: bool,
    },
    Video(Video),
    OnOff {
        on_s: f64,
        off_s: f64,
        every: Duration,
        write_bytes: u64,
        rng: RunRng,
        until: Option<Time>,
        connected: bool,
    },
    Established {
        opened: Time,
        start: Time,
        bytes: Option<u64>,
        connected: bool,
    },
    Fetch {
        request: u64,
        bytes: u64,
        connections: u64,
        /// Connections opened. `None` until the request is sent.
        opened: Option<u64>,
    },
    Web {
        distance_s: f64,
        mean_bytes: f64,
        shape: f64,
        rng: RunRng,
    },
    Transactions {
        each: Transaction,
        think_s: f64,
        rng: RunRng,
        connected: bool,
    },
    Transfers {
        arrivals: Law,
        distance_s: f64,
        sizes: Law,
        mean_bytes: f64,
        rng: RunRng,
    },
}

/// Header of UDP, and of an ICMP echo.
const UDP_HEADER: u32 = 8;
/// Fixed header of RTP (RFC 3550 5.1).
const RTP_HEADER: u32 = 12;

/// Bytes of the headers of a packet without a connection: IP, and UDP or ICMP echo.
pub const fn datagram_header_bytes(ip: IpVersion) -> u32 {
    ip.header_bytes() + UDP_HEADER
}

impl Application {
    /// # Errors
    /// There is no such workload, or the options do not fit it.
    pub fn new(flow: &Flow, seed: u64) -> Result<Application, String> {
        Kind::new(flow, seed).map(Application)
    }

    /// Whether it sends packets without a connection: UDP, or ICMP echo requests.
    pub fn is_datagrams(&self) -> bool {
        matches!(self.0, Kind::Datagrams { .. } | Kind::Video(_))
    }

    /// Whether its packets are ICMP echo requests, with the flow's port as identifier, which the receiver's network stack
    /// answers.
    pub fn is_icmp(&self) -> bool {
        matches!(self.0, Kind::Datagrams { icmp: true, .. })
    }

    /// Whether the receiver returns every packet.
    pub fn is_echoed(&self) -> bool {
        matches!(self.0, Kind::Datagrams { echoed: true, .. })
    }

    /// Whether its exchanges are recorded (core::exchange): packets, finite transfers or transactions.
    pub fn is_recorded(&self) -> bool {
        !matches!(self.0, Kind::Bulk { .. } | Kind::Established { .. } | Kind::OnOff { .. })
    }

    /// Whether each of its connections carries one recorded transfer.
    pub fn is_transfers(&self) -> bool {
        matches!(self.0, Kind::Fetch { .. } | Kind::Transfers { .. } | Kind::Web { .. })
    }

    /// The transaction that it repeats. The receiver answers each request on its connection. Once a response has
    /// arrived, [`Application::on_response`] gives the time of the next request.
    pub fn transaction(&self) -> Option<Transaction> {
        match self.0 {
            Kind::Transactions { each, .. } => Some(each),
            _ => None,
        }
    }

    /// When [`Application::act`] is due after a response that arrived at `now`.
    pub fn on_response(&mut self, now: Time) -> Time {
        match &mut self.0 {
            Kind::Transactions { think_s, rng, .. } if *think_s > 0.0 => {
                now + Duration::from_secs_f64(rng::exponential(rng, *think_s))
            }
            _ => now,
        }
    }

    /// Bytes of the request that the receiver sends. [`Application::act`] is called once they have arrived.
    pub fn request_bytes(&self) -> Option<u64> {
        match self.0 {
            Kind::Fetch { request, .. } => Some(request),
            _ => None,
        }
    }

    /// When [`Application::act`] is due first; `start` is the flow's.
    pub fn first(&self, start: Time) -> Time {
        match self.0 {
            Kind::Established { opened, .. } => opened,
            _ => start,
        }
    }

    /// What it does at `now`, and when it acts next.
    pub fn act(&mut self, now: Time) -> (Action, Option<Time>) {
        match &mut self.0 {
            Kind::Bulk { bytes } => (Action::Connect { bytes: *bytes, silent: false }, None),
            Kind::Established { start, bytes, connected, .. } => {
                if std::mem::replace(connected, true) {
                    (Action::Write(bytes.unwrap_or(ENDLESS)), None)
                } else {
                    (Action::Connect { bytes: None, silent: true }, Some(*start))
                }
            }
            Kind::Datagrams { every, packet_bytes, .. } => {
                (Action::Datagram { length: *packet_bytes, frame: None }, Some(now + *every))
            }
            Kind::Video(video) => {
                let (length, frame, next) = video.next_packet(now);
                (Action::Datagram { length, frame: Some(frame) }, Some(next))
            }
            Kind::Fetch { request, bytes, connections, opened } => {
                let Some(done) = opened else {
                    *opened = Some(0);
                    return (Action::Request(*request), None);
                };
                if done == connections {
                    return (Action::Pause, None);
                }
                let share = *bytes * (*done + 1) / *connections - *bytes * *done / *connections;
                *done += 1;
                (Action::Connect { bytes: Some(share), silent: false }, (done < connections).then_some(now))
            }
            Kind::Web { distance_s, mean_bytes, shape, rng } => {
                let bytes = rng::pareto(rng, *mean_bytes, *shape).ceil() as u64;
                let wait = Duration::from_secs_f64(rng::exponential(rng, *distance_s));
                (Action::Connect { bytes: Some(bytes), silent: false }, Some(now + wait))
            }
            Kind::Transactions { each, connected, .. } => {
                if std::mem::replace(connected, true) {
                    (Action::Write(each.request), None)
                } else {
                    (Action::Connect { bytes: None, silent: true }, Some(now))
                }
            }
            Kind::Transfers { arrivals, distance_s, sizes, mean_bytes, rng } => {
                let bytes = (sizes.draw(rng, *mean_bytes).ceil() as u64).max(1);
                let wait = Duration::from_secs_f64(arrivals.draw(rng, *distance_s));
                (Action::Connect { bytes: Some(bytes), silent: false }, Some(now + wait))
            }
            Kind::OnOff { on_s, off_s, every, write_bytes, rng, until, connected } => {
                if !*connected {
                    *connected = true;
                    return (Action::Connect { bytes: None, silent: true }, Some(now));
                }
                let ends = *until.get_or_insert_with(|| now + Duration::from_secs_f64(rng::exponential(rng, *on_s)));
                if now < ends {
                    return (Action::Write(*write_bytes), Some(now + *every));
                }
                *until = None;
                (Action::Pause, Some(now + Duration::from_secs_f64(rng::exponential(rng, *off_s))))
            }
        }
    }
}

impl Kind {
    fn new(flow: &Flow, seed: u64) -> Result<Kind, String> {
        let wrong = |why: String| format!("flow '{}': {why}", flow.name);
        if flow.kind == "bulk" {
            return Ok(Kind::Bulk { bytes: flow.bytes });
        }
        let entry = WORKLOADS.iter().find(|entry| entry.name == flow.kind).ok_or_else(|| {
            let names: Vec<_> = WORKLOADS.iter().map(|entry| entry.name).collect();
            wrong(format!("there is no workload '{}'; there are: bulk, {}", flow.kind, names.join(", ")))
        })?;
        let checked = CheckedOptions::check(entry, &flow.options).map_err(wrong)?;
        let number = |name| checked.number(name).expect("validated: it has a default or is required");
        let spacing = |bytes: f64| service_time(bytes as u64 * 8, number("rate_bps") as u64);
        let rng = rng::stream(seed, &format!("workload/{}", flow.name));
        let headers = datagram_header_bytes(flow.ip);
        let datagram_bytes = |bytes: f64| {
            if bytes as u32 <= headers {
                let (version, bytes) = (u8::from(flow.ip), bytes as u32);
                return Err(wrong(format!(
                    "packet_bytes is {bytes}, and must be more than {headers} over IPv{version}"
                )));
            }
            Ok(bytes as u32)
        };
        Ok(match flow.kind.as_str() {
            "command" => {
                let why = "a command needs real packets: use emulated, virtual-kernel or physical";
                return Err(wrong(why.into()));
            }
            "cbr" => {
                let bytes = number("packet_bytes");
                Kind::Datagrams {
                    every: spacing(bytes),
                    packet_bytes: datagram_bytes(bytes)?,
                    echoed: false,
                    icmp: false,
                }
            }
            "on-off" => {
                let bytes = number("write_bytes");
                let (every, write_bytes) = (spacing(bytes), bytes as u64);
                let (on_s, off_s) = (number("on_s"), number("off_s"));
                Kind::OnOff { on_s, off_s, every, write_bytes, rng, until: None, connected: false }
            }
            "established" => {
                let (opened, start) = (Time::from_seconds(number("opened_s")), Time::from_seconds(flow.start_s));
                if opened > start {
                    return Err(wrong(format!("it is opened at {opened}, after its start at {start}")));
                }
                Kind::Established { opened, start, bytes: flow.bytes, connected: false }
            }
            "fetch" => {
                let bytes =
                    flow.bytes.ok_or_else(|| wrong("a fetch needs a size: the bytes that are requested".into()))?;
                let (request, connections) = (number("request_bytes") as u64, number("connections") as u64);
                if connections > bytes {
                    return Err(wrong(format!("{bytes} bytes cannot be shared by {connections} connections")));
                }
                Kind::Fetch { request, bytes, connections, opened: None }
            }
            "probe" => Kind::Datagrams {
                every: Duration::from_secs_f64(number("interval_s")),
                packet_bytes: datagram_bytes(number("packet_bytes"))?,
                echoed: true,
                icmp: checked.text("protocol") == Some("icmp"),
            },
            "call" => {
                let rate_bps = if checked.text("codec") == Some("g729") { 8_000.0 } else { 64_000.0 };
                let frame_s = number("frame_s");
                let speech = (rate_bps * frame_s / 8.0).round() as u32;
                let packet_bytes = speech + RTP_HEADER + headers;
                Kind::Datagrams { every: Duration::from_secs_f64(frame_s), packet_bytes, echoed: false, icmp: false }
            }
            "video" => {
                let longest_bytes = number("packet_bytes") as u32;
                Kind::Video(Video::new(&checked, headers + RTP_HEADER, rng).ok_or_else(|| {
                    let (least, version) = (headers + RTP_HEADER, u8::from(flow.ip));
                    wrong(format!("packet_bytes is {longest_bytes}, and must be more than {least} over IPv{version}"))
                })?)
            }
            "transactions" => {
                let (request, response) = (number("request_bytes") as u64, number("response_bytes") as u64);
                let each = Transaction { request, response };
                Kind::Transactions { each, think_s: number("think_s"), rng, connected: false }
            }
            "transfers" => Kind::Transfers {
                arrivals: Law::named(checked.text("arrivals"), 0.0),
                distance_s: number("distance_s"),
                sizes: Law::named(checked.text("sizes"), number("shape")),
                mean_bytes: number("mean_bytes"),
                rng,
            },
            _ => Kind::Web {
                distance_s: number("distance_s"),
                mean_bytes: number("mean_bytes"),
                shape: number("shape"),
                rng,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let sent = actions(&mut Application::new(&of, 1).unwrap(), 9.9999).len();
        // 210 bytes every 3.75 ms.
        assert_eq!(sent, 2667);
    }

    #[test]
    fn on_off_writes_half_of_the_time() {
        let of = flow(r#"{"name":"o","kind":"on-off","from":"a","to":"b","port":9}"#);
        let done = actions(&mut Application::new(&of, 1).unwrap(), 2000.0);
        assert_eq!(done[0].1, Action::Connect { bytes: None, silent: true });
        let written: u64 = done.iter().map(|(_, action)| if let Action::Write(n) = action { *n } else { 0 }).sum();
        let rate = written as f64 * 8.0 / 2000.0;
        assert!((30e3..35e3).contains(&rate), "{rate}");
    }

    #[test]
    fn an_established_connection_is_opened_before_its_start() {
        let of = flow(r#"{"name":"e","kind":"established","from":"a","to":"b","port":9,"start_s":5.5,"bytes":7}"#);
        let mut application = Application::new(&of, 1).unwrap();
        let first = application.first(Time::from_seconds(5.5));
        assert_eq!(first, Time::ZERO);
        let (action, next) = application.act(first);
        assert_eq!((action, next), (Action::Connect { bytes: None, silent: true }, Some(Time::from_seconds(5.5))));
        assert_eq!(application.act(Time::from_seconds(5.5)), (Action::Write(7), None));
        let late = r#"{"name":"e","kind":"established","from":"a","to":"b","port":9,"options":{"opened_s":1}}"#;
        assert!(Application::new(&flow(late), 1).unwrap_err().contains("after its start"));
    }

    #[test]
    fn web_transfers_have_the_mean_distance_and_the_least_size_of_their_distribution() {
        let of = flow(r#"{"name":"w","kind":"web","from":"a","to":"b","port":9}"#);
        let done = actions(&mut Application::new(&of, 1).unwrap(), 3000.0);
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
        let mut application = Application::new(&of, 1).unwrap();
        assert_eq!(application.act(Time::ZERO), (Action::Request(500), None));
        let shares: Vec<_> = actions(&mut application, 1.0).into_iter().map(|(_, action)| action).collect();
        let share = |bytes| Action::Connect { bytes: Some(bytes), silent: false };
        assert_eq!(shares, [share(10_000), share(10_000), share(10_000), share(10_001)]);
        let endless = flow(r#"{"name":"f","kind":"fetch","from":"a","to":"b","port":9}"#);
        assert!(Application::new(&endless, 1).unwrap_err().contains("needs a size"));
    }

    #[test]
    fn an_unknown_workload_and_a_wrong_option_are_refused() {
        let why = Application::new(&flow(r#"{"name":"x","kind":"cbd","from":"a","to":"b","port":9}"#), 1).unwrap_err();
        assert!(why.contains("there are: bulk, call, cbr"), "{why}");
        let why = Application::new(&flow(r#"{"name":"x","kind":"cbr","from":"a","to":"b","port":9}"#), 1).unwrap_err();
        assert!(why.contains("'rate_bps' must be given"), "{why}");
    }

    #[test]
    fn a_call_sends_its_codecs_frames() {
        let call = |options: &str| {
            let json = format!(r#"{{"name":"c","kind":"call","from":"a","to":"b","port":9,"options":{options}}}"#);
            actions(&mut Application::new(&flow(&json), 1).unwrap(), 0.9999)
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
            Application::new(&flow(&json), 1).unwrap()
        };
        assert!(of("probe").is_echoed() && of("probe").is_datagrams() && of("call").is_datagrams());
        assert!(!of("call").is_echoed() && !of("web").is_datagrams());
        let icmp = r#"{"name":"p","kind":"probe","from":"a","to":"b","port":9,"options":{"protocol":"icmp"}}"#;
        let icmp = Application::new(&flow(icmp), 1).unwrap();
        assert!(icmp.is_icmp() && icmp.is_echoed() && icmp.is_datagrams() && !of("probe").is_icmp());
        let sent = actions(&mut of("probe"), 0.99);
        assert_eq!((sent.len(), sent[19]), (20, (0.95, Action::Datagram { length: 64, frame: None })));
    }

    #[test]
    fn the_next_request_follows_the_response_and_the_thinking() {
        let of = |think: &str| {
            let options = format!(r#"{{"request_bytes":7,"response_bytes":9,"think_s":{think}}}"#);
            let json =
                format!(r#"{{"name":"t","kind":"transactions","from":"a","to":"b","port":9,"options":{options}}}"#);
            Application::new(&flow(&json), 1).unwrap()
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
            actions(&mut Application::new(&flow(&json), 1).unwrap(), 2000.0)
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
}
