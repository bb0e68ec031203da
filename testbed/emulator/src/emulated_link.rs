//! One emulated link: the link in service, its interfaces and its clock.

use std::collections::BTreeMap;

use backchannel_core::packet::Packet;
use backchannel_core::report::{DirectionStatus, LinkReport};
use backchannel_core::scenario::{Change, LinkSpec};
use backchannel_core::service::LinkService;
use backchannel_core::telemetry::Telemetry;
use backchannel_core::time::Time;
use backchannel_core::traits::{Delivery, Port};
use backchannel_core::Error;
use backchannel_links::{build_with_fault, simulated_only, Context, Fault};

use crate::interface::Interface;
use crate::os::clock::monotonic_ns;
use crate::os::link_layer::{is_ip, ETHERNET_HEADER};
use crate::run_clock::RunClock;

/// Frames read from one interface before timers are served.
const BATCH: usize = 16;
const MAX_FRAME: usize = 65_536 + ETHERNET_HEADER;

/// An emulated link.
pub(crate) struct EmulatedLink {
    pub(crate) spec: LinkSpec,
    pub(crate) interfaces: Vec<Interface>,
    context: Context,
    fault: Option<Fault>,
    service: LinkService,
    /// CLOCK_MONOTONIC at the link's time zero.
    zero_ns: u64,
    /// Per interface: frames that the kernel had dropped at time zero.
    overflowed_before: Vec<u64>,
    /// Between the end of a run and the next configuration: packets neither enter nor leave.
    silent: bool,
    next_id: u64,
    buffer: Vec<u8>,
    frame: Vec<u8>,
    deliveries: Vec<Delivery>,
}

/// Builds the link.
///
/// # Errors
/// The specification is invalid, or of a link that only simulations have.
pub(crate) fn service(spec: &LinkSpec, context: &Context, fault: Option<&Fault>) -> Result<LinkService, Error> {
    if let Some(why) = simulated_only(spec) {
        return Err(why.into());
    }
    let link = build_with_fault(spec, context, fault)?;
    // The rate error is measured against one rate, so a schedule leaves none to measure against.
    let rates_bps = if spec.has_schedule() { [None; 2] } else { spec.rates_bps() };
    Ok(LinkService::new(&spec.name, link, spec.ends.len(), rates_bps))
}

fn overflowed(interfaces: &[Interface]) -> Vec<u64> {
    interfaces.iter().map(|interface| interface.overflowed().unwrap_or(0)).collect()
}

impl EmulatedLink {
    /// A link between these interfaces. Its time zero is now.
    pub(crate) fn new(
        spec: LinkSpec,
        context: Context,
        interfaces: Vec<Interface>,
        fault: Option<Fault>,
    ) -> Result<EmulatedLink, Error> {
        Ok(EmulatedLink {
            service: service(&spec, &context, fault.as_ref())?,
            fault,
            overflowed_before: overflowed(&interfaces),
            spec,
            interfaces,
            context,
            zero_ns: monotonic_ns(),
            silent: false,
            next_id: 0,
            buffer: vec![0; MAX_FRAME],
            frame: Vec::with_capacity(2048),
            deliveries: Vec::new(),
        })
    }

    /// Replaces parameters, policies and counters. Packets in the link are discarded. Time zero is now.
    pub(crate) fn configure(&mut self, spec: LinkSpec, seed: u64) -> Result<(), Error> {
        let ends = self.interfaces.len();
        if spec.ends.len() != ends {
            return Err(format!("link '{}' has {ends} ends, not {}", spec.name, spec.ends.len()).into());
        }
        let context = Context { seed, ..self.context.clone() };
        self.service = service(&spec, &context, self.fault.as_ref())?;
        self.spec = spec;
        self.context = context;
        self.silent = false;
        self.overflowed_before = overflowed(&self.interfaces);
        self.zero_ns = monotonic_ns();
        Ok(())
    }

    /// Restarts the link as configured, with its time zero at this instant of CLOCK_MONOTONIC.
    pub(crate) fn start_at(&mut self, zero_ns: u64) -> Result<(), Error> {
        self.configure(self.spec.clone(), self.context.seed)?;
        self.zero_ns = zero_ns;
        Ok(())
    }

    /// CLOCK_MONOTONIC at which [`EmulatedLink::advance`] is next due.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.service.next_event().map(|at| self.zero_ns + at.nanos())
    }

    /// Reads frames from an interface.
    pub(crate) fn read(
        &mut self,
        port: Port,
        clock: &RunClock,
        telemetry: &mut Option<Telemetry>,
    ) -> Result<(), Error> {
        for _ in 0..BATCH {
            let mut buffer = std::mem::take(&mut self.buffer);
            let interface = &mut self.interfaces[usize::from(port)];
            let read = match interface.read(&mut buffer) {
                Ok(Some(frame)) => {
                    self.on_frame(port, frame, clock, telemetry);
                    Ok(true)
                }
                Ok(None) => Ok(false),
                Err(error) => Err(Error::System(format!("reading from {} failed: {error}", interface.name()))),
            };
            self.buffer = buffer;
            if !read? {
                break;
            }
        }
        Ok(())
    }

    /// Ends a run: discards what the link holds and stays silent until the next configuration. Otherwise a slow queue
    /// would go on for seconds, into captures that are being closed.
    pub(crate) fn silence(&mut self) -> Result<(), Error> {
        self.service = service(&self.spec, &self.context, self.fault.as_ref())?;
        self.silent = true;
        Ok(())
    }

    fn on_frame(&mut self, port: Port, frame: &[u8], clock: &RunClock, telemetry: &mut Option<Telemetry>) {
        if self.silent {
            return;
        }
        let Some((header, packet)) = frame.split_first_chunk::<ETHERNET_HEADER>() else { return };
        if !is_ip([header[12], header[13]]) {
            // ARP and the like belong to the wire that the link stands for, not to the link under study. They cross at
            // once and are not counted. The testbed configures neighbours statically and sends none.
            for (other, interface) in self.interfaces.iter_mut().enumerate() {
                if other != usize::from(port) {
                    interface.write(frame);
                }
            }
            return;
        }
        let Some(to) = self.destination(port, header) else { return };
        self.next_id += 1;
        let mut packet = Packet::from_bytes(self.next_id, packet.to_vec());
        packet.set_link_header(*header);
        self.service.submit(self.now(clock), port, to, packet, telemetry);
    }

    /// End to which a frame is addressed. `None`: no station of the medium, such as a broadcast.
    fn destination(&self, from: Port, header: &[u8; ETHERNET_HEADER]) -> Option<Port> {
        if self.interfaces.len() == 2 {
            return Some(1 - from);
        }
        let is_addressee = |interface: &Interface| interface.mac().is_some_and(|mac| mac == header[..6]);
        self.interfaces.iter().position(is_addressee).map(|port| port as Port)
    }

    /// Writes every packet that is due to its interface.
    pub(crate) fn advance(&mut self, clock: &RunClock, telemetry: &mut Option<Telemetry>) {
        let now = self.now(clock);
        if self.service.next_event().is_none_or(|at| at > now) {
            return;
        }
        let mut deliveries = std::mem::take(&mut self.deliveries);
        self.service.poll(now, &mut deliveries);
        for delivery in deliveries.drain(..) {
            self.frame.clear();
            self.frame.extend_from_slice(&delivery.packet.link_header().unwrap_or_default());
            self.frame.extend_from_slice(delivery.packet.bytes());
            self.frame.resize(self.frame.len() + delivery.packet.zeros() as usize, 0);
            let accepted = self.interfaces[usize::from(delivery.port)].write(&self.frame);
            let entered_at = self.service.entered_at(&delivery);
            self.service.on_delivery(entered_at, &delivery, self.now(clock), accepted);
        }
        self.deliveries = deliveries;
        self.service.record(now, telemetry);
    }

    /// Changes the direction that enters at `port` now. Returns when, in seconds since time zero.
    pub(crate) fn change(&mut self, clock: &RunClock, port: Port, change: &Change) -> Result<f64, Error> {
        let now = self.now(clock);
        self.service.change(now, port, change)?;
        Ok(now.seconds())
    }

    /// Every direction as it is now.
    pub(crate) fn status(&self) -> BTreeMap<String, DirectionStatus> {
        self.service.status()
    }

    /// Ends the record of the run; the link goes on.
    pub(crate) fn close(&mut self) {
        self.service.close();
    }

    /// Report of every direction since the link was configured.
    pub(crate) fn report(&mut self) -> LinkReport {
        let mut report = self.service.report();
        for (port, before) in self.overflowed_before.iter().enumerate() {
            let lost = self.interfaces[port].overflowed().map(|now| now.saturating_sub(*before));
            let direction = backchannel_core::report::direction_name(port as Port);
            if let Some(direction) = report.get_mut(&direction) {
                direction.lost_before_the_link = Some(lost);
            }
        }
        report
    }

    /// Time of the link. A packet that arrives before the start of the run counts as arriving at its start.
    fn now(&self, clock: &RunClock) -> Time {
        Time(clock.now_ns().saturating_sub(self.zero_ns))
    }
}
