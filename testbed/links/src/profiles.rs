//! Link profiles: access lines of the papers and their time, by name. Forward runs towards the user, reverse back.

use backchannel_core::scenario::{DirectionSpec, LinkSpec, Named};
use serde::Serialize;
use serde_json::json;

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
        "an ADSL line: 6 Mbit/s down, 756 kbit/s up",
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
        "a residential line: 10 Mbit/s down, 1 Mbit/s up",
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
        "a VDSL2 line: 100 Mbit/s down, 40 Mbit/s up",
        "ITU-T G.993.2, profile 17a with vectoring; interleaving of 4 ms and buffers of 60 ms are chosen",
        (100_000_000, 0.006, 500),
        (40_000_000, 0.006, 200),
    ),
    (
        "gpon-300-150",
        "a fibre line on a passive optical network: 300 Mbit/s down, 150 Mbit/s up",
        "a common tier of ITU-T G.984 (2.5 and 1.2 Gbit/s, shared); delays and buffers of 20 ms are chosen",
        (300_000_000, 0.001, 500),
        (150_000_000, 0.002, 250),
    ),
    (
        "lte-40-10",
        "a mobile line, LTE: 40 Mbit/s down, 10 Mbit/s up, fixed rates, deep buffers",
        "rates, delays and buffers of 300 ms are chosen, buffers after Jiang et al. 2012 (bufferbloat in 3G/4G); \
         for varying rates use a trace (links.md, mahimahi)",
        (40_000_000, 0.02, 1000),
        (10_000_000, 0.03, 250),
    ),
    (
        "5g-tdd-400-50",
        "a mobile line, 5G with time division: 400 Mbit/s down, 50 Mbit/s up, fixed rates",
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

/// Every profile.
pub fn profiles() -> Vec<Profile> {
    ROWS.iter()
        .map(|&(name, summary, source, forward, reverse)| {
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
        })
        .collect()
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
