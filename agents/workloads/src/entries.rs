//! Registry entries of the workloads.

use backchannel_core::ip::IpVersion;
use backchannel_core::registry::{Entry, Param, Preset, Random, Unit, MUST};

use crate::application::datagram_header_bytes;

static CBR: Entry = Entry {
    kind: "workload",
    name: "cbr",
    summary: "UDP packets of one size at equal intervals",
    source: "acq 3.4; aq 4.7, 4.8",
    random: Random::Never,
    params: &[
        Param::new("rate_bps", Unit::Rate, Preset::Required(MUST), "rate of IP packets, headers included")
            .at_least(1.0),
        Param::new("packet_bytes", Unit::Bytes, Preset::Number(210.0), "IP and UDP headers included (ns)")
            .range(29.0, 65_535.0),
    ],
};

static COMMAND: Entry = Entry {
    kind: "workload",
    name: "command",
    summary: "programs of yours on both hosts; needs real packets (docs/programs.md)",
    source: "docs/programs.md",
    random: Random::Never,
    params: &[],
};

static ON_OFF: Entry = Entry {
    kind: "workload",
    name: "on-off",
    summary: "one connection; the application writes at a rate, with exponential pauses",
    source: "acq 3.4",
    random: Random::Always,
    params: &[
        Param::new("on_s", Unit::Time, Preset::Number(0.5), "mean length of a writing period (ns)").range(1e-6, 1e6),
        Param::new("off_s", Unit::Time, Preset::Number(0.5), "mean length of a pause (ns)").range(1e-6, 1e6),
        Param::new("rate_bps", Unit::Rate, Preset::Number(64_000.0), "rate of writing (ns)").at_least(1.0),
        Param::new("write_bytes", Unit::Bytes, Preset::Number(210.0), "size of one write (ns)").range(1.0, 1e6),
    ],
};

static WEB: Entry = Entry {
    kind: "workload",
    name: "web",
    summary: "connections that start at random and carry a Pareto-distributed number of bytes each",
    source: "aq 4.2",
    random: Random::Always,
    params: &[
        Param::new("distance_s", Unit::Time, Preset::Number(1.0), "mean time between two starts, exponential (aq 4.2)")
            .range(1e-6, 1e6),
        Param::new("mean_bytes", Unit::Bytes, Preset::Number(30_000.0), "mean size of a transfer (aq 4.2)")
            .at_least(1.0),
        Param::new("shape", Unit::Number, Preset::Number(1.3), "shape of the Pareto distribution (aq 4.2)")
            .range(1.01, 100.0),
    ],
};

static ESTABLISHED: Entry = Entry {
    kind: "workload",
    name: "established",
    summary: "bulk over a connection opened before the start, so the start has no handshake, as in ns-2's one-way TCP",
    source: "ns; asym 7.1; aq 4",
    random: Random::Never,
    params: &[Param::new(
        "opened_s",
        Unit::Time,
        Preset::Number(0.0),
        "when the connection is opened, not after the start",
    )
    .range(0.0, 1e6)],
};

static FETCH: Entry = Entry {
    kind: "workload",
    name: "fetch",
    summary: "the receiver sends a request, which the sender answers over several connections at once",
    source: "asym 7.3",
    random: Random::Never,
    params: &[
        Param::new("request_bytes", Unit::Bytes, Preset::Number(500.0), "size of the request (asym 7.3)")
            .range(1.0, 1e6),
        Param::new(
            "connections",
            Unit::Count,
            Preset::Number(4.0),
            "connections that share the flow's size (asym 7.3)",
        )
        .range(1.0, 100.0),
    ],
};

static PROBE: Entry = Entry {
    kind: "workload",
    name: "probe",
    summary: "packets at equal intervals that the receiver returns: latency while other flows load the path",
    source: "RFC 2681; RFC 7679",
    random: Random::Never,
    params: &[
        Param::new(
            "protocol",
            Unit::Choice,
            Preset::Text("udp"),
            "UDP, which a program returns, or ICMP echo, which the receiver's network stack answers, as ping uses it",
        )
        .of(&["udp", "icmp"]),
        Param::new("interval_s", Unit::Time, Preset::Number(0.05), "time between two probes").range(1e-4, 1e3),
        Param::new("packet_bytes", Unit::Bytes, Preset::Number(64.0), "headers of IP and UDP or ICMP included")
            .range(LEAST_NUMBERED_BYTES as f64, 65_535.0),
    ],
};

static CALL: Entry = Entry {
    kind: "workload",
    name: "call",
    summary: "one direction of a voice call: RTP frames over UDP at equal intervals, played from a jitter buffer",
    source: "RFC 3551 4.5; ITU-T G.107",
    random: Random::Never,
    params: &[
        Param::new("codec", Unit::Choice, Preset::Text("g711"), "64 kbit/s (g711) or 8 kbit/s (g729)")
            .of(&["g711", "g729"]),
        Param::new("frame_s", Unit::Time, Preset::Number(0.02), "speech in one packet (RFC 3551 4.2)").range(0.01, 0.2),
        Param::new(
            "buffer_s",
            Unit::Time,
            Preset::Number(0.06),
            "jitter buffer: each frame is played this long after the fastest frame's transit; a later one is lost",
        )
        .range(0.0, 10.0),
    ],
};

static VIDEO: Entry = Entry {
    kind: "workload",
    name: "video",
    summary:
        "one direction of a video call: frames at a rate, each in RTP packets over UDP, shown from a jitter buffer",
    source: "RFC 3550 5.1; RFC 7741 4",
    random: Random::With("variation"),
    params: &[
        Param::new(
            "rate_bps",
            Unit::Rate,
            Preset::Number(1_500_000.0),
            "mean rate of the coded video, without headers",
        )
        .range(1000.0, 1e9),
        Param::new("frames_per_s", Unit::Number, Preset::Number(30.0), "frames a second").range(1.0, 240.0),
        Param::new(
            "key_frame_every",
            Unit::Count,
            Preset::Number(60.0),
            "frames from one key frame to the next; the others need all frames since the last key frame",
        )
        .range(1.0, 100_000.0),
        Param::new(
            "key_frame_ratio",
            Unit::Number,
            Preset::Number(5.0),
            "mean size of a key frame over that of another",
        )
        .range(1.0, 100.0),
        Param::new(
            "variation",
            Unit::Number,
            Preset::Number(0.25),
            "sizes are uniform within this share of their mean",
        )
        .range(0.0, 1.0),
        Param::new(
            "packet_bytes",
            Unit::Bytes,
            Preset::Number(1200.0),
            "longest packet, headers of IP, UDP and RTP included",
        )
        .range(100.0, 65_535.0),
        Param::new(
            "spread",
            Unit::Number,
            Preset::Number(0.5),
            "share of the time between two frames over which a frame's packets are sent; 0: at once",
        )
        .range(0.0, 1.0),
        Param::new(
            "buffer_s",
            Unit::Time,
            Preset::Number(0.1),
            "jitter buffer: each frame is shown this long after the fastest frame's transit; a later one is lost",
        )
        .range(0.0, 10.0),
    ],
};

static TRANSACTIONS: Entry = Entry {
    kind: "workload",
    name: "transactions",
    summary: "requests and responses, one after the other on one connection; `from` asks, `to` answers",
    source: "RFC 6815 (TCP_RR of netperf)",
    random: Random::With("think_s"),
    params: &[
        Param::new("request_bytes", Unit::Bytes, Preset::Number(100.0), "size of a request").range(1.0, 1e9),
        Param::new("response_bytes", Unit::Bytes, Preset::Number(1000.0), "size of a response").range(1.0, 1e9),
        Param::new(
            "think_s",
            Unit::Time,
            Preset::Number(0.1),
            "mean time from a response to the next request, exponential; 0: none",
        )
        .range(0.0, 1e6),
    ],
};

static TRANSFERS: Entry = Entry {
    kind: "workload",
    name: "transfers",
    summary: "finite transfers, a connection each, that start by an arrival process whatever became of earlier ones",
    source: "Paxson and Floyd 1995, section 3",
    random: Random::Always,
    params: &[
        Param::new(
            "arrivals",
            Unit::Choice,
            Preset::Text("exponential"),
            "distribution of the time between two starts",
        )
        .of(&["exponential", "constant"]),
        Param::new("distance_s", Unit::Time, Preset::Number(1.0), "mean time between two starts").range(1e-6, 1e6),
        Param::new("sizes", Unit::Choice, Preset::Text("pareto"), "distribution of the sizes").of(&[
            "pareto",
            "exponential",
            "constant",
        ]),
        Param::new("mean_bytes", Unit::Bytes, Preset::Number(30_000.0), "mean size of a transfer").range(1.0, 1e12),
        Param::new("shape", Unit::Number, Preset::Number(1.3), "shape of the Pareto distribution").range(1.01, 100.0),
    ],
};

/// Least length of a packet with a number of 8 bytes over either version of IP.
pub const LEAST_NUMBERED_BYTES: u32 = datagram_header_bytes(IpVersion::V6) + 8;

pub(crate) static WORKLOADS: [&Entry; 11] =
    [&CALL, &CBR, &COMMAND, &ESTABLISHED, &FETCH, &ON_OFF, &PROBE, &TRANSACTIONS, &TRANSFERS, &VIDEO, &WEB];

/// Every workload but `bulk`, which has no options.
pub fn entries() -> Vec<&'static Entry> {
    WORKLOADS.to_vec()
}
