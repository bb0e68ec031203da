//! Asymmetric queueing (aq 2, 3): data and acks of the uplink share it so that both directions can be full.
//!
//! With C_u, C_d the rates of uplink and downlink and S_A, S_D the sizes of acks and data:
//!
//! - (8), (10): r_c = (C_u − R_u)/(C_d − R_d), r_s = S_A/S_D, R_u and R_d the rates of what is not TCP, measured over the
//!   last T = 200 ms; it is served with the data;
//! - (7), (9): R_D/R_A = (r_c − r_s)/((1 − r_c·r_s)·r_s), the ratio of service while both queues wait, and of the buffers;
//! - (11): C_u/C_d > S_A/S_D, else no ratio fills both directions.
//!
//! A packet of more than S_A bytes is data: with timestamps acks have 52 bytes, so that S_A must be 52 then, or packets
//! told apart by what they are (`classify: pure-ack`). The paper leaves the scheduler open; here it is fair queueing by
//! weight (module `classes`). To configure it wrongly (aq 5) give other rates than the line's.

use backchannel_core::event::Events;
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Entry, Given, Param, Preset, Unit};
use backchannel_core::time::Time;
use backchannel_core::traits::Policy;

use crate::classes::{Class, Classes};
use crate::meter::Intervals;
use crate::Context;

pub(crate) static ENTRY: Entry = Entry {
    kind: "policy",
    name: "aq",
    summary: "asymmetric queueing: acks get the share of the uplink that fills both directions",
    source: "aq 2, 3, 5 (equations 7 to 11)",
    params: &[
        Param::new(
            "limit_packets",
            Unit::Packets,
            Preset::Number(50.0),
            "packets that may wait; split between data and acks like the line (aq 3, 4)",
        )
        .at_least(2.0),
        Param::new("uplink_bps", Unit::Rate, Preset::Absent, "C_u; absent: the line's rate").at_least(1.0),
        Param::new("downlink_bps", Unit::Rate, Preset::Absent, "C_d; absent: the opposite direction's rate")
            .at_least(1.0),
        Param::new("ack_bytes", Unit::Bytes, Preset::Number(40.0), "S_A").range(20.0, 1500.0),
        Param::new("data_bytes", Unit::Bytes, Preset::Number(1500.0), "S_D").range(41.0, 65_535.0),
        Param::new(
            "classify",
            Unit::Choice,
            Preset::Text("size"),
            "what is served as an ack; size: any packet of at most ack_bytes (aq 3); pure-ack: any TCP ack without data",
        )
        .of(&["size", "pure-ack"]),
        Param::new("measure_other", Unit::Flag, Preset::Flag(true), "measure what is not TCP (equations 9, 10)"),
        Param::new("period_s", Unit::Time, Preset::Number(0.2), "T: how often it is measured and the ratio set")
            .range(0.001, 3600.0),
        Param::new(
            "infeasible",
            Unit::Choice,
            Preset::Text("refuse"),
            "where equation 11 does not hold; refuse: an error at the start, the last ratio later on; \
             no-acks: acks get nothing, as the paper's runs suggest (aq 4.3); only-acks: they go first",
        )
        .of(&["refuse", "no-acks", "only-acks"]),
    ],
};

pub(crate) fn build(given: &Given<'_>, context: &Context) -> Result<Box<dyn Policy>, String> {
    let rate = |name: &str, line: Option<u64>, whose: &str| {
        given.number(name).or(line.map(|bps| bps as f64)).ok_or_else(|| {
            format!("policy aq: {whose} has no rate: give {name}, or a rate to the link (it weighs both directions)")
        })
    };
    let number = |name| given.number(name).expect("it has a default");
    let settings = Settings {
        limit: number("limit_packets") as usize,
        uplink_bps: rate("uplink_bps", context.rate_bps, "the direction")?,
        downlink_bps: rate("downlink_bps", context.opposite_rate_bps, "the opposite direction")?,
        ack_bytes: number("ack_bytes"),
        data_bytes: number("data_bytes"),
        by_size: given.text("classify") == Some("size"),
        follows: [given.number("uplink_bps").is_none(), given.number("downlink_bps").is_none()],
        measuring: given.flag("measure_other"),
        period_s: number("period_s"),
        infeasible: match given.text("infeasible") {
            Some("no-acks") => Infeasible::NoAcks,
            Some("only-acks") => Infeasible::OnlyAcks,
            _ => Infeasible::Refuse,
        },
    };
    Ok(Box::new(AsymmetricQueueing::new(settings)?))
}

/// What to do where equation 11 does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Infeasible {
    /// Refuse to start; keep the last ratio later on.
    Refuse,
    /// Acks get no share and no buffer.
    NoAcks,
    /// Acks get the whole line while any waits.
    OnlyAcks,
}

/// What AQ is told.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Packets that may wait.
    pub limit: usize,
    /// C_u, bit/s.
    pub uplink_bps: f64,
    /// C_d, bit/s.
    pub downlink_bps: f64,
    /// Whether C_u and C_d are the line's and change with it; a value that was given stays, right or wrong (aq 5).
    pub follows: [bool; 2],
    /// S_A, bytes.
    pub ack_bytes: f64,
    /// S_D, bytes.
    pub data_bytes: f64,
    /// Tell acks by their size.
    pub by_size: bool,
    /// Measure what is not TCP.
    pub measuring: bool,
    /// T, seconds.
    pub period_s: f64,
    /// See there.
    pub infeasible: Infeasible,
}

/// The share R_A/(R_D + R_A) of equations 7 and 8; `None` where equation 11 does not hold.
pub fn ack_share(uplink_bps: f64, downlink_bps: f64, ack_bytes: f64, data_bytes: f64) -> Option<f64> {
    let r_s = ack_bytes / data_bytes;
    // r_c > r_s, without a division by a downlink that has nothing left.
    if uplink_bps <= r_s * downlink_bps {
        return None;
    }
    let r_c = uplink_bps / downlink_bps;
    if r_c * r_s >= 1.0 {
        // The downlink cannot even carry the acks of the uplink's data: no download, no acks of it.
        return Some(0.0);
    }
    let ratio = (r_c - r_s) / ((1.0 - r_c * r_s) * r_s);
    Some(1.0 / (1.0 + ratio))
}

/// See the module.
#[derive(Debug)]
pub struct AsymmetricQueueing {
    settings: Settings,
    classes: Classes,
    intervals: Intervals,
    /// Bytes that are not TCP, since the interval began: up, down.
    other: [u64; 2],
}

impl AsymmetricQueueing {
    /// Empty queues.
    ///
    /// # Errors
    /// Acks are no smaller than data, or equation 11 does not hold and no way to go on was chosen.
    pub fn new(settings: Settings) -> Result<AsymmetricQueueing, String> {
        let Settings { limit, uplink_bps, downlink_bps, ack_bytes, data_bytes, .. } = settings;
        if ack_bytes >= data_bytes {
            return Err(format!("policy aq: ack_bytes ({ack_bytes}) must be below data_bytes ({data_bytes})"));
        }
        let share = match (ack_share(uplink_bps, downlink_bps, ack_bytes, data_bytes), settings.infeasible) {
            (Some(share), _) => share,
            (None, Infeasible::NoAcks) => 0.0,
            (None, Infeasible::OnlyAcks) => 1.0,
            (None, Infeasible::Refuse) => {
                return Err(format!(
                    "policy aq: equation 11 does not hold: the uplink's {uplink_bps:.0} bit/s over the downlink's \
                     {downlink_bps:.0} bit/s is {:.4}, and must be above ack_bytes/data_bytes = {:.4}: the acks of a \
                     full downlink alone exceed the uplink; 'infeasible' can be no-acks or only-acks",
                    uplink_bps / downlink_bps,
                    ack_bytes / data_bytes
                ))
            }
        };
        let acks = match (share * limit as f64).round() as usize {
            0 if settings.infeasible != Infeasible::NoAcks || share > 0.0 => 1,
            acks => acks.min(limit - 1),
        };
        Ok(AsymmetricQueueing {
            settings,
            classes: Classes::new(acks, limit - acks, share),
            intervals: Intervals::of(settings.period_s),
            other: [0, 0],
        })
    }

    /// R_A/(R_D + R_A) in force.
    pub fn share_of_acks(&self) -> f64 {
        self.classes.share_of_acks()
    }

    /// Equations 9 and 10, for the last interval that has ended.
    fn update(&mut self, now: Time) {
        let other = match self.intervals.ended(now) {
            0 => return,
            1 => self.other,
            // What was counted belongs to an earlier one; nothing came in the last.
            _ => [0, 0],
        };
        self.other = [0, 0];
        if self.settings.measuring {
            self.share(now, other);
        }
    }

    /// Equations 7 and 8 for the rates that are left when `other` bytes an interval (up, down) are not TCP's.
    fn share(&mut self, now: Time, other: [u64; 2]) {
        let Settings { uplink_bps, downlink_bps, ack_bytes, data_bytes, .. } = self.settings;
        let [up, down] = other.map(|bytes| self.intervals.rate_bps(bytes));
        let left = [(uplink_bps - up).max(0.0), (downlink_bps - down).max(0.0)];
        let share = match (ack_share(left[0], left[1], ack_bytes, data_bytes), self.settings.infeasible) {
            (Some(share), _) => share,
            (None, Infeasible::Refuse) => return,
            (None, Infeasible::NoAcks) => 0.0,
            (None, Infeasible::OnlyAcks) => 1.0,
        };
        self.classes.set_share_of_acks(now, share);
    }
}

impl Policy for AsymmetricQueueing {
    fn enqueue(&mut self, now: Time, packet: Packet, events: &mut Events) {
        self.update(now);
        if packet.tcp().is_none() {
            self.other[0] += u64::from(packet.len());
        }
        let is_ack = match self.settings.by_size {
            true => f64::from(packet.len()) <= self.settings.ack_bytes,
            false => packet.is_pure_ack(),
        };
        let class = if is_ack { Class::Acks } else { Class::Data };
        self.classes.push(class, false, now, packet, events);
    }

    fn dequeue(&mut self, now: Time, _: &mut Events) -> Option<Packet> {
        self.update(now);
        Some(self.classes.pop(now)?.1)
    }

    fn peek(&self) -> Option<&Packet> {
        self.classes.front()
    }

    fn on_rates(&mut self, now: Time, own_bps: Option<u64>, opposite_bps: Option<u64>) {
        self.update(now);
        let [up, down] = self.settings.follows;
        if let (true, Some(bps)) = (up, own_bps) {
            self.settings.uplink_bps = bps as f64;
        }
        if let (true, Some(bps)) = (down, opposite_bps) {
            self.settings.downlink_bps = bps as f64;
        }
        // What is measured comes in again with the next interval.
        self.share(Time::ZERO, [0, 0]);
    }

    fn on_opposite(&mut self, now: Time, packet: &Packet) {
        self.update(now);
        if packet.tcp().is_none() {
            self.other[1] += u64::from(packet.len());
        }
    }

    fn len_packets(&self) -> usize {
        self.classes.len()
    }

    fn len_bytes(&self) -> u64 {
        self.classes.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, drain, kinds};
    use backchannel_core::event::EventKind;
    use backchannel_core::packet::build::{ack, data, udp};

    /// The paper's own setting (aq 4).
    const PAPER: Settings = Settings {
        limit: 50,
        uplink_bps: 1e6,
        downlink_bps: 10e6,
        ack_bytes: 40.0,
        data_bytes: 1500.0,
        by_size: true,
        measuring: true,
        period_s: 0.2,
        infeasible: Infeasible::Refuse,
        follows: [true, true],
    };

    fn aq(settings: Settings) -> AsymmetricQueueing {
        AsymmetricQueueing::new(settings).expect("feasible")
    }

    #[test]
    fn a_line_that_changes_its_rate_changes_the_ratio_and_a_deliberate_mistake_stays() {
        let share = |settings: Settings| {
            let mut aq = AsymmetricQueueing::new(settings).unwrap();
            aq.on_rates(Time::ZERO, Some(2_000_000), Some(10_000_000));
            aq.share_of_acks()
        };
        // aq 5: 13.27 % for 2 and 10 Mbit/s, 26.6 % for 1 and 10.
        assert!((share(PAPER) - 0.1327).abs() < 1e-4, "{}", share(PAPER));
        assert!((share(Settings { follows: [false, true], ..PAPER }) - 0.2662).abs() < 1e-4);
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
        assert!((aq(Settings { uplink_bps: 2e6, ..PAPER }).share_of_acks() - 0.1327).abs() < 0.0001);
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
        let narrow = Settings { uplink_bps: 0.256e6, ..PAPER };
        let said = AsymmetricQueueing::new(narrow).expect_err("0.0256 is below 0.0267");
        assert!(said.contains("equation 11") && said.contains("0.0256") && said.contains("0.0267"), "{said}");
        let said = AsymmetricQueueing::new(Settings { ack_bytes: 1500.0, ..PAPER }).expect_err("acks as large as data");
        assert!(said.contains("must be below data_bytes (1500)"), "{said}");
        let order = |infeasible| {
            let (mut queue, mut events) = (aq(Settings { infeasible, ..narrow }), Events::default());
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
    fn acks_with_timestamps_need_their_size_or_their_kind() {
        use backchannel_core::packet::build::Segment;
        // A pure ack never has more than 40 bytes in these tests, so a tiny datagram stands for what size mistakes.
        let tiny = || udp(1, 12);
        let big = || Segment { id: 2, payload: 960, ..Segment::default() }.packet();
        for (by_size, expected) in [(true, [1, 2]), (false, [2, 1])] {
            let (mut queue, mut events) = (aq(Settings { by_size, limit: 9, ..PAPER }), Events::default());
            queue.enqueue(Time::ZERO, big(), &mut events);
            queue.enqueue(Time::ZERO, tiny(), &mut events);
            assert_eq!(drain(&mut queue, &mut events), expected);
        }
    }
}
