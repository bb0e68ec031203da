//! Link profiles: access lines of the papers and their time, and of today, by name. Forward runs towards the user, reverse
//! back.

use backchannel_core::scenario::{DirectionSpec, LinkSpec, Named};
use serde::Serialize;
use serde_json::{json, Value};

/// A named link.
#[derive(Debug, Serialize)]
pub struct Profile {
    /// Name.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Where the numbers come from.
    pub source: &'static str,
    /// The link without `name` and `ends`.
    pub spec: LinkSpec,
}

/// (name, summary, source, forward (bit/s, s, packets), reverse (bit/s, s, packets)).
type Row = (&'static str, &'static str, &'static str, (u64, f64, u64), (u64, f64, u64));

static ROWS: &[Row] = &[
    dialup("dialup-9.6", "a 9.6 kbit/s dialup modem, both ways", 9_600),
    dialup("dialup-14.4", "a 14.4 kbit/s dialup modem, both ways", 14_400),
    dialup("dialup-28.8", "a 28.8 kbit/s dialup modem, both ways", 28_800),
    dialup("dialup-33.6", "a 33.6 kbit/s dialup modem, both ways: the modem of 1997", 33_600),
    dialup("dialup-56", "a 56 kbit/s dialup modem, both ways", 56_000),
    ("isdn-64", "one ISDN B channel", "asym 7.1 (figure 8)", (64_000, 0.05, 10), (64_000, 0.05, 10)),
    ("isdn-128", "two ISDN B channels", "asym 7.1 (figure 8)", (128_000, 0.05, 10), (128_000, 0.05, 10)),
    ("ethernet", "10 Mbit/s both ways", "asym 4 (symmetric control)", (10_000_000, 0.001, 50), (10_000_000, 0.001, 50)),
    (
        "adsl",
        "an ADSL link: 6 Mbit/s down, 756 kbit/s up",
        "aq 1; delay and queues as in aq 4",
        (6_000_000, 0.005, 50),
        (756_000, 0.005, 50),
    ),
    (
        "cable",
        "a cable modem: 10 Mbit/s down, 0.7 Mbit/s up",
        "aq 2.2 (C_u/C_d from 0.07); delay and queues as in aq 4",
        (10_000_000, 0.005, 50),
        (700_000, 0.005, 50),
    ),
    (
        "hybrid-cable",
        "a wireless cable modem with a 28.8 kbit/s dialup return",
        "asym 7.1, figure 7",
        (10_000_000, 0.005, 20),
        (28_800, 0.05, 10),
    ),
    (
        "section9-modem",
        "Ethernet down and the software modem of asym 9.1 up",
        "asym 9.1",
        (10_000_000, 0.002, 50),
        (28_000, 0.08, 32),
    ),
    (
        "asymmetric-access",
        "a residential link: 10 Mbit/s down, 1 Mbit/s up",
        "aq 4, figure 2",
        (10_000_000, 0.005, 50),
        (1_000_000, 0.005, 50),
    ),
    (
        "cable-500-10",
        "a DOCSIS 3.0 cable modem: 500 Mbit/s down, 10 Mbit/s up",
        "a common tier; up, 8 ms of request and grant and a buffer of 250 ms, the bufferbloat that RFC 8034 counters; \
         the rest is chosen",
        (500_000_000, 0.004, 1000),
        (10_000_000, 0.008, 208),
    ),
    (
        "vdsl-100-40",
        "a VDSL2 link: 100 Mbit/s down, 40 Mbit/s up",
        "ITU-T G.993.2, profile 17a with vectoring; interleaving of 4 ms and buffers of 60 ms are chosen",
        (100_000_000, 0.006, 500),
        (40_000_000, 0.006, 200),
    ),
    (
        "gpon-300-150",
        "a fibre link on a passive optical network: 300 Mbit/s down, 150 Mbit/s up",
        "a common tier of ITU-T G.984 (2.5 and 1.2 Gbit/s, shared); delays and buffers of 20 ms are chosen",
        (300_000_000, 0.001, 500),
        (150_000_000, 0.002, 250),
    ),
    (
        "lte-40-10",
        "a mobile link, LTE: 40 Mbit/s down, 10 Mbit/s up, fixed rates, deep buffers",
        "rates, delays and buffers of 300 ms are chosen, buffers after Jiang et al. 2012 (bufferbloat in 3G/4G); \
         for varying rates use a trace (links.md, mahimahi)",
        (40_000_000, 0.02, 1000),
        (10_000_000, 0.03, 250),
    ),
    (
        "5g-tdd-400-50",
        "a mobile link, 5G with time division: 400 Mbit/s down, 50 Mbit/s up, fixed rates",
        "slots down to slots up as in the pattern DDDSU (3GPP TS 38.213, 11.1); rates, delays and buffers are chosen",
        (400_000_000, 0.008, 2000),
        (50_000_000, 0.012, 400),
    ),
    (
        "leo-150-15",
        "a low-orbit satellite: 150 Mbit/s down, 15 Mbit/s up",
        "round trips of 25 to 60 ms as its operators specify for land; rates and buffers of 100 ms are chosen",
        (150_000_000, 0.02, 1250),
        (15_000_000, 0.02, 125),
    ),
    (
        "geo-50-3",
        "a geostationary satellite: 50 Mbit/s down, 3 Mbit/s up",
        "RFC 2488, 2: 239.6 to 279.0 ms one way; rates and buffers of 500 ms are chosen",
        (50_000_000, 0.26, 2000),
        (3_000_000, 0.26, 125),
    ),
    (
        "office-wifi",
        "an office wireless LAN at its usual goodput: 80 Mbit/s both ways, without contention",
        "goodput, delay and queues are chosen; for a shared medium use the link kind wavelan",
        (80_000_000, 0.003, 250),
        (80_000_000, 0.003, 250),
    ),
];

/// One-way latency as in asym 7.1, queue of 32 packets as in the PPP drivers of asym 9.1.
const fn dialup(name: &'static str, summary: &'static str, rate_bps: u64) -> Row {
    (
        name,
        summary,
        "asym 7.1 (latency 50 ms), 9.1 (PPP queue of 32 packets)",
        (rate_bps, 0.05, 32),
        (rate_bps, 0.05, 32),
    )
}

/// Those of other kinds than point-to-point. docs/links.md says of each number where it comes from.
fn of_other_kinds() -> Vec<Profile> {
    let droptail = |packets: u64| json!({"name": "droptail", "options": {"limit_packets": packets}});
    let way =
        |rate_bps: u64, delay_s: f64, queue: Value| json!({"rate_bps": rate_bps, "delay_s": delay_s, "queue": queue});
    let profile = |name, summary, source, kind: &str, options: Value, forward: Value, reverse: Value| {
        let spec =
            json!({"name": "", "kind": kind, "ends": [], "options": options, "forward": forward, "reverse": reverse});
        Profile { name, summary, source, spec: serde_json::from_value(spec).expect("a link") }
    };
    let mobile = |more: &[(&str, Value)]| {
        let mut options = json!({
            "cycle_s": 0.0025, "uplink_s": 0.0005, "guard_s": 0.000_071_4, "request_interval_s": 0.01,
            "grant_delay_s": 0.002, "first_grant_bytes": 120, "requests": 1,
        });
        more.iter().for_each(|(name, value)| options[name] = value.clone());
        options
    };
    let air = |rate_bps: u64| way(rate_bps, 1e-6, droptail(1000));
    vec![
        profile(
            "docsis-3.0-200-20",
            "a DOCSIS 3.0 cable modem whose uplink waits for grants: 200 Mbit/s down, 20 Mbit/s up",
            "DOCSIS MULPIv3.0, 7.2 (MAPs, contention, piggybacking); MAPs of 2 ms and 4 ms to a grant, for some 10 ms of \
             idle round trip (draft-white-tsvwg-lld-00, 1); four channels of 30.72 Mbit/s; buffer of 250 ms (RFC 8034); the \
             rest is chosen",
            "grant",
            json!({
                "cycle_s": 0.002, "request_interval_s": 0.000_25, "grant_delay_s": 0.004, "channel_rate_bps": 122_880_000,
                "collision": 0.05, "backoff_start": 2, "backoff_end": 8,
            }),
            way(200_000_000, 0.003, droptail(800)),
            way(20_000_000, 0.001, droptail(416)),
        ),
        profile(
            "docsis-3.1-500-50",
            "a low-latency DOCSIS 3.1 cable modem whose uplink waits for grants: 500 Mbit/s down, 50 Mbit/s up",
            "draft-white-tsvwg-lld-00 (a faster request-grant loop): MAPs of 1 ms and 2 ms to a grant; DOCSIS-PIE (RFC \
             8034); the rest is chosen",
            "grant",
            json!({
                "cycle_s": 0.001, "request_interval_s": 0.000_125, "grant_delay_s": 0.002, "channel_rate_bps": 500_000_000,
                "collision": 0.05, "backoff_start": 2, "backoff_end": 8,
            }),
            way(500_000_000, 0.002, droptail(1000)),
            way(50_000_000, 0.001, json!({"name": "docsis-pie", "options": {"limit_packets": 1000}})),
        ),
        profile(
            "gpon-500-100",
            "a fibre link of a GPON whose uplink waits for grants: 500 Mbit/s down, 100 Mbit/s up",
            "ITU-T G.984.3: frames of 125 us, 1.24416 Gbit/s up, status reports; a report every eighth frame and 0.5 ms to \
             a grant; buffers of 20 ms; the rest is chosen",
            "grant",
            json!({
                "cycle_s": 0.000_125, "request_interval_s": 0.001, "grant_delay_s": 0.0005,
                "channel_rate_bps": 1_244_160_000,
            }),
            way(500_000_000, 0.0005, droptail(833)),
            way(100_000_000, 0.0005, droptail(167)),
        ),
        profile(
            "5g-nr-300-30",
            "a mobile link, 5G with the pattern DDDSU: 300 Mbit/s down, 30 Mbit/s up by scheduling requests",
            "3GPP TS 38.213, 11.1 (pattern), TS 38.321, 5.4.4 (scheduling request) and 5.4.5 (buffer status report); slots \
             of 0.5 ms, a request every 20 slots, K2 and the base station together 4 slots; the rest is chosen",
            "grant",
            mobile(&[]),
            way(300_000_000, 0.004, droptail(2500)),
            way(30_000_000, 0.003, droptail(250)),
        ),
        profile(
            "5g-nr-300-30-configured",
            "the same with a configured grant of 300 bytes in each period, which needs no request",
            "as 5g-nr-300-30; 3GPP TS 38.321, 5.8.2 (configured grant)",
            "grant",
            mobile(&[("unsolicited_bytes", json!(300))]),
            way(300_000_000, 0.004, droptail(2500)),
            way(30_000_000, 0.003, droptail(250)),
        ),
        profile(
            "wifi-n-300",
            "a wireless LAN, 802.11n: two streams, 40 MHz",
            "IEEE 802.11-2020, 19 (HT): MCS 15 with a short guard interval; buffers are chosen",
            "wifi",
            json!({"preamble_s": 40e-6, "symbol_s": 3.6e-6, "ampdu_bytes": 65_535}),
            air(300_000_000),
            air(300_000_000),
        ),
        profile(
            "wifi-ac-867",
            "a wireless LAN, 802.11ac: two streams, 80 MHz",
            "IEEE 802.11-2020, 21 (VHT): MCS 9 with a short guard interval; buffers are chosen",
            "wifi",
            json!({"preamble_s": 44e-6, "symbol_s": 3.6e-6}),
            air(866_666_667),
            air(866_666_667),
        ),
        profile(
            "wifi-ax-1201",
            "a wireless LAN, 802.11ax: two streams, 80 MHz, one user at a time",
            "IEEE 802.11ax-2021, 27 (HE): MCS 11 with a guard interval of 0.8 us; window of 256; buffers are chosen",
            "wifi",
            json!({
                "preamble_s": 50.4e-6, "symbol_s": 13.6e-6, "aggregate_packets": 256, "ampdu_bytes": 6_500_631,
            }),
            air(1_200_980_392),
            air(1_200_980_392),
        ),
        profile(
            "starlink-200-20",
            "a low-orbit satellite with epochs of 15 s: 200 Mbit/s down, 20 Mbit/s up",
            "Huston 2024 (A transport protocol's view of Starlink): minimum round trip that changes every 15 s, 1 to 2 % of \
             packets lost without congestion, rates of 10 to 370 Mbit/s; outage of 0.15 s for 1 %; delays and buffers of 100 \
             ms are chosen",
            "leo",
            json!({"delay_spread_s": 0.007, "rate_spread": 0.5, "outage_s": 0.15}),
            way(200_000_000, 0.018, droptail(1667)),
            way(20_000_000, 0.018, droptail(167)),
        ),
    ]
}

/// Every profile.
pub fn profiles() -> Vec<Profile> {
    let lines = ROWS.iter().map(|&(name, summary, source, forward, reverse)| {
        let spec = LinkSpec {
            name: String::new(),
            kind: "point-to-point".into(),
            ends: Vec::new(),
            forward: direction(forward),
            reverse: direction(reverse),
            options: Default::default(),
            middleboxes: Vec::new(),
        };
        Profile { name, summary, source, spec }
    });
    lines.chain(of_other_kinds()).collect()
}

fn direction((rate_bps, delay_s, limit): (u64, f64, u64)) -> DirectionSpec {
    DirectionSpec {
        rate_bps: Some(rate_bps),
        delay_s,
        jitter_s: 0.0,
        keep_order: false,
        queue: Named { name: "droptail".into(), options: [("limit_packets".to_owned(), json!(limit))].into() },
        errors: Vec::new(),
        options: Default::default(),
        schedule: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_profile_is_a_link_that_can_be_built() {
        for profile in super::profiles() {
            let mut spec = profile.spec;
            spec.ends = vec!["a".into(), "b".into()];
            crate::testing::build(&spec, 1).unwrap_or_else(|why| panic!("{}: {why}", profile.name));
        }
    }
}
