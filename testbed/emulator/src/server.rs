//! The emulator's event loop: requests, frames and timers of all links in one thread.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};

use backchannel_core::ids::{Id, LinkId, Numbered};
use backchannel_core::scenario::{Change, LinkSpec};
use backchannel_core::telemetry::Telemetry;
use backchannel_core::traits::Port;
use backchannel_core::{Error, ResultExt};
use backchannel_links::{Context, Fault, Registry};

use crate::emulated_link::{service, EmulatedLink};
use crate::interface::Interface;
use crate::os::clock::monotonic_ns;
use crate::os::link_layer::LinkLayer;
use crate::os::process::{become_realtime, CpuWaits, Priority};
use crate::os::wait::Epoll;
use crate::protocol::{read_request, Answer, Direction, EmulationReport, EndSpec, Outcome, Request, Start};
use crate::pulse::Pulse;
use crate::run_clock::{RunClock, RunTime, EARLY_NS};
use crate::tap::{parse_mac, Tap};

/// Greatest length of a request in bytes. A link may carry recorded traces.
const MAX_REQUEST: usize = 64 << 20;

/// Source of an event, as the token by which epoll knows a descriptor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    Requests,
    /// Interface at an end of a link.
    Interface(LinkId, Port),
}

impl Source {
    const REQUESTS: u64 = u64::MAX;

    fn token(self) -> u64 {
        match self {
            Source::Requests => Source::REQUESTS,
            Source::Interface(link, port) => (link.place() as u64) << 16 | u64::from(port),
        }
    }

    fn of(token: u64) -> Source {
        match token {
            Source::REQUESTS => Source::Requests,
            interface => Source::Interface(LinkId::new((interface >> 16) as usize), interface as Port),
        }
    }
}

/// Environment variable with a fault as JSON, for tests of the guards.
const FAULT: &str = "BACKCHANNEL_FAULT";

fn fault() -> Result<Option<Fault>, Error> {
    let Ok(text) = std::env::var(FAULT) else { return Ok(None) };
    let fault = serde_json::from_str(&text).or_malformed(format_args!("{FAULT} is not a fault"))?;
    eprintln!("note: {FAULT} is set, so links are faulty and runs invalid: {text}");
    Ok(Some(fault))
}

/// Serves links of a registry's mechanisms until standard input ends.
///
/// # Errors
/// The kernel refuses what the event loop needs. An invalid request is answered and ends nothing.
pub fn serve(registry: &Registry, time: RunTime) -> Result<(), Error> {
    let mut server = Server {
        registry: registry.clone(),
        links: Numbered::default(),
        agenda: BTreeSet::new(),
        scheduled: BTreeMap::new(),
        epoll: Epoll::new().or_system("cannot create an epoll descriptor")?,
        telemetry: None,
        pulse: Pulse::default(),
        realtime: become_realtime(Priority::Link),
        fault: fault()?,
        clock: RunClock::new(time),
    };
    let stdin = io::stdin();
    rustix::io::ioctl_fionbio(&stdin, true).or_system("standard input cannot be polled")?;
    server.epoll.add(&stdin, Source::Requests.token()).or_system("cannot watch standard input")?;

    let waits = CpuWaits::of_this_thread();
    let mut input = Vec::new();
    let mut tokens = Vec::new();
    loop {
        let due = server.agenda.first().map(|(at, _)| server.clock.wake_for(*at));
        let pulse = server.pulse.next_ns().filter(|_| time == RunTime::Real);
        let until = due.into_iter().chain(pulse).min();
        let timeout = until.map(|at| at.saturating_sub(server.clock.now_ns()));
        let passed = server.epoll.wait(&mut tokens, timeout).or_system("cannot wait")?;
        server.clock.on_wake(until.filter(|_| passed));
        if time == RunTime::Real {
            server.pulse.on_wake(monotonic_ns(), || waits.total_ns());
        }
        for &token in &tokens {
            match Source::of(token) {
                Source::Requests => {
                    if !server.read_requests(&mut input)? {
                        return Ok(());
                    }
                }
                Source::Interface(link, port) => server.read_frames(link, port),
            }
        }
        server.advance();
    }
}

struct Server {
    registry: Registry,
    /// The place of a removed link stays empty, because tokens refer to links by their ids.
    links: Numbered<LinkId, Option<EmulatedLink>>,
    /// When which link is due. An idle link costs nothing.
    agenda: BTreeSet<(u64, LinkId)>,
    /// The instant of each link in the agenda.
    scheduled: BTreeMap<LinkId, u64>,
    epoll: Epoll,
    telemetry: Option<Telemetry>,
    pulse: Pulse,
    realtime: bool,
    fault: Option<Fault>,
    clock: RunClock,
}

impl Server {
    fn read_frames(&mut self, id: LinkId, port: Port) {
        let Some(link) = self.links.find(id).and_then(Option::as_mut) else { return };
        if let Err(why) = link.read(port, &self.clock, &mut self.telemetry) {
            // The node is gone and its interface with it: this end can never be used again.
            self.epoll.remove(&link.interfaces[usize::from(port)]);
            eprintln!("note: {why}");
        }
        self.schedule(id);
    }

    /// Lets every link that is due write its deliveries.
    fn advance(&mut self) {
        let mut now = self.clock.now_ns();
        // Woken early on purpose, or by a frame just before.
        let soon = |at: u64| self.clock.time == RunTime::Real && at > now && at - now <= EARLY_NS;
        if let Some((at, _)) = self.agenda.first().copied().filter(|(at, _)| soon(*at)) {
            while now < at {
                std::hint::spin_loop();
                now = monotonic_ns();
            }
        }
        while let Some((_, id)) = self.agenda.first().copied().filter(|(at, _)| *at <= now) {
            if let Some(link) = &mut self.links[id] {
                link.advance(&self.clock, &mut self.telemetry);
            }
            self.schedule(id);
        }
    }

    /// Updates when a link is due.
    fn schedule(&mut self, id: LinkId) {
        let next = self.links[id].as_ref().and_then(EmulatedLink::next_ns);
        let previous = match next {
            Some(at) => self.scheduled.insert(id, at),
            None => self.scheduled.remove(&id),
        };
        if previous != next {
            previous.map(|at| self.agenda.remove(&(at, id)));
            next.map(|at| self.agenda.insert((at, id)));
        }
    }

    fn schedule_all(&mut self) {
        self.links.ids().for_each(|id| self.schedule(id));
    }

    /// Reads what is available and answers every complete request. False at the end of input.
    fn read_requests(&mut self, input: &mut Vec<u8>) -> Result<bool, Error> {
        let mut chunk = [0; 65_536];
        let mut more = true;
        while more {
            match io::stdin().lock().read(&mut chunk) {
                Ok(0) => more = false,
                Ok(n) => input.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(Error::System(format!("cannot read requests: {error}"))),
            }
        }
        while let Some(end) = input.iter().position(|&byte| byte == b'\n') {
            let request: Vec<u8> = input.drain(..=end).collect();
            let answer = self.answer(&request).unwrap_or_else(|error| Answer::failed(&error));
            let text = serde_json::to_string(&answer).or_system("cannot write an answer")?;
            let mut stdout = io::stdout().lock();
            writeln!(stdout, "{text}").and_then(|()| stdout.flush()).or_system("cannot write an answer")?;
        }
        if input.len() > MAX_REQUEST {
            return Err(format!("a request is longer than {MAX_REQUEST} bytes").into());
        }
        Ok(more)
    }

    fn answer(&mut self, line: &[u8]) -> Result<Answer, Error> {
        match read_request(line)? {
            Request::AddLink { name, spec, seed, ends } => self.add_link(&name, spec, seed, &ends)?,
            Request::RemoveLink { name } => {
                let id = self.id(&name)?;
                if let Some(link) = self.links[id].take() {
                    link.interfaces.iter().for_each(|interface| self.epoll.remove(interface));
                }
                self.schedule(id);
            }
            Request::Configure { name, spec, seed } => {
                let id = self.id(&name)?;
                if let Some(link) = &mut self.links[id] {
                    link.configure(spec, seed)?;
                }
                self.schedule(id);
            }
            Request::Start(start) => return self.start(&start),
            Request::Stop { keep } => return self.stop(keep),
            Request::Change { name, direction, change } => return self.change(&name, direction, &change),
            Request::Status {} => {
                let links = self.links.iter().flatten().map(|link| (link.spec.name.clone(), link.status()));
                return Ok(Answer::with(Outcome::Status(links.collect())));
            }
        }
        Ok(Answer::done())
    }

    fn add_link(&mut self, name: &str, spec: LinkSpec, seed: u64, ends: &[EndSpec]) -> Result<(), Error> {
        if self.id(name).is_ok() {
            return Err(format!("link '{name}' exists already").into());
        }
        if spec.name != name {
            return Err(format!("the request names the link '{name}' and its specification '{}'", spec.name).into());
        }
        if ends.len() != spec.ends.len() || ends.len() > usize::from(Port::MAX) {
            return Err(format!("link '{name}' has {} ends and {} interfaces", spec.ends.len(), ends.len()).into());
        }
        if ends.len() > 2 && ends.iter().any(|end| end.mac.is_none()) {
            return Err(format!(
                "link '{name}' has more than two ends: each needs a MAC address, by which frames find it"
            )
            .into());
        }
        // Reject the link before any interface exists.
        let context = Context { seed, registry: self.registry.clone() };
        service(&spec, &context, None)?;
        let interfaces = ends.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        if let Some(why) = mixed(name, &interfaces) {
            return Err(why.into());
        }
        let free = self.links.iter().position(Option::is_none).map(LinkId::new);
        let id = free.unwrap_or(self.links.next_id());
        for (port, interface) in interfaces.iter().enumerate() {
            let token = Source::Interface(id, port as Port).token();
            self.epoll.add(interface, token).or_system(format_args!("cannot watch interface {}", interface.name()))?;
        }
        let link = Some(EmulatedLink::new(spec, context, interfaces, self.fault.clone())?);
        match self.links.find(id) {
            Some(place) => *place = link,
            None => drop(self.links.push(link)),
        }
        self.schedule(id);
        Ok(())
    }

    fn start(&mut self, start: &Start) -> Result<Answer, Error> {
        let Start { lead_s, at_monotonic_ns, telemetry } = start;
        if !(0.0..=60.0).contains(lead_s) {
            return Err(format!("lead_s is {lead_s}, not between 0 and 60").into());
        }
        let ahead_s = at_monotonic_ns.map_or(0.0, |at| (at as f64 - monotonic_ns() as f64) / 1e9);
        if !(-1.0..=60.0).contains(&ahead_s) {
            return Err(format!("at_monotonic_ns is {ahead_s:.3} s from now, not between -1 and 60").into());
        }
        self.telemetry = telemetry.as_deref().map(Telemetry::create).transpose()?;
        let zero_ns = at_monotonic_ns.unwrap_or_else(|| monotonic_ns() + (lead_s * 1e9) as u64);
        for link in self.links.iter_mut().flatten() {
            link.start_at(zero_ns)?;
        }
        self.schedule_all();
        self.pulse = Pulse::starting_at(zero_ns);
        Ok(Answer::with(Outcome::Started(zero_ns)))
    }

    fn change(&mut self, name: &str, direction: Direction, change: &Change) -> Result<Answer, Error> {
        let id = self.id(name)?;
        let Some(link) = &mut self.links[id] else { return Err(format!("unknown link '{name}'").into()) };
        let at_s =
            link.change(&self.clock, direction as Port, change).map_err(|why| format!("link '{name}': {why}"))?;
        link.advance(&self.clock, &mut self.telemetry);
        self.schedule(id);
        Ok(Answer::with(Outcome::Changed(at_s)))
    }

    fn stop(&mut self, keep: bool) -> Result<Answer, Error> {
        self.telemetry.take().map_or(Ok(()), Telemetry::finish)?;
        let links = self.links.iter_mut().flatten().map(|link| (link.spec.name.clone(), link.report())).collect();
        for link in self.links.iter_mut().flatten() {
            if keep {
                link.close();
            } else {
                link.silence()?;
            }
        }
        self.schedule_all();
        let stalls = std::mem::take(&mut self.pulse).report();
        let report = EmulationReport { links, realtime: self.realtime, stalls, fault: self.fault.clone() };
        Ok(Answer::with(Outcome::Stopped(report)))
    }

    /// The link with this name.
    fn id(&self, name: &str) -> Result<LinkId, Error> {
        let named = |link: &Option<EmulatedLink>| link.as_ref().is_some_and(|link| link.spec.name == name);
        let names = || self.links.iter().flatten().map(|link| link.spec.name.as_str());
        self.links.iter().position(named).map(LinkId::new).ok_or_else(|| Error::unknown("link", name, names()))
    }
}

/// Why these interfaces cannot be the ends of one link, if they cannot. A packet from an interface without a link-layer header has
/// no address for an Ethernet, and no station on a medium.
fn mixed(link: &str, interfaces: &[Interface]) -> Option<String> {
    let bare = interfaces.iter().find(|interface| interface.link_layer() == LinkLayer::Bare)?.name();
    if let Some(other) = interfaces.iter().find(|interface| interface.link_layer() == LinkLayer::Ethernet) {
        let other = other.name();
        return Some(format!(
            "link '{link}' joins {bare}, which has no link-layer header (PPP, SLIP, TUN), and {other}, which has Ethernet's; \
             both ends need the same kind"
        ));
    }
    (interfaces.len() > 2).then(|| format!("link '{link}' has more than two ends, and {bare} has no hardware address"))
}

fn open(end: &EndSpec) -> Result<Interface, Error> {
    let mac = end.mac.as_deref().map(parse_mac).transpose()?;
    if end.attach {
        Interface::attach(end.pid, &end.ifname, mac)
    } else {
        Tap::create(end.pid, &end.ifname, mac).map(Interface::Tap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_sources_correspond() {
        for source in
            [Source::Requests, Source::Interface(LinkId::new(0), 0), Source::Interface(LinkId::new(70_000), 65_535)]
        {
            assert_eq!(Source::of(source.token()), source);
        }
    }
}
