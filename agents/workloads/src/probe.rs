//! Probes: packets at equal intervals that the receiver returns.

use std::time::Duration;

use backchannel_core::options::CheckedOptions;
use backchannel_core::registry::{Entry, ExchangeKind};
use backchannel_core::Error;
use backchannel_core::{choice, options};

use crate::datagrams::{check_room, datagram_header_bytes, Datagrams, LEAST_NUMBERED_BYTES};
use crate::{Context, Workload};

choice! {
    /// What a probe is.
    enum Protocol {
        /// A packet of UDP.
        Udp = "udp",
        /// An ICMP echo request.
        Icmp = "icmp",
    }
}

options! {
    /// Options of the workload.
    struct Options {
        protocol: Protocol = "udp", [Choice]
            "UDP, which a program returns, or ICMP echo, which the receiver's network stack answers, as ping uses it";
        interval_s: Duration = 0.05, [Time 1e-4 to 1e3] "time between two probes";
        packet_bytes: u32 = 64, [Bytes LEAST_NUMBERED_BYTES to 65_535] "headers of IP and UDP or ICMP included";
    }
}

pub(crate) static ENTRY: Entry = Entry::workload(
    "probe",
    "packets at equal intervals that the receiver returns: latency while other flows load the path",
    ExchangeKind::Echoes,
)
.source("RFC 2681; RFC 7679")
.options(Options::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: Context<'_>) -> Result<Box<dyn Workload>, Error> {
    let Options { protocol, interval_s, packet_bytes } = Options::read(checked);
    let ip = context.flow.ip;
    check_room(packet_bytes, datagram_header_bytes(ip), ip)?;
    Ok(Box::new(Datagrams { every: interval_s, packet_bytes, is_icmp: protocol == Protocol::Icmp }))
}
