//! What holds of links of every kind: packets are conserved and in order, and a link does not notice when it is polled.

use backchannel_core::event::{EventKind, Events};
use backchannel_core::packet::build::{ack, data};
use backchannel_core::time::Time;
use backchannel_core::traits::{Link, Port};
use backchannel_core::Error;
use proptest::prelude::*;
use serde_json::{json, Value};

use crate::testing::build;
use crate::Registry;

/// Kinds with options of the link and of its directions. Both directions have 5 Mbit/s where the kind has a rate.
fn kinds() -> Vec<(&'static str, Value, Value)> {
    let trace = json!({"trace": "1\n3\n3\n10\n"});
    let kinds = vec![
        ("point-to-point", json!({}), json!({})),
        ("ricochet", json!({"hops": 2}), json!({})),
        ("wavelan", json!({}), json!({})),
        ("mahimahi", json!({}), trace),
        ("leo", json!({"epoch_s": 0.1, "delay_spread_s": 0.001, "outage_s": 0.01}), json!({})),
        ("wifi", json!({"loss": 0.2, "retries": 1, "contenders": 2}), json!({})),
        ("wifi", json!({"aggregate_packets": 1, "txop_s": 0, "category": "video"}), json!({})),
        ("grant", json!({}), json!({})),
        (
            "grant",
            json!({"channel_rate_bps": 50_000_000, "collision": 0.3, "requests": 1, "framing_bytes": 18}),
            json!({}),
        ),
        (
            "grant",
            json!({"cycle_s": 0.000_125, "request_interval_s": 0.001, "channel_rate_bps": 1_244_160_000}),
            json!({}),
        ),
        (
            "grant",
            json!({
                "cycle_s": 0.0025, "request_interval_s": 0.01, "uplink_s": 0.0005, "guard_s": 0.0001, "requests": 1,
                "first_grant_bytes": 90, "unsolicited_bytes": 60, "piggyback": false,
            }),
            json!({}),
        ),
    ];
    let registry = Registry::builtin();
    assert!(registry.links.entries().all(|entry| kinds.iter().any(|(kind, ..)| *kind == entry.name)));
    kinds
}

/// A link whose directions also have the fields `more`.
fn link_with(
    kind: &str,
    of_link: &Value,
    of_direction: &Value,
    more: &Value,
    seed: u64,
) -> Result<Box<dyn Link>, Error> {
    let queue = json!({"name": "droptail", "options": {"limit_packets": 20}});
    let mut way = json!({"delay_s": 0.001, "queue": queue, "options": of_direction});
    if kind != "mahimahi" {
        way["rate_bps"] = json!(5_000_000);
    }
    way.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let spec =
        json!({"name": "line", "kind": kind, "ends": ["a", "b"], "options": of_link, "forward": way, "reverse": way});
    build(&serde_json::from_value(spec).expect("a link"), seed)
}

fn link(kind: &str, of_link: &Value, of_direction: &Value, seed: u64) -> Box<dyn Link> {
    link_with(kind, of_link, of_direction, &json!({}), seed).expect("a good link")
}

#[test]
fn a_kind_refuses_the_fields_that_it_does_not_have_with_the_reason() {
    let schedule = json!({"schedule": [{"at_s": 1, "rate_bps": 1_000_000}]});
    let refused = [
        ("mahimahi", json!({"rate_bps": 1_000_000}), "takes its rate from the trace"),
        ("mahimahi", schedule.clone(), "changes with its trace"),
        ("leo", schedule.clone(), "draws its changes from the seed"),
        ("grant", schedule.clone(), "has no changes over time"),
        ("wavelan", json!({"options": {"bits_per_byte": 10}}), "has no option 'bits_per_byte'"),
    ];
    for (kind, more, why) in refused {
        let (_, of_link, of_direction) = kinds().into_iter().find(|(name, ..)| *name == kind).expect("a kind");
        let error = link_with(kind, &of_link, &of_direction, &more, 1).err().unwrap_or_else(|| panic!("{kind} {more}"));
        assert!(error.to_string().contains(&format!("a {kind} link {why}")), "{error}");
    }
    for kind in ["point-to-point", "leo"] {
        link_with(kind, &json!({}), &json!({"bits_per_byte": 10}), &json!({"delay_s": 0.02}), 1).expect(kind);
    }
}

/// In front of both ends of links of every kind.
#[test]
fn every_waiting_packet_can_be_looked_at() {
    for (kind, of_link, of_direction) in kinds() {
        for port in 0..2 {
            let mut link = link(kind, &of_link, &of_direction, 1);
            (0..15).for_each(|id| link.submit(Time::ZERO, port, data(id, 1000), &mut Events::default()));
            let waiting: Vec<u64> = (0..).map_while(|place| link.peek(port, place)).map(|packet| packet.id).collect();
            assert!(waiting.len() > 10 && waiting.is_sorted(), "{kind} {port}: {waiting:?}");
            assert_eq!(link.backlog(port).expect("a queue").packets, waiting.len(), "{kind} {port}");
            assert_eq!(link.peek(1 - port, 0).map(|packet| packet.id), None, "{kind} {port}");
        }
    }
}

/// Deliveries and counts of losses and drops.
type Carried = (Vec<(Port, u64, u64)>, [usize; 2]);

/// What a link makes of packets: waits in ns, ends at which they enter, bytes of payload. It is polled when it asks for
/// it, or only at the waits `polls` after the one before, in ns.
fn carried(link: &mut dyn Link, offered: &[(u64, Port, u32)], polls: Option<&[u64]>) -> Carried {
    let (mut events, mut out, mut now) = (Events::default(), Vec::new(), Time::ZERO);
    let mut polls = polls.map(|polls| polls.iter().cycle());
    let mut next_poll = 0;
    for (id, &(wait_ns, port, payload)) in (1..).zip(offered) {
        now = Time(now.nanos() + wait_ns);
        match &mut polls {
            None => {
                while let Some(due) = link.next_event().filter(|due| *due <= now) {
                    let first = out.len();
                    link.poll(due, &mut out, &mut events);
                    assert!(out[first..].iter().all(|delivery| delivery.at == due), "it asked for a poll too late");
                }
            }
            Some(waits) => {
                while next_poll <= now.nanos() {
                    link.poll(Time(next_poll), &mut out, &mut events);
                    next_poll += waits.next().expect("they repeat");
                }
            }
        }
        let packet = if payload == 0 { ack(id) } else { data(u64::from(id), payload) };
        link.submit(now, port, packet, &mut events);
    }
    while let Some(due) = link.next_event() {
        link.poll(due, &mut out, &mut events);
    }
    let counts = [EventKind::Lost, EventKind::DroppedFull].map(|kind| events.count(kind));
    let mut deliveries: Vec<_> = out.iter().map(|d| (d.port, d.at.nanos(), d.packet.id)).collect();
    deliveries.sort_by_key(|(port, at, _)| (*at, *port));
    (deliveries, counts)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Nothing is made or lost without an event, each direction keeps its order, and the same seed gives the same
    /// deliveries at the same times, whether a link is polled when it asks for it, needlessly, or late.
    #[test]
    fn packets_are_conserved_and_in_order_however_a_link_is_polled(
        offered in proptest::collection::vec((0u64..4_000_000, 0u16..2, 0u32..1400), 1..80),
        polls in proptest::collection::vec(1u64..30_000_000, 1..10),
        seed in 0u64..1000,
    ) {
        for (kind, of_link, of_direction) in kinds() {
            let one = carried(&mut *link(kind, &of_link, &of_direction, seed), &offered, None);
            let other = carried(&mut *link(kind, &of_link, &of_direction, seed), &offered, Some(&polls));
            prop_assert_eq!(&one, &other, "{} {}", kind, of_link);
            let (deliveries, [lost, dropped]) = one;
            prop_assert_eq!(deliveries.len() + lost + dropped, offered.len(), "{} {}", kind, of_link);
            for port in 0..2 {
                let ids: Vec<u64> = deliveries.iter().filter(|(to, ..)| *to == port).map(|(.., id)| *id).collect();
                prop_assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{} {}: {:?}", kind, of_link, ids);
            }
        }
    }
}
