"""Records of runs: files with one JSON object a line, which stacks, links and traffic programs write.

A stored run has them compressed by gzip, at a tenth of their size. A run that is not measured yet, and one that a
version before 29 November 2026 stored, has them plain.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from analysis.errors import REPEAT, AnalysisError

#: Ends of their names.
PLAIN, PACKED = ".jsonl", ".jsonl.gz"
#: Column to type.
Columns = Mapping[str, pl.DataType | type[pl.DataType]]


def record_file(folder: Path, name: str) -> Path | None:
    """The records of this name in a folder, such as "links"; None without any."""
    paths = (folder / f"{name}{suffix}" for suffix in (PACKED, PLAIN))
    return next((path for path in paths if path.is_file()), None)


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
    except (pl.exceptions.PolarsError, OSError) as error:
        raise AnalysisError(f"{path} cannot be read: {error}; {REPEAT}") from None
