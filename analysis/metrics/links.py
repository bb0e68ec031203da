"""What a link carried: use of its capacity, shares of data and acks, goodput, queue, and the papers' ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import polars as pl

from analysis.metrics.data import DATA, PURE_ACK, Flow, MissingCapture, is_a, step_mean
from analysis.metrics.lines import Line
from analysis.metrics.registry import metric
from analysis.metrics.throughput import active_window_s
from analysis.statistics import variation

#: Slices in which aq's figure 1 is drawn, in s.
SLICE_S = 0.2


def _carried_bits(line: Line, from_s: float, to_s: float, bits: int | None = None) -> int:
    inside = line.at_exit.filter((pl.col("t_s") >= from_s) & (pl.col("t_s") < to_s))
    if bits is not None:
        inside = inside.filter(is_a(bits))
    return 8 * int(inside["ip_len"].sum())


def _share(line: Line, bits: int | None = None) -> float | None:
    capacity = line.capacity_bits(*line.run.busy_window_s)
    return _carried_bits(line, *line.run.busy_window_s, bits) / capacity if capacity else None


@metric("fraction", "Utilisation", "line", "aq 4: bits on the link over rate times time, warm-up excluded")
def utilisation(line: Line) -> float | None:
    """Bits of TCP's IP packets that came out of the line over what it can carry.

    From the end of the warm-up to the last flow's end, 8 sum(ip bytes) / integral of the declared rate, from the
    capture at the receiving end. What the error model destroyed is not in it, nor what is no TCP; with header
    compression the line carries fewer bits than these, and the share may exceed 1: `line_busy` is of the line itself.
    None for a line without a rate.
    """
    return _share(line)


@metric("fraction", "Share used by data", "line", "aq 4: utilisation by TCP data", detail=True)
def data_share(line: Line) -> float | None:
    """The part of `utilisation` that is segments with data, their headers included."""
    return _share(line, DATA)


@metric("fraction", "Share used by acks", "line", "aq 4: utilisation by TCP acks", detail=True)
def ack_share(line: Line) -> float | None:
    """The part of `utilisation` that is pure acks."""
    return _share(line, PURE_ACK)


@metric("fraction", "Line busy", "line", "the driver's own count", detail=True)
def line_busy(line: Line) -> float | None:
    """Time in which the line was sending over the run's duration, warm-up included, as the driver counted it.

    Every packet counts, with its framing and compression, whether or not it arrived. None for a line without a rate.
    """
    busy_s = line.counters.get("busy_s")
    duration_s = line.run.window_s[1]
    if busy_s is None or line.rate_bps is None or duration_s <= 0:
        return None
    return float(busy_s) / duration_s


def utilisation_over_time(line: Line, width_s: float) -> pl.DataFrame:
    """`utilisation` per interval of `width_s`: `t_s` (its end), `share`; the warm-up is there as well.

    A packet's bits are spread over its transmission, which ended when it came out (less the line's delay, which shifts
    all alike), so that an interval may be shorter than a packet takes.

    Raises:
        MissingCapture: the line has no rate, or was not captured at its receiving end.
    """
    if line.rate_bps is None:
        raise MissingCapture(f"{line.name} has no rate, and so no utilisation")
    count = math.ceil(line.run.window_s[1] / width_s)
    edges = np.arange(count + 1) * width_s
    bits = 8.0 * line.at_exit["ip_len"].to_numpy().astype(np.float64)
    ends = line.at_exit["t_s"].to_numpy()
    rates = np.array([line.rate_at(end) for end in ends]) if line.spec.get("schedule") else line.rate_bps
    # One after the other: none begins before the one before it has ended.
    begins = np.maximum(ends - bits / rates, np.concatenate([[-np.inf], ends[:-1]])) if len(ends) else ends
    total = np.cumsum(bits)
    times = np.column_stack([begins, ends]).ravel()
    sums = np.column_stack([total - bits, total]).ravel()
    got = np.diff(np.interp(edges, times, sums, left=0.0)) if len(ends) else np.zeros(count)
    capacities = [line.capacity_bits(begin, end) or math.inf for begin, end in pairwise(edges.tolist())]
    return pl.DataFrame({"t_s": edges[1:], "share": got / np.array(capacities)})


@metric("fraction", "Goodput of the link", "line", "ton IV-A: wired and wireless goodput", detail=True)
def link_goodput(line: Line) -> float | None:
    """Bytes delivered in order by the flows whose data cross the line, over all bytes of data packets sent on it.

    Sent are the bytes that the driver transmitted (local retransmissions of a base station are in no capture), less
    the pure acks that came out. Over the whole run. None when no flow's data cross it.
    """
    crossing = [flow for flow in line.run.flows if _crosses(flow, line)]
    sent = line.counters.get("transmitted_bytes")
    if not crossing or sent is None:
        return None
    acks = int(line.at_exit.filter(is_a(PURE_ACK))["ip_len"].sum())
    of_data = int(sent) - acks
    delivered = sum(flow.delivered_bytes(-math.inf, math.inf) for flow in crossing)
    return delivered / of_data if of_data > 0 else None


def _crosses(flow: Flow, line: Line) -> bool:
    return any((hop, link) == (line.sender, line.link) for hop, link, _ in line.path(flow))


@metric("number", "Variation of data", "line", "aq 1, figure 1: in slices of 0.2 s", detail=True)
def data_bin_variation(line: Line) -> float | None:
    """Standard deviation over mean of the bytes of TCP data packets that came out of the line in slices of 0.2 s.

    Of whole slices from the warm-up to the end of the run. None for fewer than two of them, or without data.
    """
    begin, end = (round(edge_s / SLICE_S, 9) for edge_s in line.run.window_s)
    data = line.at_exit.filter(is_a(DATA))
    first, last = math.ceil(begin), math.floor(end)
    sums = np.bincount(
        np.clip((data["t_s"].to_numpy() / SLICE_S).astype(np.int64) - first + 1, 0, last - first + 1),
        weights=data["ip_len"].to_numpy(),
        minlength=last - first + 2,
    )
    # Before and after the whole slices lie one each.
    return variation(sums[1 : last - first + 1].tolist())


@metric("packets", "Queue length", "line", "asym 7.1.3: mean occupancy; the links' telemetry")
def queue_mean(line: Line) -> float | None:
    """Mean over time of the packets that wait, from the warm-up to the last flow's end; not of the one in transmission.

    From the telemetry, which notes a change at most every 10 ms. None for a line without a rate: it has no queue.
    """
    return None if line.rate_bps is None else step_mean(line.queue_steps(), *line.run.busy_window_s)


@metric("packets", "Queue length while all are active", "line", "asym 7.1.3: both active; telemetry", detail=True)
def active_queue_mean(line: Line) -> float | None:
    """`queue_mean` over the period in which every flow of the run is active; None for one flow, or without a period."""
    window = active_window_s(line.run.flows)
    if line.rate_bps is None or len(line.run.flows) < 2 or window is None:
        return None
    return step_mean(line.queue_steps(), *window)


@metric("packets", "Queue length, most", "line", "the links' telemetry", detail=True)
def queue_max(line: Line) -> float | None:
    """The most packets that waited at any time after the warm-up; None for a line without a rate."""
    if line.rate_bps is None:
        return None
    most = line.queue_steps().filter(pl.col("t_s") >= line.run.window_s[0])["most"].max()
    return 0.0 if most is None else float(most)  # type: ignore[arg-type]


@metric("number", "Normalised bandwidth ratio k", "flow", "asym 3.1: k = (C_f/C_r) / (S_data/S_ack)", detail=True)
def bandwidth_ratio(flow: Flow) -> float | None:
    """K = (C_f / C_r) / (S_data / S_ack): above 1, acks for every packet fill the reverse line first.

    C are the least declared rates on the way of the flow's data and on the way back; S the mean IP bytes of its data
    segments at the sender and of its pure acks at the receiver. None when a way has no limited line, or for a flow
    without data or acks.
    """
    lines = {(line.sender, line.link): line for line in flow.run.all_lines}
    any_line = next(iter(lines.values()), None)
    if any_line is None:
        return None
    forward, reverse = (
        min((rate for hop, link, _ in hops if (rate := lines[hop, link].rate_bps) is not None), default=None)
        for hops in (any_line.path(flow), any_line.path_back(flow))
    )
    data = flow.at_sender.filter((pl.col("dir") == 0) & is_a(DATA))["ip_len"].mean()
    ack = flow.at_receiver.filter((pl.col("dir") == 1) & is_a(PURE_ACK))["ip_len"].mean()
    if forward is None or reverse is None or data is None or ack is None:
        return None
    return (forward / reverse) / (float(data) / float(ack))  # type: ignore[arg-type]


@metric("number", "Utility", "link", "acq 2: U = x_r/C_r + x_f/C_f", detail=True)
def utility(lines: Sequence[Line]) -> float | None:
    """U = x_r / C_r + x_f / C_f: the shares of both directions that data use; at most 2, of a link with two rates."""
    shares = [data_share(line) for line in lines]
    return None if any(share is None for share in shares) else sum(share or 0.0 for share in shares)
