//! One link in service: its pure state machine, its interfaces, its clock.

use backchannel_core::event::Events;
use backchannel_core::packet::Packet;
use backchannel_core::report::{direction_name, Direction};
use backchannel_core::scenario::LinkSpec;
use backchannel_core::telemetry::{Telemetry, Watch};
use backchannel_core::time::Time;
use backchannel_core::traits::{Delivery, Link, Port};
use serde_json::{Map, Value};

use crate::interface::Interface;
use crate::sys::monotonic_ns;

const ETHERNET_HEADER: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Frames taken from one TAP before the timers get their turn.
const BATCH: usize = 16;
const MAX_FRAME: usize = 65_536 + ETHERNET_HEADER;

/// See the module.
pub(crate) struct Served {
    pub(crate) spec: LinkSpec,
    pub(crate) taps: Vec<Interface>,
    seed: u64,
    link: Box<dyn Link>,
    /// CLOCK_MONOTONIC at the link's zero.
    zero_ns: u64,
    ports: Vec<PortState>,
    /// After a run, until it is configured again: nothing enters, nothing leaves.
    silent: bool,
    next_id: u64,
    buffer: Vec<u8>,
    frame: Vec<u8>,
    out: Vec<Delivery>,
    events: Events,
}

#[derive(Default)]
struct PortState {
    report: Direction,
    watch: Watch,
    /// What the interface had dropped by then.
    overflowed_before: u64,
}

/// Counters that begin now.
fn fresh(taps: &[Interface]) -> Vec<PortState> {
    let state =
        |tap: &Interface| PortState { overflowed_before: tap.overflowed().unwrap_or(0), ..PortState::default() };
    taps.iter().map(state).collect()
}

impl Served {
    /// A link between these interfaces, whose time begins now.
    pub(crate) fn new(spec: LinkSpec, seed: u64, taps: Vec<Interface>) -> Result<Served, String> {
        let link = backchannel_links::build(&spec, seed)?;
        let ports = fresh(&taps);
        Ok(Served {
            spec,
            taps,
            seed,
            link,
            zero_ns: monotonic_ns(),
            ports,
            silent: false,
            next_id: 0,
            buffer: vec![0; MAX_FRAME],
            frame: Vec::with_capacity(2048),
            out: Vec::new(),
            events: Events::default(),
        })
    }

    /// Replaces parameters, policies and counters; what was in the link is gone. Time begins now.
    pub(crate) fn configure(&mut self, spec: LinkSpec, seed: u64) -> Result<(), String> {
        if spec.ends.len() != self.taps.len() {
            return Err(format!("link '{}' has {} ends, not {}", spec.name, self.taps.len(), spec.ends.len()));
        }
        self.link = backchannel_links::build(&spec, seed)?;
        self.spec = spec;
        self.seed = seed;
        self.silent = false;
        self.ports = fresh(&self.taps);
        self.zero_ns = monotonic_ns();
        Ok(())
    }

    /// Begins anew, as configured, with the link's zero at this instant of CLOCK_MONOTONIC.
    pub(crate) fn start_at(&mut self, zero_ns: u64) -> Result<(), String> {
        self.configure(self.spec.clone(), self.seed)?;
        self.zero_ns = zero_ns;
        Ok(())
    }

    /// CLOCK_MONOTONIC at which [`Served::advance`] is next due.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.link.next_event().map(|at| self.zero_ns + at.nanos())
    }

    /// Takes frames from a TAP.
    pub(crate) fn read(&mut self, port: usize, telemetry: &mut Option<Telemetry>) -> Result<(), String> {
        for _ in 0..BATCH {
            let mut buffer = std::mem::take(&mut self.buffer);
            let taken = match self.taps[port].read(&mut buffer) {
                Ok(Some(frame)) => {
                    self.take_frame(port, frame, telemetry);
                    Ok(true)
                }
                Ok(None) => Ok(false),
                Err(error) => Err(format!("reading from {} failed: {error}", self.taps[port].name())),
            };
            self.buffer = buffer;
            if !taken? {
                break;
            }
        }
        Ok(())
    }

    /// Ends a run: what the link holds is gone, and it stays silent until it is configured again. A slow line would go
    /// on for seconds, and captures of a run are to end with it.
    pub(crate) fn silence(&mut self) -> Result<(), String> {
        self.link = backchannel_links::build(&self.spec, self.seed)?;
        self.silent = true;
        Ok(())
    }

    fn take_frame(&mut self, port: usize, frame: &[u8], telemetry: &mut Option<Telemetry>) {
        if self.silent {
            return;
        }
        let Some((header, packet)) = frame.split_first_chunk::<ETHERNET_HEADER>() else { return };
        let ethertype = [header[12], header[13]];
        if ethertype != ETHERTYPE_IPV4 && ethertype != ETHERTYPE_IPV6 {
            // ARP and the like belong to the wire that a link stands for, not to the link under study: they cross at
            // once and are not counted. The testbed itself enters neighbours by hand and sends none.
            for (other, tap) in self.taps.iter_mut().enumerate() {
                if other != port {
                    tap.write(frame);
                }
            }
            return;
        }
        self.next_id += 1;
        let mut packet = Packet::from_bytes(self.next_id, packet.to_vec());
        packet.set_link_header(*header);
        if self.taps.len() > 2 {
            // To nobody on this medium: broadcasts are for discovery, which the testbed has none of.
            let Some(to) = self.taps.iter().position(|tap| tap.mac().is_some_and(|mac| mac == header[..6])) else {
                return;
            };
            packet.set_ports(port as Port, to as Port);
        }
        let now = self.now();
        self.ports[port].report.submitted();
        self.link.submit(now, port as Port, packet, &mut self.events);
        self.tell_events(telemetry);
        self.tell_queue(port, now, telemetry);
    }

    /// Writes out whatever is due.
    pub(crate) fn advance(&mut self, telemetry: &mut Option<Telemetry>) {
        let now = self.now();
        if self.link.next_event().is_none_or(|at| at > now) {
            return;
        }
        let mut out = std::mem::take(&mut self.out);
        self.link.poll(now, &mut out, &mut self.events);
        for delivery in out.drain(..) {
            // On a link with two ends, what comes out of one went in at the other.
            let from = match self.taps.len() {
                2 => 1 - usize::from(delivery.port),
                _ => usize::from(delivery.packet.from_port()),
            };
            self.frame.clear();
            self.frame.extend_from_slice(&delivery.packet.link_header().unwrap_or_default());
            self.frame.extend_from_slice(delivery.packet.bytes());
            self.frame.resize(self.frame.len() + delivery.packet.zeros() as usize, 0);
            let written = self.taps[usize::from(delivery.port)].write(&self.frame);
            let (ideal_ns, real_ns) = (self.zero_ns + delivery.at.nanos(), monotonic_ns());
            let rate_bps = self.rate_bps(from);
            self.ports[from].report.delivered(ideal_ns, real_ns, delivery.packet.len(), rate_bps, written);
        }
        self.out = out;
        for port in 0..self.ports.len() {
            self.tell_queue(port, now, telemetry);
        }
        self.tell_events(telemetry);
    }

    /// The report of every direction since the link was configured.
    pub(crate) fn report(&mut self) -> Value {
        let mut all = Map::new();
        for port in 0..self.ports.len() {
            let (usage, rate_bps) = (self.link.usage(port as Port), self.rate_bps(port));
            let state = &mut self.ports[port];
            let mut report = state.report.json(usage, rate_bps);
            let overflowed = self.taps[port].overflowed().map(|now| now.saturating_sub(state.overflowed_before));
            report["lost_before_the_link"] = overflowed.into();
            all.insert(direction_name(port), report);
        }
        Value::Object(all)
    }

    fn rate_bps(&self, from: usize) -> Option<u64> {
        if !self.spec.forward.schedule.is_empty() || !self.spec.reverse.schedule.is_empty() {
            // A rate that changes is no yardstick for pace; lateness still is.
            return None;
        }
        if from == 0 {
            self.spec.forward.rate_bps
        } else {
            self.spec.reverse.rate_bps
        }
    }

    /// The link's time; packets that come before a run's zero count as coming at it.
    fn now(&self) -> Time {
        Time(monotonic_ns().saturating_sub(self.zero_ns))
    }

    fn tell_events(&mut self, telemetry: &mut Option<Telemetry>) {
        for event in self.events.list.drain(..) {
            let port = usize::from(event.port);
            self.ports[port].report.happened(&event);
            if let Some(telemetry) = telemetry {
                telemetry.event(&self.spec.name, &direction_name(port), &event);
            }
        }
        for sender in self.events.senders.drain(..) {
            let port = usize::from(sender.port);
            self.ports[port].report.told(&sender);
            if let Some(telemetry) = telemetry {
                telemetry.sender(&self.spec.name, &direction_name(port), &sender);
            }
        }
    }

    fn tell_queue(&mut self, port: usize, now: Time, telemetry: &mut Option<Telemetry>) {
        let (Some(telemetry), Some(policy)) = (telemetry.as_mut(), self.link.policy(port as Port)) else { return };
        let (packets, bytes) = (policy.len_packets(), policy.len_bytes());
        let watch = &mut self.ports[port].watch;
        telemetry.queue(watch, now.nanos(), &self.spec.name, port, packets, bytes);
    }
}
