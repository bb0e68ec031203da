"""Thins series for plots without losing peaks.

The view is divided into slices. Of each slice the first, last, least and greatest value stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class View:
    """The part of a run that a plot shows, in s, and the greatest number of points of a series."""

    from_s: float
    to_s: float
    points: int


def thin(frame: pl.DataFrame, view: View, all_stay: bool = False) -> pl.DataFrame:
    """A frame of `x` (sorted) and `y` within the view, thinned to about its number of points unless `all_stay`.

    The nearest point on either side of the view stays, so that lines reach its edges.
    """
    low, high = frame["x"].search_sorted(view.from_s, "left"), frame["x"].search_sorted(view.to_s, "right")
    inside = frame[low:high]
    before, after = frame[max(low - 1, 0) : low], frame[high : high + 1]
    if inside.height > view.points and not all_stay:
        slices = max(view.points // 4, 1)
        width = (view.to_s - view.from_s) / slices or 1.0
        # Sorted slices need no hashing.
        number = ((pl.col("x") - view.from_s) / width).floor().cast(pl.Int32).set_sorted()
        numbered = inside.select("y", number.alias("slice")).with_row_index("row")
        kept = numbered.group_by("slice").agg(
            pl.col("row").first().alias("a"),
            pl.col("row").last().alias("b"),
            pl.col("row").get(pl.col("y").arg_min()).alias("c"),
            pl.col("row").get(pl.col("y").arg_max()).alias("d"),
        )
        rows = pl.concat([kept[name] for name in "abcd"]).unique().sort()
        inside = inside[rows.to_list()]
    return pl.concat([before, inside, after])
