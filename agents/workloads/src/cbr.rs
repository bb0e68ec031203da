//! Constant bit rate: UDP packets of one size at equal intervals.

use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, REQUIRED};
use backchannel_core::registry::{Entry, ExchangeKind};
use backchannel_core::time::service_time;
use backchannel_core::Error;

use crate::datagrams::{check_room, datagram_header_bytes, Datagrams};
use crate::{Context, Workload};

options! {
    /// Options of the workload.
    struct Options {
        rate_bps: f64 = REQUIRED, [Rate 1] "rate of IP packets, headers included";
        packet_bytes: u32 = 210, [Bytes 29 to 65_535] "IP and UDP headers included (ns)";
    }
}

pub(crate) static ENTRY: Entry =
    Entry::workload("cbr", "UDP packets of one size at equal intervals", ExchangeKind::Packets)
        .source("acq 3.4; aq 4.7, 4.8")
        .options(Options::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: Context<'_>) -> Result<Box<dyn Workload>, Error> {
    let Options { rate_bps, packet_bytes } = Options::read(checked);
    let ip = context.flow.ip;
    check_room(packet_bytes, datagram_header_bytes(ip), ip)?;
    let every = service_time(u64::from(packet_bytes) * 8, rate_bps as u64);
    Ok(Box::new(Datagrams { every, packet_bytes, is_icmp: false }))
}
