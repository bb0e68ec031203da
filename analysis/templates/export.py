"""An export of a run: a table with the arrivals of every flow."""

from __future__ import annotations

import polars as pl

from analysis.exports.registry import Target, export
from analysis.handle import StoredRun


# Name, summary, what is exported, and the name of the file: its ending is the format of a table.
@export("my-crate", "bytes that arrived, of every flow", of="run", file="{name}-my-crate.csv")
def my_crate(run: StoredRun, target: Target) -> pl.DataFrame:
    """Time and bytes of each arrival, and the flow's name."""
    del target  # a table is written by the caller; an export of another format writes to target.path
    return pl.concat([flow.arrivals.with_columns(flow=pl.lit(flow.name)) for flow in run.data.flows])
