//! Requests and answers, one JSON object a line, and the event loop around them (docs/emulator-protocol.md).

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;

use backchannel_core::scenario::LinkSpec;
use backchannel_core::telemetry::Telemetry;
use serde::Deserialize;
use serde_json::{json, Map, Value};

use crate::interface::Interface;
use crate::pulse::Pulse;
use crate::served::Served;
use crate::sys::{self, monotonic_ns, Epoll, Timer, Waits};
use crate::tap::{parse_mac, Tap};

const REQUESTS: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
/// Longest request line, in bytes: a link may carry recorded traces.
const MAX_LINE: usize = 64 << 20;

/// What a machine takes to wake a sleeper, about: a timer is set so much earlier, and the rest is waited for awake.
const EARLY_NS: u64 = 40_000;
/// Only before a sleep so long: waiting awake then takes 4 % of a processor at most.
const LONG_SLEEP_NS: u64 = 1_000_000;

/// When to wake for something that is due.
fn wake_for(due: u64, now: u64) -> u64 {
    if due.saturating_sub(now) > LONG_SLEEP_NS {
        due - EARLY_NS
    } else {
        due
    }
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    AddLink {
        name: String,
        spec: LinkSpec,
        #[serde(default)]
        seed: u64,
        ends: Vec<End>,
    },
    RemoveLink {
        name: String,
    },
    Configure {
        name: String,
        spec: LinkSpec,
        #[serde(default)]
        seed: u64,
    },
    Start {
        #[serde(default)]
        lead_s: f64,
        /// The zero itself, where emulators on several machines are to have the same.
        #[serde(default)]
        at_monotonic_ns: Option<u64>,
        #[serde(default)]
        telemetry: Option<String>,
    },
    Stop {},
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    /// Whose network namespace; without it, this process's own.
    #[serde(default)]
    pid: Option<u32>,
    ifname: String,
    #[serde(default)]
    mac: Option<String>,
    /// The interface exists: it is taken over, not made.
    #[serde(default)]
    attach: bool,
}

/// Serves links until standard input ends.
///
/// # Errors
/// A sentence, when the kernel refuses what the loop itself needs; a bad request is answered, not fatal.
pub fn serve() -> Result<(), String> {
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let mut server = Server {
        links: Vec::new(),
        agenda: BTreeSet::new(),
        armed: Vec::new(),
        epoll: Epoll::new().map_err(failed("cannot make an epoll descriptor"))?,
        timer: Timer::new().map_err(failed("cannot make a timer"))?,
        telemetry: None,
        pulse: Pulse::default(),
        realtime: sys::become_realtime(sys::LINKS),
    };
    let stdin = io::stdin();
    sys::set_nonblocking(stdin.as_raw_fd());
    server.epoll.add(stdin.as_raw_fd(), REQUESTS).map_err(failed("cannot watch standard input"))?;
    server.epoll.add(server.timer.fd(), TIMER).map_err(failed("cannot watch the timer"))?;

    let waits = Waits::of_this_thread();
    let mut line = Vec::new();
    let mut tokens = Vec::new();
    loop {
        let due = server.agenda.first().map(|(at, _)| wake_for(*at, monotonic_ns()));
        server.timer.set(due.into_iter().chain(server.pulse.next_ns()).min());
        server.epoll.wait(&mut tokens).map_err(failed("cannot wait"))?;
        server.pulse.beat(monotonic_ns(), || waits.read_ns());
        for &token in &tokens {
            match token {
                TIMER => server.timer.clear(),
                REQUESTS => {
                    if !server.take_requests(&mut line)? {
                        return Ok(());
                    }
                }
                frame => server.take_frames((frame >> 16) as usize, (frame & 0xffff) as usize)?,
            }
        }
        server.advance();
    }
}

struct Server {
    /// A removed link leaves its place empty: tokens name places.
    links: Vec<Option<Served>>,
    /// When which place is due. A link costs nothing while it has nothing to do, however many there are.
    agenda: BTreeSet<(u64, usize)>,
    /// Per place: its instant in the agenda.
    armed: Vec<Option<u64>>,
    epoll: Epoll,
    timer: Timer,
    telemetry: Option<Telemetry>,
    pulse: Pulse,
    realtime: bool,
}

impl Server {
    fn take_frames(&mut self, place: usize, port: usize) -> Result<(), String> {
        let Some(link) = self.links.get_mut(place).and_then(Option::as_mut) else { return Ok(()) };
        let read = link.read(port, &mut self.telemetry);
        let fd = link.taps[port].fd();
        self.arm(place);
        let Err(why) = read else { return Ok(()) };
        // The node is gone and its interface with it: nobody can use this end any more.
        self.epoll.remove(fd);
        eprintln!("note: {why}");
        Ok(())
    }

    /// Lets every link that is due write out what has come out of it.
    fn advance(&mut self) {
        let mut now = monotonic_ns();
        // Woken early on purpose, or by a frame just before.
        if let Some((at, _)) = self.agenda.first().copied().filter(|(at, _)| *at > now && *at - now <= EARLY_NS) {
            while now < at {
                std::hint::spin_loop();
                now = monotonic_ns();
            }
        }
        while let Some((_, place)) = self.agenda.first().copied().filter(|(at, _)| *at <= now) {
            if let Some(link) = &mut self.links[place] {
                link.advance(&mut self.telemetry);
            }
            self.arm(place);
        }
    }

    /// Notes when a place is due next.
    fn arm(&mut self, place: usize) {
        self.armed.resize(self.links.len(), None);
        let next = self.links[place].as_ref().and_then(Served::next_ns);
        let armed = std::mem::replace(&mut self.armed[place], next);
        if armed != next {
            armed.map(|at| self.agenda.remove(&(at, place)));
            next.map(|at| self.agenda.insert((at, place)));
        }
    }

    /// Reads what there is and answers every whole line; false at the end of input.
    fn take_requests(&mut self, line: &mut Vec<u8>) -> Result<bool, String> {
        let mut chunk = [0; 65_536];
        loop {
            match io::stdin().lock().read(&mut chunk) {
                Ok(0) => return Ok(false),
                Ok(n) => line.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(format!("cannot read requests: {error}")),
            }
        }
        while let Some(end) = line.iter().position(|&byte| byte == b'\n') {
            let request: Vec<u8> = line.drain(..=end).collect();
            let answer = match self.answer(&request) {
                Ok(mut answer) => {
                    answer.insert("ok".into(), true.into());
                    answer
                }
                Err(why) => Map::from_iter([("ok".into(), false.into()), ("error".into(), why.into())]),
            };
            let mut stdout = io::stdout().lock();
            let said = writeln!(stdout, "{}", Value::Object(answer)).and_then(|()| stdout.flush());
            said.map_err(|error| format!("cannot answer: {error}"))?;
        }
        if line.len() > MAX_LINE {
            return Err(format!("a request is longer than {MAX_LINE} bytes"));
        }
        Ok(true)
    }

    fn answer(&mut self, line: &[u8]) -> Result<Map<String, Value>, String> {
        let request = serde_json::from_slice(line).map_err(|error| format!("the request does not fit: {error}"))?;
        match request {
            Request::AddLink { name, spec, seed, ends } => self.add_link(&name, spec, seed, &ends)?,
            Request::RemoveLink { name } => {
                let place = self.place(&name)?;
                let link = self.links[place].take().expect("a place that was found is taken");
                for tap in &link.taps {
                    self.epoll.remove(tap.fd());
                }
                self.arm(place);
            }
            Request::Configure { name, spec, seed } => {
                let place = self.place(&name)?;
                self.links[place].as_mut().expect("a place that was found is taken").configure(spec, seed)?;
                self.arm(place);
            }
            Request::Start { lead_s, at_monotonic_ns, telemetry } => {
                return self.start(lead_s, at_monotonic_ns, telemetry)
            }
            Request::Stop {} => return self.stop(),
        }
        Ok(Map::new())
    }

    fn add_link(&mut self, name: &str, spec: LinkSpec, seed: u64, ends: &[End]) -> Result<(), String> {
        if self.place(name).is_ok() {
            return Err(format!("there is a link '{name}' already"));
        }
        if spec.name != name {
            return Err(format!("the link is called '{name}' and '{}'", spec.name));
        }
        if ends.len() != spec.ends.len() || ends.len() > 0xffff {
            return Err(format!("link '{name}' has {} ends and {} interfaces", spec.ends.len(), ends.len()));
        }
        if ends.len() > 2 && ends.iter().any(|end| end.mac.is_none()) {
            return Err(format!(
                "link '{name}' has more than two ends: each needs a MAC address, by which frames find it"
            ));
        }
        // Refused before any interface exists.
        backchannel_links::build(&spec, seed)?;
        let mut taps = Vec::new();
        for end in ends {
            let mac = end.mac.as_deref().map(parse_mac).transpose()?;
            taps.push(match end.attach {
                true => Interface::attach(end.pid, &end.ifname, mac)?,
                false => Interface::Tap(Tap::create(end.pid, &end.ifname, mac)?),
            });
        }
        let place = self.links.iter().position(Option::is_none).unwrap_or(self.links.len());
        for (port, tap) in taps.iter().enumerate() {
            let token = (place as u64) << 16 | port as u64;
            self.epoll.add(tap.fd(), token).map_err(|error| format!("cannot watch {}: {error}", tap.name()))?;
        }
        let link = Some(Served::new(spec, seed, taps)?);
        if place == self.links.len() {
            self.links.push(link);
        } else {
            self.links[place] = link;
        }
        self.arm(place);
        Ok(())
    }

    fn start(
        &mut self,
        lead_s: f64,
        at_monotonic_ns: Option<u64>,
        telemetry: Option<String>,
    ) -> Result<Map<String, Value>, String> {
        if !(0.0..=60.0).contains(&lead_s) {
            return Err(format!("a lead of {lead_s} s is not between 0 and 60"));
        }
        let ahead_s = at_monotonic_ns.map_or(0.0, |at| (at as f64 - monotonic_ns() as f64) / 1e9);
        if !(-1.0..=60.0).contains(&ahead_s) {
            return Err(format!("a zero {ahead_s:.3} s from now is neither now nor soon"));
        }
        self.telemetry = telemetry.as_deref().map(Telemetry::create).transpose()?;
        let zero_ns = at_monotonic_ns.unwrap_or_else(|| monotonic_ns() + (lead_s * 1e9) as u64);
        for link in self.links.iter_mut().flatten() {
            link.start_at(zero_ns)?;
        }
        (0..self.links.len()).for_each(|place| self.arm(place));
        self.pulse = Pulse::from(zero_ns);
        Ok(Map::from_iter([("t0_monotonic_ns".into(), zero_ns.into())]))
    }

    fn stop(&mut self) -> Result<Map<String, Value>, String> {
        if let Some(telemetry) = self.telemetry.take() {
            telemetry.finish()?;
        }
        let links: Map<_, _> =
            self.links.iter_mut().flatten().map(|link| (link.spec.name.clone(), link.report())).collect();
        for link in self.links.iter_mut().flatten() {
            link.silence()?;
        }
        (0..self.links.len()).for_each(|place| self.arm(place));
        let stalls = std::mem::take(&mut self.pulse).json();
        let report = json!({"links": links, "realtime": self.realtime, "stalls": stalls});
        Ok(Map::from_iter([("report".into(), report)]))
    }

    fn place(&self, name: &str) -> Result<usize, String> {
        let named = |link: &Option<Served>| link.as_ref().is_some_and(|link| link.spec.name == name);
        self.links.iter().position(named).ok_or_else(|| {
            let known: Vec<_> = self.links.iter().flatten().map(|link| link.spec.name.as_str()).collect();
            format!("there is no link '{name}'; there are: {}", known.join(", "))
        })
    }
}
