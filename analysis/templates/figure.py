"""A figure of a run: the bytes that arrived of a flow."""

from __future__ import annotations

import polars as pl

from analysis.captures import CapturedFlow
from analysis.figures.model import Axis, Figure, Series
from analysis.figures.registry import Asked, figure
from analysis.figures.run import TIME


# Name, summary, what it is drawn of, and whether it shows one of them.
@figure("my-crate", "bytes that arrived, of a flow", of=CapturedFlow, single=True)
def my_crate(flow: CapturedFlow, asked: Asked) -> Figure:
    """Steps at the arrivals of the period that is asked for."""
    arrivals = flow.arrivals.filter(pl.col("t_s").is_between(asked.from_s, asked.to_s))
    points = arrivals.select(x="t_s", y=pl.col("total").cast(pl.Float64))
    return Figure(TIME, Axis("arrived", "bytes"), (Series(flow.name, "steps", points),), "my-crate")
