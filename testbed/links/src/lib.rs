//! Links between nodes: rate, delay, framing, medium access and errors, with the queue policies and middleboxes at
//! their ends.
//!
//! [`build`] turns the link of a scenario into a [`Link`](backchannel_core::traits::Link), which a driver gives a
//! clock. A packet crosses a link in this order:
//!
//! 1. middleboxes in the node at the near end (`backchannel-middleboxes`),
//! 2. the queue policy in front of the link (`backchannel-policies`),
//! 3. the transmitter of the link kind, such as [`PointToPoint`], at its rate and with its [`framing`],
//! 4. the far end: propagation delay, jitter and [`errors`],
//! 5. middleboxes in the node at the far end.
//!
//! [`Medium`] has parts 2 and 4 of one direction, which are common to all link kinds. A link kind adds the transmitter.
//! [`profiles()`] lists access lines with names, such as `adsl`. [`build_with_fault`] builds links that break their
//! specification, for tests of the validity checks.
//!
//! # The registry
//!
//! [`Registry`] holds every mechanism that a scenario can name. It is in this crate because building a link needs most
//! of them. A registry is a value. Drivers pass it down in a [`Context`], and nothing is global.
//!
//! # Add a link kind or an error model
//!
//! A link kind is one file and one line in [`Registry::builtin`]. An error model is one file below `errors/` and one
//! line in [`errors::builtin`]. Another crate calls [`Registry::link`] or [`Registry::error_model`] instead.
//! docs/links.md describes every kind and the steps.

mod any_link;
mod assembly;
mod builtin;
mod clock;
mod device;
pub mod errors;
#[cfg(test)]
mod every_kind;
mod far_end;
mod fault;
pub mod framing;
mod grant;
mod jitter;
mod leo;
mod mahimahi;
mod medium;
mod point_to_point;
mod profiles;
mod registry;
pub mod rfc1144;
mod ricochet;
mod serial;
#[cfg(test)]
mod testing;
mod wavelan;
mod wifi;
mod with_middlebox;

pub use any_link::AnyLink;
pub use assembly::build;
pub use fault::{build_with_fault, Fault, FaultKind};
pub use medium::{shared_rate, Direction, Fields, Medium};
pub use point_to_point::PointToPoint;
pub use profiles::{profiles, Profile};
pub use registry::{Build, Context, Links, Registry};
pub use serial::simulated_only;

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::event::Events;
    use backchannel_core::packet::build::{ack, data};
    use backchannel_core::time::Time;
    use backchannel_core::traits::Link;
    use serde_json::json;

    /// Every kind with a queue of bounded classes in front of port 0, and its rate in bit/s.
    fn with_bounded_classes() -> Vec<(Box<dyn Link>, f64)> {
        let queue = json!({"name": "cbq-5050", "options": {"bounded": true, "limit_packets": 100}});
        let tail = json!({"name": "droptail", "options": {"limit_packets": 100}});
        let way = |rate: f64, queue: &serde_json::Value, options: serde_json::Value| match rate {
            0.0 => json!({"delay_s": 0.0, "queue": queue, "options": options}),
            _ => json!({"rate_bps": rate as u64, "delay_s": 0.0, "queue": queue, "options": options}),
        };
        // An opportunity every 10 ms: 1.2 Mbit/s, in which a packet of 1000 bytes takes 1004.
        let trace = json!({"trace": "10\n"});
        let kinds = [
            ("point-to-point", 1e6, json!({}), json!({})),
            ("point-to-point", 1e6, json!({}), json!({"device_buffer_bytes": 3328})),
            ("ricochet", 1e5, json!({}), json!({})),
            ("wavelan", 2e6, json!({}), json!({})),
            ("mahimahi", 0.0, json!({}), trace),
            ("grant", 1e6, json!({}), json!({})),
            ("wifi", 2e6, json!({"preamble_s": 0}), json!({})),
            ("leo", 1e6, json!({"delay_spread_s": 0, "rate_spread": 0, "outage_s": 0}), json!({})),
        ];
        assert!(Registry::builtin().links.entries().all(|entry| kinds.iter().any(|(kind, ..)| *kind == entry.name)));
        kinds
            .map(|(kind, rate, of_link, options)| {
                let spec = json!({
                    "name": "line", "kind": kind, "ends": ["a", "b"], "options": of_link,
                    "forward": way(rate, &queue, options.clone()), "reverse": way(rate, &tail, options),
                });
                let spec = serde_json::from_value(spec).expect("a link");
                (crate::testing::build(&spec, 1).expect("a good link"), if rate > 0.0 { rate } else { 1.2e6 })
            })
            .into()
    }

    #[test]
    fn every_link_kind_polls_a_policy_again_that_holds_packets_back() {
        for (mut link, rate_bps) in with_bounded_classes() {
            let (mut events, mut out) = (Events::default(), Vec::new());
            for id in 0..40 {
                link.submit(Time::ZERO, 0, data(id, 960), &mut events);
            }
            // A bounded class has half of the line from the start on and borrows nothing.
            while let Some(at) = link.next_event() {
                link.poll(at, &mut out, &mut events);
            }
            let ids: Vec<_> = out.iter().map(|delivery| delivery.packet.id).collect();
            assert_eq!(ids, (0..40).collect::<Vec<_>>());
            let least_s = 39.0 * 8000.0 / (rate_bps / 2.0);
            let last = out[39].at.seconds();
            assert!(last >= least_s && last < 1.25 * least_s + 0.2, "{rate_bps}: {last} s, not {least_s}");
            // An ack that arrives while data is held back uses its own half at once.
            out.clear();
            let now = idle_since_long(&mut *link, &mut events);
            link.submit(now, 0, data(50, 960), &mut events);
            link.submit(now, 0, data(51, 960), &mut events);
            link.submit(now, 0, ack(60), &mut events);
            while let Some(at) = link.next_event() {
                link.poll(at, &mut out, &mut events);
            }
            let ids: Vec<_> = out.iter().map(|delivery| delivery.packet.id).collect();
            assert!(ids == [50, 60, 51] || ids == [60, 50, 51], "{ids:?}");
        }
    }

    /// A time at which the link has long been idle.
    fn idle_since_long(link: &mut dyn Link, events: &mut Events) -> Time {
        let now = Time::from_seconds(1000.0);
        link.poll(now, &mut Vec::new(), events);
        now
    }
}
