"""The sender's congestion window, as its stack told it: a second source, beside the captures."""

from __future__ import annotations

import polars as pl

from analysis.metrics.data import Flow, step_mean
from analysis.metrics.registry import metric


def _steps(flow: Flow) -> pl.DataFrame:
    known = flow.telemetry.filter(pl.col("cwnd_segments").is_not_null())
    return known.select("t_s", pl.col("cwnd_segments").alias("y"))


@metric("segments", "Congestion window", "flow", "asym table 1: time average, in packets; telemetry", detail=True)
def cwnd_mean(flow: Flow) -> float | None:
    """Mean over the flow's measured time of the congestion window, in segments."""
    return step_mean(_steps(flow), flow.start_s, flow.ended_s())


@metric("number", "Variation of the congestion window", "flow", "asym fig 9: fluctuation; telemetry", detail=True)
def cwnd_variation(flow: Flow) -> float | None:
    """Coefficient of variation of the congestion window over the flow's measured time: sqrt(E w^2 - (E w)^2) / E w.

    None when the window was 0 throughout, or over no time.
    """
    return _variation(flow, _steps(flow))


def _variation(flow: Flow, steps: pl.DataFrame) -> float | None:
    mean = step_mean(steps, flow.start_s, flow.ended_s())
    square = step_mean(steps.with_columns(pl.col("y").pow(2)), flow.start_s, flow.ended_s())
    return None if not mean or square is None else max(square - mean * mean, 0.0) ** 0.5 / mean


@metric("segments", "Congestion window at the end", "flow", "ton fig 11; telemetry", detail=True)
def cwnd_final(flow: Flow) -> float | None:
    """The congestion window at the end of the flow's measured time, in segments; None before the first sample."""
    before = _steps(flow).filter(pl.col("t_s") <= flow.ended_s())
    return None if before.is_empty() else float(before["y"][-1])


@metric("number", "Growth of the congestion window", "flow", "pulsed 3.2.2; telemetry", detail=True)
def cwnd_growth(flow: Flow) -> float | None:
    """Segments a second by which the window's mean grows from the first to the last second of the measured time."""
    steps, begin, end = _steps(flow), flow.start_s, flow.ended_s()
    first, last = step_mean(steps, begin, begin + 1.0), step_mean(steps, end - 1.0, end)
    return None if first is None or last is None or end - begin <= 1.0 else (last - first) / (end - begin - 1.0)


@metric("count", "Coarse timeouts of the relay", "flow", "ton IV-D, fig 10; telemetry", detail=True, summed=True)
def relay_coarse_timeouts(flow: Flow) -> float | None:
    """Coarse timeouts of the base station's sender of a split connection; None for a connection that is whole."""
    return _told(flow, "coarse_timeout")


@metric("count", "Fast retransmits of the relay", "flow", "ton IV-D, fig 10; telemetry", detail=True, summed=True)
def relay_fast_retransmits(flow: Flow) -> float | None:
    """Fast retransmits of the base station's sender of a split connection; None for a connection that is whole."""
    return _told(flow, "fast_retransmit")


def _told(flow: Flow, event: str) -> float | None:
    told = flow.relay.filter(pl.col("t_s") >= flow.start_s)
    return None if told.is_empty() else float(told.filter(pl.col("event") == event).height)


@metric("number", "Variation of the relay's window", "flow", "ton fig 11: fluctuation; telemetry", detail=True)
def relay_cwnd_variation(flow: Flow) -> float | None:
    """`cwnd_variation` of the base station's sender of a split connection; None for a connection that is whole."""
    return _variation(flow, flow.relay.select("t_s", pl.col("cwnd_segments").alias("y")))
