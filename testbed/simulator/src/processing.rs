//! Processing time of a host. Each segment that it sends or receives takes it a random time, which breaks the phase
//! locks of deterministic simulations (Floyd and Jacobson, "On Traffic Phase Effects in Packet-Switched Gateways",
//! 1992, section 3; ns-2's `overhead_`).

use std::collections::VecDeque;
use std::time::Duration;

use backchannel_core::packet::Packet;
use backchannel_core::rng::{self, RunRng};
use backchannel_core::scenario::Node;
use backchannel_core::time::Time;
use backchannel_core::Error;

/// The segments that a host is processing.
pub(crate) struct Processing {
    pub(crate) sent: Stage,
    pub(crate) received: Stage,
}

impl Processing {
    /// `None` for a node without processing time.
    ///
    /// # Errors
    /// The bound is negative or not finite.
    pub(crate) fn of(node: &Node, seed: u64) -> Result<Option<Processing>, Error> {
        let Some(bound_s) = node.processing_s else { return Ok(None) };
        let bound = Duration::try_from_secs_f64(bound_s)
            .map_err(|_| format!("node '{}': processing_s is {bound_s}; it must be at least 0", node.name))?;
        let stage = |name: &str| Stage {
            bound,
            rng: rng::stream(seed, &format!("processing/{}/{name}", node.name)),
            last: Time::ZERO,
            packets: VecDeque::new(),
        };
        Ok(Some(Processing { sent: stage("sent"), received: stage("received") }))
    }
}

/// Segments of one direction, in order.
pub(crate) struct Stage {
    bound: Duration,
    rng: RunRng,
    /// When the latest segment is done.
    last: Time,
    packets: VecDeque<Packet>,
}

impl Stage {
    /// Takes a segment at `now` and returns when it is done, never before the segment ahead of it.
    pub(crate) fn push(&mut self, now: Time, packet: Packet) -> Time {
        self.packets.push_back(packet);
        self.last = self.last.max(now + self.bound.mul_f64(rng::uniform(&mut self.rng)));
        self.last
    }

    /// The segments in it.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.packets.iter()
    }

    /// The segment that is done next.
    pub(crate) fn pop(&mut self) -> Option<Packet> {
        self.packets.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::data;
    use proptest::prelude::*;

    fn node(processing: &str) -> Node {
        serde_json::from_str(&format!(r#"{{"name":"a","kind":"host"{processing}}}"#)).unwrap()
    }

    #[test]
    fn times_are_uniform_up_to_the_bound_and_seeded() {
        let times = |seed| -> Vec<u64> {
            let node = node(r#","processing_s":0.001"#);
            let mut stage = Processing::of(&node, seed).unwrap().unwrap().sent;
            let instants = (0..1000).map(|second| Time::from_seconds(f64::from(second)));
            instants.map(|now| stage.push(now, data(1, 10)).since(now).as_nanos() as u64).collect()
        };
        let drawn = times(1);
        assert_eq!(drawn, times(1));
        assert_ne!(drawn, times(2));
        assert!(drawn.iter().all(|&time| time < 1_000_000));
        // Five standard deviations of the mean of 1000 uniform draws are 46 µs.
        let mean = drawn.iter().sum::<u64>() / 1000;
        assert!((454_000..546_000).contains(&mean), "{mean}");
    }

    proptest! {
        #[test]
        fn segments_keep_their_order_and_none_takes_longer_than_the_bound(
            seed: u64,
            bound_ns in 0..10_000_000_u64,
            gaps_ns in prop::collection::vec(0..2_000_000_u64, 1..200),
        ) {
            let node = node(&format!(r#","processing_s":{}"#, bound_ns as f64 * 1e-9));
            let stages = Processing::of(&node, seed).unwrap().unwrap();
            for mut stage in [stages.sent, stages.received] {
                let mut now = Time::ZERO;
                let mut previous = Time::ZERO;
                for (id, &gap_ns) in gaps_ns.iter().enumerate() {
                    now += Duration::from_nanos(gap_ns);
                    let done = stage.push(now, data(id as u64, 10));
                    prop_assert!(done >= now.max(previous));
                    prop_assert!(done.since(now) <= Duration::from_nanos(bound_ns));
                    previous = done;
                }
                let ids: Vec<_> = std::iter::from_fn(|| stage.pop()).map(|packet| packet.id).collect();
                prop_assert!(ids.into_iter().eq(0..gaps_ns.len() as u64));
            }
        }
    }

    #[test]
    fn a_host_without_a_bound_takes_no_time_and_a_negative_bound_is_an_error() {
        assert!(Processing::of(&node(""), 1).unwrap().is_none());
        let error = Processing::of(&node(r#","processing_s":-0.1"#), 1).err().unwrap();
        assert_eq!(error.to_string(), "node 'a': processing_s is -0.1; it must be at least 0");
    }
}
