"""Parquet files by their names: polars would take `*`, `?` and `[` in the name of a folder for a pattern."""

from __future__ import annotations

from pathlib import Path

import polars as pl


def scan(path: Path) -> pl.LazyFrame:
    """A file's rows, read when they are collected."""
    return pl.scan_parquet(path, glob=False)


def read(path: Path) -> pl.DataFrame:
    """A file's rows."""
    return pl.read_parquet(path, glob=False)
