"""The sender's congestion window, as its stack reports it: a second source, beside the captures."""

from __future__ import annotations

import polars as pl

from analysis.captures import CapturedFlow
from analysis.captures.segments import step_variation
from analysis.estimates import Bounds
from analysis.metrics.registry import metric
from analysis.metrics.throughput import packet_throughput
from analysis.runs import Flow

#: The wide-area path's product of bandwidth and delay (ton IV-B), in bytes.
PIPE_BYTES = 23_000
#: Headers in a packet, in bytes, by the version of IP.
HEADER_BYTES = {4: 40, 6: 60}
#: The window's first rise takes this long, in s.
RISE_S = 5.0


@metric(
    "segments", "Congestion window", Flow, "asym 7.1.1, table 1: time average, in packets", detail=True, better=None
)
def cwnd_mean(flow: Flow) -> float | None:
    """Time average of the congestion window over the flow's measured time, in segments."""
    return flow.cwnd_mean_segments()


@metric(
    "number", "Variation of the congestion window", Flow, "asym 7.1.1, figure 9: fluctuation", detail=True, better=None
)
def cwnd_variation(flow: Flow) -> float | None:
    """Coefficient of variation of the congestion window over the flow's measured time."""
    return flow.cwnd_variation()


@metric("segments", "Congestion window at the end", CapturedFlow, "ton fig 11; telemetry", detail=True, better=None)
def cwnd_final(flow: CapturedFlow) -> float | None:
    """The congestion window at the end of the flow's measured time, in segments; None before the first sample."""
    before = flow.cwnd_steps.filter(pl.col("t_s") <= flow.ended_s())
    return None if before.is_empty() else float(before["y"][-1])


@metric("number", "Growth of the congestion window", Flow, "pulsed 3.2.2", detail=True, better=None, bounds=Bounds())
def cwnd_growth(flow: Flow) -> float | None:
    """Growth of the congestion window from the start to the end of the measured time, in segments/s."""
    return flow.cwnd_growth()


@metric(
    "number",
    "Growth of the congestion window a window",
    Flow,
    "pulsed 3.1, equation 2; 3.2.2",
    detail=True,
    better=None,
    bounds=Bounds(),
)
def cwnd_growth_per_window(flow: Flow) -> float | None:
    """`cwnd_growth` times the mean time in which a window's data are delivered, in segments.

    Where the window limits the sender, that time is the mean round trip of the data with the wait for their ack: by
    Little's law the segments outstanding over their rate. Round trips of the path alone leave that wait out.
    """
    growth, window, rate_bps = flow.cwnd_growth(), flow.cwnd_mean_segments(), packet_throughput(flow)
    if growth is None or window is None or not rate_bps:
        return None
    return growth * window * flow.packet_bytes * 8 / rate_bps


@metric("count", "Falls of the congestion window", Flow, "ton IV-B, figure 4", detail=True, better=None)
def cwnd_excursions(flow: Flow) -> float:
    """How often the congestion window falls below PIPE_BYTES, after its first 5 s, by its means over slices.

    Slices are bins of the counters, and 0.1 s of telemetry. A window of w segments holds w times the sender's largest
    packet, less its headers each.
    """
    data_bytes = flow.packet_bytes - HEADER_BYTES[flow.spec.ip]
    levels = flow.window_levels(flow.start_s + RISE_S, flow.ended_s())
    above = [level * data_bytes >= PIPE_BYTES for level in levels]
    return float(sum(before and not now for before, now in zip(above, above[1:], strict=False)))


@metric(
    "count",
    "Coarse timeouts of the relay",
    CapturedFlow,
    "ton IV-D, fig 10; telemetry",
    detail=True,
    summed=True,
    better="less",
)
def relay_coarse_timeouts(flow: CapturedFlow) -> float | None:
    """Coarse timeouts of the base station's sender of a split connection; None for a connection that is not split."""
    return _relay_events(flow, "coarse_timeout")


@metric(
    "count",
    "Fast retransmits of the relay",
    CapturedFlow,
    "ton IV-D, fig 10; telemetry",
    detail=True,
    summed=True,
    better="less",
)
def relay_fast_retransmits(flow: CapturedFlow) -> float | None:
    """Fast retransmits of the base station's sender of a split connection; None for a connection that is not split."""
    return _relay_events(flow, "fast_retransmit")


def _relay_events(flow: CapturedFlow, event: str) -> float | None:
    if flow.relay.is_empty():  # as of every connection that is not split
        return None
    samples = flow.relay.filter(pl.col("t_s") >= flow.start_s)
    return None if samples.is_empty() else float(samples.filter(pl.col("event") == event).height)


@metric(
    "number",
    "Variation of the relay's window",
    CapturedFlow,
    "ton fig 11: fluctuation; telemetry",
    detail=True,
    better=None,
)
def relay_cwnd_variation(flow: CapturedFlow) -> float | None:
    """`cwnd_variation` of the base station's sender of a split connection; None for a connection that is not split."""
    steps = flow.relay.select("t_s", pl.col("cwnd_segments").alias("y"))
    return step_variation(steps, flow.start_s, flow.ended_s())
