//! Serial lines: header compression, framing, and the buffer of a modem.

use super::*;
use backchannel_core::ip::IpVersion;

#[test]
fn compressed_headers_take_six_bytes_and_those_of_syn_fin_and_rst_forty() {
    let reverse =
        json!({"rate_bps": 28_800, "queue": {"name": "droptail"}, "options": {"header_compression": "cslip"}});
    let mut link = crate::testing::build(&spec(reverse), 1).unwrap();
    let mut events = Events::default();
    let plain =
        [TcpFlags::SYN, TcpFlags::FIN, TcpFlags::RST].map(|flags| Segment { flags, ..Segment::default() }.packet());
    for packet in [ack(1), data(2, 960)].into_iter().chain(plain) {
        link.submit(Time::ZERO, 0, packet, &mut events);
    }
    drain(&mut *link, &mut events);
    assert_eq!(link.usage(0).line_bits, (6 + 966 + 3 * 40) * 8);
    let bad = json!({"queue": {"name": "droptail"}, "options": {"header_compression": "vj"}});
    assert!(crate::testing::build(&spec(bad), 1).err().expect("refused").to_string().contains("header_compression"));
}

/// RFC 1144 has no form for IPv6, so such packets cross every line whole.
#[test]
fn no_header_of_ipv6_is_compressed() {
    for compression in ["cslip", "cslip-acks", "rfc1144"] {
        let free = compression != "rfc1144";
        let options = json!({"header_compression": compression, "free_options": free});
        let mut link = crate::testing::build(&modem(options, json!({})), 1).unwrap();
        let mut events = Events::default();
        for payload in [0, 500, 0, 500] {
            let segment = Segment { ip: IpVersion::V6, payload, ..Segment::default() };
            link.submit(Time::ZERO, 0, segment.packet(), &mut events);
        }
        let out = drain(&mut *link, &mut events);
        assert_eq!(link.usage(0).line_bits, (2 * 60 + 2 * 560) * 8, "{compression}");
        assert_eq!(out.len(), 4);
        if let Some(headers) = link.usage(0).headers {
            assert_eq!(headers, Headers { unmodified: 4, ..Headers::default() });
        }
    }
}

/// A line of 28.8 kbit/s with these options in its forward direction.
fn modem(options: serde_json::Value, more: serde_json::Value) -> LinkSpec {
    let mut forward = json!({"rate_bps": 28_800, "queue": {"name": "droptail", "options": {"limit_packets": 1000}}, "options": options});
    forward.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec(forward)
}

/// A line on which a byte takes a millisecond, behind a device of 1000 bytes: it stops the host at 900 and lets it go
/// on 400 ms later.
fn buffered(policy: &str) -> Box<dyn Link> {
    let queue = json!({"name": policy, "options": {"limit_packets": 100}});
    let forward = json!({"rate_bps": 8000, "queue": queue, "options": {"device_buffer_bytes": 1000}});
    crate::testing::build(&spec(forward), 1).unwrap()
}

/// The same line, to which packets with so many bytes of data come at once.
fn offered(policy: &str, packets: u64, size: u32) -> (Box<dyn Link>, Events) {
    let (mut link, mut events) = (buffered(policy), Events::default());
    for id in 0..packets {
        link.submit(Time::ZERO, 0, data(id, size), &mut events);
    }
    (link, events)
}

/// Packets in the queue after each of these instants, in ms.
fn waiting(link: &mut dyn Link, at_ms: &[u64]) -> Vec<usize> {
    let (mut events, mut out) = (Events::default(), Vec::new());
    let mut wait = |ms: &u64| {
        link.poll(Time(ms * 1_000_000), &mut out, &mut events);
        link.backlog(0).expect("a queue").packets
    };
    at_ms.iter().map(&mut wait).collect()
}

#[test]
fn the_end_of_a_transmission_is_an_event_if_the_device_has_another_packet() {
    let second = |ms: u64| Some(Time(ms * 1_000_000));
    let options = json!({"device_buffer_bytes": 1000});
    let forward = json!({"rate_bps": 8000, "delay_s": 5.0, "queue": {"name": "droptail"}, "options": options});
    let mut link = crate::testing::build(&spec(forward), 1).unwrap();
    let mut events = Events::default();
    link.submit(Time::ZERO, 0, data(1, 260), &mut events);
    // The device is empty, so the next event is the arrival.
    assert_eq!(link.next_event(), second(5300));
    link.submit(Time::ZERO, 0, data(2, 260), &mut events);
    assert_eq!(link.next_event(), second(300));
    link.poll(Time(300_000_000), &mut Vec::new(), &mut events);
    assert_eq!(link.next_event(), second(5300));
}

#[test]
fn a_device_takes_packets_from_half_empty_to_nine_tenths_full() {
    let (mut link, mut events) = offered("droptail", 10, 260);
    // 900 bytes: stopped. After 400 ms two more, of which the host keeps 200 bytes; after 800 ms the modem has 500
    // and these, and takes one.
    assert_eq!(waiting(&mut *link, &[0, 399, 400, 799, 800]), [7, 7, 5, 5, 4]);
    let left = drain(&mut *link, &mut events);
    assert_eq!(link.usage(0).packets, 10);
    assert_eq!(left.last(), Some(&(1, 3_000_000_000, 9)));
}

#[test]
fn the_end_of_a_long_packet_waits_for_the_device_again_and_again() {
    let (mut link, mut events) = offered("droptail", 3, 1420);
    // 560 bytes stay with the host, 160 after 400 ms, none after 800.
    assert_eq!(waiting(&mut *link, &[0, 400, 799, 800]), [2, 2, 2, 1]);
    assert_eq!(drain(&mut *link, &mut events).len(), 3);
}

#[test]
fn no_policy_reaches_what_a_device_holds() {
    let (mut link, mut events) = offered("acks-first", 5, 260);
    link.submit(Time(10_000_000), 0, ack(100), &mut events);
    let ids: Vec<_> = drain(&mut *link, &mut events).iter().map(|(_, _, id)| *id).collect();
    assert_eq!(ids, [0, 1, 2, 100, 3, 4]);
}

#[test]
fn a_device_with_room_takes_a_packet_at_once_and_needs_a_rate() {
    let mut link = buffered("droptail");
    let mut events = Events::default();
    for id in 0..3 {
        link.submit(Time(id * 1_000_000_000), 0, data(id, 260), &mut events);
        assert_eq!(link.backlog(0).unwrap().packets, 0);
    }
    assert_eq!(drain(&mut *link, &mut events), [(1, 300_000_000, 0), (1, 1_300_000_000, 1), (1, 2_300_000_000, 2)]);
    let without = json!({"queue": {"name": "droptail"}, "options": {"device_buffer_bytes": 1000}});
    assert!(crate::testing::build(&spec(without), 1)
        .err()
        .expect("refused")
        .to_string()
        .contains("needs a link with a rate"));
}

/// Acks of 100 bytes each, with the identification at rest.
fn acks(count: u32) -> Vec<Packet> {
    (0..count).map(|n| Segment { id: n.into(), ack: 1 + 100 * n, ..Segment::default() }.packet()).collect()
}

#[test]
fn rfc1144_takes_the_time_of_the_true_bytes_on_the_line() {
    let bits = |options: serde_json::Value, packets: Vec<Packet>| {
        let mut link = crate::testing::build(&modem(options, json!({})), 1).unwrap();
        let mut events = Events::default();
        let count = packets.len();
        for packet in packets {
            link.submit(Time::ZERO, 0, packet, &mut events);
        }
        assert_eq!(drain(&mut *link, &mut events).len(), count);
        (link.usage(0).line_bits, link.usage(0).headers)
    };
    // The first ack whole; then mask, checksum, 1 byte of ack and 3 of an identification that stands still.
    let (plain, headers) = bits(json!({"header_compression": "rfc1144"}), acks(11));
    assert_eq!(plain, (40 + 10 * 7) * 8);
    assert_eq!(headers, Some(Headers { compressed: 10, uncompressed: 1, ..Headers::default() }));
    // SLIP: an END each, and one in front of the first; ten bits to the byte. No byte here needs an escape.
    let slip = json!({"header_compression": "rfc1144", "framing": "slip", "bits_per_byte": 10});
    assert_eq!(bits(slip, acks(11)).0, (1 + 41 + 10 * 8) * 10);
    // PPP: address, control, protocol, check and a flag each. What is escaped, the ends' own bytes tell.
    let ppp = json!({"header_compression": "rfc1144", "framing": "ppp", "accm": 0});
    let escapes: u64 = bits(ppp, acks(11)).0 / 8 - (1 + 47 + 10 * 14);
    assert!(escapes <= 2, "{escapes}");
    // Without compression, each zero of the data takes two bytes under the default map.
    let (data_bits, headers) = bits(json!({"framing": "ppp"}), vec![data(1, 500)]);
    assert!((1000..1100).contains(&(data_bits / 8)), "{data_bits}");
    assert_eq!(headers, None);
}

#[test]
fn cslip_is_the_papers_sizes_in_any_frame() {
    let mut link =
        crate::testing::build(&modem(json!({"header_compression": "cslip", "framing": "slip"}), json!({})), 1).unwrap();
    let mut events = Events::default();
    for packet in acks(2) {
        link.submit(Time::ZERO, 0, packet, &mut events);
    }
    drain(&mut *link, &mut events);
    assert_eq!(link.usage(0).line_bits, (1 + 7 + 7) * 8);
}

#[test]
fn cslip_acks_leaves_data_as_long_as_they_are() {
    let options = json!({"header_compression": "cslip-acks", "free_options": true});
    let mut link = crate::testing::build(&modem(options, json!({})), 1).unwrap();
    let mut events = Events::default();
    for packet in [ack(1), data(2, 960)] {
        link.submit(Time::ZERO, 0, packet, &mut events);
    }
    drain(&mut *link, &mut events);
    assert_eq!(link.usage(0).line_bits, (6 + 1000) * 8);
}

/// What comes out of a line of acks that loses some, and its counts.
fn lossy(framing: &str, named: bool, error: &str, effect: serde_json::Value) -> (Vec<Packet>, Headers, Events) {
    let options = json!({"header_compression": "rfc1144", "framing": framing, "name_every_slot": named});
    let mut with = json!({"probability": 0.1});
    with.as_object_mut().unwrap().extend(effect.as_object().unwrap().clone());
    let errors = json!({"errors": [{"name": error, "options": with}]});
    let mut link = crate::testing::build(&modem(options, errors), 5).unwrap();
    let (mut events, mut out) = (Events::default(), Vec::new());
    // Each ack comes three times: so the line falls out of step and back into it.
    for (n, packet) in acks(100).into_iter().flat_map(|ack| [ack.clone(), ack.clone(), ack]).enumerate() {
        link.submit(Time(1_000_000_000 * n as u64), 0, packet, &mut events);
        while let Some(at) = link.next_event() {
            link.poll(at, &mut out, &mut events);
        }
    }
    let headers = link.usage(0).headers.unwrap();
    assert_eq!((headers.compressed, headers.uncompressed), (99, 201));
    (out.into_iter().map(|delivery| delivery.packet).collect(), headers, events)
}

fn wrong(packets: &[Packet]) -> u64 {
    packets.iter().filter(|packet| !packet.checksum_ok()).count() as u64
}

#[test]
fn a_lost_frame_is_noticed_by_ppp_and_tosses_until_a_whole_packet() {
    let (out, headers, events) = lossy("ppp", false, "uniform", json!({}));
    assert!(headers.tossed > 0);
    assert_eq!((wrong(&out), headers.wrong), (0, 0));
    assert_eq!(events.count(EventKind::Tossed) as u64, headers.tossed);
    assert_eq!(out.len() + events.list.len(), 300);
}

#[test]
fn a_lost_frame_is_not_noticed_by_slip_and_shows_in_the_checksum_of_the_next() {
    let (out, headers, events) = lossy("slip", false, "uniform", json!({}));
    assert!(headers.wrong > 0);
    assert_eq!((wrong(&out), headers.tossed), (headers.wrong, 0));
    assert_eq!(out.len() + events.list.len(), 300);
}

#[test]
fn where_every_slot_is_named_nothing_is_tossed_and_what_misses_a_delta_is_wrong() {
    let (out, headers, _) = lossy("ppp", true, "uniform", json!({}));
    assert_eq!(headers.tossed, 0);
    assert!(headers.wrong > 0);
    assert_eq!(wrong(&out), headers.wrong);
}

#[test]
fn damage_within_a_frame_passes_slip_and_not_ppp() {
    let (out, headers, events) = lossy("slip", false, "uniform", json!({"effect": "damage"}));
    assert_eq!((headers.wrong, headers.tossed, out.len()), (0, 0, 300));
    assert_eq!(wrong(&out), events.count(EventKind::Damaged) as u64);
    assert!(wrong(&out) > 0);
    let (out, headers, events) = lossy("ppp", false, "uniform", json!({"effect": "damage"}));
    assert!(headers.tossed > 0);
    assert_eq!((wrong(&out), events.count(EventKind::Damaged)), (0, 0));
    assert_eq!(out.len() + events.count(EventKind::Lost) + events.count(EventKind::Tossed), 300);
}

#[test]
fn options_of_a_serial_line_are_checked() {
    for (options, said) in [
        (json!({"header_compression": "vj"}), "not one of none, cslip, cslip-acks, rfc1144"),
        (json!({"slots": 0}), "not between 1 and 256"),
        (json!({"bits_per_byte": 9}), "bits_per_byte must be 8 (synchronous line) or 10"),
        (json!({"framing": "hdlc"}), "not one of none, slip, ppp"),
    ] {
        let why = crate::testing::build(&modem(options, json!({})), 1).err().expect("refused");
        assert!(why.to_string().contains(said), "{why}");
    }
}

/// Options of a serial line; rfc1144 in half of them.
fn any_serial() -> impl Strategy<Value = serde_json::Value> {
    let compression = prop_oneof![2 => Just("rfc1144"), 1 => Just("none"), 1 => Just("cslip"), 1 => Just("cslip-acks")];
    let framing = proptest::sample::select(&["none", "slip", "ppp"][..]);
    let device = prop_oneof![Just(0u32), 1u32..5000];
    (compression, framing, any::<bool>(), 1u32..4, prop_oneof![Just(8), Just(10)], any::<u32>(), device).prop_map(
        |(compression, framing, named, slots, bits, accm, device)| {
            json!({
                "header_compression": compression, "framing": framing, "name_every_slot": named, "slots": slots,
                "bits_per_byte": bits, "accm": accm, "device_buffer_bytes": device,
            })
        },
    )
}

/// Segments of some connections, each with new data, an ack, both or neither.
fn any_segments() -> impl Strategy<Value = Vec<(u64, Packet)>> {
    let one = (0u64..400_000_000, 0u16..4, 0u32..200, prop_oneof![Just(0u32), 0u32..3000], any::<bool>());
    proptest::collection::vec(one, 1..100).prop_map(|list| {
        let (mut now, mut seq, mut ack) = (0, [1; 4], [1; 4]);
        let make = |(id, (gap, flow, payload, acked, closes)): (usize, (u64, u16, u32, u32, bool))| {
            let of = usize::from(flow);
            ack[of] += acked;
            let flags = if closes && acked % 16 == 1 { TcpFlags::FIN } else { 0 };
            let (seq_now, ack) = (seq[of], ack[of]);
            seq[of] += payload;
            now += gap;
            let segment = Segment { id: id as u64, flow, seq: seq_now, ack, payload, flags, ..Segment::default() };
            (now, segment.packet())
        };
        list.into_iter().enumerate().map(make).collect()
    })
}

#[test]
fn free_options_take_no_time_and_do_not_go_with_true_bytes() {
    let of = |options: serde_json::Value| {
        let one = json!({"rate_bps": 28_800, "queue": {"name": "droptail"}, "options": options});
        crate::testing::build(&spec(one), 1)
    };
    assert!(of(json!({"free_options": true, "header_compression": "cslip"})).is_ok());
    let refused = of(json!({"free_options": true, "header_compression": "rfc1144"}));
    assert!(refused.err().expect("refused").to_string().contains("true bytes"));
}

proptest! {
    /// Whatever a serial line is set to and loses: nothing vanishes unsaid, order holds, counts agree, and what was
    /// not damaged comes out as it went in, but where the ends were out of step without knowing.
    #[test]
    fn a_serial_line_conserves_and_orders(options in any_serial(), segments in any_segments(), loss in 0.0f64..0.3, damage: bool) {
        let effect = if damage { "damage" } else { "lose" };
        let errors = json!({"errors": [{"name": "uniform", "options": {"probability": loss, "effect": effect}}]});
        let mut link = crate::testing::build(&modem(options.clone(), errors), 7).unwrap();
        let (mut events, mut out) = (Events::default(), Vec::new());
        for (at, packet) in &segments {
            link.poll(Time(*at), &mut out, &mut events);
            link.submit(Time(*at), 0, packet.clone(), &mut events);
        }
        while let Some(at) = link.next_event() {
            link.poll(at, &mut out, &mut events);
        }
        let damaged = events.count(EventKind::Damaged);
        prop_assert_eq!(segments.len(), out.len() + events.list.len() - damaged);
        prop_assert!(out.windows(2).all(|pair| pair[0].packet.id < pair[1].packet.id && pair[0].at <= pair[1].at));
        let same = |packet: &Packet| packet.to_vec() == segments[packet.id as usize].1.to_vec();
        let changed = out.iter().filter(|delivery| !same(&delivery.packet)).count();
        let usage = link.usage(0);
        let headers = usage.headers.unwrap_or_default();
        prop_assert_eq!(usage.headers.is_some(), options["header_compression"] == "rfc1144");
        if usage.headers.is_some() {
            prop_assert_eq!(headers.compressed + headers.uncompressed + headers.unmodified, segments.len() as u64);
        }
        prop_assert_eq!(headers.tossed, events.count(EventKind::Tossed) as u64);
        // A packet may be both out of step and damaged.
        prop_assert!((headers.wrong as usize).max(damaged) <= changed && changed <= headers.wrong as usize + damaged);
        if options["framing"] == "ppp" {
            prop_assert_eq!(damaged, 0);
        } else if damage {
            // Both ends saw every frame.
            prop_assert_eq!((headers.tossed, headers.wrong), (0, 0));
        }
    }
}

/// A line of 28 kbit/s and 76 ms that a host with a clock of 10 ms emulates.
fn ticking(more: serde_json::Value) -> LinkSpec {
    let mut forward = json!({
        "rate_bps": 28_000, "delay_s": 0.076, "queue": {"name": "droptail"}, "options": {"clock_tick_s": 0.01},
    });
    forward.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec(forward)
}

/// asym 8.1: both timers of the emulation expire at interrupts.
#[test]
fn a_line_with_a_clock_sends_and_delivers_at_interrupts() {
    let mut link = crate::testing::build(&ticking(json!({})), 1).unwrap();
    let mut events = Events::default();
    // Alone: 11.4 ms are one tick, counted from the interrupt at 20 ms.
    link.submit(Time(23_000_000), 0, ack(1), &mut events);
    // 1000 bytes take 285.7 ms, 29 ticks; then acks of one tick each.
    link.submit(Time(100_000_000), 0, data(2, 960), &mut events);
    for id in 3..6 {
        link.submit(Time(100_000_000), 0, ack(id), &mut events);
    }
    let at_ms: Vec<_> = drain(&mut *link, &mut events).iter().map(|(_, ns, _)| *ns as f64 / 1e6).collect();
    // The delay of 76 ms is eight ticks.
    assert_eq!(at_ms, [110.0, 470.0, 480.0, 490.0, 500.0]);
    assert_eq!(link.usage(0).busy.as_millis(), 7 + 290 + 30);
}

#[test]
fn a_change_of_the_delay_of_a_line_with_a_clock_is_whole_ticks_too() {
    let mut link = crate::testing::build(&ticking(json!({"schedule": [{"at_s": 1.0, "delay_s": 0.034}]})), 1).unwrap();
    let mut events = Events::default();
    link.submit(Time::from_seconds(2.0), 0, ack(1), &mut events);
    assert_eq!(drain(&mut *link, &mut events)[0].1, 2_040_000_000);
}

#[test]
fn what_a_line_with_a_clock_does_not_have_is_refused() {
    let refused = |more| crate::testing::build(&ticking(more), 1).err().expect("refused");
    assert!(refused(json!({"rate_bps": null})).to_string().contains("clock_tick_s needs a link with a rate"));
    assert!(refused(json!({"jitter_s": 0.01})).to_string().contains("has no jitter"));
    assert!(refused(json!({"schedule": [{"at_s": 1.0, "jitter_s": 0.01}]})).to_string().contains("has no jitter"));
    let both = json!({"options": {"clock_tick_s": 0.01, "device_buffer_bytes": 3328}});
    assert!(refused(both).to_string().contains("device_buffer_bytes (of a modem) exclude each other"));
    assert_eq!(
        crate::simulated_only(&ticking(json!({}))).as_deref(),
        Some("link 'line': clock_tick_s is for simulation only")
    );
    assert_eq!(crate::simulated_only(&spec(json!({"queue": {"name": "droptail"}}))), None);
}
