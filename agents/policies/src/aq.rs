//! AQ, asymmetric queueing: data and acks of the uplink have a queue each, and share the line so that both directions
//! can be full.
//!
//! Source: aq 2, 3, equations 7 to 11. C_u and C_d are the rates of uplink and downlink, S_A and S_D the sizes of acks
//! and data, R_u and R_d the rates of traffic other than TCP, measured over the last interval T:
//!
//! ```text
//! (8), (10)  r_c = (C_u - R_u)/(C_d - R_d)              r_s = S_A/S_D
//! (7), (9)   R_D/R_A = (r_c - r_s)/((1 - r_c r_s) r_s)  service of data to acks while both wait, and split of the buffer
//! (11)       C_u/C_d > S_A/S_D                          or no ratio fills both directions
//! ```
//!
//! Parameters: C_u `uplink_bps`, C_d `downlink_bps`, S_A `ack_bytes`, S_D `data_bytes`, T `period_s`.
//!
//! A TCP segment of at most S_A bytes counts as an ack. Other traffic is served with the data. With timestamps an ack
//! has 52 bytes, so set S_A to 52 or classify by kind (`classify: pure-ack`). To configure AQ wrongly on purpose (aq 5),
//! set other rates than the line's.
//!
//! Differs from the source, which is silent, in:
//! - The scheduler is weighted fair queueing (module `classes`).
//! - The buffer is split once, at the start. Only the weights are updated.

use backchannel_core::event::Events;
use backchannel_core::options::{CheckedOptions, ABSENT};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Queueing};
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;
use backchannel_core::Error;
use backchannel_core::{choice, options};

use crate::classes::{Class, Classes};
use crate::context::rate_bps;
use crate::meter::Intervals;
use crate::Context;

choice! {
    /// Which packets are served as acks.
    pub(crate) enum Classify {
        /// Any TCP segment of at most S_A bytes.
        Size = "size",
        /// Any TCP ack without data.
        PureAck = "pure-ack",
    }
}

choice! {
    /// What to do where equation 11 does not hold.
    pub enum Infeasible {
        /// Refuse to start; keep the last weights later.
        Refuse = "refuse",
        /// Acks get neither weight nor buffer.
        NoAcks = "no-acks",
        /// Acks get the whole line while any waits.
        OnlyAcks = "only-acks",
    }
}

options! {
    /// What the campaign sets; fixed for the run.
    #[derive(Copy, PartialEq)]
    pub(crate) struct Parameters {
        limit_packets: usize = 50, [Packets 2]
            "capacity in packets, split between data and acks in the same ratio as the link (aq 3, 4)";
        uplink_bps: Option<f64> = ABSENT, [Rate 1]
            "C_u, the rate of this direction; if absent, the link's rate, also when it changes; set it to configure AQ \
             wrongly on purpose (aq 5)";
        downlink_bps: Option<f64> = ABSENT, [Rate 1]
            "C_d, the rate of the opposite direction; if absent, that direction's rate, also when it changes";
        ack_bytes: f64 = 40, [Bytes 20 to 1500] "S_A, the IP length of an ack; 52 with timestamps";
        data_bytes: f64 = 1500, [Bytes 41 to 65_535] "S_D, the IP length of a data packet";
        classify: Classify = "size", [Choice]
            "which packets are served as acks: size, any TCP segment of at most ack_bytes (aq 3); pure-ack, any TCP ack \
             without data";
        measure_other: bool = true, [Flag]
            "measure traffic other than TCP and subtract it from both rates (equations 9, 10)";
        period_s: f64 = 0.2, [Time 0.001 to 3600]
            "T, the interval over which other traffic is measured and after which the weights are updated";
        infeasible: Infeasible = "refuse", [Choice]
            "what happens where equation 11 does not hold: refuse reports an error at the start and keeps the last \
             weights later; no-acks gives acks neither weight nor buffer, as the paper's runs suggest (aq 4.3); \
             only-acks sends them first";
    }
}

pub(crate) static ENTRY: Entry = Entry::policy(
    "aq",
    "asymmetric queueing: acks get the share of the uplink that lets both directions fill",
    Queueing::CLASSES,
)
.source("aq 2, 3, 5 (equations 7 to 11)")
.options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: &Context) -> Result<Box<dyn Policy>, Error> {
    let parameters = Parameters::read(checked);
    let uplink_bps = rate_bps(parameters.uplink_bps, context.rate_bps, "uplink_bps", "aq", "the direction")?;
    let opposite_bps = context.opposite_rate_bps;
    let downlink_bps = rate_bps(parameters.downlink_bps, opposite_bps, "downlink_bps", "aq", "the opposite direction")?;
    Ok(Box::new(AsymmetricQueueing::new(parameters, uplink_bps, downlink_bps)?))
}

impl Infeasible {
    /// The share of acks that this choice stands for, if any.
    fn share_of_acks(self) -> Option<f64> {
        match self {
            Infeasible::Refuse => None,
            Infeasible::NoAcks => Some(0.0),
            Infeasible::OnlyAcks => Some(1.0),
        }
    }
}

/// What changes at run time, beside the queues.
#[derive(Clone, Debug)]
struct Variables {
    /// C_u and C_d in force, bit/s.
    uplink_bps: f64,
    downlink_bps: f64,
    intervals: Intervals,
    /// Bytes other than TCP since the interval began: up, down.
    other_bytes: [u64; 2],
}

/// The share R_A/(R_D + R_A) of equations 7 and 8; `None` where equation 11 does not hold.
pub fn ack_share(uplink_bps: f64, downlink_bps: f64, ack_bytes: f64, data_bytes: f64) -> Option<f64> {
    let r_s = ack_bytes / data_bytes;
    // r_c > r_s, without a division by a downlink rate of 0.
    if uplink_bps <= r_s * downlink_bps {
        return None;
    }
    let r_c = uplink_bps / downlink_bps;
    if r_c * r_s >= 1.0 {
        // The downlink cannot even carry the acks of the uplink's data, so there is no download to acknowledge.
        return Some(0.0);
    }
    let ratio = (r_c - r_s) / ((1.0 - r_c * r_s) * r_s);
    Some(1.0 / (1.0 + ratio))
}

/// Two queues with the weights of equation 7.
pub struct AsymmetricQueueing {
    parameters: Parameters,
    variables: Variables,
    classes: Classes,
}

impl AsymmetricQueueing {
    /// Empty queues. C_u and C_d are those at the start.
    ///
    /// # Errors
    /// Acks are no smaller than data, or equation 11 does not hold and `infeasible` is `Refuse`.
    pub(crate) fn new(parameters: Parameters, uplink_bps: f64, downlink_bps: f64) -> Result<AsymmetricQueueing, Error> {
        let Parameters { limit_packets: limit, ack_bytes, data_bytes, infeasible, .. } = parameters;
        if ack_bytes >= data_bytes {
            return Err(format!("policy aq: ack_bytes ({ack_bytes}) must be below data_bytes ({data_bytes})").into());
        }
        let feasible = ack_share(uplink_bps, downlink_bps, ack_bytes, data_bytes);
        let share = feasible.or(infeasible.share_of_acks()).ok_or_else(|| {
            format!(
                "policy aq: equation 11 does not hold: the uplink's {uplink_bps:.0} bit/s over the downlink's \
                 {downlink_bps:.0} bit/s is {:.4}, and must be above ack_bytes/data_bytes = {:.4}: the acks of a \
                 full downlink alone exceed the uplink; 'infeasible' can be no-acks or only-acks",
                uplink_bps / downlink_bps,
                ack_bytes / data_bytes
            )
        })?;
        let ack_limit = match (share * limit as f64).round() as usize {
            0 if infeasible != Infeasible::NoAcks || share > 0.0 => 1,
            packets => packets.min(limit - 1),
        };
        let intervals = Intervals::of(parameters.period_s);
        Ok(AsymmetricQueueing {
            parameters,
            variables: Variables { uplink_bps, downlink_bps, intervals, other_bytes: [0, 0] },
            classes: Classes::new(ack_limit, limit - ack_limit, share),
        })
    }

    /// R_A/(R_D + R_A) in force.
    pub fn share_of_acks(&self) -> f64 {
        self.classes.share_of_acks()
    }

    /// Equations 9 and 10 for the last interval that has ended.
    fn update(&mut self, now: Time) {
        let other_bytes = match self.variables.intervals.ended(now) {
            0 => return,
            1 => self.variables.other_bytes,
            // The count belongs to an earlier interval; nothing arrived in the last one.
            _ => [0, 0],
        };
        self.variables.other_bytes = [0, 0];
        if self.parameters.measure_other {
            self.set_share(now, other_bytes);
        }
    }

    /// Equations 7 and 8 with the rates that `other_bytes` per interval (up, down) leave to TCP.
    fn set_share(&mut self, now: Time, other_bytes: [u64; 2]) {
        let Parameters { ack_bytes, data_bytes, infeasible, .. } = self.parameters;
        let Variables { uplink_bps, downlink_bps, intervals, .. } = &self.variables;
        let [up, down] = other_bytes.map(|bytes| intervals.rate_bps(bytes));
        let share = ack_share((uplink_bps - up).max(0.0), (downlink_bps - down).max(0.0), ack_bytes, data_bytes);
        if let Some(share) = share.or(infeasible.share_of_acks()) {
            self.classes.set_share_of_acks(now, share);
        }
    }
}

impl Policy for AsymmetricQueueing {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        self.update(now);
        if packet.tcp().is_none() {
            self.variables.other_bytes[0] += u64::from(packet.len());
        }
        // "The non-TCP traffic is served through the D queue" (aq 3), whatever its size.
        let is_ack = packet.tcp().is_some()
            && match self.parameters.classify {
                Classify::Size => f64::from(packet.len()) <= self.parameters.ack_bytes,
                Classify::PureAck => packet.is_pure_ack(),
            };
        let class = if is_ack { Class::Acks } else { Class::Data };
        self.classes.push(class, now, packet, events);
    }

    fn dequeue(&mut self, now: Time, events: &mut Events) -> Option<Packet> {
        self.update(now);
        Some(self.classes.pop(now, events)?.1)
    }

    fn on_rates(&mut self, now: Time, own_bps: Option<u64>, opposite_bps: Option<u64>) {
        self.update(now);
        if let (None, Some(bps)) = (self.parameters.uplink_bps, own_bps) {
            self.variables.uplink_bps = bps as f64;
        }
        if let (None, Some(bps)) = (self.parameters.downlink_bps, opposite_bps) {
            self.variables.downlink_bps = bps as f64;
        }
        // The next interval's measurement is subtracted again.
        self.set_share(now, [0, 0]);
    }

    fn on_opposite(&mut self, now: Time, packet: &Packet) {
        self.update(now);
        if packet.tcp().is_none() {
            self.variables.other_bytes[1] += u64::from(packet.len());
        }
    }

    crate::fifo::kept_in!(classes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, drain, kinds};
    use backchannel_core::event::EventKind;
    use backchannel_core::packet::build::{ack, data, udp};
    use serde_json::json;

    /// The paper's own setting (aq 4).
    const PAPER: Parameters = Parameters {
        limit_packets: 50,
        uplink_bps: None,
        downlink_bps: None,
        ack_bytes: 40.0,
        data_bytes: 1500.0,
        classify: Classify::Size,
        measure_other: true,
        period_s: 0.2,
        infeasible: Infeasible::Refuse,
    };

    /// A queue on the paper's line.
    fn aq(parameters: Parameters) -> AsymmetricQueueing {
        AsymmetricQueueing::new(parameters, 1e6, 10e6).expect("feasible")
    }

    #[test]
    fn rates_are_the_lines_or_the_ones_given_and_one_that_is_missing_is_named() {
        let build_on = |options: serde_json::Value, rate_bps, opposite_rate_bps| {
            let options = serde_json::from_value(options).expect("an object");
            let context = Context { rate_bps, opposite_rate_bps, ..crate::testing::context() };
            build(&CheckedOptions::check(&ENTRY, &options)?, &context)
        };
        assert!(build_on(json!({}), Some(1_000_000), Some(10_000_000)).is_ok());
        assert!(build_on(json!({"uplink_bps": 2e6, "downlink_bps": 4e6}), None, None).is_ok());
        for (own, opposite, missing) in [(None, Some(1), "uplink_bps"), (Some(1), None, "downlink_bps")] {
            let why = build_on(json!({}), own, opposite).err().expect("a rate is missing");
            assert!(why.to_string().contains(missing), "{why}");
        }
    }

    /// Of a line whose directions are unlike, C_u is the rate of this direction.
    #[test]
    fn both_rates_of_the_line_are_followed_each_in_its_place() {
        let mut queue = aq(PAPER);
        queue.on_rates(Time::ZERO, Some(4_000_000), Some(8_000_000));
        assert_eq!(queue.share_of_acks(), ack_share(4e6, 8e6, 40.0, 1500.0).expect("feasible"));
        queue.on_rates(Time::ZERO, None, Some(16_000_000));
        assert_eq!(queue.share_of_acks(), ack_share(4e6, 16e6, 40.0, 1500.0).expect("feasible"));
        let mut queue = aq(Parameters { downlink_bps: Some(10e6), ..PAPER });
        queue.on_rates(Time::ZERO, Some(4_000_000), Some(8_000_000));
        assert_eq!(queue.share_of_acks(), ack_share(4e6, 10e6, 40.0, 1500.0).expect("feasible"));
    }

    #[test]
    fn without_measure_other_datagrams_change_nothing() {
        let mut queue = aq(Parameters { measure_other: false, ..PAPER });
        let before = queue.share_of_acks();
        queue.on_opposite(Time::ZERO, &udp(1, 60_000));
        queue.dequeue(at(0.2), &mut Events::default());
        assert_eq!(queue.share_of_acks(), before);
    }

    #[test]
    fn a_change_of_the_lines_rate_changes_the_ratio_unless_the_rate_was_given() {
        let share = |parameters: Parameters| {
            let mut aq = aq(parameters);
            aq.on_rates(Time::ZERO, Some(2_000_000), Some(10_000_000));
            aq.share_of_acks()
        };
        // aq 5: 13.27 % for 2 and 10 Mbit/s, 26.6 % for 1 and 10.
        assert!((share(PAPER) - 0.1327).abs() < 1e-4, "{}", share(PAPER));
        assert!((share(Parameters { uplink_bps: Some(1e6), ..PAPER }) - 0.2662).abs() < 1e-4);
    }

    #[test]
    fn the_papers_setting_gives_acks_26_6_percent() {
        let share = ack_share(1e6, 10e6, 40.0, 1500.0).expect("feasible");
        assert!(((1.0 - share) / share - 2.757).abs() < 0.001);
        assert!((share - 0.266).abs() < 0.0005, "{share}");
    }

    #[test]
    fn equation_7_fills_both_directions() {
        // Equations 1 to 4 hold for the share that comes out, whatever the rates.
        for (c_u, c_d) in [(1e6, 10e6), (1e6, 1e6), (0.3e6, 10e6), (4e6, 10e6)] {
            let share = ack_share(c_u, c_d, 40.0, 1500.0).expect("feasible");
            let (acks_up, data_up) = (share * c_u, (1.0 - share) * c_u);
            let data_down = acks_up * 1500.0 / 40.0;
            let acks_down = data_up * 40.0 / 1500.0;
            assert!(((data_down + acks_down) / c_d - 1.0).abs() < 1e-9, "{c_u} {c_d}");
        }
    }

    #[test]
    fn a_router_that_believes_in_2_mbit_gives_acks_13_27_percent() {
        let queue = AsymmetricQueueing::new(PAPER, 2e6, 10e6).expect("feasible");
        assert!((queue.share_of_acks() - 0.1327).abs() < 0.0001);
    }

    #[test]
    fn the_buffer_is_37_for_data_and_13_for_acks() {
        let (mut queue, mut events) = (aq(PAPER), Events::default());
        for id in 1..=40 {
            queue.enqueue(Time::ZERO, data(u64::from(id), 1460), &mut events);
            queue.enqueue(Time::ZERO, ack(1000 + id), &mut events);
        }
        let dropped: Vec<_> = kinds(&events).into_iter().map(|(id, _)| id).collect();
        assert_eq!(dropped.iter().filter(|id| **id < 1000).copied().collect::<Vec<_>>(), [38, 39, 40]);
        assert_eq!(dropped.iter().filter(|id| **id >= 1000).min(), Some(&1014));
        assert_eq!(queue.len_packets(), 50);
    }

    #[test]
    fn equation_11_is_refused_with_the_reason_or_gone_on_with() {
        let narrow = |parameters| AsymmetricQueueing::new(parameters, 0.256e6, 10e6);
        let said = narrow(PAPER).err().expect("0.0256 is below 0.0267");
        assert!(
            said.to_string().contains("equation 11")
                && said.to_string().contains("0.0256")
                && said.to_string().contains("0.0267"),
            "{said}"
        );
        let said = narrow(Parameters { ack_bytes: 1500.0, ..PAPER }).err().expect("acks as large as data");
        assert!(said.to_string().contains("must be below data_bytes (1500)"), "{said}");
        let order = |infeasible| {
            let mut queue = narrow(Parameters { infeasible, ..PAPER }).expect("allowed");
            let mut events = Events::default();
            for packet in [data(1, 1460), data(2, 1460), ack(11), ack(12)] {
                queue.enqueue(Time::ZERO, packet, &mut events);
            }
            (drain(&mut queue, &mut events), events.count(EventKind::DroppedFull))
        };
        assert_eq!(order(Infeasible::NoAcks), (vec![1, 2], 2));
        assert_eq!(order(Infeasible::OnlyAcks), (vec![11, 12, 1], 1));
    }

    #[test]
    fn udp_is_measured_both_ways_and_forgotten_after_a_quiet_interval() {
        // aq 4.7, 60 s to 80 s: 0.5 Mbit/s up, 3 Mbit/s down, so r_c = 0.5/7.
        let (mut queue, mut events) = (aq(PAPER), Events::default());
        let before = queue.share_of_acks();
        for n in 0..20u32 {
            // 12 500 bytes up and 75 000 down within 200 ms.
            queue.enqueue(at(0.009 * f64::from(n)), udp(n.into(), 597), &mut events);
            queue.on_opposite(at(0.009 * f64::from(n)), &udp(n.into(), 3722));
        }
        queue.dequeue(at(0.2), &mut events);
        let expected = ack_share(0.5e6, 7e6, 40.0, 1500.0).expect("feasible");
        assert!((queue.share_of_acks() - expected).abs() < 1e-9, "{} {expected}", queue.share_of_acks());
        queue.dequeue(at(0.4), &mut events);
        assert_eq!(queue.share_of_acks(), before);
    }

    #[test]
    fn tcp_is_not_measured_as_other_traffic_in_either_direction() {
        let (mut queue, mut events) = (aq(PAPER), Events::default());
        let before = queue.share_of_acks();
        for id in 1..=5 {
            queue.enqueue(at(0.1), data(id, 1460), &mut events);
            queue.on_opposite(at(0.1), &data(id, 1460));
        }
        queue.dequeue(at(0.2), &mut events);
        assert_eq!(queue.share_of_acks(), before);
    }

    #[test]
    fn acks_with_timestamps_need_their_size_or_their_kind() {
        use backchannel_core::packet::build::Segment;
        use backchannel_core::packet::TcpFlags;
        let syn = || Segment { id: 1, flags: TcpFlags::SYN, ..Segment::default() }.packet();
        let big = || Segment { id: 2, payload: 960, ..Segment::default() }.packet();
        for (classify, expected) in [(Classify::Size, [1, 2]), (Classify::PureAck, [2, 1])] {
            let (mut queue, mut events) = (aq(Parameters { classify, limit_packets: 9, ..PAPER }), Events::default());
            queue.enqueue(Time::ZERO, big(), &mut events);
            queue.enqueue(Time::ZERO, syn(), &mut events);
            assert_eq!(drain(&mut queue, &mut events), expected);
        }
    }

    #[test]
    fn traffic_other_than_tcp_goes_with_the_data_whatever_its_size() {
        let (mut queue, mut events) = (aq(PAPER), Events::default());
        queue.enqueue(Time::ZERO, data(2, 960), &mut events);
        queue.enqueue(Time::ZERO, udp(1, 12), &mut events);
        assert_eq!(drain(&mut queue, &mut events), [2, 1]);
    }
}
