"""What lines and links carry: use of capacity, rates, shares, packet sizes, goodput, queues, and the papers' ratios."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

import numpy as np
import polars as pl

from analysis import slices
from analysis.captures import DATA, PURE_ACK, CapturedFlow, CapturedLine, MissingCapture, is_a, run_of, step_mean
from analysis.counters import CountedLine, CountedLink
from analysis.metrics.registry import metric
from analysis.runs import KINDS, Kind, Line, Link, Unmeasured
from analysis.statistics import variation
from analysis.transports import has_segments

# Use of capacity ---------------------------------------------------------------------------------------------


@metric("fraction", "Utilisation", Line, "aq 4: bits on the link over rate times time, warm-up excluded", better=None)
def utilisation(line: Line) -> float | None:
    """Bits of IP packets that came out of the line over what it can carry.

    Captures of simulations count TCP alone. Packets that the error model destroyed do not count. None for a line
    without a rate. A line that compresses headers has none, because it carries fewer bits than its packets have:
    `line_busy` is its own share.
    """
    return _share_of_capacity(line, *KINDS)


def _share_of_capacity(line: Line, *kinds: Kind) -> float | None:
    """The share of the capacity that packets of some kinds take.

    Raises:
        Unmeasured: what the packets take is not known, because the line compresses headers.
    """
    directions = {
        f"{link.name}/{way}": direction for link in line.run.scenario.links for way, direction in link.directions()
    }
    if line.name in directions and directions[line.name].options.get("header_compression", "none") != "none":
        raise Unmeasured("the link compresses headers, so its packets take less than their bits; see line_busy")
    return line.share_of_capacity(*kinds)


@metric("fraction", "Utilisation by TCP", Line, "aq 4.7", detail=True, better=None)
def utilisation_tcp(line: Line) -> float | None:
    """The part of `utilisation` by TCP segments."""
    return _share_of_capacity(line, "data", "ack")


@metric(
    "fraction",
    "Utilisation by data",
    Line,
    "aq 4, 4.5; pulsed 4.2: utilisation by TCP data",
    detail=True,
    better="more",
)
def data_share(line: Line) -> float | None:
    """The part of `utilisation` by TCP segments with data, headers included."""
    return _share_of_capacity(line, "data")


@metric("fraction", "Utilisation by acks", Line, "aq 4, 4.5: utilisation by TCP acks", detail=True, better=None)
def ack_share(line: Line) -> float | None:
    """The part of `utilisation` by TCP segments without data."""
    return _share_of_capacity(line, "ack")


@metric("fraction", "Link busy", Line, "the driver's counters", detail=True, better=None)
def line_busy(line: Line) -> float | None:
    """Time in which the line was sending over the run's duration, warm-up included, as the driver counts it.

    Every packet counts, with framing and compression, whether or not it arrived. A transmission that the end of the run
    cuts counts whole, but the line is not busy for longer than the run. None for a line without a rate.
    """
    busy_s = line.counters.busy_s if line.counters else None
    if busy_s is None or line.rate_bps is None:
        return None
    return min(float(busy_s) / line.run.window_s[1], 1.0)


def utilisation_over_time(line: CapturedLine, width_s: float) -> pl.DataFrame:
    """`utilisation` per interval of `width_s`: `t_s` (its end), `share`; the warm-up included.

    A packet's bits are spread over its transmission, so that an interval may be shorter than a transmission. The
    transmission ends when the packet leaves the line, less the line's delay, which is the same for all packets.

    Raises:
        MissingCapture: the line has no rate, or was not captured at its receiving end.
        AnalysisError: more than `slices.MAX_DENSE` intervals.
    """
    if line.rate_bps is None:
        raise MissingCapture(f"{line.name} has no rate and therefore no utilisation")
    count = slices.count(0.0, line.run.window_s[1], width_s, slices.MAX_DENSE)
    edges = np.arange(count + 1) * width_s
    bits = 8.0 * line.at_exit["ip_len"].to_numpy().astype(np.float64)
    ends = line.at_exit["t_s"].to_numpy()
    rates = np.array([line.rate_at(end) for end in ends]) if line.spec.schedule else line.rate_bps
    # One after the other: a transmission begins when the one before it has ended, or later.
    begins = np.maximum(ends - bits / rates, np.concatenate([[-np.inf], ends[:-1]])) if len(ends) else ends
    total = np.cumsum(bits)
    times = np.column_stack([begins, ends]).ravel()
    sums = np.column_stack([total - bits, total]).ravel()
    got = np.diff(np.interp(edges, times, sums, left=0.0)) if len(ends) else np.zeros(count)
    capacities = [line.capacity_bits(begin, end) or math.inf for begin, end in pairwise(edges.tolist())]
    return pl.DataFrame({"t_s": edges[1:], "share": got / np.array(capacities)})


#: Kinds of packets that the utility counts.
DATA_AND_UDP: tuple[Kind, ...] = ("data", "other")


@metric("number", "Utility", Link, "acq 2: U = x_r/C_r + x_f/C_f, data only", detail=True, better="more")
def utility(link: Link) -> float | None:
    """U = x_r / C_r + x_f / C_f: utilisation of both directions by data, UDP's included; at most 2.

    Captures of simulations count TCP alone. None for a link with a direction without a rate.
    """
    shares = [line.share_of_capacity(*DATA_AND_UDP) for line in (link.forward, link.reverse)]
    return None if None in shares else sum(share or 0.0 for share in shares)


#: Time over which the utility is averaged, in s, and share of its final mean at which it has settled.
SETTLING_S, SETTLED = 200.0, 0.97


@metric("time", "Settling time of the utility", CountedLink, "acq 3.3, figure 5", detail=True, better="less")
def utility_settling_time(link: CountedLink) -> float | None:
    """When the utility, averaged over the 200 s before, first reaches 97 % of its mean over the run's second half.

    In s. None for a run shorter than 800 s, or a link with a direction without a rate.
    """
    run = link.forward.run
    if not link.forward.rate_bps or not link.reverse.rate_bps or run.end_s < 4 * SETTLING_S:
        return None

    def mean(from_s: float, to_s: float) -> float:
        utility = 0.0
        for line in (link.forward, link.reverse):
            bits = sum(run.total(line.bytes_of(kind), from_s, to_s) * 8 for kind in DATA_AND_UDP)
            utility += bits / (line.rate_bps or 1.0) / (to_s - from_s)
        return utility

    wanted = SETTLED * mean(run.end_s / 2, run.end_s)
    to_s = SETTLING_S
    while to_s <= run.end_s:
        if mean(to_s - SETTLING_S, to_s) >= wanted:
            return to_s
        to_s += max(run.every_s, SETTLING_S / 20)
    return None


# Carried rates and packets -----------------------------------------------------------------------------------


@metric("rate", "Carried rate", Line, "pulsed 4.2, figure 4", detail=True, better=None)
def carried(line: Line) -> float:
    """Bits of IP packets that came out of the line after the warm-up, in bit/s.

    Captures of simulations count TCP alone.
    """
    return line.carried_bps(*KINDS)


@metric("rate", "Carried rate of TCP data", Line, "aq 4.7", detail=True, better="more")
def carried_data(line: Line) -> float:
    """`carried` by TCP segments with data, in bit/s."""
    return line.carried_bps("data")


@metric("rate", "Carried rate of acks", Line, "docs/beyond.md", detail=True, better=None)
def carried_acks(line: Line) -> float:
    """`carried` by TCP segments without data, in bit/s."""
    return line.carried_bps("ack")


@metric("rate", "Carried rate of other than TCP", Line, "aq 4.7", detail=True, better=None)
def carried_other(line: Line) -> float:
    """`carried` by packets that are not TCP, in bit/s."""
    return line.carried_bps("other")


@metric("fraction", "Data in TCP bytes", CountedLine, "aq 4.5, figure 7; acq 3.2, figure 4", detail=True, better=None)
def data_fraction(line: CountedLine) -> float | None:
    """Bytes of TCP segments with data over all bytes of TCP segments that came out after the warm-up."""
    tcp = line.bits("data", "ack")
    return line.bits("data") / tcp if tcp else None


@metric("fraction", "Acks in TCP bytes", CountedLine, "aq 4.5, figure 7; acq 3.2, figure 4", detail=True, better=None)
def ack_fraction(line: CountedLine) -> float | None:
    """1 - `data_fraction`."""
    fraction = data_fraction(line)
    return None if fraction is None else 1.0 - fraction


@metric("bytes", "Size of data packets", Line, "pulsed 4.1, table 4", detail=True, better=None)
def data_packet_size(line: Line) -> float | None:
    """Mean bytes of the IP packets with TCP data that came out of the line, over the whole run."""
    return line.mean_data_packet_bytes()


@metric("bytes", "Size of acks", Line, "pulsed 4.1, table 4", detail=True, better=None)
def ack_packet_size(line: Line) -> float | None:
    """Mean bytes of the pure acks that came out of the line, over the whole run."""
    return line.mean_ack_packet_bytes()


# Goodput -----------------------------------------------------------------------------------------------------


@metric(
    "fraction", "Goodput of the link", CapturedLine, "ton IV-A: wired and wireless goodput", detail=True, better="more"
)
def link_goodput(line: CapturedLine) -> float | None:
    """Bytes delivered in order by the flows whose data cross the line, over all bytes of data packets sent on it.

    Sent are the bytes that the driver transmitted, less the pure acks that came out, over the whole run: local
    retransmissions of a base station are in no capture. None if no flow's data cross the line.
    """
    crossing = [flow for flow in run_of(line).flows if _crosses(flow, line)]
    if not crossing or line.counters is None:
        return None
    acks = int(line.at_exit.filter(is_a(PURE_ACK))["ip_len"].sum())
    of_data = line.counters.transmitted_bytes - acks
    delivered = sum(flow.delivered_bytes(-math.inf, math.inf) for flow in crossing)
    return delivered / of_data if of_data > 0 else None


def _crosses(flow: CapturedFlow, line: CapturedLine) -> bool:
    return any((hop, link) == (line.sender, line.link) for hop, link, _ in line.path(flow))


@metric(
    "fraction",
    "Goodput of data",
    CountedLine,
    "ton IV-A: the transfer's bytes over bytes sent",
    detail=True,
    better="more",
)
def data_goodput(line: CountedLine) -> float | None:
    """Bytes that receivers got of the TCP flows whose data cross the line, over the bytes of TCP data sent on it.

    In the whole run. Damaged packets count as sent; headers do not. None if no such flow's data cross the line.
    """
    paths, scenario = line.run.data_paths, line.run.scenario
    crossing = [flow for flow in line.run.flows if line.name in paths[flow.name] and has_segments(scenario, flow.spec)]
    sent = float(line.bins["data_payload_bytes"])
    if not crossing or not sent:
        return None
    return sum(sum(flow.bins["delivered_bytes"]) for flow in crossing) / sent


# Gaps and variation ------------------------------------------------------------------------------------------


@metric("number", "Variation of data", Line, "aq 1, figure 1: in slices of 0.2 s", detail=True, better=None)
def data_bin_variation(line: Line) -> float | None:
    """Sample standard deviation over mean of the bytes of TCP data packets in slices after the warm-up.

    None for fewer than two slices, or without data.
    """
    return variation(line.data_slices())


@metric("count", "Longest run of lost acks", CountedLine, "asym 7.1.1 B", detail=True, better=None)
def longest_ack_drop_run(line: CountedLine) -> float:
    """The most consecutive pure acks, in the order in which they entered the line, of which none came out.

    Captures do not show which of several equal acks came out.
    """
    return float(line.bins["longest_lost_run_of_acks"])


@metric("time", "Longest gap of data", Line, "asym 7.1.3, figure 10", detail=True, better="less")
def longest_gap_of_data(line: Line) -> float:
    """Longest time without TCP data from the line while every flow is active, in s, to the length of a slice.

    Slices are bins of the counters, and 10 ms in captures of a run without them.
    """
    return max(line.gaps_s("data"), default=0.0)


#: Shorter gaps of acks do not count, in s.
ACK_GAP_S = 0.05


@metric("time", "Mode of the gaps of acks", Line, "asym 7.1.3, figure 11", detail=True, better=None)
def ack_gap_mode(line: Line) -> float | None:
    """Mode of the times of more than 50 ms without pure acks from the line while every flow is active, in s.

    To the length of a slice, as `longest_gap_of_data`. None if slices are longer than 50 ms, or without such a gap.
    """
    gaps = [gap for gap in line.gaps_s("ack") if gap > ACK_GAP_S]
    return statistics.mode(gaps) if gaps and line.gap_slice_s < ACK_GAP_S else None


@metric("fraction", "Idle share of the link", CountedLine, "asym 5.2", detail=True, better="less")
def idle_fraction(line: CountedLine) -> float | None:
    """Share of bins without TCP data from the line, from the start of the first flow to the end of the last."""
    flows = line.run.flows
    begin_s, end_s = min(flow.begun_s for flow in flows), max(flow.ended_s() for flow in flows)
    bins = line.run.complete_bins(line.bins["data_bytes"], begin_s, end_s)
    return sum(not count for count in bins) / len(bins) if bins else None


# Queues ------------------------------------------------------------------------------------------------------


@metric("packets", "Queue length", Line, "asym 7.1.3: mean occupancy", better=None)
def queue_mean(line: Line) -> float | None:
    """Time average of the packets that wait before the line; None for a line without a queue."""
    return line.queue_mean_packets()


@metric(
    "packets",
    "Queue length while all are active",
    CapturedLine,
    "asym 7.1.3: both active; telemetry",
    detail=True,
    better=None,
)
def active_queue_mean(line: CapturedLine) -> float | None:
    """`queue_mean` over the period in which every flow of the run is active; None for one flow, or without a period."""
    window = line.run.active_window_s()
    return None if line.rate_bps is None or window is None else step_mean(line.queue_steps(), *window)


@metric("packets", "Queue length, maximum", CapturedLine, "the links' telemetry", detail=True, better=None)
def queue_max(line: CapturedLine) -> float | None:
    """The most packets that waited at any time after the warm-up; None for a line without a rate."""
    if line.rate_bps is None:
        return None
    most = line.queue_steps().filter(pl.col("t_s") >= line.run.window_s[0])["most"].max()
    return 0.0 if most is None else float(most)  # type: ignore[arg-type]


# The papers' ratio -------------------------------------------------------------------------------------------


@metric(
    "number",
    "Normalised bandwidth ratio k",
    CapturedFlow,
    "asym 3.1: k = (C_f/C_r) / (S_data/S_ack)",
    detail=True,
    better=None,
)
def bandwidth_ratio(flow: CapturedFlow) -> float | None:
    """K = (C_f / C_r) / (S_data / S_ack): above 1, acks for every packet fill the reverse line first.

    C are the least declared rates on the path of the flow's data and on the path back, S the mean IP bytes of its data
    segments at the sender and of its pure acks at the receiver. None if a path has no line with a rate, or for a flow
    without data or acks.
    """
    lines = {(line.sender, line.link): line for line in run_of(flow).all_lines}
    any_line = next(iter(lines.values()), None)
    if any_line is None:
        return None
    forward, reverse = (
        min((rate for hop, link, _ in hops if (rate := lines[hop, link].rate_bps) is not None), default=None)
        for hops in (any_line.path(flow), any_line.path_back(flow))
    )
    is_data, is_ack = (pl.col("dir") == 0) & is_a(DATA), (pl.col("dir") == 1) & is_a(PURE_ACK)
    data = flow.at_sender.select(pl.col("ip_len").filter(is_data)).to_series().mean()
    ack = flow.at_receiver.select(pl.col("ip_len").filter(is_ack)).to_series().mean()
    if forward is None or reverse is None or data is None or ack is None:
        return None
    return (forward / reverse) / (float(data) / float(ack))  # type: ignore[arg-type]
