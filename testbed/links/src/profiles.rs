//! Named links: the lines that the papers and their time knew, for scripts and campaign files. Forward runs towards the
//! user, reverse back.

use backchannel_core::scenario::{DirectionSpec, LinkSpec, Named};
use serde::Serialize;
use serde_json::json;

/// A link by name.
#[derive(Debug, Serialize)]
pub struct Profile {
    /// Name.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Where the numbers come from.
    pub source: &'static str,
    /// The link; its `name` and `ends` are to be filled in.
    pub spec: LinkSpec,
}

/// (name, summary, source, forward (bit/s, s, packets), reverse (bit/s, s, packets)).
type Row = (&'static str, &'static str, &'static str, (u64, f64, u64), (u64, f64, u64));

static ROWS: &[Row] = &[
    (
        "dialup-28.8",
        "a 28.8 kbit/s dialup modem, both ways",
        "asym 7.1, one-way latency 50 ms",
        (28_800, 0.05, 10),
        (28_800, 0.05, 10),
    ),
    ("dialup-9.6", "a 9.6 kbit/s dialup modem, both ways", "asym 7.1 (figure 8)", (9_600, 0.05, 10), (9_600, 0.05, 10)),
    (
        "hybrid-cable",
        "a wireless cable modem with a 28.8 kbit/s dialup return",
        "asym 7.1, figure 7",
        (10_000_000, 0.005, 20),
        (28_800, 0.05, 10),
    ),
    (
        "section9-modem",
        "the paper's own software modem beside its Ethernet",
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
];

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
            crate::build(&spec, 1).unwrap_or_else(|why| panic!("{}: {why}", profile.name));
        }
    }
}
