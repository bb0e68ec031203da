"""Frames as CSV, Parquet and JSON; SI units, one row a value, names as in the store."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl
import polars.selectors as cs

from analysis.errors import ending_of, writing


def _json(frame: pl.DataFrame, path: Path) -> None:
    # JSON has no infinities.
    floats = [name for name, kind in frame.schema.items() if kind.is_float()]
    finite = frame.with_columns(
        pl.when(pl.col(name).abs() < math.inf).then(pl.col(name)).alias(name) for name in floats
    )
    finite.write_json(path)


def _csv(frame: pl.DataFrame, path: Path) -> None:
    # CSV has no lists, so a field holds the numbers of a list, separated by spaces.
    frame.with_columns(cs.by_dtype(pl.List(pl.Float64)).cast(pl.List(pl.String)).list.join(" ")).write_csv(path)


#: Ending of a file's name to what writes it.
WRITERS: Mapping[str, Callable[[pl.DataFrame, Path], None]] = {
    "csv": _csv,
    "parquet": lambda frame, path: frame.write_parquet(path, compression="zstd"),
    "json": _json,
}


def write(frame: pl.DataFrame, path: Path) -> None:
    """Writes a frame as the ending of the file's name says.

    Raises:
        AnalysisError: another ending, or the file cannot be written.
    """
    ending = ending_of(path, "table", WRITERS)
    with writing(path, pl.exceptions.PolarsError):
        WRITERS[ending](frame, path)
