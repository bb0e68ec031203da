"""Frames as CSV, Parquet and JSON; SI units, one row a value, names as in the store."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl
import polars.selectors as cs

from analysis.errors import AnalysisError


def _json(frame: pl.DataFrame, path: Path) -> None:
    # JSON has no infinities.
    floats = [name for name, kind in frame.schema.items() if kind.is_float()]
    finite = frame.with_columns(
        pl.when(pl.col(name).abs() < math.inf).then(pl.col(name)).alias(name) for name in floats
    )
    finite.write_json(path)


def _csv(frame: pl.DataFrame, path: Path) -> None:
    # CSV has no lists: their numbers stand beside each other in one field.
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
    ending = path.suffix.lower().removeprefix(".")
    if ending not in WRITERS:
        raise AnalysisError(f"{path}: a table's name ends in {', '.join('.' + ending for ending in WRITERS)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        WRITERS[ending](frame, path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise AnalysisError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from None
