//! Applications of simulated flows: bulk, constant bit rate over UDP, on/off over TCP, web-like transfers, requests.

use std::net::Ipv4Addr;
use std::time::Duration;

use backchannel_core::packet::{fold, ones_sum, Packet};
use backchannel_core::registry::{CheckedOptions, Entry, Param, Preset, Random, Unit, MUST};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::scenario::Flow;
use backchannel_core::time::{service_time, Time};

static CBR: Entry = Entry {
    kind: "workload",
    name: "cbr",
    summary: "UDP packets of one size at equal intervals",
    source: "acq 3.4; aq 4.7, 4.8",
    random: Random::Never,
    params: &[
        Param::new("rate_bps", Unit::Rate, Preset::Required(MUST), "rate of IP packets, headers included")
            .at_least(1.0),
        Param::new("packet_bytes", Unit::Bytes, Preset::Number(210.0), "IP and UDP headers included (ns)")
            .range(29.0, 65_535.0),
    ],
};

static ON_OFF: Entry = Entry {
    kind: "workload",
    name: "on-off",
    summary: "one connection; the application writes at a rate, with exponential pauses",
    source: "acq 3.4",
    random: Random::Always,
    params: &[
        Param::new("on_s", Unit::Time, Preset::Number(0.5), "mean length of a writing period (ns)").range(1e-6, 1e6),
        Param::new("off_s", Unit::Time, Preset::Number(0.5), "mean length of a pause (ns)").range(1e-6, 1e6),
        Param::new("rate_bps", Unit::Rate, Preset::Number(64_000.0), "rate of writing (ns)").at_least(1.0),
        Param::new("write_bytes", Unit::Bytes, Preset::Number(210.0), "size of one write (ns)").range(1.0, 1e6),
    ],
};

static WEB: Entry = Entry {
    kind: "workload",
    name: "web",
    summary: "connections that start at random and carry a Pareto-distributed number of bytes each",
    source: "aq 4.2",
    random: Random::Always,
    params: &[
        Param::new("distance_s", Unit::Time, Preset::Number(1.0), "mean time between two starts, exponential (aq 4.2)")
            .range(1e-6, 1e6),
        Param::new("mean_bytes", Unit::Bytes, Preset::Number(30_000.0), "mean size of a transfer (aq 4.2)")
            .at_least(1.0),
        Param::new("shape", Unit::Number, Preset::Number(1.3), "shape of the Pareto distribution (aq 4.2)")
            .range(1.01, 100.0),
    ],
};

static ESTABLISHED: Entry = Entry {
    kind: "workload",
    name: "established",
    summary: "bulk over a connection opened before the start, so the start has no handshake, as in ns-2's one-way TCP",
    source: "ns; asym 7.1; aq 4",
    random: Random::Never,
    params: &[Param::new(
        "opened_s",
        Unit::Time,
        Preset::Number(0.0),
        "when the connection is opened, not after the start",
    )
    .range(0.0, 1e6)],
};

static FETCH: Entry = Entry {
    kind: "workload",
    name: "fetch",
    summary: "the receiver sends a request, which the sender answers over several connections at once",
    source: "asym 7.3",
    random: Random::Never,
    params: &[
        Param::new("request_bytes", Unit::Bytes, Preset::Number(500.0), "size of the request (asym 7.3)")
            .range(1.0, 1e6),
        Param::new(
            "connections",
            Unit::Count,
            Preset::Number(4.0),
            "connections that share the flow's size (asym 7.3)",
        )
        .range(1.0, 100.0),
    ],
};

/// More bytes than any run can carry.
const ENDLESS: u64 = 1 << 60;

static WORKLOADS: [&Entry; 5] = [&CBR, &ESTABLISHED, &FETCH, &ON_OFF, &WEB];

/// Registry entries of the workloads that only simulations have. `bulk` needs none: it has no options.
pub fn workloads() -> Vec<&'static Entry> {
    WORKLOADS.to_vec()
}

/// What an application does next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    /// Open a connection. `bytes`: to send before it closes; `None`: it sends without end or, if `silent`, only what
    /// [`Action::Write`] adds.
    Connect { bytes: Option<u64>, silent: bool },
    /// The receiver sends a request of this many bytes.
    Request(u64),
    /// Write this many bytes to the latest connection.
    Write(u64),
    /// Send a UDP packet of this length, headers included.
    Datagram(u32),
    /// Nothing.
    Pause,
}

/// The application of one flow.
#[derive(Debug)]
pub(crate) enum Application {
    Bulk {
        bytes: Option<u64>,
    },
    Cbr {
        every: Duration,
        packet_bytes: u32,
    },
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
}

impl Application {
    /// # Errors
    /// There is no such workload, or the options do not fit it.
    pub(crate) fn new(flow: &Flow, seed: u64) -> Result<Application, String> {
        let wrong = |why: String| format!("flow '{}': {why}", flow.name);
        if flow.kind == "bulk" {
            return Ok(Application::Bulk { bytes: flow.bytes });
        }
        let entry = WORKLOADS.iter().find(|entry| entry.name == flow.kind).ok_or_else(|| {
            let names: Vec<_> = WORKLOADS.iter().map(|entry| entry.name).collect();
            wrong(format!("there is no workload '{}'; there are: bulk, {}", flow.kind, names.join(", ")))
        })?;
        let checked = CheckedOptions::check(entry, &flow.options).map_err(wrong)?;
        let number = |name| checked.number(name).expect("validated: it has a default or is required");
        let spacing = |bytes: f64| service_time(bytes as u64 * 8, number("rate_bps") as u64);
        let rng = rng::stream(seed, &format!("workload/{}", flow.name));
        Ok(match flow.kind.as_str() {
            "cbr" => {
                let bytes = number("packet_bytes");
                Application::Cbr { every: spacing(bytes), packet_bytes: bytes as u32 }
            }
            "on-off" => {
                let bytes = number("write_bytes");
                let (every, write_bytes) = (spacing(bytes), bytes as u64);
                let (on_s, off_s) = (number("on_s"), number("off_s"));
                Application::OnOff { on_s, off_s, every, write_bytes, rng, until: None, connected: false }
            }
            "established" => {
                let (opened, start) = (Time::from_seconds(number("opened_s")), Time::from_seconds(flow.start_s));
                if opened > start {
                    return Err(wrong(format!("it is opened at {opened}, after its start at {start}")));
                }
                Application::Established { opened, start, bytes: flow.bytes, connected: false }
            }
            "fetch" => {
                let bytes =
                    flow.bytes.ok_or_else(|| wrong("a fetch needs a size: the bytes that are requested".into()))?;
                let (request, connections) = (number("request_bytes") as u64, number("connections") as u64);
                if connections > bytes {
                    return Err(wrong(format!("{bytes} bytes cannot be shared by {connections} connections")));
                }
                Application::Fetch { request, bytes, connections, opened: None }
            }
            _ => Application::Web {
                distance_s: number("distance_s"),
                mean_bytes: number("mean_bytes"),
                shape: number("shape"),
                rng,
            },
        })
    }

    /// Whether it uses UDP.
    pub(crate) fn is_datagrams(&self) -> bool {
        matches!(self, Application::Cbr { .. })
    }

    /// Bytes of the request that the receiver sends. [`Application::act`] is called once they have arrived.
    pub(crate) fn request_bytes(&self) -> Option<u64> {
        match self {
            Application::Fetch { request, .. } => Some(*request),
            _ => None,
        }
    }

    /// When [`Application::act`] is due first; `start` is the flow's.
    pub(crate) fn first(&self, start: Time) -> Time {
        match self {
            Application::Established { opened, .. } => *opened,
            _ => start,
        }
    }

    /// What it does at `now`, and when it acts next.
    pub(crate) fn act(&mut self, now: Time) -> (Action, Option<Time>) {
        match self {
            Application::Bulk { bytes } => (Action::Connect { bytes: *bytes, silent: false }, None),
            Application::Established { start, bytes, connected, .. } => {
                if std::mem::replace(connected, true) {
                    (Action::Write(bytes.unwrap_or(ENDLESS)), None)
                } else {
                    (Action::Connect { bytes: None, silent: true }, Some(*start))
                }
            }
            Application::Cbr { every, packet_bytes } => (Action::Datagram(*packet_bytes), Some(now + *every)),
            Application::Fetch { request, bytes, connections, opened } => {
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
            Application::Web { distance_s, mean_bytes, shape, rng } => {
                let bytes = rng::pareto(rng, *mean_bytes, *shape).ceil() as u64;
                let wait = Duration::from_secs_f64(rng::exponential(rng, *distance_s));
                (Action::Connect { bytes: Some(bytes), silent: false }, Some(now + wait))
            }
            Application::OnOff { on_s, off_s, every, write_bytes, rng, until, connected } => {
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

/// A UDP packet of `length` bytes, headers included. Its data are zeros.
pub(crate) fn datagram(id: u64, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), length: u32) -> Packet {
    let zeros = length - 28;
    let mut bytes = Vec::with_capacity(28);
    bytes.extend([0x45, 0]);
    bytes.extend((length as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend(from.0.octets());
    bytes.extend(to.0.octets());
    let checksum = !fold(ones_sum(&bytes));
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    let udp_length = (length - 20) as u16;
    for word in [from.1, to.1, udp_length, 0] {
        bytes.extend(word.to_be_bytes());
    }
    // Zeros add nothing to the sum. The pseudo-header has addresses, protocol and length (RFC 768).
    let sum = ones_sum(&bytes[12..]) + 17 + u64::from(udp_length);
    let checksum = match !fold(sum) {
        0 => 0xffff,
        sum => sum,
    };
    bytes[26..28].copy_from_slice(&checksum.to_be_bytes());
    Packet::with_zeros(id, bytes, zeros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::Transport;

    fn flow(json: &str) -> Flow {
        serde_json::from_str(json).unwrap()
    }

    fn actions(application: &mut Application, until: f64) -> Vec<(f64, Action)> {
        let (mut now, mut done) = (Time::ZERO, Vec::new());
        while now <= Time::from_seconds(until) {
            let (action, next) = application.act(now);
            done.push((now.seconds(), action));
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
        assert!(why.contains("there are: bulk, cbr"), "{why}");
        let why = Application::new(&flow(r#"{"name":"x","kind":"cbr","from":"a","to":"b","port":9}"#), 1).unwrap_err();
        assert!(why.contains("'rate_bps' must be given"), "{why}");
    }

    #[test]
    fn a_datagram_is_one_of_its_length_with_right_checksums() {
        let packet = datagram(1, (Ipv4Addr::new(10, 0, 0, 1), 5), (Ipv4Addr::new(10, 0, 0, 2), 6), 211);
        assert_eq!(packet.len(), 211);
        assert_eq!(*packet.transport(), Transport::Udp { payload: 183 });
        assert_eq!(fold(ones_sum(&packet.bytes()[..20])), 0xffff);
        let pseudo = ones_sum(&packet.bytes()[12..20]) + 17 + 191;
        assert_eq!(fold(ones_sum(&packet.bytes()[20..]) + pseudo), 0xffff);
    }
}
