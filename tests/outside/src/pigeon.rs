//! A link of pigeons (RFC 1149): one leaves each end at equal intervals with the packets that wait.

use std::time::Duration;

use backchannel_node::core::event::Events;
use backchannel_node::core::options;
use backchannel_node::core::options::CheckedOptions;
use backchannel_node::core::registry::{Entry, Medium};
use backchannel_node::core::scenario::{DirectionSpec, LinkSpec};
use backchannel_node::core::traits::Usage;
use backchannel_node::core::{Delivery, Link, Packet, Policy, Port, Time};
use backchannel_node::links::Context;

options! {
    /// Options of the link.
    struct Parameters {
        interval_s: Duration = 0.05, [Time 0.001 to 1e5] "time between two pigeons of one end";
        load_packets: usize = 10, [Packets 1 to 1000] "packets that a pigeon carries at most";
    }
}

pub(crate) static ENTRY: Entry =
    Entry::link("pigeon", "avian carriers at equal intervals", Medium { radio: false, probing: None })
        .source("RFC 1149")
        .options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, spec: &LinkSpec, context: &Context) -> Result<Box<dyn Link>, String> {
    let loft = |way: &str, direction: &DirectionSpec| {
        let policy = context.of_queue(&format!("{}/{way}", spec.name), [None; 2]).build(&direction.queue)?;
        let flight = Duration::from_secs_f64(direction.delay_s);
        Ok::<_, String>(Loft { policy, flight, in_flight: Vec::new(), usage: Usage::default() })
    };
    let lofts = [loft("forward", &spec.forward)?, loft("reverse", &spec.reverse)?];
    Ok(Box::new(Pigeons { parameters: Parameters::read(checked), lofts, leaves: Time::ZERO }))
}

/// One end: the packets that wait there, and those that have left it.
struct Loft {
    policy: Box<dyn Policy>,
    flight: Duration,
    in_flight: Vec<(Time, Packet)>,
    usage: Usage,
}

struct Pigeons {
    parameters: Parameters,
    lofts: [Loft; 2],
    /// When the next pigeons leave.
    leaves: Time,
}

impl Link for Pigeons {
    fn submit(&mut self, now: Time, port: Port, packet: Packet, events: &mut Events) {
        while self.leaves < now {
            self.leaves += self.parameters.interval_s;
        }
        events.port = port;
        self.lofts[usize::from(port)].policy.enqueue(now, packet, events);
    }

    fn next_event(&self) -> Option<Time> {
        let waits = self.lofts.iter().any(|loft| loft.policy.len_packets() > 0);
        let landings = self.lofts.iter().filter_map(|loft| loft.in_flight.first().map(|(at, _)| *at));
        landings.chain(waits.then_some(self.leaves)).min()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Delivery>, events: &mut Events) {
        if self.leaves <= now {
            for (port, loft) in self.lofts.iter_mut().enumerate() {
                events.port = port as Port;
                for _ in 0..self.parameters.load_packets {
                    let Some(packet) = loft.policy.dequeue(self.leaves, events) else { break };
                    loft.usage.packets += 1;
                    loft.usage.bytes += u64::from(packet.len());
                    loft.in_flight.push((self.leaves + loft.flight, packet));
                }
            }
            self.leaves += self.parameters.interval_s;
        }
        for (port, loft) in self.lofts.iter_mut().enumerate() {
            let landed = loft.in_flight.iter().take_while(|(at, _)| *at <= now).count();
            let landed = loft.in_flight.drain(..landed);
            out.extend(landed.map(|(at, packet)| Delivery { port: 1 - port as Port, at, packet }));
        }
    }

    fn policy(&self, port: Port) -> Option<&dyn Policy> {
        Some(&*self.lofts[usize::from(port)].policy)
    }

    fn usage(&self, port: Port) -> Usage {
        self.lofts[usize::from(port)].usage
    }
}
