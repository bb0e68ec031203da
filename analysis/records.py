"""Records of runs: files with one JSON object a line, which stacks, links and traffic programs write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from analysis.errors import REPEAT, AnalysisError

#: Column to type.
Columns = Mapping[str, pl.DataType | type[pl.DataType]]


def read_records(path: Path, schema: Columns) -> pl.DataFrame:
    """The records of a file; an empty table for an empty file.

    Raises:
        AnalysisError: the file is damaged.
    """
    if not path.stat().st_size:
        return pl.DataFrame(schema=dict(schema))
    try:
        # A path would be a pattern, and names of flows over IPv6 have brackets.
        with path.open("rb") as file:
            return pl.read_ndjson(file, schema=dict(schema))
    except pl.exceptions.PolarsError as error:
        raise AnalysisError(f"{path} cannot be read: {error}; {REPEAT}") from None
