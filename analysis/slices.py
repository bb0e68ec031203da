"""Slices of equal length of a period: the one home of every series that is binned over time.

A series lists every slice as long as there are at most MAX_DENSE. A longer one lists only the slices that contain
something and their neighbours, which are empty: the number of points depends on the data, never on the span between the
first and the last time stamp.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import polars as pl

from analysis.errors import AnalysisError

#: Slices of a period up to which empty ones are listed without exception.
MAX_DENSE = 100_000
#: Maximum number of slices of a period, listed or not: a float represents every number up to it.
MAX_NUMBER = 2**53
#: Packets in a slice at least, so that a rate over time does not jump with single packets.
PACKETS = 5
#: By how much slices are lengthened at most for a flow that sends seldom.
MOST_LONGER = 10


def count(from_s: float, to_s: float, width_s: float, most: int = MAX_NUMBER) -> int:
    """Number of slices of `width_s` that cover a period; the last one may reach beyond its end.

    Raises:
        AnalysisError: the slice has no length, or the period has more than `most` slices.
    """
    if not (width_s > 0 and math.isfinite(width_s)):
        raise AnalysisError(f"a slice must be longer than 0 s, not {width_s:g} s")
    if not (to_s - from_s) / width_s <= most:
        raise AnalysisError(
            f"slices of {width_s:g} s are too short for a period of {to_s - from_s:g} s; use at least "
            f"{(to_s - from_s) / min(most, MAX_DENSE):.3g} s"
        )
    return max(-int(-(to_s - from_s) // width_s), 0)


def width_s(least_s: float, packet_s: float, gap_s: float) -> float:
    """Length of slices in which several packets arrive: a multiple of `least_s`, in s.

    Args:
        least_s: the shortest length.
        packet_s: time that the flow's largest packet takes on the slowest line; 0 if unknown.
        gap_s: median time between two packets that arrive; 0 for fewer than two packets.
    """
    wanted_s = max(PACKETS * packet_s, min(PACKETS * gap_s, MOST_LONGER * least_s), least_s)
    return math.ceil(wanted_s / least_s - 1e-9) * least_s


def gaps(values: Iterable[float]) -> list[int]:
    """Numbers of consecutive slices of value 0 between two slices of another value, in order."""
    lengths, length = list[int](), 0
    for value in values:
        if value:
            lengths.append(length)
            length = 0
        else:
            length += 1
    return [length for length in lengths[1:] if length]


def totals(events: pl.DataFrame, from_s: float, width_s: float, number: int) -> pl.DataFrame:
    """Sums of `bytes` of the events (`t_s`, `bytes`) in the slices of a period: `slice`, `bytes`, in order.

    Args:
        events: in any order; those outside the period are left out.
        from_s: start of the period.
        width_s: length of a slice.
        number: of slices.
    """
    at = ((pl.col("t_s") - from_s) / width_s).floor()
    inside = events.with_columns(at.alias("slice")).filter((pl.col("slice") >= 0) & (pl.col("slice") < number))
    got = inside.group_by(pl.col("slice").cast(pl.Int64)).agg(pl.col("bytes").sum())
    listed = pl.DataFrame({"slice": listed_slices(got["slice"], number)}, schema={"slice": pl.Int64})
    return listed.join(got, on="slice", how="left", maintain_order="left").with_columns(pl.col("bytes").fill_null(0))


def listed_slices(occupied: pl.Series, number: int) -> pl.Series:
    """The slices that a series lists, in order: all, or beyond MAX_DENSE the occupied ones and their neighbours.

    The first and the last slice are always listed.
    """
    if number <= MAX_DENSE:
        return pl.Series("slice", range(number), dtype=pl.Int64)
    ends = pl.Series([0, number - 1], dtype=pl.Int64)
    listed = pl.concat([ends, *(occupied.cast(pl.Int64) + step for step in (-1, 0, 1))]).unique().sort()
    return listed.filter((listed >= 0) & (listed < number)).alias("slice")
